"""BERT: an encoder in which every token sees all others, with the norm after each addition.

    states, pooled = forward(params, TINY, ids, kinds, mask)     i32[B,T], i32[B,T], bool[B,T]
                                                                 -> f32[B,T,C], f32[B,C]

Goes in: numbers of tokens, which of two sentences each is of, and which are there at all. Comes out: a vector
per token, and one for the whole, made of the first token's. Source: J. Devlin et al., "BERT", arXiv
1810.04805. Read next: dit.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from minicc.frontend import nn
from minicc.frontend.functional import gelu
from minicc.frontend.nn import Draw, embedding, layer_norm, linear, mlp, self_attention
from minicc.frontend.tensor import Tensor

EPSILON = 1e-12  # of every norm


@dataclass(frozen=True)
class Config:
    """The sizes. kinds: how many sentences there may be; hidden: of the MLP."""

    vocabulary: int = 30522
    context: int = 512
    kinds: int = 2
    layers: int = 12
    heads: int = 12
    width: int = 768
    hidden: int = 3072

    def __post_init__(self) -> None:
        nn.require_divides("heads", self.heads, "width", self.width)


BASE = Config()  # 109,482,240 parameters
LARGE = Config(layers=24, heads=16, width=1024, hidden=4096)
TINY = Config(96, 16, 2, 2, 2, 32, 48)


def init(config: Config, seed: int | None = 0) -> Any:
    """New parameters; without a seed, their shapes alone."""
    draw, width = Draw(seed), config.width
    blocks = [{"attention": nn.self_attention_init(width, draw), "norm1": nn.norm_init(width, draw),
               "mlp": nn.mlp_init(width, config.hidden, draw), "norm2": nn.norm_init(width, draw)}
              for _ in range(config.layers)]
    return {
        "tokens": nn.embedding_init(config.vocabulary, width, draw),
        "positions": nn.embedding_init(config.context, width, draw),
        "kinds": nn.embedding_init(config.kinds, width, draw),
        "norm": nn.norm_init(width, draw), "blocks": blocks,
        "pool": nn.linear_init(width, width, draw, deviation=0.02),
    }


def forward(params: Any, config: Config, ids: Tensor, kinds: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """A vector for each token, and one for all.

    Shapes: ids[B, T], kinds[B, T], mask[B, T], true for what is there -> [B, T, C], [B, C].
    """
    batch, time = ids.shape
    x = embedding(params["tokens"], ids) + params["positions"]["w"][:time] + embedding(params["kinds"], kinds)
    x = layer_norm(params["norm"], x, EPSILON)                                              # (B, T, C)
    seen = mask.reshape(batch, 1, 1, time)
    for block in params["blocks"]:
        x = layer_norm(block["norm1"], x + self_attention(block["attention"], x, config.heads, seen), EPSILON)
        x = layer_norm(block["norm2"], x + mlp(block["mlp"], x, exact_gelu), EPSILON)
    return x, linear(params["pool"], x[:, 0]).tanh()


exact_gelu = partial(gelu, approximate=False)
