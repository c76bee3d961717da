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

import numpy as np

from minicc.errors import CompileError
from minicc.frontend.arrays import as_dtype
from minicc.frontend.primitives import TensorLike, as_tensor, as_tensors, node, normal_axes, torch_names
from minicc.frontend.scope import fail
from minicc.frontend.shapes import broadcast, broadcast_shapes, reshape
from minicc.graph.elementwise import COMPARE, ELEMENTWISE
from minicc.graph.ir import BOOL, F32, I32

if TYPE_CHECKING:
    from minicc.frontend.tensor import Tensor

# -- elementwise ---------------------------------------------------------------------------------------------

_LEAST = {"f": F32, "n": I32, "b": BOOL}  # operand class -> the least dtype that operands become


def _aligned(op: str, operands: tuple[Tensor, ...]) -> list[Tensor]:
    """The operands in one shape, or scalars."""
    shapes = {x.shape for x in operands if x.ndim}
    if len(shapes) < 2:
        return list(operands)
    shape = broadcast_shapes(op, operands, *shapes)
    return [broadcast(x, shape) if x.ndim else x for x in operands]


def elementwise(op: str, operand_class: str = "", **attrs: Any) -> Callable[..., Tensor]:
    """The function of tensors that applies an elementwise op, or compare, as its operand class asks for.

    >>> elementwise("sqrt")([4, 9]).tolist()
    [2.0, 3.0]
    """
    operand_class = operand_class or ELEMENTWISE[op].operands

    def apply(*operands: TensorLike) -> Tensor:
        """The op of the graph that has this name, element by element; operands broadcast as in numpy."""
        return node(op, *_aligned(op, as_tensors(operands, _LEAST[operand_class])), **attrs)

    apply.__name__ = apply.__qualname__ = attrs.get("direction", op)
    return apply


def compare(direction: str) -> Callable[..., Tensor]:
    """The function that compares: eq, ne, lt, le, gt or ge."""
    return elementwise("compare", "n", direction=direction)


maximum, minimum = elementwise("maximum"), elementwise("minimum")
exp, log, tanh, sign = elementwise("exp"), elementwise("log"), elementwise("tanh"), elementwise("sign")
sqrt, rsqrt = elementwise("sqrt"), elementwise("rsqrt")


def where(condition: TensorLike, x: TensorLike, y: TensorLike) -> Tensor:
    """x where the condition holds, else y."""
    return node("select", *_aligned("where", (as_tensor(condition), *as_tensors((x, y)))))


def astype(x: TensorLike, dtype: Any) -> Tensor:
    """x in another dtype; f32 to i32 drops the fraction, and to bool asks whether it is not 0."""
    return as_tensor(as_tensor(x), as_dtype(dtype))


def iota(count: int) -> Tensor:
    """0, 1, ... count-1 as i32."""
    return node("iota", axis=0, shape=(count,), dtype=I32)


# -- powers --------------------------------------------------------------------------------------------------

POWERS = (0.5, -0.5, *range(-64, 65))  # beyond 64, repeated squaring is no longer what anyone means


def power(x: TensorLike, exponent: TensorLike) -> Tensor:
    """x ** exponent for integers, by repeated squaring, and for 0.5 and -0.5."""
    if not isinstance(exponent, int | float) or exponent not in POWERS:
        need = f"an integer up to {POWERS[-1]}, or 0.5, or -0.5"
        fail("power", "this exponent is not supported", exponent, need, "(p * x.log()).exp()", CompileError)
    if abs(exponent) == 0.5:
        return sqrt(x) if exponent > 0 else rsqrt(x)
    if exponent < 0:
        return 1 / power(x, -exponent)
    x, = as_tensors((x,), I32)
    if exponent < 2:
        return x if exponent else broadcast(as_tensor(1, x.dtype), x.shape)
    root = power(x, exponent // 2)
    return root * root * x if exponent % 2 else root * root


def rpower(exponent: Tensor, base: TensorLike) -> Tensor:
    """base ** exponent for a positive number `base`: exp(exponent * log(base))."""
    if not isinstance(base, int | float) or base <= 0:
        fail("power", "this base is not supported", base, "a positive number", kind=CompileError)
    return exp(exponent * math.log(base))


# -- reductions and dot --------------------------------------------------------------------------------------


def reduction(kind: str) -> Callable[..., Tensor]:
    """The function that reduces by sum, prod, max or min."""
    def reduce(x: TensorLike, axis: Any = None, keepdims: bool = False) -> Tensor:
        """The reduction over an axis, several, or all; they stay, with size 1, if asked."""
        x, = as_tensors((x,), I32)
        axes = normal_axes(kind, x, axis)
        result = node("reduce", x, kind=kind, axes=axes) if axes else x
        if keepdims:
            result = reshape(result, [1 if i in axes else size for i, size in enumerate(x.shape)])
        return result

    reduce.__name__ = reduce.__qualname__ = kind
    return torch_names(reduce)


sum, prod, max, min = map(reduction, ("sum", "prod", "max", "min"))


def matmul(x: TensorLike, y: TensorLike) -> Tensor:
    """x @ y as numpy has it: rows times columns; leading axes are batches and broadcast.

    Shapes: [m,k] @ [k,n] = [m,n]; [k] stands for a row on the left and a column on the right.
    """
    x, y = as_tensors((x, y), I32)
    if not (x.ndim and y.ndim):
        fail("matmul", "a scalar has no rows", f"{x.type} @ {y.type}", "rank 1 or more", "*")
    rows, columns = x.ndim - 1, y.ndim - 2 if y.ndim > 1 else 0
    if x.shape[rows] != y.shape[columns]:
        left = f"{x.shape[rows]} (axis {rows} of {x.type}, the left)"
        right = f"{y.shape[columns]} (axis {columns} of {y.type}, the right)"
        hint = "transpose one of them (.T), or check the layer sizes"
        fail("matmul", "contracted sizes differ", f"{left} and {right}", "equal", hint)
    if x.ndim == 1 or y.ndim <= 2:
        return node("dot_general", x, y, contract=((rows,), (columns,)))
    lead = broadcast_shapes("matmul", (x, y), x.shape[:-2], y.shape[:-2])
    x, y = broadcast(x, lead + x.shape[-2:]), broadcast(y, lead + y.shape[-2:])
    batch = tuple(range(len(lead)))
    return node("dot_general", x, y, contract=((len(lead) + 1,), (len(lead),)), batch=(batch, batch))


# numpy's functions on tensors: np.exp(tensor), and array + tensor
UFUNCS: dict[Callable, Callable[..., Tensor]] = {
    **{row.numpy: elementwise(op) for op, row in ELEMENTWISE.items()},
    **{numpy: compare(direction) for direction, numpy in COMPARE.items()},
    np.matmul: matmul, np.power: power,
}
