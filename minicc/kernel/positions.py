"""The one rule per op: to compute a result at this position, at which position is each operand needed?

    transpose perm=[1,0] at (m, n)                  ->  its operand at (n, m)
    slice start=[5,0] stride=[2,1] at (m, n)        ->  its operand at (2*m+5, n)
    dot_general contract=[1]x[0] at (m, n)          ->  lhs at (m, k), rhs at (k, n), k a new axis
    gather(x, ids) axis=0 at (m, n)                 ->  x at (ids[m], n): looked up as the kernel runs

Goes in: a node and a position, one Index per dimension of its result. Comes out: a position for each operand
that is read block by block; those that only say where to read become lookups. Fusion follows these rules to
see what a kernel must read, tiling sizes the blocks with them, and code generation never sees a broadcast, a
transpose, a slice or a reshape at all. Where a reshape's rule is not affine, an axis is split in two, or the
reshape ends a kernel.

XLA calls them indexing maps (HLO -> affine maps with floordiv and mod, too); tinygrad's ShapeTracker and
Halide's bounds inference answer the same question. Read next: build.py, which follows them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from minicc.graph.ir import Node, Value
from minicc.graph.movement import PER_ELEMENT
from minicc.kernel.index import Index

Position = tuple[Index, ...]
Shape = tuple[int, ...]


class Maker(Protocol):
    """What a rule may ask of the kernel under construction."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """The size of every axis so far."""

    def walk(self, size: int) -> Index:
        """An index that walks a dimension of this size, along a new axis, or several within one another."""

    def lookup(self, scalars: Value, position: Position, clamp: int | None) -> Index:
        """A number of an i32 array, as an index."""


def non_unit(shape: tuple[int, ...]) -> list[int]:
    """The dimensions that are not 1."""
    return [dim for dim, size in enumerate(shape) if size != 1]


def is_view(node: Node, consumers: Sequence[Node]) -> bool:
    """Whether a node costs nothing: a reshape, or a broadcast that its users need at their own places.

    A reduction needs it so if it walks none of the dimensions along which the broadcast repeats its operand.
    """
    if node.op != "broadcast_in_dim":
        return node.op == "reshape"
    dims = zip(node.attrs["dims"], node.operands[0].shape, strict=True)
    walked = {dim for dim, size in dims if size == node.types[0].shape[dim]}
    return all(user.op in PER_ELEMENT or (user.op == "reduce" and walked.issuperset(user.attrs["axes"]))
               for user in consumers)


def view_source(value: Value) -> Value:
    """The value whose buffer this one is a view of: reshapes move no bytes."""
    while value.op == "reshape":
        value = value.node.operands[0]
    return value


def _same(node: Node, position: Position, make: Maker) -> list[Position]:
    return [position if operand.shape else () for operand in node.operands]


def _broadcast(node: Node, position: Position, make: Maker) -> list[Position]:
    dims, shape = node.attrs["dims"], node.operands[0].shape
    return [tuple(Index() if size == 1 else position[dim] for size, dim in zip(shape, dims, strict=True))]


def _transpose(node: Node, position: Position, make: Maker) -> list[Position]:
    perm = node.attrs["perm"]
    return [tuple(position[perm.index(dim)] for dim in range(len(perm)))]


def _reshape(node: Node, position: Position, make: Maker) -> list[Position]:
    return [reshaped(position, node.types[0].shape, node.operands[0].shape, make.sizes)]


def reshaped(position: Position, have: Shape, want: Shape, sizes: Mapping[str, int]) -> Position:
    """A position in an array of one shape as that in its reshape to another.

    Dimensions are taken from the last on: where one is made of several it is their sum, and where several are
    made of one its index is divided. Raises: Crossing, where that is not affine.
    """
    left = [pair for pair in zip(position, have, strict=True) if pair[1] != 1]
    result: list[Index] = []
    index, count = Index(), 1  # what is left of the dimensions taken so far, and of how many elements
    for size in reversed(want):
        while count < size or count % size:
            more, elements = left.pop()
            index, count = index.plus(more.scaled(count)) if count > 1 else more, count * elements
        if size == count:
            result.append(index)
            index, count = Index(), 1
        else:
            index, remainder = index.divided(size, sizes)
            result.append(remainder)
            count //= size
    return tuple(reversed(result))


def _slice(node: Node, position: Position, make: Maker) -> list[Position]:
    steps = zip(position, node.attrs["start"], node.attrs["stride"], strict=True)
    return [tuple(index.scaled(stride, start) for index, start, stride in steps)]


def _pad(node: Node, position: Position, make: Maker) -> list[Position]:
    return [tuple(index.scaled(1, -low) for index, low in zip(position, node.attrs["low"], strict=True)), ()]


def _concatenate(node: Node, position: Position, make: Maker) -> list[Position]:
    """Each operand as if its part of the axis began at 0; only one of them has the element asked for."""
    axis, before, positions = node.attrs["axis"], 0, []
    for operand in node.operands:
        positions.append((*position[:axis], position[axis].scaled(1, -before), *position[axis + 1:]))
        before += operand.shape[axis]
    return positions


def _reduce(node: Node, position: Position, make: Maker) -> list[Position]:
    kept = iter(position)
    axes, shape = node.attrs["axes"], node.operands[0].shape
    return [tuple(_walk(size, make) if dim in axes else next(kept) for dim, size in enumerate(shape))]


def _dot(node: Node, position: Position, make: Maker) -> list[Position]:
    (lhs_batch, rhs_batch), (lhs_contract, rhs_contract) = node.attrs["batch"], node.attrs["contract"]
    lhs, rhs = node.operands
    contracted = [_walk(lhs.shape[dim], make) for dim in lhs_contract]
    batch = position[: len(lhs_batch)]
    rest = iter(position[len(lhs_batch):])
    positions = []
    sides = ((lhs, lhs_batch, lhs_contract), (rhs, rhs_batch, rhs_contract))
    for operand, batch_dims, contract_dims in sides:
        known = dict(zip((*batch_dims, *contract_dims), (*batch, *contracted), strict=True))
        dims = range(len(operand.shape))
        positions.append(tuple(known[dim] if dim in known else next(rest) for dim in dims))
    return positions


def _walk(size: int, make: Maker) -> Index:
    return Index() if size == 1 else make.walk(size)


def _reverse(node: Node, position: Position, make: Maker) -> list[Position]:
    axes, shape = node.attrs["axes"], node.types[0].shape
    return [tuple(index.scaled(-1, size - 1) if dim in axes else index
                  for dim, (index, size) in enumerate(zip(position, shape, strict=True)))]


def _gather(node: Node, position: Position, make: Maker) -> list[Position]:
    (operand, indices), axis = node.operands, node.attrs["axis"]
    behind = axis + len(indices.shape)
    last = operand.shape[axis] - 1
    found = make.lookup(indices, position[axis:behind], last) if last else Index()
    return [(*position[:axis], found, *position[behind:])]


def _dynamic_slice(node: Node, position: Position, make: Maker) -> list[Position]:
    return [window(position, node.operands[0], node.types[0].shape, node.operands[1:], make)]


def window(position: Position, array: Value, sizes: tuple[int, ...], starts: tuple[Value, ...],
           make: Maker) -> Position:
    """A position within a window of these sizes, as one within the array; starts: where the window begins."""
    room = [whole - size for whole, size in zip(array.shape, sizes, strict=True)]
    return tuple(index.plus(make.lookup(start, (), left)) if left else index
                 for index, start, left in zip(position, starts, room, strict=True))


def _convolution(node: Node, position: Position, make: Maker) -> list[Position]:
    """x[n, g, c, y * stride + ky * dilation - low, ...], w[g, o, c, ky, ...], summed over c and the ks."""
    batch, group, out, *spatial = position
    weights = node.operands[1].shape
    channel, *taps = (_walk(size, make) for size in weights[2:])
    steps = zip(spatial, taps, *(node.attrs[name] for name in ("stride", "dilation", "low")), strict=True)
    places = [y.scaled(stride, -low).plus(k.scaled(dilation)) for y, k, stride, dilation, low in steps]
    return [(batch, group, channel, *places), (group, out, channel, *taps)]


RULES: dict[str, Callable[[Node, Position, Maker], list[Position]]] = {
    "broadcast_in_dim": _broadcast,
    "transpose": _transpose,
    "reshape": _reshape,
    "slice": _slice,
    "pad": _pad,
    "concatenate": _concatenate,
    "reduce": _reduce,
    "dot_general": _dot,
    "reverse": _reverse,
    "gather": _gather,
    "dynamic_slice": _dynamic_slice,
    "convolution": _convolution,
}


def operand_positions(node: Node, position: Position, make: Maker) -> list[Position]:
    """Where each operand is needed, to compute the node at `position`. Ops not in RULES are elementwise."""
    return RULES.get(node.op, _same)(node, position, make)
