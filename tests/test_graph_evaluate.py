"""What each op means: against numpy spelt another way, in float64."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from random_graphs import random_graph

from minicc.errors import DtypeError, ShapeError
from minicc.graph.elementwise import ELEMENTWISE
from minicc.graph.evaluate import elementwise_numpy, evaluate
from minicc.graph.infer import build, constant
from minicc.graph.ir import BF16, BOOL, DTYPES, F16, F32, I32, Builder, DType, Type, decode
from minicc.graph.text import parse_graph

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((2, 3, 4)).astype(np.float32)
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.5, 3e9, -3e9], np.float32)


def apply(op: str, arrays: list, dtype64: bool = False, **attrs: object) -> np.ndarray:
    """One op on arrays, through a graph."""
    builder = Builder()
    inputs = []
    for i, array in enumerate(arrays):
        dtype = next(dtype for dtype in DTYPES.values() if dtype.numpy == array.dtype)
        inputs.append(builder.parameter(f"x{i}", Type(dtype, array.shape)))
    graph = builder.graph("f", inputs, [build(builder, op, tuple(inputs), attrs)])
    return evaluate(graph, arrays, dtype64=dtype64)[0]


@pytest.mark.parametrize(("op", "expected"), [
    ("negate", -X), ("abs", np.abs(X)), ("exp", np.e**X.astype(float)), ("tanh", np.tanh(X)),
    ("sign", (X > 0) * 1.0 - (X < 0) * 1.0),
])
def test_unary_ops(op, expected):
    np.testing.assert_allclose(apply(op, [X]), expected, rtol=1e-6)


def test_rsqrt_is_one_over_the_root():
    np.testing.assert_allclose(apply("rsqrt", [np.float32([4, 16, 0])]), [0.5, 0.25, np.inf])


def test_a_scalar_operand_stands_for_an_array():
    np.testing.assert_array_equal(apply("add", [X, np.float32(2)[()].reshape(())]), X + np.float32(2))


@pytest.mark.parametrize(("direction", "expected"), [
    ("eq", [0, 1, 0]), ("ne", [1, 0, 1]), ("lt", [1, 0, 0]),
    ("le", [1, 1, 0]), ("gt", [0, 0, 0]), ("ge", [0, 1, 0]),
])
def test_compare_is_false_for_nan_except_ne(direction, expected):
    x, y = np.float32([1, 2, np.nan]), np.float32([2, 2, 2])
    assert apply("compare", [x, y], direction=direction).astype(int).tolist() == expected


def test_select_takes_from_the_first_where_true():
    assert apply("select", [np.array([True, False]), np.int32([1, 2]), np.int32([3, 4])]).tolist() == [1, 4]


def test_floats_become_integers_towards_zero_saturating_and_nan_is_zero():
    assert apply("convert", [SPECIAL], dtype=I32).tolist() == \
        [0, 2**31 - 1, -2**31, 0, 0, 1, -2, 2**31 - 1, -2**31]


def test_everything_but_zero_converts_to_true():
    assert apply("convert", [SPECIAL], dtype=BOOL).tolist() == [True, True, True, False, False] + [True] * 4


def test_iota_counts_along_its_axis():
    assert apply("iota", [], axis=0, shape=(2, 3), dtype=I32).tolist() == [[0, 0, 0], [1, 1, 1]]


def test_broadcast_puts_operand_axes_where_dims_says():
    result = apply("broadcast_in_dim", [X[:, :1]], shape=(4, 9, 2, 5), dims=(2, 1, 0))
    for a, b, c, d in itertools.product(range(4), range(9), range(2), range(5)):
        assert result[a, b, c, d] == X[c, 0, a]


def test_slice_and_transpose_are_numpys():
    cut = apply("slice", [X], start=(0, 1, 0), limit=(2, 3, 4), stride=(1, 1, 3))
    np.testing.assert_array_equal(cut, X[:, 1:, ::3])
    np.testing.assert_array_equal(apply("transpose", [X], perm=(2, 0, 1)), np.moveaxis(X, 2, 0))


def test_pad_spreads_the_elements_and_fills_the_rest():
    arrays = [np.float32([1, 2, 3]), np.array(9, np.float32)]
    result = apply("pad", arrays, low=(1,), high=(2,), interior=(1,))
    assert result.tolist() == [9, 1, 9, 2, 9, 3, 9, 9]


@pytest.mark.parametrize(("kind", "expected"), [
    ("sum", X.astype(float).sum((0, 2))), ("max", X.max((0, 2))), ("min", X.min((0, 2))),
    ("prod", X.astype(float).prod((0, 2))),
])
def test_reduce(kind, expected):
    np.testing.assert_allclose(apply("reduce", [X], kind=kind, axes=(0, 2)), expected, rtol=1e-5)


def test_the_sum_of_nothing_is_zero_and_the_product_one():
    empty = np.zeros((0, 2), np.float32)
    assert apply("reduce", [empty], kind="sum", axes=(0,)).tolist() == [0, 0]
    assert apply("reduce", [empty], kind="prod", axes=(0,)).tolist() == [1, 1]


def test_integer_sums_stay_i32_and_wrap():
    result = apply("reduce", [np.int32([2**31 - 1, 1])], kind="sum", axes=(0,))
    assert result.dtype == np.int32 and result == -2**31


@pytest.mark.parametrize(("left", "right", "einsum", "attrs"), [
    ((5, 3), (3, 4), "ij,jk->ik", {"contract": ((1,), (0,))}),
    ((5, 3), (4, 3), "ij,kj->ik", {"contract": ((1,), (1,))}),
    ((3,), (3,), "i,i->", {"contract": ((0,), (0,))}),
    ((2,), (3,), "i,j->ij", {"contract": ((), ())}),
    ((4, 2, 3), (3, 4, 5), "bij,jbk->bik", {"contract": ((2,), (0,)), "batch": ((0,), (1,))}),
    ((2, 3, 4), (4, 6, 3), "ajk,kbj->ab", {"contract": ((1, 2), (2, 0))}),
    ((0, 3), (3, 4), "ij,jk->ik", {"contract": ((1,), (0,))}),
    ((2, 0), (0, 4), "ij,jk->ik", {"contract": ((1,), (0,))}),
])
def test_dot_general_is_einsum(left, right, einsum, attrs):
    x, y = (RANDOM.standard_normal(shape).astype(np.float32) for shape in (left, right))
    expected = np.einsum(einsum, x.astype(float), y.astype(float))
    np.testing.assert_allclose(apply("dot_general", [x, y], **attrs), expected, rtol=1e-5, atol=1e-6)
    oracle = apply("dot_general", [x, y], dtype64=True, **attrs)
    np.testing.assert_allclose(oracle, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("op", ELEMENTWISE)
def test_every_elementwise_op_keeps_its_dtype_and_never_warns(op):
    row = ELEMENTWISE[op]
    dtypes: dict[str, list[DType]] = {"f": [F32], "n": [F32, I32], "bi": [BOOL, I32], "i": [I32]}
    for dtype in dtypes[row.operands]:
        values = SPECIAL if dtype == F32 else np.array([0, 1, -1, 2**31 - 1, -2**31], np.int32)
        result = apply(op, [values.astype(dtype.numpy)] * row.arity)
        assert result.dtype == dtype.numpy


def test_the_oracle_computes_floats_in_float64_and_only_floats():
    graph, inputs = random_graph(3)
    for value, array in zip(graph.outputs, evaluate(graph, inputs, dtype64=True), strict=True):
        assert array.dtype == (np.float64 if value.dtype == F32 else value.dtype.numpy)


@pytest.mark.parametrize("seed", range(40))
def test_stored_numbers_agree_with_the_oracle_on_random_graphs(seed):
    graph, inputs = random_graph(seed)
    pairs = zip(evaluate(graph, inputs), evaluate(graph, inputs, dtype64=True), strict=True)
    for value, (ours, oracle) in zip(graph.outputs, pairs, strict=True):
        assert ours.dtype == value.dtype.numpy and ours.shape == value.shape
        close = {BF16: 2**-7, F16: 2**-9}.get(value.dtype, 1e-4)
        largest = np.abs(oracle.astype(float)).max(initial=1)
        np.testing.assert_allclose(decode(ours, value.dtype).astype(float), oracle, close, close * largest)


def test_outputs_are_the_callers_own():
    graph = parse_graph("graph f(x: f32[2]) { return x, x }")
    given = np.zeros(2, np.float32)
    first, second = evaluate(graph, [given])
    first += 1
    assert given.tolist() == second.tolist() == [0, 0]


def test_a_constant_result_may_be_written_to():
    builder = Builder()
    (result,) = evaluate(builder.graph("f", [], [constant(builder, np.zeros(2, np.float32))]), [])
    result += 1


@pytest.mark.parametrize(("inputs", "error", "says"), [
    ([], ShapeError, "got 0; need 1 (x: f32[2])"),
    ([np.zeros(2)], DtypeError, "input x has the wrong dtype. got float64; need float32"),
    ([np.zeros(3, np.float32)], ShapeError, "input x has the wrong shape. got [3]; need f32[2]"),
    ([[[1.0], [1.0, 2.0]]], ShapeError, "input x is no array"),
    (["word"], DtypeError, "wrong dtype"),
])
def test_inputs_that_do_not_fit_are_named(inputs, error, says):
    with pytest.raises(error) as caught:
        evaluate(parse_graph("graph f(x: f32[2]) { return x }"), inputs)
    assert says in str(caught.value)


def test_elementwise_numpy_broadcasts_as_numpy_does():
    result = elementwise_numpy("select", {}, (np.array([[True], [False]]), np.float32([1, 2]), np.float32(0)))
    assert result.tolist() == [[1, 2], [0, 0]] and result.dtype == np.float32
