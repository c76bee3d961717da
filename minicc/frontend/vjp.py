"""The gradient rules: for each op and operand, what it gets of the gradient of the result.

    out = exp(x)            g -> g * out
    out = multiply(x, y)    g -> g * y, g * x
    out = slice(x)          g -> g with zeros around it
    out = gather(x, i)      g -> zeros, with g added in at i

In: a `Site`, the node with the gradient of its result. Out: a gradient of the operand's shape and dtype, as a
lazy tensor of the scope around (a scalar operand that stood for an array gets an array, which autograd.py
sums). Invariants: where several elements share the maximum of a reduction, or of a scatter, they share its
gradient evenly, as in JAX, while maximum(x, y) gives a tie to y, so that relu's gradient at 0 is 0; where
updates of a scatter overlap, that of kind set gives the gradient to the last one, which is what is left of
them. Each rule is checked against finite differences.

JAX has the same table twice, for jvp and for transposition. Read next: autograd.py, which walks the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minicc.errors import CompileError
from minicc.frontend.primitives import as_tensor, node
from minicc.frontend.scope import current, fail
from minicc.frontend.shapes import broadcast, reshape, transpose
from minicc.frontend.tensor import Tensor
from minicc.graph.ir import I32, DType


@dataclass(frozen=True)
class Site:
    """A node to differentiate: its result `out`, the gradient `g` of that, operands `x`, attributes.

    side: the operand whose gradient is asked for, by number.
    """

    g: Tensor
    out: Tensor
    x: Sequence[Tensor]
    attrs: Mapping[str, Any]
    side: int = 0


# -- small words ---------------------------------------------------------------------------------------------


def total(x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """The sum over axes, or over all; that of negatives is the negative of a sum, which is smaller."""
    axes, value = range(x.ndim) if axes is None else axes, current().lift(x)
    if axes and value.op == "negate":
        return -total(Tensor._made(value.node.operands[0], current()), axes)
    return node("reduce", x, kind="sum", axes=axes) if axes else x


def _full(number: float, like: Tensor) -> Tensor:
    return broadcast(as_tensor(number, like.dtype), like.shape)


def _where(condition: Tensor, x: Tensor | float, y: Tensor | float, dtype: DType) -> Tensor:
    return node("select", condition, as_tensor(x, dtype), as_tensor(y, dtype))


def _if(condition: Tensor, g: Tensor) -> Tensor:
    return _where(condition, g, 0, g.dtype)


def _unless(condition: Tensor, g: Tensor) -> Tensor:
    return _where(condition, 0, g, g.dtype)


def _slice(x: Tensor, axis: int, start: int, limit: int) -> Tensor:
    """Some elements along one axis."""
    lows, highs = [0] * x.ndim, list(x.shape)
    lows[axis], highs[axis] = start, limit
    return x if (start, limit) == (0, x.shape[axis]) else node("slice", x, start=lows, limit=highs)


def _float(condition: Tensor, like: Tensor) -> Tensor:
    return as_tensor(condition, like.dtype)


# -- elementwise rules of more than a line -------------------------------------------------------------------


def _unpower_base(s: Site) -> Tensor:
    """y * x ** (y-1), and 0 where y is 0, also where x is."""
    x, y = s.x
    return s.g * (y * node("power", x, _where(y == 0, 1, y - 1, y.dtype)))


def _unpower_exponent(s: Site) -> Tensor:
    """out * log(x), and 0 where x is 0."""
    x = s.x[0]
    return s.g * (s.out * node("log", _where(x == 0, 1, x, x.dtype)))


# -- shape rules ---------------------------------------------------------------------------------------------


def _unbroadcast(s: Site) -> Tensor:
    """The sum over what broadcast_in_dim repeated."""
    x, dims = s.x[0], s.attrs["dims"]
    kept = [dim for dim, size in zip(dims, x.shape, strict=True) if size == s.out.shape[dim]]
    summed = total(s.g, [axis for axis in range(s.out.ndim) if axis not in kept])
    return reshape(transpose(summed, _places(kept, sorted(kept))) if kept else summed, x.shape)


def _unslice(s: Site) -> Tensor:
    """Zeros around, and between where the slice has a stride."""
    start, stride = s.attrs["start"], s.attrs["stride"]
    last = [a + (n - 1) * step for a, n, step in zip(start, s.out.shape, stride, strict=True)]
    high = [size - 1 - end for size, end in zip(s.x[0].shape, last, strict=True)]
    return node("pad", s.g, as_tensor(0, s.g.dtype), low=start, high=high, interior=[i - 1 for i in stride])


def _unpad(s: Site) -> Tensor:
    low, inner, sizes = s.attrs["low"], s.attrs["interior"], s.x[0].shape
    limit = [a + (n - 1) * (i + 1) + 1 for a, n, i in zip(low, sizes, inner, strict=True)]
    return node("slice", s.g, start=low, limit=limit, stride=[i + 1 for i in inner])


def _unfill(s: Site) -> Tensor:
    """The sum over the padding."""
    inside = broadcast(as_tensor(False), s.x[0].shape)
    return total(_if(node("pad", inside, as_tensor(True), **s.attrs), s.g))


def _unconcatenate(s: Site) -> Tensor:
    axis = s.attrs["axis"]
    start = sum(x.shape[axis] for x in s.x[:s.side])
    return _slice(s.g, axis, start, start + s.x[s.side].shape[axis])


def _places(labels: Sequence[int], among: Sequence[int]) -> list[int]:
    return [among.index(label) for label in labels]


# -- reductions and products ---------------------------------------------------------------------------------


def _spread(x: Tensor, s: Site) -> Tensor:
    """A value per reduced group, repeated for each element of the group."""
    kept = tuple(axis for axis in range(s.x[0].ndim) if axis not in s.attrs["axes"])
    return x if x.shape == s.x[0].shape else node("broadcast_in_dim", x, shape=s.x[0].shape, dims=kept)


def _unreduce(s: Site) -> Tensor:
    """sum: to every element. max, min: to the largest ones, evenly. prod: times the product of the others."""
    x, axes = s.x[0], s.attrs["axes"]
    if s.attrs["kind"] == "sum":
        return _spread(s.g, s)
    if s.attrs["kind"] == "prod":
        return _spread(s.g, s) * _others_of_groups(x, axes)
    chosen = x == _spread(s.out, s)
    return _if(chosen, _spread(s.g / total(_float(chosen, x), axes), s))


def _others_of_groups(x: Tensor, axes: Sequence[int]) -> Tensor:
    """For each element, the product of the others along the axes."""
    order = [axis for axis in range(x.ndim) if axis not in axes] + list(axes)
    moved = transpose(x, order)
    rows = reshape(moved, *moved.shape[:x.ndim - len(axes)], -1)
    return transpose(reshape(_others(rows), moved.shape), _places(range(x.ndim), order))


def _others(x: Tensor) -> Tensor:
    """The product of the others along the last axis: without dividing, since an element may be 0.

    Pair the two halves, [a b c d] -> [ac bd]; what the others of a are: c, and the others of the pair ac.
    """
    size, axis = x.shape[-1], x.ndim - 1
    if size == 1:
        return _full(1, x)
    half = -(-size // 2)
    left, right = _slice(x, axis, 0, half), _slice(x, axis, half, size)
    if size % 2:
        right = node("pad", right, as_tensor(1, x.dtype), low=[0] * x.ndim, high=[0] * axis + [1])
    rest = _others(left * right)
    return _slice(node("concatenate", rest * right, rest * left, axis=axis), axis, 0, size)


def _undot(s: Site) -> Tensor:
    """The gradient of one side of a dot: a dot of the other side and g, rounded to the operands' dtype.

    Each axis gets a label, shared by the two that a dot pairs: left [i, k], right [k, j], out [i, j] for a
    matrix product; then left's gradient is [i, j] . [k, j] -> [i, k].
    """
    g, (x, y) = as_tensor(s.g, s.x[0].dtype), s.x
    pairs = [*zip(*s.attrs["batch"], strict=True), *zip(*s.attrs["contract"], strict=True)]
    left, right = list(range(x.ndim)), [-1 - axis for axis in range(y.ndim)]
    for i, j in pairs:
        right[j] = i
    free = [label for label in left + right if label not in dict(pairs)]
    out = [*s.attrs["batch"][0], *free]
    return _dot(x, left, g, out, right) if s.side else _dot(g, out, y, right, left)


def _dot(x: Tensor, of_x: list[int], y: Tensor, of_y: list[int], result: list[int]) -> Tensor:
    """The dot over the axes whose labels the result lacks, in the result's order."""
    shared = [label for label in of_x if label in of_y]
    batch = [label for label in shared if label in result]
    contract = [label for label in shared if label not in result]
    order = batch + [label for label in of_x + of_y if label not in shared]
    product = node("dot_general", x, y, batch=(_places(batch, of_x), _places(batch, of_y)),
                   contract=(_places(contract, of_x), _places(contract, of_y)))
    return transpose(product, _places(result, order)) if result else product


