"""Functions of floats, composed of what the EUP gives: 2**x, log2, 1/x, 1/sqrt(x), tanh.

    expm1(x)     2 t / (1 - t), t = tanh(x / 2)          no bit is lost where exp(x) is near 1
    sin(x)       x - n pi/2, in three pieces of pi/2; then a polynomial, as n mod 4 says
    power(x, y)  2**(y * (e + log2 m)), x = m * 2**e; the exponent as a whole number and an exact rest

Goes in: a Writer and operands of f32. Comes out: operands, with the instructions written. The art is in the
argument: what is split into pieces with few bits multiplies without rounding.

Where they end: sin and cos keep an error below 1e-6 up to |x| = 1e4, where pi/2 runs out of pieces, and are
noise beyond. A remainder is exact while x / y is below 2**22, and noise beyond. power(x, y) is off by
|y * log2(x)| units in the last place at most, or 2 if that is less; the others by 3.

Cody and Waite (1980) is the book on splitting arguments; XLA builds its functions this way, as polynomials
it keeps in its elemental emitters. Read next: words.py, the same for integers.
"""

from __future__ import annotations

import math

import numpy as np

from minicc.graph.ir import F32, DType
from minicc.tpu.assembly import Writer
from minicc.tpu.isa import Operand
from minicc.tpu.words import with_sign

LOG2_E = float(np.float32(math.log2(math.e)))
LN_2 = float(np.float32(math.log(2)))
LN_2_HIGH = 0.693359375  # ln 2 in 9 bits, so that a whole number times it is exact ...
LN_2_LOW = float(np.float32(math.log(2) - LN_2_HIGH))  # ... and the rest
QUARTER_HIGH = math.floor(math.pi / 2 * 2**8) / 2**8  # pi / 2, likewise: 9 bits, 11 bits, the rest
QUARTER_MIDDLE = math.floor((math.pi / 2 - QUARTER_HIGH) * 2**20) / 2**20
QUARTER_LOW = math.pi / 2 - QUARTER_HIGH - QUARTER_MIDDLE
HALF_ROOT = int(np.float32(math.sqrt(0.5)).view(np.int32))  # the bits of 0.707: a number m times 2**e has
#                                                            m between 0.707 and 1.414 if e is counted from it
UPPER_BITS = -(2**12)  # the mask of a fraction's first 12 bits: two such numbers multiply without rounding
INTEGERS_FROM = 2.0**23  # an f32 of this size has no fraction


def eup(write: Writer, name: str, x: Operand) -> Operand:
    """Push to the EUP, pop the result."""
    return write.queued(name, "vpop.eup", x)


def exp(write: Writer, dtype: DType, x: Operand) -> Operand:
    """2**n * 2**f, with n whole and x - n * ln 2 exact, so that no bit of f is lost however large x is."""
    x = write.op("vmax.f32", write.op("vmin.f32", x, 100.0), -150.0)  # beyond, it is inf or 0 all the same
    n = write.op("vfloor.f32", write.op("vmul.f32", x, LOG2_E))
    rest = write.op("vsub.f32", x, write.op("vmul.f32", n, LN_2_HIGH))
    rest = write.op("vsub.f32", rest, write.op("vmul.f32", n, LN_2_LOW))
    fraction = eup(write, "vpow2", write.op("vmul.f32", rest, LOG2_E))
    return write.op("vmul.f32", fraction, eup(write, "vpow2", n))


def expm1(write: Writer, dtype: DType, x: Operand) -> Operand:
    """exp(x) - 1, by tanh(x / 2) where the difference would lose bits."""
    half = eup(write, "vtanh", write.op("vmul.f32", x, 0.5))
    left = write.op("vsub.f32", write.vector(1.0), half)
    small = write.op("vmul.f32", write.op("vadd.f32", half, half), eup(write, "vrcp", left))
    large = write.op("vsub.f32", exp(write, dtype, x), 1.0)
    return write.op("vsel", write.op("vcmp.gt.f32", x, 1.0), large, small)


def log(write: Writer, dtype: DType, x: Operand) -> Operand:
    """The natural logarithm."""
    return write.op("vmul.f32", eup(write, "vlog2", x), LN_2)


def log1p(write: Writer, dtype: DType, x: Operand) -> Operand:
    """log(u) * x / (u - 1), u = 1 + x: by how much rounding u moved it, log moved too, and both cancel."""
    op = write.op
    u = op("vadd.f32", x, 1.0)
    whole = log(write, dtype, u)
    moved = op("vmul.f32", op("vmul.f32", whole, x), eup(write, "vrcp", op("vsub.f32", u, 1.0)))
    result = op("vsel", op("vcmp.eq.f32", u, 1.0), x, moved)
    return op("vsel", op("vcmp.eq.f32", u, x), whole, result)


def sqrt(write: Writer, dtype: DType, x: Operand) -> Operand:
    """x / sqrt(x), but where that is 0/0 or inf/inf."""
    root = write.op("vmul.f32", eup(write, "vrsqrt", x), x)
    for same in (0.0, math.inf):
        root = write.op("vsel", write.op("vcmp.eq.f32", x, same), x, root)
    return root


def round_even(write: Writer, dtype: DType, x: Operand) -> Operand:
    """The nearest whole number, halfway the even one: adding 2**23 leaves no room for a fraction."""
    op = write.op
    size = op("vabs.f32", x)
    whole = op("vsub.f32", op("vadd.f32", size, INTEGERS_FROM), INTEGERS_FROM)
    return op("vsel", op("vcmp.lt.f32", size, INTEGERS_FROM), with_sign(write, whole, x), x)


