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

from minicc.frontend import catalogue, creation, functional, ops, random, reductions, special
from minicc.frontend.tensor import Tensor

Function = Callable[..., Any]

# family -> name -> function of a tensor first; each is a method too
BY_FAMILY: dict[str, dict[str, Function]] = {
    "arithmetic": {
        "add": ops.add, "subtract": ops.subtract, "sub": ops.subtract, "multiply": ops.multiply,
        "mul": ops.multiply, "divide": ops.divide, "div": ops.divide, "true_divide": ops.divide,
        "floor_divide": ops.floor_divide, "remainder": ops.remainder, "mod": ops.remainder, "fmod": ops.fmod,
        "divmod": ops.divmod, "power": ops.power, "pow": ops.power, "float_power": special.float_power,
        "negative": ops.negative, "neg": ops.negative, "positive": special.positive,
        "absolute": ops.absolute, "abs": ops.absolute, "fabs": ops.absolute, "sign": ops.sign,
        "square": special.square, "reciprocal": special.reciprocal, "maximum": ops.maximum,
        "minimum": ops.minimum, "fmax": special.fmax, "fmin": special.fmin, "clip": special.clip,
        "clamp": special.clip, "lerp": special.lerp, "hypot": special.hypot, "copysign": special.copysign,
        "heaviside": special.heaviside, "nan_to_num": special.nan_to_num,
    },
    "rounding": {
        "floor": ops.floor, "ceil": ops.ceil, "rint": ops.rint, "round": special.round,
        "trunc": special.trunc, "fix": special.trunc,
    },
    "exponentials": {
        "exp": ops.exp, "exp2": special.exp2, "expm1": ops.expm1, "log": ops.log, "log2": special.log2,
        "log10": special.log10, "log1p": ops.log1p, "logaddexp": special.logaddexp, "sqrt": ops.sqrt,
        "rsqrt": ops.rsqrt, "cbrt": special.cbrt, "erf": special.erf, "erfc": special.erfc,
        "erfinv": special.erfinv, "sinc": special.sinc, "logit": functional.logit,
    },
    "trigonometry": {
        "sin": ops.sin, "cos": ops.cos, "tan": special.tan,
        "asin": special.asin, "arcsin": special.asin, "acos": special.acos, "arccos": special.acos,
        "atan": special.atan, "arctan": special.atan, "atan2": special.atan2, "arctan2": special.atan2,
        "sinh": special.sinh, "cosh": special.cosh, "tanh": ops.tanh,
        "asinh": special.asinh, "arcsinh": special.asinh, "acosh": special.acosh, "arccosh": special.acosh,
        "atanh": special.atanh, "arctanh": special.atanh,
        "deg2rad": special.deg2rad, "radians": special.deg2rad, "rad2deg": special.rad2deg,
        "degrees": special.rad2deg,
    },
    "comparison": {
        "equal": ops.equal, "eq": ops.equal, "not_equal": ops.not_equal, "ne": ops.not_equal,
        "less": ops.less, "lt": ops.less, "less_equal": ops.less_equal, "le": ops.less_equal,
        "greater": ops.greater, "gt": ops.greater, "greater_equal": ops.greater_equal,
        "ge": ops.greater_equal, "isclose": special.isclose, "allclose": reductions.allclose,
        "array_equal": reductions.array_equal, "isnan": special.isnan, "isinf": special.isinf,
        "isfinite": special.isfinite, "signbit": special.signbit,
    },
    "logic and bits": {
        "logical_and": special.logical_and, "logical_or": special.logical_or,
        "logical_xor": special.logical_xor, "logical_not": special.logical_not,
        "bitwise_and": ops.bitwise_and, "bitwise_or": ops.bitwise_or, "bitwise_xor": ops.bitwise_xor,
        "bitwise_not": ops.bitwise_not, "invert": ops.bitwise_not, "left_shift": ops.left_shift,
        "bitwise_left_shift": ops.left_shift, "right_shift": ops.right_shift,
        "bitwise_right_shift": ops.right_shift,
    },
    "reductions": {
        "sum": ops.sum, "prod": ops.prod, "max": ops.max, "amax": ops.max, "min": ops.min, "amin": ops.min,
        "mean": reductions.mean, "var": reductions.var, "std": reductions.std, "ptp": reductions.ptp,
        "average": reductions.average, "norm": reductions.norm, "cov": reductions.cov,
        "corrcoef": reductions.corrcoef, "all": reductions.all, "any": reductions.any,
        "count_nonzero": reductions.count_nonzero, "argmax": reductions.argmax, "argmin": reductions.argmin,
        "nansum": reductions.nansum, "nanprod": reductions.nanprod, "nanmean": reductions.nanmean,
        "nanvar": reductions.nanvar, "nanstd": reductions.nanstd, "nanmax": reductions.nanmax,
        "nanmin": reductions.nanmin, "logsumexp": functional.logsumexp,
    },
    "activations": {
        "relu": functional.relu, "relu6": functional.relu6, "leaky_relu": functional.leaky_relu,
        "elu": functional.elu, "celu": functional.celu, "selu": functional.selu, "gelu": functional.gelu,
        "sigmoid": functional.sigmoid, "log_sigmoid": functional.log_sigmoid, "silu": functional.silu,
        "swish": functional.silu, "mish": functional.mish, "softplus": functional.softplus,
        "softsign": functional.softsign, "hardtanh": functional.hardtanh,
        "hardsigmoid": functional.hardsigmoid, "hardswish": functional.hardswish,
        "tanhshrink": functional.tanhshrink, "softmax": functional.softmax,
        "log_softmax": functional.log_softmax, "cross_entropy": functional.cross_entropy,
    },
    "dtypes and gradients": {
        "astype": ops.astype, "to": ops.astype, "full_like": creation.full_like,
        "zeros_like": creation.zeros_like, "ones_like": creation.ones_like, "empty_like": creation.zeros_like,
        "stop_gradient": functional.stop_gradient, "detach": functional.stop_gradient,
    },
    "products": {"matmul": ops.matmul, "mm": ops.matmul, "one_hot": functional.one_hot},
    **catalogue.METHODS,
}
# family -> name -> function that is no method: a tensor is not its first argument
ONLY_FUNCTIONS: dict[str, dict[str, Function]] = {
    "choices": {"where": ops.where},
    "creation": {
        "zeros": creation.zeros, "ones": creation.ones, "full": creation.full, "empty": creation.empty,
        "arange": creation.arange, "linspace": creation.linspace, "logspace": creation.logspace,
        "geomspace": creation.geomspace, "eye": creation.eye, "identity": creation.identity,
        "tri": creation.tri, "meshgrid": creation.meshgrid, "asarray": creation.asarray,
        "array": creation.asarray, "tensor": creation.asarray, "as_tensor": creation.asarray,
        "from_numpy": creation.asarray,
    },
    "drawing": {"rand": random.rand, "randn": random.randn, "seed": random.seed},
    **catalogue.ONLY_FUNCTIONS,
}

# mc.random.uniform and others, whose first argument is a key
RANDOM: dict[str, Function] = {function.__name__: function for function in (
    random.key, random.split, random.fold_in, random.bits, random.uniform, random.normal, random.randint,
    random.bernoulli, random.gumbel, random.categorical, random.permutation)}

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
Tensor._numpy.update(NUMPY)
