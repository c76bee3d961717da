"""Dots in vector mode: whatever is contracted becomes one np.matmul, on views where the layout allows it.

    x at (m, k), w at (k, n)                  ->  matmul(x, w, out=y)
    q at (b, m, h, k), k at (b, n, h, k)      ->  matmul(q as (b, h, m, k), k as (b, h, k, n), out=s)
    w at (o, c, i, j), x at (n, c, u+i, v+j)  ->  matmul(w as (o, cij), x as (n, cij, uv), out=y)

Goes in: a dot of two Arrays. Comes out: the call. Rows are the axes of the left side only, columns those of
the right only, batch those of both; rows, columns and what is contracted must each become one dimension.
Where an operand's axes are not one in memory, numpy copies it: for a convolution this is im2col, a copy that
is worth its bytes since BLAS does the rest. Where the output's are not, its outer rows or columns become a
batch, if that leaves products of a fair size; else one product is made aside and copied to it. Integers
multiply as floats that hold every sum exactly, for BLAS knows no others.

cuDNN and oneDNN choose between this, an im2col that exists only in registers, and Winograd's transform. Read
next: vector.py, which calls this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from minicc.gpu.arrays import Array, Walk, expanded, grouped, permuted
from minicc.graph.dtypes import DTYPES, DType
from minicc.kernel.ir import Block

FAIR_SIDE = 32  # a product with fewer rows or columns is worth a copy, if the copy makes it larger
F64 = DType("f64", np.dtype(np.float64), "f")  # which holds all sums of products of small integers
SMALL = {"bf16": 0, "f16": 0, "i8": 255 * 255, "u8": 255 * 255}  # and how large a product can be
Axes = tuple[str, ...]


@dataclass
class DotLines:
    """The lines of one dot. make: gives a new array for some axes, which lies in memory in their order."""

    block: Block
    walk: Walk
    make: Callable[[Axes, DType], Array]
    lines: list[str] = field(default_factory=list)

    def write(self, left: Array, right: Array, out: Array) -> list[str]:
        """The calls that compute the dot into `out`."""
        block, walk = self.block, self.walk
        if not block.reduced:
            spread = [expanded(self.copy(x, x.axes, DTYPES["f32"]) if x.dtype == "bf16" else x, block.axes)
                      for x in (left, right)]
            return [*self.lines, f"multiply({', '.join(spread)}, out={out.text}, dtype={out.dtype})"]
        left, right = (self.in_floats(array) for array in (left, right))
        rows, columns = (self.loop_first(axis for axis in block.axes if axis not in other.axes)
                         for other in (right, left))
        batch = tuple(axis for axis in block.axes if axis not in rows + columns)
        larger = max((left, right), key=lambda array: walk.elements(array.axes))
        contract = self.loop_first(sorted(block.reduced, key=lambda axis: -larger.stride(axis)))
        inner = _joined_end(out, rows, walk), _joined_end(out, columns, walk)
        outer = tuple(axis for axis in block.axes if axis not in inner[0] + inner[1])
        small = outer != batch and min(map(walk.elements, inner)) < FAIR_SIDE
        aside = small or left.dtype != out.dtype or not _dense(out, inner[0], inner[1], walk)
        if aside:
            outer, inner = batch, (rows, columns)
        target = self.make((*outer, *inner[0], *inner[1]), DTYPES.get(left.dtype, F64)) if aside else out
        lhs, rhs = self.matrix(left, outer, inner[0], contract), self.matrix(right, outer, contract, inner[1])
        groups = [*((axis,) for axis in outer), *(axes for axes in inner if axes or outer)]
        self.lines.append(f"matmul({lhs}, {rhs}, out={grouped(target, groups, walk)})")
        if aside:
            wraps = ".astype(i64)" if block.dtype.kind == "i" and left.dtype != out.dtype else ""
            self.lines.append(f"copy({expanded(target, out.axes)}{wraps}, out={out.text})")
        return self.lines

    def loop_first(self, axes: Iterable[str]) -> Axes:
        """The axes in the order in which they can be one dimension, though steps cut the one."""
        return tuple(sorted(axes, key=lambda axis: axis != self.walk.loop))

    def in_floats(self, array: Array) -> Array:
        """An operand as BLAS can take it: 16-bit floats in f32, small integers where all sums fit."""
        if array.dtype not in SMALL:
            return array
        exact = self.walk.elements(self.block.reduced) * SMALL[array.dtype] <= 2**24
        return self.copy(array, array.axes, DTYPES["f32"] if self.block.dtype.kind == "f" or exact else F64)

    def copy(self, array: Array, axes: Axes, dtype: DType) -> Array:
        """A copy of an array, as it should lie in memory."""
        made = self.make(axes, dtype)
        name = "bf16_to_f32" if array.dtype == "bf16" else "copy"
        self.lines.append(f"{name}({permuted(array.text, array.axes, axes)}, out={made.text})")
        return made

    def matrix(self, array: Array, outer: Axes, rows: Axes, columns: Axes) -> str:
        """The text of an operand as a matrix, or a batch of them; of a copy, if BLAS could not read it."""
        sides = [axes for axes in (rows, columns) if axes or outer]
        joined = all(self.walk.joined(array, axes) for axes in sides)
        if not joined or not _dense(array, rows, columns, self.walk):
            inner = (*columns, *rows) if self.walk.unit(array) in rows else (*rows, *columns)  # as it lies
            own = tuple(axis for axis in outer if axis in array.axes)
            array = self.copy(array, (*own, *inner), DTYPES.get(array.dtype, F64))
        return grouped(array, [*((axis,) for axis in outer), *sides], self.walk)


def _joined_end(array: Array, axes: Axes, walk: Walk) -> Axes:
    """The most of the last axes that are one dimension of an array."""
    starts = range(len(axes))
    return next((axes[start:] for start in starts if walk.joined(array, axes[start:])), ())


def _dense(array: Array, rows: Axes, columns: Axes, walk: Walk) -> bool:
    """Whether BLAS can take the array as matrices: one side lies dense, and the other steps beyond it."""
    for side, other in ((rows, columns), (columns, rows)):
        if not side or array.stride(side[-1]) == 1:
            return not other or array.stride(other[-1]) >= walk.elements(side)
    return False
