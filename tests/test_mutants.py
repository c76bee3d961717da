"""Faults planted all over the compiler: random programs, or a check that has a name, find each; bisect knows
where it is.

A suite that lets a fault through is not seen to be weak until somebody makes that mistake; so here each room
makes one on purpose (mutation testing; R. DeMillo, R. Lipton and F. Sayward, "Hints on test data selection",
1978).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import minicc as mc
from minicc.frontend import vjp
from minicc.gpu import lower as gpu_lower
from minicc.graph import infer
from minicc.graph.dtypes import F32, I32, U32
from minicc.graph.evaluate import evaluate
from minicc.graph.infer import build
from minicc.graph.ir import Builder, Type
from minicc.graph.rewrite import Rule, X, Y, pattern
from minicc.graph.simplify import RULES, simplify
from minicc.kernel import legalize, memory, positions
from minicc.kernel.ir import AxisKind
from minicc.kernel.pipeline import pipeline
from minicc.kernel.tile import tile
from minicc.tools.bisect import Finding, bisect
from minicc.tools.random_graphs import random_graph, random_inputs
from minicc.tpu import body, dependence, registers

MOST_PROGRAMS = 60
Mutate = Callable[[pytest.MonkeyPatch], dict[str, Callable]]  # changes things; returns what goes into slots


# ---- the faults ----

def transposed_in_place(patch: pytest.MonkeyPatch) -> dict[str, Callable]:
    """Type inference gives a transpose the shape of its operand."""
    patch.setitem(infer._RULES, "transpose", (1, lambda call: call.operands[0]))
    return {}


def minus_turned_around(patch: pytest.MonkeyPatch) -> dict[str, Callable]:
    """A rule of simplify loses a sign."""
    wrong = Rule("x - y -> y - x", pattern("subtract")(X, Y),
                 lambda m: m.build("negate", m.build("abs", m.build("add", m[X], m[Y]))))
    return {"simplify": lambda graph, log=None: simplify(graph, rules=(wrong, *RULES), log=log)}


def widened_without_a_sign(patch: pytest.MonkeyPatch) -> dict[str, Callable]:
    """Legalising computes small signed integers in u32."""
    right = legalize._wide
    patch.setattr(legalize, "_wide", lambda dtype: U32 if right(dtype) is I32 else right(dtype))
    return {}


def slices_from_zero(patch: pytest.MonkeyPatch) -> dict[str, Callable]:
    """Fusion's rule for a slice forgets where it starts."""
    def wrong(node, position, make):
        steps = zip(position, node.attrs["stride"], strict=True)
        return [tuple(index.scaled(stride, 0) for index, stride in steps)]
    patch.setitem(positions.RULES, "slice", wrong)
    return {}


def lookups_clamped_too_low(patch: pytest.MonkeyPatch) -> dict[str, Callable]:
    """A gather's last element is out of its reach: the clamp is one too low."""
    right = positions.RULES["gather"]

    def wrong(node, position, make):
        class OneLess:
            walk, sizes = staticmethod(make.walk), make.sizes
            lookup = staticmethod(lambda scalars, at, clamp: make.lookup(scalars, at, max(0, clamp - 1)))
        return right(node, position, OneLess)
    patch.setitem(positions.RULES, "gather", wrong)
    return {}


def without_the_last_block(patch: pytest.MonkeyPatch) -> dict[str, Callable]:
    """Tiling forgets the last block of an axis where it is a smaller one."""
    def wrong(kernel, target):
        tiled = tile(kernel, target)
        axes = tuple(replace(axis, size=axis.size - axis.size % 8, block=8) if axis.size > 8 and axis.size % 8
                     and axis.block > 1 and axis.kind is AxisKind.PARALLEL else axis for axis in tiled.axes)
        return replace(tiled, axes=axes)
    return {"tile": wrong}


def one_place_for_all(patch: pytest.MonkeyPatch) -> dict[str, Callable]:
    """The memory plan puts each buffer at the first byte."""
    patch.setattr(memory, "_fit", lambda place, others: place)
    return {}


def results_copied_too_early(patch: pytest.MonkeyPatch) -> dict[str, Callable]:
    """A pipeline's copy out is not guarded by the last step of a sum."""
    def wrong(kernel, resident=()):
        made = pipeline(kernel, resident=resident)
        return replace(made, steady=tuple(replace(command, last=()) for command in made.steady))
    return {"pipeline": wrong, "tile": in_small_blocks}


def in_small_blocks(kernel, target):
    """Tiling as it may be, with several steps along each axis, so that small programs have some."""
    tiled = tile(kernel, target)
    return tiled.tiled({axis.name: 1 for axis in tiled.axes if axis.kind is AxisKind.SEQUENTIAL})


