"""Assembly: basic blocks of instructions over unlimited registers, and the hand that writes them.

    with `write = Writer(spec)`:
        three = write.add(1, 2)                     3, an int: nothing is emitted for what is known already
        row = write.add(step, 8)                    s7, and the block grows by    sadd.s32 s7, s3, 8
        x = write.op("vld", Address("x", row))      v4, and                       vld v4, [x + s7 + 0x0]

Goes in: calls, one per instruction. Comes out: an `Assembly`. A *scalar* is an int, if its value is known
now, or else a register; arithmetic on ints happens here, so that a grid of one step leaves no trace of its
counters. Within a block, asking twice for the same pure instruction gives the same register. A register is
written once, but for the few that loops carry (`set`). Control enters a block at its label alone and leaves
it by the branch at its end, or falls through.

LLVM's IRBuilder folds and inserts in the same way. Read next: lower.py, which writes; schedule.py, which
reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partialmethod
from typing import NamedTuple

from minicc.errors import Loc
from minicc.tpu.isa import Address, Attr, HbmBuffer, Instr, Operand, Reg, Semaphore, VmemBuffer
from minicc.tpu.machine import TPUSpec

Scalar = int | Reg


@dataclass(frozen=True)
class BasicBlock:
    """A straight run of instructions; a label, if any, at its head, a branch, if any, at its end."""

    labels: tuple[str, ...]
    ops: tuple[Instr, ...]

    def __str__(self) -> str:
        return "\n".join([*(f"{label}:" for label in self.labels), *(f"  {op}" for op in self.ops)])


@dataclass(frozen=True)
class Assembly:
    """A program before scheduling: like isa.Program, but in blocks rather than bundles."""

    name: str
    machine: TPUSpec
    buffers: tuple[HbmBuffer | VmemBuffer, ...]
    semaphores: tuple[Semaphore, ...]
    blocks: tuple[BasicBlock, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, (*self.buffers, *self.semaphores, *self.blocks))) + "\n"


class At(NamedTuple):
    """A place along one axis of a block: a loop's counter, if there is one, plus an offset; in elements."""

    counter: Reg | None
    offset: int


ORIGIN = At(None, 0)

_FOLD: dict[str, Callable[[int, int], int]] = {
    "sadd.s32": lambda a, b: a + b,
    "ssub.s32": lambda a, b: a - b,
    "smul.u32": lambda a, b: a * b,
    "smin.s32": min,
    "smax.s32": max,
    "sdiv.s32": lambda a, b: a // b,
    "sor.u32": lambda a, b: a | b,
    "scmp.eq.s32": lambda a, b: int(a == b),
    "scmp.lt.s32": lambda a, b: int(a < b),
}
# the second operand that changes nothing
_IDENTITY = {"sadd.s32": 0, "ssub.s32": 0, "smul.u32": 1, "sor.u32": 0, "sdiv.s32": 1}
_COMMUTES = ("sadd.s32", "smul.u32", "smin.s32", "smax.s32", "sor.u32", "scmp.eq.s32")
_PURE_SLOTS = ("scalar", "vector")


