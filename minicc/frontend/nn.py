"""Layers, as functions of parameters that the caller holds.

    params = linear_init(64, 10)      {"w": f32[64,10], "b": f32[10]}
    linear(params, x)                 x @ w + b

In: parameters (trees of tensors) and inputs. Out: tensors. Nothing here has state, so grad, jit and optim see
plain trees, as in JAX; torch's modules own their parameters instead. Activations and losses are in
functional.py; a whole network is in models/mlp.py. Read next: optim.py.
"""

from __future__ import annotations

from minicc.frontend.creation import randn, zeros
from minicc.frontend.tensor import Tensor

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
