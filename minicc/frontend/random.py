"""Random numbers from a key and a count, the same on every machine, in any order, inside programs too.

    key(7)                     ->  u32[2]: [0, 7]
    first, second = split(k)   ->  two keys whose numbers have nothing to do with each other
    uniform(k, (2, 3))         ->  f32[2,3], always the same for this k

In: keys, which are two u32s, and shapes. Out: tensors. The i-th number is a hash of the key and i, threefry
with 2 words, 32 bits each, and 20 rounds, so nothing has a state: a key that is an argument of a jitted
function gives new numbers in every call, and one that is used twice gives the same. Invariants: bits and
uniform are bit for bit alike on all devices, and bits, uniform, split, fold_in and randint are JAX's
(jax_threefry_partitionable, its default). `seed`, `rand` and `randn` are for outside of programs: they draw
when they are called, by numpy's generator, which is fast for a model's weights.

Source: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011, and the known answers that
come with its library, Random123. Read next: nn.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from minicc.errors import CompileError, DtypeError, a_type
from minicc.frontend import ops, reductions, special
from minicc.frontend import tensor as tensors
from minicc.frontend.indexing import take
from minicc.frontend.primitives import TensorLike, as_integers, as_number, as_tensor, as_tensors, node
from minicc.frontend.scope import EAGER, current, fail
from minicc.frontend.shapes import broadcast, reshape
from minicc.frontend.sorting import argsort
from minicc.graph.ir import F32, I32, U32

if TYPE_CHECKING:
    from minicc.frontend.tensor import Tensor

# -- the hash ------------------------------------------------------------------------------------------------

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA  # of the key schedule, as in Threefish
Pair = tuple["Tensor", "Tensor"]


def threefry(key: Pair, counter: Pair) -> Pair:
    """Two u32s for each pair of u32s, by 20 rounds of add, rotate, xor; every 4 rounds the key is added."""
    schedule = (*key, key[0] ^ key[1] ^ PARITY)
    x, y = counter[0] + key[0], counter[1] + key[1]
    for group in range(5):
        for turn in ROTATIONS[group % 2]:
            x = x + y
            y = (y << turn | y >> 32 - turn) ^ x
        x = x + schedule[(group + 1) % 3]
        y = y + schedule[(group + 2) % 3] + (group + 1)
    return x, y


def _words(key: Tensor) -> Pair:
    """The two words of a key."""
    if not isinstance(key, tensors.Tensor) or key.dtype is not U32 or key.shape != (2,):
        got = key.type if isinstance(key, tensors.Tensor) else a_type(key)
        hint = "random.key(0), or one that split gave"
        fail("random", "this is not a key", got, "u32[2]", hint, DtypeError)
    return key[0], key[1]


def _hashes(key: Tensor, shape: tuple[int, ...]) -> Pair:
    """Two u32s for each element of a shape, from its number in row-major order."""
    count = math.prod(shape)
    if count >= 2**31:
        fail("random", "too many numbers of one key", count, "less than 2**31", "split the key")
    low = reshape(node("iota", axis=0, shape=(count,), dtype=U32), shape)
    return threefry(_words(key), (broadcast(as_tensor(0, U32), shape), low))


# -- keys ----------------------------------------------------------------------------------------------------


def key(seed: int) -> Tensor:
    """The key of a seed: a number from 0 to 2**64 - 1."""
    number, = as_integers("key", seed)
    if not 0 <= number < 2**64:
        fail("key", "this is not a seed", number, "0 .. 2**64 - 1")
    return tensors.Tensor(np.array([number >> 32, number % 2**32], np.uint32))


def split(key: Tensor, count: int = 2) -> Tensor:
    """New keys, one per row, for what would otherwise share this one; which is not to be used again.

    The i-th is fold_in(key, i).
    """
    high, low = _hashes(key, as_integers("split", count))
    return _pairs(high, low)


def fold_in(key: Tensor, data: TensorLike) -> Tensor:
    """The key for the data-th use of a key: data is a step, a layer, a device."""
    number = as_tensor(data)
    if number.dtype.kind != "i" or number.ndim:
        fail("fold_in", "a key is folded with one integer", number.type, "an integer", kind=DtypeError)
    return _pairs(*threefry(_words(key), (as_tensor(0, U32), as_tensor(number, U32))))


def _pairs(high: Tensor, low: Tensor) -> Tensor:
    """Keys of their words: [..., 2]."""
    shape = (*high.shape, 2)
    second = node("iota", axis=high.ndim, shape=shape, dtype=I32) == 1
    return ops.where(second, low.unsqueeze(-1), high.unsqueeze(-1))


# -- draws ---------------------------------------------------------------------------------------------------


def bits(key: Tensor, shape: Any = ()) -> Tensor:
    """Random u32s."""
    high, low = _hashes(key, as_integers("bits", shape))
    return high ^ low


def uniform(key: Tensor, shape: Any = (), low: float = 0.0, high: float = 1.0) -> Tensor:
    """Random f32s from low up to but not including high, evenly spread: multiples of 2**-23 of the way."""
    part = ops.astype(bits(key, shape) >> 9, F32) * 2.0**-23
    if (low, high) == (0.0, 1.0):
        return part
    least = as_number("uniform", low)
    return ops.maximum(part * (as_number("uniform", high) - least) + least, least)


def normal(key: Tensor, shape: Any = ()) -> Tensor:
    """Random f32s with mean 0 and deviation 1, by the inverse of the error function."""
    return special.erfinv(uniform(key, shape, 2.0**-24 - 1.0, 1.0)) * math.sqrt(2)


def randint(key: Tensor, shape: Any, low: int, high: int) -> Tensor:
    """Random i32s from low up to but not including high, evenly but for one in 2**32 / (high - low)."""
    first, last = as_integers("randint", (low, high))
    if not -2**31 <= first < last <= 2**31:
        fail("randint", "there is no such integer", f"{low} up to {high}", "low < high, within i32")
    span, sizes, keys = last - first, as_integers("randint", shape), split(key)
    upper, lower = bits(keys[0], sizes), bits(keys[1], sizes)
    if span < 2**32:
        factor = (2**16 % span) ** 2 % 2**32 % span
        lower = ops.fmod(ops.fmod(upper, span) * factor + ops.fmod(lower, span), span)
    return ops.astype(lower, I32) + first


def bernoulli(key: Tensor, probability: TensorLike = 0.5, shape: Any = None) -> Tensor:
    """Random bools that are true with this probability; of its shape, if no other is given."""
    probability = as_tensors((probability,), F32)[0]
    return uniform(key, probability.shape if shape is None else shape) < probability


def gumbel(key: Tensor, shape: Any = ()) -> Tensor:
    """Random f32s from Gumbel's distribution, that of the largest of many: -log(-log(u))."""
    return -ops.log(-ops.log(uniform(key, shape, 2.0**-126, 1.0)))


