"""A dot on the matrix units: which weights stay, which rows stream past them, and when results are fetched.

    acc[m, n] += lhs[m, k] @ rhs[k, n]
        for 4 panels of n at a time, one on each MXU (fewer panels: MXUs share one, each with some of the
        rows)
          for each 128 of k       16 vmatpush per MXU: the weights rhs[k, n]
            for 8 rows of m       vmatmul on each MXU; later vpop.mrf, and add to acc

Goes in: a dot, the way round its result is wanted, and where it lies. Comes out: instructions. The operand
that has the result's columns is the weights, whichever way round it lies (vmatpush.xpose turns it on the
way); the other must have k along its lanes, and is transposed first if it has not. Elements beyond an
extent are pushed as zeros.

An MXU answers about 250 cycles after a push, so results are popped one chunk of rows behind: chunk c goes
in while c - 1 comes out, across the boundary between two weight tiles too, and the next tile's weights go
to the shadow copy meanwhile. With f32, a push keeps the MXU for 48 cycles; 8 to a chunk cover the latency.
XLA's own emitter does the same dance. Read next: schedule.py.
"""

from __future__ import annotations

from functools import partial
from itertools import product, zip_longest
from typing import TYPE_CHECKING

from minicc.errors import CompileError
from minicc.graph.ir import F32
from minicc.kernel.ir import Block, post_order
from minicc.tpu.assembly import At
from minicc.tpu.isa import Operand
from minicc.tpu.layout import Frame, Home
from minicc.tpu.machine import LANES, SUBLANES
from minicc.tpu.recipes import EXPENSIVE

if TYPE_CHECKING:
    from minicc.tpu.body import Body

CHUNK = 8  # pushes per MXU before the first of them is popped; twice that must fit the FIFO
WEIGHT_PUSHES = LANES // SUBLANES
SPREAD = 2  # chunks over which the next weights are pushed: as many rows as they have themselves


def matmul(body: Body, block: Block, home: Home, accumulate: bool) -> Home:
    """Compute a dot into its home; accumulate: add to what is there.

    Raises: CompileError for a dot that is not f32.
    """
    if block.dtype != F32:
        raise CompileError("tpu lower", "the matrix units multiply f32", got=f"a dot of {block.dtype}",
                           need="f32", at=block.locs, hint="convert both operands to f32")
    _Streams(body, block, home, accumulate).emit()
    return home


