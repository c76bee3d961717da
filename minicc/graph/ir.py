"""The graph level: what to compute, as SSA over whole arrays.

    graph mlp(x: f32[128,784], w: f32[784,512]) {
      %0 = dot_general(x, w) contract=[1]x[0] : f32[128,512]        loc(train.py:12)
      %1 = maximum(%0, 0.0) : f32[128,512]                          loc(train.py:13)
      return %1
    }

In memory: `Node(op, operands, attrs, types)`, each operand a `Value` (node, result index). Invariants:
- A node never changes, is equal only to itself, and is hash-consed by its `Builder`: asking twice for the
  same op on the same operands gives the same node, so common subexpressions cannot arise. 0.0 and -0.0, 1
  and True stay apart.
- Where a node came from (the user's lines) stands in a table beside the graph, not in the node: two lines
  that ask for the same node share it, and the table keeps both.
- Elementwise ops take operands of one shape, or scalars (rank 0), which stand for an array of that value.

The ops, with their attributes (names after StableHLO):

    parameter         name                  input of the graph; never shared
    constant          value                 a read-only numpy array
    iota              axis, shape, dtype    0, 1, 2, ... along one axis
    <elementwise>     -                     the table of elementwise.py
    compare           direction             eq ne lt le gt ge; gives bool
    select            -                     (pred, on_true, on_false)
    convert           dtype
    broadcast_in_dim  shape, dims           operand axis i becomes result axis dims[i]; its size is that or 1
    reshape           shape
    transpose         perm                  result axis i is operand axis perm[i]
    slice             start, limit, stride  one of each per axis
    pad               low, high, interior   (operand, scalar); low and high >= 0
    reduce            kind, axes            sum max min prod; the axes go
    concatenate       axis                  one or more operands, one behind the other
    reverse           axes
    gather            axis                  (operand, i32 indices): the indices' axes replace the axis, where
                                            an index out of range is clamped
    scatter           axis, kind            (operand, i32 indices, updates of gather's type): set sum prod max
                                            min, in the order of the indices; out of range they are dropped
    dynamic_slice     sizes                 (operand, an i32 start per axis), moved so that the window fits
    dynamic_update_slice                    (operand, update, an i32 start per axis), likewise
    dot_general       contract, batch       a pair of axis tuples each; gives batch, rest of lhs, rest of rhs
    convolution       stride, dilation,     x[N, G, C, *S], w[G, O, C, *K] -> [N, G, O, *S'], zeros around x;
                      low, high             S' = (S + low + high - (K - 1) * dilation - 1) // stride + 1
    optimization_barrier                    the first operand, once all are there; no rule looks inside

dot_general and convolution may name the dtype of their result (bf16 operands, f32 result) if that is not the
operands' own (i32 for i8 and u8). A 16-bit float is computed in f32 and rounded once; integers wrap around.

XLA's HLO and StableHLO have the same level, with regions for reduce and with explicit scalar broadcasts;
tinygrad's UOp serves this level and all those below with one node type. Read next: infer.py, then text.py.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from minicc.errors import Loc, merge_locs
from minicc.graph.dtypes import BF16, BOOL, DTYPES, F16, F32, STORED, DType  # noqa: F401  found here too

# isort: split
from minicc.graph.dtypes import I8, I16, I32, U8, U32, decode, encode  # noqa: F401
from minicc.graph.printing import print_graph


@dataclass(frozen=True)
class Type:
    """The type of an array: dtype and shape.

    >>> str(Type(F32, (128, 784)))
    'f32[128,784]'
    """

    dtype: DType
    shape: tuple[int, ...]

    @staticmethod
    def of(array: np.ndarray) -> Type:
        """The type of a stored array: its numpy dtype says which of ours it is."""
        return Type(STORED[array.dtype], array.shape)

    @property
    def elements(self) -> int:
        """How many elements the array has."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of the array on the host."""
        return self.elements * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


