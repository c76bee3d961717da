"""Operations that move elements and change none: reshape, transpose, broadcast, reverse, and what they make.

    x: f32[2,3]    x.reshape(3, -1)         ->  reshape(x) shape=[3,2]
                   x.flip(1)                ->  reverse(x) axes=[1]
                   broadcast(x, (5, 2, 3))  ->  broadcast_in_dim(x) shape=[5,2,3] dims=[1,2]

In: tensors and numpy's spellings of shapes and axes. Out: tensors. Invariants: an operation that would change
nothing makes no node; an axis is checked where it is written. On a machine most of these cost nothing,
because a kernel reads its operands through them. numpy returns views that alias; here nothing can be written
to, so the question does not arise. Where numpy and torch give one name two meanings (repeat, split, sort),
numpy's is meant. Read next: indexing.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from minicc.frontend.primitives import (
    TensorLike,
    as_integer,
    as_integers,
    as_tensor,
    node,
    normal_axes,
    torch_names,
)
from minicc.frontend.scope import fail

if TYPE_CHECKING:
    from minicc.frontend.tensor import Tensor

# -- sizes ---------------------------------------------------------------------------------------------------


def reshape(x: TensorLike, *shape: Any) -> Tensor:
    """The same elements in row-major order under another shape; one size may be -1."""
    x = as_tensor(x)
    sizes = as_integers("reshape", shape)
    if min(sizes, default=0) < -1 or sizes.count(-1) > 1:
        fail("reshape", "these are not sizes", list(sizes), "numbers from 0, and -1 once at most")
    if -1 in sizes:
        rest = x.size // max(1, math.prod(size for size in sizes if size != -1))
        sizes = tuple(rest if size == -1 else size for size in sizes)
    return x if sizes == x.shape else node("reshape", x, shape=sizes)


def one_axis(op: str, x: Tensor, axis: Any, new: int = 0) -> int:
    """The one axis that an `axis` argument names, counted from 0."""
    axes = normal_axes(op, x, axis, new)
    if len(axes) != 1:
        fail(op, "one axis is needed", axis, f"one axis of {x.type}")
    return axes[0]


def resized(x: Tensor, axis: int, *sizes: int) -> Tensor:
    """x with one axis replaced by axes of these sizes, which hold as many elements."""
    return reshape(x, x.shape[:axis] + sizes + x.shape[axis + 1:])


def flatten(x: TensorLike, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The axes from start_dim to end_dim as one; of a scalar, a row of one."""
    x = as_tensor(x)
    if not x.ndim:
        return reshape(x, 1)
    first, last = one_axis("flatten", x, start_dim), one_axis("flatten", x, end_dim)
    if first > last:
        fail("flatten", "the first axis comes after the last", f"{start_dim} and {end_dim}", "ascending axes")
    return reshape(x, x.shape[:first] + (math.prod(x.shape[first:last + 1]),) + x.shape[last + 1:])


def ravel(x: TensorLike) -> Tensor:
    """All elements in one row."""
    return reshape(x, -1)


def contiguous(x: TensorLike) -> Tensor:
    """x itself: no tensor has holes."""
    return as_tensor(x)


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


def atleast_1d(x: TensorLike) -> Tensor:
    """x with an axis, if it has none."""
    x = as_tensor(x)
    return x if x.ndim else unsqueeze(x, 0)


def atleast_2d(x: TensorLike) -> Tensor:
    """x as a matrix at least: a row becomes [1, n]."""
    x = atleast_1d(x)
    return x if x.ndim > 1 else unsqueeze(x, 0)


def atleast_3d(x: TensorLike) -> Tensor:
    """x with three axes at least: a row becomes [1, n, 1], a matrix [m, n, 1], as in numpy."""
    x = atleast_2d(x)
    return x if x.ndim > 2 else unsqueeze(x, 2)


# -- axes ----------------------------------------------------------------------------------------------------


def transpose(x: TensorLike, *axes: Any) -> Tensor:
    """The axes in another order, all reversed when none is given, as numpy does."""
    x = as_tensor(x)
    perm = tuple(reversed(range(x.ndim)))
    if axes and axes[0] is not None:
        perm = normal_axes("transpose", x, as_integers("transpose", axes))
    return x if perm == tuple(range(x.ndim)) else node("transpose", x, perm=perm)


