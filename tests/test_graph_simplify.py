"""Each rule fires where it should, keeps every bit of the answer, and stays away where it would not."""

from __future__ import annotations

import numpy as np
import pytest
from random_graphs import random_array, random_graph

from minicc.graph.evaluate import evaluate
from minicc.graph.ir import Graph, Type
from minicc.graph.simplify import RULES, simplify
from minicc.graph.text import parse_graph
from minicc.graph.verify import verify
from minicc.trace import Step

ODD = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.5, 1e-45, 3e38], np.float32)
HEAD = "graph f(x: f32[3,4], s: f32[], i: i32[3,4], b: bool[3,4], v: f32[4]) {\n"


def inputs_for(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    """Random inputs; floats are a mix of ordinary numbers, nan, infinities, both zeros, and extremes."""
    random_state = np.random.default_rng(seed)

    def array(type: Type) -> np.ndarray:
        if type.dtype.kind == "i":
            return random_state.choice(np.int32([0, 1, -7, 2**31 - 1, -2**31, 2**24 + 1]), type.shape)
        if type.dtype.kind == "b":
            return random_array(type, seed)
        return np.where(random_state.random(type.shape) < 0.5, random_state.choice(ODD, type.shape),
                        random_state.standard_normal(type.shape)).astype(np.float32)
    return [array(value.type) for value in graph.inputs]


def same_bits(before: Graph, after: Graph, inputs: list[np.ndarray]) -> bool:
    pairs = zip(evaluate(before, inputs), evaluate(after, inputs), strict=True)
    return all(x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes() for x, y in pairs)


# (rule, statements, what is left of them, in order)
CASES = [
    ("x * 1 -> x", "%0 = multiply(1.0, x) : f32[3,4]", ""),
    ("x * 1 -> x", "%0 = multiply(i, 1) : i32[3,4]", ""),
    ("x / 1 -> x", "%0 = divide(x, 1.0) : f32[3,4]", ""),
    ("x + -0.0 -> x", "%0 = add(x, -0.0) : f32[3,4]", ""),
    ("x + -0.0 -> x", "%0 = add(0, i) : i32[3,4]", ""),
    ("x - 0 -> x", "%0 = subtract(x, 0.0) : f32[3,4]", ""),
    ("--x -> x", "%a = negate(x) : f32[3,4] %0 = negate(%a) : f32[3,4]", ""),
    ("|-x| -> |x|", "%a = negate(x) : f32[3,4] %0 = abs(%a) : f32[3,4]", "abs"),
    ("|-x| -> |x|", "%a = negate(i) : i32[3,4] %0 = abs(%a) : i32[3,4]", "abs"),
    ("||x|| -> |x|", "%a = abs(x) : f32[3,4] %0 = abs(%a) : f32[3,4]", "abs"),
    ("max(x, x) -> x", "%0 = maximum(x, x) : f32[3,4]", ""),
    ("min(x, x) -> x", "%0 = minimum(x, x) : f32[3,4]", ""),
    ("not not x -> x", "%a = not(b) : bool[3,4] %0 = not(%a) : bool[3,4]", ""),
    ("x and true -> x", "%0 = and(b, true) : bool[3,4]", ""),
    ("x or false -> x", "%0 = or(false, b) : bool[3,4]", ""),
    ("select(true, x, y) -> x", "%0 = select(true, s, x) : f32[3,4]", "broadcast_in_dim"),
    ("select(false, x, y) -> y", "%0 = select(false, s, x) : f32[3,4]", ""),
    ("select(p, x, x) -> x", "%0 = select(b, x, x) : f32[3,4]", ""),
    ("select(p, x, x) -> x", "%0 = select(b, s, s) : f32[3,4]", "broadcast_in_dim"),
    ("convert to its own dtype -> x", "%0 = convert(x) dtype=f32 : f32[3,4]", ""),
    ("convert(convert(x)) -> convert(x)",
     "%a = convert(b) dtype=i32 : i32[3,4] %0 = convert(%a) dtype=f32 : f32[3,4]", "convert"),
    ("convert(convert(x)) -> convert(x)",
     "%a = convert(i) dtype=f32 : f32[3,4] %0 = convert(%a) dtype=bool : bool[3,4]", "convert"),
    ("reshape, slice or pad to its own shape -> x", "%0 = reshape(x) shape=[3,4] : f32[3,4]", ""),
    ("reshape, slice or pad to its own shape -> x",
     "%0 = slice(x) start=[0,0] limit=[3,4] : f32[3,4]", ""),
    ("reshape, slice or pad to its own shape -> x",
     "%0 = pad(x, 1.0) low=[0,0] high=[0,0] : f32[3,4]", ""),
    ("transpose or broadcast in place -> x", "%0 = transpose(x) perm=[0,1] : f32[3,4]", ""),
    ("transpose or broadcast in place -> x",
     "%0 = broadcast_in_dim(x) shape=[3,4] dims=[0,1] : f32[3,4]", ""),
    ("reduce over no axes -> x", "%0 = reduce(x) kind=sum axes=[] : f32[3,4]", ""),
    ("reshape(reshape(x)) -> reshape(x)",
     "%a = reshape(x) shape=[12] : f32[12] %0 = reshape(%a) shape=[2,6] : f32[2,6]", "reshape"),
    ("transpose(transpose(x)) -> transpose(x)",
     "%a = transpose(x) perm=[1,0] : f32[4,3] %0 = transpose(%a) perm=[1,0] : f32[3,4]", ""),
    ("broadcast(broadcast(x)) -> broadcast(x)",
     "%a = broadcast_in_dim(v) shape=[4,3] dims=[0] : f32[4,3] "
     "%0 = broadcast_in_dim(%a) shape=[3,2,4] dims=[2,0] : f32[3,2,4]", "broadcast_in_dim"),
    ("broadcast(reshape(x)) -> broadcast(x)",
     "%a = reshape(v) shape=[1,4,1] : f32[1,4,1] "
     "%0 = broadcast_in_dim(%a) shape=[3,4,2] dims=[0,1,2] : f32[3,4,2]", "broadcast_in_dim"),
    ("constant of equal elements -> broadcast",
     "%a = constant() value=[[-0.0], [-0.0]] : f32[2,1] %0 = negate(%a) : f32[2,1]", "broadcast_in_dim"),
    ("op of a broadcast scalar -> op of the scalar",
     "%a = broadcast_in_dim(s) shape=[3,4] dims=[] : f32[3,4] %0 = add(%a, x) : f32[3,4]", "add"),
    ("op of a broadcast scalar -> op of the scalar",
     "%a = broadcast_in_dim(s) shape=[3,4] dims=[] : f32[3,4] %0 = exp(%a) : f32[3,4]",
     "exp broadcast_in_dim"),
    ("move of a broadcast scalar -> broadcast",
     "%a = broadcast_in_dim(s) shape=[3,4] dims=[] : f32[3,4] %0 = transpose(%a) perm=[1,0] : f32[4,3]",
     "broadcast_in_dim"),
    ("op of constants -> constant", "%0 = divide(1.0, 3.0) : f32[]", ""),
    ("op of constants -> constant",
     "%a = constant() value=[nan, -0.0, 3.0] : f32[3] %0 = reduce(%a) kind=sum axes=[0] : f32[]", ""),
]


@pytest.mark.parametrize(("rule", "statements", "left"), CASES)
def test_a_rule_fires_and_keeps_every_bit(rule, statements, left):
    graph = parse_graph(HEAD + statements + " return %0 }")
    log: list[Step] = []
    simpler = simplify(graph, log=log)
    verify(simpler)
    assert rule in [step.why for step in log]
    assert [node.op for node in simpler.nodes() if node.op not in ("parameter", "constant")] == left.split()
    for seed in range(5):
        assert same_bits(graph, simpler, inputs_for(graph, seed))


def test_every_rule_has_a_case():
    assert {rule.name for rule in RULES} == {rule for rule, *_ in CASES}


@pytest.mark.parametrize("statement", [
    "%0 = add(x, 0.0) : f32[3,4]",          # -0.0 + 0.0 is 0.0
    "%0 = subtract(x, -0.0) : f32[3,4]",    # -0.0 - -0.0 is 0.0
    "%0 = multiply(x, 0.0) : f32[3,4]",     # nan * 0 is nan
    "%0 = multiply(x, -1.0) : f32[3,4]",    # the sign of a nan
    "%0 = subtract(x, x) : f32[3,4]",       # inf - inf is nan
    "%0 = divide(x, x) : f32[3,4]",
    "%0 = divide(1.0, x) : f32[3,4]",
    "%0 = subtract(0.0, x) : f32[3,4]",     # 0.0 - 0.0 is 0.0, not -0.0
    "%a = convert(x) dtype=i32 : i32[3,4] %0 = convert(%a) dtype=f32 : f32[3,4]",   # truncates
    "%a = convert(i) dtype=f32 : f32[3,4] %0 = convert(%a) dtype=i32 : i32[3,4]",   # 2**24 + 1
    "%a = convert(x) dtype=i32 : i32[3,4] %0 = convert(%a) dtype=bool : bool[3,4]",  # 0.5
    "%a = convert(x) dtype=bool : bool[3,4] %0 = convert(%a) dtype=f32 : f32[3,4]",
    "%0 = multiply(s, 1.5) : f32[]",
])
def test_what_would_change_a_bit_stays(statement):
    graph = parse_graph(HEAD + statement + " return %0 }")
    assert str(simplify(graph)) == str(graph)


def test_a_square_transpose_is_not_taken_for_nothing():
    graph = parse_graph("graph f(x: f32[3,3]) { %0 = transpose(x) perm=[1,0] : f32[3,3] "
                        "%1 = broadcast_in_dim(x) shape=[3,3] dims=[1,0] : f32[3,3] return %0, %1 }")
    assert str(simplify(graph)) == str(graph)


def test_a_scalar_times_an_array_of_ones_keeps_its_shape():
    graph = parse_graph("graph f(s: f32[]) { %a = constant() value=[1.0, 1.0] : f32[2] "
                        "%0 = multiply(s, %a) : f32[2] return %0 }")
    assert same_bits(graph, simplify(graph), [np.float32(3).reshape(())])


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_keep_every_bit_and_twice_gives_once(seed):
    graph, inputs = random_graph(seed)
    simpler = simplify(graph)
    verify(simpler)
    assert same_bits(graph, simpler, inputs)
    assert str(simplify(simpler)) == str(simpler)


def test_a_rule_can_be_left_out():
    graph = parse_graph(HEAD + "%0 = multiply(x, 1.0) : f32[3,4] return %0 }")
    assert str(simplify(graph, rules=[rule for rule in RULES if rule.name != "x * 1 -> x"])) == str(graph)
