"""The bound: terms by hand, and no emulated program below it."""

from __future__ import annotations

import pytest

from minicc.compiler import Options, compile_graph
from minicc.graph.text import parse_graph
from minicc.tools.random_graphs import random_graph
from minicc.tools.random_machines import random_machine
from minicc.tpu.bound import bound, factors, needed
from minicc.tpu.machine import V5E

PER_CYCLE, BEGINS, FILL = 819e9 / 1.5e9, 385, 254  # bytes of HBM; cycles of a copy's start-up, of an array


def of(body: str, inputs: str):
    return parse_graph(f"graph f({inputs}) {{\n{body}\n}}")


def test_a_product_is_bound_by_rows_between_its_first_copy_and_its_last():
    graph = of("%0 = dot_general(x, w) contract=[1]x[0] : f32[512,512]\nreturn %0",
               "x: f32[512,512], w: f32[512,512]")
    found = bound(graph, V5E)
    rows = 512 * (512 // 128) * (512 // 128) * 6 / 4  # six passes, four arrays
    assert found.terms["mxu"] == BEGINS + rows + FILL + BEGINS
    assert found.terms["hbm"] == pytest.approx(BEGINS + 3 * 4 * 512**2 / PER_CYCLE)
    assert (found.name, found.cycles) == ("mxu", found.terms["mxu"])


def test_a_small_output_is_begun_when_the_last_input_is_there():
    graph = of("%0 = reduce(x) kind=sum axes=[0, 1] : f32[]\nreturn %0", "x: f32[100,100]")
    assert bound(graph, V5E).terms == {"hbm": pytest.approx(BEGINS + 4 * 100**2 / PER_CYCLE + BEGINS)}


def test_of_what_is_sliced_the_slices_are_needed_and_of_what_is_looked_up_nothing_is_certain():
    graph = of("%0 = slice(x) start=[0, 0] limit=[8, 3] stride=[1, 1] : f32[8,3]\n"
               "%1 = slice(x) start=[0, 2] limit=[8, 5] stride=[1, 1] : f32[8,3]\n"
               "%2 = add(%0, %1) : f32[8,3]\n%3 = gather(table, ids) axis=0 : f32[3,4]\nreturn %2, %3",
               "x: f32[8,16], table: f32[9,4], ids: i32[3]")
    assert [needed(graph)[value.node] for value in graph.inputs] == [8 * 5, 0, 3]


def test_the_factors_of_a_product_and_of_a_convolution_are_counted_by_hand():
    graph = of("%0 = dot_general(x, y) contract=[2]x[1] batch=[0]x[0] : f32[5,3,2]\n"
               "%1 = convolution(a, w) stride=[1] dilation=[1] low=[0] high=[0] : f32[2,3,6,8]\n"
               "return %0, %1", "x: f32[5,3,7], y: f32[5,7,2], a: f32[2,3,4,9], w: f32[3,6,4,2]")
    assert [factors(value.node) for value in graph.outputs] == [5 * 3 * 2 * 7, (2 * 3 * 6 * 8) * (4 * 2)]


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("seed", range(12))
def test_no_program_is_below_its_bound(seed: int, precision: str):
    graph, inputs = random_graph(seed)
    compiled = compile_graph(graph, "tpu:v5e", options=Options(precision=precision))
    if compiled.module.kernels:
        compiled.run(inputs)
        profile = compiled.profile()
        assert profile.least.cycles <= profile.cycles


@pytest.mark.parametrize("seed", range(100, 112))
def test_no_program_is_below_its_bound_on_any_machine(seed: int):
    graph, inputs = random_graph(seed)
    compiled = compile_graph(graph, random_machine(seed))
    if compiled.module.kernels:
        compiled.run(inputs)
        assert compiled.profile().least.cycles <= compiled.profile().cycles


def test_the_bound_follows_the_precision():
    graph = of("%0 = dot_general(x, w) contract=[1]x[0] : f32[256,256]\nreturn %0",
               "x: f32[256,256], w: f32[256,256]")
    f32, bf16 = (bound(compile_graph(graph, "tpu", options=Options(precision=precision)).graph, V5E)
                 for precision in ("f32", "bf16"))
    assert f32.terms["mxu"] - 2 * BEGINS - FILL == 256 * 4 * 6 / 4
    assert bf16.terms["mxu"] - 2 * BEGINS - FILL == 256 * 4 / 4
