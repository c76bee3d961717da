"""What the larger ops and the narrow dtypes mean: against loops and Python's own arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest

from minicc.graph.dtypes import BF16, DTYPES, F16, F32, I8, I32, U8, DType, decode, encode
from minicc.graph.elementwise import ELEMENTWISE
from minicc.graph.evaluate import evaluate
from minicc.graph.infer import build
from minicc.graph.ir import Builder, Type
from minicc.graph.text import parse_graph

RANDOM = np.random.default_rng(0)
INTEGERS = [dtype for dtype in DTYPES.values() if dtype.kind == "i"]


def apply(op: str, arrays: list, dtype64: bool = False, **attrs: object) -> np.ndarray:
    """One op on stored arrays, through a graph."""
    builder = Builder()
    arrays = list(map(np.asarray, arrays))
    inputs = [builder.parameter(f"x{i}", Type.of(array)) for i, array in enumerate(arrays)]
    graph = builder.graph("f", inputs, [build(builder, op, tuple(inputs), attrs)])
    return evaluate(graph, arrays, dtype64=dtype64)[0]


def wrapped(number: int, dtype: DType) -> int:
    """What is left of an integer in a dtype's width."""
    limits = np.iinfo(dtype.numpy)
    return (number - int(limits.min)) % 2**limits.bits + int(limits.min)


# -- integers ---------------------------------------------------------------------------------------------


def quotient(x: int, y: int) -> int:
    return -1 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


# op -> the same on Python's integers, of this width
ON_INTEGERS = {
    "negate": lambda x, width: -x, "abs": lambda x, width: abs(x),
    "sign": lambda x, width: (x > 0) - (x < 0), "not": lambda x, width: -1 - x,
    "add": lambda x, y, width: x + y, "subtract": lambda x, y, width: x - y,
    "multiply": lambda x, y, width: x * y, "divide": lambda x, y, width: quotient(x, y),
    "remainder": lambda x, y, width: x - quotient(x, y) * y if y else x,
    "maximum": lambda x, y, width: max(x, y), "minimum": lambda x, y, width: min(x, y),
    "and": lambda x, y, width: x & y, "or": lambda x, y, width: x | y, "xor": lambda x, y, width: x ^ y,
    "shift_left": lambda x, y, width: x << y if 0 <= y < width else 0,
    "shift_right": lambda x, y, width: x >> (y if 0 <= y < width else width),
}


def test_every_op_on_integers_has_its_meaning_here():
    assert set(ON_INTEGERS) == {op for op, row in ELEMENTWISE.items() if set(row.operands) & set("ni")}


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("op", ON_INTEGERS)
def test_integers_wrap_around_and_no_division_fails(op, dtype):
    limits, width = np.iinfo(dtype.numpy), 8 * dtype.itemsize
    some = [0, 1, 2, 3, 7, limits.max, limits.max - 1, limits.min, limits.min + 1, width, width - 1]
    some += [-1, -2, -7] if limits.min else []
    x, y = (grid.ravel().astype(dtype.numpy) for grid in np.meshgrid(some, some))
    operands = [x, y][:ELEMENTWISE[op].arity]
    exact = [ON_INTEGERS[op](*map(int, pair), width) for pair in zip(*operands, strict=True)]
    assert apply(op, operands).tolist() == [wrapped(number, dtype) for number in exact]


@pytest.mark.parametrize(("op", "expected"), [
    ("and", [0, 0, 0, 1]), ("or", [0, 1, 1, 1]), ("xor", [0, 1, 1, 0]), ("not", [1, 1, 0, 0])])
def test_truth_tables(op, expected):
    x, y = np.array([False, False, True, True]), np.array([False, True, False, True])
    assert apply(op, [x, y][:ELEMENTWISE[op].arity]).tolist() == [bool(bit) for bit in expected]


# -- floats -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("op", "given", "expected"), [
    ("round", [0.5, 1.5, 2.5, -0.5, -1.5, 2.6], [0, 2, 2, 0, -2, 3]),
    ("floor", [0.5, -0.5, 2.0], [0, -1, 2]), ("ceil", [0.5, -0.5, 2.0], [1, 0, 2]),
    ("sin", [0.5, 100], [math.sin(0.5), math.sin(100)]), ("cos", [0.5, 100], [math.cos(0.5), math.cos(100)]),
    ("log1p", [1e-10, 1], [1e-10, math.log(2)]), ("expm1", [1e-10, 1], [1e-10, math.e - 1]),
])
def test_functions_of_floats(op, given, expected):
    np.testing.assert_allclose(apply(op, [np.float32(given)]), expected, rtol=1e-6)


