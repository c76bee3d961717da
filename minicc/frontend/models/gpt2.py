"""GPT-2: a stack of blocks, each attention and then an MLP, both added to what flows past.

    params = init(TINY)                    a tree; init(SMALL, seed=None) has shapes alone
    forward(params, TINY, ids)             ids i32[B,T]  ->  f32[B,T,V], a score for each next token

Goes in: numbers of tokens. Comes out: for each position, scores of what comes next. The head is the embedding
table again. Source: A. Radford et al., "Language models are unsupervised multitask learners", 2019; the sizes
are those of the published weights. Read next: llama.py, which is what became of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minicc.frontend import nn
from minicc.frontend.nn import Draw, embedding, layer_norm, mlp, self_attention
from minicc.frontend.primitives import as_tensor
from minicc.frontend.tensor import Tensor


@dataclass(frozen=True)
class Config:
    """The sizes. width: of what flows through the blocks."""

    vocabulary: int = 50257
    context: int = 1024
    layers: int = 12
    heads: int = 12
    width: int = 768

    def __post_init__(self) -> None:
        nn.require_divides("heads", self.heads, "width", self.width)
        nn.require(min(self.vocabulary, self.context, self.layers) > 0, "there is nothing of something", self,
                   "a vocabulary, a context and layers of 1 or more")


SMALL = Config()  # GPT-2 small, 124,439,808 parameters
XL = Config(layers=48, heads=25, width=1600)  # 1.5 billion
TINY = Config(vocabulary=96, context=32, layers=2, heads=2, width=32)


def init(config: Config, seed: int | None = 0, deviation: float = 0.02) -> Any:
    """New parameters; without a seed, their shapes alone. What is added to the stream begins smaller.

    deviation: of the weights; narrow networks learn sooner from larger ones, of about 1 / sqrt(width).
    """
    draw, width, small = Draw(seed), config.width, deviation / (2 * config.layers) ** 0.5
    blocks = []
    for _ in range(config.layers):
        blocks.append({
            "norm1": nn.norm_init(width, draw), "norm2": nn.norm_init(width, draw),
            "attention": nn.self_attention_init(width, draw, deviation, small),
            "mlp": nn.mlp_init(width, 4 * width, draw, deviation, out=small),
        })
    return {
        "tokens": nn.embedding_init(config.vocabulary, width, draw, deviation),
        "positions": nn.embedding_init(config.context, width, draw, deviation / 2),
        "blocks": blocks, "norm": nn.norm_init(width, draw),
    }


def forward(params: Any, config: Config, ids: Tensor) -> Tensor:
    """The scores of the next token after each position.

    Shapes: ids[B, T], T up to the context -> [B, T, vocabulary].
    """
    ids = as_tensor(ids)
    nn.require(ids.ndim == 2 and ids.shape[1] <= config.context, "the tokens do not fit the model", ids.type,
               f"[batch, time], and a time of {config.context} at most: the context", "gpt2")
    time = ids.shape[1]
    x = embedding(params["tokens"], ids) + params["positions"]["w"][:time]                  # (B, T, C)
    for block in params["blocks"]:
        x = x + self_attention(block["attention"], layer_norm(block["norm1"], x), config.heads, causal=True)
        x = x + mlp(block["mlp"], layer_norm(block["norm2"], x))
    return layer_norm(params["norm"], x) @ params["tokens"]["w"].T                          # (B, T, V)


def loss(params: Any, config: Config, ids: Tensor) -> Tensor:
    """The mean cross-entropy of each token with what was expected there.

    Shapes: ids[B, T + 1] -> [].
    """
    return nn.cross_entropy(forward(params, config, ids[:, :-1]), ids[:, 1:])
