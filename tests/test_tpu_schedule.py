"""Bundles: full where the dependences allow it, in order where they do not."""

from __future__ import annotations

import numpy as np
import pytest
from kernels import assembled, axes, kernel, load, module, op, operand

from minicc.graph.ir import F32
from minicc.tpu.dependence import Dependences
from minicc.tpu.emulator import run
from minicc.tpu.isa import Instr, Program
from minicc.tpu.liveness import basic_blocks, following, live
from minicc.tpu.machine import V5E
from minicc.tpu.registers import allocate
from minicc.tpu.schedule import schedule
from minicc.tpu.text import parse
from minicc.tpu.verify import verify

HEADER = """vmem x: f32 rows=64 base=0x0
vmem y: f32 rows=64 base=0x40
hbm h: f32[1024] input
semaphore s: 1
"""


def written(*lines: str) -> Program:
    """A program of one instruction to a bundle; a line that ends in a colon is a label."""
    return parse(HEADER + "\n".join(line if line.endswith(":") else f"{{ {line} }}" for line in lines))


def instructions(*ops: str) -> tuple[Instr, ...]:
    """Instructions from their text."""
    return tuple(op for bundle in written(*ops).bundles for op in bundle.ops)


def packed(*ops: str) -> list[list[str]]:
    """The bundles that a block of these instructions becomes."""
    return [[str(op) for op in bundle.ops] for bundle in schedule(written(*ops), V5E).bundles]


def edges(*ops: str) -> dict[tuple[int, int], int]:
    """(instruction, later one) -> cycles between them."""
    found = Dependences(instructions(*ops), V5E, {})
    return {(a, b): cycles for a, after in enumerate(found.edges) for b, cycles in after.items()}


def test_independent_instructions_share_a_bundle_and_a_chain_does_not():
    found = packed("vld v0, [x + 0x0]", "vadd.f32 v1, v0, 1.0", "vst [y + 0x0], v1",
                   "vld v2, [x + 0x8]", "vadd.f32 v3, v2, 1.0", "vst [y + 0x8], v3")
    assert [len(bundle) for bundle in found] == [2, 2, 1, 1]  # one store a cycle


def test_no_bundle_has_more_of_a_class_than_the_machine_has_slots():
    found = packed(*(f"vld v{i}, [x + {8 * i:#x}]" for i in range(7)))
    assert [len(bundle) for bundle in found] == [3, 3, 1]


def test_a_result_is_awaited_for_its_latency():
    assert edges("vld v0, [x + 0x0]", "vadd.f32 v1, v0, v0") == {(0, 1): V5E.load_latency}
    assert edges("vpow2 v0", "vpop.eup v1")[0, 1] == V5E.eup_latency


def test_a_write_may_join_the_bundle_of_the_last_read_but_not_of_another_write():
    found = edges("smov s1, 1", "sadd.s32 s2, s1, 1", "smov s1, 2")
    assert found[1, 2] == 0 and found[0, 2] == 1


def test_a_load_waits_for_a_store_only_where_their_rows_meet():
    assert (0, 1) in edges("vst [x + 0x0], v0", "vld v1, [x + 0x4]")
    assert (0, 1) not in edges("vst [x + 0x0], v0", "vld v1, [x + 0x8]")
    assert (0, 1) not in edges("vst [x + 0x0], v0", "vld v1, [y + 0x0]")
    assert (0, 1) in edges("vst [x + s0 + 0x0], v0", "vld v1, [x + s1 + 0x8]")  # s0 and s1 may be anything


def test_a_base_register_that_changed_in_between_proves_nothing():
    assert (0, 2) in edges("vst [x + s0 + 0x0], v0", "sadd.s32 s0, s0, 8", "vld v1, [x + s0 + 0x8]")


def test_no_access_crosses_a_wait():
    found = edges("vld v0, [x + 0x0]", "dma.done.wait [s + 0x0]", "vld v1, [x + 0x8]")
    assert found == {(0, 1): 1, (1, 2): 1}


def test_a_unit_is_busy_and_its_results_come_in_order():
    found = edges("vmatmul.mxu0 v0", "vmatmul.mxu0 v1", "vpop.mrf.mxu0 v2", "vpop.mrf.mxu0 v3")
    busy = 8 * V5E.f32_passes
    assert found[0, 1] == busy and found[2, 3] == 1
    assert found[0, 2] == found[1, 3] == V5E.mxu_fill_cycles + busy


def test_a_push_waits_for_a_place_in_the_queue_of_results():
    pushes = ["vmatmul.mxu0 v0"] * V5E.mxu_fifo_vregs
    found = edges(*pushes, "vpop.mrf.mxu0 v1", "vmatmul.mxu0 v0")
    assert (len(pushes), len(pushes) + 1) in found


def test_the_branch_stands_in_the_last_bundle():
    found = packed(".loop:", "vld v0, [x + 0x0]", "vst [y + 0x0], v0", "sbr.rel .loop")
    assert ["sbr.rel .loop" in bundle for bundle in found] == [False, True]


def test_many_ready_loads_do_not_take_all_registers():
    ops = [text for i in range(60) for text in (
        f"vld v{2 * i}, [x + {i % 8 * 8:#x}]", f"vpow2 v{2 * i}",
        f"vpop.eup v{2 * i + 1}", f"vst [y + {i % 8 * 8:#x}], v{2 * i + 1}")]
    allocate(schedule(written(*ops), V5E), V5E)  # raises if more than 64 live at once


@pytest.mark.parametrize(("n", "at_least"), [(1000, 1.0), (50000, 3.0)])  # one chain; 16 side by side
def test_scheduling_keeps_the_values_and_needs_fewer_bundles_and_cycles(n: int, at_least: float):
    x, y = operand("x", F32, (n,), "n"), operand("y", F32, (n,), "n")
    value = op("divide", op("exp", load(x)), op("add", op("tanh", load(x)), 2.0))
    assembly = assembled(module(kernel("f", axes(n=(n, min(n, 16384), "p")), y, value, x)))
    given = {"x": np.linspace(-3, 3, n, dtype=np.float32)}
    plain, fast = (run(allocate(p, V5E), given) for p in (assembly, schedule(assembly, V5E)))
    assert (plain.outputs["y"] == fast.outputs["y"]).all()
    assert fast.bundles * at_least < plain.bundles and fast.cycles < plain.cycles
    verify(schedule(assembly, V5E), virtual=True)


def test_a_register_is_live_around_a_loop_that_reads_it():
    found = live(written("smov s0, 8", "smov s1, 0", ".loop:", "sadd.s32 s1, s1, s0", "sbr.rel s1, .loop",
                         "shalt"))
    assert {str(reg) for reg in found[1][2]} == {"s0", "s1"}
    assert found[2] == (range(4, 5), set(), set())


def test_control_falls_through_a_branch_with_a_condition_and_not_through_one_without():
    program = written(".a:", "sbr.rel .a", "sbr.rel s0, .a", "shalt")
    assert [following(program, block) for block in basic_blocks(program)] == [[0], [2, 0], []]
