"""Graphs that break a rule, made by hand behind the builder's back: each is caught, and named."""

from __future__ import annotations

from types import MappingProxyType

import pytest
from random_graphs import random_graph

from minicc.errors import CompileError, Loc
from minicc.graph.infer import build
from minicc.graph.ir import F32, I32, Builder, Graph, Node, Type, Value
from minicc.graph.verify import verify

BUILDER = Builder()
X = BUILDER.parameter("x", Type(F32, (2, 3)))
Y = BUILDER.parameter("y", Type(F32, (2, 3)))
EXP = build(BUILDER, "exp", (X,))


def raw(op: str, operands: tuple[Value, ...], attrs: dict, *types: Type) -> Value:
    return Value(Node(op, operands, MappingProxyType(attrs), types))


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_are_well_formed(seed):
    verify(random_graph(seed)[0])


@pytest.mark.parametrize(("inputs", "outputs", "says"), [
    ([X], [], "no output"),
    ([X, X], [EXP], "input twice. got x"),
    ([EXP], [EXP], "an input of f is no parameter. got exp"),
    ([X], [build(BUILDER, "add", (X, Y))], "parameter y is used, but is no input"),
    ([X], [Value(EXP.node, 1)], "an output is no result of this node, in `%0 = exp(x)"),
    ([X], [raw("exp", (Value(EXP.node, 1),), {}, X.type)],
     "an operand is no result of this node, in `%0 = exp(x)"),
    ([X], [raw("exp", (X,), {}, Type(F32, (6,)))], "got f32[6]; need f32[2,3]"),
    ([X], [raw("exp", (X,), {}, Type(I32, (2, 3)))], "got i32[2,3]; need f32[2,3]"),
    ([X], [raw("transpose", (X,), {"perm": [1, 0]}, Type(F32, (3, 2)))], "not in normal form"),
    ([X], [raw("transpose", (X,), {"perm": (1, 1)}, Type(F32, (3, 2)))],
     "twice, in `%0 = transpose(x) perm=[1,1]"),
    ([X], [raw("exp", (X,), {"fast": True}, X.type)], "unknown attribute 'fast', in `%0 = exp(x) fast=True"),
    ([X], [raw("expo", (X,), {}, X.type)], "there is no such op, in `%0 = expo(x)"),
    ([X], [raw("exp", (X, X), {}, X.type)], "wrong number of operands"),
])
def test_a_broken_graph_is_refused_with_the_node(inputs, outputs, says):
    with pytest.raises(CompileError) as caught:
        verify(Graph("f", tuple(inputs), tuple(outputs)))
    assert says in str(caught.value)


def test_the_users_line_is_named():
    bad = raw("exp", (X,), {}, Type(F32, (6,)))
    with pytest.raises(CompileError, match="at train.py:3"):
        verify(Graph("f", (X,), (bad,), {bad.node: (Loc("train.py", 3),)}))
