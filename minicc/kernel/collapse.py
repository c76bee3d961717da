"""Collapsing: two axes that are contiguous wherever they appear become one.

    x: f32[8,125,7] at (b, m, n), y: f32[8,125,7] at (b, m, n)   ->   x: f32[7000] at (n), y: f32[7000] at (n)

Goes in: an untiled Kernel. Comes out: the same kernel over fewer, longer axes, so that an array of shape
(1000, 7) fills its 128 lanes; and what its values vary over stands in the order of its axes. Two axes merge
if every operand either walks both, one right after the other and in full, or neither; and every value in the
body likewise. tinygrad merges views the same way; XLA has a bitcast for it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import permutations

from minicc.graph.ir import Type
from minicc.kernel.ir import Axis, Block, Index, Kernel, Operand, Scratch


def collapse(kernel: Kernel) -> Kernel:
    """Merge axes until no pair can be merged."""
    axes, inputs, outputs = kernel.axes, kernel.inputs, kernel.outputs
    blocks = kernel.blocks()
    names = {names for block in blocks for names in (block.axes, block.reduced)}
    values = [set(one) for one in names.union(scratch.axes for scratch in kernel.scratch)]
    counted = {name for block in blocks if block.op == "iota" for name in block.axes}
    while pair := _mergeable(axes, inputs + outputs, values, counted):
        outer, inner = pair
        merged = Axis(inner.name, size := outer.size * inner.size, size, inner.kind)
        axes = tuple([merged if axis is inner else axis for axis in axes if axis is not outer])
        inputs, outputs = (tuple([_view(op, outer, size) for op in group]) for group in (inputs, outputs))
        for value in values:
            value.discard(outer.name)
    return ordered(Kernel(kernel.name, axes, inputs, outputs, kernel.scratch, kernel.body, kernel.scalars))


def _mergeable(axes: Sequence[Axis], operands: Sequence[Operand], values: Sequence[Collection[str]],
               counted: Collection[str]) -> tuple[Axis, Axis] | None:
    """Two axes that can be one. values: what each value in the body varies over. counted: what iotas walk."""
    for outer, inner in permutations(axes, 2):
        if outer.kind is not inner.kind or outer.name in counted or inner.name in counted:
            continue
        if any((outer.name in value) != (inner.name in value) for value in values):
            continue
        if all(_adjacent(operand, outer, inner) for operand in operands):
            return outer, inner
    return None


def _adjacent(operand: Operand, outer: Axis, inner: Axis) -> bool:
    """Whether the operand has neither axis, or both as neighbouring dimensions walked from end to end."""
    if outer.name not in operand.axes and inner.name not in operand.axes:
        return True
    pair = (Index.axis(outer.name), Index.axis(inner.name))
    neighbours = zip(operand.index, operand.index[1:], strict=False)
    found = [dim for dim, two in enumerate(neighbours) if two == pair]
    if len(found) != 1 or len(set(operand.axes)) != len(operand.axes):
        return False
    full = (outer.size, inner.size)
    return operand.type.shape[found[0]: found[0] + 2] == full and operand.fill is None


def _view(operand: Operand, outer: Axis, size: int) -> Operand:
    """The operand with `outer` gone into the axis behind it, which has this size now."""
    if outer.name not in operand.axes:
        return operand
    dim = operand.index.index(Index.axis(outer.name))
    shape, index = operand.type.shape, operand.index
    merged = Type(operand.type.dtype, (*shape[:dim], size, *shape[dim + 2:]))
    return replace(operand, type=merged, index=index[:dim] + index[dim + 1:])


def ordered(kernel: Kernel) -> Kernel:
    """The kernel with its own axes in its values, in its order."""
    known = [axis.name for axis in kernel.axes]

    def change(block: Block) -> Block:
        axes, attrs = tuple([name for name in known if name in block.axes]), block.attrs
        if gone := set(block.reduced).difference(known):
            attrs = {key: tuple([name for name in value if name not in gone])
                     if key in ("axes", "contract") else value for key, value in attrs.items()}
        same = axes == block.axes and attrs is block.attrs
        return block if same else Block(block.op, block.args, attrs, block.dtype, axes, block.locs)

    scratch = tuple([Scratch(one.name, one.dtype, tuple([name for name in known if name in one.axes]))
                     for one in kernel.scratch])
    return replace(kernel.mapped(change), scratch=scratch)
