"""What a graph means: the same answer in plain numpy, one small function per op.

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
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from minicc.errors import DtypeError, ShapeError
from minicc.graph.elementwise import COMPARE, ELEMENTWISE, REDUCE
from minicc.graph.ir import DType, Graph, Node, Type, Value, users

Arrays = Sequence[np.ndarray]


def host_dtype(dtype: DType, dtype64: bool = False) -> np.dtype:
    """The numpy dtype that holds a dtype: its own, or float64 for floats in the oracle's mode."""
    return np.dtype(np.float64) if dtype64 and dtype.kind == "f" else dtype.numpy


def elementwise_numpy(op: str, attrs: Mapping[str, Any], arrays: Arrays, dtype64: bool = False) -> np.ndarray:
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
        case _:
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


# -- the ops that are not elementwise: (attributes, operands, result type) -> result --------------------


def _iota(attrs: Mapping[str, Any], arrays: Arrays, type: Type) -> np.ndarray:
    axis = attrs["axis"]
    column = [-1 if i == axis else 1 for i in range(len(type.shape))]
    return np.broadcast_to(np.arange(type.shape[axis]).reshape(column), type.shape)


def _broadcast_in_dim(attrs: Mapping[str, Any], arrays: Arrays, type: Type) -> np.ndarray:
    dims = attrs["dims"]
    column = [1] * len(type.shape)
    for axis, dim in enumerate(dims):
        column[dim] = arrays[0].shape[axis]
    return np.broadcast_to(arrays[0].transpose(np.argsort(dims)).reshape(column), type.shape)


def _slice(attrs: Mapping[str, Any], arrays: Arrays, type: Type) -> np.ndarray:
    steps = zip(attrs["start"], attrs["limit"], attrs["stride"], strict=True)
    return arrays[0][tuple(slice(*step) for step in steps)]


def _pad(attrs: Mapping[str, Any], arrays: Arrays, type: Type) -> np.ndarray:
    array, fill = arrays
    result = np.full(type.shape, fill, array.dtype)
    steps = zip(attrs["low"], attrs["interior"], array.shape, strict=True)
    result[tuple(slice(low, low + size * (inner + 1), inner + 1) for low, inner, size in steps)] = array
    return result


def _reduce(attrs: Mapping[str, Any], arrays: Arrays, type: Type) -> np.ndarray:
    combine, _ = REDUCE[attrs["kind"]]
    if not attrs["axes"]:
        return arrays[0]  # numpy would add each element to 0, and so lose the sign of -0.0
    return combine.reduce(arrays[0], axis=attrs["axes"], dtype=arrays[0].dtype)


def _dot_general(attrs: Mapping[str, Any], arrays: Arrays, type: Type) -> np.ndarray:
    lhs, rhs = arrays
    batch, contract = attrs["batch"], attrs["contract"]
    free = [[axis for axis in range(array.ndim) if axis not in batch[side] + contract[side]]
            for side, array in enumerate(arrays)]
    b = [lhs.shape[axis] for axis in batch[0]]
    k = math.prod(lhs.shape[axis] for axis in contract[0])
    m, n = (math.prod(array.shape[axis] for axis in free[side]) for side, array in enumerate(arrays))
    left = lhs.transpose(*batch[0], *free[0], *contract[0]).reshape(*b, m, k)
    right = rhs.transpose(*batch[1], *contract[1], *free[1]).reshape(*b, k, n)
    return np.matmul(left, right).reshape(type.shape)


_RULES: dict[str, Callable[[Mapping[str, Any], Arrays, Type], np.ndarray]] = {
    "constant": lambda attrs, arrays, type: attrs["value"],
    "iota": _iota,
    "broadcast_in_dim": _broadcast_in_dim,
    "reshape": lambda attrs, arrays, type: arrays[0].reshape(type.shape),
    "transpose": lambda attrs, arrays, type: arrays[0].transpose(attrs["perm"]),
    "slice": _slice,
    "pad": _pad,
    "reduce": _reduce,
    "dot_general": _dot_general,
}


def evaluate_node(node: Node, arrays: Arrays, dtype64: bool = False) -> np.ndarray:
    """The result of one node on the arrays of its operands."""
    type = node.types[0]
    with np.errstate(all="ignore"):
        if node.op in _RULES:
            result = _RULES[node.op](node.attrs, arrays, type)
        else:
            result = elementwise_numpy(node.op, node.attrs, arrays, dtype64)
    return np.asarray(result).astype(host_dtype(type.dtype, dtype64), copy=False)


def evaluate(graph: Graph, inputs: Sequence[Any], *, dtype64: bool = False) -> list[np.ndarray]:
    """The outputs of a graph on these inputs.

    dtype64: compute every float in float64, and take float64 inputs too.
    Raises: ShapeError or DtypeError if the inputs are not those of the graph.
    """
    arrays: dict[Node, np.ndarray] = check_inputs(graph, inputs, dtype64)
    nodes = graph.nodes()
    waiting = {node: len(later) for node, later in users(nodes).items()}
    keep = {value.node for value in graph.outputs}
    for node in nodes:
        if node.op != "parameter":
            arrays[node] = evaluate_node(node, [arrays[value.node] for value in node.operands], dtype64)
        for operand in {value.node for value in node.operands}:
            waiting[operand] -= 1
            if not waiting[operand] and operand not in keep:
                del arrays[operand]  # what no one needs again is not held
    return [np.array(arrays[value.node]) for value in graph.outputs]


def check_inputs(graph: Graph, inputs: Sequence[Any], dtype64: bool = False) -> dict[Node, np.ndarray]:
    """Input node -> its array, after checking that they fit."""
    if len(inputs) != len(graph.inputs):
        wanted = ", ".join(f"{v.node.attrs['name']}: {v.type}" for v in graph.inputs)
        raise ShapeError("evaluate", f"{graph.name} takes another number of inputs", got=len(inputs),
                         need=f"{len(graph.inputs)} ({wanted})")
    return {v.node: _checked(v, given, dtype64) for v, given in zip(graph.inputs, inputs, strict=True)}


def _checked(value: Value, given: Any, dtype64: bool) -> np.ndarray:
    name, type = value.node.attrs["name"], value.type
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise ShapeError("evaluate", f"input {name} is no array", got=error, need=type) from None
    allowed = {type.dtype.numpy, host_dtype(type.dtype, dtype64)}
    if array.dtype not in allowed:
        raise DtypeError("evaluate", f"input {name} has the wrong dtype", got=array.dtype,
                         need=type.dtype.numpy, hint="array.astype(...)")
    if array.shape != type.shape:
        raise ShapeError("evaluate", f"input {name} has the wrong shape", got=list(array.shape), need=type)
    return array.astype(host_dtype(type.dtype, dtype64), copy=False)
