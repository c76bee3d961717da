"""Runs a TPU program bundle by bundle: values and cycles in one run, rules checked, each cycle accounted for.

    result = run(program, {"x": x, "y": y})
    result.outputs["z"]            ->  a numpy array
    result.cycles                  ->  1234
    result.causes                  ->  {"mxu": 512.0, "vector": 300.0, "dma xb": 385.0, "scalar": 37.0}

A bundle issues at the first cycle in which its registers are ready, its pops have something to pop, the
units it pushes to are free, and the semaphore it waits for counts 1 (interlock mode, the default, charges
such stalls to the last of these; exposed mode faults on a register read too early). Then every slot reads,
and then all write.

Each cycle has one cause. A share of it, busy MXUs / MXUs, goes to `mxu`; the rest to `vector` if a bundle
with vector work issued; else to what the core waited for: `dma BUFFER`, `mxu wait` (a result, or a unit's
input) or `register` (or the EUP and XLU); else to `scalar`. Shares are integers in units of 1 / MXUs, so
the sum is exact.

Faults: races, uninitialised reads, accesses out of bounds, deadlocks, and whatever is left in flight at
halt; each names the instruction, its pc, the buffer and the user's line. A real TPU checks none of it, and
hangs, or computes something else; cycle-exact simulators exist behind closed doors. What to read next:
core.py for each instruction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minicc.errors import MachineFault
from minicc.tpu.core import Core
from minicc.tpu.isa import KERNEL_LABEL, Instr, Program, Reg
from minicc.tpu.units import Mxu, Queue, busy_before
from minicc.tpu.verify import verify
from minicc.trace import Event

# Within a bundle: what reads before what writes. Registers change after all of them.
_ORDER = ("scalar", "load", "vector", "misc", "store", "eup", "xlu", "mxu")


@dataclass(frozen=True)
class Run:
    """What a run gives: values, cycles, and where the cycles went."""

    outputs: dict[str, np.ndarray]
    cycles: int
    cause_units: dict[str, int]  # cause -> cycles x mxus; the sum is cycles x mxus, always
    mxus: int
    kernel_cycles: dict[str, int]  # by the labels `.kernel.NAME`; what comes before the first is ""
    bundles: int  # issued
    mxu_busy_cycles: int  # summed over the units
    hbm_read_bytes: int
    hbm_write_bytes: int
    hbm_charged_bytes: int  # both ways, each contiguous run rounded up to the granule
    events: tuple[Event, ...] = ()

    @property
    def causes(self) -> dict[str, float]:
        """cause -> cycles; the sum is `cycles`."""
        return {cause: units / self.mxus for cause, units in self.cause_units.items()}

    @property
    def dma_waits(self) -> dict[str, float]:
        """VMEM buffer -> cycles spent waiting for a copy to or from it."""
        return {cause[4:]: cycles for cause, cycles in self.causes.items() if cause.startswith("dma ")}


@dataclass(frozen=True)
class _Decoded:
    """A bundle, prepared: what its issue depends on, and its instructions in the order they take effect."""

    ops: tuple[Instr, ...]
    reads: tuple[Reg, ...]
    queued: tuple[Instr, ...]
    wait: Instr | None
    cause: str


def _decode(ops: tuple[Instr, ...]) -> _Decoded:
    in_order = tuple(sorted(ops, key=lambda op: -1 if op.info.port == "pop" else _ORDER.index(op.info.slot)))
    waits = [op for op in ops if op.info.memory == "wait"]
    vector = any(op.info.slot not in ("scalar", "misc") for op in ops)
    return _Decoded(in_order, tuple({reg: None for op in ops for reg in op.reads()}),
                    tuple(op for op in in_order if op.info.queue),
                    waits[0] if waits else None, "vector" if vector else "scalar")


class _Clock:
    """Which cause each cycle had, as segments (end, cause), and the events of a trace."""

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.names: list[str] = []

    def charge(self, cause: str, end: int) -> None:
        """Everything since the last charge, until `end`, had this cause."""
        if self.names and self.names[-1] == cause:
            self.ends[-1] = end
        elif end > (self.ends[-1] if self.ends else 0):
            self.ends.append(end)
            self.names.append(cause)

    def units(self, mxus: list[Mxu]) -> dict[str, int]:
        """cause -> cycles x MXUs, the MXUs' own share first."""
        ends = np.array([0, *self.ends], np.int64)
        busy = np.diff(busy_before(mxus, ends))
        found = {"mxu": int(busy.sum())}
        for cause, rest in zip(self.names, np.diff(ends) * len(mxus) - busy, strict=True):
            found[cause] = found.get(cause, 0) + int(rest)
        return {cause: units for cause, units in found.items() if units}


