"""Draws the graph level: one box per operation, inputs yellow, outputs pink, data flowing down.

    draw_graph(graph)  ->  Drawing("graph", ...)

Goes in: a Graph. Comes out: a Drawing. Invariants: scalar constants stand inside the op that uses them, since
a box for each 0.0 hides the structure; operands enter from left to right in their order; the box of an op
names its result type and the user's lines that asked for it. Netron and TensorBoard draw the same level,
after export. Read next: kernels.py.
"""

from __future__ import annotations

import graphviz

from minicc.graph.ir import Graph, Node, Value
from minicc.viz.label import bytes_text, label, lines_text, small
from minicc.viz.palette import EDGE, PAPER, ROLES, SANS, role_of
from minicc.viz.render import Drawing

NODE_LIMIT = 150  # dot's layout time grows faster than the graph, and nobody reads more


def new_canvas(name: str, **attributes: str) -> graphviz.Digraph:
    """An empty drawing in the house style."""
    canvas = graphviz.Digraph(name)
    canvas.attr(bgcolor=PAPER, fontname=SANS, nodesep="0.3", ranksep="0.4", pad="0.2", **attributes)
    canvas.attr("node", shape="box", style="rounded,filled", fontname=SANS, penwidth="1.2",
                margin="0.12,0.06")
    canvas.attr("edge", color=EDGE, arrowsize="0.7", penwidth="1.2", fontname=SANS)
    return canvas


def role_style(role: str) -> dict[str, str]:
    """Fill and border of a role."""
    tint, border = ROLES[role]
    return {"fillcolor": tint, "color": border}


def draw_graph(graph: Graph, name: str = "graph") -> Drawing:
    """A picture of a graph.

    Graphs of more than NODE_LIMIT operations show the first of them with what goes in, and say so.
    """
    canvas = new_canvas(name, ordering="in")
    nodes = [node for node in graph.nodes() if node.op not in ("parameter", "constant")]
    kept = {*nodes[:NODE_LIMIT], *(operand.node for node in nodes[:NODE_LIMIT] for operand in node.operands)}
    whole = len(nodes) <= NODE_LIMIT
    shown = {node: f"n{number}" for number, node in enumerate(graph.nodes()) if whole or node in kept}
    for node, ident in shown.items():
        if not _inlined(node):
            canvas.node(ident, label=_label(graph, node), **_style(node))
            _edges(canvas, node, shown)
    for number, value in enumerate(graph.outputs):
        if value.node in shown:
            ident = f"out{number}"
            many = f"output {number}" if len(graph.outputs) > 1 else "output"
            canvas.node(ident, label=label(many, soft=[str(value.type)]), shape="box", **role_style("output"))
            canvas.edge(shown[value.node], ident)
    if not whole:
        canvas.attr(label=f"the first {NODE_LIMIT} of {len(nodes)} operations", labelloc="t")
    return Drawing(name, canvas.source)


def _inlined(node: Node) -> bool:
    return node.op == "constant" and node.types[0].shape == ()


def _edges(canvas: graphviz.Digraph, node: Node, shown: dict[Node, str]) -> None:
    arrows = [operand for operand in node.operands if not _inlined(operand.node)]
    ordered = len(arrows) > 1 and node.op not in ("add", "multiply", "maximum", "minimum", "and", "or")
    for position, operand in enumerate(arrows):
        index = f".{operand.index}" if len(operand.node.types) > 1 else ""
        text = f"{position}{index}" if ordered else index
        extra = {"headlabel": small(text), "labeldistance": "1.6"} if text else {}
        canvas.edge(shown[operand.node], shown[node], **extra)


def _label(graph: Graph, node: Node) -> str:
    types = [str(type) for type in node.types]
    lines = lines_text(graph.lines(node))
    if node.op == "parameter":
        return label(str(node.attrs["name"]), soft=[*types, bytes_text(node.types[0].bytes)])
    if any(_inlined(operand.node) for operand in node.operands):
        operands = ", ".join(_operand(operand) for operand in node.operands)
        return label(node.op, rest=f"({operands})", soft=[*attribute_lines(node), *types], mono=lines)
    return label(node.op, soft=[*attribute_lines(node), *types], mono=lines)


def _operand(operand: Value) -> str:
    return f"{operand.node.attrs['value'].item():.6g}" if _inlined(operand.node) else "·"


def attribute_lines(node: Node) -> list[str]:
    """The attributes of a node, without arrays and without what its type says already."""
    match node.op:
        case "dot_general":
            (lhs, rhs), (batch, _) = node.attrs["contract"], node.attrs["batch"]
            text = f"contract {list(lhs)} x {list(rhs)}"
            return [text + (f", batch {list(batch)}" if batch else "")]
        case "reduce":
            return [f"{node.attrs['kind']} over axes {list(node.attrs['axes'])}"]
        case "compare":
            return [str(node.attrs["direction"])]
        case "parameter" | "constant" | "convert" | "reshape":
            return []
    return [f"{key} {list(value) if isinstance(value, tuple) else value}"
            for key, value in node.attrs.items() if key not in ("shape", "dtype")]


def _style(node: Node) -> dict[str, str]:
    if node.op == "parameter":
        return {**role_style("input"), "style": "filled", "shape": "box"}
    return role_style(role_of(node.op))
