"""Why a program's kernels are as they are: a table of all of them, then a paragraph for each.

    net on tpu:v5e: 2 kernels, 31,204 cycles predicted

      #  kernel              cycles  share  bound by      moves   needs  lines
      1  dot_add_maximum     19,746    63%  mxu 70%     3.0 MiB  3.0 MiB  net.py:3
      2  dot                 11,458    37%  latency 51%  ...

Goes in: the tiled kernels, the plan, and what each pass noted of its decisions. Comes out: text of at most
100 columns. Invariants: what a kernel waits for adds up to its predicted cycles; `needs` counts each operand
that crosses from main memory once, `moves` each time that its block changes; nothing is decided here. XLA
leaves this to who reads its dumps; LLVM's opt-viewer shows its remarks beside the source. Read next: cost.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import prod
from textwrap import wrap
from typing import NamedTuple

from minicc.errors import CompileError
from minicc.graph.attributes import nearest
from minicc.kernel.cost import Target, cost, operand_bytes
from minicc.kernel.ir import Kernel, Module, Operand
from minicc.kernel.memory import MemoryPlan, Role, Space, size_text
from minicc.kernel.tile import Candidate, candidates
from minicc.trace import PassRecord, Step

COLUMNS, NAME_COLUMNS = 100, 30
INDENT = " " * 9
RUNNERS_UP = 3
FEW, ALL = 5, 10**6  # rows of a paragraph's parts: beside others, and on its own
OF_ALL = {"tune": "tuned", "donate": "donated", "fit": "let go"}  # what passes did with the whole program
VIEWS = ("broadcast_in_dim", "transpose", "slice", "reverse", "iota")  # where to read, rather than what to do


def explain(
    module: Module, plan: MemoryPlan, target: Target, records: Sequence[PassRecord], only: str = ""
) -> str:
    """All kernels, or the one of this name with everything that is known of it.

    records: those of passes that were asked to log. Raises: CompileError if no kernel has this name.
    """
    names = [kernel.name for kernel in module.kernels]
    if only != "" and only not in names:
        raise CompileError("explain", "there is no such kernel", got=repr(only),
                           need=", ".join(names) or "none", hint=nearest(str(only), names))
    why = _Why(module, plan, target, {record.name: record.steps for record in records})
    if only:
        return "\n".join(why.paragraph(names.index(only), ALL))
    parts = [why.table(), *(why.paragraph(number, FEW) for number in range(len(names)))]
    return "\n\n".join("\n".join(part) for part in parts)


def waits(kernel: Kernel, target: Target) -> dict[str, float]:
    """What the predicted cycles of a kernel go by with, the most first; they add up to them.

    hbm: bytes cross. mxu (dot, where dots have no units of their own), vector: it works, or where both do at
    once, the busier of the two. latency: for launches, and for copies to begin.
    """
    price = cost(kernel, target)
    works = {_dots(target): price.dot_cycles, "vector": price.vector_cycles}
    if not target.one_core:
        busier = max(works, key=lambda name: works[name])
        works = {busier: works[busier]}
    again = kernel.steps - 1  # steps in which a copy and the body overlap: the longer one counts
    computing = price.compute_cycles >= price.latency_cycles + price.copy_cycles
    spent = {
        "hbm": price.copy_cycles * (1 if computing else kernel.steps),
        **{name: cycles * (kernel.steps if computing else 1) for name, cycles in works.items() if cycles},
        "latency": target.launch_cycles + price.latency_cycles * (2 if computing else 2 + again),
    }
    return dict(sorted(spent.items(), key=lambda pair: -pair[1]))


def _dots(target: Target) -> str:
    return "mxu" if target.one_core else "dot"


def once_bytes(kernel: Kernel, operand: Operand) -> int:
    """Bytes of an operand that a kernel cannot do without: all that it reads or writes of it, once."""
    walked = prod(kernel.axis(name).size for name in set(operand.axes))
    return min(walked, operand.type.elements) * operand.type.dtype.itemsize


class _Crossing(NamedTuple):
    """What crosses between main memory and the chip: as it does, and if each element did once."""

    name: str
    moved_bytes: int
    once_bytes: int


class _Why:
    """What is known of a program, and how it is said."""

    def __init__(
        self, module: Module, plan: MemoryPlan, target: Target, steps: dict[str, tuple[Step, ...]]
    ) -> None:
        self.module, self.plan, self.target, self.steps = module, plan, target, steps
        self.cycles = [cost(kernel, target).cycles for kernel in module.kernels]
        # an update's buffer is written by the copy of its base first: what is said of it is said of the last
        self.writer = {op.buffer: kernel.name for kernel in module.kernels for op in kernel.outputs}

    def table(self) -> list[str]:
        """One row for each kernel."""
        total, count = sum(self.cycles), f"{len(self.cycles)} kernel{'s' * (len(self.cycles) != 1)}"
        name = min(NAME_COLUMNS, max((len(kernel.name) for kernel in self.module.kernels), default=0))
        lines = [f"{self.module.name} on {self.target.name}: {count}, {total:,.0f} cycles predicted", "",
                 f" #  {'kernel':{name}}  {'cycles':>11} share  waits for   {'moves':>9} {'needs':>9}  lines"]
        for number, kernel in enumerate(self.module.kernels):
            most, cycles = next(iter(waits(kernel, self.target).items()))
            share = cycles / self.cycles[number]
            crossing = self._crossing(number)
            moves, needs = (size_text(sum(sizes)) for sizes in
                            ([one.moved_bytes for one in crossing], [one.once_bytes for one in crossing]))
            places = sorted(kernel.locs())
            more = f" +{len(places) - 1}" if places[1:] else ""
            lines.append(_cut(
                f"{number + 1:2}  {_cut(kernel.name, name):{name}}  {self.cycles[number]:11,.0f} "
                f"{self.cycles[number] / total:5.0%}  {f'{most} {share:.0%}':11} {moves:>9} {needs:>9}  "
                f"{places[0] if places else ''}{more}"))
        of_all = [f"{word}: {step}" for name, word in OF_ALL.items() for step in self.steps.get(name, ())
                  if not step.about]
        return lines + [line for text in of_all for line in wrap(text, COLUMNS, subsequent_indent="  ")]

    def paragraph(self, number: int, most: int) -> list[str]:
        """Everything about one kernel; of each part the first rows, if there are more than that."""
        kernel = self.module.kernels[number]
        grid = ", ".join(f"{axis.name} {axis.steps} x {axis.block}" for axis in kernel.axes if axis.steps > 1)
        lines = [_cut(f"{number + 1}  {kernel.name}: {self.cycles[number]:,.0f} cycles, "
                      f"grid {grid or 'of one step'}")]
        parts = {"lines": [_cut(f"{loc}: {loc.source()}", COLUMNS - len(INDENT)) for loc in
                           sorted(kernel.locs())],
                 "why": self._why(kernel), "tile": list(self._tiles(kernel)), "bytes": [self._bytes(number)],
                 "waits": [self._waits(kernel)], "where": list(self._places(kernel)),
                 "loops": [step.why for step in self.steps.get("schedule", ()) if step.what == kernel.name]}
        for label, rows in parts.items():
            if len(rows) > most + 1:
                rows = [*rows[:most], f"and {len(rows) - most} more: explain({kernel.name!r}) has them all"]
            text = [line for row in rows
                    for line in wrap(row, COLUMNS, initial_indent=INDENT, subsequent_indent=INDENT + "  ")]
            lines += [f"   {label:6}{text[0][len(INDENT):]}", *text[1:]] if text else []
        return lines

    def _crossing(self, number: int) -> list[_Crossing]:
        """What crosses from or to main memory while a kernel runs."""
        kernel = self.module.kernels[number]
        found = [_Crossing(op.name, operand_bytes(kernel, op), once_bytes(kernel, op))
                 for op in (*kernel.operands, *kernel.scalars) if not self.plan.resident(op.buffer)]
        return found + [_Crossing(f"{name} (fetched)", copy.type.bytes, copy.type.bytes)
                        for name, copy in self.plan.fetched.items() if copy.first == number]

    def _about(self, kernel: Kernel, name: str) -> list[Step]:
        """What a pass noted of a kernel, that is, of the buffers it writes."""
        return [step for step in self.steps.get(name, ())
                if any(self.writer.get(buffer) == kernel.name for buffer in step.about)]

    def _why(self, kernel: Kernel) -> list[str]:
        """What it is for, and what is done with it; last what is fused in any case, or nearly so."""
        found, rows = self._about(kernel, "fuse"), []
        for step in sorted(found, key=lambda step: (step.taken, " fused, " in step.why,
                                                    step.what.split()[-1] in VIEWS)):
            where = f" ({step.at[0]})" if step.at else ""
            reason = re.sub(r"\b\d{4,}\b", lambda number: f"{int(number[0]):,}", step.why)
            rows.append(f"{'with' if step.taken else 'for '} {step.what}{where}: {reason}")
        if not rows and kernel.outputs[0].buffer in self.writer:
            last = self.writer[kernel.outputs[0].buffer]
            rows = [f"it makes the {kernel.outputs[0].buffer} that {last} changes in place" if
                    last != kernel.name else f"it changes {kernel.outputs[0].buffer}, which is donated"]
        return rows

    def _tiles(self, kernel: Kernel) -> Iterator[str]:
        """The blocks, the best that were not taken, and what was measured."""
        tried = list[Candidate]()
        with suppress(CompileError):  # somebody's own tiles, of a kernel that has none by our rules
            tried = candidates(kernel, self.target)
        mine = cost(kernel, self.target).cycles
        chosen = {axis.name: axis.block for axis in kernel.axes}
        same = [one for one in tried if one.blocks == chosen]
        bytes = f", {size_text(same[0].fast_bytes)} of fast memory" if same and self.target.one_core else ""
        yield f"{' '.join(f'{name}={block}' for name, block in chosen.items())}{bytes}"
        measured = self._about(kernel, "tune")
        yield from map(str, measured)
        for one in [one for one in tried if one not in same][:0 if measured else RUNNERS_UP]:
            blocks = " ".join(f"{name}={block}" for name, block in one.blocks.items())
            yield f"not {blocks}: {one.cost.cycles:,.0f} cycles, {one.cost.cycles / mine - 1:+.0%}"

    def _bytes(self, number: int) -> str:
        """The bytes of what crosses; how many times it does, if more than once."""
        found = []
        for name, moved, once in self._crossing(number):
            times = f" x {moved / once:.3g}" if once and moved > once else ""
            found.append(f"{name} {size_text(once)}{times}")
        return ", ".join(found) or "none: all that it reads and writes stays on the chip"

    def _waits(self, kernel: Kernel) -> str:
        price, steps = cost(kernel, self.target), kernel.steps
        spent = ", ".join(f"{name} {cycles:,.0f}" for name, cycles in waits(kernel, self.target).items()
                          if cycles >= 1)
        busy = {"hbm": price.copy_cycles, _dots(self.target): price.dot_cycles, "vector": price.vector_cycles}
        works = ", ".join(f"{name} {cycles * steps:,.0f}" for name, cycles in busy.items() if cycles)
        return f"{spent}; at work: {works}" if works else spent

    def _places(self, kernel: Kernel) -> Iterator[str]:
        """Where buffers between kernels that this one touches live, and copies of inputs, and why there."""
        why = {step.what.split(":")[0]: step.why for step in self.steps.get("plan", ())}
        for name in dict.fromkeys(op.buffer for op in (*kernel.reads, *kernel.outputs)):
            place = self.plan.at(name)
            if place.role is Role.TEMP or name in self.plan.fetched:
                space = "VMEM" if place.space is Space.VMEM else "main memory"
                reason = f": {why[name]}" if name in why else ""
                yield (f"{name} {size_text(place.bytes)} in {space}, kernels {place.first + 1} to "
                       f"{place.last + 1}{reason}")


def _cut(text: str, columns: int = COLUMNS) -> str:
    return text if len(text) <= columns else text[:columns - 2] + ".."
