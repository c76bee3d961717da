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
from minicc.graph.dtypes import BF16, BOOL, F16, F32, I8, I32, U8, U32, DType, encode
from minicc.graph.elementwise import ELEMENTWISE
from minicc.graph.ir import Builder, Type, Value

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
    call.require(dtype.kind != "b", "bool cannot count", dtype, "a dtype of numbers", kind=DtypeError)
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
    call.require(operand.dtype.kind != "b", f"cannot reduce bools by {kind}", operand, "numbers",
                 "convert first", DtypeError)
    call.require(kind in ("sum", "prod") or all(operand.shape[axis] for axis in axes),
                 f"the {kind} of no elements does not exist", operand, "1 or more along each reduced axis")
    return Type(operand.dtype, tuple(size for axis, size in enumerate(operand.shape) if axis not in axes))


def _dot_general(call: Call) -> Type:
    lhs, rhs = call.operands
    batch, contract, free = call.attrs["batch"], call.attrs["contract"], []
    for side, name, operand in ((0, "lhs", lhs), (1, "rhs", rhs)):
        used = batch[side] + contract[side]
        call.require_axes(f"batch and contract of {name}", used, len(operand.shape))
        free += [size for axis, size in enumerate(operand.shape) if axis not in used]
    for words, (left, right) in (("batch", batch), ("contracted", contract)):
        call.require(len(left) == len(right), f"{words} axes do not pair up", (left, right), "equally many")
        for i, j in zip(left, right, strict=True):
            if lhs.shape[i] != rhs.shape[j]:
                sizes = f"{lhs.shape[i]} (axis {i} of {lhs})", f"{rhs.shape[j]} (axis {j} of {rhs})"
                call.require(False, f"{words} sizes differ", sizes, "equal",
                             "transpose an operand, or check the layer sizes")
    return Type(_product(call), (*(lhs.shape[axis] for axis in batch[0]), *free))


def _product(call: Call) -> DType:
    """The dtype of a sum of products of these operands."""
    dtypes = tuple(type.dtype for type in call.operands)
    results = _PRODUCTS.get(dtypes, ())
    call.require(bool(results), "operand dtypes do not fit", call.operands,
                 "one dtype, a float or i32 or u32; or i8 and u8", CONVERT, DtypeError)
    result = call.attrs.get("dtype", results[0])
    call.require(result in results, "the result cannot have this dtype", result,
                 " or ".join(map(str, results)), "convert the result", DtypeError)
    return result


# dtypes of the operands -> those of the result, the default first
_PRODUCTS: dict[tuple[DType, ...], tuple[DType, ...]] = {
    **{(dtype, dtype): (dtype,) for dtype in (F32, I32, U32)},
    **{(dtype, dtype): (dtype, F32) for dtype in (BF16, F16)},
    **{(one, other): (I32,) for one in (I8, U8) for other in (I8, U8)},
}


