"""Fusion: what becomes one kernel, what does not, and that the answer stays the same."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_programs import (
    BATCHED,
    ONE_DOT,
    PROGRAMS,
    SOFTMAX,
    TARGET,
    TWO_DOTS,
    error,
    named,
    program,
    tiled_module,
)
from random_graphs import random_graph

from minicc.graph.evaluate import evaluate as evaluate_graph
from minicc.graph.ir import BF16, F16, F32, I32
from minicc.graph.simplify import simplify
from minicc.graph.text import parse_graph
from minicc.kernel.build import neutral_value
from minicc.kernel.evaluate import evaluate
from minicc.kernel.fuse import fuse
from minicc.kernel.ir import AxisKind, Index
from minicc.kernel.legalize import legalize


def kinds(kernel):
    return {axis.name: axis.kind.value for axis in kernel.axes}


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_mean_what_the_graph_means(name):
    graph, inputs, want = program(name)
    for module in (fuse(graph, TARGET), tiled_module(graph)):
        got = evaluate(module, named(module, inputs), float64=True)
        assert all(error(g, w) < 1e-12 for g, w in zip(got, want, strict=True))


@pytest.mark.parametrize("name", PROGRAMS)
def test_any_blocks_give_the_same_answer(name):
    graph, inputs, want = program(name)
    module = fuse(graph, TARGET)
    rng = np.random.default_rng(1)
    for _ in range(3):
        kernels = tuple(
            kernel.tiled({a.name: int(rng.integers(max(1, a.size // 3), a.size + 1)) for a in kernel.axes
                          if a.kind is not AxisKind.WHOLE}) for kernel in module.kernels)
        blocked = type(module)(module.name, kernels, module.inputs, module.outputs, module.constants)
        got = evaluate(blocked, named(module, inputs), float64=True)
        assert all(error(g, w) < 1e-12 for g, w in zip(got, want, strict=True))


def test_a_dot_takes_its_bias_and_relu_along():
    (kernel,) = fuse(parse_graph(PROGRAMS["mlp"]), TARGET).kernels
    assert kinds(kernel) == {"m": "parallel", "n": "parallel", "k": "sequential"}
    assert [str(statement.guard.value) for statement in kernel.body] == ["first", "always", "last"]


def test_a_softmax_is_one_kernel_that_keeps_its_rows_whole():
    (kernel,) = fuse(parse_graph(SOFTMAX), TARGET).kernels
    assert kinds(kernel) == {"m": "parallel", "n": "whole"}
    assert len(kernel.inputs) == 1  # the row is read once, although three ops look at it


def test_relu_ends_the_first_dot_rather_than_begin_the_second():
    log = []
    first, second = fuse(parse_graph(TWO_DOTS), ONE_DOT, log=log).kernels
    assert (first.name, second.name) == ("dot_maximum", "dot")
    assert any("ends a dot's kernel" in step.why for step in log if not step.taken)


def test_every_node_that_computes_gets_a_decision_with_its_reason():
    graph, log = parse_graph(SOFTMAX), []
    fuse(graph, TARGET, log=log)
    views = "parameter", "broadcast_in_dim"  # which read what is there
    assert len(log) == len([node for node in graph.nodes() if node.op not in views])
    assert all("fused" in step.why for step in log if step.taken)


def test_batch_axes_that_are_contiguous_everywhere_collapse():
    dot, _ = fuse(parse_graph(BATCHED), ONE_DOT).kernels
    assert sorted(axis.size for axis in dot.axes) == [7, 9, 15, 16]  # 3 x 5 became 15


def test_an_elementwise_kernel_collapses_to_one_axis():
    graph = parse_graph("graph f(x: f32[1000,7]) {\n %0 = exp(x) : f32[1000,7]\n return %0\n}")
    (kernel,) = fuse(graph, TARGET).kernels
    assert [axis.size for axis in kernel.axes] == [7000]


def test_a_long_chain_becomes_several_kernels_and_no_deep_recursion():
    lines = [f"  %{i} = exp({'x' if i == 0 else f'%{i - 1}'}) : f32[4]" for i in range(2000)]
    graph = parse_graph("graph f(x: f32[4]) {\n" + "\n".join(lines) + "\n return %1999\n}")
    assert len(fuse(graph, TARGET).kernels) > 5


def test_a_row_too_long_for_fast_memory_is_not_kept_whole():
    text = SOFTMAX.replace("37,10", "37,1000000")
    log = []
    assert len(fuse(parse_graph(text), TARGET, log=log).kernels) > 1
    assert any("whole rows would take" in step.why for step in log)


def test_an_index_scales_and_shifts():
    assert str(Index.axis("m").scaled(2, 3).scaled(1, -4)) == "2*m-1"


def test_neutral_values_change_nothing():
    assert neutral_value("max", I32) == -(2**31) and neutral_value("sum", F32) == 0.0


def test_the_printed_form_of_a_softmax():
    (kernel,) = fuse(parse_graph(SOFTMAX), TARGET).kernels
    assert str(kernel) == """\
kernel max_subtract_exp_sum
  grid  m = 1 x 37 of 37 parallel, n = 1 x 10 of 10 whole
  in    x: f32[37,10] at (m, n)
  out   out: f32[37,10] at (m, n)
  always:  %0 = exp(subtract(x, reduce(x, kind=max, axes=[n])))
  always:  out = divide(%0, reduce(%0, kind=sum, axes=[n]))"""


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_mean_the_same_as_kernels(seed):
    graph, inputs = random_graph(seed)
    want = evaluate_graph(graph, inputs, dtype64=True)
    module = tiled_module(legalize(simplify(graph)))
    got = evaluate(module, named(module, inputs), float64=True)
    folded = 2.0 ** -8 if any(node.types[0].dtype in (BF16, F16) for node in graph.nodes()) else 1e-6
    assert all(error(g, w) < folded for g, w in zip(got, want, strict=True))  # a folded constant is rounded


def test_what_is_empty_needs_no_kernel():
    graph = parse_graph("""
