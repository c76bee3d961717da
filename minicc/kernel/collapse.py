"""Collapsing: two axes that are contiguous wherever they appear become one.

    x: f32[8,125,7] at (b, m, n), y: f32[8,125,7] at (b, m, n)   ->   x: f32[7000] at (n), y: f32[7000] at (n)

Goes in: an untiled Kernel. Comes out: the same kernel over fewer, longer axes, so that an array of shape
(1000, 7) fills its 128 lanes. Two neighbouring axes merge if every operand either walks both, one right
after the other and in full, or neither; and every value in the body likewise. tinygrad merges views the
same way; XLA has a bitcast for it.
"""

from __future__ import annotations

from dataclasses import replace

from minicc.graph.ir import Type
from minicc.kernel.ir import Axis, Block, Index, Kernel, Operand


def collapse(kernel: Kernel) -> Kernel:
    """Merge axes until no pair can be merged."""
    while pair := _mergeable(kernel):
        kernel = _merge(kernel, *pair)
    return kernel


def _mergeable(kernel: Kernel) -> tuple[Axis, Axis] | None:
    blocks = kernel.blocks()
    for outer in kernel.axes:
        for inner in kernel.axes:
            if outer is not inner and outer.kind is inner.kind and _contiguous(kernel, blocks, outer, inner):
                return outer, inner
    return None


def _contiguous(kernel: Kernel, blocks: tuple[Block, ...], outer: Axis, inner: Axis) -> bool:
    if not all(_adjacent(operand, outer, inner) for operand in kernel.operands):
        return False
    pair = {outer.name, inner.name}
    for block in blocks:
        if block.op == "iota" and pair & set(block.axes):
            return False
        for names in (block.axes, block.reduced):
            if len(pair & set(names)) == 1:
                return False
    return not any(len(pair & set(scratch.axes)) == 1 for scratch in kernel.scratch)


def _adjacent(operand: Operand, outer: Axis, inner: Axis) -> bool:
    """Whether the operand has neither axis, or both as neighbouring dimensions walked from end to end."""
    if not {outer.name, inner.name} & set(operand.axes):
        return True
    pair = (Index.axis(outer.name), Index.axis(inner.name))
    dims = range(len(operand.index) - 1)
    found = [dim for dim in dims if (operand.index[dim], operand.index[dim + 1]) == pair]
    if len(found) != 1 or len(set(operand.axes)) != len(operand.axes):
        return False
    full = (outer.size, inner.size)
    return operand.type.shape[found[0]: found[0] + 2] == full and operand.fill is None


def _merge(kernel: Kernel, outer: Axis, inner: Axis) -> Kernel:
    """`inner` keeps its name and swallows `outer`."""
    size = outer.size * inner.size
    axes = [replace(axis, size=size, block=size) if axis is inner else axis for axis in kernel.axes]
    axes.remove(outer)

    def without(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if name != outer.name)

    def shorten(block: Block) -> Block:
        if outer.name not in block.axes + block.reduced:
            return block
        attrs = dict(block.attrs)
        attrs |= {name: without(attrs[name]) for name in ("axes", "contract") if name in attrs}
        return replace(block, axes=without(block.axes), attrs=attrs)

    def view(operand: Operand) -> Operand:
        if outer.name not in operand.axes:
            return operand
        dim = operand.index.index(Index.axis(outer.name))
        shape, index = operand.type.shape, operand.index
        merged = Type(operand.type.dtype, (*shape[:dim], size, *shape[dim + 2:]))
        return replace(operand, type=merged, index=index[:dim] + index[dim + 1:])

    scratch = tuple(replace(s, axes=without(s.axes)) for s in kernel.scratch)
    inputs, outputs = (tuple(map(view, group)) for group in (kernel.inputs, kernel.outputs))
    return replace(kernel.mapped(shorten), axes=tuple(axes), inputs=inputs, outputs=outputs, scratch=scratch)
