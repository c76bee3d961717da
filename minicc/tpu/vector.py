"""What the vector units compute: a table from op to numpy function, and which of the 8x128 lanes are known.

    ALU["vadd.f32"](a, b)   ->  Lanes(data=a.data + b.data, known=a.known & b.known)

In the manner of a memory sanitizer, a register carries for each lane whether it was ever written: `known`,
one Python integer of 1024 bits, sublane by sublane. Garbage may flow through lane-by-lane ops unharmed (a
tile's tail beside its valid part); whoever makes a lane *visible* (a sum across lanes, a matrix product, a
DMA out) faults, and `origin` names where the first garbage came from. A select takes the bits of the side
it takes.

Invariants: data is (8, 128) of 32 bits, or bool for a mask; no function changes its operands. f32 as in
IEEE 754, NaN and infinities included. A real chip has no such bits, and computes on the garbage; LLVM's
MemorySanitizer is the paper to read (Stepanov and Serebryany, 2015). What to read next: units.py.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from minicc.errors import MachineFault
from minicc.tpu.isa import COMPARISONS
from minicc.tpu.machine import LANES, SUBLANES

TILE = (SUBLANES, LANES)
ROW_KNOWN = (1 << LANES) - 1
ALL_KNOWN = (1 << SUBLANES * LANES) - 1
DTYPES = {"f32": np.float32, "s32": np.int32, "u32": np.uint32}
INT_MIN, INT_MAX = -(2**31), 2**31 - 1


class Lanes(NamedTuple):
    """The contents of a vector or mask register."""

    data: np.ndarray
    known: int = ALL_KNOWN
    origin: str = ""


def wrap(value: int) -> int:
    """An integer as 32 bits, two's complement, hold it."""
    return (value - INT_MIN) % 2**32 + INT_MIN


def splat(value: int | float) -> Lanes:
    """A number in every lane: a float as f32, an integer as s32."""
    return Lanes(np.full(TILE, value, np.float32) if isinstance(value, float)
                 else np.full(TILE, wrap(value), np.int32))


def to_bits(flags: np.ndarray) -> int:
    """(8, 128) booleans -> the integer that has them as bits."""
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


