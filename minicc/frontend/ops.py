"""Operations that compute: elementwise, compare, select, reduce, dot; broadcasting as numpy does.

    add(x, b)     x: f32[8,3], b: f32[3]  ->  add(x, broadcast_in_dim(b) shape=[8,3] dims=[1])
    add(x, 1)     x: bf16[8,3]            ->  add(x, 1.0)
    x @ w         x: f32[8,3], w: f32[3]  ->  dot_general(x, w) contract=[1]x[0] : f32[8]

In: tensors, arrays, numbers. Out: tensors, one or few nodes each. Invariants: operands have one dtype, that
of promotion.py, and one shape when they reach the graph, except that a scalar is passed as it is; a bool
counts as 0 or 1 in arithmetic, and dividing integers gives f32. XLA's front ends do this in the same place;
the graph itself broadcasts nothing. Read next: special.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from minicc.errors import DtypeError
from minicc.frontend.arrays import as_dtype
from minicc.frontend.primitives import (
    TensorLike,
    as_float,
    as_tensor,
    as_tensors,
    in_f32,
    node,
    normal_axes,
    torch_names,
)
from minicc.frontend.scope import fail
from minicc.frontend.shapes import broadcast, broadcast_shapes, reshape
from minicc.graph.elementwise import ELEMENTWISE
from minicc.graph.ir import BOOL, F32, I8, I16, I32, U8, DType

if TYPE_CHECKING:
    from minicc.frontend.tensor import Tensor

Function: TypeAlias = "Callable[..., Tensor]"

# -- elementwise ---------------------------------------------------------------------------------------------

_LEAST = {"f": F32, "n": I32, "i": I32, "bi": BOOL}  # operand class -> the least dtype that operands become


def _aligned(op: str, operands: tuple[Tensor, ...]) -> list[Tensor]:
    """The operands in one shape, or scalars."""
    shapes = {x.shape for x in operands if x.ndim}
    if len(shapes) < 2:
        return list(operands)
    shape = broadcast_shapes(op, operands, *shapes)
    return [broadcast(x, shape) if x.ndim else x for x in operands]


def elementwise(op: str, summary: str = "", least: DType | None = None,
                **attrs: Any) -> Callable[..., Tensor]:
    """The function of tensors that applies an elementwise op, or compare, to operands of `least` or above.

    >>> elementwise("sqrt")([4, 9]).tolist()
    [2.0, 3.0]
    """
    least = least or _LEAST[ELEMENTWISE[op].operands]

    def unary(x: TensorLike) -> Tensor:
        return node(op, *as_tensors((x,), least), **attrs)

    def binary(x: TensorLike, y: TensorLike) -> Tensor:
        return node(op, *_aligned(op, as_tensors((x, y), least)), **attrs)

    function = unary if op in ELEMENTWISE and ELEMENTWISE[op].arity == 1 else binary
    function.__name__ = function.__qualname__ = attrs.get("direction", op)
    function.__doc__ = summary or f"The graph's {op} of each element; operands broadcast as in numpy."
    return function


def compare(direction: str, summary: str = "") -> Callable[..., Tensor]:
    """The function that compares: eq, ne, lt, le, gt or ge."""
    least = BOOL if direction in ("eq", "ne") else I32
    return elementwise("compare", summary, least, direction=direction)


add: Function = elementwise("add", "x + y.")
subtract: Function = elementwise("subtract", "x - y.")
multiply: Function = elementwise("multiply", "x * y.")
divide: Function = elementwise("divide", "x / y, in floats.", F32)
maximum: Function = elementwise("maximum", "The larger of x and y; NaN if either is.")
minimum: Function = elementwise("minimum", "The smaller of x and y; NaN if either is.")
negative: Function = elementwise("negate", "-x.")
absolute: Function = elementwise("abs", "x without its sign.")
sign: Function = elementwise("sign", "-1, 0 or 1; NaN of NaN.")
exp: Function = elementwise("exp", "e to the power x.")
expm1: Function = elementwise("expm1", "exp(x) - 1, exact near 0.")
log: Function = elementwise("log", "The natural logarithm.")
log1p: Function = elementwise("log1p", "log(1 + x), exact near 0.")
sqrt: Function = elementwise("sqrt", "The square root; NaN below 0.")
rsqrt: Function = elementwise("rsqrt", "1 / sqrt(x).")
tanh: Function = elementwise("tanh", "The hyperbolic tangent.")
sin: Function = elementwise("sin", "The sine of x in radians.")
cos: Function = elementwise("cos", "The cosine of x in radians.")
bitwise_and: Function = elementwise("and", "The bits that x and y both have; of bools, and.")
bitwise_or: Function = elementwise("or", "The bits that x or y has; of bools, or.")
bitwise_xor: Function = elementwise("xor", "The bits that differ; of bools, either but not both.")
bitwise_not: Function = elementwise("not", "All bits turned over; of bools, not.")
left_shift: Function = elementwise("shift_left", "x * 2**y without the bits that leave.")
right_shift: Function = elementwise("shift_right", "x // 2**y, the fraction cut off downwards.")
equal: Function = compare("eq", "Whether x == y; NaN equals nothing.")
not_equal: Function = compare("ne", "Whether x != y.")
less: Function = compare("lt", "Whether x < y.")
less_equal: Function = compare("le", "Whether x <= y.")
greater: Function = compare("gt", "Whether x > y.")
greater_equal: Function = compare("ge", "Whether x >= y.")


def _rounding(op: str, summary: str) -> Callable[..., Tensor]:
    """The function that rounds floats; integers are round already."""
    of_floats = elementwise(op)

    def rounded(x: TensorLike) -> Tensor:
        x, = as_tensors((x,), I32)
        return of_floats(x) if x.dtype.kind == "f" else x

    rounded.__name__, rounded.__doc__ = op, summary
    return rounded


floor: Function = _rounding("floor", "The next integer below, as a float.")
ceil: Function = _rounding("ceil", "The next integer above, as a float.")
rint: Function = _rounding("round", "The nearest integer, as a float; a half goes to the even one.")


def where(condition: TensorLike, x: TensorLike, y: TensorLike) -> Tensor:
    """x where the condition holds, else y."""
    condition = as_tensor(condition)
    if condition.dtype is not BOOL:
        fail("where", "the condition is not bool", condition.type, "bool", "x != 0", DtypeError)
    return node("select", *_aligned("where", (condition, *as_tensors((x, y)))))


def astype(x: TensorLike, dtype: Any) -> Tensor:
    """x in another dtype; floats to integers drop the fraction, and to bool asks whether it is not 0."""
    return as_tensor(as_tensor(x), as_dtype(dtype))


def iota(count: int, dtype: Any = I32) -> Tensor:
    """0, 1, ... count-1."""
    return node("iota", axis=0, shape=(count,), dtype=as_dtype(dtype))


# -- division with a remainder -------------------------------------------------------------------------------

_rest = elementwise("remainder")


def fmod(x: TensorLike, y: TensorLike) -> Tensor:
    """What division towards zero leaves, with the sign of x; of integers by 0, 0, as in numpy."""
    x, y = as_tensors((x, y), I32)
    return _rest(x, y) if x.dtype.kind == "f" else where(y == 0, 0, _rest(x, y))


def floor_divide(x: TensorLike, y: TensorLike) -> Tensor:
    """The largest integer not above x / y; integers divided by 0 give 0, as in numpy."""
    return divmod(x, y)[0]


def remainder(x: TensorLike, y: TensorLike) -> Tensor:
    """x - x // y * y, with the sign of y; of integers by 0, 0."""
    return divmod(x, y)[1]


