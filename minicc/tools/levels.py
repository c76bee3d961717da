"""Every level of a program, run: the answer of the graph, the kernels, the pipelines, the code, the machine.

    LEVELS["tile"]["tiled kernels"](levels, inputs)  ->  [the outputs]

Goes in: a compile as far as it has come, and the graph's inputs. Comes out: the outputs, as that level means
them. Since each level has a meaning of its own, a difference between two neighbours lies in the pass between
them. Code is run before it is scheduled, one instruction to a bundle, and before registers are allocated, on
a machine with registers for all. CompCert proves, for each of its levels, what is tried here. Read next:
bisect.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from minicc.compiler import Compiled, Levels
from minicc.graph.evaluate import evaluate
from minicc.kernel.evaluate import allocate, evaluate_kernel, evaluate_pipelined
from minicc.kernel.evaluate import evaluate as evaluate_kernels
from minicc.kernel.memory import Placement
from minicc.tpu.isa import Program

POISON = 255  # in each byte: nan in every float
PLENTY = 10**7  # registers and bundles of the machine that runs code before registers are allocated

Arrays: TypeAlias = Sequence[np.ndarray]


def _named(at: Levels, inputs: Arrays) -> dict[str, np.ndarray]:
    return {name: array for (name, _), array in zip(at.module.inputs, inputs, strict=True)}


def _planned(at: Levels, inputs: Arrays) -> list[np.ndarray]:
    """The kernels, in the memory that the plan gives them: what one writes, and what is fetched, destroys all
    that lies there."""
    buffers, near, plan = allocate(at.module, _named(at, inputs)), dict[str, np.ndarray](), at.plan
    for old, new in at.module.donated.items():
        buffers[old] = buffers[old].copy()
        if new:  # one array for both: what a step writes, those behind it read
            buffers[new] = buffers[old].reshape(buffers[new].shape)

    def destroy(place: Placement) -> None:
        for other in plan.sharing(place):
            held = near if other is plan.fetched.get(other.buffer) else buffers
            if other.buffer in held and at.module.donated.get(other.buffer) != place.buffer:
                held[other.buffer].reshape(-1).view(np.uint8).fill(POISON)

    for number, kernel in enumerate(at.module.kernels):
        for name, place in plan.fetched.items():
            if place.first == number:
                near[name] = buffers[name].copy()
                destroy(place)
        with np.errstate(all="ignore"):
            evaluate_kernel(kernel, buffers | near)
        for operand in kernel.outputs:
            destroy(plan.placements[operand.buffer])
    return [buffers[name].reshape(type.shape) for name, type in at.module.outputs]


def _pipelines(at: Levels, inputs: Arrays) -> list[np.ndarray]:
    buffers = allocate(at.module, _named(at, inputs))
    for pipelined in at.pipelined:
        evaluate_pipelined(pipelined, buffers)
    return [buffers[name].reshape(type.shape) for name, type in at.module.outputs]


def _machine(at: Levels, inputs: Arrays, mode: str = "vector") -> list[np.ndarray]:
    return Compiled(at.graph, at.device.name, mode, at, ()).run(inputs)


def _virtual(at: Levels, inputs: Arrays, code: Program) -> list[np.ndarray]:
    spec = replace(code.machine, vregs=PLENTY, sregs=PLENTY, mregs=PLENTY, instruction_bundles=PLENTY)
    return _machine(replace(at, program=replace(code, machine=spec)), inputs)


# pass -> what can be run once it is done, and how
LEVELS: Mapping[str, Mapping[str, Callable[[Levels, Arrays], list[np.ndarray]]]] = {
    "simplify": {"graph": lambda at, inputs: evaluate(at.graph, inputs)},
    "legalize": {"graph": lambda at, inputs: evaluate(at.graph, inputs)},
    "fuse": {"kernels": lambda at, inputs: evaluate_kernels(at.module, _named(at, inputs))},
    "tile": {"tiled kernels": lambda at, inputs: evaluate_kernels(at.module, _named(at, inputs))},
    "plan": {"planned kernels": _planned},
    "pipeline": {"pipelines": _pipelines},
    "lower": {"assembly": lambda at, inputs: _virtual(at, inputs, at.assembly)},
    "schedule": {"bundles": lambda at, inputs: _virtual(at, inputs, at.scheduled)},
    "allocate": {"program": _machine},
    "lower_gpu": {"vector mode": _machine, "lane mode": lambda at, inputs: _machine(at, inputs, "lane")},
}
