"""What a graph means: the same answer in plain numpy, one case per op.

    evaluate(graph, [x, w])                 ->  [the outputs, stored in the dtypes the graph says]
    evaluate(graph, [x, w], dtype64=True)   ->  [the same with every float in float64: the oracle]

Goes in: a graph, and one array per input. Comes out: one new array per output. Every later stage is right
when it gives this answer, so this file is written to be obvious rather than fast. Invariants: results have
exactly the inferred dtype and shape, and are stored as dtypes.py says (bf16 as its bits); nothing warns. Sums
and dots are in whatever order numpy takes, so compare with a tolerance.

XLA keeps such a reference interpreter too (the HLO evaluator), and StableHLO a separate one as its
specification's test. Read next: rewrite.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from minicc.errors import DtypeError, ShapeError
from minicc.graph.dtypes import BF16, STORED, DType, decode, encode, widen
from minicc.graph.elementwise import COMPARE, ELEMENTWISE, REDUCE
from minicc.graph.ir import Graph, Node, Value

Arrays: TypeAlias = Sequence[np.ndarray]
Attrs: TypeAlias = Mapping[str, Any]
Shape: TypeAlias = tuple[int, ...]  # or axes


def host_dtype(dtype: DType, dtype64: bool = False) -> np.dtype:
    """The numpy dtype that holds a dtype: its own, or float64 for floats in the oracle's mode."""
    return np.dtype(np.float64) if dtype64 and dtype.kind == "f" else dtype.numpy


def elementwise_numpy(op: str, attrs: Attrs, arrays: Arrays, dtype64: bool = False) -> np.ndarray:
    """An elementwise op, compare, select or convert on stored arrays that broadcast by numpy's rules.

    16-bit floats are widened, computed in f32 and rounded once.

    >>> elementwise_numpy("compare", {"direction": "lt"}, (np.array([1, 2]), np.array(2)))
    array([ True, False])
    """
    if op == "select":
        return np.where(*arrays)
    wide = list(map(widen, arrays))
    if op == "compare":
        return np.asarray(COMPARE[attrs["direction"]](*wide))
    if op == "convert":
        return held(wide[0], attrs["dtype"], dtype64)
    result = np.asarray(ELEMENTWISE[op].function(wide[0].dtype.kind)(*wide))
    narrow = wide[0].dtype != arrays[0].dtype and not dtype64
    return encode(result, STORED[arrays[0].dtype]) if narrow else result


def held(array: np.ndarray, dtype: DType, dtype64: bool = False) -> np.ndarray:
    """A computed array as the host holds a dtype: stored, or in float64 in the oracle's mode."""
    return array.astype(np.float64) if dtype64 and dtype.kind == "f" else encode(array, dtype)


def evaluate_node(node: Node, arrays: Arrays, dtype64: bool = False) -> np.ndarray:
    """The result of one node on the arrays of its operands."""
    dtype, shape = node.types[0].dtype, node.types[0].shape
    with np.errstate(all="ignore"):
        if node.op == "constant":
            value = node.attrs["value"]
            return held(decode(value, dtype), dtype, True) if dtype64 else value
        if node.op in _MOVES:
            return np.asarray(_MOVES[node.op](node.attrs, arrays, shape))
        if node.op in _SUMS:
            wide = list(map(widen, arrays))
            return held(np.asarray(_SUMS[node.op](node.attrs, wide, shape)), dtype, dtype64)
        return np.asarray(elementwise_numpy(node.op, node.attrs, arrays, dtype64))


# -- what moves elements, whatever they are -------------------------------------------------------------


def _broadcast(attrs: Attrs, arrays: Arrays, shape: Shape) -> np.ndarray:
    new_axes = tuple({*range(len(shape))} - {*attrs["dims"]})
    sorted_axes = arrays[0].transpose(np.argsort(attrs["dims"]))
    return np.broadcast_to(np.expand_dims(sorted_axes, new_axes), shape)