def garbage_summed(patch: pytest.MonkeyPatch) -> dict[str, Callable]:
    """The TPU's lowering masks nothing before it sums over a register that is not full."""
    patch.setattr(body.Nest, "masked", lambda self, block, place, neutral: self.value(block, *place))
    return {}


def loads_before_stores(patch: pytest.MonkeyPatch) -> dict[str, Callable]:
    """The TPU's scheduler does not see that a load reads what a store wrote."""
    patch.setattr(dependence.Dependences, "access", lambda self, number, op: None)
    return {}


def lives_cut_short(patch: pytest.MonkeyPatch) -> dict[str, Callable]:
    """The TPU's register allocator takes every register for dead as soon as it is written."""
    right = registers.intervals
    patch.setattr(registers, "intervals", lambda program: [i._replace(end=i.start) for i in right(program)])
    return {}


def strides_of_another_array(patch: pytest.MonkeyPatch) -> dict[str, Callable]:
    """The GPU's threads step over rows that are one element longer than they are."""
    right = gpu_lower.flat_index

    def wrong(index, shape):
        return right(index, (*shape[:-1], shape[-1] + 1) if len(shape) > 1 else shape)
    patch.setattr(gpu_lower, "flat_index", wrong)
    return {}


# fault -> device, the pass that bisect must name, the level at which it is seen
MUTANTS: dict[Mutate, tuple[str, str, str]] = {
    minus_turned_around: ("gpu", "simplify", "graph"),
    widened_without_a_sign: ("gpu", "legalize", "graph"),
    slices_from_zero: ("gpu", "fuse", "kernels"),
    lookups_clamped_too_low: ("gpu", "fuse", "kernels"),
    without_the_last_block: ("tpu", "tile", "tiled kernels"),
    one_place_for_all: ("tpu", "plan", "planned kernels"),
    results_copied_too_early: ("tpu", "pipeline", "pipelines"),
    garbage_summed: ("tpu", "lower", "assembly"),
    loads_before_stores: ("tpu", "schedule", "bundles"),
    lives_cut_short: ("tpu", "allocate", "program"),
    strides_of_another_array: ("gpu", "lower_gpu", "lane mode"),
}


def first_found(device: str, slots: dict[str, Callable]) -> tuple[Finding | None, int]:
    """What the fuzzer finds, and after how many programs."""
    for seed in range(MOST_PROGRAMS):
        graph, inputs = random_graph(seed)
        with mc.using(**slots):
            if found := bisect(graph, inputs, device):
                return found, seed + 1
    return None, MOST_PROGRAMS


@pytest.mark.parametrize("mutate", MUTANTS, ids=lambda mutate: mutate.__name__)
def test_random_programs_find_the_fault_and_bisect_names_its_pass(
    mutate: Mutate, monkeypatch: pytest.MonkeyPatch
):
    device, guilty, level = MUTANTS[mutate]
    found, _ = first_found(device, mutate(monkeypatch))
    assert found is not None and (found.guilty, found.level) == (guilty, level), found


# ---- what random programs cannot see, and the check that does ----

def test_a_wrong_type_is_seen_by_running_the_graph(monkeypatch: pytest.MonkeyPatch):
    transposed_in_place(monkeypatch)
    builder = Builder()
    x = builder.parameter("x", Type(F32, (2, 3)))
    graph = builder.graph("f", [x], [build(builder, "transpose", (x,), {"perm": (1, 0)})])
    found = bisect(graph, random_inputs(graph), "gpu")
    assert found is not None and (found.guilty, found.did) == ("float32", "changed the types")


def gradient_is_right(function: Callable[[mc.Tensor], mc.Tensor]) -> bool:
    """Whether the gradient along a direction is the central difference, both in float64."""
    compiled = mc.compile(mc.value_and_grad(function), mc.zeros(5))
    x, direction = np.linspace(0.2, 1.9, 5), np.array([1.0, -2.0, 0.5, 3.0, -1.0])
    (up, _), (down, _), (_, gradient) = (
        evaluate(compiled.raw_graph, [x + step * direction], dtype64=True) for step in (1e-6, -1e-6, 0))
    return bool(np.isclose(gradient @ direction, (up - down) / 2e-6, rtol=1e-6))


def test_a_wrong_gradient_is_seen_by_central_differences(monkeypatch: pytest.MonkeyPatch):
    def function(x):
        return (x.exp().sqrt() * x).sum()
    assert gradient_is_right(function)
    monkeypatch.setitem(vjp.VJP, "sqrt", (lambda s: s.g / s.out,))  # not halved
    assert not gradient_is_right(function)