# -- convolution: x[N, G, C, *S], w[G, O, C, *K] -> [N, G, O, *S'] -------------------------------------------


def _unconvolve_input(s: Site) -> Tensor:
    """g with its elements `stride` apart, convolved with w reversed, its O and C swapped.

    out[y] has w[k] * x[y * stride + k * dilation - low], so x[i] gets w[k] * g[y] where that index is i.
    """
    (x, w), g, rank = s.x, as_tensor(s.g, s.x[0].dtype), s.g.ndim
    if any(step > 1 for step in s.attrs["stride"]):
        g = node("pad", g, as_tensor(0, g.dtype), low=[0] * rank, high=[0] * rank,
                 interior=[0, 0, 0, *(step - 1 for step in s.attrs["stride"])])
    lows, highs = [], []
    for axis, dilation, low in zip(range(3, rank), s.attrs["dilation"], s.attrs["low"], strict=True):
        reach = (w.shape[axis] - 1) * dilation
        g = _slice(g, axis, min(max(low - reach, 0), g.shape[axis]), g.shape[axis])  # read padding only
        lows.append(max(reach - low, 0))
        high = x.shape[axis] + reach - lows[-1] - g.shape[axis]
        g = _slice(g, axis, 0, g.shape[axis] + min(high, 0))
        highs.append(max(high, 0))
    w = node("reverse", transpose(w, 0, 2, 1, *range(3, rank)), axes=range(3, rank))
    return node("convolution", g, w, dilation=s.attrs["dilation"], low=lows, high=highs)


