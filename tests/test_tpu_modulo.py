"""Loops whose rounds overlap: as close as the machine allows, and the same values as one after the other."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import minicc as mc
from minicc.tpu.affine import distances, loop_of
from minicc.tpu.emulator import run
from minicc.tpu.isa import Instr, Program
from minicc.tpu.liveness import basic_blocks
from minicc.tpu.machine import V5E, TPUSpec
from minicc.tpu.registers import allocate
from minicc.tpu.schedule import schedule
from minicc.tpu.text import parse
from minicc.trace import Step

ROWS = 64 * 8
HEADER = f"""program loops
machine v5e
hbm h: f32[{ROWS},128] input
hbm out: f32[{ROWS},128] output
vmem x: f32 rows={ROWS} base=0x0
semaphore s: 1
"""
COPY = f"[s] shape=({ROWS}, 128) strides=(128, 1) panel={ROWS}"
CHAIN = ("vld v0, [x + s0 + 0x0]", "vadd.f32 v1, v0, 1.0", "vst [x + s0 + 0x8], v1")  # x[i + 1] = x[i] + 1
APART = ("vld v0, [x + s0 + 0x0]", "vadd.f32 v1, v0, 1.0", "vst [x + s0 + 0x0], v1")
EXP = ("vld v0, [x + s0 + 0x0]", "vpow2 v0", "vpop.eup v1", "vadd.f32 v2, v1, v0", "vadd.xlane.f32.xlu0 v2",
       "vpop.xlu0 v3", "vst [x + s0 + 0x0], v3")


def looping(body: tuple[str, ...], rounds: int, before: tuple[str, ...] = (), after: tuple[str, ...] = ()
            ) -> Program:
    """A program that copies x in, goes through a loop, and copies x out."""
    lines = ["dma.hbm_to_vmem [x], [h], " + COPY, "dma.done.wait [s]", *before, "smov s0, 0", ".loop:", *body,
             "sadd.s32 s0, s0, 8", f"scmp.lt.s32 s1, s0, {8 * rounds}", "sbr.rel s1, .loop", *after,
             "dma.vmem_to_hbm [out], [x], " + COPY, "dma.done.wait [s]", "shalt"]
    return parse(HEADER + "\n".join(line if line.endswith(":") else f"{{ {line} }}" for line in lines))


def both(program: Program, spec: TPUSpec = V5E) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """What goes in, what comes out of the loop with its rounds overlapped, of the plain one, and how many
    cycles fewer the first takes."""
    h = np.random.default_rng(0).normal(size=(ROWS, 128)).astype(np.float32)
    runs = [run(allocate(schedule(replace(program, machine=spec), spec, overlap=way), spec), {"h": h})
            for way in (True, False)]
    return h, runs[0].outputs["out"], runs[1].outputs["out"], runs[1].cycles - runs[0].cycles


def interval(program: Program) -> int:
    """At which interval the rounds of a program's loop begin."""
    log = list[Step]()
    schedule(program, V5E, log)
    return int(log[0].why.split(" rounds, one every ")[1].split()[0])


def loop_distances(*body: str) -> set[tuple[int, int, int]]:
    """(access, later access, rounds between them) of a loop of 16 rounds."""
    program = looping(body, 16)
    blocks = [[op for pc in block for op in program.bundles[pc].ops] for block in basic_blocks(program)]
    block = basic_blocks(program)[1]
    loop = loop_of(program, block, blocks[0], blocks[1])
    assert loop is not None
    return set(distances(loop))


