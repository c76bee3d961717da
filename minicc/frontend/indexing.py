"""Reading elements: x[key] in all of numpy's spellings, and the functions that name the axis instead.

    x: f32[5,4]    x[1:3, -1]       ->  reshape(slice(x) start=[1,3] limit=[3,4] stride=[1,1]) shape=[2]
                   x[::-1]          ->  reverse(x) axes=[0]
                   x[[4, 0], 1:]    ->  gather(slice(x) ..., [4, 0]) axis=0
                   x[rows, columns] ->  gather(reshape(x) shape=[20], rows * 4 + columns) axis=0

In: a tensor and a key. Out: a tensor. A key is first made into a `Plan`: what slices cut out of each axis,
and the axes that are looked up by integer arrays, which broadcast together. Invariants:
- An integer that is known where the key is written (a number, a list, an array, a Tensor with data) and that
  lies outside its axis is an error there. One that the program computes is CLAMPED to the axis, negative ones
  after they have counted from the end; on every device alike. (numpy cannot have this case; JAX clamps too.)
- Where the looked-up axes go is numpy's rule: where they were, if they stand side by side, else in front. An
  integer beside an array counts as an array.
- A mask picks as many elements as it has ones, so its data must be known where the key is written.

XLA lowers all of this to one gather with a dozen attributes; here a gather looks along one axis. Read next:
updates.py, which writes through the same plans.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from minicc.errors import CompileError, DtypeError, OutOfRangeError, a_type
from minicc.frontend import ops
from minicc.frontend import tensor as tensors
from minicc.frontend.primitives import TensorLike, as_integer, as_integers, as_tensor, node
from minicc.frontend.scope import EAGER, current, fail
from minicc.frontend.shapes import broadcast_shapes, flip, one_axis, reshape, transpose
from minicc.graph.ir import BOOL, I32

if TYPE_CHECKING:
    from minicc.frontend.tensor import Tensor

# -- from a key to a plan ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """What a key picks.

    parts: the elements that numbers and slices take along each axis of x. shape: what is left, reshaped.
    arrays: axis of that shape -> the indices to look up there. place: where their common axes go.
    """

    parts: tuple[range, ...]
    shape: tuple[int, ...]
    arrays: dict[int, Tensor]
    place: int


def plan(x: Tensor, key: Any) -> Plan:
    """The plan for x[key]."""
    parts: list[range] = []
    shape: list[int] = []
    arrays: dict[int, Tensor] = {}
    chosen: list[int] = []  # places in the key of what is no slice and no None
    items = _spelled_out(x, [_readable(item) for item in (key if isinstance(key, tuple) else (key,))])
    for at, item in enumerate(items):
        if item is None:
            shape.append(1)
            continue
        if not isinstance(item, slice):
            chosen.append(at)
        if _is_array(item):
            arrays[len(shape)] = as_indices("index", x, len(parts), item)
            item = slice(None)
        parts.append(_elements(x, len(parts), item))
        if isinstance(item, slice):
            shape.append(len(parts[-1]))
    broadcast_shapes("index", list(arrays.values()), *(one.shape for one in arrays.values()))
    together = bool(arrays) and chosen[-1] - chosen[0] < len(chosen)
    return Plan(tuple(parts), tuple(shape), arrays, chosen[0] if together else 0)


def _is_array(item: Any) -> bool:
    return isinstance(item, np.ndarray | tensors.Tensor)


def _readable(item: Any) -> Any:
    """An item of a key: lists as arrays, and masks as arrays of bools, whose data is there."""
    if isinstance(item, list | tuple):
        return as_tensor(item).numpy() if len(item) else np.zeros(0, np.int32)
    if isinstance(item, tensors.Tensor) and item.dtype == BOOL:
        if item.lazy or current() is not EAGER:
            fail("index", "a mask picks a number of elements that is not known here", item.type,
                 "a mask whose data is at hand", "where(mask, x, 0), or x[mask.numpy()]", DtypeError)
        return item.numpy()
    return item


def _is_mask(item: Any) -> bool:
    return isinstance(item, np.ndarray) and item.dtype == np.bool_ and item.ndim > 0


def _spelled_out(x: Tensor, items: list) -> list:
    """The items with one entry per axis of x: `...` as full slices, a mask as arrays; None stays."""
    dots = [i for i, item in enumerate(items) if item is Ellipsis]
    used = sum(item.ndim if _is_mask(item) else item is not None for item in items) - len(dots)
    if len(dots) > 1 or used > x.ndim:
        got, need = f"{used}, and {len(dots)} times '...'", f"at most {x.ndim} for {x.type}, and one '...'"
        fail("index", "too many indices", got, need, kind=OutOfRangeError)
    at = dots[0] if dots else len(items)
    spelled: list = []
    axis = 0
    for item in items[:at] + [slice(None)] * (x.ndim - used) + items[at + 1:]:
        sizes = x.shape[axis:axis + item.ndim] if _is_mask(item) else ()
        if _is_mask(item) and item.shape != sizes:
            fail("index", "the mask does not fit", f"bool{list(item.shape)}",
                 f"{list(sizes)}, axis {axis} of {x.type}", kind=OutOfRangeError)
        spelled += np.nonzero(item) if _is_mask(item) else [item]
        axis += len(sizes) if _is_mask(item) else item is not None
    return spelled


def _elements(x: Tensor, axis: int, item: Any) -> range:
    """The elements that an integer or a slice picks along one axis."""
    size = x.shape[axis]
    bounds = (item.start, item.stop, item.step) if isinstance(item, slice) else ()
    if any(isinstance(one, tensors.Tensor) and one.lazy and current() is not EAGER for one in bounds):
        fail("index", "the size of a slice is known while tracing, so its bounds are numbers", item,
             hint="x.narrow(axis, start, length), whose start may be computed", kind=CompileError)
    try:
        if isinstance(item, bool):
            raise TypeError
        picked = range(size)[item]
    except IndexError:
        _outside(x, axis, item)
    except (TypeError, ValueError):
        got = item if isinstance(item, slice) else a_type(item)
        fail("index", "only integers, slices, arrays of integers, masks, '...' and None can index a Tensor",
             got, hint="" if bounds else "x.int()", kind=DtypeError)
    return range(picked, picked + 1) if isinstance(picked, int) else picked


def _outside(x: Tensor, axis: int, item: Any) -> NoReturn:
    size = x.shape[axis]
    need = f"{-size} .. {size - 1}" if size else "nothing: the axis is empty"
    fail("index", f"axis {axis} of {x.type} has no such element", item, need, kind=OutOfRangeError)


def as_indices(op: str, x: Tensor, axis: int, indices: TensorLike) -> Tensor:
    """Indices along an axis of x as an i32 tensor, which counts from 0; checked as far as they are known."""
    indices, size = _readable(indices), x.shape[axis]
    found = indices if isinstance(indices, tensors.Tensor) else np.asarray(indices)
    if found.dtype.kind not in "iu":
        got = f"{found.dtype}{list(found.shape)}"
        fail(op, "an index is an integer", got, "integers", "x.int(), which drops fractions", DtypeError)
    if isinstance(found, tensors.Tensor) and found.lazy:
        if not size and found.size:
            _outside(x, axis, found.type)
        found = ops.astype(found, I32)
        return ops.where(found < 0, found + size, found)
    array = np.asarray(found, np.int64)
    wrong = (array < -size) | (array >= size)
    if wrong.any():
        _outside(x, axis, array[wrong][0])
    if isinstance(found, tensors.Tensor) and found.dtype == I32 and not (array < 0).any():
        return found  # so that whoever uses it again shares it
    return tensors.Tensor((array % max(size, 1)).astype(np.int32))


# -- from a plan to a tensor ---------------------------------------------------------------------------------


def cut_out(x: Tensor, plan: Plan) -> Tensor:
    """What numbers and slices leave of x; a slice that runs backwards is one forwards, reversed."""
    if plan.parts != tuple(range(size) for size in x.shape):
        forward = [part if part.step > 0 else part[::-1] for part in plan.parts]
        x = node("slice", x, start=[p.start if len(p) else 0 for p in forward],
                 limit=[p[-1] + 1 if len(p) else 0 for p in forward], stride=[p.step for p in forward])
        x = flip(x, [axis for axis, part in enumerate(plan.parts) if part.step < 0])
    return reshape(x, plan.shape)


def looked_up(x: Tensor, plan: Plan, clamp: bool) -> tuple[Tensor, Tensor, list[int]]:
    """x with the axes to look up merged into one at their place; the indices there; how x was transposed.

    clamp: move indices into their axes; else those that lie outside become -1.
    """
    axes = list(plan.arrays)
    rest = [axis for axis in range(x.ndim) if axis not in axes]
    perm = rest[:plan.place] + axes + rest[plan.place:]
    sizes, moved = [x.shape[axis] for axis in axes], transpose(x, perm)
    behind = moved.shape[plan.place + len(axes):]
    merged = reshape(moved, [*moved.shape[:plan.place], math.prod(sizes), *behind])
    given = list(plan.arrays.values())
    if len(given) == 1:
        return merged, given[0], perm  # the op itself clamps, or drops
    inside = [_clamped(one, size) for one, size in zip(given, sizes, strict=True)]
    outside = [one != within for one, within in zip(given, inside, strict=True) if one is not within]
    flat = inside[0]
    for one, size in zip(inside[1:], sizes[1:], strict=True):
        flat = flat * size + one
    if outside and not clamp:
        flat = ops.where(reduce(ops.bitwise_or, outside), -1, flat)
    return merged, flat, perm


def _clamped(index: Tensor, size: int) -> Tensor:
    """Indices moved into their axis, if they are not known, and so checked, already."""
    return ops.minimum(ops.maximum(index, 0), max(size - 1, 0)) if index.lazy else index


def pick(x: Tensor, plan: Plan) -> Tensor:
    """The elements that a plan picks."""
    x = cut_out(x, plan)
    if not plan.arrays:
        return x
    merged, flat, _ = looked_up(x, plan, clamp=True)
    return node("gather", merged, flat, axis=plan.place)


def index(x: Tensor, key: Any) -> Tensor:
    """x[key], as numpy has it; see the top of this file for what lies outside."""
    planned = plan(x, key)
    if x.lazy or current() is not EAGER or any(one.lazy for one in planned.arrays.values()):
        return pick(x, planned)
    # data at hand is indexed at hand: taking batches must not compile a program per batch
    items = [_readable(item) for item in (key if isinstance(key, tuple) else (key,))]
    known = tuple([np.array(item) if _is_array(item) else item for item in items])
    return tensors.Tensor._holding(np.array(x.stored()[known]))


# -- by name -------------------------------------------------------------------------------------------------


def take(x: TensorLike, indices: TensorLike, axis: int | None = None) -> Tensor:
    """The elements at these places along an axis, or of the flat tensor."""
    x = reshape(x, -1) if axis is None else as_tensor(x)
    at = one_axis("take", x, 0 if axis is None else axis)
    found = _readable(indices)
    return index(x, (*[slice(None)] * at, found if _is_array(found) else np.asarray(found)))


def index_select(x: TensorLike, dim: int, index: TensorLike) -> Tensor:
    """torch's name of take: the elements at these places along an axis."""
    return take(x, index, dim)


