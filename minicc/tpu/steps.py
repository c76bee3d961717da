"""The grid of a kernel as counters in scalar registers, and the slots of its buffers.

    Point(m=s0, k=s1)            where the grid stands, now or some steps ahead
    point.move_on()              one step further: k + 1, or k = 0 and m + 1
    Slots(depth=2, start=s2)     which of an operand's buffers the next copy goes to

Goes in: a Writer and the kernel's axes. Comes out: the scalar code of a grid loop, without a branch.
Everything here is an int while it is known, that is before the loop and in kernels of one step, and a
register from `keep` on.

The scalar core of a real TPU computes its indices in the same way, ahead of the vector units. Read next:
lower.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from minicc.kernel.ir import Axis, Index, Kernel
from minicc.tpu.assembly import Scalar, Writer
from minicc.tpu.isa import Reg


@dataclass
class Counter:
    """A number that changes from step to step. around: where it starts again from 0; 0 if nowhere."""

    write: Writer
    value: Scalar = 0
    around: int = 0

    def keep(self) -> None:
        """From here on it changes at run time, in a register of its own."""
        if self.around != 1:
            self.value = self.write.op("smov", self.value, into=self.write.register("s"))

    def set(self, value: Scalar) -> None:
        """Give it another value."""
        if isinstance(self.value, Reg):
            self.write.op("smov", value, into=self.value)
        else:
            self.value = value

    def add(self, amount: Scalar) -> Scalar:
        """Add to it. Returns: 1 if it starts again, else 0; an amount below 0 never wraps."""
        total = self.write.add(self.value, amount)
        again = self.write.equal(total, self.around) if self.around else 0
        self.set(self.write.op("ssel", again, 0, total) if isinstance(again, Reg) else 0 if again else total)
        return again


@dataclass
class Slots:
    """The buffers of an operand, used in turn. rows: of VMEM, per buffer.

    start, wait: the one whose copy is started (waited for) next. body: the one the body works on.
    flying: copies out that have not been waited for.
    """

    rows: int
    depth: int
    start: Counter
    wait: Counter
    body: Counter
    flying: Counter

    @staticmethod
    def of(write: Writer, rows: int, depth: int) -> Slots:
        """Before anything has been copied."""
        start, wait, body = (Counter(write, 0, around=depth) for _ in range(3))
        return Slots(rows, depth, start, wait, body, Counter(write))

    def keep(self) -> None:
        """From here on they turn at run time."""
        for counter in (self.start, self.wait, self.body, self.flying):
            counter.keep()


@dataclass
class Point:
    """A step of the grid: axis -> number of its block. left: the steps from here on, this one included."""

    write: Writer
    kernel: Kernel
    numbers: dict[str, Counter]
    left: Counter

    @staticmethod
    def at(write: Writer, kernel: Kernel, step: int) -> Point:
        """A step whose number is known."""
        numbers, rest = {}, step
        for axis in reversed(kernel.axes):
            rest, number = divmod(rest, axis.steps)
            numbers[axis.name] = Counter(write, number, around=axis.steps)
        return Point(write, kernel, numbers, Counter(write, kernel.steps - step))

    def keep(self) -> None:
        """From here on it moves at run time."""
        for counter in (*self.numbers.values(), self.left):
            counter.keep()

    def move_on(self) -> None:
        """The next step: the innermost axis advances, and what starts again carries into the one outside."""
        self.left.add(-1)
        carry: Scalar = 1
        for axis in reversed(self.kernel.axes):
            if axis.steps > 1:
                carry = self.numbers[axis.name].add(carry)

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
        edges = [(name, 0) for name in first] + [(name, self.kernel.axis(name).steps - 1) for name in last]
        distance: Scalar = 0
        for name, edge in edges:
            distance = self.write.either(distance, self.write.sub(self.numbers[name].value, edge))
        return distance
