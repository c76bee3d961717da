"""Operations that compute: elementwise, compare, select, reduce, dot; broadcasting as numpy does.

    add(x, b)     x: f32[8,3], b: f32[3]  ->  add(x, broadcast_in_dim(b) shape=[8,3] dims=[1])
    add(x, 1)     x: f32[8,3]             ->  add(x, 1.0)
    x @ w         x: f32[8,3], w: f32[3]  ->  dot_general(x, w) contract=[1]x[0] : f32[8]

In: tensors, arrays, numbers. Out: tensors, one or two nodes each. Invariants: operands have one dtype and one
shape when they reach the graph, except that a scalar is passed as it is; a bool counts as 0 or 1 in
arithmetic, and dividing integers gives f32. XLA's front ends do this in the same place; the graph itself
broadcasts nothing. Read next: functional.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minicc.errors import CompileError, DtypeError, ShapeError
from minicc.frontend.arrays import as_dtype
from minicc.frontend.primitives import (
    TensorLike,
    as_countable,
    as_float,
    as_tensor,
    as_tensors,
    is_number,
    node,
    normal_axes,
)
from minicc.frontend.scope import user_line
from minicc.frontend.shapes import broadcast, broadcast_shapes, reshape
from minicc.graph.ir import BOOL, I32

if TYPE_CHECKING:
    from minicc.frontend.tensor import Tensor


def _aligned(op: str, operands: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The operands in one shape, or scalars."""
    shape = broadcast_shapes(op, operands, [x.shape for x in operands])
    return tuple(x if x.ndim == 0 else broadcast(x, shape) for x in operands)


def _numbers(op: str, *operands: TensorLike, **attrs: Any) -> Tensor:
    """An op on numbers of one dtype."""
    return node(op, *_aligned(op, as_tensors(operands, I32)), **attrs)


def _floats(op: str, *operands: TensorLike) -> Tensor:
    """An op on floats."""
    return node(op, *_aligned(op, tuple(as_float(x) for x in operands)))


def _bools(op: str, *operands: TensorLike) -> Tensor:
    """An op on bools."""
    given = tuple(as_tensor(x) for x in operands)
    for x in given:
        if x.dtype != BOOL:
            raise DtypeError(op, "an operand is not bool", got=x.type, need="bool", at=user_line(),
                             hint="compare it with something first: (x > 0) & (y > 0)")
    return node(op, *_aligned(op, given))


# -- arithmetic ----------------------------------------------------------------------------------------------


def add(x: TensorLike, y: TensorLike) -> Tensor:
    """x + y."""
    return _numbers("add", x, y)


def subtract(x: TensorLike, y: TensorLike) -> Tensor:
    """x - y."""
    return _numbers("subtract", x, y)


def multiply(x: TensorLike, y: TensorLike) -> Tensor:
    """x * y."""
    return _numbers("multiply", x, y)


def divide(x: TensorLike, y: TensorLike) -> Tensor:
    """x / y, in f32."""
    return _floats("divide", x, y)


def maximum(x: TensorLike, y: TensorLike) -> Tensor:
    """The larger one, element by element; NaN if either is."""
    return _numbers("maximum", x, y)


def minimum(x: TensorLike, y: TensorLike) -> Tensor:
    """The smaller one, element by element; NaN if either is."""
    return _numbers("minimum", x, y)


def negate(x: TensorLike) -> Tensor:
    """-x."""
    return _numbers("negate", x)


def absolute(x: TensorLike) -> Tensor:
    """|x|."""
    return _numbers("abs", x)


def sign(x: TensorLike) -> Tensor:
    """-1, 0 or 1, as f32."""
    return _floats("sign", x)


def exp(x: TensorLike) -> Tensor:
    """e to the x."""
    return _floats("exp", x)


def log(x: TensorLike) -> Tensor:
    """The natural logarithm."""
    return _floats("log", x)


def sqrt(x: TensorLike) -> Tensor:
    """The square root."""
    return _floats("sqrt", x)


def rsqrt(x: TensorLike) -> Tensor:
    """1 / sqrt(x)."""
    return _floats("rsqrt", x)


def tanh(x: TensorLike) -> Tensor:
    """The hyperbolic tangent."""
    return _floats("tanh", x)


POWERS = (0.5, -0.5, *range(-64, 65))  # beyond 64, repeated squaring is no longer what anyone means


def power(x: TensorLike, exponent: TensorLike) -> Tensor:
    """x ** exponent for integers, by repeated squaring, and for 0.5 and -0.5."""
    if not isinstance(exponent, int | float) or exponent not in POWERS:
        raise CompileError(
            "power", "this exponent is not supported", got=exponent if is_number(exponent) else "a tensor",
            need=f"an integer up to {POWERS[-1]}, or 0.5, or -0.5", at=user_line(),
            hint="(p * x.log()).exp() for positive x",
        )
    if exponent in (0.5, -0.5):
        return sqrt(x) if exponent > 0 else rsqrt(x)
    if exponent < 0:
        return divide(1, power(x, -exponent))
    base, result = as_countable(x), None
    for bit in reversed(f"{int(exponent):b}"):
        if bit == "1":
            result = base if result is None else multiply(result, base)
        base = multiply(base, base)  # squares that no one uses are never computed
    return broadcast(as_tensor(1, base.dtype), base.shape) if result is None else result


def rpower(exponent: Tensor, base: TensorLike) -> Tensor:
    """base ** exponent for a positive number `base`: exp(exponent * log(base))."""
    if not isinstance(base, int | float) or base <= 0:
        raise CompileError("power", "this base is not supported", got=base, need="a positive number",
                           at=user_line())
    return exp(multiply(exponent, math.log(base)))


# -- logic ---------------------------------------------------------------------------------------------------


