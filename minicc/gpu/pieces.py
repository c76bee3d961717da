"""Pieces: a kernel that puts arrays together along an axis becomes one kernel for each part of the axis.

    n < 8: out = select(n >= 3, b at n-3 else 0.0, a at n else 0.0)
        ->   n < 3: out at n = a at n;    n < 5: out at n+3 = b at n

Goes in: any Kernel. Comes out: kernels that do the same, in any order. On a GPU, and on a TPU, an element
finds out for itself where it comes from, by selects of operands that read as a fill outside of their arrays;
numpy would compute all of them everywhere. In a part of the axis on one side of each such condition it is
known, and what is not chosen goes. A reduction or a dot costs least in one call, so what it reads is put
together before it. Halide calls it loop partitioning, and LLVM index-set splitting. Read next: vector.py.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count, pairwise

import numpy as np

from minicc.gpu.views import padding
from minicc.graph.ir import Type
from minicc.kernel.index import Axis, AxisKind, Index
from minicc.kernel.ir import Block, Guard, Kernel, Operand, Statement, post_order

LOCAL = ":"  # the buffers of parts that no other kernel sees begin with this
EDGES = {"ge": 0, "lt": 0, "gt": 1, "le": 1}  # direction -> where, from the bound on, the condition changes


def pieces(kernel: Kernel) -> list[Kernel]:
    """The kernels, one for each part, that one after the other do what this one does."""
    blocks = kernel.blocks()
    if kernel.scalars or kernel.update():
        return [kernel]
    if any(block.reduced for block in blocks):
        aside, rest = _apart(kernel)
        return [piece for one in aside for piece in pieces(one)] + [rest]
    for axis in kernel.axes:
        edges = {edge for block in blocks if (edge := _edge(block, axis.name)) is not None}
        cuts = sorted({0, axis.size} | {edge for edge in edges if 0 < edge < axis.size})
        if edges:
            parts = [_Part(kernel, axis, low, high).run() for low, high in pairwise(cuts)]
            return [piece for part in parts for piece in pieces(part)]
    return [kernel]


def _apart(kernel: Kernel) -> tuple[list[Kernel], Kernel]:
    """Kernels for what dots and reductions read, if it is put together; and the one that reads the results.

    These lie in buffers of their own, which only the kernels made here know.
    """
    operands, new, made = {one.name: one for one in kernel.inputs}, dict[Block, Block](), list[Kernel]()
    for arg in dict.fromkeys(arg for block in kernel.blocks() if block.reduced for arg in block.args):
        below = post_order(arg)
        loads = {block.attrs["ref"] for block in below if block.op == "load"}
        edges = any(_edge(block, axis) is not None for axis in arg.axes for block in below)
        if edges and loads <= operands.keys() and not any(block.reduced for block in below):
            axes = tuple(replace(kernel.axis(axis), kind=AxisKind.PARALLEL) for axis in arg.axes)
            type = Type(arg.dtype, tuple(axis.size for axis in axes))
            name = next(f"part{n}" for n in count(1) if f"part{n}" not in operands)
            operands[name] = Operand(name, LOCAL + name, type, tuple(Index.axis(axis) for axis in arg.axes))
            body = (Statement(Guard.ALWAYS, name, arg),)
            inputs = tuple(one for one in kernel.inputs if one.name in loads)
            made.append(Kernel(name, axes, inputs, (operands[name],), (), body))
            new[arg] = Block("load", (), {"ref": name}, arg.dtype, arg.axes, arg.locs)
    for block in kernel.blocks():
        if block not in new:
            new[block] = replace(block, args=tuple(new[arg] for arg in block.args))
    rest = replace(kernel, body=tuple(replace(s, value=new[s.value]) for s in kernel.body))
    used = {block.attrs["ref"] for block in rest.blocks() if block.op == "load"}
    return made, replace(rest, inputs=tuple(one for one in operands.values() if one.name in used))


def _edge(block: Block, axis: str) -> int | None:
    """Where on the axis a block changes, if it compares the place on the axis with a constant."""
    if block.op != "compare" or block.attrs["direction"] not in EDGES:
        return None
    place, bound = block.args
    if bound.op != "constant" or place.op != "iota" or place.attrs["index"].terms != ((axis, 1),):
        return None
    return int(bound.attrs["value"]) - place.attrs["index"].offset + EDGES[block.attrs["direction"]]


class _Part:
    """A kernel for the elements low .. high of an axis."""

    def __init__(self, kernel: Kernel, axis: Axis, low: int, high: int):
        self.kernel, self.axis, self.low = kernel, axis, low
        size = high - low
        self.axes = tuple(replace(axis, size=size, block=size) if one is axis else one for one in kernel.axes)
        self.sizes = {one.name: one.size for one in self.axes}
        self.operands = {one.name: self.moved(one) for one in kernel.operands}

    def run(self) -> Kernel:
        """The kernel, in which what this part does not need is gone."""
        made = replace(self.kernel.mapped(self.folded), axes=self.axes)
        used = {block.attrs["ref"] for block in made.blocks() if block.op == "load"}
        inputs = tuple(self.operands[one.name] for one in made.inputs if one.name in used)
        return replace(made, inputs=inputs, outputs=tuple(self.operands[one.name] for one in made.outputs))

    def shifted(self, index: Index) -> Index:
        """Where an index stands when its axis counts from `low`."""
        return replace(index, offset=index.offset + self.low * dict(index.terms).get(self.axis.name, 0))

    def moved(self, operand: Operand) -> Operand:
        """An operand of this part; without a fill, if it is within its array here."""
        moved = replace(operand, index=tuple(map(self.shifted, operand.index)))
        return moved if any(map(any, padding(moved, self.sizes))) else replace(moved, fill=None)

    def folded(self, block: Block) -> Block:
        """A block of this part; its arguments are already."""
        if block.op == "iota":
            return replace(block, attrs={"index": self.shifted(block.attrs["index"])})
        if (edge := _edge(block, self.axis.name)) is not None:  # counted from `low`, as its iota is by now
            known = {"value": np.array((edge > 0) == (block.attrs["direction"] in ("lt", "le")))}
            return Block("constant", (), known, block.dtype, (), block.locs)
        if block.op == "select" and block.args[0].op == "constant":
            return block.args[1 if block.args[0].attrs["value"] else 2]
        varied = {axis for arg in block.args or [block] for axis in arg.axes}
        return replace(block, axes=tuple(axis for axis in block.axes if axis in varied))
