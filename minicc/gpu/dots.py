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

from dataclasses import replace

from minicc.gpu.arrays import Array, Walk, contiguous_strides, expanded, grouped
from minicc.kernel.ir import Block

FAIR_SIDE = 32  # a product with fewer rows or columns is worth a copy, if the copy makes it larger
SMALL = {"bf16": 0, "f16": 0, "i8": 255 * 255, "u8": 255 * 255}  # and how large a product can be
Axes = tuple[str, ...]


def dot_text(block: Block, left: Array, right: Array, out: Array, walk: Walk) -> str:
    """The call that computes a dot into `out`."""
    if not block.reduced:
        sides = [replace(x, text=f"from_bf16({x.text})") if x.dtype == "bf16" else x for x in (left, right)]
        spread = ", ".join(expanded(x, block.axes) for x in sides)
        return f"multiply({spread}, out={out.text}, dtype={out.dtype})"
    left, right = (_in_floats(array, block, walk) for array in (left, right))
    batch = tuple(axis for axis in block.axes if axis in left.axes and axis in right.axes)
    rows, columns = (tuple(axis for axis in block.axes if axis in array.axes and axis not in batch)
                     for array in (left, right))
    larger = max((left, right), key=lambda array: walk.elements(array.axes))
    contract = tuple(sorted(block.reduced, key=lambda axis: -larger.stride(axis)))
    inner = _joined_end(out, rows, walk), _joined_end(out, columns, walk)
    outer = tuple(axis for axis in block.axes if axis not in inner[0] + inner[1])
    small = outer != batch and min(map(walk.elements, inner)) < FAIR_SIDE
    aside = small or left.dtype != out.dtype or not _dense(out, inner[0], inner[1], walk)
    if aside:
        outer, inner = batch, (rows, columns)
    groups = [(axis,) for axis in outer]
    first, last = ([axes] if axes or outer else [] for axes in inner)
    product = f"matmul({_matrix(left, outer, inner[0], contract, walk)}, " \
              f"{_matrix(right, outer, contract, inner[1], walk)}"
    if not aside:
        return f"{product}, out={grouped(out, [*groups, *first, *last], walk)})"
    made = (*outer, *inner[0], *inner[1])
    shape = ", ".join("-1" if axis == walk.loop else str(walk.sizes[axis]) for axis in made)
    product += ").astype(i64)" if left.dtype in ("f32", "f64") and out.dtype == "i32" else ")"  # which wraps
    apart = f"{product}.reshape({shape})" if made else product
    result = Array(apart, made, left.dtype)
    return f"copy({expanded(result, out.axes)}, out={out.text})"


def _in_floats(array: Array, block: Block, walk: Walk) -> Array:
    """An operand of a dot as BLAS can take it: 16-bit floats in f32, small integers where all sums fit."""
    if array.dtype not in SMALL:
        return array
    exact = walk.elements(block.reduced) * SMALL[array.dtype] <= 2**24
    dtype = "f32" if block.dtype.kind == "f" or exact else "f64"
    text = f"from_bf16({array.text})" if array.dtype == "bf16" else f"{array.text}.astype({dtype}, 'C')"
    return Array(text, array.axes, dtype, contiguous_strides(walk.shape(array.axes)))


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


def _matrix(array: Array, outer: Axes, rows: Axes, columns: Axes, walk: Walk) -> str:
    """The text of an operand as a matrix, or a batch of them; copied if BLAS could not read it otherwise."""
    groups = [(axis,) for axis in outer]
    sides = [axes for axes in (rows, columns) if axes or outer]
    if all(walk.joined(array, axes) for axes in sides):
        text = grouped(array, [*groups, *sides], walk)
        return text if _dense(array, rows, columns, walk) else f"contiguous({text})"
    if len(sides) == 2 and array.unit in rows:  # copy it in the order in which it lies
        return f"{grouped(array, [*groups, columns, rows], walk)}.swapaxes(-1, -2)"
    return grouped(array, [*groups, *sides], walk)
