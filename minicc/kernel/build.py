"""Building a kernel: pull a value and all that is fused with it into one body, then decide how its axes are
walked.

    maximum(add(dot(x, w), bias), 0.0) at (m, n)
        ->  first: acc = 0.0    always: acc = add(acc, dot(x, w))    last: out = maximum(add(acc, bias), 0.0)

Goes in: a graph, a root, and the set of nodes fused into their users. Comes out: an untiled Kernel, or
`Illegal` with the reason in words. What makes an axis *whole*: the output or a later op has it, and a
reduction runs over it (a softmax row), or a reduction over it depends on another one. What is reduced and
not whole is *sequential*: it gets an accumulator, and what follows the reduction runs at the last step.
Read next: collapse.py, which merges axes that are contiguous everywhere, and tile.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from minicc.graph.dtypes import decode, encode
from minicc.graph.elementwise import REDUCE
from minicc.graph.ir import BOOL, F32, I32, DType, Graph, Node, Type, Value
from minicc.kernel.collapse import collapse
from minicc.kernel.cost import Target
from minicc.kernel.index import Axis, AxisKind, Crossing, Index, Lookup
from minicc.kernel.ir import (
    COMBINE,
    Block,
    Guard,
    Kernel,
    Operand,
    Scratch,
    Statement,
    post_order,
)
from minicc.kernel.positions import Position, non_unit, operand_positions, view_source

LARGEST_BODY = 64  # ops in one body; a longer chain of ops becomes several kernels
Dropped = tuple[tuple[Index, int], ...]  # walks of dimensions, and the dimensions' sizes
MOVES = ("broadcast_in_dim", "transpose", "reshape", "slice", "reverse", "gather", "dynamic_slice",
         "optimization_barrier")
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
    ops: int = 0

    def walk(self, size: int, wish: str) -> Index:
        """An index along a new axis, named as wished or with a number behind it; if split, along two."""
        name, number = wish, 1
        while name in self.names:
            number += 1
            name = f"{wish}{number}"
        self.names.add(name)
        return self._axis(name, size)

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
        spare = [pair for pair in dropped if not set(pair[0].axes) & set(_axes(position))]
        make = Making(self, spare if node.op == "reduce" else [])
        positions = operand_positions(node, position, make)
        if node.op in MOVES:
            still = set(_axes(positions[0]))
            lost = [pair for pair in zip(position, value.shape, strict=True) if not set(pair[0].axes) & still]
            return self.pull(node.operands[0], positions[0], (*dropped, *lost))
        made = make.made
        args = [self.pull(*pair, dropped) for pair in zip(node.operands, positions, strict=True)]
        if any(name not in arg.axes for name in made for arg in args):
            raise Illegal("it would sum over an axis that its operand does not vary along")
        axes = tuple(dict.fromkeys(name for arg in args for name in arg.axes))
        attrs: dict = dict(node.attrs)
        op = node.op
        if node.op in ("dot_general", "convolution"):
            op, attrs = "dot", {"contract": tuple(made)}
        elif node.op == "reduce":
            attrs = {"kind": node.attrs["kind"], "axes": tuple(made)}
        kept = tuple(name for name in axes if name not in made)
        return Block(op, tuple(args), attrs, value.dtype, kept, locs)

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
        axes = tuple(dict.fromkeys(name for arg in args for name in arg.axes))
        return Block(op, args, attrs, dtype or node.types[0].dtype, axes, self.graph.lines(node))

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
        key = (buffer, view, index, beyond)
        if key not in self.operands:
            self.operands[key] = Operand(self._name(buffer), buffer, view, index, beyond)
        axes = tuple(dict.fromkeys(self.operands[key].axes))
        locs = self.graph.lines(reader)
        return Block("load", (), {"ref": self.operands[key].name}, value.dtype, axes, locs)


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
        reuse = [index for index, lost in self.spare if lost == size and self._is_walk(index, size)]
        index = reuse[0] if reuse else self.body.walk(size, "k")
        self.made += index.axes
        return index

    def _is_walk(self, index: Index, size: int) -> bool:
        """Whether an index takes each value below the size once."""
        elements = prod(self.sizes[name] for name in index.axes)
        fresh = not index.lookups and not set(index.axes) & set(self.made)
        return fresh and elements == size and index.reach(self.sizes) == (0, size - 1)

    def lookup(self, scalars: Value, position: Position, clamp: int | None) -> Index:
        """A number of an i32 array, as an index."""
        return Index(lookups=(Lookup(self.body.scalar(scalars), position, clamp),))


def _axes(position: Position) -> tuple[str, ...]:
    return tuple(name for index in position for name in index.axes)


def _scalar(value: Value) -> float:
    if value.op != "constant":
        raise Illegal("a pad value that is not a constant")
    return float(decode(value.node.attrs["value"], value.dtype))


def build_kernel(
    graph: Graph, root: Value, fused: Collection[Node], buffer: Callable[[Node], str], target: Target
) -> Kernel:
    """The kernel that computes `root` from whatever is not fused.

    Raises: Illegal, with the reason, if its axes cannot be walked by one grid or would not fit the target.
    """
    return with_splits(lambda splits: _kernel(Pull(fused, graph, buffer, splits), root, target))


def with_splits(make: Callable[[Mapping[str, int]], Kernel]) -> Kernel:
    """The kernel, made with as few axes split in two as its reshapes need."""
    splits: dict[str, int] = {}
    while True:
        try:
            return make(splits)
        except Crossing as crossing:
            if not crossing.axis:
                raise Illegal(str(crossing)) from None
            splits[crossing.axis] = crossing.inner


def _kernel(body: Pull, root: Value, target: Target) -> Kernel:
    position = body.position(root.shape)
    names = _axes(position)
    value = body.compute(root, position, ())
    kinds = _axis_kinds(value, names, body.sizes)
    axes = body.grid(kinds)
    view = Type(root.dtype, tuple(body.sizes[name] for name in names))
    out_name = body.buffer(root.node)
    output = Operand(out_name, out_name, view, tuple(Index.axis(name) for name in names))
    statements, scratch = _statements(value, output.name, kinds)
    kernel = Kernel(kernel_name(value), axes, tuple(body.operands.values()), (output,), scratch, statements,
                    tuple(body.scalars.values()))
    return finished(kernel, target)


def finished(kernel: Kernel, target: Target) -> Kernel:
    """The kernel in its final form. Raises: Illegal, if the target cannot run it."""
    kernel = collapse(_in_order(kernel))
    _check(kernel, target)
    return kernel


def _axis_kinds(root: Block, outputs: Collection[str], sizes: Mapping[str, int]) -> dict[str, AxisKind]:
    """Decide how each axis is walked; see the module's docstring for the rule."""
    blocks = post_order(root)
    behind: dict[Block, set[str]] = {}  # axes reduced somewhere below a block
    whole: set[str] = set()
    for block in blocks:
        below = set().union(*(behind[arg] for arg in block.args)) if block.args else set()
        inside = set(block.axes) | set(block.reduced)
        whole |= below & inside
        behind[block] = below | set(block.reduced)
    whole |= behind[root] & set(outputs)
    sequential = [b for b in blocks if b.reduced and not set(b.reduced) & whole]
    groups = {frozenset(b.reduced) for b in sequential}
    main = max(groups, key=lambda group: prod(sizes[name] for name in group), default=frozenset())
    for block in sequential:
        below = set().union(*(behind[arg] for arg in block.args))
        if frozenset(block.reduced) != main or main & below:
            whole |= set(block.reduced)
    for block in blocks:  # a reduction over both kinds is over whole axes only
        if set(block.reduced) & whole:
            whole |= set(block.reduced)
    walked = {name: AxisKind.PARALLEL if name in outputs else AxisKind.SEQUENTIAL for name in sizes}
    return {name: AxisKind.WHOLE if name in whole else kind for name, kind in walked.items()}