def _unconvolve_weights(s: Site) -> Tensor:
    """x convolved with g, where C and N swap their roles, and stride and dilation theirs."""
    (x, w), g, spatial = s.x, as_tensor(s.g, s.x[0].dtype), range(3, s.g.ndim)
    sizes = zip(x.shape[3:], w.shape[3:], g.shape[3:], s.attrs["stride"], s.attrs["dilation"], s.attrs["low"],
                strict=True)
    high = [max((k - 1) * dilation + (n - 1) * stride + 1 - size - low, 0)
            for size, k, n, stride, dilation, low in sizes]
    taps = node("convolution", transpose(x, 2, 1, 0, *spatial), transpose(g, 1, 2, 0, *spatial),
                stride=s.attrs["dilation"], dilation=s.attrs["stride"], low=s.attrs["low"], high=high)
    for axis in spatial:  # a stride that does not divide leaves elements at the end that no tap reached
        taps = _slice(taps, axis, 0, w.shape[axis])
    return transpose(taps, 1, 2, 0, *spatial)


# -- gather and scatter --------------------------------------------------------------------------------------


def _ungather(s: Site) -> Tensor:
    """g added in where it was read; gather clamps its indices, scatter would drop them."""
    (x, indices), axis = s.x, s.attrs["axis"]
    last = as_tensor(x.shape[axis] - 1, I32)
    read = node("maximum", node("minimum", indices, last), as_tensor(0, I32))
    return node("scatter", _full(0, x), read, s.g, axis=axis, kind="sum")


def _take(x: Tensor, s: Site) -> Tensor:
    """The element of x that each update of a scatter went to."""
    return node("gather", x, s.x[1], axis=s.attrs["axis"])


def _kept(s: Site) -> Tensor:
    """Which updates of a scatter were not dropped."""
    _, indices, updates = s.x
    axis = s.attrs["axis"]
    inside = (indices >= 0) & (indices < s.out.shape[axis])
    return _over_updates(inside, s)


def _over_updates(x: Tensor, s: Site) -> Tensor:
    """A value per index, for each element of the update there."""
    axis = s.attrs["axis"]
    return node("broadcast_in_dim", x, shape=s.x[2].shape, dims=range(axis, axis + x.ndim))


def _last(s: Site) -> Tensor:
    """Which updates of a scatter no later one overwrote."""
    indices = s.x[1]
    order = reshape(node("iota", axis=0, shape=(indices.size,), dtype=I32), indices.shape)
    none = broadcast(as_tensor(-1), (s.out.shape[s.attrs["axis"]],))
    winner = node("scatter", none, indices, order, axis=0, kind="max")
    return _over_updates(node("gather", winner, indices, axis=0) == order, s)


def _share(s: Site) -> Tensor:
    """The gradient of a maximum, for each of those that reach it."""
    operand, indices, updates = s.x
    reach = _float(operand == s.out, s.g), _float(updates == _take(s.out, s), s.g)
    return s.g / node("scatter", reach[0], indices, reach[1], axis=s.attrs["axis"], kind="sum")


