"""What the checks of lesson 0 run and judge: the layer on the digits, with a pass of the learner's in a slot.

Goes in: an answer. Comes out: data from the learner's process, and a verdict from a clean one, which times
again what is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

import minicc as mc
from minicc.compiler import Compiled
from minicc.errors import CompileError, MiniccError
from minicc.frontend.datasets import digits
from minicc.frontend.models import mlp
from minicc.graph.ir import Graph
from minicc.kernel.cost import Target
from minicc.kernel.evaluate import allocate, evaluate_pipelined
from minicc.kernel.fuse import fuse
from minicc.kernel.ir import Kernel, Module
from minicc.kernel.pipeline import PipelinedKernel, pipeline
from minicc.lessons.course import Case
from minicc.lessons.verdicts import Verdict, all_of, beat, compare, failed, passed, predicted
from minicc.report import TPUProfile
from minicc.tpu.machine import V5E

ROWS, PIXELS, HIDDEN, WIDE = 1797, 64, 128, 512
STEPS = {"m": 512, "n": HIDDEN, "k": PIXELS}
REFERENCE = {"m": 600, "n": 512, "k": 64, "depth": 2}
FEW_ROWS, DEPTHS = 200, (2, 1, 3)  # of 0.4
MOST_STEPS = 500  # that a choice may have: what is timed here has no other limit


# ---- what the checks share

def inputs(seed: int = 0, rows: int = ROWS, hidden: int = HIDDEN) -> list[np.ndarray]:
    """Digits, weights and a bias."""
    generator = np.random.default_rng(seed)
    return [digits()[0][:rows], generator.standard_normal((PIXELS, hidden)).astype(np.float32) / 8,
            generator.standard_normal(hidden).astype(np.float32)]


def layer(x: mc.Tensor, w: mc.Tensor, b: mc.Tensor) -> mc.Tensor:
    """What the evening is about."""
    return (x @ w + b).relu()


def right(arrays: list[np.ndarray]) -> np.ndarray:
    """The layer in float64."""
    x, w, b = (array.astype(np.float64) for array in arrays)
    return np.maximum(x @ w + b, 0)


def compiled_with(arrays: list[np.ndarray], **slots: Callable) -> Compiled:
    """The layer for the TPU, with these passes in place of the compiler's."""
    with mc.using(**slots):
        return mc.compile(layer, *map(mc.Tensor, arrays), device="tpu:v5e").compiled


def profiled(compiled: Compiled) -> TPUProfile:
    """What the emulated TPU counted."""
    profile = compiled.profile()
    assert isinstance(profile, TPUProfile)
    return profile


def said(attempt: Callable[[], Any]) -> str:
    """What the evaluator or the emulator says, on one line; nothing if it runs to its end."""
    try:
        attempt()
    except MiniccError as error:
        return str(error).splitlines()[0]
    return ""


def faults(compiled: Compiled, arrays: list[np.ndarray]) -> dict[str, str]:
    """What the two that execute a pipeline say of it: its meaning, and the machine."""
    names = [name for name, _ in compiled.module.inputs]
    buffers = allocate(compiled.module, dict(zip(names, arrays, strict=True)))
    kernel, = compiled.pipelined
    return {"evaluator": said(lambda: evaluate_pipelined(kernel, buffers)),
            "emulator": said(lambda: compiled.run(arrays))}


def in_blocks(kernel: Kernel, target: Target) -> Kernel:
    """Blocks of 512 rows: four steps for all the digits, so that there is something to overlap."""
    return kernel.tiled({axis.name: min(axis.size, STEPS[axis.name]) for axis in kernel.axes})


# ---- 0.1

def run_prediction(answer: Any, case: Case) -> dict[str, Any]:
    """The four predictions."""
    case.show(compiled_with(inputs()).graph)
    return {"prediction": answer}


def judge_prediction(data: Mapping[str, Any], seed: int) -> Verdict:
    """Against what the compiler and the emulator say."""
    compiled = compiled_with(inputs())
    profile = profiled(compiled)
    actual = {"kernels": len(compiled.module.kernels), "hbm_bytes": profile.hbm_bytes,
              "cycles": profile.cycles, "bound_by": profile.bound[0]}
    return predicted(data["prediction"], actual, within={"kernels": 1.0, "hbm_bytes": 1.5, "cycles": 3.0})


# ---- 0.2

def rows_of(seed: int) -> int:
    """How many digits a check takes: all of them first."""
    return ROWS - 101 * (seed % 11)


