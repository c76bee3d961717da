"""The instructions of the emulated TPU, the bundles that hold them, and the program that holds those.

    Instr("vadd.f32", Reg("v", 3), (Reg("v", 1), 2.0))    one instruction: 8x128 lanes at once
    Bundle((load, add, store))                            up to 20 of them, issued in one cycle
    str(program)  ->     0x1 : { vld v1, [xb + 0x8] ;; sadd.s32 s0, s0, 1 }  # train.py:12

`text.parse` reads back what `str` prints, exactly. Which ops there are, and what they take, ops.py says.

Invariants: all slots of a bundle read before any of them writes. Bundles issue in order, at most one per
cycle. MXU, EUP (transcendentals) and XLU (across lanes) are queues: an op is pushed to a unit, and its
result popped later, in order; a pop waits. A virtual register is a Reg whose index the machine lacks.

What the memory operands of a DMA mean (a block of [.., r, c] elements, at most four dimensions):
  in HBM   element `[x + s0 + 0x10]` plus `strides`, in elements, one per dimension of `shape`;
  in VMEM  row `[xb + s1 + 0x0]`, and from there ceil(c/128) panels, `panel` rows apart: element (r, c) is in
           row r + (c + lane) // 128 * panel, at lane (c + lane) % 128. Each dimension but the last steps by
           its entry of `steps`, in rows (left out: 1, for two dimensions).
           A 1-D array of n elements with panel=1 is dense: ceil(n/128) rows.
           Of a dtype of 16 (8) bits, 2 (4) rows lie in one of VMEM, the first in its low bits: copies count
           the former, in addresses too, loads and stores the latter;
  in SMEM  word `[ids + s1 + 0x0]` and on, for a shape of one dimension: numbers that `sld` reads.
A copy within the chip has an array of VMEM, a *line*, in place of the one in HBM: it is addressed like that,
by element, and element e lies in row e // 128 of the buffer, at lane e % 128, in a word of its own. Between
places of different width an element is extended as its dtype has it, or cut.

XLA's lowest printed level (LLO) looks much like ours. What to read next: verify.py for the rules,
emulator.py for the meaning.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from minicc.errors import CompileError, Loc, merge_locs
from minicc.tpu.machine import SPECS, V5E, TPUSpec
from minicc.tpu.ops import OpInfo, lookup

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
    """A row of VMEM, a word of SMEM, an element of HBM, or a semaphore: name + base + offset."""

    buffer: str
    base: Reg | None = None
    offset: int = 0

    def __str__(self) -> str:
        sign = "-" if self.offset < 0 else "+"
        return f"[{self.buffer}{f' + {self.base}' if self.base else ''} {sign} {abs(self.offset):#x}]"


Operand = Reg | Address | int | float | str  # a str is a label
Attr = int | bool | str | Reg | tuple[int | Reg, ...]


@dataclass(frozen=True)
class Instr:
    """One instruction. `attrs` are (name, value) pairs; `locs`, the user's lines, are not compared."""

    op: str
    dst: Reg | None = None
    srcs: tuple[Operand, ...] = ()
    attrs: tuple[tuple[str, Attr], ...] = ()
    locs: tuple[Loc, ...] = field(default=(), compare=False)

    @cached_property
    def info(self) -> OpInfo:
        """The table's line for this op. Raises: CompileError if there is none."""
        info = lookup(self.op)[0]
        if info is None:
            raise CompileError("tpu", f"unknown op {self.op}", at=self.locs, hint="the names in ops.OPS")
        return info

    @cached_property
    def unit(self) -> int:
        """Which MXU or XLU it goes to; 0 where there is only one."""
        return lookup(self.op)[1]

    def attr(self, name: str, default: Attr = 0) -> Attr:
        """The value of an attribute."""
        return dict(self.attrs).get(name, default) if self.attrs else default

    def latency(self, machine: TPUSpec) -> int:
        """Cycles from issue until a reader of `dst` may issue; of a push, until its pop may (MXU: + rows)."""
        return getattr(machine, self.info.latency)

    def reads(self) -> tuple[Reg, ...]:
        """Every register it reads: sources, bases of addresses, extents and strides of a DMA."""
        return self._read

    @cached_property
    def _read(self) -> tuple[Reg, ...]:
        operands: list[object] = [src.base if type(src) is Address else src for src in self.srcs]
        for _, value in self.attrs:
            operands += value if type(value) is tuple else [value]
        return tuple([operand for operand in operands if type(operand) is Reg])

    def writes(self) -> tuple[Reg, ...]:
        """The register it writes, if any."""
        return (self.dst,) if self.dst else ()

    def __str__(self) -> str:
        operands = [str(src) for src in (self.dst, *self.srcs) if src is not None]
        if self.attr("unless"):
            operands[0] = f"!{operands[0]}"
        attrs = [_attr(name, value) for name, value in self.attrs if name != "unless"]
        return " ".join((self.op, *([", ".join(operands)] if operands else []), *attrs))


