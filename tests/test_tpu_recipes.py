"""Each elementwise op, made of vector instructions, is within a few units in the last place of float64's."""

from __future__ import annotations

import numpy as np
import pytest
from kernels import axes, kernel, load, module, op, operand, outputs

from minicc.graph.elementwise import COMPARE, ELEMENTWISE
from minicc.graph.ir import BF16, BOOL, DTYPES, F16, F32, I32, U32, DType, decode, encode
from minicc.tpu.recipes import RECIPES

N = 1024
ULP = 2.0**-23
SUBNORMAL = np.float32(1e-42)  # as a divisor it counts as 0, for 1 / it is infinite
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-30, 3e38, 0.5, -2.5, 3.0, SUBNORMAL],
                   np.float32)
DOMAIN = {"log": (1e-3, 1e3), "sqrt": (0.0, 1e6), "rsqrt": (1e-6, 1e6), "exp": (-80.0, 80.0),
          "log1p": (-0.9, 1e3), "expm1": (-20.0, 20.0), "sin": (-3.0, 3.0), "cos": (-1.5, 1.5)}
FLOAT = [name for name, row in ELEMENTWISE.items() if row.operands in ("f", "n")]
INTEGER = [name for name, row in ELEMENTWISE.items() if row.operands in ("n", "i", "bi")]
EXACT = {"add", "subtract", "multiply", "negate", "abs", "sign", "maximum", "minimum", "floor", "ceil",
         "round", "remainder"}
LOOSER = {"log1p": 3, "power": 20}  # units in the last place, where 2 are too few
EDGES = {I32: [0, 1, -1, 2, 3, -7, 31, 32, 33, 65536, 10**9, 2**31 - 1, -(2**31), -(2**31) + 1],
         U32: [0, 1, 2, 3, 7, 31, 32, 33, 65535, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 2, 2**32 - 1]}


def apply(name: str, *arrays: np.ndarray, dtype: DType = F32, to: DType | None = None,
          **attrs: object) -> np.ndarray:
    """One op on the emulated machine."""
    inputs = [operand(f"x{i}", dtype, (len(a),), "n") for i, a in enumerate(arrays)]
    y = operand("y", to or dtype, (len(arrays[0]),), "n")
    value = op(name, *map(load, inputs), dtype=to or dtype, **attrs)
    k = kernel("one", axes(n=(len(arrays[0]), len(arrays[0]), "p")), y, value, *inputs)
    return outputs(module(k), **{f"x{i}": a for i, a in enumerate(arrays)})[0]


def pairs(values: list | np.ndarray, dtype: DType = F32) -> list[np.ndarray]:
    """Every value with every value: two arrays."""
    both = np.array(np.meshgrid(values, values)).reshape(2, -1)
    return [np.ascontiguousarray(row.astype(dtype.numpy)) for row in both]


def test_every_elementwise_op_has_a_recipe():
    assert RECIPES.keys() == ELEMENTWISE.keys() | {"compare", "select", "convert"}


# ---- floats ----

@pytest.mark.parametrize("name", FLOAT)
def test_a_float_op_is_within_a_few_units_in_the_last_place(name: str):
    low, high = DOMAIN.get(name, (-30.0, 30.0))
    random = np.random.default_rng(3)
    arrays = [random.uniform(low, high, N).astype(np.float32) for _ in range(ELEMENTWISE[name].arity)]
    if name == "power":
        arrays[0] = np.abs(arrays[0]) + np.float32(0.01)
    expected = ELEMENTWISE[name].numpy(*(a.astype(np.float64) for a in arrays))
    error = np.abs(apply(name, *arrays) - expected)
    tolerance = ULP / 2 if name in EXACT else LOOSER.get(name, 2) * ULP
    inside = np.abs(expected) < 3e38
    assert (error <= tolerance * np.maximum(np.abs(expected), 2.0**-126))[inside].all()


@pytest.mark.parametrize("name", FLOAT)
def test_zeros_infinities_and_nans_come_out_as_in_numpy(name: str):
    special = SPECIAL[SPECIAL != SUBNORMAL] if name in ("divide", "remainder") else SPECIAL
    arrays = pairs(special)[: ELEMENTWISE[name].arity]
    with np.errstate(all="ignore"):
        if name in ("sin", "cos"):  # above 1e4 they are noise
            arrays = [np.where(np.isfinite(a) & (np.abs(a) > 1e4), np.float32(1e4), a) for a in arrays]
        if name == "remainder":  # from a quotient of 2**22 on, too
            arrays[1] = np.where(np.abs(arrays[0]) > 1e6 * np.abs(arrays[1]), np.float32(3e38), arrays[1])
        expected = ELEMENTWISE[name].numpy(*arrays)
    found = apply(name, *arrays)
    kinds = [np.isnan, np.isposinf, np.isneginf]
    assert all((kind(found) == kind(expected)).all() for kind in kinds)
    finite = np.isfinite(expected)
    assert np.allclose(found[finite], expected[finite], rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("name", [
    "floor", "ceil", "round", "sin", "expm1", "log1p", "remainder", "sqrt", "power"])
def test_a_negative_zero_keeps_its_sign(name: str):
    second = np.array([3.0], np.float32)
    found = apply(name, np.array([-0.0], np.float32), *[second] * (ELEMENTWISE[name].arity - 1))
    assert found[0] == 0 and np.signbit(found[0])


@pytest.mark.parametrize(("name", "function"), [("sin", np.sin), ("cos", np.cos)])
def test_angles_up_to_ten_thousand_are_right_to_a_millionth(name: str, function: np.ufunc):
    x = np.random.default_rng(3).uniform(-1e4, 1e4, 4 * N).astype(np.float32)
    assert np.abs(apply(name, x) - function(x.astype(np.float64))).max() < 1e-6


def test_halves_round_to_the_even_neighbour():
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 8388607.5, 8388609.0, 0.49999997], np.float32)
    assert apply("round", x).tolist() == [0, 2, 2, 0, -2, 8388608, 8388609, 0]


