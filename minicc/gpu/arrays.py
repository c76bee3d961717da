"""Arrays in a generated text: what each is called, the axes it varies over, and how it lies in memory.

    Array("x", ("m", "k"), "f32", (64, 1))  as (k, m)          ->   x.transpose(1, 0)
                                            against (b, m, k)   ->   x
                                            against (m, b, k)   ->   x[:, None, :]

Goes in: an Array and the axes that its reader wants. Comes out: the text of a view. Invariant: an array has
one dimension per axis that it varies over, so its axes are all that a reader must know; the strides say
which axes are one dimension in memory, and which views BLAS can read as they are. Read next: dots.py, which
asks most of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, eq=False)
class Array:
    """A value in the text. strides: of its axes in memory, in elements."""

    text: str
    axes: tuple[str, ...]
    dtype: str
    strides: tuple[int, ...] = ()

    def stride(self, axis: str) -> int:
        """The stride of one of its axes."""
        return self.strides[self.axes.index(axis)]


@dataclass(frozen=True)
class Walk:
    """How many elements of each axis a step works on, and the axis that the steps go along, if any does."""

    sizes: Mapping[str, int]
    loop: str = ""

    def shape(self, axes: Sequence[str]) -> tuple[int, ...]:
        """The sizes of some axes, at a full step."""
        return tuple(self.sizes[axis] for axis in axes)

    def elements(self, axes: Sequence[str]) -> int:
        """How many elements vary over some axes, at a full step."""
        return prod(self.shape(axes))

    def unit(self, array: Array) -> str:
        """The longest axis along which neighbours lie side by side in memory; "" if there is none."""
        units = (axis for axis, stride in zip(array.axes, array.strides, strict=True) if stride == 1)
        return max(units, key=self.sizes.__getitem__, default="")

    def joined(self, array: Array, axes: Sequence[str]) -> bool:
        """Whether these axes of an array are one dimension in memory, at every step."""
        steps = [array.stride(axis) for axis in axes]
        spans = [array.stride(axis) * self.sizes[axis] for axis in axes]
        return steps[:-1] == spans[1:] and self.loop not in axes[1:]


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a row-major array.

    >>> contiguous_strides((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(prod(shape[dim + 1:]) for dim in range(len(shape)))


def permuted(text: str, have: Sequence[str], want: Sequence[str]) -> str:
    """The text of an array with its dimensions in another order."""
    order = ", ".join(str(have.index(axis)) for axis in want)
    return text if tuple(have) == tuple(want) else f"{text}.transpose({order})"


def expanded(array: Array, axes: Sequence[str]) -> str:
    """The array's text, so that it broadcasts against values over `axes`."""
    text = permuted(array.text, array.axes, [axis for axis in axes if axis in array.axes])
    dims = ["None" if axis not in array.axes else ":" for axis in axes]
    while dims and dims[0] == "None":  # leading dimensions need none
        dims.pop(0)
    return f"{text}[{', '.join(dims)}]" if "None" in dims else text


def grouped(array: Array, groups: Sequence[Sequence[str]], walk: Walk) -> str:
    """The array's text with one dimension for each group of axes, of size 1 for axes that it lacks."""
    own = [[axis for axis in group if axis in array.axes] for group in groups]
    text = permuted(array.text, array.axes, [axis for group in own for axis in group])
    while own and not own[0] and len(own) > 2:  # leading dimensions of 1 need not be there
        own.pop(0)
    if all(len(group) == 1 for group in own):
        return text
    shape = ", ".join("-1" if walk.loop in group else str(walk.elements(group)) for group in own)
    return f"{text}.reshape({shape})"
