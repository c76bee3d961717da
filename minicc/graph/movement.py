"""Rules of movement: what reshapes, spreads, cuts, joins and looks up elements, and changes none of them.

    slice(pad(x, 0.0))                       ->  slice(x), if the padding is cut off again
    gather(x, 3) axis=0                      ->  reshape(slice(x) start=[3,0] limit=[4,9])
    concatenate(slice(x) 0:2, slice(x) 2:5)  ->  slice(x) 0:5

Goes in: nothing. Comes out: `MOVEMENT`, a table. Invariants: every rule here is exact, for every dtype;
slices and transposes move towards the inputs and meet there, reshapes and broadcasts take in what comes
before them, so that the rules come to an end. MLIR keeps such rules as "canonicalizers" of each op; tinygrad
folds all of them into one object, a view with strides and masks. Read next: sums.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minicc.graph.algebra import same_type
from minicc.graph.elementwise import ELEMENTWISE
from minicc.graph.ir import Value
from minicc.graph.rewrite import Match, Rule, X, Y, any_of, pattern

reshape, transpose, broadcast, slice_, pad, reverse, gather = map(
    pattern, ("reshape", "transpose", "broadcast_in_dim", "slice", "pad", "reverse", "gather"))
CONCATENATE, DYNAMIC_SLICE = any_of({"concatenate"}), any_of({"dynamic_slice"})
REARRANGE = any_of({"transpose", "broadcast_in_dim"})
PER_ELEMENT = {*ELEMENTWISE, "compare", "select", "convert"}
Cut = tuple[int, int, int]  # start, limit, stride


def is_spread(value: Value) -> bool:
    """Is this a scalar, spread over an array?"""
    return value.op == "broadcast_in_dim" and value.node.operands[0].shape == ()


def matched_axes(small: Sequence[int], large: Sequence[int]) -> list[int] | None:
    """Which axes of a larger shape are those of a smaller one, if the others are all 1.

    >>> matched_axes((3, 4), (3, 1, 4)), matched_axes((3, 4), (4, 3))
    ([0, 2], None)
    """
    axes: list[int] = []
    for axis, size in enumerate(large):
        if len(axes) < len(small) and size == small[len(axes)]:
            axes.append(axis)
        elif size != 1:
            return None
    return axes if len(axes) == len(small) else None


# -- reshape, transpose, broadcast ----------------------------------------------------------------------


def _in_order(m: Match) -> Value | None:
    """The operand, where the axes stay in place and keep their sizes."""
    axes = m.attrs["perm" if m.node.op == "transpose" else "dims"]
    return same_type(m) if axes == tuple(range(len(axes))) else None


def _transposed_once(m: Match) -> Value:
    inner = m.node.operands[0].node.attrs["perm"]
    return m.build("transpose", m[X], perm=tuple(inner[axis] for axis in m.attrs["perm"]))


def _only_ones_move(m: Match) -> Value | None:
    """A transpose that moves only axes of one element, or a broadcast that only adds such."""
    operand, op = m.node.operands[0], m.node.op
    axes = m.attrs["perm" if op == "transpose" else "dims"]
    sizes = operand.shape if op == "transpose" else m.type.shape
    moving = [axis for axis in axes if sizes[axis] != 1]
    if moving != sorted(moving) or operand.type.elements != m.type.elements or not operand.shape:
        return None
    return m.build("reshape", operand, shape=m.type.shape)


def _transposed_inside(m: Match) -> Value | None:
    """transpose(f(transpose(x))): f can do its work before both, which may then undo each other."""
    inner = m.node.operands[0].node
    arrays = {v for v in inner.operands if v.shape}
    if len(arrays) != 1 or next(iter(arrays)).op != "transpose":
        return None
    moved = [m.build("transpose", v, perm=m.attrs["perm"]) if v.shape else v for v in inner.operands]
    return m.build(inner.op, *moved, **inner.attrs)


def _broadcast_once(m: Match) -> Value:
    inner, outer = m.node.operands[0].node.attrs["dims"], m.attrs
    dims = tuple(outer["dims"][axis] for axis in inner)
    return m.build("broadcast_in_dim", m[X], shape=outer["shape"], dims=dims)


def _broadcast_without_reshape(m: Match) -> Value | None:
    """A reshape that only adds axes of size 1, before a broadcast: the broadcast can add them itself."""
    axes = matched_axes(m[X].shape, m.node.operands[0].shape)
    if axes is None:
        return None
    dims = [m.attrs["dims"][axis] for axis in axes]
    return m.build("broadcast_in_dim", m[X], shape=m.type.shape, dims=dims)


def _broadcast_without_transpose(m: Match) -> Value:
    perm = m.node.operands[0].node.attrs["perm"]
    dims = [m.attrs["dims"][perm.index(axis)] for axis in range(len(perm))]
    return m.build("broadcast_in_dim", m[X], shape=m.type.shape, dims=dims)


def _transpose_of_broadcast(m: Match) -> Value:
    dims = [m.attrs["perm"].index(dim) for dim in m.node.operands[0].node.attrs["dims"]]
    return m.build("broadcast_in_dim", m[X], shape=m.type.shape, dims=dims)


def _reshape_of_broadcast(m: Match) -> Value | None:
    """A reshape that adds or takes away axes of size 1, after a broadcast."""
    inner, full = m.node.operands[0], [axis for axis, size in enumerate(m.type.shape) if size != 1]
    before = [axis for axis, size in enumerate(inner.shape) if size != 1]
    if [inner.shape[axis] for axis in before] != [m.type.shape[axis] for axis in full]:
        return None
    kept = [axis for axis, dim in enumerate(inner.node.attrs["dims"]) if dim in before]
    dims = [full[before.index(inner.node.attrs["dims"][axis])] for axis in kept]
    smaller = m.build("reshape", m[X], shape=[m[X].shape[axis] for axis in kept])
    return m.build("broadcast_in_dim", smaller, shape=m.type.shape, dims=dims)


# -- slice ----------------------------------------------------------------------------------------------


def _cuts(m: Match) -> list[Cut]:
    return list(zip(m.attrs["start"], m.attrs["limit"], m.attrs["stride"], strict=True))


def _cut(m: Match, value: Value, cuts: Sequence[Cut]) -> Value:
    start, limit, stride = zip(*cuts, strict=True) if cuts else ((), (), ())
    return m.build("slice", value, start=start, limit=limit, stride=stride)


def _sliced_once(m: Match) -> Value:
    inner, cuts = m.node.operands[0].node.attrs, []
    pairs = zip(_cuts(m), inner["start"], inner["stride"], m.type.shape, strict=True)
    for (start, _, stride), first, step, size in pairs:
        begin = first + start * step if size else 0
        cuts.append((begin, begin + (size - 1) * stride * step + 1 if size else 0, stride * step))
    return _cut(m, m[X], cuts)


def _slice_of_pad(m: Match) -> Value | None:
    inner = m.node.operands[0].node.attrs
    if any(inner["interior"]) or set(m.attrs["stride"]) != {1} or not m.type.elements:
        return None
    cuts, low, high = [], [], []
    for (start, limit, _), before, size in zip(_cuts(m), inner["low"], m[X].shape, strict=True):
        cuts.append((min(max(start - before, 0), size), min(max(limit - before, 0), size), 1))
        low.append(min(max(before - start, 0), limit - start))
        high.append(limit - start - low[-1] - (cuts[-1][1] - cuts[-1][0]))
    if any(start == limit for start, limit, _ in cuts):
        return m.like(m[Y])  # of padding alone
    return m.build("pad", _cut(m, m[X], cuts), m[Y], low=low, high=high)


def _slice_of_concatenate(m: Match) -> Value | None:
    inner, cuts, parts, offset = m.node.operands[0].node, _cuts(m), [], 0
    axis = inner.attrs["axis"]
    start, limit, stride = cuts[axis]
    for operand in inner.operands:
        size = operand.shape[axis]
        first, last = max(start - offset, 0), min(limit - offset, size)
        if first < last:
            parts.append(_cut(m, operand, [*cuts[:axis], (first, last, stride), *cuts[axis + 1:]]))
        offset += size
    if not parts or len(parts) == len(inner.operands) or (stride > 1 and len(parts) > 1):
        return None
    return m.build("concatenate", *parts, axis=axis)


def _slice_of_broadcast(m: Match) -> Value:
    dims, cuts = m.node.operands[0].node.attrs["dims"], _cuts(m)
    inner = [cuts[dim] if size != 1 else (0, 1, 1) for size, dim in zip(m[X].shape, dims, strict=True)]
    return m.build("broadcast_in_dim", _cut(m, m[X], inner), shape=m.type.shape, dims=dims)


def _slice_of_transpose(m: Match) -> Value:
    perm, cuts = m.node.operands[0].node.attrs["perm"], _cuts(m)
    inner = [cuts[perm.index(axis)] for axis in range(len(perm))]
    return m.build("transpose", _cut(m, m[X], inner), perm=perm)


# -- pad, concatenate, reverse --------------------------------------------------------------------------


def _padded_once(m: Match) -> Value | None:
    inner, outer = m.node.operands[0].node.attrs, m.attrs
    if any(outer["interior"]) or m.node.operands[0].node.operands[1] != m[Y]:
        return None
    low, high = ([a + b for a, b in zip(inner[side], outer[side], strict=True)] for side in ("low", "high"))
    return m.build("pad", m[X], m[Y], low=low, high=high, interior=inner["interior"])


def _concatenated_once(m: Match) -> Value | None:
    """Flat, and without operands that have no elements."""
    axis, parts = m.attrs["axis"], list[Value]()
    for value in m.node.operands:
        nested = value.op == "concatenate" and value.node.attrs["axis"] == axis
        parts += value.node.operands if nested else [value]
    parts = [value for value in parts if value.shape[axis]] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    return m.build("concatenate", *parts, axis=axis) if tuple(parts) != m.node.operands else None


def _joined_slices(m: Match) -> Value | None:
    axis, parts = m.attrs["axis"], list[Value]()
    for value in m.node.operands:
        joined = _joined(m, parts[-1], value, axis) if parts else None
        parts[-1 if joined else len(parts):] = [joined or value]
    return m.build("concatenate", *parts, axis=axis) if len(parts) < len(m.node.operands) else None


def _joined(m: Match, left: Value, right: Value, axis: int) -> Value | None:
    """Two slices of one array that touch, as one; or two arrays of one scalar."""
    if is_spread(left) and is_spread(right) and left.node.operands == right.node.operands:
        size = left.shape[axis] + right.shape[axis]
        shape = (*left.shape[:axis], size, *left.shape[axis + 1:])
        return m.build("broadcast_in_dim", left.node.operands[0], shape=shape, dims=())
    if left.op != "slice" or right.op != "slice" or left.node.operands != right.node.operands:
        return None
    a, b = left.node.attrs, right.node.attrs
    touching = a["limit"][axis] == b["start"][axis] and a["stride"][axis] == b["stride"][axis] == 1
    others = [other for other in range(len(left.shape)) if other != axis]
    if not touching or any(a[name][other] != b[name][other] for name in a for other in others):
        return None
    limit = (*a["limit"][:axis], b["limit"][axis], *a["limit"][axis + 1:])
    return m.build("slice", left.node.operands[0], start=a["start"], limit=limit, stride=a["stride"])


def _reversed_less(m: Match) -> Value | None:
    axes = [axis for axis in m.attrs["axes"] if m.type.shape[axis] > 1]
    if len(axes) == len(m.attrs["axes"]) > 0:
        return None
    return m.build("reverse", m.node.operands[0], axes=axes) if axes else m.node.operands[0]


def _reversed_once(m: Match) -> Value:
    inner = m.node.operands[0].node.attrs["axes"]
    return m.build("reverse", m[X], axes=sorted({*m.attrs["axes"]} ^ {*inner}))


# -- indices that are known -----------------------------------------------------------------------------


def _gather_of_known(m: Match) -> Value | None:
    """Indices that count up steadily: a slice, and the axes of the indices in place of the axis."""
    operand, indices, axis = m[X], m[Y], m.attrs["axis"]
    known = _known_indices(indices)
    if known is None or not known.size:
        return None
    clamped = np.clip(known.reshape(-1), 0, operand.shape[axis] - 1)
    steps = {*np.diff(clamped).tolist()} or {1}
    if len(steps) > 1 or min(steps) < 1:
        return None
    cuts = [(0, size, 1) for size in operand.shape]
    cuts[axis] = int(clamped[0]), int(clamped[-1]) + 1, steps.pop()
    return m.build("reshape", _cut(m, operand, cuts), shape=m.type.shape)


def _known_indices(indices: Value) -> np.ndarray | None:
    if indices.op == "constant":
        return indices.node.attrs["value"]
    counting = indices.op == "iota" and len(indices.shape) == 1
    return np.arange(indices.shape[0]) if counting else None


def _slice_at_constants(m: Match) -> Value | None:
    operand, *starts = m.node.operands
    if any(start.op != "constant" for start in starts):
        return None
    cuts = []
    for start, size, whole in zip(starts, m.attrs["sizes"], operand.shape, strict=True):
        first = min(max(int(start.node.attrs["value"]), 0), whole - size)
        cuts.append((first, first + size, 1))
    return _cut(m, operand, cuts)


def _whole_update(m: Match) -> Value | None:
    update = m.node.operands[1]
    return update if update.type == m.type else None


def _moved_spread(m: Match) -> Value | None:
    """However one moves the elements of an array of equal elements, they stay equal."""
    operand = m.node.operands[0]
    return m.like(operand.node.operands[0]) if is_spread(operand) else None


# -- the table ------------------------------------------------------------------------------------------

_SCALAR_MOVES = any_of(
    {"reshape", "transpose", "slice", "broadcast_in_dim", "reverse", "gather", "dynamic_slice"})

MOVEMENT: tuple[Rule, ...] = (
    Rule("move to its own shape -> x", any_of({"reshape", "slice", "pad", "dynamic_slice"}), same_type),
    Rule("transpose or broadcast in place -> x", REARRANGE, _in_order),
    Rule("move of a broadcast scalar -> broadcast", _SCALAR_MOVES, _moved_spread),
    Rule("reshape(reshape(x)) -> reshape(x)", reshape(reshape(X)),
         lambda m: m.build("reshape", m[X], shape=m.attrs["shape"])),
    Rule("reshape(broadcast(x)) -> broadcast(reshape(x))", reshape(broadcast(X)), _reshape_of_broadcast),
    Rule("transpose(transpose(x)) -> transpose(x)", transpose(transpose(X)), _transposed_once),
    Rule("transpose(broadcast(x)) -> broadcast(x)", transpose(broadcast(X)), _transpose_of_broadcast),
    Rule("transpose(f(transpose(x))) -> f(transpose(x))", transpose(any_of(PER_ELEMENT)), _transposed_inside),
    Rule("broadcast(broadcast(x)) -> broadcast(x)", broadcast(broadcast(X)), _broadcast_once),
    Rule("broadcast(reshape(x)) -> broadcast(x)", broadcast(reshape(X)), _broadcast_without_reshape),
    Rule("broadcast(transpose(x)) -> broadcast(x)", broadcast(transpose(X)), _broadcast_without_transpose),
    Rule("transpose or broadcast of ones -> reshape", REARRANGE, _only_ones_move),
    Rule("slice(slice(x)) -> slice(x)", slice_(slice_(X)), _sliced_once),
    Rule("slice(pad(x)) -> pad(slice(x))", slice_(pad(X, Y)), _slice_of_pad),
    Rule("slice(concatenate(x, y)) -> slice(x)", slice_(CONCATENATE), _slice_of_concatenate),
    Rule("slice(broadcast(x)) -> broadcast(slice(x))", slice_(broadcast(X)), _slice_of_broadcast),
    Rule("slice(transpose(x)) -> transpose(slice(x))", slice_(transpose(X)), _slice_of_transpose),
    Rule("pad(pad(x)) -> pad(x)", pad(pad(X, Y), Y), _padded_once),
    Rule("concatenate(concatenate(x)) -> concatenate(x)", CONCATENATE, _concatenated_once),
    Rule("concatenate of slices that touch -> slice", CONCATENATE, _joined_slices),
    Rule("reverse of one element -> x", reverse(X), _reversed_less),
    Rule("reverse(reverse(x)) -> reverse(x)", reverse(reverse(X)), _reversed_once),
    Rule("gather at known indices -> slice", gather(X, Y), _gather_of_known),
    Rule("dynamic_slice at constants -> slice", DYNAMIC_SLICE, _slice_at_constants),
    Rule("dynamic_update_slice of all -> update", any_of({"dynamic_update_slice"}), _whole_update),
)
