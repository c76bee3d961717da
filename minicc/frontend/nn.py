"""Layers, as functions of parameters that the caller holds.

    params = linear_init(64, 10)      {"w": f32[64,10], "b": f32[10]}
    linear(params, x)                 x @ w + b

In: parameters (trees of tensors) and inputs. Out: tensors. Nothing here has state, so grad, jit and optim see
plain trees, as in JAX; torch's modules own their parameters instead. What changes while training goes in and
comes out: batch_norm's running statistics, dropout's key, attention's cache. A parameter is called w or b;
`draw` says what it begins as (nn_init.py). Norms compute in f32, whatever the dtype. Attention is in
nn_attention.py, losses are in nn_losses.py, and mc.nn offers them too; activations are in functional.py,
whole networks in models/. Read next: nn_attention.py.
"""

from __future__ import annotations

from typing import Any

from minicc.errors import DtypeError, a_type
from minicc.frontend import ops, random
from minicc.frontend.convolution import conv1d, conv2d, conv3d
from minicc.frontend.creation import zeros
from minicc.frontend.functional import cross_entropy, gelu, sigmoid
from minicc.frontend.nn_attention import (
    attention,
    cache_init,
    cache_update,
    causal_mask,
    join_heads,
    repeat_heads,
    rotary,
    rotate,
    split_heads,
)
from minicc.frontend.nn_init import Draw, fans, parameter_count, require, require_divides
from minicc.frontend.nn_losses import bce_with_logits, huber, kl, l1, mse
from minicc.frontend.primitives import TensorLike, as_integer, as_number, as_tensor, in_f32, node
from minicc.frontend.scope import fail
from minicc.frontend.tensor import Tensor

Params = dict[str, Tensor]

# -- linear, embedding, convolution --------------------------------------------------------------------------


def linear_init(inputs: int, outputs: int, draw: Draw | None = None, bias: bool = True,
                deviation: float | None = None) -> Params:
    """Parameters of a layer: weights of variance 2 / inputs, or of this deviation; a bias of 0.

    Without `draw`, minicc's own generator draws. Source: K. He et al., "Delving deep into rectifiers", arXiv
    1502.01852.
    """
    inputs, outputs = as_integer("linear_init", inputs, 1), as_integer("linear_init", outputs, 0)
    deviation = (2 / inputs) ** 0.5 if deviation is None else deviation
    if draw is None:
        return {"w": (random.randn(inputs, outputs) * deviation).realise(), "b": zeros(outputs).realise()}
    w = {"w": draw.normal((inputs, outputs), deviation)}
    return w | {"b": draw.full((outputs,), 0)} if bias else w


def part(layer: str, params: Params, name: str) -> Tensor:
    """One of a layer's parameters."""
    if not isinstance(params, dict) or name not in params:
        got = list(params) if isinstance(params, dict) else a_type(params)
        fail(layer, f"the parameter {name!r} is missing", got, "the dict that its init function makes",
             kind=DtypeError)
    return params[name]


def linear(params: Params, x: Tensor) -> Tensor:
    """x @ w + b, or without b if there is none.

    Shapes: x[..., inputs], w[inputs, outputs], b[outputs].
    """
    y = x @ part("linear", params, "w")
    return y + params["b"] if "b" in params else y


def embedding_init(count: int, size: int, draw: Draw, deviation: float = 0.02) -> Params:
    """A row of numbers for each of `count` things."""
    return {"w": draw.normal((count, size), deviation)}


def embedding(params: Params, ids: TensorLike) -> Tensor:
    """The row of each number; one outside the table gives its first row or its last.

    Shapes: w[count, size], ids[...] -> [..., size].
    """
    ids = as_tensor(ids)
    if ids.dtype.kind != "i":
        fail("embedding", "rows are picked by integers", ids.type, "i32", ".int()", DtypeError)
    return node("gather", part("embedding", params, "w"), ops.astype(ids, "i32"), axis=0)


