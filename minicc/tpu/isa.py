"""The instructions of the emulated TPU, the bundles that hold them, and the program that holds those.

    Instr("vadd.f32", Reg("v", 3), (Reg("v", 1), 2.0))    one instruction: 8x128 lanes at once
    Bundle((load, add, store))                            up to 20 of them, issued in one cycle
    str(program)  ->     0x1 : { vld v1, [xb + 0x8] ;; sadd.s32 s0, s0, 1 }  # train.py:12

`text.parse` reads back what `str` prints, exactly. `OPS` is the one table that printing, parsing,
`verify.verify`, the scheduler and the emulator read; each line says which slot an op takes, what it reads
and writes, after how many cycles, and whether it touches memory or a queue. The spelling follows published
dumps of real TPU programs.

Invariants: all slots of a bundle read before any of them writes. Bundles issue in order, at most one per
cycle. MXU, EUP (transcendentals) and XLU (across lanes) are queues: an op is pushed to a unit, and its
result popped later, in order; a pop waits. A virtual register is a Reg whose index the machine lacks.

What the memory operands of a DMA mean (a block of [.., r, c] elements, at most four dimensions):
  in HBM   element `[x + s0 + 0x10]` plus `strides`, in elements, one per dimension of `shape`;
  in VMEM  row `[xb + s1 + 0x0]`, and from there ceil(c/128) panels, `panel` rows apart: element (r, c) is in
           row r + (c + lane) // 128 * panel, at lane (c + lane) % 128. Each dimension but the last steps by
           its entry of `steps`, in rows (left out: 1, for two dimensions).
           A 1-D array of n elements with panel=1 is dense: ceil(n/128) rows.

The real encoding packs a bundle into a few hundred bits and is not public; XLA's lowest printed level (LLO)
looks much like ours. What to read next: verify.py for the rules, emulator.py for the meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from minicc.errors import CompileError, Loc, merge_locs
from minicc.tpu.machine import SPECS, V5E, TPUSpec

KERNEL_LABEL = ".kernel."  # a label with this prefix starts a kernel; cycles from there on are its


class Reg(NamedTuple):
    """A register: kind "s" (one 32-bit word), "v" (8x128 words) or "m" (8x128 bits).

    A tuple, since the emulator's register file is a dict and tuples hash fast.
    """

    kind: str
    index: int  # type: ignore[assignment]  # hides tuple.index, which no one needs here

    def __str__(self) -> str:
        return f"{self.kind}{self.index}"


@dataclass(frozen=True)
class Address:
    """A row of a VMEM buffer, an element of an HBM array, or a semaphore: name + base + offset."""

    buffer: str
    base: Reg | None = None
    offset: int = 0

    def __str__(self) -> str:
        sign = "-" if self.offset < 0 else "+"
        return f"[{self.buffer}{f' + {self.base}' if self.base else ''} {sign} {abs(self.offset):#x}]"


Operand = Reg | Address | int | float | str  # a str is a label
Attr = int | bool | str | Reg | tuple[int | Reg, ...]


class OpInfo(NamedTuple):
    """What the table knows of an op.

    slot:    which of `TPUSpec.slots` it takes.
    dst:     kind of the register it writes, or "".
    srcs:    kinds of its sources: s scalar register or integer, n the same or a float, v vector, x vector or
             number, m mask, vmem/hbm/sem an Address, label; a `?` marks one that may be left out.
    attrs:   names of the attributes it takes.
    latency: the TPUSpec field that says after how many cycles the result can be read (a push: popped).
    memory:  "read", "write" (VMEM), "dma", "wait", "signal", or "".
    queue:   "mxu", "xlu", "eup" or ""; port: "push", "weights" (a push too) or "pop".
    """

    slot: str
    dst: str
    srcs: tuple[str, ...]
    attrs: tuple[str, ...] = ()
    latency: str = "scalar_latency"
    memory: str = ""
    queue: str = ""
    port: str = ""


def _ops(names: str, slot: str, dst: str, srcs: str = "", latency: str = "scalar_latency", attrs: str = "",
         memory: str = "", queue: str = "", port: str = "") -> dict[str, OpInfo]:
    info = OpInfo(slot, dst, tuple(srcs.split()), tuple(attrs.split()), latency, memory, queue, port)
    return dict.fromkeys(names.split(), info)


COMPARISONS = ("lt", "le", "eq", "ne", "ge", "gt")
_SCMP = " ".join(f"scmp.{c}.s32" for c in COMPARISONS)
_VCMP = " ".join(f"vcmp.{c}.{t}" for t in ("f32", "s32") for c in COMPARISONS)
_SCALAR = "sadd.s32 ssub.s32 smul.u32 smin.s32 smax.s32 sdiv.s32 srem.s32 sand.u32 sor.u32"
_UNARY = "vmov vabs.f32 vfloor.f32 vceil.f32 vcvt.s32.f32 vcvt.f32.s32"
_ACROSS = " ".join(f"v{r}.xlane.{t}.xlu" for t in ("f32", "s32") for r in ("add", "max", "min"))
_WEIGHTS = "vmatpush.mxu vmatpush.xpose.mxu vmatpush.bf16.mxu vmatpush.xpose.bf16.mxu"
_DMA = "shape strides steps panel lane"
_BINARY = ("vadd.f32 vsub.f32 vmul.f32 vmax.f32 vmin.f32 vadd.s32 vsub.s32 vmul.s32 vmax.s32 vmin.s32 "
           "vand.u32 vor.u32 vxor.u32 vshll.u32 vshrl.u32 vshra.s32")

OPS: dict[str, OpInfo] = {
    # the scalar core
    **_ops("smov", "scalar", "s", "n"),
    **_ops(_SCALAR, "scalar", "s", "s s"),
    **_ops(_SCMP, "scalar", "s", "s s"),  # 1 or 0
    **_ops("ssel", "scalar", "s", "s s s"),  # first != 0 ? second : third
    # control, DMA and semaphores
    **_ops("sbr.rel", "misc", "", "s? label", attrs="unless"),  # always; if s != 0; or, as `!s`, if s == 0
    **_ops("shalt", "misc", ""),
    **_ops("dma.hbm_to_vmem", "misc", "", "vmem hbm sem", attrs=_DMA, memory="dma"),  # destination first
    **_ops("dma.vmem_to_hbm", "misc", "", "hbm vmem sem", attrs=_DMA, memory="dma"),
    **_ops("dma.done.wait", "misc", "", "sem", memory="wait"),  # until it counts 1 or more, then takes 1
    **_ops("vsyncadd", "misc", "", "sem s", memory="signal"),
    # loads and stores: 8 rows, `stride` apart (0: one row to all sublanes), or only the first `rows` of them
    **_ops("vld", "load", "v", "vmem", "load_latency", "stride rows", "read"),
    **_ops("vst", "store", "", "vmem v", "store_latency", "stride rows", "write"),
    **_ops("vst.msk", "store", "", "vmem v m", "store_latency", "stride rows", "write"),
    # the vector ALU, lane by lane
    **_ops(_UNARY, "vector", "v", "v", "vector_latency"),  # vcvt.FROM.TO; to s32 towards zero
    **_ops(_BINARY, "vector", "v", "v x", "vector_latency"),
    **_ops("vsplat", "vector", "v", "n", "vector_latency"),
    **_ops("vlaneseq vsubseq", "vector", "v", "", "vector_latency"),  # the lane's, the sublane's number
    **_ops("vrot.slane", "vector", "v", "v s", "vector_latency"),  # sublane i goes to i + s, around the end
    **_ops("vpack.bf16", "vector", "v", "v v", "vector_latency"),  # rows 0-7 and 8-15 of a 16-row tile
    **_ops("vunpack.lo.bf16 vunpack.hi.bf16", "vector", "v", "v", "vector_latency"),  # rows 0-7; rows 8-15
    **_ops("vsel", "vector", "v", "m x x", "vector_latency"),  # mask ? second : third
    **_ops(_VCMP, "vector", "m", "v x", "vector_latency"),
    **_ops("vcmask", "vector", "m", "s s", "vector_latency"),  # sublane < first and lane < second
    **_ops("vcmask.linear", "vector", "m", "s", "vector_latency"),  # sublane * 128 + lane < first
    **_ops("vmand vmor", "vector", "m", "m m", "vector_latency"),
    **_ops("vmnot", "vector", "m", "m", "vector_latency"),
    # transcendentals
    **_ops("vpow2 vlog2 vtanh vrcp vrsqrt", "eup", "", "v", "eup_latency", "", "", "eup", "push"),
    **_ops("vpop.eup", "eup.pop", "v", "", "pop_latency", "", "", "eup", "pop"),
    # across lanes: a row's total in all its lanes; lane i to i + s; lane s to all. A transposition of a tile:
    # 16 pushes of 8 rows (fewer: the rest is garbage), marked begin and end, then 16 pops of 8 rows
    **_ops(_ACROSS, "xlu", "", "v", "xlu_latency", "", "", "xlu", "push"),
    **_ops("vrot.lane.xlu vbcast.lane.xlu", "xlu", "", "v s", "xlu_latency", "", "", "xlu", "push"),
    **_ops("vxpose.xlu", "xlu", "", "v", "xlu_latency", "begin end", "", "xlu", "push"),
    **_ops("vpop.xlu", "xlu", "v", "", "pop_latency", "", "", "xlu", "pop"),
    # matrix units: 128 rows of weights go to the shadow copy (16 pushes; 8 when packed), `swap` makes them
    # active, and each row pushed meets all of them. One pop per 8 rows pushed; a packed push of more: two
    **_ops(_WEIGHTS, "mxu", "", "v", "", "", "", "mxu", "weights"),
    **_ops("vmatmul.mxu vmatmul.bf16.mxu", "mxu", "", "v", "mxu_fill_cycles", "rows swap", "", "mxu", "push"),
    **_ops("vpop.mrf.mxu", "mxu.pop", "v", "", "pop_latency", "", "", "mxu", "pop"),
}


@cache
def lookup(op: str) -> tuple[OpInfo | None, int]:
    """The table's line for an op and the number of its unit: "vpop.mrf.mxu3" is ("vpop.mrf.mxu", 3).

    >>> lookup("vmatmul.mxu3")[1], lookup("vpow2")[1]
    (3, 0)
    """
    if op in OPS:
        info = OPS[op]
        return (None, 0) if info.queue in ("mxu", "xlu") else (info, 0)  # these need a unit's number
    name = op.rstrip("0123456789")
    return (OPS.get(name), int(op[len(name):])) if op != name else (None, 0)


@dataclass(frozen=True)
class Instr:
    """One instruction. `attrs` are (name, value) pairs; `locs`, the user's lines, are not compared."""

    op: str
    dst: Reg | None = None
    srcs: tuple[Operand, ...] = ()
    attrs: tuple[tuple[str, Attr], ...] = ()
    locs: tuple[Loc, ...] = field(default=(), compare=False)

    @property
    def info(self) -> OpInfo:
        """The table's line for this op. Raises: CompileError if there is none."""
        info = lookup(self.op)[0]
        if info is None:
            raise CompileError("tpu", f"unknown op {self.op}", at=self.locs, hint="the names in isa.OPS")
        return info

    @property
    def unit(self) -> int:
        """Which MXU or XLU it goes to; 0 where there is only one."""
        return lookup(self.op)[1]

    def attr(self, name: str, default: Attr = 0) -> Attr:
        """The value of an attribute."""
        return next((value for key, value in self.attrs if key == name), default) if self.attrs else default

    def latency(self, machine: TPUSpec) -> int:
        """Cycles from issue until a reader of `dst` may issue; of a push, until its pop may (MXU: + rows)."""
        return getattr(machine, self.info.latency) if self.info.latency else 0

    def reads(self) -> tuple[Reg, ...]:
        """Every register it reads: sources, bases of addresses, extents and strides of a DMA."""
        return tuple(_registers((*self.srcs, *(value for _, value in self.attrs))))

    def writes(self) -> tuple[Reg, ...]:
        """The register it writes, if any."""
        return (self.dst,) if self.dst else ()

    def __str__(self) -> str:
        sources = [_operand(src) for src in self.srcs]
        if self.attr("unless"):
            sources[0] = "!" + sources[0]
        operands = ", ".join(([str(self.dst)] if self.dst else []) + sources)
        attrs = "".join(f" {_attr(*pair)}" for pair in self.attrs if pair[0] != "unless")
        return f"{self.op} {operands}{attrs}".rstrip()


