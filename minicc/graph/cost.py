"""What a graph costs on any machine: operations and bytes, in closed form.

    cost(graph of relu(x @ w), 128x784 by 784x512)  ->  102825984 flops, least_bytes 2269184, intensity 45.3

Goes in: a graph. Comes out: its floating point operations, the bytes it moves if every op reads its operands
from memory and writes its result there (`unfused_bytes`), and the bytes that no compiler can save, inputs and
outputs (`least_bytes`). Fusion lives between those two. A multiply-accumulate counts two flops, a
transcendental one; moving elements counts none. Source: S. Williams, A. Waterman, D. Patterson, "Roofline",
CACM 2009. XLA's HloCostAnalysis counts the same way, and feeds its fusion decisions. Read next: the
machines, tpu/machine.py and gpu/machine.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from minicc.graph.elementwise import ELEMENTWISE
from minicc.graph.ir import Graph, Node


@dataclass(frozen=True)
class Cost:
    """flops: operations. unfused_bytes: moved if no two ops fuse. least_bytes: inputs and outputs alone."""

    flops: int
    unfused_bytes: int
    least_bytes: int

    @property
    def intensity(self) -> float:
        """Flops per byte at best: left of a machine's ridge, memory binds; right of it, arithmetic."""
        return self.flops / self.least_bytes if self.least_bytes else 0.0


def cost(graph: Graph) -> Cost:
    """The cost of a whole graph."""
    nodes = graph.nodes()
    ends = {*graph.inputs, *graph.outputs}
    return Cost(sum(map(flops, nodes)), sum(map(moved_bytes, nodes)), sum(value.type.bytes for value in ends))


def flops(node: Node) -> int:
    """Arithmetic operations of one node."""
    elements = node.types[0].elements
    match node.op:
        case "dot_general":
            lhs = node.operands[0]
            depth = 1
            for axis in node.attrs["contract"][0]:
                depth *= lhs.shape[axis]
            return 2 * elements * depth
        case "reduce":
            return max(node.operands[0].type.elements - elements, 0)  # n elements take n - 1 additions
        case "compare" | "select":
            return elements
    return ELEMENTWISE[node.op].flops * elements if node.op in ELEMENTWISE else 0


def moved_bytes(node: Node) -> int:
    """Bytes one node reads and writes when it is a kernel of its own."""
    if node.op in ("parameter", "constant"):
        return 0
    return sum(value.type.bytes for value in node.operands) + sum(type.bytes for type in node.types)


def ridge(flops_per_second: float, bytes_per_second: float) -> float:
    """The intensity, in flops per byte, above which a machine is bound by arithmetic.

    >>> round(ridge(197e12, 819e9))  # TPU v5e in bf16
    241
    """
    return flops_per_second / bytes_per_second
