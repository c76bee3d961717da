"""A copy touches the rows, lanes and bytes that its shape says."""

from __future__ import annotations

import numpy as np
import pytest
from tpu_programs import COPY_IN, WAIT, fault_of, random_inputs, run_text, with_header

from minicc.tpu.emulator import run
from minicc.tpu.machine import V5E
from minicc.tpu.memory import Area, charged_bytes, local_bytes, split
from minicc.tpu.text import parse


def numbered(kind: str, *shape: int) -> Area:
    """A buffer whose words are their own numbers."""
    words = np.arange(np.prod(shape)).reshape(shape)
    return Area(kind, "x", words, np.ones(shape, bool), np.zeros(shape, np.uint8))


VMEM, HBM = numbered("VMEM", 64, 128), numbered("HBM", 64, 512)


def moves(shape: tuple[int, ...], strides: tuple[int, ...], **more: object) -> dict[tuple[int, int], int]:
    """(row, lane) in VMEM -> the element of HBM that is its counterpart; no place has two."""
    parts = split((VMEM, more.pop("row", 0)), (HBM, 0), shape, strides, **{"panel": 8, **more})
    pairs = [(divmod(int(word), 128), int(element)) for here, there in parts
             for word, element in zip(here.words.flat, there.words.flat, strict=True)]
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


@pytest.mark.parametrize("lane", [0, 1, 100])
@pytest.mark.parametrize("columns", [1, 28, 128, 300])
def test_element_r_c_lies_in_the_panel_and_lane_that_isa_promises(columns: int, lane: int):
    found = moves((8, columns), (512, 1), lane=lane)
    assert found == {(r + (c + lane) // 128 * 8, (c + lane) % 128): r * 512 + c
                     for r in range(8) for c in range(columns)}


def test_a_line_of_1000_elements_is_dense():
    assert moves((1000,), (1,), panel=1) == {divmod(element, 128): element for element in range(1000)}


def test_each_dimension_but_the_last_has_its_own_step():
    found = moves((2, 3, 5), (64, 8, 1), steps=(32, 2))
    assert found == {(32 * i + 2 * j, c): 64 * i + 8 * j + c
                     for i in range(2) for j in range(3) for c in range(5)}


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
    left, right = moves((8, 64), (512, 1)), moves((8, 64), (512, 1), lane=64)
    assert not left.keys() & right.keys()
    assert left.keys() & moves((1, 64), (512, 1), lane=63).keys() == {(0, 63)}
    even, odd = (moves((4, 64), (512, 1), steps=(2,), row=row) for row in (0, 1))
    assert not even.keys() & odd.keys()


# ---- copies within the chip ----

# y = x[:, ::-1] by columns of 64, through a line: an array of [8, 128] in VMEM, in the order of its elements
LINE = "vmem line: f32 rows=8 base=0x20"
HALF = "shape=(8, 64) strides=(128, 1) panel=8 }"
THROUGH = (
    LINE, *COPY_IN, f"{{ dma.vmem_to_line [line + 64], [xb], [sem] {HALF}", WAIT,
    f"{{ dma.line_to_vmem [yb], [line + 64], [sem] {HALF}", WAIT,
    f"{{ dma.vmem_to_hbm [y], [yb], [sem] {HALF}", WAIT, f"{{ dma.vmem_to_hbm [y + 64], [xb], [sem] {HALF}",
    WAIT, "{ shalt }")


def test_a_line_is_addressed_by_element_and_costs_no_bytes_of_hbm():
    given, done = run_text(with_header(*THROUGH))
    assert (done.outputs["y"] == np.tile(given["x"][:, :64], 2)).all()
    assert (done.hbm_read_bytes, done.hbm_write_bytes, done.local_bytes) == (4096, 4096, 2 * 8 * 64 * 4)
    assert done.local_charged_bytes == 2 * 8 * 512  # rows of 128 lanes, half used
    program = parse(with_header(*THROUGH))
    assert parse(str(program)) == program


def test_a_copy_within_the_chip_takes_its_own_start_up_and_a_row_of_eight_per_cycle():
    quick, slow = with_header(*THROUGH), with_header("machine v5e local_startup_cycles=400", *THROUGH)
    cycles = [run(parse(text), random_inputs(parse(text))).cycles for text in (quick, slow)]
    assert cycles[1] - cycles[0] == 2 * (400 - V5E.local_startup_cycles)
    assert V5E.local_bytes_per_cycle == 8 * 512


@pytest.mark.parametrize("shape, strides, rows", [
    ((8, 128), (128, 1), 8), ((8, 64), (64, 1), 8),  # 8 rows of the block, be they full or not
    ((8, 1), (512, 1), 8), ((1024,), (1,), 8), ((8, 300), (512, 1), 24)])
def test_copies_within_the_chip_are_charged_the_rows_they_touch(
    shape: tuple[int, ...], strides: tuple[int, ...], rows: int
):
    parts = split((VMEM, 0), (HBM, 0), shape, strides, panel=8 if len(shape) == 2 else 1)
    assert local_bytes(parts, shape, strides) == rows * 512


@pytest.mark.parametrize("old, new, complaint", [
    (THROUGH[4], "{ }", "race: VMEM buffer line is read while a DMA owns it"),
    ("dma.line_to_vmem [yb], [line + 64]", "dma.line_to_vmem [yb], [line]", "uninitialised read of VMEM"),
    ("dma.vmem_to_line [line + 64]", "dma.vmem_to_line [line + 65]", "out of bounds in VMEM buffer line"),
    ("dma.vmem_to_line [line + 64]", "dma.vmem_to_line [xb + 63]", "race: VMEM buffer xb is written"),
])
def test_what_goes_wrong_within_the_chip_is_caught_as_with_hbm(old: str, new: str, complaint: str):
    source = with_header(*THROUGH)
    place = source.find(old, source.find("vmem_to_line") if old == WAIT else 0)
    assert place >= 0
    assert complaint in str(fault_of(source[:place] + new + source[place + len(old):]))
