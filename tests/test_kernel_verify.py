"""Verification: every kernel of ours passes, and each broken rule is named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernel_programs import PROGRAMS, SOFTMAX, TARGET, tiled_module
from random_graphs import random_graph

from minicc.errors import CompileError
from minicc.graph.simplify import simplify
from minicc.graph.text import parse_graph
from minicc.kernel.fuse import fuse
from minicc.kernel.ir import Guard, Index
from minicc.kernel.legalize import legalize
from minicc.kernel.pipeline import Command, Verb, pipeline
from minicc.kernel.verify import verify

MLP = fuse(parse_graph(PROGRAMS["mlp"]), TARGET).kernels[0]
X, W, B = MLP.inputs


@pytest.mark.parametrize("seed", range(30))
def test_what_fusion_and_tiling_make_is_in_order(seed):
    module = tiled_module(legalize(simplify(random_graph(seed)[0])))
    verify(module)
    for kernel in module.kernels:
        verify(pipeline(kernel))


BROKEN = {
    "axis n is whole but has 2 steps": lambda: fuse(parse_graph(SOFTMAX), TARGET).kernels[0].tiled({"n": 5}),
    "axis m has blocks of 0, not of 1 to 200": lambda: MLP.tiled({"m": 0}),
    "axis m has blocks of 300": lambda: MLP.tiled({"m": 300}),
    "two are called axis m": lambda: replace(MLP, axes=(*MLP.axes, MLP.axes[0])),
    "two are called operand x": lambda: replace(MLP, inputs=(X, *MLP.inputs)),
    "not in the order parallel": lambda: replace(MLP, axes=MLP.axes[::-1]),
    "x has 1 indices for": lambda: replace(MLP, inputs=(replace(X, index=X.index[:1]), W, B)),
    "x is read at m[+]1, from 1 to 200, outside of 0 to 199": lambda: replace(
        MLP, inputs=(replace(X, index=(Index.axis("m").scaled(1, 1), X.index[1])), W, B)),
    "x moves along q, which is no axis": lambda: replace(
        MLP, inputs=(replace(X, index=(Index.axis("q"), X.index[1])), W, B)),
    "it loads b, which is no operand": lambda: replace(MLP, inputs=(X, W)),
    "nothing writes its output out": lambda: replace(MLP, body=MLP.body[:-1]),
    "it loads acc, which is no operand": lambda: replace(MLP, scratch=()),
    "it writes x, which is no output": lambda: replace(MLP, body=(replace(MLP.body[-1], target="x"),)),
    "before the last step of k": lambda: replace(
        MLP, body=(*MLP.body[:-1], replace(MLP.body[-1], guard=Guard.ALWAYS))),
    "copies what has no buffers": lambda: replace(pipeline(MLP), steady=(Command(Verb.START, "q"),)),
}


@pytest.mark.parametrize("complaint", BROKEN)
def test_each_broken_rule_is_named(complaint):
    with pytest.raises(CompileError, match=complaint):
        verify(BROKEN[complaint]())
