"""ViViT with factorised self-attention: what a film shows, from patches that reach through time.

    forward(params, TINY, film)     f32[B,C,F,H,W]  ->  f32[B,classes]

Goes in: films. Comes out: a score for each class. A film becomes boxes of frames x rows x columns; in each
block a box attends first to those of its own time, then to those of its own place, then comes an MLP: each
has T + S neighbours rather than T * S. Source: A. Arnab et al., "ViViT", arXiv 2103.15691, model 3. Read
next: train.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minicc.frontend import nn
from minicc.frontend.nn import Draw, layer_norm, linear, mlp, self_attention
from minicc.frontend.tensor import Tensor


@dataclass(frozen=True)
class Config:
    """The sizes. box: frames, rows and columns of a patch."""

    frames: int = 32
    size: int = 224
    channels: int = 3
    box: tuple[int, int, int] = (2, 16, 16)
    width: int = 768
    layers: int = 12
    heads: int = 12
    classes: int = 400

    def __post_init__(self) -> None:
        nn.require_divides("heads", self.heads, "width", self.width)
        nn.require_divides("frames of a box", self.box[0], "frames", self.frames)
        for side in self.box[1:]:
            nn.require_divides("rows and columns of a box", side, "size", self.size)

    @property
    def boxes(self) -> tuple[int, int]:
        """How many there are: through time, and in each picture."""
        return self.frames // self.box[0], (self.size // self.box[1]) * (self.size // self.box[2])


BASE = Config()  # ViViT-B/16x2, factorised self-attention: 117.3 million parameters
TINY = Config(frames=4, size=8, channels=1, box=(2, 4, 4), width=16, layers=2, heads=2, classes=5)


def init(config: Config, seed: int | None = 0) -> Any:
    """New parameters; without a seed, their shapes alone."""
    draw, width = Draw(seed), config.width
    frames, rows, columns = config.box
    blocks = [{**{f"norm{i}": nn.norm_init(width, draw) for i in (1, 2, 3)},
               "space": nn.self_attention_init(width, draw), "time": nn.self_attention_init(width, draw),
               "mlp": nn.mlp_init(width, 4 * width, draw)} for _ in range(config.layers)]
    return {
        "boxes": nn.linear_init(config.channels * frames * rows * columns, width, draw, deviation=0.02),
        "positions": draw.normal((*config.boxes, width), 0.02), "blocks": blocks,
        "norm": nn.norm_init(width, draw),
        "head": nn.linear_init(width, config.classes, draw, deviation=0.02),
    }


def boxes(x: Tensor, box: tuple[int, int, int]) -> Tensor:
    """(B, C, F, H, W) -> (B, T, S, C * the box): T times, S places in each."""
    batch, channels, frames, height, width = x.shape
    f, h, w = box
    x = x.reshape(batch, channels, frames // f, f, height // h, h, width // w, w)
    return x.transpose(0, 2, 4, 6, 1, 3, 5, 7).reshape(batch, frames // f, -1, channels * f * h * w)


def along(params: Any, x: Tensor, heads: int) -> Tensor:
    """Attention along the axis before the last. Shapes: x[B, T, S, C] -> [B, T, S, C]."""
    batch, rows, time, width = x.shape
    return self_attention(params, x.reshape(batch * rows, time, width), heads).reshape(*x.shape)


def forward(params: Any, config: Config, film: Tensor) -> Tensor:
    """The score of each class. Shapes: film[B, C, frames, size, size] -> [B, classes]."""
    x = linear(params["boxes"], boxes(film, config.box)) + params["positions"]              # (B, T, S, C)
    for block in params["blocks"]:
        x = x + along(block["space"], layer_norm(block["norm1"], x), config.heads)
        turned = layer_norm(block["norm2"], x).transpose(0, 2, 1, 3)                        # (B, S, T, C)
        x = x + along(block["time"], turned, config.heads).transpose(0, 2, 1, 3)
        x = x + mlp(block["mlp"], layer_norm(block["norm3"], x))
    return linear(params["head"], layer_norm(params["norm"], x).mean((1, 2)))
