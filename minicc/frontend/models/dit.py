"""DiT, a diffusion transformer: from a noisy picture, a time and a class to the noise in it.

    forward(params, TINY, x, time, labels)     f32[B,C,H,W], f32[B], i32[B]  ->  f32[B,2C,H,W]

Goes in: latents with noise. Comes out: the noise, and its variance, as many channels each. A picture becomes
a row of patches; time and class become one vector, from which every block draws its shifts, scales and gates
(adaLN-zero: all begin at zero, so that a new block changes nothing). Source: W. Peebles and S. Xie, "Scalable
diffusion models with transformers", arXiv 2212.09748. Read next: video.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from minicc.frontend import nn, ops
from minicc.frontend.creation import arange
from minicc.frontend.joining import concatenate
from minicc.frontend.nn import Draw, embedding, linear, mlp, self_attention, silu, standardised
from minicc.frontend.tensor import Tensor

FREQUENCIES = 256  # of the time


@dataclass(frozen=True)
class Config:
    """The sizes. size: rows and columns of a picture; patch: of a patch; one class more means: any."""

    size: int
    channels: int
    patch: int
    width: int
    layers: int
    heads: int
    classes: int

    def __post_init__(self) -> None:
        nn.require_divides("heads", self.heads, "width", self.width)
        nn.require_divides("patches", self.patch, "size", self.size)
        nn.require_divides("four parts of a position", 4, "width", self.width)


XL_2 = Config(32, 4, 2, 1152, 28, 16, 1000)  # 256 x 256 pixels; 675,129,632 parameters with the positions
TINY = Config(8, 2, 2, 32, 2, 2, 4)


def init(config: Config, seed: int | None = 0, zero: bool = True) -> Any:
    """New parameters. zero: let every block begin as nothing, as one trains them."""
    draw, width, late = Draw(seed), config.width, 0.0 if zero else 0.02

    def modulation(parts: int) -> Any:
        return nn.linear_init(width, parts * width, draw, deviation=late)

    pixels = config.channels * config.patch ** 2
    return {
        "patches": nn.linear_init(pixels, width, draw, deviation=pixels ** -0.5),
        "time": {"up": nn.linear_init(FREQUENCIES, width, draw, deviation=0.02),
                 "down": nn.linear_init(width, width, draw, deviation=0.02)},
        "classes": nn.embedding_init(config.classes + 1, width, draw),
        "blocks": [{"modulation": modulation(6), "attention": nn.self_attention_init(width, draw),
                    "mlp": nn.mlp_init(width, 4 * width, draw)} for _ in range(config.layers)],
        "modulation": modulation(2), "head": nn.linear_init(width, 2 * pixels, draw, deviation=late),
    }


def waves(positions: Tensor, size: int) -> Tensor:
    """cos and sin of each position at size / 2 speeds from 1 to 1 / 10000. Shapes: [N] -> [N, size]."""
    half = size // 2
    angles = positions.float().unsqueeze(-1) * ops.exp(arange(half) * (-math.log(10000) / half))
    return concatenate([ops.cos(angles), ops.sin(angles)], -1)


def places(config: Config) -> Tensor:
    """Fixed positions: half of the width says the column, half the row. Shapes: [patches, width]."""
    side = config.size // config.patch
    row = waves(arange(side), config.width // 2)                                            # (side, C / 2)
    columns, rows = row.broadcast_to(side, side, -1), row.unsqueeze(1).broadcast_to(side, side, -1)
    return concatenate([columns, rows], -1).reshape(side * side, config.width)


def patchify(x: Tensor, patch: int) -> Tensor:
    """(B, C, H, W) -> (B, patches, C * patch * patch)."""
    batch, channels, height, width = x.shape
    x = x.reshape(batch, channels, height // patch, patch, width // patch, patch)
    return x.transpose(0, 2, 4, 1, 3, 5).reshape(batch, -1, channels * patch * patch)


def unpatchify(x: Tensor, patch: int, size: int) -> Tensor:
    """(B, patches, patch * patch * C) -> (B, C, size, size)."""
    batch, side = x.shape[0], size // patch
    x = x.reshape(batch, side, side, patch, patch, -1).transpose(0, 5, 1, 3, 2, 4)
    return x.reshape(batch, -1, size, size)


def modulated(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """A norm whose shift and scale, (B, C), come from outside. Shapes: x[B, T, C] -> [B, T, C]."""
    return standardised(x, epsilon=1e-6) * (scale.unsqueeze(1) + 1.0) + shift.unsqueeze(1)


def parts(params: Any, vector: Tensor, count: int) -> list[Tensor]:
    """The shifts, scales and gates that a vector asks for. Shapes: [B, C] -> count of [B, C]."""
    asked = linear(params, silu(vector)).reshape(vector.shape[0], count, -1)
    return [asked[:, i] for i in range(count)]


def forward(params: Any, config: Config, x: Tensor, time: Tensor, labels: Tensor) -> Tensor:
    """The noise in pictures, and its variance.

    Shapes: x[B, C, size, size], time[B], labels[B] -> [B, 2 C, size, size].
    """
    vector = mlp(params["time"], waves(time, FREQUENCIES), silu)                            # (B, C)
    vector = vector + embedding(params["classes"], labels)
    x = linear(params["patches"], patchify(x, config.patch)) + places(config)               # (B, T, C)
    for block in params["blocks"]:
        shift1, scale1, gate1, shift2, scale2, gate2 = parts(block["modulation"], vector, 6)
        heard = self_attention(block["attention"], modulated(x, shift1, scale1), config.heads)
        x = x + heard * gate1.unsqueeze(1)
        x = x + mlp(block["mlp"], modulated(x, shift2, scale2)) * gate2.unsqueeze(1)
    shift, scale = parts(params["modulation"], vector, 2)
    return unpatchify(linear(params["head"], modulated(x, shift, scale)), config.patch, config.size)
