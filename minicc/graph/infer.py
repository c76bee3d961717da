"""The type of every operation's result, and every complaint about its operands.

    infer("dot_general", (f32[128,784], f32[784,512]), {"contract": ((1,), (0,))})
        ->  (f32[128,512],), {"contract": ((1,), (0,)), "batch": ((), ())}
    infer("add", (f32[3], f32[4]), {})  ->  ShapeError: add: operand shapes differ. got f32[3] and f32[4]; ...

Goes in: an op name, the operands' types, its attributes. Comes out: the result types, and the attributes in
normal form; or an error that names the op, what it got, what it needs and the user's lines. `build` adds the
node that goes with them, and is how every stage makes nodes. Invariants:
- A node that exists is well typed; the stages below check nothing again.
- Attributes are stored in one normal form, that of attributes.py.
- Sizes of zero are legal everywhere, but a maximum over nothing is not.
- An elementwise operand of rank 0 stands for an array of that value; no other broadcasting is implied.

XLA calls this shape inference and also infers layouts and dynamic bounds; StableHLO writes the same rules as
prose, op by op, in its specification, which is the text to read next. After it: evaluate.py, what the ops
mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from minicc.errors import CompileError, DtypeError, Loc, ShapeError
from minicc.graph.attributes import nearest, normal_attributes
from minicc.graph.elementwise import ELEMENTWISE
from minicc.graph.ir import BOOL, Builder, DType, Type, Value

CONVERT = "convert one of them"


@dataclass(frozen=True)
class Call:
    """An op about to be typed: what the rules below look at."""

    op: str
    operands: tuple[Type, ...]
    attrs: Mapping[str, Any]
    at: tuple[Loc, ...]

    def require(self, holds: bool, what: str, got: object, need: object, hint: str = "",
                kind: type[CompileError] = ShapeError) -> None:
        """Raise an error that says what is wrong, unless the condition holds. got: one thing, or a tuple."""
        if not holds:
            found = " and ".join(map(str, got)) if isinstance(got, tuple) else got
            raise kind(self.op, what, got=found, need=need, at=self.at, hint=hint)

    def require_axes(self, name: str, axes: tuple[int, ...], rank: int) -> None:
        """Require different axes, within the rank."""
        need = f"different axes from 0 to {rank - 1}" if rank else "none: rank 0 has no axes"
        self.require(len({*axes} & {*range(rank)}) == len(axes),
                     f"{name} names axes that do not exist, or twice", list(axes), need)


# -- one rule per op that is not elementwise ------------------------------------------------------------


def _constant(call: Call) -> Type:
    return Type.of(call.attrs["value"])


def _iota(call: Call) -> Type:
    shape, dtype = call.attrs["shape"], call.attrs["dtype"]
    call.require_axes("axis", (call.attrs["axis"],), len(shape))
    call.require(dtype.kind != "b", "bool cannot count", dtype, "i32 or f32", kind=DtypeError)
    return Type(dtype, shape)


def _broadcast_in_dim(call: Call) -> Type:
    (operand,), shape = call.operands, call.attrs["shape"]
    call.require_axes("dims", call.attrs["dims"], len(shape))
    for axis, dim in enumerate(call.attrs["dims"]):
        size, wanted = operand.shape[axis], shape[dim]
        call.require(size in (1, wanted), "the operand does not fit the result",
                     f"size {size} (axis {axis} of {operand})", f"1 or {wanted} (axis {dim} of the result)",
                     "axes of size 1 stretch, others must agree")
    return Type(operand.dtype, shape)


def _reshape(call: Call) -> Type:
    (operand,) = call.operands
    result = Type(operand.dtype, call.attrs["shape"])
    call.require(operand.elements == result.elements, "the number of elements changes",
                 f"{operand} with {operand.elements} elements", f"as many as {result} has, {result.elements}")
    return result


def _transpose(call: Call) -> Type:
    (operand,), perm = call.operands, call.attrs["perm"]
    call.require_axes("perm", perm, len(operand.shape))
    return Type(operand.dtype, tuple(operand.shape[axis] for axis in perm))


def _slice(call: Call) -> Type:
    (operand,), shape = call.operands, []
    cuts = zip(call.attrs["start"], call.attrs["limit"], call.attrs["stride"], operand.shape, strict=True)
    for axis, (start, limit, stride, size) in enumerate(cuts):
        call.require(0 <= start <= limit <= size, f"axis {axis} leaves the operand",
                     f"[{start}:{limit}] of {operand}", f"0 <= start <= limit <= {size}")
        call.require(stride >= 1, f"axis {axis} has a bad stride", stride, "1 or more")
        shape.append(-(-(limit - start) // stride))
    return Type(operand.dtype, tuple(shape))


def _pad(call: Call) -> Type:
    operand, fill = call.operands
    widths = [call.attrs[name] for name in ("low", "high", "interior")]
    scalar = f"{operand.dtype}[]"
    call.require(fill.shape == (), "the fill value is no scalar", fill, scalar)
    call.require(fill.dtype == operand.dtype, "the fill value has another dtype", fill, scalar, "",
                 DtypeError)
    call.require(all(width >= 0 for side in widths for width in side), "a width is negative", tuple(widths),
                 "widths of 0 or more", "slice, to cut")
    sizes = zip(operand.shape, *widths, strict=True)
    return Type(operand.dtype, tuple(low + n + max(n - 1, 0) * inner + high for n, low, high, inner in sizes))


def _reduce(call: Call) -> Type:
    (operand,), kind, axes = call.operands, call.attrs["kind"], call.attrs["axes"]
    call.require_axes("axes", axes, len(operand.shape))
    call.require(operand.dtype.kind != "b", f"cannot reduce bools by {kind}", operand, "f32 or i32",
                 "convert first", DtypeError)
    call.require(kind in ("sum", "prod") or all(operand.shape[axis] for axis in axes),
                 f"the {kind} of no elements does not exist", operand, "1 or more along each reduced axis")
    return Type(operand.dtype, tuple(size for axis, size in enumerate(operand.shape) if axis not in axes))


def _dot_general(call: Call) -> Type:
    lhs, rhs = call.operands
    call.require(lhs.dtype == rhs.dtype and lhs.dtype != BOOL, "operand dtypes do not fit", call.operands,
                 "one dtype, f32 or i32", CONVERT, DtypeError)
    batch, contract, free = call.attrs["batch"], call.attrs["contract"], []
    for side, name, operand in ((0, "lhs", lhs), (1, "rhs", rhs)):
        used = batch[side] + contract[side]
        call.require_axes(f"batch and contract of {name}", used, len(operand.shape))
        free += [size for axis, size in enumerate(operand.shape) if axis not in used]
    for words, (left, right) in (("batch", batch), ("contracted", contract)):
        call.require(len(left) == len(right), f"{words} axes do not pair up", (left, right), "equally many")
        for i, j in zip(left, right, strict=True):
            sizes = f"{lhs.shape[i]} (axis {i} of {lhs})", f"{rhs.shape[j]} (axis {j} of {rhs})"
            call.require(lhs.shape[i] == rhs.shape[j], f"{words} sizes differ", sizes, "equal",
                         "transpose an operand, or check the layer sizes")
    return Type(lhs.dtype, (*(lhs.shape[axis] for axis in batch[0]), *free))


# -- elementwise ----------------------------------------------------------------------------------------

_CLASSES = {"f": ("f", "f32"), "n": ("fi", "f32 or i32"), "b": ("b", "bool"), "nb": ("fib", "any dtype")}


def _per_element(call: Call, alike: tuple[Type, ...], kinds: str, dtype: DType | None = None) -> Type:
    """The type of an op on operands of one shape, or scalars; some of them alike in dtype.

    kinds: which dtypes those may have, a key of _CLASSES. dtype: the result's, if it is not theirs.
    """
    allowed, words = _CLASSES[kinds]
    for position, type in enumerate(alike):
        call.require(type.dtype.kind in allowed, f"operand {position} has the wrong dtype", type, words,
                     "convert it first", DtypeError)
        call.require(type.dtype == alike[0].dtype, "operand dtypes differ", alike, "one dtype", CONVERT,
                     DtypeError)
    shapes = {type.shape for type in call.operands if type.shape}
    call.require(len(shapes) < 2, "operand shapes differ", call.operands, "one shape, or scalars",
                 "broadcast_in_dim or reshape the smaller one")
    return Type(dtype or alike[0].dtype, shapes.pop() if shapes else ())


def _elementwise(call: Call) -> Type:
    return _per_element(call, call.operands, ELEMENTWISE[call.op].operands)


def _convert(call: Call) -> Type:
    return _per_element(call, call.operands, "nb", call.attrs["dtype"])


def _compare(call: Call) -> Type:
    return _per_element(call, call.operands, "nb" if call.attrs["direction"] in ("eq", "ne") else "n", BOOL)


def _select(call: Call) -> Type:
    predicate, *others = call.operands
    call.require(predicate.dtype == BOOL, "the predicate is not bool", predicate, "bool", "compare it with 0",
                 DtypeError)
    return _per_element(call, tuple(others), "nb")


# -- the entry points -----------------------------------------------------------------------------------

# op -> number of operands, and the rule
_RULES: dict[str, tuple[int, Callable[[Call], Type]]] = {
    **{op: (row.arity, _elementwise) for op, row in ELEMENTWISE.items()},
    "compare": (2, _compare), "select": (3, _select), "convert": (1, _convert),
    "constant": (0, _constant), "iota": (0, _iota),
    "broadcast_in_dim": (1, _broadcast_in_dim), "reshape": (1, _reshape), "transpose": (1, _transpose),
    "slice": (1, _slice), "pad": (2, _pad), "reduce": (1, _reduce), "dot_general": (2, _dot_general),
}
OPS: tuple[str, ...] = tuple(_RULES)  # every op that computes something; "parameter" only stands for an input


def infer(op: str, operands: tuple[Type, ...], attrs: Mapping[str, Any],
          at: tuple[Loc, ...] = ()) -> tuple[tuple[Type, ...], Mapping[str, Any]]:
    """The result types of an op, and its attributes in normal form.

    Raises: ShapeError, DtypeError, or CompileError for an unknown op, a wrong operand count or a bad
    attribute.

    >>> from minicc.graph.ir import F32
    >>> types, attrs = infer("reduce", (Type(F32, (3, 4)),), {"kind": "sum", "axes": [0]})
    >>> str(*types), attrs
    ('f32[4]', {'kind': 'sum', 'axes': (0,)})
    """
    if op not in _RULES:
        raise CompileError(op, "there is no such op", need="one of " + ", ".join(OPS), at=at,
                           hint=nearest(op, OPS))
    count, rule = _RULES[op]
    if len(operands) != count:
        raise CompileError(op, "wrong number of operands", got=len(operands), need=count, at=at)
    call = Call(op, operands, normal_attributes(op, operands, attrs, at), at)
    result = rule(call)
    call.require(min(result.shape, default=0) >= 0, "a size is negative", result, "sizes of 0 or more")
    return (result,), call.attrs


def build(builder: Builder, op: str, operands: tuple[Value, ...], attrs: Mapping[str, Any] | None = None,
          locs: tuple[Loc, ...] = ()) -> Value:
    """The node of this op on these operands, typed and checked."""
    types, normal = infer(op, tuple(value.type for value in operands), attrs or {}, locs)
    return builder.node(op, operands, normal, types, locs)


def constant(builder: Builder, value: Any, dtype: DType | None = None, locs: tuple[Loc, ...] = ()) -> Value:
    """A constant node of an array, or of a number and a dtype."""
    array = np.asarray(value) if dtype is None else np.asarray(value, dtype.numpy)
    return build(builder, "constant", (), {"value": array}, locs)
