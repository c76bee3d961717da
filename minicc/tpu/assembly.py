"""Assembly: a program over unlimited registers, one instruction to a bundle, and the hand that writes it.

    with `write = Writer(spec)`:
        three = write.add(1, 2)                     3, an int: nothing is emitted for what is known already
        row = write.add(step, 8)                    s7, and the code grows by     sadd.s32 s7, s3, 8
        x = write.op("vld", Address("x", row))      v4, and                       vld v4, [x + s7 + 0x0]

Goes in: calls, one per instruction. Comes out: bundles, for `schedule` to pack. A *scalar* is an int, if
its value is known now, or else a register; arithmetic on ints happens here, so that a grid of one step leaves
no trace of its counters. Between two labels or branches, asking twice for the same pure instruction gives the
same register. A register is written once, but for the few that loops carry (`into`).

LLVM's IRBuilder folds and inserts in the same way. Read next: lower.py, which writes; schedule.py, which
reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partialmethod
from math import gcd
from typing import NamedTuple

from minicc.errors import Loc
from minicc.graph.dtypes import DType
from minicc.tpu.isa import Address, Attr, Bundle, Instr, Operand, Reg
from minicc.tpu.machine import TPUSpec
from minicc.tpu.ops import OPS

Scalar = int | Reg


class At(NamedTuple):
    """A place along one axis of a block, in elements: a loop's counter, or 0, plus an offset."""

    counter: Scalar
    offset: int


ORIGIN = At(0, 0)

# the second operand that changes nothing
_IDENTITY = {"sadd.s32": 0, "ssub.s32": 0, "smul.u32": 1, "sor.u32": 0, "sdiv.s32": 1}
_COMMUTES = ("sadd.s32", "smul.u32", "smin.s32", "smax.s32", "sor.u32", "scmp.eq.s32")
_PURE_SLOTS = ("scalar", "vector")
# how many results are remembered at a time, the latest to be asked for: a long body has more than registers
_REMEMBERED = {"m": 4, "s": 32, "v": 48}


