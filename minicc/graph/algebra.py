"""Rules of arithmetic and logic: which of them hold for floats to the last bit, and which do not.

    multiply(x, 1.0)                 ->  x
    divide(x, 8.0)                   ->  multiply(x, 0.125)       both are rounded once, from the same number
    add(add(i, 3), 4)                ->  add(i, 7)                integers wrap around alike
    multiply(x, 0.0)                 ->  0.0                      only fast: nan and infinity times 0 are nan

Goes in: nothing. Comes out: `ALGEBRA`, a table. Invariants: a rule that is not `fast` keeps every bit, but
for which nan it is; a fast one may change the last bits, and takes nan, infinities and the sign of zero for
things that do not occur. N and M stand for integers, F for floats, P for bools, C and D for scalar constants.

GCC and LLVM split the same rules by the same question (-ffast-math is a bundle of seven flags there); the
Alive project proves InstCombine's with a solver. Read next: movement.py.
"""

from __future__ import annotations

import math

import numpy as np

from minicc.graph.dtypes import BF16, BOOL, F16, F32, I8, I16, I32, U8, U32, DType
from minicc.graph.ir import Value
from minicc.graph.rewrite import Match, Rule, Var, X, Y, Z, any_of, const, pattern, to

N, M, F, P = Var("n", "i"), Var("m", "i"), Var("f", "f"), Var("p", "b")
C, D = Var("c", fixed=True), Var("d", fixed=True)
# what each dtype holds of others, to the last number; all hold bools
HOLDS: dict[DType, set[DType]] = {
    F32: {BF16, F16, I8, I16, U8}, BF16: {I8, U8}, F16: {I8, U8},
    I32: {I8, I16, U8}, I16: {I8, U8}, U32: {U8},
}
OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
ROUNDINGS = ("floor", "ceil", "round")
EXPONENTS = {F32: 126, BF16: 126, F16: 14}  # of the powers of two whose inverses are normal numbers too

add, subtract, multiply, divide, maximum, minimum, power, remainder = map(
    pattern, ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "remainder"))
negate, absolute, and_, or_, xor, not_, select, compare, convert = map(
    pattern, ("negate", "abs", "and", "or", "xor", "not", "select", "compare", "convert"))
exp, log, sqrt, shift_left, shift_right = map(pattern, ("exp", "log", "sqrt", "shift_left", "shift_right"))


def same_type(m: Match) -> Value | None:
    """The operand, where the op left it as it was: for ops that can keep the type only by doing nothing."""
    operand = m.node.operands[0]
    return operand if operand.type == m.type else None


def extreme(dtype: DType, sign: int) -> float:
    """The greatest number of a dtype, or the least."""
    if dtype.kind == "f":
        return sign * math.inf
    return int(np.iinfo(dtype.numpy).max if sign > 0 else np.iinfo(dtype.numpy).min)


# -- replacements that take more than a line ------------------------------------------------------------


def _times_inverse(m: Match) -> Value | None:
    mantissa, exponent = math.frexp(m.number(C))
    exact = abs(mantissa) == 0.5 and abs(exponent - 1) <= EXPONENTS[m.type.dtype]
    return m.build("multiply", m[F], m.scalar(1 / m.number(C))) if exact else None


def _times_rounded_inverse(m: Match) -> Value | None:
    return m.build("multiply", m[F], m.scalar(1 / m.number(C))) if m.number(C) else None


def _unsigned_power_of_two(m: Match) -> Value | None:
    """An unsigned integer over, or modulo, a power of two."""
    value = m.number(C)
    if not m.type.dtype.unsigned or value & (value - 1) or not value:
        return None
    if m.node.op == "divide":
        return m.build("shift_right", m[N], m.scalar(value.bit_length() - 1))
    return m.build("and", m[N], m.scalar(value - 1))


def _shifted_once(m: Match) -> Value | None:
    width, by, more = 8 * m.type.dtype.itemsize, m.number(C), m.number(D)
    if not (0 <= by < width and 0 <= more < width):
        return None
    return m.build(m.node.op, m[N], m.scalar(min(by + more, width)))


