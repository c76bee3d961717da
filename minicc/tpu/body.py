"""The body of a kernel: statements on blocks become loops over registers of 8 x 128 elements.

    y = maximum(add(acc, b), 0.0)   ->   .loop:  vld v0, [acc + s0 + 0x0]     8 rows of one panel of acc
                                                 vld v1, [b + 0x0] stride=0   one row, to all 8 sublanes
                                                 vadd.f32 v2, v0, v1
                                                 vmax.f32 v3, v2, 0.0
                                                 vst [y + s0 + 0x0], v3       ... and the next rows, unrolled

Goes in: statements, where each operand's block lies (a Home), and the extents of the step's blocks. Comes
out: instructions. It works on demand: the target's loop asks for the register of a value at a place
(`Nest.value`), which asks for those of its operands. What cannot be computed place by place (a reduction, a
dot, a value the other way round) is made before the loop, by one of its own, into a temporary of VMEM
(`prepare`, `made`).

Invariants: no load or store leaves its buffer, since blocks are padded to whole registers. Elements beyond
a block's extent are garbage that flows along; they are masked where they would be seen: in reductions and
dots here, and by the extents of the DMA that stores a block. Mosaic lowers Pallas bodies in the same
manner, one vreg at a time, but unrolls all of them. Read next: across.py, what crosses lanes, and
matmul.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as default
from functools import partial, reduce
from itertools import repeat

from minicc.graph.ir import BOOL, I32, decode
from minicc.kernel.ir import Block, Guard, Index, Statement, post_order
from minicc.tpu.across import reduce_block, transpose_block
from minicc.tpu.assembly import ORIGIN, At, Scalar, Writer
from minicc.tpu.isa import Operand, Reg
from minicc.tpu.layout import Frame, Home, Layout
from minicc.tpu.machine import LANES, SUBLANES
from minicc.tpu.matmul import matmul
from minicc.tpu.recipes import EXPENSIVE, RECIPES
from minicc.tpu.words import as_words, field, packed, unpacked

Place = tuple[At, At]  # a row, in elements, and a panel
BATCH = 16  # registers of a result that are worked on together, to hide latency


@dataclass
class Body:
    """What the statements of one step need to know.

    refs: operand or scratch -> where its block lies. starts, extents: axis -> first element and number of
    elements of the step's block. temp: hands out a temporary for a value in this frame. once: whether the
    grid has one step for each accumulator. made: (value, frame) -> where it lies.
    """

    write: Writer
    layout: Layout
    refs: Mapping[str, Home]
    starts: Mapping[str, Scalar]
    extents: Mapping[str, Scalar]
    temp: Callable[[Block, Frame], Home]
    once: bool = False
    made: dict[tuple[Block, Frame], Home] = default(default_factory=dict)
    prepared: set[tuple[Block, Frame]] = default(default_factory=set)
    shared: set[Block] = default(default_factory=set)
    heights: dict[Block, int] = default(default_factory=dict)

    def statements(self, statements: Sequence[Statement]) -> None:
        """Compute values into their targets, one after the other; what several need is made once.

        What reads an accumulator comes before what writes it, so that it can be made at any time before. One
        that takes a single dot needs no zeros to begin with.
        """
        sums = {statement.target for statement in self.layout.kernel.body if added_dot(statement) is not None}
        if self.once:
            statements = [s for s in statements if s.guard is not Guard.FIRST or s.target not in sums]
        self.made.clear()
        self.prepared.clear()
        self.shared = _shared([statement.value for statement in statements])
        for statement in statements:
            self.write.locs = statement.value.locs or self.write.locs
            self.statement(statement)

    def statement(self, statement: Statement) -> None:
        """Compute a value into its target."""
        home, value = self.refs[statement.target], statement.value
        for block in post_order(value):
            self.heights[block] = 1 + max((self.heights[arg] for arg in block.args), default=0)
        dot = added_dot(statement)
        if dot is not None:
            matmul(self, dot, home, accumulate=not self.once)  # in place
        elif value.op == "dot" and not home.cut and home.frame == home.frame.only(value.axes) \
                and (value, home.frame) not in self.made:
            self.made[value, home.frame] = matmul(self, value, home, accumulate=False)
        else:
            self.prepare(value, home.frame)
            self.store_all(value, home)

    def late(self, block: Block) -> tuple[bool, int]:
        """The order in which operands are computed, so that few registers wait: those that take many steps
        first, masks last."""
        return block.dtype == BOOL, -self.heights[block]

    def prepare(self, block: Block, frame: Frame) -> None:
        """Make what is needed before the value can be computed place by place in this frame."""
        outer, frame = frame, frame.only(block.axes)
        if (block, outer) in self.prepared or (block, frame) in self.made:
            return
        self.prepared.add((block, outer))
        match block.op:
            case "load":
                if self.refs[block.attrs["ref"]].frame != frame:
                    self.made[block, frame] = transpose_block(self, block, frame)
            case "reduce" if set(self.layout.big(block.args[0].axes)) & set(block.attrs["axes"]):
                self.made[block, frame] = reduce_block(self, block, frame)
            case "dot":
                self.made[block, frame] = matmul(self, block, self.temp(block, frame), accumulate=False)
            case _:
                for arg in block.args:
                    self.prepare(arg, frame)
                if block in self.shared or (block.op in EXPENSIVE and frame != outer):
                    self.keep(block, frame)

    def keep(self, block: Block, frame: Frame) -> None:
        """Compute a value once and keep it, rather than again in every loop that needs it."""
        frame = frame.only(block.axes)
        if (block, frame) not in self.made:
            home = self.temp(block, frame)
            self.store_all(block, home)
            self.made[block, frame] = home

    def store_all(self, block: Block, home: Home) -> None:
        """The loops over all places of a home that compute a value and store it there."""
        def store(places: list[Place]) -> None:
            nest = self.at(home.frame)
            for some in self.together(home, places):
                nest.store(home, some[0], *(nest.value(block, *place) for place in some))
        self.nest(home.frame, store)

    def together(self, home: Home, places: list[Place]) -> Iterator[list[Place]]:
        """The places of a batch one by one, or those that lie in one register of a packed block."""
        unit, side = SUBLANES * home.packed.per_word, int(home.frame.dense)
        done = 0
        while done < len(places):
            first = places[done][side]
            aligned = first.offset % unit == self.write.multiple(first.counter) % unit == 0
            most = home.packed.per_word if aligned and not home.cut and not home.frame.one_row else 1
            some = [place for number, place in enumerate(places[done:done + most])
                    if place[side] == At(first.counter, first.offset + number * SUBLANES)]
            yield some
            done += len(some)

    def nest(self, frame: Frame, body: Callable[[list[Place]], None], batch: int = BATCH) -> None:
        """Loops over all registers of a block: panels outside, rows inside, `batch` of them at a time."""
        unit, step = (LANES * SUBLANES, SUBLANES) if frame.dense else (LANES, 1)
        rows, panels = self.count(frame.rows, SUBLANES), self.count(frame.cols, unit)
        down = min(rows[0], batch)
        across = max(1, min(panels[0], batch // down))

        def inner(columns: list[At]) -> None:
            self.write.loop(*rows, down, SUBLANES,
                            lambda at: body([(row, column) for column in columns for row in at]))

        self.write.loop(*panels, across, step, inner)

    def at(self, frame: Frame) -> Nest:
        """Where code for some places of a frame begins."""
        return Nest(self, frame)

    def count(self, axis: str | None, unit: int) -> tuple[int, int]:
        """How many units of elements cover the axis's block, and how many of them a loop may run over.

        A unit that is known to be cut short stands outside of the loop, so that the others need no mask.
        """
        if axis is None:
            return 1, 1
        block = self.layout.sizes[axis]
        count = -(-block // unit)
        return count, block // unit if isinstance(self.extents[axis], int) else count

    def mask(self, frame: Frame, place: Place, fit: int = 1) -> Reg | None:
        """The elements of a register that lie within the block's extent; None if all of them do. fit: how
        many rows are packed into one, which is in the mask if the first of them is."""
        row, panel = place
        if frame.dense:
            left = self.left(frame.cols, panel, LANES, LANES * SUBLANES)
            return None if left == LANES * SUBLANES else self.write.op("vcmask.linear", left)
        rows, cols = self.left(frame.rows, row, 1, SUBLANES), self.left(frame.cols, panel, LANES, LANES)
        if (rows, cols) == (SUBLANES, LANES):
            return None
        return self.write.op("vcmask", self.write.div(self.write.add(rows, fit - 1), fit), cols)

    def left(self, axis: str | None, at: At, scale: int, unit: int) -> Scalar:
        """Elements of the axis from a place on, if they may be fewer than `unit`; a loop over whole units
        has always as many."""
        if axis is None:
            return unit
        extent, start = self.extents[axis], self.write.mul(self.write.place(at), scale)
        if isinstance(extent, int):
            return min(unit, extent - start) if isinstance(start, int) else unit
        return self.write.sub(extent, start)


@dataclass
class Nest:
    """One straight run of code within a loop nest: each value at each place is computed once."""

    body: Body
    frame: Frame
    known: dict[tuple, Operand] = default(default_factory=dict)

    def value(self, block: Block, row: At, panel: At) -> Operand:
        """A value at a place: a vector register, or a number if it is constant; a bool that was computed here
        is a mask register."""
        frame = self.frame.only(block.axes)
        passing = block.op == "iota" or (block.dtype == BOOL and block.op != "load")  # cheaper made than kept
        key = (block, row if frame.rows or passing else ORIGIN, panel if frame.cols or passing else ORIGIN)
        if key not in self.known:
            self.known[key] = self._compute(block, frame, row, panel)
        return self.known[key]

    def masked(self, block: Block, place: Place, neutral: float | int) -> Operand:
        """A value at a place, with a neutral one where the place lies beyond the block's extent."""
        value, mask = self.value(block, *place), self.body.mask(self.frame, place)
        return value if mask is None else self.body.write.op("vsel", mask, value, neutral)

    def _compute(self, block: Block, frame: Frame, row: At, panel: At) -> Operand:
        body, write = self.body, self.body.write
        home = body.refs[block.attrs["ref"]] if block.op == "load" else None
        home = body.made.get((block, frame), home)
        if home is not None:
            return self.load(home, row, panel, block)
        ordered = sorted(block.args, key=body.late)
        found = dict(zip(ordered, map(self.value, ordered, repeat(row), repeat(panel)), strict=False))
        args = tuple(map(found.__getitem__, block.args))  # no loops: bodies are deep
        write.locs = block.locs or write.locs
        match block.op:
            case "constant":
                return decode(block.attrs["value"], block.dtype).item()
            case "iota":
                index = self.iota(block.attrs["index"], row, panel)
                return RECIPES["convert"](write, I32, index, block.dtype)
            case "reduce":  # over axes of one element
                return args[0]
        return RECIPES[block.op](write, block.args[-1].dtype, *args, **block.attrs)

    def load(self, home: Home, row: At, panel: At, block: Block) -> Operand:
        """A register of a block in memory, in all sublanes (lanes) if it has no rows (columns)."""
        write, dtype = self.body.write, home.packed
        write.locs = block.locs or write.locs
        if home.frame.one_row:
            loaded: Operand = write.op("vld", self.address(home, row, panel), stride=0)
            loaded = field(write, dtype, loaded) if dtype.per_word > 1 else loaded
        elif dtype.per_word > 1:
            loaded = self.unpacked(home, row, panel)
        else:
            loaded = write.op("vld", self.address(home, row, panel))
        return write.xlu("vbcast.lane", loaded, 0) if home.lane0 else loaded

    def unpacked(self, home: Home, row: At, panel: At) -> Operand:
        """8 rows of a packed block. What is known to begin a register of it is loaded whole, once for all of
        its rows; else only these."""
        write, fit = self.body.write, home.packed.per_word
        at = panel if home.frame.dense else row
        number = at.offset // SUBLANES % fit
        if write.multiple(at.counter) % (fit * SUBLANES) or home.cut:
            loaded: Operand = write.op("vld", self.address(home, row, panel), rows=SUBLANES // fit)
            return unpacked(write, home.packed, loaded)
        first = At(at.counter, at.offset - number * SUBLANES)
        place = (row, first) if home.frame.dense else (first, panel)
        return unpacked(write, home.packed, self.packed(home, place), number)

    def packed(self, home: Home, place: Place) -> Operand:
        """A whole register of a packed block."""
        if (home, *place) not in self.known:
            self.known[home, *place] = self.body.write.op("vld", self.address(home, *place))
        return self.known[home, *place]

    def as_pushed(self, block: Block, place: Place) -> Operand | None:
        """A register of a packed block as a matrix unit takes it, with zeros beyond its last column; None if
        it does not lie like that, or has not all of its rows."""
        body, frame = self.body, self.frame
        home = body.made.get((block, frame), body.refs[block.attrs["ref"]] if block.op == "load" else None)
        if not home or home.frame != frame or home.packed is not block.dtype or home.cut or frame.one_row:
            return None
        (row, panel), unit = place, SUBLANES * block.dtype.per_word
        aligned = row.offset % unit == body.write.multiple(row.counter) % unit == 0
        if not aligned or body.left(frame.rows, row, 1, unit) != unit:
            return None
        value, columns = self.packed(home, place), body.left(frame.cols, panel, LANES, LANES)
        if columns == LANES:
            return value
        return body.write.op("vsel", body.write.op("vcmask", SUBLANES, columns), value, 0)

    def line(self, home: Home, number: int, panel: At) -> Operand:
        """One row of a block, in all sublanes."""
        write, fit = self.body.write, home.packed.per_word
        loaded = write.op("vld", self.address(home, At(0, number), panel), stride=0)
        return field(write, home.packed, loaded, number % fit) if fit > 1 else loaded

    def store(self, home: Home, place: Place, *values: Operand) -> None:
        """Store registers of a block, several if they are packed into one. Where a place may lie outside the
        buffer, only what lies inside."""
        write, fit = self.body.write, home.packed.per_word
        several = [write.vector(as_words(write, value)) for value in values]
        address = self.address(home, *place)
        mask = self.body.mask(home.frame, place, fit) if home.cut else None
        words = packed(write, home.packed, several) if fit > 1 else several[0]
        rows = 1 if home.frame.one_row else len(values) < fit and len(values) * SUBLANES // fit
        if mask is not None:
            write.op("vst.msk", address, words, mask, rows=rows)
        else:
            write.op("vst", address, words, rows=rows)

    def address(self, home: Home, row: At, panel: At) -> Operand:
        """Where a place of a block lies."""
        write, frame = self.body.write, home.frame
        row = write.shrunk(self.inside(home, frame.rows, row, SUBLANES, SUBLANES), home.packed.per_word)
        panel = self.inside(home, frame.cols, panel, LANES, 1)
        panel = write.shrunk(panel, home.packed.per_word) if frame.dense else panel
        return write.address(home.buffer, home.start, row, write.scaled(panel, home.pitch))

    def inside(self, home: Home, axis: str | None, at: At, unit: int, step: int) -> At:
        """A place along an axis, moved back to the last one of the block if that may be smaller."""
        if axis is None:
            return ORIGIN
        write, extent = self.body.write, self.body.extents[axis]
        if not home.cut or isinstance(extent, int):
            return at
        last = write.mul(write.div(write.sub(extent, 1), unit), step)
        return At(write.min(write.place(at), last), 0)

    def iota(self, index: Index, row: At, panel: At) -> Operand:
        """An affine index at each element of a register, as s32."""
        write, starts, frame = self.body.write, self.body.starts, self.frame
        start = write.total(((starts[name], stride) for name, stride in index.terms), index.offset)
        parts: list[Operand] = []
        for name, stride in index.terms:
            if name == frame.rows:
                start = write.total([(write.place(row), stride)], start)
                parts.append(write.op("vmul.s32", write.op("vsubseq"), stride))
            if name == frame.cols:
                start = write.total([(write.place(panel), LANES * stride)], start)
                parts.append(write.op("vmul.s32", write.op("vlaneseq"), stride))
            if name == frame.cols and frame.dense:
                parts.append(write.op("vmul.s32", write.op("vsubseq"), LANES * stride))
        parts.append(start if isinstance(start, int) else write.op("vsplat", start))
        return reduce(partial(RECIPES["add"], write, I32), parts)


def added_dot(statement: Statement) -> Block | None:
    """The dot that a statement adds to its target, if that is all it does: acc = add(acc, dot(...))."""
    value = statement.value
    parts = sorted(value.args, key=lambda arg: arg.op == "dot") if value.op == "add" else []
    adds = parts and parts[1].op == "dot" and parts[0].attrs.get("ref") == statement.target
    return parts[1] if adds else None


def _shared(roots: Iterable[Block]) -> set[Block]:
    """The costly values that more than one loop needs: those on the way to two reductions, or to one and
    the end, or to two ends."""
    loops: dict[Block, set[Block]] = defaultdict(set)

    def visit(block: Block, loop: Block) -> None:
        if loop not in loops[block]:
            loops[block].add(loop)
            for arg in block.args:
                visit(arg, block if block.op in ("reduce", "dot") else loop)

    for root in roots:
        visit(root, root)
    return {block for block, needed in loops.items() if len(needed) > 1 and block.op in EXPENSIVE}
