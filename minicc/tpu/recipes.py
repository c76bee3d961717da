"""Recipes: how each elementwise op is made of the TPU's vector instructions.

    "maximum": binary("vmax")                       vmax.f32 v2, v0, v1         or vmax.s32, as the dtype says
    "divide":  rcp of y, then a multiplication      vrcp v1 ;; vpop.eup v2 ;; vmul.f32 v3, v0, v2

Goes in: a Writer, the dtype of the operands (of the last of them), and the operands: a vector register, a
mask register (a bool), or a number (a constant). Comes out: the same, with the instructions written. To add
an op, add a row to RECIPES: nothing else in code generation names an op. `EXPENSIVE` lists the ops worth
keeping in memory rather than computing twice.

Invariants: results are within 2 units in the last place of the exact value (exp: about 1e-6, relative), and
infinities, zeros and NaNs come out as IEEE says. The EUP gives 2**x, log2, 1/x, 1/sqrt(x) and tanh; the
rest is built from these, as XLA builds its own. Cody and Waite (1980) is the book on splitting exp's
argument. Read next: body.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from minicc.graph.ir import BOOL, I32, DType
from minicc.tpu.assembly import Writer
from minicc.tpu.isa import Operand, Reg

Recipe = Callable[..., Operand]  # (writer, dtype of the last operand, *operands, **attributes) -> result

SUFFIX = {"f": "f32", "i": "s32"}
EXPENSIVE = ("exp", "log", "sqrt", "rsqrt", "tanh", "divide")

LOG2_E = float(np.float32(math.log2(math.e)))
LN_2 = float(np.float32(math.log(2)))
LN_2_HIGH = 0.693359375  # ln 2 in 9 bits, so that a whole number times it is exact ...
LN_2_LOW = float(np.float32(math.log(2) - LN_2_HIGH))  # ... and the rest


def binary(name: str, commutes: bool = True) -> Recipe:
    """One instruction of the ALU, in the form for the dtype. Only its second operand may be a number."""
    def recipe(write: Writer, dtype: DType, x: Operand, y: Operand) -> Operand:
        if commutes and not isinstance(x, Reg):
            x, y = y, x
        return write.op(f"{name}.{SUFFIX[dtype.kind]}", x, y)
    return recipe


def transcendental(name: str) -> Recipe:
    """Push to the EUP, pop the result."""
    return lambda write, dtype, x: write.queued(name, "vpop.eup", x)


def mask(name: str) -> Recipe:
    """One instruction on masks."""
    return lambda write, dtype, *args: write.op(name, *(as_mask(write, arg) for arg in args))


def _negate(write: Writer, dtype: DType, x: Operand) -> Operand:
    return binary("vmul")(write, dtype, x, -1.0 if dtype.kind == "f" else -1)


def _abs(write: Writer, dtype: DType, x: Operand) -> Operand:
    if dtype.kind == "f":
        return write.op("vabs.f32", x)
    return write.op("vmax.s32", x, _negate(write, dtype, x))


def _sign(write: Writer, dtype: DType, x: Operand) -> Operand:
    negative = write.op("vsel", write.op("vcmp.lt.f32", x, 0.0), -1.0, x)  # a zero and a NaN stay
    return write.op("vsel", write.op("vcmp.gt.f32", x, 0.0), 1.0, negative)


def _exp(write: Writer, dtype: DType, x: Operand) -> Operand:
    """2**n * 2**f, with n whole and x - n * ln 2 exact, so that no bit of f is lost however large x is."""
    x = write.op("vmax.f32", write.op("vmin.f32", x, 100.0), -150.0)  # beyond, it is inf or 0 all the same
    n = write.op("vfloor.f32", write.op("vmul.f32", x, LOG2_E))
    rest = write.op("vsub.f32", x, write.op("vmul.f32", n, LN_2_HIGH))
    rest = write.op("vsub.f32", rest, write.op("vmul.f32", n, LN_2_LOW))
    power = transcendental("vpow2")
    fraction = power(write, dtype, write.op("vmul.f32", rest, LOG2_E))
    return write.op("vmul.f32", fraction, power(write, dtype, n))


def _log(write: Writer, dtype: DType, x: Operand) -> Operand:
    return write.op("vmul.f32", transcendental("vlog2")(write, dtype, x), LN_2)


def _sqrt(write: Writer, dtype: DType, x: Operand) -> Operand:
    root = write.op("vmul.f32", transcendental("vrsqrt")(write, dtype, x), x)
    for same in (0.0, math.inf):  # where x / sqrt(x) is 0/0 or inf/inf
        root = write.op("vsel", write.op("vcmp.eq.f32", x, same), x, root)
    return root


def _divide(write: Writer, dtype: DType, x: Operand, y: Operand) -> Operand:
    if x == 1.0:
        return transcendental("vrcp")(write, dtype, y)
    if isinstance(y, float) and y and math.frexp(y)[0] == 0.5:  # by a power of two: exact
        return write.op("vmul.f32", x, 1.0 / y)
    return binary("vmul")(write, dtype, x, transcendental("vrcp")(write, dtype, y))


def _compare(write: Writer, dtype: DType, x: Operand, y: Operand, direction: str) -> Operand:
    if dtype == BOOL:
        x, y, dtype = as_words(write, x), as_words(write, y), I32
    return write.op(f"vcmp.{direction}.{SUFFIX[dtype.kind]}", x, y)


def _select(write: Writer, dtype: DType, condition: Operand, x: Operand, y: Operand) -> Operand:
    condition = as_mask(write, condition)
    if dtype != BOOL:
        return write.op("vsel", condition, x, y)
    chosen = write.op("vmand", condition, as_mask(write, x))
    return write.op("vmor", chosen, write.op("vmand", write.op("vmnot", condition), as_mask(write, y)))


def _convert(write: Writer, source: DType, x: Operand, dtype: DType) -> Operand:
    """x as another dtype; a float becomes an int towards zero."""
    if source.kind == dtype.kind:
        return x
    if source == BOOL:
        return write.op("vsel", as_mask(write, x), 1.0, 0.0) if dtype.kind == "f" else as_words(write, x)
    if dtype == BOOL:
        return _compare(write, source, x, 0.0 if source.kind == "f" else 0, "ne")
    return write.op(f"vcvt.{SUFFIX[source.kind]}.{SUFFIX[dtype.kind]}", x)


RECIPES: dict[str, Recipe] = {
    "negate": _negate,
    "abs": _abs,
    "sign": _sign,
    "exp": _exp,
    "log": _log,
    "sqrt": _sqrt,
    "rsqrt": transcendental("vrsqrt"),
    "tanh": transcendental("vtanh"),
    "add": binary("vadd"),
    "subtract": binary("vsub", commutes=False),
    "multiply": binary("vmul"),
    "divide": _divide,
    "maximum": binary("vmax"),
    "minimum": binary("vmin"),
    "and": mask("vmand"),
    "or": mask("vmor"),
    "not": mask("vmnot"),
    "compare": _compare,
    "select": _select,
    "convert": _convert,
}


def as_mask(write: Writer, x: Operand) -> Reg:
    """A bool as a mask register. In memory, and so after a load, a bool is a word, 0 or 1."""
    if not isinstance(x, Reg):
        return write.op("vcmask", 8 if x else 0, 128)
    return x if x.kind == "m" else write.op("vcmp.ne.s32", x, 0)


def as_words(write: Writer, x: Operand) -> Operand:
    """A value as it lies in memory: a bool as words of 0 and 1, anything else as it is."""
    if isinstance(x, Reg) and x.kind == "m":
        return write.op("vsel", x, 1, 0)
    return int(x) if isinstance(x, bool) else x
