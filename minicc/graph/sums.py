"""Rules of reduce and dot_general: which axes they run over, and what need not be summed at all.

    dot_general(transpose(x) perm=[1,0], y) contract=[1]x[0]   ->  dot_general(x, y) contract=[0]x[0]
    reduce(broadcast_in_dim(x) shape=[9,4] dims=[1]) kind=max  ->  x
    reduce(the same) kind=sum axes=[0]                         ->  multiply(x, 9.0)       only fast

Goes in: nothing. Comes out: `SUMS`, a table. Invariants: what is not `fast` adds up the same numbers, each
once, so it is exact where addition is; in which order floats are added no level says, nor which of two zeros
is the larger one. XLA keeps its own in AlgebraicSimplifier and DotDecomposer. Read next: simplify.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial

from minicc.graph.algebra import same_type
from minicc.graph.dtypes import BF16, F16, F32, I32, U32
from minicc.graph.ir import Value
from minicc.graph.movement import matched_axes
from minicc.graph.rewrite import Match, Op, Rule, X, Y, pattern

reduce_, reshape, transpose, broadcast, dot = map(
    pattern, ("reduce", "reshape", "transpose", "broadcast_in_dim", "dot_general"))

# -- reduce ---------------------------------------------------------------------------------------------


def _rest(axes: Iterable[int], rank: int) -> list[int]:
    """The axes that a reduce leaves."""
    return [axis for axis in range(rank) if axis not in axes]


def _reduced_once(m: Match) -> Value | None:
    inner = m.node.operands[0].node
    if inner.attrs["kind"] != m.attrs["kind"]:
        return None
    kept = _rest(inner.attrs["axes"], len(m[X].shape))
    axes = sorted((*inner.attrs["axes"], *(kept[axis] for axis in m.attrs["axes"])))
    return m.build("reduce", m[X], kind=m.attrs["kind"], axes=axes)


def _over_ones(m: Match) -> Value | None:
    """Axes of one element need no reducing."""
    operand = m.node.operands[0]
    axes = [axis for axis in m.attrs["axes"] if operand.shape[axis] != 1]
    if len(axes) == len(m.attrs["axes"]):
        return None
    if not axes:
        return m.build("reshape", operand, shape=m.type.shape)
    return m.build("reshape", m.build("reduce", operand, kind=m.attrs["kind"], axes=axes), shape=m.type.shape)


def _reduce_of_transpose(m: Match) -> Value:
    perm = m.node.operands[0].node.attrs["perm"]
    axes = sorted(perm[axis] for axis in m.attrs["axes"])
    order = [axis for axis in perm if axis not in axes]
    smaller = m.build("reduce", m[X], kind=m.attrs["kind"], axes=axes)
    return m.build("transpose", smaller, perm=[sorted(order).index(axis) for axis in order])


def _reduce_of_reshape(m: Match) -> Value | None:
    """A reshape that only adds axes of one element, or after which everything is reduced."""
    operand = m.node.operands[0]
    if len(m.attrs["axes"]) == len(operand.shape):
        return m.build("reduce", m[X], kind=m.attrs["kind"], axes=range(len(m[X].shape)))
    matched = matched_axes(m[X].shape, operand.shape)
    if matched is None:
        return None
    axes = [axis for axis, large in enumerate(matched) if large in m.attrs["axes"]]
    smaller = m.build("reduce", m[X], kind=m.attrs["kind"], axes=axes)
    return m.build("reshape", smaller, shape=m.type.shape)


def _reduce_of_broadcast(m: Match) -> Value | None:
    """An axis along which all is equal: n times the sum, the nth power, or any one of them."""
    inner, axes, kind = m.node.operands[0], m.attrs["axes"], m.attrs["kind"]
    dims = inner.node.attrs["dims"]
    alike = [axis for axis in axes if axis not in dims or m[X].shape[dims.index(axis)] != inner.shape[axis]]
    count = math.prod(inner.shape[axis] for axis in alike)
    if not alike or not count or kind == "prod" or (kind == "sum" and m.type.dtype in (BF16, F16)):
        return None
    kept = _rest(alike, len(inner.shape))
    stretched = [axis for axis, dim in enumerate(dims) if dim in alike]
    source = m.build("reshape", m[X], shape=[n for i, n in enumerate(m[X].shape) if i not in stretched])
    once = m.build("broadcast_in_dim", source, shape=[inner.shape[axis] for axis in kept],
                   dims=[kept.index(dim) for dim in dims if dim not in alike])
    rest = m.build("reduce", once, kind=kind, axes=[kept.index(axis) for axis in axes if axis in kept])
    return m.build("multiply", rest, m.scalar(count)) if kind == "sum" else rest


# -- dot_general ----------------------------------------------------------------------------------------


def _dot(m: Match, operands: tuple[Value, Value], side: int, axes: list[int]) -> Value:
    """The dot on these operands; axes: which of the new operand's axes each old one is, on one side."""
    pairs = {name: list(m.attrs[name]) for name in ("batch", "contract")}
    for pair in pairs.values():
        pair[side] = tuple(axes[axis] for axis in pair[side])
    others = {name: value for name, value in m.attrs.items() if name not in pairs}
    return m.build("dot_general", *operands, **{name: tuple(pair) for name, pair in pairs.items()}, **others)


