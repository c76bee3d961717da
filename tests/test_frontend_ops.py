"""Elementwise functions, dtypes, reductions and creation against numpy in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import pytest

import minicc as mc
from minicc import Tensor
from minicc.graph.evaluate import evaluate

RANDOM = np.random.default_rng(7)
SPECIAL = np.array([0, -0.0, 1, -1, 0.5, -0.5, np.inf, -np.inf, np.nan])
SPREAD = np.concatenate([RANDOM.standard_normal(200) * s for s in (1e-3, 1, 5, 30)] + [SPECIAL])
NEAR_ONE = 1 - 10.0 ** -RANDOM.uniform(1, 7, 99)
UNIT = np.concatenate([RANDOM.uniform(-1, 1, 300), NEAR_ONE, -NEAR_ONE, [1, -1, 2, -2, np.nan]])
MAGNITUDES = 10.0 ** RANDOM.uniform(-30, 30, 300)
POSITIVE = np.concatenate([MAGNITUDES, 1 + RANDOM.random(99), [0, 1, np.inf, np.nan]])


def error(got: Tensor, want: np.ndarray) -> float:
    """The largest relative error; infinities and NaN must be where they should be, and so must the shape."""
    have, want = got.numpy().astype(np.float64), np.asarray(want, np.float64)
    assert have.shape == want.shape
    want = np.where(abs(want) > 3.4028235e38, np.copysign(np.inf, want), want)  # beyond f32
    same = (have == want) | (np.isnan(have) & np.isnan(want))
    with np.errstate(invalid="ignore"):
        relative = abs(have - want) / np.maximum(abs(want), 1e-37)
    return float(np.max(np.where(same, 0, relative), initial=0))


def erfinv(x: float) -> float:
    if abs(x) >= 1 or math.isnan(x):
        return x * math.inf if abs(x) == 1 else math.nan
    return NormalDist().inv_cdf((1 + x) / 2) / math.sqrt(2)


def each(function: Callable[[float], float]) -> Callable:
    return np.vectorize(function, otypes=[float])


def erf_product(x: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return x * each(math.erfc)(-x / math.sqrt(2)) / 2


SELU = (1.0507009873554805, 1.6732632423543772)
ONE_OPERAND: dict[str, tuple[Callable, np.ndarray]] = {
    "exp": (np.exp, SPREAD), "exp2": (np.exp2, SPREAD), "expm1": (np.expm1, SPREAD), "sin": (np.sin, SPREAD),
    "cos": (np.cos, SPREAD), "tan": (np.tan, SPREAD), "sinh": (np.sinh, SPREAD), "cosh": (np.cosh, SPREAD),
    "tanh": (np.tanh, SPREAD), "asinh": (np.arcsinh, SPREAD), "atan": (np.arctan, SPREAD),
    "cbrt": (np.cbrt, SPREAD), "erf": (each(math.erf), SPREAD), "erfc": (each(math.erfc), SPREAD),
    "square": (np.square, SPREAD), "reciprocal": (np.reciprocal, SPREAD), "floor": (np.floor, SPREAD),
    "ceil": (np.ceil, SPREAD), "rint": (np.rint, SPREAD), "trunc": (np.trunc, SPREAD),
    "sign": (np.sign, SPREAD),
    "deg2rad": (np.deg2rad, SPREAD), "rad2deg": (np.rad2deg, SPREAD), "isnan": (np.isnan, SPREAD),
    "isinf": (np.isinf, SPREAD), "isfinite": (np.isfinite, SPREAD), "signbit": (np.signbit, SPREAD),
    "logical_not": (np.logical_not, SPREAD), "positive": (np.positive, SPREAD), "fabs": (np.fabs, SPREAD),
    "asin": (np.arcsin, UNIT), "acos": (np.arccos, UNIT), "atanh": (np.arctanh, UNIT),
    "erfinv": (each(erfinv), UNIT), "log": (np.log, POSITIVE), "log2": (np.log2, POSITIVE),
    "log10": (np.log10, POSITIVE), "log1p": (np.log1p, POSITIVE), "sqrt": (np.sqrt, POSITIVE),
    "rsqrt": (lambda x: 1 / np.sqrt(x), POSITIVE), "acosh": (np.arccosh, POSITIVE),
    "relu": (lambda x: np.maximum(x, 0), SPREAD), "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), SPREAD),
    "softplus": (lambda x: np.logaddexp(x, 0), SPREAD), "relu6": (lambda x: np.clip(x, 0, 6), SPREAD),
    "log_sigmoid": (lambda x: -np.logaddexp(-x, 0), SPREAD),
    "hardtanh": (lambda x: np.clip(x, -1, 1), SPREAD),
    "elu": (lambda x: np.where(x > 0, x, np.expm1(x)), SPREAD),
    "celu": (lambda x: np.where(x > 0, x, np.expm1(x)), SPREAD),
    "selu": (lambda x: SELU[0] * np.where(x > 0, x, SELU[1] * np.expm1(x)), SPREAD),
    "leaky_relu": (lambda x: np.where(x > 0, x, 0.01 * x), SPREAD),
    "hardsigmoid": (lambda x: np.clip(x + 3, 0, 6) / 6, np.abs(SPREAD)),
    "silu": (lambda x: x / (1 + np.exp(-x)), SPREAD[:-3]),
    "softsign": (lambda x: x / (1 + abs(x)), SPREAD[:-3]),
    "mish": (lambda x: x * np.tanh(np.logaddexp(x, 0)), SPREAD[:-3]),
    "hardswish": (lambda x: x * np.clip(x + 3, 0, 6) / 6, np.abs(SPREAD)),
    "logit": (lambda x: np.log(x) - np.log1p(-x), RANDOM.uniform(0.6, 1, 99)),
    "tanhshrink": (lambda x: x - np.tanh(x), 1 + np.abs(SPREAD)),
}


@pytest.mark.parametrize("device", ["gpu", "tpu"])
@pytest.mark.parametrize("name", ONE_OPERAND)
def test_a_function_is_within_three_millionths_of_its_value_in_float64(name: str, device: str):
    function, points = ONE_OPERAND[name]
    x = points.astype(np.float32)
    with np.errstate(all="ignore"):
        want = function(x.astype(np.float64))
    assert error(mc.jit(getattr(mc, name), device=device)(x), want) < 3e-6


def test_functions_with_zeros_between_their_largest_values_are_exact_by_those():
    x = np.concatenate([RANDOM.uniform(-9, 9, 500), np.arange(-4, 5), 1 / np.arange(1, 9)]).astype(np.float32)
    wide = x.astype(np.float64)
    assert abs(Tensor(x).sinc().numpy() - np.sinc(wide)).max() < 1e-6
    gelu, exact = Tensor(x).gelu().numpy(), Tensor(x).gelu(approximate="none").numpy()
    tanh = np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3))
    assert abs(gelu - wide / 2 * (1 + tanh)).max() < 3e-6
    assert abs(exact - erf_product(wide)).max() < 1e-6


TWO_OPERANDS: dict[str, Callable] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "fmod": np.fmod,
    "maximum": np.maximum, "minimum": np.minimum, "fmax": np.fmax, "fmin": np.fmin, "hypot": np.hypot,
    "atan2": np.arctan2, "logaddexp": np.logaddexp, "copysign": np.copysign, "heaviside": np.heaviside,
    "remainder": np.remainder, "floor_divide": np.floor_divide, "equal": np.equal, "less": np.less,
    "not_equal": np.not_equal, "less_equal": np.less_equal, "greater": np.greater, "isclose": np.isclose,
    "greater_equal": np.greater_equal, "logical_and": np.logical_and, "logical_or": np.logical_or,
    "logical_xor": np.logical_xor, "lerp": lambda x, y: x + 0.25 * (y - x),
}
X, Y = (np.float32(RANDOM.standard_normal(500) * 10.0 ** RANDOM.integers(-2, 3, 500)) for _ in range(2))
X, Y = (np.concatenate([one, many.ravel()]).astype(np.float32)
        for one, many in zip((X, Y), np.meshgrid(SPECIAL, SPECIAL), strict=True))


@pytest.mark.parametrize("name", TWO_OPERANDS)
def test_a_function_of_two_agrees_with_numpy_on_special_values_too(name: str):
    x, y, more = X, Y, ()
    if name in ("remainder", "floor_divide", "lerp", "subtract", "add"):
        x, y = X[:500].astype(np.float16).astype(np.float32), Y[:500].astype(np.float16).astype(np.float32)
    if name == "copysign":
        x, y = X[~np.isnan(Y)], Y[~np.isnan(Y)]  # no one can see the sign of a NaN
    if name == "lerp":
        more = (0.25,)
    with np.errstate(all="ignore"):
        want = np.asarray(TWO_OPERANDS[name](x.astype(np.float64), y.astype(np.float64)), np.float64)
    got = getattr(Tensor(x), name)(Tensor(y), *more)
    if name == "lerp":
        assert abs(got.numpy() - want).max() < 1e-6 * abs(want).max()
    else:
        assert error(got, want) < 3e-6


INTEGERS = np.array([*range(-7, 8), 2**31 - 1, -2**31, 12345, -6789], np.int32)
I, J = (a.ravel() for a in np.meshgrid(INTEGERS, INTEGERS))


OF_INTEGERS = ["floor_divide", "remainder", "fmod", "bitwise_and", "bitwise_or", "bitwise_xor", "add",
               "subtract", "multiply", "maximum", "minimum"]


@pytest.mark.parametrize("name", OF_INTEGERS)
def test_integers_wrap_round_and_divide_as_in_numpy(name: str):
    with np.errstate(all="ignore"):
        want = getattr(np, name)(I, J)
    assert np.array_equal(getattr(Tensor(I), name)(Tensor(J)).numpy(), want)


def test_shifts_and_bits_of_signed_and_unsigned_integers():
    x, by = Tensor([-8, 7, -1]), Tensor([1, 2, 31])
    assert (x >> by).tolist() == [-4, 1, -1] and (x << by).tolist() == [-16, 28, -2**31]
    big = Tensor(np.array([2**32 - 1, 5], np.uint32))
    assert (big >> 28).tolist() == [15, 0] and (~big).tolist() == [0, 2**32 - 6]
    assert (big + 1).tolist() == [0, 6] and (big // 2).tolist() == [2**31 - 1, 2]
    assert (Tensor([True, False]) ^ True).tolist() == [False, True] and (1 << x[1:]).tolist() == [128, 0]


def test_powers_of_floats_and_integers():
    x, y = np.abs(X[:500]) + np.float32(0.01), np.clip(Y[:500], -5, 5).astype(np.float32)
    assert error(Tensor(x) ** Tensor(y), x.astype(np.float64) ** y) < 3e-6
    assert error(Tensor(x) ** 1.7, x.astype(np.float64) ** 1.7) < 3e-6
    for exponent in (0, 1, 2, 3, 7, 16, 40, -1, -3, 0.5, -0.5):
        ordinary = np.float32(np.clip(Y[:500], -5, 5)) if exponent == exponent // 1 else x
        with np.errstate(all="ignore"):
            assert error(Tensor(ordinary) ** exponent, ordinary.astype(np.float64) ** exponent) < 3e-6
    small = Tensor([-3, -1, 0, 1, 2, 3])
    assert (small ** Tensor([0, 1, 2, 3, 31, 20])).tolist() == [1, -1, 0, 1, -2**31, 3**20 - 2**32 * 1]
    assert (small ** 5).tolist() == [-243, -1, 0, 1, 32, 243] and (small ** 2.0).dtype.name == "f32"
    half = Tensor([7.0, -7.0], "f16")
    assert (half // 2).tolist() == [3, -4] and (half % 0.3).numpy().dtype == np.float16
    assert (2.0 ** small).tolist() == [0.125, 0.5, 1, 2, 4, 8] and mc.divmod(small, 2)[1].tolist()[0] == 1


def test_rounding_to_decimals_and_clipping():
    x = Tensor([1.25, -2.675, 2.5, -0.5])
    assert np.allclose(x.round(1).numpy(), [1.2, -2.7, 2.5, -0.5]) and x.round().tolist() == [1, -3, 2, 0]
    assert x.clamp(-1, 2).tolist() == [1.25, -1, 2, -0.5] and x.clip(high=0)[3].item() == -0.5
    assert Tensor([3, -4]).floor().dtype.name == "i32" and Tensor([np.nan, np.inf, -np.inf]).nan_to_num(
        posinf=9).tolist() == [0, 9, -3.4028234663852886e38]


# -- dtypes --------------------------------------------------------------------------------------------------

# JAX's table for these dtypes, written out: row + column. https://docs.jax.dev/en/latest/type_promotion.html
PROMOTION = """
      bool  u8    u32   i8    i16   i32   bf16  f16   f32
