"""Names of buffers, and the order of the kernels that write and read them.

    kernels a -> t1, b: t1 -> t2, c: x -> t3, d: t1, t3 -> out      ->      a, b, c, d

Goes in: a graph, or its kernels in any order. Comes out: a name for each node's buffer; the kernels in an
order in which each is behind what it reads. Among those that are ready, one that frees as much as it makes
runs at once; else the first of the given order. So a buffer lives no longer than it must: a weight that is
updated lets go of its gradient before the next one is made. XLA and PyTorch's inductor order for memory in
the same greedy way; the best order is as hard as register allocation. Invariant: those that write one buffer,
an update after its base, stay in the given order, and its readers behind them all. Read next: memory.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from minicc.graph.ir import Graph, Node
from minicc.kernel.ir import Kernel
from minicc.kernel.positions import view_source
from minicc.kernel.update import UPDATES, shares_buffer


def buffer_names(graph: Graph, user_table: Mapping[Node, list[Node]]) -> dict[Node, str]:
    """A name for each node's buffer, different from every other, but for an update's base: see update.py."""
    names: dict[Node, str] = {}
    taken: set[str] = set()
    outputs = list(dict.fromkeys(view_source(value).node for value in graph.outputs))
    wishes = [(value.node, re.sub(r"\W", "_", value.node.attrs["name"])) for value in graph.inputs]
    wishes += [(node, f"out{number}" if len(outputs) > 1 else "out") for number, node in enumerate(outputs)]
    wishes += [(node, f"t{number}") for number, node in enumerate(graph.nodes())]
    for node, wish in wishes:
        if node not in names:
            while wish in taken:
                wish += "_"
            names[node] = wish
            taken.add(wish)
    for node in reversed(graph.nodes()):
        if node.op in UPDATES and shares_buffer(node, user_table[node.operands[0].node], outputs):
            names[node.operands[0].node] = names[node]
    return names


def in_order(kernels: Sequence[Kernel]) -> list[Kernel]:
    """The kernels in an order that can run, and that keeps few bytes alive."""
    writers: dict[str, list[int]] = {}
    for number, kernel in enumerate(kernels):
        for operand in kernel.outputs:
            writers.setdefault(operand.buffer, []).append(number)
    sizes = {op.buffer: op.type.bytes for kernel in kernels for op in kernel.outputs}
    waiting: list[set[int]] = []  # for each kernel, those that must run before it
    for number, kernel in enumerate(kernels):
        before = {one for op in kernel.outputs for one in writers[op.buffer] if one < number}
        before |= {one for op in kernel.reads for one in writers.get(op.buffer, [])
                   if number not in writers[op.buffer]}
        waiting.append(before)
    readers: dict[str, set[int]] = {}
    for number, kernel in enumerate(kernels):
        for operand in kernel.reads:
            if operand.buffer in sizes:
                readers.setdefault(operand.buffer, set()).add(number)
    order: list[int] = []
    left = set(range(len(kernels)))

    def gain(number: int) -> int:
        """Bytes that running a kernel now frees, less those it makes."""
        freed = sum(sizes[name] for name in {op.buffer for op in kernels[number].reads} & readers.keys()
                    if readers[name] <= {number})
        return freed - sum(sizes[name] for name in {op.buffer for op in kernels[number].outputs})

    while left:
        ready = [number for number in sorted(left) if not waiting[number] & left]
        best = max(ready, key=gain)
        chosen = best if gain(best) >= 0 else ready[0]
        order.append(chosen)
        left.remove(chosen)
        for name in {op.buffer for op in kernels[chosen].reads} & readers.keys():
            readers[name].discard(chosen)
    return [kernels[number] for number in order]
