"""Precision: products of f32 arrays computed from bf16 copies of them, if the user asks for it.

    %0 = dot_general(x, w) : f32[8,8]     ->     %0 = convert(x) dtype=bf16, %1 = convert(w) dtype=bf16
                                                 %2 = dot_general(%0, %1) dtype=f32 : f32[8,8]

Goes in: a graph. Comes out: one whose dots and convolutions take 8 bits of each factor's fraction and add up
in f32. On a matrix unit built for bf16 that is one pass instead of six, and half the bytes of what is
converted where it was made. Nothing else is rounded. JAX calls it `default_matmul_precision`, and "bfloat16"
is what a TPU does unless told otherwise; PyTorch has `set_float32_matmul_precision("medium")`. Read next:
kernel/legalize.py.
"""

from __future__ import annotations

from minicc.graph.dtypes import BF16, F32
from minicc.graph.ir import Graph, Value
from minicc.graph.rewrite import Match, Rule, any_of, rewrite
from minicc.trace import Step

PRECISIONS = ("f32", "bf16")  # what factors of f32 products are rounded to


def _narrowed(m: Match) -> Value | None:
    if any(value.dtype is not F32 for value in m.node.operands):
        return None
    factors = [m.build("convert", value, dtype=BF16) for value in m.node.operands]
    return m.build(m.node.op, *factors, **{**m.node.attrs, "dtype": F32})


RULES = (Rule("f32 product -> product of bf16 copies", any_of({"dot_general", "convolution"}), _narrowed),)


def reduce_precision(graph: Graph, precision: str = "f32", *, log: list[Step] | None = None) -> Graph:
    """The graph with its f32 products at this precision, one of PRECISIONS."""
    return rewrite(graph, RULES, log) if precision == "bf16" else graph
