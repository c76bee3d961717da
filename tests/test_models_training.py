"""Each model, tiny, with its gradient: through kernels of two sizes, on both devices, against float64."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from test_models import MODELS

import minicc as mc
from minicc import Tensor
from minicc.frontend.pytree import flatten
from minicc.graph.evaluate import evaluate
from minicc.kernel.cost import Target
from minicc.kernel.ir import AxisKind, Kernel
from minicc.kernel.tile import tile

pytestmark = pytest.mark.slow


def halved(kernel: Kernel, target: Target) -> Kernel:
    """The compiler's tiles, cut in two along every axis that may be cut: most have a remainder.

    A convolution keeps its own, whose pixels fit together.
    """
    tiled = tile(kernel, target)
    if any(index.terms[1:] for operand in kernel.inputs for index in operand.index):
        return tiled
    free = [axis for axis in tiled.axes if axis.kind is not AxisKind.WHOLE]
    return tiled.tiled({axis.name: axis.block // 2 + 1 for axis in free if axis.block > 2})


TILES = {"our tiles": nullcontext, "halved": lambda: mc.using(tile=halved)}


@pytest.mark.parametrize("device", ["gpu", "tpu"])
@pytest.mark.parametrize("tiles", TILES)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_and_its_gradient_are_those_of_float64(name: str, tiles: str, device: str):
    function, params, inputs, _ = MODELS[name]()

    def loss(params: Any, *inputs: Tensor) -> Tensor:
        y = flatten(function(params, *inputs))[0][0][1]
        return (y * y * (1.5 + (mc.arange(y.size).reshape(y.shape) * 0.37).sin())).sum()

    with TILES[tiles]():
        step = mc.compile(mc.value_and_grad(loss), params, *map(Tensor, inputs), device=device)
    arrays = [x.numpy() for _, x in flatten(params)[0]]
    given = [*arrays, *inputs, *(x.numpy() for x in step.hidden)]
    wanted = evaluate(step.raw_graph, given, dtype64=True)
    found = [x.numpy() for _, x in flatten(step(params, *map(Tensor, inputs)))[0]]
    scale = max(np.abs(want).max() for want in wanted)
    for got, want in zip(found, wanted, strict=True):
        assert got.shape == want.shape
        assert np.abs(got - want).max() < 1e-4 * max(np.abs(want).max(), 1e-3 * scale)
