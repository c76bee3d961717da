"""Recipes: how each elementwise op is made of the TPU's vector instructions.

    "maximum": binary("vmax")                       vmax.f32 v2, v0, v1         or vmax.s32, as the dtype says
    "divide":  rcp of y, then a multiplication      vrcp v1 ;; vpop.eup v2 ;; vmul.f32 v3, v0, v2

Goes in: a Writer, the dtype of the operands (of the last of them), and the operands: a vector register, a
mask register (a bool), or a number (a constant). Comes out: the same, with the instructions written. To add
an op, add a row to RECIPES: nothing else in code generation names an op. `EXPENSIVE` lists the ops worth
keeping in memory rather than computing twice.

Invariants: results of floats are within 2 units in the last place of the exact value, of the functions of
functions.py within a few; infinities, zeros and NaNs come out as IEEE says, but that a subnormal divisor
counts as 0; integers are exact. What takes more than an instruction or two is in functions.py, on floats, and
words.py, on integers. Read next: body.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from minicc.graph.ir import BOOL, U32, DType
from minicc.tpu import functions, words
from minicc.tpu.assembly import Writer
from minicc.tpu.functions import eup
from minicc.tpu.isa import Operand, Reg
from minicc.tpu.words import SUFFIX, as_mask, flipped

Recipe = Callable[..., Operand]  # (writer, dtype of the last operand, *operands, **attributes) -> result

EXPENSIVE = ("exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "tanh", "sin", "cos", "power", "divide",
             "remainder")


def unary(name: str) -> Recipe:
    """One instruction of the ALU, on f32."""
    return lambda write, dtype, x: write.op(name, x)


def binary(name: str, commutes: bool = True) -> Recipe:
    """One instruction of the ALU, in the form for the dtype. Only its second operand may be a number."""
    def recipe(write: Writer, dtype: DType, x: Operand, y: Operand) -> Operand:
        if commutes and not isinstance(x, Reg):
            x, y = y, x
        return write.op(f"{name}.{SUFFIX[dtype.kind]}", x, y)
    return recipe


def extreme(name: str) -> Recipe:
    """The larger or smaller of two, which of u32 looks at words with the sign bit flipped."""
    def recipe(write: Writer, dtype: DType, x: Operand, y: Operand) -> Operand:
        x, y = flipped(write, dtype, x), flipped(write, dtype, y)
        return flipped(write, dtype, binary(name)(write, dtype, x, y))
    return recipe


def transcendental(name: str) -> Recipe:
    """Push to the EUP, pop the result."""
    return lambda write, dtype, x: eup(write, name, x)


def bitwise(name: str, of_masks: str) -> Recipe:
    """One instruction on the bits of words, or on masks."""
    def recipe(write: Writer, dtype: DType, *args: Operand) -> Operand:
        if dtype == BOOL:
            return write.op(of_masks, *(as_mask(write, arg) for arg in args))
        return write.op(name, *args)
    return recipe


def _not(write: Writer, dtype: DType, x: Operand) -> Operand:
    return write.op("vmnot", as_mask(write, x)) if dtype == BOOL else write.op("vxor.u32", x, -1)


def _negate(write: Writer, dtype: DType, x: Operand) -> Operand:
    return binary("vmul")(write, dtype, x, -1.0 if dtype.kind == "f" else -1)


def _abs(write: Writer, dtype: DType, x: Operand) -> Operand:
    if dtype.kind == "f":
        return write.op("vabs.f32", x)
    return x if dtype.unsigned else write.op("vmax.s32", x, _negate(write, dtype, x))


def _sign(write: Writer, dtype: DType, x: Operand) -> Operand:
    if dtype is U32:
        return write.op("vsel", write.op("vcmp.ne.s32", x, 0), 1, 0)
    if dtype.kind == "i":
        return write.op("vmax.s32", write.op("vmin.s32", x, 1), -1)
    negative = write.op("vsel", write.op("vcmp.lt.f32", x, 0.0), -1.0, x)  # a zero and a NaN stay
    return write.op("vsel", write.op("vcmp.gt.f32", x, 0.0), 1.0, negative)


def _divide(write: Writer, dtype: DType, x: Operand, y: Operand) -> Operand:
    if dtype.kind == "i":
        return words.divide(write, dtype, x, y)[0]
    if x == 1.0:
        return eup(write, "vrcp", y)
    if isinstance(y, float) and y and math.frexp(y)[0] == 0.5:  # by a power of two: exact
        return write.op("vmul.f32", x, 1.0 / y)
    return binary("vmul")(write, dtype, x, eup(write, "vrcp", y))


def _remainder(write: Writer, dtype: DType, x: Operand, y: Operand) -> Operand:
    if dtype.kind == "i":
        return words.divide(write, dtype, x, y)[1]
    return functions.remainder(write, dtype, x, y)


def _shift_right(write: Writer, dtype: DType, x: Operand, places: Operand) -> Operand:
    return write.op("vshrl.u32" if dtype.unsigned else "vshra.s32", x, places)


def _select(write: Writer, dtype: DType, condition: Operand, x: Operand, y: Operand) -> Operand:
    condition = as_mask(write, condition)
    if dtype != BOOL:
        return write.op("vsel", condition, x, y)
    chosen = write.op("vmand", condition, as_mask(write, x))
    return write.op("vmor", chosen, write.op("vmand", write.op("vmnot", condition), as_mask(write, y)))


RECIPES: dict[str, Recipe] = {
    "negate": _negate,
    "abs": _abs,
    "sign": _sign,
    "floor": unary("vfloor.f32"),
    "ceil": unary("vceil.f32"),
    "round": functions.round_even,
    "exp": functions.exp,
    "expm1": functions.expm1,
    "log": functions.log,
    "log1p": functions.log1p,
    "sqrt": functions.sqrt,
    "rsqrt": transcendental("vrsqrt"),
    "tanh": transcendental("vtanh"),
    "sin": lambda write, dtype, x: functions.sine(write, x, 0),
    "cos": lambda write, dtype, x: functions.sine(write, x, 1),
    "add": binary("vadd"),
    "subtract": binary("vsub", commutes=False),
    "multiply": binary("vmul"),
    "divide": _divide,
    "remainder": _remainder,
    "power": functions.power,
    "maximum": extreme("vmax"),
    "minimum": extreme("vmin"),
    "and": bitwise("vand.u32", "vmand"),
    "or": bitwise("vor.u32", "vmor"),
    "xor": bitwise("vxor.u32", "vmxor"),
    "not": _not,
    "shift_left": lambda write, dtype, x, places: write.op("vshll.u32", x, places),
    "shift_right": _shift_right,
    "compare": words.compare,
    "select": _select,
    "convert": words.convert,
}