def embedding(table: TensorLike, ids: TensorLike) -> Tensor:
    """The rows of a table with these numbers. Shapes: table[rows, width], ids[...] -> [..., width]."""
    return take(table, ids, 0)


def along(op: str, x: Tensor, indices: TensorLike, axis: int, whole: bool = False) -> Plan:
    """The plan that looks up along one axis, at every place of the others that the indices have.

    whole: at every place that x has, as numpy does, where one index may serve for all; torch does not.
    """
    at = one_axis(op, x, axis)
    found = as_indices(op, x, at, indices)
    if found.ndim != x.ndim:
        fail(op, "the indices have another rank", f"{found.type} for {x.type}", f"rank {x.ndim}")
    arrays = {at: found}
    for one in (axis for axis in range(x.ndim) if axis != at):
        size = x.shape[one] if whole else found.shape[one]
        if size > x.shape[one]:
            fail(op, f"axis {one} of the indices is too long", f"{found.type} for {x.type}", x.shape[one])
        arrays[one] = reshape(ops.iota(size), [size if i == one else 1 for i in range(x.ndim)])
    broadcast_shapes(op, list(arrays.values()), *(one.shape for one in arrays.values()))
    return Plan(tuple(map(range, x.shape)), x.shape, dict(sorted(arrays.items())), 0)


