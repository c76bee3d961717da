"""Legalising: what no kernel should have to know about is said with other ops.

    pad(x, 0.0) low=[1] interior=[1]      ->  reshape, pad, reshape, slice, pad: no index there has a hole
    reduce(x: f32[0,5]) kind=sum axes=[0] ->  broadcast_in_dim(0.0) : f32[5]

Goes in: a graph. Comes out: one that computes the same, whose pads have no interior and whose kernels will
all have elements to work on: what is empty, or made of nothing, becomes a constant here. Arithmetic on
numbers of 8 and 16 bits is done in 32. XLA has such passes by the dozen (zero-sized-hlo-elimination and
float-normalization are two); MLIR's word for it is legalisation. Read next: fuse.py.
"""

from __future__ import annotations

import numpy as np

from minicc.graph.dtypes import F32, I32, DType
from minicc.graph.elementwise import ELEMENTWISE, REDUCE
from minicc.graph.infer import OPS
from minicc.graph.ir import Graph, Value
from minicc.graph.rewrite import Match, Rule, any_of, rewrite
from minicc.kernel.update import UPDATES
from minicc.trace import Step


def _empty(m: Match) -> Value | None:
    """A result without elements needs no computing."""
    type = m.node.types[0]
    return m.build("constant", value=np.zeros(type.shape, type.dtype.numpy)) if type.elements == 0 else None


def _of_nothing(m: Match) -> Value | None:
    """A sum (product, dot, padding, update) of no elements is what it starts from."""
    if all(operand.type.elements for operand in m.node.operands):
        return None
    if m.node.op in UPDATES:
        return m.node.operands[0]
    if m.node.op == "pad":
        return m.like(m.node.operands[1])
    start = REDUCE[m.node.attrs["kind"]][1] if m.node.op == "reduce" else 0
    return m.like(m.build("constant", value=np.array(start, m.node.types[0].dtype.numpy)))


def _concatenated(m: Match) -> Value | None:
    """Operands without elements add nothing, and many are joined group by group."""
    full = [operand for operand in m.node.operands if operand.type.elements]
    if len(full) > MOST_JOINED:
        groups = [full[i:i + MOST_JOINED] for i in range(0, len(full), MOST_JOINED)]
        full = [m.build("concatenate", *group, axis=m.node.attrs["axis"]) for group in groups]
    elif len(full) == len(m.node.operands) > 1:
        return None
    return full[0] if len(full) == 1 else m.build("concatenate", *full, axis=m.node.attrs["axis"])


def _widened(m: Match) -> Value | None:
    """Arithmetic on narrow numbers: in 32 bits, and converted back; what only moves them stays as it is."""
    node = m.node
    dtype = node.types[0].dtype
    if node.op == "scatter" and node.attrs["kind"] == "set":
        return None
    products = node.op in PRODUCTS  # these take narrow operands, but give wide results
    if not dtype.narrow and (products or not any(value.dtype.narrow for value in node.operands)):
        return None
    attrs = dict(node.attrs)
    if products or node.op == "iota":
        attrs["dtype"] = _wide(dtype)
    operands = node.operands if products else [
        m.build("convert", v, dtype=_wide(v.dtype)) if v.dtype.narrow else v for v in node.operands]
    result = m.build(node.op, *operands, **attrs)
    return m.build("convert", result, dtype=dtype) if result.dtype != dtype else result


def _wide(dtype: DType) -> DType:
    return (F32 if dtype.kind == "f" else I32) if dtype.narrow else dtype


def _without_interior(m: Match) -> Value | None:
    """Interior padding, one dimension at a time: each element gets a tail of padding, then the last tail
    goes."""
    attrs, (value, fill) = m.node.attrs, m.node.operands
    if not any(attrs["interior"]):
        return None
    for dim, hole in enumerate(attrs["interior"]):
        if hole:
            before, size, after = value.shape[:dim], value.shape[dim], value.shape[dim + 1:]
            apart = m.build("reshape", value, shape=(*before, size, 1, *after))
            none = (0,) * len(apart.shape)
            tail = tuple(hole if d == dim + 1 else 0 for d in range(len(apart.shape)))
            apart = m.build("pad", apart, fill, low=none, high=tail, interior=none)
            flat = m.build("reshape", apart, shape=(*before, size * (hole + 1), *after))
            limit = (*before, size * (hole + 1) - hole, *after)
            value = m.build("slice", flat, start=none[1:], limit=limit, stride=(1,) * len(limit))
    return m.build("pad", value, fill, low=attrs["low"], high=attrs["high"], interior=(0,) * len(value.shape))


MOST_JOINED = 8  # operands of one concatenation
PRODUCTS = ("dot_general", "convolution")
ARITHMETIC = {*ELEMENTWISE, *PRODUCTS, "compare", "reduce", "iota", "scatter"}

RULES = (
    Rule("an empty result -> constant", any_of({*OPS} - {"constant"}), _empty),
    Rule("nothing to add up -> what it starts from", any_of({"reduce", "pad", *PRODUCTS, *UPDATES}),
         _of_nothing),
    Rule("concatenate without empty operands, a few at a time", any_of({"concatenate"}), _concatenated),
    Rule("narrow arithmetic -> in 32 bits, with converts around", any_of(ARITHMETIC), _widened),
    Rule("pad with holes -> reshape, pad, slice, pad", any_of({"pad"}), _without_interior),
)


def legalize(graph: Graph, *, log: list[Step] | None = None) -> Graph:
    """A graph of the same meaning that every kernel rule can take."""
    return rewrite(graph, RULES, log)
