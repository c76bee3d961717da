"""What the checks of lesson 0 run and judge: the layer on the digits, with a pass of the learner's in a slot.

Goes in: an answer. Comes out: data from the learner's process, and a verdict from a clean one, which times
again what is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

import minicc as mc
from minicc.compiler import Compiled
from minicc.errors import CompileError, MiniccError
from minicc.frontend.datasets import digits
from minicc.frontend.models import mlp
from minicc.kernel.cost import Target
from minicc.kernel.evaluate import allocate, evaluate_pipelined
from minicc.kernel.ir import Kernel
from minicc.kernel.pipeline import PipelinedKernel, pipeline
from minicc.lessons.course import Case
from minicc.lessons.verdicts import Verdict, all_of, beat, compare, failed, passed, predicted
from minicc.report import TPUProfile
from minicc.tpu.machine import V5E

ROWS, PIXELS, HIDDEN, WIDE = 1797, 64, 128, 512
STEPS = {"m": 512, "n": HIDDEN, "k": PIXELS}
REFERENCE = {"m": 600, "n": 512, "k": 64, "depth": 2}
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

def run_forgetful(answer: Callable, case: Case) -> dict[str, Any]:
    """What catches the learner's broken pipeline."""
    arrays = inputs(case.seed)
    compiled = compiled_with(arrays, tile=in_blocks, pipeline=answer)
    case.show(compiled.pipelined[0])
    return faults(compiled, arrays)


def judge_forgetful(data: Mapping[str, Any], seed: int) -> Verdict:
    """Both must have seen x being read while it was on its way."""
    if not data["evaluator"] or not data["emulator"]:
        return failed("nothing was caught: this pipeline still waits for x")
    if "the body reads x, which is still in flight" not in data["evaluator"]:
        return failed(f"that is another bug: {data['evaluator']}")
    return passed("the evaluator says  " + data["evaluator"], "the emulator says  " + data["emulator"])


# ---- 0.4

def run_epilogue(answer: Callable, case: Case) -> dict[str, Any]:
    """The layer in four steps, and a network whose second kernel finds its input on the chip."""
    def mended(kernel: Kernel, resident: tuple[str, ...]) -> PipelinedKernel:
        made = pipeline(kernel, resident=resident)
        return replace(made, epilogue=answer(kernel, made.depths))

    arrays = inputs(case.seed)
    compiled = compiled_with(arrays, tile=in_blocks, pipeline=mended)
    case.show(compiled.pipelined[0])
    caught = faults(compiled, arrays)
    if caught["evaluator"] or caught["emulator"]:
        return caught | {"y": None}
    with mc.using(pipeline=mended):
        network = mc.compile(mlp.logits, mlp.init(), mc.Tensor(arrays[0]), device="tpu:v5e")
    return caught | {"y": compiled.run(arrays)[0], "network": said(network.profile)}


def judge_epilogue(data: Mapping[str, Any], seed: int) -> Verdict:
    """Nothing caught, on either; and the layer is right."""
    for who in ("evaluator", "emulator", "network"):
        if data.get(who):
            return failed(data[who])
    return compare("y", data["y"], right(inputs(seed)))


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
