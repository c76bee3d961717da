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
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from minicc.errors import CompileError, DtypeError, a_type
from minicc.frontend import tensor as tensors
from minicc.frontend.arrays import as_array
from minicc.frontend.promotion import WEAK, promote
from minicc.frontend.scope import current, fail, operation, user_line
from minicc.graph.infer import build
from minicc.graph.ir import BOOL, F32, DType

if TYPE_CHECKING:
    from minicc.frontend.tensor import Tensor

T = TypeVar("T")
TensorLike = Any  # a Tensor, a number, an array, or nested lists of numbers


def node(op: str, *operands: Tensor, **attrs: Any) -> Tensor:
    """One operation on tensors of the right types; infer.py complains if they are not."""
    scope = current()
    values = tuple([scope.lift(operand) for operand in operands])
    try:
        return tensors.Tensor._made(build(scope.builder, op, values, attrs, user_line()), scope)
    except CompileError as error:
        error.stage = operation(error.stage)
        raise


def is_number(x: object) -> bool:
    """Whether this is a Python or numpy scalar."""
    return isinstance(x, bool | int | float | np.number | np.bool_)


def as_tensor(x: TensorLike, dtype: DType | None = None) -> Tensor:
    """The tensor that an operand stands for, in this dtype if one is given."""
    if not isinstance(x, tensors.Tensor):
        if is_number(x):
            return node("constant", value=as_array(x, dtype))
        x = tensors.Tensor(x)
    return x if dtype in (None, x.dtype) else node("convert", x, dtype=dtype)


def as_tensors(operands: Sequence[TensorLike], least: DType = BOOL) -> tuple[Tensor, ...]:
    """The operands in the dtype that holds all, of `least`'s kind or more; numbers are constants of it."""
    given = [x if type(x) in WEAK else as_tensor(x) for x in operands]
    strong = [x.dtype for x in given if type(x) not in WEAK]
    dtype = promote(strong, [WEAK[type(x)] for x in given if type(x) in WEAK], least)
    return tuple([as_tensor(x, dtype) for x in given])


def as_float(x: TensorLike) -> Tensor:
    """The operand as a tensor of floats: of its own dtype if that is one, else of f32."""
    return as_tensors((x,), F32)[0]


def in_f32(function: Callable[..., Tensor], operands: int | None = None) -> Callable[..., Tensor]:
    """The function of float tensors, computed in f32 and rounded once to the dtype that holds its operands.

    So a composition in bf16 loses no more than an op of the graph. operands: how many of the arguments by
    position are tensors; all of them, if None.
    """
    @wraps(function)
    def widened(*args: Any, **named: Any) -> Tensor:
        given = as_tensors(args[:operands], F32)
        rest = () if operands is None else args[operands:]
        result = function(*[as_tensor(x, F32) for x in given], *rest, **named)
        return as_tensor(result, given[0].dtype) if given else result
    return widened


def first_in_f32(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """in_f32 for a function of one tensor and settings."""
    return in_f32(function, 1)


def as_argument(stage: str, path: str, leaf: Any, hint: str) -> Tensor:
    """A leaf of a function's arguments as a tensor."""
    if not (isinstance(leaf, tensors.Tensor) or is_number(leaf) or hasattr(leaf, "__array__")):
        fail(stage, f"{path} is not a Tensor", a_type(leaf),
             "tensors, arrays or numbers, in dicts, lists and tuples", hint, DtypeError)
    return leaf if isinstance(leaf, tensors.Tensor) else tensors.Tensor(leaf)


def as_number(what: str, value: Any) -> Any:
    """A setting that is a Python or numpy scalar."""
    if not is_number(value):
        fail(what, "expected a number", repr(value), kind=DtypeError)
    return value


def as_integers(what: str, values: Any) -> tuple[int, ...]:
    """One integer, or several, as a tuple.

    >>> as_integers("shape", 3), as_integers("shape", ((2, -1),)), as_integers("shape", (2, 3))
    ((3,), (2, -1), (2, 3))
    """
    if isinstance(values, tuple | list) and len(values) == 1 and isinstance(values[0], tuple | list):
        values = values[0]
    try:
        several = isinstance(values, Iterable) and getattr(values, "ndim", True)
        items = tuple(values) if several else (values,)
        return tuple(operator.index(item) for item in items)
    except TypeError:
        fail(what, "expected integers", repr(values), kind=DtypeError)


def as_integer(what: str, value: Any, least: int | None = None) -> int:
    """One integer, of `least` or more."""
    numbers = as_integers(what, value)
    if len(numbers) != 1 or (least is not None and numbers[0] < least):
        fail(what, "this is not one integer in range", value, "one integer" +
             ("" if least is None else f", {least} or more"))
    return numbers[0]


def normal_axes(op: str, x: Tensor, axis: Any, new: int = 0) -> tuple[int, ...]:
    """The axes that an `axis` argument names, counted from 0; None names all of them.

    new: how many axes x is about to get.
    Raises: ShapeError for an axis that there is not, or that is named twice.
    """
    rank = x.ndim + new
    axes = as_integers(op, range(rank) if axis is None else axis)
    normal = tuple(one + rank if one < 0 else one for one in axes)
    if not set(normal) <= set(range(rank)) or len(set(normal)) < len(normal):
        need = f"{-rank} .. {rank - 1} for {x.type}" if rank else f"none: {x.type} has no axes"
        fail(op, "there is no such axis, or it is named twice", axis, need)
    return normal


def torch_names(function: Callable[..., T]) -> Callable[..., T]:
    """The function, which takes torch's `dim` and `keepdim` for `axis` and `keepdims` too.

    Its switches take True and False alone: numpy has a dtype or a kind of sort in their places.
    """
    known = signature(function).parameters
    place = list(known).index("axis")
    switches = [(i, name) for i, (name, one) in enumerate(known.items()) if isinstance(one.default, bool)]

    @wraps(function)
    def renamed(*args: Any, **named: Any) -> T:
        if "dim" in named and ("axis" in named or len(args) > place):
            fail(function.__name__, "both axis and dim are given", need="one")
        ours = {"dim": "axis", "keepdim": "keepdims"}
        named = {ours.get(name, name): value for name, value in named.items()}
        for i, name in switches:
            value = args[i] if i < len(args) else named.get(name)
            if not isinstance(value, bool | int | np.bool_ | None):
                fail(function.__name__, f"{name} is a switch", repr(value), "True or False",
                     "other arguments by their names", DtypeError)
        return function(*args, **named)
    return renamed
