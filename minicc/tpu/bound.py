"""The bound: cycles that no program for a task goes below, and which resource says so.

    bound(graph, V5E)     ->  Bound({"hbm": 2974.0, "mxu": 2372.0})     relu(x @ w + b), 1797 x 64 x 128
    _.name, _.cycles      ->  "hbm", 2974.0

    hbm:  copy in begins 385 + bytes in 904 + bytes out 1685, or, if longer, 385 + 904 + 385
    mxu:  copy in begins 385 + rows 1348 + the last one's results 254 + copy out begins 385

Goes in: a simplified graph and a machine. Comes out: for each resource the cycles of the work that the task
cannot do without, and of what comes before and after it in any case. The largest is the bound. Work is what
reaches an output: of an input that is sliced or looked up, the elements that are certain to be read; rows of
products, as if every cell of every array were used. What a select hides counts as needed. Invariant: emulated
cycles are never fewer (a test runs random programs). The roofline of the scaling book is the same without the
latencies. Read next: report.py, and tools/bench.py, where programs are held against it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from minicc.graph.dtypes import BF16
from minicc.graph.ir import Graph, Node
from minicc.kernel.positions import view_source
from minicc.tpu.machine import LANES, SUBLANES, TPUSpec
from minicc.tpu.recipes import RECIPES

PRODUCTS = ("dot_general", "convolution")
ELSEWHERE = ("parameter", "constant")  # what no kernel writes
MOVES = ("slice", "dynamic_slice", "reshape", "transpose", "reverse", "concatenate", "pad")
DIGIT_PAIRS = 10  # products of 8 bits that make one of 32


@dataclass(frozen=True)
class Bound:
    """Resource -> the cycles that it takes at the least, with what comes before and after."""

    terms: Mapping[str, float]

    @property
    def name(self) -> str:
        """The resource that says so."""
        return max(self.terms, key=lambda name: self.terms[name])

    @property
    def cycles(self) -> float:
        """At least so many."""
        return self.terms[self.name]

    def __str__(self) -> str:
        return ", ".join(f"{name} {cycles:,.0f}" for name, cycles in
                         sorted(self.terms.items(), key=lambda pair: -pair[1]))


def bound(graph: Graph, spec: TPUSpec, updated: Collection[Node] = ()) -> Bound:
    """The bound of a graph on a machine. updated: inputs and outputs that are changed in place, of which
    nobody knows how much crosses."""
    needs = needed(graph)
    read = sum(needs[value.node] * value.type.dtype.itemsize for value in graph.inputs
               if value.node not in updated)
    made = {view_source(value) for value in graph.outputs}
    written = sum(value.type.bytes for value in made if value.node not in updated and
                  value.op not in ELSEWHERE)
    into, out = (count / spec.hbm_bytes_per_cycle for count in (read, written))
    first, last = (spec.dma_startup_cycles if count else 0 for count in (read, written))
    terms = {"hbm": into + max(max(first, last) + out, first + last)}
    rows, pairs = products(graph, spec, needs)
    if pairs:  # a few of them are sooner done by the vector ALU, a multiplication and an addition each
        by_hand = 2 * pairs / (spec.vector_slots * SUBLANES * LANES)
        terms["mxu"] = first + min(rows / spec.mxus + spec.mxu_fill_cycles, by_hand) + last
    return Bound(terms)


def needed(graph: Graph) -> dict[Node, int]:
    """How many elements of each node's results are certain to be computed, or read."""
    needs = dict.fromkeys(graph.nodes(), 0)
    needs |= {value.node: value.type.elements for value in graph.outputs}
    parts: dict[Node, np.ndarray] = {}  # of what is sliced, what some slice has
    for node in reversed(graph.nodes()):
        for number, operand in enumerate(node.operands):
            least = min(_of_operand(node, number, needs[node]), operand.type.elements)
            if node.op == "slice" and least == node.types[0].elements:
                part = parts.setdefault(operand.node, np.zeros(operand.shape, bool))
                part[tuple(map(slice, *(node.attrs[name] for name in ("start", "limit", "stride"))))] = True
                least = int(part.sum())
            needs[operand.node] = max(needs[operand.node], least)
    return needs


def _of_operand(node: Node, number: int, need: int) -> int:
    """How many elements of an operand it takes to have so many of the result."""
    elements, size = node.types[0].elements, node.operands[number].type.elements
    if node.op in RECIPES:
        return need
    if node.op in MOVES and (not number or node.op == "concatenate"):  # of the result, the rest is others'
        return max(0, need - max(0, elements - size))
    if node.op in ("scatter", "dynamic_update_slice"):  # what is written over is not needed
        return max(0, need - node.operands[-1 if node.op == "scatter" else 1].type.elements) * (not number)
    if node.op == "gather" and not number:
        return 0
    return size if need == elements else 0


def products(graph: Graph, spec: TPUSpec, needs: Mapping[Node, int]) -> tuple[float, int]:
    """What products of inputs take: rows of full width, in cycles of one array, or pairs of factors."""
    rows, pairs, fed = 0.0, 0, {value.node for value in graph.inputs}
    for node in graph.nodes():
        if any(operand.node in fed for operand in node.operands):
            fed.add(node)
            if node.op in PRODUCTS and needs[node]:
                multiplied = factors(node) * needs[node] // node.types[0].elements
                rows += multiplied / spec.mxu_side**2 * passes(node, spec)
                pairs += multiplied
    return rows, pairs


def passes(node: Node, spec: TPUSpec) -> float:
    """Cycles in which a row of a product goes into an array: several if it goes there in parts."""
    kinds = [operand.type.dtype for operand in node.operands]
    if all(kind.itemsize == 1 for kind in kinds):
        return 1 / max(spec.int8_rows, spec.mxu_rows)
    if all(kind.kind == "i" for kind in kinds) and not any(kind.narrow for kind in kinds):
        return DIGIT_PAIRS / spec.mxu_rows
    return (1 if all(kind is BF16 or kind.kind == "i" for kind in kinds) else spec.f32_passes) / spec.mxu_rows


def factors(node: Node) -> int:
    """Pairs of factors that a product or a convolution multiplies and adds up."""
    depth = node.operands[1].shape[2:]  # of w[G, O, C, *K], all but G and O are summed over
    if node.op == "dot_general":
        depth = tuple(node.operands[0].shape[axis] for axis in node.attrs["contract"][0])
    return node.types[0].elements * prod(depth)
