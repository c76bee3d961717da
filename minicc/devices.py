"""The devices that programs are compiled for: a name, an emulated machine, and what of it shapes kernels.

    find("tpu:v5e")                           ->  Device("tpu:v5e", V5E, Target(...))
    find("tpu:v5e,mxus=8")                    ->  the same chip with other numbers
    find(replace(V5E, name="mine", mxus=8))   ->  a TPU that nobody sells

Goes in: a name, a spec, or None (MINICC_DEVICE, else "gpu"). Comes out: a Device. All of them are emulated on
this CPU. The targets here are where the kernel room meets the machines: it never imports them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from minicc.errors import CompileError, Loc
from minicc.gpu import machine as gpu
from minicc.graph.attributes import nearest
from minicc.kernel.cost import Target
from minicc.tpu import machine as tpu

Spec = tpu.TPUSpec | gpu.GPUSpec
GPU_LAUNCH_SECONDS = 5e-6  # a kernel launch, as commonly measured; an assumption
VMEM_SHARE = 0.5  # of VMEM that kernels' blocks may take; the rest is for code generation's temporaries
SPECS: dict[str, Spec] = {
    "gpu": gpu.SPECS["a100"], **{f"gpu:{name}": spec for name, spec in gpu.SPECS.items()},
    "tpu": tpu.SPECS["v5e"], **{f"tpu:{name}": spec for name, spec in tpu.SPECS.items()},
}


@dataclass(frozen=True)
class Device:
    """An emulated machine, by the name a user gives it."""

    name: str
    spec: Spec
    target: Target


def find(device: str | Spec | None = None, at: tuple[Loc, ...] = ()) -> Device:
    """The device that is meant. at: the user's line, for the error.

    Raises: CompileError for a name that no device has, with the nearest one that exists.
    """
    if isinstance(device, tpu.TPUSpec):
        device.check_emulated(at)
        return Device(f"tpu:{device.name}", device, tpu_target(device))
    if isinstance(device, gpu.GPUSpec):
        return Device(f"gpu:{device.name}", device, gpu_target(device))
    asked, *own = str(device or os.environ.get("MINICC_DEVICE") or "gpu").split(",")
    if asked not in SPECS:
        raise CompileError("device", "there is no such device", got=repr(asked), need=", ".join(SPECS), at=at,
                           hint=nearest(asked, SPECS))
    spec = SPECS[asked]
    if not own:
        return find(spec, at)
    if isinstance(spec, gpu.GPUSpec):
        raise CompileError("device", "only a tpu has numbers of your own", got=",".join(own), at=at,
                           hint=f"dataclasses.replace of {asked}'s spec")
    changes = {key: value for key, _, value in (pair.partition("=") for pair in own)}
    return find(spec.changed(changes, at), at)


def tpu_target(spec: tpu.TPUSpec) -> Target:
    """What shapes kernels on a TPU: registers of 8 x 128, blocks of two dimensions, buffers that stay."""
    return Target(
        name=f"tpu:{spec.name}", fast_bytes=int(spec.vmem_mib * 2**20 * VMEM_SHARE),
        slow_bytes=spec.hbm_gb * 2**30 // spec.cores, rows=tpu.SUBLANES, lanes=tpu.LANES, largest_block=1024,
        most_operands=10,  # each has up to four counters in scalar registers
        max_block_axes=2, keeps_temps=True, one_core=True,
        bytes_per_cycle=spec.hbm_bytes_per_cycle, latency_cycles=spec.dma_startup_cycles,
        near_bytes_per_cycle=spec.local_bytes_per_cycle, near_latency_cycles=spec.local_startup_cycles,
        launch_cycles=0,
        dot_flops_per_cycle=2 * spec.mxu_side**2 * spec.mxus * spec.mxu_rows / spec.f32_passes,
        dot_units=spec.mxus, dot_row_cycles=-(-spec.f32_passes // spec.mxu_rows),
        dot_fill_cycles=spec.push_cycles("f32", spec.mxu_side) + spec.mxu_fill_cycles,
        vector_ops_per_cycle=spec.vector_slots * tpu.SUBLANES * tpu.LANES)


def gpu_target(spec: gpu.GPUSpec) -> Target:
    """What shapes kernels on a GPU: blocks of 16 x 16 threads, one output element each.

    Rows are streamed through registers, so that no row is too long; a dot's result lies spread over threads,
    so that its kernel cannot reduce over it.
    """
    clock = spec.clock_ghz * 1e9
    return Target(
        name=f"gpu:{spec.name}", fast_bytes=spec.dram_gb * 2**30, slow_bytes=spec.dram_gb * 2**30, rows=16,
        lanes=16, largest_block=0, most_operands=64, max_block_axes=2, keeps_temps=False, one_core=False,
        bytes_per_cycle=spec.dram_gb_per_s * 1e9 / clock, latency_cycles=0, near_bytes_per_cycle=1.0,
        near_latency_cycles=0,
        launch_cycles=round(GPU_LAUNCH_SECONDS * clock), dot_flops_per_cycle=2 * spec.sms * spec.fp32_lanes,
        dot_units=1, dot_row_cycles=0, dot_fill_cycles=0, vector_ops_per_cycle=spec.sms * spec.fp32_lanes)
