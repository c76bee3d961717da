"""The type of every operation's result, and every complaint about its operands.

    infer("dot_general", (f32[128,784], f32[784,512]), {"contract": ((1,), (0,))})  ->  (f32[128,512],)
    infer("add", (f32[3], f32[4]), {})  ->  ShapeError: add: operand shapes differ. got f32[3] and f32[4]; ...

Goes in: an op name, the operands' types, its attributes. Comes out: the result types; or an error that names
the op, what it got, what it needs and the user's lines. `build` adds the node that goes with them, and is
how every stage makes nodes. Invariants:
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
from typing import Any, NoReturn

import numpy as np

from minicc.errors import CompileError, DtypeError, Loc, ShapeError
from minicc.graph.attributes import nearest, normal_attributes
from minicc.graph.elementwise import ELEMENTWISE
from minicc.graph.ir import BOOL, DTYPES, Builder, DType, Type, Value

# -- one rule per op that is not elementwise ------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """An op about to be typed: what the rules below look at."""

    op: str
    operands: tuple[Type, ...]
    attrs: Mapping[str, Any]
    at: tuple[Loc, ...]

    def fail(self, what: str, got: object, need: object, hint: str = "", kind: type = ShapeError) -> NoReturn:
        """Raise the error, with the op and the lines."""
        raise kind(self.op, what, got=got, need=need, at=self.at, hint=hint)

    def one_per_axis(self, *names: str) -> None:
        """Check that each attribute has one entry per axis of the first operand."""
        shape = self.operands[0].shape
        for name in names:
            if len(self.attrs[name]) != len(shape):
                self.fail(f"{name} needs one entry per axis", list(self.attrs[name]),
                          f"{len(shape)} entries for {self.operands[0]}")

    def axes(self, name: str, axes: tuple[int, ...], rank: int) -> None:
        """Check that axes are different and within the rank."""
        if any(not 0 <= axis < rank for axis in axes) or len(set(axes)) != len(axes):
            need = f"different axes from 0 to {rank - 1}" if rank else "none: rank 0 has no axes"
            self.fail(f"{name} names axes that do not exist, or twice", list(axes), need)

    def sizes(self, name: str, shape: tuple[int, ...]) -> None:
        """Check that no size is negative."""
        if any(size < 0 for size in shape):
            self.fail(f"{name} has a negative size", list(shape), "sizes of 0 or more")


def _constant(call: Call) -> Type:
    value = call.attrs["value"]
    dtype = next(dtype for dtype in DTYPES.values() if dtype.numpy == value.dtype)
    return Type(dtype, value.shape)


def _iota(call: Call) -> Type:
    shape, dtype = call.attrs["shape"], call.attrs["dtype"]
    call.sizes("shape", shape)
    call.axes("axis", (call.attrs["axis"],), len(shape))
    if dtype.kind == "b":
        call.fail("bool cannot count", dtype, "i32 or f32", kind=DtypeError)
    return Type(dtype, shape)


def _convert(call: Call) -> Type:
    return Type(call.attrs["dtype"], call.operands[0].shape)


def _broadcast_in_dim(call: Call) -> Type:
    shape, dims, operand = call.attrs["shape"], call.attrs["dims"], call.operands[0]
    call.one_per_axis("dims")
    call.sizes("shape", shape)
    call.axes("dims", dims, len(shape))
    for axis, dim in enumerate(dims):
        if operand.shape[axis] not in (1, shape[dim]):
            call.fail("the operand does not fit the result",
                      f"size {operand.shape[axis]} (axis {axis} of {operand})",
                      f"1 or {shape[dim]} (axis {dim} of the result)",
                      "axes of size 1 stretch, others must agree")
    return Type(operand.dtype, shape)


def _reshape(call: Call) -> Type:
    operand, result = call.operands[0], Type(call.operands[0].dtype, call.attrs["shape"])
    call.sizes("shape", result.shape)
    if operand.elements != result.elements:
        call.fail("the number of elements changes", f"{operand} with {operand.elements} elements",
                  f"as many as {result} has, {result.elements}")
    return result


def _transpose(call: Call) -> Type:
    operand, perm = call.operands[0], call.attrs["perm"]
    call.one_per_axis("perm")
    call.axes("perm", perm, len(operand.shape))
    return Type(operand.dtype, tuple(operand.shape[axis] for axis in perm))


def _slice(call: Call) -> Type:
    operand = call.operands[0]
    call.one_per_axis("start", "limit", "stride")
    start, limit, stride = (call.attrs[name] for name in ("start", "limit", "stride"))
    for axis, size in enumerate(operand.shape):
        if not 0 <= start[axis] <= limit[axis] <= size:
            call.fail(f"axis {axis} leaves the operand", f"[{start[axis]}:{limit[axis]}] of {operand}",
                      f"0 <= start <= limit <= {size}")
        if stride[axis] < 1:
            call.fail(f"axis {axis} has a bad stride", stride[axis], "1 or more")
    return Type(operand.dtype, tuple(-(-(b - a) // s) for a, b, s in zip(start, limit, stride, strict=True)))


def _pad(call: Call) -> Type:
    operand, fill = call.operands
    call.one_per_axis("low", "high", "interior")
    if fill.shape != ():
        call.fail("the fill value is no scalar", fill, f"{operand.dtype}[]")
    if fill.dtype != operand.dtype:
        call.fail("the fill value has another dtype", fill, f"{operand.dtype}[]", kind=DtypeError)
    widths = [call.attrs[name] for name in ("low", "high", "interior")]
    if any(width < 0 for side in widths for width in side):
        call.fail("a width is negative", " ".join(map(str, widths)), "widths of 0 or more", "slice, to cut")
    sizes = zip(operand.shape, *widths, strict=True)
    return Type(operand.dtype, tuple(low + n + max(n - 1, 0) * inner + high for n, low, high, inner in sizes))


def _reduce(call: Call) -> Type:
    operand, kind, axes = call.operands[0], call.attrs["kind"], call.attrs["axes"]
    call.axes("axes", axes, len(operand.shape))
    if operand.dtype.kind == "b":
        call.fail(f"cannot reduce bools by {kind}", operand, "f32 or i32", "convert first", DtypeError)
    if kind in ("max", "min") and any(operand.shape[axis] == 0 for axis in axes):
        call.fail(f"the {kind} of no elements does not exist", operand, "1 or more along each reduced axis")
    return Type(operand.dtype, tuple(size for axis, size in enumerate(operand.shape) if axis not in axes))


def _dot_general(call: Call) -> Type:
    lhs, rhs = call.operands
    if lhs.dtype != rhs.dtype or lhs.dtype.kind == "b":
        call.fail("operand dtypes do not fit", f"{lhs} and {rhs}", "one dtype, f32 or i32",
                  "convert one of them", DtypeError)
    used = []
    for side, name in enumerate(("lhs", "rhs")):
        used.append(call.attrs["batch"][side] + call.attrs["contract"][side])
        call.axes(f"batch and contract of {name}", used[side], len(call.operands[side].shape))
    for attr, words in (("batch", "batch"), ("contract", "contracted")):
        left, right = call.attrs[attr]
        if len(left) != len(right):
            call.fail(f"{words} axes do not pair up", f"{list(left)} and {list(right)}", "equally many")
        for i, j in zip(left, right, strict=True):
            if lhs.shape[i] != rhs.shape[j]:
                call.fail(f"{words} sizes differ",
                          f"{lhs.shape[i]} (axis {i} of {lhs}) and {rhs.shape[j]} (axis {j} of {rhs})",
                          "equal", "transpose an operand, or check the layer sizes")
    batch = tuple(lhs.shape[axis] for axis in call.attrs["batch"][0])
    free = tuple(size for side in (0, 1) for axis, size in enumerate(call.operands[side].shape)
                 if axis not in used[side])
    return Type(lhs.dtype, batch + free)


# -- elementwise ----------------------------------------------------------------------------------------

_CLASSES = {"f": ("f", "f32"), "n": ("fi", "f32 or i32"), "b": ("b", "bool"), "nb": ("fib", "any dtype")}


def _same_dtype(call: Call, types: tuple[Type, ...], operand_class: str) -> DType:
    kinds, words = _CLASSES[operand_class]
    for position, type in enumerate(types):
        if type.dtype.kind not in kinds:
            call.fail(f"operand {position} has the wrong dtype", type, words, "convert it first", DtypeError)
        if type.dtype != types[0].dtype:
            call.fail("operand dtypes differ", " and ".join(map(str, types)), "one dtype",
                      "convert one of them", DtypeError)
    return types[0].dtype


def _same_shape(call: Call) -> tuple[int, ...]:
    shapes = {type.shape for type in call.operands if type.shape}
    if len(shapes) > 1:
        call.fail("operand shapes differ", " and ".join(map(str, call.operands)), "one shape, or scalars",
                  "broadcast_in_dim or reshape the smaller one")
    return shapes.pop() if shapes else ()


def _elementwise(call: Call) -> Type:
    dtype = _same_dtype(call, call.operands, ELEMENTWISE[call.op].operands)
    return Type(dtype, _same_shape(call))


def _compare(call: Call) -> Type:
    _same_dtype(call, call.operands, "nb" if call.attrs["direction"] in ("eq", "ne") else "n")
    return Type(BOOL, _same_shape(call))


def _select(call: Call) -> Type:
    if call.operands[0].dtype != BOOL:
        call.fail("the predicate is not bool", call.operands[0], "bool", "compare it with 0", DtypeError)
    dtype = _same_dtype(call, call.operands[1:], "nb")
    return Type(dtype, _same_shape(call))


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
          at: tuple[Loc, ...] = ()) -> tuple[Type, ...]:
    """The result types of an op.

    Raises: ShapeError, DtypeError, or CompileError for an unknown op, a wrong operand count or a bad
    attribute.

    >>> [str(type) for type in infer("reduce", (Type(DTYPES["f32"], (3, 4)),), {"kind": "sum", "axes": (0,)})]
    ['f32[4]']
    """
    return _typed(op, operands, attrs, at)[0]


def build(builder: Builder, op: str, operands: tuple[Value, ...], attrs: Mapping[str, Any] | None = None,
          locs: tuple[Loc, ...] = ()) -> Value:
    """The node of this op on these operands, typed and checked."""
    types, normal = _typed(op, tuple(value.type for value in operands), attrs or {}, locs)
    return builder.node(op, operands, normal, types, locs)


def constant(builder: Builder, value: Any, dtype: DType | None = None, locs: tuple[Loc, ...] = ()) -> Value:
    """A constant node of an array, or of a number and a dtype."""
    array = np.asarray(value) if dtype is None else np.asarray(value, dtype.numpy)
    return build(builder, "constant", (), {"value": array}, locs)


def _typed(op: str, operands: tuple[Type, ...], attrs: Mapping[str, Any],
           at: tuple[Loc, ...]) -> tuple[tuple[Type, ...], dict[str, Any]]:
    if op not in _RULES:
        raise CompileError(op, "there is no such op", need="one of " + ", ".join(OPS), at=at,
                           hint=nearest(op, OPS))
    count, rule = _RULES[op]
    if len(operands) != count:
        raise CompileError(op, "wrong number of operands", got=len(operands), need=count, at=at)
    normal = normal_attributes(op, operands, attrs, at)
    return (rule(Call(op, operands, normal, at)),), normal
