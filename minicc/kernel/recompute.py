"""Recomputing: into a limit of memory, for more cycles.

    t1 = tanh(dot(x, w))                       t1 = tanh(dot(x, w))
    ... kernels that read no t1           ->   ... kernels for which t1 is let go
    out = multiply(dy, t1)                     t1_again = tanh(dot(x, w));  out = multiply(dy, t1_again)

Goes in: tiled kernels and a number of bytes. Comes out: the same kernels, some of them once more, whose plan
fits; or an error that says what is in the way. A buffer that nobody reads for a while is computed again by
the kernels that made it, from what is alive by then, from what is kept for longer, or from what is itself
computed again. Of all such choices those come first that take most off what is above the limit, in bytes
times kernels, for each cycle of the kernels that run again; then it is planned anew, until all fits.
Invariants: values keep their bits, since what runs again is the same kernel in the same tiles; what changes a
buffer in place runs once.

XLA has such a pass (HloRematerialization), which also weighs the memory that a choice takes off; checkpoint
asks for it by hand. Source: T. Chen et al., arXiv 1604.06174. Read next: memory.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np

from minicc.errors import CompileError, merge_locs
from minicc.kernel.cost import Target, cost
from minicc.kernel.ir import Again, Kernel, Module, on_buffers
from minicc.kernel.memory import MemoryPlan, Placement, Role, Space, size_text
from minicc.kernel.memory_map import MemoryMap
from minicc.trace import Step

DEPTHS = (0, 1, 2, 4, 8)  # how far back kernels run again, before something is kept for longer instead
MOST_ROUNDS = 64
SHOWN = 5  # buffers that an error lists
Planner = Callable[[Module, Target], MemoryPlan]


@dataclass(frozen=True)
class _Choice:
    """A buffer that is let go behind kernel `begin`, and computed again before kernel `end`.

    again: the kernels that run once more for it, in order. longer: what is kept until then for them. needs:
    what they find there. source: buffer -> the copy of it that they read.
    """

    buffer: str
    begin: int
    end: int
    again: tuple[int, ...]
    longer: frozenset[str]
    needs: frozenset[str]
    source: Mapping[str, str]


def fit(module: Module, target: Target, limit: int, planner: Planner, *, log: list[Step] | None = None
        ) -> Module:
    """The module, with kernels that run again so that its plan takes no more than so many bytes of main
    memory. planner: places its buffers.

    Raises: CompileError if it cannot be; it lists what is alive when most is.
    """
    roomy = replace(target, slow_bytes=max(limit, target.slow_bytes, 2**62))
    for _ in range(MOST_ROUNDS):
        plan = planner(module, roomy)
        if plan.hbm_bytes <= limit:
            return module
        lives = _Lives(module, plan, target)
        goal = limit - (plan.hbm_bytes - int(lives.live.max()))  # less what lies between buffers
        chosen = lives.choose(goal)
        if not chosen:
            break
        module = lives.applied(chosen, log)
    _refuse(module, plan, limit)


class _Lives:
    """What a plan keeps alive, kernel by kernel, and what could be let go."""

    def __init__(self, module: Module, plan: MemoryPlan, target: Target) -> None:
        self.module, self.places = module, plan.placements
        self.cycles = [cost(kernel, target).cycles for kernel in module.kernels]
        self.writers: dict[str, list[int]] = {}
        self.touches: dict[str, list[int]] = {}
        self.versions: dict[str, list[str]] = {}
        for number, kernel in enumerate(module.kernels):
            for op in kernel.outputs:
                self.writers.setdefault(op.buffer, []).append(number)
                self.versions.setdefault(self._original(op.buffer), []).append(op.buffer)
            for name in dict.fromkeys(op.buffer for op in (*kernel.reads, *kernel.outputs)):
                self.touches.setdefault(name, []).append(number)
        self.live, self.across = (np.zeros(len(module.kernels) + 1, np.int64) for _ in range(2))
        for place in self.places.values():
            if place.space is Space.HBM:  # across: alive before a kernel and in it
                self.live[place.first + (place.buffer in module.onto):place.last + 1] += place.bytes
                self.across[place.first + 1:place.last + 1] += place.bytes

    def _original(self, name: str) -> str:
        return self.module.again[name].buffer if name in self.module.again else name

    def choose(self, goal: int) -> list[_Choice]:
        """The choices of one round, none of which touches what another one changes."""
        rated = [(self._gain(choice, self.live, goal) / self._price(choice), number, choice)
                 for number, choice in enumerate(self._choices(goal))]
        chosen, changed, live = list[_Choice](), set[str](), self.live
        for rate, _, choice in sorted(rated, key=lambda row: (-row[0], row[1])):
            touched = {choice.buffer, *choice.needs, *choice.longer}
            if live.max() <= goal or rate <= 0:
                break
            if touched.isdisjoint(changed) and self._gain(choice, live, goal) > 0:
                chosen.append(choice)
                changed |= {choice.buffer, *choice.longer}
                live = self._after(choice, live)
        return chosen

    def _choices(self, goal: int) -> Iterator[_Choice]:
        for name, place in self.places.items():
            touches = self.touches.get(name, [])
            for begin, end in zip(touches, touches[1:], strict=False):
                crowded = end - begin > 1 and self.live[begin + 1:end].max() > goal
                if crowded and place.space is Space.HBM and self._repeatable(name):
                    found = (self._choice(name, begin, end, depth) for depth in DEPTHS)
                    yield from dict.fromkeys(choice for choice in found if choice)

    def _repeatable(self, name: str) -> bool:
        """Whether the kernel that makes a buffer can run again: it is the only one, and changes nothing."""
        numbers = self.writers.get(name, [])
        return (len(numbers) == 1 and self.places[name].role is Role.TEMP
                and not any(op.in_place for op in self.module.kernels[numbers[0]].outputs))

    def _choice(self, name: str, begin: int, end: int, depth: int) -> _Choice | None:
        """What has to run again if kernels do so `depth` steps back; or None if something is lost by then."""
        again, source = dict[int, None](), dict[str, str]()
        longer, needs, lost = set[str](), set[str](), set[str]()

        def visit(number: int, left: int) -> None:
            for read in {op.buffer: None for op in self.module.kernels[number].reads}:
                source[read] = copy = self._version(read, end)
                if self.places[copy].role is Role.UPDATED and number < self.writers[copy][-1] < end:
                    lost.add(copy)
                if self._alive(copy, end):
                    needs.add(copy)
                elif left and self._repeatable(copy):
                    if self.writers[copy][0] not in again:
                        visit(self.writers[copy][0], left - 1)
                else:
                    longer.add(copy)
            again[number] = None  # behind those that make what it reads

        visit(self.writers[name][0], depth)
        if lost or any(self.module.donated.get(copy) for copy in longer):
            return None  # something is written there, or onto it
        return _Choice(name, begin, end, tuple(again), frozenset(longer), frozenset(needs),
                       _Frozen(source))

    def _alive(self, name: str, end: int) -> bool:
        return self.places[name].first < end <= self.places[name].last

    def _version(self, name: str, end: int) -> str:
        """Of a buffer and those that hold it again, the one that is there, or that was there last."""
        before = [one for one in self.versions.get(self._original(name), [name])
                  if self.places[one].first < end]
        return max(before, key=lambda one: self.places[one].last, default=name)

    def _after(self, choice: _Choice, live: np.ndarray) -> np.ndarray:
        """The bytes that are alive in each kernel if a buffer is let go for a while."""
        after = live.copy()
        after[choice.begin + 1:choice.end] -= self.places[choice.buffer].bytes
        for name in choice.longer:
            after[self.places[name].last + 1:choice.end] += self.places[name].bytes
        return after

    def _gain(self, choice: _Choice, live: np.ndarray, goal: int) -> int:
        """Bytes times kernels above the goal that a choice takes away; what runs again may add some."""
        made = [self.places[op.buffer].bytes for number in choice.again
                for op in self.module.kernels[number].outputs]
        kept = sum(self.places[name].bytes for name in choice.longer)
        inside = int(self.across[choice.end]) - self.places[choice.buffer].bytes + kept + sum(made)
        after = np.maximum(self._after(choice, live) - goal, 0).sum()
        return int(np.maximum(live - goal, 0).sum() - after) - max(0, inside - goal) * len(choice.again)

    def _price(self, choice: _Choice) -> float:
        return sum(self.cycles[number] for number in choice.again)

    def applied(self, choices: Sequence[_Choice], log: list[Step] | None) -> Module:
        """The module in which these are chosen."""
        names = _Names(self.module)
        kernels, again, renamed = list[Kernel](), dict(self.module.again), dict[str, str]()
        for number, kernel in enumerate(self.module.kernels):
            for choice in (one for one in choices if one.end == number):
                new = {op.buffer: names.fresh(self._original(op.buffer)) for one in choice.again
                       for op in self.module.kernels[one].outputs}
                copies = [self._copy(one, choice, new, names) for one in choice.again]
                cycles = self._price(choice)
                again |= {copy: Again(self._original(old), cycles * (old == choice.buffer))
                          for old, copy in new.items()}
                kernels += copies
                renamed[choice.buffer] = new[choice.buffer]
                if log is not None:
                    what = f"{choice.buffer}: {self.places[choice.buffer].type}"
                    since = self.module.kernels[choice.begin].name
                    log.append(Step(what, True, f"let go behind {since} and computed again for {kernel.name} "
                                    f"by {', '.join(copy.name for copy in copies)}, in {cycles:.0f} cycles"))
            kernels.append(_reading(kernel, renamed))
        return replace(self.module, kernels=tuple(kernels), again=again)

    def _copy(self, number: int, choice: _Choice, new: Mapping[str, str], names: _Names) -> Kernel:
        """A kernel that runs again, for a choice whose buffers have new names."""
        kernel = self.module.kernels[number]
        kept = choice.needs | choice.longer
        sources = {old: copy if copy in kept else new[copy] for old, copy in choice.source.items()}
        return replace(_reading(kernel, sources), name=names.fresh(kernel.name),
                       outputs=on_buffers(kernel.outputs, new))


class _Frozen(dict[str, str]):
    """A dict that never changes again, so that it can be part of a key."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