def compare(direction: str, x: TensorLike, y: TensorLike) -> Tensor:
    """x < y and the like, as bools. direction: eq, ne, lt, le, gt, ge."""
    return _numbers("compare", x, y, direction=direction)


def less(x: TensorLike, y: TensorLike) -> Tensor:
    """x < y."""
    return compare("lt", x, y)


def less_equal(x: TensorLike, y: TensorLike) -> Tensor:
    """x <= y."""
    return compare("le", x, y)


def greater(x: TensorLike, y: TensorLike) -> Tensor:
    """x > y."""
    return compare("gt", x, y)


def greater_equal(x: TensorLike, y: TensorLike) -> Tensor:
    """x >= y."""
    return compare("ge", x, y)


def logical_and(x: TensorLike, y: TensorLike) -> Tensor:
    """x and y, of bools."""
    return _bools("and", x, y)


def logical_or(x: TensorLike, y: TensorLike) -> Tensor:
    """x or y, of bools."""
    return _bools("or", x, y)


def logical_not(x: TensorLike) -> Tensor:
    """not x, of bools."""
    return _bools("not", x)


def where(condition: TensorLike, x: TensorLike, y: TensorLike) -> Tensor:
    """x where the condition holds, else y."""
    chosen = as_tensor(condition)
    if chosen.dtype != BOOL:
        raise DtypeError("where", "the condition is not bool", got=chosen.type, need="bool", at=user_line(),
                         hint="condition != 0")
    return node("select", *_aligned("where", (chosen, *as_tensors((x, y)))))


def astype(x: TensorLike, dtype: Any) -> Tensor:
    """x in another dtype; f32 to i32 drops the fraction, and to bool asks whether it is not 0."""
    return as_tensor(as_tensor(x), as_dtype(dtype))


def iota(count: int) -> Tensor:
    """0, 1, ... count-1 as i32."""
    return node("iota", axis=0, shape=(count,), dtype="i32")


# -- reductions and dot --------------------------------------------------------------------------------------


def reduce(kind: str, x: TensorLike, axis: Any, keepdims: bool, dim: Any, keepdim: bool) -> Tensor:
    """A sum, max, min or prod over axes, which stay with size 1 if asked."""
    x = as_countable(x)
    axes = normal_axes(kind, x, axis, dim)
    result = node("reduce", x, kind=kind, axes=axes) if axes else x
    if keepdims or keepdim:
        result = reshape(result, tuple(1 if i in axes else size for i, size in enumerate(x.shape)))
    return result


def sum(x: TensorLike, axis: Any = None, keepdims: bool = False, *, dim: Any = None,
        keepdim: bool = False) -> Tensor:
    """The sum over an axis, several, or all."""
    return reduce("sum", x, axis, keepdims, dim, keepdim)


def max(x: TensorLike, axis: Any = None, keepdims: bool = False, *, dim: Any = None,
        keepdim: bool = False) -> Tensor:
    """The largest element over an axis, several, or all."""
    return reduce("max", x, axis, keepdims, dim, keepdim)


def min(x: TensorLike, axis: Any = None, keepdims: bool = False, *, dim: Any = None,
        keepdim: bool = False) -> Tensor:
    """The smallest element over an axis, several, or all."""
    return reduce("min", x, axis, keepdims, dim, keepdim)


def prod(x: TensorLike, axis: Any = None, keepdims: bool = False, *, dim: Any = None,
         keepdim: bool = False) -> Tensor:
    """The product over an axis, several, or all."""
    return reduce("prod", x, axis, keepdims, dim, keepdim)


def matmul(x: TensorLike, y: TensorLike) -> Tensor:
    """x @ y as numpy has it: rows times columns; leading axes are batches and broadcast.

    Shapes: [m,k] @ [k,n] = [m,n]; [k] stands for a row on the left and a column on the right.
    """
    x, y = as_tensors((x, y), I32)
    if not (x.ndim and y.ndim):
        raise ShapeError("matmul", "a scalar has no rows", got=f"{x.type} @ {y.type}", need="rank 1 or more",
                         at=user_line(), hint="*")
    rows, columns = x.ndim - 1, y.ndim - 2 if y.ndim > 1 else 0
    if x.shape[rows] != y.shape[columns]:
        raise ShapeError(
            "matmul", "contracted sizes differ",
            got=f"{x.shape[rows]} (axis {rows} of {x.type}, the left) and "
            f"{y.shape[columns]} (axis {columns} of {y.type}, the right)", need="equal", at=user_line(),
            hint="transpose one of them (.T), or check the layer sizes",
        )
    if y.ndim <= 2:
        return node("dot_general", x, y, contract=((rows,), (columns,)), batch=((), ()))
    if x.ndim == 1:
        return reshape(matmul(reshape(x, 1, -1), y), y.shape[:-2] + y.shape[-1:])
    lead = broadcast_shapes("matmul", (x, y), (x.shape[:-2], y.shape[:-2]))
    x, y = broadcast(x, lead + x.shape[-2:]), broadcast(y, lead + y.shape[-2:])
    batch = tuple(range(len(lead)))
    return node("dot_general", x, y, contract=((len(lead) + 1,), (len(lead),)), batch=(batch, batch))


# numpy's functions on tensors, by name: np.exp(tensor), and array + tensor
UFUNCS: dict[str, Callable[..., Tensor]] = {
    "add": add, "subtract": subtract, "multiply": multiply, "divide": divide, "matmul": matmul,
    "power": power,
    "maximum": maximum, "minimum": minimum, "negative": negate, "absolute": absolute, "exp": exp, "log": log,
    "sqrt": sqrt, "tanh": tanh, "sign": sign, "logical_and": logical_and, "logical_or": logical_or,
}
