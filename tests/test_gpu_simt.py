"""Lane mode: right to numpy in float64, exact in its counts, and blind to no broken kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gpu_programs import PROGRAMS, agrees, allocate, kernels_of, layer, log_loss, random_inputs

from minicc.errors import Loc, MachineFault
from minicc.gpu import simt
from minicc.gpu.ir import (
    Array,
    Barrier,
    Expr,
    For,
    If,
    Let,
    Load,
    Set,
    SimtKernel,
    Store,
    both,
    const,
    less,
    reg,
)
from minicc.gpu.lower import lower
from minicc.gpu.machine import A100
from minicc.gpu.simt import run_lane
from minicc.graph.ir import BOOL, F32

X, BLOCK = Expr("threadIdx.x"), Expr("blockIdx.x")
HERE = (Loc("model.py", 7, "y = x @ w"),)


@pytest.mark.parametrize("name", PROGRAMS)
def test_lane_mode_agrees_with_float64_at_ragged_sizes(name):
    for n in (1, 7, 127, 129, 1000) if name != "batched" else (1, 7, 127, 129):
        assert agrees(PROGRAMS[name](n), lambda kernel, buffers: run_lane(lower(kernel), buffers, A100))


def kernel(body: list, threads: int = 32, blocks: int = 1, elements: int = 4096) -> SimtKernel:
    """A kernel of one's own: reads x, writes y, has shared memory s."""
    params = (Array("x", F32, elements, "x"), Array("y", F32, elements, "y", written=True))
    return SimtKernel("hand", params, (Array("s", F32, 4096),), blocks, (threads, 1), tuple(body))


def run(body: list, **sizes: int) -> tuple[simt.LaneReport, np.ndarray]:
    made = kernel(body, **sizes)
    buffers = {"x": np.arange(made.params[0].elements, dtype=np.float32), "y": np.zeros(4096, np.float32)}
    return run_lane(made, buffers, A100), buffers["y"]


def put(index: Expr, name: str = "s", value: Expr | None = None, mask: Expr | None = None) -> Store:
    return Store(name, index, value or const(1.0, F32), mask, HERE)


def get(index: Expr, name: str = "s", mask: Expr | None = None) -> Load:
    return Load("v", name, index, F32, mask, 5.0, HERE)


def at_least(value: int) -> Expr:
    return Expr("compare", (X, const(value)), BOOL, "ge")


def scaled(stride: int, offset: int = 0) -> Expr:
    return X * stride + offset


# -- counts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stride", "sectors"), [(0, 1), (1, 4), (2, 8), (5, 20), (8, 32), (100, 32)])
def test_a_warps_load_counts_the_sectors_it_touches(stride, sectors):
    report, _ = run([get(scaled(stride), "x")])
    assert (report.loads["x"].requests, report.loads["x"].units) == (1, sectors)


def test_a_load_that_is_off_by_one_element_counts_five_sectors():
    report, _ = run([get(scaled(1, 1), "x")])
    assert report.loads["x"].units == 5


@pytest.mark.parametrize(("stride", "ways"), [(1, 1), (2, 2), (3, 1), (32, 32), (33, 1)])
def test_a_column_of_shared_memory_counts_its_bank_conflicts(stride, ways):
    report, _ = run([put(scaled(stride))], blocks=3)
    assert (report.shared.requests, report.shared.units) == (3, 3 * ways)


def test_a_broadcast_from_shared_memory_is_one_wavefront():
    report, _ = run([put(const(3), mask=less(X, 1)), Barrier(), get(const(3))])
    assert (report.shared.requests, report.bank_conflicts) == (2, 0)


def test_only_a_warp_whose_lanes_part_ways_diverges():
    report, y = run([If(less(X, 40), (put(X, "y"),))], threads=96)
    assert (report.branches, report.divergent) == (3, 1)
    assert y.sum() == 40


def test_a_16_by_16_tile_reads_each_element_once_a_block():
    (tiled,) = kernels_of(layer(64)).kernels  # [64,33] @ [33,20]: 4 x 2 blocks, 3 steps of k
    module = kernels_of(layer(64))
    buffers = allocate(module, dict(zip("xwb", random_inputs(layer(64)), strict=True)))
    report = run_lane(lower(tiled), buffers, A100)
    assert report.blocks == 8
    # 8 warps in 8 blocks, for each of 3 steps of k: one load of x, two stores and 2 * 16 loads of tiles
    assert report.loads["x"].requests == 8 * 3 * 8
    assert report.shared.requests == 8 * 3 * 8 * (2 + 2 * 16)
    assert report.bank_conflicts == 0


def test_a_reduction_within_a_loop_is_computed_once_a_row_not_once_an_element():
    graph = log_loss(7)
    (summed,) = kernels_of(graph).kernels
    buffers = allocate(kernels_of(graph), dict(zip(("x", "hot"), random_inputs(graph), strict=True)))
    report = run_lane(lower(summed), buffers, A100)
    assert report.loads["hot"].requests == 7 * 10
    assert report.loads["x"].requests == 3 * 7 * 10  # for the row's maximum, for its sum, and for the loss


