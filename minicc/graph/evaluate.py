"""What a graph means: the same answer in plain numpy, one case per op.

    evaluate(graph, [x, w])                 ->  [the outputs, in the dtypes the graph says]
    evaluate(graph, [x, w], dtype64=True)   ->  [the same with every float in float64: the oracle]

Goes in: a graph, and one array per input. Comes out: one new array per output. Every later stage is right
when it gives this answer, so this file is written to be obvious rather than fast. Invariants: results have
exactly the inferred dtype and shape; a float becomes an integer as in XLA (towards zero, saturating, nan to
0); nothing warns. Sums and dots are in whatever order numpy takes, so compare with a tolerance.

XLA keeps such a reference interpreter too (the HLO evaluator), and StableHLO a separate one as its
specification's test. Read next: rewrite.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from minicc.errors import DtypeError, ShapeError
from minicc.graph.elementwise import COMPARE, ELEMENTWISE, REDUCE
from minicc.graph.ir import DType, Graph, Node, Value

Arrays: TypeAlias = Sequence[np.ndarray]
Attrs: TypeAlias = Mapping[str, Any]
Axes: TypeAlias = tuple[int, ...]


def host_dtype(dtype: DType, dtype64: bool = False) -> np.dtype:
    """The numpy dtype that holds a dtype: its own, or float64 for floats in the oracle's mode."""
    return np.dtype(np.float64) if dtype64 and dtype.kind == "f" else dtype.numpy


def elementwise_numpy(op: str, attrs: Attrs, arrays: Arrays, dtype64: bool = False) -> np.ndarray:
    """An elementwise op, compare, select or convert on arrays that broadcast by numpy's rules.

    >>> elementwise_numpy("compare", {"direction": "lt"}, (np.array([1, 2]), np.array(2)))
    array([ True, False])
    """
    match op:
        case "compare":
            return np.asarray(COMPARE[attrs["direction"]](*arrays))
        case "select":
            return np.where(*arrays)
        case "convert":
            return convert(arrays[0], host_dtype(attrs["dtype"], dtype64))
    return np.asarray(ELEMENTWISE[op].numpy(*arrays))


def convert(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """An array in another dtype; floats go to integers towards zero, saturating, and nan to 0.

    >>> convert(np.array([2.9, -2.9, 1e10, np.nan]), np.dtype(np.int32)).tolist()
    [2, -2, 2147483647, 0]
    """
    if array.dtype.kind == "f" and dtype.kind == "i":
        limits = np.iinfo(dtype)
        # in float64, which holds every i32 exactly: in float32 the upper limit would round up, out of range
        array = np.clip(np.nan_to_num(array.astype(np.float64), nan=0.0), limits.min, limits.max)
    return array.astype(dtype)


def evaluate_node(node: Node, arrays: Arrays, dtype64: bool = False) -> np.ndarray:
    """The result of one node on the arrays of its operands."""
    with np.errstate(all="ignore"):
        result = _result(node.op, node.attrs, arrays, node.types[0].shape, dtype64)
    return np.asarray(result).astype(host_dtype(node.types[0].dtype, dtype64), copy=False)


def _result(op: str, attrs: Attrs, arrays: Arrays, shape: tuple[int, ...], dtype64: bool) -> np.ndarray:
    match op:
        case "constant":
            return attrs["value"]
        case "iota":
            column = (-1,) + (1,) * (len(shape) - attrs["axis"] - 1)
            return np.broadcast_to(np.arange(shape[attrs["axis"]]).reshape(column), shape)
        case "broadcast_in_dim":
            new_axes = tuple({*range(len(shape))} - {*attrs["dims"]})
            sorted_axes = arrays[0].transpose(np.argsort(attrs["dims"]))
            return np.broadcast_to(np.expand_dims(sorted_axes, new_axes), shape)
        case "reshape":
            return arrays[0].reshape(shape)
        case "transpose":
            return arrays[0].transpose(attrs["perm"])
        case "slice":
            return arrays[0][tuple(map(slice, attrs["start"], attrs["limit"], attrs["stride"]))]
        case "pad":
            result = np.full(shape, arrays[1], arrays[0].dtype)
            steps = zip(attrs["low"], attrs["interior"], arrays[0].shape, strict=True)
            inside = tuple(slice(low, low + size * (hole + 1), hole + 1) for low, hole, size in steps)
            result[inside] = arrays[0]
            return result
        case "reduce" if attrs["axes"]:
            combine, _ = REDUCE[attrs["kind"]]
            return combine.reduce(arrays[0], axis=attrs["axes"], dtype=arrays[0].dtype)
        case "reduce":
            return arrays[0]  # numpy would add each element to 0, and so lose the sign of -0.0
        case "dot_general":
            return _dot_general(arrays, attrs["batch"], attrs["contract"]).reshape(shape)
    return elementwise_numpy(op, attrs, arrays, dtype64)


def _dot_general(arrays: Arrays, batch: tuple[Axes, Axes], contract: tuple[Axes, Axes]) -> np.ndarray:
    """One matmul: [batch, m, k] @ [batch, k, n]."""
    lhs, rhs = arrays
    m = tuple(axis for axis in range(lhs.ndim) if axis not in batch[0] + contract[0])
    n = tuple(axis for axis in range(rhs.ndim) if axis not in batch[1] + contract[1])
    return _matrices(lhs, batch[0], m, contract[0]) @ _matrices(rhs, batch[1], contract[1], n)


def _matrices(array: np.ndarray, batch: Axes, rows: Axes, columns: Axes) -> np.ndarray:
    """An array as [*batch, rows, columns], where rows and columns are several axes merged."""
    sizes = [math.prod(array.shape[axis] for axis in axes) for axes in (rows, columns)]
    return array.transpose(batch + rows + columns).reshape(*(array.shape[axis] for axis in batch), *sizes)


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
    held = host_dtype(wanted.dtype, dtype64)
    if array.dtype not in (wanted.dtype.numpy, held):
        raise DtypeError("evaluate", f"{name} has the wrong dtype", got=array.dtype, need=wanted.dtype.numpy,
                         hint="array.astype(...)")
    if array.shape != wanted.shape:
        raise ShapeError("evaluate", f"{name} has the wrong shape", got=list(array.shape), need=wanted)
    return array.astype(held, copy=False)