def test_the_remainder_of_floats_has_the_sign_of_the_dividend():
    x, y = np.float32([5.5, -5.5, 5.5, -5.5, 1, np.inf]), np.float32([2, 2, -2, -2, 0, 2])
    got = apply("remainder", [x, y])
    assert got.tolist()[:4] == [1.5, -1.5, 1.5, -1.5] and np.isnan(got[4:]).all()


def test_power_is_that_of_real_numbers():
    x, y = np.float32([2, 4, -8, -2, 0]), np.float32([10, 0.5, 2, 0.5, 0])
    got = apply("power", [x, y])
    assert got.tolist()[:3] == [1024, 2, 64] and np.isnan(got[3]) and got[4] == 1


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("op", [op for op, row in ELEMENTWISE.items() if set(row.operands) & set("fn")])
def test_narrow_floats_are_computed_in_f32_and_rounded_once(op, dtype):
    operands = [encode(RANDOM.standard_normal(300) * 3, dtype) for _ in range(ELEMENTWISE[op].arity)]
    wide = [decode(array, dtype).astype(np.float32) for array in operands]
    got = apply(op, operands)
    assert got.dtype == dtype.numpy
    np.testing.assert_array_equal(decode(got, dtype), decode(encode(apply(op, wide), dtype), dtype))


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_narrow_floats_accumulate_in_f32(dtype):
    ones = encode(np.ones(4096), dtype)
    assert decode(apply("reduce", [ones], kind="sum", axes=(0,)), dtype) == 4096  # in bf16 it stops at 256
    assert decode(apply("dot_general", [ones, ones], contract=((0,), (0,))), dtype) == 4096
    thirds = encode(np.full(3, 1 / 3), dtype)
    exact = 3 * float(decode(thirds, dtype)[0]) ** 2
    got = apply("dot_general", [thirds, thirds], contract=((0,), (0,)), dtype="f32")
    assert got.dtype == np.float32 and abs(got - exact) < 1e-7


def test_the_oracle_rounds_nothing():
    graph = parse_graph("graph f(x: bf16[], h: f16[]) { %0 = convert(x) dtype=f32 : f32[] "
                        "%1 = convert(h) dtype=f32 : f32[] %2 = add(%0, %1) : f32[] "
                        "%3 = convert(%2) dtype=bf16 : bf16[] %4 = add(%3, bf16(0.5)) : bf16[] return %4 }")
    (got,) = evaluate(graph, [np.array(1 / 3), np.array(1 / 7)], dtype64=True)
    assert got.dtype == np.float64 and got == 1 / 3 + 1 / 7 + 0.5
    (got,) = evaluate(graph, [encode(0.25, BF16), encode(0.5, F16)], dtype64=True)
    assert got == 1.25


@pytest.mark.parametrize(("left", "right"), [(I8, I8), (U8, I8), (U8, U8)])
def test_dots_of_bytes_are_in_i32(left, right):
    x = RANDOM.integers(-128, 256, (5, 300)).astype(left.numpy)
    y = RANDOM.integers(-128, 256, (300, 4)).astype(right.numpy)
    got = apply("dot_general", [x, y], contract=((1,), (0,)))
    assert got.dtype == np.int32 and (got == x.astype(int) @ y.astype(int)).all()


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES.values() if dtype.kind != "b"], ids=str)
def test_iota_counts_in_every_dtype(dtype):
    assert decode(apply("iota", [], axis=0, shape=(4,), dtype=dtype), dtype).tolist() == [0, 1, 2, 3]


# -- what moves -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_concatenate_and_reverse(dtype):
    x, y = (encode(RANDOM.integers(0, 2, (2, n)), dtype) for n in (3, 1))
    joined = apply("concatenate", [x, x[:, :0], y], axis=1)
    assert joined.dtype == dtype.numpy and joined.tolist() == [[*a, *b] for a, b in zip(x, y, strict=True)]
    assert apply("reverse", [x], axes=(0, 1)).tolist() == [row[::-1] for row in x.tolist()[::-1]]


def test_gather_clamps_and_takes_indices_of_any_rank():
    x = RANDOM.standard_normal((3, 4, 2)).astype(np.float32)
    i = np.int32([[0, 3, 4], [-1, -100, 2]])
    got = apply("gather", [x, i], axis=1)
    for a, b in np.ndindex(2, 3):
        np.testing.assert_array_equal(got[:, a, b], x[:, min(max(i[a, b], 0), 3)])


