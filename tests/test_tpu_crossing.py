"""Copies across kernels: the next one's weights come early, outputs go out late, and no rows meet."""

from __future__ import annotations

import random
from functools import partial

import numpy as np
import pytest

from minicc.compiler import compile_graph
from minicc.frontend.jit import compile as compile_function
from minicc.graph.text import parse_graph
from minicc.tools.bench import Adapter
from minicc.tools.workloads import WORKLOADS
from minicc.tpu.crossing import places

CHAIN = parse_graph("""graph chain(x: f32[512,512], w: f32[512,512], v: f32[512,512]) {
  %0 = dot_general(x, w) contract=[1]x[0] : f32[512,512]
  %1 = transpose(%0) perm=[1, 0] : f32[512,512]
  %2 = reduce(%1) kind=max axes=[1] : f32[512]
  %3 = dot_general(%0, v) contract=[1]x[0] : f32[512,512]
  %4 = broadcast_in_dim(%2) dims=[1] shape=[512,512] : f32[512,512]
  %5 = multiply(%3, %4) : f32[512,512]
  return %0, %5
}""")


def test_blocks_lie_beside_those_of_kernels_that_may_be_under_way():
    assert places([100, 80, 60], room=300) == [(0, 8), (100, 8), (180, 8)]
    assert places([100, 150, 80, 100], room=300) == [(0, 8), (100, 8), (0, 0), (0, 0)]  # 80 beside 250, 100


@pytest.mark.parametrize("seed", range(5))
def test_no_two_kernels_within_reach_have_rows_in_common(seed: int):
    choose = random.Random(seed)
    sizes = [choose.randrange(1, 60) for _ in range(40)]
    found = places(sizes, room=choose.choice([100, 300, 900]))
    for number, (start, reach) in enumerate(found):
        for other in range(max(0, number - 2 * reach), number):
            begin, end = found[other][0], found[other][0] + sizes[other]
            assert start + sizes[number] <= begin or end <= start


def moments(device: str) -> tuple[int, int, int]:
    """When v is first copied, when the first kernel's last output is, and when that is done."""
    events = compile_graph(CHAIN, device).events()
    weights = min(event.start_cycles for event in events if event.name.startswith("v -> "))
    outputs = [event for event in events if event.name.endswith("-> out0")]
    return weights, outputs[-1].start_cycles, outputs[-1].end_cycles


def test_the_next_kernels_weights_are_fetched_while_the_first_computes():
    weights, written, arrived = moments("tpu:v5e")
    assert weights < written


def test_where_vmem_has_no_room_for_both_the_next_kernel_waits_until_all_is_written():
    weights, written, arrived = moments("tpu:v5e,vmem_mib=4")
    assert written < arrived <= weights


@pytest.mark.parametrize("vmem_mib", [128, 4])
def test_a_kernel_reads_what_the_one_before_has_just_written(vmem_mib: int):
    rng = np.random.default_rng(0)
    x, w, v = (rng.standard_normal((512, 512)).astype(np.float32) for _ in range(3))
    compiled = compile_graph(CHAIN, f"tpu:v5e,vmem_mib={vmem_mib}")
    assert len(compiled.module.kernels) > 1  # the second reads what the first copies out
    y, z = compiled.run([x, w, v])
    exact = x.astype(float) @ w
    assert np.abs(y - exact).max() < 1e-5 * np.abs(exact).max()
    exact = exact @ v * exact.max(axis=0)
    assert np.abs(z - exact).max() < 1e-5 * np.abs(exact).max()


def test_weights_come_in_several_kernels_ahead_of_the_one_that_reads_them():
    workload = WORKLOADS["i_llama_decode"]
    made = workload.make(np.random.default_rng(0))
    inputs = [[Adapter.tensor(array) for array in arrays] for arrays in made]
    program = compile_function(partial(workload.run, Adapter), *inputs, device="tpu:v5e")
    last = program.module.kernels[-1]
    weights = {op.buffer for op in last.inputs if op.type.elements == 256 * 688}  # gate, up, down
    started = [event.start_cycles for event in program.events()
               if event.track == "dma" and event.name.split(" -> ")[0] in weights]
    spent = [*program.profile().run.kernel_cycles.values()]
    assert len(weights) == 3 and max(started) < sum(spent[:-2])  # before the kernel before it begins
