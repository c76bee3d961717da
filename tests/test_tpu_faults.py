"""Each way in which a program can be wrong is caught, and named: instruction, pc, buffer, user line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tpu_programs import COPY_IN, COPY_OUT, broken, fault_of, text, with_header

import minicc as mc
from minicc.errors import MachineFault
from minicc.tpu.emulator import run
from minicc.tpu.isa import Bundle


def named(fault: MachineFault, instruction: str, *words: str) -> None:
    """The message names the instruction with its pc, every word, and a line of the text."""
    message = str(fault)
    assert message.startswith(instruction) and " at pc 0x" in message.splitlines()[0], message
    for word in (*words, "at program.txt:"):
        assert word in message, f"{word!r} is not in\n{message}"


def test_a_missing_wait_is_a_race():
    fault = fault_of(broken("add1000", "{ dma.done.wait [in + 1] }\n", ""))
    named(fault, "vld v1, [yb + 0x0] at pc 0x3", "race: VMEM buffer yb is read",
          "the copy y -> yb started at pc 0x1")


def test_a_wait_in_the_same_bundle_comes_too_late():
    source = broken("add1000", "{ dma.done.wait [in + 1] }\n{ vld", "{ dma.done.wait [in + 1] ;; vld")
    named(fault_of(source), "vld v1, [yb + 0x0]", "race")


def test_one_wait_for_two_copies_on_a_semaphore_proves_nothing():
    source = text("add1000").replace("[in + 1]", "[in]").replace("{ dma.done.wait [in] }\n", "", 1)
    named(fault_of(source), "vld v0", "race", "as many waits as starts on [in + 0x0]")


def test_an_overwrite_in_flight_is_a_race():
    # the y buffer of block m is written again in block m + 2, while its copy out may still read it
    source = broken("matmul", "{ dma.done.wait [y_out + s1] }", "{ }")
    named(fault_of(source), "vst [yb + s8 + 0x0]", "VMEM buffer yb is written", "the copy yb -> y")


def test_a_copy_into_a_buffer_in_flight_is_a_race():
    source = with_header(COPY_IN[0], COPY_IN[0], *COPY_OUT)
    named(fault_of(source), "dma.hbm_to_vmem", "race: VMEM buffer xb is written")


def test_copies_of_two_column_blocks_do_not_race_though_their_intervals_overlap():
    half = "{{ dma.vmem_to_hbm [y + {0}], [yb], [sem] shape=(8, 64) strides=(128, 1) panel=8 }}"
    source = with_header("{ vsplat v0, 1.0 }", "{ vst [yb], v0 }", half.format(0), half.format(64),
                         "{ dma.done.wait [sem] }", "{ dma.done.wait [sem] }", "{ shalt }")
    with pytest.raises(AssertionError, match="without a fault"):
        fault_of(source)
    fault = fault_of(source.replace("[y + 64]", "[y + 63]"))
    named(fault, "dma.vmem_to_hbm", "race: HBM buffer y is written")


def test_an_input_is_never_written():
    named(fault_of(with_header("{ vst [yb], v0 }", COPY_OUT[0].replace("[y]", "[x]")).replace(
        "{ vst", "{ vsplat v0, 1.0 }\n{ vst")), "dma.vmem_to_hbm [x", "writes HBM buffer x, an input")


def test_an_early_read_faults_in_exposed_mode_only():
    source = text("softmax").replace("{ vsub.f32 v3, v0, v2 }\n{ }", "{ vsub.f32 v3, v0, v2 }")
    named(fault_of(source, exposed=True), "vmul.f32 v4, v3", "early read of v3")
    with pytest.raises(AssertionError, match="without a fault"):
        fault_of(source)


def test_a_load_out_of_bounds_names_the_buffer():
    source = broken("softmax", "scmp.lt.s32 s2, s1, 24", "scmp.lt.s32 s2, s1, 30")
    named(fault_of(source), "vld v0, [xb + s0 + 0x0]", "out of bounds in VMEM buffer xb", "rows 24 to 31")


def test_a_copy_out_of_bounds_names_the_array():
    named(fault_of(broken("matmul", "ssub.s32 s13, 200, s11", "ssub.s32 s13, 300, s11")), "dma.hbm_to_vmem",
          "out of bounds in HBM buffer x", "elements 57600 to 76755", "0 to 59999")
    named(fault_of(with_header(COPY_IN[0].replace("panel=8", "panel=8 lane=1"))), "dma.hbm_to_vmem",
          "out of bounds in VMEM buffer xb", "rows 8 to 15")


def test_an_unmasked_tail_is_an_uninitialised_read():
    source = broken("softmax", "{ vsel v1, m0, v0, -inf }", "{ vmov v1, v0 }")
    named(fault_of(source), "vmax.xlane.f32.xlu0 v1", "uninitialised read", "sublane 0, lane 10 (xb row 0)")


def test_unmasked_weights_are_an_uninitialised_read():
    source = broken("matmul", "{ vsel v1, m0, v0, 0.0 ;;", "{ vmov v1, v0 ;;")
    named(fault_of(source), "vmatpush.mxu0 v1", "uninitialised read", "(wb row 300)")


def test_garbage_does_not_leave_the_chip():
    source = broken("softmax", "[y], [yb], [out]", "[y], [yb + 1], [out]")
    named(fault_of(source), "dma.vmem_to_hbm", "uninitialised read of VMEM buffer yb", "row 20, lane 0")


def test_a_masked_store_leaves_the_rest_as_it_was():
    store = ("{ vsplat v0, 1.0 ;; vcmask m0, 8, 127 }", "{ vst.msk [yb], v0, m0 }")
    named(fault_of(with_header(*store, *COPY_OUT)), "dma.vmem_to_hbm", "garbage in row 0, lane 127")


def test_a_mask_of_garbage_may_not_decide_what_is_stored():
    store = ("{ vld v0, [xb] rows=2 }", "{ vcmp.gt.f32 m0, v0, 0.0 }", "{ vst.msk [yb], v0, m0 rows=2 }")
    with pytest.raises(AssertionError, match="without a fault"):
        fault_of(with_header(*COPY_IN, *store, "{ shalt }").replace("output", "temp"))
    wide = with_header(*COPY_IN, *store, "{ shalt }").replace("m0 rows=2", "m0 rows=3")
    named(fault_of(wide), "vst.msk", "uninitialised read", "sublane 2, lane 0 (xb behind the 2 rows loaded)")


def test_an_unwritten_register_an_unwritten_array_and_an_incomplete_output_are_named():
    named(fault_of(with_header("{ smov s0, s5 }")), "smov s0, s5", "s5 was never written")
    named(fault_of(with_header("{ dma.done.wait [sem + s5] }")), "dma.done.wait", "s5 was never written")
    named(fault_of(with_header(COPY_IN[0].replace("[x]", "[y]"))), "dma.hbm_to_vmem",
          "uninitialised read of HBM buffer y", "element (0, 0)")
    named(fault_of(with_header("{ shalt }")), "shalt", "output y is incomplete", "1024 of 1024")


def test_a_wait_for_nothing_is_a_deadlock_with_its_wait_graph():
    fault = fault_of(broken("add1000", "{ dma.done.wait [in] }", "{ dma.done.wait [out] }"))
    named(fault, "dma.done.wait [out + 0x0] at pc 0x2", "deadlock",
          "the core waits for [out + 0x0]: 0 started",
          "[out] is signalled at pc 0x9: dma.vmem_to_hbm", "[in + 0x0] counts 1, for nobody")


def test_a_pop_of_nothing_is_a_deadlock():
    named(fault_of(broken("softmax", "{ vpow2 v4 }", "{ }")), "vpop.eup v5", "deadlock", "no push to eup")


def test_a_push_that_can_never_proceed_is_named():
    source = broken("matmul", "scmp.lt.s32 s12, s7, s16 }\n{ }\n{ vmatmul.mxu0 v1 rows=8 ;;",
                    "scmp.lt.s32 s12, s7, 99 ;; smov s8, 0 }\n{ }\n{ vmatmul.mxu0 v1 rows=8 ;;")
    named(fault_of(source), "vmatmul.mxu0 v1", "mxu0: this push can never proceed", "65 results")


def test_a_copy_left_over_at_halt_is_named():
    fault = fault_of(broken("add1000", "{ dma.done.wait [out] }\n", ""))
    named(fault, "shalt at pc 0xa", "a DMA is left over at halt", "the copy zb -> z started at pc 0x9")


def test_a_signal_or_result_left_over_at_halt_is_named():
    fault = fault_of(with_header("{ vsyncadd [sem], 2 }", "{ shalt }"))
    named(fault, "shalt", "left over", "[sem + 0x0] counts 2")
    fault = fault_of(with_header("{ vsplat v0, 1.0 }", "{ vrcp v0 }", "{ shalt }"))
    named(fault, "shalt", "left over", "eup holds 1 results")


def test_a_program_without_end_is_named():
    fault = fault_of(with_header(".on:", "{ sbr.rel .on }"), max_bundles=50)
    named(fault, "bundle at pc 0x0", "does not halt", "50 bundles issued")
    named(fault_of(with_header("{ smov s0, 1 }")), "bundle at pc 0x1", "runs off its end")


def test_an_instruction_without_lines_is_blamed_on_those_of_its_bundle_or_of_its_kernel():
    x = mc.Tensor(np.ones((8, 128), np.float32))
    program = mc.compile(lambda x: x + 1.0, x, device="tpu:v5e").program
    bundles = [bundle for bundle in program.bundles if "dma.done.wait" not in str(bundle)]
    load = next(pc for pc, bundle in enumerate(bundles) if "vld" in str(bundle))
    bundles[load] = Bundle(tuple(replace(op, locs=()) for op in bundles[load].ops))
    with pytest.raises(MachineFault, match="race: VMEM buffer add.x is read") as caught:
        run(replace(program, bundles=tuple(bundles)), {"x": np.ones((8, 128), np.float32)})
    assert [Path(loc.file).name for loc in caught.value.at][:1] == ["test_tpu_faults.py"]


@pytest.mark.parametrize("bundle, words", [
    ("{ sdiv.s32 s0, s9, 0 }", "division by zero"),
    ("{ dma.done.wait [sem + s9 + 0x4] }", "semaphore sem has no index 5"),
    ("{ vmatmul.mxu0 v9 rows=s9 swap }", "swap of incomplete weights"),
    ("{ vld v0, [xb + s9 - 0x2] }", "rows -1 to 6"),
    ("{ vst [yb], v9 stride=0 }", "bad rows or stride"),
    ("{ smov s1, 9 }\n{ vld v0, [yb] rows=s1 }", "bad rows or stride"),
    ("{ vxpose.xlu0 v9 }", "vxpose wants begin"),
    ("{ smov s1, 9 }\n{ vmatmul.mxu0 v9 rows=s1 }", "rows out of range. got 9; need 1 to 8"),
    ("{ dma.hbm_to_vmem [xb], [x], [sem] shape=(8, 128) strides=(128, 1) panel=8 lane=128 }", "bad extents"),
    ("{ dma.hbm_to_vmem [yb], [x], [sem] shape=(8, 128) strides=(128, 1) steps=(0) panel=8 }",
     "writes a row of yb twice"),
    ("{ vsplat v1, 1.5 ;; smov s1, 1.5 }\n{ sadd.s32 s2, s1, 1 }", "integer arithmetic on a float"),
])
def test_what_depends_on_values_is_checked_as_it_runs(bundle: str, words: str):
    fault = fault_of(with_header("{ smov s9, 1 ;; vsplat v9, 0.0 }", bundle))
    named(fault, bundle.split("{ ")[-1].split(" ")[0], words)