@pytest.mark.parametrize("dtype", [F32, BF16, I8, I32, U8], ids=str)
@pytest.mark.parametrize("kind", ["set", "sum", "prod", "max", "min"])
def test_scatter_goes_through_the_indices_in_order_and_drops_what_lies_outside(kind, dtype):
    combine = {"set": lambda old, new: new, "sum": lambda old, new: old + new, "max": max, "min": min,
               "prod": lambda old, new: old * new}[kind]
    base, updates = (encode(RANDOM.integers(0, 4, shape), dtype) for shape in ((2, 5), (2, 3, 4)))
    i = np.int32([[0, 4, 4, 0], [-1, 5, 0, 2], [2, 2, 2, 99]])
    expected, new = (decode(array, dtype).astype(int).tolist() for array in (base, updates))
    for row, (a, b) in ((row, place) for row in range(2) for place in np.ndindex(3, 4)):
        if 0 <= i[a, b] < 5:
            expected[row][i[a, b]] = combine(expected[row][i[a, b]], new[row][a][b])
    if dtype.kind == "i":
        expected = [[wrapped(number, dtype) for number in row] for row in expected]
    assert decode(apply("scatter", [base, i, updates], axis=1, kind=kind), dtype).tolist() == expected


@pytest.mark.parametrize(("start", "clamped"), [(0, 0), (2, 2), (3, 2), (99, 2), (-5, 0), (-2**31, 0)])
def test_dynamic_slices_are_moved_so_that_they_fit(start, clamped):
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    starts = [np.int32(start), np.int32(start)]
    expected = x[clamped:clamped + 3]
    np.testing.assert_array_equal(apply("dynamic_slice", [x, *starts], sizes=(3, 2)), expected)
    update = np.full((3, 2), -1, np.float32)
    got = apply("dynamic_update_slice", [x, update, *starts])
    assert (got[clamped:clamped + 3] == -1).all() and (got == -1).sum() == 6


def convolved(x, w, stride, dilation, low, high):
    """The definition of a convolution of two spatial axes, one output at a time."""
    x = np.pad(x, [(0, 0)] * 3 + list(zip(low, high, strict=True)))
    sizes = [(x.shape[3 + a] - (w.shape[3 + a] - 1) * dilation[a] - 1) // stride[a] + 1 for a in (0, 1)]
    out = np.zeros((x.shape[0], x.shape[1], w.shape[1], *sizes))
    for n, g, o, y, z, c, j, k in np.ndindex(*out.shape, *w.shape[2:]):
        place = y * stride[0] + j * dilation[0], z * stride[1] + k * dilation[1]
        out[n, g, o, y, z] += x[n, g, c, *place] * w[g, o, c, j, k]
    return out


@pytest.mark.parametrize(("stride", "dilation", "low", "high"), [
    ((1, 1), (1, 1), (0, 0), (0, 0)), ((2, 1), (1, 2), (1, 0), (2, 1)), ((3, 2), (2, 1), (0, 3), (1, 0))])
@pytest.mark.parametrize("dtype", [F32, BF16, I8, I32], ids=str)
def test_convolution_is_a_sum_over_the_window(stride, dilation, low, high, dtype):
    x, w = (RANDOM.integers(-4, 5, shape) for shape in ((2, 2, 3, 7, 6), (2, 2, 3, 3, 2)))
    stored = [encode(array, dtype) for array in (x, w)]
    got = apply("convolution", stored, stride=stride, dilation=dilation, low=low, high=high)
    expected = convolved(x, w, stride, dilation, low, high)
    np.testing.assert_array_equal(decode(got, Type.of(got).dtype), decode(encode(expected, dtype), dtype)
                                  if dtype == BF16 else expected)


def test_convolution_of_no_spatial_axes_or_no_channels():
    x, w = np.ones((2, 1, 3), np.float32), np.ones((1, 4, 3), np.float32)
    assert apply("convolution", [x, w], low=(), high=()).tolist() == [[[3] * 4]] * 2
    empty = np.zeros((2, 1, 0, 5), np.float32), np.zeros((1, 4, 0, 2), np.float32)
    assert apply("convolution", list(empty), low=(0,), high=(0,)).tolist() == np.zeros((2, 1, 4, 4)).tolist()


def test_a_barrier_is_its_first_operand():
    assert apply("optimization_barrier", [np.float32([1, 2]), np.int32(3)]).tolist() == [1, 2]
