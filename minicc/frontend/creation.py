"""Tensors from nothing, from numbers, and from other tensors' shapes.

    zeros(2, 3)      ->  broadcast_in_dim(0.0) shape=[2,3]      lazy: costs no memory until it must
    arange(4)        ->  iota axis=0 shape=[4] : i32
    asarray([1, 2])  ->  a tensor with data

In: shapes, as sizes or as one tuple; numbers. Out: tensors. Invariants: what can be counted is counted by the
machine that uses it, so a mask or a grid takes no memory of its own; only logspace and geomspace are computed
here, in float64, since their logarithms would be rounded. Read next: random.py.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from minicc.errors import OutOfRangeError
from minicc.frontend import ops
from minicc.frontend import tensor as tensors
from minicc.frontend.arrays import as_dtype
from minicc.frontend.primitives import TensorLike, as_integers, as_number, as_tensor, node
from minicc.frontend.scope import fail
from minicc.frontend.shapes import broadcast, broadcast_arrays, reshape
from minicc.graph.ir import F32, I32

if TYPE_CHECKING:
    from minicc.frontend.tensor import Tensor

# -- one value -----------------------------------------------------------------------------------------------


def full(shape: Any, value: TensorLike, dtype: Any = None) -> Tensor:
    """A tensor whose elements are all this number."""
    scalar = as_tensor(value, None if dtype is None else as_dtype(dtype))
    return broadcast(scalar, as_integers("full", shape))


def zeros(*shape: Any, dtype: Any = F32) -> Tensor:
    """A tensor of zeros."""
    return full(as_integers("zeros", shape), 0, dtype)


def ones(*shape: Any, dtype: Any = F32) -> Tensor:
    """A tensor of ones."""
    return full(as_integers("ones", shape), 1, dtype)


def empty(*shape: Any, dtype: Any = F32) -> Tensor:
    """A tensor of zeros: nothing is ever uninitialised here."""
    return zeros(*shape, dtype=dtype)


def full_like(x: TensorLike, value: TensorLike, dtype: Any = None) -> Tensor:
    """A tensor of x's shape and dtype whose elements are all this number."""
    x = as_tensor(x)
    return full(x.shape, value, dtype or x.dtype)


def zeros_like(x: TensorLike, dtype: Any = None) -> Tensor:
    """Zeros of x's shape and dtype."""
    return full_like(x, 0, dtype)


def ones_like(x: TensorLike, dtype: Any = None) -> Tensor:
    """Ones of x's shape and dtype."""
    return full_like(x, 1, dtype)


# -- counts --------------------------------------------------------------------------------------------------


def arange(start: float, stop: float | None = None, step: float = 1, dtype: Any = None) -> Tensor:
    """start, start + step, ... before stop; from 0 if there is one number. i32, or f32 if one is a float."""
    start, stop = (0, start) if stop is None else (start, stop)
    if any(isinstance(number, float | np.floating) for number in (start, stop, step)):
        first, last, step, least = float(start), float(stop), float(step), F32
    else:
        (first, last, step), least = as_integers("arange", (start, stop, step)), I32
    if not (step and all(map(math.isfinite, (first, last, step)))):
        need = "finite numbers and a step other than 0"
        fail("arange", "this leads nowhere", f"{start} to {stop} by {step}", need)
    count = max(math.ceil((last - first) / step), 0)
    final = first + (count - 1) * step
    if least is I32 and count and not -2**31 <= min(first, final) <= max(first, final) < 2**31:
        fail("arange", "a number does not fit i32", f"{first} to {final}", "-2147483648 .. 2147483647",
             kind=OutOfRangeError)
    counts = ops.iota(count, least)
    counts = counts if step == 1 else counts * step
    counts = counts if first == 0 else counts + first
    return counts if dtype is None else ops.astype(counts, dtype)


def linspace(start: float, stop: float, num: int = 50, endpoint: bool = True, dtype: Any = F32) -> Tensor:
    """`num` numbers evenly spread from start to stop; without the last, if endpoint is False."""
    start, stop, count = _span("linspace", start, stop, num)
    counts, steps = ops.iota(count, F32), max(count - 1 if endpoint else count, 1)
    spread = counts * ((stop - start) / steps) + start
    return ops.astype(ops.where(counts == steps, float(stop), spread), dtype)


def logspace(start: float, stop: float, num: int = 50, endpoint: bool = True, base: float = 10.0) -> Tensor:
    """base ** start to base ** stop, each as many times the one before."""
    return tensors.Tensor(np.logspace(*_span("logspace", start, stop, num), endpoint, base).tolist())


def geomspace(start: float, stop: float, num: int = 50, endpoint: bool = True) -> Tensor:
    """start to stop, each as many times the one before."""
    span = _span("geomspace", start, stop, num)
    if start * stop <= 0:
        fail("geomspace", "no factor leads there", f"{start} to {stop}", "numbers of one sign, not 0")
    return tensors.Tensor(np.geomspace(*span, endpoint).tolist())


def _span(op: str, start: float, stop: float, num: int) -> tuple[float, float, int]:
    """Two numbers and a count, checked."""
    count, = as_integers(op, num)
    if count < 0:
        fail(op, "the count is negative", count, "0 or more")
    return as_number(op, start), as_number(op, stop), count


def eye(rows: int, columns: int | None = None, k: int = 0, dtype: Any = F32) -> Tensor:
    """Ones on the k-th diagonal, counted to the right, else zeros; square if there is one size."""
    row, column = _grid("eye", rows, columns)
    return ops.astype(column - row == k, dtype)


def identity(size: int, dtype: Any = F32) -> Tensor:
    """The identity matrix."""
    return eye(size, dtype=dtype)


def tri(rows: int, columns: int | None = None, k: int = 0, dtype: Any = F32) -> Tensor:
    """Ones on the k-th diagonal and below, and zeros above."""
    row, column = _grid("tri", rows, columns)
    return ops.astype(column - row <= k, dtype)


def _grid(op: str, rows: int, columns: int | None) -> list[Tensor]:
    """The row number and the column number of each element of a matrix."""
    shape = as_integers(op, (rows, rows if columns is None else columns))
    return [node("iota", axis=axis, shape=shape, dtype=I32) for axis in (0, 1)]


def meshgrid(*axes: TensorLike, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Coordinates of a grid, one tensor per axis; "xy" swaps the first two, as numpy does, "ij" does not."""
    if indexing not in ("xy", "ij"):
        fail("meshgrid", "there is no such indexing", indexing, "'xy' or 'ij'")
    order = list(range(len(axes)))
    if indexing == "xy" and len(axes) > 1:
        order[:2] = 1, 0
    columns = [reshape(x, [-1 if order[i] == place else 1 for place in range(len(axes))])
               for i, x in enumerate(axes)]
    return broadcast_arrays(*columns)


# -- data ----------------------------------------------------------------------------------------------------


def asarray(data: Any, dtype: Any = None) -> Tensor:
    """A tensor of numbers, lists or arrays; a tensor is passed through."""
    return tensors.Tensor(data, dtype)
