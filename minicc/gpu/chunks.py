"""Chunks: how vector mode walks a kernel's axes, with blocks that suit a CPU's cache rather than a GPU's.

    m = 2 x 64 of 128, n = 4 x 128 of 512, k = 7 x 112 of 784   ->   m = 1 x 128, n = 1 x 512, k = 1 x 784
    n = 977 x 1024 of 1000000, with three ops in a row          ->   n = 8 x 131072 of 1000000

Goes in: any legal Kernel. Comes out: the same one with other blocks. Few large steps are best, since each
numpy call costs half a microsecond, until the values that ops hand to one another leave the cache. So an
axis is cut, outermost first, only when those values are large and there is more than one op to keep them
for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod

from minicc.gpu.whole import whole
from minicc.kernel.ir import AxisKind, Block, Kernel

CHUNK_ELEMENTS = 1 << 17  # 512 KiB of f32: measured flat from 2^16 to 2^20 on a core with 1 MiB of L2
DOT_CHUNK_ELEMENTS = 1 << 20  # a matrix product in pieces packs its operands anew for each


def chunked(kernel: Kernel, chunk_elements: int = 0) -> Kernel:
    """The kernel with blocks for the cache; without accumulators if its sequential axes are one step then.

    chunk_elements: the most elements of a value that one op hands to another, if it is not to be ours.
    """
    kernel = reordered(kernel)
    one_step = whole(kernel)
    blocks = {axis.name: axis.size for axis in kernel.axes if axis.size}
    handed = [arg for block in one_step.blocks() for arg in block.args if arg.op not in ("load", "constant")]
    has_dot = any(block.op == "dot" for block in one_step.blocks())
    limit = chunk_elements or (DOT_CHUNK_ELEMENTS if has_dot else CHUNK_ELEMENTS)
    free = [axis.name for axis in kernel.axes if axis.kind is not AxisKind.WHOLE]
    while handed:
        largest = max(handed, key=lambda block: _elements(block, blocks))
        cuttable = [name for name in free if name in largest.axes and blocks.get(name, 0) > 1]
        if _elements(largest, blocks) <= limit or not cuttable:
            break
        size = blocks[cuttable[0]]
        steps = -(-size // max(1, size * limit // _elements(largest, blocks)))
        blocks[cuttable[0]] = -(-size // steps)  # steps of about equal size
    cut = any(blocks.get(axis.name, 0) < axis.size for axis in kernel.sequential)
    return (kernel if cut else one_step).tiled(blocks)


def _elements(block: Block, blocks: Mapping[str, int]) -> int:
    return prod(blocks.get(name, 1) for name in block.axes)


def reordered(kernel: Kernel) -> Kernel:
    """The kernel with its axes in the order in which its arrays lie in memory, the larger arrays first.

    A value's dimensions follow the kernel's order, and numpy is fast where it walks all arrays alike. The
    axes of an output keep their order, since a dot writes straight into it.
    """
    order: list[str] = []
    arrays = sorted(kernel.inputs, key=lambda operand: -operand.type.elements)
    for operand in (*kernel.outputs, *arrays):
        for axis in reversed(operand.axes):
            if axis in order:
                continue
            behind = [name for name in operand.axes[operand.axes.index(axis) + 1 :] if name in order]
            order.insert(order.index(behind[0]) if behind else len(order), axis)
    order += [axis.name for axis in kernel.axes if axis.name not in order]

    def sort(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(names, key=order.index))

    scratch = tuple(replace(s, axes=sort(s.axes)) for s in kernel.scratch)
    body = kernel.mapped(lambda block: replace(block, axes=sort(block.axes))).body
    return replace(kernel, axes=tuple(map(kernel.axis, order)), scratch=scratch, body=body)