def _unscatter_operand(s: Site) -> Tensor:
    operand, indices, updates = s.x
    match s.attrs["kind"]:
        case "sum":
            return s.g
        case "set":
            return node("scatter", s.g, indices, _full(0, updates), **s.attrs)
        case "prod":
            return s.g * node("scatter", _full(1, operand), indices, updates, **s.attrs)
    return _if(operand == s.out, _share(s))


def _unscatter_updates(s: Site) -> Tensor:
    match s.attrs["kind"]:
        case "sum":
            return _if(_kept(s), _take(s.g, s))
        case "set":
            return _if(_last(s), _take(s.g, s))
        case "prod":
            fail("grad", "the updates of a scatter of kind prod have no gradient", s.x[2].type,
                 hint="x.at[i].set(x[i] * updates), if no index repeats", kind=CompileError)
    return _if(_kept(s) & (s.x[2] == _take(s.out, s)), _take(_share(s), s))


# -- the table -----------------------------------------------------------------------------------------------

Rule = Callable[[Site], Tensor]
# op -> for each operand, the gradient of the loss with respect to it; None where there is none: for integers
# and bools, and for what is only waited for. The last rule is for all further operands, too.
VJP: dict[str, tuple[Rule | None, ...]] = {
    "negate": (lambda s: -s.g,),
    "abs": (lambda s: s.g * node("sign", s.x[0]),),
    "exp": (lambda s: s.g * s.out,),
    "expm1": (lambda s: s.g * (s.out + 1.0),),
    "log": (lambda s: s.g / s.x[0],),
    "log1p": (lambda s: s.g / (s.x[0] + 1.0),),
    "sqrt": (lambda s: s.g * 0.5 / s.out,),
    "rsqrt": (lambda s: s.g * -0.5 * s.out * s.out * s.out,),
    "tanh": (lambda s: s.g * (1.0 - s.out * s.out),),
    "sin": (lambda s: s.g * node("cos", s.x[0]),),
    "cos": (lambda s: s.g * -node("sin", s.x[0]),),
    "add": (lambda s: s.g, lambda s: s.g),
    "subtract": (lambda s: s.g, lambda s: -s.g),
    "multiply": (lambda s: s.g * s.x[1], lambda s: s.g * s.x[0]),
    "divide": (lambda s: s.g / s.x[1], lambda s: -(s.g / s.x[1] * s.out)),
    "remainder": (lambda s: s.g, lambda s: s.g * node("round", (s.out - s.x[0]) / s.x[1])),
    "power": (_unpower_base, _unpower_exponent),
    "maximum": (lambda s: _if(s.x[0] > s.x[1], s.g), lambda s: _unless(s.x[0] > s.x[1], s.g)),
    "minimum": (lambda s: _if(s.x[0] < s.x[1], s.g), lambda s: _unless(s.x[0] < s.x[1], s.g)),
    "select": (None, lambda s: _if(s.x[0], s.g), lambda s: _unless(s.x[0], s.g)),
    "convert": (lambda s: as_tensor(s.g, s.x[0].dtype),),
    "broadcast_in_dim": (_unbroadcast,),
    "reshape": (lambda s: reshape(s.g, s.x[0].shape),),
    "transpose": (lambda s: transpose(s.g, _places(range(s.g.ndim), s.attrs["perm"])),),
    "reverse": (lambda s: node("reverse", s.g, **s.attrs),),
    "slice": (_unslice,),
    "pad": (_unpad, _unfill),
    "concatenate": (_unconcatenate,),
    "reduce": (_unreduce,),
    "dot_general": (_undot,),
    "convolution": (_unconvolve_input, _unconvolve_weights),
    "gather": (_ungather, None),
    "scatter": (_unscatter_operand, None, _unscatter_updates),
    "dynamic_slice": (lambda s: node("dynamic_update_slice", _full(0, s.x[0]), s.g, *s.x[1:]), None),
    "dynamic_update_slice": (lambda s: node("dynamic_update_slice", s.g, _full(0, s.x[1]), *s.x[2:]),
                             lambda s: node("dynamic_slice", s.g, *s.x[2:], sizes=s.x[1].shape), None),
    "optimization_barrier": (lambda s: s.g, None),
}

# op -> why no gradient passes through it
NO_GRADIENT: dict[str, str] = {
    **dict.fromkeys(("constant", "iota"), "it has no operands"),
    **dict.fromkeys(("floor", "ceil", "round", "sign"), "a step: its slope is 0 wherever it has one"),
    **dict.fromkeys(("and", "or", "xor", "not", "shift_left", "shift_right"), "for bools and integers only"),
    "compare": "its result is a bool",
}