def _replaced(m: Match, side: int, value: Value) -> tuple[Value, Value]:
    left, right = m.node.operands
    return (value, right) if side == 0 else (left, value)


def _bound(m: Match, side: int) -> tuple[int, ...]:
    """The axes of one side that are no axes of its own in the result."""
    return (*m.attrs["batch"][side], *m.attrs["contract"][side])


def _dot_of_transpose(m: Match, side: int) -> Value | None:
    perm = m.node.operands[side].node.attrs["perm"]
    free = [perm[axis] for axis in _rest(_bound(m, side), len(perm))]
    return _dot(m, _replaced(m, side, m[X]), side, list(perm)) if free == sorted(free) else None


def _dot_of_reshape(m: Match, side: int) -> Value | None:
    """A reshape that only adds axes of one element, none of which is contracted or a batch."""
    matched = matched_axes(m[X].shape, m.node.operands[side].shape)
    if matched is None or not {*_bound(m, side)} <= {*matched}:
        return None
    rank = len(m.node.operands[side].shape)
    axes = [matched.index(axis) if axis in matched else -1 for axis in range(rank)]
    return m.build("reshape", _dot(m, _replaced(m, side, m[X]), side, axes), shape=m.type.shape)


def _product(m: Match) -> Value | None:
    """A dot that adds up one product each: a multiplication of what is spread."""
    (lhs, rhs), batch, contract = m.node.operands, m.attrs["batch"], m.attrs["contract"]
    if math.prod(lhs.shape[axis] for axis in contract[0]) != 1 or lhs.dtype not in (F32, I32, U32):
        return None
    spread, first = [], len(batch[0])
    for side, operand in enumerate((lhs, rhs)):
        free = _rest(_bound(m, side), len(operand.shape))
        places = {axis: place for place, axis in enumerate(batch[side])}
        places |= {axis: first + place for place, axis in enumerate(free)}
        first += len(free)
        thinner = m.build("reshape", operand, shape=[operand.shape[axis] for axis in sorted(places)])
        dims = [places[axis] for axis in sorted(places)]
        spread.append(m.build("broadcast_in_dim", thinner, shape=m.type.shape, dims=dims))
    return m.build("multiply", *spread)


# -- the table ------------------------------------------------------------------------------------------


def _both(name: str, pattern: Op, replace: Callable[[Match], Value | None]) -> tuple[Rule, Rule]:
    """A rule that is exact on integers and extremes, and fast on sums and products of floats."""
    def where_exact(m: Match) -> Value | None:
        exact = m.type.dtype.kind == "i" or m.attrs.get("kind") in ("max", "min")
        return replace(m) if exact else None
    return Rule(name, pattern, where_exact), Rule(name + " of floats", pattern, replace, fast=True)


SUMS: tuple[Rule, ...] = (
    Rule("reduce over no axes -> x", reduce_(X), same_type),
    Rule("reduce(transpose(x)) -> transpose(reduce(x))", reduce_(transpose(X)), _reduce_of_transpose),
    Rule("reduce(reshape(x)) -> reshape(reduce(x))", reduce_(reshape(X)), _reduce_of_reshape),
    *_both("reduce over axes of one element -> reshape", reduce_(X), _over_ones),
    *_both("reduce(reduce(x)) -> reduce(x)", reduce_(reduce_(X)), _reduced_once),
    *_both("reduce(broadcast(x)) -> broadcast(reduce(x))", reduce_(broadcast(X)), _reduce_of_broadcast),
    Rule("dot(transpose(x), y) -> dot(x, y)", dot(transpose(X), Y), partial(_dot_of_transpose, side=0)),
    Rule("dot(x, transpose(y)) -> dot(x, y)", dot(Y, transpose(X)), partial(_dot_of_transpose, side=1)),
    Rule("dot(reshape(x), y) -> reshape(dot(x, y))", dot(reshape(X), Y), partial(_dot_of_reshape, side=0)),
    Rule("dot(x, reshape(y)) -> reshape(dot(x, y))", dot(Y, reshape(X)), partial(_dot_of_reshape, side=1)),
    *_both("dot of one product each -> multiply", dot(X, Y), _product),
)
