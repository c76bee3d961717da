"""Tuning: the tiles that the model likes best, each run on the machine; what took fewest cycles stays.

    measured m=512 x n=128 x k=512: 14,020 cycles, 12,876 predicted
    measured m=256 x n=256 x k=512: 13,310 cycles, 13,121 predicted      this one, then

Goes in: a Module of tiled kernels, and `measure`, which compiles a module for the machine and runs it. Comes
out: the module with other blocks. Each kernel is measured alone, its operands in main memory; then the whole
program with all choices, which stay only if it takes fewer cycles than before. Invariants: blocks whose
values differ from what the kernel means, or that do not run, are never chosen; what was measured is
remembered under the kernel's text and the machine (tune_cache.py), so that a program is tuned once. Kernels
that change a buffer in place are left as they are.

The emulator's cycles are exact and the same each time, which no real machine's are: Triton's autotuner and
tinygrad's BEAM measure several times and take the best. Read next: tile.py, whose candidates these are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from minicc.errors import MiniccError
from minicc.graph.dtypes import DType, decode, encode
from minicc.graph.ir import BF16, BOOL, F16, Type
from minicc.kernel.alike import Made
from minicc.kernel.cost import Target, cost
from minicc.kernel.evaluate import evaluate
from minicc.kernel.ir import Kernel, Module
from minicc.kernel.tile import candidates
from minicc.kernel.tune_cache import Cache
from minicc.trace import Step

Measure: TypeAlias = Callable[[Module, Mapping[str, np.ndarray]], tuple[int, Sequence[np.ndarray]]]
Trial = dict[str, Any]  # {"blocks": {axis: elements}, "cycles": how many, or None if it computes nonsense}

MOST_TRIALS = 4  # blocks that are run for each kernel
TOLERANCE = {F16: 1e-2, BF16: 5e-2}  # of the largest value; other floats 1e-3, whole numbers none


def tune(
    module: Module, target: Target, machine: str, measure: Measure, *, cache: Cache | None = None,
    log: list[Step] | None = None,
) -> Module:
    """Give each kernel the blocks that take fewest cycles on the machine, if that makes the program faster.

    machine: everything that the cycles depend on, as text. measure: cycles and outputs of a module, for its
    inputs. cache: what was measured before.
    """
    cache, log = cache or Cache(None), [] if log is None else log
    try_out = partial(_tuned, module=module, target=target, machine=machine, measure=measure, cache=cache)
    tuned = replace(module, kernels=tuple(try_out(kernel, log=log) for kernel in module.kernels))
    changed = [old.name for old, new in zip(module.kernels, tuned.kernels, strict=True) if old != new]
    if not changed or len(module.kernels) == 1:
        return tuned
    arrays = _arrays(module)
    before, after = cache.remembered(
        f"{module}\n{tuned}\n{machine}", lambda: [measure(one, arrays)[0] for one in (module, tuned)],
        lambda found: isinstance(found, list) and len(found) == 2 and all(isinstance(n, int) for n in found))
    why = f"{after:,} cycles for the program, {before:,} with the tiles predicted best"
    log.append(Step(f"other blocks for {', '.join(changed)}", after < before, why))
    return tuned if after < before else module


def _tuned(
    kernel: Kernel, module: Module, target: Target, machine: str, measure: Measure, cache: Cache,
    log: list[Step],
) -> Kernel:
    """One kernel in its best blocks; its own are among those tried."""
    if any(operand.in_place for operand in kernel.outputs):
        return kernel
    own = {axis.name: axis.block for axis in kernel.axes}
    wanted = [dict(one.blocks) for one in candidates(kernel, target)]
    wanted = [own, *(blocks for blocks in wanted if blocks != own)][:MOST_TRIALS]
    if len(wanted) == 1:
        return kernel
    trials: list[Trial] = cache.remembered(
        f"{_nameless(kernel)}\n{wanted}\n{machine}", lambda: _trials(kernel, module, wanted, measure),
        lambda found: _well_formed(found, wanted))
    right = [trial for trial in trials if trial["cycles"] is not None]
    best = min(right, key=lambda trial: trial["cycles"], default=None)
    about = tuple(operand.buffer for operand in kernel.outputs)
    for trial in trials:
        blocks = " x ".join(f"{name}={size}" for name, size in trial["blocks"].items())
        predicted = f"{cost(kernel.tiled(trial['blocks']), target).cycles:,.0f} predicted"
        found = "its values are wrong" if trial["cycles"] is None else f"{trial['cycles']:,} cycles"
        log.append(Step(f"measured {blocks}", trial is best, f"{found}, {predicted}", about))
    return kernel.tiled(best["blocks"]) if best else kernel


def _trials(
    kernel: Kernel, module: Module, wanted: Sequence[Mapping[str, int]], measure: Measure
) -> list[Trial]:
    """Run a kernel in each of these blocks, and hold what it computes to what it means."""
    alone = _alone(kernel, module)
    arrays = _arrays(alone)
    want = evaluate(alone, arrays, float64=True)
    trials: list[Trial] = []
    for blocks in wanted:
        cycles, right = 0, False
        with suppress(MiniccError):
            cycles, got = measure(replace(alone, kernels=(kernel.tiled(blocks),)), arrays)
            pairs = zip(got, want, alone.outputs, strict=True)
            right = all(_close(mine, meant, type.dtype) for mine, meant, (_, type) in pairs)
        trials.append({"blocks": dict(blocks), "cycles": cycles if right else None})
    return trials


def _alone(kernel: Kernel, module: Module) -> Module:
    """A program of one kernel. What it reads are inputs, but for the module's constants."""
    reads = {operand.buffer: operand.type for operand in kernel.reads}
    constants = {name: value for name, value in module.constants.items() if name in reads}
    inputs = tuple((name, type) for name, type in reads.items() if name not in constants)
    outputs = tuple((operand.buffer, operand.type) for operand in kernel.outputs)
    return Module(kernel.name, (kernel,), inputs, outputs, constants)


