"""Check that a graph is one: what every pass may assume, and must leave true.

    verify(graph)   ->  None, or a CompileError that shows the node as text and the user's lines

Invariants checked: inputs are parameters, each once; every parameter in use is an input; operands and
outputs name results that exist; attributes are known and in normal form; types are what infer.py gives.
Operands are defined before use by construction, since a node holds its operands and cannot change. LLVM and
MLIR verify after every pass in debug builds, where dominance makes up most of the work. Read next:
evaluate.py.
"""

from __future__ import annotations

from typing import NoReturn

from minicc.errors import CompileError
from minicc.graph.infer import infer
from minicc.graph.ir import Graph, Node, attribute_key
from minicc.graph.printing import print_node, value_names


def verify(graph: Graph) -> None:
    """Check a graph.

    Raises: CompileError that names the first node that breaks a rule.
    """
    inputs = [value.node for value in graph.inputs]
    for number, node in enumerate(inputs):
        if node.op != "parameter":
            raise CompileError("verify", f"an input of {graph.name} is no parameter", got=node.op,
                               at=graph.lines(node))
        if node in inputs[:number]:
            raise CompileError("verify", f"{graph.name} has an input twice", got=node.attrs["name"])
    if not graph.outputs:
        raise CompileError("verify", f"{graph.name} has no output", need="at least one")
    for node in graph.nodes():
        for operand in node.operands:
            _check_result(graph, *operand, "an operand")
        if node.op != "parameter":
            _check_node(graph, node)
        elif node not in inputs:
            _fail(graph, node, f"parameter {node.attrs['name']} is used, but is no input")
    for output in graph.outputs:
        _check_result(graph, *output, "an output")


def _check_result(graph: Graph, node: Node, index: int, what: str) -> None:
    if index >= len(node.types):
        _fail(graph, node, f"{what} is no result of this node", index, f"less than {len(node.types)}")


def _check_node(graph: Graph, node: Node) -> None:
    try:
        types, attrs = infer(node.op, tuple(value.type for value in node.operands), node.attrs)
    except CompileError as error:
        _fail(graph, node, error.what, error.got, error.need)
    if types != node.types:
        got, need = (", ".join(map(str, each)) for each in (node.types, types))
        _fail(graph, node, "the type is not what the op gives", got, need)
    if attribute_key(attrs) != attribute_key(node.attrs):
        _fail(graph, node, "attributes are not in normal form", dict(node.attrs), dict(attrs))


def _fail(graph: Graph, node: Node, what: str, got: object = "", need: object = "") -> NoReturn:
    raise CompileError("verify", f"{what}, in `{print_node(node, value_names(graph))}`", got=got, need=need,
                       at=graph.lines(node))
