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

from minicc.errors import CompileError, ShapeError
from minicc.frontend import ops
from minicc.frontend.arrays import as_dtype
from minicc.frontend.primitives import as_integers, as_tensor, node
from minicc.frontend.scope import EAGER, current, user_line
from minicc.frontend.shapes import broadcast
from minicc.frontend.tensor import Tensor

_generator = np.random.default_rng(0)


def full(shape: Any, value: float, dtype: Any = None) -> Tensor:
    """A tensor whose elements are all this number."""
    sizes = _sizes("full", (shape,))
    return broadcast(as_tensor(value, None if dtype is None else as_dtype(dtype)), sizes)


def zeros(*shape: Any, dtype: Any = "f32") -> Tensor:
    """A tensor of zeros."""
    return full(_sizes("zeros", shape), 0, dtype)


def ones(*shape: Any, dtype: Any = "f32") -> Tensor:
    """A tensor of ones."""
    return full(_sizes("ones", shape), 1, dtype)


def arange(start: int, stop: int | None = None, step: int = 1) -> Tensor:
    """start, start + step, ... before stop, as i32; from 0 if only one number is given."""
    first, last = (0, start) if stop is None else (start, stop)
    first, last, step = as_integers("arange", (first, last, step))
    if not step:
        raise ShapeError("arange", "the step is 0", need="a step that leads somewhere", at=user_line())
    count = max(0, -(-(last - first) // step))
    result = node("iota", axis=0, shape=(count,), dtype="i32")
    result = result if step == 1 else result * step
    return result if first == 0 else result + first


def eye(size: int) -> Tensor:
    """The identity matrix."""
    row = arange(size)
    return ops.astype(row.unsqueeze(1) == row, "f32")


def seed(number: int) -> None:
    """Start the random numbers over."""
    global _generator
    _generator = np.random.default_rng(as_integers("seed", number))


def rand(*shape: Any) -> Tensor:
    """Random numbers in [0, 1), evenly spread."""
    return Tensor(_drawing("rand").random(_sizes("rand", shape), np.float32))


def randn(*shape: Any) -> Tensor:
    """Random numbers with mean 0 and deviation 1, normally spread."""
    return Tensor(_drawing("randn").standard_normal(_sizes("randn", shape), np.float32))


def _drawing(op: str) -> np.random.Generator:
    if current() is not EAGER:
        raise CompileError(op, "a traced function would draw the same numbers in every call", at=user_line(),
                           hint="draw outside, and pass the tensor in")
    return _generator


def _sizes(op: str, shape: tuple) -> tuple[int, ...]:
    sizes = as_integers(op, shape)
    if any(size < 0 for size in sizes):
        raise ShapeError(op, "a size is negative", got=list(sizes), need="0 or more", at=user_line())
    return sizes
