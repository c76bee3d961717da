"""Registers: as few as live at once, never two living values in one, and a clear error when they run out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minicc.errors import CompileError
from minicc.tpu.emulator import run
from minicc.tpu.isa import Program
from minicc.tpu.machine import V5E
from minicc.tpu.registers import allocate, intervals
from minicc.tpu.text import parse

HEADER = "vmem x: f32 rows=1024 base=0x0\n"


def program(*bundles: str) -> Program:
    return parse(HEADER + "\n".join(bundles), file="tpu.txt")


def test_a_chain_of_values_needs_one_register():
    found = allocate(program("{ vsplat v100, 1.0 }", "{ vadd.f32 v101, v100, 1.0 }",
                             "{ vadd.f32 v102, v101, 1.0 }", "{ vst [x], v102 }", "{ shalt }"), V5E)
    assert {str(op.dst) for bundle in found.bundles for op in bundle.ops if op.dst} == {"v0"}


def test_a_value_written_where_another_is_last_read_takes_its_register():
    first, second, _ = intervals(program("{ smov s70, 1 }", "{ sadd.s32 s71, s70, 1 }", "{ vsplat v0, s71 }",
                                         "{ shalt }"))
    assert (first.start, first.end, second.start, second.end) == (1, 2, 3, 4)


def test_a_value_read_in_a_loop_lives_until_the_loop_ends():
    found = {str(i.reg): (i.start, i.end) for i in intervals(program(
        "{ smov s70, 4 ;; smov s71, 0 }", ".top:", "{ sadd.s32 s71, s71, s70 }",
        "{ scmp.lt.s32 s72, s71, 99 }", "{ sbr.rel s72, .top }", "{ shalt }"))}
    assert found["s70"] == (1, 7) and found["s72"] == (5, 6)


def test_as_many_values_as_registers_fit_and_one_more_is_an_error_with_a_table():
    def summed(count: int) -> Program:
        return program(*(f"{{ vsplat v{i}, {i}.0 }}" for i in range(count)),
                       *(f"{{ vst [x + {8 * i:#x}], v{i} }}" for i in range(count)), "{ shalt }")

    run(allocate(summed(64), V5E), {})
    with pytest.raises(CompileError) as error:
        allocate(summed(65), V5E)
    text = str(error.value)
    assert "out of vector registers" in text and "got 65 live at bundle 0x40; need at most 64" in text
    assert "vsplat v0, 0.0" in text and "tpu.txt:2" in text and "smaller tiles" in text


def test_a_machine_with_fewer_registers_runs_out_sooner():
    small = replace(V5E, name="small", sregs=1)
    two = replace(program("{ smov s0, 1 }", "{ smov s1, 2 }", "{ sadd.s32 s2, s0, s1 }", "{ vsplat v0, s2 }",
                          "{ shalt }"), machine=small)
    with pytest.raises(CompileError, match="out of scalar registers"):
        allocate(two, small)


def test_addresses_and_copies_are_renamed_too():
    found = allocate(parse(HEADER + "hbm h: f32[1024] input\nsemaphore s: 2\n" + "\n".join((
        "{ smov s70, 8 ;; smov s71, 0 }",
        "{ dma.hbm_to_vmem [x + s71], [h + s71], [s + s71] shape=(s70, 128) strides=(128, 1) panel=8 }",
        "{ dma.done.wait [s + s71] }", "{ shalt }"))), V5E)
    assert str(found.bundles[1].ops[0]) == ("dma.hbm_to_vmem [x + s1 + 0x0], [h + s1 + 0x0], [s + s1 + 0x0]"
                                            " shape=(s0, 128) strides=(128, 1) panel=8")
