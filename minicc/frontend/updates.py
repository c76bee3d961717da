"""Writing elements, which gives a new tensor: x.at[key].set(v) and the functions that name the axis instead.

    x: f32[5,4]    x.at[1:3].set(v)       ->  dynamic_update_slice(x, v, 1, 0)
                   x.at[::2].add(v)       ->  select(pad(true) .., pad(x[::2] + v) .., x)
                   x.at[[4, 0]].add(v)    ->  scatter(x, [4, 0], v) axis=0 kind=sum

In: a tensor, a key, and values that broadcast to x[key], in x's dtype. Out: a tensor like x. Keys are those
of indexing.py, made into the same plans. Invariants: an index that is known must lie inside; one that is
computed and does not is dropped, on every device alike, as in JAX. Where indices repeat, set keeps the last
in row-major order, and add, multiply, min and max take all of them in that order.

numpy and torch write in place, and so must know who shares the memory; XLA copies unless it can prove that
the old array is not needed, and then writes in place. Read next: joining.py.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minicc.errors import CompileError, DtypeError
from minicc.frontend import ops
from minicc.frontend.indexing import Plan, along, cut_out, looked_up, pick, plan, starts
from minicc.frontend.primitives import TensorLike, as_tensor, node
from minicc.frontend.promotion import KINDS
from minicc.frontend.scope import fail
from minicc.frontend.shapes import broadcast, broadcast_shapes, flip, one_axis, reshape, transpose
from minicc.graph.ir import BOOL

if TYPE_CHECKING:
    from minicc.frontend.tensor import Tensor

# scatter's kind -> how two elements combine
COMBINE: dict[str, Callable[[Any, Any], Tensor]] = {
    "set": lambda old, new: new, "sum": operator.add, "prod": operator.mul,
    "max": ops.maximum, "min": ops.minimum,
}


def put(x: Tensor, plan: Plan, values: TensorLike, kind: str) -> Tensor:
    """x with the elements that a plan picks combined with values."""
    old, new = cut_out(x, plan), as_values("at", x, values)
    if not plan.arrays:
        new = COMBINE[kind](old, _fitted(new, old.shape))
    else:
        merged, flat, perm = looked_up(old, plan, clamp=False)
        shape = merged.shape[:plan.place] + flat.shape + merged.shape[plan.place + 1:]
        new = node("scatter", merged, flat, _fitted(new, shape), axis=plan.place, kind=kind)
        new = reshape(new, [old.shape[axis] for axis in perm])
        new = transpose(new, [perm.index(axis) for axis in range(len(perm))])
    return _put_back(x, plan.parts, reshape(new, [len(part) for part in plan.parts]))


def as_values(op: str, x: Tensor, values: TensorLike) -> Tensor:
    """What to write, in the dtype of x; floats do not go into integers unasked."""
    kind = as_tensor(values).dtype.kind
    if KINDS.index(kind) > KINDS.index(x.dtype.kind):
        fail(op, "the values do not fit the tensor's dtype", f"{as_tensor(values).type} into {x.type}",
             f"{x.dtype}", f"values.astype({str(x.dtype)!r}), or convert the tensor", DtypeError)
    return as_tensor(values, x.dtype)


def _fitted(values: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Values in the shape of what they replace."""
    ones = values.ndim - len(shape)
    if ones > 0 and values.shape[:ones] == (1,) * ones:
        values = reshape(values, values.shape[ones:])
    if values.ndim > len(shape) or broadcast_shapes("at", (values,), values.shape, shape) != shape:
        fail("at", "the values do not fit the place", values.type, f"what broadcasts to {list(shape)}")
    return broadcast(values, shape)


def _put_back(x: Tensor, parts: tuple[range, ...], new: Tensor) -> Tensor:
    """x with the elements that ranges cut out of it replaced."""
    if not new.size or parts == tuple(range(size) for size in x.shape):
        return new if new.shape == x.shape else x
    new = flip(new, [axis for axis, part in enumerate(parts) if part.step < 0])
    forward = [part if part.step > 0 else part[::-1] for part in parts]
    if all(part.step == 1 for part in forward if len(part) > 1):
        return node("dynamic_update_slice", x, new, *(as_tensor(part.start) for part in forward))
    around = {"low": [part.start for part in forward], "interior": [part.step - 1 for part in forward],
              "high": [size - 1 - part[-1] for part, size in zip(forward, x.shape, strict=True)]}
    written = node("pad", broadcast(as_tensor(True), new.shape), as_tensor(False), **around)
    return node("select", written, node("pad", new, as_tensor(0, x.dtype), **around), x)