def divmod(x: TensorLike, y: TensorLike) -> tuple[Tensor, Tensor]:
    """The pair of x // y and x % y, as Python and numpy have them."""
    x, y = as_tensors((x, y), I32)
    dtype, least = x.dtype, F32 if x.dtype.kind == "f" else x.dtype
    x, y = as_tensor(x, least), as_tensor(y, least)
    rest = _rest(x, y)
    wrong = (rest != 0) & ((rest < 0) != (y < 0))  # not of y's sign: one y is missing
    if least is F32:
        nearest = rint((x - rest) / y - wrong.astype(F32))  # an integer but for rounding
        return where(y == 0, x / y, nearest).astype(dtype), where(wrong, rest + y, rest).astype(dtype)
    quotient = node("divide", *_aligned("floor_divide", (x, y))) - wrong.astype(x.dtype)
    return where(y == 0, 0, quotient), where(y == 0, 0, where(wrong, rest + y, rest))


# -- powers --------------------------------------------------------------------------------------------------

MOST_SQUARED = 16  # floats to a higher power are less exact by repeated squaring than by the op of the graph


def power(x: TensorLike, exponent: TensorLike) -> Tensor:
    """x ** exponent; integers wrap around, and a negative power of them is a float.

    A number as the exponent is best: small whole ones are multiplications, 0.5 is a square root. Integers to
    the power of a tensor's negative integers give 0.
    """
    x, = as_tensors((x,), I32)
    if isinstance(exponent, float) or (isinstance(exponent, int) and exponent < 0):
        x = as_float(x)
    if isinstance(exponent, int | float) and abs(exponent) == 0.5:
        return sqrt(x) if exponent > 0 else rsqrt(x)
    whole = isinstance(exponent, int | float) and exponent == exponent // 1
    if whole and (x.dtype.kind == "i" or abs(exponent) <= MOST_SQUARED):
        return in_f32(_squared)(x, n=int(exponent)) if x.dtype.kind == "f" else _squared(x, int(exponent))
    x, exponent = as_tensors((x, exponent), I32)
    if x.dtype.kind == "f":
        return node("power", *_aligned("power", (x, exponent)))
    result, base = as_tensor(1, x.dtype), x
    for bit in range(x.dtype.itemsize * 8 - (not x.dtype.unsigned)):
        result = where((exponent >> bit & 1) != 0, result * base, result)
        base = base * base
    return where(exponent < 0, 0, result)


