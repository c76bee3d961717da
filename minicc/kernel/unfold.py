"""Unfolding: a convolution seen as a product of matrices.

    x: f32[8,64,32,32] at (b, k, m+k2-1, n+k3-1)   ->   x: f32[8,576,1024] at (b, k, m), one row for each
    w: f32[64,64,3,3] at (h, k, k2, k3)            ->   w: f32[64,576] at (h, k)          channel and tap
    y: f32[8,64,32,32] at (b, h, m, n)             ->   y: f32[8,64,1024] at (b, h, m)

Goes in: a Kernel that reads one operand through a window, two axes to a dimension. Comes out: an Unfolding,
which says which axes are the rows of a matrix (a channel and the taps) and which its columns (the pixels);
and the kernel over these two axes, in which nothing is a convolution any more. The matrix is never in memory:
a target makes it of a block of the operand, halo and all, once that is in fast memory.

Each group is an axis if all operands but the one with the window walk it from end to end, or not at all; the
first of a group may have smaller blocks, and gives it its name. An input that walks it in another manner, as
the weights in a gradient by the operand, reversed and with k outside of h, is gathered to rows. In a gradient
by the weights, pixels are summed over and the taps are in the result, and it is the same matrix. Caffe made
it in memory (im2col); cuDNN's implicit GEMM makes it tile by tile, as is done here. Read next: tile.py,
tpu/unfold.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations
from math import prod

from minicc.graph.ir import Type
from minicc.kernel.index import Axis, Index
from minicc.kernel.ir import Block, Kernel, Operand

Names = tuple[str, ...]
MOST_COPIED = 4  # dimensions of one copy
Groups = dict[str, list[Axis]]  # the first axis of each -> all of them


@dataclass(frozen=True)
class Walk:
    """A dimension with a window: `taps` elements, `apart` from each other, for each of `pixels`, `stride`
    from each other. It is copied in phases: elements `step` apart, from each remainder of a tap's place.

    >>> walk = Walk(taps=3, apart=1, pixels=16, stride=2, step=2)
    >>> walk.phases, walk.span, walk.place(2, 15)
    ([0, 1], 17, (0, 16))
    """

    taps: int
    apart: int
    pixels: int
    stride: int
    step: int

    @property
    def phases(self) -> list[int]:
        """Where copies begin, in elements from the first of the block."""
        return sorted({tap * self.apart % self.step for tap in range(self.taps)})

    @property
    def span(self) -> int:
        """Elements of each phase."""
        return ((self.taps - 1) * self.apart + (self.pixels - 1) * self.stride) // self.step + 1

    def place(self, tap: int, pixel: int) -> tuple[int, int]:
        """The number of the phase in which an element is, and its own number there."""
        number, phase = divmod(tap * self.apart + pixel * self.stride, self.step)
        return self.phases.index(phase), number


@dataclass(frozen=True)
class Unfolding:
    """operand: what is read through a window. first: its first dimension with one. rows, columns: names of
    axes, outermost first; each of them is a term of at most one index, and what is left of the operand's axes
    has blocks of one element. gathered: other inputs, of which each copy brings a group to rows, and the axis
    that they have along lanes."""

    operand: Operand
    first: int
    rows: Names
    columns: Names
    gathered: tuple[tuple[str, str], ...] = ()

    @cached_property
    def channel(self) -> str | None:
        """The axis of the rows that moves along a dimension of its own."""
        return None if self.rows[0] in self.window_axes else self.rows[0]

    @cached_property
    def window_axes(self) -> Names:
        """The axes that move along dimensions with a window."""
        return tuple(name for index in self.operand.index[self.first:] for name in index.axes)

    @property
    def groups(self) -> tuple[Names, Names]:
        """Rows and columns."""
        return self.rows, self.columns

    @property
    def inner(self) -> Names:
        """The axes that must be whole."""
        return self.rows[1:] + self.columns[1:]

    def walks(self, kernel: Kernel) -> list[Walk]:
        """How full blocks walk each dimension with a window; there are pixels in the last one."""
        blocks, found = {axis.name: axis.block for axis in kernel.axes}, list[Walk]()
        for index in self.operand.index[self.first:]:
            (tap, apart), (pixel, stride) = (
                (*(term for term in index.terms if term[0] in group), ("", 1))[0] for group in self.groups)
            taps, pixels = blocks.get(tap, 1), blocks.get(pixel, 1)
            step = stride if taps == 1 else apart if pixels == 1 else 1
            found.append(Walk(taps, apart, pixels, stride, step))
        return [*found[:-1], replace(found[-1], step=found[-1].stride)]

    def lanes(self, operand: Operand) -> str | None:
        """The axis along lanes of an input that is gathered."""
        return dict(self.gathered).get(operand.name)

    def worth(self, kernel: Kernel) -> tuple[int, int, int]:
        """How much the matrix covers of the operand; for as much, the less is gathered the better, and the
        fewer its rows."""
        rows, columns = (prod(kernel.axis(name).size for name in group) for group in self.groups)
        return rows * columns, -len(self.gathered), -rows

    def flat(self, kernel: Kernel) -> Kernel:
        """The kernel over one axis for each of the two groups."""
        groups: Groups = {group[0]: [kernel.axis(name) for name in group] for group in self.groups}
        axes = tuple(_merged(groups[axis.name]) if axis.name in groups else axis
                     for axis in kernel.axes if axis.name not in self.inner)
        inputs, outputs = (tuple(self._seen(op, groups, kernel) for op in ops)
                           for ops in (kernel.inputs, kernel.outputs))
        scratch = tuple(replace(one, axes=self._left(one.axes)) for one in kernel.scratch)
        flat = replace(kernel, axes=axes, inputs=inputs, outputs=outputs, scratch=scratch)
        return flat.mapped(self._over)

    def _left(self, axes: Names) -> Names:
        return tuple([name for name in axes if name not in self.inner])

    def _over(self, block: Block) -> Block:
        attrs = {key: self._left(value) if key in ("axes", "contract") else value
                 for key, value in block.attrs.items()}
        return replace(block, axes=self._left(block.axes), attrs=attrs)

    def _seen(self, operand: Operand, groups: Groups, kernel: Kernel) -> Operand:
        if operand.name == self.operand.name:
            return _matrix(operand, groups)
        if lanes := self.lanes(operand):
            group = self.rows if self.rows[0] in operand.axes else self.columns
            return _matrix(operand, {group[0]: groups[group[0]], lanes: [kernel.axis(lanes)]})
        for axes in groups.values():
            operand = _view(operand, axes)
        return operand


def unfolding(kernel: Kernel) -> Unfolding | None:
    """How the kernel can be unfolded, if it can."""
    through = [op for op in kernel.inputs if any(index.terms[1:] for index in op.index)]
    if len(through) != 1 or not any(block.op == "dot" for block in kernel.blocks()):
        return None
    operand = through[0]
    first = next(dim for dim, index in enumerate(operand.index) if index.terms[1:])
    window = operand.index[first:]
    names = [name for index in operand.index for name in index.axes]
    simple = all(len(index.terms) < 3 and not index.lookups and all(stride > 0 for _, stride in index.terms)
                 for index in window)
    if not simple or len(set(names)) < len(names):
        return None
    found = [how for rows, columns in permutations(_sides(kernel, window), 2)
             for how in _options(kernel, operand, first, rows, columns)]
    return max(found, key=lambda how: how.worth(kernel), default=None)


def _options(kernel: Kernel, operand: Operand, first: int, rows: Names,
             columns: Names) -> Iterator[Unfolding]:
    """With these axes of a window as rows and as columns, and each channel that there may be, or none."""
    if not {*operand.index[-1].axes} & {*columns}:
        return
    before = zip(operand.index[:first], operand.type.shape, strict=False)
    plain = [(index.axes[0], size) for index, size in before
             if index.terms and index == Index.axis(index.axes[0])]
    channels = [name for name, size in plain if kernel.axis(name).size <= size]  # none is padded
    for group in (rows, *((name, *rows) for name in channels)):
        one_kind = len({kernel.axis(name).kind for name in group}) == 1
        few = len(operand.index) - first + (group != rows) <= MOST_COPIED
        if one_kind and few and _together(kernel, group) and _together(kernel, columns):
            others = [op for op in kernel.operands if op is not operand]
            found = {op.name: _lanes(kernel, op, operand, group, columns) for op in others}
            if None not in found.values() and len({*found.values()} - {""}) < 2:
                gathered = tuple((name, lanes) for name, lanes in found.items() if lanes)
                yield Unfolding(operand, first, group, columns, gathered)


def applied(kernel: Kernel) -> Unfolding | None:
    """How the kernel is unfolded, if it has blocks for that."""
    how = unfolding(kernel) if any(index.terms[1:] for op in kernel.inputs for index in op.index) else None
    whole = how and all((axis := kernel.axis(name)).block == axis.size for name in how.inner)
    if not how or not whole:
        return None
    matrices = [op for op in kernel.inputs if op.name == how.operand.name or how.lanes(op)]
    own = {*how.rows, *how.columns}
    single = [kernel.axis(name).block == 1 for op in matrices for name in {*op.axes} - own - {how.lanes(op)}]
    several = [kernel.axis(name).block > 1 for _, name in how.gathered]
    return how if all(single) and all(several) else None


def _sides(kernel: Kernel, window: Sequence[Index]) -> list[Names]:
    """The axes of a window by their kinds, if that tells the two of each dimension apart."""
    kinds = dict.fromkeys(kernel.axis(name).kind for index in window for name in index.axes)
    sides = [tuple(name for index in window for name in index.axes if kernel.axis(name).kind is kind)
             for kind in kinds]
    apart = all(len({*index.axes} & {*side}) < 2 for index in window for side in sides)
    return sides if apart and len(sides) == 2 else []


def _together(kernel: Kernel, group: Names) -> bool:
    """Whether all values vary over all of a group or none, and nothing counts along it or looks it up."""
    inside = {*group}
    for block in kernel.blocks():
        counts = block.op == "iota" and inside & {*block.axes}
        if counts or len(inside & {*block.axes}) not in (0, len(group)):
            return False
    return not inside & kernel.walked


def _lanes(kernel: Kernel, operand: Operand, seen: Operand, *groups: Names) -> str | None:
    """"" if each group that an operand has is an axis to it; else the axis it would have along lanes, if its
    only group can be gathered to rows; None if not. seen: what has the window, and walks other axes one by
    one."""
    here = [group for group in groups if {*group} & {*operand.axes}]
    if all(_walked(kernel, operand, group) for group in here):
        return ""
    left = [name for name in operand.axes if name not in here[0]]
    plain = operand.fill is None and operand in kernel.inputs
    plain = plain and all(len(index.terms) < 2 and not index.lookups for index in operand.index)
    each = sorted((*left, *here[0])) == sorted(operand.axes) and len(here[0]) < MOST_COPIED
    free = [name for name in left if name not in seen.axes and kernel.axis(name).size > 1]
    if len(here) > 1 or not (plain and each and free):
        return None
    return max(free, key=lambda name: kernel.axis(name).size)


def _walked(kernel: Kernel, operand: Operand, group: Names) -> bool:
    """Whether an operand walks a group from end to end."""
    start = operand.index.index(Index.axis(group[0])) if Index.axis(group[0]) in operand.index else 0
    part = slice(start, start + len(group))
    sizes = tuple(kernel.axis(name).size for name in group)
    if operand.index[part] != tuple(map(Index.axis, group)) or operand.type.shape[part][1:] != sizes[1:]:
        return False
    return operand.fill is None and sum(name in group for name in operand.axes) == len(group)


def _merged(group: Sequence[Axis]) -> Axis:
    """A group as one axis."""
    size, block = (prod(sizes) for sizes in zip(*((axis.size, axis.block) for axis in group), strict=True))
    return Axis(group[0].name, size, block, group[0].kind)


def _view(operand: Operand, group: Sequence[Axis]) -> Operand:
    """An operand with a group as one axis."""
    if group[0].name not in operand.axes:
        return operand
    dim, count = operand.index.index(Index.axis(group[0].name)), len(group)
    shape, index = operand.type.shape, operand.index
    size = prod(shape[dim: dim + count])
    return replace(operand, type=Type(operand.type.dtype, (*shape[:dim], size, *shape[dim + count:])),
                   index=index[:dim + 1] + index[dim + count:])


def _matrix(operand: Operand, groups: Groups) -> Operand:
    """An operand with groups as its last axes, whatever the order of its dimensions."""
    names = {axis.name for group in groups.values() for axis in group}
    kept = [(size, index) for size, index in zip(operand.type.shape, operand.index, strict=True)
            if not names & {*index.axes}]
    shape = [size for size, _ in kept] + [_merged(group).size for group in groups.values()]
    index = [index for _, index in kept] + [Index.axis(name) for name in groups]
    return replace(operand, type=Type(operand.type.dtype, tuple(shape)), index=tuple(index))
