"""The elementwise operations: one row each, read by every stage that treats them all alike.

    "tanh": Elementwise(np.tanh, "f", "tanhf({0})")

Goes in: nothing. Comes out: `ELEMENTWISE`, name -> row. Inference reads the operand class, the evaluators and
the GPU's vector mode read the numpy function, CUDA printing reads the C text.
To add an op: a row here, its gradient in frontend/vjp.py, its TPU instructions in tpu/recipes.py, and no
fourth place.

StableHLO spells these ops the same way; XLA spreads the same facts over HLO evaluator, shape inference, cost
analysis and elemental IR emitter. Read next: infer.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minicc.graph.dtypes import DType, encode


@dataclass(frozen=True)
class Elementwise:
    """What the stages need to know of one elementwise op.

    numpy: the function on arrays of equal dtype. operands: what the operands may be, all of one dtype:
    "f" floats, "n" numbers, "i" integers, "bi" bools or integers. cuda: C text with {0} {1} for the operands.
    integer, cuda_integer: the same for integers, where that is another thing.
    """

    numpy: Callable[..., np.ndarray]
    operands: str
    cuda: str
    integer: Callable[..., np.ndarray] | None = None
    cuda_integer: str = ""

    @property
    def arity(self) -> int:
        """How many operands the op takes."""
        return 1 + ("{1}" in self.cuda)

    def function(self, kind: str) -> Callable[..., np.ndarray]:
        """The function on arrays of this kind: f, b, or i and u for integers, as numpy has it."""
        return self.integer if self.integer is not None and kind in "iu" else self.numpy

    def text(self, kind: str) -> str:
        """The C text for operands of this kind."""
        return self.cuda_integer if self.cuda_integer and kind in "iu" else self.cuda


def _divide(x: Any, y: Any) -> Any:
    """Towards zero; x / 0 is -1 (all bits set, if unsigned), and the least integer / -1 is itself."""
    usual = np.where(y == 0, np.ones_like(y), y)
    quotient = np.floor_divide(x, usual)
    quotient = quotient + ((quotient < 0) & (quotient * usual != x))  # from below to towards zero
    return np.where(y == 0, np.invert(np.zeros_like(x)), quotient).astype(np.result_type(x, y))


def _remainder(x: Any, y: Any) -> Any:
    """With the sign of the dividend; x rem 0 is x."""
    return np.where(y == 0, x, x - _divide(x, y) * y).astype(np.result_type(x, y))


def _shift_left(x: Any, by: Any) -> Any:
    """Shifts of the width or more, which is what negative ones count as, leave 0."""
    return np.where(_fits(by), np.left_shift(x, np.where(_fits(by), by, np.zeros_like(by))), np.zeros_like(x))


def _shift_right(x: Any, by: Any) -> Any:
    """Arithmetic if signed, logical if not; shifts of the width or more leave the sign's bits, or 0."""
    shifted = np.right_shift(x, np.where(_fits(by), by, np.full_like(by, _width(by) - 1)))
    return shifted >> ~_fits(by)  # one bit more


def _width(by: Any) -> int:
    return 8 * by.dtype.itemsize


def _fits(by: Any) -> Any:
    return (by >= 0) & (by < _width(by))


