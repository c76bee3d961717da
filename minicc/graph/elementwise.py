"""The elementwise operations: one row each, read by every stage that treats them all alike.

    "tanh": Elementwise(np.tanh, "f", "tanhf({0})")

Goes in: nothing. Comes out: `ELEMENTWISE`, name -> row. Inference reads the operand class, the evaluators and
the GPU's vector mode read the numpy function, CUDA printing reads the C text.
To add an op: a row here, its gradient in frontend/autograd.py, its TPU instructions in tpu/recipes.py, and no
fourth place.

StableHLO spells these ops the same way; XLA spreads the same facts over HLO evaluator, shape inference, cost
analysis and elemental IR emitter. Read next: infer.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Elementwise:
    """What the stages need to know of one elementwise op.

    numpy: the function on arrays of equal dtype. operands: what the operands may be, all of one dtype:
    "f" floats, "n" numbers, "b" bools, "nb" either. cuda: C text with {0} {1} for the operands.
    """

    numpy: Callable[..., np.ndarray]
    operands: str
    cuda: str

    @property
    def arity(self) -> int:
        """How many operands the op takes."""
        return 1 + ("{1}" in self.cuda)


ELEMENTWISE: dict[str, Elementwise] = {
    # name         numpy                 operands  CUDA C
    "negate": Elementwise(np.negative, "n", "-{0}"),
    "abs": Elementwise(np.absolute, "n", "fabsf({0})"),
    "sign": Elementwise(np.sign, "f", "copysignf({0} != 0.0f ? 1.0f : 0.0f, {0})"),
    "exp": Elementwise(np.exp, "f", "expf({0})"),
    "log": Elementwise(np.log, "f", "logf({0})"),
    "sqrt": Elementwise(np.sqrt, "f", "sqrtf({0})"),
    "rsqrt": Elementwise(lambda x: 1 / np.sqrt(x), "f", "rsqrtf({0})"),
    "tanh": Elementwise(np.tanh, "f", "tanhf({0})"),
    "add": Elementwise(np.add, "n", "{0} + {1}"),
    "subtract": Elementwise(np.subtract, "n", "{0} - {1}"),
    "multiply": Elementwise(np.multiply, "n", "{0} * {1}"),
    "divide": Elementwise(np.divide, "f", "{0} / {1}"),
    "maximum": Elementwise(np.maximum, "n", "max({0}, {1})"),
    "minimum": Elementwise(np.minimum, "n", "min({0}, {1})"),
    "and": Elementwise(np.logical_and, "b", "{0} && {1}"),
    "or": Elementwise(np.logical_or, "b", "{0} || {1}"),
    "not": Elementwise(np.logical_not, "b", "!{0}"),
}

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
DEFAULTS: dict[str, Any] = {"stride": 1, "interior": 0, "batch": ()}