def _convolution(call: Call) -> Type:
    x, w = call.operands
    dtype, rank = _product(call), len(x.shape)
    call.require(len(w.shape) == rank >= 3, "the ranks do not fit", call.operands,
                 "[batch, groups, channels, ...] and [groups, results, channels, ...]")
    for what, i, j in (("groups", 1, 0), ("channels", 2, 2)):
        sizes = f"{x.shape[i]} (axis {i} of {x})", f"{w.shape[j]} (axis {j} of {w})"
        call.require(x.shape[i] == w.shape[j], f"the numbers of {what} differ", sizes, "equal")
    stride, dilation, low, high = (call.attrs[name] for name in ("stride", "dilation", "low", "high"))
    call.require(min(stride + dilation, default=1) >= 1, "a stride or dilation is too small",
                 (stride, dilation), "1 or more")
    call.require(min(low + high, default=0) >= 0, "a width is negative", (low, high), "widths of 0 or more")
    shape = [x.shape[0], x.shape[1], w.shape[1]]
    for axis, (size, taps) in enumerate(zip(x.shape[3:], w.shape[3:], strict=True)):
        padded, window = size + low[axis] + high[axis], (taps - 1) * dilation[axis] + 1
        call.require(taps >= 1, "the window has no taps", w, "1 or more along each axis")
        call.require(window <= padded, f"the window is larger than axis {axis + 3}", f"{window} elements",
                     f"at most {padded}, padding included", "a smaller dilation, or more padding")
        shape.append((padded - window) // stride[axis] + 1)
    return Type(dtype, tuple(shape))


def _concatenate(call: Call) -> Type:
    first, axis = call.operands[0], call.attrs["axis"]
    call.require_axes("axis", (axis,), len(first.shape))
    for type in call.operands[1:]:
        call.require(type.dtype == first.dtype, "operand dtypes differ", call.operands, "one dtype", CONVERT,
                     DtypeError)
        same = len(type.shape) == len(first.shape) and all(
            a == b for i, (a, b) in enumerate(zip(type.shape, first.shape, strict=True)) if i != axis)
        call.require(same, "operand shapes do not fit", call.operands, f"one shape, but for axis {axis}")
    size = sum(type.shape[axis] for type in call.operands)
    return Type(first.dtype, (*first.shape[:axis], size, *first.shape[axis + 1:]))


def _reverse(call: Call) -> Type:
    (operand,) = call.operands
    call.require_axes("axes", call.attrs["axes"], len(operand.shape))
    return operand


def _gathered(call: Call) -> Type:
    """What gather gives, and what the updates of scatter must be."""
    operand, indices, axis = *call.operands[:2], call.attrs["axis"]
    call.require_axes("axis", (axis,), len(operand.shape))
    call.require(indices.dtype == I32, "the indices are not i32", indices, "i32", CONVERT, DtypeError)
    return Type(operand.dtype, operand.shape[:axis] + indices.shape + operand.shape[axis + 1:])


def _gather(call: Call) -> Type:
    (operand, indices), result = call.operands, _gathered(call)
    call.require(operand.shape[call.attrs["axis"]] > 0 or not indices.elements,
                 "there is nothing to gather from", operand, "1 or more along the axis")
    return result


def _scatter(call: Call) -> Type:
    (operand, _, updates), kind = call.operands, call.attrs["kind"]
    wanted = _gathered(call)
    call.require(updates == wanted, "the updates do not fit", updates, wanted,
                 kind=ShapeError if updates.dtype == operand.dtype else DtypeError)
    call.require(kind == "set" or operand.dtype.kind != "b", f"cannot combine bools by {kind}", operand,
                 "numbers", "convert first", DtypeError)
    return operand


def _dynamic_slice(call: Call) -> Type:
    operand, *starts = call.operands
    return _window(call, starts, call.attrs["sizes"])


def _dynamic_update_slice(call: Call) -> Type:
    operand, update, *starts = call.operands
    call.require(update.dtype == operand.dtype, "operand dtypes differ", (operand, update), "one dtype",
                 CONVERT, DtypeError)
    call.require(len(update.shape) == len(operand.shape), "the ranks differ", (operand, update), "one rank")
    _window(call, starts, update.shape)
    return operand


def _window(call: Call, starts: list[Type], sizes: tuple[int, ...]) -> Type:
    """The type of a window of these sizes into the first operand."""
    operand = call.operands[0]
    scalars = all(type == Type(I32, ()) for type in starts)
    call.require(scalars and len(starts) == len(operand.shape), "the starts do not fit",
                 ", ".join(map(str, starts)) or "none", f"{len(operand.shape)} times i32[] for {operand}",
                 "one i32 scalar for each axis", ShapeError if scalars else DtypeError)
    call.require(all(0 <= size <= n for size, n in zip(sizes, operand.shape, strict=True)),
                 "the window does not fit into the operand", list(sizes), f"0 to the sizes of {operand}")
    return Type(operand.dtype, sizes)


# -- elementwise ----------------------------------------------------------------------------------------

_CLASSES = {"f": "a float", "n": "numbers", "i": "integers", "b": "bool", "bi": "bool or integers",
            "nb": "any dtype"}


def _per_element(call: Call, alike: tuple[Type, ...], kinds: str, dtype: DType | None = None) -> Type:
    """The type of an op on operands of one shape, or scalars; some of them alike in dtype.

    kinds: which dtypes those may have, a key of _CLASSES. dtype: the result's, if it is not theirs.
    """
    allowed, words = kinds.replace("n", "fi"), _CLASSES[kinds]
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

# op -> number of operands (-2: 2 or more), and the rule
_RULES: dict[str, tuple[int, Callable[[Call], Type]]] = {
    **{op: (row.arity, _elementwise) for op, row in ELEMENTWISE.items()},
    "compare": (2, _compare), "select": (3, _select), "convert": (1, _convert),
    "constant": (0, _constant), "iota": (0, _iota),
    "broadcast_in_dim": (1, _broadcast_in_dim), "reshape": (1, _reshape), "transpose": (1, _transpose),
    "slice": (1, _slice), "pad": (2, _pad), "reduce": (1, _reduce), "dot_general": (2, _dot_general),
    "concatenate": (-1, _concatenate), "reverse": (1, _reverse), "gather": (2, _gather),
    "scatter": (3, _scatter), "dynamic_slice": (-1, _dynamic_slice),
    "dynamic_update_slice": (-2, _dynamic_update_slice), "convolution": (2, _convolution),
    "optimization_barrier": (-1, lambda call: call.operands[0]),
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
    if len(operands) != count and not len(operands) >= -count > 0:
        need = count if count >= 0 else f"{-count} or more"
        raise CompileError(op, "wrong number of operands", got=len(operands), need=need, at=at)
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
    """A constant node of a stored array, or of numbers and the dtype that is to hold them."""
    array = np.asarray(value) if dtype is None else encode(value, dtype)
    return build(builder, "constant", (), {"value": array}, locs)
