"""Which dtype holds the result when operands of different dtypes meet.

    i8 + f16  ->  f16        bf16 + f16  ->  f32        bf16 + 2.5  ->  bf16        i32 + 2.5  ->  f32

In: the dtypes of tensors, and Python numbers. Out: one dtype. JAX's lattice, restricted to minicc's dtypes:
the result is the least dtype above both.

            bool  u8    u32   i8    i16   i32   bf16  f16   f32
      bool  bool  u8    u32   i8    i16   i32   bf16  f16   f32
      u8    u8    u8    u32   i16   i16   i32   bf16  f16   f32
      u32   u32   u32   u32   i32   i32   i32   bf16  f16   f32
      i8    i8    i16   i32   i8    i16   i32   bf16  f16   f32
      i16   i16   i16   i32   i16   i16   i32   bf16  f16   f32
      i32   i32   i32   i32   i32   i32   i32   bf16  f16   f32
      bf16  bf16  bf16  bf16  bf16  bf16  bf16  bf16  f32   f32
      f16   f16   f16   f16   f16   f16   f16   f32   f16   f32
      f32   f32   f32   f32   f32   f32   f32   f32   f32   f32

Invariants: a Python number is weak, which means that it takes the dtype of the tensors it meets unless its
kind is above theirs, and then becomes i32 or f32; a numpy scalar is as strong as a tensor. u32 with a signed
dtype gives i32, in which numbers from 2**31 up wrap around: JAX without 64 bits does so too, numpy widens to
int64. An i32 that becomes f16 or bf16 keeps its magnitude but few of its digits, as in JAX; numpy would give
float64. Read next: primitives.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from minicc.graph.ir import BF16, BOOL, DTYPES, F16, F32, I8, I16, I32, U8, U32, DType

# dtype -> the next dtypes above it, from which the table follows
ABOVE: dict[DType, tuple[DType, ...]] = {
    BOOL: (U8, I8),
    U8: (U32, I16), I8: (I16,), I16: (I32,), U32: (I32,), I32: (BF16, F16),
    BF16: (F32,), F16: (F32,), F32: (),
}
WEAK: dict[type, DType] = {bool: BOOL, int: I32, float: F32}  # Python numbers, and what they are on their own
KINDS = "bif"  # each holds those before it


def _holders(dtype: DType) -> set[DType]:
    """All dtypes that hold this one."""
    return {dtype}.union(*map(_holders, ABOVE[dtype]))


def _least(x: DType, y: DType) -> DType:
    """The dtype that holds both and is held by whatever else does."""
    return max(_holders(x) & _holders(y), key=lambda dtype: len(_holders(dtype)))


TABLE = {(x, y): _least(x, y) for x in DTYPES.values() for y in DTYPES.values()}


def promote(strong: Iterable[DType], weak: Iterable[DType] = (), least: DType = BOOL) -> DType:
    """The dtype for tensors of the strong dtypes and numbers of the weak ones; of least's kind or more.

    >>> str(promote([I8, U8])), str(promote([BF16], [F32])), str(promote([I8], [F32]))
    ('i16', 'bf16', 'f32')
    """
    result = BOOL
    for dtype in strong:
        result = TABLE[result, dtype]
    for dtype in (*weak, least):
        if KINDS.index(dtype.kind) > KINDS.index(result.kind):
            result = dtype
    return result
