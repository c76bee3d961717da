"""Chunks: how vector mode walks a kernel's axes, with blocks that suit a CPU's cache rather than a GPU's.

    m = 2 x 64 of 128, n = 4 x 128 of 512, k = 7 x 112 of 784   ->   m = 1 x 128, n = 1 x 512, k = 1 x 784
    n = 977 x 1024 of 1000000, with three ops in a row          ->   n = 2 x 500000 of 1000000

Goes in: any legal Kernel. Comes out: the same one with other blocks, of which at most one is smaller than
its axis. Few large steps are best, since each numpy call costs half a microsecond, until the values that
ops hand to one another leave the cache: then an axis of those is cut, the outermost that is long enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod

from minicc.kernel.ir import AxisKind, Kernel
from minicc.kernel.whole import whole

CHUNK_ELEMENTS = 1 << 19  # 2 MiB of f32: measured flat from 2^18 to 2^20 with 1 MiB of L2 and 32 MiB of L3
DOT_CHUNK_ELEMENTS = 1 << 22  # a matrix product in pieces packs its operands anew for each


def chunked(kernel: Kernel, chunk_elements: int = 0) -> Kernel:
    """The kernel with blocks for the cache; without accumulators unless a sequential axis is cut.

    chunk_elements: the most elements of a value that one op hands to another, if it is not to be ours.
    """
    kernel = reordered(kernel)
    one_step = whole(kernel)
    sizes = {axis.name: axis.size for axis in kernel.axes}
    blocks = one_step.blocks()
    handed = {arg.axes for block in blocks for arg in block.args if arg.op not in ("load", "constant")}
    held = {operand.name: operand.type.elements for operand in kernel.inputs}
    windows = {arg.axes for block in blocks for arg in block.args if block.op == "dot" and arg.op == "load"
               and held[arg.attrs["ref"]] < prod(sizes[name] for name in arg.axes)}  # it will be copied
    elements = {axes: prod(sizes[name] for name in axes) for axes in handed | windows}
    limit = chunk_elements or (DOT_CHUNK_ELEMENTS if any(b.op == "dot" for b in blocks) else CHUNK_ELEMENTS)
    largest = max(elements, key=elements.__getitem__, default=())
    cuttable = [axis for axis in kernel.axes if axis.kind is not AxisKind.WHOLE and axis.name in largest]
    if not cuttable or elements[largest] <= limit or kernel.scalars:
        return one_step.tiled(sizes)
    steps = -(-elements[largest] // limit)
    axis = next((axis for axis in cuttable if axis.size >= steps), max(cuttable, key=lambda axis: axis.size))
    steps = min(axis.size, steps)
    cut = kernel if axis.kind is AxisKind.SEQUENTIAL else one_step
    return cut.tiled({**sizes, axis.name: -(-axis.size // steps)})  # steps of about equal size


def reordered(kernel: Kernel) -> Kernel:
    """The kernel with its axes in the order in which its arrays lie in memory, the larger arrays first.

    A value's dimensions follow the kernel's order, and numpy is fast where it walks all arrays alike. The
    axes of an output keep their order, since a dot writes straight into it.
    """
    order: list[str] = []
    arrays = sorted(kernel.inputs, key=lambda operand: -operand.type.elements)
    for operand in (*kernel.outputs, *arrays):
        place = len(order)
        for axis in reversed(operand.axes):
            if axis not in order:
                order.insert(place, axis)
            place = order.index(axis)
    order += [axis.name for axis in kernel.axes if axis.name not in order]

    def sort(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(names, key=order.index))

    scratch = tuple(replace(s, axes=sort(s.axes)) for s in kernel.scratch)
    body = kernel.mapped(lambda block: replace(block, axes=sort(block.axes))).body
    return replace(kernel, axes=tuple(map(kernel.axis, order)), scratch=scratch, body=body)
