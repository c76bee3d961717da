"""A whole module as GPU kernels: one launch each, in two executions of the same tiled kernels.

    program.run(buffers)        vector mode: numpy over many blocks at once; fast
    program.run_lane(buffers)   lane mode: every thread of the SIMT lowering, counted and checked

Goes in: a Module of tiled kernels. Comes out: a GPUProgram, which prints as CUDA C. Both runs fill the
outputs into the buffers they are given. Read next: vector.py and lower.py.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from minicc.gpu.arena import Arena
from minicc.gpu.cuda import cuda_text, preamble
from minicc.gpu.ir import SimtKernel
from minicc.gpu.lower import lower
from minicc.gpu.machine import GPUSpec
from minicc.gpu.simt import run_lane
from minicc.gpu.traffic import LaneReport
from minicc.gpu.vector import vector_kernel
from minicc.kernel.ir import Module
from minicc.trace import Step

Buffers = MutableMapping[str, np.ndarray]


@dataclass
class GPUProgram:
    """A module's kernels for a GPU. vector: as numpy functions."""

    module: Module
    spec: GPUSpec

    def __post_init__(self) -> None:
        self.vector = tuple(map(vector_kernel, self.module.kernels))
        self.made = {op.buffer: op.type for kernel in self.module.kernels for op in kernel.outputs}
        self.outputs = self.made.keys() & {name for name, _ in self.module.outputs}
        self.updated = self.made.keys() & {name for name, _ in self.module.inputs}
        self.arena = Arena(self.module.kernels, [kernel.needs for kernel in self.vector], self.outputs)
        self.calls = [(kernel.function, [f"{number}.{i}" for i in range(len(kernel.needs))])
                      for number, kernel in enumerate(self.vector)]

    @cached_property
    def simt(self) -> tuple[SimtKernel, ...]:
        """The kernels as SIMT code; lowered when first asked for, since vector mode does not need it."""
        return tuple(lower(kernel) for kernel in self.module.kernels)

    def run(self, buffers: Buffers) -> None:
        """Run every kernel in vector mode. buffers: the inputs by name; the outputs are added."""
        memory, temporaries = self.arena.take()
        self._allocate(buffers, self.outputs)
        arrays = {name: np.ascontiguousarray(array) for name, array in buffers.items()} | temporaries
        with np.errstate(all="ignore"):  # 1 / 0 is inf, as it is on the machine
            for function, needs in self.calls:
                function(arrays, *[arrays[name] for name in needs])
        self.arena.give(memory)

    def run_lane(self, buffers: Buffers) -> list[LaneReport]:
        """Run every kernel thread by thread. buffers: as above, and temporaries are added too.

        Raises: MachineFault for a race or an uninitialised read.
        """
        self._allocate(buffers, self.made)
        return [run_lane(kernel, buffers, self.spec) for kernel in self.simt]

    def _allocate(self, buffers: Buffers, names: Iterable[str]) -> None:
        for name in names:
            made = self.made[name]
            buffers[name] = (buffers[name].copy() if name in self.updated else
                             np.empty(made.shape, made.dtype.numpy))

    @property
    def source(self) -> str:
        """The numpy source of vector mode."""
        return "\n\n".join(kernel.source for kernel in self.vector)

    def __str__(self) -> str:
        text = "\n".join(map(cuda_text, self.simt))
        return preamble(text) + text


def lower_gpu(module: Module, spec: GPUSpec, *, log: list[Step] | None = None) -> GPUProgram:
    """The kernels of a module as a program for a GPU."""
    return GPUProgram(module, spec)
