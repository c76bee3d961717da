"""Slots: what a learner's pass may be given, and must give back."""

from __future__ import annotations

from dataclasses import replace

import pytest

import minicc as mc
from minicc.graph.simplify import simplify


def run_with(**slots):
    with mc.using(**slots):
        return (mc.Tensor([1.0, 2.0]) * 3.0).numpy().tolist()


def test_a_pass_of_ones_own_takes_only_the_options_it_wants():
    assert run_with(simplify=lambda graph: graph) == [3, 6]
    assert run_with(simplify=lambda graph, **options: simplify(graph, **options)) == [3, 6]


@pytest.mark.parametrize("function", [3, lambda: None, lambda graph, rules_of_mine: graph, dict])
def test_a_pass_that_cannot_be_called_so_is_told_how_it_will_be(function):
    with pytest.raises(mc.CompileError, match=r"slot simplify takes other arguments.*need simplify\(graph"):
        run_with(simplify=function)


def test_a_graph_that_is_none_is_caught_where_it_was_made():
    with pytest.raises(mc.CompileError, match="verify: eager has no output"):
        run_with(simplify=lambda graph: replace(graph, outputs=()))


def test_inner_slots_add_to_outer_ones_and_end_with_their_block():
    seen = []
    with mc.using(simplify=lambda graph: seen.append("outer") or graph):
        run_with()
        run_with(simplify=lambda graph: seen.append("inner") or graph)
    assert seen == ["outer", "inner"]
