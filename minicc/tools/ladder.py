"""`minicc bench --ladder tpu`: what each idea of the compiler is worth, one added after the other.

    $ minicc bench --ladder tpu --only b_softmax
    b_softmax_1024    cycles    step  of bound  kernels  where the cycles go
    naive             343429            21.81x        5  dma 45%, register 29%, vector 16%
    fused             122118   2.81x     7.75x        1  dma 52%, register 24%, vector 22%
    tiled              79676   1.53x     5.06x        1  register 39%, vector 37%, dma 21%
    pipelined          71899   1.11x     4.57x        1  register 43%, vector 41%, dma 12%
    scheduled          19845   3.62x     1.26x        1  vector 45%, dma 42%, register 7%
    overlapped         18393   1.08x     1.17x        1  dma 46%, vector 43%, register 7%
    tuned              17074   1.08x     1.08x        1  vector 46%, dma 42%, register 8%

Goes in: programs of workloads.py and a TPU. Comes out: for each program a table, and on request a picture, of
the cycles at each rung. A rung is the real compiler with passes of its own in some slots, and options; the
first has a kernel for each op, in the smallest blocks, which are copied in, worked on and copied out in turn,
one instruction to a bundle. Every rung above hands one of these back to the compiler. Invariant: every rung
computes what numpy does. S. Boehm's ladder of a CUDA matmul is climbed by hand; oracles.py holds ours against
it. Read next: slots.py, whose slots these are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from minicc.devices import find
from minicc.errors import CompileError
from minicc.frontend.jit import compile as compile_function
from minicc.frontend.tensor import Tensor
from minicc.graph.ir import Graph, Value
from minicc.kernel.alike import LEAVES
from minicc.kernel.cost import Target
from minicc.kernel.fuse import SPREAD, fuse
from minicc.kernel.ir import Kernel, Module
from minicc.kernel.memory import MemoryPlan
from minicc.kernel.pipeline import PipelinedKernel, pipeline
from minicc.kernel.tile import candidates
from minicc.report import TPUProfile, gathered
from minicc.slots import using
from minicc.tools import commands
from minicc.tools.by_hand import by_hand
from minicc.tools.output import write_file
from minicc.tools.workloads import Workload
from minicc.tpu.isa import Program
from minicc.tpu.lower import lower
from minicc.tpu.machine import TPUSpec
from minicc.tpu.schedule import schedule

PROGRAMS = ("b_softmax_1024", "d_matmul_256", "e_attention_512x64", "g_gpt_fwd")  # unless others are named
SHOWN_CAUSES = 3
VIEWS = (*SPREAD, *LEAVES, "reshape", "transpose", "slice", "reverse")  # where to read, not what to do


# ---- the passes of the lower rungs ----

def op_by_op(graph: Graph, target: Target) -> Module:
    """A kernel for each op, as if every result were asked for, on a machine that stores one from a kernel."""
    results = tuple(Value(node, 0) for node in graph.nodes() if node.op not in VIEWS)
    module = fuse(replace(graph, outputs=graph.outputs + results), replace(target, one_core=False))
    return replace(module, outputs=module.outputs[:len(graph.outputs)])


def smallest(kernel: Kernel, target: Target) -> Kernel:
    """The blocks that take the least memory."""
    return kernel.tiled(min(candidates(kernel, target), key=lambda one: one.fast_bytes).blocks)


def in_turn(kernel: Kernel, resident: tuple[str, ...] = ()) -> PipelinedKernel:
    """Each block is copied in, worked on and copied out before the next one comes."""
    return pipeline(kernel, resident=resident, depth=1)


def alone(pipelined: Sequence[PipelinedKernel], module: Module, plan: MemoryPlan, spec: TPUSpec) -> Program:
    """Each kernel copies in its own time."""
    return lower(pipelined, module, plan, spec, reach=0)


def one_by_one(program: Program, spec: TPUSpec) -> Program:
    """An instruction to a bundle, in the order of the code."""
    return program


def by_blocks(program: Program, spec: TPUSpec) -> Program:
    """Bundles, but no round of a loop begins before the one before it has ended."""
    return schedule(program, spec, overlap=False)


# ---- the rungs ----

class Rung(NamedTuple):
    """The compiler with some passes replaced. tune: whether tiles are measured."""

    name: str
    passes: Mapping[str, Callable] = {}
    tune: bool = False


UNSCHEDULED: dict[str, Callable] = {"schedule": one_by_one}
SERIAL: dict[str, Callable] = {"pipeline": in_turn, "lower": alone, **UNSCHEDULED}
RUNGS = (
    Rung("naive", {"fuse": op_by_op, "tile": smallest, **SERIAL}),
    Rung("fused", {"tile": smallest, **SERIAL}),
    Rung("tiled", SERIAL),
    Rung("pipelined", UNSCHEDULED),
    Rung("scheduled", {"schedule": by_blocks}),
    Rung("overlapped"),
    Rung("tuned", tune=True),
)


@dataclass(frozen=True)
class Step:
    """A rung of one program's ladder. off: the largest error, relative to the largest of its output."""

    program: str
    rung: str
    kernels: int
    profile: TPUProfile = field(repr=False)
    off: float = 0.0

    @property
    def times(self) -> float:
        """How many times the bound it takes."""
        return self.profile.cycles / self.profile.least.cycles

    def shares(self) -> dict[str, float]:
        """cause -> cycles, the waits for all DMAs together, most first."""
        return gathered(self.profile.causes)

    def row(self) -> dict[str, object]:
        """What `--json` has of it."""
        return {"workload": self.program, "rung": self.rung, "cycles": self.profile.cycles,
                "kernels": self.kernels, "bound_cycles": round(self.profile.least.cycles),
                "causes": self.shares(), "error": self.off}


