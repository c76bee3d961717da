"""A dot on the matrix units: which weights stay, which rows stream past them, and when results are fetched.

    acc[m, n] += lhs[m, k] @ rhs[k, n]
        for 4 panels of n at a time, one on each MXU (fewer panels: MXUs share one, each with some of the
        rows, or if they are few, with some of k)
          for each 128 of k       16 vmatpush per MXU: the weights rhs[k, n]
            for 8 rows of m       vmatmul on each MXU; later vpop.mrf, and add to acc

Goes in: a dot, the way round its result is wanted, and where it lies. Comes out: instructions. The operand
that has the result's columns is the weights, whichever way round it lies (vmatpush.xpose turns it on the
way); the other must have k along its lanes, and is transposed first if it has not. Elements beyond an
extent are pushed as zeros.

Operands of f32 (or f16, held as f32) go in as they are; of bf16 packed, 16 rows to a push, 6 times as fast;
of 8 bits 32 rows to a push, if the machine has a rate for them. Other integers go in as bf16, in exact
pieces: one of 8 bits equals a bf16, and 256 products of two of them add up to less than 2**24, which f32
counts exactly. One of 32 bits has four such digits, and the dot modulo 2**32 is that of the 10 pairs of
digits which reach below bit 32, each shifted to its place.

An array of 256 x 256 takes two registers beside each other, and gives two; what a block lacks of them is
zeros, and its results are popped and dropped.

An MXU answers about 250 cycles after a push, so results are popped one chunk of rows behind: chunk c goes
in while c - 1 comes out, across the boundary between two weight tiles too, and the next tile's weights go
to the shadow copy meanwhile. With f32, a push keeps the MXU for 48 cycles; 8 to a chunk cover the latency.
XLA's own emitter does the same dance. Read next: schedule.py.
"""

from __future__ import annotations

from functools import partial, reduce
from itertools import product, zip_longest
from typing import TYPE_CHECKING

import numpy as np

from minicc.graph.ir import BF16, I8, U8
from minicc.kernel.ir import Block, Scratch, post_order
from minicc.tpu.assembly import At, Scalar
from minicc.tpu.isa import Operand
from minicc.tpu.layout import Frame, Home, Layout
from minicc.tpu.machine import LANES, SUBLANES, TPUSpec
from minicc.tpu.ops import FORMS
from minicc.tpu.outer import outer, small
from minicc.tpu.recipes import EXPENSIVE, RECIPES
from minicc.tpu.words import packed

if TYPE_CHECKING:
    from minicc.tpu.body import Body, Nest

LEAST_CHUNK = 8  # pushes per MXU before the first of them is popped
BYTES = {I8: ".s8", U8: ".u8"}  # the forms of pushes that take the rate of int8
MOST_TILES = 12  # that stand one after the other in the code
SPREAD = 2  # chunks over which the next weights are pushed: as many rows as they have themselves
TURNED = 16  # rows that an MXU takes while a tile of 128 x 128 is turned
PAIRS = 10  # of the digits 0 to 3 of both operands, with a sum below 4: 00 01 02 03 10 11 12 20 21 30


def accumulator(layout: Layout, machine: TPUSpec, scratch: Scratch) -> Frame:
    """The way round in which an accumulator takes fewer cycles: its columns are those of the weights.

    If nothing adds a dot to it, the natural one.
    """
    natural = layout.natural(scratch.axes)
    sums = [block.args for block in layout.kernel.blocks() if block.op == "add"]
    dots = [dot for old, dot in sums if dot.op == "dot" and old.attrs.get("ref") == scratch.name]
    if len(dots) != 1 or not natural.rows or not natural.cols:
        return natural
    return min((natural, natural.swapped), key=lambda frame: _row_times(layout, machine, dots[0], frame))


