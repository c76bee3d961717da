"""Operations that move elements and change none: reshape, transpose, broadcast, slices.

    x: f32[2,3]    x.reshape(3, -1)   ->  reshape(x) shape=[3,2]
                   x[:, 1]            ->  reshape(slice(x) start=[0,1] limit=[2,2] stride=[1,1]) shape=[2]
                   broadcast(x, (5, 2, 3))  ->  broadcast_in_dim(x) shape=[5,2,3] dims=[1,2]

In: tensors and numpy's spellings of shapes and indices. Out: tensors. Invariants: an operation that would
change nothing makes no node; an index is checked when it is written, never clamped. On a machine most of
these cost nothing, because a kernel reads its operands through them. numpy returns views that alias; here
nothing can be written to, so the question does not arise. Read next: ops.py.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from minicc.errors import CompileError, DtypeError, OutOfRangeError, ShapeError
from minicc.frontend.primitives import as_integers, as_tensor, node, normal_axes
from minicc.frontend.scope import user_line

if TYPE_CHECKING:
    from minicc.frontend.tensor import Tensor


def reshape(x: Tensor, *shape: Any) -> Tensor:
    """The same elements in row-major order under another shape; one size may be -1."""
    x = as_tensor(x)
    sizes = as_integers("reshape", shape)
    if sizes.count(-1) == 1:
        rest = math.prod(size for size in sizes if size != -1)
        if rest <= 0 or x.size % rest:
            raise ShapeError("reshape", "-1 stands for no whole number", got=f"{list(sizes)} for {x.type}",
                             need=f"sizes that divide {x.size} elements", at=user_line())
        sizes = tuple(x.size // rest if size == -1 else size for size in sizes)
    return x if sizes == x.shape else node("reshape", x, shape=sizes)


def transpose(x: Tensor, *axes: Any) -> Tensor:
    """The axes in another order, all reversed when none is given, as numpy does."""
    x = as_tensor(x)
    perm = tuple(reversed(range(x.ndim)))
    if axes and axes != (None,):
        perm = normal_axes("transpose", x, as_integers("transpose", axes))
    if len(perm) != x.ndim:
        raise ShapeError("transpose", "not every axis is listed", got=list(perm), at=user_line(),
                         need=f"all {x.ndim} axes of {x.type}",
                         hint="the two swapped and the others in place")
    return x if perm == tuple(range(x.ndim)) else node("transpose", x, perm=perm)


def broadcast(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """x stretched to a shape by numpy's rule: axes are matched from the right, and size 1 repeats."""
    first = len(shape) - x.ndim
    if x.shape == shape:
        return x
    if first < 0 or any(size not in (1, new) for size, new in zip(x.shape, shape[first:], strict=True)):
        raise ShapeError("broadcast_to", "the shapes do not fit", got=f"{x.type} to {list(shape)}",
                         at=user_line(),
                         need="equal sizes from the right, or 1, in the tensor",
                         hint="unsqueeze or reshape it first")
    return node("broadcast_in_dim", x, shape=shape, dims=tuple(range(first, len(shape))))


def broadcast_to(x: Tensor, *shape: Any) -> Tensor:
    """x stretched to a shape; -1 keeps a size, as in torch's expand."""
    x = as_tensor(x)
    sizes = as_integers("broadcast_to", shape)
    first = len(sizes) - x.ndim
    kept = tuple(x.shape[i - first] if size == -1 and i >= first else size for i, size in enumerate(sizes))
    return broadcast(x, kept)


def broadcast_shapes(op: str, operands: Sequence[Tensor], shapes: Sequence[tuple[int, ...]]) -> tuple[int,
                                                                                                      ...]:
    """The shape that these have in common after broadcasting; the operands are for the error to name."""
    result = [1] * max(len(shape) for shape in shapes)
    for shape in shapes:
        for axis, size in enumerate(shape, start=len(result) - len(shape)):
            if size != 1 and result[axis] not in (1, size):
                raise ShapeError(
                    op, "shapes do not broadcast", got=" and ".join(str(x.type) for x in operands),
                    at=user_line(),
                    need="equal sizes from the right, or 1",
                    hint="reshape or unsqueeze one so that the axes line up",
                )
            result[axis] = size if size != 1 else result[axis]
    return tuple(result)


