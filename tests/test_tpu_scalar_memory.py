"""Scalar memory holds the numbers that say where a copy goes, and is checked as VMEM is."""

from __future__ import annotations

import numpy as np
import pytest

from minicc.compiler import compile_graph
from minicc.errors import CompileError, Loc, MachineFault
from minicc.graph.infer import build
from minicc.graph.ir import F32, I32, Builder, Type
from minicc.tpu.dependence import Dependences
from minicc.tpu.emulator import run
from minicc.tpu.machine import V5E
from minicc.tpu.schedule import schedule
from minicc.tpu.text import parse

PICK = """program pick
machine v5e
hbm ids: i32[4] input
hbm x: f32[8,128] input
hbm y: f32[1,128] output
smem numbers: i32 words=4 base=0x0
vmem row: f32 rows=8 base=0x0
semaphore sem: 1
{ dma.hbm_to_smem [numbers], [ids], [sem] shape=(4) strides=(1) }
{ dma.done.wait [sem] }
{ sld s0, [numbers + 0x2] }
{ smul.u32 s1, s0, 128 }
{ dma.hbm_to_vmem [row], [x + s1], [sem] shape=(1, 128) strides=(128, 1) panel=8 }
{ dma.done.wait [sem] }
{ dma.vmem_to_hbm [y], [row], [sem] shape=(1, 128) strides=(128, 1) panel=8 }
{ dma.done.wait [sem] }
{ shalt }"""
X = np.arange(1024, dtype=np.float32).reshape(8, 128)
IDS = np.array([7, 1, 5, 0], np.int32)


def broken(old: str, new: str) -> str:
    """The program with one thing changed."""
    assert PICK.count(old) == 1
    return PICK.replace(old, new)


def fault(text: str) -> str:
    """What the machine says of a program."""
    with pytest.raises(MachineFault) as caught:
        run(parse(text, "pick.txt"), {"ids": IDS, "x": X})
    return str(caught.value)


def test_a_number_of_scalar_memory_says_which_row_is_copied():
    program = parse(PICK)
    result = run(program, {"ids": IDS, "x": X})
    assert (result.outputs["y"] == X[IDS[2]]).all()
    assert result.hbm_read_bytes == 4 * 4 + 128 * 4
    assert parse(str(program)) == program


def test_a_scalar_load_takes_two_cycles():
    text = broken("{ smul.u32 s1", "{ sadd.s32 s3, 0, 1 }\n{ smul.u32 s1")
    assert (run(parse(text), {"ids": IDS, "x": X}, exposed=True).outputs["y"] == X[5]).all()
    with pytest.raises(MachineFault, match="early read of s0"):
        run(parse(PICK), {"ids": IDS, "x": X}, exposed=True)


def test_the_scheduler_keeps_a_scalar_load_between_the_copies_around_it():
    packed = schedule(parse(PICK), V5E)
    ops = [op.op for bundle in packed.bundles for op in bundle.ops]
    assert ops.index("dma.done.wait") < ops.index("sld") < ops.index("dma.hbm_to_vmem")
    loads = [parse(PICK).bundles[2].ops[0]] * 2
    assert Dependences(loads, V5E, {}).edges == [{1: 1}, {}]  # of one register, but not of memory


@pytest.mark.parametrize(("old", "new", "words"), [
    ("{ dma.done.wait [sem] }\n{ sld", "{ sld", "race: SMEM buffer numbers is read while a DMA owns it"),
    ("+ 0x2]", "+ 0x4]", "out of bounds in SMEM buffer numbers. got elements 4 to 4; need 0 to 3"),
    ("+ 0x2]", "- 0x1]", "out of bounds in SMEM buffer numbers"),
    ("shape=(4) strides=(1)", "shape=(2) strides=(1)", "uninitialised read of SMEM buffer numbers"),
    ("shape=(4) strides=(1)", "shape=(5) strides=(1)", "out of bounds in SMEM buffer numbers"),
    ("shape=(4) strides=(1)", "shape=(4) strides=(2)", "out of bounds in HBM buffer ids"),
])
def test_a_wrong_use_of_scalar_memory_is_named(old: str, new: str, words: str):
    assert words in fault(broken(old, new)) and "pick.txt:" in fault(broken(old, new))


@pytest.mark.parametrize(("old", "new", "words"), [
    ("sld s0, [numbers", "sld s0, [row", "an SMEM buffer"),
    ("[row], [x + s1]", "[numbers], [x + s1]", "a VMEM buffer"),
    ("shape=(4) strides=(1)", "shape=(2, 2) strides=(2, 1) steps=(2)", "unknown attribute steps"),
    ("shape=(4) strides=(1)", "shape=(2, 2) strides=(2, 1)", "one dimension"),
    ("words=4 base", "words=four base", "malformed smem line"),
])
def test_a_malformed_use_of_scalar_memory_is_refused(old: str, new: str, words: str):
    with pytest.raises(CompileError, match=words):
        parse(broken(old, new))


def test_scalar_memory_has_an_end():
    with pytest.raises(CompileError, match=r"scalar memory overflow(.|\n)*0x40000 \(1024 KiB on v5e\)"):
        run(parse(broken("words=4", "words=262145")), {"ids": IDS, "x": X})


def test_more_indices_than_scalar_memory_holds_are_refused_with_the_users_line():
    builder, here = Builder(), (Loc("train.py", 12, "x[ids]"),)
    x, ids = builder.parameter("x", Type(F32, (4, 128))), builder.parameter("ids", Type(I32, (300_000,)))
    rows = build(builder, "gather", (x, ids), {"axis": 0}, here)
    with pytest.raises(CompileError, match=r"ids: i32\[300000\](.|\n)*at most 262144(.|\n)*train.py:12"):
        compile_graph(builder.graph("test", (x, ids), (rows,)), "tpu")