def conv_init(inputs: int, outputs: int, window: tuple[int, ...], draw: Draw, bias: bool = True,
              groups: int = 1) -> Params:
    """Weights of variance 2 / (inputs of one output), as torch lays them out, and a bias of 0."""
    w = {"w": draw.kaiming((outputs, inputs // groups, *window))}
    return w | {"b": draw.full((outputs,), 0)} if bias else w


def conv(params: Params, x: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
         groups: int = 1) -> Tensor:
    """A convolution over one, two or three axes, as many as the weights have.

    Shapes: x[N, inputs, *S], w[outputs, inputs / groups, *K], b[outputs] -> [N, outputs, *S'].
    """
    by_rank = {3: conv1d, 4: conv2d, 5: conv3d}
    w = part("conv", params, "w")
    if w.ndim not in by_rank:
        fail("conv", "these are no weights of a convolution", w.type, "rank 3, 4 or 5")
    return by_rank[w.ndim](x, w, params.get("b"), stride, padding, dilation, groups)


# -- norms ---------------------------------------------------------------------------------------------------


def norm_init(size: int, draw: Draw, bias: bool = True) -> Params:
    """A scale of 1, and a shift of 0 if there is one."""
    w = {"w": draw.full((size,), 1)}
    return w | {"b": draw.full((size,), 0)} if bias else w


@in_f32
def standardised(x: Tensor, axis: Any = -1, epsilon: float = 1e-5) -> Tensor:
    """x with mean 0 and variance 1 along these axes."""
    centred = x - x.mean(axis, True)
    return centred * ops.rsqrt((centred * centred).mean(axis, True) + epsilon)


@in_f32
def _of_mean_square_1(x: Tensor, epsilon: float) -> Tensor:
    return x * ops.rsqrt((x * x).mean(-1, True) + epsilon)


def _scaled(params: Params, x: Tensor, axis: int = -1) -> Tensor:
    """x * w + b, with w and b along an axis; either may be missing."""
    shape = [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)] if axis != -1 else [-1]
    x = x * params["w"].reshape(*shape) if "w" in params else x
    return x + params["b"].reshape(*shape) if "b" in params else x


def layer_norm(params: Params, x: Tensor, epsilon: float = 1e-5) -> Tensor:
    """Standardised along the last axis, then scaled and shifted.

    Shapes: x[..., size], w[size], b[size]. Source: J. Ba et al., "Layer normalization", arXiv 1607.06450.
    """
    return _scaled(params, standardised(x, epsilon=epsilon))


def rms_norm(params: Params, x: Tensor, epsilon: float = 1e-5) -> Tensor:
    """Divided by the root of the mean of the squares, then scaled.

    Shapes: x[..., size], w[size]. Source: B. Zhang and R. Sennrich, "Root mean square layer normalization",
    arXiv 1910.07467.
    """
    return _scaled(params, _of_mean_square_1(x, epsilon=epsilon))


def group_norm(params: Params, x: Tensor, groups: int, epsilon: float = 1e-5) -> Tensor:
    """Standardised over each group of channels and all places, then scaled and shifted per channel.

    Shapes: x[N, C, *S], w[C], b[C]. Source: Y. Wu and K. He, "Group normalization", arXiv 1803.08494.
    """
    if x.ndim < 2 or x.shape[1] % as_integer("group_norm", groups, 1):
        fail("group_norm", "the groups do not divide the channels", f"{groups} for {x.type}", "[N, C, ...]")
    grouped = standardised(x.reshape(x.shape[0], groups, -1), epsilon=epsilon)
    return _scaled(params, grouped.reshape(x.shape), 1)


def batch_norm_init(size: int, draw: Draw) -> tuple[Params, Params]:
    """The parameters, and the running statistics: mean 0, variance 1."""
    return norm_init(size, draw), {"mean": draw.full((size,), 0), "var": draw.full((size,), 1)}


def batch_norm(params: Params, state: Params, x: Tensor, training: bool, momentum: float = 0.1,
               epsilon: float = 1e-5) -> tuple[Tensor, Params]:
    """Standardised per channel by the batch's statistics, or by the running ones; and the new running ones.

    Shapes: x[N, C, *S], w[C], b[C], mean[C], var[C]. The running variance is that over count - 1, as torch's.
    Source: S. Ioffe and C. Szegedy, "Batch normalization", arXiv 1502.03167.
    """
    axes, shape = [0, *range(2, x.ndim)], [-1, *[1] * (x.ndim - 2)]
    w, b = part("batch_norm", params, "w"), part("batch_norm", params, "b")
    if x.ndim < 2:
        fail("batch_norm", "there are no channels", x.type, "[N, C, ...]")
    if not training:
        scale = ops.rsqrt(state["var"] + epsilon) * w
        shift = b - state["mean"] * scale
        return x * scale.reshape(*shape) + shift.reshape(*shape), state
    count = x.size // x.shape[1]
    centre = x.mean(axes)
    distance = x - centre.reshape(*shape)
    var = (distance * distance).mean(axes)
    y = distance * (ops.rsqrt(var + epsilon) * w).reshape(*shape) + b.reshape(*shape)
    seen = {"mean": centre, "var": var * (count / max(1, count - 1))}
    return y, {name: state[name] * (1 - momentum) + new * momentum for name, new in seen.items()}


def dropout(x: Tensor, rate: float, key: Tensor | None) -> Tensor:
    """x with this share of its elements 0 and the rest larger by as much; without a key, x.

    Source: N. Srivastava et al., "Dropout", Journal of Machine Learning Research 15, 2014.
    """
    if key is None or rate == 0:
        return x
    if not 0 < as_number("dropout", rate) < 1:
        fail("dropout", "the rate is no share of the elements", rate, "0 or more, less than 1")
    return ops.where(random.bernoulli(key, 1 - rate, x.shape), x * (1 / (1 - rate)), 0.0)


# -- what transformers are made of ---------------------------------------------------------------------------


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x)."""
    return x * sigmoid(x)


def mlp_init(size: int, hidden: int, draw: Draw, deviation: float = 0.02, bias: bool = True,
             out: float | None = None) -> Any:
    """Two layers, up and down; `out` is the deviation of the second, if it is another."""
    return {"up": linear_init(size, hidden, draw, bias, deviation),
            "down": linear_init(hidden, size, draw, bias, deviation if out is None else out)}


def mlp(params: Any, x: Tensor, activation: Any = gelu) -> Tensor:
    """down(activation(up(x)))."""
    return linear(params["down"], activation(linear(params["up"], x)))


def gated_mlp_init(size: int, hidden: int, draw: Draw, deviation: float = 0.02) -> Any:
    """Three layers without bias: gate, up and down."""
    gate = {"gate": linear_init(size, hidden, draw, False, deviation)}
    return gate | mlp_init(size, hidden, draw, deviation, bias=False)


def gated_mlp(params: Any, x: Tensor, activation: Any = silu) -> Tensor:
    """down(activation(gate(x)) * up(x)). Source: N. Shazeer, "GLU variants improve transformer", arXiv
    2002.05202."""
    gate, up = linear(params["gate"], x), linear(params["up"], x)
    return linear(params["down"], activation(gate) * up)


def self_attention_init(width: int, draw: Draw, deviation: float = 0.02, out: float | None = None) -> Any:
    """One layer for queries, keys and values, and one that mixes the heads; `out` is its deviation."""
    return {"qkv": linear_init(width, 3 * width, draw, deviation=deviation),
            "out": linear_init(width, width, draw, deviation=deviation if out is None else out)}


def self_attention(params: Any, x: Tensor, heads: int, mask: Tensor | None = None,
                   causal: bool = False) -> Tensor:
    """Every position attends to all, or to those up to its own.

    Shapes: x[B, T, C], mask as in `attention` -> [B, T, C].
    """
    qkv, width = linear(params["qkv"], x), x.shape[-1]                                        # (B, T, 3 C)
    q, k, v = (split_heads(qkv[..., i * width:(i + 1) * width], heads) for i in range(3))     # (B, H, T, D)
    return linear(params["out"], join_heads(attention(q, k, v, mask, causal)))


__all__ = [
    "Draw", "Params", "attention", "batch_norm", "batch_norm_init", "bce_with_logits", "cache_init",
    "cache_update", "causal_mask", "conv", "conv_init", "cross_entropy", "dropout", "embedding",
    "embedding_init", "fans", "gated_mlp", "gated_mlp_init", "group_norm", "huber", "join_heads", "kl", "l1",
    "layer_norm", "linear", "linear_init", "mlp", "mlp_init", "mse", "norm_init", "parameter_count",
    "repeat_heads", "require", "require_divides", "rms_norm", "rotary", "rotate", "self_attention",
    "self_attention_init", "silu", "split_heads", "standardised",
]
