"""Making one tensor of several, or several of one: concatenate, stack, split, repeat, roll, pad.

    stack([x, y])                ->  concatenate(reshape(x) .., reshape(y) ..) axis=0
    roll(x, 1)    x: f32[5]      ->  concatenate(slice(x) 4:5, slice(x) 0:4) axis=0
    pad(x, 2, "reflect")         ->  concatenate(reverse(slice(x) ..), x, reverse(slice(x) ..)) axis=0

In: tensors and numpy's spellings. Out: tensors. Invariant: whatever picks elements in an order that is known
(repeats, reflections, rolls) is runs of slices side by side, never a gather: `runs` makes them. Operands of
different dtypes join in the dtype that holds all. Read next: diagonals.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from minicc.errors import CompileError, DtypeError, a_type
from minicc.frontend.primitives import (
    TensorLike,
    as_integer,
    as_integers,
    as_tensor,
    as_tensors,
    node,
    normal_axes,
    torch_names,
)
from minicc.frontend.scope import fail
from minicc.frontend.shapes import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    broadcast,
    cut,
    flip,
    one_axis,
    reshape,
    squeeze,
    unsqueeze,
)
from minicc.frontend.updates import as_values

if TYPE_CHECKING:
    from minicc.frontend.tensor import Tensor

# -- together ------------------------------------------------------------------------------------------------


def _as_list(op: str, tensors: Any) -> tuple[Tensor, ...]:
    """One or more tensors of one dtype, from a list or along the first axis of a tensor."""
    if not isinstance(tensors, list | tuple) and not getattr(tensors, "ndim", 0):
        fail(op, "this takes a list of tensors", a_type(tensors), "a list or tuple",
             f"{op}([x, y])", DtypeError)
    if not len(tensors):
        fail(op, "there is nothing to join", "an empty list", "one tensor or more")
    return as_tensors(tuple(tensors))


@torch_names
def concatenate(tensors: Any, axis: int | None = 0) -> Tensor:
    """The tensors side by side along an axis that they have; flat ones, if it is None."""
    given = _as_list("concatenate", tensors)
    if axis is None:
        given, axis = tuple([reshape(x, -1) for x in given]), 0
    at = one_axis("concatenate", given[0], axis)
    return node("concatenate", *given, axis=at) if len(given) > 1 else given[0]


@torch_names
def stack(tensors: Any, axis: int = 0) -> Tensor:
    """The tensors, of one shape, side by side along a new axis."""
    given = _as_list("stack", tensors)
    for x in given:
        if x.shape != given[0].shape:
            fail("stack", "the shapes differ", f"{given[0].type} and {x.type}", "one shape", "concatenate")
    at = one_axis("stack", given[0], axis, new=1)
    return concatenate([unsqueeze(x, at) for x in given], at)


def hstack(tensors: Any) -> Tensor:
    """Side by side from left to right: along axis 1, rows along axis 0."""
    given = [atleast_1d(x) for x in _as_list("hstack", tensors)]
    return concatenate(given, min(1, given[0].ndim - 1))


def vstack(tensors: Any) -> Tensor:
    """One below the other, rows as matrices of one row."""
    return concatenate([atleast_2d(x) for x in _as_list("vstack", tensors)], 0)


def dstack(tensors: Any) -> Tensor:
    """One behind the other: along the third axis."""
    return concatenate([atleast_3d(x) for x in _as_list("dstack", tensors)], 2)


# -- apart ---------------------------------------------------------------------------------------------------


def _between(x: Tensor, axis: int, bounds: Sequence[int]) -> tuple[Tensor, ...]:
    """The parts of x between bounds along one axis, which numpy's rule for slices brings into range."""
    size = x.shape[axis]
    parts = [range(size)[start:stop] for start, stop in pairwise(bounds)]
    return tuple(cut(x, axis, part.start, part.stop) for part in parts)


@torch_names
def split(x: TensorLike, indices_or_sections: Any, axis: int = 0) -> tuple[Tensor, ...]:
    """Equal parts, so many; or the parts between these places. (torch's split by length is chunk here.)"""
    x = as_tensor(x)
    at, sections = one_axis("split", x, axis), indices_or_sections
    if isinstance(sections, list | tuple):
        return _between(x, at, [0, *as_integers("split", (sections,)), x.shape[at]])
    count = as_integer("split", sections, 1)
    if x.shape[at] % count:
        fail("split", "the parts would not be equal", f"{count} parts of {x.shape[at]}", "a divisor",
             "array_split, or chunk")
    return array_split(x, count, at)


@torch_names
def array_split(x: TensorLike, sections: int, axis: int = 0) -> tuple[Tensor, ...]:
    """So many parts, the first ones longer by one if there is a rest."""
    x = as_tensor(x)
    at, count = one_axis("array_split", x, axis), as_integer("array_split", sections, 1)
    least, longer = divmod(x.shape[at], count)
    return _between(x, at, [i * least + min(i, longer) for i in range(count + 1)])


