"""Lowering to SIMT: one thread computes one output element, and a dot shares tiles through shared memory.

    kernel dot_add_maximum   (m in blocks of 16, n in blocks of 16)
        ->  m = blockIdx.y * 16 + threadIdx.y,  n = blockIdx.x * 16 + threadIdx.x
            for k0 in steps of 16: load a 16 x 16 tile of x and one of w; barrier; 16 multiply-adds; barrier
            if m < 128 && n < 512: y[m * 512 + n] = maximum(acc + b[n], 0)

Goes in: any legal Kernel, tiled or not, and a GPUSpec. Comes out: a SimtKernel. Two of the parallel axes
become the x and y of a thread block, the others blocks; reductions and whole axes become loops in each
thread. A value that does not vary over a loop's axis is computed before the loop. Dots that no tile fits
are loops as well.

It is plain on purpose: no register tiles, no reductions across threads. CUTLASS and Triton start from the
same shared tile and add those. Read next: cuda.py to see the text, simt.py to run it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from minicc.errors import CompileError, Loc
from minicc.gpu.calls import safe_name
from minicc.gpu.ir import (
    WHERE,
    Barrier,
    Expr,
    For,
    If,
    Let,
    Load,
    Param,
    Set,
    Shared,
    SimtKernel,
    Statement,
    Store,
    binary,
    both,
    const,
    less,
    reg,
)
from minicc.gpu.machine import MOST_THREADS_PER_BLOCK, WARP, GPUSpec
from minicc.gpu.views import flat_index, padding, span
from minicc.gpu.whole import blocks_under, reduced_axes, whole
from minicc.graph.ir import BOOL
from minicc.kernel.build import COMBINE, neutral_value
from minicc.kernel.ir import Axis, AxisKind, Block, Index, Kernel, Operand

TILE = 16  # a dot's threads are TILE x TILE, and so are its tiles in shared memory
ROW_THREADS = 256  # threads of a block along one axis
MOST_BLOCKS_YZ = 65535  # the grid's limit along y and z


@dataclass
class _Scope:
    """Statements under construction, where each axis stands in them, and the values computed so far."""

    at: dict[str, Expr]
    values: dict[Block, Expr]
    statements: list[Statement] = field(default_factory=list)
    mask: Expr | None = None

    def inner(self, at: Mapping[str, Expr] | None = None, mask: Expr | None = None) -> _Scope:
        """A scope inside this one with its own statements; values along axes that move anew are not seen."""
        moved = set(at or ())
        values = {block: value for block, value in self.values.items() if not moved & set(block.axes)}
        return _Scope({**self.at, **(at or {})}, values, mask=both(self.mask, mask))


class _Lower:
    """One kernel's lowering."""

    def __init__(self, kernel: Kernel, spec: GPUSpec) -> None:
        self.kernel, self.spec = kernel, spec
        self.axes = {axis.name: axis for axis in kernel.axes}
        self.sizes = {axis.name: axis.size for axis in kernel.axes}
        self.names: set[str] = set()
        self.operands = {operand.name: operand for operand in kernel.operands}
        self.arrays = {name: self.fresh(name) for name in self.operands}
        self.shared: list[Shared] = []
        self.loop_names: dict[str, str] = {}

    def fresh(self, wish: str, number: int | None = None) -> str:
        """A name for one register or array."""
        while number is not None and f"{wish}{number}" in self.names:
            number += 1
        name = safe_name(wish if number is None else f"{wish}{number}", self.names)
        self.names.add(name)
        return name

    # -- values ----------------------------------------------------------------------------------------------

    def let(self, scope: _Scope, wish: str, value: Expr, locs: tuple[Loc, ...] = ()) -> Expr:
        """Put a value into a new register."""
        name = self.fresh(wish, 1)
        scope.statements.append(Let(name, value, locs))
        return reg(name, value.dtype)

    def value(self, scope: _Scope, block: Block) -> Expr:
        """The expression that holds a block's value at the place of the scope, computed by now."""
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
                return self.loop(scope, block)
        args = tuple(self.value(scope, arg) for arg in block.args)
        value = Expr(block.op, args, block.dtype, block.attrs.get("direction"))
        return self.let(scope, "t", value, block.locs)

    def index(self, index: Index, scope: _Scope) -> Expr:
        """An affine index as an expression."""
        total = const(0)
        for name, stride in index.terms:
            total = binary("add", total, binary("multiply", scope.at[name], const(stride)))
        return binary("add", total, const(index.offset))

    def load(self, scope: _Scope, block: Block) -> Expr:
        """Read an operand's element; outside its array, the fill."""
        operand = self.operands[block.attrs["ref"]]
        padding(operand, self.sizes)  # an index that leaves its array needs a fill
        inside = None
        for index, size in zip(operand.index, operand.type.shape, strict=True):
            low, high = span(index, self.sizes)
            place = self.index(index, scope)
            if low < 0:
                inside = both(inside, Expr("compare", (place, const(0)), BOOL, "ge"))
            if high >= size:
                inside = both(inside, less(place, size))
        array = self.arrays[operand.name]
        name = self.fresh(array + "_" * array[-1].isdigit(), 1)
        flat = self.index(flat_index(operand.index, operand.type.shape), scope)
        fill = 0.0 if operand.fill is None else operand.fill
        mask = both(scope.mask, inside)
        scope.statements.append(Load(name, array, flat, block.dtype, mask, fill, block.locs))
        return reg(name, block.dtype)

    def loop(self, scope: _Scope, block: Block) -> Expr:
        """A reduce, or a dot without a tile, as loops in each thread."""
        kind = block.attrs.get("kind", "sum")
        axes = reduced_axes(block)
        for arg in block.args:
            self.hoist(scope, arg, axes)
        total = self.let(scope, "acc", const(neutral_value(kind, block.dtype), block.dtype), block.locs)
        inner = scope.inner(loops := self.counters(scope, axes))
        args = [self.value(inner, arg) for arg in block.args]
        term = args[0] if len(args) == 1 else Expr("multiply", tuple(args), block.dtype)
        inner.statements.append(Set(total.value, Expr(COMBINE[kind], (total, term), block.dtype), block.locs))
        scope.statements.append(self.nest(loops, inner.statements))
        return total

    def counters(self, scope: _Scope, axes: Sequence[str]) -> dict[str, Expr]:
        """A counter for each loop, called like its axis; loops that follow one another share it."""
        names = {axis: self.loop_names.get(axis) or self.loop_name(axis) for axis in axes}
        busy = {place.value for place in scope.at.values()}
        return {axis: reg(self.fresh(axis) if name in busy else name) for axis, name in names.items()}

    def loop_name(self, axis: str) -> str:
        self.loop_names[axis] = self.fresh(axis)
        return self.loop_names[axis]

    def nest(self, loops: Mapping[str, Expr], body: Sequence[Statement]) -> Statement:
        """Loops over whole axes, the first outermost."""
        for axis, counter in reversed(list(loops.items())):
            body = [For(counter.value, self.sizes[axis], 1, tuple(body))]
        return body[0]

    def hoist(self, scope: _Scope, block: Block, axes: Sequence[str]) -> None:
        """Compute now whatever `block` needs that does not vary over the axes of a loop about to start."""
        if not set(block.axes) & set(axes) and set(block.axes) <= set(scope.at):
            self.value(scope, block)
            return
        for arg in block.args:
            self.hoist(scope, arg, axes)

    # -- dots in tiles ---------------------------------------------------------------------------------------

    def tiled_dot(self, scope: _Scope, block: Block, rows: str, columns: str) -> Expr:
        """A dot through two tiles in shared memory; every thread of the block takes part."""
        lhs, rhs = block.args if rows in block.args[0].axes else block.args[::-1]
        *outer, inner = reduced_axes(block)
        total = self.let(scope, "acc", const(0, block.dtype), block.locs)
        tiles = [Shared(self.fresh(f"tile_{side}"), block.dtype, TILE * TILE) for side in "lr"]
        self.shared += tiles
        counters = self.counters(scope, outer)
        start = reg(self.fresh(f"{inner}0"))
        step = scope.inner(counters)
        tx, ty = Expr("threadIdx.x"), Expr("threadIdx.y")
        slot = binary("add", binary("multiply", ty, const(TILE)), tx)
        for tile, arg, lane, axis in zip(tiles, (lhs, rhs), (tx, ty), (rows, columns), strict=True):
            k = self.let(step, inner, binary("add", start, lane))
            mask = both(self.within(axis, scope.at[axis]), self.within(inner, k, TILE))
            part = step.inner({inner: k}, mask)
            value = self.value(part, arg)
            zero_outside = arg.op == "load" and not self.operands[arg.attrs["ref"]].fill
            if mask is not None and not zero_outside:
                value = self.let(part, "t", Expr("select", (mask, value, const(0, block.dtype)), block.dtype))
            step.statements += [*part.statements, Store(tile.name, slot, value, locs=block.locs)]
        step.statements += [Barrier(block.locs), self.multiply_add(total, tiles, block), Barrier(block.locs)]
        loop = For(start.value, self.sizes[inner], TILE, tuple(step.statements))
        scope.statements.append(self.nest(counters, [loop]))
        return total

    def multiply_add(self, total: Expr, tiles: Sequence[Shared], block: Block) -> Statement:
        """The loop over one pair of tiles: acc += lhs[y][i] * rhs[i][x]."""
        i = reg(self.fresh("i"))
        left, right = (reg(self.fresh(name), block.dtype) for name in "lr")
        row = binary("add", binary("multiply", Expr("threadIdx.y"), const(TILE)), i)
        column = binary("add", binary("multiply", i, const(TILE)), Expr("threadIdx.x"))
        product = Expr("multiply", (left, right), block.dtype)
        return For(i.value, TILE, 1, (
            Load(left.value, tiles[0].name, row, block.dtype, locs=block.locs),
            Load(right.value, tiles[1].name, column, block.dtype, locs=block.locs),
            Set(total.value, Expr("add", (total, product), block.dtype), block.locs),
        ))

    def within(self, axis: str, place: Expr, block: int = 0) -> Expr | None:
        """That a place on an axis lies within it; None where no block of it can leave the axis."""
        size = self.sizes[axis]
        return less(place, size) if size % (block or self.axes[axis].block) else None

    # -- the whole kernel ------------------------------------------------------------------------------------

    def run(self, threads: tuple[str, str], dots: Sequence[Block]) -> SimtKernel:
        """Lower the kernel with these axes along y and x of the thread block ("" for none)."""
        scope, grid = self.places(threads)
        for dot in dots:
            scope.values[dot] = self.tiled_dot(scope, dot, *threads)
        inside = both(*(self.within(axis, scope.at[axis]) for axis in threads if axis))
        body = scope.inner()
        for statement in self.kernel.body:
            self.store(body, self.operands[statement.target], statement.value)
        guarded = [If(inside, tuple(body.statements))] if inside is not None else body.statements
        y, x = (self.axes[axis].block if axis else 1 for axis in threads)
        outputs = {operand.name for operand in self.kernel.outputs}
        params = tuple(
            Param(self.arrays[o.name], o.buffer, o.type.dtype, o.type.elements, o.name in outputs)
            for o in self.kernel.operands
        )
        statements = (*scope.statements, *guarded)
        return SimtKernel(safe_name(self.kernel.name), params, tuple(self.shared), grid, (x, y), statements)

    def places(self, threads: tuple[str, str]) -> tuple[_Scope, tuple[int, int, int]]:
        """Where each parallel axis stands in a thread, and the grid of blocks."""
        scope = _Scope({}, {})
        parallel = [axis for axis in self.kernel.axes if axis.kind is AxisKind.PARALLEL]
        others = [axis for axis in parallel if axis.name not in threads]
        y, x = (self.axes[name].steps if name else 1 for name in threads)
        grid = (x, y, prod(axis.size for axis in others))
        block_of = [Expr(name) for name in WHERE[:3]]
        if max(grid[1:]) > MOST_BLOCKS_YZ:  # too many for y and z, so all go along x
            flat = block_of[0]
            block_of = [binary("mod", flat, const(x)),
                        binary("mod", binary("floordiv", flat, const(x)), const(y)),
                        binary("floordiv", flat, const(x * y))]
            grid = (prod(grid), 1, 1)
        rest = block_of[2]
        for axis in reversed(others):
            place = rest if axis is others[0] else binary("mod", rest, const(axis.size))
            scope.at[axis.name] = self.let_axis(scope, axis, place)
            rest = binary("floordiv", rest, const(axis.size))
        for name, block, thread in zip(threads, (block_of[1], block_of[0]), WHERE[:2:-1], strict=True):
            if name:
                start = binary("multiply", block, const(self.axes[name].block))
                scope.at[name] = self.let_axis(scope, self.axes[name], binary("add", start, Expr(thread)))
        return scope, grid

    def let_axis(self, scope: _Scope, axis: Axis, place: Expr) -> Expr:
        name = self.fresh(axis.name)
        scope.statements.append(Let(name, place))
        return reg(name)

    def store(self, scope: _Scope, output: Operand, block: Block) -> None:
        """Write an output's element, or in loops its elements along whole axes."""
        names = [name for name in self.axes if name in output.axes and name not in scope.at]
        self.hoist(scope, block, names)
        inner = scope.inner(loops := self.counters(scope, names))
        index = flat_index(output.index, output.type.shape)
        value = self.value(inner, block)
        place = self.index(index, inner)
        inner.statements.append(Store(self.arrays[output.name], place, value, locs=block.locs))
        scope.statements += [self.nest(loops, inner.statements)] if loops else inner.statements