class _Emulator:
    def __init__(self, program: Program, core: Core, exposed: bool, max_bundles: int) -> None:
        self.program, self.core, self.exposed, self.max_bundles = program, core, exposed, max_bundles
        self.code = [_decode(bundle.ops) for bundle in program.bundles]
        self.clock = _Clock()
        self.kernels = {pc: name.removeprefix(KERNEL_LABEL) for name, pc in program.labels
                        if name.startswith(KERNEL_LABEL)}
        self.kernel_starts: list[tuple[str, int]] = [("", 0)]
        self.issued = 0
        self.current: Instr | None = None

    def loop(self) -> None:
        """Issue bundles until one of them halts."""
        core, pc, now = self.core, 0, 0
        try:
            while not core.halted:
                core.pc = pc
                bundle = self._fetch(pc, now)
                core.now = self._issue(bundle, now)
                for op in bundle.ops:
                    self.current = op
                    core.execute(op)
                core.commit()
                now = core.now + 1
                self.clock.charge(bundle.cause, now)
                pc += 1
                if core.target is not None:
                    pc, core.target = core.target, None
                    now += self.program.machine.branch_cycles
                    self.clock.charge("scalar", now)
            core.check_halt()
        except MachineFault as fault:
            raise self._place(fault, core.pc) from None

    def _fetch(self, pc: int, now: int) -> _Decoded:
        self.current = None
        if pc >= len(self.code):
            raise MachineFault("", "the program runs off its end", need="shalt in the last bundle")
        if self.issued >= self.max_bundles:
            raise MachineFault("", "the program does not halt", got=f"{self.issued} bundles issued",
                               hint="a loop whose branch is always taken? or a larger max_bundles")
        self.issued += 1
        if pc in self.kernels and self.kernels[pc] != self.kernel_starts[-1][0]:
            self.kernel_starts.append((self.kernels[pc], now))
        return self.code[pc]

    def _issue(self, bundle: _Decoded, now: int) -> int:
        """The cycle in which a bundle issues; the stall before it is charged."""
        core, issue, cause = self.core, now, ""
        registers_ready = self._registers_ready(bundle)
        for op in bundle.queued:
            self.current = op
            ready = _ready(core.unit(op), op)
            if ready > issue:
                issue, cause = ready, "mxu wait" if op.info.queue == "mxu" else "register"
        if bundle.wait:
            self.current = bundle.wait
            ready, buffer = core.wait_time(bundle.wait)
            if ready > issue:
                issue, cause = ready, f"dma {buffer}"
        self.current = None
        if registers_ready > issue:
            if self.exposed:
                late = next(reg for reg in bundle.reads if core.ready[reg] > issue)
                self.current = next(op for op in bundle.ops if late in op.reads())
                raise MachineFault("", f"early read of {late}", got=f"cycle {issue}",
                                   need=f"cycle {registers_ready} or later", hint="more bundles before it")
            issue, cause = registers_ready, "register"
        if issue > now:
            self.clock.charge(cause, issue)
        return issue

    def _registers_ready(self, bundle: _Decoded) -> int:
        ready, latest = self.core.ready, 0
        for reg in bundle.reads:
            if reg not in ready:
                self.current = next(op for op in bundle.ops if reg in op.reads())
                raise MachineFault("", f"uninitialised read: {reg} was never written")
            latest = max(latest, ready[reg])
        return latest

    def _place(self, fault: MachineFault, pc: int) -> MachineFault:
        """Say which instruction it was."""
        bundle = self.program.bundles[pc].locs if pc < len(self.program.bundles) else ()
        fault.stage = f"{fault.stage or self.current or 'bundle'} at pc {pc:#x}"
        fault.at = (self.current.locs if self.current else bundle) + fault.at
        return fault

    def report(self, trace: bool) -> Run:
        """Everything that happened."""
        core, total = self.core, self.clock.ends[-1]
        starts = [*self.kernel_starts, ("", total)]
        kernels: dict[str, int] = {}
        for (name, start), (_, end) in zip(starts, starts[1:], strict=False):
            kernels[name] = kernels.get(name, 0) + end - start
        memory = core.memory
        return Run(memory.outputs(), total, self.clock.units(core.mxus), len(core.mxus),
                   {name: cycles for name, cycles in kernels.items() if cycles}, self.issued,
                   sum(end - start for unit in core.mxus for start, end in unit.busy),
                   memory.moved_bytes[True], memory.moved_bytes[False], memory.charged_bytes,
                   self._events() if trace else ())

    def _events(self) -> tuple[Event, ...]:
        starts = [0, *self.clock.ends]
        core = [Event("core", name, start, end)
                for name, start, end in zip(self.clock.names, starts, self.clock.ends, strict=False)]
        mxus = [Event(unit.name, "matmul", start, end) for unit in self.core.mxus for start, end in unit.busy]
        return (*core, *mxus, *self.core.copies)


def _ready(unit: Queue | Mxu, op: Instr) -> int:
    """When an instruction can push to its unit, or pop from it."""
    if op.info.port == "pop":
        return unit.next_ready()
    if isinstance(unit, Queue):
        return unit.free_at
    return unit.weights_time() if op.info.port == "weights" else unit.rows_time(bool(op.attr("swap")))


def run(
    program: Program, inputs: dict[str, np.ndarray], *, exposed: bool = False, checks: bool = True,
    trace: bool = False, virtual: bool = False, overlap_weights: bool = True, max_bundles: int = 10**8,
) -> Run:
    """Run a program on its machine.

    exposed: fault on a register read before its latency has passed, instead of stalling. checks: races and
    uninitialised reads (bounds and deadlocks are always checked). trace: record events. virtual: allow
    registers beyond the machine's. overlap_weights: whether MXU weights load while the array works.
    Raises: CompileError before the run, MachineFault during it.
    """
    verify(program, virtual)
    core = Core(program, inputs, checks, overlap_weights)
    emulator = _Emulator(program, core, exposed, max_bundles)
    with np.errstate(all="ignore"):
        emulator.loop()
        return emulator.report(trace)
