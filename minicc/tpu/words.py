"""Numbers as words: integers of every kind, conversions, and narrow floats, on lanes of 32 bits.

    convert x: f32 to bf16        vpack.bf16 v1, v0, v0 ;; vunpack.bf16 v2, v1, 0
    maximum(x, y) of u32          flip the sign bits, vmax.s32, flip back
    divide(x, y) of i32           an estimate by vrcp of y, twice, then 1 more if y still fits

Goes in: a Writer, dtypes and operands. Comes out: operands, with the instructions written. Where there is
arithmetic, every element takes a word: bf16 and f16 are the f32 they equal, i8, i16 and u8 are extended to
s32, a u32 is its bits, a bool is a mask register, or 0 or 1 once it is in memory. In memory numbers of 16 and
8 bits are packed, two or four rows to a register.

The vector ALU compares and converts signed integers only, and divides none, as those of real TPUs seem to;
the rest is composed from words. XLA expands integer division into such a sequence, too. Hacker's Delight
(Warren, 2002) is the book of these. Read next: recipes.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minicc.graph.ir import BF16, BOOL, F16, F32, I8, I16, I32, U8, U32, DType
from minicc.tpu.assembly import Writer
from minicc.tpu.isa import Operand, Reg

SUFFIX = {"f": "f32", "i": "s32"}
SIGN = 1 << 31
PACKED = {BF16: ("bf16", "bf16"), F16: ("f16", "f16"), I16: ("b16", "s16"), I8: ("b8", "s8"),
          U8: ("b8", "u8"), BOOL: ("b8", "u8")}  # the names of the instructions that pack and unpack a dtype
TOO_SMALL = 1 - 2.0**-20  # times this, a product that is off by five roundings is too small, if at all


def as_mask(write: Writer, x: Operand) -> Reg:
    """A bool as a mask register. In memory, and so after a load, a bool is a word, 0 or 1."""
    if not isinstance(x, Reg):
        return write.op("vcmask", 8 if x else 0, 128)
    return x if x.kind == "m" else write.op("vcmp.ne.s32", x, 0)


def as_words(write: Writer, x: Operand) -> Operand:
    """A value as it lies in memory: a bool as words of 0 and 1, anything else as it is."""
    if isinstance(x, Reg) and x.kind == "m":
        return write.op("vsel", x, 1, 0)
    return int(x) if isinstance(x, bool) else x


def flipped(write: Writer, dtype: DType, x: Operand) -> Operand:
    """A u32 as the s32 that stands as high among s32, and back; of another dtype, as it is."""
    if dtype is not U32:
        return x
    return x - SIGN if isinstance(x, int) else write.op("vxor.u32", x, SIGN)


def with_sign(write: Writer, size: Operand, x: Operand) -> Operand:
    """A float that is not negative, with the sign of another."""
    return write.op("vor.u32", size, write.op("vand.u32", x, SIGN))


def compare(write: Writer, dtype: DType, x: Operand, y: Operand, direction: str) -> Operand:
    """A mask of where x < y, or whatever the direction is."""
    if dtype == BOOL:
        x, y, dtype = as_words(write, x), as_words(write, y), I32
    x, y = flipped(write, dtype, x), flipped(write, dtype, y)
    return write.op(f"vcmp.{direction}.{SUFFIX[dtype.kind]}", x, y)


# ---- packed rows ----

def packed(write: Writer, dtype: DType, rows: Sequence[Operand]) -> Operand:
    """A register of a narrow dtype: rows 0-7, 8-15 and so on of a tile, or the same for those that lack. What
    was rounded to that dtype before need not be, since packing rounds."""
    rows = [write.vector(write.rounded.get((one, dtype), one)) for one in rows]
    return write.op(f"vpack.{PACKED[dtype][0]}", *rows, *rows[:1] * (dtype.per_word - len(rows)))


def unpacked(write: Writer, dtype: DType, x: Operand, number: int = 0) -> Operand:
    """Rows 8 * number and on of a packed register, each element a word."""
    return write.op(f"vunpack.{PACKED[dtype][1]}", x, number)


def field(write: Writer, dtype: DType, x: Operand, number: int = 0) -> Operand:
    """An element of each word of a packed register, as a word."""
    bits = 8 * dtype.itemsize
    if dtype is F16:
        return write.op("vcvt.f16.f32", write.op("vshrl.u32", x, bits * number) if number else x)
    high = write.op("vshll.u32", x, 32 - bits * (number + 1)) if number + 1 < dtype.per_word else x
    if dtype is BF16:
        return high if high is not x else write.op("vand.u32", x, -(1 << bits))
    return write.op("vshra.s32" if dtype.kind == "i" and not dtype.unsigned else "vshrl.u32", high, 32 - bits)


# ---- conversions ----

def convert(write: Writer, source: DType, x: Operand, dtype: DType) -> Operand:
    """x as another dtype: to nearest even, towards zero and saturating, or the low bits, as encode says."""
    if source is dtype:
        return x
    if dtype == BOOL:
        return compare(write, source, x, 0.0 if source.kind == "f" else 0, "ne")
    if source == BOOL:
        return write.op("vsel", as_mask(write, x), 1.0, 0.0) if dtype.kind == "f" else as_words(write, x)
    if dtype.kind == "f":
        return round_float(write, x if source.kind == "f" else to_float(write, source, x), dtype)
    return to_integer(write, x, dtype) if source.kind == "f" else low_bits(write, x, dtype)


def to_float(write: Writer, source: DType, x: Operand) -> Operand:
    """An integer as f32. The two halves of a u32 are exact, so that their sum rounds once."""
    if source is not U32:
        return write.op("vcvt.s32.f32", x)
    halves = write.op("vshrl.u32", x, 16), write.op("vand.u32", x, 0xFFFF)
    high, low = (write.op("vcvt.s32.f32", half) for half in halves)
    return write.op("vadd.f32", write.op("vmul.f32", high, 65536.0), low)


def to_integer(write: Writer, x: Operand, dtype: DType) -> Operand:
    """An f32 towards zero, saturating, and NaN as 0; s32 does so by itself, and is half of u32."""
    limits = np.iinfo(dtype.numpy)
    if dtype.narrow:
        x = write.op("vmin.f32", write.op("vmax.f32", x, float(limits.min)), float(limits.max))
    if dtype is not U32:
        return write.op("vcvt.f32.s32", x)
    x = write.op("vmax.f32", x, 0.0)
    upper = write.op("vcvt.f32.s32", write.op("vsub.f32", x, float(SIGN)))
    large = write.op("vcmp.ge.f32", x, float(SIGN))
    return write.op("vsel", large, flipped(write, U32, upper), write.op("vcvt.f32.s32", x))


def low_bits(write: Writer, x: Operand, dtype: DType) -> Operand:
    """An integer wrapped to a narrower one."""
    if not dtype.narrow:
        return x
    if dtype.unsigned:
        return write.op("vand.u32", x, 2 ** (8 * dtype.itemsize) - 1)
    left = 32 - 8 * dtype.itemsize
    return write.op("vshra.s32", write.op("vshll.u32", x, left), left)


def round_float(write: Writer, x: Operand, dtype: DType) -> Operand:
    """An f32 as the nearest number of a narrower dtype, halfway the even one: packed, and unpacked."""
    if dtype is F32:
        return x
    result = unpacked(write, dtype, packed(write, dtype, [x]))
    write.rounded[result, dtype] = x
    return result


# ---- integer division ----

def divide(write: Writer, dtype: DType, x: Operand, y: Operand) -> tuple[Operand, Operand]:
    """The quotient towards zero, or -1 if y is 0, and what is left, which is x if y is 0."""
    op = write.op
    if isinstance(y, int) and y > 0 and not y & (y - 1):
        return _divide_by_power(write, dtype, x, y)
    x, y = write.vector(x), write.vector(y)
    if dtype is U32:
        quotient, rest = _divide_unsigned(write, x, y)
    else:
        below, other = op("vshra.s32", x, 31), op("vshra.s32", y, 31)  # -1 where negative, else 0
        quotient, rest = _divide_unsigned(write, _negated(write, x, below), _negated(write, y, other))
        quotient = _negated(write, quotient, op("vxor.u32", below, other))
        rest = _negated(write, rest, below)
    return op("vsel", op("vcmp.eq.s32", y, 0), -1, quotient), rest


def _negated(write: Writer, x: Operand, where: Operand) -> Operand:
    """-x where a word is -1, x where it is 0."""
    return write.op("vsub.s32", write.op("vxor.u32", x, where), where)


def _divide_by_power(write: Writer, dtype: DType, x: Operand, y: int) -> tuple[Operand, Operand]:
    """x / 2**n by a shift, which goes down, so that what is negative gets 2**n - 1 first."""
    op, places = write.op, y.bit_length() - 1
    if dtype is U32:
        return op("vshrl.u32", x, places), op("vand.u32", x, y - 1)
    above = op("vadd.s32", x, op("vand.u32", op("vshra.s32", x, 31), y - 1))
    quotient = op("vshra.s32", above, places)
    return quotient, op("vsub.s32", x, op("vshll.u32", quotient, places))


def _divide_unsigned(write: Writer, x: Operand, y: Operand) -> tuple[Operand, Operand]:
    """Two estimates, each up to 2**-19 of itself too small and never too large; then 1 more if y fits."""
    op = write.op
    inverse = write.queued("vrcp", "vpop.eup", to_float(write, U32, y))
    inverse = op("vmul.f32", inverse, TOO_SMALL)
    quotient: Operand = 0
    for _ in range(2):
        part = to_integer(write, op("vmul.f32", to_float(write, U32, x), inverse), U32)
        quotient = op("vadd.s32", part, quotient)
        x = op("vsub.s32", x, op("vmul.s32", part, y))
    more = op("vsel", compare(write, U32, x, y, "ge"), 1, 0)
    return op("vadd.s32", quotient, more), op("vsub.s32", x, op("vmul.s32", more, y))
