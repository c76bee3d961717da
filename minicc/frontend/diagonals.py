"""Diagonals and triangles of matrices, which are the last two axes unless others are named.

    diagonal(x)   x: f32[3,3]  ->  slice(reshape(x) shape=[9]) start=[0] limit=[9] stride=[4]
    diag(v)       v: f32[3]    ->  reshape(pad(v) interior=[3]) shape=[3,3]
    tril(x)                    ->  select(rows >= columns, x, 0.0)

In: tensors. Out: tensors. A diagonal is a slice of the flat matrix with a stride of a row and one more, so it
costs no lookups, and its gradient is a pad. Read next: sorting.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minicc.frontend import ops
from minicc.frontend.primitives import TensorLike, as_integer, as_tensor, node
from minicc.frontend.scope import fail
from minicc.frontend.shapes import broadcast, cut, moveaxis, one_axis, reshape
from minicc.graph.ir import I32

if TYPE_CHECKING:
    from minicc.frontend.tensor import Tensor


def _matrices(op: str, x: TensorLike) -> Tensor:
    x = as_tensor(x)
    if x.ndim < 2:
        fail(op, "there are no rows and columns", x.type, "rank 2 or more")
    return x


def _triangle(op: str, x: TensorLike, k: int, lower: bool) -> Tensor:
    """x where column - row <= k, or (upper) >= k; else 0."""
    x, k = _matrices(op, x), as_integer(op, k)
    row, column = (node("iota", axis=axis, shape=x.shape[-2:], dtype=I32) for axis in (0, 1))
    kept = row + k >= column if lower else row + k <= column
    return ops.where(broadcast(kept, x.shape), x, as_tensor(0, x.dtype))


def tril(x: TensorLike, k: int = 0) -> Tensor:
    """The lower triangle, up to the k-th diagonal above the main one; zeros elsewhere."""
    return _triangle("tril", x, k, lower=True)


def triu(x: TensorLike, k: int = 0) -> Tensor:
    """The upper triangle, from the k-th diagonal above the main one on; zeros elsewhere."""
    return _triangle("triu", x, k, lower=False)


def diagonal(x: TensorLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The elements whose place on axis2 is `offset` more than on axis1, in a new last axis."""
    x, offset = _matrices("diagonal", x), as_integer("diagonal", offset)
    one, two = one_axis("diagonal", x, axis1), one_axis("diagonal", x, axis2)
    x = moveaxis(x, (one, two), (-2, -1))
    *lead, rows, columns = x.shape
    flat, step = reshape(x, [*lead, rows * columns]), columns + 1
    count = min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns)
    if count < 1:
        return cut(flat, len(lead), 0, 0)
    first = offset if offset >= 0 else -offset * columns
    return cut(flat, len(lead), first, first + (count - 1) * step + 1, step)


def trace(x: TensorLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The sum of a diagonal."""
    return ops.sum(diagonal(x, offset, axis1, axis2), -1)


def diag(x: TensorLike, k: int = 0) -> Tensor:
    """The k-th diagonal of a matrix; of a row, the square matrix that has it there."""
    x = as_tensor(x)
    if x.ndim > 2 or not x.ndim:
        fail("diag", "this is neither a row nor a matrix", x.type, "rank 1 or 2", "diagonal")
    return diagonal(x, k) if x.ndim == 2 else diag_embed(x, k)


def diag_embed(x: TensorLike, offset: int = 0) -> Tensor:
    """Square matrices with the rows of x on their diagonals, in two new last axes."""
    x, offset = as_tensor(x), as_integer("diag_embed", offset)
    if not x.ndim:
        fail("diag_embed", "a scalar is no diagonal", x.type, "rank 1 or more")
    *lead, count = x.shape
    side, around = count + abs(offset), [0] * len(lead)
    first = offset if offset >= 0 else -offset * side
    used = first + count + max(count - 1, 0) * side
    flat = node("pad", x, as_tensor(0, x.dtype), low=[*around, first], interior=[*around, side],
                high=[*around, side * side - used])
    return reshape(flat, [*lead, side, side])