def take_along_axis(x: TensorLike, indices: TensorLike, axis: int = -1) -> Tensor:
    """At every place of the other axes, the elements with these indices along one; the others broadcast."""
    x = as_tensor(x)
    return pick(x, along("take_along_axis", x, indices, axis, whole=True))


def gather(x: TensorLike, dim: int, index: TensorLike) -> Tensor:
    """torch's gather: out[i, j] = x[index[i, j], j] for dim 0; the index may be shorter elsewhere."""
    x = as_tensor(x)
    return pick(x, along("gather", x, index, dim))


def select(x: TensorLike, dim: int, index: int) -> Tensor:
    """One element along an axis, which goes: x[..., index, ...]."""
    x = as_tensor(x)
    at = one_axis("select", x, dim)
    return pick(x, plan(x, (*[slice(None)] * at, index)))


def starts(op: str, x: Tensor, start: Any, sizes: tuple[int, ...]) -> list[Tensor]:
    """One i32 scalar per axis; those that are numbers must fit, the others the graph clamps."""
    given = list(start) if isinstance(start, list | tuple) else [start]
    if not len(given) == len(sizes) == x.ndim or any(map(operator.gt, sizes, x.shape)):
        got, need = f"{len(given)} starts, sizes {list(sizes)}", f"one per axis of {x.type}, and no larger"
        fail(op, "starts and sizes do not fit", got, need)
    for axis, (one, size) in enumerate(zip(given, sizes, strict=True)):
        if not _is_array(one):
            number = as_integer(op, one)
            if not 0 <= number <= x.shape[axis] - size:
                fail(op, f"the slice leaves axis {axis} of {x.type}", number, f"0 .. {x.shape[axis] - size}",
                     kind=OutOfRangeError)
    scalars = [as_tensor(one) for one in given]
    for scalar in scalars:
        if scalar.ndim or scalar.dtype.kind != "i":
            fail(op, "a start is one integer", scalar.type, "i32[]", kind=DtypeError)
    return [ops.astype(scalar, I32) for scalar in scalars]


