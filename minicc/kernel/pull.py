"""Pulling: from a value at a position back to what it is made of, which becomes the body of a kernel.

    maximum(add(%0, bias), 0.0) at (m, n), where %0 = dot_general(x, w) is fused and the others are in memory
        ->  maximum(add(dot(x at (m, k), w at (k, n)), bias at (n)), 0.0),  k a new axis

Goes in: a value, the position at which it is wanted, and the set of nodes that are fused. Comes out: a Block,
and in the Pull what it needs: axes with their sizes, operands, scalars. The rules of positions.py say where
each operand is needed; where a value is not fused, its buffer is read. A value that is wanted twice at one
position is one block. Read next: build.py, which makes a kernel of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from minicc.errors import merge_locs
from minicc.graph.dtypes import decode
from minicc.graph.ir import BOOL, I32, DType, Graph, Node, Type, Value
from minicc.kernel.index import Axis, AxisKind, Crossing, Index, Lookup
from minicc.kernel.ir import Block, Operand
from minicc.kernel.positions import RULES, Position, non_unit, operand_positions, view_source

LARGEST_BODY = 64  # ops in one body; a longer chain of ops becomes several kernels
Dropped = tuple[tuple[Index, int], ...]  # walks of dimensions, and the dimensions' sizes
MOVES = ("broadcast_in_dim", "transpose", "reshape", "slice", "reverse", "optimization_barrier")
LOOKUPS = ("gather", "dynamic_slice")  # their operand is in memory
OUTPUT_AXES = ((), ("n",), ("m", "n"), ("b", "m", "n"), ("b", "h", "m", "n"))


class Illegal(Exception):
    """Why these nodes cannot be one kernel. Never reaches a user: fusion logs it as the reason of a
    refusal."""


@dataclass
class Pull:
    """The body under construction: axes, operands, and what was pulled in already."""

    fused: Collection[Node]
    graph: Graph
    buffer: Callable[[Node], str]
    splits: Mapping[str, int] = field(default_factory=dict)  # axis -> the inner size of the two it becomes
    names: set[str] = field(default_factory=set)
    sizes: dict[str, int] = field(default_factory=dict)
    operands: dict[tuple, Operand] = field(default_factory=dict)
    scalars: dict[tuple, Operand] = field(default_factory=dict)
    known: dict[tuple[Value, Position], Block] = field(default_factory=dict)
    walks: list[tuple[Index, int]] = field(default_factory=list)  # of each dimension so far, with its size
    alone: bool = True  # whether it makes axes; a copy goes along those that are there
    ops: int = 0

    def walk(self, size: int, wish: str) -> Index:
        """An index along a new axis, named as wished or with a number behind it; if split, along two."""
        name, number = wish, 1
        while name in self.names:
            number += 1
            name = f"{wish}{number}"
        self.names.add(name)
        self.walks.append((index := self._axis(name, size), size))
        return index

    def copy(self) -> Pull:
        """The same, to pull one more value along the axes that are there."""
        state = ("names", "sizes", "operands", "scalars", "known", "walks")
        return replace(self, **{name: getattr(self, name).copy() for name in state}, alone=False)

    def found(self, value: Value) -> tuple[Position, Block]:
        """Where a value was pulled in whole, and the block that computes it.

        Raises: Illegal if it was pulled in nowhere, or only a part of it.
        """
        for (one, position), block in self.known.items():
            names = axes_of(position)
            if one == value and len(set(names)) == len(names) and all(
                    self.is_walk(index, size) for index, size in zip(position, value.shape, strict=True)):
                return position, block
        raise Illegal("it is not computed whole there")

    def is_walk(self, index: Index, size: int) -> bool:
        """Whether an index takes each value below the size once."""
        elements = prod(self.sizes[name] for name in index.axes)
        return not index.lookups and elements == size and index.reach(self.sizes) == (0, size - 1)

    def _axis(self, name: str, size: int) -> Index:
        if name not in self.splits:
            self.sizes[name] = size
            return Index.axis(name)
        inner = self.splits[name]
        return self._axis(f"{name}o", size // inner).scaled(inner).plus(self._axis(f"{name}i", inner))

    def position(self, shape: tuple[int, ...]) -> Position:
        """A new axis for each dimension that is not 1: where a kernel's result is walked."""
        rank = len(non_unit(shape))
        wishes = iter(OUTPUT_AXES[rank] if rank < len(OUTPUT_AXES) else [f"d{dim}" for dim in range(rank)])
        return tuple(Index() if size == 1 else self.walk(size, next(wishes)) for size in shape)

    def grid(self, kinds: Mapping[str, AxisKind]) -> tuple[Axis, ...]:
        """All axes in order, untiled, but for those that a lookup walks: these have blocks of one element."""
        walked = {name for op in self.operands.values() for index in op.index for name in index.walked}
        if whole := [name for name in walked if kinds[name] is AxisKind.WHOLE and self.sizes[name] > 1]:
            raise Illegal(f"it looks up a place for each element of {whole[0]}, which is needed at once")
        return tuple(Axis(name, size, 1 if name in walked else size, kinds[name])
                     for kind in (AxisKind.PARALLEL, AxisKind.WHOLE, AxisKind.SEQUENTIAL)
                     for name, size in self.sizes.items() if kinds[name] is kind)

    def pull(self, value: Value, position: Position, dropped: Dropped) -> Block:
        """The block of `value` at `position`. dropped: the walks of dimensions that a broadcast just lost, so
        that a reduction below it walks the same axis as the code above it (max and exp of a softmax see the
        row as one axis)."""
        key = (value, position)
        if key not in self.known:
            self.ops += 1
            if self.ops > LARGEST_BODY:
                raise Illegal(f"the kernel would have more than {LARGEST_BODY} ops")
            self.known[key] = self._make(value, position, dropped)
        return self.known[key]

    def _make(self, value: Value, position: Position, dropped: Dropped) -> Block:
        node = value.node
        if node.op == "constant" and node.attrs["value"].ndim == 0:
            scalar = {"value": node.attrs["value"]}
            return Block("constant", (), scalar, value.dtype, (), self.graph.lines(node))
        if node not in self.fused:
            return self._load(value, position, 0.0, node)
        return self.compute(value, position, dropped)

    def compute(self, value: Value, position: Position, dropped: Dropped) -> Block:
        """The block that computes a node here, whether or not it is fused (the root of a kernel is not)."""
        node, locs = value.node, self.graph.lines(value.node)
        if node.op in ("pad", "concatenate"):
            return self._joined(node, position, dropped)
        if node.op == "iota":
            index = position[node.attrs["axis"]]
            return Block("iota", (), {"index": index}, value.dtype, index.axes, locs)
        if node.op == "reshape" and view_source(value).node not in self.fused:
            return self._load(value, position, 0.0, node)  # a view of a buffer, whatever its rule says
        if node.op not in RULES and node.op not in MOVES:  # element by element
            args = [self.pull(one, position if one.shape else (), dropped) for one in node.operands]
            return Block(node.op, tuple(args), node.attrs, value.dtype, axes_together(args), locs)
        return self._moved(value, position, dropped)

    def _moved(self, value: Value, position: Position, dropped: Dropped) -> Block:
        """The block of a node whose operands are needed at other positions than its own."""
        node, locs = value.node, self.graph.lines(value.node)
        shared = (*dropped, *self.walks) if not self.alone else dropped if node.op == "reduce" else ()
        make = Making(self, [pair for pair in shared if not set(pair[0].axes) & set(axes_of(position))])
        positions = operand_positions(node, position, make)
        if node.op in LOOKUPS:
            return self._load(node.operands[0], positions[0], 0.0, node)
        if node.op in MOVES:
            still = set(axes_of(positions[0]))
            lost = [pair for pair in zip(position, value.shape, strict=True) if not set(pair[0].axes) & still]
            block = self.pull(node.operands[0], positions[0], (*dropped, *lost))
            return replace(block, locs=merge_locs(block.locs, locs)) if block.op == "load" else block
        made = make.made
        pairs = list(zip(node.operands, positions, strict=True))
        args = [self._load(*pairs.pop(0), 0.0, node)] if node.op == "convolution" else []
        args += [self.pull(*pair, dropped) for pair in pairs]
        if any(name not in arg.axes for name in made for arg in args):
            raise Illegal("it would sum over an axis that its operand does not vary along")
        kept = tuple([name for name in axes_together(args) if name not in made])
        if node.op == "reduce":
            attrs = {"kind": node.attrs["kind"], "axes": tuple(made)}
            return Block("reduce", tuple(args), attrs, value.dtype, kept, locs)
        return Block("dot", tuple(args), {"contract": tuple(made)}, value.dtype, kept, locs)

    def _joined(self, node: Node, position: Position, dropped: Dropped) -> Block:
        """A pad or a concatenation: each operand at its shifted position, chosen where that is inside it.

        What an operand gives outside does not matter, but that it can be read there: see _load.
        """
        positions = operand_positions(node, position, Making(self, []))
        if node.op == "pad":
            operand, fill = node.operands
            if operand.node not in self.fused and fill.op == "constant":
                return self._load(operand, positions[0], _scalar(fill), node)
            inside = [test for index, size in zip(positions[0], operand.shape, strict=True)
                      for test in self._within(index, size, node)]
            value, outside = self.pull(operand, positions[0], dropped), self.pull(fill, (), dropped)
            for test in inside:
                value = self._op("select", (test, value, outside), node)
            return value
        axis = node.attrs["axis"]
        value = self.pull(node.operands[0], positions[0], dropped)
        for operand, place in zip(node.operands[1:], positions[1:], strict=True):
            behind = self._compare(place[axis], "ge", 0, node)
            value = self._op("select", (behind, self.pull(operand, place, dropped), value), node)
        return value

    def _op(self, op: str, args: tuple[Block, ...], node: Node, dtype: DType | None = None,
            **attrs: str) -> Block:
        """A block of a node's that computes element by element."""
        dtype = dtype or node.types[0].dtype
        return Block(op, args, attrs, dtype, axes_together(args), self.graph.lines(node))

    def _compare(self, index: Index, direction: str, limit: int, node: Node) -> Block:
        """Where an index compares so with a number."""
        number = Block("constant", (), {"value": np.array(limit, np.int32)}, I32, ())
        here = Block("iota", (), {"index": index}, I32, index.axes, self.graph.lines(node))
        return self._op("compare", (here, number), node, BOOL, direction=direction)

    def _within(self, index: Index, size: int, node: Node) -> list[Block]:
        """The tests that an index is inside a dimension; those that always hold are left out."""
        low, high = index.reach(self.sizes)
        tests = [("ge", 0)] * (low < 0) + [("lt", size)] * (high >= size)
        return [self._compare(index, direction, limit, node) for direction, limit in tests]


    def viewed(self, type: Type, index: Position) -> tuple[Type, Position]:
        """A view in which each dimension that several axes walk, one within the other, is one dimension for
        each: 32*h+d of 256 as (h, d) of 8 x 32."""
        shape: list[int] = []
        parts: list[Index] = []
        for size, part in zip(type.shape, index, strict=True):
            if len(part.terms) < 2:
                shape.append(size)
                parts.append(part)
                continue
            rest: list[tuple[int, Index]] = []
            for _, stride in sorted(part.terms, key=lambda term: -term[1])[:-1]:
                if stride < 2 or size % stride:
                    break
                try:
                    outer, inner = part.divided(stride, self.sizes)
                except Crossing:
                    break
                rest.append((size // stride, outer))
                size, part = stride, inner
            for elements, one in (*rest, (size, part)):
                shape.append(elements)
                parts.append(one)
        return Type(type.dtype, tuple(shape)), tuple(parts)

    def scalar(self, value: Value) -> str:
        """The name of an array whose elements indices look up."""
        buffer = self.buffer(view_source(value).node)
        if (buffer, value.type) not in self.scalars:
            self.scalars[buffer, value.type] = Operand(self._name(buffer), buffer, value.type, ())
        return self.scalars[buffer, value.type].name

    def _name(self, buffer: str) -> str:
        """A name for one more operand of a buffer."""
        same = sum(one.buffer == buffer for one in (*self.operands.values(), *self.scalars.values()))
        return buffer if not same else f"{buffer}_{same + 1}"

    def _load(self, value: Value, position: Position, fill: float, reader: Node) -> Block:
        """Read a buffer, and `fill` where the position leaves it; dimensions of 1 that it does not leave are
        dropped from the view."""
        reaches = [index.reach(self.sizes) for index in position]
        leaves = [low < 0 or high >= size for (low, high), size in zip(reaches, value.shape, strict=True)]
        kept = [dim for dim, size in enumerate(value.shape) if size != 1 or leaves[dim]]
        view, index = self.viewed(Type(value.dtype, tuple(value.shape[dim] for dim in kept)),
                                  tuple(position[dim] for dim in kept))
        if any(found.lookups for found, leaving in zip(position, leaves, strict=True) if leaving):
            raise Illegal("it would look up a place outside of an array")
        buffer = self.buffer(view_source(value).node)
        beyond = fill if any(leaves) else None
        key = (buffer, view.shape, index, beyond)
        if key not in self.operands:
            self.operands[key] = Operand(self._name(buffer), buffer, view, index, beyond)
        operand, locs = self.operands[key], self.graph.lines(reader)
        return Block("load", (), {"ref": operand.name}, value.dtype, tuple(dict.fromkeys(operand.axes)), locs)


@dataclass
class Making:
    """What the rule of one node asks for: axes, which a reduction may share with those a broadcast lost, and
    lookups."""

    body: Pull
    spare: list[tuple[Index, int]]
    made: list[str] = field(default_factory=list)

    @property
    def sizes(self) -> Mapping[str, int]:
        """The size of every axis so far."""
        return self.body.sizes

    def walk(self, size: int) -> Index:
        """An index along a new axis, or along the spare ones of a dimension of this size."""
        reuse = [index for index, lost in self.spare if lost == size and self.body.is_walk(index, size)
                 and not set(index.axes) & set(self.made)]
        index = reuse[0] if reuse else self.body.walk(size, "k")
        self.made += index.axes
        return index

    def lookup(self, scalars: Value, position: Position, clamp: int | None) -> Index:
        """A number of an i32 array, as an index."""
        reaches = zip([index.reach(self.sizes) for index in position], scalars.shape, strict=True)
        if any(low < 0 or high >= size for (low, high), size in reaches):
            raise Illegal("a lookup at a place that its array does not have")
        return Index(lookups=(Lookup(self.body.scalar(scalars), position, clamp),))


def axes_of(position: Position) -> tuple[str, ...]:
    """The axes that a position moves along."""
    return tuple([name for index in position for name in index.axes])


def axes_together(args: Sequence[Block]) -> tuple[str, ...]:
    """The axes that some blocks vary over together."""
    first = args[0].axes
    if all([arg.axes == first or not arg.axes for arg in args]):
        return first
    return tuple(dict.fromkeys([name for arg in args for name in arg.axes]))


def _scalar(value: Value) -> float:
    if value.op != "constant":
        raise Illegal("a pad value that is not a constant")
    return float(decode(value.node.attrs["value"], value.dtype))
