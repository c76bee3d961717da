"""Windows: which elements of an array in HBM a block's copy moves, and where in the block they go.

    x: f32[130,784] at (m, k), block 64 x 112, last m    ->  element s5, shape (2, 112), strides (784, 1)
    x: f32[32] at (m - 1), fill 0, first m               ->  element 0, shape 7, to the block's second element
    x: f32[9,784] at (ids[b], k), in place               ->  element s7 * 784, shape 112, or 0 if ids[b] is 9

Goes in: an operand and a step. Comes out: the operands of one DMA. Only what lies inside the array is
copied. Where an index can leave the array, the window is clipped at both ends, to nothing if need be;
elsewhere that cannot happen, and no code is spent on it. Read next: steps.py, which finds the first element.
"""

from __future__ import annotations

from typing import Any

from minicc.kernel.index import Index
from minicc.kernel.ir import Kernel, Operand
from minicc.tpu.assembly import Scalar, Writer
from minicc.tpu.layout import Layout
from minicc.tpu.machine import LANES
from minicc.tpu.steps import Point, row_major

Window = tuple[Scalar, tuple[Scalar, ...], dict[str, Any]]


def window(write: Writer, layout: Layout, operand: Operand, point: Point) -> Window:
    """The part of an operand's block that lies in its array, at a step of the grid.

    Returns: the first element in HBM; what to add up for its row in the block; the attributes of the DMA.
    """
    sizes, frame, dims = operand.type.shape, layout.operands[operand.name], layout.dims(operand)
    strides, extents = row_major(sizes), point.extents()
    starts = [point.element(index) for index in operand.index]
    element = write.total(zip(starts, strides, strict=True))
    shape = [extents[name] for name, *_ in dims]
    steps = [strides[dim] * stride for _, dim, stride in dims]
    skipped: list[Scalar] = [0] * len(dims)
    inside: Scalar = 1  # 0 if a dimension of which the block has one element stands outside
    walked = {dim: (number, stride) for number, (_, dim, stride) in enumerate(dims)}
    for dim, (index, size) in enumerate(zip(operand.index, sizes, strict=True)):
        if not leaves(layout.kernel, index, size):
            continue
        number, stride = walked.get(dim, (None, 1))
        extent = 1 if number is None else shape[number]
        before, count = clipped(write, starts[dim], size, stride, extent)
        if number is None:
            inside = write.mul(inside, count)
        else:
            skipped[number], shape[number] = before, count
    element = write.total(zip(skipped, steps, strict=True), element)
    if not dims or (frame.rows and not frame.cols):  # a column, or a single element: one lane
        shape, steps, skipped = [*shape, 1], [*steps, 1], [*skipped, 0]
    shape[-1] = write.mul(shape[-1], inside)
    pitch, panel = layout.rows_apart(frame, operand.type.dtype), write.div(skipped[-1], LANES)
    lane = write.sub(skipped[-1], write.mul(panel, LANES))
    attrs = {"shape": tuple(shape), "strides": tuple(steps), "panel": pitch, "lane": lane}
    return element, (*skipped[:-1], write.mul(panel, pitch)), attrs


def leaves(kernel: Kernel, index: Index, size: int) -> bool:
    """Whether an index points outside of its dimension at some step."""
    spans = [stride * (kernel.axis(name).size - 1) for name, stride in index.terms]
    low, high = (index.offset + sum(edge(span, 0) for span in spans) for edge in (min, max))
    high += sum(lookup.clamp or 0 for lookup in index.lookups)
    return low < 0 or high >= size or any(lookup.clamp is None for lookup in index.lookups)


def clipped(write: Writer, start: Scalar, size: int, stride: int, extent: Scalar) -> tuple[Scalar, Scalar]:
    """How many elements of a block come before the array, and how many then lie inside it."""
    if stride < 0:  # seen from the array's other end
        start, stride = write.sub(size - 1, start), -stride
    before, until = (write.div(write.max(write.sub(edge + stride - 1, start), 0), stride)
                     for edge in (0, size))
    return before, write.max(write.sub(write.min(extent, until), before), 0)
