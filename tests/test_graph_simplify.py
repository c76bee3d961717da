"""Each rule fires where it should, keeps every bit of the answer, and stays away where it would not.

The cases stand in simplify_algebra.py and simplify_movement.py. Exact rules must give equal bits (but for
which nan it is) on inputs full of nan, infinities, both zeros and the ends of the integers. What adds up
numbers may add them in any order, so it is tried on whole numbers.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from random_graphs import random_graph
from simplify_algebra import ALGEBRA_CASES, FAST_CASES
from simplify_movement import MOVEMENT_CASES

import minicc as mc
from minicc.graph.dtypes import DTYPES, DType, decode, encode
from minicc.graph.evaluate import evaluate
from minicc.graph.ir import Graph, Type
from minicc.graph.simplify import RULES, fast_simplify, simplify
from minicc.graph.sums import SUMS
from minicc.graph.text import parse_graph
from minicc.graph.verify import verify
from minicc.trace import Step

ODD = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.5, 2.0, 1e-45, 3e38], np.float32)
HEAD = ("graph f(x: T[3,4], y: T[3,4], s: T[], v: T[4], m: T[4,5], one: T[3,1,4], e: T[0,4], p: bool[3,4], "
        "q: bool[3,4], o: bool[], i: i32[2], j: i32[], none: i32[0]) {\n")


def of(statements: str, dtype: str = "f32", shape: str = "[3,4]") -> Graph:
    text = HEAD.replace("[3,4]", shape) + statements + " return %0 }"
    return parse_graph(re.sub(r"\bT\b", dtype, text))


def array_of(dtype: DType, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Ordinary numbers, and odd ones."""
    if dtype.kind == "b":
        return random.random(shape) < 0.5
    if dtype.kind == "i":
        limits = np.iinfo(dtype.numpy)
        ends = np.array([0, 1, 2, limits.max, limits.max - 1, limits.min, limits.min + 1], dtype.numpy)
        small = encode(random.integers(-9, 9, shape), dtype)
        return random.choice(ends, shape) if random.random() < 0.5 else small
    odd = random.random(shape) < 0.5
    return encode(np.where(odd, random.choice(ODD, shape), random.standard_normal(shape)), dtype)


