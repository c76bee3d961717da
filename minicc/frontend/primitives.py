"""From operands to one node of the graph, and back to a tensor: the two steps behind every operation.

    node("add", x, y)     ->  a lazy Tensor of the value `add(x, y)`, with the user's line
    as_tensor(0.5)        ->  a lazy Tensor of a constant
    as_tensor(np.ones(3)) ->  a Tensor with data, which becomes an input wherever it is used

In: tensors, arrays, numbers. Out: tensors. Invariants: numbers become constants, arrays never do (a program
must not depend on the data that happened to be there when it was traced); errors name the user's line. This
file and tensor.py know each other: one makes the object whose methods the other's callers are. Read next:
shapes.py.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from minicc.errors import DtypeError, ShapeError
from minicc.frontend import tensor as tensors
from minicc.frontend.arrays import as_array, promote
from minicc.frontend.scope import current, user_line
from minicc.graph.infer import build
from minicc.graph.ir import BOOL, F32, I32, DType

if TYPE_CHECKING:
    from minicc.frontend.tensor import Tensor

_PYTHON_NUMBERS: dict[type, DType] = {bool: BOOL, int: I32, float: F32}
TensorLike = Any  # a Tensor, a number, an array, or nested lists of numbers


def node(op: str, *operands: Tensor, **attrs: Any) -> Tensor:
    """One operation on tensors of the right types; infer.py complains if they are not."""
    scope = current()
    values = tuple(scope.lift(operand) for operand in operands)
    return tensors.Tensor._lazy(build(scope.builder, op, values, attrs, user_line()), scope)


def is_number(x: object) -> bool:
    """Whether this is a Python or numpy scalar."""
    return isinstance(x, bool | int | float | np.number | np.bool_)


def as_tensor(x: TensorLike, dtype: DType | None = None) -> Tensor:
    """The tensor that an operand stands for, in this dtype if one is given."""
    if isinstance(x, tensors.Tensor):
        return x if dtype in (None, x.dtype) else node("convert", x, dtype=dtype)
    if is_number(x):
        return node("constant", value=as_array(x, dtype))
    return as_tensor(tensors.Tensor(x), dtype)


def as_tensors(operands: Sequence[TensorLike], least: DType = BOOL) -> tuple[Tensor, ...]:
    """The operands in the smallest dtype, from `least` up, that holds all; numbers are constants of it."""
    given = [x if type(x) in _PYTHON_NUMBERS else as_tensor(x) for x in operands]
    dtype = promote((least, *(_PYTHON_NUMBERS.get(type(x)) or x.dtype for x in given)))
    return tuple(as_tensor(x, dtype) for x in given)


def as_float(x: TensorLike) -> Tensor:
    """The operand as an f32 tensor."""
    return as_tensor(x, F32)


def as_countable(x: TensorLike) -> Tensor:
    """The operand as a tensor of numbers: bools count as 0 and 1."""
    x = as_tensor(x)
    return as_tensor(x, I32) if x.dtype.kind == "b" else x


def as_integers(what: str, values: Any) -> tuple[int, ...]:
    """One integer, or several, as a tuple.

    >>> as_integers("shape", 3), as_integers("shape", ((2, -1),)), as_integers("shape", (2, 3))
    ((3,), (2, -1), (2, 3))
    """
    if isinstance(values, tuple | list) and len(values) == 1 and isinstance(values[0], tuple | list):
        values = values[0]
    try:
        items = tuple(values) if isinstance(values, Iterable) else (values,)
        return tuple(operator.index(item) for item in items)
    except TypeError:
        raise DtypeError(what, "expected integers", got=repr(values), at=user_line()) from None


def normal_axes(op: str, x: Tensor, axis: Any, dim: Any = None) -> tuple[int, ...]:
    """The axes that an `axis` argument (or torch's `dim`) names, counted from 0; None names all of them.

    Raises: ShapeError for an axis that x lacks, or that is named twice.
    """
    if axis is not None and dim is not None:
        raise ShapeError(op, "both axis and dim are given", got=f"axis={axis}, dim={dim}", need="one",
                         at=user_line())
    chosen = dim if axis is None else axis
    if chosen is None:
        return tuple(range(x.ndim))
    axes = as_integers(op, chosen)
    for one in axes:
        if not -x.ndim <= one < x.ndim:
            need = f"{-x.ndim} .. {x.ndim - 1} for {x.type}" if x.ndim else f"none: {x.type} has no axes"
            raise ShapeError(op, "there is no such axis", got=one, need=need, at=user_line())
    normal = tuple(one % x.ndim for one in axes)
    if len(set(normal)) < len(normal):
        raise ShapeError(op, "an axis is named twice", got=list(axes), need="different axes", at=user_line())
    return normal