def _pad(attrs: Attrs, arrays: Arrays, shape: Shape) -> np.ndarray:
    result = np.full(shape, arrays[1], arrays[0].dtype)
    steps = zip(attrs["low"], attrs["interior"], arrays[0].shape, strict=True)
    inside = tuple(slice(low, low + size * (hole + 1), hole + 1) for low, hole, size in steps)
    result[inside] = arrays[0]
    return result


def _window(starts: Arrays, sizes: Shape, shape: Shape) -> tuple[slice, ...]:
    """Where a dynamic slice of these sizes lies: its starts, moved so that it fits."""
    fits = [min(max(int(start), 0), n - size) for start, size, n in zip(starts, sizes, shape, strict=True)]
    return tuple(slice(start, start + size) for start, size in zip(fits, sizes, strict=True))


def _dynamic_update_slice(attrs: Attrs, arrays: Arrays, shape: Shape) -> np.ndarray:
    operand, update, *starts = arrays
    result = operand.copy()
    result[_window(starts, update.shape, shape)] = update
    return result


_MOVES: dict[str, Callable[[Attrs, Arrays, Shape], Any]] = {
    "broadcast_in_dim": _broadcast,
    "reshape": lambda attrs, arrays, shape: arrays[0].reshape(shape),
    "transpose": lambda attrs, arrays, shape: arrays[0].transpose(attrs["perm"]),
    "slice": lambda attrs, arrays, shape:
        arrays[0][tuple(map(slice, attrs["start"], attrs["limit"], attrs["stride"]))],
    "pad": _pad,
    "concatenate": lambda attrs, arrays, shape: np.concatenate(arrays, attrs["axis"]),
    "reverse": lambda attrs, arrays, shape: np.flip(arrays[0], attrs["axes"]),
    "gather": lambda attrs, arrays, shape: np.take(arrays[0], arrays[1], attrs["axis"], mode="clip"),
    "dynamic_slice": lambda attrs, arrays, shape:
        arrays[0][_window(arrays[1:], attrs["sizes"], arrays[0].shape)],
    "dynamic_update_slice": _dynamic_update_slice,
    "optimization_barrier": lambda attrs, arrays, shape: arrays[0],
}

# -- what sums, or counts: 16-bit floats come widened, and the result is rounded once -------------------


def _iota(attrs: Attrs, arrays: Arrays, shape: Shape) -> np.ndarray:
    column = (-1,) + (1,) * (len(shape) - attrs["axis"] - 1)
    return np.broadcast_to(np.arange(shape[attrs["axis"]]).reshape(column), shape)


def _reduce(attrs: Attrs, arrays: Arrays, shape: Shape) -> np.ndarray:
    if not attrs["axes"]:
        return arrays[0]  # numpy would add each element to 0, and so lose the sign of -0.0
    combine, _ = REDUCE[attrs["kind"]]
    return combine.reduce(arrays[0], axis=attrs["axes"], dtype=arrays[0].dtype)


def _scatter(attrs: Attrs, arrays: Arrays, shape: Shape) -> np.ndarray:
    """One update after another, in the order of the indices; what lies outside is dropped."""
    operand, indices, updates = arrays
    axis, kind, count = attrs["axis"], attrs["kind"], indices.size
    result, flat = operand.copy(), indices.reshape(-1)
    slots = np.moveaxis(result, axis, 0)  # a view: what is written to it stands in the result
    merged = updates.reshape(shape[:axis] + (count,) + shape[axis + 1:])
    inside = (flat >= 0) & (flat < shape[axis])
    index, rows = flat[inside], np.moveaxis(merged, axis, 0)[inside]
    if kind == "set":
        slots[index] = rows  # where an index repeats, numpy leaves the last value
    else:
        REDUCE[kind][0].at(slots, index, rows)
    return result


def _dot_general(attrs: Attrs, arrays: Arrays, shape: Shape) -> np.ndarray:
    """One matmul: [batch, m, k] @ [batch, k, n]."""
    (lhs, rhs), batch, contract = map(_accumulating, arrays), attrs["batch"], attrs["contract"]
    m = tuple(axis for axis in range(lhs.ndim) if axis not in batch[0] + contract[0])
    n = tuple(axis for axis in range(rhs.ndim) if axis not in batch[1] + contract[1])
    left, right = _matrices(lhs, batch[0], m, contract[0]), _matrices(rhs, batch[1], contract[1], n)
    return (left @ right).reshape(shape)


