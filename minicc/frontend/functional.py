"""What networks are made of: activations, softmax and friends, the cross entropy.

    softmax(x)  ->  e = exp(x - max(x)); e / sum(e)
    relu(x)     ->  maximum(x, 0.0)

In: tensors, arrays, numbers. Out: tensors. Nothing here is an op of the graph, so each of these is fused,
tiled and differentiated as what it is made of; and computed in f32, rounded once. XLA works the same way;
torch has a hand-written kernel for most of them, and tinygrad, which also composes, is the source to read
next. After it: autograd.py.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from minicc.errors import CompileError, DtypeError
from minicc.frontend import ops
from minicc.frontend.ops import exp, expm1, log, log1p, where
from minicc.frontend.primitives import (
    TensorLike,
    as_float,
    as_tensor,
    first_in_f32,
    in_f32,
    node,
    torch_names,
)
from minicc.frontend.reductions import mean
from minicc.frontend.scope import fail
from minicc.frontend.shapes import unsqueeze
from minicc.frontend.special import clip, erfc, formula, isfinite

if TYPE_CHECKING:
    from minicc.frontend.tensor import Tensor


def stop_gradient(x: TensorLike) -> Tensor:
    """x, but a constant to whoever differentiates.

    A convert to the dtype that x has: it changes nothing, simplify drops it, and no convert passes gradients.
    """
    x = as_tensor(x)
    return node("convert", x, dtype=x.dtype)


# -- activations ---------------------------------------------------------------------------------------------


def relu(x: TensorLike) -> Tensor:
    """x where positive, else 0. Its gradient at 0 is 0."""
    return ops.maximum(x, 0)


EXP_OVERFLOWS = 88.72285  # the first f32 whose exponential is infinite

sigmoid = formula("sigmoid", "1 / (1 + exp(-x)); where exp overflows, 0 with the gradient 0.",
                  lambda x: 1 / (1 + exp(-ops.maximum(x, -EXP_OVERFLOWS))))


@first_in_f32
def gelu(x: Tensor, approximate: bool | str = True) -> Tensor:
    """x times the part of a normal distribution below x; by default in the tanh form, as in JAX and GPT-2.

    approximate: True or "tanh" for that form, False or "none" for the exact one, which is torch's default.

    Source: D. Hendrycks and K. Gimpel, "Gaussian error linear units", arXiv 1606.08415.
    """
    if approximate not in (True, False, "tanh", "none"):
        fail("gelu", "there is no such form", approximate, "True, False, 'tanh' or 'none'", kind=CompileError)
    if approximate in (False, "none"):
        return x * 0.5 * erfc(x * -math.sqrt(0.5))
    return x * 0.5 * (ops.tanh((x + x * x * x * 0.044715) * 0.7978845608) + 1.0)  # sqrt(2 / pi)


@in_f32
def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), a smooth relu."""
    return where(x > 0, x, 0.0) + log1p(exp(where(x > 0, -x, x)))


@first_in_f32
def leaky_relu(x: Tensor, slope: float = 0.01) -> Tensor:
    """x where positive, else slope * x."""
    return where(x > 0, x, x * slope)


@first_in_f32
def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x where positive, else alpha * (exp(x) - 1)."""
    return where(x > 0, x, alpha * expm1(where(x > 0, 0.0, x)))


@first_in_f32
def celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x where positive, else alpha * (exp(x / alpha) - 1)."""
    return where(x > 0, x, alpha * expm1(where(x > 0, 0.0, x) / alpha))


def hardtanh(x: TensorLike, low: float = -1.0, high: float = 1.0) -> Tensor:
    """x, not below -1 and not above 1, or as asked."""
    return clip(as_float(x), low, high)


def relu6(x: TensorLike) -> Tensor:
    """x, not below 0 and not above 6."""
    return clip(x, 0, 6)


# the two numbers for which outputs keep mean 0 and variance 1: G. Klambauer et al., arXiv 1706.02515
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805

selu = formula("selu", "elu scaled so that layers keep mean 0 and variance 1.",
               lambda x: _SELU_SCALE * elu(x, _SELU_ALPHA))
silu = formula("silu", "x * sigmoid(x); swish is another name.", lambda x: x * sigmoid(x))
log_sigmoid = formula("log_sigmoid", "log(sigmoid(x)), exact far below 0 too.", lambda x: -softplus(-x))
softsign = formula("softsign", "x / (1 + abs(x)).", lambda x: x / (1 + abs(x)))
mish = formula("mish", "x * tanh(softplus(x)).", lambda x: x * ops.tanh(softplus(x)))
hardsigmoid = formula("hardsigmoid", "A straight line through sigmoid, clipped.", lambda x: relu6(x + 3) / 6)
hardswish = formula("hardswish", "x * hardsigmoid(x).", lambda x: x * (relu6(x + 3) / 6))
tanhshrink = formula("tanhshrink", "x - tanh(x).", lambda x: x - ops.tanh(x))
logit = formula("logit", "What sigmoid takes to x.", lambda x: log(x) - log1p(-x))


# -- softmax and losses --------------------------------------------------------------------------------------


def _shifted(x: Tensor, axis: Any) -> tuple[Tensor, Tensor]:
    """x less its maximum, so that exp overflows nowhere; and the maximum, a constant to the gradient."""
    largest = stop_gradient(ops.max(x, axis, True))
    return x - largest, largest


@torch_names
@first_in_f32
def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """exp(x) / sum(exp(x)) along an axis."""
    weights = exp(_shifted(x, axis)[0])
    return weights / ops.sum(weights, axis, True)


@torch_names
@first_in_f32
def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """log(softmax(x)), without the detour."""
    x, _ = _shifted(x, axis)
    return x - log(ops.sum(exp(x), axis, True))


@torch_names
@first_in_f32
def logsumexp(x: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x)))."""
    largest = stop_gradient(ops.max(x, axis, True))
    largest = where(isfinite(largest), largest, 0.0)  # inf - inf would be NaN
    result = log(ops.sum(exp(x - largest), axis, True)) + largest
    return result if keepdims else ops.sum(result, axis)


def one_hot(labels: TensorLike, classes: int) -> Tensor:
    """A row of zeros per label, a one at the label's place; only zeros for a label outside 0 .. classes-1."""
    labels = as_tensor(labels)
    if labels.dtype.kind != "i":
        fail("one_hot", "labels are integers", labels.type, "i32", ".astype('i32')", DtypeError)
    return ops.astype(unsqueeze(labels, -1) == ops.iota(classes), "f32")


def cross_entropy(logits: TensorLike, targets: TensorLike) -> Tensor:
    """The mean over rows of -log(softmax(logits)) at the target.

    Shapes: logits[..., classes]; targets[...] of class numbers (i32), or [..., classes] of probabilities
    (f32).
    """
    logits, targets = as_float(logits), as_tensor(targets)
    numbers = targets.dtype.kind == "i"
    if not logits.ndim or targets.shape != (logits.shape[:-1] if numbers else logits.shape):
        fail("cross_entropy", "logits and targets do not fit", f"{logits.type} and {targets.type}",
             "[rows, classes], and [rows] class numbers or [rows, classes] probabilities")
    weights = one_hot(targets, logits.shape[-1]) if numbers else as_float(targets)
    return -mean(ops.sum(log_softmax(logits) * weights, -1))
