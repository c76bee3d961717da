"""Pipelining and memory planning: what is copied when, and that a wrong pipeline is caught."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernel_programs import ONE_DOT, PROGRAMS, TARGET, TWO_DOTS, error, named, program, tiled_module

from minicc.errors import CompileError, MachineFault
from minicc.graph.text import parse_graph
from minicc.kernel.evaluate import allocate, evaluate_pipelined
from minicc.kernel.fuse import fuse
from minicc.kernel.memory import Space, plan
from minicc.kernel.pipeline import Verb, axes_inside, blocks_of, pipeline


def mlp_kernel():
    return fuse(parse_graph(PROGRAMS["mlp"]), TARGET).kernels[0].tiled({"m": 64, "n": 128, "k": 128})


def run(pipelined, module, inputs):
    buffers = allocate(module, named(module, inputs))
    for one in pipelined:
        evaluate_pipelined(one, buffers)
    return [buffers[name].reshape(type.shape) for name, type in module.outputs]


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_pipelines_mean_what_the_graph_means(name, depth):
    graph, inputs, want = program(name)
    module = tiled_module(graph)
    thirds = [{a.name: -(-a.size // 3) for a in k.axes if a.kind.value != "whole"} for k in module.kernels]
    small = [kernel.tiled(blocks) for kernel, blocks in zip(module.kernels, thirds, strict=True)]
    got = run([pipeline(kernel, depth=depth) for kernel in small], module, inputs)
    assert all(error(g, w) < 1e-5 for g, w in zip(got, want, strict=True))


def test_a_block_is_copied_only_where_it_changes():
    kernel = mlp_kernel()  # grid m=4, n=2, k=3
    x, w, b = kernel.inputs
    assert [axes_inside(kernel, operand) for operand in (x, b, kernel.outputs[0])] == [(), ("k",), ("k",)]
    assert (blocks_of(kernel, x), blocks_of(kernel, b)) == (24, 8)


def test_the_printed_form_of_a_pipeline():
    assert str(pipeline(mlp_kernel())) == """\
pipelined dot_add_maximum, 24 steps
  buffers   x[2] w[2] b[2] out[2]
  prologue
    copy_start x[t]
    copy_start w[t]
    copy_start b[t]      at k first
  steady  t = 0 .. 23
    copy_start x[t+1]
    copy_start w[t+1]
    copy_start b[t+1]    at k first
    copy_wait  x[t]
    copy_wait  w[t]
    copy_wait  b[t]      at k first
    copy_wait  out[-2]   at k first
    body
    copy_start out[t]    at k last
  epilogue
    copy_wait  out[-2]
    copy_wait  out[-1]"""


def without(pipelined, verb, operand):
    """The pipeline without one of its steady commands."""
    keep = tuple(c for c in pipelined.steady if (c.verb, c.operand) != (verb, operand))
    return replace(pipelined, steady=keep)


@pytest.mark.parametrize(
    ("verb", "operand", "complaint"),
    [
        (Verb.WAIT, "x", "the body reads x, which is still in flight"),
        (Verb.START, "w", "copy_wait w would wait for ever"),
        (Verb.WAIT, "out", "the body writes out while it is being copied out"),
        (Verb.START, "out", "not every block of out was copied. got 0; need 8 copies"),
        (Verb.BODY, "", "copy_start out before the body wrote it"),
    ])
def test_a_broken_pipeline_is_caught_and_named(verb, operand, complaint):
    graph, inputs, _ = program("mlp")
    module = fuse(graph, TARGET)
    broken = without(pipeline(mlp_kernel()), verb, operand)
    with pytest.raises(MachineFault, match=complaint):
        run([broken], module, inputs)


def test_a_prologue_that_starts_too_little_is_caught_even_where_blocks_are_ragged():
    graph, inputs, _ = program("mlp")
    good = pipeline(mlp_kernel())
    broken = replace(good, prologue=tuple(c for c in good.prologue if c.operand != "x"))
    with pytest.raises(MachineFault, match=r"the body reads (another block of )?x"):
        run([broken], fuse(graph, TARGET), inputs)


def test_a_copy_that_nobody_waits_for_is_caught():
    graph, inputs, _ = program("mlp")
    module = fuse(graph, TARGET)
    with pytest.raises(MachineFault, match="copies of out were never waited for"):
        run([replace(pipeline(mlp_kernel()), epilogue=())], module, inputs)


def test_a_pipeline_without_buffers_is_an_error():
    with pytest.raises(CompileError, match="needs buffers"):
        pipeline(mlp_kernel(), depth=0)


def test_a_small_buffer_between_kernels_stays_in_fast_memory():
    log = []
    roomy = replace(ONE_DOT, fast_bytes=8 << 20)
    placements = plan(tiled_module(parse_graph(TWO_DOTS), roomy), roomy, log=log).placements
    (temp,) = [p for p in placements.values() if p.role.value == "temp"]
    assert (temp.space, temp.view, temp.bytes) == (Space.VMEM, (129, 257), 136 * 384 * 4)
    assert "its bytes never leave the chip" in log[0].why


def test_a_large_one_does_not():
    small = replace(TARGET, fast_bytes=300_000)
    module = tiled_module(parse_graph(TWO_DOTS), small)
    assert all(p.space is Space.HBM for p in plan(module, small).placements.values())


def test_live_buffers_never_overlap():
    names = ["x", *(f"%{i}" for i in range(6))]
    dots = [f"  {new} = dot_general({old}, w) contract=[1]x[0] batch=[]x[] : f32[64,64]"
            for old, new in zip(names, names[1:], strict=False)]
    text = "\n".join(["graph f(x: f32[64,64], w: f32[64,64]) {", *dots, "  return %5", "}"])
    graph = parse_graph(text)
    roomy = replace(ONE_DOT, fast_bytes=8 << 20)
    made = plan(tiled_module(graph, roomy), roomy)
    places = [*made.placements.values(), *made.fetched.values()]
    for one in places:
        for other in (p for p in places if p is not one and p.space is one.space):
            alive = one.first <= other.last and other.first <= one.last
            low, high = sorted((one, other), key=lambda p: p.offset_bytes)
            assert low.offset_bytes + low.bytes <= high.offset_bytes or not alive
    temps = [p for p in places if p.role.value == "temp"]
    # w, which all kernels read, was fetched to the first 64 x 128 words; behind it two buffers take turns
    assert len(temps) == 5 and max(p.offset_bytes for p in temps) == 2 * 64 * 128 * 4
    assert (made.fetched["w"].offset_bytes, made.fetched["w"].first, made.fetched["w"].last) == (0, 0, 5)


def test_more_than_the_memory_holds_is_an_error_that_lists_the_largest():
    graph = parse_graph("graph f(x: f32[4]) {\n %0 = broadcast_in_dim(x) shape=[100000,100000,4] dims=[2] : "
                        "f32[100000,100000,4]\n return %0\n}")
    with pytest.raises(CompileError, match="do not fit the memory.*149.0 GiB: out"):
        plan(tiled_module(graph), TARGET)


def test_evaluation_poisons_what_was_never_written():
    graph, inputs, _ = program("mlp")
    module = fuse(graph, TARGET)
    assert np.isnan(allocate(module, named(module, inputs))["out"]).all()
