"""TPU programs print, and assemble back to the same program; what does not assemble says where."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tpu_programs import NAMES, text, with_header

from minicc.errors import CompileError, Loc
from minicc.tpu.machine import V5E
from minicc.tpu.text import parse


@pytest.mark.parametrize("name", NAMES)
def test_every_program_assembles_back_to_itself(name: str):
    program = parse(text(name))
    assert parse(str(program)) == program
    assert str(parse(str(program))) == str(program)


@pytest.mark.parametrize("bundle", [
    "{ smov s0, 1.5 ;; vsplat v9, -inf }",
    "{ smov s0, -3 ;; vsplat v9, 1e-07 }",
    "{ vsplat v0, nan }",
    "{ vld v0, [xb + s3 - 0x8] stride=0 rows=s4 }",
    "{ vld v0, [xb + 08] }",
    "{ vxpose.xlu1 v3 begin end }",
    "{ vmatmul.mxu3 v1 rows=3 swap ;; vpop.mrf.mxu3 v2 }",
    "{ dma.hbm_to_vmem [xb], [x + s1 + 0x10], [sem] shape=(2, s2, 5) strides=(-7, 0, 1) steps=(4, 1) }",
    "{}",
])
def test_every_form_of_operand_round_trips(bundle: str):
    program = parse(with_header(".here:", bundle, "{ sbr.rel !s3, .here ;; smov s70, 0 }"))
    assert parse(str(program)) == program


def test_a_machine_of_ones_own_round_trips():
    program = replace(parse(text("softmax")), machine=replace(V5E, name="mine", mxus=8, clock_ghz=2.0))
    assert parse(str(program)).machine == program.machine


def test_provenance_is_read_back():
    program = parse(with_header("{ shalt }  # train.py:12, train.py:13"))
    assert program.bundles[0].locs == (Loc("train.py", 12), Loc("train.py", 13))
    assert parse(with_header("{ shalt } # stop: now"), "add.txt").bundles[0].locs == (Loc("add.txt", 6),)


@pytest.mark.parametrize("bundle, words", [
    ("{ vfoo v1 }", "line 6, column 3: unknown op vfoo"),
    ("{ vmatmul.mxu v1 }", "unknown op vmatmul.mxu"),
    ("{ smov s0, 1 ;; vadd.f32 v1, v0, 1 }", "line 6, column 17: source 2 does not fit"),
    ("{ vadd.f32 s1, v0, 1.0 }", "the destination does not fit"),
    ("{ vadd.f32 v1, v0 }", "wrong number of sources"),
    ("{ vadd.f32 v1, v0, v2, v3 }", "wrong number of sources"),
    ("{ vld v0, [zz] }", "VMEM buffer"),
    ("{ vld v0, [x] }", "VMEM buffer"),
    ("{ vld v0, [xb] rows=9 }", "rows out of range"),
    ("{ vld v0, [xb] step=2 }", "unknown attribute step"),
    ("{ vld v0, [xb] rows }", "attribute rows does not fit"),
    ("{ vmatmul.mxu0 v0 swap=2 }", "attribute swap does not fit"),
    ("{ dma.hbm_to_vmem [xb], [x], [sem] shape=(8, 128) strides=(128, 1) steps=1 }", "attribute steps"),
    ("{ vld v0 [xb] }", "line 6, column 10: not an attribute"),
    ("{ vld v0, [xb], }", "line 6, column 17: not an operand"),
    ("{ sbr.rel .nowhere }", "a label of the program"),
    ("{ vmatmul.mxu4 v0 }", "no such unit"),
    ("{ dma.hbm_to_vmem [xb], [x], [sem] shape=(8, 128) strides=(1) }", "a stride for each"),
    ("{ dma.hbm_to_vmem [xb], [x], [sem] shape=(2, 8, 128) strides=(0, 128, 1) }", "a step in rows"),
    ("{ dma.hbm_to_vmem [xb], [x], [sem] shape=(8, v0) strides=(128, 1) }", "attribute shape does not fit"),
    ("{ smov s0, 1 ;; smov s1, 1 ;; smov s2, 2 }", "too much for one bundle: ops in the scalar slots"),
    ("{ vpop.xlu0 v0 ;; vpop.xlu0 v1 }", "pops from xlu0"),
    ("{ smov s0, 1 ;; sadd.s32 s0, s1, 1 }", "writes of s0"),
    ("0x7: { shalt }", "this is bundle 0x0"),
    ("shalt", "not a header, label or bundle"),
    ("vmem xb: f32", "malformed vmem line"),
    ("hbm q: f32[8 128] input", "malformed hbm line"),
    ("machine v9", "unknown machine v9"),
    ("machine v5e wheels=4", "not a field"),
    ("vmem x: f32 rows=8 base=0x0", "x is declared twice"),
    (".end:", "stands behind the last bundle"),
])
def test_a_malformed_text_names_what_and_where(bundle: str, words: str):
    with pytest.raises(CompileError) as caught:
        parse(with_header(bundle))
    assert words in str(caught.value)
