"""Operands as addresses: one flat index, and the numpy view that walks it.

    x: f32[8,16] at (2*m+1, k)   ->   flat index 32*m+k+16   ->   x[1::2]
    x: f32[8,16] at (k, m)       ->   flat index 16*k+m      ->   x.transpose(1, 0)

Goes in: an Operand, whose buffer is contiguous and row-major. Comes out: its position in the flat buffer as
one affine Index, which is all that CUDA code needs, and the text of a numpy view with one dimension per
axis, which never copies. An operand that leaves its array and reads `fill` there is first copied into a
larger one. numpy itself, tinygrad's ShapeTracker and a TMA descriptor all are this: an offset and a stride
per axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from minicc.errors import OutOfRangeError
from minicc.kernel.ir import Index, Operand


def flat_index(index: Sequence[Index], shape: Sequence[int]) -> Index:
    """Where an operand points in its flattened array; each axis once.

    >>> str(flat_index((Index((("m", 2),), 1), Index.axis("k")), (8, 16)))
    '32*m+k+16'
    """
    strides: dict[str, int] = {}
    offset = 0
    for dim, part in enumerate(index):
        stride = prod(shape[dim + 1 :])
        offset += stride * part.offset
        for name, step in part.terms:
            strides[name] = strides.get(name, 0) + stride * step
    return Index(tuple(strides.items()), offset)


def span(index: Index, sizes: Mapping[str, int]) -> tuple[int, int]:
    """The smallest and the largest value of an index over all its axes."""
    reach = [stride * (sizes[name] - 1) for name, stride in index.terms]
    return index.offset + sum(min(0, r) for r in reach), index.offset + sum(max(0, r) for r in reach)


def padding(operand: Operand, sizes: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
    """How far the operand leaves its array, before and behind, per dimension. Units: elements.

    Raises: OutOfRangeError if it does, and has no fill.
    """
    spans = [span(index, sizes) for index in operand.index]
    ends = zip(spans, operand.type.shape, strict=True)
    pads = tuple((max(0, -low), max(0, high - size + 1)) for (low, high), size in ends)
    if operand.fill is None and any(map(any, pads)):
        raise OutOfRangeError(
            operand.name, "an operand without a fill leaves its array", got=f"{operand}, which spans {spans}",
            need="an index within the array, or a fill", hint="a limit on the axes' sizes, or fill=0.0",
        )
    return pads


def view_text(
    name: str, index: Sequence[Index], shape: Sequence[int], sizes: Mapping[str, int], axes: Sequence[str]
) -> str:
    """numpy text for the view of array `name`, of this shape, a dimension for each axis, in order."""
    found = [term[0] for part in index for term in part.terms]
    simple = all(len(part.terms) <= 1 and all(s > 0 for _, s in part.terms) for part in index)
    if not simple or sorted(found) != sorted(axes):
        flat = flat_index(index, shape)
        strides = [dict(flat.terms).get(axis, 0) for axis in axes]
        return f"strided({name}, {flat.offset}, {tuple(sizes[axis] for axis in axes)}, {tuple(strides)})"
    parts = [_slice_text(part, size, sizes) for part, size in zip(index, shape, strict=True)]
    while parts and parts[-1] == ":":
        parts.pop()
    text = f"{name}[{', '.join(parts)}]" if parts else name
    if found != list(axes):
        text += f".transpose({', '.join(str(found.index(axis)) for axis in axes)})"
    return text if axes or shape else f"{name}[()]"


def _slice_text(index: Index, size: int, sizes: Mapping[str, int]) -> str:
    if not index.terms:
        return str(index.offset)
    ((axis, stride),) = index.terms
    stop = index.offset + stride * (sizes[axis] - 1) + 1
    start_text = str(index.offset) if index.offset else ""
    stop_text = str(stop) if len(range(index.offset, size, stride)) != sizes[axis] else ""
    return f"{start_text}:{stop_text}" + (f":{stride}" if stride > 1 else "")