def _arrays(module: Module) -> dict[str, np.ndarray]:
    """Inputs for a module: numbers around 1, of which roots and logarithms exist, all different."""
    generator = np.random.default_rng(0)
    return {name: _array(type, generator) for name, type in module.inputs}


def _array(type: Type, generator: np.random.Generator) -> np.ndarray:
    if type.dtype is BOOL:
        return generator.random(type.shape) < 0.5
    if type.dtype.kind == "i":
        return generator.integers(0, 10, type.shape).astype(type.dtype.numpy)
    return encode(generator.uniform(0.5, 1.5, type.shape), type.dtype)


def _close(got: np.ndarray, want: np.ndarray, dtype: DType) -> bool:
    """Whether two arrays, in stored form, hold the same numbers but for rounding."""
    if dtype.kind != "f":
        return bool(np.array_equal(np.ravel(got), np.ravel(want)))
    mine, right = (np.ravel(decode(array, dtype) if array.dtype == dtype.numpy else array).astype(np.float64)
                   for array in (got, want))
    size = np.abs(right[np.isfinite(right)]).max(initial=0.0)
    return bool(np.allclose(mine, right, rtol=0, atol=TOLERANCE.get(dtype, 1e-3) * size, equal_nan=True))


def _nameless(kernel: Kernel) -> str:
    """A kernel's text without its own names: those of the next layer's are others."""
    names = dict.fromkeys(operand.buffer for operand in (*kernel.reads, *kernel.outputs))
    buffers = {name: f"b{number}" for number, name in enumerate(names)}
    bare = kernel.mapped(lambda block: replace(block, locs=()))
    return str(Made(bare, 0.0, buffers, []).kernel.renamed(""))


def _well_formed(found: Any, wanted: Sequence[Mapping[str, int]]) -> bool:
    """Whether what was remembered are trials of these blocks."""
    return (isinstance(found, list) and all(isinstance(trial, dict) and {*trial} == {"blocks", "cycles"} and
                                            isinstance(trial["cycles"], int | None) for trial in found)
            and [trial["blocks"] for trial in found] == list(wanted))
