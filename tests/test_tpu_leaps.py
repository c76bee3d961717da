"""Leaping over blocks gives what stepping gives, to the bit and to the cycle; and it does leap."""

from __future__ import annotations

import pytest
from random_graphs import random_graph
from tpu_programs import run_both, tiny

from minicc import compiler
from minicc.compiler import compile_graph
from minicc.tools.workloads import TINY


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that the compiler runs are run in both ways."""
    monkeypatch.setattr(compiler, "run_tpu", run_both)


@pytest.mark.parametrize("seed", range(30))
def test_random_programs_run_alike_in_both_ways(seed: int, both: None):
    graph, inputs = random_graph(seed)
    compile_graph(graph, "tpu:v5e").run(inputs)


@pytest.mark.parametrize("name", TINY)
def test_the_benchs_programs_run_alike_in_both_ways(name: str, both: None):
    tiny(name)
