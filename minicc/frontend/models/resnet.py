"""ResNet: convolutions that learn what to add to their input, so that deep networks can be trained.

    params, state = init(TINY)                                  state: the norms' running statistics
    scores, state = forward(params, state, TINY, images, training=True)     f32[N,C,H,W] -> f32[N,classes]

Goes in: pictures, and the statistics so far. Comes out: a score for each class, and the statistics after
these pictures. Source: K. He et al., "Deep residual learning for image recognition", arXiv 1512.03385, table
1; the stem for small pictures, one 3 x 3 convolution without pooling, is that of its section 4.2. Read next:
gpt2.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minicc.frontend import nn
from minicc.frontend.convolution import max_pool2d
from minicc.frontend.nn import Draw, batch_norm, conv, linear
from minicc.frontend.tensor import Tensor


@dataclass(frozen=True)
class Config:
    """The sizes. blocks, widths: of each stage; the first block of each but the first halves the picture."""

    blocks: tuple[int, ...] = (2, 2, 2, 2)
    widths: tuple[int, ...] = (64, 128, 256, 512)
    channels: int = 3
    classes: int = 1000
    large: bool = True  # pictures of some 200 pixels: the stem makes a quarter of them

    def __post_init__(self) -> None:
        nn.require(len(self.blocks) == len(self.widths) > 0, "the stages do not pair up",
                   f"blocks {self.blocks}, widths {self.widths}", "a number of each for every stage")


RESNET_18 = Config()  # 11,689,512 parameters
RESNET_34 = Config(blocks=(3, 4, 6, 3))  # 21,797,672
TINY = Config(blocks=(1, 1), widths=(16, 32), channels=1, classes=10, large=False)


def plan(config: Config) -> list[tuple[int, int, int]]:
    """(inputs, outputs, stride) of each block."""
    rows, inputs = [], config.widths[0]
    for stage, (count, width) in enumerate(zip(config.blocks, config.widths, strict=True)):
        for block in range(count):
            rows.append((inputs, width, 2 if stage and not block else 1))
            inputs = width
    return rows


def conv_norm_init(inputs: int, outputs: int, window: int, draw: Draw) -> tuple[Any, Any]:
    """A convolution without bias and the norm after it; the norm's statistics."""
    norm, state = nn.batch_norm_init(outputs, draw)
    return {"conv": nn.conv_init(inputs, outputs, (window, window), draw, bias=False), "norm": norm}, state


def init(config: Config, seed: int | None = 0) -> tuple[Any, Any]:
    """New parameters and statistics; without a seed, their shapes alone."""
    draw, made = Draw(seed), {}
    made["stem"] = conv_norm_init(config.channels, config.widths[0], 7 if config.large else 3, draw)
    for i, (inputs, outputs, stride) in enumerate(plan(config)):
        made[f"block{i}.1"] = conv_norm_init(inputs, outputs, 3, draw)
        made[f"block{i}.2"] = conv_norm_init(outputs, outputs, 3, draw)
        if stride > 1 or inputs != outputs:
            made[f"block{i}.past"] = conv_norm_init(inputs, outputs, 1, draw)
    params = {name: param for name, (param, _) in made.items()}
    params["head"] = nn.linear_init(config.widths[-1], config.classes, draw)
    return params, {name: state for name, (_, state) in made.items()}


def forward(params: Any, state: Any, config: Config, x: Tensor, training: bool = False) -> tuple[Tensor, Any]:
    """The score of each class, and the statistics after this batch.

    Shapes: x[N, C, H, W] -> [N, classes].
    """
    new = dict(state)

    def layer(name: str, x: Tensor, stride: int = 1) -> Tensor:
        window = params[name]["conv"]["w"].shape[-1]
        y = conv(params[name]["conv"], x, stride, padding=window // 2)
        y, new[name] = batch_norm(params[name]["norm"], state[name], y, training)
        return y

    x = layer("stem", x, 2 if config.large else 1).relu()
    x = max_pool2d(x, 3, stride=2, padding=1) if config.large else x                        # (N, W0, H, W)
    for i, (_, _, stride) in enumerate(plan(config)):
        y = layer(f"block{i}.2", layer(f"block{i}.1", x, stride).relu())
        past = f"block{i}.past"
        x = (y + (layer(past, x, stride) if past in params else x)).relu()
    return linear(params["head"], x.mean((2, 3))), new
