"""What a program did: the text of `profile()`. Why it is as it is, kernel/explain.py says.

    tpu:v5e, emulated: 5213 cycles, 3.5 us at 1.5 GHz
      mxu            1843.0   35.4%
      dma x          1407.0   27.0%
      ...
    bound by mxu: it works for 1800 cycles, 35% of the run
    no program takes fewer than 2974 cycles: hbm 2,974, mxu 2,372; this one takes 1.75 times that

Goes in: the levels of a program and the emulator's Run. Comes out: plain data that prints. Invariants: the
cycles by cause add up to the total; the bound is told for the bytes and products that this program
moves and makes (with other tiles it may be less), the least for any program (tpu/bound.py); nothing here is
measured on this CPU's clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from minicc.errors import CompileError
from minicc.tpu.bound import Bound
from minicc.tpu.emulator import Run
from minicc.tpu.machine import TPUSpec
from minicc.trace import Event, chrome_trace


@dataclass(frozen=True)
class TPUProfile:
    """One run of a TPU program, accounted for. Units: cycles of the machine's clock, bytes."""

    spec: TPUSpec
    run: Run
    compulsory_bytes: int
    least: Bound  # of any program for the task
    events: Callable[[], Sequence[Event]] = tuple  # runs it once more, and tells what happened when

    @property
    def cycles(self) -> int:
        """Cycles from the first bundle to the last result."""
        return self.run.cycles

    @property
    def causes(self) -> Mapping[str, float]:
        """cause -> cycles; they add up to the total."""
        return self.run.causes

    @property
    def hbm_bytes(self) -> int:
        """Bytes copied from and to HBM; compulsory_bytes of them are inputs and outputs."""
        return self.run.hbm_read_bytes + self.run.hbm_write_bytes

    @property
    def bound(self) -> tuple[str, float]:
        """The resource that works longest, and for how many cycles."""
        works = {"hbm": self.run.hbm_charged_bytes / self.spec.hbm_bytes_per_cycle,
                 "mxu": self.run.mxu_busy_cycles / self.run.mxus,
                 "vmem": self.run.local_charged_bytes / self.spec.local_bytes_per_cycle}
        return max(works.items(), key=lambda pair: pair[1])

    def save(self, path: str | Path) -> None:
        """Write what happened when, as a trace for chrome://tracing or ui.perfetto.dev.

        Raises: CompileError when the place cannot be written.
        """
        text = json.dumps(chrome_trace(self.events(), self.spec.clock_ghz))
        try:
            Path(path).write_text(text, encoding="utf-8")
        except OSError as failure:
            raise CompileError("profile", f"cannot write {path}", got=failure.strerror) from failure

    def __str__(self) -> str:
        spec, name, works = self.spec, *self.bound
        micros = self.cycles / spec.clock_ghz / 1000
        kernels = {name or "before": cycles for name, cycles in self.run.kernel_cycles.items()}
        return "\n".join([
            f"tpu:{spec.name}, emulated: {self.cycles} cycles, {micros:.1f} us at {spec.clock_ghz} GHz",
            *_shares(dict(sorted(self.causes.items(), key=lambda pair: -pair[1])), self.cycles),
            *(["by kernel", *_shares(kernels, self.cycles)] if len(kernels) > 1 else []),
            f"HBM traffic {self.hbm_bytes} bytes; {self.compulsory_bytes} are inputs and outputs",
            *([f"copied within the chip {self.run.local_bytes} bytes"] if self.run.local_bytes else []),
            f"bound by {name}: it works for {works:.0f} cycles, {works / self.cycles:.0%} of the run",
            f"no program takes fewer than {self.least.cycles:.0f} cycles: {self.least}; this one takes "
            f"{self.cycles / self.least.cycles:.2f} times that"])


def gathered(causes: Mapping[str, float]) -> dict[str, float]:
    """cause -> cycles, the waits for all DMAs together, most first."""
    found: dict[str, float] = {}
    for cause, cycles in causes.items():
        kind = "dma" if cause.startswith("dma ") else cause
        found[kind] = found.get(kind, 0.0) + cycles
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def _shares(table: Mapping[str, float], total: int) -> list[str]:
    width = max(map(len, table), default=0)
    return [f"  {name:{width}} {cycles:12.1f} {cycles / total:7.1%}" for name, cycles in table.items()]


@dataclass(frozen=True)
class GPUProfile:
    """One run in lane mode, kernel by kernel, as counted from the index arrays that ran."""

    name: str
    reports: Sequence[object]

    def __str__(self) -> str:
        return "\n".join([f"{self.name}, emulated thread by thread", *map(str, self.reports)])
