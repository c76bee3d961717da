"""Runs a TPU program bundle by bundle: values and cycles in one run, rules checked, each cycle accounted for.

    result = run(program, {"x": x, "y": y}, stepping=True)
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
hangs, or computes something else; cycle-exact simulators exist behind closed doors.

Invariant: what a program means is defined here and in what this file calls, and nowhere else. emulator.py has
the same result sooner, and leaves to this file all that it is not sure of. What to read next: core.py for
each instruction.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from minicc.errors import Loc, MachineFault, merge_locs
from minicc.tpu.core import Core
from minicc.tpu.isa import KERNEL_LABEL, Bundle, Instr, Program, Reg
from minicc.tpu.vector import fault
from minicc.trace import Event

# Within a bundle: pops first; then by effect on memory, what reads before what writes. Registers change last.
_ORDER = ("pop", "", "read", "signal", "dma", "write", "wait")


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
    local_bytes: int  # copied within the chip
    local_charged_bytes: int  # in rows of VMEM
    events: tuple[Event, ...] = ()

    @property
    def causes(self) -> dict[str, float]:
        """cause -> cycles; the sum is `cycles`."""
        return {cause: units / self.mxus for cause, units in self.cause_units.items()}


class Decoded(NamedTuple):
    """A bundle, prepared: what its issue depends on, and its instructions in the order they take effect."""

    ops: list[Instr]
    reads: dict[Reg, Instr]  # the registers, and who reads each
    waits: list[Instr]  # those that may wait for a unit or a semaphore
    cause: str


def decode(bundle: Bundle) -> Decoded:
    """A bundle, prepared."""
    def order(op: Instr) -> int:
        return _ORDER.index("pop" if op.info.port == "pop" else op.info.memory)
    ops = sorted(bundle.ops, key=order)
    vector = any(op.info.slot not in ("scalar", "misc") for op in ops)
    return Decoded(ops, {reg: op for op in ops for reg in op.reads()},
                   [op for op in ops if op.info.queue or op.info.memory == "wait"],
                   "vector" if vector else "scalar")


def blamed(program: Program, pc: int, op: Instr | None = None) -> tuple[Loc, ...]:
    """The user's lines of an instruction; if it has none, those of its bundle, or else of its kernel."""
    bundles = program.bundles[min(pc, len(program.bundles) - 1):][:1]
    starts = [at for label, at in program.labels if label.startswith(KERNEL_LABEL)]
    begin = max((at for at in starts if at <= pc), default=0)
    end = min((at for at in starts if at > pc), default=len(program.bundles))
    return (op.locs if op else ()) or merge_locs(*(bundle.locs for bundle in bundles)) or merge_locs(
        *(bundle.locs for bundle in program.bundles[begin:end]))


class Stepper:
    """A run, one bundle at a time."""

    def __init__(self, code: list[Decoded], core: Core, max_bundles: int = 0, exposed: bool = False) -> None:
        self.code, self.core, self.max_bundles, self.exposed = code, core, max_bundles, exposed
        self.kernels = {pc: name.removeprefix(KERNEL_LABEL) for name, pc in core.program.labels
                        if name.startswith(KERNEL_LABEL)}
        self.now = self.following = 0  # the next bundle's cycle, if nothing stalls it, and its pc
        self.issued = 0
        self.current: Instr | None = None  # whom to blame
        self.kernel = ""
        self.account, self.start, self.end = ("", ""), 0, 0  # cause and kernel of the latest cycles
        self.busy = 0  # MXU cycles before those
        self.causes, self.cycles = Counter[str](), Counter[str]()  # by cause, times MXUs; by kernel

    def loop(self) -> dict[str, np.ndarray]:
        """Go on until a bundle halts. Returns: the outputs."""
        core = self.core
        try:
            while not core.halted:
                self.advance()
            self.current = core.halted
            core.check_halt()
            return core.memory.outputs()
        except MachineFault as found:
            found.stage = f"{self.current or 'bundle'} at pc {core.pc:#x}"
            found.at = blamed(core.program, core.pc, self.current) + found.at
            raise

    def advance(self) -> None:
        """Issue a bundle, execute it, and find out which one follows."""
        core = self.core
        core.pc, self.current = self.following, None
        bundle = self._fetch(core.pc)
        self.issue(bundle)
        self.following = core.pc + 1
        if core.target is not None:
            self.following, core.target = core.target, None
            self.branch()

    def issue(self, bundle: Decoded) -> None:
        """Wait until a bundle can issue; then all that it does."""
        core = self.core
        core.now = self._ready(bundle)
        for self.current in bundle.ops:
            core.execute(self.current)
        core.commit()
        self.now = core.now + 1
        self._charge(bundle.cause, self.now)

    def branch(self) -> None:
        """The cycles that a branch costs when it is taken."""
        self.now += self.core.spec.branch_cycles
        self._charge("scalar", self.now)

    def _fetch(self, pc: int) -> Decoded:
        if pc >= len(self.code):
            raise fault("the program runs off its end", need="shalt in the last bundle")
        if self.issued >= self.max_bundles:
            raise fault("the program does not halt", f"{self.issued} bundles issued",
                        hint="a loop whose branch is always taken? or a larger max_bundles")
        self.issued += 1
        self.kernel = self.kernels.get(pc, self.kernel)
        return self.code[pc]

    def _ready(self, bundle: Decoded) -> int:
        """The cycle in which a bundle issues; the stall before it is charged."""
        issue, cause, ready = self.now, "", self.core.ready
        try:
            late = max(bundle.reads, key=ready.__getitem__, default=None)
        except KeyError as unwritten:
            self.current = bundle.reads[unwritten.args[0]]
            raise fault(f"uninitialised read: {unwritten.args[0]} was never written") from None
        for self.current in bundle.waits:
            time, reason = self.core.issue_time(self.current)
            if time > issue:
                issue, cause = time, reason
        if late and ready[late] > issue:
            self.current = bundle.reads[late]
            if self.exposed:
                raise fault(f"early read of {late}", f"cycle {issue}", f"cycle {ready[late]} or later",
                            hint="more bundles before it")
            issue, cause = ready[late], "register"
        self._charge(cause, issue)
        return issue

    def _charge(self, cause: str, end: int) -> None:
        """Everything since the last charge, until `end`, had this cause."""
        if end > self.end and (cause, self.kernel) != self.account:
            self.close()
            self.account = cause, self.kernel
        self.end = end

    def close(self) -> None:
        """Account for the latest cycles: busy MXUs take their share, the cause the rest."""
        if self.end > self.start:
            (cause, kernel), cycles, busy = self.account, self.end - self.start, 0
            for mxu in self.core.mxus:
                busy += mxu.busy_before(self.end)
            self.causes["mxu"] += busy - self.busy
            self.causes[cause] += cycles * len(self.core.mxus) - (busy - self.busy)
            self.cycles[kernel] += cycles
            self.core.record("core", cause, self.start, self.end)
            self.start, self.busy = self.end, busy

    def run(self) -> Run:
        """The whole program, and everything that happened."""
        with np.errstate(all="ignore"):
            outputs = self.loop()
        self.close()
        memory, mxus = self.core.memory, self.core.mxus
        causes = {cause: units for cause, units in self.causes.items() if units}
        busy = sum(mxu.busy_cycles for mxu in mxus)
        return Run(outputs, self.end, causes, len(mxus), dict(self.cycles), self.issued, busy,
                   memory.moved_bytes["read"], memory.moved_bytes["write"], memory.charged_bytes["hbm"],
                   memory.moved_bytes["local"], memory.charged_bytes["local"],
                   tuple(self.core.events or ()))
