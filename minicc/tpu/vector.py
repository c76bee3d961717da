"""What a vector register holds, and what becomes of it: data, and for each of its lanes, whether it is known.

    lanewise(np.add, "f32")(a, b)   ->  Lanes(data=a.data + b.data, known=a.known & b.known)

In the manner of a memory sanitizer, a register carries for each lane whether it was ever written: `known`,
8x128 booleans. Garbage may flow through lane-by-lane ops unharmed (a tile's tail beside its valid part);
whoever makes a lane *visible* (a sum across lanes, a matrix product, a DMA out) faults, and `origin` names
where the first garbage came from. A select takes the flags of the side it takes.

Invariants: data is (8, 128) of 32 bits, or bool for a mask, or many such tiles, (..., 8, 128), for which the
functions here do the same; no function changes its operands. `known` fits data by broadcasting, and is the
object KNOWN in all but few registers, so that the flags cost next to nothing. f32 as in IEEE 754, NaN and
infinities included. A real chip has no such flags, and computes on the garbage; LLVM's MemorySanitizer is
the paper to read (Stepanov and Serebryany, 2015). What to read next: ops.py, which says which op does what.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from minicc.errors import MachineFault
from minicc.tpu.machine import LANES, SUBLANES

TILE = (SUBLANES, LANES)
KNOWN = np.ones(TILE, bool)
DTYPES = {"f32": np.float32, "s32": np.int32, "u32": np.uint32, "mask": np.bool_}
INT_MIN, INT_MAX = -(2**31), 2**31 - 1


def fault(what: str, got: object = "", need: object = "", **more: Any) -> MachineFault:
    """A fault of the machine; the emulator adds which instruction it was."""
    return MachineFault("", what, got=got, need=need, **more)


class Lanes(NamedTuple):
    """The contents of a vector or mask register."""

    data: np.ndarray
    known: np.ndarray = KNOWN
    origin: str = ""

    def require(self, rows: int = SUBLANES) -> None:
        """The first `rows` sublanes become visible. Raises: MachineFault if a lane of them is garbage."""
        if self.known is not KNOWN and not self.known[..., :rows, :].all():
            *_, sublane, lane = np.argwhere(~self.known[..., :rows, :])[0]
            where = f"garbage in sublane {sublane}, lane {lane} ({self.origin or 'never written'})"
            raise fault("uninitialised read", where, "written lanes, or a mask over the others")


def tidy(known: np.ndarray) -> np.ndarray:
    """The flags; KNOWN itself if they are all set."""
    return known if b"\0" in known.tobytes() else KNOWN


def wrap(value: int) -> int:
    """An integer as 32 bits, two's complement, hold it."""
    return (value - INT_MIN) % 2**32 + INT_MIN


def splat(value: int | float) -> Lanes:
    """A number in every lane: a float as f32, an integer as s32."""
    if isinstance(value, float):
        return Lanes(np.full(TILE, value, np.float32))
    return Lanes(np.full(TILE, wrap(value), np.int32))


def lanewise(function: Callable, kind: str) -> Callable[..., Lanes]:
    """A function of one or two arrays of a dtype, lane by lane: a lane is known if its operands are."""
    dtype = DTYPES[kind]

    def apply(a: Lanes, b: Lanes | None = None) -> Lanes:
        if b is None:
            return Lanes(function(a.data.view(dtype)), a.known, a.origin)
        known = a.known if b.known is KNOWN else b.known if a.known is KNOWN else a.known & b.known
        return Lanes(function(a.data.view(dtype), b.data.view(dtype)), known, a.origin or b.origin)
    return apply


def select(mask: Lanes, a: Lanes, b: Lanes) -> Lanes:
    """mask ? a : b, lane by lane; a lane is known if the mask is and the side taken is."""
    data = np.where(mask.data, a.data.view(np.uint32), b.data.view(np.uint32))
    if mask.known is KNOWN and a.known is KNOWN and b.known is KNOWN:
        return Lanes(data)
    known = mask.known & np.where(mask.data, a.known, b.known)
    return Lanes(data, tidy(known), mask.origin or a.origin or b.origin)


def rotate(axis: int) -> Callable[[Lanes, int], Lanes]:
    """Lane (axis -1) or sublane (-2) i to i + n, around the end; whether it is known moves with it."""
    return lambda a, n: Lanes(np.roll(a.data, n, axis), tidy(np.roll(a.known, n, axis)), a.origin)


def broadcast(a: Lanes, lane: int) -> Lanes:
    """One lane of each row in all of them."""
    data, known = (np.repeat(part[..., lane % LANES, None], LANES, axis=-1) for part in (a.data, a.known))
    return Lanes(data, tidy(known), a.origin)


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
    return np.where(np.isnan(x), 0x7FC0, rounded).astype(np.uint32)


