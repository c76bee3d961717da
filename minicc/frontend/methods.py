"""Every operation that users can call, by name: what `mc.` offers, and which of it tensors have as methods.

    METHODS["exp"] is ops.exp    ->  mc.exp(x), x.exp(), np.exp(x)
    FUNCTIONS["zeros"]           ->  mc.zeros(2, 3), which is no method, since nothing goes in

In: the functions of the files named below. Out: tables, name -> function. Invariants: a method is the
function of the same name with the tensor as its first argument, so that x.exp() and exp(x) are one thing; two
names of one function are two rows. API.md is written from here, with what numpy and torch call each. Read
next: special.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minicc.frontend import functional, ops, shapes

Function = Callable[..., Any]

# family -> name -> function of a tensor first; each is a method too
BY_FAMILY: dict[str, dict[str, Function]] = {
    "arithmetic": {
        "add": ops.add, "subtract": ops.subtract, "multiply": ops.multiply, "divide": ops.divide,
        "true_divide": ops.divide, "floor_divide": ops.floor_divide, "remainder": ops.remainder,
        "mod": ops.remainder, "fmod": ops.fmod, "divmod": ops.divmod, "power": ops.power, "pow": ops.power,
        "negative": ops.negative, "neg": ops.negative, "absolute": ops.absolute, "abs": ops.absolute,
        "sign": ops.sign, "maximum": ops.maximum, "minimum": ops.minimum, "matmul": ops.matmul,
    },
    "rounding": {"floor": ops.floor, "ceil": ops.ceil, "rint": ops.rint},
    "exponentials": {
        "exp": ops.exp, "expm1": ops.expm1, "log": ops.log, "log1p": ops.log1p, "sqrt": ops.sqrt,
        "rsqrt": ops.rsqrt,
    },
    "trigonometry": {"sin": ops.sin, "cos": ops.cos, "tanh": ops.tanh},
    "comparison": {
        "equal": ops.equal, "eq": ops.equal, "not_equal": ops.not_equal, "ne": ops.not_equal,
        "less": ops.less, "lt": ops.less, "less_equal": ops.less_equal, "le": ops.less_equal,
        "greater": ops.greater, "gt": ops.greater, "greater_equal": ops.greater_equal,
        "ge": ops.greater_equal,
    },
    "bits": {
        "bitwise_and": ops.bitwise_and, "bitwise_or": ops.bitwise_or, "bitwise_xor": ops.bitwise_xor,
        "bitwise_not": ops.bitwise_not, "invert": ops.bitwise_not, "left_shift": ops.left_shift,
        "right_shift": ops.right_shift,
    },
    "reductions": {
        "sum": ops.sum, "prod": ops.prod, "max": ops.max, "amax": ops.max, "min": ops.min, "amin": ops.min,
        "mean": functional.mean, "var": functional.var, "argmax": functional.argmax,
        "logsumexp": functional.logsumexp, "softmax": functional.softmax,
        "log_softmax": functional.log_softmax,
    },
    "activations": {"relu": functional.relu, "sigmoid": functional.sigmoid, "gelu": functional.gelu},
    "elements": {"clip": functional.clip, "clamp": functional.clip, "one_hot": functional.one_hot,
                 "astype": ops.astype, "stop_gradient": functional.stop_gradient},
    "shapes": {
        "reshape": shapes.reshape, "transpose": shapes.transpose, "permute": shapes.transpose,
        "broadcast_to": shapes.broadcast_to, "expand": shapes.broadcast_to, "squeeze": shapes.squeeze,
        "unsqueeze": shapes.unsqueeze,
    },
}
# family -> name -> function that is no method: a tensor is not its first argument
ONLY_FUNCTIONS: dict[str, dict[str, Function]] = {
    "choices": {"where": ops.where},
}

METHODS: dict[str, Function] = {name: f for family in BY_FAMILY.values() for name, f in family.items()}
FUNCTIONS: dict[str, Function] = {
    **METHODS, **{name: f for family in ONLY_FUNCTIONS.values() for name, f in family.items()},
}
# numpy's functions on tensors: np.exp(tensor), np.sum(tensor, axis=0), and array + tensor
NUMPY: dict[Any, Function] = {getattr(np, name): f for name, f in FUNCTIONS.items() if hasattr(np, name)}
