"""What is made of sums and extremes: statistics, norms, positions, questions about all elements.

    var(x, ddof=1)  ->  d = x - mean(x); sum(d * d) / (count - 1)
    argmax(x, 1)    ->  min over axis 1 of where(x == max(x, 1), position, size)

In: tensors, arrays, numbers; `axis` is a number, several, or None for all. Out: tensors. Invariants: means
and their like are computed in f32 and rounded once, and are f32 for integers; NaN counts as in numpy, the
largest and the smallest element at once, unless the name begins with `nan`. numpy adds in pairs to lose less;
here it is the machine's order. Read next: functional.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minicc.errors import CompileError
from minicc.frontend import ops
from minicc.frontend.ops import astype, where
from minicc.frontend.primitives import (
    TensorLike,
    as_number,
    as_tensor,
    first_in_f32,
    node,
    normal_axes,
    torch_names,
)
from minicc.frontend.scope import fail
from minicc.frontend.shapes import broadcast_to, one_axis, reshape
from minicc.frontend.special import isclose, isnan
from minicc.graph.ir import F32, I32

if TYPE_CHECKING:
    from minicc.frontend.tensor import Tensor

# -- statistics ----------------------------------------------------------------------------------------------


def _count(x: Tensor, axis: Any) -> int:
    """How many elements each group has."""
    return math.prod(x.shape[i] for i in normal_axes("mean", x, axis))


@torch_names
@first_in_f32
def mean(x: TensorLike, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The arithmetic mean over an axis, several, or all."""
    return ops.sum(x, axis, keepdims) / float(_count(x, axis))


@torch_names
@first_in_f32
def var(x: TensorLike, axis: Any = None, keepdims: bool = False, *, ddof: int = 0,
        correction: int | None = None) -> Tensor:
    """The mean squared distance from the mean, over count - ddof; torch says correction, and means 1."""
    distance = x - mean(x, axis, True)
    freedom = max(_count(x, axis) - as_number("var", ddof if correction is None else correction), 0)
    return ops.sum(distance * distance, axis, keepdims) / float(freedom)


@torch_names
@first_in_f32
def std(x: TensorLike, axis: Any = None, keepdims: bool = False, **which: Any) -> Tensor:
    """The square root of var, with its ddof or correction."""
    return ops.sqrt(var(x, axis, keepdims, **which))


