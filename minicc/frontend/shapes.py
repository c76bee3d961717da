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
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from minicc.errors import CompileError, DtypeError, OutOfRangeError
from minicc.frontend.primitives import TensorLike, as_integers, as_tensor, node, normal_axes, torch_names
from minicc.frontend.scope import fail

if TYPE_CHECKING:
    from minicc.frontend.tensor import Tensor


def reshape(x: TensorLike, *shape: Any) -> Tensor:
    """The same elements in row-major order under another shape; one size may be -1."""
    x = as_tensor(x)
    sizes = as_integers("reshape", shape)
    if sizes.count(-1) == 1:
        rest = x.size // max(1, math.prod(size for size in sizes if size != -1))
        sizes = tuple(rest if size == -1 else size for size in sizes)
    return x if sizes == x.shape else node("reshape", x, shape=sizes)


def transpose(x: TensorLike, *axes: Any) -> Tensor:
    """The axes in another order, all reversed when none is given, as numpy does."""
    x = as_tensor(x)
    perm = tuple(reversed(range(x.ndim)))
    if axes and axes != (None,):
        perm = normal_axes("transpose", x, as_integers("transpose", axes))
    return x if perm == tuple(range(x.ndim)) else node("transpose", x, perm=perm)


def broadcast(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """x stretched to a shape by numpy's rule: axes are matched from the right, and size 1 repeats."""
    dims = tuple(range(len(shape) - x.ndim, len(shape)))
    return x if x.shape == shape else node("broadcast_in_dim", x, shape=shape, dims=dims)


def broadcast_to(x: TensorLike, *shape: Any) -> Tensor:
    """x stretched to a shape; -1 keeps a size, as in torch's expand."""
    x = as_tensor(x)
    sizes = as_integers("broadcast_to", shape)
    first = len(sizes) - x.ndim
    if first < 0:
        fail("broadcast_to", "the shape has too few axes", list(sizes), f"{x.ndim} or more for {x.type}")
    old = (1,) * first + x.shape
    return broadcast(x, tuple(old[i] if size == -1 else size for i, size in enumerate(sizes)))


def broadcast_shapes(op: str, operands: Sequence[Tensor], *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that these have in common after broadcasting; the operands are for the error to name."""
    sizes = [set(column) - {1} for column in zip_longest(*map(reversed, shapes), fillvalue=1)]
    if any(len(options) > 1 for options in sizes):
        fail(op, "shapes do not broadcast", " and ".join(str(x.type) for x in operands),
             "equal sizes from the right, or 1", "reshape or unsqueeze one so that the axes line up")
    return tuple([options.pop() if options else 1 for options in reversed(sizes)])


@torch_names
def squeeze(x: TensorLike, axis: Any = None) -> Tensor:
    """Without axes of size 1: the given ones, or all."""
    x = as_tensor(x)
    ones = [i for i, size in enumerate(x.shape) if size == 1]
    axes = ones if axis is None else normal_axes("squeeze", x, axis)
    if not set(axes) <= set(ones):
        fail("squeeze", "an axis is longer than 1", f"axes {list(axes)} of {x.type}")
    return reshape(x, tuple(size for i, size in enumerate(x.shape) if i not in axes))


@torch_names
def unsqueeze(x: TensorLike, axis: Any = 0) -> Tensor:
    """With new axes of size 1 at these places of the result."""
    x, axes = as_tensor(x), as_integers("unsqueeze", axis)
    axes = normal_axes("unsqueeze", x, axes, new=len(axes))
    old = iter(x.shape)
    return reshape(x, [1 if i in axes else next(old) for i in range(x.ndim + len(axes))])


# -- indexing ------------------------------------------------------------------------------------------------


def index(x: Tensor, key: Any) -> Tensor:
    """x[key] for integers, slices with positive steps, `...` and None."""
    parts: list[range] = []  # the elements taken along each axis of x
    shape = []
    for item in _spelled_out(x, list(key) if isinstance(key, tuple) else [key]):
        if item is None:
            shape.append(1)
            continue
        parts.append(_elements(x, len(parts), item))
        if isinstance(item, slice):
            shape.append(len(parts[-1]))
    if parts != [range(size) for size in x.shape]:
        x = node("slice", x, start=[p.start for p in parts], stride=[p.step for p in parts],
                 limit=[max(p.start, p.stop) for p in parts])
    return reshape(x, shape)


def _spelled_out(x: Tensor, items: list) -> list:
    """The items with one entry per axis of x, `...` and what is left out as full slices; None stays."""
    dots = [i for i, item in enumerate(items) if item is Ellipsis]
    used = sum(item is not None for item in items) - len(dots)
    if len(dots) > 1 or used > x.ndim:
        got, need = f"{used}, and {len(dots)} times '...'", f"at most {x.ndim} for {x.type}, and one '...'"
        fail("index", "too many indices", got, need, kind=OutOfRangeError)
    at = dots[0] if dots else len(items)
    return items[:at] + [slice(None)] * (x.ndim - used) + items[at + 1:]


def _elements(x: Tensor, axis: int, item: Any) -> range:
    """The elements that an integer or a slice picks along one axis."""
    size = x.shape[axis]
    try:
        if isinstance(item, bool):
            raise TypeError
        picked = range(size)[item]
    except IndexError:
        need = f"{-size} .. {size - 1}" if size else "nothing: the axis is empty"
        fail("index", f"axis {axis} of {x.type} has no such element", item, need, kind=OutOfRangeError)
    except (TypeError, ValueError):
        fail("index", "only integers, slices, '...' and None can index a Tensor", f"a {type(item).__name__}",
             hint="where(mask, x, 0) for a mask; one_hot(i, n) @ x to pick rows", kind=DtypeError)
    if isinstance(picked, int):
        return range(picked, picked + 1)
    if picked.step < 0:
        fail("index", "a slice with a negative step is not supported", item,
             hint="reverse the array in numpy before it becomes a Tensor", kind=CompileError)
    return picked
