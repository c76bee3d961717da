"""The frame of a vector-mode function: names, operands as views, temporaries, the current step of the loops.

    x: f32[1000,64] at (m, k), with m in chunks of 256   ->   x = buffers['x'].reshape((1000, 64))
                                                              for m0 in range(0, 1000, 256):
                                                                  m1 = min(m0 + 256, 1000)
                                                                  x_block = x[m0:m1]

Goes in: a Kernel whose blocks are the chunks to run. Comes out: a Frame, to which emit.py adds the lines
that compute. Invariants: each operand becomes a view with one dimension per axis, made once, and a loop's
steps take slices of it; a name is used for one thing. Read next: emit.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from minicc.gpu.calls import safe_name
from minicc.gpu.views import flat_index, padding, view_text
from minicc.kernel.ir import Axis, Block, Kernel, Operand

INDENT = "    "


@dataclass(frozen=True)
class Array:
    """A value in the text, a dimension for each axis. strides: elements. ref: the operand it is a view of."""

    text: str
    axes: tuple[str, ...] = ()
    strides: tuple[int, ...] = ()
    ref: str = ""
    literal: bool = False


@dataclass(eq=False)
class Home:
    """An array that values are written to. name is empty until the first write when it is a temporary."""

    name: str
    axes: tuple[str, ...]
    dtype: str
    temporary: bool = True


def dtype_text(dtype: object) -> str:
    """A dtype's name in the generated text."""
    return "bool_" if str(dtype) == "bool" else str(dtype)


def looped(axis: Axis) -> bool:
    """Whether the function needs a loop for the axis; Axis.steps is no guide when the axis is empty."""
    return axis.block < axis.size


