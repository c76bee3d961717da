"""What vector mode's generated functions may call, and the names that generated text may give.

    maximum(add(x, b), 0.0) in a kernel    ->    add(x, b, out=y); maximum(y, 0.0, out=y) in the function

Goes in: the table of elementwise ops. Comes out: `CALLS`, the whole namespace of the generated text, and
`Names`, which keeps a user's names apart from it. Invariant: whatever computes a value writes it into its
argument `out`, as numpy's ufuncs do. Read next: vector.py.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from minicc.graph.elementwise import COMPARE, ELEMENTWISE, REDUCE


def strided(array: np.ndarray, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """A view of a contiguous array at any offset and strides. Units: elements."""
    size = array.itemsize
    return np.ndarray(shape, array.dtype, array, offset * size, tuple(stride * size for stride in strides))


def padded(array: np.ndarray, pads: tuple[tuple[int, int], ...], fill: float) -> np.ndarray:
    """A larger array with this one in it. pads: elements of fill before and behind, per dimension."""
    ends = [(low, low + size, high) for (low, high), size in zip(pads, array.shape, strict=True)]
    out = np.full([end + high for _, end, high in ends], fill, array.dtype)
    out[tuple(slice(low, end) for low, end, _ in ends)] = array
    return out


def copy(value: Any, out: np.ndarray) -> None:
    """Copy a value into an array, broadcast and converted as C would."""
    np.copyto(out, value, casting="unsafe")


def iota(start: int, strides: tuple[int, ...], out: np.ndarray) -> None:
    """Fill an array with an affine index: start + i * strides[0] + j * strides[1] + ..."""
    walks = [np.arange(0, size * stride, stride) for size, stride in zip(out.shape, strides, strict=True)]
    out[...] = reduce(np.add.outer, walks, np.asarray(start))


def select(pred: Any, on_true: Any, on_false: Any, out: np.ndarray) -> None:
    """out = pred ? on_true : on_false.

    np.where branches on each element: on a random mask that took 3.7 ns an element; these passes over the
    bits of 4-byte values, 0.5 ns.
    """
    if out.itemsize != 4:
        return copy(np.where(pred, on_true, on_false), out)
    mask = np.negative(np.asarray(pred).view(np.int8), dtype=np.int32)  # all ones, or all zeros
    true_bits, false_bits = (np.asarray(value, out.dtype).view(np.int32) for value in (on_true, on_false))
    chosen = np.bitwise_and(np.bitwise_xor(true_bits, false_bits), mask)
    np.bitwise_xor(chosen, false_bits, out=out.view(np.int32))
    return None


def into_out(function: Callable[..., Any]) -> Callable[..., None]:
    """A function that writes its result into `out`, as ufuncs do by themselves."""
    def call(*args: Any, out: np.ndarray) -> None:
        copy(function(*args), out)
    return function if isinstance(function, np.ufunc) else call


def python_name(name: str) -> str:
    """A name that Python's grammar accepts: and -> and_, 2.w -> _2_w."""
    name = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"_{name}" if name[:1].isdigit() else f"{name}_" if keyword.iskeyword(name) else name or "_"


CALLS: dict[str, Any] = {
    **{python_name(name): into_out(row.numpy) for name, row in ELEMENTWISE.items()},
    **COMPARE,
    **{f"reduce_{kind}": ufunc.reduce for kind, (ufunc, _) in REDUCE.items()},
    "matmul": np.matmul, "einsum": np.einsum, "empty": np.empty, "contiguous": np.ascontiguousarray,
    "strided": strided, "padded": padded, "copy": copy, "iota": iota, "select": select,
    "f32": np.float32, "i32": np.int32, "inf": np.inf, "nan": np.nan,
}
# words of Python's and of CUDA's that a name must not take over
RESERVED = {
    *CALLS,
    *re.split(r"\s+", """buffers range min max auto bool case char const copysignf default do double else enum
    expf extern fabsf float if inline int long logf namespace new operator private rsqrtf short signed sizeof
    sqrtf static struct switch tanhf template this threadIdx blockIdx true false union unsigned void"""),
}


class Names(set[str]):
    """The names that a generated text has given so far."""

    def fresh(self, wish: str, number: int | None = None) -> str:
        """A name that nothing else has; counted up from a number if there is one.

        >>> names = Names()
        >>> [names.fresh("exp"), names.fresh("layer.w"), names.fresh("t", 1), names.fresh("t", 1)]
        ['exp_', 'layer_w', 't1', 't2']
        """
        while number is not None and f"{wish}{number}" in self:
            number += 1
        name = python_name(wish if number is None else f"{wish}{number}")
        while name in self or name in RESERVED:
            name += "_"
        self.add(name)
        return name
