"""What parameters begin as: numbers drawn by one of the usual rules, or shapes alone.

    draw = Draw(seed=0)
    draw.normal((64, 10), 0.02)     a tensor with data: f32, drawn as f32
    Draw(None).normal((64, 10))     a lazy tensor of zeros, which takes no memory: its shape is what one wants

In: shapes, axes of weights in the order (inputs, outputs), of convolutions' (outputs, inputs, *window). Out:
tensors. Invariant: one seed gives one set of parameters, whatever the device. Numbers are drawn by numpy when
the tensor is made, never in a program; JAX draws them inside programs, from keys, as random.py does too.
There is no orthogonal rule: it needs a QR decomposition, which has no place in this compiler. Read next:
nn.py.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from minicc.errors import CompileError, Loc
from minicc.frontend.creation import zeros
from minicc.frontend.primitives import as_integer, as_integers
from minicc.frontend.pytree import flatten
from minicc.frontend.scope import EAGER, current, fail, located
from minicc.frontend.tensor import Tensor

Shape = tuple[int, ...]
_HERE = str(Path(__file__).parent)  # the models too: it is their users who choose a configuration


class Draw:
    """Draws parameters from a numpy generator; from no seed, makes their shapes."""

    def __init__(self, seed: int | None = 0) -> None:
        if current() is not EAGER:
            fail("init", "a traced function would draw the same numbers in every call", kind=CompileError,
                 hint="make the parameters outside, and pass them in")
        self.generator = None if seed is None else np.random.default_rng(as_integer("seed", seed, 0))

    def _made(self, shape: Shape, numbers: Callable[[np.random.Generator], np.ndarray]) -> Tensor:
        if min(as_integers("init", shape), default=0) < 0:
            fail("init", "a size is negative", list(shape), "sizes of 0 or more")
        try:
            return zeros(*shape) if self.generator is None else Tensor._holding(numbers(self.generator))
        except (MemoryError, ValueError) as error:
            fail("init", "this computer's own memory is too small", error, "", "Draw(None): shapes alone",
                 CompileError)

    def full(self, shape: Shape, value: float) -> Tensor:
        """The same number everywhere: 0 for biases, 1 for the scales of norms."""
        return self._made(shape, lambda random: np.full(shape, value, np.float32))

    def normal(self, shape: Shape, deviation: float = 1.0) -> Tensor:
        """Normally spread around 0."""
        return self._made(shape, lambda random: _times(random.standard_normal(shape, np.float32), deviation))

    def uniform(self, shape: Shape, bound: float = 1.0) -> Tensor:
        """Evenly spread over -bound .. bound."""
        return self._made(shape, lambda random: _times(random.random(shape, np.float32) * 2 - 1, bound))

    def truncated(self, shape: Shape, deviation: float = 1.0) -> Tensor:
        """Normally spread, with what lies beyond two deviations drawn again."""
        def numbers(random: np.random.Generator) -> np.ndarray:
            found = random.standard_normal(shape, np.float32)
            while (far := np.abs(found) > 2).any():
                found[far] = random.standard_normal(int(far.sum()), np.float32)
            return _times(found, deviation)
        return self._made(shape, numbers)

    def xavier(self, shape: Shape) -> Tensor:
        """Uniform, of variance 2 / (inputs + outputs): keeps both the signal and the gradient in scale.

        Source: X. Glorot and Y. Bengio, "Understanding the difficulty of training deep feedforward neural
        networks", 2010, equation 16.
        """
        return self.uniform(shape, math.sqrt(6 / sum(fans(shape))))

    def kaiming(self, shape: Shape) -> Tensor:
        """Normal, of variance 2 / inputs: keeps relu's outputs in scale.

        Source: K. He et al., "Delving deep into rectifiers", arXiv 1502.01852, equation 10.
        """
        return self.normal(shape, math.sqrt(2 / fans(shape)[0]))


def _times(numbers: np.ndarray, factor: float) -> np.ndarray:
    """In place: a large model has room for its weights once."""
    return np.multiply(numbers, np.float32(factor), out=numbers)


def fans(shape: Shape) -> tuple[int, int]:
    """How many inputs an output of these weights has, and how many outputs an input reaches.

    >>> fans((64, 10)), fans((8, 3, 5, 5))
    ((64, 10), (75, 200))
    """
    if len(shape) < 2:
        fail("init", "a vector has no inputs and outputs", list(shape), "rank 2 or more")
    if len(shape) == 2:
        return shape[0], shape[1]
    window = math.prod(shape[2:])
    return shape[1] * window, shape[0] * window


def require_divides(parts: str, part: int, wholes: str, whole: int) -> None:
    """Complain, as `require` does, unless a whole is a multiple of a part."""
    require(part > 0 and whole > 0 and whole % part == 0, f"the {parts} do not divide the {wholes}",
            f"{part} and {whole}", f"a multiple of the {parts}")


def require(fits: bool, what: str, got: object, need: object, stage: str = "config") -> None:
    """Complain, at the line that made a model's configuration or called it, unless something fits."""
    if fits:
        return
    frame = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith((_HERE, "<string>", dataclasses.__file__)):
        frame = frame.f_back
    with located((Loc(frame.f_code.co_filename, frame.f_lineno),)):
        fail(stage, what, got, need)


def parameter_count(params: Any) -> int:
    """How many numbers a tree of tensors holds; computes nothing.

    >>> parameter_count({"w": Draw(None).normal((50257, 768)), "b": Draw(None).full((768,), 0)})
    38598144
    """
    return sum(x.size for _, x in flatten(params)[0])
