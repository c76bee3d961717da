"""What a GPU makes of a launch, in closed forms: occupancy, sectors, bank conflicts, ridges.

    occupancy(A100, threads=256, registers=37)   ->   6 blocks of 8 warps an SM: 75 %, by registers
    sectors_per_request(stride=2)                ->   8
    bank_ways(stride=33)                         ->   1

Goes in: the numbers of a launch or of an access pattern. Comes out: what the vendor's tools say. Lane mode
counts the same things from the addresses of a run; where a pattern is regular, both must agree, and tests
hold them to it. Read next: traffic.py, the counting.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from minicc.gpu import machine
from minicc.gpu.machine import BANKS, SECTOR_BYTES, WARP, GPUSpec


@dataclass(frozen=True)
class Occupancy:
    """How many blocks of a launch an SM holds at once, and how many each resource alone would allow."""

    blocks: int
    warps: int
    fraction: float
    limits: dict[str, int]

    @property
    def scarcest(self) -> list[str]:
        """What stops the SM from holding one more block."""
        return [name for name, most in self.limits.items() if most == self.blocks]

    def __str__(self) -> str:
        text = f"{self.warps} warps in {self.blocks} blocks an SM, {self.fraction:.0%}"
        return f"{text}, by {' '.join(self.scarcest)}"


def occupancy(spec: GPUSpec, threads: int, registers: int, shared_bytes: int = 0) -> Occupancy:
    """Resident blocks per SM of a launch. Units: threads per block, registers per thread, bytes per block.

    Source: the rules of the vendor's occupancy calculator, and its answers on 129 launches.

    >>> str(occupancy(GPUSpec("x", "", 1, 1.0, 64, 64, 32, 164, 163, 1, 1.0, {}), 256, 37))
    '48 warps in 6 blocks an SM, 75%, by registers'
    """
    warps = -(-threads // WARP)
    granules = -(-registers * WARP // machine.REGISTER_GRANULE)  # of one warp
    quarter = machine.REGISTERS_PER_SM // machine.REGISTER_QUARTERS
    fitting = quarter // (granules * machine.REGISTER_GRANULE) * machine.REGISTER_QUARTERS
    shared = -(-(shared_bytes + machine.SHARED_RESERVED_BYTES) // machine.SHARED_GRANULE_BYTES)
    fits = shared_bytes <= spec.shared_kib_per_block * 1024
    limits = {
        "warps": spec.warps_per_sm // warps,
        "registers": fitting // warps,
        "shared": spec.shared_kib_per_sm * 1024 // (shared * machine.SHARED_GRANULE_BYTES) if fits else 0,
        "blocks": spec.blocks_per_sm,
    }
    blocks = min(limits.values())
    return Occupancy(blocks, blocks * warps, blocks * warps / spec.warps_per_sm, limits)


def sectors_per_request(stride: int, itemsize: int = 4, misaligned: int = 0) -> int:
    """Sectors that one warp request touches when lane i accesses item i * stride + misaligned.

    Units: stride and misaligned in items; itemsize in bytes, of what one lane moves.

    >>> [sectors_per_request(stride) for stride in (0, 1, 2, 5, 8, 100)], sectors_per_request(1, misaligned=1)
    ([1, 4, 8, 20, 32, 32], 5)
    """
    step = stride * itemsize
    if step >= SECTOR_BYTES:
        return WARP * max(1, itemsize // SECTOR_BYTES)
    first = misaligned * itemsize
    last = first + (WARP - 1) * step + itemsize - 1
    return last // SECTOR_BYTES - first // SECTOR_BYTES + 1


def bank_ways(stride: int) -> int:
    """Wavefronts of one warp request to shared memory when lane i accesses word i * stride.

    >>> [bank_ways(stride) for stride in (0, 1, 2, 32, 33)]
    [1, 1, 2, 32, 1]
    """
    return gcd(stride, BANKS) if stride else 1


def ridge(spec: GPUSpec, kind: str = "fp32") -> float:
    """Arithmetic intensity above which a kernel is bound by arithmetic, not DRAM. Units: flops per byte."""
    return spec.published_tflops[kind] * 1e3 / spec.dram_gb_per_s