# -- x.at[key] -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """x.at[key]: elements of a tensor, to be read or replaced in a new one."""

    tensor: Tensor
    plan: Plan

    def get(self) -> Tensor:
        """x[key]."""
        return pick(self.tensor, self.plan)

    def set(self, values: TensorLike) -> Tensor:
        """x with these elements replaced; where indices repeat, the last wins."""
        return put(self.tensor, self.plan, values, "set")

    def add(self, values: TensorLike) -> Tensor:
        """x with values added to these elements."""
        return put(self.tensor, self.plan, values, "sum")

    def multiply(self, values: TensorLike) -> Tensor:
        """x with these elements multiplied by values."""
        return put(self.tensor, self.plan, values, "prod")

    def max(self, values: TensorLike) -> Tensor:
        """x with the larger of each of these elements and its value."""
        return put(self.tensor, self.plan, values, "max")

    def min(self, values: TensorLike) -> Tensor:
        """x with the smaller of each of these elements and its value."""
        return put(self.tensor, self.plan, values, "min")


@dataclass(frozen=True)
class At:
    """x.at, which waits for a key."""

    tensor: Tensor

    def __getitem__(self, key: Any) -> Place:
        return Place(self.tensor, plan(self.tensor, key))


# -- by name -------------------------------------------------------------------------------------------------

_REDUCTIONS = {None: "set", "add": "sum", "sum": "sum", "multiply": "prod", "prod": "prod",
               "amax": "max", "max": "max", "amin": "min", "min": "min"}


def scatter(x: TensorLike, dim: int, index: TensorLike, src: TensorLike, reduce: str | None = None) -> Tensor:
    """torch's scatter: out[index[i, j], j] = src[i, j] for dim 0; reduce: add, multiply, amax or amin."""
    x = as_tensor(x)
    if not isinstance(reduce, str | None) or reduce not in _REDUCTIONS:
        need = "None, add, multiply, amax, amin"
        fail("scatter", "there is no such reduction", reduce, need, kind=CompileError)
    planned, values = along("scatter", x, index, dim), as_values("scatter", x, src)
    if values.ndim == x.ndim:  # torch's rule: what the index does not reach of src is left out
        shape = planned.arrays[one_axis("scatter", x, dim)].shape
        values = values[tuple(slice(size) for size in shape)]
    return put(x, planned, values, _REDUCTIONS[reduce])


def scatter_add(x: TensorLike, dim: int, index: TensorLike, src: TensorLike) -> Tensor:
    """torch's scatter_add: out[index[i, j], j] += src[i, j] for dim 0."""
    return scatter(x, dim, index, src, "add")


def put_along_axis(x: TensorLike, indices: TensorLike, values: TensorLike, axis: int) -> Tensor:
    """x with the elements that take_along_axis reads replaced by values."""
    x = as_tensor(x)
    return put(x, along("put_along_axis", x, indices, axis, whole=True), values, "set")


def index_add(x: TensorLike, dim: int, index: TensorLike, source: TensorLike) -> Tensor:
    """x with slices of source added to those slices of x that the index names."""
    x = as_tensor(x)
    at = one_axis("index_add", x, dim)
    return put(x, plan(x, (*[slice(None)] * at, index)), source, "sum")


def masked_fill(x: TensorLike, mask: TensorLike, value: TensorLike) -> Tensor:
    """x with one value wherever the mask holds."""
    x, mask = as_tensor(x), as_tensor(mask)
    if mask.dtype != BOOL:
        fail("masked_fill", "a mask is bool", mask.type, "bool", "compare it: mask != 0", DtypeError)
    return ops.where(mask, as_values("masked_fill", x, value), x)


def dynamic_update_slice(x: TensorLike, update: TensorLike, start: Any) -> Tensor:
    """x with a block replaced; its start may be computed, one integer per axis, and moves so that it fits."""
    x = as_tensor(x)
    update = as_values("dynamic_update_slice", x, update)
    return node("dynamic_update_slice", x, update, *starts("dynamic_update_slice", x, start, update.shape))
