"""Unfolding in VMEM: a block of an operand seen through a window, as the matrix that a convolution takes.

    x: f32[8,64,32,32] at (b, k, m+k2-1, n+k3-1), block (1, 64, 18, 34)     arrives as 18 blocks of 64 x 34
      ->  a matrix of (k, k2, k3) x (m, n) = 576 x 512: in row 9*k + 3*k2 + k3, the 16 * 32 pixels of
          channel k moved by k2 and k3

Goes in: an Unfolding and a step. Comes out: the window of the copy, and the code between copy and body. Of 8
channels at a time, a run of pixels is loaded, turned to its place along the lanes, and put beside those
before it; the 8 rows of a full register are stored as far apart as there are taps. So an element of the
operand is copied once for all taps, zeros around it come with the block, and the matrix units see nothing but
a matrix. XLA's convolution emitter shifts windows in VMEM likewise. Read next: matmul.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import NamedTuple

from minicc.kernel.ir import Kernel
from minicc.kernel.unfold import Unfolding
from minicc.tpu.assembly import At, Scalar, Writer
from minicc.tpu.isa import Address, Operand
from minicc.tpu.layout import Home, round_up
from minicc.tpu.machine import LANES, SUBLANES
from minicc.tpu.steps import Point, row_major
from minicc.tpu.windows import Window, clipped, leaves


class Piece(NamedTuple):
    """Lanes from `lane` on of a register of the matrix: those that lie `shift` lanes before in a block's row
    `row`, counted in rows of its panels."""

    lane: int
    row: int
    shift: int


@dataclass(frozen=True)
class Seen:
    """An operand seen through a window, in a kernel with blocks. spans: elements of a block along each
    dimension with a window. pitch: rows from one of a block's panels to the next."""

    kernel: Kernel
    how: Unfolding

    @property
    def name(self) -> str:
        """The operand's name."""
        return self.how.operand.name

    @property
    def spans(self) -> tuple[int, ...]:
        return self.how.spans(self.kernel)

    @property
    def channels(self) -> int:
        """Rows of a block that move along a dimension of their own."""
        return self.kernel.axis(self.how.channel).block if self.how.channel else 1

    @property
    def pitch(self) -> int:
        return round_up(self.channels, SUBLANES)

    @property
    def rows(self) -> list[int]:
        """By how many rows one element along each dimension with a window moves in a block; the last one is
        for a panel of the last dimension."""
        *outer, last = self.spans
        return [steps * self.pitch for steps in row_major((*outer, -(-last // LANES)))]

    @property
    def vmem_rows(self) -> int:
        """Rows of VMEM that a block takes."""
        return self.rows[0] * (self.spans[0] if len(self.spans) > 1 else -(-self.spans[0] // LANES))

    # ---- the copy ----

    def window(self, write: Writer, point: Point) -> Window:
        """The part of the block that lies in the array, as windows.window says it of others."""
        operand, first = self.how.operand, self.how.first
        sizes, strides = operand.type.shape, row_major(operand.type.shape)
        blocks = {axis.name: axis.block for axis in self.kernel.axes}
        own = {*self.how.rows, *self.how.columns}
        starts = [write.total(((point.numbers[name].value, blocks[name] * stride)
                               for name, stride in index.terms if name in point.numbers), index.offset)
                  if own & {*index.axes} else point.element(index) for index in operand.index]
        element = write.total(zip(starts, strides, strict=True))
        shape, steps, skipped = list[Scalar](), list[int](), list[Scalar]()
        for dim in range(first, len(sizes)):
            span = write.total(((write.sub(self.extent(write, point, name), 1), stride)
                                for name, stride in operand.index[dim].terms), 1)
            before, count = clipped(write, starts[dim], sizes[dim], 1, span)
            element = write.total([(before, strides[dim])], element)
            shape.append(count)
            steps.append(strides[dim])
            skipped.append(before)
        for start, size, index in zip(starts[:first], sizes, operand.index, strict=False):
            if leaves(self.kernel, index, size):  # then a step may see nothing of the array
                shape[-1] = write.mul(shape[-1], clipped(write, start, size, 1, 1)[1])
        rows, panel = self.rows, write.div(skipped[-1], LANES)
        lane = write.sub(skipped[-1], write.mul(panel, LANES))
        place = (*map(write.mul, skipped[:-1], rows[:-1]), write.mul(panel, rows[-1]))
        if self.how.channel:
            shape.insert(-1, self.extent(write, point, self.how.channel))
            dim = next(dim for dim, index in enumerate(operand.index) if self.how.channel in index.axes)
            steps.insert(-1, strides[dim])
            rows.insert(-1, 1)
        return element, place, {"shape": tuple(shape), "strides": tuple(steps), "steps": tuple(rows[:-1]),
                                "panel": rows[-1], "lane": lane}

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
        how, kernel = self.how, self.kernel
        moves = [how.steps(dim) for dim in range(how.first, len(how.operand.index))]
        taps = [(kernel.axis(name).block if name else 1, stride) for (name, stride), _ in moves]
        columns = [(kernel.axis(name).block if name else 1, stride) for _, (name, stride) in moves]
        count = prod(size for size, _ in taps)
        loops = [(size, row * stride, step) for (size, stride), row, step in
                 zip(taps[:-1], self.rows[:-1], row_major(tuple(size for size, _ in taps))[:-1], strict=True)]

        def some(source: Scalar, target: Scalar, channel: At) -> None:
            fewer = min(SUBLANES, self.channels - channel.offset)
            for tap in range(taps[-1][0]):
                for panel, pieces in enumerate(self.pieces(columns, tap * taps[-1][1])):
                    value = self.register(write, pieces, lambda row: write.address(
                        block.buffer, block.start, source, row, channel))
                    place = write.address(matrix.buffer, matrix.start, target, tap + panel * matrix.pitch,
                                          write.scaled(channel, count))
                    write.op("vst", place, value, stride=count, rows=fewer if fewer < SUBLANES else False)

        def nest(loops: list[tuple[int, int, int]], source: Scalar, target: Scalar, channel: At) -> None:
            if not loops:
                some(source, target, channel)
                return
            (size, row, step), *left = loops
            write.loop(size, size, 1, 1, lambda at: nest(
                left, write.add(source, write.mul(write.place(at[0]), row)),
                write.add(target, write.mul(write.place(at[0]), step)), channel))

        whole = self.channels // SUBLANES
        write.loop(-(-self.channels // SUBLANES), whole, 1, SUBLANES, lambda at: nest(loops, 0, 0, at[0]))

    def register(self, write: Writer, pieces: list[Piece], address: Callable[[int], Address]) -> Operand:
        """The pieces of a register, one after the other."""
        value: Operand | None = None
        for piece in pieces:
            part: Operand = write.op("vld", address(piece.row))
            part = write.xlu("vrot.lane", part, piece.shift % LANES) if piece.shift % LANES else part
            before = write.op("vcmask", SUBLANES, piece.lane)
            value = part if value is None else write.op("vsel", before, value, part)
        assert value is not None
        return value

    def pieces(self, columns: list[tuple[int, int]], shift: int) -> Iterator[list[Piece]]:
        """Where the lanes of each panel of the matrix come from, for a tap that moves so many lanes."""
        *outer, (run, _) = columns
        found: dict[int, list[Piece]] = {}
        for number, spot in enumerate(product(*(range(size) for size, _ in outer))):
            row = sum(at * move[1] * step for at, move, step in zip(spot, outer, self.rows, strict=False))
            done = 0
            while done < run:
                panel, lane = divmod(number * run + done, LANES)
                behind, there = divmod(done + shift, LANES)
                found.setdefault(panel, []).append(Piece(lane, row + behind * self.pitch, lane - there))
                done += min(run - done, LANES - lane, LANES - there)
        return iter(found.values())
