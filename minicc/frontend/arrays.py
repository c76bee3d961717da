"""What a user hands in as data, made into a stored array of one of minicc's dtypes, or a clear error.

    as_array([[1, 2], [3, 4]])   ->  i32[2,2]
    as_array(np.zeros(3))        ->  f32[3], and one notice per process that float64 became f32
    as_array([0.1], BF16)        ->  bf16[1], stored as the bits 0x3dcd

In: numbers, nested lists, numpy arrays, anything with `__array__`. Out: a read-only array, as its dtype
stores it. Invariants: a value is never changed beyond rounding, unless a dtype is asked for (then as astype
does it); what does not fit is an error, not a wrap-around or an infinity; and the array is the caller's
alone. Python's numbers become i32 and f32; an array of numpy keeps its dtype if minicc has it. numpy wraps
integers silently and JAX truncates f64 with a warning. Read next: promotion.py.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from minicc.errors import DtypeError, Loc, OutOfRangeError, a_type
from minicc.frontend.scope import fail, user_line
from minicc.graph.dtypes import decode, encode
from minicc.graph.ir import BF16, BOOL, DTYPES, F16, F32, I8, I16, I32, U8, U32, DType


class PrecisionNotice(UserWarning):
    """Said once per process: 64-bit data became 32-bit."""


# what users call the dtypes; a type of numpy or Python goes by its name
NAMES: dict[str, DType] = {
    **DTYPES, "float32": F32, "bfloat16": BF16, "float16": F16, "int8": I8, "int16": I16, "int32": I32,
    "uint8": U8, "uint32": U32, "float": F32, "half": F16, "int": I32, "bool_": BOOL,
}
# what a numpy array of a dtype that minicc lacks becomes
_ROUNDED = {"float64": F32, "longdouble": F32, "float128": F32, "int64": I32, "uint64": U32}
LARGEST = {F32: 3.4028235e38, BF16: 3.3895314e38, F16: 65504.0}
_noticed = False


def as_dtype(dtype: Any) -> DType:
    """The dtype a user names: "f32", "float32", np.float32, float or a DType."""
    if isinstance(dtype, DType):
        return dtype
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", getattr(dtype, "__name__", ""))
    if name not in NAMES:
        hint = f"{_ROUNDED[name]}: minicc computes in 32 bits or less" if name in _ROUNDED else ""
        fail("dtype", "minicc has no such dtype", repr(dtype), ", ".join(DTYPES), hint, DtypeError)
    return NAMES[name]


def as_array(data: Any, dtype: Any = None) -> np.ndarray:
    """The data as a read-only array, as one of minicc's dtypes stores it; this one, if it is given.

    Raises: ShapeError for ragged lists, DtypeError for what is no number, OutOfRangeError for what does not
    fit.
    """
    try:
        array = np.array(data)
    except (ValueError, TypeError, OverflowError) as error:
        if "inhomogeneous" in str(error):
            fail("Tensor", "the lists are ragged", need="rows of equal length", hint="pad the short ones")
        fail("Tensor", f"numpy cannot read this: {error}", kind=DtypeError)
    found = _found(data, array)
    if found is BF16:
        array = array.astype(np.float32)
    target = found if dtype is None else as_dtype(dtype)
    if dtype is None and isinstance(data, np.ndarray) and array.dtype.name in _ROUNDED:
        _notice(array.dtype.name, target)
    return narrowed(array, target)


def _found(data: Any, array: np.ndarray) -> DType:
    """The dtype for data that numpy read as this array."""
    name = array.dtype.name
    if name == "uint16":
        hint = ".astype(np.int32) for numbers; (bits.astype(np.uint32) << 16).view(np.float32) for bf16"
        fail("Tensor", "minicc has no such dtype", "an array of uint16", ", ".join(DTYPES), hint, DtypeError)
    if name not in NAMES and name not in _ROUNDED:
        got = f"{a_type(data)} that numpy reads as {name}"
        fail("Tensor", "the data is not numeric", got, "numbers or bools", kind=DtypeError)
    return NAMES.get(name) or _ROUNDED[name]


def narrowed(array: np.ndarray, target: DType) -> np.ndarray:
    """The array as this dtype stores it, read-only, checked for values that do not fit."""
    fits: Any = np.True_
    limits = ""
    if target.kind == "i" and array.dtype != target.numpy:
        integers = np.iinfo(target.numpy)
        fits, limits = (array >= integers.min) & (array <= integers.max), f"{integers.min} .. {integers.max}"
    result = np.asarray(encode(array, target))  # numpy makes scalars of arrays without axes
    if target.kind == "f" and array.dtype != target.numpy:  # an infinity that was meant is one already
        fits, limits = np.isfinite(decode(result, target)) | ~np.isfinite(array), f"up to {LARGEST[target]}"
    if not fits.all():
        fail("Tensor", f"a number does not fit {target}", array[~fits].flat[0], limits, kind=OutOfRangeError)
    result.flags.writeable = False
    return result


def _notice(name: str, target: DType) -> None:
    global _noticed
    if not _noticed:
        _noticed, at = True, (*user_line(), Loc("<unknown>", 1))[0]
        text = f"{name} data becomes {target}: minicc computes in 32 bits (said once)"
        warnings.warn_explicit(text, PrecisionNotice, at.file, at.line)
