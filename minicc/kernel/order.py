"""Names of buffers, and the order of the kernels that write and read them.

    kernels a -> t1, b: t1 -> t2, c: x -> t3, d: t1, t3 -> out      ->      a, b, c, d

Goes in: a graph, or its kernels in any order. Comes out: a name for each node's buffer; the kernels in an
order in which each is behind what it reads, and which keeps few bytes alive. What is ready and frees as much
as it makes runs at once. When nothing does, what is ready takes turns by one of three rules:
- Outputs come first, so that a new weight lets go of what its gradient was made of.
- The output that needs the largest buffer comes first, with all else that it needs, while little is alive: so
  small gradients wait to become large weights.
- What makes the fewest bytes comes first.
Each rule is followed to the end, once more if there are barriers: then what computes something again is
behind what it waits for, unless that needs it. The order with the lowest peak is taken. XLA and PyTorch's
inductor order for memory in the same greedy way; the best order is as hard as register allocation. Invariant:
those that write one buffer, an update after its base, stay in the given order, and its readers behind them.
Read next: memory.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import TypeAlias

from minicc.graph.ir import Graph, Node, Type
from minicc.kernel.ir import Kernel
from minicc.kernel.positions import view_source
from minicc.kernel.update import UPDATES, shares_buffer

Waits: TypeAlias = Mapping[str, Collection[str]]  # buffer -> those that are written before its kernel runs


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


def barriers(graph: Graph) -> dict[Node, int]:
    """For each node, the barriers that it is behind: a bit for each."""
    behind: dict[Node, int] = {}
    for number, node in enumerate(graph.nodes()):
        bits = (behind[value.node] for value in node.operands)
        behind[node] = reduce(or_, bits, int(node.op == "optimization_barrier") << number)
    return behind


def waiting(graph: Graph, stored: Mapping[Node, str], places: Mapping[Node, Iterable[Node]]) -> Waits:
    """What the barriers of a graph wait for. stored: node -> its buffer. places: node -> the nodes in whose
    kernels it is computed."""
    found: dict[str, set[str]] = {}
    behind: dict[Node, set[str]] = {}  # the buffers that hold a node, or what it is computed from
    for node in graph.nodes():
        below = [behind[value.node] for value in node.operands]
        behind[node] = {stored[node]} if node in stored else set().union(*below)
        if node.op == "optimization_barrier":
            behind[node] = set().union(*below)
            for root in places.get(node, ()):
                found.setdefault(stored[root], set()).update(*below[1:])
    return found


def in_order(kernels: Sequence[Kernel], kept: Collection[str], waits: Waits = MappingProxyType({})
             ) -> list[Kernel]:
    """The kernels in an order that can run, and that keeps few bytes alive. kept: the outputs' buffers."""
    return Dag(kernels, kept, waits).best()