class _Streams:
    """One dot, as streams of rows through the MXUs."""

    def __init__(self, body: Body, block: Block, home: Home, accumulate: bool) -> None:
        self.body, self.block, self.home, self.accumulate = body, block, home, accumulate
        rows, cols = home.frame.rows, home.frame.cols
        (self.k,) = body.layout.big(block.attrs["contract"])
        self.lhs, self.rhs = sorted(block.args, key=lambda arg: cols in arg.axes)
        self.rows_frame, self.weights_frame = Frame(rows, self.k), body.layout.of(self.rhs)
        if set(body.layout.big(self.rhs.axes)) != {self.k, cols}:
            self.weights_frame = Frame(self.k, cols)
        self.groups, self.whole_groups = body.count(rows, SUBLANES)
        self.tiles = body.count(self.k, LANES)[0]

    def emit(self) -> None:
        body, mxus = self.body, self.body.write.machine.mxus
        body.prepare(self.rhs, self.weights_frame)
        body.prepare(self.lhs, self.rows_frame)
        if any(part.op in EXPENSIVE for part in post_order(self.lhs)):  # or every panel computes it anew
            body.keep(self.lhs, self.rows_frame)
        panels, whole = body.count(self.home.frame.cols, LANES)
        together = min(panels, mxus)
        self.ways = max(1, min(mxus // together, self.groups))
        self.chunk = min(CHUNK * self.ways, self.groups)
        body.write.loop(panels, whole, together, 1, self.panels)

    def panels(self, panels: list[At]) -> None:
        """All rows and all of k for some panels, one or more MXUs to each of them."""
        write, chunks = self.body.write, -(-self.groups // self.chunk)
        self.push_weights(0, panels, range(WEIGHT_PUSHES))
        apart = min(SPREAD, chunks)  # chunks that also bring in the next tile's weights
        share = WEIGHT_PUSHES // apart
        for tile in range(self.tiles):
            for number in range(apart):
                before = (tile, self.rows(number - 1)) if number else (tile - 1, self.rows(chunks - 1))
                weights = range(number * share, (number + 1) * share) if tile + 1 < self.tiles else range(0)
                self.chunk_of(tile, panels, self.rows(number), before, weights, swap=not number)
            done = apart * self.chunk
            write.loop(self.groups - done, self.whole_groups - done, self.chunk, SUBLANES,
                       partial(self.later_chunk, tile, panels), done * SUBLANES)
        for number, row in enumerate(self.rows(chunks - 1)):
            self.pop(self.tiles - 1, row, number, panels)

    def rows(self, chunk: int) -> list[At]:
        """The rows of a chunk, 8 at a time."""
        first = chunk * self.chunk
        return [At(0, group * SUBLANES) for group in range(first, min(first + self.chunk, self.groups))]

    def later_chunk(self, tile: int, panels: list[At], rows: list[At]) -> None:
        """A chunk in a loop: the one before it is the one of the round before."""
        shift = self.chunk * SUBLANES
        before = [At(rows[0].counter, rows[0].offset - shift + n * SUBLANES) for n in range(self.chunk)]
        self.chunk_of(tile, panels, rows, (tile, before), range(0), swap=False)

    def chunk_of(self, tile: int, panels: list[At], rows: list[At], before: tuple[int, list[At]],
                 weights: range, swap: bool) -> None:
        """Push a chunk of rows while the results of the one before it are fetched, and some of the next
        weights."""
        for number, (row, old) in enumerate(zip_longest(rows, before[1])):
            if row is not None:
                self.push(tile, row, number, panels, swap and number < self.ways)
            if number == self.ways - 1:
                self.push_weights(tile + 1, panels, weights)
            if old is not None and before[0] >= 0:
                self.pop(before[0], old, number, panels)

    def push_weights(self, tile: int, panels: list[At], numbers: range) -> None:
        """Some of the 16 pushes of weights, to each MXU; turned on the way if they lie the other way
        round."""
        write, frame = self.body.write, self.weights_frame
        nest, xpose = self.body.at(frame), frame.cols == self.k
        for unit, number in product(range(len(panels) * self.ways), numbers):
            panel = panels[unit // self.ways]
            row, column = (panel, At(0, tile)) if xpose else (At(0, tile), panel)
            row = write.scaled(row, LANES, number * SUBLANES)
            value: Operand = 0.0
            if row.counter or row.offset < self.body.layout.pitch(frame):
                value = nest.masked(self.rhs, (row, column), 0.0)
            write.locs = self.block.locs or write.locs
            write.op(f"vmatpush{'.xpose' if xpose else ''}.mxu{unit}", value)

    def push(self, tile: int, row: At, number: int, panels: list[At], swap: bool) -> None:
        """8 rows meet the weights of every panel."""
        value = self.body.at(self.rows_frame).masked(self.lhs, (row, At(0, tile)), 0.0)
        self.body.write.locs = self.block.locs or self.body.write.locs
        for panel in range(len(panels)):
            self.body.write.op(f"vmatmul.mxu{panel * self.ways + number % self.ways}", value, swap=swap)

    def pop(self, tile: int, row: At, number: int, panels: list[At]) -> None:
        """Fetch the products of 8 rows with every panel, and add them to what the tiles before gave."""
        write, nest = self.body.write, self.body.at(self.home.frame)
        for index, panel in enumerate(panels):
            total = write.op(f"vpop.mrf.mxu{index * self.ways + number % self.ways}")
            if tile or self.accumulate:
                total = write.op("vadd.f32", nest.load(self.home, row, panel, self.block), total)
            nest.store(self.home, (row, panel), total)
