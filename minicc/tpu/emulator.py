"""Runs a TPU program: values and cycles in one run, rules checked, each cycle accounted for; by whole blocks.

    result = run(program, {"x": x, "y": y})
    result.outputs["z"]            ->  a numpy array
    result.cycles                  ->  1234
    run(program, inputs, stepping=True)     the same, to the bit, one bundle at a time

stepping.py defines what a program means. This is the fast way to the same result: a block of bundles without
copies and waits is leapt over as a whole, several iterations at once if it is a loop. A leap has four parts,
and the first three change nothing:
- the scalars of all its iterations: addresses, branches;
- their cycles, looked up (timing.py);
- the rules: bounds, owners, whether what is read was written, and whether no iteration touches rows that
  another one writes;
- the values, as numpy calls on many tiles (source.py, tiles.py).
When a rule might be broken, nothing has happened yet (or is undone, if it was found out on the way), and the
block is stepped, which finds out whether it is, and says so in the stepper's words.

Invariants: `core` is up to date for the stepper after `settle`; until then its times are in `state`, relative
to `now`. A trace, exposed mode, and the first visits of a block are stepped. QEMU and other translators of
binaries work so: blocks of code, translated when they are hot. What to read next: stepping.py.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakValueDictionary, ref

import numpy as np

from minicc.errors import CompileError, MachineFault
from minicc.tpu.blocks import NotABlock, understand
from minicc.tpu.core import Core
from minicc.tpu.forms import Form, Rows, Span, spans
from minicc.tpu.isa import Program, Reg
from minicc.tpu.machine import ROW_BYTES, SUBLANES
from minicc.tpu.memory import WRITTEN, Area, Memory
from minicc.tpu.source import Access, Block, Reach, compile_block
from minicc.tpu.stepping import Decoded, Run, Stepper, blamed, decode
from minicc.tpu.tiles import Tiles
from minicc.tpu.timing import Effect, Outline, State, Timing
from minicc.tpu.vector import KNOWN
from minicc.tpu.verify import verify

HOT = 3  # the visit at which a block is compiled: one like it counts, too
UNSEEN = 4096  # iterations at a time, without values
LOOK = 4  # the bundles by which blocks are found alike, before their forms are
_compiled: WeakValueDictionary[Form, Block] = WeakValueDictionary()  # by all programs that live


@dataclass
class Site:
    """A block in its place. most: iterations at a time."""

    block: Block
    span: Span
    buffers: tuple[str, ...]
    accesses: list[Access]  # with the names of buffers
    reaches: list[Reach]
    most: int


class Code:
    """A program, verified and decoded, with its blocks as far as they are compiled."""

    def __init__(self, program: Program) -> None:
        verify(program)
        self.decoded = [decode(bundle) for bundle in program.bundles]
        self.rows, self.spans = Rows(program), {span.start: span for span in spans(self.decoded, program)}
        self.sites: dict[int, Site | None] = {}
        self.blocks: dict[Form, Block | None] = {}
        self.visits = Counter[tuple]()  # of spans that look alike
        self.timings = {overlap: Timing(program, self.decoded, overlap) for overlap in (False, True)}
        self.apart: dict[tuple, bool] = {}  # block and addresses -> whether iterations are independent

    def site(self, start: int) -> Site | None:
        """The block that starts at a pc, if there is one and its form is hot."""
        if start in self.sites or start not in self.spans:
            return self.sites.get(start)
        span = self.spans[start]
        bundles = self.decoded[start:span.end]
        look = (len(bundles), *(op.op for bundle in bundles[:LOOK] for op in bundle.ops))
        self.visits[look] += 1
        if self.visits[look] < HOT:
            return None
        form, numbers = self.rows.form(bundles, span)
        if form not in self.blocks:
            self.blocks[form] = _compiled.get(form) or compiled(form, numbers, bundles)
        self.sites[start] = self.placed(self.blocks[form], span, tuple(numbers))
        return self.sites[start]

    def placed(self, block: Block | None, span: Span, buffers: tuple[str, ...]) -> Site | None:
        """A block, in its place."""
        if block is None:
            return None
        accesses = [access._replace(buffer=buffers[access.buffer]) for access in block.accesses]
        reaches = [reach._replace(buffer=buffers[reach.buffer]) for reach in block.reaches]
        return Site(block, span, buffers, accesses, reaches, block.most)


def compiled(form: Form, numbers: dict[str, int], bundles: list[Decoded]) -> Block | None:
    """A block: for many iterations if it can be, None if there is none."""
    for loop in (True, False) if form.loop else (False,):
        try:
            block = compile_block(understand(form, numbers, bundles, loop), loop)
        except NotABlock:
            continue
        _compiled[form] = block
        return block
    return None


class Batch:
    """Iterations of a block, with all of their scalars. Raises: MachineFault."""

    def __init__(self, block: Block, args: list[int], most: int) -> None:
        self.addresses: list[tuple[int, ...]] = []
        self.after: list[tuple[int, ...]] = []  # the scalars that the block writes
        self.numbers: tuple[Any, ...] = ()  # the same for all
        self.taken = False  # whether the last one's branch is
        again = {reg: number for number, reg in enumerate(block.scalar_writes)}
        feedback = [again.get(reg, -1) for reg in block.scalar_reads]
        while True:
            addresses, numbers, taken, after = block.scalars(*args)
            if self.after and numbers != self.numbers:
                break
            self.addresses.append(addresses)
            self.after.append(after)
            self.numbers, self.taken = numbers, taken
            if not taken or len(self.after) == most:
                break
            args = [old if number < 0 else after[number] for number, old in zip(feedback, args, strict=True)]

    def shorten(self, count: int) -> None:
        """The first iterations only."""
        if count < len(self.after):
            self.taken = True
            del self.addresses[count:], self.after[count:]


class Emulator(Stepper):
    """A run that leaps over blocks."""

    def __init__(self, program: Program, code: Code, core: Core, timing: Timing, max_bundles: int) -> None:
        super().__init__(code.decoded, core, max_bundles)
        self.program, self.timing, self.tiles = code, timing, Tiles(program, core)
        self.state: State | None = None  # of the timing, while it is ahead of the core's
        self.uses: dict[tuple[str, int], tuple[Effect, int]] = {}  # since then: kernel, effect, how often
        self.written: dict[Reg, None] = {}  # since then
        self.hulls: list[tuple[int, int, bool]] | None = None  # rows that copies own, and if they write them

    def advance(self) -> None:
        """A block, or a bundle."""
        start = self.following
        site = self.program.site(start)
        if site and self.leap(site):
            return
        self.settle()
        self.hulls = None
        super().advance()
        while site and start < self.following < site.span.end and not self.core.halted:
            super().advance()

    def settle(self) -> None:
        """Bring the core, and the accounts, up to date."""
        if self.state is None:
            return
        core, state = self.core, self.state
        for (kernel, _), (effect, count) in self.uses.items():
            for cause, units in effect.causes.items():
                self.causes[cause] += count * units
            self.cycles[kernel] += count * effect.cycles
            for mxu, busy in zip(core.mxus, effect.busy_cycles, strict=True):
                mxu.busy_cycles += count * busy
        state.stamp(core, self.now)
        core.ready.update(dict.fromkeys(self.written, 0))
        core.ready.update({reg: self.now + ahead for reg, ahead in state.ready})
        self.start = self.end = self.now
        self.busy = sum(mxu.busy_before(self.now) for mxu in core.mxus)
        self.state = None
        self.uses.clear()
        self.written.clear()

    # ---- a leap ----

    def leap(self, site: Site) -> bool:
        """Go through a block, if it is certain that nothing can go wrong. Returns: whether it did."""
        registers, units, block = self.core.registers, self.core.units, site.block
        most = site.most
        if not self.core.memory.values and site.span.target == site.span.start:
            most = UNSEEN
        most = min(most, (self.max_bundles - self.issued) // (site.span.end - site.span.start))
        used = (units[queue][unit] for queue, unit in block.units)
        if most < 1 or any(unit.results or unit.tile for unit in used):
            return False
        try:
            scalars = [registers[reg] for reg in block.scalar_reads]
            if any(type(scalar) is not int for scalar in scalars):
                return False
            batch = Batch(block, scalars, most)
        except (KeyError, MachineFault):  # a register never written, or a division by zero
            return False
        effects = self.effects(site, batch)
        if not effects:
            return False
        batch.shorten(len(effects))
        if self.core.memory.values and block.values and not self.compute(site, batch):
            return False
        registers.update(zip(block.scalar_writes, batch.after[-1], strict=True))
        self.commit(site, batch, effects)
        return True

    def effects(self, site: Site, batch: Batch) -> list[Effect]:
        """The cycles of each iteration, up to the first that faults."""
        if self.state is None:
            self.close()
            self.state = self.timing.capture(self.core, self.now)
        found: list[Effect] = []
        state, count = self.state, len(batch.after)
        for number in range(count):
            taken = batch.taken or number < count - 1
            effect = state.effects.get((site.block, taken))
            if effect is None:
                try:
                    effect = self.timing.effect(state, self.code[site.span.start:site.span.end], taken)
                except MachineFault:
                    break
                state.effects[site.block, taken] = effect
            found.append(effect)
            state = effect.after
        return found

    def permits(self, site: Site, batch: Batch) -> bool | None:
        """Whether the rules hold: None if they may not, else whether garbage may turn up."""
        if len(batch.after) > 1 and not self.independent(site, batch):
            site.most = 1
            batch.shorten(1)
        columns, memory = list(zip(*batch.addresses, strict=True)), self.core.memory
        flags, self.tiles.fresh = not site.block.exact, False
        for buffer, address, low, high, writes in site.reaches:
            first, last, known = low, high, memory.areas[buffer].known
            if address >= 0:
                first, last = low + min(columns[address]), high + max(columns[address])
            if first < 0 or last >= len(known) or (
                    memory.checks and memory.flying and self.owned(buffer, first, last, writes)):
                return None
            if memory.checks and b"\0" in known[first:last + 1].tobytes():
                self.tiles.fresh |= writes
                flags = flags or not writes
        return flags or any(entry[1][2] < SUBLANES for mxu in self.core.mxus for entry in mxu.results)

    def owned(self, buffer: str, first: int, last: int, writes: bool) -> bool:
        """Whether a copy in flight may be in the way."""
        if self.hulls is None:
            areas, bases = self.core.memory.areas, self.tiles.base
            self.hulls = [_hull(areas[part.name], bases[part.name], part, number > 0)
                          for copy in self.core.memory.flying for parts in copy.parts
                          for number, part in enumerate(parts) if part.kind == "VMEM"]
        base = self.tiles.base[buffer]
        if not any(low <= base + last and base + first <= high and (writes or written)
                   for low, high, written in self.hulls):
            return False
        held = self.core.memory.areas[buffer].owned[first:last + 1]
        return bool((held == WRITTEN).any() or (writes and held.any()))

    def independent(self, site: Site, batch: Batch) -> bool:
        """Whether no iteration touches rows that another one writes."""
        if not any(access.writes for access in site.accesses):
            return True
        starts = np.array(batch.addresses, np.int64).reshape(len(batch.after), -1)
        fixed = any(access.address < 0 for access in site.accesses)
        key = (site.span.start, len(starts), (starts if fixed else starts - starts[0, 0]).tobytes())
        if key not in self.program.apart:
            self.program.apart[key] = self.tiles.independent(site.accesses, starts)
        return self.program.apart[key]

    def compute(self, site: Site, batch: Batch) -> bool:
        """The values. Returns: whether there was no fault; if there was, nothing has changed."""
        assert site.block.values
        registers, flags = self.core.registers, self.permits(site, batch)
        if flags is None or any(reg not in registers for reg in site.block.vector_reads):
            return False
        vectors = [registers[reg] for reg in site.block.vector_reads]
        flags = flags or any(vector.known is not KNOWN for vector in vectors)
        starts = np.array(batch.addresses, np.int64).reshape(len(batch.after), -1, 1).swapaxes(0, 1)
        self.tiles.begin(len(batch.after), flags)
        try:
            after = site.block.values(self.tiles, site.buffers, starts, batch.numbers, vectors)
        except MachineFault:
            self.tiles.undo()
            return False
        registers.update(zip(site.block.vector_writes, after, strict=True))
        return True

    def commit(self, site: Site, batch: Batch, effects: list[Effect]) -> None:
        """Time goes on, and so does the program."""
        del effects[len(batch.after):]
        self.kernel = self.kernels.get(site.span.start, self.kernel)
        for effect in effects:
            key = self.kernel, id(effect)
            self.uses[key] = effect, self.uses.get(key, (effect, 0))[1] + 1
            self.now += effect.cycles
        self.state = effects[-1].after
        self.issued += len(effects) * (site.span.end - site.span.start)
        self.written.update(dict.fromkeys((*site.block.scalar_writes, *site.block.vector_writes)))
        self.following = site.span.target if batch.taken else site.span.end


def _hull(area: Area, base: int, part: Area, writes: bool) -> tuple[int, int, bool]:
    """The rows of VMEM from the first to the last of a part of a buffer."""
    begin = part.words.ctypes.data - area.words.ctypes.data
    steps = [(n - 1) * step for n, step in zip(part.words.shape, part.words.strides, strict=True)]
    low, high = begin + sum(min(0, step) for step in steps), begin + sum(max(0, step) for step in steps)
    return base + low // ROW_BYTES, base + high // ROW_BYTES, writes


_codes: dict[int, tuple[Any, Code]] = {}


def _forget(key: int, codes: dict[int, tuple[Any, Code]], _: Any) -> None:
    codes.pop(key, None)


def code_of(program: Program) -> Code:
    """A program's code: the same one as long as the program lives."""
    key = id(program)
    if key not in _codes:
        _codes[key] = ref(program, partial(_forget, key, _codes)), Code(program)
    return _codes[key][1]


