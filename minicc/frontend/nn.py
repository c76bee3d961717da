"""Layers, as functions of parameters that the caller holds.

    params = mlp_init((64, 128, 10))      [{"w": f32[64,128], "b": f32[128]}, {"w": f32[128,10], "b":
    f32[10]}] mlp(params, x)                        relu(x @ w + b) @ w + b

In: parameters (nested dicts and lists of tensors) and inputs. Out: tensors. Nothing here has state, so grad,
jit and optim see plain trees, as in JAX; torch's modules own their parameters instead. The activations and
losses of functional.py can be had from here too. Read next: optim.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from minicc.errors import ShapeError
from minicc.frontend.creation import randn, zeros
from minicc.frontend.functional import (
    cross_entropy,
    gelu,
    log_softmax,
    one_hot,
    relu,
    sigmoid,
    softmax,
)
from minicc.frontend.scope import user_line
from minicc.frontend.tensor import Tensor

__all__ = [
    "Params", "cross_entropy", "gelu", "linear", "linear_init", "log_softmax", "mlp", "mlp_init", "one_hot",
    "relu",
    "sigmoid", "softmax",
]

Params = dict[str, Tensor]


def linear_init(inputs: int, outputs: int) -> Params:
    """Parameters of a layer: weights of variance 2 / inputs, which keeps relu's outputs in scale; no bias.

    Source: K. He et al., "Delving deep into rectifiers", arXiv 1502.01852.
    """
    return {"w": (randn(inputs, outputs) * (2 / inputs) ** 0.5).realise(), "b": zeros(outputs).realise()}


def linear(params: Params, x: Tensor) -> Tensor:
    """x @ w + b.

    Shapes: x[..., inputs], w[inputs, outputs], b[outputs].
    """
    return x @ params["w"] + params["b"]


def mlp_init(sizes: Sequence[int]) -> list[Params]:
    """Parameters of one layer between each two sizes."""
    if len(sizes) < 2:
        raise ShapeError("mlp_init", "a network has at least an input and an output size", got=list(sizes),
                         at=user_line())
    return [linear_init(a, b) for a, b in zip(sizes, sizes[1:], strict=False)]


def mlp(params: Sequence[Params], x: Tensor) -> Tensor:
    """Layers with relu between them; the last one's outputs are the logits."""
    for layer in params[:-1]:
        x = relu(linear(layer, x))
    return linear(params[-1], x)
