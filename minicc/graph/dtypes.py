"""The element types: what they are called, how the host stores them, and how stored numbers become others.

    encode(np.float32([1.0, 3.14159]), BF16)    ->  uint16 [0x3f80, 0x4049], the bits of 1.0 and 3.140625
    decode(..., BF16)                           ->  float32 [1.0, 3.140625], which numpy computes on

Goes in: arrays. Comes out: arrays. numpy has no bf16, so the host stores its 16 bits as uint16, which no
other dtype uses; every other dtype is stored as numpy has it. Constants, inputs, outputs and buffers hold
stored arrays. Invariants: `encode` rounds to nearest even and keeps nan; from float to integer it goes
towards zero, saturates, and makes 0 of nan; from integer to narrower integer it keeps the low bits; to bf16
everything goes through f32. Arithmetic on 16-bit floats widens to f32, computes, and rounds once.

XLA, PyTorch and JAX have bf16 of ml_dtypes or their own; on hardware the rule above is what tensor cores and
MXUs do, and what vector units before bf16 arithmetic (TPU v5e) do too. Read next: ir.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class DType:
    """An element type; there is one object of each. `numpy` is how the host stores it."""

    name: str
    numpy: np.dtype
    kind: str  # "f" float, "i" integer, signed or not, "b" bool

    @property
    def itemsize(self) -> int:
        """Bytes per element on the host."""
        return self.numpy.itemsize

    @property
    def unsigned(self) -> bool:
        """Is this an integer without a sign?"""
        return self.kind == "i" and self.numpy.kind == "u"

    @property
    def narrow(self) -> bool:
        """Is this a number of less than 32 bits, which machines widen before they compute?"""
        return self.kind != "b" and self.itemsize < 4

    @property
    def per_word(self) -> int:
        """How many of them fill 32 bits."""
        return 4 // self.itemsize

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple:
        return _named, (self.name,)  # copies and pickles are the same object


F32 = DType("f32", np.dtype(np.float32), "f")
BF16 = DType("bf16", np.dtype(np.uint16), "f")
F16 = DType("f16", np.dtype(np.float16), "f")
I8 = DType("i8", np.dtype(np.int8), "i")
I16 = DType("i16", np.dtype(np.int16), "i")
I32 = DType("i32", np.dtype(np.int32), "i")
U8 = DType("u8", np.dtype(np.uint8), "i")
U32 = DType("u32", np.dtype(np.uint32), "i")
BOOL = DType("bool", np.dtype(np.bool_), "b")
DTYPES = {dtype.name: dtype for dtype in (F32, BF16, F16, I8, I16, I32, U8, U32, BOOL)}
STORED = {dtype.numpy: dtype for dtype in DTYPES.values()}  # which dtype a stored array is of


def _named(name: str) -> DType:
    return DTYPES[name]


def decode(array: np.ndarray, dtype: DType) -> np.ndarray:
    """A stored array as one that numpy computes on: the f32 values of bf16, everything else as it is.

    >>> decode(np.array([0x3F80, 0xFF80], np.uint16), BF16).tolist()
    [1.0, -inf]
    """
    if dtype is not BF16 or array.dtype != BF16.numpy:
        return array
    return np.asarray(np.left_shift(array, 16, dtype=np.uint32)).view(np.float32)


def encode(array: Any, dtype: DType) -> np.ndarray:
    """A computed array as a dtype stores it, converted by the rules at the top of this file.

    >>> encode(np.array([2.9, -2.9, 1e10, np.nan]), I8).tolist(), encode(np.array([257, -1]), U8).tolist()
    ([2, -2, 127, 0], [1, 255])
    """
    array = np.asarray(array)
    with np.errstate(all="ignore"):  # what does not fit f16 is infinite
        if dtype is BF16:
            return _rounded(array.astype(np.float32))
        if array.dtype.kind == "f" and dtype.kind == "i":
            limits = np.iinfo(dtype.numpy)
            # in float64, which holds all 32 bits: in float32 the upper limit would round up, out of range
            array = np.clip(np.nan_to_num(array.astype(np.float64), nan=0.0), limits.min, limits.max)
        return array.astype(dtype.numpy, copy=False)


def widen(array: np.ndarray) -> np.ndarray:
    """A stored array as one to compute on by the rule for 16-bit floats: those in f32, others as they are."""
    if array.dtype == F16.numpy:
        return array.astype(np.float32)
    return decode(array, BF16)


def _rounded(array: np.ndarray) -> np.ndarray:
    """The bits of the nearest bf16 of each float32; halfway, of the even one."""
    bits = array.view(np.uint32)
    rounded = bits >> 16 & 1
    rounded += np.uint32(0x7FFF)
    rounded += bits
    rounded >>= 16
    if (nans := np.isnan(array)).any():
        rounded = np.where(nans, bits >> 16 | 0x40, rounded)
    return rounded.astype(np.uint16)
