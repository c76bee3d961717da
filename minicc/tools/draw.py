"""`minicc draw`: a program's levels as pictures, SVG and PNG.

Goes in: a program and a folder. Comes out: graph, kernels, the map of the memory, and on a device whose
copies are explicit a pipeline for each kernel and what the machine did when; or one of these. How they look
is the business of viz/. Read next: viz/graph.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from minicc.compiler import Compiled
from minicc.errors import CompileError
from minicc.tools import commands, programs
from minicc.tools.output import emit, write_file
from minicc.tpu.emulator import run as run_tpu
from minicc.tpu.isa import Program

EXAMPLE = "minicc draw -c 'relu(rand(64,32) @ rand(32,16))' --device tpu -o out/"
PIPELINES = 8  # pictures of so many kernels at most


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    programs.arguments(parser)
    parser.add_argument("--level", choices=LEVELS, help="draw this one only (default: all)")
    parser.add_argument("-o", "--output", metavar="FOLDER", default="out", help="where to (default: out/)")


def run(options: argparse.Namespace) -> int:
    """Draw every compile of the program and list the files."""
    found = [loaded.compiled for loaded in programs.load(options)]
    viz = commands.open_viz()
    files = []
    for number, compiled in enumerate(found):
        below = f"{number}-{compiled.graph.name}" if len(found) > 1 else ""
        files += draw_all(viz, compiled, Path(options.output) / below, options.level)
    options.output = None  # the list itself goes to the terminal
    emit("\n".join(map(str, files)), [str(file) for file in files], options)
    return 0


def machine_inputs(compiled: Compiled) -> dict[str, np.ndarray]:
    """Random inputs for a look at the machine; how long a program takes does not depend on its data."""
    generator = np.random.default_rng(0)
    inputs = {name: programs.random_array(type, generator) for name, type in compiled.kernels.inputs}
    return {**compiled.kernels.constants, **inputs}


def _pipelines(viz: ModuleType, compiled: Compiled) -> Iterator[Any]:
    for number, pipelined in enumerate(compiled.pipelined[:PIPELINES]):
        suffix = f"-{number}" if len(compiled.pipelined) > 1 else ""
        yield viz.draw_pipeline(pipelined, f"pipeline{suffix}")


def _timeline(viz: ModuleType, compiled: Compiled) -> Iterator[Any]:
    if isinstance(compiled.program, Program):
        report = run_tpu(compiled.program, machine_inputs(compiled), trace=True)
        title = f"{compiled.graph.name} on {compiled.device}, emulated: {report.cycles:,} cycles"
        yield viz.draw_events(report.events, title)


LEVELS: dict[str, Callable[[ModuleType, Compiled], Iterator[Any]]] = {
    "graph": lambda viz, compiled: iter([viz.draw_graph(compiled.graph)]),
    "kernels": lambda viz, compiled: iter([viz.draw_kernels(
        compiled.kernels, placements={**compiled.plan.placements, **compiled.plan.fetched})]),
    "memory": lambda viz, compiled: iter([viz.draw_memory(compiled.memory)]),
    "pipeline": _pipelines,
    "timeline": _timeline,
}


def draw_all(viz: ModuleType, compiled: Compiled, folder: Path, level: str | None = None) -> list[Path]:
    """Draw every level of one program, or one, into a folder; returns the files."""
    files = []
    for drawing in (drawing for name, draw in LEVELS.items() if level in (None, name)
                    for drawing in draw(viz, compiled)):
        for form, data in (("svg", drawing.svg()), ("png", drawing.png())):
            files.append(write_file(folder / f"{drawing.name}.{form}", data))
    if not files:
        what = "only a TPU's copies are explicit, and its cycles drawn"
        raise CompileError("draw", what, got=f"{level} of {compiled.device}", hint="--device tpu")
    return files