@pytest.mark.parametrize("rounds", [2, 3, 5, 8, 13, 64])
def test_any_number_of_rounds_computes_what_they_do_one_by_one(rounds: int):
    h, overlapped, plain, gained = both(looping(EXP, rounds))
    expected = h.astype(np.float64)
    there = expected[:8 * rounds]
    there[:] = (np.exp2(there) + there).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(overlapped, expected, rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(overlapped, plain)
    assert gained > 0


def test_rounds_that_share_nothing_begin_as_often_as_a_slot_allows():
    body = tuple(op for r in range(3) for op in (f"vld v{r}, [x + s0 + {64 * r:#x}]",
                                                      f"vst [x + s0 + {64 * r:#x}], v{r}"))
    assert interval(looping(body, 8)) == 3 // V5E.store_slots


def test_a_recurrence_through_memory_bounds_the_interval():
    cycles = V5E.load_latency + V5E.vector_latency + V5E.store_latency
    assert interval(looping(CHAIN, 32)) == cycles
    h, overlapped, _, _ = both(looping(CHAIN, 32))
    np.testing.assert_allclose(overlapped[32 * 8:33 * 8], h[:8] + 32.0, rtol=1e-5)


def test_what_a_loop_carries_in_registers_arrives_behind_it():
    sums = ("vld v1, [x + s0 + 0x0]", "vmul.f32 v2, v1, 2.0", "vadd.f32 v0, v0, v2")
    program = looping(sums, 21, before=("vsplat v0, 0.0",), after=("vst [x + 0x0], v0",))
    h, overlapped, plain, gained = both(program)
    expected = 2 * h.astype(np.float64)[:21 * 8].reshape(21, 8, 128).sum(axis=0)
    np.testing.assert_allclose(overlapped[:8], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(overlapped, plain)
    assert gained > 0


def test_rows_are_told_apart_by_their_addresses():
    assert (2, 0, 1) in loop_distances(*CHAIN)  # a store, and the load of the next round
    assert (0, 2, 0) in loop_distances(*APART) and not any(rounds for *_, rounds in loop_distances(*APART))
    far = loop_distances(CHAIN[0], CHAIN[1], "vst [x + s0 + 0x18], v1")
    assert (2, 0, 3) in far and (0, 2, 0) not in far


def test_an_address_that_is_not_affine_may_be_any_row():
    found = loop_distances("smin.s32 s2, s0, 64", "vld v0, [x + s2 + 0x0]", "vst [x + s0 + 0x0], v0")
    assert {(1, 2, 0), (2, 1, 1)} <= found


@pytest.mark.parametrize("vregs", [6, 8, 12, 64])
def test_rounds_overlap_only_as_far_as_there_are_registers(vregs: int):
    spec = replace(V5E, vregs=vregs)
    _, overlapped, plain, _ = both(looping(EXP, 24), spec)
    np.testing.assert_array_equal(overlapped, plain)


def test_a_loop_with_a_copy_or_a_matrix_unit_stays_as_it_was():
    ops = partial(looping, rounds=8)
    for body in (("dma.done.wait [s]", *APART), (*APART, "vmatpush.mxu0 v1")):
        log = list[Step]()
        schedule(ops(body), V5E, log)
        assert log[0].why.endswith("keeps its order") and not log[0].taken


def test_every_instruction_of_a_round_is_in_the_kernel_once_for_each_copy():
    packed = schedule(looping(EXP, 64), V5E)
    start = dict(packed.labels)[".loop"]
    stop = next(pc for pc in range(start, len(packed.bundles))
                if any(op.op == "sbr.rel" for op in packed.bundles[pc].ops))
    ops: list[Instr] = [op for bundle in packed.bundles[start:stop + 1] for op in bundle.ops]
    names = [op.op for op in ops]
    assert names.count("vst") == names.count("vpow2") == names.count("vpop.xlu0") > 0


def test_explain_shows_what_binds_a_loop_and_which_slots_are_taken():
    log = list[Step]()
    schedule(looping(CHAIN, 32), V5E, log)
    assert "a recurrence takes that" in log[0].why
    table = dict(step.why.split() for step in log[1:-1])
    assert table["store"] == "....1" and set(table) == {"load", "vector", "store", "scalar"}
    compiled = mc.compile(lambda x: x.softmax(axis=-1), mc.rand(64, 2048), device="tpu:v5e")
    text = compiled.explain(compiled.kernels.kernels[0].name)
    assert "rounds, one every" in text and "overlapping them would gain little" in text


def test_a_register_that_a_round_writes_twice_is_two():
    body = ("vld v0, [x + s0 + 0x0]", "vadd.f32 v1, v0, 1.0", "vmul.f32 v1, v1, 2.0",
            "vst [x + s0 + 0x0], v1")
    h, overlapped, plain, gained = both(looping(body, 12))
    np.testing.assert_allclose(overlapped[:96], 2 * (h[:96].astype(np.float64) + 1), rtol=1e-6)
    np.testing.assert_array_equal(overlapped, plain)
    assert gained > 0


def test_a_push_and_its_pop_share_no_slot_that_there_is_one_of():
    _, overlapped, plain, _ = both(looping(EXP, 24), replace(V5E, xlu_slots=1, xlus=1, xlu_latency=4))
    np.testing.assert_array_equal(overlapped, plain)
