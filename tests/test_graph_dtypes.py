"""Dtypes: how numbers are stored, rounded, wrapped and cut off. Expected bits are of IEEE 754 and by hand."""

from __future__ import annotations

import copy
import math
import pickle
import struct

import numpy as np
import pytest

from minicc.graph.dtypes import (
    BF16,
    BOOL,
    DTYPES,
    F16,
    F32,
    I8,
    I16,
    I32,
    STORED,
    U8,
    U32,
    decode,
    encode,
)


def nearest_bf16(number: float) -> int:
    """The bits of the nearest bf16, ties to even, by comparing distances to the two neighbours."""
    below = struct.unpack("<I", struct.pack("<f", number))[0] >> 16
    low, high = (struct.unpack("<f", struct.pack("<I", bits << 16))[0] for bits in (below, below + 1))
    if math.isinf(high):
        high = math.copysign(2.0**128, number)  # the grid goes on as if there were one more binade
    to_low, to_high = abs(number - low), abs(high - number)
    return below + (to_high < to_low or (to_high == to_low and below % 2 == 1))


def test_each_dtype_is_stored_in_a_numpy_dtype_of_its_own():
    assert len(STORED) == len(DTYPES) == 9
    assert [dtype.itemsize for dtype in DTYPES.values()] == [4, 2, 2, 1, 2, 4, 1, 4, 1]
    assert [dtype.name for dtype in DTYPES.values() if dtype.unsigned] == ["u8", "u32"]
    assert [dtype.name for dtype in DTYPES.values() if dtype.narrow] == ["bf16", "f16", "i8", "i16", "u8"]


def test_a_copy_of_a_dtype_is_the_dtype():
    assert copy.deepcopy(BF16) is pickle.loads(pickle.dumps(BF16)) is copy.copy(BF16) is BF16


def test_bf16_is_the_nearest_and_the_even_one_halfway():
    random_bits = np.random.default_rng(0).integers(0, 2**32, 2000, np.uint32)
    halfway = np.uint32([0x3F808000, 0x3F818000, 0xBF808000, 0x00008000, 0x00018000, 0x7F7F7FFF, 0x7F7F8000])
    numbers = np.concatenate([random_bits, halfway, halfway + 1, halfway - 1]).view(np.float32)
    numbers = numbers[np.isfinite(numbers)]
    assert encode(numbers, BF16).tolist() == [nearest_bf16(float(x)) for x in numbers]


def test_every_bf16_but_nan_comes_back_from_its_value():
    bits = np.arange(2**16, dtype=np.uint16)
    values = decode(bits, BF16)
    again = encode(values, BF16)
    assert np.array_equal(again[~np.isnan(values)], bits[~np.isnan(values)])
    assert np.isnan(decode(again, BF16))[np.isnan(values)].all()


def test_special_numbers_survive_every_float():
    numbers = np.float32([np.inf, -np.inf, 0.0, -0.0, np.nan])
    for dtype in (F32, BF16, F16):
        again = decode(encode(numbers, dtype), dtype)
        assert again.tolist()[:4] == [np.inf, -np.inf, 0.0, 0.0] and np.isnan(again[4])
        assert np.signbit(again[:4]).tolist() == [False, True, False, True]


def test_what_is_too_large_for_a_float_is_infinite():
    assert decode(encode(np.float32([65519, 65520, -1e6]), F16), F16).tolist() == [65504, np.inf, -np.inf]
    assert decode(encode(np.float32(3.4e38), BF16), BF16) == np.inf


@pytest.mark.parametrize(("dtype", "low", "high"), [
    (I8, -128, 127), (I16, -2**15, 2**15 - 1), (I32, -2**31, 2**31 - 1), (U8, 0, 255), (U32, 0, 2**32 - 1),
])
def test_floats_become_integers_towards_zero_saturating_and_nan_is_zero(dtype, low, high):
    given = np.float32([2.9, -2.9, 1e10, -1e10, np.inf, -np.inf, np.nan, -0.0])
    expected = [2, max(-2, low), high, low, high, low, 0, 0]
    assert encode(given, dtype).tolist() == expected
    assert encode(given.astype(float), dtype).tolist() == expected


@pytest.mark.parametrize(("dtype", "expected"), [
    (I8, [0, -1, 127, -128, 0]), (U8, [0, 255, 127, 128, 0]), (U32, [0, 2**32 - 1, 127, 2**32 - 128, 256]),
    (BOOL, [False, True, True, True, True]), (F32, [0.0, -1.0, 127.0, -128.0, 256.0]),
])
def test_integers_keep_their_low_bits(dtype, expected):
    assert encode(np.int32([0, -1, 127, -128, 256]), dtype).tolist() == expected


def test_scalars_and_empty_arrays_keep_their_shape():
    for dtype in DTYPES.values():
        for shape in ((), (0,), (2, 0)):
            stored = encode(np.zeros(shape), dtype)
            assert (stored.dtype, stored.shape, decode(stored, dtype).shape) == (dtype.numpy, shape, shape)