def _statements(
    root: Block, output: str, kinds: Mapping[str, AxisKind]
) -> tuple[tuple[Statement, ...], tuple[Scratch, ...]]:
    """The guarded statements: an accumulator for each reduction over sequential axes."""
    accumulators: dict[Block, Scratch] = {}
    new: dict[Block, Block] = {}
    first: list[Statement] = []
    always: list[Statement] = []
    for block in post_order(root):
        copy = replace(block, args=tuple(new[arg] for arg in block.args)) if block.args else block
        if not any(kinds[name] is AxisKind.SEQUENTIAL for name in block.reduced):
            new[block] = copy
            continue
        name = "acc" if not accumulators else f"acc{len(accumulators) + 1}"
        accumulators[block] = Scratch(name, block.dtype, block.axes)
        kind = block.attrs.get("kind", "sum")
        load = Block("load", (), {"ref": name}, block.dtype, block.axes, block.locs)
        scalar = {"value": neutral_value(kind, block.dtype)}
        neutral = Block("constant", (), scalar, block.dtype, (), block.locs)
        first.append(Statement(Guard.FIRST, name, neutral))
        update = Block(COMBINE[kind], (load, copy), {}, block.dtype, block.axes, block.locs)
        always.append(Statement(Guard.ALWAYS, name, update))
        new[block] = load
    guard = Guard.LAST if accumulators else Guard.ALWAYS
    return (*first, *always, Statement(guard, output, new[root])), tuple(accumulators.values())


