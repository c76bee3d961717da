"""Windows: which elements of an array in HBM a block's copy moves, and where in the block they go.

    x: f32[130,784] at (m, k), block 64 x 112, last m    ->  element s5, shape (2, 112), strides (784, 1)
    x: f32[32] at (m - 1), fill 0, first m               ->  element 0, shape 7, to the block's second element

Goes in: an operand and a step. Comes out: the operands of one DMA. Only what lies inside the array is
copied. Where an index can leave the array (`fill`), the window is clipped at both ends, to nothing if need
be; elsewhere that cannot happen, and no code is spent on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from minicc.kernel.ir import Operand
from minicc.tpu.assembly import Scalar, Writer
from minicc.tpu.layout import Layout
from minicc.tpu.machine import LANES
from minicc.tpu.steps import Point


@dataclass(frozen=True)
class Window:
    """element: the first one in HBM. rows: what to add up for its row in the block, lane: its lane there."""

    element: Scalar
    shape: tuple[Scalar, ...]
    strides: tuple[int, ...]
    rows: tuple[Scalar, ...] = ()
    lane: Scalar = 0


def window(write: Writer, layout: Layout, operand: Operand, point: Point) -> Window:
    """The part of an operand's block that lies in its array, at a step of the grid."""
    kernel, sizes = layout.kernel, operand.type.shape
    strides = [prod(sizes[dim + 1:]) for dim in range(len(sizes))]
    frame, dims = layout.operands[operand.name], layout.dims(operand)
    starts = [point.index(index) for index in operand.index]
    element: Scalar = 0
    for start, stride in zip(starts, strides, strict=True):
        element = write.add(element, write.mul(start, stride))
    shape: list[Scalar] = [point.extent(kernel.axis(name)) for name, *_ in dims]
    steps = [strides[dim] * stride for _, dim, stride in dims]
    skipped: list[Scalar] = [0] * len(dims)
    if operand.fill is not None:
        for number, (_, dim, stride) in enumerate(dims):
            skipped[number], shape[number] = _inside(write, starts[dim], sizes[dim], stride, shape[number])
            element = write.add(element, write.mul(skipped[number], steps[number]))
        inside = _stands_inside(write, operand, [dim for _, dim, _ in dims], starts)
    if not dims or (frame.rows and not frame.cols):  # a column, or a single element: one lane
        shape, steps, skipped = [*shape, 1], [*steps, 1], [*skipped, 0]
    if operand.fill is not None:
        shape[-1] = write.mul(shape[-1], inside)
        element = write.max(element, 0)  # of a block all outside, which copies nothing
    panel = write.div(skipped[-1], LANES)
    lane = write.sub(skipped[-1], write.mul(panel, LANES))
    rows = (*skipped[:-1], write.mul(panel, layout.pitch(frame)))
    return Window(element, tuple(shape), tuple(steps), rows, lane)


def _inside(write: Writer, start: Scalar, size: int, stride: int, extent: Scalar) -> tuple[Scalar, Scalar]:
    """How many elements of a block come before the array, and how many then lie inside it."""
    before, until = (write.div(write.max(write.sub(edge + stride - 1, start), 0), stride)
                     for edge in (0, size))
    return before, write.max(write.sub(write.min(extent, until), before), 0)


def _stands_inside(write: Writer, operand: Operand, walked: list[int], starts: list[Scalar]) -> Scalar:
    """1 if the dimensions of which the block has one element stand inside the array there, else 0."""
    inside: Scalar = 1
    for dim, start in enumerate(starts):
        if dim not in walked:
            size = operand.type.shape[dim]
            inside = write.mul(inside, write.mul(write.less(-1, start), write.less(start, size)))
    return inside