def sine(write: Writer, x: Operand, quarters: int) -> Operand:
    """sin(x + quarters * pi/2): n quarters go, and n mod 4 says which of sin and cos of the rest, and how."""
    op = write.op
    n = op("vadd.f32", round_even(write, F32, op("vmul.f32", x, 2 / math.pi)), 0.0)  # no -0.0
    rest = write.vector(x)
    for piece in (QUARTER_HIGH, QUARTER_MIDDLE, QUARTER_LOW):
        rest = op("vsub.f32", rest, op("vmul.f32", n, piece))
    rest = op("vmin.f32", op("vmax.f32", rest, -1.0), 1.0)  # even noise stays between -1 and 1
    square = op("vmul.f32", rest, rest)
    sin = op("vmul.f32", _series(write, square, (1, 3, 5, 7, 9)), rest)
    cos = _series(write, square, (0, 2, 4, 6, 8, 10))
    turn = op("vadd.s32", op("vcvt.f32.s32", n), quarters)
    odd = op("vcmp.ne.s32", op("vand.u32", turn, 1), 0)
    negative = op("vshll.u32", op("vand.u32", turn, 2), 30)
    return op("vxor.u32", op("vsel", odd, cos, sin), negative)


def _series(write: Writer, square: Operand, powers: tuple[int, ...]) -> Operand:
    """1/p0! - x**2/p1! + x**4/p2! - ..., from the last term."""
    signed = [(-1) ** number / math.factorial(power) for number, power in enumerate(powers)]
    total: Operand = signed.pop()
    for coefficient in reversed(signed):
        total = write.op("vadd.f32", write.op("vmul.f32", square, total), coefficient)
    return total


def remainder(write: Writer, dtype: DType, x: Operand, y: Operand) -> Operand:
    """|x| - n |y| with the sign of x, n whole: the product in four exact pieces, and n off by 1 at most."""
    op = write.op
    size, step = op("vabs.f32", x), op("vabs.f32", y)
    n = op("vfloor.f32", op("vmul.f32", size, eup(write, "vrcp", step)))
    rest = size
    for part in _halves(write, n):
        for piece in _halves(write, step):
            rest = op("vsub.f32", rest, op("vmul.f32", part, piece))
    rest = op("vsel", op("vcmp.lt.f32", rest, 0.0), op("vadd.f32", rest, step), rest)
    rest = op("vsel", op("vcmp.ge.f32", rest, step), op("vsub.f32", rest, step), rest)
    rest = op("vsel", op("vcmp.lt.f32", size, step), size, rest)  # step may be infinite
    return with_sign(write, rest, x)


def _halves(write: Writer, x: Operand) -> tuple[Operand, Operand]:
    """The first 12 bits of each number, and the others."""
    high = write.op("vand.u32", x, UPPER_BITS)
    return high, write.op("vsub.f32", x, high)


def power(write: Writer, dtype: DType, x: Operand, y: Operand) -> Operand:
    """x**y as IEEE 754 has it: anything to the 0 is 1, a negative number to a fraction is NaN."""
    if y == 2.0:
        return write.op("vmul.f32", x, x)
    op = write.op
    x, y = write.vector(x), write.vector(y)
    size = op("vabs.f32", x)
    usual = op("vmand", op("vcmp.gt.f32", size, 0.0), op("vcmp.lt.f32", size, math.inf))
    usual = op("vmand", usual, op("vcmp.lt.f32", op("vabs.f32", y), math.inf))
    edge = eup(write, "vpow2", op("vmul.f32", eup(write, "vlog2", size), y))
    result = op("vsel", usual, _positive_power(write, size, y), edge)
    result = op("vsel", op("vcmp.eq.f32", size, 1.0), 1.0, result)
    half = op("vmul.f32", y, 0.5)
    fraction = op("vcmp.ne.f32", op("vfloor.f32", y), y)
    even = op("vcmp.eq.f32", op("vfloor.f32", half), half)
    result = op("vsel", op("vmor", fraction, even), result, with_sign(write, result, x))
    finite = op("vmand", op("vcmp.lt.f32", x, 0.0), op("vcmp.gt.f32", x, -math.inf))
    result = op("vsel", op("vmand", finite, fraction), math.nan, result)
    return op("vsel", op("vcmp.eq.f32", y, 0.0), 1.0, result)


def _positive_power(write: Writer, x: Operand, y: Operand) -> Operand:
    """2**n * 2**f, where n + f = y * (e + log2 m) and x = m * 2**e."""
    op = write.op
    tiny = op("vcmp.lt.f32", x, 2.0**-126)  # its bits would not say its exponent
    bits = op("vsel", tiny, op("vmul.f32", x, 2.0**24), x)
    shift = op("vshra.s32", op("vsub.s32", bits, HALF_ROOT), 23)
    m = op("vsub.s32", bits, op("vshll.u32", shift, 23))
    e = op("vcvt.s32.f32", op("vsub.s32", shift, op("vsel", tiny, 24, 0)))
    rest = eup(write, "vlog2", m)
    n = op("vfloor.f32", op("vmul.f32", y, op("vadd.f32", e, rest)))
    n = op("vmax.f32", op("vmin.f32", n, 129.0), -160.0)
    (y_high, y_low), (high, low) = _halves(write, y), _halves(write, rest)
    f = op("vsub.f32", op("vmul.f32", y_high, e), n)
    for a, b in ((y_high, high), (y_low, e), (y_high, low), (y_low, rest)):
        f = op("vadd.f32", f, op("vmul.f32", a, b))
    return op("vmul.f32", eup(write, "vpow2", f), eup(write, "vpow2", n))