def packed_rows(data: np.ndarray) -> np.ndarray:
    """The 16 rows of a register of bf16, as f32: row 2s is the low half of sublane s, 2s + 1 the high."""
    words = data.view(np.uint32)
    halves = np.stack((words << 16, words & 0xFFFF0000), axis=-2)
    return halves.reshape(*data.shape[:-2], 2 * SUBLANES, LANES).view(np.float32)


def packed_bytes(dtype: type) -> Callable[[np.ndarray], np.ndarray]:
    """The 32 rows of a register of 8-bit numbers, as f32: row 4s + b is byte b of sublane s."""
    def apply(data: np.ndarray) -> np.ndarray:
        parts: np.ndarray = np.ascontiguousarray(data).view(dtype).reshape(*data.shape, 4)
        return np.moveaxis(parts, -1, -2).reshape(*data.shape[:-2], 4 * SUBLANES, LANES).astype(np.float32)
    return apply


def pack(narrowed: Callable[[np.ndarray], np.ndarray], bits: int) -> Callable[..., Lanes]:
    """Registers with rows 0-7, 8-15, ... of a tile -> one that has a row of each in every sublane.

    narrowed: words -> words with the number in their low bits. A packed word is known if a part of it is.
    """
    def apply(*tiles: Lanes) -> Lanes:
        rows = _above([tile.data.view(np.uint32) for tile in tiles], len(tiles))
        fields = narrowed(rows) << np.arange(0, 32, bits, dtype=np.uint32)[:, None]
        known = KNOWN
        if any(tile.known is not KNOWN for tile in tiles):
            known = tidy(np.logical_or.reduce(_above([tile.known for tile in tiles], len(tiles)), axis=-2))
        return Lanes(np.bitwise_or.reduce(fields, axis=-2), known, tiles[0].origin)
    return apply


def _above(tiles: list[np.ndarray], count: int) -> np.ndarray:
    """The rows of one tile below those of another, by sublanes of so many: (..., 8, count, 128)."""
    rows = np.concatenate(np.broadcast_arrays(*tiles), axis=-2)
    return rows.reshape(*rows.shape[:-2], SUBLANES, count, LANES)


def unpack(widened: Callable[[np.ndarray], np.ndarray], bits: int) -> Callable[[Lanes, int], Lanes]:
    """Rows 8n to 8n + 7 of a packed register, 32 bits each. widened: words with a number in their low bits ->
    that number."""
    count = 32 // bits
    shifts = np.arange(0, 32, bits, dtype=np.uint32)[:, None]

    def apply(a: Lanes, n: int) -> Lanes:
        height = SUBLANES // count
        rows = (..., slice(n % count * height, (n % count + 1) * height), slice(None))
        words = a.data.view(np.uint32)[rows][..., None, :] >> shifts & np.uint32(2**bits - 1)
        known = KNOWN if a.known is KNOWN else tidy(np.repeat(a.known[rows], count, axis=-2))
        return Lanes(widened(words.reshape(*words.shape[:-3], *TILE)), known, a.origin)
    return apply


def from_f16(bits: np.ndarray) -> np.ndarray:
    """The f32 of the f16 in the low half of each word."""
    return bits.astype(np.uint16).view(np.float16).astype(np.float32)


def signed(bits: int) -> Callable[[np.ndarray], np.ndarray]:
    """The s32 of the signed number in the low bits of each word."""
    return lambda words: words.astype(f"i{bits // 8}").astype(np.int32)


def across(reduce: Callable, kind: str) -> Callable[[Lanes], Lanes]:
    """A row's total in all its lanes.

    A row that begins with garbage lies behind the block, and stays garbage; one that begins well and ends in
    garbage lacks a mask, and faults.
    """
    dtype = DTYPES[kind]

    def apply(a: Lanes) -> Lanes:
        known = a.known
        if known is not KNOWN:
            known = np.repeat(known[..., :1], LANES, axis=-1)
            Lanes(a.data, a.known | ~known, a.origin).require()
        total = reduce(a.data.view(dtype), axis=-1, keepdims=True, dtype=dtype)
        return Lanes(np.repeat(total, LANES, axis=-1), known, a.origin)
    return apply


def transpose(tile: list[Lanes]) -> list[Lanes]:
    """8n rows of 128, n <= 16, -> the 16 registers of the transposed tile; columns beyond 8n are garbage."""
    data, known = np.zeros((LANES, LANES), np.uint32), np.zeros((LANES, LANES), bool)
    for i, lanes in enumerate(tile):
        rows = slice(i * SUBLANES, (i + 1) * SUBLANES)
        data[rows], known[rows] = lanes.data.view(np.uint32), lanes.known
    origin = next((lanes.origin for lanes in tile if lanes.origin), "") or "behind the transposed rows"
    parts = [slice(i, i + SUBLANES) for i in range(0, LANES, SUBLANES)]
    return [Lanes(np.ascontiguousarray(data.T[part]), tidy(known.T[part]), origin) for part in parts]