def test_the_order_and_number_of_blocks_at_a_time_change_nothing(monkeypatch):
    (tiled,) = kernels_of(layer(100)).kernels
    seen = []
    for chunk_bytes, seed in ((64 << 20, 0), (1, 1), (300_000, 2)):
        monkeypatch.setattr(simt, "CHUNK_BYTES", chunk_bytes)
        buffers = allocate(kernels_of(layer(100)), dict(zip("xwb", random_inputs(layer(100)), strict=True)))
        report = run_lane(lower(tiled), buffers, A100, seed)
        seen.append((str(report), buffers["out"].tobytes()))
    assert seen[0] == seen[1] == seen[2]


# -- faults --------------------------------------------------------------------------------------------------


def without(body: tuple, drop: int) -> tuple[tuple, int]:
    """The body without its n-th barrier."""
    kept = []
    for statement in body:
        if isinstance(statement, Barrier):
            drop -= 1
            if drop == -1:
                continue
        if isinstance(statement, For):
            inner, drop = without(statement.body, drop)
            statement = replace(statement, body=inner)
        kept.append(statement)
    return tuple(kept), drop


@pytest.mark.parametrize(("barrier", "clash"), [(0, "reads what was just written by"),
                                                (1, "writes what was just read by")])
def test_a_matmul_that_misses_either_barrier_is_a_race(barrier, clash):
    (tiled,) = kernels_of(layer(32)).kernels
    whole = lower(tiled)
    broken = replace(whole, body=without(whole.body, barrier)[0])
    buffers = allocate(kernels_of(layer(32)), dict(zip("xwb", random_inputs(layer(32)), strict=True)))
    with pytest.raises(MachineFault) as fault:
        run_lane(broken, buffers, A100)
    text = str(fault.value)
    assert clash in text and "tile_" in text and "model.py:1" in text and "thread (" in text


def test_a_read_of_shared_memory_that_nobody_wrote_is_named():
    with pytest.raises(MachineFault, match=r"thread \(5, 0\) .* reads s\[5\], which nobody wrote") as fault:
        run([put(X, mask=less(X, 5)), Barrier(), get(X)])
    assert "model.py:7: y = x @ w" in str(fault.value)


def test_what_another_block_wrote_to_its_shared_memory_does_not_count():
    with pytest.raises(MachineFault, match="nobody wrote"):
        run([put(X, mask=less(BLOCK, 1)), Barrier(), get(X)], blocks=2)


def test_an_index_out_of_bounds_is_named():
    with pytest.raises(MachineFault, match=r"thread \(31, 0\) of block 0 leaves x.*\n?.*index 31"):
        run([get(X, "x")], elements=31)
    with pytest.raises(MachineFault, match="index -1"):
        run([put(scaled(1, -1), "y")])


def test_a_guard_in_the_form_of_a_mask_keeps_an_index_in_bounds():
    run([get(X, "x", mask=less(X, 31)), Store("y", X, reg("v", F32), less(X, 31))], elements=31)


def test_a_barrier_that_some_threads_of_a_block_miss_is_named():
    with pytest.raises(MachineFault, match=r"thread \(8, 0\) of block .* misses the barrier"):
        run([If(less(X, 8), (Barrier(HERE),))])


def test_a_barrier_that_whole_blocks_skip_is_fine():
    run([put(X), If(less(BLOCK, 1), (Barrier(HERE), get(scaled(-1, 31))))], blocks=2)


def test_two_threads_that_store_to_one_place_are_a_race():
    with pytest.raises(MachineFault, match=r"race on y\[0\].*writes together with"):
        run([put(const(0), "y")])
    with pytest.raises(MachineFault, match=r"y\[0\].*block 0 writes together with .* block 1"):
        run([put(const(0), "y", mask=less(X, 1))], blocks=2)
    with pytest.raises(MachineFault, match=r"y\[0\].*thread \(1, 0\) .* writes over .* thread \(0, 0\)"):
        second = both(at_least(1), less(X, 2))
        run([put(const(0), "y", mask=less(X, 1)), put(scaled(1, -1), "y", mask=second)])
    with pytest.raises(MachineFault, match=r"race on s\[0\].*writes together with"):
        run([put(const(0))])


def test_the_other_blocks_output_is_no_place_to_read_from():
    with pytest.raises(MachineFault, match=r"reads y\[3\], which nobody wrote"):
        run([get(const(3), "y")])


def test_a_masked_load_gives_the_fill():
    _, y = run([get(X, "x", mask=less(X, 2)), Store("y", X, reg("v", F32))])
    assert y[:4].tolist() == [0, 1, 5, 5]


def test_a_register_set_under_a_mask_keeps_its_value_elsewhere():
    _, y = run([Let("a", const(2.0, F32)), If(less(X, 1), (Set("a", const(3.0, F32)),)),
                Store("y", X, reg("a", F32))])
    assert y[:3].tolist() == [3, 2, 2]
