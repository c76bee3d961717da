"""The GPUs: what of each one shapes a kernel's cost.

    A100.peak_fp32_tflops  ->  19.5     (108 SMs x 64 lanes x 2 flops x 1.41 GHz)
    A100.shared_kib_per_sm ->  164

Goes in: published numbers. Comes out: one frozen dataclass per machine; `dataclasses.replace(A100,
sms=216)` is another machine. Sources: V the vendor's architecture whitepaper of that generation, D derived
from the others, A an assumption of ours. What is the same on all three is a constant below. Real compilers
keep such numbers in a target description too (LLVM's NVPTX subtargets, Triton's GPUTarget). Read next:
cost.py, which says what the numbers mean for a kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32  # lanes per warp (V)
BANKS = 32  # banks of shared memory (V)
BANK_BYTES = 4  # width of each (V)
SECTOR_BYTES = 32  # what one access of DRAM or L2 moves at least (V)
REGISTERS_PER_SM = 65536  # of 32 bits (V)
REGISTER_QUARTERS = 4  # each of the four schedulers has a quarter of the register file (V)
REGISTER_GRANULE = 256  # registers of one warp are given out in these (vendor's occupancy calculator)
MOST_THREADS_PER_BLOCK = 1024  # (V)
SHARED_GRANULE_BYTES = 128  # (vendor's occupancy calculator)
SHARED_RESERVED_BYTES = 1024  # of each block, taken by the system (vendor's occupancy calculator)


@dataclass(frozen=True)
class GPUSpec:
    """One GPU.

    >>> round(A100.peak_fp32_tflops, 1), round(A6000.peak_fp32_tflops, 1)
    (19.5, 38.7)
    """

    name: str
    title: str  # as people call it
    sms: int  # streaming multiprocessors (V)
    clock_ghz: float  # boost clock that the published peaks assume, GHz (V)
    fp32_lanes: int  # fused multiply-adds per cycle and SM (V)
    warps_per_sm: int  # resident at most (V)
    blocks_per_sm: int  # resident at most (V)
    shared_kib_per_sm: int  # KiB (V)
    shared_kib_per_block: int  # KiB (V)
    dram_gb: int  # GB (V)
    dram_gb_per_s: float  # GB/s (V)
    published_tflops: dict[str, float]  # by "fp32", and where there are tensor cores "bf16", "tf32" (V)
    l2_over_dram: float = 2.5  # bandwidth of L2 in multiples of DRAM's (A)

    @property
    def peak_fp32_tflops(self) -> float:
        """Fused multiply-adds count two. Units: 1e12 flops per second (D)."""
        return self.sms * self.fp32_lanes * 2 * self.clock_ghz / 1e3


A100 = GPUSpec("a100", "A100 40GB", 108, 1.41, 64, 64, 32, 164, 163, 40, 1555,
               {"fp32": 19.5, "tf32": 156, "bf16": 312})
H100 = GPUSpec("h100", "H100 SXM", 132, 1.83, 128, 64, 32, 228, 227, 80, 3352,
               {"fp32": 67, "bf16": 989})  # its fp32 peak is at 1.98 GHz; at 1.83 it is 62
A6000 = GPUSpec("a6000", "RTX A6000", 84, 1.80, 128, 48, 16, 100, 99, 48, 768, {"fp32": 38.7})

SPECS = {spec.name: spec for spec in (A100, H100, A6000)}
