"""A program drawn in text, for a terminal.

    graph f                                   kernels
    out: maximum f32[4,2]                     x, w --> dot_maximum  m = 2, n = 1, k = 3 --> out
    |-- dot_general f32[4,2]
    |   |-- x f32[4,3]
    |   `-- w f32[3,2]
    `-- 0.0

Goes in: a level. Comes out: at most MOST lines. Invariants: a graph is a tree from its outputs, and a node
that was drawn already is named and not drawn again; what has no drawing is its own text. `git log --graph`
draws with the same few characters. Read next: minicc.viz, which draws the picture proper.
"""

from __future__ import annotations

from collections.abc import Iterator

from minicc.graph.ir import Graph, Node
from minicc.graph.printing import is_scalar_constant, literal, value_names
from minicc.kernel.ir import Kernel, Module

MOST, COLUMNS = 30, 100


def drawn(level: object) -> str:
    """The level in text."""
    match level:
        case Graph():
            lines = list(_graph_lines(level))
        case Module():
            lines = [_kernel_line(kernel) for kernel in level.kernels]
        case Kernel():
            lines = [_kernel_line(level)]
        case _:
            lines = str(level).rstrip().splitlines()
    cut = [line if len(line) <= COLUMNS else line[: COLUMNS - 3] + "..." for line in lines]
    return "\n".join(cut if len(cut) <= MOST else [*cut[: MOST - 1], f"... {len(cut) - MOST + 1} more lines"])


def _graph_lines(graph: Graph) -> Iterator[str]:
    names, seen = value_names(graph), set[Node]()
    yield f"graph {graph.name}"
    for value in graph.outputs:
        yield from _tree(value.node, "", "out: ", seen, names)


def _tree(root: Node, rail: str, branch: str, seen: set[Node], names: dict[Node, str]) -> Iterator[str]:
    """A node and, below it, what it is made of; without recursion, since graphs are deep."""
    stack = [(root, rail, branch)]
    while stack:
        node, rail, branch = stack.pop()
        if is_scalar_constant(node):
            yield rail + branch + literal(node.attrs["value"])
            continue
        what = names.get(node, "") if node.op == "parameter" else node.op
        known = node in seen and node.op != "parameter"
        yield f"{rail}{branch}{what} {node.types[0]}" + (f"  ({names[node]}, as above)" if known else "")
        below = rail + {"|-- ": "|   ", "`-- ": "    "}.get(branch, "")
        operands = () if known else node.operands
        marks = ["|-- "] * (len(operands) - 1) + ["`-- "]
        stack += reversed([(value.node, below, mark) for value, mark in zip(operands, marks, strict=False)])
        seen.add(node)


def _kernel_line(kernel: Kernel) -> str:
    grid = ", ".join(f"{axis.name} = {axis.steps}" for axis in kernel.axes)
    ins, outs = (", ".join(operand.buffer for operand in side) for side in (kernel.inputs, kernel.outputs))
    return f"{ins} --> {kernel.name}  {grid} --> {outs}"
