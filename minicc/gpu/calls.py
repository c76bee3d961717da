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
from functools import partial
from typing import Any

import numpy as np

from minicc.graph.dtypes import DTYPES, DType, decode, encode
from minicc.graph.elementwise import COMPARE, ELEMENTWISE, REDUCE

CONVERT_ELEMENTS = 1 << 15  # 256 KiB of f64


def strided(array: np.ndarray, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """A view of a contiguous array at any offset and strides. Units: elements."""
    size = array.itemsize
    return np.ndarray(shape, array.dtype, array, offset * size, tuple(stride * size for stride in strides))


def padded(array: np.ndarray, pads: tuple[tuple[int, int], ...], fill: float, out: np.ndarray) -> np.ndarray:
    """A larger array with this one in it. pads: elements of fill before and behind, per dimension."""
    inside = tuple(slice(low, low + size) for (low, _), size in zip(pads, array.shape, strict=True))
    out.fill(fill)
    out[inside] = array
    return out


def copy(value: Any, out: np.ndarray) -> None:
    """Copy a value into an array, broadcast and converted as C would."""
    np.copyto(out, value, casting="unsafe")


def converted(source: DType, target: DType) -> Callable[..., None]:
    """The function that converts an array where numpy, or C, would do it differently."""
    if (source.name, target.name) == ("bf16", "f32"):
        return lambda value, out: np.left_shift(value, 16, out=out.view(np.uint32), dtype=np.uint32)

    def call(value: Any, out: np.ndarray) -> None:
        if out.size <= CONVERT_ELEMENTS:
            return copy(encode(decode(np.asarray(value), source), target), out)
        value = np.broadcast_to(value, out.shape)
        step = CONVERT_ELEMENTS * len(out) // out.size
        for low in range(0, len(out), step or 1):  # in parts whose temporaries stay in the cache
            call(*((x[low:low + step] if step else x[low]) for x in (value, out)))
        return None
    return call


# -- lookups -------------------------------------------------------------------------------------------------


def number(array: np.ndarray, place: int, clamp: int) -> int:
    """One number of an array, moved into 0 .. clamp."""
    return min(max(int(array.flat[place]), 0), clamp)


def index(shape: tuple[int, ...], offset: int, strides: tuple[int, ...], *found: np.ndarray) -> np.ndarray:
    """Where a dimension is read or written, for each element of a block: an affine index plus lookups."""
    total = np.asarray(offset)
    for size, stride in zip(shape, strides, strict=True):
        total = total[..., None] + stride * np.arange(size if stride else 1)
    return sum(found, total)


def take(array: np.ndarray, places: np.ndarray, axis: int, out: np.ndarray) -> None:
    """The rows (or what lies along another axis) at some places, all of which exist."""
    np.take(array, places, axis, out, "clip")


def gather(array: np.ndarray, where: tuple[np.ndarray, ...], fill: Any, out: np.ndarray) -> None:
    """The elements at some indices, one array of them per dimension; the fill where there is none."""
    places, inside = flat_places(array.shape, where)
    copy(np.where(inside, array.reshape(-1).take(places, mode="clip"), array.dtype.type(fill)), out)


def update(function: np.ufunc | None, array: np.ndarray, where: tuple[np.ndarray, ...],
           value: Any) -> None:
    """Combine values with the elements at some indices, or put them there, in order; drop what is outside."""
    places, inside, values = np.broadcast_arrays(*flat_places(array.shape, where), value)
    flat = array.reshape(-1)
    if function is None:
        flat[places[inside]] = values[inside]  # one after the other: the last of several stays
    else:
        function.at(flat, places[inside], values[inside])


def flat_places(shape: tuple[int, ...], where: tuple[np.ndarray, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Indices, one array per dimension, as places in the flat array; and whether they lie within it."""
    places, inside = np.asarray(0), np.asarray(True)
    for size, at in zip(shape, where, strict=True):
        places, inside = places * size + at, inside & (at >= 0) & (at < size)
    return places, inside


# -- elementwise ---------------------------------------------------------------------------------------------


def select(pred: Any, on_true: Any, on_false: Any, mask: np.ndarray, chosen: np.ndarray,
           out: np.ndarray) -> None:
    """out = pred ? on_true : on_false. mask, chosen: memory for integers as wide as out's elements.

    np.where branches on each element: on a random mask that took 3.4 ns an element; these passes over the
    bits, 0.4 ns.
    """
    true_bits, false_bits = (np.asarray(value, out.dtype).view(mask.dtype) for value in (on_true, on_false))
    np.negative(np.asarray(pred).view(np.int8), dtype=mask.dtype, out=mask)  # all ones, or all zeros
    np.bitwise_xor(true_bits, false_bits, out=chosen)
    np.bitwise_and(chosen, mask, out=chosen)
    np.bitwise_xor(chosen, false_bits, out=out.view(mask.dtype))


def rsqrt(x: np.ndarray, out: np.ndarray) -> None:
    """1 / sqrt(x), in place."""
    np.divide(1, np.sqrt(x, out=out), out=out)


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
    "rsqrt": rsqrt,
    **{f"{name}_int": into_out(row.integer) for name, row in ELEMENTWISE.items() if row.integer},
    **COMPARE,
    **{f"reduce_{kind}": ufunc.reduce for kind, (ufunc, _) in REDUCE.items()},
    **{f"{one}_to_{other}": converted(one, other) for one in DTYPES.values() for other in DTYPES.values()
       if "bf16" in (one.name, other.name) or (one.kind, other.kind) == ("f", "i")},
    **{f"update_{kind}": partial(update, ufunc) for kind, (ufunc, _) in REDUCE.items()},
    **{name: dtype.numpy.type for name, dtype in DTYPES.items()}, "i64": np.int64,
    "matmul": np.matmul, "clip": np.clip,
    "strided": strided, "padded": padded, "copy": copy, "select": select,
    "number": number, "index": index, "take": take, "gather": gather, "update_set": partial(update, None),
    "inf": np.inf, "nan": np.nan,
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