def dynamic_slice(x: TensorLike, start: Any, sizes: Any) -> Tensor:
    """A block of these sizes; its start may be computed, one integer per axis, and moves so that it fits."""
    x, lengths = as_tensor(x), as_integers("dynamic_slice", sizes)
    return node("dynamic_slice", x, *starts("dynamic_slice", x, start, lengths), sizes=lengths)


def narrow(x: TensorLike, dim: int, start: Any, length: int) -> Tensor:
    """`length` elements along an axis from a start that may be computed."""
    x = as_tensor(x)
    at = one_axis("narrow", x, dim)
    sizes = [length if axis == at else size for axis, size in enumerate(x.shape)]
    return dynamic_slice(x, [start if axis == at else 0 for axis in range(x.ndim)], sizes)


def nonzero(x: TensorLike) -> NoReturn:
    """Refused: how many indices there are depends on the data, and every shape here is known before it."""
    fail("nonzero", "the shape of the result would depend on the data", as_tensor(x).type, "a static shape",
         "np.nonzero(x.numpy()), or where(mask, x, 0)", CompileError)


def unique(x: TensorLike) -> NoReturn:
    """Refused: how many values there are depends on the data; sort and compare neighbours, or bincount."""
    fail("unique", "the shape of the result would depend on the data", as_tensor(x).type, "a static shape",
         "np.unique(x.numpy()), sort(x), or bincount(x, length)", CompileError)
