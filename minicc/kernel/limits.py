"""What a target can run: the rules for a whole kernel, whatever its blocks.

    three whole axes in one block     ->  Illegal: 3 whole axes in one block; tpu:v5e has 2
    a dot and a reduction, on a GPU   ->  Illegal: gpu:a100 does not reduce in the kernel of a dot

Goes in: a kernel as build.py or online.py made it, before its blocks are set. Comes out: nothing, or Illegal,
which says why another kernel must be made. Triton and Pallas refuse such kernels when they are lowered; here
fusion asks first. Read next: build.py.
"""

from __future__ import annotations

from math import prod

from minicc.graph.dtypes import F32
from minicc.kernel.cost import Target
from minicc.kernel.ir import AxisKind, Kernel
from minicc.kernel.pull import Illegal


def check(kernel: Kernel, target: Target) -> None:
    """Refuse what the target cannot run. Raises: Illegal."""
    blocks = kernel.blocks()
    dots = [block for block in blocks if block.op == "dot"]
    whole = {axis.name: axis.size for axis in kernel.axes if axis.kind is AxisKind.WHOLE}
    if len(dots) > 1 and not target.one_core:
        raise Illegal(f"a kernel of {target.name} has one dot")
    if dots and not target.one_core and any(b.op == "reduce" for b in blocks):
        raise Illegal(f"{target.name} does not reduce in the kernel of a dot")
    if dots and whole and any(index.terms[1:] for operand in kernel.inputs for index in operand.index):
        raise Illegal("a convolution walks its window, and cannot hold it whole for a reduction")
    if len(kernel.operands) > target.most_operands:
        raise Illegal(f"{len(kernel.operands)} operands; {target.name} takes {target.most_operands} at most")
    kinds = {axis.name: axis.kind for axis in kernel.axes}
    for operand in kernel.inputs if target.one_core else ():
        walks = [[kinds[name] for name, _ in index.terms] for index in operand.index]
        if operand.fill is not None and any(len(set(walk)) < len(walk) for walk in walks):
            raise Illegal("a block would leave its array along two axes at once")
    most = max(sum(whole.get(name, 1) > 1 for name in block.axes) for block in blocks)
    if most > target.max_block_axes:
        raise Illegal(f"{most} whole axes in one block; {target.name} has {target.max_block_axes}")
    row_bytes = 0
    for operand in kernel.operands:
        held = [whole[name] for name in operand.axes if name in whole and whole[name] > 1]
        if any(len([name for name in index.axes if whole.get(name, 1) > 1]) > 1 for index in operand.index):
            raise Illegal("two whole axes would walk one dimension")
        row_bytes += 2 * prod(held) * F32.itemsize * (target.rows if len(held) < 2 else 1)
    if whole and row_bytes > target.fast_bytes // 2:
        raise Illegal(f"whole rows would take {row_bytes} of {target.fast_bytes} bytes of fast memory")
