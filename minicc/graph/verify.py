"""Check that a graph is one: what every pass may assume, and must leave true.

    verify(graph)   ->  None, or a CompileError that shows the node as text and the user's lines

Invariants checked: inputs are parameters, each once; every parameter in use is an input; operands and
outputs name results that exist; attributes are known and in normal form; types are what infer.py gives.
Operands are defined before use by construction, since a node holds its operands and cannot change. LLVM and
MLIR verify after every pass in debug builds, where dominance makes up most of the work. Read next:
evaluate.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NoReturn

from minicc.errors import CompileError
from minicc.graph.attributes import normal_attributes
from minicc.graph.infer import infer
from minicc.graph.ir import Graph, Node, Value, attribute_key
from minicc.graph.printing import print_node, value_names


def verify(graph: Graph) -> None:
    """Check a graph.

    Raises: CompileError that names the first node that breaks a rule.
    """
    _check_ends(graph)
    inputs = {value.node for value in graph.inputs}
    names = value_names(graph)
    for node in graph.nodes():
        _check_results(graph, node.operands, "an operand", names)
        if node.op != "parameter":
            _check_types(graph, node, names)
        elif node not in inputs:
            _fail(graph, node, names, f"parameter {names[node]} is used, but is no input")
    _check_results(graph, graph.outputs, "an output", names)


def _check_ends(graph: Graph) -> None:
    seen: set[Node] = set()
    for value in graph.inputs:
        if value.op != "parameter" or value.index != 0:
            raise CompileError("verify", f"an input of {graph.name} is no parameter", got=value.op,
                               at=graph.lines(value.node))
        if value.node in seen:
            raise CompileError("verify", f"{graph.name} has an input twice", got=value.node.attrs["name"])
        seen.add(value.node)
    if not graph.outputs:
        raise CompileError("verify", f"{graph.name} has no output", need="at least one")


def _check_results(graph: Graph, values: Iterable[Value], what: str, names: Mapping[Node, str]) -> None:
    for node, index in values:
        if index >= len(node.types):
            need = f"less than {len(node.types)}"
            _fail(graph, node, names, f"{what} is no result of this node", index, need)


def _check_types(graph: Graph, node: Node, names: Mapping[Node, str]) -> None:
    operands = tuple(value.type for value in node.operands)
    try:
        types = infer(node.op, operands, node.attrs)
        attrs = normal_attributes(node.op, operands, node.attrs)
    except CompileError as error:
        _fail(graph, node, names, error.what, error.got, error.need)
    if types != node.types:
        _fail(graph, node, names, "the type is not what the op gives", ", ".join(map(str, node.types)),
              ", ".join(map(str, types)))
    if attribute_key(attrs) != attribute_key(node.attrs):
        _fail(graph, node, names, "attributes are not in normal form", dict(node.attrs), attrs)


def _fail(graph: Graph, node: Node, names: Mapping[Node, str], what: str, got: object = "",
          need: object = "") -> NoReturn:
    raise CompileError("verify", f"{what}, in `{print_node(node, names)}`", got=got, need=need,
                       at=graph.lines(node))