def _check_outline(program: Program) -> None:
    """Raises: CompileError if what a program does depends on its data."""
    for pc, bundle in enumerate(program.bundles):
        for op in bundle.ops:
            if op.info.run == "load_word":
                raise CompileError(
                    "tpu run", "without values nobody knows what is looked up", got=op,
                    hint="a run with values", need=f"no lookup, as at pc {pc:#x}", at=blamed(program, pc, op))


def run(
    program: Program, inputs: dict[str, np.ndarray], *, stepping: bool = False, exposed: bool = False,
    trace: bool = False, overlap_weights: bool = True, max_bundles: int = 10**8, checks: bool = True,
    dma: str = "early", values: bool = True,
) -> Run:
    """Run a program on its machine.

    stepping: one bundle at a time, for those who want to watch. exposed: fault on a register read before its
    latency has passed, instead of stalling. trace: record events. These two are stepped, too.
    overlap_weights: whether MXU weights load while the array works. checks: look for races and garbage. dma:
    the values of copies move when these start ("early"), or when they are known to be done ("late"): it makes
    no difference, or there is a race. values=False: cycles and bytes alone, without inputs and outputs, for
    programs too large to compute.
    Raises: CompileError before the run, MachineFault during it.
    """
    if dma not in ("early", "late"):
        raise CompileError("tpu run", "copies have no such time", got=repr(dma), need="early or late")
    code = code_of(program)
    if not values:
        _check_outline(program)
    memory = Memory(program, inputs, checks=checks, late=dma == "late", values=values)
    core = (Core if values else Outline)(program, memory, overlap_weights, trace)
    if stepping or exposed or trace:
        return Stepper(code.decoded, core, max_bundles, exposed).run()
    return Emulator(program, code, core, code.timings[overlap_weights], max_bundles).run()
