"""A multi-layer perceptron for the handwritten digits: the smallest network that reads.

    params = init()                    {"hidden": {"w": f32[64,128], "b": f32[128]}, "out": {...}}
    logits(params, images)             f32[n,64] -> f32[n,10], the largest is the answer

Goes in: pictures of 64 numbers. Comes out: a score for each of ten digits. A user would write the same file;
Goodfellow, Bengio and Courville's "Deep Learning", chapter 6, explains it. Read next: nn.py, then
tools/demo.py, which trains it.
"""

from __future__ import annotations

from collections.abc import Callable

from minicc.frontend.autograd import value_and_grad
from minicc.frontend.jit import jit
from minicc.frontend.nn import Params, cross_entropy, linear_init
from minicc.frontend.optim import SGD
from minicc.frontend.tensor import Tensor

PIXELS, HIDDEN, CLASSES = 64, 128, 10


def init() -> dict[str, Params]:
    """New parameters, drawn by minicc's generator."""
    return {"hidden": linear_init(PIXELS, HIDDEN), "out": linear_init(HIDDEN, CLASSES)}


def logits(params: dict[str, Params], images: Tensor) -> Tensor:
    """The score of each class.

    Shapes: images[n, 64] -> [n, 10].
    """
    hidden = (images @ params["hidden"]["w"] + params["hidden"]["b"]).relu()
    return hidden @ params["out"]["w"] + params["out"]["b"]


def loss(params: dict[str, Params], images: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy of the scores with the true digits."""
    return cross_entropy(logits(params, images), labels)


def training_step(optimiser: SGD) -> Callable:
    """A compiled step: (params, state, images, labels) -> (loss, params, state)."""
    @jit
    def step(params: dict, state: dict, images: Tensor, labels: Tensor) -> tuple:
        value, gradients = value_and_grad(loss)(params, images, labels)
        params, state = optimiser.step(params, gradients, state)
        return value, params, state
    return step
