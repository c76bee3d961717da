"""What is made of other operations: activations, softmax and friends, losses.

    softmax(x)  ->  e = exp(x - max(x)); e / sum(e)
    relu(x)     ->  maximum(x, 0.0)

In: tensors, arrays, numbers. Out: tensors. Nothing here is an op of the graph, so each of these is fused,
tiled and differentiated as what it is made of. XLA works the same way; torch has a hand-written kernel for
most of them, and tinygrad, which also composes, is the source to read next. After it: autograd.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minicc.errors import DtypeError
from minicc.frontend import ops
from minicc.frontend.primitives import TensorLike, as_float, as_tensor, node, normal_axes, torch_names
from minicc.frontend.scope import fail
from minicc.frontend.shapes import reshape, unsqueeze
from minicc.graph.ir import I32

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


@torch_names
def mean(x: TensorLike, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The arithmetic mean over an axis, several, or all."""
    total, count = ops.sum(as_float(x), axis, keepdims), as_tensor(x).size
    return total / float(count // max(total.size, 1))


@torch_names
def var(x: TensorLike, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The mean squared distance from the mean, over the count as in numpy (torch: one less)."""
    distance = as_float(x) - mean(x, axis, True)
    return mean(distance * distance, axis, keepdims)


@torch_names
def argmax(x: TensorLike, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The first index of the largest element along one axis, or of the flat tensor; a NaN is largest."""
    x = as_tensor(x)
    if axis is None:
        x, axis = reshape(x, -1), 0
    axis, *more = normal_axes("argmax", x, axis)
    if more:
        fail("argmax", "more than one axis", [axis, *more], "one axis, or None for all of them")
    found = (x == ops.max(x, axis, True)) | (x != x)  # a NaN is the maximum, and equals nothing
    position = node("iota", axis=axis, shape=x.shape, dtype=I32)
    return ops.min(ops.where(found, position, x.shape[axis]), axis, keepdims)


# -- softmax and losses --------------------------------------------------------------------------------------


def _shifted(x: TensorLike, axis: Any) -> tuple[Tensor, Tensor]:
    """x less its maximum, so that exp overflows nowhere; and the maximum, a constant to the gradient."""
    x = as_float(x)
    largest = stop_gradient(ops.max(x, axis, True))
    return x - largest, largest


@torch_names
def softmax(x: TensorLike, axis: int = -1) -> Tensor:
    """exp(x) / sum(exp(x)) along an axis."""
    weights = ops.exp(_shifted(x, axis)[0])
    return weights / ops.sum(weights, axis, True)


@torch_names
def log_softmax(x: TensorLike, axis: int = -1) -> Tensor:
    """log(softmax(x)), without the detour."""
    x, _ = _shifted(x, axis)
    return x - ops.log(ops.sum(ops.exp(x), axis, True))


@torch_names
def logsumexp(x: TensorLike, axis: Any = None, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x)))."""
    x, largest = _shifted(x, axis)
    result = ops.log(ops.sum(ops.exp(x), axis, True)) + largest
    return result if keepdims else ops.sum(result, axis)


def one_hot(labels: TensorLike, classes: int) -> Tensor:
    """A row of zeros per label, a one at the label's place; only zeros for a label outside 0 .. classes-1."""
    labels = as_tensor(labels)
    if labels.dtype.kind != "i":
        fail("one_hot", "labels are integers", labels.type, "i32", ".int()", DtypeError)
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
