"""Within a limit of memory: what is computed again, at what cost, with the same bits; and what cannot be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import minicc as mc
from minicc import errors
from minicc.compiler import Options, run_passes
from minicc.devices import find
from minicc.frontend.pytree import flatten
from minicc.graph.ir import F32, Type
from minicc.kernel.index import Axis, AxisKind, Index
from minicc.kernel.ir import Kernel, Module, Operand
from minicc.kernel.memory import Role, plan
from minicc.kernel.memory_map import MemoryMap
from minicc.kernel.recompute import fit
from minicc.kernel.verify import verify_plan
from minicc.tools.levels import LEVELS

GPU = find("gpu").target
BIG = 1280  # elements: 5120 bytes, ten times the 512 of anything small


def kernel(text: str) -> Kernel:
    """A kernel of which only the buffers count: "a b -> c:9" reads a and b, and makes 9 elements."""
    reads, _, made = text.partition(" -> ")
    name, _, size = made.partition(":")
    inputs = tuple(Operand(one, one, Type(F32, ()), ()) for one in reads.split())
    output = Operand(name, name, Type(F32, (int(size),)), (Index.axis("n"),))
    return Kernel(text, (Axis("n", int(size), int(size), AxisKind.PARALLEL),), inputs, (output,), (), ())


def module(*lines: str, inputs: str = "x") -> Module:
    given = tuple((name, Type(F32, (1,))) for name in inputs.split())
    return Module("f", tuple(map(kernel, lines)), given, (("out", Type(F32, (1,))),))


def names(found: Module) -> list[str]:
    return [each.name for each in found.kernels]


KEPT = [f"x -> a:{BIG}", f"a -> b:{BIG}", f"b -> c:{BIG}", f"c -> d:{BIG}", "d a -> out:1"]


def test_what_nobody_reads_for_a_while_is_computed_again():
    """a lies beside b and c for nothing; what is left at the end is x, d, a and out."""
    given, least = module(*KEPT), 512 + 5120 + 5120 + 512
    assert plan(given, GPU).hbm_bytes == 512 + 3 * 5120
    found = fit(given, GPU, least, plan)
    assert names(found) == [*KEPT[:4], f"{KEPT[0]}_again", KEPT[4]]
    assert [op.buffer for op in found.kernels[-1].inputs] == ["d", "a_again"]
    made = plan(found, GPU)
    assert made.hbm_bytes == least
    verify_plan(made, found)
    assert "computed again: a as a_again, 5.0 KiB for " in str(MemoryMap(found, made))


def test_what_it_is_made_of_is_computed_again_too():
    """h is gone by then, and to keep it would take as much as to keep a; c is twice as large."""
    lines = [f"x -> h:{BIG}", f"h -> a:{BIG}", f"a -> b:{BIG}", f"b -> c:{2 * BIG}", "c -> d:1", KEPT[-1]]
    given, least = module(*lines), 512 + 5120 + 10240
    assert plan(given, GPU).hbm_bytes == least + 5120
    found = fit(given, GPU, least, plan)
    assert names(found) == [*lines[:5], f"{lines[0]}_again", f"{lines[1]}_again", lines[5]]
    assert plan(found, GPU).hbm_bytes == least


def test_what_is_small_is_kept_for_it():
    lines = ["x -> h:1", f"h -> a:{BIG}", *KEPT[1:]]
    found = fit(module(*lines), GPU, 512 + 512 + 2 * 5120 + 512, plan)
    assert names(found) == [*lines[:5], f"{lines[1]}_again", lines[5]]


def test_a_limit_that_is_met_changes_nothing():
    given = module(*KEPT)
    assert fit(given, GPU, 512 + 3 * 5120, plan) is given


def test_what_cannot_fit_says_what_is_alive():
    with pytest.raises(errors.CompileError) as caught:
        fit(module(*KEPT), GPU, 512 + 5120 + 5120 + 511, plan)
    said = str(caught.value)
    assert "11264 bytes, most in kernel 6" in said and "need at most 11263" in said
    assert "d f32[1280] 5.0 KiB" in said and "a_again f32[1280] 5.0 KiB" in said
    assert "checkpoint(block), donate_argnums, or a smaller batch" in said


def deep(x, w):
    for _ in range(6):
        x = (x @ w).tanh()
    return (x * x).mean()


def test_an_error_names_the_lines_of_what_is_largest():
    with pytest.raises(errors.CompileError, match=r"at most 1000000.\n *at .*test_kernel_recompute.py:\d+"):
        mc.compile(mc.grad(deep, argnums=1), mc.ones((512, 256)), mc.ones((256, 256)), memory_limit=10**6)


@pytest.mark.parametrize("device", ["gpu", "tpu:v5e,vmem_mib=1"])
def test_a_run_gives_the_same_bits_in_less_memory(device):
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=shape).astype(np.float32) / 8 for shape in ((512, 128), (128, 128)))
    step = mc.value_and_grad(deep, argnums=(0, 1))
    free = mc.compile(step, x, w, device=device)
    limit = free.plan.hbm_bytes - 2 * x.nbytes
    within = mc.compile(step, x, w, device=device, memory_limit=limit)
    assert within.plan.hbm_bytes <= limit and within.module.again
    assert "let go: + " in within.explain() and "again" in str(within.memory)
    found, expected = (flatten(made(x, w))[0] for made in (within, free))
    assert [one.numpy().tobytes() for _, one in found] == [one.numpy().tobytes() for _, one in expected]


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "1 GB"])
def test_a_limit_is_a_number_of_bytes(limit):
    with pytest.raises(errors.CompileError, match="the memory limit is not a number of bytes"):
        mc.jit(deep, memory_limit=limit)


def random_step(seed):
    """A function with gradients, of a few layers drawn at random, and arguments for it."""
    rng = np.random.default_rng(seed)
    layers = rng.integers(3, size=8)

    def loss(x, weights):
        seen = [x]
        for number, layer in enumerate(layers):
            x = x @ weights[number]
            x = [x.tanh, (x + seen[number // 2]).sin, x.softmax][layer]()
            seen.append(x)
        return (x * seen[3]).sum()

    arrays = rng.normal(size=(9, 64, 64)).astype(np.float32)
    return mc.value_and_grad(loss), (arrays[0], list(arrays[1:]))


@pytest.mark.parametrize("device", ["gpu", "tpu"])
def test_random_programs_keep_their_bits_within_limits_and_with_donations(device):
    """One array less than without a limit, as far as that can be had; and no two that live share bytes."""
    fitted, where = 0, find(device)
    where = replace(where, target=replace(where.target, keeps_temps=False))
    for seed in range(8):
        step, arrays = random_step(seed)
        graph, *_ = (made := mc.jit(step)).trace(made.take(arrays, {}))
        inputs, donated = [arrays[0], *arrays[1]], tuple(range(seed % 2 * len(graph.inputs)))
        free = run_passes(graph, where, options=Options(donated=donated), until="plan")
        temps = sum(one.bytes for one in free.plan.placements.values() if one.role is Role.TEMP)
        options = Options(donated=donated, memory_limit=free.plan.hbm_bytes - min(temps, 64 * 64 * 4))
        try:
            levels = run_passes(graph, where, options=options, until="plan")
        except errors.CompileError as error:
            assert "the program does not fit the memory limit" in str(error)
            continue
        verify_plan(levels.plan, levels.module)
        assert levels.plan.hbm_bytes <= options.memory_limit
        found, expected = (LEVELS["plan"]["planned kernels"](one, inputs) for one in (levels, free))
        assert [one.tobytes() for one in found] == [one.tobytes() for one in expected]
        fitted += bool(levels.module.again)
    assert fitted > 2
