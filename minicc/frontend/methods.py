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
from inspect import unwrap
from types import ModuleType
from typing import Any

import numpy as np

from minicc.frontend import catalogue, creation, functional, ops, random, reductions, special
from minicc.frontend.scope import OPERATIONS
from minicc.frontend.tensor import Tensor

Function = Callable[..., Any]

# name -> the other names that numpy or torch has for the same
ALSO = {
    "subtract": "sub", "multiply": "mul", "divide": "div true_divide", "remainder": "mod", "power": "pow",
    "negative": "neg", "absolute": "abs fabs", "clip": "clamp", "trunc": "fix", "asin": "arcsin",
    "acos": "arccos", "atan": "arctan", "atan2": "arctan2", "asinh": "arcsinh", "acosh": "arccosh",
    "atanh": "arctanh", "deg2rad": "radians", "rad2deg": "degrees", "equal": "eq", "not_equal": "ne",
    "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "bitwise_not": "invert",
    "left_shift": "bitwise_left_shift", "right_shift": "bitwise_right_shift", "max": "amax", "min": "amin",
    "silu": "swish", "astype": "to", "zeros_like": "empty_like", "stop_gradient": "detach", "matmul": "mm",
    "asarray": "array tensor as_tensor from_numpy",
}
Parts = dict[ModuleType, str]  # a file -> names in it

# functions of a tensor first; each is a method too
_METHODS: dict[str, Parts] = {
    "arithmetic": {
        ops: "add subtract multiply divide floor_divide remainder fmod divmod power negative absolute sign "
             "maximum minimum",
        special: "square reciprocal float_power positive fmax fmin clip lerp hypot copysign heaviside "
                 "nan_to_num"},
    "rounding": {ops: "floor ceil rint", special: "round trunc"},
    "exponentials": {
        ops: "exp expm1 log log1p sqrt rsqrt",
        special: "exp2 log2 log10 logaddexp cbrt erf erfc erfinv sinc"},
    "trigonometry": {
        ops: "sin cos tanh",
        special: "tan asin acos atan atan2 sinh cosh asinh acosh atanh deg2rad rad2deg"},
    "comparison": {
        ops: "equal not_equal less less_equal greater greater_equal",
        special: "isclose isnan isinf isfinite signbit", reductions: "allclose array_equal"},
    "logic and bits": {
        special: "logical_and logical_or logical_xor logical_not",
        ops: "bitwise_and bitwise_or bitwise_xor bitwise_not left_shift right_shift"},
    "reductions": {
        ops: "sum prod max min",
        reductions: "mean var std ptp average norm cov corrcoef all any count_nonzero argmax argmin nansum "
                    "nanprod nanmean nanvar nanstd nanmax nanmin"},
    "activations": {
        functional: "relu relu6 leaky_relu elu celu selu gelu sigmoid log_sigmoid logit silu mish softplus "
                    "softsign hardtanh hardsigmoid hardswish tanhshrink softmax log_softmax logsumexp "
                    "cross_entropy one_hot"},
    "products": {ops: "matmul"},
    "likenesses": {
        ops: "astype", creation: "full_like zeros_like ones_like", functional: "stop_gradient"},
}
# functions that are no methods: a tensor is not their first argument
_FUNCTIONS: dict[str, Parts] = {
    "choices": {ops: "where"},
    "creation": {
        creation: "zeros ones full empty arange linspace logspace geomspace eye identity tri meshgrid "
                  "asarray",
        random: "rand randn seed"},
}


def _named(parts: Parts) -> dict[str, Function]:
    """The functions with these names, each also under its other names."""
    return {also: vars(module)[name] for module, names in parts.items() for name in names.split()
            for also in (name, *ALSO.get(name, "").split())}


# family -> name -> function
BY_FAMILY = {**{family: _named(parts) for family, parts in _METHODS.items()}, **catalogue.METHODS}
ONLY_FUNCTIONS = {**{family: _named(parts) for family, parts in _FUNCTIONS.items()},
                  **catalogue.ONLY_FUNCTIONS}
# mc.random.uniform and others, whose first argument is a key
RANDOM = _named({random: "key split fold_in bits uniform normal randint bernoulli gumbel categorical "
                         "permutation"})

METHODS: dict[str, Function] = {name: f for family in BY_FAMILY.values() for name, f in family.items()}
FUNCTIONS: dict[str, Function] = {
    **METHODS, **{name: f for family in ONLY_FUNCTIONS.values() for name, f in family.items()},
}
# numpy's functions on tensors: np.exp(tensor), np.sum(tensor, axis=0), and array + tensor
NUMPY: dict[Any, Function] = {
    getattr(np, name): f for name, f in FUNCTIONS.items()
    if hasattr(np, name) and name not in catalogue.OTHER_IN_NUMPY
} | {np.shape: lambda x: x.shape, np.ndim: lambda x: x.ndim, np.size: lambda x: x.size}

for _name, _function in METHODS.items():
    setattr(Tensor, _name, _function)
_CODES = [unwrap(f).__code__ for f in (*FUNCTIONS.values(), *RANDOM.values())]
OPERATIONS.update(code for code in _CODES if code.co_name in FUNCTIONS or code.co_name in RANDOM)
Tensor._numpy.update(NUMPY)
