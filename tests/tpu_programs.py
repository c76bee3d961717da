"""The hand-written TPU programs of tests/programs, run on random inputs, and broken on purpose."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np

import minicc as mc
from minicc.errors import MachineFault
from minicc.tools.bench import Adapter
from minicc.tools.workloads import TINY
from minicc.tpu import emulator
from minicc.tpu.emulator import Run, run
from minicc.tpu.isa import Program
from minicc.tpu.text import parse

PROGRAMS = Path(__file__).parent / "programs"
NAMES = tuple(sorted(path.stem for path in PROGRAMS.glob("*.txt")))


def text(name: str) -> str:
    """The text of one of the programs."""
    return (PROGRAMS / f"{name}.txt").read_text(encoding="utf-8")


def random_inputs(program: Program) -> dict[str, np.ndarray]:
    """Standard normal numbers for each input."""
    random = np.random.default_rng(0)
    return {b.name: random.normal(size=b.shape).astype(np.float32) for b in program.hbm if b.role == "input"}


def run_both(program: Program, inputs: dict[str, np.ndarray], **options: bool | int) -> Run:
    """Run a program leaping over all of its blocks, and step by step: the same in every bit, or the same
    fault."""
    with mock.patch.object(emulator, "HOT", 1):
        leapt, stepped = (_outcome(program, inputs, stepping=way, **options) for way in (False, True))
    assert type(leapt) is type(stepped)
    if not isinstance(leapt, Run) or not isinstance(stepped, Run):
        assert str(leapt) == str(stepped)
        raise stepped  # type: ignore[misc]
    for field in (field.name for field in fields(Run) if field.name != "outputs"):
        assert getattr(leapt, field) == getattr(stepped, field), field
    for name, array in stepped.outputs.items():
        assert leapt.outputs[name].tobytes() == array.tobytes(), name
    return leapt


def _outcome(program: Program, inputs: dict[str, np.ndarray], **options: bool | int) -> Run | MachineFault:
    try:
        return run(program, inputs, **options)  # type: ignore[arg-type]
    except MachineFault as fault:
        return fault


def run_text(source: str, file: str = "", **options: bool | int) -> tuple[dict[str, np.ndarray], Run]:
    """Assemble and run a text, in both ways. Returns: its inputs as float64, and the run."""
    program = parse(source, file)
    inputs = random_inputs(program)
    result = run_both(program, inputs, **options)
    return {name: array.astype(np.float64) for name, array in inputs.items()}, result


def tiny(name: str) -> None:
    """Run one of the bench's small programs on the emulated TPU, through the public face."""
    workload = TINY[name]
    arrays = workload.make(np.random.default_rng(0), **workload.sizes)
    params, data = ([mc.Tensor(array) for array in group] for group in arrays)
    mc.compile(partial(workload.run, Adapter), params, data, device="tpu:v5e")(params, data)


def fault_of(source: str, **options: bool | int) -> MachineFault:
    """The fault that a text ends in."""
    try:
        run_text(source, "program.txt", **options)
    except MachineFault as fault:
        return fault
    raise AssertionError("the program ran without a fault")


def broken(name: str, old: str, new: str) -> str:
    """A program's text with one thing changed."""
    source = text(name)
    assert source.count(old) == 1, f"{old!r} is there {source.count(old)} times"
    return source.replace(old, new)


def with_header(*bundles: str) -> str:
    """A small program of these bundles: x[8,128] and y[8,128] in HBM, xb and yb in VMEM, one semaphore."""
    return "\n".join((
        "hbm x: f32[8,128] input", "hbm y: f32[8,128] output",
        "vmem xb: f32 rows=8 base=0x0", "vmem yb: f32 rows=16 base=0x8", "semaphore sem: 1", *bundles))


WAIT = "{ dma.done.wait [sem] }"
COPY_IN = ("{ dma.hbm_to_vmem [xb], [x], [sem] shape=(8, 128) strides=(128, 1) panel=8 }", WAIT)
COPY_OUT = ("{ dma.vmem_to_hbm [y], [yb], [sem] shape=(8, 128) strides=(128, 1) panel=8 }", WAIT, "{ shalt }")