def _clipped_once(m: Match) -> Value | None:
    """max(max(x, c), d); not where the larger is a zero, for then both zeros might be met."""
    bound = m.build(m.node.op, m[C], m[D])
    larger = (max if m.node.op == "maximum" else min)(m.number(C), m.number(D))
    if m[C] != m[D] and m.type.dtype.kind == "f" and (larger == 0 or math.isnan(larger)):
        return None
    inner = next(v.node for v in m.node.operands if v != m[D])
    return m.build(m.node.op, *(m[X] if v == m[X] else bound for v in inner.operands))


def _is_extreme(m: Match, sign: int) -> bool:
    return m.number(C) == extreme(m.type.dtype, sign)


def _whole_already(m: Match) -> Value | None:
    """Rounding what is whole: rounded before, or once an integer."""
    inner = m.node.operands[0]
    converted = inner.op == "convert" and inner.node.operands[0].dtype.kind != "f"
    return inner if converted or inner.op in ROUNDINGS else None


def _compared_with_itself(m: Match) -> Value | None:
    direction = m.attrs["direction"]
    strict = direction in ("lt", "gt")  # false for a nan too
    return m.full(direction in ("eq", "le", "ge")) if strict or m[X].dtype.kind != "f" else None


def _opposite(m: Match) -> Value | None:
    """not (x < y) is x >= y, but for nan."""
    inner = m.node.operands[0].node
    direction = inner.attrs["direction"]
    if inner.operands[0].dtype.kind == "f" and direction not in ("eq", "ne"):
        return None
    return m.build("compare", *inner.operands, direction=OPPOSITE[direction])


def _bool_of_number(m: Match) -> Value | None:
    direction = m.attrs["direction"]
    if direction not in ("eq", "ne"):
        return None
    return m[P] if direction == "ne" else m.build("not", m[P])


def _converted_once(m: Match) -> Value | None:
    """first -> middle -> last as first -> last, where that is the same."""
    first, middle, last = m[X].dtype, m.node.operands[0].dtype, m.type.dtype
    kinds = first.kind + middle.kind + last.kind
    if _holds(middle, first):
        exact = kinds != "ifi" or _holds(last, first)  # from floats to integers numbers saturate
    else:  # low bits of low bits are low bits; and rounding makes no zero of an integer
        exact = (kinds == "iii" and last.itemsize <= middle.itemsize) or kinds == "ifb"
    return m.build("convert", m[X], dtype=last) if exact else None


def _holds(larger: DType, dtype: DType) -> bool:
    return larger is dtype or dtype is BOOL or dtype in HOLDS.get(larger, ())


# -- the table ------------------------------------------------------------------------------------------

# of bools, and of the bits of integers: nothing and all of them
_BITS = (("false", const(False), "true", const(True)), ("0", const(0), "-1", const(-1)))