def _row_times(layout: Layout, machine: TPUSpec, dot: Block, frame: Frame) -> int:
    """For how many rows an MXU is busy to compute a dot this way round, and about as many as it takes to turn
    what lies the other way round."""
    sizes = layout.sizes
    assert frame.rows and frame.cols
    tiles = {name: -(-size // machine.mxu_side) for name, size in sizes.items()}
    (k,) = layout.big(dot.attrs["contract"])
    (lhs,) = (arg for arg in dot.args if frame.rows in arg.axes)
    together = min(tiles[frame.cols], machine.mxus)
    rounds = -(-tiles[frame.cols] // together)
    turned = tiles[frame.rows] * tiles[k] if layout.of(lhs).cols != k else 0
    turned += tiles[frame.rows] * tiles[frame.cols] if frame != layout.natural(dot.axes) else 0
    ways = machine.mxus // together
    return rounds * min(_times(sizes[frame.rows], tiles[k], ways, machine.mxu_side)) + turned * TURNED


def _times(rows: int, tiles: int, ways: int, side: int) -> tuple[int, int]:
    """For how many rows MXUs that share a panel are busy: each with some of the rows, or tiles of k."""
    return tiles * max(-(-rows // ways), side), -(-tiles // ways) * max(rows, side)


def matmul(body: Body, block: Block, home: Home, accumulate: bool) -> Home:
    """Compute a dot into its home; accumulate: add to what is there."""
    if small(body, block, home):
        return outer(body, block, home, accumulate)
    if block.dtype.kind == "f" or any(arg.dtype.narrow for arg in block.args):
        streams = _Streams(body, block, home, accumulate)
        streams.prepare()
        streams.emit()
        return home
    write = body.write
    if not accumulate:
        value = {"value": np.zeros((), block.dtype.numpy)}
        body.store_all(Block("constant", (), value, block.dtype, (), block.locs), home)
    _Streams(body, block, home, True).prepare()

    def pair(places: list[At]) -> None:
        number = write.place(places[0])
        behind = [write.sub(1, write.less(number, first)) for first in (4, 7, 9)]  # first pairs of 1, 2, 3
        left = write.total((one, 1) for one in behind)
        right = write.total(zip(behind, (-4, -3, -2), strict=True), number)
        _Streams(body, block, home, True, left, right).emit()

    write.loop(PAIRS, PAIRS, 1, 1, pair)
    return home


Tile = tuple[int, list[At]]  # of weights: a round, and its panels
Before = tuple[Tile, list[At]] | None  # rows that went past a tile, and whose results are to be fetched


class _Streams:
    """One dot, or that of one digit of each operand, as streams of rows through the MXUs."""

    def __init__(self, body: Body, block: Block, home: Home, accumulate: bool, left: Scalar = 0,
                 right: Scalar = 0) -> None:
        self.body, self.block, self.home, self.accumulate = body, block, home, accumulate
        self.left, self.right = left, right
        rows, cols = home.frame.rows, home.frame.cols
        (self.k,) = body.layout.big(block.attrs["contract"])
        self.lhs, self.rhs = sorted(block.args, key=lambda arg: cols in arg.axes)
        self.rows_frame, self.weights_frame = Frame(rows, self.k), body.layout.of(self.rhs)
        if set(body.layout.big(self.rhs.axes)) != {self.k, cols}:
            self.weights_frame = Frame(self.k, cols)
        self.machine, self.forms = body.write.machine, ("", "")  # of the pushes of lhs and rhs
        if self.machine.int8_rows and all(arg.dtype in BYTES for arg in block.args):
            self.forms = BYTES[self.lhs.dtype], BYTES[self.rhs.dtype]
        elif block.dtype.kind == "i" or all(arg.dtype is BF16 for arg in block.args):
            self.forms = ".bf16", ".bf16"
        self.kind, self.unit, _ = FORMS[self.forms[0]]  # unit: rows of a push
        self.side, self.beside = self.machine.mxu_side, range(self.machine.mxu_side // LANES)
        assert rows
        self.groups, whole = body.count(rows, self.unit)
        self.whole_groups = min(whole, body.layout.sizes[rows] // self.unit)
        self.tiles, self.weight_pushes = body.count(self.k, self.side)[0], self.side // self.unit

    def prepare(self) -> None:
        """Make what the operands need."""
        body = self.body
        body.prepare(self.rhs, self.weights_frame)
        body.prepare(self.lhs, self.rows_frame)
        if any(part.op in EXPENSIVE for part in post_order(self.lhs)):  # or every panel computes it anew
            body.keep(self.lhs, self.rows_frame)

    def emit(self) -> None:
        """All panels."""
        body, mxus, cols = self.body, self.machine.mxus, self.home.frame.cols
        panels, whole = body.count(cols, self.side)
        whole = min(whole, body.layout.sizes[cols] // self.side) if cols else whole
        together = min(panels, mxus)
        self.ways = mxus // together
        by_rows, by_depth = _times(self.groups * self.unit, self.tiles, self.ways, self.side)
        self.deep = self.ways if by_depth < by_rows else 1
        self.turns = max(1, min(self.ways // self.deep, self.groups))
        self.ways = self.turns * self.deep
        self.rounds = -(-self.tiles // self.deep)
        self.chunk = min(self.most_pushed() * self.turns, self.groups)
        groups = -(-panels // together)
        if groups * self.rounds <= MOST_TILES:
            self.stream([(turn, [At(0, number) for number in range(first, min(first + together, panels))])
                         for first in range(0, panels, together) for turn in range(self.rounds)])
        else:
            body.write.loop(panels, whole, together, 1,
                            lambda at: self.stream([(turn, at) for turn in range(self.rounds)]))

    def most_pushed(self) -> int:
        """Pushes per MXU before the first of them is popped: enough to hide how long a row takes, and so many
        that there is room for the results of one more."""
        machine, results = self.machine, self.unit // SUBLANES * len(self.beside)
        enough = -(-machine.mxu_fill_cycles // machine.push_cycles(self.kind, self.unit))
        return max(1, min(max(LEAST_CHUNK, enough), machine.mxu_fifo_vregs // results - 1))

    def stream(self, tiles: list[Tile]) -> None:
        """All rows past one tile of weights after the other, without a pause: while a tile works, the next
        one is pushed, and during its first rows the last results of the one before come out."""
        write, chunks = self.body.write, -(-self.groups // self.chunk)
        self.push_weights(tiles[0], range(self.weight_pushes))
        apart = min(SPREAD, chunks)  # chunks that also bring in the next tile's weights
        share = self.weight_pushes // apart
        before: Before = None
        for tile, following in zip_longest(tiles, tiles[1:]):
            for number in range(apart):
                before = (tile, self.rows(number - 1)) if number else before
                weights = (following, range(number * share, (number + 1) * share)) if following else None
                self.chunk_of(tile, self.rows(number), before, weights, swap=not number)
            done = apart * self.chunk
            write.loop(self.groups - done, self.whole_groups - done, self.chunk, self.unit,
                       partial(self.later_chunk, tile), done * self.unit)
            before = tile, self.rows(chunks - 1)
        for number, row in enumerate(self.rows(chunks - 1)):
            self.pop(tiles[-1], row, number)

    def rows(self, chunk: int) -> list[At]:
        """The rows of a chunk, one place per push."""
        first = chunk * self.chunk
        return [At(0, group * self.unit) for group in range(first, min(first + self.chunk, self.groups))]

    def later_chunk(self, tile: Tile, rows: list[At]) -> None:
        """A chunk in a loop: the one before it is the one of the round before."""
        shift = self.chunk * self.unit
        before = [At(rows[0].counter, rows[0].offset - shift + n * self.unit) for n in range(self.chunk)]
        self.chunk_of(tile, rows, (tile, before), None, swap=False)

    def chunk_of(self, tile: Tile, rows: list[At], before: Before, weights: tuple[Tile, range] | None,
                 swap: bool) -> None:
        """Push a chunk of rows while the results of the one before it are fetched, and some of the next
        weights."""
        for number, (row, old) in enumerate(zip_longest(rows, before[1] if before else ())):
            if row is not None:
                self.push(tile, row, number, swap and number < self.turns)
            if weights and number == self.turns - 1:
                self.push_weights(*weights)
            if before and old is not None:
                self.pop(before[0], old, number)

    def parts(self, turn: int, panel: int, number: int) -> list[tuple[int, int]]:
        """The MXUs at work on a panel in a round, for rows of this number, and the part of k of each."""
        first = panel * self.ways + number % self.turns * self.deep
        tiles = range(turn * self.deep, min((turn + 1) * self.deep, self.tiles))
        return list(enumerate(tiles, first))

    def push_weights(self, tile: Tile, numbers: range) -> None:
        """Some of the pushes of weights, to each MXU; turned on the way if they lie the other way round."""
        write, frame, (turn, panels) = self.body.write, self.weights_frame, tile
        nest, xpose = self.body.at(frame), frame.cols == self.k
        places = [(mxu, panel, depth) for index, panel in enumerate(panels) for way in range(self.turns)
                  for mxu, depth in self.parts(turn, index, way)]
        for number, (mxu, panel, depth) in product(numbers, places):
            row, column = (panel, At(0, depth)) if xpose else (At(0, depth), panel)
            row = write.scaled(row, self.side, number * self.unit)
            values = self.registers(nest, self.rhs, self.right, self.eights(frame, row), column)
            write.locs = self.block.locs or write.locs
            write.op(f"vmatpush{'.xpose' if xpose else ''}{self.forms[1]}.mxu{mxu}", *values)

    def push(self, tile: Tile, row: At, number: int, swap: bool) -> None:
        """The rows of a push meet the weights of every panel."""
        turn, panels = tile
        write, eights = self.body.write, self.eights(self.rows_frame, row)
        nest = self.body.at(self.rows_frame)
        fewer = len(eights) * SUBLANES < self.unit and len(eights) * SUBLANES
        places = [self.parts(turn, index, number) for index in range(len(panels))]
        for same in zip(*places, strict=True):  # parts of k, each with the same rows for all panels
            values = self.registers(nest, self.lhs, self.left, eights, At(0, same[0][1]))
            write.locs = self.block.locs or write.locs
            for mxu, _ in same:
                write.op(f"vmatmul{self.forms[0]}.mxu{mxu}", *values, rows=fewer, swap=swap)

    def pop(self, tile: Tile, row: At, number: int) -> None:
        """Fetch the products of a push's rows with every panel, and add them to what the rounds before
        gave."""
        turn, panels = tile
        nest, add = self.body.at(self.home.frame), partial(RECIPES["add"], self.body.write, self.block.dtype)
        eights = self.eights(self.home.frame, row)
        for (index, panel), eight, part in product(enumerate(panels), eights, self.beside):
            values = [self.popped(mxu) for mxu, _ in self.parts(turn, index, number)]
            column = self.column(self.home.frame, panel, part)
            if column is None:
                continue
            if turn or self.accumulate:
                values.insert(0, nest.load(self.home, eight, column, self.block))
            nest.store(self.home, (eight, column), reduce(add, values))

    def popped(self, mxu: int) -> Operand:
        """The next result of an MXU."""
        write = self.body.write
        value: Operand = write.op(f"vpop.mrf.mxu{mxu}")
        if self.block.dtype.kind == "i" and self.kind != "int8":  # by no places, for narrow ones
            places = write.op("vsplat", write.mul(write.add(self.left, self.right), 8))
            value = write.op("vshll.u32", write.op("vcvt.f32.s32", value), places)
        return value

    def eights(self, frame: Frame, row: At) -> list[At]:
        """The registers of 8 rows that a push from a row on takes, as far as the block has them."""
        places = [At(row.counter, row.offset + more) for more in range(0, self.unit, SUBLANES)]
        return [at for at in places if at.counter or at.offset < self.body.layout.pitch(frame)]

    def column(self, frame: Frame, panel: At, part: int) -> At | None:
        """The panel of 128 columns that is a part of one as wide as an MXU; None if a block lacks it."""
        at = self.body.write.scaled(panel, len(self.beside), part)
        return at if at.counter or at.offset < self.body.count(frame.cols, LANES)[0] else None

    def registers(self, nest: Nest, block: Block, digit: Scalar, rows: list[At], panel: At) -> list[Operand]:
        """Rows as wide as an MXU."""
        columns = [self.column(nest.frame, panel, part) for part in self.beside]
        return [0.0 if at is None else self.packed(nest, block, digit, rows, at) for at in columns]

    def packed(self, nest: Nest, block: Block, digit: Scalar, rows: list[At], panel: At) -> Operand:
        """Rows of an operand as an MXU takes them, or those of one digit of it; zeros behind them."""
        write, dtype, parts = self.body.write, block.dtype, list[Operand]()
        as_it_lies = self.kind == "int8" or (self.kind == "bf16" and dtype is BF16)
        whole = nest.as_pushed(block, (rows[0], panel)) if rows and as_it_lies else None
        if whole is not None:
            return whole
        for row in rows:
            part = nest.masked(block, (row, panel), 0.0 if dtype.kind == "f" else 0)
            if dtype.kind == "i" and not dtype.narrow:
                places = write.op("vsplat", write.mul(digit, 8))
                part = write.op("vand.u32", write.op("vshrl.u32", part, places), 255)
            converts = dtype.kind == "i" and self.kind == "bf16"
            parts.append(write.op("vcvt.s32.f32", part) if converts else part)
        parts += [0 if self.kind == "int8" else 0.0] * (self.unit // SUBLANES - len(parts))
        if self.kind == "f32":
            return parts[0]
        return packed(write, dtype if self.kind == "int8" else BF16, parts)
