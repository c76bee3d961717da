"""Lowering to SIMT: one thread computes one output element, and a dot shares tiles through shared memory.

    kernel dot_add_maximum   (m in blocks of 16, n in blocks of 16)
        ->  m = blockIdx.x / 32 * 16 + threadIdx.y,  n = blockIdx.x % 32 * 16 + threadIdx.x
            for k0 in steps of 16: load a 16 x 16 tile of x and one of w; barrier; 16 multiply-adds; barrier
            if m < 128 && n < 512: y[m * 512 + n] = maximum(acc + b[n], 0)

Goes in: any legal Kernel, tiled or not. Comes out: a SimtKernel. Two of the parallel axes become the x and y
of a thread block, the others blocks; reductions and whole axes become loops in each thread. Dots that no tile
fits are loops as well. Invariant: a value is computed outside of every loop whose axis it does not vary over.

It is plain on purpose: no register tiles, no reductions across threads. CUTLASS and Triton start from the
same shared tile and add those. Read next: cuda.py to see the text, simt.py to run it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod

from minicc.errors import Loc
from minicc.gpu import ir
from minicc.gpu.arrays import contiguous_strides
from minicc.gpu.calls import Names
from minicc.gpu.ir import Expr, both, const, less, reg
from minicc.gpu.lookups import axes_of
from minicc.gpu.machine import MOST_THREADS_PER_BLOCK, WARP
from minicc.gpu.views import flat_index, padding
from minicc.graph.dtypes import BOOL, I32, DType, encode
from minicc.graph.elementwise import neutral_value
from minicc.kernel.index import Axis, AxisKind, Index, Lookup
from minicc.kernel.ir import COMBINE, Block, Kernel, Operand, Statement, post_order
from minicc.kernel.whole import whole

TILE = 16  # a dot's threads are TILE x TILE, and so are its tiles in shared memory
ROW_THREADS = 256  # threads of a block along one axis
Locs = tuple[Loc, ...]


@dataclass
class _Scope:
    """Statements under construction, and the values computed there. at: where each axis stands by now.

    outer: the scope around this loop, from which it differs in where `moves` stands; None for a scope that
    is on its own, whose loads are masked.
    """

    at: dict[str, Expr]
    outer: _Scope | None = None
    moves: str = ""
    mask: Expr | None = None
    values: dict[Block | Lookup, Expr] = field(default_factory=dict)
    statements: list[ir.Statement] = field(default_factory=list)

    def of(self, axes: Collection[str]) -> _Scope:
        """The outermost scope in which what varies over these axes is what it is here."""
        return self.outer.of(axes) if self.outer and self.moves not in axes else self


class _Lower:
    """One kernel's lowering. threads: the axes along y and x of a thread block, "" for none."""

    def __init__(self, kernel: Kernel, threads: tuple[str, str]) -> None:
        self.kernel, self.threads = kernel, threads
        self.axes = {axis.name: axis for axis in kernel.axes}
        self.sizes = {axis.name: axis.size for axis in kernel.axes}
        self.operands = {operand.name: operand for operand in kernel.operands}
        self.names = Names()
        self.scalars = {one.name: one for one in kernel.scalars}
        self.updated = {old.name: one.name for one in kernel.outputs for old in kernel.inputs
                        if old.buffer == one.buffer}  # two names of one array
        self.arrays = {name: self.names.fresh(name) for name in (*self.operands, *self.scalars)
                       if name not in self.updated}
        self.arrays |= {old: self.arrays[name] for old, name in self.updated.items()}
        self.places = {axis: self.names.fresh(axis) for axis in self.axes}
        self.shared: list[ir.Array] = []

    # -- values ----------------------------------------------------------------------------------------------

    def let(self, scope: _Scope, wish: str, value: Expr, locs: Locs = ()) -> Expr:
        """Put a value into a new register."""
        name = self.names.fresh(wish, 1)
        scope.statements.append(ir.Let(name, value, locs))
        return reg(name, value.dtype)

    def value(self, scope: _Scope, block: Block) -> Expr:
        """The expression that holds a block's value, computed by now."""
        scope = scope.of(block.axes)
        if block not in scope.values:
            scope.values[block] = self.compute(scope, block)
        return scope.values[block]

    def compute(self, scope: _Scope, block: Block) -> Expr:
        """Append the statements of one op."""
        match block.op:
            case "constant":
                return const(block.attrs["value"].item(), block.dtype)
            case "load":
                return self.load(scope, block)
            case "iota":
                index = self.index(block.attrs["index"], scope)
                return index if index.dtype == block.dtype else Expr("convert", (index,), block.dtype)
            case "reduce" | "dot":
                return self.reduce(scope, block)
        args = tuple(self.value(scope, arg) for arg in block.args)
        value = Expr(block.op, args, block.dtype, block.attrs.get("direction"))
        return self.let(scope, "t", value, block.locs)

    def index(self, index: Index, scope: _Scope) -> Expr:
        """An affine index as an expression."""
        total = const(0)
        for name, stride in index.terms:
            total += scope.at[name] * stride
        for lookup in index.lookups:
            total += self.found(scope, lookup)
        return total + index.offset

    def found(self, scope: _Scope, lookup: Lookup) -> Expr:
        """The number that a lookup reads, loaded once for all that share it."""
        scope = scope.of(axes_of(lookup))
        if lookup not in scope.values:
            shape, array = self.scalars[lookup.scalars].type.shape, self.arrays[lookup.scalars]
            place = self.index(flat_index(lookup.index, shape), scope)
            value = reg(self.names.fresh(array, 1))
            scope.statements.append(ir.Load(value.value, array, place, I32, scope.mask))
            if lookup.clamp is not None:
                held = Expr("minimum", (Expr("maximum", (value, const(0))), const(lookup.clamp)))
                value = self.let(scope, "at", held)
            scope.values[lookup] = value
        return scope.values[lookup]

    def place(self, operand: Operand, scope: _Scope) -> tuple[Expr, Expr | None]:
        """Where an operand stands in its flat array, and the condition for it to lie within it, if any."""
        shape, mask = operand.type.shape, scope.mask
        flat = self.index(flat_index(operand.index, shape), scope)
        strides, pads = contiguous_strides(shape), padding(operand, self.sizes)
        for index, size, stride, (before, behind) in zip(operand.index, shape, strides, pads, strict=True):
            at, anywhere = self.index(index, scope), any(one.clamp is None for one in index.lookups)
            mask = both(mask, Expr("compare", (at, const(0)), BOOL, "ge") if before or anywhere else None,
                        less(at, size) if behind or anywhere else None)
            for lookup in index.lookups:
                flat += self.found(scope, lookup) * stride
        return flat, mask

    def load(self, scope: _Scope, block: Block) -> Expr:
        """Read an operand's element; outside its array, the fill."""
        operand = self.operands[block.attrs["ref"]]
        flat, mask = self.place(operand, scope)
        array = self.arrays[operand.name]
        name = self.names.fresh(array + "_" * array[-1].isdigit(), 1)
        fill = encode(operand.fill or 0.0, block.dtype).item()
        scope.statements.append(ir.Load(name, array, flat, block.dtype, mask, fill, block.locs))
        return reg(name, block.dtype)

    # -- loops -----------------------------------------------------------------------------------------------

    @contextmanager
    def loops(self, scope: _Scope, axes: Sequence[str]) -> Iterator[_Scope]:
        """A scope inside a loop over each of the axes, the first outermost, while the block lasts."""
        if not axes:
            yield scope
            return
        axis, busy = axes[0], {place.value for place in scope.at.values()}
        name = self.places[axis] if self.places[axis] not in busy else self.names.fresh(axis)
        inner = _Scope({**scope.at, axis: reg(name)}, scope, axis, scope.mask)
        with self.loops(inner, axes[1:]) as innermost:
            yield innermost
        scope.statements.append(ir.For(name, self.sizes[axis], 1, tuple(inner.statements)))

    def reduce(self, scope: _Scope, block: Block) -> Expr:
        """A reduce, or a dot without a tile, as loops in each thread."""
        kind = block.attrs.get("kind", "sum")
        total = self.let(scope, "acc", const(neutral_value(kind, block.dtype), block.dtype), block.locs)
        with self.loops(scope, block.reduced) as inner:
            args = tuple(self.value(inner, arg) for arg in block.args)
            term = args[0] if len(args) == 1 else product(args[0], args[1], block.dtype)
            combined = Expr(COMBINE[kind], (total, term), block.dtype)
            inner.statements.append(ir.Set(total.value, combined, block.locs))
        return total

    def store(self, scope: _Scope, statement: Statement) -> None:
        """Write an output's element, or in loops its elements along whole axes."""
        output, value = self.operands[statement.target], statement.value
        whole_axes = [name for name in self.axes if name in output.axes and name not in scope.at]
        with self.loops(scope, whole_axes) as inner:
            result = self.value(inner, value)
            place, mask = self.place(output, inner)
            inner.statements.append(ir.Store(self.arrays[output.name], place, result, mask, value.locs))

    # -- dots in tiles ---------------------------------------------------------------------------------------

    def tiled_dot(self, scope: _Scope, block: Block) -> Expr:
        """A dot through two tiles in shared memory; every thread of the block takes part."""
        rows, columns = self.threads
        lhs, rhs = block.args if rows in block.args[0].axes else block.args[::-1]
        inner = max(reversed(block.reduced), key=self.sizes.__getitem__)  # which fills the tiles best
        outer = [axis for axis in block.reduced if axis != inner]
        total = self.let(scope, "acc", const(0, block.dtype), block.locs)
        start = reg(self.names.fresh(f"{inner}0"))
        with self.loops(scope, outer) as around:
            step = _Scope(around.at)
            left = self.tile(step, lhs, rows, inner, start + ir.THREAD_X, block.locs)
            right = self.tile(step, rhs, columns, inner, start + ir.THREAD_Y, block.locs)
            barrier = ir.Barrier(block.locs)
            body = (*step.statements, barrier, self.multiply_add(total, left, right, block), barrier)
            around.statements.append(ir.For(start.value, self.sizes[inner], TILE, body))
        return total

    def tile(self, step: _Scope, arg: Block, axis: str, inner: str, place: Expr, locs: Locs) -> ir.Array:
        """A tile in shared memory, to which each thread brings one element, or zero from beyond an axis."""
        tile = ir.Array(self.names.fresh(f"tile_{axis}"), arg.dtype, TILE * TILE)
        self.shared.append(tile)
        k = self.let(step, inner, place)
        mask = both(self.within(axis, step.at[axis]), self.within(inner, k, TILE))
        part = _Scope({**step.at, inner: k}, mask=mask, statements=step.statements)
        value = self.value(part, arg)
        if mask and (arg.op != "load" or self.operands[arg.attrs["ref"]].fill):
            value = self.let(part, "t", Expr("select", (mask, value, const(0, arg.dtype)), arg.dtype))
        step.statements.append(ir.Store(tile.name, ir.THREAD_Y * TILE + ir.THREAD_X, value, locs=locs))
        return tile

    def multiply_add(self, total: Expr, left: ir.Array, right: ir.Array, block: Block) -> ir.For:
        """The loop over a pair of tiles: total += left[y][i] * right[i][x]."""
        i, l, r = (self.names.fresh(wish) for wish in "ilr")
        row, column = ir.THREAD_Y * TILE + reg(i), reg(i) * TILE + ir.THREAD_X
        term = product(reg(l, left.dtype), reg(r, right.dtype), block.dtype)
        return ir.For(i, TILE, 1, (
            ir.Load(l, left.name, row, left.dtype, locs=block.locs),
            ir.Load(r, right.name, column, right.dtype, locs=block.locs),
            ir.Set(total.value, Expr("add", (total, term), block.dtype), block.locs)))

    def within(self, axis: str, place: Expr, block: int = 0) -> Expr | None:
        """That a place on an axis lies within it; None where no block of it can leave the axis."""
        size = self.sizes[axis]
        return less(place, size) if size % (block or self.axes[axis].block) else None

    # -- the whole kernel ------------------------------------------------------------------------------------

    def run(self, tiled: Block | None) -> ir.SimtKernel:
        """Lower the kernel, with this dot of it in tiles."""
        kernel, top = self.kernel, _Scope({})
        parallel = [axis for axis in kernel.axes if axis.kind is AxisKind.PARALLEL]
        lanes = dict(zip(self.threads, (ir.THREAD_Y, ir.THREAD_X), strict=True))
        rest = ir.BLOCK
        for axis in reversed(parallel):  # the blocks of the last axis are neighbours
            block = rest if axis is parallel[0] else rest % axis.steps
            rest //= axis.steps
            place = block * axis.block + lanes.get(axis.name, 0)
            top.at[axis.name] = reg(self.places[axis.name])
            top.statements.append(ir.Let(self.places[axis.name], place))
        body = _Scope(top.at, values={tiled: self.tiled_dot(top, tiled)} if tiled else {})
        for statement in kernel.body:
            self.store(body, statement)
        inside = both(*(self.within(axis, top.at[axis]) for axis in self.threads if axis))
        guarded = [ir.If(inside, tuple(body.statements))] if inside else body.statements
        params = tuple(
            ir.Array(self.arrays[op.name], op.type.dtype, op.type.elements, op.buffer,
                     op in kernel.outputs, op.in_place)
            for op in (*kernel.reads, *kernel.outputs) if op.name not in self.updated)
        y, x = (self.axes[axis].block if axis else 1 for axis in self.threads)
        blocks = prod(axis.steps for axis in parallel)
        return ir.SimtKernel(Names().fresh(kernel.name), params, tuple(self.shared), blocks, (x, y),
                             (*top.statements, *guarded))


