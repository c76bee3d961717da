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
from typing import Any

import numpy as np

from minicc.errors import CompileError, Loc
from minicc.graph.elementwise import COMPARE, REDUCE
from minicc.graph.ir import DTYPES, DType, Type, frozen_array


def _integer(value: Any) -> int:
    if isinstance(value, bool | np.bool_):
        raise TypeError
    return operator.index(value)


def _integers(value: Any) -> tuple[int, ...]:
    return tuple(_integer(item) for item in value)


def _pair(value: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    left, right = value
    return _integers(left), _integers(right)


def _dtype(value: Any) -> DType:
    return value if isinstance(value, DType) else DTYPES[value]


def _array(value: Any) -> np.ndarray:
    array = np.asarray(value)
    if all(array.dtype != dtype.numpy for dtype in DTYPES.values()):
        raise TypeError
    return array if not array.flags.writeable else frozen_array(array)


def _word(words: Collection[str]) -> Callable[[Any], str]:
    def normal(value: Any) -> str:
        if value not in words:
            raise ValueError
        return str(value)
    return normal


_INTS = (_integers, "a tuple of integers")
_DTYPE = (_dtype, "one of " + ", ".join(DTYPES))
_AXIS_PAIR = (_pair, "a pair of axis tuples: lhs, rhs")
# op -> attribute -> how it becomes normal, and the words for what it should be
ATTRIBUTES: dict[str, dict[str, tuple[Callable[[Any], Any], str]]] = {
    "parameter": {"name": (str, "a name")},
    "constant": {"value": (_array, "an array of " + ", ".join(DTYPES))},
    "iota": {"axis": (_integer, "an integer"), "shape": _INTS, "dtype": _DTYPE},
    "compare": {"direction": (_word(COMPARE), "one of " + ", ".join(COMPARE))},
    "convert": {"dtype": _DTYPE},
    "broadcast_in_dim": {"shape": _INTS, "dims": _INTS},
    "reshape": {"shape": _INTS},
    "transpose": {"perm": _INTS},
    "slice": {"start": _INTS, "limit": _INTS, "stride": _INTS},
    "pad": {"low": _INTS, "high": _INTS, "interior": _INTS},
    "reduce": {"kind": (_word(REDUCE), "one of " + ", ".join(REDUCE)), "axes": _INTS},
    "dot_general": {"contract": _AXIS_PAIR, "batch": _AXIS_PAIR},
}
# what an attribute is when it is left out; a number stands for itself once per axis
_DEFAULTS: dict[str, Any] = {"stride": 1, "interior": 0, "batch": ((), ())}


def normal_attributes(op: str, operands: tuple[Type, ...], attrs: Mapping[str, Any],
                      at: tuple[Loc, ...] = ()) -> dict[str, Any]:
    """The attributes of an op in normal form, with the defaults filled in."""
    wanted = ATTRIBUTES.get(op, {})
    for name in attrs:
        if name not in wanted:
            raise CompileError(op, f"unknown attribute {name!r}", need=", ".join(wanted) or "none", at=at,
                               hint=nearest(name, wanted))
    normal = {}
    for name, (make, need) in wanted.items():
        if name not in attrs and name not in _DEFAULTS:
            raise CompileError(op, f"attribute {name!r} is missing", need=need, at=at)
        default = _DEFAULTS.get(name)
        if isinstance(default, int):
            default = (default,) * (len(operands[0].shape) if operands else 0)
        value = attrs.get(name, default)
        try:
            normal[name] = make(value)
        except (TypeError, ValueError, KeyError, IndexError):
            raise CompileError(op, f"attribute {name!r} is malformed", got=repr(value), need=need,
                               at=at) from None
    return normal


def nearest(word: str, known: Collection[str]) -> str:
    """The known word that is spelled most like this one, or nothing: a hint."""
    found = get_close_matches(word, known, n=1)
    return found[0] if found else ""