def _accumulating(array: np.ndarray) -> np.ndarray:
    """An array in the dtype in which a dot adds up its products: i32 for narrow integers."""
    return array.astype(np.int32) if array.dtype.itemsize < 4 else array


def _matrices(array: np.ndarray, batch: Shape, rows: Shape, columns: Shape) -> np.ndarray:
    """An array as [*batch, rows, columns], where rows and columns are several axes merged."""
    sizes = [math.prod(array.shape[axis] for axis in axes) for axes in (rows, columns)]
    return array.transpose(batch + rows + columns).reshape(*(array.shape[axis] for axis in batch), *sizes)


def _convolution(attrs: Attrs, arrays: Arrays, shape: Shape) -> np.ndarray:
    """For each tap of the window, the product of the elements under it and its weights, added up."""
    x, w = map(_accumulating, arrays)
    pads = list(zip(attrs["low"], attrs["high"], strict=True))
    x = np.pad(x, [(0, 0)] * 3 + pads)
    result = np.zeros(shape, x.dtype)
    for tap in np.ndindex(w.shape[3:]):
        steps = zip(tap, attrs["dilation"], attrs["stride"], shape[3:], strict=True)
        under = tuple(slice(k * gap, k * gap + (size - 1) * by + 1, by) for k, gap, by, size in steps)
        # [G, O, C] x [N, G, C, *S'] -> [N, G, O, *S']
        columns = x[(slice(None),) * 3 + under].reshape(*x.shape[:3], math.prod(shape[3:]))
        result += (w[(slice(None),) * 3 + tap] @ columns).reshape(shape)
    return result


_SUMS: dict[str, Callable[[Attrs, Arrays, Shape], np.ndarray]] = {
    "iota": _iota, "reduce": _reduce, "scatter": _scatter, "dot_general": _dot_general,
    "convolution": _convolution,
}

# -- a whole graph --------------------------------------------------------------------------------------


def evaluate(graph: Graph, inputs: Sequence[Any], *, dtype64: bool = False) -> list[np.ndarray]:
    """The outputs of a graph on these inputs.

    dtype64: compute every float in float64, and take float64 inputs too.
    Raises: ShapeError or DtypeError if the inputs are not those of the graph.
    """
    arrays = check_inputs(graph, inputs, dtype64)
    for node in graph.nodes():
        if node.op != "parameter":
            arrays[node] = evaluate_node(node, [arrays[value.node] for value in node.operands], dtype64)
    return [np.array(arrays[value.node]) for value in graph.outputs]


def check_inputs(graph: Graph, inputs: Sequence[Any], dtype64: bool = False) -> dict[Node, np.ndarray]:
    """Input node -> its array, after checking that they fit."""
    if len(inputs) != len(graph.inputs):
        wanted = ", ".join(f"{v.node.attrs['name']}: {v.type}" for v in graph.inputs)
        raise ShapeError("evaluate", f"{graph.name} takes another number of inputs", got=len(inputs),
                         need=f"{len(graph.inputs)} ({wanted})")
    return {v.node: _checked(v, given, dtype64) for v, given in zip(graph.inputs, inputs, strict=True)}


def _checked(value: Value, given: Any, dtype64: bool) -> np.ndarray:
    name, wanted = f"input {value.node.attrs['name']}", value.type
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise ShapeError("evaluate", f"{name} is no array", got=error, need=wanted) from None
    oracles = host_dtype(wanted.dtype, dtype64)
    if array.dtype not in (wanted.dtype.numpy, oracles):
        raise DtypeError("evaluate", f"{name} has the wrong dtype", got=array.dtype, need=wanted.dtype.numpy,
                         hint="encode(array, BF16)" if wanted.dtype is BF16 else "array.astype(...)")
    if array.shape != wanted.shape:
        raise ShapeError("evaluate", f"{name} has the wrong shape", got=list(array.shape), need=wanted)
    return array if array.dtype == oracles else decode(array, wanted.dtype).astype(oracles)