graph f(x: f32[0,5], y: f32[3,0]) {
  %0 = exp(x) : f32[0,5]
  %1 = reduce(x) kind=sum axes=[0] : f32[5]
  %2 = dot_general(y, x) contract=[1]x[0] batch=[]x[] : f32[3,5]
  return %0, %1, %2
}""")
    module = tiled_module(legalize(graph))
    got = evaluate(module, named(module, [np.zeros((0, 5), "f"), np.zeros((3, 0), "f")]))
    assert got[0].shape == (0, 5) and not got[1].any() and not got[2].any()


def test_bias_and_relu_end_the_first_dot_of_a_network():
    graph = parse_graph("""
graph net(x: f32[64,32], w: f32[32,128], b: f32[128], v: f32[128,10]) {
  %0 = dot_general(x, w) contract=[1]x[0] : f32[64,128]
  %1 = broadcast_in_dim(b) shape=[64,128] dims=[1] : f32[64,128]
  %2 = add(%0, %1) : f32[64,128]
  %3 = maximum(%2, 0.0) : f32[64,128]
  %4 = dot_general(%3, v) contract=[1]x[0] : f32[64,10]
  return %4
}""")
    assert [kernel.name for kernel in fuse(graph, ONE_DOT).kernels] == ["dot_add_maximum", "dot"]


ATTENTION = """
graph attention(x: f32[50,96], w: f32[32,16]) {
  %0 = reshape(x) shape=[50,3,2,16] : f32[50,3,2,16]
  %1 = slice(%0) start=[0,0,0,0] limit=[50,1,2,16] : f32[50,1,2,16]
  %2 = slice(%0) start=[0,1,0,0] limit=[50,2,2,16] : f32[50,1,2,16]
  %3 = slice(%0) start=[0,2,0,0] limit=[50,3,2,16] : f32[50,1,2,16]
  %4 = dot_general(%1, %2) contract=[3]x[3] batch=[1,2]x[1,2] : f32[1,2,50,50]
  %5 = reduce(%4) kind=max axes=[3] : f32[1,2,50]
  %6 = broadcast_in_dim(%5) shape=[1,2,50,50] dims=[0,1,2] : f32[1,2,50,50]
  %7 = subtract(%4, %6) : f32[1,2,50,50]
  %8 = exp(%7) : f32[1,2,50,50]
  %9 = reduce(%8) kind=sum axes=[3] : f32[1,2,50]
  %10 = broadcast_in_dim(%9) shape=[1,2,50,50] dims=[0,1,2] : f32[1,2,50,50]
  %11 = divide(%8, %10) : f32[1,2,50,50]
  %12 = dot_general(%11, %3) contract=[3]x[0] batch=[0,1]x[1,2] : f32[1,2,50,16]
  %13 = transpose(%12) perm=[0,2,1,3] : f32[1,50,2,16]
  %14 = reshape(%13) shape=[50,32] : f32[50,32]
  %15 = dot_general(%14, w) contract=[1]x[0] : f32[50,16]
  return %15
}"""


def test_attention_is_one_kernel_through_views_of_its_heads():
    graph, rng = parse_graph(ATTENTION), np.random.default_rng(0)
    inputs = [rng.standard_normal(shape) for shape in ((50, 96), (32, 16))]
    module = fuse(graph, TARGET)
    attention = module.kernels[0]
    assert [block.op for block in attention.blocks()].count("dot") == 2
    assert len(module.kernels) == 2
    want = evaluate_graph(graph, inputs, dtype64=True)
    assert error(evaluate(module, named(module, inputs), float64=True)[0], want[0]) < 1e-12


@pytest.mark.parametrize("before, after", [
    ((6, 4), (24,)), ((24,), (2, 12)), ((4, 6), (8, 3)), ((2, 3, 4), (4, 6)), ((5, 1, 7), (7, 5)),
    ((2, 9), (6, 3))])
def test_a_reshape_between_two_sums_means_the_same(before, after):
    text = (f"graph f(x: f32{list(before)}) {{\n  %0 = exp(x) : f32{list(before)}\n"
            f"  %1 = reshape(%0) shape={list(after)} : f32{list(after)}\n"
            f"  %2 = negate(%1) : f32{list(after)}\n  return %2\n}}").replace(", ", ",")
    graph, x = parse_graph(text), np.random.default_rng(0).standard_normal(before)
    module = fuse(graph, TARGET)
    got, want = evaluate(module, named(module, [x]), float64=True), evaluate_graph(graph, [x], dtype64=True)
    assert error(got[0], want[0]) < 1e-12


@pytest.mark.parametrize("axes, shape", [((0,), (4,)), ((1,), (3,)), ((0, 1), ())])
def test_a_sum_along_what_a_broadcast_repeats_is_right(axes, shape):
    graph = parse_graph(f"""graph g(x: f32[1,4]) {{
      %0 = broadcast_in_dim(x) shape=[3,4] dims=[0,1] : f32[3,4]
      %1 = reduce(%0) kind=sum axes=[{", ".join(map(str, axes))}] : f32{[*shape]}
      return %1
    }}""")
    x = np.arange(4.0, dtype=np.float32).reshape(1, 4)
    got = evaluate(fuse(graph, TARGET), {"x": x}, float64=True)
    assert np.array_equal(got[0], np.broadcast_to(x, (3, 4)).sum(axis=axes))