def test_small_arguments_lose_no_bits():
    x = np.geomspace(1e-30, 1e-3, N).astype(np.float32)
    for name, function in (("expm1", np.expm1), ("log1p", np.log1p), ("sin", np.sin)):
        expected = function(x.astype(np.float64))
        assert (np.abs(apply(name, x) - expected) <= 2 * ULP * expected).all()


# ---- integers and bools ----

@pytest.mark.parametrize("dtype", [I32, U32], ids=str)
@pytest.mark.parametrize("name", INTEGER)
def test_an_integer_op_is_exact(name: str, dtype: DType):
    random, limits = np.random.default_rng(3), np.iinfo(dtype.numpy)
    wide = random.integers(limits.min, limits.max, (2, N), dtype=dtype.numpy)
    small = random.integers(max(limits.min, -40), 40, (2, N), dtype=dtype.numpy)
    for arrays in (pairs(EDGES[dtype], dtype), wide, [wide[0], small[1]], small):
        arrays = list(arrays)[: ELEMENTWISE[name].arity]
        with np.errstate(all="ignore"):
            expected = ELEMENTWISE[name].function("i")(*arrays)
        assert (apply(name, *arrays, dtype=dtype) == expected).all()


@pytest.mark.parametrize("dtype", [I32, U32], ids=str)
@pytest.mark.parametrize("by", [1, 8, 2**30, 3])
def test_division_by_a_number_is_exact_and_by_a_power_of_two_a_shift(by: int, dtype: DType):
    x, y = (operand(name, dtype, (len(EDGES[dtype]),), "n") for name in "xy")
    a = np.array(EDGES[dtype], dtype.numpy)
    for name in ("divide", "remainder"):
        value = op(name, load(x), dtype.numpy.type(by), dtype=dtype)
        (found,) = outputs(module(kernel(name, axes(n=(len(a), len(a), "p")), y, value, x)), x=a)
        quotients = [abs(int(v)) // by * (1 if v > 0 else -1) for v in a]
        rests = [int(v) - q * by for v, q in zip(a, quotients, strict=True)]
        assert found.tolist() == (quotients if name == "divide" else rests)


@pytest.mark.parametrize("dtype", [F32, I32, U32, BOOL], ids=str)
@pytest.mark.parametrize("direction", COMPARE)
def test_numbers_compare_as_in_numpy(dtype: DType, direction: str):
    values = EDGES.get(dtype, SPECIAL if dtype is F32 else [False, True])
    a, b = pairs(values, dtype)
    found = apply("compare", a, b, dtype=dtype, to=BOOL, direction=direction)
    assert (found == COMPARE[direction](a, b)).all()


@pytest.mark.parametrize("name", [name for name, row in ELEMENTWISE.items() if "b" in row.operands])
def test_a_logical_op_is_exact(name: str):
    arrays = pairs([False, True], BOOL)[: ELEMENTWISE[name].arity]
    assert (apply(name, *arrays, dtype=BOOL) == ELEMENTWISE[name].numpy(*arrays)).all()


# ---- conversions ----

def stored_samples(dtype: DType) -> np.ndarray:
    """Numbers of a dtype: edges, halves between narrower ones, and random bits."""
    random = np.random.default_rng(5)
    if dtype == BOOL:
        return np.array([False, True])
    if dtype.kind == "i":
        limits = np.iinfo(dtype.numpy)
        edges = [v for v in (*EDGES[I32], *EDGES[U32], 127, 128, 255, 256) if limits.min <= v <= limits.max]
        return np.concatenate((np.array(edges, dtype.numpy),
                               random.integers(limits.min, limits.max, 400, dtype.numpy, endpoint=True)))
    halves = np.float32([1.00390625, 1.01171875, 1.00048828125, 1.00146484375, 65519.99, 65520.0, 3e-8,
                         2.0**-25, 6.1e-5, 3.3895e38, 127.5, 128.9, 255.9, 4294967040.0, 2.0**32, 2.0**31])
    bits = random.integers(0, 2**32, 400, dtype=np.uint32).view(np.float32)
    near = random.standard_normal(400).astype(np.float32) * np.float32(300)
    return encode(np.concatenate((SPECIAL, halves, -halves, near, bits)), dtype)


@pytest.mark.parametrize("source", DTYPES.values(), ids=str)
@pytest.mark.parametrize("to", DTYPES.values(), ids=str)
def test_every_conversion_is_that_of_the_host(source: DType, to: DType):
    given = stored_samples(source)
    found, wide = apply("convert", given, dtype=source, to=to), decode(given, source)
    if source.kind == "i" and to in (BF16, F16):
        wide = wide.astype(np.float32)  # by way of f32, which rounds first
    expected = wide != 0 if to == BOOL else encode(wide, to)
    assert found.dtype == to.numpy
    found, expected = decode(found, to), decode(expected, to)
    assert ((found == expected) | ((found != found) & (expected != expected))).all()


def test_a_number_may_stand_on_either_side():
    x, y = operand("x", F32, (N,), "n"), operand("y", F32, (N,), "n")
    value = op("subtract", 1.0, op("divide", 3.0, op("multiply", 2.0, load(x))))
    a = np.linspace(1, 9, N, dtype=np.float32)
    (found,) = outputs(module(kernel("numbers", axes(n=(N, N, "p")), y, value, x)), x=a)
    assert np.allclose(found, 1 - 3 / (2 * a.astype(np.float64)), rtol=0, atol=1e-6)
