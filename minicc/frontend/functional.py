"""What is made of other operations: activations, softmax and friends, losses.

    softmax(x)  ->  e = exp(x - max(x)); e / sum(e)
    relu(x)     ->  maximum(x, 0.0)

In: tensors, arrays, numbers. Out: tensors. Nothing here is an op of the graph, so each of these is fused,
tiled and differentiated as what it is made of. XLA works the same way; torch has a hand-written kernel for
most of them, and tinygrad, which also composes, is the source to read next. After it: autograd.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minicc.errors import DtypeError, ShapeError
from minicc.frontend import ops
from minicc.frontend import tensor as tensors
from minicc.frontend.primitives import TensorLike, as_float, as_tensor, normal_axes
from minicc.frontend.scope import current, stop, user_line
from minicc.frontend.shapes import reshape, unsqueeze

if TYPE_CHECKING:
    from minicc.frontend.tensor import Tensor


def stop_gradient(x: TensorLike) -> Tensor:
    """x, but a constant to whoever differentiates."""
    scope = current()
    return tensors.Tensor._lazy(stop(scope, scope.lift(as_tensor(x))), scope)


# -- activations ---------------------------------------------------------------------------------------------


def relu(x: TensorLike) -> Tensor:
    """x where positive, else 0. Its gradient at 0 is 0."""
    return ops.maximum(x, 0)


def sigmoid(x: TensorLike) -> Tensor:
    """1 / (1 + exp(-x)), as (tanh(x / 2) + 1) / 2, which overflows nowhere."""
    return (ops.tanh(as_float(x) * 0.5) + 1.0) * 0.5


def gelu(x: TensorLike) -> Tensor:
    """The Gaussian error linear unit in its tanh form, which JAX uses by default and GPT-2 was trained with.

    Source: D. Hendrycks and K. Gimpel, "Gaussian error linear units", arXiv 1606.08415.
    """
    x = as_float(x)
    return x * 0.5 * (ops.tanh((x + x * x * x * 0.044715) * 0.7978845608) + 1.0)  # sqrt(2 / pi)


def clip(x: TensorLike, low: TensorLike = None, high: TensorLike = None) -> Tensor:
    """x, not below `low` and not above `high`; None leaves a side open."""
    result = as_tensor(x) if low is None else ops.maximum(x, low)
    return result if high is None else ops.minimum(result, high)


# -- statistics ----------------------------------------------------------------------------------------------


def mean(x: TensorLike, axis: Any = None, keepdims: bool = False, *, dim: Any = None,
         keepdim: bool = False) -> Tensor:
    """The arithmetic mean over an axis, several, or all."""
    x = as_float(x)
    count = 1
    for one in normal_axes("mean", x, axis, dim):
        count *= x.shape[one]
    return ops.sum(x, axis, keepdims, dim=dim, keepdim=keepdim) / float(count)


def var(x: TensorLike, axis: Any = None, keepdims: bool = False, *, dim: Any = None,
        keepdim: bool = False) -> Tensor:
    """The mean squared distance from the mean, over the count as in numpy (torch: one less)."""
    x = as_float(x)
    distance = x - mean(x, axis, True, dim=dim)
    return mean(distance * distance, axis, keepdims, dim=dim, keepdim=keepdim)


def argmax(x: TensorLike, axis: Any = None, keepdims: bool = False, *, dim: Any = None,
           keepdim: bool = False) -> Tensor:
    """The first index of the largest element along one axis, or of the flat tensor; a NaN is largest."""
    x = as_tensor(x)
    if axis is None and dim is None:
        return argmax(reshape(x, -1), 0)
    where, = normal_axes("argmax", x, axis, dim)
    count = x.shape[where]
    position = reshape(ops.iota(count), [count if i == where else 1 for i in range(x.ndim)])
    best = ops.max(x, where, True)
    found = (x == best) | (x != x)  # a NaN is the maximum, and equals nothing
    return ops.min(ops.where(found, position, count), where, keepdims, keepdim=keepdim)


# -- softmax and losses --------------------------------------------------------------------------------------


def softmax(x: TensorLike, axis: int = -1, *, dim: int | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along an axis, shifted by the maximum so that nothing overflows."""
    x, axis = as_float(x), axis if dim is None else dim
    weights = ops.exp(x - stop_gradient(ops.max(x, axis, True)))
    return weights / ops.sum(weights, axis, True)


def log_softmax(x: TensorLike, axis: int = -1, *, dim: int | None = None) -> Tensor:
    """log(softmax(x)), without the detour."""
    x, axis = as_float(x), axis if dim is None else dim
    shifted = x - stop_gradient(ops.max(x, axis, True))
    return shifted - ops.log(ops.sum(ops.exp(shifted), axis, True))


def logsumexp(x: TensorLike, axis: Any = None, keepdims: bool = False, *, dim: Any = None,
              keepdim: bool = False) -> Tensor:
    """log(sum(exp(x))), shifted by the maximum so that nothing overflows."""
    x = as_float(x)
    axes = normal_axes("logsumexp", x, axis, dim)
    largest = stop_gradient(ops.max(x, axes, True))
    result = ops.log(ops.sum(ops.exp(x - largest), axes, True)) + largest
    return result if keepdims or keepdim else ops.sum(result, axes)


def one_hot(labels: TensorLike, classes: int) -> Tensor:
    """A row of zeros per label, a one at the label's place; only zeros for a label outside 0 .. classes-1."""
    labels = as_tensor(labels)
    if labels.dtype.kind != "i":
        raise DtypeError("one_hot", "labels are integers", got=labels.type, need="i32", at=user_line(),
                         hint=".int()")
    return ops.astype(unsqueeze(labels, -1) == ops.iota(classes), "f32")


def cross_entropy(logits: TensorLike, targets: TensorLike) -> Tensor:
    """The mean over rows of -log(softmax(logits)) at the target.

    Shapes: logits[..., classes]; targets[...] of class numbers (i32), or [..., classes] of probabilities
    (f32).
    """
    logits, targets = as_float(logits), as_tensor(targets)
    expected = logits.shape[:-1] if targets.dtype.kind == "i" else logits.shape
    if not logits.ndim or targets.shape != expected:
        raise ShapeError("cross_entropy", "logits and targets do not fit",
                         got=f"{logits.type} and {targets.type}",
                         need="[rows, classes], and [rows] class numbers or [rows, classes] probabilities",
                         at=user_line())
    weights = one_hot(targets, logits.shape[-1]) if targets.dtype.kind == "i" else as_float(targets)
    return -mean(ops.sum(log_softmax(logits) * weights, -1))
