"""The gradient rules: for each op and operand, what it gets of the gradient of the result.

    out = exp(x)            g -> g * out
    out = multiply(x, y)    g -> g * y, g * x
    out = slice(x)          g -> g with zeros around it

In: a `Site`, the node with the gradient of its result. Out: a gradient of the operand's shape, as a lazy
tensor of the scope around (a scalar operand that stood for an array gets an array, which autograd.py sums).
Invariants: where several elements share the maximum of a reduction they share its gradient evenly, as in JAX,
while maximum(x, y) gives a tie to y, so that relu's gradient at 0 is 0. Each rule is checked against finite
differences.

JAX has the same table twice, for jvp and for transposition. Read next: autograd.py, which walks the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from minicc.frontend import ops
from minicc.frontend.ops import where
from minicc.frontend.primitives import as_tensor, node
from minicc.frontend.shapes import broadcast, reshape, transpose
from minicc.frontend.tensor import Tensor
from minicc.graph.ir import F32


@dataclass(frozen=True)
class Site:
    """A node to differentiate: its result `out`, the gradient `g` of that, operands `x`, attributes."""

    g: Tensor
    out: Tensor
    x: tuple[Tensor, ...]
    attrs: Mapping[str, Any]


# -- shape rules ---------------------------------------------------------------------------------------------


def _unbroadcast(s: Site) -> Tensor:
    """The sum over what broadcast_in_dim repeated; its dims ascend, since shapes.py made it."""
    kept = [dim for dim, size in zip(s.attrs["dims"], s.x[0].shape, strict=True) if size == s.out.shape[dim]]
    repeated = [axis for axis in range(s.out.ndim) if axis not in kept]
    return reshape(ops.sum(s.g, repeated), s.x[0].shape)


def _spread(x: Tensor, s: Site) -> Tensor:
    """A value per reduced group, repeated for each element of the group."""
    kept = tuple(axis for axis in range(s.x[0].ndim) if axis not in s.attrs["axes"])
    return x if x.shape == s.x[0].shape else node("broadcast_in_dim", x, shape=s.x[0].shape, dims=kept)


def _unreduce(s: Site) -> Tensor:
    """sum: to every element. max, min: to the largest ones, evenly. prod: the product of the others."""
    x, axes = s.x[0], s.attrs["axes"]
    if s.attrs["kind"] == "sum":
        return _spread(s.g, s)
    if s.attrs["kind"] != "prod":
        chosen = ops.astype(x == _spread(s.out, s), F32)
        return chosen * _spread(s.g / ops.sum(chosen, axes), s)
    filled = where(x == 0.0, 1.0, x)
    zeros = _spread(ops.sum(ops.astype(x == 0.0, F32), axes), s)
    others = _spread(ops.prod(filled, axes), s)  # the product of what is not 0
    at_zero, elsewhere = where(zeros == 1.0, others, 0.0), where(zeros == 0.0, others, 0.0)
    return _spread(s.g, s) * where(x == 0.0, at_zero, elsewhere / filled)


def _unslice(s: Site) -> Tensor:
    """Zeros around, and between where the slice has a stride."""
    start, stride, sizes = s.attrs["start"], s.attrs["stride"], s.x[0].shape
    if 0 in s.out.shape:
        return broadcast(as_tensor(0.0), sizes)
    last = [a + (n - 1) * step for a, n, step in zip(start, s.out.shape, stride, strict=True)]
    high = [size - 1 - end for size, end in zip(sizes, last, strict=True)]
    return node("pad", s.g, as_tensor(0.0), low=start, high=high, interior=[step - 1 for step in stride])


def _unpad(s: Site) -> Tensor:
    low, inner, sizes = s.attrs["low"], s.attrs["interior"], s.x[0].shape
    limit = [a + max(n - 1, 0) * (i + 1) + min(n, 1) for a, n, i in zip(low, sizes, inner, strict=True)]
    return node("slice", s.g, start=low, limit=limit, stride=[i + 1 for i in inner])


def _undot(s: Site, side: int) -> Tensor:
    """The gradient of one side of a dot: a dot of the other side and g.

    Each axis gets a label, shared by the two that a dot pairs: left [i, k], right [k, j], out [i, j] for a
    matrix product; then left's gradient is [i, j] . [k, j] -> [i, k].
    """
    pairs = [*zip(*s.attrs["batch"], strict=True), *zip(*s.attrs["contract"], strict=True)]
    left, right = list(range(s.x[0].ndim)), [-1 - axis for axis in range(s.x[1].ndim)]
    for i, j in pairs:
        right[j] = i
    free = [label for label in left + right if label not in dict(pairs)]
    out = [*s.attrs["batch"][0], *free]
    if side == 0:
        return _dot(s.g, out, s.x[1], right, left)
    return _dot(s.x[0], left, s.g, out, right)


def _dot(x: Tensor, of_x: list[int], y: Tensor, of_y: list[int], result: list[int]) -> Tensor:
    """The dot over the axes whose labels the result lacks, in the result's order."""
    shared = [label for label in of_x if label in of_y]
    batch = [label for label in shared if label in result]
    contract = [label for label in shared if label not in result]
    order = batch + [label for label in of_x + of_y if label not in shared]
    product = node("dot_general", x, y, batch=(_places(batch, of_x), _places(batch, of_y)),
                   contract=(_places(contract, of_x), _places(contract, of_y)))
    return transpose(product, _places(result, order))


def _places(labels: list[int], among: list[int]) -> list[int]:
    return [among.index(label) for label in labels]


# op -> for each operand, the gradient of the loss with respect to it
VJP: dict[str, tuple[Callable[[Site], Tensor], ...]] = {
    "negate": (lambda s: -s.g,),
    "abs": (lambda s: s.g * ops.sign(s.x[0]),),
    "sign": (lambda s: s.g * 0.0,),
    "exp": (lambda s: s.g * s.out,),
    "log": (lambda s: s.g / s.x[0],),
    "sqrt": (lambda s: s.g * 0.5 / s.out,),
    "rsqrt": (lambda s: s.g * -0.5 * s.out * s.out * s.out,),
    "tanh": (lambda s: s.g * (1.0 - s.out * s.out),),
    "add": (lambda s: s.g, lambda s: s.g),
    "subtract": (lambda s: s.g, lambda s: -s.g),
    "multiply": (lambda s: s.g * s.x[1], lambda s: s.g * s.x[0]),
    "divide": (lambda s: s.g / s.x[1], lambda s: -s.g * s.out / s.x[1]),
    "maximum": (lambda s: where(s.x[0] > s.x[1], s.g, 0.0), lambda s: where(s.x[0] > s.x[1], 0.0, s.g)),
    "minimum": (lambda s: where(s.x[0] < s.x[1], s.g, 0.0), lambda s: where(s.x[0] < s.x[1], 0.0, s.g)),
    "select": (lambda s: s.g * 0.0, lambda s: where(s.x[0], s.g, 0.0), lambda s: where(s.x[0], 0.0, s.g)),
    "broadcast_in_dim": (_unbroadcast,),
    "reshape": (lambda s: reshape(s.g, s.x[0].shape),),
    "transpose": (lambda s: transpose(s.g, [s.attrs["perm"].index(i) for i in range(s.g.ndim)]),),
    "slice": (_unslice,),
    "pad": (_unpad, lambda s: ops.sum(s.g) - ops.sum(_unpad(s))),
    "reduce": (_unreduce,),
    "dot_general": (lambda s: _undot(s, 0), lambda s: _undot(s, 1)),
}
