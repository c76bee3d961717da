"""Attention: each position asks all others, by queries and keys, and gets a mean of their values.

    q: f32[B,8,T,64], k, v: f32[B,2,S,64]  ->  f32[B,8,T,64], four queries to a key (grouped heads)
    cos, sin = rotary(arange(T), 64)           f32[T,32] each
    cache = cache_update(cache, k, v, start)   {"k", "v": f32[B,2,length,64]}, of one shape for ever

In: tensors [batch, heads, time, size]. Out: the same. Invariants: scores are softmaxed in f32; a masked score
is a large negative number rather than -inf, so that a row with nothing to look at is even, not nan; a cache
never grows, so one program decodes every token. Nothing here is fused by hand: FlashAttention is what a
compiler has to find in these lines. Read next: models/llama.py.
"""

from __future__ import annotations

import math

from minicc.frontend import ops
from minicc.frontend.creation import arange, zeros
from minicc.frontend.joining import concatenate
from minicc.frontend.primitives import TensorLike, as_integer, as_tensor
from minicc.frontend.scope import fail
from minicc.frontend.tensor import Tensor
from minicc.frontend.updates import dynamic_update_slice

MASKED = -1e30
Cache = dict[str, Tensor]


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, T, heads * size) -> (B, heads, T, size)."""
    if x.ndim != 3 or x.shape[-1] % as_integer("attention", heads, 1):
        fail("attention", "the heads do not divide the width", f"{heads} heads for {x.type}",
             "[batch, time, width], and a width that is a multiple of the heads")
    batch, time, width = x.shape
    return x.reshape(batch, time, heads, width // heads).transpose(0, 2, 1, 3)


def join_heads(x: Tensor) -> Tensor:
    """(B, heads, T, size) -> (B, T, heads * size)."""
    batch, heads, time, size = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, time, heads * size)


def causal_mask(rows: int, columns: int, start: TensorLike = 0) -> Tensor:
    """bool[rows, columns]: row i, which stands at position start + i, sees the columns up to its own."""
    return arange(columns) <= arange(rows).unsqueeze(1) + start


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False,
              scale: float | None = None) -> Tensor:
    """softmax(q k^T * scale) v; the scale is 1 / sqrt(size) unless it is given.

    Shapes: q[B, H, T, D]; k[B, G, S, D] and v[B, G, S, E] with heads G that divide H, each for H / G queries
    in a row; mask bool, true where to look, and such that it broadcasts to [B, H, T, S]; -> [B, H, T, E].
    Source: A. Vaswani et al., "Attention is all you need", arXiv 1706.03762, equation 1; for grouped heads,
    J. Ainslie et al., "GQA", arXiv 2305.13245.
    """
    fits = q.ndim == k.ndim == v.ndim == 4 and v.shape[:3] == k.shape[:3] and q.shape[-1] == k.shape[-1]
    if not fits or q.shape[1] % max(k.shape[1], 1):
        fail("attention", "queries, keys and values do not fit", f"{q.type}, {k.type}, {v.type}",
             "[B,H,T,D], [B,G,S,D], [B,G,S,E], and G divides H")
    batch, heads, time, size = q.shape
    groups, length = k.shape[1], k.shape[2]
    k, v = (repeat_heads(x, heads // groups) for x in (k, v))
    scores = (q @ k.transpose(0, 1, 3, 2)).float()                                          # (B, H, T, S)
    scores = scores * (1 / math.sqrt(size) if scale is None else scale)
    if causal:
        scores = ops.where(causal_mask(time, length), scores, MASKED)
    if mask is not None:
        scores = ops.where(mask, scores, MASKED)
    return scores.softmax(-1).astype(v.dtype) @ v


def repeat_heads(x: Tensor, times: int) -> Tensor:
    """(B, G, T, D) -> (B, G * times, T, D), each head `times` times in a row."""
    batch, groups, time, size = x.shape
    if times == 1:
        return x
    return x.unsqueeze(2).broadcast_to(batch, groups, times, time, size).reshape(batch, -1, time, size)


# -- positions as rotations ----------------------------------------------------------------------------------


def rotary(positions: TensorLike, size: int, base: float = 10000.0) -> tuple[Tensor, Tensor]:
    """cos and sin of each position's angles: position / base^(2 i / size) for i < size / 2.

    Shapes: positions[T] -> [T, size / 2] each.
    """
    speeds = ops.exp(arange(size // 2) * (-2 * math.log(base) / size))
    angles = as_tensor(positions).float().unsqueeze(-1) * speeds
    return ops.cos(angles), ops.sin(angles)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x with element i of its first half and of its second turned together by angle i.

    Shapes: x[B, H, T, D], cos[T, D/2], sin[T, D/2]. This pairing of halves is that of the published weights
    in common files; the paper pairs neighbours, which is a permutation of the weights' columns.
    Source: J. Su et al., "RoFormer", arXiv 2104.09864, equation 34.
    """
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(x.dtype)


# -- what was seen before ------------------------------------------------------------------------------------


def cache_init(batch: int, heads: int, length: int, size: int, dtype: str = "f32") -> Cache:
    """Keys and values of no position yet, with room for `length`."""
    return {name: zeros(batch, heads, length, size, dtype=dtype) for name in ("k", "v")}


def cache_update(cache: Cache, k: Tensor, v: Tensor, start: TensorLike) -> Cache:
    """The cache with k and v, (B, G, T, D), at positions start, start + 1, ..."""
    return {name: dynamic_update_slice(cache[name], new.astype(cache[name].dtype), (0, 0, start, 0))
            for name, new in (("k", k), ("v", v))}
