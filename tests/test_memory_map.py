"""The memory map says where buffers lie and when; a plan that puts two in one place is caught."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernel_programs import ONE_DOT, TARGET, tiled_module
from random_graphs import random_graph

import minicc as mc
from minicc.devices import find
from minicc.errors import CompileError
from minicc.graph.simplify import simplify
from minicc.graph.text import parse_graph
from minicc.kernel.legalize import legalize
from minicc.kernel.memory import MemoryPlan, Role, Space, plan
from minicc.kernel.memory_map import MemoryMap
from minicc.kernel.verify import verify_plan
from minicc.viz import draw

SMALL = replace(ONE_DOT, fast_bytes=300_000, keeps_temps=False)


def chain(links: int = 5, size: int = 64) -> MemoryMap:
    """x, then w times it again and again, one kernel for each."""
    names = ["x", *(f"%{link}" for link in range(links))]
    dots = [f"  {new} = dot_general({old}, w) contract=[1]x[0] : f32[{size},{size}]"
            for old, new in zip(names, names[1:], strict=False)]
    text = "\n".join([f"graph f(x: f32[{size},{size}], w: f32[{size},{size}]) {{", *dots,
                      f"  return {names[-1]}", "}"])
    module = tiled_module(parse_graph(text), SMALL)
    return MemoryMap(module, plan(module, SMALL))


def test_the_bound_is_what_is_live_in_the_fullest_kernel():
    found, each = chain(), 64 * 64 * 4
    assert found.lower_bound(Space.HBM) == (4 * each, 1)  # x, w, what kernel 1 reads, what it writes
    assert found.peak_bytes(Space.HBM) == 4 * each


def test_bars_run_over_the_kernels():
    found = chain()
    assert [found.bar(place) for place in found.plan.placements.values() if place.role is Role.TEMP] == [
        "##...", ".##..", "..##.", "...##"]
    assert {found.bar(found.plan.placements[name]) for name in ("x", "w")} == {"#####"}


def test_bars_of_many_kernels_are_short_and_lose_nothing():
    found = chain(links=100, size=8)
    assert all(len(found.bar(place)) == 32 and "#" in found.bar(place)
               for place in found.plan.placements.values())


def test_the_table_says_peak_bound_and_every_buffer():
    lines = str(chain()).splitlines()
    assert lines[0] == "hbm: 64.0 KiB at most; 64.0 KiB live at once, in kernel 2 dot_2"
    assert len(lines) == 2 + 2 + 4 + 1  # two heads; x and w; temps; out
    assert lines[2].split() == ["0", "16.0", "KiB", "x", "f32[64,64]", "input", "#####"]


def test_a_compiled_program_has_a_map_and_a_picture_of_it():
    ones = mc.Tensor(np.ones((128, 128), np.float32))
    made = mc.compile(lambda x: ((x @ x).exp() @ x), ones, device="gpu")
    assert "kernels 1 to 2" in str(made.memory) and "temp" in str(made.memory)
    assert "64 KiB" in draw(made.memory).svg()


def random_plan(seed: int, device: str) -> tuple[MemoryPlan, object]:
    """A random program's plan and module, in little fast memory on every other seed."""
    target = {"test": TARGET, "small": SMALL}.get(device) or find(device).target
    module = tiled_module(legalize(simplify(random_graph(seed)[0])), target)
    return plan(module, target), module


@pytest.mark.parametrize("device", ["test", "small", "tpu", "gpu"])
def test_live_buffers_never_share_bytes_in_random_programs(device):
    for seed in range(40):
        verify_plan(*random_plan(seed, device))


def broken(found: MemoryMap, **changes: object) -> MemoryPlan:
    """The plan with something else about t2 (a buffer in the middle)."""
    place = next(p for p in found.plan.placements.values() if p.role is Role.TEMP and p.first == 1)
    moved = replace(place, **changes)
    return replace(found.plan, placements={**found.plan.placements, place.buffer: moved})


@pytest.mark.parametrize("changes, complaint", [
    ({"offset_bytes": 0}, "x and t3 have bytes of hbm in common, from 0 on, and both are live in kernel 1"),
    ({"offset_bytes": 64 * 64 * 4 - 512}, "x and t3 have bytes of hbm in common, from 15872 on"),
    ({"first": 2}, "t3 is live in kernels 2 to 2, and needed from 1 to 2"),
    ({"last": 1}, "t3 is live in kernels 1 to 1, and needed from 1 to 2")])
def test_a_planted_fault_is_caught(changes, complaint):
    found = chain()
    verify_plan(found.plan, found.module)
    with pytest.raises(CompileError, match=complaint):
        verify_plan(broken(found, **changes), found.module)


def test_the_same_place_at_another_time_or_in_another_memory_is_no_overlap():
    found = chain()
    verify_plan(broken(found, offset_bytes=0, space=Space.VMEM), found.module)


def test_a_learners_plan_is_checked_before_it_runs():
    def careless(module, target):
        good = plan(module, target)
        placements = {name: replace(place, offset_bytes=0) for name, place in good.placements.items()}
        return replace(good, placements=placements)

    with pytest.raises(CompileError, match="x and w have bytes of hbm in common"), mc.using(plan=careless):
        mc.compile(lambda x, w: x @ w, mc.zeros((64, 64)), mc.zeros((64, 64)), device="gpu")


def test_a_copy_that_is_fetched_is_in_the_map_and_checked():
    def twice(x, w):
        return ((x @ w).softmax(axis=-1) @ w).sum(axis=0), x @ w.T
    made = mc.compile(twice, mc.zeros((2048, 256)), mc.zeros((256, 256)), device="gpu")
    target = find("tpu").target
    module = tiled_module(made.graph, target)
    found = MemoryMap(module, plan(module, target))
    copy = found.plan.fetched["w"]
    assert copy in found.buffers(Space.VMEM) and "fetched" in str(found)
    verify_plan(found.plan, module)
    gone = replace(found.plan, fetched={"w": replace(copy, last=copy.first - 1)})
    with pytest.raises(CompileError, match="the copy of w is there in kernels"):
        verify_plan(gone, module)
