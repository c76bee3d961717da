"""Updates in place: kernels that change a part of a buffer.

    scatter(base, ids, rows) axis=0 kind=sum   ->   out: f32[9,4] at (ids[b], n) in place
                                                    always: out = add(out_old, rows)
    dynamic_update_slice(cache, new, i, 0)     ->   out: f32[64,8] at (m+i[] in 0..62, n) in place
                                                    always: out = new

Goes in: such a node. Comes out: a kernel whose grid walks the updates, and whose output looks up where each
of them goes. The buffer holds the base by then: the base's own kernel wrote it there, if nobody else needs
it, or a copy did. Steps run one after the other, so updates of one place add up, and the last of those that
set it stays. A Pallas kernel does it with input_output_aliases; XLA plans the same copies away. Read next:
fuse.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from minicc.graph.ir import Graph, Node, Type, Value
from minicc.kernel.build import finished, kernel_name, with_splits
from minicc.kernel.cost import Target
from minicc.kernel.index import Axis, AxisKind, Index
from minicc.kernel.ir import COMBINE, OLD, Block, Guard, Kernel, Operand, Statement
from minicc.kernel.positions import Position, view_source, window
from minicc.kernel.pull import Illegal, Making, Pull

UPDATES = ("scatter", "dynamic_update_slice")


def build_update(
    graph: Graph, node: Node, fused: Collection[Node], buffer: Callable[[Node], str], target: Target
) -> Kernel:
    """The kernel that brings the updates of a node into its buffer, which holds the base already.

    Raises: Illegal, if what is fused into the updates cannot be computed one update at a time.
    """
    return with_splits(lambda splits: _kernel(Pull(fused, graph, buffer, splits), node, target))


def _kernel(body: Pull, node: Node, target: Target) -> Kernel:
    graph, buffer = body.graph, body.buffer
    updates = node.operands[2 if node.op == "scatter" else 1]
    position = body.position(updates.shape)
    place, one_by_one = _place(node, position, Making(body, []))
    value = body.pull(updates, position, ())
    kept = [dim for dim, index in enumerate(place) if node.types[0].shape[dim] != 1 or index.lookups]
    view, index = body.viewed(Type(updates.dtype, tuple(node.types[0].shape[dim] for dim in kept)),
                              tuple(place[dim] for dim in kept))
    name = buffer(node)
    output = Operand(name, name, view, index, in_place=True)
    kind = node.attrs.get("kind", "set")
    if kind != "set":
        old = Operand(f"{name}{OLD}", name, view, output.index, fill=0.0)
        body.operands[old.name,] = old
        axes = tuple(dict.fromkeys((*output.axes, *value.axes)))
        load = Block("load", (), {"ref": old.name}, value.dtype, old.axes, graph.lines(node))
        value = Block(COMBINE[kind], (load, value), {}, value.dtype, axes, graph.lines(node))
    statement = Statement(Guard.ALWAYS, name, value)
    kinds = {axis: AxisKind.SEQUENTIAL if axis in one_by_one else AxisKind.PARALLEL for axis in body.sizes}
    body.operands[name,] = output  # so that the grid knows which axes it looks up
    grid = body.grid(kinds)
    inputs = tuple(op for op in body.operands.values() if op is not output)
    words = f"{node.op}_{kernel_name(value)}".removesuffix("_copy")
    kernel = Kernel(words, grid, inputs, (output,), (), (statement,), tuple(body.scalars.values()))
    if any(block.reduced for block in kernel.blocks()):
        raise Illegal("an update in place does not reduce")
    return finished(kernel, target)


def _place(node: Node, position: Position, make: Making) -> tuple[Position, tuple[str, ...]]:
    """Where the updates at a position go, and the axes along which they may meet."""
    base = node.operands[0]
    if node.op == "dynamic_update_slice":
        return window(position, base, node.operands[1].shape, node.operands[2:], make), ()
    axis = node.attrs["axis"]
    behind = axis + len(node.operands[1].shape)
    where = position[axis:behind]
    found = make.lookup(node.operands[1], where, None)
    meeting = tuple(name for index in where for name in index.axes)
    return (*position[:axis], found, *position[behind:]), meeting


def shares_buffer(node: Node, users: Collection[Node], outputs: Collection[Node]) -> bool:
    """Whether the base of an update can be computed straight into the buffer that is updated."""
    base = node.operands[0].node
    alone = list(users) == [node] and sum(value.node is base for value in node.operands) == 1
    return alone and base not in outputs and base.op not in ("parameter", "constant", "reshape")


def copy_kernel(base: Value, source: str, target: str) -> Kernel:
    """The kernel that copies a buffer into another, as a line of elements."""
    size = base.type.elements
    line = (Index.axis("n"),) if size > 1 else ()
    view = Type(base.dtype, (size,) if line else ())
    axes = (Axis("n", size, size, AxisKind.PARALLEL),) if line else ()
    load = Block("load", (), {"ref": source}, base.dtype, ("n",) if line else ())
    here, there = Operand(source, source, view, line), Operand(target, target, view, line)
    return Kernel("copy", axes, (here,), (there,), (), (Statement(Guard.ALWAYS, target, load),))


def base_buffer(node: Node) -> Node:
    """The node whose buffer an update starts from."""
    return view_source(node.operands[0]).node
