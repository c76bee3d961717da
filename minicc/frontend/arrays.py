"""What a user hands in as data, made into an array of one of minicc's dtypes, or a clear error.

    as_array([[1, 2], [3, 4]])   ->  i32[2,2]
    as_array(np.zeros(3))        ->  f32[3], and one notice per process that float64 became f32

In: numbers, nested lists, numpy arrays, anything with `__array__`. Out: a read-only array of f32, i32 or
bool. Invariants: a value is never changed beyond rounding to f32, unless a dtype is asked for (then as
astype does it); what does not fit is an error, not a wrap-around or an infinity; and the array is the
caller's alone. Promotion is bool < i32 < f32; with only
these three, JAX's table comes to the same, and its weak Python scalars too: 2 is an i32, 2.0 an f32. numpy
wraps integers silently and JAX truncates f64 with a warning. Read next: tensor.py.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from minicc.errors import DtypeError, Loc, OutOfRangeError
from minicc.frontend.scope import fail, user_line
from minicc.graph.ir import BOOL, DTYPES, F32, I32, DType


class PrecisionNotice(UserWarning):
    """Said once per process: 64-bit data became 32-bit."""


# what users call the dtypes
_NAMES: dict[Any, DType] = {
    **DTYPES, "float32": F32, "int32": I32, "float": F32, "int": I32, float: F32, int: I32, bool: BOOL,
    np.float32: F32, np.int32: I32, np.bool_: BOOL,
}
_BY_KIND = {"b": BOOL, "i": I32, "u": I32, "f": F32}
PROMOTION = "bif"  # kinds of dtypes, each of which holds those before it
_noticed = False


def as_dtype(dtype: Any) -> DType:
    """The dtype a user names: "f32", "float32", np.float32, float or a DType."""
    if isinstance(dtype, DType):
        return dtype
    name = dtype.type if isinstance(dtype, np.dtype) else dtype
    if not isinstance(name, str | type) or name not in _NAMES:
        fail("dtype", "minicc has no such dtype", repr(dtype), ", ".join(DTYPES), kind=DtypeError)
    return _NAMES[name]


def as_array(data: Any, dtype: Any = None) -> np.ndarray:
    """The data as a read-only array of one of minicc's dtypes; of this one, if it is given.

    Raises: ShapeError for ragged lists, DtypeError for what is no number, OutOfRangeError for what does not
    fit.
    """
    try:
        array = np.array(data)
    except (ValueError, TypeError, OverflowError) as error:
        if "inhomogeneous" in str(error):
            fail("Tensor", "the lists are ragged", need="rows of equal length", hint="pad the short ones")
        fail("Tensor", f"numpy cannot read this: {error}", kind=DtypeError)
    if array.dtype.kind not in _BY_KIND:
        got = f"a {type(data).__name__} that numpy reads as {array.dtype.name}"
        fail("Tensor", "the data is not numeric", got, "numbers or bools", kind=DtypeError)
    target = _BY_KIND[array.dtype.kind] if dtype is None else as_dtype(dtype)
    if dtype is None and isinstance(data, np.ndarray) and array.dtype.name in ("float64", "int64", "uint64"):
        _notice(array.dtype.name, target)
    return narrowed(array, target)


def narrowed(array: np.ndarray, target: DType) -> np.ndarray:
    """The array in this dtype, read-only, checked for values that do not fit."""
    if target is not BOOL and array.dtype != target.numpy:
        limits: Any = np.iinfo(np.int32) if target is I32 else np.finfo(np.float32)
        fits = (array >= limits.min) & (array <= limits.max)
        if target is F32:
            fits |= ~np.isfinite(array)  # an infinity that was meant
        if not fits.all():
            need = f"{limits.min} .. {limits.max}"
            fail("Tensor", f"a number does not fit {target}", array[~fits][0], need, kind=OutOfRangeError)
    result = array.astype(target.numpy, copy=False)
    result.flags.writeable = False
    return result


def _notice(name: str, target: DType) -> None:
    global _noticed
    if not _noticed:
        _noticed, at = True, (*user_line(), Loc("<unknown>", 1))[0]
        text = f"{name} data becomes {target}: minicc computes in 32 bits (said once)"
        warnings.warn_explicit(text, PrecisionNotice, at.file, at.line)