def _registers(operands: tuple) -> Iterator[Reg]:
    for operand in operands:
        match operand:
            case Reg():
                yield operand
            case Address(base=Reg() as base):
                yield base
            case tuple():
                yield from _registers(operand)


def _operand(value: object) -> str:
    return repr(value) if isinstance(value, float) else str(value)


def _attr(name: str, value: Attr) -> str:
    if value is True:
        return name
    if isinstance(value, tuple) and not isinstance(value, Reg):
        return f"{name}=({', '.join(map(str, value))})"
    return f"{name}={value}"


@dataclass(frozen=True)
class Bundle:
    """The instructions that issue together."""

    ops: tuple[Instr, ...] = ()

    @property
    def locs(self) -> tuple[Loc, ...]:
        """All user lines of its instructions."""
        return merge_locs(*(op.locs for op in self.ops))

    def __str__(self) -> str:
        return "{ " + " ;; ".join(map(str, self.ops)) + (" }" if self.ops else "}")


@dataclass(frozen=True)
class VmemBuffer:
    """A name for some rows of VMEM. Two buffers may share rows when they are never in use together."""

    name: str
    rows: int
    base_row: int
    dtype: str = "f32"

    def __str__(self) -> str:
        return f"vmem {self.name}: {self.dtype} rows={self.rows} base={self.base_row:#x}"