class Value(NamedTuple):
    """One result of a node: what an operand is."""

    node: Node
    index: int = 0  # type: ignore[assignment]  # hides tuple.index, which no one wants of a value

    @property
    def type(self) -> Type:
        """The type of this result."""
        return self.node.types[self.index]

    @property
    def op(self) -> str:
        """The op that makes this value."""
        return self.node.op

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of this result."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """The dtype of this result."""
        return self.type.dtype


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Node:
    """One operation. Make nodes with a Builder, never directly, so that equal ones are one."""

    op: str
    operands: tuple[Value, ...]
    attrs: Mapping[str, Any]
    types: tuple[Type, ...]


@dataclass(frozen=True)
class Graph:
    """A function from arrays to arrays. `inputs` are parameters, in the order of the arguments.

    locs: node -> the user's lines that made it. A node that is missing there has no known line.
    """

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    locs: Mapping[Node, tuple[Loc, ...]] = field(default_factory=dict, compare=False, repr=False)

    def nodes(self) -> tuple[Node, ...]:
        """Every node that the outputs need, and every input, operands before users."""
        return topological(v.node for v in (*self.inputs, *self.outputs))

    def lines(self, node: Node) -> tuple[Loc, ...]:
        """The user's lines that made a node."""
        return self.locs.get(node, ())

    def __str__(self) -> str:
        return print_graph(self)


def topological(roots: Iterable[Node], stop: Container[Node] = ()) -> tuple[Node, ...]:
    """All nodes reachable from the roots, operands before users; roots in the order given. No recursion.

    Nodes in `stop` are listed, but what they are made of is not looked at.
    """
    order: dict[Node, None] = {}
    stack = [(node, False) for node in reversed(list(roots))]
    while stack:
        node, operands_done = stack.pop()
        if node in order:
            continue
        if operands_done:
            order[node] = None
            continue
        stack.append((node, True))
        if node not in stop:
            stack.extend((operand.node, False) for operand in reversed(node.operands))
    return tuple(order)


def users(nodes: Iterable[Node]) -> dict[Node, list[Node]]:
    """Node -> the nodes among `nodes` that use it, each once."""
    table: dict[Node, list[Node]] = {}
    for node in nodes:
        for operand in dict.fromkeys(v.node for v in node.operands):
            table.setdefault(operand, []).append(node)
    return table


class Builder:
    """Makes nodes, each once, and remembers the lines that asked for it.

    Both tables are weak: a lazy tensor that is thrown away takes its nodes along.
    """

    def __init__(self) -> None:
        self._known: WeakValueDictionary[tuple, Node] = WeakValueDictionary()
        self.locs: WeakKeyDictionary[Node, tuple[Loc, ...]] = WeakKeyDictionary()

    def parameter(self, name: str, type: Type, locs: tuple[Loc, ...] = ()) -> Value:
        """A new input; two parameters are never one, whatever their names."""
        node = Node("parameter", (), MappingProxyType({"name": name}), (type,))
        self.locs[node] = locs
        return Value(node)

    def node(self, op: str, operands: tuple[Value, ...], attrs: Mapping[str, Any], types: tuple[Type, ...],
             locs: tuple[Loc, ...] = ()) -> Value:
        """The node of this op on these operands, new or known. Types are the caller's: see infer.build."""
        key = (op, tuple((id(v.node), v.index) for v in operands), attribute_key(attrs), types)
        node = self._known.get(key)
        if node is None:
            node = self._known[key] = Node(op, operands, MappingProxyType(dict(attrs)), types)
            self.locs[node] = locs
        elif locs:
            self.add_lines(node, locs)
        return Value(node)

    def add_lines(self, node: Node, locs: tuple[Loc, ...]) -> None:
        """Note that these lines asked for a node too."""
        known = self.locs.get(node, ())
        if known != locs:
            self.locs[node] = merge_locs(known, locs)

    def graph(self, name: str, inputs: Iterable[Value], outputs: Iterable[Value]) -> Graph:
        """The graph from inputs to outputs. It keeps the lines of its own nodes only."""
        found = Graph(name, tuple(inputs), tuple(outputs))
        locs = {node: self.locs[node] for node in found.nodes() if self.locs.get(node)}
        return Graph(name, found.inputs, found.outputs, locs)


def attribute_key(attrs: Mapping[str, Any]) -> tuple:
    """A hashable stand-in for attributes in normal form; arrays are told apart by their bits.

    >>> attribute_key({"value": np.array(0.0)}) == attribute_key({"value": np.array(-0.0)})
    False
    """
    return tuple((value.dtype.str, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value
                 for value in attrs.values())