def categorical(key: Tensor, logits: TensorLike, axis: int = -1) -> Tensor:
    """Random class numbers, each with the probability that softmax gives it along an axis."""
    logits = as_tensors((logits,), F32)[0]
    return reductions.argmax(gumbel(key, logits.shape) + logits, axis)


def permutation(key: Tensor, x: TensorLike) -> Tensor:
    """The rows of x in random order; of a number, 0 .. x-1 in random order. Sorted by random bits."""
    rows = ops.iota(x) if isinstance(x, int) else as_tensor(x)
    if not rows.ndim:
        fail("permutation", "a scalar has no rows", rows.type, "rank 1 or more, or a number")
    return take(rows, argsort(bits(key, rows.shape[:1])), 0)


# -- outside of programs -------------------------------------------------------------------------------------

_generator = np.random.default_rng(0)


def seed(number: int) -> None:
    """Start the numbers of rand and randn over."""
    global _generator
    _generator = np.random.default_rng([abs(part) for part in as_integers("seed", number)])


def rand(*shape: Any) -> Tensor:
    """Random f32s in [0, 1), evenly spread, drawn now."""
    return _drawn("rand", shape, _generator.random)


def randn(*shape: Any) -> Tensor:
    """Random f32s with mean 0 and deviation 1, normally spread, drawn now."""
    return _drawn("randn", shape, _generator.standard_normal)


def _drawn(op: str, shape: tuple, draw: Callable[..., np.ndarray]) -> Tensor:
    """A tensor of this shape with numbers of numpy's, if they may be drawn here."""
    sizes = as_integers(op, shape)
    if current() is not EAGER:
        fail(op, "a traced function would draw the same numbers in every call", kind=CompileError,
             hint="draw outside and pass the tensor in, or pass a key and use mc.random")
    if min(sizes, default=0) < 0:
        fail(op, "a size is negative", list(sizes), "sizes of 0 or more")
    try:
        return tensors.Tensor._holding(draw(sizes, np.float32))
    except (MemoryError, ValueError) as error:
        fail(op, "this computer's own memory is too small", error, kind=CompileError)
