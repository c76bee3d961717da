"""Fusion: a graph becomes kernels. The whole decision is in this file, and it says why.

    %0 = dot_general(x, w); %1 = add(%0, bias); %2 = maximum(%1, 0.0)      ->      kernel dot_add_maximum

Goes in: a simplified Graph and a Target. Comes out: a Module whose kernels are not tiled yet. Two ideas:

1. *Where.* positions.py holds one rule per op: to compute a result at this position, read each operand at
   that one. Starting from a kernel's output, following the rules pulls in everything that is fused; where
   it stops, a buffer is read. Broadcast, transpose and slice only change positions, so they cost nothing.
2. *Whether.* Nodes are visited from the outputs backwards. A node is fused into all the kernels that use it
   if the fused kernels are legal and the cost model says the whole gets faster; else it gets a kernel and a
   buffer of its own.

Invariants: each kernel has one output and at most one dot; every value that crosses kernels has a buffer.
XLA decides with a priority queue over producers, and tinygrad by rules on views; both also start from one
cost: the bytes a buffer moves. Read next: build.py, which makes a legal kernel of what was pulled in; then
tile.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from minicc.graph.ir import Graph, Node, Value, users
from minicc.kernel.build import build_kernel
from minicc.kernel.cost import Target, cost
from minicc.kernel.ir import Kernel, Module
from minicc.kernel.positions import view_source
from minicc.kernel.pull import Illegal
from minicc.kernel.tile import sketch
from minicc.kernel.update import UPDATES, base_buffer, build_update, copy_kernel, shares_buffer
from minicc.trace import Step

LEAVES = ("parameter", "constant")
SPREAD = (*LEAVES, "iota", "broadcast_in_dim")  # what costs nothing to have again


@dataclass
class _State:
    """What fusion knows so far: the nodes fused into their users, and the kernels (by root) each node is
    part of."""

    graph: Graph
    target: Target
    names: dict[Node, str]
    fused: set[Node] = field(default_factory=set)
    roots_of: dict[Node, tuple[Node, ...]] = field(default_factory=dict)
    kernels: dict[Node, Kernel] = field(default_factory=dict)
    cycles: dict[Node, float] = field(default_factory=dict)

    def build(self, root: Node, fused: set[Node]) -> Kernel:
        if root.op in UPDATES:
            return build_update(self.graph, root, fused, self.buffer, self.target)
        return build_kernel(self.graph, [Value(root)], fused, self.buffer, self.target)

    def buffer(self, node: Node) -> str:
        """What the buffer of a node's result is called: the parameter's name, out (out1, out2, ...), or
        t<number>."""
        return self.names[node]

    def price(self, kernel: Kernel) -> float:
        """The cycles that the kernel will take, more or less."""
        return cost(sketch(kernel, self.target), self.target).cycles

    def settle(self, root: Node, kernel: Kernel) -> None:
        self.kernels[root] = kernel
        self.cycles[root] = self.price(kernel)


def fuse(graph: Graph, target: Target, *, log: list[Step] | None = None) -> Module:
    """Group a graph into kernels. log receives a Step for each node: fused or not, and why, with both
    costs."""
    nodes = graph.nodes()
    user_table = users(nodes)
    state = _State(graph, target, _buffer_names(graph, user_table))
    needed = _needed_in_memory(graph)
    for node in reversed(nodes):
        consumers = user_table.get(node, [])
        if node.op in LEAVES or node.op == "reshape":  # a reshape is a view of a buffer, or of nothing at all
            state.roots_of[node] = _roots(state, consumers)
            if node.op == "reshape":
                state.fused.add(node)
            continue
        reason = _decide(state, node, consumers, needed.get(node, ""))
        if log is not None:
            log.append(Step(f"{state.names[node]} {node.op}", reason.taken, reason.why))
    order = [node for node in nodes if node in state.kernels]
    return _module(state, _named([kernel for node in order for kernel in _with_copy(state, node)]))


def _with_copy(state: _State, node: Node) -> list[Kernel]:
    """The kernel of a node; before an update, the copy of its base, unless the base is there already."""
    kernels = [state.kernels[node]]
    if node.op in UPDATES and state.buffer(base_buffer(node)) != state.buffer(node):
        kernels.insert(0, copy_kernel(node.operands[0], state.buffer(base_buffer(node)), state.buffer(node)))
    return kernels


def _buffer_names(graph: Graph, user_table: Mapping[Node, list[Node]]) -> dict[Node, str]:
    """A name for each node's buffer, different from every other, but for an update's base: see update.py."""
    names: dict[Node, str] = {}
    taken: set[str] = set()
    outputs = list(dict.fromkeys(view_source(value).node for value in graph.outputs))
    wishes = [(value.node, re.sub(r"\W", "_", value.node.attrs["name"])) for value in graph.inputs]
    wishes += [(node, f"out{number}" if len(outputs) > 1 else "out") for number, node in enumerate(outputs)]
    wishes += [(node, f"t{number}") for number, node in enumerate(graph.nodes())]
    for node, wish in wishes:
        if node not in names:
            while wish in taken:
                wish += "_"
            names[node] = wish
            taken.add(wish)
    for node in reversed(graph.nodes()):
        if node.op in UPDATES and shares_buffer(node, user_table[node.operands[0].node], outputs):
            names[node.operands[0].node] = names[node]
    return names


def _roots(state: _State, consumers: list[Node]) -> tuple[Node, ...]:
    return tuple(dict.fromkeys(root for user in consumers for root in state.roots_of[user]))


def _needed_in_memory(graph: Graph) -> dict[Node, str]:
    """The nodes whose result must be a buffer, whatever it costs, and why."""
    needed = {}
    for node in graph.nodes():
        for number, value in enumerate(node.operands):
            if _reads_memory(node, number):
                needed[view_source(value).node] = f"a {node.op} reads it, and needs it in memory"
    return needed | {view_source(value).node: "it is an output" for value in graph.outputs}


def _reads_memory(node: Node, number: int) -> bool:
    """Whether an operand is read at places that no block of a value has: looked up, or by many taps."""
    if node.op in UPDATES:
        return number != (2 if node.op == "scatter" else 1)
    return node.op in ("gather", "dynamic_slice") or (node.op, number) == ("convolution", 0)


def _decide(state: _State, node: Node, consumers: list[Node], refusal: str) -> Step:
    """Fuse a node into all its users' kernels, or give it its own; say which and why."""
    roots = _roots(state, consumers)
    refusal = refusal or _refusal(state, node, roots)
    together: dict[Node, Kernel] = {}
    if not refusal:
        try:
            together = {root: state.build(root, state.fused | {node}) for root in roots}
            joint = sum(map(state.price, together.values()))
        except Illegal as illegal:
            refusal = str(illegal)
    alone = state.build(node, state.fused)
    if not refusal:
        apart = state.price(alone) + sum(state.cycles[root] for root in roots)
        why = f"{joint:.0f} cycles fused, {apart:.0f} apart"
        if joint <= apart:
            state.fused.add(node)
            state.roots_of[node] = roots
            for root in roots:
                state.settle(root, together[root])
            return Step("", True, why)
        refusal = why
    state.settle(node, alone)
    state.roots_of[node] = (node,)
    return Step("", False, refusal)


