"""Operands that look up where they are read or written, in vector mode's text.

    w: f32[99,8] at (ids[m] in 0..98, n)     ->   take(w, ids, 0, out=t1)
    x: f32[64,8] at (m+i[] in 0..60, n)      ->   x = strided(x, 8 * number(i, 0, 60), (4, 8), (8, 1))
    out: f32[99,8] at (ids[m], n) in place   ->   update_sum(out, (index(...), index(...),), t1)

Goes in: an Operand whose index has lookups. Comes out: what its view starts at, if each lookup is one number
within bounds; else the call that reads it (`take` where one dimension alone is looked up, `gather` for any)
and the arguments of the call that updates it. Invariant: updates happen in the grid's order, and what is
outside is dropped. A GPU's threads just load the number, and so does lane mode. Read next: vector.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from minicc.gpu.arrays import Array, contiguous_strides, expanded
from minicc.gpu.views import flat_index
from minicc.kernel.index import Index, Lookup
from minicc.kernel.ir import Operand

ROW = "*"  # stands for the axis along which whole rows are taken


@dataclass(frozen=True)
class Finder:
    """The scalar operands of a kernel, by name, and what the text calls them. sizes: of the axes."""

    scalars: Mapping[str, Operand]
    texts: Mapping[str, str]
    sizes: Mapping[str, int]

    def fixed(self, operand: Operand) -> bool:
        """Whether the operand is a view that starts at one place, once the numbers are known."""
        lookups = [lookup for part in operand.index for lookup in part.lookups]
        one_place = all(lookup.clamp is not None and not axes_of(lookup) for lookup in lookups)
        return not lookups or (one_place and operand.fill is None)

    def starts(self, operand: Operand) -> Iterator[str]:
        """The texts of what lookups without axes add to a place in the flat array."""
        for part, stride in zip(operand.index, contiguous_strides(operand.type.shape), strict=True):
            for lookup in part.lookups:
                place = flat_index(lookup.index, self.scalars[lookup.scalars].type.shape).offset
                yield f"{stride} * number({self.texts[lookup.scalars]}, {place}, {lookup.clamp})"

    def read(self, operand: Operand, name: str) -> tuple[str, tuple[str, ...]]:
        """The call that reads an operand, without its `out`; and the axes of what it gives."""
        looked = [dim for dim, part in enumerate(operand.index) if part.lookups]
        lookup, *more = operand.index[looked[0]].lookups
        alone = operand.index[looked[0]] == Index(lookups=(lookup,)) and not more and len(looked) == 1
        apart = len(set(operand.axes)) == len(operand.axes)
        if not (alone and apart) or lookup.clamp is None or operand.fill is not None:
            return f"gather({self.places(operand, name)}, {operand.fill or 0}", operand_axes(operand)
        index = list(operand.index)
        index[looked[0]] = Index.axis(ROW)
        rows = replace(operand, index=tuple(index))
        view = view_of(name, rows, {**self.sizes, ROW: operand.type.shape[looked[0]]})
        found, axis = self.found(lookup), view.axes.index(ROW)
        axes = (*view.axes[:axis], *found.axes, *view.axes[axis + 1:])
        return f"take({view.text}, {found.text}, {axis}", axes

    def places(self, operand: Operand, name: str) -> str:
        """The arguments that say where to read or write: the array, and an index per dimension."""
        axes = operand_axes(operand)
        parts = [self.place(part, axes) for part in operand.index]
        return f"{name}, ({', '.join(parts)},)"

    def place(self, part: Index, axes: Sequence[str], shape: str = "", start: str = "") -> str:
        """The call that makes an array of the indices along one dimension, against values over `axes`.

        shape: of these values, if not of all; start: what is added where they begin.
        """
        steps = tuple(dict(part.terms).get(axis, 0) for axis in axes)
        found = [expanded(self.found(lookup), axes) for lookup in part.lookups]
        sizes = shape or str(tuple(self.sizes[axis] for axis in axes))
        return f"index({', '.join([sizes, f'{part.offset}{start}', str(steps), *found])})"

    def found(self, lookup: Lookup) -> Array:
        """The numbers that a lookup finds, as a view of its scalars."""
        scalars = replace(self.scalars[lookup.scalars], index=lookup.index)
        view = view_of(self.texts[lookup.scalars], scalars, self.sizes)
        return view if lookup.clamp is None else replace(view, text=f"clip({view.text}, 0, {lookup.clamp})")


def axes_of(lookup: Lookup) -> tuple[str, ...]:
    """The axes that a lookup's place moves along."""
    return tuple(axis for part in lookup.index for axis in part.axes)


def operand_axes(operand: Operand) -> tuple[str, ...]:
    """The axes of an operand, each once."""
    return tuple(dict.fromkeys(operand.axes))


def view_of(name: str, operand: Operand, sizes: Mapping[str, int], starts: Sequence[str] = ()) -> Array:
    """An array as a view with a dimension for each axis, by its name if it is one already."""
    flat, shape = flat_index(operand.index, operand.type.shape), operand.type.shape
    lengths, steps = tuple(sizes[axis] for axis in flat.axes), tuple(stride for _, stride in flat.terms)
    text = name
    if tuple(map(str, operand.index)) != flat.axes or shape != lengths:
        text = f"strided({name}, {' + '.join([str(flat.offset), *starts])}, {lengths}, {steps})"
    return Array(text, flat.axes, str(operand.type.dtype), steps)