@dataclass(frozen=True)
class HbmBuffer:
    """A row-major array in HBM. role: "input" (given, never written), "output" or "temp"."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: str

    def __str__(self) -> str:
        return f"hbm {self.name}: {self.dtype}[{','.join(map(str, self.shape))}] {self.role}"


@dataclass(frozen=True)
class Semaphore:
    """An array of `count` semaphores, addressed as `[name + index]`; all start at 0."""

    name: str
    count: int = 1

    def __str__(self) -> str:
        return f"semaphore {self.name}: {self.count}"


@dataclass(frozen=True)
class Program:
    """Everything a machine needs to run: buffers, semaphores, bundles, and where the labels stand."""

    name: str
    machine: TPUSpec
    buffers: tuple[HbmBuffer | VmemBuffer, ...]
    semaphores: tuple[Semaphore, ...]
    bundles: tuple[Bundle, ...]
    labels: tuple[tuple[str, int], ...] = ()  # (".loop", 12): the label stands before bundle 12

    @property
    def label_pcs(self) -> dict[str, int]:
        """label -> the pc of the bundle it stands before."""
        return dict(self.labels)

    @property
    def hbm(self) -> tuple[HbmBuffer, ...]:
        """Its arrays in HBM."""
        return tuple(b for b in self.buffers if isinstance(b, HbmBuffer))

    @property
    def vmem(self) -> tuple[VmemBuffer, ...]:
        """Its buffers in VMEM."""
        return tuple(b for b in self.buffers if isinstance(b, VmemBuffer))

    def loops(self) -> tuple[tuple[int, int], ...]:
        """(pc of the header, pc of the branch back to it) of every loop."""
        pcs = self.label_pcs
        nowhere = len(self.bundles)
        branches = [(pcs.get(str(op.srcs[-1]), nowhere), pc) for pc, bundle in enumerate(self.bundles)
                    for op in bundle.ops if op.op == "sbr.rel"]
        return tuple((head, tail) for head, tail in branches if head <= tail)

    def __str__(self) -> str:
        base = SPECS.get(self.machine.name, V5E)
        own = "".join(f" {name}={value}" for name, value in self.machine.differences(base).items())
        lines = [f"program {self.name}", f"machine {base.name}{own}"]
        lines += [str(item) for item in (*self.buffers, *self.semaphores)] + [""]
        loops = self.loops()
        for pc, bundle in enumerate(self.bundles):
            lines += [f"{label}:" for label, at in self.labels if at == pc]
            lines.append(_bundle_line(pc, bundle, loops))
        return "\n".join(lines) + "\n"


def _bundle_line(pc: int, bundle: Bundle, loops: tuple[tuple[int, int], ...]) -> str:
    """`0x2a LB: > { op ;; op }  # train.py:12`: LH header of a loop, LB body, LX branch back; > per depth."""
    around = [(head, tail) for head, tail in loops if head <= pc <= tail]
    ends = [side for head, tail in around for side, at in (("LH", head), ("LX", tail)) if at == pc]
    mark = ends[0] if ends else "LB"
    place = f"{pc:#x} {mark if around else '  '}: {'> ' * len(around)}"
    provenance = ", ".join(map(str, bundle.locs))
    return f"{place}{bundle}" + (f"  # {provenance}" if provenance else "")