bool  bool  u8    u32   i8    i16   i32   bf16  f16   f32
u8    u8    u8    u32   i16   i16   i32   bf16  f16   f32
u32   u32   u32   u32   i32   i32   i32   bf16  f16   f32
i8    i8    i16   i32   i8    i16   i32   bf16  f16   f32
i16   i16   i16   i32   i16   i16   i32   bf16  f16   f32
i32   i32   i32   i32   i32   i32   i32   bf16  f16   f32
bf16  bf16  bf16  bf16  bf16  bf16  bf16  bf16  f32   f32
f16   f16   f16   f16   f16   f16   f16   f32   f16   f32
f32   f32   f32   f32   f32   f32   f32   f32   f32   f32
"""


def test_every_pair_of_dtypes_promotes_by_the_table():
    columns, *rows = (line.split() for line in PROMOTION.strip().splitlines())
    assert len(rows) == len(columns) == 9
    for left, *row in rows:
        for right, result in zip(columns, row, strict=True):
            one = mc.where(True, mc.zeros(2, dtype=left), mc.zeros(2, dtype=right))
            assert one.dtype.name == result, (left, right)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "i8", "i16", "i32", "u8", "u32"])
def test_a_python_number_takes_the_tensors_dtype_unless_its_kind_is_above(dtype: str):
    x = mc.ones(3, dtype=dtype)
    floats = dtype if "f" in dtype else "f32"
    assert {(x + 1).dtype.name, (2 * x).dtype.name, (x + True).dtype.name} == {dtype}
    assert {(x + 1.5).dtype.name, (x / 2).dtype.name, x.exp().dtype.name, x.mean().dtype.name} == {floats}
    assert (x < 2).dtype.name == "bool" and (x + np.float32(1)).dtype.name == "f32"
    wide = {"i8": "i32", "i16": "i32", "u8": "i32"}.get(dtype, dtype)
    assert x.sum().dtype.name == wide and x.max().dtype.name == dtype and x.argmax().dtype.name == "i32"
    assert (x @ x).dtype.name == {"i8": "i32", "u8": "i32", "i16": "i32"}.get(dtype, dtype)


def test_bools_count_as_numbers_and_stay_bools_where_only_compared():
    x = Tensor([True, False, True])
    assert x.sum().item() == 2 and x.sum().dtype.name == "i32" and x.max().dtype.name == "bool"
    assert x.mean().item() == pytest.approx(2 / 3) and x.any().item() and not x.all().item()


@pytest.mark.parametrize("name, function", [
    ("mish", lambda x: x * np.tanh(np.logaddexp(x, 0))), ("softmax", lambda x: np.exp(x) / np.exp(x).sum()),
    ("sinh", np.sinh), ("var", np.var), ("logsumexp", lambda x: np.log(np.exp(x).sum())),
    ("gelu", lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))),
])
@pytest.mark.parametrize("dtype, unit", [("bf16", 2.0**-8), ("f16", 2.0**-11)])
def test_a_composition_in_16_bits_is_rounded_once(name: str, function: Callable, dtype: str, unit: float):
    x = Tensor(np.float32(RANDOM.standard_normal(64)), dtype)
    got = getattr(x, name)()
    assert got.dtype.name == dtype and error(got, function(x.numpy().astype(np.float64))) < 1.01 * unit


def test_the_mean_of_large_f16_numbers_does_not_overflow():
    assert mc.full((1000,), 60000.0, "f16").mean().item() == 60000


# -- reductions ----------------------------------------------------------------------------------------------

REDUCTIONS = ["sum", "prod", "max", "amax", "min", "amin", "mean", "var", "std", "ptp", "any", "all",
              "count_nonzero", "nansum", "nanprod", "nanmean", "nanvar", "nanstd", "nanmax", "nanmin"]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_is_that_of_numpy_over_any_axes(name: str):
    x = np.float32(RANDOM.integers(-3, 4, (3, 1, 4)) + RANDOM.standard_normal((3, 1, 4)) * 0.25)
    some = np.arange(12).reshape(x.shape) % 5 == 0
    holes = np.where(some, np.float32(np.nan), x) if name.startswith("nan") else x
    for axis in (None, 0, -1, (0, 2)):
        for keepdims in (False, True):
            want = getattr(np, name)(holes.astype(np.float64), axis=axis, keepdims=keepdims)
            assert error(getattr(Tensor(holes), name)(axis, keepdims), want) < 3e-6
    if name in ("sum", "prod", "mean", "any", "all", "count_nonzero"):
        with np.errstate(all="ignore"), pytest.warns(RuntimeWarning) if name == "mean" else np.errstate():
            want = getattr(np, name)(np.zeros((0, 2)), axis=0)
        assert error(getattr(mc.zeros(0, 2), name)(0), want) == 0


def test_nan_counts_in_plain_reductions_and_is_first_of_extremes():
    x = np.array([[1, np.nan, 3], [4, 5, 4]], np.float32)
    t = Tensor(x)
    for name in ("sum", "max", "min", "mean", "argmax", "argmin", "var"):
        assert error(getattr(t, name)(1), getattr(np, name)(x.astype(np.float64), 1)) < 1e-6
    assert mc.Tensor([np.nan, np.nan]).nanmax().isnan().item()
    assert t.argmin(1, keepdims=True).shape == (2, 1) and t.argmax(keepdims=True).shape == (1, 1)


def test_acosh_of_what_is_below_one_is_not_a_number_however_large():
    assert np.isnan(mc.acosh([-np.inf, -1e30, -3.0, 0.5]).numpy()).all()


def test_statistics_norms_and_comparisons_of_whole_tensors():
    x = np.float32(RANDOM.standard_normal((4, 9)))
    wide, t = x.astype(np.float64), Tensor(x)
    assert error(t.var(1, ddof=1), wide.var(1, ddof=1)) < 3e-6
    assert error(t.std(0, correction=1), wide.std(0, ddof=1)) < 3e-6
    assert error(t.cov(), np.cov(wide)) < 1e-5 and error(t.corrcoef(), np.corrcoef(wide)) < 1e-5
    assert error(t.average(0, weights=t * t), np.average(wide, 0, weights=wide * wide)) < 3e-5
    weights = np.arange(1.0, wide.shape[0] + 1)
    assert error(t.average(0, weights=weights.tolist()), np.average(wide, 0, weights=weights)) < 3e-5
    for order in (1, 2, 3, 0, np.inf, -np.inf):
        assert error(t.norm(order, axis=1), np.linalg.norm(wide, order, axis=1)) < 3e-6
    assert mc.grad(lambda x: x.norm())(mc.zeros(3)).tolist() == [0, 0, 0]
    assert t.allclose(x + 1e-7) and not t.allclose(x + 1)
    assert t.array_equal(x) and not t.array_equal(x[:1]) and not t.array_equal(x + 1)
    assert Tensor([np.inf, -np.inf]).logsumexp().item() == np.inf
    assert mc.full((2,), -np.inf).logsumexp().item() == -np.inf


GRADIENTS_AT_ZERO = {"atan": 1, "erf": 2 / math.sqrt(math.pi), "asinh": 1, "sigmoid": 0.25, "softplus": 0.5,
                     "sinh": 1, "sinc": 0, "elu": 1, "silu": 0.5, "erfinv": math.sqrt(math.pi) / 2, "asin": 1,
                     "tan": 1, "atanh": 1, "mish": 0.6, "log_sigmoid": 0.5, "softsign": 1}


def test_gradients_of_compositions_hold_where_they_change_sides():
    for name, slope in GRADIENTS_AT_ZERO.items():
        assert mc.grad(getattr(mc, name))(Tensor(0.0)).item() == pytest.approx(slope, abs=1e-6), name
    for point in (-90.0, 90.0):
        for name in ("sigmoid", "softplus", "elu", "erf", "erfc", "atan", "asinh", "cbrt"):
            assert mc.grad(getattr(mc, name))(Tensor(point)).isfinite().item(), (name, point)
    assert mc.grad(lambda x: x.logaddexp(x))(Tensor(3.0)).item() == 1


NO_SLOPE = {"floor", "ceil", "rint", "trunc", "sign", "isnan", "isinf", "isfinite", "signbit", "logical_not"}


@pytest.mark.parametrize("name", sorted(ONE_OPERAND.keys() - NO_SLOPE))
def test_the_gradient_of_a_composition_is_the_slope_of_the_function(name: str):
    function, points = ONE_OPERAND[name]
    step, middle = 1e-5, np.array([0.7, 0.9] if points is not POSITIVE else [1.5, 3, 1000])
    if points is SPREAD:
        middle = np.array([-20, -2.3, -0.9, -0.3, 0.05, 0.4, 0.8, 1.3, 2.6, 9, 40])
    elif points is UNIT:
        middle = np.array([-0.95, -0.5, 0.1, 0.9])
    with np.errstate(all="ignore"):
        slope = (function(middle + step) - function(middle - step)) / (2 * step)
    jitted = mc.jit(mc.grad(lambda x: getattr(x, name)().sum()))
    graph, _, _ = jitted.trace(jitted.take((np.float32(middle),), {}))
    got, = evaluate(graph, [middle], dtype64=True)
    assert np.allclose(got, slope, rtol=3e-5, atol=3e-8)


# -- creation ------------------------------------------------------------------------------------------------

CREATED: dict[str, tuple[Callable, Callable]] = {
    "linspace": (lambda f: f.linspace(-1, 2, 7), float),
    "no end": (lambda f: f.linspace(0, 1, 5, False), float),
    "logspace": (lambda f: f.logspace(-30, 30, 9), float),
    "geomspace": (lambda f: f.geomspace(1, 1000, 4), float),
    "arange": (lambda f: f.arange(0, 1, 0.1), float), "count": (lambda f: f.arange(7, -3, -2), int),
    "eye": (lambda f: f.eye(3, 4, 1), float), "tri": (lambda f: f.tri(3, 5, -1), float),
    "identity": (lambda f: f.identity(2), float), "full": (lambda f: f.full((2, 1), 7), int),
    "xy": (lambda f: f.stack(f.meshgrid(f.arange(3), f.arange(2))), int),
    "ij": (lambda f: f.stack(f.meshgrid(f.arange(3), f.arange(2), indexing="ij")), int),
}


@pytest.mark.parametrize("name", CREATED)
def test_what_is_made_of_numbers_is_what_numpy_makes(name: str):
    make, kind = CREATED[name]
    got = make(mc)
    assert error(got, make(np)) < 3e-6 and got.dtype.name == ("i32" if kind is int else "f32")


def test_likenesses_take_shape_and_dtype():
    x = mc.zeros(2, 3, dtype="bf16")
    assert mc.ones_like(x).tolist() == [[1] * 3] * 2 and mc.full_like(x, 2.5).dtype.name == "bf16"
    assert mc.zeros_like(x, "i8").dtype.name == "i8" and mc.linspace(5, 5, 1).tolist() == [5]
    assert mc.asarray(x).dtype.name == "bf16" and mc.from_numpy(np.ones(2, np.int8)).dtype.name == "i8"