@dataclass
class Writer:
    """Writes instructions and, as strings, the labels between them. `locs`, the lines to blame, go on every
    instruction until they are changed."""

    machine: TPUSpec
    locs: tuple[Loc, ...] = ()
    code: list[Instr | str] = field(default_factory=list)
    _known: dict[tuple, Reg] = field(default_factory=dict)
    _latest: dict[str, dict[tuple, None]] = field(default_factory=lambda: {kind: {} for kind in _REMEMBERED})
    _count: dict[str, int] = field(default_factory=dict)
    rounded: dict[tuple[Operand, DType], Operand] = field(default_factory=dict)  # by packing -> from what
    _multiples: dict[Reg, int] = field(default_factory=dict)  # of what the counters of loops are multiples
    _xlu: int = 0

    # ---- registers and instructions ----

    def register(self, kind: str) -> Reg:
        """A register never used before."""
        index = self._count.get(kind, 0)
        self._count[kind] = index + 1
        return Reg(kind, index)

    def op(self, name: str, *srcs: Operand, into: Reg | None = None, **attrs: Attr) -> Reg:
        """Emit one instruction and return the register it writes (s0, of no meaning, if it writes none).

        A number where a vector register must stand is splatted first. into: a register to write again. An
        attribute that is False is left out.
        """
        given = tuple((key, value) for key, value in attrs.items() if value is not False)
        info = Instr(name).info
        srcs = tuple(self.vector(s) if kind in ("v", "v?") else s
                     for kind, s in zip(info.srcs, srcs, strict=False))
        key = (name, tuple((type(s), repr(s) if isinstance(s, float) else s) for s in srcs), given)
        pure = info.slot in _PURE_SLOTS and not info.memory and into is None
        if pure:
            self.remember(info.dst, key)
        if pure and key in self._known:
            return self._known[key]
        dst = into or (self.register(info.dst) if info.dst else None)
        self.code.append(Instr(name, dst, srcs, given, self.locs))
        if into is not None:  # what was computed from its old value is not the same any more
            self._known = {k: r for k, r in self._known.items() if (Reg, into) not in k[1] and r != into}
        elif pure and dst is not None:
            self._known[key] = dst
        return dst or Reg("s", 0)

    def remember(self, kind: str, key: tuple) -> None:
        """Note that a result was asked for, and forget the one of its kind that was not for longest."""
        latest = self._latest[kind]
        latest.pop(key, None)
        latest[key] = None
        if len(latest) > _REMEMBERED[kind]:
            oldest = next(iter(latest))
            del latest[oldest]
            self._known.pop(oldest, None)

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
        self.remember("v", key)
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
            meaning = OPS[name].run  # the machine's own
            assert callable(meaning)
            return int(meaning(a, b))
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

    def total(self, parts: Iterable[tuple[Scalar, int]], start: Scalar = 0) -> Scalar:
        """start + the sum of each part times its factor."""
        for part, factor in parts:
            start = self.add(start, self.mul(part, factor))
        return start

    def place(self, at: At) -> Scalar:
        """Where an At is."""
        return self.add(at.counter, at.offset)

    def scaled(self, at: At, factor: int, shift: int = 0) -> At:
        """at * factor + shift."""
        scaled = At(self.mul(at.counter, factor), at.offset * factor + shift)
        if isinstance(scaled.counter, Reg):
            self._multiples[scaled.counter] = self.multiple(at.counter) * factor
        return scaled

    def shrunk(self, at: At, divisor: int) -> At:
        """at / divisor, both parts of which are multiples of it."""
        return At(self.div(at.counter, divisor), at.offset // divisor)

    def multiple(self, counter: Scalar) -> int:
        """A number that a counter is a multiple of; 0 for 0."""
        return counter if isinstance(counter, int) else self._multiples.get(counter, 1)

    def address(self, buffer: str, *parts: Scalar | At) -> Address:
        """buffer + the sum of the parts: registers are added, what is known goes into the offset."""
        base: Scalar = 0
        offset = 0
        for scalar in (s for part in parts for s in (part if isinstance(part, At) else (part,))):
            if isinstance(scalar, int):
                offset += scalar
            else:
                base = self.add(base, scalar)
        return Address(buffer, base if isinstance(base, Reg) else None, offset)

    # ---- control ----

    def label(self, name: str) -> None:
        """Name this place, for branches to come here."""
        self.code.append(name)
        self._known.clear()

    def fresh(self, name: str) -> str:
        """A label never used before."""
        number = self._count[name] = self._count.get(name, -1) + 1
        return f".{name}" if not number else f".{name}.{number}"

    def branch(self, label: str, condition: Scalar) -> None:
        """Go to a label if a condition is not 0."""
        self.op("sbr.rel", condition, label)
        self._known.clear()

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
            self._multiples[counter] = gcd(start, unroll * step)
            self.op("smov", start, into=counter)
            head = self.fresh("loop")
            self.label(head)
            body([At(counter, number * step) for number in range(unroll)])
            self.op("sadd.s32", counter, unroll * step, into=counter)
            self.branch(head, self.op("scmp.lt.s32", counter, start + rounds * unroll * step))
        done = rounds * unroll if rounds > 1 else 0
        for first in range(done, count, unroll):
            body([At(0, start + step * n) for n in range(first, min(first + unroll, count))])

    def finish(self) -> tuple[tuple[Bundle, ...], tuple[tuple[str, int], ...]]:
        """The bundles and labels of a Program, without the instructions whose result nobody reads."""
        bundles: list[Bundle] = []
        labels: list[tuple[str, int]] = []
        for item in _without_unread(self.code):
            if isinstance(item, str):
                labels.append((item, len(bundles)))
            else:
                bundles.append(Bundle((item,)))
        return tuple(bundles), tuple(labels)


def _without_unread(code: list[Instr | str]) -> list[Instr | str]:
    """Drop pure instructions and loads that no one reads, until all that is left is needed."""
    before = None
    while code != before:
        read = {reg for op in code if isinstance(op, Instr) for reg in op.reads()}
        before, code = code, [op for op in code if isinstance(op, str) or op.dst in read
                              or op.info.slot not in (*_PURE_SLOTS, "load")]
    return code
