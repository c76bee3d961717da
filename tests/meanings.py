"""What a function of tensors means: its graph, evaluated in float64. Shared by the tests of the frontend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import minicc as mc
from minicc.frontend.pytree import unflatten
from minicc.graph.evaluate import evaluate


def meaning(function: Callable, *arrays: Any) -> Any:
    """The function's result for these arrays, as arrays: traced, and evaluated by plain numpy in float64."""
    made = mc.jit(lambda *tensors: function(*tensors))
    call = made.take(tuple(arrays), {})
    graph, hidden, structure = made.trace(call)
    inputs = [x.stored() for x in (*(x for _, x in call.leaves), *hidden)]
    return unflatten(structure, iter(evaluate(graph, inputs, dtype64=True)))


def same(got: Any, want: Any, tolerance: float = 1e-9) -> bool:
    """Whether arrays, or tuples of them, agree in shape, kind of dtype and value; NaN equals NaN."""
    if isinstance(want, tuple | list):
        return len(got) == len(want) and all(same(*pair, tolerance) for pair in zip(got, want, strict=True))
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape or _kind(got) != _kind(want):
        return False
    if _kind(want) != "f":
        return bool((got == want).all())
    largest = np.abs(want[np.isfinite(want)]).max(initial=1e-30)
    return bool(np.allclose(got, want, rtol=tolerance, atol=tolerance * largest, equal_nan=True))


def _kind(array: np.ndarray) -> str:
    return array.dtype.kind.replace("u", "i")