ELEMENTWISE: dict[str, Elementwise] = {
    # name         numpy                 operands  CUDA C
    "negate": Elementwise(np.negative, "n", "-{0}"),
    "abs": Elementwise(np.absolute, "n", "fabsf({0})", np.absolute, "abs_int({0})"),
    "sign": Elementwise(np.sign, "n", "copysignf({0} != 0.0f ? 1.0f : 0.0f, {0})", np.sign, "sign_int({0})"),
    "floor": Elementwise(np.floor, "f", "floorf({0})"),
    "ceil": Elementwise(np.ceil, "f", "ceilf({0})"),
    "round": Elementwise(np.rint, "f", "rintf({0})"),  # halves to the even neighbour
    "exp": Elementwise(np.exp, "f", "expf({0})"),
    "expm1": Elementwise(np.expm1, "f", "expm1f({0})"),
    "log": Elementwise(np.log, "f", "logf({0})"),
    "log1p": Elementwise(np.log1p, "f", "log1pf({0})"),
    "sqrt": Elementwise(np.sqrt, "f", "sqrtf({0})"),
    "rsqrt": Elementwise(lambda x: 1 / np.sqrt(x), "f", "rsqrtf({0})"),
    "tanh": Elementwise(np.tanh, "f", "tanhf({0})"),
    "sin": Elementwise(np.sin, "f", "sinf({0})"),
    "cos": Elementwise(np.cos, "f", "cosf({0})"),
    "add": Elementwise(np.add, "n", "{0} + {1}"),
    "subtract": Elementwise(np.subtract, "n", "{0} - {1}"),
    "multiply": Elementwise(np.multiply, "n", "{0} * {1}"),
    "divide": Elementwise(np.divide, "n", "{0} / {1}", _divide, "divide_int({0}, {1})"),
    "remainder": Elementwise(np.fmod, "n", "fmodf({0}, {1})", _remainder, "remainder_int({0}, {1})"),
    "power": Elementwise(np.power, "f", "powf({0}, {1})"),
    "maximum": Elementwise(np.maximum, "n", "max({0}, {1})"),
    "minimum": Elementwise(np.minimum, "n", "min({0}, {1})"),
    "and": Elementwise(np.logical_and, "bi", "{0} && {1}", np.bitwise_and, "{0} & {1}"),
    "or": Elementwise(np.logical_or, "bi", "{0} || {1}", np.bitwise_or, "{0} | {1}"),
    "xor": Elementwise(np.logical_xor, "bi", "{0} != {1}", np.bitwise_xor, "{0} ^ {1}"),
    "not": Elementwise(np.logical_not, "bi", "!{0}", np.invert, "~{0}"),
    "shift_left": Elementwise(_shift_left, "i", "shift_left({0}, {1})"),
    "shift_right": Elementwise(_shift_right, "i", "shift_right({0}, {1})"),
}

# what CUDA C has no operator for: the functions that the texts above call, each on any integer type
CUDA_FUNCTIONS: dict[str, str] = {name: f"template <class T> __device__ T {name}{text}" for name, text in {
    "abs_int": "(T x) { return x < 0 ? 0 - x : x; }",
    "sign_int": "(T x) { return (x > 0) - (x < 0); }",
    "divide_int": "(T x, T y) { return y == 0 ? ~T(0) : T(-1) < 0 && y == T(-1) ? 0 - x : x / y; }",
    "remainder_int": "(T x, T y) { return y == 0 ? x : T(-1) < 0 && y == T(-1) ? 0 : x % y; }",
    "shift_left": "(T x, T by) { return by < 0 || by >= T(8 * sizeof(T)) ? 0 : x << by; }",
    "shift_right": "(T x, T by) { return by < 0 || by >= T(8 * sizeof(T)) ? (x < 0 ? ~T(0) : 0) : x >> by; }",
}.items()}

# compare is elementwise too, with its direction as an attribute and a bool result
COMPARE: dict[str, Callable[..., np.ndarray]] = {
    "eq": np.equal, "ne": np.not_equal,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}
COMPARE_C = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}

# the kinds of reduce: how two partial results combine, and what an empty sum is
REDUCE: dict[str, tuple[np.ufunc, float]] = {
    "sum": (np.add, 0.0), "prod": (np.multiply, 1.0),
    "max": (np.maximum, -np.inf), "min": (np.minimum, np.inf),
}

# what an attribute holds, over and over, when it is left out: one per axis, or one per operand
DEFAULTS: dict[str, Any] = {"stride": 1, "interior": 0, "dilation": 1, "batch": ()}


def neutral_value(kind: str, dtype: DType) -> np.ndarray:
    """What leaves any value unchanged when combined with it: 0 for a sum, the smallest number for a max."""
    return encode(REDUCE[kind][1], dtype)  # where there is no infinity, the largest or smallest number
