"""Unfolding in VMEM: a block of an operand seen through a window, as the matrix that a convolution takes.

    x: f32[8,64,32,32] at (b, k, m+k2-1, n+k3-1), block (1, 64, 18, 34)     arrives as 18 blocks of 64 x 34
      ->  a matrix of (k, k2, k3) x (m, n) = 576 x 512: in row 9*k + 3*k2 + k3, the 16 * 32 pixels of
          channel k moved by k2 and k3

Goes in: an Unfolding and a step. Comes out: the window of the copy, and the code between copy and body. Of 8
channels at a time, a run of pixels is loaded, turned to its place along the lanes, and put beside those
before it; the 8 rows of a full register are stored as far apart as there are taps. So an element of the
operand is copied once for all taps, zeros around it come with the block, and the matrix units see nothing but
a matrix. Lanes cannot be skipped: where pixels are 2 apart, one copy brings the even ones, another the odd
ones. XLA's convolution emitter shifts windows in VMEM likewise. Read next: matmul.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from math import prod
from typing import NamedTuple

from minicc.graph.ir import DType
from minicc.kernel.index import Index
from minicc.kernel.ir import Kernel
from minicc.kernel.unfold import Unfolding, Walk
from minicc.tpu.assembly import At, Scalar, Writer
from minicc.tpu.isa import Address, Operand
from minicc.tpu.layout import Home, round_up
from minicc.tpu.machine import LANES, SUBLANES
from minicc.tpu.steps import Point, row_major
from minicc.tpu.windows import Window, clipped, leaves
from minicc.tpu.words import unpacked


class Piece(NamedTuple):
    """Lanes of a register of the matrix, from `lane` on: those `shift` lanes before, in row `row` of a
    block."""

    lane: int
    row: int
    shift: int


@dataclass(frozen=True)
class Seen:
    """An operand seen through a window, in a kernel with blocks. A block lies in VMEM as its dimensions with
    a window say, then the phases of the last one, then panels of channels x 128 lanes."""

    kernel: Kernel
    how: Unfolding

    @cached_property
    def walks(self) -> list[Walk]:
        """How a block walks each dimension with a window."""
        return self.how.walks(self.kernel)

    @property
    def copies(self) -> int:
        """How many copies bring a block."""
        return len(self.walks[-1].phases)

    @property
    def channels(self) -> int:
        """Elements of a block along a dimension of its own among the rows."""
        return self.kernel.axis(self.how.channel).block if self.how.channel else 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a block: elements of each dimension with a window, phases of the last one, panels of a phase."""
        *outer, last = self.walks
        return (*(walk.span for walk in outer), self.copies, -(-last.span // LANES))

    @cached_property
    def rows(self) -> list[int]:
        """By how many rows, as copies count them, one along each dimension of the shape moves."""
        return [step * round_up(self.channels, SUBLANES * self.dtype.per_word)
                for step in row_major(self.shape)]

    @property
    def dtype(self) -> DType:
        """Of the operand."""
        return self.how.operand.type.dtype

    @property
    def vmem_rows(self) -> int:
        """Rows of VMEM that a block takes."""
        return self.rows[0] * self.shape[0] // self.dtype.per_word

    # ---- the copy ----

    def gathered(self, write: Writer, point: Point, operand: str, lanes: str, pitch: int) -> Window:
        """The block of an input that is gathered: a group to rows, in panels of so many, another axis along
        lanes."""
        found = next(op for op in self.kernel.inputs if op.name == operand)
        strides = row_major(found.type.shape)
        moves = {name: step * stride for index, step in zip(found.index, strides, strict=True)
                 for name, stride in index.terms}
        group = self.how.rows if self.how.rows[0] in found.axes else self.how.columns
        starts = [self.start(write, point, index) for index in found.index]
        return write.total(zip(starts, strides, strict=True)), (), {
            "shape": tuple(self.extent(write, point, name) for name in (*group, lanes)),
            "strides": tuple(moves[name] for name in (*group, lanes)),
            "steps": tuple(row_major(tuple(self.kernel.axis(name).block for name in group))), "panel": pitch}

    def windows(self, write: Writer, point: Point) -> Iterator[Window]:
        """The parts of the block that lie in the array, as windows.window says it of others."""
        operand, first = self.how.operand, self.how.first
        sizes, strides = operand.type.shape, row_major(operand.type.shape)
        starts = [self.start(write, point, index) for index in operand.index]
        some: Scalar = 1  # 0 if this step sees nothing of the array
        for start, size, index in zip(starts[:first], sizes, operand.index, strict=False):
            if leaves(self.kernel, index, size):
                some = write.mul(some, clipped(write, start, size, 1, 1)[1])
        dims: list[tuple[Scalar, int, int]] = []  # elements; by how many of the array and rows they are apart
        if self.how.channel:
            dim = next(dim for dim, index in enumerate(operand.index) if self.how.channel in index.axes)
            dims.append((self.extent(write, point, self.how.channel), strides[dim], 1))
        place: list[Scalar] = []
        for dim, walk, row in zip(range(first, len(sizes) - 1), self.walks, self.rows, strict=False):
            before, count = clipped(write, starts[dim], sizes[dim], walk.step, self.span(write, point, dim))
            starts[dim] = write.total([(before, walk.step)], starts[dim])
            place.append(write.mul(before, row))
            dims.append((count, walk.step * strides[dim], row))
        element, step = write.total(zip(starts, strides, strict=True)), self.walks[-1].step
        for number, phase in enumerate(self.walks[-1].phases):
            start = write.add(starts[-1], phase)
            before, count = clipped(write, start, sizes[-1], step, self.span(write, point, len(sizes) - 1))
            panel = write.div(before, LANES)
            lane = write.sub(before, write.mul(panel, LANES))
            shape, apart, rows = zip(*dims, (write.mul(count, some), step, 0), strict=True)
            spot = (*place, number * self.rows[-2], write.mul(panel, self.rows[-1]))
            yield write.total([(before, step)], write.add(element, phase)), spot, {
                "shape": shape, "strides": apart, "steps": rows[:-1], "panel": self.rows[-1], "lane": lane}

    def start(self, write: Writer, point: Point, index: Index) -> Scalar:
        """Where an index points, at the first element of its block."""
        if not {*index.axes} & {*self.how.rows, *self.how.columns}:
            return point.element(index)  # perhaps looked up
        return write.total(((point.numbers[name].value, self.kernel.axis(name).block * stride)
                            for name, stride in index.terms if name in point.numbers), index.offset)

    def span(self, write: Writer, point: Point, dim: int) -> Scalar:
        """Elements of a dimension that a step's block has, of each phase."""
        terms = self.how.operand.index[dim].terms
        reach = write.total((write.sub(self.extent(write, point, name), 1), stride) for name, stride in terms)
        return write.add(write.div(reach, self.walks[dim - self.how.first].step), 1)

    def extent(self, write: Writer, point: Point, name: str) -> Scalar:
        """Elements of an axis's block at a step."""
        axis = self.kernel.axis(name)
        if not axis.ragged:
            return axis.block
        start = write.mul(point.numbers[name].value, axis.block)
        return write.min(write.sub(axis.size, start), axis.block)

    # ---- from the block to the matrix ----

    def unfold(self, write: Writer, block: Home, matrix: Home) -> None:
        """The matrix of a block. Beyond the extents of a step, it is garbage where the block is."""
        taps, fit = tuple(walk.taps for walk in self.walks), self.dtype.per_word
        loops = [(walk.taps, row * walk.apart // walk.step if walk.taps > 1 else 0, step)
                 for walk, row, step in zip(self.walks[:-1], self.rows, row_major(taps), strict=False)]

        def some(source: Scalar, target: Scalar, channel: At) -> None:
            for tap in range(taps[-1]):
                for panel, pieces in enumerate(self.pieces(tap)):
                    value = self.register(write, pieces, partial(
                        write.address, block.buffer, block.start, source, write.shrunk(channel, fit)))
                    for number in range(min(fit, -(-(self.channels - channel.offset) // SUBLANES))):
                        first = At(channel.counter, channel.offset + number * SUBLANES)
                        part = unpacked(write, self.dtype, value, number) if fit > 1 else value
                        fewer = min(SUBLANES, self.channels - first.offset)
                        place = write.address(matrix.buffer, matrix.start, target, tap + panel * matrix.pitch,
                                              write.scaled(first, prod(taps)))
                        write.op("vst", place, part, stride=prod(taps), rows=fewer < SUBLANES and fewer)

        def nest(loops: list[tuple[int, int, int]], source: Scalar, target: Scalar, channel: At) -> None:
            if not loops:
                some(source, target, channel)
                return
            (size, row, step), *inner = loops
            write.loop(size, size, 1, 1, lambda at: nest(
                inner, write.add(source, write.mul(write.place(at[0]), row // fit)),
                write.add(target, write.mul(write.place(at[0]), step)), channel))

        unit = SUBLANES * fit  # channels of a packed register move together, and part when they are stored
        count, whole = -(-self.channels // unit), self.channels // unit
        write.loop(count, whole, 1, unit, lambda at: nest(loops, 0, 0, at[0]))

    def register(self, write: Writer, pieces: list[Piece], address: Callable[[int], Address]) -> Operand:
        """The pieces of a register, one after the other."""
        value: Operand | None = None
        for piece in pieces:
            part: Operand = write.op("vld", address(piece.row // self.dtype.per_word))
            part = write.xlu("vrot.lane", part, piece.shift % LANES) if piece.shift % LANES else part
            before = write.op("vcmask", SUBLANES, piece.lane)
            value = part if value is None else write.op("vsel", before, value, part)
        assert value is not None
        return value

    def pieces(self, tap: int) -> list[list[Piece]]:
        """Where the lanes of each panel of the matrix come from, for a tap along the last dimension."""
        *outer, last = self.walks
        phase, shift = last.place(tap, 0)
        found: list[list[Piece]] = []
        for number, spot in enumerate(product(*(range(walk.pixels) for walk in outer))):
            numbers = [walk.place(0, pixel)[1] for walk, pixel in zip(outer, spot, strict=True)]
            row = sum(at * step for at, step in zip((*numbers, phase), self.rows, strict=False))
            done = 0
            while done < last.pixels:
                panel, lane = divmod(number * last.pixels + done, LANES)
                behind, there = divmod(done + shift, LANES)
                found += [[]] * (panel == len(found))
                found[panel] = [*found[panel], Piece(lane, row + behind * self.rows[-1], lane - there)]
                done += min(last.pixels - done, LANES - lane, LANES - there)
        return found