def lower(kernel: Kernel, spec: GPUSpec) -> SimtKernel:
    """The SIMT kernel of a kernel.

    Raises: CompileError if its tiles do not fit the shared memory of a block; OutOfRangeError if an operand
    leaves its array without a fill.
    """
    kernel = whole(kernel)
    parallel = [axis for axis in kernel.axes if axis.kind is AxisKind.PARALLEL]
    dots = [block for block in kernel.blocks() if block.op == "dot"]
    pair = next((pair for dot in dots if (pair := tile_axes(dot, parallel))), None)
    tiled = [dot for dot in dots if pair and tile_axes(dot, parallel) == pair]
    threads = pair or thread_axes(parallel)
    blocks = [kernel.axis(name).block if name else 1 for name in threads]
    if pair:
        blocks = [TILE, TILE]
    elif not WARP <= prod(blocks) <= MOST_THREADS_PER_BLOCK:
        blocks = [TILE, TILE] if threads[0] else [1, ROW_THREADS]
    sizes = {name: block for name, block in zip(threads, blocks, strict=True) if name}
    simt = _Lower(kernel.tiled(sizes), spec).run(threads, tiled)
    if simt.shared_bytes > spec.shared_kib_per_block * 1024:
        raise CompileError(f"lower {kernel.name}", "its tiles do not fit the shared memory of a thread block",
                           got=f"{simt.shared_bytes} bytes", need=f"at most {spec.shared_kib_per_block} KiB",
                           at=kernel.locs())
    return simt


def thread_axes(parallel: Sequence[Axis]) -> tuple[str, str]:
    """The axes along y and x of a thread block: the last two with blocks, so that x walks memory in order."""
    blocked = [axis.name for axis in parallel if axis.block > 1] or [axis.name for axis in parallel]
    y, x = ["", "", *blocked][-2:]
    return y, x


def tile_axes(dot: Block, parallel: Sequence[Axis]) -> tuple[str, str] | None:
    """The axes of a dot's rows and columns, in the kernel's order, if shared tiles fit it; else None."""
    if any(map(reduced_axes, blocks_under(dot.args))) or not reduced_axes(dot):
        return None
    names = [axis.name for axis in parallel]
    lhs, rhs = (set(arg.axes) for arg in dot.args)
    contract = set(reduced_axes(dot))
    rows, columns = ([name for name in names if name in only] for only in (lhs - rhs, rhs - lhs))
    if not rows or not columns or not contract <= lhs & rhs or not (lhs | rhs) - contract <= set(names):
        return None
    y, x = sorted((rows[-1], columns[-1]), key=names.index)
    return y, x