def climb(name: str, workload: Workload, library: type, device: str,
          precision: str = "f32") -> Iterator[Step]:
    """The rungs of one program, from the lowest up.

    library: minicc by the vocabulary of the workloads. Raises: CompileError for a device that is no TPU.
    """
    if not isinstance(find(device).spec, TPUSpec):
        raise CompileError("bench", "a ladder is climbed on a TPU", got=device, need="a tpu")
    params, data = workload.make(np.random.default_rng(0), **workload.sizes)
    tensors = [[Tensor(array) for array in arrays] for arrays in (params, data)]
    want = by_hand(workload)(*([array.astype(np.float64) for array in arrays] for arrays in (params, data)))
    for rung in RUNGS:
        with using(**rung.passes):
            program = compile_function(partial(workload.run, library), *tensors, device=device,
                                       precision=precision, tune=rung.tune)
            got = program(*tensors)
        off = max(float(np.abs(ours.numpy() - right).max() / np.abs(right).max())
                  for ours, right in zip(got, want, strict=True))
        yield Step(name, rung.name, len(program.module.kernels), program.profile(), off)


def table(steps: list[Step]) -> list[str]:
    """One program's ladder: each rung beside the one below it, and beside the least of any program."""
    first = steps[0].program
    width = max(len(first), *(len(step.rung) for step in steps))
    lines = [f"{first:{width}}{'cycles':>10}{'step':>8}{'of bound':>10}{'kernels':>9}  where the cycles go"]
    for below, step in zip([None, *steps], steps, strict=False):
        cycles = step.profile.cycles
        faster = f"{below.profile.cycles / cycles:.2f}x" if below else ""
        most = [f"{cause} {spent / cycles:.0%}" for cause, spent in step.shares().items()][:SHOWN_CAUSES]
        lines.append(f"{step.rung:{width}}{cycles:10}{faster:>8}{step.times:9.2f}x"
                     f"{step.kernels:9}  {', '.join(most)}")
    return lines


def draw(steps: list[Step], path: Path) -> Path:
    """Draw one program's ladder, as .svg or .png; returns the path."""
    rungs = [(f"{step.rung} {step.profile.cycles:,}", step.times) for step in steps]
    drawing = commands.open_viz().draw_ladder(steps[0].program, rungs)
    return write_file(path, drawing.svg() if path.suffix == ".svg" else drawing.png())