@dataclass
class Writer:
    """Writes basic blocks. `locs`, the lines to blame, go on every instruction until they are changed."""

    machine: TPUSpec
    locs: tuple[Loc, ...] = ()
    blocks: list[BasicBlock] = field(default_factory=list)
    _ops: list[Instr] = field(default_factory=list)
    _labels: list[str] = field(default_factory=list)
    _known: dict[tuple, Reg] = field(default_factory=dict)
    _count: dict[str, int] = field(default_factory=dict)
    _xlu: int = 0

    # ---- registers and instructions ----

    def register(self, kind: str) -> Reg:
        """A register never used before."""
        index = self._count.get(kind, 0)
        self._count[kind] = index + 1
        return Reg(kind, index)

    def op(self, name: str, *srcs: Operand, into: Reg | None = None, **attrs: Attr) -> Reg:
        """Emit one instruction and return the register it writes (s0, of no meaning, if it writes none).

        A number where a vector register must stand is splatted first. into: a register to write again.
        """
        given = tuple((key, value) for key, value in attrs.items() if value is not False)
        info = Instr(name).info
        srcs = tuple(self.vector(s) if kind == "v" else s for kind, s in zip(info.srcs, srcs, strict=True))
        key = (name, tuple((type(s), repr(s) if isinstance(s, float) else s) for s in srcs), given)
        pure = info.slot in _PURE_SLOTS and into is None
        if pure and key in self._known:
            return self._known[key]
        dst = into or (self.register(info.dst) if info.dst else None)
        self._ops.append(Instr(name, dst, srcs, given, self.locs))
        if into is not None:  # what was computed from its old value is not the same any more
            self._known = {k: r for k, r in self._known.items() if (Reg, into) not in k[1] and r != into}
        elif pure and dst is not None:
            self._known[key] = dst
        return dst or Reg("s", 0)

    def vector(self, value: Operand) -> Operand:
        """A vector register that holds a number in all lanes; a register stays what it is."""
        return self.op("vsplat", value) if isinstance(value, int | float) else value

    def xlu(self, name: str, *srcs: Operand) -> Reg:
        """Push to one of the cross-lane units, each in its turn, and pop the result."""
        unit = self.next_xlu()
        return self.queued(f"{name}.xlu{unit}", f"vpop.xlu{unit}", *srcs)

    def queued(self, push: str, pop: str, *srcs: Operand) -> Reg:
        """Push to a unit and pop the result, once for the same operands."""
        key = (push, tuple((type(s), s) for s in srcs))
        if key not in self._known:
            self.op(push, *srcs)
            self._known[key] = self.op(pop)
        return self._known[key]

    def next_xlu(self) -> int:
        """The number of the cross-lane unit whose turn it is."""
        self._xlu = (self._xlu + 1) % self.machine.xlus
        return self._xlu

    # ---- scalars ----

    def scalar(self, name: str, a: Scalar, b: Scalar) -> Scalar:
        """a op b: now, if both are known; else an instruction, unless one of them changes nothing."""
        if isinstance(a, int) and isinstance(b, int):
            return _FOLD[name](a, b)
        if isinstance(a, int) and name in _COMMUTES:
            a, b = b, a
        if b == _IDENTITY.get(name) and isinstance(b, int):
            return a
        if name == "smul.u32" and b == 0:
            return 0
        return self.op(name, a, b)

    add = partialmethod(scalar, "sadd.s32")
    sub = partialmethod(scalar, "ssub.s32")
    mul = partialmethod(scalar, "smul.u32")
    div = partialmethod(scalar, "sdiv.s32")
    min = partialmethod(scalar, "smin.s32")
    max = partialmethod(scalar, "smax.s32")
    either = partialmethod(scalar, "sor.u32")
    equal = partialmethod(scalar, "scmp.eq.s32")
    less = partialmethod(scalar, "scmp.lt.s32")

    def place(self, at: At) -> Scalar:
        """Where an At is."""
        return at.offset if at.counter is None else self.add(at.counter, at.offset)

    def scaled(self, at: At, factor: int) -> At:
        """An At that counts in units of `factor` elements, in elements."""
        return At(self.op("smul.u32", at.counter, factor) if at.counter else None, at.offset * factor)

    def address(self, buffer: str, *parts: Scalar) -> Address:
        """buffer + the sum of the parts: registers are added, what is known goes into the offset."""
        base: Scalar = 0
        for part in parts:
            base = self.add(base, part) if isinstance(part, Reg) else base
        offset = sum(part for part in parts if not isinstance(part, Reg))
        return Address(buffer, base if isinstance(base, Reg) else None, offset)

    # ---- control ----

    def label(self, name: str) -> None:
        """Start a basic block here."""
        if self._ops:
            self._finish()
        self._labels.append(name)
        self._known.clear()

    def fresh(self, name: str) -> str:
        """A label never used before."""
        number = self._count[name] = self._count.get(name, -1) + 1
        return f".{name}" if not number else f".{name}.{number}"

    def branch(self, label: str, condition: Scalar) -> None:
        """Go to a label if a condition is not 0."""
        self.op("sbr.rel", condition, label)
        self._finish()

    def skip_if(self, condition: Scalar, name: str, body: Callable[[], None]) -> None:
        """Write the body, and a branch around it; no branch if it is known now which way that goes."""
        if isinstance(condition, Reg):
            behind = self.fresh(name)
            self.branch(behind, condition)
            body()
            self.label(behind)
        elif not condition:
            body()

    def loop(self, count: int, whole: int, unroll: int, step: int, body: Callable[[list[At]], None],
             start: int = 0) -> None:
        """`body` at start, start + step, ... (count places), in batches of `unroll`: a real loop over the
        whole places, then the rest with its offsets known, so that the last, shorter place can be seen to
        be one."""
        rounds = whole // unroll
        if rounds > 1:
            counter = self.register("s")
            self.op("smov", start, into=counter)
            head = self.fresh("loop")
            self.label(head)
            body([At(counter, number * step) for number in range(unroll)])
            self.op("sadd.s32", counter, unroll * step, into=counter)
            self.branch(head, self.op("scmp.lt.s32", counter, start + rounds * unroll * step))
        done = rounds * unroll if rounds > 1 else 0
        for first in range(done, count, unroll):
            body([At(None, start + step * n) for n in range(first, min(first + unroll, count))])

    def _finish(self) -> None:
        self.blocks.append(BasicBlock(tuple(self._labels), tuple(self._ops)))
        self._labels, self._ops = [], []
        self._known.clear()

    def finish(self) -> tuple[BasicBlock, ...]:
        """All blocks, without the instructions whose result nobody reads."""
        if self._ops or self._labels:
            self._finish()
        return _without_unread(self.blocks)


def _without_unread(blocks: Iterable[BasicBlock]) -> tuple[BasicBlock, ...]:
    """Drop pure instructions and loads that no one reads, until all that is left is needed."""
    before, blocks = None, tuple(blocks)
    while blocks != before:
        read = {reg for block in blocks for op in block.ops for reg in op.reads()}
        before, blocks = blocks, tuple(
            BasicBlock(block.labels, tuple(
                op for op in block.ops if op.dst in read or op.info.slot not in (*_PURE_SLOTS, "load")))
            for block in blocks)
    return blocks
