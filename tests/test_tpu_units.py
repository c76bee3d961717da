"""The queues keep their order, their timing and their limits."""

from __future__ import annotations

import numpy as np
import pytest

from minicc.errors import MachineFault
from minicc.tpu.machine import V5E
from minicc.tpu.units import Mxu, Queue
from minicc.tpu.vector import splat

RANDOM = np.random.default_rng(0)


def _loaded(kind: str = "f32", transposed: bool = False) -> tuple[Mxu, np.ndarray]:
    weights = RANDOM.normal(size=(128, 128)).astype(np.float32)
    unit = Mxu("mxu0", V5E)
    for start in range(0, 128, 8):
        unit.push_weights(unit.ready("weights"), weights[start:start + 8], kind, transposed)
    return unit, weights


def test_a_queue_gives_results_in_order_after_its_latency():
    queue = Queue("xlu0", 2, 16)
    queue.push(10, splat(1.0))
    assert (queue.free_at, queue.ready("pop")) == (12, 26)
    queue.push(12, splat(2.0))
    assert [queue.pop().data[0, 0] for _ in range(2)] == [1, 2]


def test_a_pop_of_an_empty_queue_is_a_deadlock():
    for unit in (Queue("eup", 1, 6), Mxu("mxu0", V5E)):
        with pytest.raises(MachineFault, match="waits forever"):
            unit.ready("pop")


def test_rows_times_weights_is_the_product_whenever_it_is_popped():
    unit, weights = _loaded()
    rows = RANDOM.normal(size=(20, 128)).astype(np.float32)
    unit.push_rows(0, rows[:8], "f32", swap=True)
    first = unit.pop().data
    unit.push_rows(0, rows[8:16], "f32", swap=False)
    unit.push_rows(0, rows[16:], "f32", swap=False)
    got = np.concatenate((first, unit.pop().data, unit.pop().data[:4]))
    assert np.allclose(got, rows.astype(np.float64) @ weights, atol=1e-4)


def test_transposed_weights_meet_rows_as_columns():
    unit, weights = _loaded(transposed=True)
    unit.push_rows(0, np.eye(8, 128, dtype=np.float32), "f32", swap=True)
    assert np.array_equal(unit.pop().data, weights.T[:8])


def test_bf16_takes_a_cycle_per_row_and_f32_six():
    for kind, passes in (("bf16", 1), ("f32", 6)):
        unit, _ = _loaded(kind)
        assert unit.weights_free_at == 128 * passes
        unit.push_rows(1000, np.zeros((8, 128), np.float32), kind, swap=True)
        assert unit.free_at == 1000 + 8 * passes
        assert unit.ready("pop") == 1000 + 254 + 8 * passes


def test_a_packed_push_of_sixteen_rows_gives_two_results():
    unit, _ = _loaded("bf16")
    unit.push_rows(1000, np.zeros((16, 128), np.float32), "bf16", swap=True)
    assert [ready for ready, *_ in unit.results] == [1000 + 254 + 8, 1000 + 254 + 16]


def test_a_short_push_leaves_garbage_behind_its_rows():
    unit, _ = _loaded()
    unit.push_rows(0, np.zeros((3, 128), np.float32), "f32", swap=True)
    assert np.array_equal(unit.pop().known.all(axis=1), np.arange(8) < 3)


def test_rows_without_weights_and_weights_without_a_swap_fault():
    rows = np.zeros((8, 128), np.float32)
    with pytest.raises(MachineFault, match="no active weights"):
        Mxu("mxu0", V5E).push_rows(0, rows, "f32", swap=False)
    unit, _ = _loaded()
    with pytest.raises(MachineFault, match="shadow weights are complete"):
        unit.push_weights(0, rows, "f32")
    with pytest.raises(MachineFault, match="incomplete weights"):
        Mxu("mxu0", V5E).push_rows(0, rows, "f32", swap=True)
    unit, _ = _loaded("bf16")
    with pytest.raises(MachineFault, match="no active weights of this kind"):
        unit.push_rows(0, rows, "f32", swap=True)


def test_the_65th_result_that_nobody_pops_is_a_fault_and_not_a_hang():
    unit, _ = _loaded()
    with pytest.raises(MachineFault, match="can never proceed") as caught:
        for i in range(65):
            unit.push_rows(0, np.zeros((8, 128), np.float32), "f32", swap=i == 0)
    assert caught.value.got == "65 results pushed and not popped"


def test_busy_cycles_before_a_time_are_those_in_which_rows_went_in():
    unit, _ = _loaded()
    for start in (1000, 1048, 2000):
        unit.push_rows(start, np.zeros((8, 128), np.float32), "f32", swap=start == 1000)
        assert unit.busy_before(start) == (start - 1000 if start < 2000 else 96)
    assert [unit.busy_before(time) for time in (2010, 2048, 3000)] == [106, 144, 144]