def odd_inputs(graph: Graph, seed: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [array_of(value.dtype, value.shape, random) for value in graph.inputs]


def whole_inputs(graph: Graph, seed: int) -> list[np.ndarray]:
    """Whole numbers, few enough that every sum is exact; and a nan and infinities in some."""
    random = np.random.default_rng(seed)
    arrays = [encode(random.integers(-3, 4, v.shape), v.dtype) for v in graph.inputs]
    for array, value in zip(arrays, graph.inputs, strict=True):
        if seed % 2 and value.dtype.kind == "f" and array.size:
            array.reshape(-1)[random.integers(0, array.size)] = encode(random.choice(ODD[:3]), value.dtype)
    return arrays


def bits(array: np.ndarray, zeros: bool = True) -> bytes:
    """The bits of an array's numbers, all nans being one; zeros: tell them apart by their signs."""
    number = decode(array, Type.of(array).dtype)
    if number.dtype.kind == "f":
        number = np.where(np.isnan(number), np.nan, number if zeros else number + 0.0)
    return number.tobytes()


def same_bits(before: Graph, after: Graph, inputs: list[np.ndarray], zeros: bool = True) -> bool:
    pairs = zip(evaluate(before, inputs), evaluate(after, inputs), strict=True)
    return all((x.dtype, x.shape, bits(x, zeros)) == (y.dtype, y.shape, bits(y, zeros)) for x, y in pairs)


CASES = ALGEBRA_CASES + MOVEMENT_CASES
IN_ANY_ORDER = {rule.name for rule in SUMS}


@pytest.mark.parametrize(("rule", "dtypes", "statements", "left"), CASES)
def test_a_rule_fires_and_keeps_every_bit(rule, dtypes, statements, left):
    for dtype in dtypes.split():
        result = {"i8": "i32", "u8": "i32"}.get(dtype, dtype)  # of a dot
        graph = of(re.sub(r"\bR\b", result, statements), dtype)
        log: list[Step] = []
        simpler = simplify(graph, log=log)
        verify(simpler)
        assert rule in [step.why for step in log], dtype
        assert [n.op for n in simpler.nodes() if n.op not in ("parameter", "constant")] == left.split()
        ordered = rule not in IN_ANY_ORDER
        for seed in range(6):
            inputs = (odd_inputs if ordered else whole_inputs)(graph, seed)
            assert same_bits(graph, simpler, inputs, zeros=ordered), dtype


ELEMENTWISE_CASES = [case for case in ALGEBRA_CASES
                     if set(re.findall(r"\[.*?\]", case[2])) <= {"[3,4]", "[]"}]


@pytest.mark.parametrize("shape", ["[0,4]", "[]", "[1,1]"])
def test_the_rules_of_algebra_hold_for_other_shapes(shape):
    fired = set()
    for rule, dtypes, statements, _ in ELEMENTWISE_CASES:
        graph = of(statements.replace("[3,4]", shape), dtypes.split()[0], shape)
        log: list[Step] = []
        simpler = simplify(graph, log=log)
        verify(simpler)
        assert all(same_bits(graph, simpler, odd_inputs(graph, seed)) for seed in range(3)), rule
        fired |= {step.why for step in log}
    assert fired >= {rule for rule, *_ in ELEMENTWISE_CASES}


CONVERTS = [(first, middle, last) for first in DTYPES for middle in DTYPES for last in DTYPES]


def test_two_converts_become_one_only_where_that_is_the_same():
    fired = set()
    for first, middle, last in CONVERTS:
        graph = of(f"%a = convert(x) dtype={middle} : {middle}[3,4] "
                   f"%0 = convert(%a) dtype={last} : {last}[3,4]", first)
        simpler = simplify(graph)
        if len(simpler.nodes()) == len(graph.nodes()):
            continue
        fired.add((first, middle, last))
        for seed in range(8):
            assert same_bits(graph, simpler, odd_inputs(graph, seed)), (first, middle, last)
    for chain in ("bool i8 f32", "i8 i32 f32", "bf16 f32 f16", "i32 i8 u8", "u8 f32 i32", "i32 f16 bool",
                  "f16 f32 i8", "bf16 f32 bf16"):
        assert tuple(chain.split()) in fired
    for chain in ("f32 bf16 f32", "i32 f32 i32", "f32 i32 f32", "i32 i8 i32", "i16 f32 i8", "f32 bf16 bool",
                  "f32 i32 bool", "f32 bool f32", "bf16 f16 f32"):
        assert tuple(chain.split()) not in fired


@pytest.mark.parametrize(("rule", "statements", "left"), FAST_CASES)
def test_a_fast_rule_waits_until_it_is_asked_and_is_close(rule, statements, left):
    graph = of(statements)
    assert not any(step.why == rule for step in logged(graph, fast=False))
    assert rule in [step.why for step in logged(graph, fast=True)]
    simpler = fast_simplify(graph)
    verify(simpler)
    assert [node.op for node in simpler.nodes() if node.op not in ("parameter", "constant")] == left.split()
    for seed in range(5):
        random = np.random.default_rng(seed)
        inputs = [encode(random.uniform(0.5, 2, v.shape), v.dtype) for v in graph.inputs]
        (before,), (after,) = evaluate(graph, inputs, dtype64=True), evaluate(simpler, inputs)
        np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)


def logged(graph: Graph, fast: bool) -> list[Step]:
    log: list[Step] = []
    simplify(graph, fast_math=fast, log=log)
    return log