def lower(kernel: Kernel) -> ir.SimtKernel:
    """The SIMT kernel of a kernel.

    Raises: OutOfRangeError if an operand leaves its array without a fill.
    """
    kernel = whole(kernel)
    parallel = [axis for axis in kernel.axes if axis.kind is AxisKind.PARALLEL]
    dots = [block for block in kernel.blocks() if block.op == "dot"]
    fits = ((dot, axes) for dot in dots if (axes := tile_axes(dot, parallel)))
    tiled, threads = next(fits, (None, thread_axes(parallel)))
    own = [kernel.axis(name).block if name else 1 for name in threads]
    if tiled or not WARP <= prod(own) <= MOST_THREADS_PER_BLOCK:
        own = [TILE, TILE] if threads[0] else [1, ROW_THREADS]
    blocks = {axis.name: 1 for axis in parallel}
    blocks |= {name: block for name, block in zip(threads, own, strict=True) if name}
    return _Lower(kernel.tiled(blocks), threads).run(tiled)


def product(left: Expr, right: Expr, dtype: DType) -> Expr:
    """left * right, both in the dtype that they add up in."""
    sides = (one if one.dtype is dtype else Expr("convert", (one,), dtype) for one in (left, right))
    return Expr("multiply", tuple(sides), dtype)


def thread_axes(parallel: Sequence[Axis]) -> tuple[str, str]:
    """The axes along y and x of a thread block: the last two with blocks, so that x walks memory in order."""
    blocked = [axis.name for axis in parallel if axis.block > 1] or [axis.name for axis in parallel]
    y, x = ["", "", *blocked][-2:]
    return y, x


def tile_axes(dot: Block, parallel: Sequence[Axis]) -> tuple[str, str] | None:
    """The axes of a dot's rows and columns, in the kernel's order, if shared tiles fit it; else None."""
    lhs, rhs = (set(arg.axes) for arg in dot.args)
    names = [axis.name for axis in parallel]
    rows, columns = ([name for name in names if name in only] for only in (lhs - rhs, rhs - lhs))
    nested = any(block.reduced for arg in dot.args for block in post_order(arg))
    if nested or not dot.reduced or not rows or not columns or not set(dot.axes) <= set(names):
        return None
    y, x = sorted((rows[-1], columns[-1]), key=names.index)
    return y, x
