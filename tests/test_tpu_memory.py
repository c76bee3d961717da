"""A copy touches the rows, lanes and bytes that its shape says."""

from __future__ import annotations

import numpy as np
import pytest

from minicc.tpu.isa import HbmBuffer, Instr, VmemBuffer
from minicc.tpu.memory import Dma

VMEM, HBM = VmemBuffer("xb", 64, 0x100), HbmBuffer("x", "f32", (64, 512), "input")


def copy(
    shape: tuple[int, ...], strides: tuple[int, ...], steps: tuple[int, ...] = (1,), panel: int = 8,
    lane: int = 0, row: int = 0,
) -> Dma:
    """A copy into xb."""
    return Dma(Instr("dma.hbm_to_vmem"), 0, True, VMEM, row, HBM, 0, shape, strides, steps, panel, lane)


def places(dma: Dma) -> set[tuple[int, int]]:
    """Every (row, lane) it touches, rows counted in its buffer."""
    return {(int(row) - 0x100, lane) for span in dma.spans for row in span.rows.reshape(-1)
            for lane in range(span.lo, span.hi)}


@pytest.mark.parametrize("lane", [0, 1, 100])
@pytest.mark.parametrize("columns", [1, 28, 128, 300])
def test_element_r_c_lies_in_the_panel_and_lane_that_isa_promises(columns: int, lane: int):
    elements = [(r, c + lane) for r in range(8) for c in range(columns)]
    found = places(copy((8, columns), (512, 1), lane=lane))
    assert found == {(r + c // 128 * 8, c % 128) for r, c in elements}


def test_a_line_of_1000_elements_is_dense():
    rows = {row for row, _ in places(copy((1000,), (1,), panel=1))}
    assert rows == set(range(8)) and len(places(copy((1000,), (1,), panel=1))) == 1000


def test_each_dimension_but_the_last_has_its_own_step():
    dma = copy((2, 3, 5), (64, 8, 1), steps=(32, 2), panel=8)
    assert places(dma) == {(32 * i + 2 * j, c) for i in range(2) for j in range(3) for c in range(5)}


@pytest.mark.parametrize("shape, strides, charged", [
    ((8, 128), (128, 1), 4096),  # one run
    ((8, 128), (512, 1), 8 * 512),  # eight runs of 512 bytes
    ((20, 10), (10, 1), 800),  # one run of 800
    ((20, 10), (16, 1), 20 * 64),  # twenty runs of 40, two granules each
    ((4, 8), (1, 64), 32 * 32),  # no two elements side by side
    ((3, 1, 8), (64, 64, 1), 3 * 32),  # a dimension of one element breaks no run
    ((0, 8), (8, 1), 0),
])
def test_each_contiguous_run_is_charged_whole_granules(
    shape: tuple[int, ...], strides: tuple[int, ...], charged: int
):
    dma = copy(shape, strides, steps=(8,) * (len(shape) - 1))
    assert dma.charged_bytes(32) == charged
    assert dma.payload_bytes == 4 * np.prod(shape)


def test_copies_overlap_only_where_they_share_a_lane_of_a_row():
    left, right = copy((8, 64), (512, 1)), copy((8, 64), (512, 1), lane=64)
    assert not left.overlaps(right) and left.overlaps(copy((1, 64), (512, 1), lane=63))
    even, odd = (copy((4, 64), (512, 1), steps=(2,), row=row) for row in (0, 1))
    assert not even.overlaps(odd)
