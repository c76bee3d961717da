"""Operands as addresses: an offset and a stride per axis, and how far they leave their array.

    x: f32[8,16] at (2*m+1, k)   ->   flat index 32*m+k+16
    x: f32[8,16] at (k, m)       ->   flat index 16*k+m

Goes in: an Operand, whose buffer is contiguous and row-major. Comes out: its position in the flat buffer as
one affine Index, which is all that CUDA code needs, and what vector mode makes a view of. numpy itself,
tinygrad's ShapeTracker and a TMA descriptor all are this. Read next: vector.py or lower.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from minicc.errors import OutOfRangeError
from minicc.graph.ir import Type
from minicc.kernel.ir import Index, Operand


def flat_index(index: Sequence[Index], shape: Sequence[int]) -> Index:
    """Where an operand points in its flattened array; each axis once.

    >>> str(flat_index((Index((("m", 2),), 1), Index.axis("k")), (8, 16)))
    '32*m+k+16'
    """
    strides: dict[str, int] = {}  # of the affine part; lookups are for the reader to add
    offset = 0
    for dim, part in enumerate(index):
        stride = prod(shape[dim + 1 :])
        offset += stride * part.offset
        for name, step in part.terms:
            strides[name] = strides.get(name, 0) + stride * step
    return Index(tuple(strides.items()), offset)


def padding(operand: Operand, sizes: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
    """How far the operand leaves its array, before and behind, per dimension. Units: elements.

    What is looked up without a clamp counts as 0: it is checked as it runs.
    Raises: OutOfRangeError if it does, and has no fill.
    """
    pads = []
    for index, size in zip(operand.index, operand.type.shape, strict=True):
        reach = [stride * (sizes[name] - 1) for name, stride in index.terms]
        reach += [lookup.clamp or 0 for lookup in index.lookups]
        low, high = (index.offset + sum(end(0, r) for r in reach) for end in (min, max))
        pads.append((max(0, -low), max(0, high - size + 1)))
    if operand.fill is None and any(map(any, pads)):
        raise OutOfRangeError(
            operand.name, "an operand without a fill leaves its array",
            got=f"{operand}, which leaves it by {pads}", need="an index within the array, or a fill",
            hint="a limit on the axes' sizes, or fill=0.0")
    return tuple(pads)


def enlarged(operand: Operand, pads: Sequence[tuple[int, int]]) -> Operand:
    """The operand within its array after padding, which it never leaves."""
    sides = list(zip(operand.index, operand.type.shape, pads, strict=True))
    index = tuple(part.scaled(1, low) for part, _, (low, _) in sides)
    shape = tuple(low + size + high for _, size, (low, high) in sides)
    return replace(operand, type=Type(operand.type.dtype, shape), index=index, fill=None)