def moveaxis(x: TensorLike, source: Any, destination: Any) -> Tensor:
    """The source axes, moved to these places of the result; the others stay in order."""
    x = as_tensor(x)
    old, new = normal_axes("moveaxis", x, source), normal_axes("moveaxis", x, destination)
    if len(old) != len(new):
        fail("moveaxis", "the axes do not pair up", f"{source} and {destination}", "equally many")
    rest, at = iter(axis for axis in range(x.ndim) if axis not in old), dict(zip(new, old, strict=True))
    return transpose(x, [at[i] if i in at else next(rest) for i in range(x.ndim)])


def swapaxes(x: TensorLike, axis1: int, axis2: int) -> Tensor:
    """Two axes exchanged: what torch calls transpose(x, axis1, axis2)."""
    x = as_tensor(x)
    one, other = one_axis("swapaxes", x, axis1), one_axis("swapaxes", x, axis2)
    swapped = {one: other, other: one}
    return transpose(x, [swapped.get(axis, axis) for axis in range(x.ndim)])


def matrix_transpose(x: TensorLike) -> Tensor:
    """The last two axes exchanged: x.mT."""
    x = as_tensor(x)
    if x.ndim < 2:
        fail("matrix_transpose", "there are no rows and columns", x.type, "rank 2 or more")
    return swapaxes(x, -1, -2)


@torch_names
def flip(x: TensorLike, axis: Any = None) -> Tensor:
    """The elements in reverse order along these axes, or all."""
    x = as_tensor(x)
    axes = [i for i in normal_axes("flip", x, axis) if x.shape[i] > 1]
    return node("reverse", x, axes=axes) if axes else x


def fliplr(x: TensorLike) -> Tensor:
    """Columns in reverse order."""
    return flip(x, 1)


def flipud(x: TensorLike) -> Tensor:
    """Rows in reverse order."""
    return flip(x, 0)


def rot90(x: TensorLike, k: int = 1, axes: Any = (0, 1)) -> Tensor:
    """A quarter turn from the first of two axes towards the second, k times."""
    x = as_tensor(x)
    pair, turns = normal_axes("rot90", x, axes), as_integer("rot90", k)
    if len(pair) != 2:
        fail("rot90", "a plane has two axes", axes, "two axes")
    turned = swapaxes(x, *pair) if turns % 2 else x
    return flip(turned, [pair[i] for i in ((), (0,), (0, 1), (1,))[turns % 4]])


def cut(x: Tensor, axis: int, start: int, stop: int, step: int = 1) -> Tensor:
    """x[start:stop:step] along one axis: 0 <= start <= stop, 1 <= step."""
    stop = max(start, min(stop, x.shape[axis]))
    if (start, stop, step) == (0, x.shape[axis], 1):
        return x
    starts, limits, strides = [0] * x.ndim, list(x.shape), [1] * x.ndim
    starts[axis], limits[axis], strides[axis] = start, stop, step
    return node("slice", x, start=starts, limit=limits, stride=strides)


# -- broadcasting --------------------------------------------------------------------------------------------


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


def broadcast_arrays(*operands: TensorLike) -> tuple[Tensor, ...]:
    """The operands, all stretched to the shape that they have in common."""
    given = [as_tensor(x) for x in operands]
    shape = broadcast_shapes("broadcast_arrays", given, *(x.shape for x in given))
    return tuple(broadcast(x, shape) for x in given)


def tile(x: TensorLike, *reps: Any) -> Tensor:
    """x laid out side by side, so many times along each of the last axes, as torch's Tensor.repeat does."""
    x, times = as_tensor(x), as_integers("tile", reps)
    if min(times, default=0) < 0:
        fail("tile", "there is no such number of times", list(times), "0 or more")
    rank = max(x.ndim, len(times))
    times, sizes = (1,) * (rank - len(times)) + times, (1,) * (rank - x.ndim) + x.shape
    apart = reshape(x, [part for size in sizes for part in (1, size)])
    spread = broadcast(apart, tuple(part for pair in zip(times, sizes, strict=True) for part in pair))
    return reshape(spread, [n * size for n, size in zip(times, sizes, strict=True)])
