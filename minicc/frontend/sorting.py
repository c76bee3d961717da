"""Order: sort, argsort, topk, medians; and what runs along an axis: cumulative sums, counts, differences.

    sort(x)       x: f32[4]   block 2: 0-1 2-3      each pair of lines: the smaller goes to the left
                              block 4: 0-3 1-2      then 0-1 2-3
    cumsum(x)     x: f32[8]   x + x moved on by 1, then by 2, then by 4

In: tensors. Out: tensors. Sorting is Batcher's bitonic network: for n elements log2(n) * (log2(n) + 1) / 2
rounds, in each of which every element is compared with one partner, all at once, whatever the data is. A
partner is a reverse away, so a round is compares and selects and no lookups. Invariants: every element
carries its index and equal ones are ordered by it, so the sort is stable, and the gradient goes where the
element came from; NaN is last, as in numpy (and first where the largest is, as in torch).

XLA has a sort op, which becomes such a network on TPUs; numpy and torch on CPUs sort in n log(n) steps that
depend on the data. Source: K. Batcher, "Sorting networks and their applications", AFIPS 1968. Read next:
einsum.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from minicc.errors import CompileError, DtypeError
from minicc.frontend import ops
from minicc.frontend.joining import concatenate
from minicc.frontend.primitives import (
    TensorLike,
    as_float,
    as_integer,
    as_integers,
    as_tensor,
    as_tensors,
    first_in_f32,
    in_f32,
    is_number,
    node,
    normal_axes,
    torch_names,
)
from minicc.frontend.scope import fail
from minicc.frontend.shapes import broadcast, cut, flip, moveaxis, one_axis, reshape, unsqueeze
from minicc.graph.ir import BOOL, F32, I32, DType

if TYPE_CHECKING:
    from minicc.frontend.tensor import Tensor


def limit(dtype: DType, largest: bool) -> Tensor:
    """The largest or the smallest number of a dtype: an infinity, for floats."""
    if dtype.kind == "f":
        return as_tensor(math.inf if largest else -math.inf, dtype)
    bounds = np.iinfo(dtype.numpy)
    return as_tensor(int(bounds.max if largest else bounds.min), dtype)


# -- the network ---------------------------------------------------------------------------------------------


def _round(keys: Tensor, tags: Tensor, block: int, mirrored: bool) -> tuple[Tensor, Tensor]:
    """One round: each element of a block's left half meets one of the right half, and the smaller goes left.

    mirrored: the first meets the last, as two sorted halves ask for; else the first meets the first.
    """
    flat, shape = keys.shape, (keys.shape[0] // block, 2, block // 2, keys.shape[1])
    keys, tags = reshape(keys, shape), reshape(tags, shape)
    axes = (1, 2) if mirrored else 1
    other_keys, other_tags = flip(keys, axes), flip(tags, axes)
    first = (keys < other_keys) | ((keys == other_keys) & (tags < other_tags))
    on_left = reshape(ops.iota(2) == 0, (2, 1, 1))
    stays = ops.equal(first, on_left)
    keys, tags = ops.where(stays, keys, other_keys), ops.where(stays, tags, other_tags)
    return reshape(keys, flat), reshape(tags, flat)


def _network(keys: Tensor, tags: Tensor) -> tuple[Tensor, Tensor]:
    """Columns of a power of two elements in ascending order of keys, equal ones of tags."""
    block = 2
    while block <= keys.shape[0]:
        keys, tags = _round(keys, tags, block, mirrored=True)
        part = block // 2
        while part > 1:
            keys, tags = _round(keys, tags, part, mirrored=False)
            part //= 2
        block *= 2
    return keys, tags


def _in_order(x: Tensor, descending: bool) -> tuple[Tensor, Tensor]:
    """Each column in order, and the index that each element had.

    Columns, so that the elements of different ones lie side by side: a reverse then moves whole rows.
    """
    n = x.shape[0]
    tags = node("iota", axis=0, shape=x.shape, dtype=I32)
    if n < 2 or not x.size:
        return x, tags
    wide = F32 if x.dtype.kind == "f" else I32  # once, rather than in every round
    keys = x.astype(wide) if x.dtype.narrow or x.dtype == BOOL else x
    turned = (lambda y: -y) if keys.dtype.kind == "f" else (lambda y: ~y)  # ~y is -y - 1, which always fits
    keys = turned(keys) if descending else keys
    if keys.dtype.kind == "f":  # a NaN is an infinity of which the tag tells: it comes after, or before, all
        none = x != x
        keys = ops.where(none, limit(keys.dtype, not descending), keys)
        tags = ops.where(none, tags - n if descending else tags + n, tags)
    high = 2 ** (n - 1).bit_length() - n, 0
    keys = node("pad", keys, limit(keys.dtype, True), low=(0, 0), high=high)
    tags = node("pad", tags, as_tensor(2 * n), low=(0, 0), high=high)
    keys, tags = (cut(y, 0, 0, n) for y in _network(keys, tags))
    keys = turned(keys) if descending else keys
    if keys.dtype.kind == "f":
        keys = ops.where((tags < 0) | (tags >= n), as_tensor(math.nan, keys.dtype), keys)
        tags = ops.where(tags < 0, tags + n, ops.where(tags >= n, tags - n, tags))
    return keys.astype(x.dtype), tags


def _sorted(op: str, x: TensorLike, axis: Any, descending: bool, count: int | None = None) -> list[Tensor]:
    """The elements in order along an axis, the first `count` of them; and their indices."""
    x = reshape(x, -1) if axis is None else as_tensor(x)
    at = one_axis(op, x, 0 if axis is None else axis)
    moved = moveaxis(x, at, 0)
    columns = reshape(moved, (moved.shape[0], math.prod(moved.shape[1:])))
    kept = moved.shape[0] if count is None else count
    return [moveaxis(reshape(cut(y, 0, 0, kept), (kept, *moved.shape[1:])), 0, at)
            for y in _in_order(columns, descending)]


@torch_names
def sort(x: TensorLike, axis: int | None = -1, descending: bool = False) -> Tensor:
    """The elements in ascending order along an axis, or of the flat tensor; NaN last."""
    return _sorted("sort", x, axis, descending)[0]


@torch_names
def argsort(x: TensorLike, axis: int | None = -1, descending: bool = False) -> Tensor:
    """The indices that sort x along an axis; of equal elements the first comes first."""
    return _sorted("argsort", x, axis, descending)[1]


@torch_names
def topk(x: TensorLike, k: int, axis: int = -1, largest: bool = True) -> tuple[Tensor, Tensor]:
    """The k largest elements along an axis, largest first, and their indices; or the smallest, likewise."""
    x, count = as_tensor(x), as_integer("topk", k, 0)
    size = x.shape[one_axis("topk", x, axis)]
    if count > size:
        fail("topk", "there are not so many elements", count, f"0 .. {size} for axis {axis} of {x.type}")
    values, indices = _sorted("topk", x, axis, largest, count)
    return values, indices


@torch_names
@first_in_f32
def quantile(x: TensorLike, q: float, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The number below which a share q of the elements lies, interpolated; NaN if one of them is."""
    if not isinstance(q, int | float) or not 0 <= q <= 1:
        fail("quantile", "this is no share", q, "one number, 0 .. 1", "percentile takes 0 .. 100")
    axes = normal_axes("quantile", x, axis)
    kept = [size for i, size in enumerate(x.shape) if i not in axes]
    count = math.prod(x.shape[axis] for axis in axes)
    if not count:
        fail("quantile", "there are no elements", x.type, "1 or more")
    columns = reshape(moveaxis(x, axes, range(len(axes))), [count, math.prod(kept)])
    ordered, place = _in_order(columns, False)[0], q * (count - 1)
    below, share = int(place), place - int(place)
    result, largest = ordered[below], ordered[-1]
    if share:
        result = result * (1 - share) + ordered[below + 1] * share
    result = ops.where(ops.equal(largest, largest), result, largest)
    return reshape(result, [1 if i in axes else size for i, size in enumerate(x.shape)] if keepdims else kept)