def squeeze(x: Tensor, axis: Any = None, *, dim: Any = None) -> Tensor:
    """Without axes of size 1: the given ones, or all."""
    x = as_tensor(x)
    axes = normal_axes("squeeze", x, axis, dim)
    if axis is None and dim is None:
        axes = tuple(i for i in axes if x.shape[i] == 1)
    if any(x.shape[i] != 1 for i in axes):
        raise ShapeError("squeeze", "an axis is longer than 1", got=f"axes {list(axes)} of {x.type}",
                         at=user_line())
    return reshape(x, tuple(size for i, size in enumerate(x.shape) if i not in axes))


def unsqueeze(x: Tensor, axis: int = 0, *, dim: int | None = None) -> Tensor:
    """With a new axis of size 1 at this place."""
    x = as_tensor(x)
    where, = as_integers("unsqueeze", axis if dim is None else dim)
    if not -x.ndim - 1 <= where <= x.ndim:
        raise ShapeError("unsqueeze", "there is no such place", got=where, need=f"{-x.ndim - 1} .. {x.ndim}",
                         at=user_line())
    where %= x.ndim + 1
    return reshape(x, x.shape[:where] + (1,) + x.shape[where:])


# -- indexing ------------------------------------------------------------------------------------------------


def index(x: Tensor, key: Any) -> Tensor:
    """x[key] for integers, slices with positive steps, `...` and None."""
    items = _spelled_out(x, key if isinstance(key, tuple) else (key,))
    starts, limits, strides, shape = [], [], [], []
    axis = 0
    for item in items:
        if item is None:
            shape.append(1)
            continue
        start, limit, stride = _bounds(x, axis, item)
        if isinstance(item, slice):
            shape.append(-(-(limit - start) // stride))
        starts.append(start)
        limits.append(limit)
        strides.append(stride)
        axis += 1
    whole = all(s == 0 and l == n for s, l, n in zip(starts, limits, x.shape,
                                                     strict=True)) and set(strides) <= {1}
    cut = x if whole else node("slice", x, start=tuple(starts), limit=tuple(limits), stride=tuple(strides))
    return reshape(cut, tuple(shape))


def _spelled_out(x: Tensor, key: tuple) -> list:
    """The key with one entry per axis of x, `...` and what is left out as full slices; None stays."""
    items = list(key)
    dots = [i for i, item in enumerate(items) if item is Ellipsis]
    used = sum(item is not None and item is not Ellipsis for item in items)
    if len(dots) > 1:
        raise OutOfRangeError("index", "more than one '...'", at=user_line())
    if used > x.ndim:
        raise OutOfRangeError("index", "too many indices", got=used, need=f"at most {x.ndim} for {x.type}",
                              at=user_line())
    at = dots[0] if dots else len(items)
    items[at:at + len(dots)] = [slice(None)] * (x.ndim - used)
    return items


def _bounds(x: Tensor, axis: int, item: Any) -> tuple[int, int, int]:
    """Start, limit and stride along one axis."""
    size = x.shape[axis]
    if isinstance(item, slice):
        try:
            start, limit, stride = item.indices(size)
        except (TypeError, ValueError) as error:
            raise DtypeError("index", f"a bad slice: {error}", got=item, at=user_line()) from None
        if stride < 0:
            raise CompileError("index", "a slice with a negative step is not supported", got=item,
                               at=user_line(),
                               hint="reverse the array in numpy before it becomes a Tensor")
        return start, max(start, limit), stride
    try:
        if isinstance(item, bool) or hasattr(item, "shape") and item.shape != ():
            raise TypeError
        position = operator.index(item)
    except TypeError:
        raise DtypeError(
            "index", "only integers, slices, '...' and None can index a Tensor",
            got=f"a {type(item).__name__}",
            at=user_line(), hint="where(mask, x, 0) for a mask; one_hot(i, n) @ x to pick rows",
        ) from None
    if not -size <= position < size:
        raise OutOfRangeError("index", f"axis {axis} of {x.type} has no such element", got=position,
                              at=user_line(),
                              need=f"{-size} .. {size - 1}" if size else "nothing: the axis is empty")
    return position % size, position % size + 1, 1
