"""What a program did, and why it is as it is: the texts of `profile()` and `explain()`.

    tpu:v5e: 5213 cycles, 3.5 us at 1.5 GHz
      mxu            1843.0   35.4 %
      dma x          1407.0   27.0 %
      ...
    bound by hbm: 1203 cycles; reached 23 % of it

Goes in: the levels of a program and the emulator's Run. Comes out: plain data that prints. Invariants: the cycles by
cause add up to the total; the bound is the largest of what each resource needs at the least, for the bytes and the
products this program really moves and makes; nothing here is measured on this CPU's clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from minicc.errors import Loc
from minicc.kernel.cost import Target, cost
from minicc.kernel.ir import Module
from minicc.tpu.emulator import Run
from minicc.tpu.machine import TPUSpec
from minicc.trace import PassRecord


@dataclass(frozen=True)
class TPUProfile:
    """One run of a TPU program, accounted for. Units: cycles of the machine's clock, bytes."""

    spec: TPUSpec
    cycles: int
    causes: Mapping[str, float]
    kernel_cycles: Mapping[str, int]
    hbm_bytes: int
    compulsory_bytes: int
    bounds: Mapping[str, float]

    @property
    def bound(self) -> tuple[str, float]:
        """The resource that binds, and the fewest cycles in which it could do this program's work."""
        return max(self.bounds.items(), key=lambda pair: pair[1])

    def __str__(self) -> str:
        micros = self.cycles / self.spec.clock_ghz / 1000
        lines = [f"tpu:{self.spec.name}, emulated: {self.cycles} cycles, {micros:.1f} us at {self.spec.clock_ghz} GHz"]
        lines += _shares(dict(sorted(self.causes.items(), key=lambda pair: -pair[1])), self.cycles)
        if len(self.kernel_cycles) > 1:
            lines += ["by kernel", *_shares({name or "launch": c for name, c in self.kernel_cycles.items()}, self.cycles)]
        name, least = self.bound
        lines.append(f"HBM traffic {self.hbm_bytes} bytes; {self.compulsory_bytes} are inputs and outputs")
        lines.append(f"bound by {name}: {least:.0f} cycles at the least, {least / max(1, self.cycles):.0%} of the run")
        return "\n".join(lines)


def _shares(table: Mapping[str, float], total: int) -> list[str]:
    width = max(map(len, table), default=0)
    return [f"  {name:{width}} {cycles:12.1f} {cycles / max(1, total):7.1%}" for name, cycles in table.items()]


def tpu_profile(run: Run, module: Module, spec: TPUSpec) -> TPUProfile:
    """Account for a run."""
    moved = [type.elements * 4 for _, type in (*module.inputs, *module.outputs)]
    bounds = {"hbm": run.hbm_charged_bytes / spec.hbm_bytes_per_cycle, "mxu": run.mxu_busy_cycles / run.mxus}
    return TPUProfile(spec, run.cycles, run.causes, run.kernel_cycles, run.hbm_read_bytes + run.hbm_write_bytes,
                      sum(moved), bounds)


@dataclass(frozen=True)
class GPUProfile:
    """One run in lane mode, kernel by kernel, as counted from the index arrays that ran."""

    name: str
    reports: Sequence[object]

    def __str__(self) -> str:
        return "\n".join([f"{self.name}, emulated thread by thread", *map(str, self.reports)])


def explanation(records: Sequence[PassRecord], module: Module, target: Target, lines: Sequence[tuple[Loc, ...]]) -> str:
    """Why these kernels and these tiles: every decision of every pass, then each kernel's lines and price.

    lines: the user's lines of each kernel, in order.
    """
    text = []
    for record in records:
        if record.steps:
            text += [record.name, *(f"  {step}" for step in record.steps), ""]
    for kernel, locs in zip(module.kernels, lines, strict=True):
        price = cost(kernel, target)
        compute = price.dot_flops / target.dot_flops_per_cycle
        needs = {"hbm": price.bytes / target.bytes_per_cycle, "dot": compute,
                 "vector": price.vector_ops / target.vector_ops_per_cycle}
        binds = max(needs, key=lambda name: needs[name])
        text += [f"kernel {kernel.name}: {price.cycles:.0f} cycles predicted, {price.bytes} bytes, bound by {binds}"]
        text += [f"  {loc}: {loc.source()}" for loc in locs]
    return "\n".join(text)
