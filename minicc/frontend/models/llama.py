"""LLaMA: rotary positions, grouped heads, RMS norms, gated MLPs; and a cache to decode one token at a time.

    logits, caches = prefill(params, TINY, ids, length=32)            ids i32[B,T] -> f32[B,T,V]
    logits, caches = decode(params, TINY, token, caches, position)    token i32[B,1], position i32[]

Goes in: numbers of tokens. Comes out: scores of the next ones, and what to remember: keys and values of every
position so far, in arrays that never grow, so that one program decodes every token. Sources: H. Touvron et
al., "Llama 2", arXiv 2307.09288; "The Llama 3 herd of models", arXiv 2407.21783. Read next: moe.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from minicc.frontend import nn
from minicc.frontend.creation import arange
from minicc.frontend.nn import Draw, embedding, gated_mlp, linear, rms_norm, rotate, split_heads
from minicc.frontend.primitives import TensorLike
from minicc.frontend.tensor import Tensor


@dataclass(frozen=True)
class Config:
    """The sizes. groups: heads of keys and values, each for heads / groups queries; hidden: of the MLP."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    groups: int
    hidden: int
    base: float = 10000.0  # of the rotary positions

    def __post_init__(self) -> None:
        nn.require_divides("heads", self.heads, "width", self.width)
        nn.require_divides("halves of a head", 2, "size of a head", self.size)
        nn.require_divides("groups", self.groups, "heads", self.heads)

    @property
    def size(self) -> int:
        """Of one head."""
        return self.width // self.heads


LLAMA2_7B = Config(32000, 4096, 32, 32, 32, 11008)  # 6,738,415,616 parameters
LLAMA3_8B = Config(128256, 4096, 32, 32, 8, 14336, base=500000.0)  # 8,030,261,248
TINY = Config(96, 32, 2, 4, 2, 48)


def attention_init(config: Config, draw: Draw) -> Any:
    """Queries, keys, values and what mixes the heads; no biases."""
    inner = {"q": config.heads, "k": config.groups, "v": config.groups}
    rows = {name: nn.linear_init(config.width, heads * config.size, draw, False, 0.02)
            for name, heads in inner.items()}
    return rows | {"out": nn.linear_init(config.width, config.width, draw, False, 0.02)}


def dense_init(config: Config, draw: Draw) -> Any:
    """What stands in each block behind the attention."""
    return {"mlp": nn.gated_mlp_init(config.width, config.hidden, draw)}


def init(config: Any, seed: int | None = 0, behind: Callable[[Any, Draw], Any] = dense_init) -> Any:
    """New parameters; without a seed, their shapes alone. behind: what makes the rest of a block's."""
    draw, width = Draw(seed), config.width
    blocks = [{"norm1": nn.norm_init(width, draw, bias=False), "norm2": nn.norm_init(width, draw, bias=False),
               "attention": attention_init(config, draw), **behind(config, draw)}
              for _ in range(config.layers)]
    return {"tokens": nn.embedding_init(config.vocabulary, width, draw), "blocks": blocks,
            "norm": nn.norm_init(width, draw, bias=False),
            "head": nn.linear_init(width, config.vocabulary, draw, False, 0.02)}


def attend(params: Any, config: Config, x: Tensor, cache: Any = None,
           start: TensorLike = 0) -> tuple[Tensor, Any]:
    """What each position hears from itself and those before it; and the cache, if there is one.

    Shapes: x[B, T, C], whose first position is `start` -> [B, T, C].
    """
    time = x.shape[1]
    cos, sin = nn.rotary(arange(time) + start, config.size, config.base)                    # (T, D / 2)
    q = rotate(split_heads(linear(params["q"], x), config.heads), cos, sin)                 # (B, H, T, D)
    k = rotate(split_heads(linear(params["k"], x), config.groups), cos, sin)                # (B, G, T, D)
    v = split_heads(linear(params["v"], x), config.groups)
    if cache is not None:
        cache = nn.cache_update(cache, k, v, start)
        k, v = cache["k"], cache["v"]                                                       # (B, G, S, D)
    seen = nn.causal_mask(time, k.shape[2], start)
    return linear(params["out"], nn.join_heads(nn.attention(q, k, v, seen))), cache


def forward(params: Any, config: Config, ids: Tensor, caches: Any = None,
            start: TensorLike = 0) -> tuple[Tensor, Any]:
    """The scores after each of the tokens, which stand at start, start + 1, ...; and the caches after them.

    Shapes: ids[B, T] -> [B, T, vocabulary]. With caches, start + T must not exceed their length.
    """
    x, new = embedding(params["tokens"], ids), []                                           # (B, T, C)
    for block, cache in zip(params["blocks"], caches or [None] * config.layers, strict=True):
        heard, cache = attend(block["attention"], config, rms_norm(block["norm1"], x), cache, start)
        x = x + heard
        x = x + gated_mlp(block["mlp"], rms_norm(block["norm2"], x))
        new.append(cache)
    return linear(params["head"], rms_norm(params["norm"], x)), new if caches else None


def prefill(params: Any, config: Config, ids: Tensor, length: int) -> tuple[Tensor, Any]:
    """The scores after each token of a prompt, and caches with room for `length` tokens in all."""
    empty = [nn.cache_init(ids.shape[0], config.groups, length, config.size) for _ in params["blocks"]]
    return forward(params, config, ids, empty)


def decode(params: Any, config: Config, token: Tensor, caches: Any,
           position: TensorLike) -> tuple[Tensor, Any]:
    """The scores after one more token, which stands at this position. Shapes: token[B, 1] -> [B, 1, V]."""
    return forward(params, config, token, caches, position)