@dataclass
class Frame:
    """The function under construction: lines before the loops, lines in them, and the names in use."""

    kernel: Kernel
    head: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    depth: int = 1
    names: set[str] = field(default_factory=set)
    views: dict[tuple[str, tuple[str, ...]], str] = field(default_factory=dict)
    scopes: list[dict[str, str]] = field(default_factory=lambda: [{}])  # array -> its slice in a loop
    loops: dict[str, tuple[str, str]] = field(default_factory=dict)  # axis -> its bounds, inside its loop
    pool: list[Home] = field(default_factory=list)

    def __post_init__(self) -> None:
        kernel = self.kernel
        self.sizes = {axis.name: axis.size for axis in kernel.axes}
        self.order = tuple(self.sizes)
        self.operands = {operand.name: operand for operand in kernel.operands}
        self.arrays = {name: self.fresh(name) for name in self.operands}
        self.shapes = {operand.name: operand.type.shape for operand in kernel.operands}
        self.indices = {operand.name: operand.index for operand in kernel.operands}
        self.homes = {
            operand.name: Home(operand.name, self.sort(operand.axes), dtype_text(operand.type.dtype), False)
            for operand in kernel.outputs
        }
        for scratch in kernel.scratch:
            home = Home("", scratch.axes, dtype_text(scratch.dtype))
            self.homes[scratch.name] = self.allocate(home, scratch.name)

    # -- names, arrays and views -----------------------------------------------------------------------------

    def fresh(self, wish: str, number: int | None = None) -> str:
        """A name that nothing else has; counted up from a number if there is one."""
        while number is not None and f"{wish}{number}" in self.names:
            number += 1
        name = safe_name(wish if number is None else f"{wish}{number}", self.names)
        self.names.add(name)
        return name

    def sort(self, axes: Iterable[str]) -> tuple[str, ...]:
        """Axis names in the kernel's order."""
        return tuple(sorted(axes, key=self.order.index))

    def line(self, text: str, block: Block | None = None) -> None:
        """Append a line of the body, with the user's line it comes from."""
        where = f"  # {block.locs[0]}" if block and block.locs else ""
        self.body.append(INDENT * self.depth + text + where)

    def open_operand(self, operand: Operand) -> None:
        """The line that fetches an operand's array, padded if it reads outside."""
        name, shape = self.arrays[operand.name], operand.type.shape
        self.head.append(f"{name} = buffers[{operand.buffer!r}].reshape({shape})")
        pads = padding(operand, self.sizes)
        if not any(map(any, pads)) or 0 in self.sizes.values():
            return
        padded = self.fresh(f"{operand.name}_padded")
        inner = ", ".join(f"{low}:{low + size}" for (low, _), size in zip(pads, shape, strict=True))
        shape = tuple(low + size + high for (low, high), size in zip(pads, shape, strict=True))
        fill = str(np.array(operand.fill, operand.type.dtype.numpy))
        self.head.append(f"{padded} = full({shape}, {fill}, {dtype_text(operand.type.dtype)})")
        self.head.append(f"{padded}[{inner}] = {name}")
        self.arrays[operand.name], self.shapes[operand.name] = padded, shape
        shifts = zip(operand.index, pads, strict=True)
        self.indices[operand.name] = tuple(index.scaled(1, low) for index, (low, _) in shifts)

    def load(self, ref: str, axes: Sequence[str]) -> Array:
        """A view of an operand, with these dimensions, at the current step of the loops."""
        axes = tuple(axes)
        if (ref, axes) not in self.views:
            text = self._view_text(ref, axes)
            bare = text == self.arrays[ref]
            self.views[ref, axes] = text if bare else self.fresh("_".join([ref, *axes]))
            if not bare:
                self.head.append(f"{self.views[ref, axes]} = {text}")
        return replace(self.view(ref, axes), text=self.at_step(self.views[ref, axes], axes, absolute=True))

    def view(self, ref: str, axes: tuple[str, ...]) -> Array:
        """An operand with its dimensions in this order, not read yet: its text is empty."""
        strides = dict(flat_index(self.indices[ref], self.shapes[ref]).terms)
        return Array("", axes, tuple(strides[axis] for axis in axes), ref)

    def _view_text(self, ref: str, axes: tuple[str, ...]) -> str:
        name, index, shape = self.arrays[ref], self.indices[ref], self.shapes[ref]
        if axes or not any(ref == operand.name for operand in self.kernel.outputs):
            return view_text(name, index, shape, self.sizes, axes)
        # x[3] would be a copy; an output must be a view
        return f"strided({name}, {flat_index(index, shape).offset}, (), ())" if shape else name

    def at_step(self, name: str, axes: Sequence[str], absolute: bool) -> str:
        """The part of an array that this step works on. absolute: the array covers the whole axes."""
        cuts = []
        for axis in axes:
            low, high = self.loops.get(axis, ("", ""))
            if not low or not absolute and not self.kernel.axis(axis).ragged:
                cuts.append(":")
            else:
                cuts.append(f"{low}:{high}" if absolute else f":{high} - {low}")
        while cuts and cuts[-1] == ":":
            cuts.pop()
        if not cuts:
            return name
        for scope in self.scopes:
            if name in scope:
                return scope[name]
        self.scopes[-1][name] = self.fresh(f"{name}_block")
        self.line(f"{self.scopes[-1][name]} = {name}[{', '.join(cuts)}]")
        return self.scopes[-1][name]

    def extent(self, axis: str) -> str:
        """Elements of the axis at the current step, as text."""
        if axis not in self.loops:
            return str(self.sizes[axis])
        low, high = self.loops[axis]
        return f"({high} - {low})"

    def allocate(self, home: Home, wish: str = "") -> Home:
        """Make a temporary's array, or take one that nobody needs any more."""
        for spare in self.pool:
            if (spare.axes, spare.dtype) == (home.axes, home.dtype):
                self.pool.remove(spare)
                home.name = spare.name
                return home
        home.name = self.fresh(wish or "t", None if wish else 1)
        shape = tuple(self.kernel.axis(axis).block for axis in home.axes)
        self.head.append(f"{home.name} = empty({shape}, {home.dtype})")
        return home

    def written(self, home: Home) -> Array:
        """The array of a home, to write to or to read."""
        if not home.temporary:
            return self.load(home.name, home.axes)
        if not home.name:
            self.allocate(home)
        shape = [self.kernel.axis(axis).block for axis in home.axes]
        strides = tuple(prod(shape[dim + 1 :]) for dim in range(len(shape)))
        return Array(self.at_step(home.name, home.axes, absolute=False), home.axes, strides)

    def expand(self, array: Array, axes: Sequence[str]) -> str:
        """The array's text, so that it broadcasts against values over `axes`."""
        missing = [axis not in array.axes for axis in axes]
        first = missing.index(False) if array.axes else len(axes)  # leading dimensions need no None
        if not any(missing[first:]):
            return array.text
        return f"{array.text}[{', '.join('None' if absent else ':' for absent in missing[first:])}]"

    def spread(self, array: Array, axes: Iterable[str], dtype: object) -> Array:
        """The array with these axes too, repeated along those it lacked."""
        full = self.sort({*array.axes, *axes})
        if full == array.axes:
            return array
        if array.ref:
            array = self.load(array.ref, array.axes)
        shape = ", ".join(self.extent(axis) for axis in full)
        text = f"{dtype_text(dtype)}({array.text})" if array.literal else self.expand(array, full)
        return Array(f"broadcast({text}, ({shape},))", full, (0,) * len(full))