def neutral_value(kind: str, dtype: DType) -> np.ndarray:
    """What leaves any value unchanged when combined with it: 0 for a sum, the smallest number for a max."""
    neutral = REDUCE[kind][1]
    return encode(neutral, dtype)  # where there is no infinity, the largest or smallest number


def _in_order(kernel: Kernel) -> Kernel:
    """Every tuple of axis names in the kernel's own order."""
    place = {axis.name: number for number, axis in enumerate(kernel.axes)}

    def sort(block: Block) -> Block:
        axes = tuple(sorted(block.axes, key=place.__getitem__))
        return block if axes == block.axes else replace(block, axes=axes)

    scratch = tuple(replace(s, axes=tuple(sorted(s.axes, key=place.__getitem__))) for s in kernel.scratch)
    return replace(kernel.mapped(sort), scratch=scratch)


def kernel_name(root: Block) -> str:
    """The ops of the body in order, each run of equal ones once, four at most."""
    blocks = [block for block in post_order(root) if block.op not in ("load", "constant")]
    ops = list(dict.fromkeys(block.attrs.get("kind", block.op) for block in blocks))
    return "_".join(ops[:4]) or "copy"


def _check(kernel: Kernel, target: Target) -> None:
    """Refuse what the target cannot run. Raises: Illegal."""
    blocks = kernel.blocks()
    dots = [block for block in blocks if block.op == "dot"]
    whole = {axis.name: axis.size for axis in kernel.axes if axis.kind is AxisKind.WHOLE}
    if len(dots) > 1 and not target.reduces_after_dot:
        raise Illegal(f"a kernel of {target.name} has one dot")
    if dots and not target.reduces_after_dot and any(b.op == "reduce" for b in blocks):
        raise Illegal(f"{target.name} does not reduce in the kernel of a dot")
    row_bytes = 0
    for operand in kernel.operands:
        held = [whole[name] for name in operand.axes if name in whole and whole[name] > 1]
        if len(held) > target.max_block_axes:
            raise Illegal(f"{len(held)} whole axes in one block; {target.name} has {target.max_block_axes}")
        row_bytes += 2 * prod(held) * F32.itemsize * (target.rows if len(held) < 2 else 1)
    if whole and row_bytes > target.fast_bytes // 2:
        raise Illegal(f"whole rows would take {row_bytes} of {target.fast_bytes} bytes of fast memory")
