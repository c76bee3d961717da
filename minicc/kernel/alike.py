"""Kernels that are alike are built and priced once: a deep network asks the same of fusion in every layer.

    layer 1   multiply(%3, w1) of t3 at (m, n)      ->   multiply(b0, b1) at (m, n), built, 412 cycles
    layer 2   multiply(%9, w2) of t9 at (m, n)      ->   that, with t9, w2 for b0, b1 and its own lines

Goes in: a graph, the nodes whose buffers a kernel is to write, and what is fused. Comes out: a Made, which
knows its cycles and what it reads, and becomes a Kernel when asked. The key is all that a build looks at: the
nodes that it would pull in, numbered in the order in which they are met, with which of them share a buffer,
but no names of buffers and no lines. Invariant: what comes out is what a build without memory would give, to
the letter. Most of fusion's time goes here, so that twelve layers take little longer than one. XLA builds
each of them anew; a user of JAX would write the layers as one scan to the same end. Read next: build.py.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from minicc.errors import Loc, merge_locs
from minicc.graph.ir import Graph, Node, Value, attribute_key
from minicc.kernel.build import build_kernel
from minicc.kernel.cost import Target, cost
from minicc.kernel.index import Index
from minicc.kernel.ir import Block, Kernel, Operand, Statement
from minicc.kernel.positions import view_source
from minicc.kernel.pull import Illegal
from minicc.kernel.tile import sketch
from minicc.kernel.update import UPDATES, build_update

LEAVES = ("parameter", "constant")


@dataclass(frozen=True, eq=False)
class Made:
    """A kernel in buffers b0, b1, ... and lines 0, 1, ... of nobody; and what these are called here.

    lines: of each node, in the order of their numbers. cycles: what the model predicts for a sketch of it.
    """

    pattern: Kernel
    cycles: float
    buffers: dict[str, str]
    lines: list[tuple[Loc, ...]]

    @property
    def name(self) -> str:
        """What the kernel does."""
        return self.pattern.name

    @cached_property
    def reads(self) -> frozenset[str]:
        """The buffers that it reads, or looks numbers up in."""
        return frozenset([self.buffers[operand.buffer] for operand in self.pattern.reads])

    @cached_property
    def inputs(self) -> frozenset[str]:
        """The buffers that it reads block by block."""
        return frozenset([self.buffers[operand.buffer] for operand in self.pattern.inputs])

    @cached_property
    def kernel(self) -> Kernel:
        """The kernel itself."""
        pattern = self.pattern
        new = {one.name: self.buffers[one.buffer] + one.name.removeprefix(one.buffer)
               for one in (*pattern.operands, *pattern.scalars)}

        def index(old: Index) -> Index:
            lookups = [replace(lookup, scalars=new[lookup.scalars]) for lookup in old.lookups]
            return replace(old, lookups=tuple(lookups)) if lookups else old

        def operands(old: Sequence[Operand]) -> tuple[Operand, ...]:
            return tuple([replace(one, name=new[one.name], buffer=self.buffers[one.buffer],
                                  index=tuple(map(index, one.index))) for one in old])

        def block(old: Block) -> Block:
            ref = old.attrs.get("ref")
            attrs = {"ref": new[ref]} if ref in new else old.attrs
            locs = merge_locs(*[self.lines[loc.line] for loc in old.locs])
            return Block(old.op, old.args, attrs, old.dtype, old.axes, locs)

        made = pattern.mapped(block)
        body = [Statement(one.guard, new.get(one.target, one.target), one.value) for one in made.body]
        return replace(made, inputs=operands(pattern.inputs), outputs=operands(pattern.outputs),
                       scalars=operands(pattern.scalars), body=tuple(body))


class Workshop:
    """Builds the kernels of one graph, and remembers what it has built.

    buffers: node -> the name of its buffer.
    """

    def __init__(self, graph: Graph, buffers: dict[Node, str], target: Target) -> None:
        self.graph, self.buffers, self.target = graph, buffers, target
        self.known: dict[tuple[int, ...], tuple[Kernel, float] | Illegal] = {}
        self.inside: dict[Node, int] = {}  # equal for nodes that compute alike
        self.outside: dict[Node, int] = {}  # equal for those that are read alike: of one type, or one scalar
        shown = {view_source(value).node for value in graph.outputs}
        self.far = {buffers[node] for node in graph.nodes() if node.op in LEAVES or node in shown
                    or not target.keeps_temps}  # buffers in slow memory
        numbers: dict[tuple, int] = {}
        for node in graph.nodes():
            data = attribute_key(node.attrs) if node.op not in LEAVES or node.types[0].shape == () else ()
            scalar = data if node.op == "constant" else ()
            inside, outside = (node.op, data, node.types), ("", scalar, node.types)
            self.inside[node] = numbers.setdefault(inside, len(numbers))
            self.outside[node] = numbers.setdefault(outside, len(numbers))

    def make(self, roots: Sequence[Node], sides: Sequence[Node], fused: Collection[Node],
             also: Node | None) -> Made:
        """The kernel that writes the buffers of roots and sides. also: one more node that is fused.

        Raises: Illegal.
        """
        nodes = dict.fromkeys((*roots, *sides))
        reached, pulled, buffers = list(nodes), set[Node](), dict[str, str]()
        places = {node: number for number, node in enumerate(reached)}
        key = [len(roots), len(sides)]
        for number, node in enumerate(reached):  # which grows
            name = self.buffers[node]
            inside = node in fused or node is also or len(roots) <= number < len(nodes)
            if inside:
                pulled.add(node)
            whole = inside or number < len(nodes) or node.op == "reshape"
            kind = self.inside[node] if whole else self.outside[node]
            key += kind, inside, int(buffers.setdefault(name, f"b{len(buffers)}")[1:]), name in self.far
            for value in node.operands if whole else ():
                if value.node not in places:
                    places[value.node] = len(reached)
                    reached.append(value.node)
                key.append(places[value.node])
        if (question := tuple(key)) not in self.known:
            try:
                self.known[question] = self._built(roots, sides, pulled, reached, buffers)
            except Illegal as illegal:
                self.known[question] = illegal
        answer = self.known[question]
        if isinstance(answer, Illegal):
            raise answer
        lines = [self.graph.lines(node) for node in reached]
        return Made(*answer, {new: name for name, new in buffers.items()}, lines)

    def _built(self, roots: Sequence[Node], sides: Sequence[Node], fused: Collection[Node],
               reached: Sequence[Node], buffers: dict[str, str]) -> tuple[Kernel, float]:
        """The kernel in buffers and lines of nobody, and its predicted cycles."""
        graph = replace(self.graph, locs={node: (Loc("", number),) for number, node in enumerate(reached)})

        def buffer(node: Node) -> str:
            return buffers[self.buffers[node]]

        if roots[0].op in UPDATES:
            kernel = build_update(graph, roots[0], fused, buffer, self.target)
        else:
            kernel = build_kernel(graph, [Value(root) for root in roots], fused, buffer, self.target,
                                  [Value(side) for side in sides])
        near = {new for name, new in buffers.items() if name not in self.far}
        kernel = kernel.nearer(near)
        return kernel, cost(sketch(kernel, self.target), self.target).cycles
