"""The attributes of each op: what they are, in which form a node stores them, what they are when left out.

    normal_attributes("slice", (f32[9],), {"start": [2], "limit": np.array([8])})
        ->  {"start": (2,), "limit": (8,), "stride": (1,)}

Goes in: whatever a caller wrote. Comes out: the one normal form (Python ints, tuples, DTypes, read-only
arrays), or an error that names the attribute. Invariant: two nodes that mean the same have equal attributes,
so that hash-consing finds them. MLIR generates such code from the op definitions; here it is one table. Read
next: infer.py.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np

from minicc.errors import CompileError, Loc, ShapeError
from minicc.graph.dtypes import DTYPES, I8, I32, STORED, U8, DType
from minicc.graph.elementwise import COMPARE, DEFAULTS, REDUCE
from minicc.graph.ir import Type


def _integer(value: Any) -> int:
    if isinstance(value, bool | np.bool_):
        raise TypeError
    return operator.index(value)


def _integers(value: Any) -> tuple[int, ...]:
    return tuple(map(_integer, value))


def _pair(value: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    left, right = value
    return _integers(left), _integers(right)


def _dtype(value: Any) -> DType:
    return value if isinstance(value, DType) else DTYPES[value]


def _array(value: Any) -> np.ndarray:
    array = np.array(value)
    array.flags.writeable = False
    if array.dtype not in STORED:
        raise TypeError
    return array


class Kind(NamedTuple):
    """What an attribute may be.

    make: makes a value normal. words: what it should be. per_axis: one entry for each axis of the operand,
    from this one on. optional: left out where it says what an op does anyway.
    """

    make: Callable[[Any], Any]
    words: str
    per_axis: int | None = None
    optional: bool = False


_AXIS = Kind(_integer, "an integer")
_INTS = Kind(_integers, "a tuple of integers")
_PER_AXIS = Kind(_integers, "one integer per axis of the operand", 0)
_PER_SPATIAL = Kind(_integers, "one integer per axis of the operand, but for the first three", 3)
_DTYPE = Kind(_dtype, "one of " + ", ".join(DTYPES))
_RESULT_DTYPE = Kind(_dtype, _DTYPE.words, optional=True)
_AXIS_PAIR = Kind(_pair, "a pair of axis tuples: lhs, rhs")


def _one_of(words: Collection[str]) -> Kind:
    return Kind({word: word for word in words}.__getitem__, "one of " + ", ".join(words))


ATTRIBUTES: dict[str, dict[str, Kind]] = {
    "constant": {"value": Kind(_array, "an array of " + ", ".join(DTYPES))},
    "iota": {"axis": _AXIS, "shape": _INTS, "dtype": _DTYPE},
    "compare": {"direction": _one_of(COMPARE)},
    "convert": {"dtype": _DTYPE},
    "broadcast_in_dim": {"shape": _INTS, "dims": _PER_AXIS},
    "reshape": {"shape": _INTS},
    "transpose": {"perm": _PER_AXIS},
    "slice": {"start": _PER_AXIS, "limit": _PER_AXIS, "stride": _PER_AXIS},
    "pad": {"low": _PER_AXIS, "high": _PER_AXIS, "interior": _PER_AXIS},
    "reduce": {"kind": _one_of(REDUCE), "axes": _INTS},
    "dot_general": {"contract": _AXIS_PAIR, "batch": _AXIS_PAIR, "dtype": _RESULT_DTYPE},
    "concatenate": {"axis": _AXIS},
    "reverse": {"axes": _INTS},
    "gather": {"axis": _AXIS},
    "scatter": {"axis": _AXIS, "kind": _one_of(("set", "sum", "prod", "max", "min"))},
    "dynamic_slice": {"sizes": _PER_AXIS},
    "convolution": {"stride": _PER_SPATIAL, "dilation": _PER_SPATIAL, "low": _PER_SPATIAL,
                    "high": _PER_SPATIAL, "dtype": _RESULT_DTYPE},
}


def normal_attributes(op: str, operands: tuple[Type, ...], attrs: Mapping[str, Any],
                      at: tuple[Loc, ...] = ()) -> dict[str, Any]:
    """The attributes of an op in normal form, with the defaults filled in."""
    wanted = ATTRIBUTES.get(op, {})
    for name in attrs:
        if name not in wanted:
            raise CompileError(op, f"unknown attribute {name!r}", need=", ".join(wanted) or "none", at=at,
                               hint=nearest(name, wanted))
    normal = {}
    for name, kind in wanted.items():
        if name not in attrs and kind.optional:
            continue
        if name not in attrs and name not in DEFAULTS:
            raise CompileError(op, f"attribute {name!r} is missing", need=kind.words, at=at)
        count = 2 if kind.per_axis is None else max(len(operands[0].shape) - kind.per_axis, 0)
        value = attrs[name] if name in attrs else (DEFAULTS[name],) * count
        try:
            normal[name] = kind.make(value)
        except (TypeError, ValueError, KeyError):
            raise CompileError(op, f"attribute {name!r} is malformed", got=repr(value), need=kind.words,
                               at=at) from None
        if kind.per_axis is not None and len(normal[name]) != count:
            raise ShapeError(op, f"{name} needs {kind.words}", got=list(normal[name]),
                             need=f"{count} entries for {operands[0]}", at=at)
        if kind.optional and normal[name] is product_dtype(operands):
            del normal[name]
    return normal


def product_dtype(operands: tuple[Type, ...]) -> DType:
    """The dtype of a dot or a convolution that names none: that of its operands, i32 for 8-bit integers."""
    own = operands[0].dtype
    return I32 if own in (I8, U8) else own


def nearest(word: str, known: Collection[str]) -> str:
    """The known word that is spelled most like this one, or nothing: a hint."""
    return next(iter(get_close_matches(word, known, n=1)), "")
