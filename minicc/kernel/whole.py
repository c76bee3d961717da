"""A kernel in one step: each sequential axis whole, and no accumulators.

    first:   acc = 0.0
    always:  acc = add(acc, dot(x, w, k))              ->      always:  y = maximum(add(dot(x, w, k), b), 0.0)
    last:    y = maximum(add(acc, b), 0.0)

Goes in: any legal Kernel. Comes out: one whose outputs are expressions of the inputs alone, which is where
a machine without a sequential grid starts: a GPU's threads loop by themselves, and numpy takes a whole
array in one call. When the grid has only one sequential step, what `first` stored is what `always` reads,
so an accumulator is just a name.

A Triton kernel is born in this form, with the loop written by hand. Read next: gpu/lower.py, vector.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from minicc.graph.elementwise import neutral_value
from minicc.kernel.ir import COMBINE, AxisKind, Block, Guard, Kernel, Statement, post_order

KINDS = {op: kind for kind, op in COMBINE.items()}


def whole(kernel: Kernel) -> Kernel:
    """The same kernel with every sequential axis in one step and no scratch."""
    scratch = {scratch.name for scratch in kernel.scratch}
    held: dict[str, Block] = {}  # what each accumulator holds by now
    body = []
    for statement in kernel.body:
        value = _inlined(statement.value, held)
        if statement.target in scratch:
            held[statement.target] = value
        else:
            body.append(Statement(Guard.ALWAYS, statement.target, value))
    sequential = kernel.sequential
    axes = (replace(axis, kind=AxisKind.WHOLE, block=axis.size) if axis in sequential else axis
            for axis in kernel.axes)
    return replace(kernel, axes=tuple(axes), scratch=(), body=tuple(body))


def _inlined(root: Block, held: Mapping[str, Block]) -> Block:
    """The value with what accumulators hold in place of their loads; what does not change stays shared."""
    new: dict[Block, Block] = {}
    for block in post_order(root):
        args = tuple(new[arg] for arg in block.args)
        if block.op == "load":
            new[block] = held.get(block.attrs["ref"], block)
        else:
            new[block] = block if args == block.args else _combined(replace(block, args=args))
    return new[root]


def _combined(block: Block) -> Block:
    """The block, or its second argument if the first one leaves that as it is: 0.0 + x is x."""
    kind, start = KINDS.get(block.op), block.args[0]
    if kind and start.op == "constant" and start.attrs["value"] == neutral_value(kind, block.dtype):
        return block.args[1]
    return block
