"""What a user hands in as data, made into an array of one of minicc's dtypes, or a clear error.

    as_array([[1, 2], [3, 4]])   ->  i32[2,2]
    as_array(np.zeros(3))        ->  f32[3], and one notice per process that float64 became f32

In: numbers, nested lists, numpy arrays, anything with `__array__`. Out: a read-only array of f32, i32 or
bool. Invariants: a value is never changed beyond rounding to f32 (what does not fit is an error, not a
wrap-around or an infinity), and the array is the caller's alone. Promotion is bool < i32 < f32; with only
these three, JAX's table comes to the same, and its weak Python scalars too: 2 is an i32, 2.0 an f32. numpy
wraps integers silently and JAX truncates f64 with a warning. Read next: tensor.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from minicc.errors import DtypeError, OutOfRangeError, ShapeError
from minicc.frontend.scope import user_line
from minicc.graph.ir import BOOL, DTYPES, F32, I32, DType


class PrecisionNotice(UserWarning):
    """Said once per process: 64-bit data became 32-bit."""


# what users call the dtypes
_NAMES: dict[Any, DType] = {
    **DTYPES, "float32": F32, "int32": I32, "float": F32, "int": I32, float: F32, int: I32, bool: BOOL,
    np.float32: F32, np.int32: I32, np.bool_: BOOL,
}
_RANK = {BOOL: 0, I32: 1, F32: 2}
_noticed = False


def as_dtype(dtype: Any) -> DType:
    """The dtype a user names: "f32", "float32", np.float32, float or a DType."""
    if isinstance(dtype, DType):
        return dtype
    known = _NAMES.get(dtype) if isinstance(dtype, str | type) else None
    if known is None and isinstance(dtype, np.dtype):
        known = _NAMES.get(dtype.type)
    if known is None:
        raise DtypeError("dtype", "minicc has no such dtype", got=repr(dtype), need=", ".join(DTYPES),
                         at=user_line())
    return known


def promote(dtypes: Iterable[DType]) -> DType:
    """The smallest dtype that holds them all."""
    return max(dtypes, key=_RANK.__getitem__)


def as_array(data: Any, dtype: Any = None) -> np.ndarray:
    """The data as a read-only array of one of minicc's dtypes; of this one, if it is given.

    Raises: ShapeError for ragged lists, DtypeError for what is no number, OutOfRangeError for what does not
    fit.
    """
    try:
        array = np.array(data)
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise DtypeError("Tensor", f"numpy cannot read this: {error}", at=user_line()) from None
        raise ShapeError("Tensor", "the lists are ragged", need="rows of equal length", at=user_line(),
                         hint="pad the short ones") from None
    except (TypeError, OverflowError) as error:
        raise DtypeError("Tensor", f"numpy cannot read this: {error}", at=user_line()) from None
    if array.dtype.kind not in "biuf":
        raise DtypeError("Tensor", "the data is not numeric", got=_describe(data, array), at=user_line(),
                         need="numbers or bools, in lists of equal length or a numpy array")
    natural = BOOL if array.dtype.kind == "b" else F32 if array.dtype.kind == "f" else I32
    target = natural if dtype is None else as_dtype(dtype)
    if dtype is None and isinstance(data, np.ndarray) and array.dtype.name in ("float64", "int64", "uint64"):
        _notice(array.dtype.name, target)
    return narrowed(array, target)


def narrowed(array: np.ndarray, target: DType) -> np.ndarray:
    """The array in this dtype, read-only, checked for values that do not fit."""
    if target is I32 and array.size and array.dtype != np.int32:
        limits, low, high = np.iinfo(np.int32), array.min(), array.max()
        if not (limits.min <= low and high <= limits.max):
            raise OutOfRangeError("Tensor", "a number does not fit i32",
                                  got=high if high > limits.max else low,
                                  need=f"{limits.min} .. {limits.max}", at=user_line(), hint="use floats")
    with np.errstate(over="ignore", invalid="ignore"):
        result = array.astype(target.numpy, copy=False)
    if target is F32 and array.dtype.itemsize > 4 and np.isinf(result).any() and not np.isinf(array).any():
        raise OutOfRangeError("Tensor", "a number does not fit f32",
                              got=array.flat[np.isinf(result).argmax()],
                              need="at most 3.4e38 in size", at=user_line(),
                              hint="float('inf'), if that is meant")
    result.flags.writeable = False
    return result


def _describe(data: Any, array: np.ndarray) -> str:
    if array.dtype.kind == "O" and array.shape == ():
        return f"a {type(data).__name__}"
    return f"a {type(data).__name__} that numpy reads as {array.dtype.name}"


def _notice(name: str, target: DType) -> None:
    global _noticed
    if not _noticed:
        _noticed = True
        at = user_line()
        warnings.warn_explicit(
            f"{name} data becomes {target}: minicc computes in 32 bits (said once)", PrecisionNotice,
            at[0].file if at else "<unknown>", at[0].line if at else 1,
        )
