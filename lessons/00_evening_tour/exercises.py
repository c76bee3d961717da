"""Exercises of lesson 0: The evening tour

What happens between relu(x @ w + b) and the wires of a chip? The page beside this file says what to do;
`minicc learn check 0` looks at what you wrote.
"""

# ruff: noqa: F401, I001  you will need what is imported here
from collections.abc import Mapping
from dataclasses import replace

import minicc as mc
from minicc.frontend.datasets import digits
from minicc.kernel.cost import Target
from minicc.kernel.ir import Kernel
from minicc.kernel.pipeline import Command, PipelinedKernel, Verb, pipeline


def layer(x: mc.Tensor, w: mc.Tensor, b: mc.Tensor) -> mc.Tensor:
    """What this evening is about."""
    return (x @ w + b).relu()


# ---- 0.1 predict: Four numbers (8 minutes)
# layer(x, w, b) for x: f32[1797,64] (all the digits), w: f32[64,128], b: f32[128], on "tpu:v5e".
# kernels: how many it becomes. hbm_bytes: how many bytes cross between HBM and the chip, both ways.
# cycles: how long it takes, at 1.5 GHz. bound_by: which resource needs longest, "mxu" or "hbm".
prediction = {"kernels": None, "hbm_bytes": None, "cycles": None, "bound_by": None}


# ---- 0.2 build: Change a tile (12 minutes)
def four_blocks(kernel: Kernel, target: Target) -> Kernel:
    """The kernel with its axis m in four blocks, and every other axis whole.

    A block is a multiple of target.rows, and no larger than it must be; the last one may be smaller.
    kernel.axis("m").size is the number of rows; kernel.tiled({"m": 96, "n": 128, "k": 64}) sets blocks.
    """
    return kernel


# ---- 0.3 find: Break a wait (10 minutes)
def forgetful(kernel: Kernel, resident: tuple[str, ...]) -> PipelinedKernel:
    """The compiler's own pipeline, but for one thing: nobody waits for x.

    A PipelinedKernel is frozen; dataclasses.replace(made, steady=...) makes one that differs.
    """
    made = pipeline(kernel, resident=resident)
    return made


# ---- 0.4 find: Fix an epilogue (12 minutes)
def epilogue(kernel: Kernel, depths: Mapping[str, int]) -> tuple[Command, ...]:
    """What remains after the last step: a wait for each copy that is still on its way out.

    depths: operand -> how many buffers it has. An operand that is not there is never copied. This one was
    tested on a kernel of one step. It passed.
    """
    return tuple(Command(Verb.WAIT, op.name, -1) for op in kernel.outputs if op.name in depths)


# ---- 0.5 beat: Beat the count (12 minutes)
# layer with 512 columns instead of 128: x: f32[1797,64], w: f32[64,512]. Blocks of m, n and k, and how many
# buffers each operand gets. Fewest cycles win.
choice = {"m": 128, "n": 128, "k": 64, "depth": 1}
