"""A mixture of experts in LLaMA's place of the MLP: a router sends each token to the few that suit it.

    logits, balance = forward(params, TINY, ids)     i32[B,T] -> f32[B,T,V], f32[]

Goes in: numbers of tokens. Comes out: scores of the next, and how unevenly the experts were used (1 is even),
to be added to the loss. Shapes cannot depend on where tokens go, so each expert has as many seats as
`capacity` says; tokens take them in order, and one that finds none keeps only what flows past. Sending and
fetching are matrix products with zeros and ones, as on TPUs. Sources: W. Fedus et al., "Switch transformers",
arXiv 2101.03961; A. Jiang et al., "Mixtral of experts", arXiv 2401.04088. Read next: bert.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from minicc.frontend import nn, ops
from minicc.frontend.functional import one_hot
from minicc.frontend.models import llama
from minicc.frontend.nn import Draw, embedding, linear, rms_norm
from minicc.frontend.nn_attention import MASKED
from minicc.frontend.primitives import as_tensor
from minicc.frontend.tensor import Tensor


@dataclass(frozen=True)
class Config(llama.Config):
    """LLaMA's sizes. chosen: experts per token; capacity: seats per expert, over what even use takes."""

    experts: int = 8
    chosen: int = 2
    capacity: float = 1.25

    def __post_init__(self) -> None:
        super().__post_init__()
        nn.require(0 < self.chosen <= self.experts and self.capacity > 0, "no token would find its experts",
                   f"{self.chosen} of {self.experts}, capacity {self.capacity}",
                   "1 expert or more chosen, of those there are, and a capacity above 0")


MIXTRAL_8X7B = Config(32000, 4096, 32, 32, 8, 14336, 1e6)  # 46,702,792,704 parameters
TINY = Config(96, 32, 2, 4, 2, 24, experts=4, chosen=2)


def experts_init(config: Config, draw: Draw) -> Any:
    """The router, and a gated MLP per expert, stacked."""
    up, down = (config.experts, config.width, config.hidden), (config.experts, config.hidden, config.width)
    return {"router": nn.linear_init(config.width, config.experts, draw, False, 0.02),
            "gate": draw.normal(up, 0.02), "up": draw.normal(up, 0.02), "down": draw.normal(down, 0.02)}


def init(config: Config, seed: int | None = 0) -> Any:
    """LLaMA's parameters, with experts for each MLP; without a seed, their shapes alone."""
    return llama.init(config, seed, lambda config, draw: {"experts": experts_init(config, draw)})


def route(config: Config, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Who sits where, and the weight of each expert for each token.

    Shapes: scores[N, E] -> f32[N, E, seats] of zeros and ones, f32[N, E].
    """
    tokens, experts = scores.shape
    seats = math.ceil(config.capacity * config.chosen * tokens / experts)
    picked, rest = one_hot(scores.argmax(-1), experts), scores
    for _ in range(config.chosen - 1):
        rest = ops.where(picked > 0, MASKED, scores)
        picked = picked + one_hot(rest.argmax(-1), experts)                                # (N, E)
    weights = ops.where(picked > 0, scores, MASKED).softmax(-1)
    before = nn.causal_mask(tokens, tokens).float() @ picked - 1.0  # who came earlier, counted by a product
    place = ops.where(picked > 0, before, -1.0).int()  # one_hot knows no -1, nor a place beyond the seats
    return one_hot(place, seats), weights


def mixture(params: Any, config: Config, x: Tensor) -> tuple[Tensor, Tensor]:
    """What the chosen experts say of each token, weighted; and how uneven their use is.

    Shapes: x[B, T, C] -> [B, T, C], [].
    """
    tokens = x.reshape(-1, config.width)                                                    # (N, C)
    scores = linear(params["router"], tokens)                                               # (N, E)
    sent, weights = route(config, scores)
    count, experts, seats = sent.shape
    inside = sent.reshape(count, experts * seats).T @ tokens                                # (E seats, C)
    inside = inside.reshape(experts, seats, -1)
    said = (nn.silu(inside @ params["gate"]) * (inside @ params["up"])) @ params["down"]    # (E, seats, C)
    fetched = (sent * weights.unsqueeze(-1)).reshape(count, experts * seats)
    used = sent.sum(-1).mean(0) / config.chosen
    uneven = (used * scores.softmax(-1).mean(0)).sum() * float(experts)
    return (fetched @ said.reshape(experts * seats, -1)).reshape(*x.shape), uneven


def forward(params: Any, config: Config, ids: Tensor) -> tuple[Tensor, Tensor]:
    """The scores of the next token after each position; and the mean unevenness over the layers.

    Shapes: ids[B, T] -> [B, T, vocabulary], [].
    """
    x, balance = embedding(params["tokens"], ids), as_tensor(0.0)                           # (B, T, C)
    for block in params["blocks"]:
        x = x + llama.attend(block["attention"], config, rms_norm(block["norm1"], x))[0]
        said, uneven = mixture(block["experts"], config, rms_norm(block["norm2"], x))
        x, balance = x + said, balance + uneven
    return linear(params["head"], rms_norm(params["norm"], x)), balance / float(config.layers)
