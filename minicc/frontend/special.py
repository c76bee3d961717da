"""Elementwise functions that the graph lacks, written with those it has.

    tan(x)   ->  sin(x) / cos(x)
    erf(x)   ->  x * p(x * x) near 0, else 1 - exp(-x * x) * t * q(t), t = 1 / (1 + x / 2)

In: tensors, arrays, numbers. Out: tensors. Invariants: what is made of floats is computed in f32 and rounded
once, so bf16 loses no more than it must. Each agrees with the function in float64 within 3e-6 of its value on
f32 operands; but sinc and tan only within 1e-6 of their largest near a zero other than 0, since the argument
is rounded first. Gradients follow from the formulas, so these choose a side with `where` before they compute,
never after: 0 * inf is a NaN even in a branch that was not chosen. XLA has chlo for the same job; libm has
separate code for each. The polynomials were fitted to the functions in float64 by weighted least squares (C.
Lawson's way to the least relative error), which is within 1e-7 each. Read next: reductions.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from minicc.frontend import ops
from minicc.frontend.arrays import LARGEST
from minicc.frontend.ops import Function, exp, expm1, log, log1p, sqrt, where
from minicc.frontend.primitives import TensorLike, as_float, as_integers, as_tensor, as_tensors, in_f32
from minicc.graph.ir import BOOL, I32

if TYPE_CHECKING:
    from minicc.frontend.tensor import Tensor

def formula(name: str, summary: str, compute: Function) -> Function:
    """The function of float tensors that a formula computes, in f32 and rounded once."""
    compute.__name__, compute.__qualname__, compute.__doc__ = name, name, summary
    return in_f32(compute)


def _polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """By Horner's rule, the highest power first."""
    result = x * coefficients[0] + coefficients[1]
    for coefficient in coefficients[2:]:
        result = result * x + coefficient
    return result


def _sign_apart(x: Tensor) -> tuple[Tensor, Tensor]:
    """-1 or 1, and x without that sign; abs(x) has no gradient at 0, this has."""
    side = where(x < 0, -1.0, 1.0)
    return side, x * side


# -- of any numbers ------------------------------------------------------------------------------------------


def square(x: TensorLike) -> Tensor:
    """x * x."""
    x, = as_tensors((x,), I32)
    return x * x


def trunc(x: TensorLike) -> Tensor:
    """x without its fraction."""
    return where(as_tensors((x,), I32)[0] < 0, ops.ceil(x), ops.floor(x))


def round(x: TensorLike, decimals: int = 0) -> Tensor:
    """x to so many decimals; a half goes to the even neighbour."""
    places, = as_integers("round", decimals)
    if not places or as_tensor(x).dtype.kind != "f":
        return ops.rint(x)
    scale = 10.0 ** places
    return in_f32(lambda x: ops.rint(x * scale) / scale)(x)


def positive(x: TensorLike) -> Tensor:
    """x."""
    return as_tensors((x,), I32)[0]


def fmax(x: TensorLike, y: TensorLike) -> Tensor:
    """The larger of x and y; a NaN only where both are."""
    return where(isnan(x), y, where(isnan(y), x, ops.maximum(x, y)))


def fmin(x: TensorLike, y: TensorLike) -> Tensor:
    """The smaller of x and y; a NaN only where both are."""
    return where(isnan(x), y, where(isnan(y), x, ops.minimum(x, y)))


def clip(x: TensorLike, low: TensorLike = None, high: TensorLike = None) -> Tensor:
    """x, not below `low` and not above `high`; None leaves a side open."""
    result = as_tensor(x) if low is None else ops.maximum(x, low)
    return result if high is None else ops.minimum(result, high)


def reciprocal(x: TensorLike) -> Tensor:
    """1 / x, in floats."""
    return ops.divide(1, x)


def float_power(x: TensorLike, y: TensorLike) -> Tensor:
    """x ** y in floats."""
    return ops.power(as_float(x), y)


