"""The grid of a kernel as counters in scalar registers, and the slots of its buffers.

    Point(m=s0, k=s1)            where the grid stands, now or some steps ahead
    point.move_on()              one step further: k + 1, or k = 0 and m + 1
    Slots(depth=2, start=s2)     which of an operand's buffers the next copy goes to

Goes in: a Writer and the kernel's axes. Comes out: the scalar code of a grid loop, without a branch.
Everything here is an int while it is known, that is before the loop and in kernels of one step, and a
register from `Counter.keep` on.

The scalar core of a real TPU computes its indices in the same way, ahead of the vector units. Read next:
lower.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from math import prod

from minicc.kernel.index import Index, Lookup
from minicc.kernel.ir import Kernel
from minicc.tpu.assembly import Scalar, Writer
from minicc.tpu.isa import Reg
from minicc.tpu.layout import Home


def row_major(shape: tuple[int, ...]) -> list[int]:
    """By how many elements one step along each dimension moves."""
    return [prod(shape[dim + 1:]) for dim in range(len(shape))]


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


class Slots:
    """The buffers of an operand, used in turn. home: the first of them. rows: of VMEM, per buffer.

    start, wait: the one whose copy is started (waited for) next. body: the one the body works on. flying:
    copies out that have not been waited for.
    """

    def __init__(self, write: Writer, home: Home, rows: int, depth: int) -> None:
        self.home, self.rows = home, rows
        self.start, self.wait, self.body = (Counter(write, 0, around=depth) for _ in range(3))
        self.flying = Counter(write)
        self.counters = (self.start, self.wait, self.body, self.flying)


class Point:
    """A step of the grid. numbers: axis -> which of its blocks. left: the steps from here on, this one
    included."""

    def __init__(self, write: Writer, kernel: Kernel, step: int) -> None:
        self.write, self.kernel = write, kernel
        self.left = Counter(write, kernel.steps - step)
        self.numbers: dict[str, Counter] = {}
        for axis in reversed(kernel.axes):
            step, number = divmod(step, axis.steps)
            self.numbers[axis.name] = Counter(write, number, around=axis.steps)
        self.counters = (*self.numbers.values(), self.left)

    def move_on(self) -> None:
        """The next step: the innermost axis advances, and what starts again carries into the one outside."""
        self.left.add(-1)
        carry: Scalar = 1
        for counter in self.numbers.values():  # innermost first
            if counter.around > 1:
                carry = counter.add(carry)

    def starts(self) -> dict[str, Scalar]:
        """Axis -> the first element of its block."""
        return {axis.name: self.write.mul(self.numbers[axis.name].value, axis.block)
                for axis in self.kernel.axes}

    def element(self, index: Index) -> Scalar:
        """Where an index points, at the first element of its block."""
        starts = self.starts()
        affine = self.write.total(((starts[name], stride) for name, stride in index.terms), index.offset)
        return reduce(self.write.add, map(self.found, index.lookups), affine)

    def found(self, lookup: Lookup) -> Scalar:
        """The number that a lookup reads from scalar memory."""
        write, array = self.write, next(one for one in self.kernel.scalars if one.name == lookup.scalars)
        strides = row_major(array.type.shape)
        place = write.total(zip(map(self.element, lookup.index), strides, strict=True))
        number = write.op("sld", write.address(f"{self.kernel.name}.{array.name}", place))
        return number if lookup.clamp is None else write.max(write.min(number, lookup.clamp), 0)

    def extents(self) -> dict[str, Scalar]:
        """Axis -> how many elements its block has."""
        write, starts = self.write, self.starts()
        return {axis.name: write.min(write.sub(axis.size, starts[axis.name]), axis.block)
                if axis.ragged else axis.block for axis in self.kernel.axes}

    def away(self, first: Iterable[str], last: Iterable[str]) -> Scalar:
        """0 if the axes named stand at their first and last steps; anything else otherwise."""
        edges = [(name, 0) for name in first] + [(name, self.numbers[name].around - 1) for name in last]
        distance: Scalar = 0
        for name, edge in edges:
            distance = self.write.either(distance, self.write.sub(self.numbers[name].value, edge))
        return distance
