"""The grid of a kernel as counters in scalar registers, and the slots of its buffers.

    Point(m=s0, k=s1)                     where the grid stands, now or some steps ahead
    Ring(depth=2, slot=s2)                which buffer of an operand comes next
    move_on(point)                        one step further: k + 1, or k = 0 and m + 1

Goes in: a Writer and the kernel's axes. Comes out: the scalar code of a grid loop, without a branch. Everything here is
an int while it is known, that is before the loop and in kernels of one step, and a register from `keep` on.

An index on a real TPU is computed in the same way by the scalar core, one step ahead of the vector units.
Read next: lower.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from minicc.kernel.ir import Axis, Index, Kernel
from minicc.tpu.assembly import Scalar, Writer
from minicc.tpu.isa import Reg


@dataclass
class Counter:
    """A number that changes from step to step: an int until `keep` gives it a register of its own."""

    write: Writer
    value: Scalar

    def keep(self) -> None:
        """From here on it changes at run time."""
        register = self.write.register("s")
        self.write.op("smov", self.value, into=register)
        self.value = register

    def set(self, value: Scalar) -> None:
        """Give it another value."""
        if not isinstance(self.value, Reg):
            self.value = value
        elif isinstance(value, int):
            self.write.op("smov", value, into=self.value)
        else:
            self.write.op("sadd.s32", value, 0, into=self.value)

    def add(self, amount: int) -> None:
        """Add to it."""
        if isinstance(self.value, Reg):
            self.write.op("sadd.s32", self.value, amount, into=self.value)
        else:
            self.value += amount


@dataclass
class Ring:
    """The buffers of an operand, used in turn: slot 0, 1, ..., depth - 1, 0, ..."""

    write: Writer
    depth: int
    slot: Counter

    def advance(self) -> None:
        """The next one's turn."""
        if self.depth == 1:
            return
        following = self.write.add(self.slot.value, 1)
        if isinstance(following, int):
            self.slot.set(following % self.depth)
            return
        self.slot.set(self.write.op("ssel", self.write.scalar("scmp.lt.s32", following, self.depth), following, 0))

    def keep(self) -> None:
        """From here on it turns at run time."""
        if self.depth > 1:
            self.slot.keep()


@dataclass
class Point:
    """A step of the grid: axis -> number of its block. left: how many steps come from here on, this one included."""

    write: Writer
    kernel: Kernel
    numbers: dict[str, Counter]
    left: Counter
    _extents: dict[str, Scalar] = field(default_factory=dict)

    @staticmethod
    def at(write: Writer, kernel: Kernel, step: int) -> Point:
        """A step whose number is known."""
        numbers, left = {}, step
        for axis in reversed(kernel.axes):
            left, number = divmod(left, axis.steps)
            numbers[axis.name] = Counter(write, number)
        return Point(write, kernel, numbers, Counter(write, kernel.steps - step))

    def keep(self) -> None:
        """From here on it moves at run time."""
        for axis in self.kernel.axes:
            if axis.steps > 1:
                self.numbers[axis.name].keep()
        self.left.keep()

    def move_on(self) -> None:
        """The next step: the innermost axis advances, and what overflows carries into the axis outside it."""
        self.left.add(-1)
        carry: Scalar = 1
        for axis in reversed(self.kernel.axes):
            if axis.steps > 1:
                counter = self.numbers[axis.name]
                number = self.write.add(counter.value, carry)
                carry = self.write.scalar("scmp.eq.s32", number, axis.steps)
                counter.set(self.write.op("ssel", carry, 0, number) if isinstance(carry, Reg) else number)

    def start(self, axis: Axis) -> Scalar:
        """The first element of the axis's block."""
        return self.write.mul(self.numbers[axis.name].value, axis.block)

    def extent(self, axis: Axis) -> Scalar:
        """How many elements the axis's block has."""
        if not axis.ragged:
            return axis.block
        return self.write.min(self.write.sub(axis.size, self.start(axis)), axis.block)

    def index(self, index: Index) -> Scalar:
        """Where an index points at the first element of the block."""
        place: Scalar = index.offset
        for name, stride in index.terms:
            place = self.write.add(self.write.mul(self.start(self.kernel.axis(name)), stride), place)
        return place

    def away(self, first: Iterable[str], last: Iterable[str]) -> Scalar:
        """0 if the axes named stand at their first and last steps; anything else otherwise."""
        distance: Scalar = 0
        for names, at_end in ((first, False), (last, True)):
            for name in names:
                edge = self.kernel.axis(name).steps - 1 if at_end else 0
                distance = self.write.scalar("sor.u32", distance, self.write.sub(self.numbers[name].value, edge))
        return distance
