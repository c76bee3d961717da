"""The four hand-written programs give numpy's values, and every cycle of theirs has one cause."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tpu_programs import COPY_IN, COPY_OUT, NAMES, random_inputs, run_text, text, with_header

from minicc.errors import CompileError, DtypeError, ShapeError
from minicc.tpu.emulator import run
from minicc.tpu.machine import V4, V5E
from minicc.tpu.text import parse


def _relative_error(got: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(got - expected).max() / np.abs(expected).max())


def test_a_masked_tail_adds_exactly():
    given, result = run_text(text("add1000"))
    assert np.array_equal(result.outputs["z"], (given["x"] + given["y"]).astype(np.float32))


def test_a_double_buffered_matmul_of_odd_sizes_is_numpys():
    given, result = run_text(text("matmul"))
    assert _relative_error(result.outputs["y"], given["x"] @ given["w"]) < 1e-6


def test_a_softmax_over_ten_columns_is_numpys():
    given, result = run_text(text("softmax"))
    powers = np.exp(given["x"] - given["x"].max(axis=1, keepdims=True))
    assert _relative_error(result.outputs["y"], powers / powers.sum(axis=1, keepdims=True)) < 1e-6


def test_two_kernels_that_meet_in_vmem_move_only_inputs_and_outputs():
    given, result = run_text(text("two_kernels"))
    expected = np.maximum(given["x"] + given["b"], 0) ** 2 + given["c"]
    assert _relative_error(result.outputs["y"], expected) < 1e-6
    assert result.hbm_read_bytes == (2 * 64 * 200 + 200) * 4
    assert result.hbm_write_bytes == 64 * 200 * 4
    assert sum(result.kernel_cycles.values()) == result.cycles
    assert list(result.kernel_cycles) == ["bias_relu", "square_add"]


@pytest.mark.parametrize("name", NAMES)
def test_every_cycle_has_one_cause(name: str):
    for spec in (V5E, V4, replace(V5E, mxus=3)):
        program = replace(parse(text(name)), machine=spec)
        result = run(program, random_inputs(program))
        assert sum(result.cause_units.values()) == result.cycles * spec.mxus
        assert min(result.cause_units.values()) > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_programs_schedules_need_no_interlock(name: str):
    source = text(name)
    assert run_text(source, exposed=True)[1].cycles == run_text(source)[1].cycles


def test_a_copy_takes_its_start_up_and_its_bytes_in_order():
    given, result = run_text(text("add1000"), trace=True)
    copies = [(event.start_cycles, event.end_cycles) for event in result.events if event.track == "dma"]
    assert copies[0] == (0, 385 + 8)  # 4000 bytes at 546 a cycle
    assert copies[1] == (1, 385 + 8 + 8)  # the other copy's bytes come first


def test_the_cycles_of_the_add_are_those_of_a_count_by_hand():
    # both copies are in at 401; load, add and store issue at 402, 404, 406; the copy out, at 407, takes 393
    result = run_text(text("add1000"))[1]
    assert result.cycles == 407 + 393 + 2
    assert {cause: cycles for cause, cycles in result.causes.items() if cause.startswith("dma ")} == {
        "dma xb": 391, "dma yb": 7, "dma zb": 392}


def test_mxu_cycles_are_rows_times_passes():
    result = run_text(text("matmul"))[1]
    assert result.mxu_busy_cycles == 200 * 2 * 3 * 6  # rows, panels, k tiles, passes of an f32
    assert result.causes["mxu"] == result.mxu_busy_cycles / 4  # one of four MXUs


def test_scattered_runs_are_charged_whole_granules():
    def charged(strides: str) -> int:
        copy = f"{{ dma.hbm_to_vmem [xb], [x], [sem] shape=(8, 16) strides={strides} panel=8 }}"
        through = COPY_IN[0].replace("xb", "yb")
        return run_text(with_header(copy, COPY_IN[1], through, COPY_IN[1], *COPY_OUT))[1].hbm_charged_bytes
    whole = 2 * 8 * 128 * 4  # the copies of all of x in, and of y out
    assert charged("(128, 1)") - whole == 8 * 64  # runs of 16 elements: two granules of 32 bytes
    assert charged("(16, 1)") - whole == 8 * 64  # one run of 128
    assert charged("(1, 8)") - whole == 8 * 16 * 32  # single elements


def test_an_early_read_stalls_and_the_stall_is_charged():
    result = run_text(text("add1000").replace("{ }", ""))[1]  # the same cycles without the gaps
    assert result.cycles == 802 and result.causes["register"] == 2


def test_all_slots_of_a_bundle_read_before_any_of_them_writes():
    swap = ("{ smov s0, 3 ;; smov s1, 8 }", "{ smov s0, s1 ;; smov s1, s0 }",
            "{ vsplat v0, s0 ;; vsplat v1, s1 }", "{ vst [yb], v0 ;; vmov v0, v1 }",
            "{ vst [yb], v0 rows=1 }")
    result = run_text(with_header(*swap, *COPY_OUT))[1].outputs["y"].view(np.int32)
    assert result[0, 0] == 3 and result[1, 0] == 8


def test_scalar_arithmetic_wraps_and_divides_towards_zero():
    def result_of(*ops: str) -> int:
        bundles = [f"{{ {op} }}" for op in (*ops, "vsplat v0, s3", "vst [yb], v0")]
        return int(run_text(with_header(*bundles, *COPY_OUT))[1].outputs["y"].view(np.int32)[0, 0])
    assert result_of("smov s1, -7", "sdiv.s32 s3, s1, 2") == -3
    assert result_of("smov s1, -7", "srem.s32 s3, s1, 2") == -1
    assert result_of("smov s1, 2147483647", "sadd.s32 s3, s1, 1") == -(2**31)
    assert result_of("smov s1, 5", "scmp.ge.s32 s2, s1, 5", "ssel s3, s2, 11, 22") == 11


def test_a_strided_load_and_a_row_to_all_sublanes():
    body = ("{ vld v0, [xb] stride=0 rows=8 ;; vld v1, [xb + 0x1] stride=2 rows=3 }", "{ vst [yb], v0 }",
            "{ vst [yb] , v1 rows=3 }")
    given, result = run_text(with_header(*COPY_IN, *body, *COPY_OUT))
    assert np.array_equal(result.outputs["y"][:3], given["x"][1:6:2])
    assert np.array_equal(result.outputs["y"][3:], np.repeat(given["x"][:1], 5, axis=0))


@pytest.mark.parametrize("stride", [0, 1, 2])
def test_an_access_of_no_rows_touches_none(stride: int):
    body = ("{ smov s0, 0 }", f"{{ vld v0, [xb] rows=s0 stride={stride} ;; vld v1, [xb] }}",
            "{ vst [yb], v1 }", f"{{ vst [yb], v0 rows=s0 stride={stride} }}")
    given, result = run_text(with_header(*COPY_IN, *body, *COPY_OUT))
    assert np.array_equal(result.outputs["y"], given["x"])


def test_a_copy_permutes_whatever_keeps_the_minor_axis():
    copy = "{ dma.hbm_to_vmem [xb], [x], [sem] shape=(2, 4, 128) strides=(128, 256, 1) steps=(4, 1) panel=8 }"
    body = ("{ vld v0, [xb] }", "{ }", "{ vst [yb], v0 }")
    given, result = run_text(with_header(copy, COPY_IN[1], *body, *COPY_OUT))
    assert np.array_equal(result.outputs["y"], given["x"].reshape(4, 2, 128).swapaxes(0, 1).reshape(8, 128))


def test_a_block_may_begin_within_a_panel():
    first = "{ dma.hbm_to_vmem [yb], [x], [sem] shape=(4, 100) strides=(128, 1) panel=4 lane=60 }"
    fill = ("{ vsplat v0, 0.0 }", "{ vst [yb], v0 }")
    given, result = run_text(with_header(*fill, first, COPY_IN[1], *COPY_OUT))
    expected = np.zeros((8, 128))
    expected[:4, 60:], expected[4:, :32] = given["x"][:4, :68], given["x"][:4, 68:100]
    assert np.array_equal(result.outputs["y"], expected)


def test_bf16_products_are_those_of_rounded_operands():
    weights = [line for i in range(8) for line in (f"{{ vsplat v1, {1 + i}.0 }}", "{ vpack.bf16 v2, v1, v1 }",
                                                   "{ vmatpush.bf16.mxu0 v2 }")]
    body = ("{ vld v0, [xb] }", "{ vpack.bf16 v3, v0, v0 }", "{ vmatmul.bf16.mxu0 v3 swap }",
            "{ vpop.mrf.mxu0 v4 }", "{ vpop.mrf.mxu0 v5 }", "{ vst [yb], v5 }")
    given, result = run_text(with_header(*COPY_IN, *weights, *body, *COPY_OUT))
    expected = (given["x"] * np.repeat(np.arange(1, 9), 16)).sum(axis=1)  # row r of w is 1 + r // 16
    assert np.allclose(result.outputs["y"], expected[:, None], atol=128 * 8 * 2**-8)


def test_signals_from_the_program_count_too():
    body = ("{ vsyncadd [sem], 2 }", "{ dma.done.wait [sem] }", "{ dma.done.wait [sem] }")
    assert run_text(with_header(*body, "{ vsplat v0, 1.0 }", "{ vst [yb], v0 }", *COPY_OUT))[1].cycles > 0


def test_inputs_must_be_those_of_the_program():
    program = parse(text("softmax"))
    with pytest.raises(CompileError, match="do not match"):
        run(program, {})
    with pytest.raises(ShapeError, match="wrong shape"):
        run(program, {"x": np.zeros((20, 11), np.float32)})
    with pytest.raises(DtypeError, match="wrong dtype"):
        run(program, {"x": np.zeros((20, 10), complex)})
