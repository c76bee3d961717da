"""Tiling: choose the block of every axis.

    m = 1 x 512 of 512 parallel, n = 1 x 512 of 512 parallel, k = 1 x 512 of 512 sequential
        ->  m = 1 x 512 of 512,  n = 2 x 256 of 512,  k = 1 x 512 of 512

Goes in: an untiled Kernel and a Target. Comes out: the same kernel with blocks that fit the target's fast
memory, pipeline buffers counted, at the lowest predicted cycles. Nothing else changes, since a body is
written over axes. Invariants: a whole axis stays whole; the minor axis of an operand has blocks in
multiples of the target's lanes, the one before it in multiples of its rows; remainders are the backends' to
mask, never dropped.

Every candidate is priced by cost.py and logged. Triton and tinygrad leave this choice to a measured search;
XLA's TPU backend has a model such as this one. Read next: pipeline.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from math import ceil, prod

from minicc.errors import CompileError
from minicc.graph.ir import F32, DType
from minicc.kernel.cost import Cost, Target, cost
from minicc.kernel.ir import AxisKind, Kernel
from minicc.kernel.online import in_forms, is_online
from minicc.kernel.pull import Illegal
from minicc.kernel.unfold import Unfolding, applied, unfolding
from minicc.trace import Step

SKETCHED, SKETCHED_ROW = 512, 64 * 512  # elements per axis of a sketched block, and if it has only one axis
SHOWN_CANDIDATES = 8  # runners-up that the log keeps


@dataclass(frozen=True)
class Candidate:
    """Blocks by axis, the fast memory they take, and the predicted cost."""

    blocks: Mapping[str, int]
    fast_bytes: int
    cost: Cost

    def __str__(self) -> str:
        return " x ".join(f"{name}={size}" for name, size in self.blocks.items())


def tile(kernel: Kernel, target: Target, *, log: list[Step] | None = None) -> Kernel:
    """Choose blocks for a kernel. log receives the candidates, the best first, with their predicted cycles.

    Raises: CompileError if not even the smallest blocks fit the target's fast memory.
    """
    made = in_forms(kernel, target, lambda form: candidates(form, target), CompileError)
    tried = [(one, form) for form, found in made for one in found
             if form is made[0][0] or one.blocks[form.axes[-1].name] < form.axes[-1].size]
    tried.sort(key=lambda pair: (pair[0].cost.cycles, pair[0].fast_bytes))
    if log is not None:
        for number, (candidate, form) in enumerate(tried[:SHOWN_CANDIDATES]):
            facts = f"{candidate.cost.cycles:.0f} cycles, {candidate.fast_bytes} bytes of fast memory"
            facts += "" if form is kernel else f", {form.axes[-1].name} online"
            log.append(Step(f"{kernel.name} {candidate}", number == 0, facts))
    return tried[0][1].tiled(tried[0][0].blocks)


def candidates(kernel: Kernel, target: Target) -> list[Candidate]:
    """The blocks that fit, the fewest predicted cycles first.

    Raises: CompileError if not even the smallest do.
    """
    names = [axis.name for axis in kernel.axes]
    how = unfolding(kernel) if target.one_core else None
    choices = [*product(*_options(kernel, target))]
    choices += product(*_unfolded(kernel, how, target)) if how else ()
    tried = [_price(kernel, dict(zip(names, blocks, strict=True)), target) for blocks in choices]
    fitting = [candidate for candidate in tried if candidate.fast_bytes <= target.fast_bytes]
    if not fitting:
        least = min(tried, key=lambda candidate: candidate.fast_bytes)
        raise CompileError(
            f"tile {kernel.name}", "no blocks fit the fast memory",
            got=f"{least.fast_bytes} bytes for {least}",
            need=f"at most {target.fast_bytes} on {target.name}", at=kernel.locs(), hint="smaller rows")
    return sorted(fitting, key=lambda candidate: (candidate.cost.cycles, candidate.fast_bytes))


def sketch(kernel: Kernel, target: Target) -> Kernel:
    """The kernel in blocks that are likely and need no search: what fusion prices.

    Raises: Illegal if not even the smallest blocks would fit the target's fast memory.
    """
    forms = [one for _, one in in_forms(kernel, target, lambda form: _sketch(form, target), Illegal)]
    drawn = min(forms, key=lambda one: cost(one, target).cycles) if forms[1:] else forms[0]
    how = unfolding(kernel) if target.one_core else None
    if how:
        options = zip(kernel.axes, _unfolded(kernel, how, target), strict=True)
        likely = {axis.name: max([size for size in sizes if size <= SKETCHED] or sizes[:1])
                  for axis, sizes in options}
        both = [drawn, kernel.tiled(likely)]
        fitting = [one for one in both if fast_bytes(one, target) <= target.fast_bytes]
        return min(fitting, key=lambda one: cost(one, target).cycles)
    return drawn


def _sketch(kernel: Kernel, target: Target) -> Kernel:
    """In blocks of one element along the taps of a convolution."""
    tiled = _tiled_axes(kernel, target)
    longer, likely = _longer(kernel, tiled, target), SKETCHED if len(tiled) > 1 else SKETCHED_ROW
    blocks = {axis.name: axis.size if axis.kind is AxisKind.WHOLE else
              min(axis.size, likely * max(1, longer.get(axis.name, 1) // 2)) if axis.name in tiled else 1
              for axis in kernel.axes}
    drawn = kernel.tiled(blocks)
    steps = _least_blocks(kernel, tiled, target)
    while (size := fast_bytes(drawn, target)) > target.fast_bytes:
        free = [axis for axis in drawn.axes if axis.name in tiled and axis.block > steps[axis.name]
                and axis.kind is not AxisKind.WHOLE]
        if not free:
            raise Illegal(f"it would take {size} of {target.fast_bytes} bytes of fast memory")
        largest = max(free, key=lambda axis: axis.block)
        step = steps[largest.name]
        drawn = drawn.tiled({largest.name: ceil(largest.block / 2 / step) * step})
    return drawn


def _least_blocks(kernel: Kernel, tiled: set[str], target: Target) -> dict[str, int]:
    """The smallest blocks of axes: what lies along the lanes comes in multiples of them, all else of rows."""
    minor = {operand.axes[-1] for operand in kernel.operands if operand.axes}
    if len(tiled) == 1:  # a one-dimensional kernel fills rows and lanes alike
        return dict.fromkeys(tiled, target.lanes * target.rows)
    return {axis.name: target.lanes if axis.name in minor else target.rows for axis in kernel.axes}


def _price(kernel: Kernel, blocks: dict[str, int], target: Target) -> Candidate:
    tiled = kernel.tiled(blocks)
    return Candidate(blocks, fast_bytes(tiled, target), cost(tiled, target))


def fast_bytes(kernel: Kernel, target: Target, depth: int = 2) -> int:
    """Bytes of fast memory that the kernel's blocks take: every operand `depth` times, accumulators and
    temporaries once.

    A temporary is a value that is reduced, or a dot's result, or an operand of one of the two that must be
    computed.
    """
    how = applied(kernel) if target.one_core else None
    if how:
        *outer, last = how.walks(kernel)
        channel, name = kernel.axis(how.channel).block if how.channel else 1, how.operand.name
        seen = how.operand.type.dtype
        window = _padded(("c", "x"), {"c": channel, "x": last.span}, target, seen)
        window *= prod(walk.span for walk in outer) * len(last.phases)
        kernel = how.flat(kernel)
    sizes = {axis.name: axis.block for axis in kernel.axes}
    moving = sum(depth * _padded(op.axes, sizes, target, op.type.dtype) for op in kernel.operands)
    if how:
        matrix = next(op for op in kernel.inputs if op.name == name)
        moving += depth * (window - _padded(matrix.axes, sizes, target, seen))
        moving += _padded(matrix.axes, sizes, target)
    still = sum(_padded(scratch.axes, sizes, target) for scratch in kernel.scratch)
    temps = [b for b in kernel.blocks() if b.op in ("dot", "reduce")]
    temps += [arg for b in temps for arg in b.args if arg.op != "load"]
    return moving + still + sum(_padded(block.axes, sizes, target) for block in temps)


def _padded(axes: Iterable[str], sizes: Mapping[str, int], target: Target, dtype: DType = F32) -> int:
    """Bytes of a block, its last dimension rounded up to the lanes and the one before to the rows, of which
    several are packed into one if elements are narrow. A vector has rows of its own."""
    shape, fit = [sizes[name] for name in axes if sizes[name] > 1], dtype.per_word
    multiples = [1] * max(0, len(shape) - 2) + [target.rows * fit, target.lanes][2 - min(2, len(shape)):]
    sides = zip(shape, multiples, strict=True)
    elements = prod(-(-size // multiple) * multiple for size, multiple in sides)
    return elements * (dtype.itemsize if len(shape) > 1 else F32.itemsize)


def _options(kernel: Kernel, target: Target) -> list[list[int]]:
    """For each axis of the kernel, the blocks to try."""
    tiled = _tiled_axes(kernel, target)
    steps, longer = _least_blocks(kernel, tiled, target), _longer(kernel, tiled, target)
    options = []
    for axis in kernel.axes:
        if axis.kind is AxisKind.WHOLE:
            options.append([axis.size])
        elif axis.name not in tiled:
            options.append([1])
        else:
            largest = target.largest_block * (target.lanes if len(tiled) == 1 else longer.get(axis.name, 1))
            options.append(_sizes(axis.size, steps[axis.name], max(steps[axis.name], largest)))
    return options


def _unfolded(kernel: Kernel, how: Unfolding, target: Target) -> list[list[int]]:
    """For each axis of a kernel that is unfolded, the blocks to try: inner axes are whole, and of those that
    the window's operand does not have, one is tiled: along the lanes of what is gathered, or the longest."""
    free = [axis for axis in kernel.axes
            if axis.name not in how.operand.axes and axis.kind is not AxisKind.WHOLE]
    along = [name for _, name in how.gathered]
    tiled = max(free, key=lambda axis: (axis.name in along, axis.size), default=None)
    inner = prod(kernel.axis(name).size for name in how.columns[1:])
    options = []
    for axis in kernel.axes:
        if axis.name in how.inner or axis.kind is AxisKind.WHOLE:
            options.append([axis.size])
        elif axis.name == how.columns[0]:
            step = 1 if inner > 1 else target.lanes
            sizes = _sizes(axis.size, step, max(step, target.largest_block // inner))
            full = target.lanes * target.dot_units // inner  # so that every unit has its columns
            options.append(sorted({*sizes, *(size for size in (full, 2 * full) if 0 < size < axis.size)}))
        elif axis.name == how.channel or axis is tiled:
            options.append(_sizes(axis.size, target.rows, target.largest_block))
        else:
            options.append([axis.size if axis.name == how.rows[0] else 1])
    return options


def _longer(kernel: Kernel, tiled: Collection[str], target: Target) -> dict[str, int]:
    """Axes whose blocks may be longer than the target's largest, and how many times: the only long one in a
    kernel without a dot, and the one that an online kernel walks, by as much as its rows are fewer."""
    sizes, walks = {name: kernel.axis(name).size for name in tiled}, is_online(kernel)
    long = kernel.axes[-1].name if walks else max(sizes, key=sizes.__getitem__, default="")
    beside = max([target.rows, *(size for name, size in sizes.items() if name != long)])
    dots = any(block.op == "dot" for block in kernel.blocks())
    few = target.one_core and len(tiled) > 1 and (walks or beside == target.rows and not dots)
    return {long: max(1, min(target.largest_block // beside, target.lanes // target.rows))} if few else {}


def _sizes(size: int, step: int, largest: int) -> list[int]:
    """The whole axis if it is not too long, and step, 2 * step, 4 * step, ... below it."""
    sizes = [size] if size <= largest else []
    while step < size and step <= largest:
        sizes.append(step)
        step *= 2
    return sizes


def _tiled_axes(kernel: Kernel, target: Target) -> set[str]:
    """The axes that get blocks of more than one element: as many per value as the target allows.

    Whole axes must; then those of a dot, the longest that is summed and of each side; then the minor axis of
    each operand, then the longest.
    """
    single = {*kernel.walked, *_taps(kernel)}
    values = [set(block.axes) for block in kernel.blocks()]
    values += [set(operand.axes) for operand in kernel.operands]
    dots = [block for block in kernel.blocks() if block.op == "dot"]
    wishes = [axis.name for axis in kernel.axes if axis.kind is AxisKind.WHOLE and axis.size > 1]
    for dot in dots:
        lhs, rhs = (set(arg.axes) for arg in dot.args)
        for side in (set(dot.attrs["contract"]), rhs - lhs, lhs - rhs):
            inner_first = [axis for axis in reversed(kernel.axes) if axis.name in side - single]
            wishes += [max(inner_first, key=lambda axis: axis.size).name] if inner_first else []
    wishes += [operand.axes[-1] for operand in (*kernel.outputs, *kernel.inputs) if operand.axes]
    wishes += [axis.name for axis in sorted(kernel.axes, key=lambda axis: -axis.size)]
    tiled: set[str] = set()
    for name in dict.fromkeys(name for name in wishes if name not in single):
        room = all(name not in value or len(value & tiled) < target.max_block_axes for value in values)
        if room or kernel.axis(name).kind is AxisKind.WHOLE:
            tiled.add(name)
    return tiled


def _taps(kernel: Kernel) -> set[str]:
    """The axes of a convolution that are walked step by step, so that each step is a product of matrices: of
    those that share an index, all but the longest, or but one that must be whole."""
    found: set[str] = set()
    for names in (index.axes for operand in kernel.inputs for index in operand.index if index.terms[1:]):
        axes = [kernel.axis(name) for name in names]
        if any(axis.kind is not AxisKind.PARALLEL for axis in axes):
            found |= {*names} - {max(axes, key=lambda axis: (axis.kind is AxisKind.WHOLE, axis.size)).name}
    return found