def _attr(name: str, value: Attr) -> str:
    if value is True:
        return name
    return f"{name}=({', '.join(map(str, value))})" if type(value) is tuple else f"{name}={value}"


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
class SmemBuffer:
    """A name for some words of scalar memory, which kernels may share as they do rows of VMEM."""

    name: str
    words: int
    base_word: int
    dtype: str = "i32"

    def __str__(self) -> str:
        return f"smem {self.name}: {self.dtype} words={self.words} base={self.base_word:#x}"


@dataclass(frozen=True)
class HbmBuffer:
    """A row-major array in HBM. role: "input" (given, never written), "output", "updated" (both) or
    "temp"."""

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
    buffers: tuple[HbmBuffer | VmemBuffer | SmemBuffer, ...]
    semaphores: tuple[Semaphore, ...]
    bundles: tuple[Bundle, ...]
    labels: tuple[tuple[str, int], ...] = ()  # (".loop", 12): the label stands before bundle 12

    @property
    def hbm(self) -> tuple[HbmBuffer, ...]:
        """Its arrays in HBM."""
        return tuple(b for b in self.buffers if isinstance(b, HbmBuffer))

    @property
    def vmem(self) -> tuple[VmemBuffer, ...]:
        """Its buffers in VMEM."""
        return tuple(b for b in self.buffers if isinstance(b, VmemBuffer))

    @property
    def smem(self) -> tuple[SmemBuffer, ...]:
        """Its buffers in scalar memory."""
        return tuple(b for b in self.buffers if isinstance(b, SmemBuffer))

    def loops(self) -> tuple[tuple[int, int], ...]:
        """(pc of the header, pc of the branch back to it) of every loop."""
        pcs, end = dict(self.labels), len(self.bundles)
        branches = [(pcs.get(str(op.srcs[-1]), end), pc) for pc, bundle in enumerate(self.bundles)
                    for op in bundle.ops if op.op == "sbr.rel"]
        return tuple((head, tail) for head, tail in branches if head <= tail)

    def __str__(self) -> str:
        base = SPECS.get(self.machine.name, V5E)
        own = "".join(f" {name}={value}" for name, value in self.machine.differences(base).items())
        lines = [f"program {self.name}", f"machine {base.name}{own}", *map(str, self.buffers)]
        lines += [*map(str, self.semaphores), ""]
        loops = self.loops()
        for pc, bundle in enumerate(self.bundles):
            lines += [f"{label}:" for label, at in self.labels if at == pc]
            lines.append(_bundle_line(pc, bundle, loops))
        return "\n".join(lines) + "\n"


def _bundle_line(pc: int, bundle: Bundle, loops: tuple[tuple[int, int], ...]) -> str:
    """`0x2a LB: > { op ;; op }  # train.py:12`: LH header of a loop, LB body, LX branch back; > per depth."""
    around = [(head, tail) for head, tail in loops if head <= pc <= tail]
    ends = [side for head, tail in around for side, at in (("LH", head), ("LX", tail)) if at == pc]
    mark = (ends or ["LB"])[0] if around else "  "
    provenance = ", ".join(map(str, bundle.locs))
    line = f"{pc:#x} {mark}: {'> ' * len(around)}{bundle}"
    return line + (f"  # {provenance}" if provenance else "")