def _refusal(state: _State, node: Node, roots: tuple[Node, ...]) -> str:
    """Why a node that could be fused should not be, whatever the model says; empty when it may."""
    dot_roots = [root for root in roots if _has_dot(state.kernels[root])]
    if node.op in UPDATES:
        return "it changes its buffer in place"
    ends = not state.target.reduces_after_dot and _epilogue_of_dot(node)
    if node.op != "dot_general" and dot_roots and ends:
        return "it ends a dot's kernel: there it is computed once, and a buffer follows in any case"
    return ""


def _has_dot(kernel: Kernel) -> bool:
    return any(block.op == "dot" for block in kernel.blocks())


def _epilogue_of_dot(node: Node) -> bool:
    """Whether the node computes elementwise on the result of a dot, of the same size, perhaps through other
    nodes."""
    elements = node.types[0].elements
    while node.op not in ("dot_general", "convolution"):
        larger = [v.node for v in node.operands if v.type.elements >= elements and v.op not in SPREAD]
        if len(larger) != 1 or node.op == "reduce":
            return False
        node = larger[0]
    return True


def _named(kernels: list[Kernel]) -> tuple[Kernel, ...]:
    """Give each kernel a name of its own."""
    seen: dict[str, int] = {}
    named = []
    for kernel in kernels:
        seen[kernel.name] = seen.get(kernel.name, 0) + 1
        suffix = f"_{seen[kernel.name]}" if seen[kernel.name] > 1 else ""
        named.append(kernel.renamed(kernel.name + suffix))
    return tuple(named)


def _module(state: _State, kernels: tuple[Kernel, ...]) -> Module:
    graph = state.graph
    inputs = tuple((state.buffer(value.node), value.type) for value in graph.inputs)
    outputs = tuple((state.buffer(view_source(value).node), value.type) for value in graph.outputs)
    used = {operand.buffer for kernel in kernels for operand in kernel.reads} | {name for name, _ in outputs}
    arrays = {state.buffer(node): node.attrs["value"] for node in graph.nodes() if node.op == "constant"}
    return Module(graph.name, kernels, inputs, outputs, {k: v for k, v in arrays.items() if k in used})