def _squared(x: Tensor, n: int) -> Tensor:
    """x ** n by repeated squaring."""
    if n < 2:
        return 1 / _squared(x, -n) if n < 0 else x if n else broadcast(as_tensor(1, x.dtype), x.shape)
    root = _squared(x, n // 2)
    return root * root * x if n % 2 else root * root


# -- reductions and dot --------------------------------------------------------------------------------------


def reduction(kind: str, summary: str) -> Callable[..., Tensor]:
    """The function that reduces by sum, prod, max or min."""
    def reduce(x: TensorLike, axis: Any = None, keepdims: bool = False, *, dtype: Any = None) -> Tensor:
        given = as_tensor(x)
        x = given if dtype is None else astype(given, dtype)
        x, = as_tensors((x,), I32)
        if dtype is None and kind in ("sum", "prod") and x.dtype in (I8, I16, U8):
            x = as_tensor(x, I32)
        axes = normal_axes(kind, x, axis)
        result = node("reduce", x, kind=kind, axes=axes) if axes else x
        if keepdims:
            result = reshape(result, [1 if i in axes else size for i, size in enumerate(x.shape)])
        return as_tensor(result, BOOL) if given.dtype is BOOL and kind in ("max", "min") else result

    reduce.__name__ = reduce.__qualname__ = kind
    reduce.__doc__ = f"{summary} over an axis, several, or all; they stay, with size 1, if asked."
    return torch_names(reduce)


sum: Function = reduction("sum", "The sum (of bools and small integers in i32)")
prod: Function = reduction("prod", "The product (of bools and small integers in i32)")
max: Function = reduction("max", "The largest element, NaN if there is one,")
min: Function = reduction("min", "The smallest element, NaN if there is one,")


def dot_operands(x: TensorLike, y: TensorLike) -> tuple[Tensor, Tensor]:
    """The operands in dtypes that a dot takes: i8 and u8 as they are, others in the dtype that holds both."""
    x, y = as_tensor(x), as_tensor(y)
    if {x.dtype, y.dtype} <= {I8, U8}:
        return x, y
    x, y = as_tensors((x, y), I32)
    return (x.astype(I32), y.astype(I32)) if x.dtype is I16 else (x, y)


def matmul(x: TensorLike, y: TensorLike) -> Tensor:
    """x @ y as numpy has it: rows times columns; leading axes are batches and broadcast.

    Products of i8 and u8 are summed in i32, of bf16 and f16 in f32, rounded once.

    Shapes: [m,k] @ [k,n] = [m,n]; [k] stands for a row on the left and a column on the right.
    """
    x, y = dot_operands(x, y)
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