def lerp(x: TensorLike, y: TensorLike, weight: TensorLike) -> Tensor:
    """x + weight * (y - x)."""
    return in_f32(lambda x, y, weight: x + weight * (y - x))(x, y, weight)


# -- questions -----------------------------------------------------------------------------------------------


def _truth(x: TensorLike) -> Tensor:
    x = as_tensor(x)
    return x if x.dtype is BOOL else x != 0


def logical_and(x: TensorLike, y: TensorLike) -> Tensor:
    """Whether both x and y are not 0."""
    return _truth(x) & _truth(y)


def logical_or(x: TensorLike, y: TensorLike) -> Tensor:
    """Whether x or y is not 0."""
    return _truth(x) | _truth(y)


def logical_xor(x: TensorLike, y: TensorLike) -> Tensor:
    """Whether exactly one of x and y is not 0."""
    return _truth(x) ^ _truth(y)


def logical_not(x: TensorLike) -> Tensor:
    """Whether x is 0."""
    return ~_truth(x)


def isnan(x: TensorLike) -> Tensor:
    """Whether x is NaN."""
    x = as_tensor(x)
    return x != x


def isinf(x: TensorLike) -> Tensor:
    """Whether x is infinite."""
    return abs(as_float(x)) == math.inf


def isfinite(x: TensorLike) -> Tensor:
    """Whether x is neither infinite nor NaN."""
    return abs(as_float(x)) < math.inf


def signbit(x: TensorLike) -> Tensor:
    """Whether x is below 0, or is -0.0; the sign of a NaN counts as positive."""
    x = as_float(x)
    return (x < 0) | ((x == 0) & (1 / x < 0))


def isclose(x: TensorLike, y: TensorLike, rtol: float = 1e-5, atol: float = 1e-8,
            equal_nan: bool = False) -> Tensor:
    """Whether abs(x - y) <= atol + rtol * abs(y); infinities are close to themselves."""
    x, y = as_float(x), as_float(y)
    near = (x == y) | (isfinite(y) & (abs(x - y) <= atol + rtol * abs(y)))
    return near | (isnan(x) & isnan(y)) if equal_nan else near


def copysign(x: TensorLike, y: TensorLike) -> Tensor:
    """x with the sign of y."""
    return abs(as_float(x)) * where(signbit(y), -1, 1)


def heaviside(x: TensorLike, at_zero: TensorLike) -> Tensor:
    """0 below 0, 1 above, and `at_zero` at 0."""
    x, at_zero = as_tensors((as_float(x), at_zero))
    return where(isnan(x), x, where(x == 0, at_zero, where(x < 0, 0, 1)))