@torch_names
def percentile(x: TensorLike, q: float, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The quantile for a share of q hundredths."""
    return quantile(x, q / 100 if isinstance(q, int | float) else q, axis, keepdims)


@torch_names
def median(x: TensorLike, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The middle element along axes, or the mean of the middle two, as in numpy (torch: the lower)."""
    return quantile(x, 0.5, axis, keepdims)


def searchsorted(ordered: TensorLike, values: TensorLike, side: str = "left") -> Tensor:
    """Where values go in an ascending row such that it stays so: before equal ones, or after ("right").

    Shapes: ordered[n], values[...] -> [...]. By counting: n compares for each value, all at once.
    """
    row, found = as_tensors((ordered, values), I32)
    if row.ndim != 1 or not isinstance(side, str) or side not in ("left", "right"):
        fail("searchsorted", "the row or the side does not fit", f"{row.type}, {side!r}",
             "one row, and 'left' or 'right'")
    found = unsqueeze(found, -1)
    before = ~_less(found, row) if side == "right" else _less(row, found)
    return ops.sum(before, -1)


def _less(x: Tensor, y: Tensor) -> Tensor:
    """x < y where a NaN is larger than all."""
    return (x < y) | ((x == x) & (y != y)) if x.dtype.kind == "f" else x < y


# -- running along an axis -----------------------------------------------------------------------------------


def _running(name: str, combine: Callable[..., Tensor], start: Callable[[DType], Tensor],
             words: str) -> Callable[..., Tensor]:
    """The function that combines each element with all before it, in log2(n) steps of twice the reach."""
    def steps(x: Tensor, at: int) -> Tensor:
        reach, size = 1, x.shape[at]
        while reach < size:
            low = [reach if axis == at else 0 for axis in range(x.ndim)]
            before = node("pad", cut(x, at, 0, size - reach), start(x.dtype), low=low, high=[0] * x.ndim)
            x, reach = combine(before, x), 2 * reach
        return x

    def running(x: TensorLike, axis: int | None = None) -> Tensor:
        x = reshape(x, -1) if axis is None else as_tensor(x)
        at = one_axis(name, x, 0 if axis is None else axis)
        if x.dtype.kind == "f":
            return in_f32(steps)(x, at=at)
        return steps(x.astype(I32) if x.dtype.narrow or x.dtype == BOOL else x, at)

    running.__name__ = running.__qualname__ = name
    running.__doc__ = f"{words} along an axis, or of the flat tensor."
    return torch_names(running)


cumsum = _running("cumsum", ops.add, lambda dtype: as_tensor(0, dtype), "The sums of all elements up to each")
cumprod = _running("cumprod", ops.multiply, lambda dtype: as_tensor(1, dtype), "The products up to each")
cummax = _running("cummax", ops.maximum, lambda dtype: limit(dtype, False), "The largest elements up to each")
cummin = _running("cummin", ops.minimum, lambda dtype: limit(dtype, True), "The smallest elements up to each")


@torch_names
def diff(x: TensorLike, n: int = 1, axis: int = -1) -> Tensor:
    """What each element has more than the one before it, n times over; of bools, whether it changed."""
    x, times = as_tensor(x), as_integer("diff", n, 0)
    at = one_axis("diff", x, axis)
    for _ in range(min(times, x.shape[at])):
        after, before = cut(x, at, 1, x.shape[at]), cut(x, at, 0, x.shape[at] - 1)
        x = ops.not_equal(after, before) if x.dtype == BOOL else after - before
    return x


# -- counts --------------------------------------------------------------------------------------------------


def bincount(x: TensorLike, weights: TensorLike = None, *, length: int | None = None) -> Tensor:
    """How often each of 0 .. length-1 occurs, or the sum of its weights; others are left out, as in JAX."""
    x = as_tensor(x)
    if x.dtype.kind != "i" or x.ndim != 1:
        fail("bincount", "what is counted is a row of integers", x.type, "i32[n]", kind=DtypeError)
    if length is None:
        fail("bincount", "the number of bins would depend on the data", x.type, "length=", kind=CompileError)
    added = broadcast(as_tensor(1), x.shape) if weights is None else as_tensors((weights,), I32)[0]
    bins = broadcast(as_tensor(0, added.dtype), as_integers("bincount", length))
    return node("scatter", bins, x.astype(I32), added, axis=0, kind="sum")


def histogram(x: TensorLike, bins: int = 10, range: Any = None) -> tuple[Tensor, Tensor]:
    """How many elements lie in each of some bins of equal width from range[0] to range[1]; and the edges."""
    x, count = reshape(as_float(x), -1), as_integer("histogram", bins, 1)
    pair = isinstance(range, tuple | list) and len(range) == 2 and all(map(is_number, range))
    if not pair or not range[0] < range[1]:
        hint = "range=(0.0, 1.0): edges that depend on the data are not known here"
        fail("histogram", "this is no range", range, "(low, high)", hint, CompileError)
    edges = as_tensor(np.linspace(range[0], range[1], count + 1).astype(np.float32))
    x = unsqueeze(x.astype(F32), 1)
    below = concatenate([ops.sum(x < edges[:-1], 0), ops.sum(x <= edges[-1:], 0)])
    return diff(below), edges
