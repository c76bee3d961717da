"""Nodes, the builder that makes each one once, and the table of lines beside the graph."""

from __future__ import annotations

import gc

import numpy as np

from minicc.errors import Loc
from minicc.graph.infer import build, constant
from minicc.graph.ir import BOOL, F32, I32, Builder, Type, topological

HERE, THERE = Loc("a.py", 1), Loc("b.py", 2)


def test_asking_twice_gives_one_node_and_keeps_both_lines():
    builder = Builder()
    x = builder.parameter("x", Type(F32, (4,)))
    first = build(builder, "tanh", (x,), locs=(HERE,))
    second = build(builder, "tanh", (x,), locs=(THERE,))
    assert first.node is second.node
    assert builder.graph("f", [x], [first]).lines(first.node) == (HERE, THERE)


def test_constants_of_different_bits_stay_apart():
    builder = Builder()
    made = [constant(builder, *pair).node for pair in
            [(0.0, F32), (-0.0, F32), (0, I32), (1, I32), (True, BOOL), (1.0, F32)]]
    assert len(set(made)) == 6


def test_two_parameters_of_one_name_stay_apart():
    builder = Builder()
    assert builder.parameter("x", Type(F32, ())).node is not builder.parameter("x", Type(F32, ())).node


def test_a_chain_of_20000_nodes_needs_no_recursion():
    builder = Builder()
    x = value = builder.parameter("x", Type(F32, ()))
    for _ in range(20000):
        value = build(builder, "negate", (value,))
    assert len(builder.graph("f", [x], [value]).nodes()) == 20001


def test_nodes_come_after_their_operands():
    builder = Builder()
    x = builder.parameter("x", Type(F32, ()))
    y = build(builder, "add", (build(builder, "exp", (x,)), x))
    assert [node.op for node in topological([y.node])] == ["parameter", "exp", "add"]


def test_a_value_that_is_thrown_away_leaves_the_builder():
    builder = Builder()
    x = builder.parameter("x", Type(F32, (2,)))
    before = len(builder.locs)
    build(builder, "exp", (build(builder, "tanh", (x,)),))
    gc.collect()
    assert len(builder.locs) == before


def test_a_constant_cannot_be_changed_from_outside():
    builder, array = Builder(), np.zeros(3, np.float32)
    value = constant(builder, array)
    array[0] = 1
    assert value.node.attrs["value"].tolist() == [0, 0, 0]
    assert not value.node.attrs["value"].flags.writeable


def test_a_graph_keeps_only_what_its_outputs_need_and_all_inputs():
    builder = Builder()
    x, unused = builder.parameter("x", Type(F32, ())), builder.parameter("unused", Type(F32, ()))
    kept, _dropped = build(builder, "exp", (x,)), build(builder, "log", (x,), locs=(HERE,))
    graph = builder.graph("f", [x, unused], [kept])
    assert [node.op for node in graph.nodes()] == ["parameter", "parameter", "exp"]
    assert not graph.locs