def to_flags(bits: int) -> np.ndarray:
    """The inverse of `to_bits`."""
    raw = np.frombuffer(bits.to_bytes(SUBLANES * LANES // 8, "little"), np.uint8)
    return np.unpackbits(raw, bitorder="little").reshape(TILE).astype(bool)


def move(lanes: Lanes, permute: Callable[[np.ndarray], np.ndarray]) -> Lanes:
    """Move lanes about; whether they are known moves with them."""
    known = lanes.known
    if known != ALL_KNOWN:
        known = to_bits(permute(to_flags(known)))
    return Lanes(permute(lanes.data), known, lanes.origin)


def require_known(lanes: Lanes, rows: int = SUBLANES) -> None:
    """The first `rows` sublanes are about to become visible. Raises: MachineFault if a lane is garbage."""
    need = (1 << rows * LANES) - 1
    if lanes.known & need == need:
        return
    first = next(i for i in range(rows * LANES) if not lanes.known >> i & 1)
    where = f"sublane {first // LANES}, lane {first % LANES} ({lanes.origin or 'never written'})"
    raise MachineFault("", "uninitialised read", got=f"garbage in {where}",
                       need="written lanes, or a mask over the others")


def _unary(function: Callable, dtype: type = np.float32) -> Callable[..., Lanes]:
    return lambda a: Lanes(function(a.data.view(dtype)), a.known, a.origin)


def _binary(function: Callable, dtype: type) -> Callable[..., Lanes]:
    def apply(a: Lanes, b: Lanes) -> Lanes:
        result = function(a.data.view(dtype), b.data.view(dtype))
        return Lanes(result, a.known & b.known, a.origin or b.origin)
    return apply


def _mask(function: Callable) -> Callable[..., Lanes]:
    return lambda a, b: Lanes(function(a.data, b.data), a.known & b.known, a.origin or b.origin)


def select(mask: Lanes, a: Lanes, b: Lanes) -> Lanes:
    """mask ? a : b, lane by lane; a lane is known if the mask is and the side taken is."""
    data = np.where(mask.data, a.data.view(np.uint32), b.data.view(np.uint32))
    if mask.known & a.known & b.known == ALL_KNOWN:
        return Lanes(data)
    pick = to_bits(mask.data)
    known = mask.known & ((pick & a.known) | (~pick & b.known))
    return Lanes(data, known, mask.origin or a.origin or b.origin)


@cache
def rectangle(rows: int, columns: int) -> Lanes:
    """The mask of the first rows and columns."""
    sublane, lane = np.indices(TILE)
    return Lanes((sublane < rows) & (lane < columns))


@cache
def prefix(count: int) -> Lanes:
    """The mask of the first `count` lanes, row after row."""
    return Lanes(np.arange(SUBLANES * LANES).reshape(TILE) < count)


def to_int(x: np.ndarray) -> np.ndarray:
    """f32 -> s32 towards zero; beyond the ends it saturates, and NaN is 0 (as XLA defines it)."""
    return np.clip(np.nan_to_num(np.trunc(x.astype(np.float64))), INT_MIN, INT_MAX).astype(np.int32)


def round_bf16(x: np.ndarray) -> np.ndarray:
    """f32 -> the 16 bits of the nearest bf16, ties to even."""
    bits = x.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(x), 0x7FC0, rounded).astype(np.uint16)


def packed_rows(data: np.ndarray) -> np.ndarray:
    """The 16 rows of a packed register as f32: row 2s is the low half of sublane s, 2s + 1 the high."""
    words = data.view(np.uint32)
    return np.stack((words << 16, words & 0xFFFF0000), axis=1).reshape(2 * SUBLANES, LANES).view(np.float32)


def _pack(a: Lanes, b: Lanes) -> Lanes:
    rows = round_bf16(np.concatenate((a.data.view(np.float32), b.data.view(np.float32)))).astype(np.uint32)
    known = np.concatenate((to_flags(a.known), to_flags(b.known)))
    return Lanes(rows[0::2] | rows[1::2] << 16, to_bits(known[0::2] & known[1::2]), a.origin or b.origin)


def _unpack(half: int) -> Callable[..., Lanes]:
    rows = slice(half * SUBLANES, (half + 1) * SUBLANES)
    return lambda a: Lanes(packed_rows(a.data)[rows], to_bits(np.repeat(to_flags(a.known), 2, axis=0)[rows]),
                           a.origin)


_ARITHMETIC = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
_COMPARE = {name: getattr(operator, name) for name in COMPARISONS}

ALU: dict[str, Callable[..., Lanes]] = {
    **{f"v{name}.{t}": _binary(f, DTYPES[t]) for name, f in _ARITHMETIC.items() for t in ("f32", "s32")},
    **{f"vcmp.{name}.{t}": _binary(f, DTYPES[t]) for name, f in _COMPARE.items() for t in ("f32", "s32")},
    "vand.u32": _binary(np.bitwise_and, np.uint32),
    "vor.u32": _binary(np.bitwise_or, np.uint32),
    "vxor.u32": _binary(np.bitwise_xor, np.uint32),
    "vshll.u32": _binary(lambda x, n: np.where(n < 32, x << (n & 31), 0).astype(np.uint32), np.uint32),
    "vshrl.u32": _binary(lambda x, n: np.where(n < 32, x >> (n & 31), 0).astype(np.uint32), np.uint32),
    "vshra.s32": _binary(lambda x, n: x >> np.clip(n, 0, 31), np.int32),
    "vmov": lambda a: a,
    "vabs.f32": _unary(np.abs),
    "vfloor.f32": _unary(np.floor),
    "vceil.f32": _unary(np.ceil),
    "vcvt.s32.f32": _unary(lambda x: x.astype(np.float32), np.int32),
    "vcvt.f32.s32": _unary(to_int),
    "vsplat": splat,
    "vlaneseq": lambda: Lanes(np.indices(TILE, np.int32)[1]),
    "vsubseq": lambda: Lanes(np.indices(TILE, np.int32)[0]),
    "vrot.slane": lambda a, n: move(a, lambda x: np.roll(x, n, axis=0)),
    "vpack.bf16": _pack,
    "vunpack.lo.bf16": _unpack(0),
    "vunpack.hi.bf16": _unpack(1),
    "vsel": select,
    "vcmask": rectangle,
    "vcmask.linear": prefix,
    "vmand": _mask(np.logical_and),
    "vmor": _mask(np.logical_or),
    "vmnot": lambda a: Lanes(~a.data, a.known, a.origin),
}

EUP: dict[str, Callable[..., Lanes]] = {
    "vpow2": _unary(np.exp2),
    "vlog2": _unary(np.log2),
    "vtanh": _unary(np.tanh),
    "vrcp": _unary(np.reciprocal),
    "vrsqrt": _unary(lambda x: np.float32(1) / np.sqrt(x)),
}


def _across(reduce: Callable, dtype: type) -> Callable[..., Lanes]:
    """A row's total in all its lanes.

    A row that begins with garbage lies behind the block, and stays garbage; one that begins well and ends in
    garbage lacks a mask, and faults.
    """
    def apply(a: Lanes) -> Lanes:
        known = a.known
        for sublane in range(SUBLANES) if known != ALL_KNOWN else ():
            row = ROW_KNOWN << sublane * LANES
            if known >> sublane * LANES & 1:
                require_known(Lanes(a.data, known | ALL_KNOWN ^ row, a.origin))
            known &= ~row if known & row != row else ALL_KNOWN
        total = reduce(a.data.view(dtype), axis=1, keepdims=True).astype(dtype)  # numpy adds i32 in i64
        return Lanes(np.repeat(total, LANES, axis=1), known, a.origin)
    return apply


_REDUCE = {"add": np.add.reduce, "max": np.maximum.reduce, "min": np.minimum.reduce}

XLU: dict[str, Callable[..., Lanes]] = {
    **{f"v{op}.xlane.{t}.xlu": _across(f, DTYPES[t]) for op, f in _REDUCE.items() for t in ("f32", "s32")},
    "vrot.lane.xlu": lambda a, n: move(a, lambda x: np.roll(x, n, axis=1)),
    "vbcast.lane.xlu": lambda a, n: move(a, lambda x: np.repeat(x[:, n % LANES, None], LANES, axis=1)),
}


def transpose(tile: list[Lanes]) -> list[Lanes]:
    """8n rows of 128, n <= 16, -> the 16 registers of the transposed tile; columns beyond 8n are garbage."""
    data, known = np.zeros((2, LANES, LANES), np.uint32)
    for i, lanes in enumerate(tile):
        rows = slice(i * SUBLANES, (i + 1) * SUBLANES)
        data[rows], known[rows] = lanes.data.view(np.uint32), to_flags(lanes.known)
    origin = next((lanes.origin for lanes in tile if lanes.origin), "") or "behind the transposed rows"
    return [Lanes(np.ascontiguousarray(data.T[i:i + SUBLANES]), to_bits(known.T[i:i + SUBLANES]), origin)
            for i in range(0, LANES, SUBLANES)]