def test_every_rule_has_a_case_and_a_name_of_its_own():
    tried = {rule for rule, *_ in CASES} | {"convert(convert(x)) -> convert(x)"}
    assert {rule.name for rule in RULES if not rule.fast} == tried
    assert {rule.name for rule in RULES if rule.fast} == {rule for rule, *_ in FAST_CASES}
    assert len({rule.name for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("statement", [
    "%0 = add(x, 0.0) : f32[3,4]",          # -0.0 + 0.0 is 0.0
    "%0 = subtract(x, -0.0) : f32[3,4]",    # -0.0 - -0.0 is 0.0
    "%0 = multiply(x, 0.0) : f32[3,4]",     # nan * 0 is nan
    "%0 = multiply(x, -1.0) : f32[3,4]",    # the sign of a nan
    "%0 = subtract(x, x) : f32[3,4]",       # inf - inf is nan
    "%0 = divide(x, x) : f32[3,4]",
    "%0 = divide(1.0, x) : f32[3,4]",
    "%0 = divide(x, 3.0) : f32[3,4]",       # 1/3 is rounded
    "%0 = divide(x, 1e-40) : f32[3,4]",     # 1e40 is infinite
    "%0 = divide(x, 0.0) : f32[3,4]",
    "%0 = subtract(0.0, x) : f32[3,4]",     # 0.0 - 0.0 is 0.0, not -0.0
    "%0 = maximum(x, inf) : f32[3,4]",      # nan
    "%a = maximum(x, 0.0) : f32[3,4] %0 = maximum(%a, -0.0) : f32[3,4]",    # which zero?
    "%0 = compare(x, x) direction=ne : bool[3,4]",  # true for nan
    "%a = compare(x, y) direction=lt : bool[3,4] %0 = not(%a) : bool[3,4]",
    "%0 = multiply(s, 1.5) : f32[]",
    "%a = reduce(x) kind=sum axes=[0] : f32[4] %0 = reduce(%a) kind=max axes=[0] : f32[]",
    "%a = concatenate(x, y) axis=1 : f32[3,8] %0 = slice(%a) start=[0,1] limit=[3,8] : f32[3,7]",
    "%a = pad(x, 1.0) low=[1,0] high=[0,0] : f32[4,4] %0 = pad(%a, 2.0) low=[1,0] high=[0,0] : f32[5,4]",
    "%0 = gather(x, i) axis=0 : f32[2,4]",
    "%0 = dynamic_slice(x, j, 0) sizes=[1,4] : f32[1,4]",
    "%0 = optimization_barrier(1.0, x) : f32[]",
    "%0 = iota() axis=0 shape=[9] dtype=i32 : i32[9]",
])
def test_what_would_change_a_bit_stays(statement):
    assert str(simplify(of(statement))) == str(of(statement))


def test_a_constant_is_not_folded_where_it_would_be_large():
    text = "%a = iota() axis=0 shape=[2000] dtype=f32 : f32[2000] %b = constant() value=[1.0, 2.0] : f32[2] "
    graph = of(text + "%c = broadcast_in_dim(%b) shape=[2,2000] dims=[0] : f32[2,2000] "
               "%0 = exp(%c) : f32[2,2000]")
    assert "exp" in [node.op for node in simplify(graph).nodes()]


def test_a_square_transpose_is_not_taken_for_nothing():
    graph = parse_graph("graph f(x: f32[3,3]) { %0 = transpose(x) perm=[1,0] : f32[3,3] "
                        "%1 = broadcast_in_dim(x) shape=[3,3] dims=[1,0] : f32[3,3] return %0, %1 }")
    assert str(simplify(graph)) == str(graph)


def test_a_scalar_times_an_array_of_ones_keeps_its_shape():
    graph = parse_graph("graph f(s: f32[]) { %a = constant() value=[1.0, 1.0] : f32[2] "
                        "%0 = multiply(s, %a) : f32[2] return %0 }")
    assert same_bits(graph, simplify(graph), [np.float32(3).reshape(())])


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_keep_every_bit_and_twice_gives_once(seed, fast):
    graph, inputs = random_graph(seed)
    simpler = simplify(graph, fast_math=fast)
    verify(simpler)
    assert fast or same_bits(graph, simpler, inputs)
    assert str(simplify(simpler, fast_math=fast)) == str(simpler)


def test_a_rule_can_be_left_out():
    graph = of("%0 = multiply(x, 1.0) : f32[3,4]")
    assert str(simplify(graph, rules=[rule for rule in RULES if rule.name != "x * 1 -> x"])) == str(graph)


@pytest.mark.parametrize("options", [{}, {"fast_math": False}, {"fast_math": True}])
def test_fast_math_reaches_simplify_from_compile_and_jit(options):
    def third(x: mc.Tensor) -> mc.Tensor:
        return x / 3.0
    ops = ["multiply" if options.get("fast_math") else "divide"]
    x = mc.Tensor([1.0, 2.0])
    for compiled in (mc.compile(third, x, **options), mc.compile(mc.jit(third, **options), x)):
        assert [n.op for n in compiled.graph.nodes() if n.operands] == ops
        np.testing.assert_allclose(compiled(x).numpy(), [1 / 3, 2 / 3], rtol=1e-6)


def test_a_slot_takes_the_fast_pass():
    with mc.using(simplify=fast_simplify):
        compiled = mc.compile(lambda x: x - x, mc.Tensor([1.0, 2.0]))
    assert "subtract" not in str(compiled.graph)