def nan_to_num(x: TensorLike, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Tensor:
    """x with NaN as 0, and infinities as the largest numbers of the dtype, or as asked."""
    x = as_tensor(x)
    if x.dtype.kind != "f":
        return x
    low = -LARGEST[x.dtype] if neginf is None else neginf
    high = LARGEST[x.dtype] if posinf is None else posinf
    return where(isnan(x), nan, where(x == math.inf, high, where(x == -math.inf, low, x)))


# -- exponentials and powers ---------------------------------------------------------------------------------

exp2 = formula("exp2", "2 to the power x.", lambda x: ops.power(2.0, x))
log2 = formula("log2", "The logarithm to base 2.", lambda x: log(x) * (1 / math.log(2)))
log10 = formula("log10", "The logarithm to base 10.", lambda x: log(x) * (1 / math.log(10)))


@in_f32
def cbrt(x: Tensor) -> Tensor:
    """The cube root, of negative numbers too: a guess by logarithms and one step of Newton's."""
    side, size = _sign_apart(x)
    ordinary = (size > 0) & (size < math.inf)
    guess = exp(log(where(ordinary, size, 1.0)) * (1 / 3))
    better = guess - (guess - where(ordinary, size, 1.0) / (guess * guess)) * (1 / 3)
    return where(ordinary, side * better, x)


@in_f32
def logaddexp(x: Tensor, y: Tensor) -> Tensor:
    """log(exp(x) + exp(y)), where exp would overflow too."""
    larger, smaller = where(x > y, x, y), where(x > y, y, x)
    gap = where((x == y) & isinf(x), 0.0, smaller - larger)
    return larger + log1p(exp(gap))


@in_f32
def hypot(x: Tensor, y: Tensor) -> Tensor:
    """sqrt(x * x + y * y), where the squares would overflow too."""
    endless, largest = isinf(x) | isinf(y), ops.maximum(abs(x), abs(y))
    scale = where((largest == 0) | endless, 1.0, largest)
    return where(endless, math.inf, scale * sqrt(square(x / scale) + square(y / scale)))


# -- trigonometry --------------------------------------------------------------------------------------------

# atan(x) / x in x * x, up to 0.18
_ATAN = (0.0798673198, -0.138520867, 0.199744702, -0.333327992, 0.999999982)

tan = formula("tan", "The tangent of x in radians.", lambda x: ops.sin(x) / ops.cos(x))
deg2rad = formula("deg2rad", "Degrees to radians.", lambda x: x * (math.pi / 180))
rad2deg = formula("rad2deg", "Radians to degrees.", lambda x: x * (180 / math.pi))


@in_f32
def atan(x: Tensor) -> Tensor:
    """The angle whose tangent is x, from -pi/2 to pi/2; a turn by 45 or 90 degrees makes it small."""
    side, size = _sign_apart(x)
    far, near = size > 1 + math.sqrt(2), size < math.sqrt(2) - 1
    turned = where(far, -1.0, where(near, size, size - 1)) / where(far, size, where(near, 1.0, size + 1))
    turn = where(far, math.pi / 2, where(near, 0.0, math.pi / 4))
    return side * (turn + turned * _polynomial(turned * turned, _ATAN))


@in_f32
def asin(x: Tensor) -> Tensor:
    """The angle from -pi/2 to pi/2 whose sine is x."""
    return 2 * atan(x / (1 + sqrt((1 - x) * (1 + x))))


@in_f32
def acos(x: Tensor) -> Tensor:
    """The angle from 0 to pi whose cosine is x."""
    return 2 * atan(sqrt((1 - x) / (1 + x)))


@in_f32
def atan2(y: Tensor, x: Tensor) -> Tensor:
    """The angle of the point (x, y), from -pi to pi."""
    steep = abs(y) > abs(x)
    over, under = where(steep, abs(x), abs(y)), where(steep, abs(y), abs(x))
    slope = over / where(under == 0, 1.0, under)  # 0 / 0 counts as 0, and inf / inf as 1
    angle = atan(where(isinf(over) & isinf(under), 1.0, slope))
    angle = where(steep, math.pi / 2 - angle, angle)
    angle = where(signbit(x), math.pi - angle, angle)
    return where(signbit(y), -angle, angle)


@in_f32
def sinc(x: Tensor) -> Tensor:
    """sin(pi * x) / (pi * x), and 1 at 0."""
    angle = where(x == 0, 1.0, x) * math.pi
    return where(x == 0, 1.0, ops.sin(angle) / angle)


@in_f32
def sinh(x: Tensor) -> Tensor:
    """(exp(x) - exp(-x)) / 2."""
    half = x * 0.5
    return (expm1(half) - expm1(-half)) * ((exp(half) + exp(-half)) * 0.5)


@in_f32
def cosh(x: Tensor) -> Tensor:
    """(exp(x) + exp(-x)) / 2."""
    rising, falling = exp(x * 0.5), exp(x * -0.5)
    return (0.5 * rising) * rising + (0.5 * falling) * falling


HUGE = 1e9  # from here on, x * x + 1 is x * x


@in_f32
def asinh(x: Tensor) -> Tensor:
    """What sinh takes to x."""
    side, size = _sign_apart(x)
    small = where(size > HUGE, 1.0, size)
    exact = log1p(small + small * small / (1 + sqrt(small * small + 1)))
    return side * where(size > HUGE, log(where(size > HUGE, size, 1.0)) + math.log(2), exact)


@in_f32
def acosh(x: Tensor) -> Tensor:
    """What cosh takes to x, from 0 up; NaN for x below 1."""
    over = where(x > HUGE, 1.0, x) - 1
    exact = where(over < 0, math.nan, log1p(over + sqrt(over * (over + 2))))
    return where(x > HUGE, log(where(x > HUGE, x, 1.0)) + math.log(2), exact)


@in_f32
def atanh(x: Tensor) -> Tensor:
    """What tanh takes to x; NaN beyond -1 and 1."""
    return (log1p(x) - log1p(-x)) * 0.5


# -- the error function --------------------------------------------------------------------------------------

_ERF = (7.85385768e-05, -0.000801019251, 0.00518832756, -0.0268538119, 0.112835851, -0.376126258, 1.12837917)
_ERFC = (0.0937648386, -0.227065592, 0.0834492936, 0.0603409664, 0.179040668, 0.246903959, 0.282047021,
         0.282098024)  # erfc(x) * exp(x * x) / t in t = 1 / (1 + x / 2), for x from 1 to 10.5
_ERFINV = (2.85347896e-08, 3.43727059e-07, -3.52885955e-06, -4.39678125e-06, 0.000218602194, -0.00125370752,
           -0.00417770774, 0.246640726, 1.50140942)  # erfinv(x) / x in w - 2.5, where w is less than 5
_ERFINV_TAIL = (-0.000150348472, 7.59404593e-05, 0.00127898, -0.00364980442, 0.00577180976, -0.00762806417,
                0.00943404025, 1.00167433, 2.83297703)  # and in sqrt(w) - 3 beyond


def _erf_near(x: Tensor) -> Tensor:
    """erf for x from -1 to 1."""
    return x * _polynomial(x * x, _ERF)


def _erfc_far(x: Tensor) -> Tensor:
    """erfc for x from 1 up. exp(-x * x) is taken in two steps, of which the first has an exact argument."""
    x = ops.minimum(x, 12.0)  # where it is 0 in f32
    rough = ops.rint(x * 256) * (1 / 256)
    t = 1 / (1 + x * 0.5)
    return exp(-rough * rough) * exp((rough - x) * (rough + x)) * (t * _polynomial(t, _ERFC))


@in_f32
def erf(x: Tensor) -> Tensor:
    """The error function: how much of a normal distribution of variance 1/2 lies between -x and x."""
    side, size = _sign_apart(x)
    near = size < 1
    return where(near, _erf_near(where(near, x, 0.0)), side * (1 - _erfc_far(where(near, 1.0, size))))


@in_f32
def erfc(x: Tensor) -> Tensor:
    """1 - erf(x), exact for large x too."""
    side, size = _sign_apart(x)
    near, tail = size < 1, _erfc_far(where(size < 1, 1.0, size))
    return where(near, 1 - _erf_near(where(near, x, 0.0)), where(x < 0, 2 - tail, tail))


@in_f32
def erfinv(x: Tensor) -> Tensor:
    """What erf takes to x, by one polynomial for the middle and one for the tails, as M. Giles splits it."""
    inside = abs(x) < 1
    w = -log(where(inside, (1 - x) * (1 + x), 1.0))
    middle = w < 5
    in_middle = _polynomial(where(middle, w, 5.0) - 2.5, _ERFINV)
    in_tail = _polynomial(sqrt(where(middle, 5.0, w)) - 3, _ERFINV_TAIL)
    beyond = where(x == 1, math.inf, where(x == -1, -math.inf, math.nan))
    return where(inside, x * where(middle, in_middle, in_tail), beyond)