@torch_names
def ptp(x: TensorLike, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The largest less the smallest element, peak to peak."""
    return ops.max(x, axis, keepdims) - ops.min(x, axis, keepdims)


def average(x: TensorLike, axis: Any = None, weights: TensorLike = None) -> Tensor:
    """The mean, in which some weigh more than others; weights: one per element, or place of `axis`."""
    if weights is None:
        return mean(x, axis)
    x, weights = as_tensor(x), as_tensor(weights)
    if weights.shape != x.shape:
        at = None if axis is None else one_axis("average", x, axis)
        if at is None or weights.shape != x.shape[at:at + 1]:
            need = f"the shape of {x.type}, or with an axis a number for each of its places"
            fail("average", "the weights do not fit", weights.type, need)
        weights = broadcast_to(reshape(weights, -1, *[1] * (x.ndim - 1 - at)), x.shape)
    return ops.sum(x * weights, axis) / ops.sum(weights, axis)


@first_in_f32
def cov(x: TensorLike, *, ddof: int = 1) -> Tensor:
    """The covariance of variables, one per row, over the columns' count - ddof."""
    if x.ndim != 2:
        fail("cov", "rows are variables and columns what was observed", x.type, "rank 2")
    distance = x - mean(x, 1, True)
    return distance @ distance.T / float(x.shape[1] - as_number("cov", ddof))


@first_in_f32
def corrcoef(x: TensorLike) -> Tensor:
    """The correlation of variables, one per row: cov over the product of their deviations."""
    deviation = std(x, 1, True, ddof=1)
    return cov(x) / (deviation * deviation.T)


@torch_names
@first_in_f32
def norm(x: TensorLike, ord: float = 2, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The length of vectors: sum(abs(x) ** ord) ** (1 / ord); inf takes the largest, 0 counts what is not 0.

    The gradient of the length of zeros is 0, as in torch.
    """
    if not isinstance(ord, int | float):
        hint = "2 over both axes for 'fro'"
        fail("norm", "only norms of vectors", ord, "a number, or inf", hint, CompileError)
    if ord in (math.inf, -math.inf):
        return (ops.max if ord > 0 else ops.min)(abs(x), axis, keepdims)
    if ord == 0:
        return ops.sum(astype(x != 0, F32), axis, keepdims)
    total = ops.sum(x * x if ord == 2 else ops.power(abs(x), ord), axis, keepdims)
    return where(total == 0, 0.0, ops.power(where(total == 0, 1.0, total), 1 / ord))


# -- all, any, where -----------------------------------------------------------------------------------------


@torch_names
def any(x: TensorLike, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Whether an element is not 0."""
    return ops.sum(as_tensor(x) != 0, axis, keepdims) != 0


@torch_names
def all(x: TensorLike, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Whether no element is 0."""
    return ops.sum(as_tensor(x) == 0, axis, keepdims) == 0


@torch_names
def count_nonzero(x: TensorLike, axis: Any = None, keepdims: bool = False) -> Tensor:
    """How many elements are not 0, as i32."""
    return ops.sum(as_tensor(x) != 0, axis, keepdims)


def _first(op: str, x: TensorLike, axis: int | None, keepdims: bool) -> Tensor:
    """The first index of the extreme that `op` names; a NaN is one."""
    x, flat = as_tensor(x), axis is None
    rank = x.ndim
    if flat:
        x, axis = reshape(x, -1), 0
    axis, *more = normal_axes(op, x, axis)
    if more:
        fail(op, "more than one axis", [axis, *more], "one axis, or None for all of them")
    found = x == (ops.max if op == "argmax" else ops.min)(x, axis, True)
    if x.dtype.kind == "f":
        found = found | isnan(x)  # which equals nothing
    position = node("iota", axis=axis, shape=x.shape, dtype=I32)
    first = ops.min(where(found, position, x.shape[axis]), axis, keepdims)
    return reshape(first, (1,) * rank) if flat and keepdims else first


@torch_names
def argmax(x: TensorLike, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The first index of the largest element along one axis, or of the flat tensor; a NaN is largest."""
    return _first("argmax", x, axis, keepdims)


@torch_names
def argmin(x: TensorLike, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The first index of the smallest element along one axis, or of the flat tensor; a NaN is smallest."""
    return _first("argmin", x, axis, keepdims)


def allclose(x: TensorLike, y: TensorLike, **tolerance: Any) -> Tensor:
    """Whether all elements are close, as isclose says."""
    return all(isclose(x, y, **tolerance))


def array_equal(x: TensorLike, y: TensorLike) -> Tensor:
    """Whether shapes and all elements are equal."""
    x, y = as_tensor(x), as_tensor(y)
    return all(x == y) if x.shape == y.shape else as_tensor(False)


# -- without NaN ---------------------------------------------------------------------------------------------


@torch_names
def nansum(x: TensorLike, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The sum of what is not NaN."""
    return ops.sum(where(isnan(x), 0, x), axis, keepdims)


@torch_names
def nanprod(x: TensorLike, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The product of what is not NaN."""
    return ops.prod(where(isnan(x), 1, x), axis, keepdims)


@torch_names
@first_in_f32
def nanmean(x: TensorLike, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The mean of what is not NaN; NaN where nothing is."""
    return nansum(x, axis, keepdims) / ops.sum(~isnan(x), axis, keepdims)


@torch_names
@first_in_f32
def nanvar(x: TensorLike, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The mean squared distance from nanmean of what is not NaN."""
    distance = x - nanmean(x, axis, True)
    return nanmean(distance * distance, axis, keepdims)


@torch_names
@first_in_f32
def nanstd(x: TensorLike, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The square root of nanvar."""
    return ops.sqrt(nanvar(x, axis, keepdims))


def _ignoring_nan(reduce: Callable[..., Tensor], fill: float, *args: Any) -> Tensor:
    """A reduction with NaN as `fill`, which no other element loses to; NaN where there is nothing else."""
    x, *how = args
    x = as_tensor(x)
    if x.dtype.kind != "f":
        return reduce(x, *how)
    return where(all(isnan(x), *how), math.nan, reduce(where(isnan(x), fill, x), *how))


@torch_names
def nanmax(x: TensorLike, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The largest element that is not NaN; NaN where nothing is."""
    return _ignoring_nan(ops.max, -math.inf, x, axis, keepdims)


@torch_names
def nanmin(x: TensorLike, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The smallest element that is not NaN; NaN where nothing is."""
    return _ignoring_nan(ops.min, math.inf, x, axis, keepdims)
