"""Tiling: blocks that fit, in multiples of the machine's registers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernel_programs import PROGRAMS, SOFTMAX, TARGET

from minicc.devices import find
from minicc.errors import CompileError
from minicc.graph.text import parse_graph
from minicc.kernel.cost import cost, operand_bytes
from minicc.kernel.fuse import fuse
from minicc.kernel.tile import fast_bytes, tile

MATMUL = """
graph f(x: f32[4096,4096], w: f32[4096,4096]) {
  %0 = dot_general(x, w) contract=[1]x[0] batch=[]x[] : f32[4096,4096]
  return %0
}"""


def kernel_of(text, target=TARGET):
    return fuse(parse_graph(text), target).kernels[0]


def test_fast_memory_holds_two_of_each_operand_and_one_accumulator():
    kernel = kernel_of(PROGRAMS["mlp"]).tiled({"m": 8, "n": 128, "k": 128})
    x, w, b, out, acc, dot = 8 * 128, 128 * 128, 128, 8 * 128, 8 * 128, 8 * 128
    assert fast_bytes(kernel, TARGET) == 4 * (2 * (x + w + b + out) + acc + dot)


def test_blocks_fit_the_memory_and_the_registers():
    kernel = tile(kernel_of(MATMUL), TARGET)
    assert fast_bytes(kernel, TARGET) <= TARGET.fast_bytes
    assert kernel.axis("m").block % 8 == 0
    assert kernel.axis("n").block % 128 == kernel.axis("k").block % 128 == 0


def test_the_best_candidate_is_logged_first_with_its_price():
    log = []
    chosen = tile(kernel_of(MATMUL), TARGET, log=log)
    assert log[0].taken and not any(step.taken for step in log[1:])
    assert f"{cost(chosen, TARGET).cycles:.0f} cycles" in log[0].why


def test_bytes_count_every_time_a_block_is_fetched():
    kernel = kernel_of(MATMUL).tiled({"m": 1024, "n": 512, "k": 512})
    x, w = kernel.inputs
    assert operand_bytes(kernel, x) == 8 * 4096 * 4096 * 4  # once for each of the 8 column blocks
    assert operand_bytes(kernel, w) == 4 * 4096 * 4096 * 4  # once for each of the 4 row blocks


def test_an_operand_that_does_not_move_is_fetched_once():
    kernel = kernel_of(PROGRAMS["mlp"]).tiled({"m": 8, "n": 130, "k": 128})
    b = next(op for op in kernel.inputs if op.buffer == "b")
    assert operand_bytes(kernel, b) == 130 * 4


LARGE_VOCABULARY = """
graph f(x: f32[128,50257]) {
  %0 = reduce(x) kind=max axes=[1] : f32[128]
  %1 = broadcast_in_dim(%0) shape=[128,50257] dims=[0] : f32[128,50257]
  %2 = subtract(x, %1) : f32[128,50257]
  %3 = exp(%2) : f32[128,50257]
  %4 = reduce(%3) kind=sum axes=[1] : f32[128]
  return %4
}"""


@pytest.mark.parametrize("device", ["tpu:v5e", "tpu:v2", "gpu"])
def test_what_fusion_sketches_has_blocks_that_fit(device):
    """Each block of a row of results has 128 of them, and 128 whole rows of the vocabulary fit nowhere."""
    target = find(device).target
    for kernel in fuse(parse_graph(LARGE_VOCABULARY), target).kernels:
        assert fast_bytes(tile(kernel, target), target) <= target.fast_bytes


def test_a_whole_axis_stays_whole():
    assert tile(kernel_of(SOFTMAX), TARGET).axis("n").steps == 1


def test_no_blocks_that_fit_is_an_error_with_both_numbers():
    kernel = kernel_of(SOFTMAX)
    with pytest.raises(CompileError, match="no blocks fit.*got .* bytes.*need at most 1000"):
        tile(kernel, replace(TARGET, fast_bytes=1000))


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_value_has_more_block_axes_than_the_target_allows(name):
    for kernel in fuse(parse_graph(PROGRAMS[name]), TARGET).kernels:
        sizes = {axis.name: axis.block for axis in tile(kernel, TARGET).axes}
        assert all(sum(sizes[name] > 1 for name in block.axes) <= 2 for block in kernel.blocks())