ALGEBRA: tuple[Rule, ...] = (
    # what adds or multiplies nothing
    Rule("x * 1 -> x", multiply(X, const(1)), X),
    Rule("x / 1 -> x", divide(X, const(1)), X),
    Rule("x + -0.0 -> x", add(X, const(-0.0)), X),  # and i32 + 0; but -0.0 + 0.0 is 0.0
    Rule("x + 0.0 -> x", add(F, const(0.0)), F, fast=True),
    Rule("x - 0 -> x", subtract(X, const(0.0)), X),  # -0.0 - 0.0 is -0.0
    Rule("-0.0 - x -> -x", subtract(const(-0.0), X), to("negate", X)),  # and 0 - n
    Rule("0.0 - x -> -x", subtract(const(0.0), F), to("negate", F), fast=True),
    Rule("n * -1 -> -n", multiply(N, const(-1)), to("negate", N)),
    Rule("x * -1.0 -> -x", multiply(F, const(-1)), to("negate", F), fast=True),  # -nan
    Rule("n * 0 -> 0", multiply(N, const(0)), lambda m: m.full(0)),
    Rule("x * 0.0 -> 0.0", multiply(F, const(0.0)), lambda m: m.full(0), fast=True),
    Rule("n - n -> 0", subtract(N, N), lambda m: m.full(0)),
    Rule("x - x -> 0.0", subtract(F, F), lambda m: m.full(0), fast=True),
    Rule("x / x -> 1.0", divide(F, F), lambda m: m.full(1), fast=True),
    # signs
    Rule("--x -> x", negate(negate(X)), X),
    Rule("|-x| -> |x|", absolute(negate(X)), lambda m: None if m[X].dtype.unsigned else m.build("abs", m[X])),
    Rule("||x|| -> |x|", absolute(absolute(X)), to("abs", X)),
    Rule("|unsigned| -> unsigned", absolute(N), lambda m: m[N] if m[N].dtype.unsigned else None),
    Rule("x + -y -> x - y", add(X, negate(Y)), to("subtract", X, Y)),
    Rule("x - -y -> x + y", subtract(X, negate(Y)), to("add", X, Y)),
    Rule("-(n - m) -> m - n", negate(subtract(N, M)), to("subtract", M, N)),
    Rule("-(x - y) -> y - x", negate(subtract(F, Y)), to("subtract", Y, F), fast=True),
    Rule("-x * -y -> x * y", multiply(negate(X), negate(Y)), to("multiply", X, Y)),
    Rule("-x / -y -> x / y", divide(negate(F), negate(Y)), to("divide", F, Y)),
    Rule("-x * c -> x * -c", multiply(negate(X), C), to("multiply", X, to("negate", C))),
    Rule("-(x * c) -> x * -c", negate(multiply(X, C)), to("multiply", X, to("negate", C))),
    # constants that meet
    Rule("(n + c) + d -> n + (c + d)", add(add(N, C), D), to("add", N, to("add", C, D))),
    Rule("(x + c) + d -> x + (c + d)", add(add(F, C), D), to("add", F, to("add", C, D)), fast=True),
    Rule("(n * c) * d -> n * (c * d)", multiply(multiply(N, C), D), to("multiply", N, to("multiply", C, D))),
    Rule("(x * c) * d -> x * (c * d)", multiply(multiply(F, C), D),
         to("multiply", F, to("multiply", C, D)), fast=True),
    Rule("n - c -> n + -c", subtract(N, C), to("add", N, to("negate", C))),
    Rule("x / 2**k -> x * 2**-k", divide(F, C), _times_inverse),
    Rule("x / c -> x * (1 / c)", divide(F, C), _times_rounded_inverse, fast=True),
    Rule("unsigned / 2**k -> shift", divide(N, C), _unsigned_power_of_two),
    Rule("unsigned rem 2**k -> and", remainder(N, C), _unsigned_power_of_two),
    Rule("n << 0 -> n", shift_left(N, const(0)), N),
    Rule("n >> 0 -> n", shift_right(N, const(0)), N),
    Rule("(n << c) << d -> n << (c + d)", shift_left(shift_left(N, C), D), _shifted_once),
    Rule("(n >> c) >> d -> n >> (c + d)", shift_right(shift_right(N, C), D), _shifted_once),
    # the greater, the smaller, the whole
    Rule("max(x, x) -> x", maximum(X, X), X),
    Rule("min(x, x) -> x", minimum(X, X), X),
    Rule("max(x, least) -> x", maximum(X, C), lambda m: m[X] if _is_extreme(m, -1) else None),
    Rule("min(x, greatest) -> x", minimum(X, C), lambda m: m[X] if _is_extreme(m, 1) else None),
    Rule("max(n, greatest) -> greatest", maximum(N, C),
         lambda m: m.like(m[C]) if _is_extreme(m, 1) else None),
    Rule("min(n, least) -> least", minimum(N, C), lambda m: m.like(m[C]) if _is_extreme(m, -1) else None),
    Rule("max(max(x, c), d) -> max(x, max(c, d))", maximum(maximum(X, C), D), _clipped_once),
    Rule("min(min(x, c), d) -> min(x, min(c, d))", minimum(minimum(X, C), D), _clipped_once),
    Rule("round(round(x)) -> round(x)", any_of(ROUNDINGS), _whole_already),
    # functions
    Rule("x ** 0 -> 1", power(X, const(0)), lambda m: m.full(1)),  # of nan too
    Rule("x ** 1 -> x", power(X, const(1)), X),
    Rule("x ** 2 -> x * x", power(X, const(2)), to("multiply", X, X), fast=True),
    Rule("x ** 0.5 -> sqrt(x)", power(X, const(0.5)), to("sqrt", X), fast=True),
    Rule("x ** -1 -> 1 / x", power(X, const(-1)), lambda m: m.build("divide", m.scalar(1), m[X]), fast=True),
    Rule("exp(log(x)) -> x", exp(log(X)), X, fast=True),
    Rule("log(exp(x)) -> x", log(exp(X)), X, fast=True),
    Rule("log(x + 1) -> log1p(x)", log(add(X, const(1))), to("log1p", X), fast=True),
    Rule("exp(x) - 1 -> expm1(x)", subtract(exp(X), const(1)), to("expm1", X), fast=True),
    Rule("x / sqrt(y) -> x * rsqrt(y)", divide(X, sqrt(Y)), to("multiply", X, to("rsqrt", Y)), fast=True),
    Rule("sqrt(x) * sqrt(x) -> x", multiply(sqrt(X), sqrt(X)), X, fast=True),
    Rule("sqrt(x * x) -> |x|", sqrt(multiply(X, X)), to("abs", X), fast=True),
    # logic
    Rule("not not x -> x", not_(not_(X)), X),
    Rule("x and x -> x", and_(X, X), X),
    Rule("x or x -> x", or_(X, X), X),
    Rule("x xor x -> 0", xor(X, X), lambda m: m.full(0)),
    *(rule for zero, none, ones, every in _BITS for rule in (
        Rule(f"x and {ones} -> x", and_(X, every), X),
        Rule(f"x and {zero} -> {zero}", and_(X, none), lambda m: m.full(0)),
        Rule(f"x or {zero} -> x", or_(X, none), X),
        Rule(f"x or {ones} -> {ones}", or_(X, every), lambda m: m.full(-1)),
        Rule(f"x xor {zero} -> x", xor(X, none), X),
        Rule(f"x xor {ones} -> not x", xor(X, every), to("not", X)))),
    # comparisons and choices
    Rule("x < x -> false", compare(X, X), _compared_with_itself),
    Rule("not (x < y) -> x >= y", not_(compare(X, Y)), _opposite),
    Rule("number of p != 0 -> p", compare(convert(P), const(0)), _bool_of_number),
    Rule("select(true, x, y) -> x", select(const(True), X, Y), lambda m: m.like(m[X])),
    Rule("select(false, x, y) -> y", select(const(False), X, Y), lambda m: m.like(m[Y])),
    Rule("select(p, x, x) -> x", select(Y, X, X), lambda m: m.like(m[X])),
    Rule("select(not p, x, y) -> select(p, y, x)", select(not_(P), X, Y), to("select", P, Y, X)),
    Rule("select(p, select(p, x, y), z) -> select(p, x, z)", select(P, select(P, X, Y), Z),
         lambda m: m.like(to("select", P, X, Z)(m))),
    Rule("select(p, x, select(p, y, z)) -> select(p, x, z)", select(P, X, select(P, Y, Z)),
         lambda m: m.like(to("select", P, X, Z)(m))),
    Rule("select(p, true, false) -> p", select(P, const(True), const(False)), P),
    Rule("select(p, false, true) -> not p", select(P, const(False), const(True)), to("not", P)),
    # dtypes
    Rule("convert to its own dtype -> x", convert(X), same_type),
    Rule("convert(convert(x)) -> convert(x)", convert(convert(X)), _converted_once),
)
