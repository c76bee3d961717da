"""The TPUs that minicc can drive, as data: one frozen dataclass per chip, each number with its source.

    V5E.hbm_bytes_per_cycle       ->  546.0
    V5E.peak_bf16_tflops          ->  196.6     derived from the units; a test compares the published one
    replace(V5E, mxus=8)          ->  a chip that nobody sells, for the co-design question

A program drives one core: a chip of two cores is two of them, each with half of the chip's HBM bandwidth.

Sources, as named in the comments: [J] JAX's TPU info table; [S] "How to Scale Your Model", the scaling book;
[C] the vendor's cloud documentation; [N] third-party notes; [U] per-bundle utilisation dumps of real v5e
programs, as a third party describes them; [A] an assumption of ours. No letter: it follows from the others.

Real compilers keep such numbers in a target description (LLVM's TableGen, XLA's TpuChipConfig), a good part
of it secret. What to read next: the scaling book's chapter on TPUs, then isa.py for what a slot can hold.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from minicc.errors import CompileError

LANES = 128  # the minor dimension of every vector register and VMEM row [S]
SUBLANES = 8  # the other one [S]
ROW_BYTES = LANES * 4


@dataclass(frozen=True)
class TPUSpec:
    """One core of a TPU, and how many of them share the chip."""

    name: str
    clock_ghz: float
    cores: int  # per chip
    mxus: int  # systolic arrays per core
    hbm_gb_per_s: float  # per chip, shared by its cores
    hbm_gb: int  # per chip
    vmem_mib: int  # per core

    smem_kib: int = 1024  # scalar memory per core [J]
    mxu_side: int = 128  # the array is side x side; 256 from v6e on [C]
    mxu_fifo_vregs: int = 64  # results that wait to be popped [A]
    f32_passes: int = 6  # occupancy of an f32 push against bf16's: the Pallas guide's ridges, 1440 / 240

    dma_startup_cycles: int = 385  # fitted to published 128^3-tile matmul times
    hbm_granule_bytes: int = 32  # every contiguous run is charged in these [U]
    local_startup_cycles: int = 100  # of a copy within the chip [A]

    vregs: int = 64
    sregs: int = 64
    mregs: int = 16  # mask registers [A]
    instruction_bundles: int = 16384  # instruction memory, for one kernel at a time [A]

    scalar_slots: int = 2  # slots per bundle: all [U] ...
    vector_slots: int = 4
    load_slots: int = 3
    store_slots: int = 1
    eup_slots: int = 1
    xlu_slots: int = 3  # pushes and pops together
    misc_slots: int = 1  # ... but this one: DMA, sync and branch share it [A]

    scalar_latency: int = 1  # cycles until the result can be read [A]
    vector_latency: int = 2  # [S]
    load_latency: int = 2  # [A]
    store_latency: int = 1  # until a load sees it [A]
    pop_latency: int = 1  # [A]
    eup_latency: int = 6  # push -> pop; takes one vreg per cycle [A]
    xlus: int = 2  # cross-lane units [A]
    xlu_latency: int = 16  # push -> pop [A]
    xlu_cycles: int = 2  # per vreg pushed [A]
    branch_cycles: int = 1  # extra, when taken [A]

    def __post_init__(self) -> None:
        for name, kind in ((f.name, str(f.type)) for f in fields(self)):
            value, wanted = getattr(self, name), {"int": int, "float": int | float, "str": str}[kind]
            if not isinstance(value, wanted) or isinstance(value, bool):
                raise CompileError("machine", f"{name} is no {kind}", got=repr(value))
            least = 0 if kind == "float" or name == "branch_cycles" else 1
            if not isinstance(value, str) and (value < least or (kind == "float" and not value)):
                raise CompileError("machine", f"{name} is too small", got=value, need=f"{least} or more")
        if self.mxu_side != LANES:
            raise CompileError("machine", "emulated arrays are 128 x 128", got=f"mxu_side={self.mxu_side}")
        if not re.fullmatch(r"\w+", self.name):
            raise CompileError("machine", "the name cannot stand in a program's text", got=repr(self.name),
                               need="letters, digits and _")

    @property
    def hbm_bytes_per_cycle(self) -> float:
        """What one core gets of the chip's bandwidth."""
        return self.hbm_gb_per_s / self.clock_ghz / self.cores

    @property
    def local_bytes_per_cycle(self) -> int:
        """A copy within the chip writes VMEM as fast as the store slots do [A]; loads are faster still: in
        all 12288 bytes a cycle on v5e, 22 times HBM's [S]."""
        return self.store_slots * SUBLANES * ROW_BYTES

    @property
    def mxu_fill_cycles(self) -> int:
        """From a row's first element going in to its last column coming out: 254 for a 128 x 128 array."""
        return self.mxu_side + self.mxu_side - 2

    @property
    def vmem_rows(self) -> int:
        """VMEM is rows of 128 lanes x 32 bits."""
        return self.vmem_mib * 2**20 // ROW_BYTES

    @property
    def peak_bf16_tflops(self) -> float:
        """Per chip: every MXU takes one row of `side` elements a cycle, `side` multiply-adds for each."""
        return 2 * self.mxu_side**2 * self.mxus * self.cores * self.clock_ghz / 1000

    @property
    def slots(self) -> dict[str, int]:
        """How many instructions of each class fit a bundle. Each MXU takes one push and one pop a cycle."""
        return {"scalar": self.scalar_slots, "vector": self.vector_slots, "load": self.load_slots,
                "store": self.store_slots, "eup": self.eup_slots, "eup.pop": self.eup_slots,
                "xlu": self.xlu_slots, "mxu": self.mxus, "mxu.pop": self.mxus, "misc": self.misc_slots}

    @property
    def registers(self) -> dict[str, int]:
        """How many registers of each kind there are."""
        return {"s": self.sregs, "v": self.vregs, "m": self.mregs}

    def units(self, queue: str) -> int:
        """How many units stand behind a queue: "mxu", "xlu" or "eup"."""
        return {"mxu": self.mxus, "xlu": self.xlus, "eup": 1}[queue]

    def differences(self, other: TPUSpec) -> dict[str, object]:
        """The fields that differ from another's: how a program text names a machine of your own."""
        return {f.name: getattr(self, f.name) for f in fields(self)
                if getattr(self, f.name) != getattr(other, f.name)}


#             name   GHz  cores mxus  GB/s GB VMEM
V5E = TPUSpec("v5e", 1.5, 1, 4, 819.0, 16, 128)  # [S] [C] [C] [C] [C] [J, S]
V4 = TPUSpec("v4", 1.05, 2, 4, 1230.0, 32, 16)  # [N] [J] [J] [J] [J] [J]

SPECS: dict[str, TPUSpec] = {spec.name: spec for spec in (V5E, V4)}
