"""Draws the kernel level: each kernel a rounded cluster around the operations it fuses, buffers between them.

    draw_kernels(module)  ->  Drawing("kernels", ...)

Goes in: a Module, tiled or not. Comes out: a Drawing. Invariants: an arrow into a cluster is a read of memory
and says which block is read at each step; what stands inside never touches memory; an accumulator is an arrow
from an operation back to itself; a dotted arrow comes from an array whose numbers say which block it is. The
bytes on a kernel are what its grid makes it move to and from HBM: a block is fetched again each time it
changes. XLA's fusion dumps show the clusters, without the bytes. Read next: pipeline.py.
"""

from __future__ import annotations

from collections.abc import Mapping

import graphviz

from minicc.kernel.ir import OLD, Block, Guard, Kernel, Module, Operand
from minicc.kernel.memory import Placement, Role, Space
from minicc.kernel.pipeline import blocks_of
from minicc.viz.graph import new_canvas, role_style
from minicc.viz.label import bytes_text, label, lines_text, small
from minicc.viz.palette import CLUSTER, CLUSTER_EDGE, role_of
from minicc.viz.render import Drawing

ACCUMULATE = {"style": "dashed", "constraint": "false"}
LOOKUP = {"style": "dotted"}
KERNEL_LIMIT = 16  # the 61 of a small transformer's training step took dot more than a minute


