"""A multi-layer perceptron for the handwritten digits: the smallest network that reads.

    params = init()                      {"w1": f32[64,128], "b1": f32[128], "w2": f32[128,10], "b2": f32[10]}
    logits(params, images)               f32[n,64] -> f32[n,10], the largest is the answer

Goes in: pictures of 64 numbers. Comes out: a score for each of ten digits. A user would write the same file;
Goodfellow, Bengio and Courville's "Deep Learning", chapter 6, explains it. Read next: nn.py, then
tools/demo.py, which trains it.
"""

from __future__ import annotations

from collections.abc import Callable

from minicc.frontend.autograd import value_and_grad
from minicc.frontend.functional import cross_entropy
from minicc.frontend.jit import CompiledFunction, compile, jit
from minicc.frontend.nn import Params, linear_init
from minicc.frontend.optim import SGD
from minicc.frontend.tensor import Tensor

PIXELS, HIDDEN, CLASSES = 64, 128, 10


def init() -> Params:
    """New parameters, drawn by minicc's generator."""
    first, second = linear_init(PIXELS, HIDDEN), linear_init(HIDDEN, CLASSES)
    return {"w1": first["w"], "b1": first["b"], "w2": second["w"], "b2": second["b"]}


def logits(params: Params, images: Tensor) -> Tensor:
    """The score of each class.

    Shapes: images[n, 64] -> [n, 10].
    """
    hidden = (images @ params["w1"] + params["b1"]).relu()
    return hidden @ params["w2"] + params["b2"]


def loss(params: Params, images: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy of the scores with the true digits."""
    return cross_entropy(logits(params, images), labels)


def training_step(optimiser: SGD) -> Callable:
    """A compiled step: (params, state, images, labels) -> (loss, params, state)."""
    @jit
    def step(params: Params, state: Params, images: Tensor, labels: Tensor) -> tuple:
        value, gradients = value_and_grad(loss)(params, images, labels)
        params, state = optimiser.step(params, gradients, state)
        return value, params, state
    return step


def inference(params: Params, images: Tensor, device: str) -> CompiledFunction:
    """The scores as a program for a device, for as many images as these."""
    return compile(logits, params, images, device=device)
