"""A graph as text: what `str(graph)` gives, and what text.py reads back.

    Goes in: a Graph whose node adds two parameters on line 3 of a.py. Comes out:

    graph f(x: f32[4], y: f32[4]) {
      %0 = add(x, y) : f32[4]                                         loc(a.py:3)
      return %0
    }

Invariants: scalar constants stand in place of their operand, as 1.0 (f32), 1 (i32), true, or bf16(1.0);
attributes that say nothing (stride 1) are left out; every float is the shortest text that reads back as the
same bits, nan, inf and -0.0 too; parameters have legal and different names. MLIR prints with one printer per
op and can elide large arrays; here one printer serves every op and nothing is elided, so text is a faithful
file format. Read next: text.py.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from minicc.graph.dtypes import BF16, BOOL, F32, I32, STORED, decode, encode
from minicc.graph.elementwise import DEFAULTS

if TYPE_CHECKING:  # ir.py imports this file, for Graph.__str__
    from minicc.graph.ir import Graph, Node, Value

RESERVED = frozenset({"graph", "return", "true", "false", "inf", "nan"})  # words that cannot name a parameter
_LOC_COLUMN = 64


def print_graph(graph: Graph) -> str:
    """The text of a graph, as at the top of this file."""
    names = value_names(graph)
    inputs = ", ".join(f"{names[v.node]}: {v.type}" for v in graph.inputs)
    lines = [f"graph {legal_name(graph.name)}({inputs}) {{"]
    for node in graph.nodes():
        if names[node].startswith("%"):
            places = ", ".join(re.sub(r"[(),\s]", "_", str(loc)) for loc in graph.lines(node))
            text = "  " + print_node(node, names)
            lines.append(f"{text:{_LOC_COLUMN}}  loc({places})" if places else text)
    lines.append("  return " + ", ".join(_operand(v, names) for v in graph.outputs))
    return "\n".join([*lines, "}"]) + "\n"


def value_names(graph: Graph) -> dict[Node, str]:
    """Node -> what stands for it in text: a parameter's name, a scalar constant's digits, or %0, %1, ..."""
    names: dict[Node, str] = {}
    taken = set(RESERVED)
    numbers = itertools.count()
    for node in graph.nodes():
        if node.op == "parameter":
            names[node] = _unused(legal_name(node.attrs["name"]), taken)
            taken.add(names[node])
        elif is_scalar_constant(node):
            names[node] = literal(node.attrs["value"])
        else:
            names[node] = f"%{next(numbers)}"
    return names


def print_node(node: Node, names: Mapping[Node, str]) -> str:
    """One line of a graph's text, without its loc. Attributes that say nothing new are left out."""
    attrs = "".join(f" {name}={attribute_text(value)}" for name, value in node.attrs.items()
                    if not _is_default(name, value))
    operands = ", ".join(_operand(v, names) for v in node.operands)
    return f"{names[node]} = {node.op}({operands}){attrs} : {', '.join(map(str, node.types))}"


def describe(node: Node) -> str:
    """A node in a few words, where no graph is at hand: its op, and what it is applied to."""
    words = {v.node: str(v.node.attrs["name"]) if v.op == "parameter" else
             literal(v.node.attrs["value"]) if is_scalar_constant(v.node) else v.op for v in node.operands}
    if node.op == "constant":
        return f"constant : {node.types[0]}"
    return print_node(node, {**words, node: "%"}).removeprefix("% = ")


def is_scalar_constant(node: Node) -> bool:
    """Is this a constant of rank 0, which text shows in place?"""
    return node.op == "constant" and node.types[0].shape == ()


def literal(value: np.ndarray) -> str:
    """A stored array of rank 0 as text, with its dtype where the digits alone do not say it.

    >>> literal(np.array(0.1, np.float32)), literal(np.array(True)), literal(np.array(7, np.uint8))
    ('0.1', 'true', 'u8(7)')
    """
    dtype = STORED[value.dtype]
    return digits(value) if dtype in (F32, I32, BOOL) else f"{dtype}({digits(value)})"


def digits(value: np.ndarray) -> str:
    """The digits of a stored array of rank 0: the shortest that read back as the same bits.

    >>> digits(np.array(-0.0, np.float32)), digits(encode(0.1, BF16))
    ('-0.0', '0.1')
    """
    dtype = STORED[value.dtype]
    number = decode(value, dtype)
    if dtype.kind == "f" and np.isnan(number):
        bits = int(value.view(f"u{value.itemsize}"))
        return "nan" if bits == int(encode(np.nan, dtype).view(f"u{value.itemsize}")) else f"nan(0x{bits:x})"
    if dtype is BF16:
        texts = (str(float(f"{number:.{places}g}")) for places in range(1, 10))
        return next(text for text in texts if encode(float(text), BF16) == value)
    return str(number[()]).lower()


def attribute_text(value: Any) -> str:
    """An attribute as text: 3, sum, f32, [0,1], [1]x[0], or the nested digits of an array."""
    match value:
        case np.ndarray() if value.ndim == 0:
            return digits(value)
        case np.ndarray():
            return "[" + ", ".join(attribute_text(np.asarray(row)) for row in value) + "]"
        case (tuple() as left, tuple() as right):
            return f"{attribute_text(left)}x{attribute_text(right)}"
        case tuple():
            return "[" + ",".join(map(str, value)) + "]"
        case _:
            return str(value)


def legal_name(name: str) -> str:
    """The nearest name that the text form can hold.

    >>> legal_name("<lambda>"), legal_name("params.w1"), legal_name("2nd")
    ('_lambda_', 'params.w1', '_2nd')
    """
    name = re.sub(r"[^\w.]", "_", name)
    return name if re.match(r"[^\W\d]", name) else "_" + name


def _operand(value: Value, names: Mapping[Node, str]) -> str:
    return names[value.node] + (f".{value.index}" if value.index else "")


def _is_default(name: str, value: Any) -> bool:
    return name in DEFAULTS and isinstance(value, tuple) and all(item == DEFAULTS[name] for item in value)


def _unused(name: str, taken: set[str]) -> str:
    count = 0
    while (fresh := f"{name}_{count}" if count else name) in taken:
        count += 1
    return fresh