def run_four_blocks(answer: Callable, case: Case) -> dict[str, Any]:
    """The layer, tiled by the learner."""
    arrays = inputs(case.seed, rows_of(case.seed))
    compiled = compiled_with(arrays, tile=answer)
    case.show(compiled.kernels)
    axes = {axis.name: [axis.block, axis.steps] for axis in compiled.module.kernels[0].axes}
    y, = compiled.run(arrays)
    return {"axes": axes, "y": y, "cycles": profiled(compiled).cycles}


def judge_four_blocks(data: Mapping[str, Any], seed: int) -> Verdict:
    """Four blocks, each a multiple of eight and no larger than it must be; and the layer is still right."""
    arrays = inputs(seed, rows_of(seed))
    axes, own = data["axes"], compiled_with(arrays)
    block, steps = axes["m"]
    quarter = len(arrays[0]) / 4
    whole = all_of(*(compare(f"steps of {name}", axes[name][1], 1) for name in ("n", "k")))
    verdict = all_of(compare("steps of m", steps, 4), whole)
    if verdict.passed and block % 8:
        return failed(f"blocks of {block} rows are no multiple of 8")
    if verdict.passed and block >= quarter + 8:
        return failed(f"blocks of {block} rows are larger than they must be")
    theirs = (f"{len(arrays[0])} rows in {data['cycles']} cycles; "
              f"the compiler's own tile takes {profiled(own).cycles}")
    return all_of(verdict, compare("y", data["y"], right(arrays)), passed(theirs))


# ---- 0.3

def lines_of(made: PipelinedKernel) -> list[str]:
    """The commands of a pipeline, each under its part, as they print."""
    parts = {"prologue": made.prologue, "steady": made.steady, "epilogue": made.epilogue}
    return [f"{part}: {' '.join(str(command).split())}" for part in parts for command in parts[part]]


def run_forgetful(answer: Callable, case: Case) -> dict[str, Any]:
    """What catches the learner's broken pipeline, and what is in it."""
    arrays = inputs(case.seed)
    compiled = compiled_with(arrays, tile=in_blocks, pipeline=answer)
    case.show(compiled.pipelined[0])
    return faults(compiled, arrays) | {"lines": lines_of(compiled.pipelined[0])}


def judge_forgetful(data: Mapping[str, Any], seed: int) -> Verdict:
    """Both must have seen x being read while it was on its way; and nothing else may be another."""
    if not data["evaluator"] or not data["emulator"]:
        return failed("nothing was caught: this pipeline still waits for x")
    if "the body reads x, which is still in flight" not in data["evaluator"]:
        return failed(f"that is another bug: {data['evaluator']}")
    own = lines_of(compiled_with(inputs(seed), tile=in_blocks).pipelined[0])
    own = [line for line in own if "copy_wait x" not in line]
    for what, one, other in (("is gone too", own, data["lines"]), ("is new", data["lines"], own)):
        if odd := [line for line in one if line not in other]:
            return failed(f"x is not waited for, but that is not all: {odd[0]} {what}")
    if data["lines"] != own:
        return failed("x is not waited for, but that is not all: the other commands stand in another order")
    if ".x is read while a DMA owns it" not in data["emulator"]:
        return failed(f"the emulator met another bug: {data['emulator']}")
    return passed("the evaluator says  " + data["evaluator"], "the emulator says  " + data["emulator"])


# ---- 0.4

def few_blocks(kernel: Kernel, target: Target) -> Kernel:
    """Blocks of 56 of the 200 rows: four steps, as in_blocks makes of all the digits."""
    return kernel.tiled({axis.name: 56 if axis.name == "m" else axis.size for axis in kernel.axes})


def layer_by_layer(graph: Graph, target: Target) -> Module:
    """Fusion that ends each kernel with its dot, so that a buffer lies between two layers."""
    return fuse(graph, replace(target, one_core=False))


