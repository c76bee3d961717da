"""Losses: from what a network says and what was wanted to one number, the mean over the elements.

    mse(x, y)     mean((x - y)^2)
    bce_with_logits(x, y)     mean of -log(sigmoid(x)) where y is 1, -log(1 - sigmoid(x)) where it is 0

In: predictions and targets of one shape (cross_entropy, which functional.py has, also takes class numbers).
Out: one number, or one per element with reduce=False. torch has these under similar names, with `reduction`
as a word. Read next: optim.py.
"""

from __future__ import annotations

from minicc.frontend import ops
from minicc.frontend.functional import log_softmax
from minicc.frontend.primitives import TensorLike, as_float
from minicc.frontend.scope import fail
from minicc.frontend.tensor import Tensor


def _pair(name: str, x: TensorLike, target: TensorLike) -> tuple[Tensor, Tensor]:
    """Both as floats of one shape; a loss that broadcast would hide a mistake."""
    x, target = as_float(x), as_float(target)
    if x.shape != target.shape:
        fail(name, "prediction and target differ in shape", f"{x.type} and {target.type}", "equal shapes",
             "reshape or unsqueeze one of them")
    return x, target


def _reduced(losses: Tensor, reduce: bool) -> Tensor:
    return losses.mean() if reduce else losses


def mse(x: TensorLike, target: TensorLike, reduce: bool = True) -> Tensor:
    """The squared distance."""
    x, target = _pair("mse", x, target)
    return _reduced((x - target) * (x - target), reduce)


def l1(x: TensorLike, target: TensorLike, reduce: bool = True) -> Tensor:
    """The distance."""
    x, target = _pair("l1", x, target)
    return _reduced(ops.absolute(x - target), reduce)


def huber(x: TensorLike, target: TensorLike, delta: float = 1.0, reduce: bool = True) -> Tensor:
    """Half the squared distance up to delta, and a straight line on from there.

    Source: P. Huber, "Robust estimation of a location parameter", 1964.
    """
    x, target = _pair("huber", x, target)
    distance = ops.absolute(x - target)
    near = ops.minimum(distance, delta)
    return _reduced(near * (distance - near * 0.5), reduce)


def bce_with_logits(x: TensorLike, target: TensorLike, reduce: bool = True) -> Tensor:
    """The cross-entropy of sigmoid(x) with probabilities: max(x, 0) - x y + log1p(exp(-|x|))."""
    x, target = _pair("bce_with_logits", x, target)
    return _reduced(ops.maximum(x, 0.0) - x * target + ops.log1p(ops.exp(-ops.absolute(x))), reduce)


def kl(logits: TensorLike, target_logits: TensorLike, axis: int = -1) -> Tensor:
    """KL(target || prediction): the distance of softmax(logits), the mean over rows."""
    x, target = _pair("kl", logits, target_logits)
    log_p, log_q = log_softmax(target, axis), log_softmax(x, axis)
    return (ops.exp(log_p) * (log_p - log_q)).sum(axis).mean()
