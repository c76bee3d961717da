"""A copy touches the rows, lanes and bytes that its shape says."""

from __future__ import annotations

import numpy as np
import pytest

from minicc.tpu.memory import Block, charged_bytes, split


def places(blocks: list[Block]) -> set[tuple[int, int]]:
    """Every (row, lane) that blocks in VMEM touch, each of them once."""
    words = [int(word) for block in blocks for word in block.of(np.arange(64 * 128)).reshape(-1)]
    assert len(words) == len(set(words))
    return {divmod(word, 128) for word in words}


@pytest.mark.parametrize("lane", [0, 1, 100])
@pytest.mark.parametrize("columns", [1, 28, 128, 300])
def test_element_r_c_lies_in_the_panel_and_lane_that_isa_promises(columns: int, lane: int):
    vmem, hbm = split(0, 0, (8, columns), (512, 1), (1,), 8, lane)
    elements = [(r, c + lane) for r in range(8) for c in range(columns)]
    assert places(vmem) == {(r + c // 128 * 8, c % 128) for r, c in elements}
    array = np.arange(8 * 512)
    moved = {word: element for here, there in zip(vmem, hbm, strict=True)
             for word, element in zip(here.of(array).flat, there.of(array).flat, strict=True)}
    assert moved == {(r + c // 128 * 8) * 128 + c % 128: r * 512 + c - lane for r, c in elements}


def test_a_line_of_1000_elements_is_dense():
    vmem, _ = split(0, 0, (1000,), (1,), (), 1, 0)
    assert places(vmem) == {divmod(element, 128) for element in range(1000)}


def test_each_dimension_but_the_last_has_its_own_step():
    vmem, _ = split(0, 0, (2, 3, 5), (64, 8, 1), (32, 2), 8, 0)
    assert places(vmem) == {(32 * i + 2 * j, c) for i in range(2) for j in range(3) for c in range(5)}


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
    assert charged_bytes(shape, strides, 32) == charged


def test_two_copies_touch_the_same_only_where_they_share_a_lane_of_a_row():
    left, right, odd = (places(split(row, 0, (4, 64), (512, 1), (2,), 8, lane)[0])
                        for row, lane in ((0, 0), (0, 64), (1, 0)))
    assert not left & right and not left & odd
    assert left & places(split(0, 0, (1, 64), (512, 1), (1,), 8, 63)[0]) == {(0, 63)}