def moved_bytes(kernel: Kernel, operand: Operand) -> int:
    """Bytes of the operand that the kernel moves over its whole grid.

    The blocks of all its axes together are the axes' sizes; they pass by once for each time the walk repeats.
    """
    elements = steps = 1
    for name in dict.fromkeys(operand.axes):
        axis = kernel.axis(name)
        elements, steps = elements * axis.size, steps * axis.steps
    return elements * operand.type.dtype.itemsize * (blocks_of(kernel, operand) // steps)


def draw_kernels(
    module: Module, name: str = "kernels", placements: Mapping[str, Placement] | None = None
) -> Drawing:
    """A picture of a module, or of its first KERNEL_LIMIT kernels, which it then says.

    placements: where kernels meet each buffer, if memory planning was asked.
    """
    canvas = new_canvas(name)
    inputs = {buffer: type for buffer, type in module.inputs}
    outputs = {buffer for buffer, _ in module.outputs}
    kernels = module.kernels[:KERNEL_LIMIT]
    for kernel in kernels:
        for operand in (*kernel.operands, *kernel.scalars):
            buffer = operand.buffer
            stays = _stays(buffer, placements)
            between = "vmem" if stays else "temp"
            role = "input" if buffer in inputs else "output" if buffer in outputs else between
            if buffer in module.constants and not module.constants[buffer].shape:
                continue
            type = inputs.get(buffer, operand.type)
            text = label(buffer, soft=[str(type), bytes_text(type.bytes), stays])
            canvas.node(_ident(buffer), label=text, **_buffer_style(role))
    for number, kernel in enumerate(kernels):
        near = {op.name for op in kernel.operands if _stays(op.buffer, placements)}
        fetched = sum(place.type.bytes for place in (placements or {}).values() if place.first == number
                      and place.space is Space.VMEM and place.role is not Role.TEMP)
        _Cluster(canvas, kernel, number, near, fetched).draw()
    if len(kernels) < len(module.kernels):
        canvas.attr(label=f"the first {len(kernels)} of {len(module.kernels)} kernels", labelloc="t")
    return Drawing(name, canvas.source)


def _stays(buffer: str, placements: Mapping[str, Placement] | None) -> str:
    """How a buffer that kernels find in VMEM is there; nothing for any other."""
    place = (placements or {}).get(buffer)
    if not place or place.space is not Space.VMEM:
        return ""
    return "stays in VMEM" if place.role is Role.TEMP else "fetched to VMEM once"


def _ident(buffer: str) -> str:
    return "buffer " + buffer.replace(":", "_")


def _buffer_style(role: str) -> dict[str, str]:
    return {**role_style(role), "style": "filled" if role == "input" else "rounded,filled"}


class _Cluster:
    """One kernel on its way into a drawing. near: its operands in VMEM. fetched: bytes of arrays that come in
    whole while it runs."""

    def __init__(
        self, canvas: graphviz.Digraph, kernel: Kernel, number: int, near: set[str], fetched: int
    ) -> None:
        self.canvas, self.kernel, self.prefix, self.near = canvas, kernel, f"k{number}", near
        self.fetched = fetched
        self.operands = {operand.name: operand for operand in kernel.operands}
        firsts = [statement for statement in kernel.body if statement.guard is Guard.FIRST]
        self.starts = {statement.target: str(statement.value) for statement in firsts}
        self.holders = {  # accumulator -> the block that computes its next value
            statement.target: statement.value for statement in kernel.body
            if statement.guard is Guard.ALWAYS and statement.target not in self.operands
        }
        skipped = {statement.value for statement in firsts}
        self.boxes = [block for block in kernel.blocks()
                      if block.op not in ("load", "constant") and block not in skipped]
        self.idents = {block: f"{self.prefix} {place}" for place, block in enumerate(self.boxes)}

    def draw(self) -> None:
        """Add the cluster, its operations and its arrows."""
        with self.canvas.subgraph(name=f"cluster_{self.prefix}") as inside:
            inside.attr(style="rounded,filled", fillcolor=CLUSTER, color=CLUSTER_EDGE, penwidth="1.5",
                        margin="12")
            self._top_row(inside)
            for block in self.boxes:
                inside.node(self.idents[block], label=self._label(block), **role_style(role_of(block.op)))
        for block in self.boxes:
            for source in dict.fromkeys(map(self._source, block.args)):
                again = self._is_holder(source) and self._reaches(block, source)
                self._arrow(source, self.idents[block], ACCUMULATE if again else {})
        with self.canvas.subgraph() as row:  # an arrow down from the last box, rather than out at the side
            row.attr(rank="same")
            for operand in self.kernel.outputs:
                row.node(_ident(operand.buffer))
        for statement in self.kernel.body:
            if statement.target in self.operands:
                operand = self.operands[statement.target]
                self._arrow(self._source(statement.value), _ident(operand.buffer),
                            {"label": small(_block_text(self.kernel, operand))})
                if f"{operand.name}{OLD}" not in self.operands:  # which has the arrow already
                    self._lookups(operand, self._source(statement.value))

    def _top_row(self, inside: graphviz.Digraph) -> None:
        """The title and the blocks that are read, side by side: arrows go around a box, over a title."""
        with inside.subgraph() as row:
            row.attr(rank="same")
            row.node(f"{self.prefix} title", label=self._title(), shape="plaintext", style="")
            for operand in self.kernel.inputs:
                row.node(self._load(operand), label=small(_block_text(self.kernel, operand)), height="0.25",
                         margin="0.06,0.02", **role_style("copy_in"))
        for operand in self.kernel.inputs:
            self.canvas.edge(_ident(operand.buffer), self._load(operand))
            self._lookups(operand, self._load(operand))

    def _lookups(self, operand: Operand, box: str) -> None:
        """A dotted arrow from each array whose numbers say where the operand is read or written."""
        buffers = {one.name: one.buffer for one in self.kernel.scalars}
        for name in dict.fromkeys(lookup.scalars for index in operand.index for lookup in index.lookups):
            self._arrow(_ident(buffers[name]), box, LOOKUP)

    def _load(self, operand: Operand) -> str:
        return f"{self.prefix} load {operand.name}"

    def _source(self, block: Block) -> str:
        """The box that a block's value comes out of; empty for a constant, which needs no box."""
        if block.op != "load":
            return self.idents.get(block, "")
        name = block.attrs["ref"]
        if name in self.holders:
            return self._source(self.holders[name])
        return self._load(self.operands[name]) if name in self.operands else ""

    def _is_holder(self, ident: str) -> bool:
        return any(self.idents.get(block) == ident for block in self.holders.values())

    def _reaches(self, block: Block, ident: str) -> bool:
        """Whether a block helps to compute the accumulator in that box: the arrow goes back in time."""
        stack = [holder for holder in self.holders.values() if self.idents.get(holder) == ident]
        seen = set(stack)
        while stack:
            stack += [arg for arg in stack.pop().args if arg not in seen]
            seen.update(stack)
        return block in seen

    def _arrow(self, source: str, target: str, style: Mapping[str, str]) -> None:
        if source:
            self.canvas.edge(source, target, **style)

    def _title(self) -> str:
        kernel = self.kernel
        tiled = [axis for axis in kernel.axes if axis.steps > 1]
        grid = ", ".join(f"{axis.name} {axis.steps} x {axis.block}" for axis in tiled)
        reads, writes = (sum(moved_bytes(kernel, op) for op in side if op.name not in self.near)
                         for side in (kernel.inputs, kernel.outputs))
        read, written = bytes_text(reads + self.fetched), bytes_text(writes)
        steps = f"grid {grid}" if grid else "one step"
        return label(kernel.name, soft=[steps, f"HBM reads {read}", f"HBM writes {written}"])

    def _label(self, block: Block) -> str:
        held = [f"kept in {name}" + (f", from {self.starts[name]}" if name in self.starts else "")
                for name, holder in self.holders.items() if holder is block]
        args = [f"{arg.attrs['value'].item():.6g}" if arg.op == "constant" else "·" for arg in block.args]
        rest = f"({', '.join(args)})" if any(arg.op == "constant" for arg in block.args) else ""
        soft = [*_attributes(block), f"{block.dtype} ({', '.join(block.axes)})", *held]
        return label(block.op, rest=rest, soft=soft, mono=lines_text(block.locs))


def _attributes(block: Block) -> list[str]:
    match block.op:
        case "dot":
            return [f"over {', '.join(block.attrs['contract'])}"]
        case "reduce":
            return [f"{block.attrs['kind']} over {', '.join(block.attrs['axes'])}"]
    return [f"{key} {value}" for key, value in block.attrs.items()]


def _block_text(kernel: Kernel, operand: Operand) -> str:
    shape = kernel.block_shape(operand)
    places = ", ".join(str(lookup) for index in operand.index for lookup in index.lookups)
    where = (f" at {places}" if places else "") + (", in place" if operand.in_place else "")
    return (" x ".join(map(str, shape)) if shape else "1") + where
