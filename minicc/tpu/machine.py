"""The TPUs that minicc can drive, as data: one frozen dataclass per chip, each number with its source.

    V5E.hbm_bytes_per_cycle       ->  546.0
    V5E.peak_bf16_tflops          ->  196.6     derived from the units; a test compares the published one
    V5E.changed({"mxus": "8"})    ->  a chip that nobody sells, for the co-design question: tpu:v5e,mxus=8
    SOURCES["v5e"]["clock_ghz"]   ->  "S"

A program drives one core: a chip of two cores is two of them, each with half of the chip's HBM bandwidth.
What the table of chips does not say is a default of the dataclass: known or assumed of a v5e, and an
assumption for every other chip. Programs are for arrays of 128 x 128, or of 256 x 256 as v6e has.

Sources: [J] JAX's TPU info table; [S] "How to Scale Your Model", the scaling book; [C] the vendor's cloud
documentation; [N] third-party notes; [U] per-bundle utilisation dumps of real v5e programs, as a third party
describes them; [X] XLA's dot algorithm of six bf16 passes, its highest precision; [F] fitted to published
times of matmuls in 128^3 tiles on a v5e, by the closed form of cost.py; [D] derived from the published peak;
[A] an assumption of ours.

Real compilers keep such numbers in a target description (LLVM's TableGen, XLA's TpuChipConfig), a good part
of it secret. What to read next: the scaling book's chapter on TPUs, then isa.py for what a slot can hold.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any

from minicc.errors import CompileError, Loc
from minicc.graph.attributes import nearest

LANES = 128  # the minor dimension of every vector register and VMEM row [S]
SUBLANES = 8  # the other one [S]
ROW_BYTES = LANES * 4
MAY_BE_ZERO = ("branch_cycles", "mxu_rows", "int8_rows", "ici_axes")


def number(says: str, default: Any = MISSING) -> Any:
    """A field with what `minicc machines` says of it: its unit, and the source of its default."""
    return field(default=default, metadata={"says": says})


@dataclass(frozen=True)
class TPUSpec:
    """One core of a TPU, and how many of them share the chip."""

    name: str
    clock_ghz: float = number("GHz")
    cores: int = number("per chip")
    mxus: int = number("systolic arrays per core")
    hbm_gb_per_s: float = number("per chip, shared by its cores")
    hbm_gb: int = number("per chip")
    vmem_mib: int = number("per core")

    smem_kib: int = number("scalar memory per core [J]", 1024)
    mxu_side: int = number("the array is side x side [C]", 128)
    mxu_rows: int = number("bf16 rows that an array takes in a cycle [S]", 1)
    int8_rows: int = number("int8 rows; 0 if it takes them as bf16 alone [C]", 2)
    ici_gb_per_s: float = number("each way of a link between chips, in closed forms [S]", 45.0)
    ici_axes: int = number("dimensions of the mesh of chips, two links for each [S]", 2)
    ici_hop_us: float = number("from a chip to the next [S]", 1.0)
    launch_us: float = number("before a program starts, in closed forms [F]", 100.0)

    mxu_fifo_vregs: int = number("results that wait to be popped [A]", 64)
    f32_passes: int = number("bf16 passes that make an f32 push [X]", 6)
    dma_startup_cycles: int = number("of a DMA [F]", 385)
    hbm_granule_bytes: int = number("every contiguous run is charged in these [U]", 32)
    local_startup_cycles: int = number("of a copy within the chip [A]", 100)

    vregs: int = number("vector registers [A]", 64)
    sregs: int = number("scalar registers [A]", 64)
    mregs: int = number("mask registers [A]", 16)
    instruction_bundles: int = number("instruction memory, for one kernel at a time [A]", 16384)

    scalar_slots: int = number("in a bundle [U]", 2)
    vector_slots: int = number("in a bundle [U]", 4)
    load_slots: int = number("in a bundle [U]", 3)
    store_slots: int = number("in a bundle [U]", 1)
    eup_slots: int = number("in a bundle [U]", 1)
    xlu_slots: int = number("in a bundle, pushes and pops together [U]", 3)
    misc_slots: int = number("in a bundle; DMA, sync and branch share it [A]", 1)

    scalar_latency: int = number("cycles until the result can be read [A]", 1)
    vector_latency: int = number("cycles [S]", 2)
    load_latency: int = number("cycles [A]", 2)
    store_latency: int = number("cycles until a load sees it [A]", 1)
    pop_latency: int = number("cycles [A]", 1)
    eup_latency: int = number("cycles from push to pop; takes one vreg a cycle [A]", 6)
    xlus: int = number("cross-lane units [A]", 2)
    xlu_latency: int = number("cycles from push to pop [A]", 16)
    xlu_cycles: int = number("per vreg pushed [A]", 2)
    branch_cycles: int = number("extra, when taken [A]", 1)

    def __post_init__(self) -> None:
        for name, kind in ((f.name, str(f.type)) for f in fields(self)):
            value, wanted = getattr(self, name), {"int": int, "float": int | float, "str": str}[kind]
            if not isinstance(value, wanted) or isinstance(value, bool):
                raise CompileError("machine", f"{name} is no {kind}", got=repr(value))
            if isinstance(value, str):
                continue
            least = 0 if kind == "float" or name in MAY_BE_ZERO else 1
            if not least <= value < 1e9 or (kind == "float" and not value):
                raise CompileError("machine", f"{name} is too {'large' if value > 0 else 'small'}", got=value,
                                   need=f"{least} or more")
        if not re.fullmatch(r"\w+", self.name):
            raise CompileError("machine", "the name cannot stand in a program's text", got=repr(self.name),
                               need="letters, digits and _")

    def check_emulated(self, at: tuple[Loc, ...] = ()) -> None:
        """Raises: CompileError for a machine that programs cannot drive yet. at: the user's line."""
        if self.mxu_side not in (LANES, 2 * LANES) or not self.mxu_rows:
            got = f"tpu:{self.name} with mxu_side={self.mxu_side}, mxu_rows={self.mxu_rows}"
            raise CompileError("machine", "emulated arrays are 128 x 128 or 256 x 256", got=got,
                               need="mxu_side=128 or 256, mxu_rows=1 or more", at=at, hint="tpu:v5p, or "
                               "closed forms: minicc machines, minicc/tpu/cost.py")

    def changed(self, changes: Mapping[str, str], at: tuple[Loc, ...] = ()) -> TPUSpec:
        """This machine with other values, as one writes them: {"mxus": "8"}. at: the user's line.

        Raises: CompileError for what is no field, or not such a value.
        """
        kinds = {f.name: {"int": int, "float": float}[str(f.type)] for f in fields(self) if f.name != "name"}
        values = {}
        for key, text in changes.items():
            if key not in kinds:
                raise CompileError("machine", "a TPU has no such number", got=key, need=", ".join(kinds),
                                   at=at, hint=nearest(key, kinds))
            try:
                values[key] = kinds[key](text)
            except ValueError:
                raise CompileError("machine", f"{key} is no {kinds[key].__name__}", got=repr(text),
                                   at=at) from None
        return replace(self, **values)

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

    def push_cycles(self, kind: str, rows: int) -> int:
        """For how long so many rows keep the input of an array. kind: "f32", "bf16" or "int8"."""
        if kind == "int8":
            return -(-rows // self.int8_rows)
        return -(-rows * (self.f32_passes if kind == "f32" else 1) // self.mxu_rows)

    @property
    def vmem_rows(self) -> int:
        """VMEM is rows of 128 lanes x 32 bits."""
        return self.vmem_mib * 2**20 // ROW_BYTES

    @property
    def peak_bf16_tflops(self) -> float:
        """Per chip: an MXU takes rows of `side` elements, `side` multiply-adds for each. Units: 1e12/s."""
        return self._peak(self.mxu_rows)

    @property
    def peak_int8_tops(self) -> float:
        """Per chip, for int8 by int8. Units: 1e12/s."""
        return self._peak(self.int8_rows)

    def _peak(self, rows: int) -> float:
        return 2 * self.mxu_side**2 * rows * self.mxus * self.cores * self.clock_ghz / 1000

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


CHIPS = """
              v2       v3       v4       v5e      v5p      v6e
clock_ghz     0.702 D  0.94 N   1.05 N   1.5 S    1.75 D   1.75 A
cores         2 J      2 J      2 J      1 C      2 C      1 C
mxus          1 J      2 J      4 J      4 C      4 C      2 C
mxu_side      128 J    128 J    128 J    128 C    128 C    256 C
mxu_rows      1 D      1 D      1 S      1 S      1 D      2 A
int8_rows     0 J      0 J      1 S      2 C      2 C      4 C
mxu_fifo_vregs 64 A    64 A     64 A     64 A     64 A     512 A
hbm_gb_per_s  716 J    900 S    1230 J   819 C    2765 C   1638 C
hbm_gb        16 J     32 J     32 J     16 C     95 C     32 C
vmem_mib      16 J     16 J     16 J     128 J    64 J     128 J
smem_kib      16 J     16 J     1024 J   1024 J   1024 J   1024 J
vregs         32 A     32 A     32 S     64 A     64 A     64 A
vector_slots  2 A      2 A      2 S      4 U      4 S      4 A
ici_gb_per_s  62 N     100 S    45 S     45 S     90 S     90 S
ici_axes      2 N      2 S      3 S      2 S      3 S      2 S
"""


def read_chips(table: str) -> tuple[dict[str, TPUSpec], dict[str, dict[str, str]]]:
    """Every chip of the table by its name, and by the same name the source of each of its numbers."""
    names, *rows = (line.split() for line in table.strip().splitlines())
    kinds = {f.name: float if f.type == "float" else int for f in fields(TPUSpec)}
    specs, sources = {}, {}
    for place, name in enumerate(names):
        cells = {row[0]: (row[1 + 2 * place], row[2 + 2 * place]) for row in rows}
        numbers: dict[str, Any] = {key: kinds[key](value) for key, (value, _) in cells.items()}
        specs[name] = TPUSpec(name, **numbers)
        sources[name] = {key: source for key, (_, source) in cells.items()}
    return specs, sources


SPECS, SOURCES = read_chips(CHIPS)
V4, V5E = SPECS["v4"], SPECS["v5e"]