@torch_names
def chunk(x: TensorLike, chunks: int, axis: int = 0) -> tuple[Tensor, ...]:
    """At most so many parts, all as long as the first but for the last, as torch has it."""
    x = as_tensor(x)
    at = one_axis("chunk", x, axis)
    length = max(1, -(-x.shape[at] // as_integer("chunk", chunks, 1)))
    return _between(x, at, [*range(0, max(x.shape[at], 1), length), x.shape[at]])


@torch_names
def unbind(x: TensorLike, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along an axis, without it."""
    x = as_tensor(x)
    at = one_axis("unbind", x, axis)
    return tuple(squeeze(cut(x, at, i, i + 1), at) for i in range(x.shape[at]))


# -- orders that are known -----------------------------------------------------------------------------------


def runs(x: Tensor, axis: int, order: Sequence[int]) -> Tensor:
    """The elements in this order along an axis, as slices side by side.

    0 0 0 | 1 2 3 | 2 1  ->  the first, repeated; a slice; a slice, reversed
    """
    parts, start = [], 0
    while start < len(order):
        stop = start + 1
        step = order[stop] - order[start] if stop < len(order) else 1
        while stop < len(order) and step in (-1, 0, 1) and order[stop] - order[stop - 1] == step:
            stop += 1
        first, last = sorted((order[start], order[stop - 1]))
        part = cut(x, axis, first, last + 1)
        if step == 0:
            part = broadcast(part, x.shape[:axis] + (stop - start,) + x.shape[axis + 1:])
        parts.append(flip(part, axis) if step == -1 else part)
        start = stop
    return concatenate(parts, axis) if parts else cut(x, axis, 0, 0)


@torch_names
def repeat(x: TensorLike, repeats: Any, axis: int | None = None) -> Tensor:
    """Each element so many times in a row, all or one by one; torch calls it repeat_interleave."""
    x = reshape(x, -1) if axis is None else as_tensor(x)
    at = one_axis("repeat", x, 0 if axis is None else axis)
    times, size = as_integers("repeat", repeats), x.shape[at]
    if len(times) not in (1, size) or min(times, default=0) < 0:
        fail("repeat", "the repeats do not fit", list(times), f"one number, or {size}, of 0 or more")
    if len(times) > 1:
        return runs(x, at, np.repeat(np.arange(size), times).tolist())
    each = unsqueeze(x, at + 1)
    spread = broadcast(each, each.shape[:at + 1] + times + each.shape[at + 2:])
    return reshape(spread, x.shape[:at] + (size * times[0],) + x.shape[at + 1:])


@torch_names
def roll(x: TensorLike, shift: Any, axis: Any = None) -> Tensor:
    """The elements moved on, and round at the end, along axes or in the flat order."""
    x = as_tensor(x)
    if axis is None:
        return reshape(roll(reshape(x, -1), as_integers("roll", shift), 0), x.shape)
    axes, shifts = normal_axes("roll", x, axis), as_integers("roll", shift)
    if len(shifts) != len(axes) and 1 not in (len(shifts), len(axes)):
        fail("roll", "shifts and axes do not pair up", f"{shift} and {axis}", "equally many")
    for at, by in np.broadcast(axes, shifts):
        first = -by % max(x.shape[at], 1)
        x = concatenate([cut(x, at, first, x.shape[at]), cut(x, at, 0, first)], at) if first else x
    return x


_PAD_MODES = ("constant", "edge", "reflect", "symmetric", "wrap")


def pad(x: TensorLike, pad_width: Any, mode: str = "constant", constant_values: float = 0) -> Tensor:
    """More elements around: pad_width for all sides, (before, after), or such a pair per axis.

    mode: "constant", or copies of what is there: "edge", "wrap", "reflect" (the edge once) and "symmetric"
    (the edge twice).
    """
    x = as_tensor(x)
    try:
        widths = np.broadcast_to(np.asarray(pad_width, np.int32), (x.ndim, 2)).tolist()
    except (ValueError, TypeError, OverflowError):
        widths = [[-1]]
    if min((width for pair in widths for width in pair), default=0) < 0:
        need = f"0 or more: a number, (before, after), or {x.ndim} such pairs"
        fail("pad", "the widths do not fit", repr(pad_width), need, "slice, to cut")
    if mode not in _PAD_MODES:
        fail("pad", "there is no such mode", repr(mode), ", ".join(_PAD_MODES), kind=CompileError)
    if mode == "constant":
        low, high = ([pair[side] for pair in widths] for side in (0, 1))
        fill = as_values("pad", x, constant_values)
        return node("pad", x, fill, low=low, high=high) if any(low + high) else x
    for axis, (before, after) in enumerate(widths):
        old = np.arange(x.shape[axis])
        if before + after and not old.size:
            fail("pad", f"axis {axis} is empty", x.type, "an element to copy", "mode='constant'")
        if before + after:
            x = runs(x, axis, np.pad(old, (before, after), mode).tolist())  # type: ignore[call-overload]
    return x


def windows(x: Tensor, axis: int, size: int, step: int = 1, dilation: int = 1) -> list[Tensor]:
    """For each place in a window that moves along an axis, the elements that lie there, window by window."""
    reach = (size - 1) * dilation + 1
    count = (x.shape[axis] - reach) // max(step, 1) + 1
    if size < 1 or step < 1 or dilation < 1 or count < 1:
        fail("windows", "the window does not fit", f"{size} of {x.shape[axis]} (axis {axis} of {x.type})",
             "window, step and dilation of 1 or more, and a window no longer than the axis")
    return [cut(x, axis, first, first + (count - 1) * step + 1, step) for first in range(0, reach, dilation)]


def unfold(x: TensorLike, dimension: int, size: int, step: int = 1) -> Tensor:
    """All windows of a size along an axis, each in a new last axis, as torch's Tensor.unfold."""
    x = as_tensor(x)
    at = one_axis("unfold", x, dimension)
    return stack(windows(x, at, as_integer("unfold", size), as_integer("unfold", step)), -1)


def sliding_window_view(x: TensorLike, window_shape: Any, axis: Any = None) -> Tensor:
    """All windows along some axes, or all; each window's axes come last."""
    x = as_tensor(x)
    axes, sizes = normal_axes("windows", x, axis), as_integers("windows", window_shape)
    if len(axes) != len(sizes):
        fail("windows", "window and axes do not pair up", f"{window_shape} and {axis}", "equally many")
    for at, size in zip(axes, sizes, strict=True):
        x = unfold(x, at, size)
    return x


