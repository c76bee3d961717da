"""A kernel in one step: each sequential axis whole, and no accumulators.

    first:   acc = 0.0
    always:  acc = add(acc, dot(x, w, k))              ->      always:  y = maximum(add(dot(x, w, k), b), 0.0)
    last:    y = maximum(add(acc, b), 0.0)

Goes in: any legal Kernel. Comes out: one whose outputs are expressions of the inputs alone, which is where
a machine without a sequential grid starts: a GPU's threads loop by themselves, and numpy takes a whole
array in one call. When the grid has only one sequential step, what `first` stored is what `always` reads,
so an accumulator is just a name.

A Triton kernel is born in this form, with the loop written by hand. Read next: lower.py and vector.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from minicc.graph.elementwise import REDUCE
from minicc.kernel.ir import AxisKind, Block, Guard, Kernel, Statement

Blocks = dict[str, Block]
# op -> the constant that leaves the other operand as it is
NEUTRAL = {ufunc.__name__: neutral for ufunc, neutral in REDUCE.values()}


def whole(kernel: Kernel) -> Kernel:
    """The same kernel with every sequential axis in one step and no scratch."""
    sequential = {axis.name for axis in kernel.sequential}
    axes = tuple(
        replace(axis, kind=AxisKind.WHOLE, block=axis.size) if axis.name in sequential else axis
        for axis in kernel.axes
    )
    names, scratch = tuple(axis.name for axis in axes), {scratch.name for scratch in kernel.scratch}
    held: dict[str, Block] = {}  # what each accumulator holds by now
    known: dict[Block, Block] = {}
    body = []
    for statement in kernel.body:
        value = _resolve(statement.value, held, known, names)
        if statement.target in scratch:
            held[statement.target] = value
            known.clear()  # what read the accumulator before must not be taken for what reads it now
        else:
            body.append(Statement(Guard.ALWAYS, statement.target, value))
    return replace(kernel, axes=axes, scratch=(), body=tuple(body))


def _resolve(block: Block, held: Blocks, known: dict[Block, Block], names: tuple[str, ...]) -> Block:
    if block.op == "load":
        return held.get(block.attrs["ref"], block)
    if block not in known:
        args = tuple(_resolve(arg, held, known, names) for arg in block.args)
        same = all(new is old for new, old in zip(args, block.args, strict=True))
        known[block] = block if same else _rebuild(block, args, names)
    return known[block]


def _rebuild(block: Block, args: tuple[Block, ...], names: tuple[str, ...]) -> Block:
    """The block on new arguments; combining with a neutral constant is left out, as in `0.0 + x`."""
    if block.op in NEUTRAL:
        for constant, other in (args, args[::-1]):
            if _is_constant(constant, NEUTRAL[block.op]) and other.axes == block.axes:
                return other
    return replace(block, args=args, axes=axes_of(block, args, names))


def _is_constant(block: Block, value: float) -> bool:
    if block.op != "constant":
        return False
    if block.dtype.kind == "i" and np.isinf(value):
        limits = np.iinfo(block.dtype.numpy)
        value = limits.min if value < 0 else limits.max
    return bool(block.attrs["value"] == value)


def axes_of(block: Block, args: Iterable[Block], names: tuple[str, ...]) -> tuple[str, ...]:
    """The axes a block varies over, as its arguments do, in the order of `names`."""
    gone = reduced_axes(block)
    varied = {name for arg in args for name in arg.axes} - set(gone)
    return tuple(name for name in names if name in varied)


def blocks_under(roots: Iterable[Block]) -> tuple[Block, ...]:
    """Every block that these need, themselves too, arguments before users."""
    return Kernel("", (), (), (), (), tuple(Statement(Guard.ALWAYS, "", root) for root in roots)).blocks()


def reduced_axes(block: Block) -> tuple[str, ...]:
    """The axes that a dot or a reduce sums away; none for any other op."""
    match block.op:
        case "dot":
            return block.attrs["contract"]
        case "reduce":
            return block.attrs["axes"]
    return ()