def run_epilogue(answer: Callable, case: Case) -> dict[str, Any]:
    """Four steps with two buffers, one and three; and a network whose second kernel finds its input on the
    chip."""
    def mended(kernel: Kernel, resident: tuple[str, ...], depth: int = 2) -> PipelinedKernel:
        made = pipeline(kernel, resident=resident, depth=depth)
        return replace(made, epilogue=answer(kernel, made.depths))

    arrays = inputs(case.seed, FEW_ROWS)
    data: dict[str, Any] = {"waits": {}, "caught": {}}
    for depth in DEPTHS:
        compiled = compiled_with(arrays, tile=few_blocks, pipeline=partial(mended, depth=depth))
        case.show(compiled.pipelined[0])
        waits = [" ".join(str(command).split()) for command in compiled.pipelined[0].epilogue]
        caught = faults(compiled, arrays)
        data["waits"][str(depth)] = waits
        data["caught"][str(depth)] = caught["evaluator"] or caught["emulator"]
        if data["caught"][str(depth)] or misplaced(waits, depth):
            return data  # and the picture is of this one
    with mc.using(pipeline=mended, fuse=layer_by_layer):
        network = mc.compile(mlp.logits, mlp.init(), mc.Tensor(arrays[0]), device="tpu:v5e")
    return data | {"y": compiled.run(arrays)[0], "network": said(network.profile)}


def judge_epilogue(data: Mapping[str, Any], seed: int) -> Verdict:
    """A wait for each copy still on its way, the oldest first, and no other; and the layer is right."""
    for depth in DEPTHS:
        what = misplaced(data["waits"][str(depth)], depth)
        caught = data["caught"][str(depth)]
        if what or caught:
            where = f"with {depth} buffer{'s' if depth > 1 else ''}: "
            machine = [f"the evaluator says  {caught}"] if what and caught else []
            return failed(where + (what or caught), *machine)
    if data.get("network"):
        return failed(f"a network of two layers: {data['network']}")
    return compare("y", data["y"], right(inputs(seed, FEW_ROWS)))


def misplaced(waits: list[str], depth: int) -> str:
    """The first thing that is wrong with the waits of an epilogue for `out`; nothing if they are right."""
    wanted = [f"copy_wait out[{ago}]" for ago in range(-depth, 0)]
    for line in wanted:
        if line not in waits:
            return f"{line} is missing; that block may still be on its way"
    for number, line in enumerate(waits):
        if line not in wanted:
            return f"{line} is one too many: no copy is left that it could wait for"
        if line in waits[:number]:
            return f"{line} stands there twice"
    for line, other in zip(waits, wanted, strict=True):
        if line != other:
            return f"{line} comes too early: {other} began before it, and copies end in the order they began"
    return ""


# ---- 0.5

def run_choice(answer: Any, case: Case) -> dict[str, Any]:
    """The choice alone; it is timed elsewhere."""
    return {"choice": answer}


def timed(choice: Mapping[str, int]) -> tuple[np.ndarray, int]:
    """The wide layer with these blocks and buffers: its answer, and its cycles."""
    def chosen(kernel: Kernel, target: Target) -> Kernel:
        return kernel.tiled({axis.name: choice[axis.name] for axis in kernel.axes})

    def deep(kernel: Kernel, resident: tuple[str, ...]) -> PipelinedKernel:
        return pipeline(kernel, resident=resident, depth=choice["depth"])

    arrays = inputs(hidden=WIDE)
    compiled = compiled_with(arrays, tile=chosen, pipeline=deep)
    y, = compiled.run(arrays)
    return y, profiled(compiled).cycles


def judge_choice(data: Mapping[str, Any], seed: int) -> Verdict:
    """Right first, then few cycles."""
    choice = data["choice"]
    wanted = ("m", "n", "k", "depth")
    if not isinstance(choice, dict) or any(type(choice.get(name)) is not int for name in wanted):
        return failed("the choice needs four whole numbers: m, n, k and depth")
    sizes = {"m": ROWS, "n": WIDE, "k": PIXELS}
    for name, size in sizes.items():
        if not 1 <= choice[name] <= size:
            return failed(f"blocks of {name} are of 1 to {size}, not of {choice[name]}")
    steps = prod(-(-size // choice[name]) for name, size in sizes.items())
    if steps > MOST_STEPS:
        return failed(f"too many cycles: nobody waits for {steps} steps")
    try:
        y, cycles = timed(choice)
    except CompileError as error:
        return failed(str(error).splitlines()[0])
    _, reference = timed(REFERENCE)
    return all_of(compare("y", y, right(inputs(hidden=WIDE))), beat("cycles", cycles, reference, roofline()))


def roofline() -> float:
    """The fewest cycles of the wide layer: the MXUs take one row of each 128 columns a cycle, six times for
    f32; HBM moves each input and output once."""
    mxu = ROWS * (WIDE / 128) * V5E.f32_passes / V5E.mxus
    moved = 4 * (ROWS * PIXELS + PIXELS * WIDE + WIDE + ROWS * WIDE)
    return round(max(mxu, moved / V5E.hbm_bytes_per_cycle))