class Dag:
    """Which kernels wait for which; and how many bytes each makes, or lets go of."""

    def __init__(self, kernels: Sequence[Kernel], kept: Collection[str], waits: Waits) -> None:
        self.kernels, self.there = kernels, 0  # there: bytes of inputs that may go
        self.waits, self.writers = waits, (writers := dict[str, list[int]]())
        self.sizes: dict[str, int] = {}  # of the buffers that kernels write, and of inputs that may go
        self.makes, self.keeps = [0] * len(kernels), [False] * len(kernels)
        for number, kernel in enumerate(kernels):
            for op in kernel.outputs:
                writers.setdefault(op.buffer, []).append(number)
                if op.buffer not in self.sizes:  # or it is there already, and only changes
                    self.sizes[op.buffer] = op.type.bytes
                    self.makes[number] += op.type.bytes
            self.keeps[number] = all(op.buffer in kept for op in kernel.outputs)
        self.before: list[set[int]] = []  # those that must run before it
        self.touches: list[set[str]] = []  # the buffers that it reads or changes, and that may go after it
        for number, kernel in enumerate(kernels):
            before = {one for op in kernel.outputs for one in writers[op.buffer] if one < number}
            before |= {one for op in kernel.reads for one in writers.get(op.buffer, [])
                       if number not in writers[op.buffer]}
            self.before.append(before)
            touched = {op.buffer for op in (*kernel.reads, *kernel.outputs)}
            self.touches.append((touched & self.sizes.keys()).difference(kept))

    def best(self) -> list[Kernel]:
        """The kernels in the order that keeps the fewest bytes alive, of those that the rules give."""
        orders = []
        for before in (self.before, self._waiting()) if self.waits else (self.before,):
            eager = self.order(before, [not keeps for keeps in self.keeps])
            orders += [eager, self.order(before, self.wanted(eager)), self.order(before, self.makes)]
        return [self.kernels[number] for number in min(orders, key=self.peak)]

    def _waiting(self) -> list[set[int]]:
        """Those that must run before each kernel, or should, as what it waits for does not need it."""
        found = [before.copy() for before in self.before]
        for number, kernel in enumerate(self.kernels):
            others = {one for op in kernel.outputs for name in self.waits.get(op.buffer, ())
                      for one in self.writers.get(name, ())}
            needing, more = set[int](), {number}
            while others and more:
                needing |= more
                more = {one for one, before in enumerate(found) if before & more} - needing
            found[number] |= others - needing
        return found

    def _readers(self, name: str) -> set[int]:
        return {n for n, kernel in enumerate(self.kernels) if name in {one.buffer for one in kernel.reads}}

    def can_come_last(self, name: str, number: int) -> bool:
        """Whether a kernel can be the last that reads a buffer: no other one that does needs it."""
        stack, seen = list(self._readers(name) - {number}), set[int]()
        while stack:
            if (one := stack.pop()) not in seen:
                seen.add(one)
                stack += self.before[one]
        return number not in seen

    def replaced(self, name: str, number: int, output: str) -> None:
        """Have a kernel write its output onto an input: after all others that read it, and with no bytes of
        its own."""
        self.before[number] |= self._readers(name) - {number}
        self.makes[number] -= self.sizes[output]
        self.sizes[output] = 0

    def given(self, name: str, type: Type) -> None:
        """Let go of an input when it has been read for the last time."""
        self.sizes[name] = type.bytes
        self.there += type.bytes
        for number in self._readers(name):
            self.touches[number].add(name)

    def wanted(self, order: Iterable[int]) -> list[int]:
        """For each kernel, which output needs it first, if those that need the largest buffers come first."""
        needs = [0] * len(self.makes)
        for number in order:
            needs[number] = max([self.makes[number], *(needs[one] for one in self.before[number])])
        outputs = [number for number, keeps in enumerate(self.keeps) if keeps]
        outputs.sort(key=lambda number: (-needs[number], -self.makes[number]))
        turns = [len(outputs)] * len(needs)
        for turn, output in enumerate(outputs):
            stack = [output]
            while stack:
                number = stack.pop()
                if turns[number] == len(outputs):
                    turns[number] = turn
                    stack += self.before[number]
        return turns

    def order(self, before: Sequence[set[int]], turns: Sequence[int]) -> list[int]:
        """The kernels' numbers, in an order that can run. before: those that run before each. turns: the
        lowest goes first when nothing frees."""
        waiting = [set(those) for those in before]
        users: dict[str, set[int]] = {}
        behind: dict[int, list[int]] = {}
        for number, touched in enumerate(self.touches):
            for name in touched:
                users.setdefault(name, set()).add(number)
            for one in waiting[number]:
                behind.setdefault(one, []).append(number)
        gains = [-made for made in self.makes]  # what running a kernel now frees, less what it makes
        for name, found in users.items():
            if len(found) == 1:
                gains[min(found)] += self.sizes[name]
        ready = [number for number, those in enumerate(waiting) if not those]
        order: list[int] = []
        while ready:
            chosen = max(ready, key=lambda number: (gains[number], -number))
            if gains[chosen] < 0:
                chosen = min(ready, key=lambda number: (turns[number], number))
            order.append(chosen)
            ready.remove(chosen)
            for name in self.touches[chosen]:
                users[name].remove(chosen)
                if len(users[name]) == 1:
                    gains[min(users[name])] += self.sizes[name]
            for number in behind.get(chosen, []):
                waiting[number].remove(chosen)
                if not waiting[number]:
                    ready.append(number)
        return order

    def peak(self, order: Sequence[int]) -> int:
        """The most bytes that are alive at once."""
        last = {name: number for number in order for name in self.touches[number]}
        alive = most = self.there
        for number in order:
            alive += self.makes[number]
            most = max(most, alive)
            alive -= sum(self.sizes[name] for name in self.touches[number] if last[name] == number)
        return most
