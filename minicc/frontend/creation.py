"""Tensors from nothing: constants, counts, and (eagerly, by numpy) random numbers.

    zeros(2, 3)   ->  broadcast_in_dim(0.0) shape=[2,3]      lazy: costs no memory until it must
    arange(4)     ->  iota axis=0 shape=[4] : i32
    rand(2, 3)    ->  a tensor with data, from a seeded numpy generator

In: shapes, as sizes or as one tuple. Out: tensors. Invariant: the same program run twice draws the same
numbers, unless it calls seed. Random numbers are drawn when the tensor is made, so never under a trace, where
they would be the same in every call; JAX and XLA have counter-based generators (threefry, philox) that can
run inside a program. Read next: nn.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minicc.errors import CompileError
from minicc.frontend import ops
from minicc.frontend.arrays import as_dtype
from minicc.frontend.primitives import as_integers, as_tensor
from minicc.frontend.scope import EAGER, current, fail
from minicc.frontend.shapes import broadcast
from minicc.frontend.tensor import Tensor

_generator = np.random.default_rng(0)


def full(shape: Any, value: float, dtype: Any = None) -> Tensor:
    """A tensor whose elements are all this number."""
    scalar = as_tensor(value, None if dtype is None else as_dtype(dtype))
    return broadcast(scalar, as_integers("full", shape))


def zeros(*shape: Any, dtype: Any = "f32") -> Tensor:
    """A tensor of zeros."""
    return full(as_integers("zeros", shape), 0, dtype)


def ones(*shape: Any, dtype: Any = "f32") -> Tensor:
    """A tensor of ones."""
    return full(as_integers("ones", shape), 1, dtype)


def arange(start: int, stop: int | None = None, step: int = 1) -> Tensor:
    """start, start + step, ... before stop, as i32; from 0 if only one number is given."""
    first, last, step = as_integers("arange", (0, start, step) if stop is None else (start, stop, step))
    if not step:
        fail("arange", "the step is 0", need="a step that leads somewhere")
    counts = ops.iota(len(range(first, last, step)))
    counts = counts if step == 1 else counts * step
    return counts if first == 0 else counts + first


def eye(size: int) -> Tensor:
    """The identity matrix."""
    row = arange(size)
    return ops.astype(row.unsqueeze(1) == row, "f32")


def seed(number: int) -> None:
    """Start the random numbers over."""
    global _generator
    _generator = np.random.default_rng([abs(part) for part in as_integers("seed", number)])


def rand(*shape: Any) -> Tensor:
    """Random numbers in [0, 1), evenly spread."""
    return Tensor(_generator.random(_drawable("rand", shape), np.float32))


def randn(*shape: Any) -> Tensor:
    """Random numbers with mean 0 and deviation 1, normally spread."""
    return Tensor(_generator.standard_normal(_drawable("randn", shape), np.float32))


def _drawable(op: str, shape: tuple) -> tuple[int, ...]:
    """The sizes, if numbers may be drawn for them here."""
    sizes = as_integers(op, shape)
    if current() is not EAGER:
        fail(op, "a traced function would draw the same numbers in every call", kind=CompileError,
             hint="draw outside, and pass the tensor in")
    return zeros(sizes).shape  # which are checked
