"""The values of a random program: how large each may be, whether it is exact, and which go with which.

    pool.pick([F32, I8])         ->  Item(value, bound=2.0, grid=0.125)     a multiple of 1/8 in -2..2
    pool.mate(item)              ->  one to add to it
    pool.keep(their sum, 4, 1/8) ->  an item of its own from now on

Goes in: values as they are made. Comes out: operands. Invariants: an item is exact, and has a grid, if every
right way to compute it gives the same bits: it is a multiple of the grid, and its dtype has the digits for
it; the others were rounded. A rounded f32 stays small, so that its error does; a rounded 16-bit float may be
moved but not computed with, so that its error is one rounding. This is interval arithmetic with one number a
side; compilers keep such facts for every integer (LLVM's known bits). Read next: random_graphs.py.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minicc.graph.dtypes import BF16, BOOL, DTYPES, F16, F32, I32, DType, encode
from minicc.graph.infer import build, constant
from minicc.graph.ir import Builder, Type, Value

MOST_ELEMENTS = 4000
LARGEST = 4.0  # a rounded f32 above this is squashed by tanh before anything else is done with it ...
LARGEST_EXACT = 2048.0  # ... and an exact one above this
LARGEST_NARROW = 2.0**15  # near the largest f16; 16-bit floats above this are not made
DIGITS = {F32: 24, F16: 11, BF16: 8}  # binary ones
NUMBERS = [dtype for dtype in DTYPES.values() if dtype is not BOOL]


@dataclass(frozen=True)
class Item:
    """A value, a bound on its magnitude, and what it is a multiple of; a grid of 0: it was rounded."""

    value: Value
    bound: float
    grid: float

    dtype = property(lambda self: self.value.dtype)
    shape = property(lambda self: self.value.shape)
    size = property(lambda self: self.value.type.elements)

    def serves(self, dtypes: Sequence[DType], exact: bool = False, most: float = math.inf) -> bool:
        """Whether it can be computed with."""
        held = self.grid > 0 or self.dtype is F32 and not exact
        return held and self.dtype in dtypes and self.bound <= most


def random_array(type: Type, seed: int = 0) -> np.ndarray:
    """Multiples of 1/8 in -2..2, integers in -3..3 or 0..6, or bools."""
    random_state, dtype = np.random.default_rng(seed), type.dtype
    if dtype.kind == "f":
        return encode(random_state.integers(-16, 17, type.shape) / 8, dtype)
    if dtype is BOOL:
        return random_state.integers(0, 2, type.shape).astype(np.bool_)
    return (random_state.integers(-3, 4, type.shape) + 3 * dtype.unsigned).astype(dtype.numpy)


def small(value: Value) -> Item:
    """The item of a value that `random_array` gave."""
    return Item(value, 2, 1 / 8) if value.dtype.kind == "f" else Item(value, 6, 1)


class Pool:
    """What has been made so far, and how to go on with it."""

    def __init__(self, choose: random.Random, types: Sequence[Type]) -> None:
        self.choose, self.builder = choose, Builder()
        self.inputs = [self.builder.parameter(f"x{i}", type) for i, type in enumerate(types)]
        self.items = list(map(small, self.inputs))

    def build(self, op: str, *operands: Item, **attrs: Any) -> Value:
        """The value of an op."""
        return build(self.builder, op, tuple(item.value for item in operands), attrs)

    def keep(self, value: Value, bound: float, grid: float) -> Item:
        """A new item: exact if its dtype has the digits, and squashed if it is too large to go on with."""
        dtype, narrow = value.dtype, value.dtype in (F16, BF16)
        if dtype.kind == "i":
            grid, bound = 1, min(bound, np.iinfo(dtype.numpy).max + 1)
        elif dtype.kind == "f" and bound > grid * 2 ** DIGITS[dtype]:
            grid = 0
        item = Item(value, bound, grid)
        if dtype is F32 and bound > (LARGEST_EXACT if grid else LARGEST):
            item = Item(self.build("tanh", item), 1, 0)
        if value.type.elements <= MOST_ELEMENTS and not (narrow and bound > LARGEST_NARROW):
            self.items.append(item)
        return item

    def pick(self, dtypes: Sequence[DType], exact: bool = False, most: float = math.inf) -> Item:
        """A random value to compute with, newer ones more often; of f32 there is always one, an input."""
        dtype = F32 if F32 in dtypes and self.choose.random() < 0.4 else self.choose.choice(dtypes)
        fit = [item for item in self.items if item.serves([dtype], exact, most)]
        if not fit:
            source = self.choose.choice([item for item in self.items if item.serves([F32, I32], True, 6)])
            bound = math.inf if dtype.unsigned else source.bound  # i32 below 0 wraps around
            return self.keep(self.build("convert", source, dtype=dtype), bound, source.grid)
        return self.choose.choice(fit[-6:] if self.choose.random() < 0.7 else fit)

    def moved(self) -> Item:
        """A random value to be moved about, rounded or not."""
        return self.choose.choice(self.items[-8:] if self.choose.random() < 0.7 else self.items)

    def mate(self, item: Item, exact: bool = False, most: float = math.inf, any: bool = False) -> Item:
        """A value to go with another in an elementwise op: of its dtype and its shape, or a scalar."""
        fit = [other for other in self.items if other.shape in ((), item.shape) and other.dtype is item.dtype
               and (any or other.serves([item.dtype], exact, most))]
        return self.choose.choice(fit) if fit and self.choose.random() < 0.9 else self.scalar(item.dtype)

    def scalar(self, dtype: DType) -> Item:
        """A small number."""
        number = {"f": self.choose.choice([0.0, -0.0, 1.0, 0.5, -1.25]), "b": self.choose.random() < 0.5,
                  "i": self.choose.randint(0 if dtype.unsigned else -2, 2)}[dtype.kind]
        return Item(constant(self.builder, number, dtype), 2, 0.25)

    def fitted(self, item: Item, shape: Sequence[int]) -> Item:
        """The elements of a value in another shape: over and over if need be, and the rest cut off."""
        source, wanted = item if item.size else self.scalar(item.dtype), math.prod(shape)
        times = -(-wanted // source.size)
        value = self.build("reshape", source, shape=(1, source.size))
        for op, attrs in (("broadcast_in_dim", {"shape": (times, source.size), "dims": (0, 1)}),
                          ("reshape", {"shape": (times * source.size,)}),
                          ("slice", {"start": (0,), "limit": (wanted,)}), ("reshape", {"shape": shape})):
            value = build(self.builder, op, (value,), attrs)
        return Item(value, source.bound, source.grid)

    def some(self, rank: int, chance: float = 0.5) -> list[int]:
        """Some of the axes."""
        return [axis for axis in range(rank) if self.choose.random() < chance]
