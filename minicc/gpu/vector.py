"""Vector mode: a kernel as one Python function of numpy calls, which is the fast way to run it on this CPU.

    kernel dot_add_maximum                              def dot_add_maximum(buffers):
      always: y = maximum(add(dot(x, w, k), b), 0.0)        x = buffers['x'].reshape(128, 784)
                                                    ->      ...
                                                            matmul(x, w, out=y)
                                                            add(y, b, out=y)
                                                            maximum(y, 0.0, out=y)

Goes in: any legal Kernel. Comes out: a VectorKernel, whose source is there to be read, and whose `run`
fills the outputs among the buffers it is given. Its tiles are its own choice (chunks.py). Invariants:
- The text is made from the kernel's structure only; names are made safe, and no text of a user's is ever
  compiled.
- A value is a numpy array with one dimension per axis it varies over, in the kernel's order.
- Nothing is copied that a view can express (views.py); every op writes into its output, or into an array it
  may reuse.

numexpr and XLA's CPU backend do the same with compiled loops; numpy's calls are loops that someone compiled
already. Read next: emit.py, which writes the function's lines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from minicc.gpu.calls import CALLS, safe_name
from minicc.gpu.chunks import chunked
from minicc.gpu.emit import emit_source
from minicc.kernel.ir import Kernel

Buffers = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class VectorKernel:
    """A compiled kernel. function: the bare function, for callers that have silenced numpy's warnings."""

    name: str
    source: str
    function: Callable[[Buffers], None]

    def run(self, buffers: Buffers) -> None:
        """Compute the outputs in place. buffers: contiguous arrays by name, inputs and outputs."""
        with np.errstate(all="ignore"):  # 1 / 0 is inf, as it is on the machine
            self.function(buffers)

    def __str__(self) -> str:
        return self.source


def vector_kernel(kernel: Kernel, chunk_elements: int = 0) -> VectorKernel:
    """Compile a kernel to numpy. chunk_elements: see chunks.py; 0 for the usual.

    Raises: OutOfRangeError if an operand leaves its array and has no fill.
    """
    source = emit_source(chunked(kernel, chunk_elements))
    namespace: dict[str, Any] = dict(CALLS)
    exec(compile(source, f"<vector {kernel.name}>", "exec"), namespace)
    return VectorKernel(kernel.name, source, namespace[safe_name(kernel.name)])
