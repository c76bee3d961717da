"""The compiler as a whole: every slot, the record of every pass, and the reports."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernel_programs import error

import minicc as mc
from minicc.compiler import PASSES, compile_graph
from minicc.kernel.fuse import fuse
from minicc.kernel.memory import MemoryPlan
from minicc.kernel.pipeline import pipeline
from minicc.slots import SLOTS
from minicc.tpu.machine import V5E


def layer(x, w, b):
    return (x @ w + b).relu()


def compiled(device="tpu:v5e", m=40, k=50, n=60, **slots):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n), (n,))]
    with mc.using(**slots):
        program = mc.compile(layer, *map(mc.Tensor, arrays), device=device)
    x, w, b = (array.astype(np.float64) for array in arrays)
    assert error(program(*map(mc.Tensor, arrays)).numpy(), np.maximum(x @ w + b, 0)) < 1e-5
    return program


@pytest.mark.parametrize("name", SLOTS)
def test_each_slot_is_called_with_what_its_pass_gets(name):
    function = next(step.function for step in PASSES if step.name == name)
    seen = []

    def mine(*args, **options):
        seen.append(args)
        return function(*args, **options)

    compiled(**{name: mine})
    assert seen


def test_a_learners_pass_needs_only_the_arguments_it_uses():
    def one_buffer_each(kernel, resident=()):
        return pipeline(kernel, resident=resident, depth=1)

    program = compiled(pipeline=one_buffer_each, m=400)
    assert all(depth == 1 for one in program.pipelined for depth in one.depths.values())


def test_smaller_tiles_give_the_same_answer_in_more_cycles():
    def small(kernel, target):
        return kernel.tiled({"m": 8, "n": 60, "k": 50})

    ours, theirs = compiled(m=400), compiled(m=400, tile=small)
    assert theirs.kernels.kernels[0].steps == 50
    assert theirs.profile().cycles > ours.profile().cycles


def test_a_slot_that_breaks_a_kernel_is_told_what_it_broke():
    with pytest.raises(mc.CompileError, match="axis m has blocks of 0"):
        compiled(tile=lambda kernel, target: kernel.tiled({"m": 0}))


def test_a_missing_wait_in_a_learners_pipeline_is_caught_on_the_machine():
    def hasty(kernel, resident=()):
        good = pipeline(kernel, resident=resident)
        return replace(good, steady=tuple(c for c in good.steady if str(c) != "copy_wait  x[t]"))

    with pytest.raises(mc.MachineFault, match=r"x(.|\n)*at test_compiler.py:\d+"):
        compiled(pipeline=hasty)


def test_each_pass_leaves_a_record_of_both_sides():
    records = compiled().records
    steps = [step.name for step in PASSES if step.only != "gpu" and not step.asked]
    assert [record.name for record in records] == steps
    assert all(record.after is later.before for record, later in zip(records, records[1:], strict=False))


def test_a_profile_adds_up_and_says_what_binds():
    profile = compiled(m=512, k=512, n=512).profile()
    assert sum(profile.causes.values()) == pytest.approx(profile.cycles, abs=1e-6)
    # 4 x 4 tiles of weights x 512 rows x 6 passes of f32 over 4 MXUs
    assert profile.bound == ("mxu", 4 * 4 * 512 * 6 / 4)
    assert profile.hbm_bytes == profile.compulsory_bytes == 4 * (3 * 512 * 512 + 512)


def test_a_gpu_profile_counts_sectors():
    text = str(compiled("gpu").profile())
    assert "sectors" in text and "emulated thread by thread" in text


def test_a_machine_of_ones_own_is_a_device():
    small, ours = (compiled(device, m=512, k=512, n=512) for device in (replace(V5E, mxus=1), "tpu:v5e"))
    assert small.profile().cycles > 2 * ours.profile().cycles


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"mxus": 0}, "mxus is too small. got 0; need 1 or more"),
        ({"clock_ghz": 0.0}, "clock_ghz is too small"),
        ({"load_slots": 1.5}, "load_slots is no int. got 1.5"),
        ({"mxu_side": 0}, "mxu_side is too small"),
        ({"name": "a b"}, "cannot stand in a program's text"),
    ])
def test_a_machine_that_cannot_be_is_refused(changes, complaint):
    with pytest.raises(mc.CompileError, match=complaint):
        replace(V5E, **changes)


def test_what_cannot_be_profiled_or_run_says_so():
    with pytest.raises(mc.CompileError, match="nothing to count"):
        mc.compile(lambda x: x, mc.zeros(3), device="tpu").profile()
    graph = mc.compile(lambda x: x + 1.0, mc.zeros(3)).raw_graph
    for device, mode in (("gpu", "bananas"), ("tpu", "lane")):
        with pytest.raises(mc.CompileError, match=f"has no such mode. got '{mode}'"):
            compile_graph(graph, device, mode)


def test_slots_that_forget_something_are_told_what():
    with pytest.raises(mc.CompileError, match="no kernel makes its output out"):
        compiled(fuse=lambda graph, target: replace(fuse(graph, target), kernels=()))
    with pytest.raises(mc.CompileError, match="buffer . has no place"):
        compiled(plan=lambda module, target: MemoryPlan({}, 0, 0))
    with pytest.raises(mc.CompileError, match="has no axis q. need m, n, k"):
        compiled(tile=lambda kernel, target: kernel.tiled({"q": 8}))
    with pytest.raises(mc.CompileError, match="has no axis rows"):
        compiled(tile=lambda kernel, target: kernel.tiled({"m": kernel.axis("rows").size}))
