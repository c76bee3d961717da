"""What vector mode's generated functions may call: numpy's ufuncs under the graph's names, and four helpers.

    maximum(add(x, b), 0.0) in a kernel    ->    add(x, b, out=y); maximum(y, 0.0, out=y) in the function

Goes in: the table of elementwise ops. Comes out: `CALLS`, the whole namespace of the generated text, and
`safe_name`, which keeps a user's names apart from it. Read next: emit.py.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection
from typing import Any

import numpy as np

from minicc.graph.elementwise import COMPARE, ELEMENTWISE, REDUCE


def strided(array: np.ndarray, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """A view of a contiguous array at any offset and strides. Units: elements."""
    size = array.itemsize
    return np.ndarray(shape, array.dtype, array, offset * size, tuple(stride * size for stride in strides))


def select(pred: np.ndarray, on_true: Any, on_false: Any, out: np.ndarray) -> None:
    """out = pred ? on_true : on_false, on 4-byte values.

    np.where branches on each element: on a random mask that took 3.7 ns an element, these passes 0.5 ns.
    """
    mask = np.negative(pred.view(np.int8), dtype=np.int32)  # all ones, or all zeros
    true_bits, false_bits = _bits(on_true, out.dtype), _bits(on_false, out.dtype)
    chosen = np.bitwise_and(np.bitwise_xor(true_bits, false_bits), mask)
    np.bitwise_xor(chosen, false_bits, out=out.view(np.int32))


def _bits(value: Any, dtype: np.dtype) -> np.ndarray:
    return np.asarray(value, dtype).view(np.int32)


def store(out: np.ndarray, value: Any) -> None:
    """Copy a value into an array, broadcast and converted as C would."""
    np.copyto(out, value, casting="unsafe")


def python_name(name: str) -> str:
    """A name that Python's grammar accepts: and -> and_, 2.w -> _2_w."""
    name = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"_{name}" if name[:1].isdigit() else f"{name}_" if keyword.iskeyword(name) else name or "_"


CALLS: dict[str, Any] = {
    **{python_name(name): row.numpy for name, row in ELEMENTWISE.items()},
    **COMPARE,
    **{f"reduce_{kind}": ufunc.reduce for kind, (ufunc, _) in REDUCE.items()},
    "matmul": np.matmul, "empty": np.empty, "full": np.full, "arange": np.arange, "where": np.where,
    "broadcast": np.broadcast_to, "contiguous": np.ascontiguousarray, "strided": strided, "select": select,
    "store": store, "f32": np.float32, "i32": np.int32, "bool_": np.bool_, "inf": np.inf, "nan": np.nan,
}
# words of Python's and of CUDA's that a name must not take over
RESERVED = {
    *CALLS,
    *re.split(r"\s+", """buffers range min max auto bool case char const copysignf default do double else enum
    expf extern fabsf float if inline int long logf namespace new operator private rsqrtf short signed sizeof
    sqrtf static struct switch tanhf template this threadIdx blockIdx true false union unsigned void"""),
}


def safe_name(name: str, taken: Collection[str] = ()) -> str:
    """A name fit for generated text, unlike what it calls and unlike those taken.

    >>> safe_name("exp"), safe_name("layer.w"), safe_name("x", {"x"})
    ('exp_', 'layer_w', 'x_')
    """
    name = python_name(name)
    while name in RESERVED or name in taken:
        name += "_"
    return name
