"""What a kernel costs, in closed form: the one model that fusion and tiling decide by.

    cost(kernel, target) -> Cost(bytes=1183744, dot_flops=..., vector_ops=..., cycles=...)

Goes in: a Kernel, tiled or not, and a Target: the few numbers of a machine that matter here. Comes out:
bytes that must cross from slow to fast memory, arithmetic with recompute in it, and the cycles of a
pipeline of these blocks:

    cycles = launch + fill + (steps - 1) * max(compute, latency + copy) + compute + drain

A kernel is priced in the blocks that it has; fusion prices a sketch of its tiles (tile.py). A value is
computed once for every step of the parallel axes that it does not vary over: that is how recompute has a
price. XLA's GPU cost model is the same idea with more terms. It is a model: the emulator's cycles are the
truth. Read next: fuse.py.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import ceil, prod

from minicc.kernel.ir import AxisKind, Block, Index, Kernel, Operand
from minicc.kernel.unfold import Unfolding, applied

TRANSCENDENTAL = ("exp", "expm1", "log", "log1p", "tanh", "sin", "cos", "power", "sqrt", "rsqrt", "divide",
                  "remainder")
FREE = ("load", "constant", "dot")
GRANULE_ELEMENTS = 8  # that an HBM access brings, of which a copy with strides needs one
UNFOLD_CYCLES = 1.5  # for 8 rows of a run of lanes, as measured on v5e


@dataclass(frozen=True)
class Target:
    """The numbers of a machine that shape kernels. Cycles are of its own clock.

    rows, lanes: blocks come in multiples of these along their last two dimensions. max_block_axes: how many
    axes of one value may have blocks of more than one element. most_operands: of one kernel. keeps_temps:
    whether buffers between kernels can stay in fast memory. one_core: whether steps run one after the other,
    so that a kernel may go on from its own dot and store several results. bytes_per_cycle, latency_cycles: of
    copies from and to slow memory; near_...: of those within fast memory. A dot streams rows through
    dot_units units at dot_row_cycles each; to fill and to drain them takes dot_fill_cycles at each step.
    """

    name: str
    fast_bytes: int
    slow_bytes: int
    rows: int
    lanes: int
    largest_block: int
    most_operands: int
    max_block_axes: int
    keeps_temps: bool
    one_core: bool
    bytes_per_cycle: float
    latency_cycles: int
    near_bytes_per_cycle: float
    near_latency_cycles: int
    launch_cycles: int
    dot_flops_per_cycle: float
    dot_units: int
    dot_row_cycles: int
    dot_fill_cycles: int
    vector_ops_per_cycle: float

    @property
    def least_cycles(self) -> int:
        """What the smallest kernel takes, at least."""
        return self.launch_cycles + 2 * min(self.latency_cycles, self.near_latency_cycles)


@dataclass(frozen=True)
class Cost:
    """Bytes and operations of one run of a kernel, and the cycles the model predicts.

    bytes: from and to slow memory. latency_cycles: before the slowest copy of a step begins. copy_cycles,
    dot_cycles, vector_cycles: how long each resource works for one of its steps; compute_cycles: both units.
    """

    bytes: int
    dot_flops: int
    vector_ops: int
    cycles: float
    latency_cycles: int
    copy_cycles: float
    compute_cycles: float
    dot_cycles: float
    vector_cycles: float


def operand_bytes(kernel: Kernel, operand: Operand) -> int:
    """Bytes of the operand copied over the whole grid: its block, once for every time it changes."""
    fetches, moved = 1, prod(_walked(kernel, index, size)
                             for index, size in zip(operand.index, operand.type.shape, strict=True))
    seen_moving = False
    for axis in reversed(kernel.axes):
        if axis.name in operand.axes:
            seen_moving = seen_moving or axis.steps > 1
        elif seen_moving:
            fetches *= axis.steps
    return fetches * moved * operand.type.dtype.itemsize


def _walked(kernel: Kernel, index: Index, size: int) -> int:
    """Elements of a dimension copied while an index walks all its blocks; two axes walk it in windows."""
    axes = [kernel.axis(name) for name in dict.fromkeys(index.axes)]
    if len(index.terms) < 2:
        return prod(axis.size for axis in axes)
    span = 1 + sum(abs(stride) * (kernel.axis(name).block - 1) for name, stride in index.terms)
    return min(span, size) * prod(axis.steps for axis in axes)


def evaluations(kernel: Kernel, own: Collection[str]) -> int:
    """How many elements of an op along these axes are computed over the whole grid, recompute included."""
    count = 1
    for axis in kernel.axes:
        if axis.name in own:
            count *= axis.block * axis.steps  # the last one in full
        elif axis.kind is AxisKind.PARALLEL:
            count *= axis.steps
    return count


def cost(kernel: Kernel, target: Target) -> Cost:
    """Price a kernel on a target."""
    moved, near = (sum(operand_bytes(kernel, one) for one in kernel.operands if one.near is within)
                   for within in (False, True))
    dots = [block for block in kernel.blocks() if block.op == "dot"]
    dot_flops = sum(2 * evaluations(kernel, block.axes + block.reduced) for block in dots)
    weights = dict[tuple[str, ...], int]()  # the axes that ops run along -> their weight per element
    for block in kernel.blocks():
        if weight := op_weight(block):
            own = block.axes + block.reduced
            weights[own] = weights.get(own, 0) + weight
    vector_ops = sum(weight * evaluations(kernel, own) for own, weight in weights.items())
    steps = prod(axis.steps for axis in kernel.axes)
    how = applied(kernel) if target.one_core else None
    flat, unfold = (how.flat(kernel), _unfold_cycles(kernel, how, target)) if how else (kernel, 0)
    streams = sum(_dot_cycles(flat, block, target) for block in flat.blocks() if block.op == "dot")
    dot = max(dot_flops / target.dot_flops_per_cycle / steps, streams) + unfold
    vector = vector_ops / target.vector_ops_per_cycle / steps
    compute = dot + vector if target.one_core else max(dot, vector)  # loops one after the other, or threads
    latency, copy = target.near_latency_cycles, near / steps / target.near_bytes_per_cycle if near else 0.0
    if moved:  # both kinds of copies run side by side
        busy = moved + (_scattered_bytes(kernel, how) if how else 0)
        far = target.latency_cycles, busy / steps / target.bytes_per_cycle
        latency, copy = max(far, (latency, copy), key=sum)
    steady = max(compute, latency + copy)
    cycles = target.launch_cycles + 2 * latency + copy + (steps - 1) * steady + compute
    return Cost(moved, dot_flops, vector_ops, cycles, latency, copy, compute, dot, vector)


def _dot_cycles(kernel: Kernel, dot: Block, target: Target) -> int:
    """Cycles of one step in which rows stream through units that hold weights.

    A unit holds lanes x lanes weights; while rows stream past them the next ones are loaded, which takes as
    long as that many rows. Units that have no columns of their own share the rows, or the depth.
    """
    lhs, rhs = (set(arg.axes) for arg in dot.args)
    rows = prod(kernel.axis(name).block for name in lhs - rhs)
    columns, depth = (prod(ceil(kernel.axis(name).block / target.lanes) for name in names)
                      for names in (rhs - lhs, dot.attrs["contract"]))
    ways = max(1, target.dot_units // columns)
    busy = min(depth * max(ceil(rows / ways), target.lanes), ceil(depth / ways) * max(rows, target.lanes))
    return target.dot_fill_cycles + ceil(columns / target.dot_units) * busy * target.dot_row_cycles


def _scattered_bytes(kernel: Kernel, how: Unfolding) -> int:
    """What memory is busy for besides, since an element that is copied by itself takes as long as several."""
    by_itself = [op for op in kernel.inputs if how.lanes(op) not in (None, *op.axes[-1:])]
    by_itself += [how.operand] * (how.walks(kernel)[-1].step > 1)
    return (GRANULE_ELEMENTS - 1) * sum(operand_bytes(kernel, op) for op in by_itself if not op.near)


def _unfold_cycles(kernel: Kernel, how: Unfolding, target: Target) -> float:
    """Cycles of a step in which a block seen through a window is unfolded, if it is a new one.

    Each run of columns is moved to its lanes by itself, and by two halves if it is long."""
    rows, columns = ([kernel.axis(name).block for name in names] for names in (how.rows, how.columns))
    registers = ceil((rows[0] if how.channel else 1) / target.rows)
    runs = prod(columns[:-1]) * ceil(2 * columns[-1] / target.lanes)
    taps = prod(rows[1:] if how.channel else rows)
    again = operand_blocks(kernel, how.operand) / kernel.steps
    return UNFOLD_CYCLES * registers * taps * runs * again


def operand_blocks(kernel: Kernel, operand: Operand) -> int:
    """How many times the operand's block changes over the whole grid."""
    fetches, moving = 1, False
    for axis in reversed(kernel.axes):
        moving = moving or (axis.name in operand.axes and axis.steps > 1)
        fetches *= axis.steps if moving else 1
    return fetches


def op_weight(block: Block) -> int:
    """Vector operations per element of a block's op; a transcendental is a handful of them."""
    if block.op in FREE:
        return 0
    return 4 if block.op in TRANSCENDENTAL else 1
