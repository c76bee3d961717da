"""The devices that programs are compiled for: a name, an emulated machine, and what of it shapes kernels.

    find("tpu:v5e")      ->  Device("tpu:v5e", V5E, Target(...))
    find(replace(V5E, name="mine", mxus=8))   ->  a TPU that nobody sells

Goes in: a name, a spec, or None (MINICC_DEVICE, else "gpu"). Comes out: a Device. All of them are emulated
on this CPU, and their str says so. The targets here are where the kernel room meets the machines: it never
imports them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from minicc.errors import CompileError, Loc
from minicc.gpu import machine as gpu_machine
from minicc.gpu.machine import GPUSpec
from minicc.kernel.cost import Target
from minicc.tpu import machine as tpu_machine
from minicc.tpu.machine import TPUSpec

DEFAULTS = {"gpu": "a100", "tpu": "v5e"}
GPU_LAUNCH_SECONDS = 5e-6  # a kernel launch, as commonly measured; an assumption
VMEM_SHARE = 0.5  # of VMEM that kernels' blocks may take; the rest is for code generation's temporaries


@dataclass(frozen=True)
class Device:
    """An emulated machine, by the name a user gives it."""

    name: str
    spec: TPUSpec | GPUSpec
    target: Target

    @property
    def is_tpu(self) -> bool:
        """Whether programs for it are VLIW bundles."""
        return isinstance(self.spec, TPUSpec)

    def __str__(self) -> str:
        return f"{self.name}, emulated"


def find(device: str | TPUSpec | GPUSpec | None = None, at: tuple[Loc, ...] = ()) -> Device:
    """The device that is meant.

    Raises: CompileError for a name that no device has, with the nearest one that exists.
    """
    if isinstance(device, TPUSpec):
        return Device(f"tpu:{device.name}", device, tpu_target(device))
    if isinstance(device, GPUSpec):
        return Device(f"gpu:{device.name}", device, gpu_target(device))
    asked = device or os.environ.get("MINICC_DEVICE") or "gpu"
    if asked not in names():
        raise CompileError("device", "there is no such device", got=repr(asked), need=", ".join(names()),
                           at=at, hint=nearest(asked, names()))
    kind, _, chip = asked.partition(":")
    chip = chip or DEFAULTS[kind]
    if kind == "tpu":
        return Device(f"tpu:{chip}", tpu_machine.SPECS[chip], tpu_target(tpu_machine.SPECS[chip]))
    return Device(f"gpu:{chip}", gpu_machine.SPECS[chip], gpu_target(gpu_machine.SPECS[chip]))


def names() -> tuple[str, ...]:
    """Every name that `find` knows."""
    chips = {"gpu": gpu_machine.SPECS, "tpu": tpu_machine.SPECS}
    return tuple(name for kind in chips for name in (kind, *(f"{kind}:{chip}" for chip in chips[kind])))


def nearest(word: object, known: Sequence[str]) -> str:
    """The known word most like this one, for a hint; empty when none is."""
    return next(iter(get_close_matches(str(word), known, n=1)), "")


def tpu_target(spec: TPUSpec) -> Target:
    """What shapes kernels on a TPU: registers of 8 x 128, blocks of two dimensions, buffers that stay in
    VMEM."""
    flops = 2 * spec.mxu_side**2 * spec.mxus / spec.f32_passes
    return Target(
        name=f"tpu:{spec.name}", fast_bytes=int(spec.vmem_mib * 2**20 * VMEM_SHARE),
        slow_bytes=spec.hbm_gb * 2**30 // spec.cores, rows=8, lanes=128, largest_block=2048, max_block_axes=2,
        keeps_temps=True, reduces_after_dot=True, bytes_per_cycle=spec.hbm_bytes_per_cycle,
        latency_cycles=spec.dma_startup_cycles, launch_cycles=0, dot_flops_per_cycle=flops,
        dot_units=spec.mxus, dot_fill_cycles=spec.mxu_fill_cycles,
        vector_ops_per_cycle=spec.vector_slots * 8 * 128)


def gpu_target(spec: GPUSpec) -> Target:
    """What shapes kernels on a GPU: blocks of 16 x 16 threads, one output element each.

    Rows are streamed through registers, so that no row is too long; a dot's result lies spread over
    threads, so that its kernel cannot reduce over it.
    """
    clock = spec.clock_ghz * 1e9
    return Target(
        name=f"gpu:{spec.name}", fast_bytes=spec.dram_gb * 2**30, slow_bytes=spec.dram_gb * 2**30, rows=16,
        lanes=16, largest_block=0, max_block_axes=2, keeps_temps=False, reduces_after_dot=False,
        bytes_per_cycle=spec.dram_gb_per_s * 1e9 / clock, latency_cycles=0,
        launch_cycles=round(GPU_LAUNCH_SECONDS * clock), dot_flops_per_cycle=2 * spec.sms * spec.fp32_lanes,
        dot_units=1, dot_fill_cycles=0,
        vector_ops_per_cycle=spec.sms * spec.fp32_lanes)