class _Names:
    """Names of kernels and buffers that nobody has yet."""

    def __init__(self, module: Module) -> None:
        self.taken = {*(kernel.name for kernel in module.kernels), *module.constants,
                      *(name for name, _ in module.inputs),
                      *(op.buffer for kernel in module.kernels for op in kernel.outputs)}

    def fresh(self, name: str) -> str:
        """name_again, or that with a number."""
        stem = wish = name if name.endswith("_again") else f"{name}_again"
        number = 1
        while wish in self.taken:
            number += 1
            wish = f"{stem}{number}"
        self.taken.add(wish)
        return wish


def _reading(kernel: Kernel, renamed: Mapping[str, str]) -> Kernel:
    """A kernel that reads other buffers."""
    return replace(kernel, inputs=on_buffers(kernel.inputs, renamed),
                   scalars=on_buffers(kernel.scalars, renamed))


def _refuse(module: Module, plan: MemoryPlan, limit: int) -> NoReturn:
    """Say what is alive when most is."""
    found = MemoryMap(module, plan)
    _, number = found.lower_bound(Space.HBM)
    alive: list[Placement] = [place for place in found.buffers(Space.HBM)
                              if place.first <= number <= place.last]
    largest = sorted(alive, key=lambda place: -place.bytes)[:SHOWN]
    table = ", ".join(f"{one.buffer} {one.type} {size_text(one.bytes)}" for one in largest)
    writers = {op.buffer: kernel for kernel in module.kernels for op in kernel.outputs}
    lines = [writers[one.buffer].locs()[:1] for one in largest if one.buffer in writers]
    raise CompileError(
        "memory", "the program does not fit the memory limit, whatever is computed again",
        got=f"{plan.hbm_bytes} bytes, most in kernel {number + 1} {module.kernels[number].name}: {table}",
        need=f"at most {limit}", at=merge_locs(module.kernels[number].locs()[:1], *lines),
        hint="checkpoint(block), donate_argnums, or a smaller batch")
