"""Fusion: a graph becomes kernels. The whole decision is in this file, and it says why.

    %0 = dot_general(x, w); %1 = add(%0, bias); %2 = maximum(%1, 0.0)      ->      kernel dot_add_maximum

Goes in: a simplified Graph and a Target. Comes out: a Module whose kernels are not tiled yet. Three ideas:

1. *Where.* positions.py holds one rule per op: to compute a result at this position, read each operand at
   that one. Starting from a kernel's output, following the rules pulls in everything that is fused; where
   it stops, a buffer is read. Broadcast, transpose, reshape and slice only change positions: they are free.
2. *Whether.* Nodes are visited from the outputs backwards. A node is fused into all the kernels that use it,
   or makes the two that use it one, or is stored by one of them besides, or gets a kernel of its own:
   whatever is legal and, by the cost model, makes the whole fastest. What is computed again in several
   kernels has its price in each.
3. *Beside.* Last, two kernels that read the same buffers are made one, where that is faster.

Invariant: every value that crosses kernels has a buffer. Only machines that run a grid's steps one after the
other (`one_core`) store several results from one kernel, or go on from a dot. XLA decides with a priority
queue over producers, and tinygrad by rules on views; both also start from one cost: the bytes a buffer moves.
Read next: build.py, which makes a legal kernel of what was pulled in; then tile.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import permutations
from math import inf
from operator import or_

from minicc.graph.ir import Graph, Node, users
from minicc.kernel.alike import LEAVES, Made, Workshop
from minicc.kernel.cost import Target
from minicc.kernel.ir import Kernel, Module
from minicc.kernel.order import Waits, barriers, buffer_names, in_order, waiting
from minicc.kernel.positions import is_view, view_source
from minicc.kernel.pull import Illegal
from minicc.kernel.update import UPDATES, base_buffer, copy_kernel
from minicc.trace import Step

SPREAD = (*LEAVES, "iota", "broadcast_in_dim")  # what costs nothing to have again
MOST_USERS = 32  # kernels that one node is fused into, or stored by: each is built anew to weigh it


@dataclass(frozen=True, eq=False)
class Group:
    """The nodes whose buffers one kernel writes. roots: those it is built for; sides: those on the way."""

    roots: tuple[Node, ...]
    sides: tuple[Node, ...]
    made: Made

    @property
    def cycles(self) -> float:
        """What the model predicts for it."""
        return self.made.cycles

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every node whose buffer the kernel writes."""
        return self.roots + self.sides


@dataclass
class _State:
    """What fusion knows so far.

    fused: the nodes computed where they are used. groups: node -> the kernel that writes its buffer. places:
    node -> the first roots of the kernels that compute it.
    """

    graph: Graph
    target: Target
    names: dict[Node, str]
    workshop: Workshop
    fused: set[Node] = field(default_factory=set)
    groups: dict[Node, Group] = field(default_factory=dict)
    places: dict[Node, tuple[Node, ...]] = field(default_factory=dict)
    writers: dict[str, Node] = field(default_factory=dict)  # buffer -> the last node that is written there
    waits: Waits = field(default_factory=dict)
    behind: dict[Node, int] = field(default_factory=dict)  # node -> its barriers, as bits

    def build(self, roots: Sequence[Node], sides: Sequence[Node] = (), also: Node | None = None) -> Group:
        """The kernel of some nodes. also: one more that is fused in it. Raises: Illegal."""
        return Group(tuple(roots), tuple(sides), self.workshop.make(roots, sides, self.fused, also))

    def buffer(self, node: Node) -> str:
        """The name of a node's buffer: the parameter's, out (out1, out2, ...), or t<number>."""
        return self.names[node]

    def settle(self, group: Group) -> None:
        """Have this kernel write the buffers of its nodes."""
        for node in group.nodes:
            self.groups[node] = group
            self.writers.setdefault(self.buffer(node), node)

    def users(self, consumers: Iterable[Node]) -> list[Group]:
        """The kernels in which some nodes are computed."""
        return list(dict.fromkeys(self.groups[root] for user in consumers for root in self.places[user]))

    def waits_more(self, group: Group, other: Group) -> bool:
        """Whether a kernel is behind a barrier that another one is not behind."""
        mine, its = (reduce(or_, [self.behind[node] for node in one.nodes]) for one in (group, other))
        return bool(mine & ~its)

    def needed_by(self, group: Group) -> set[Group]:
        """The kernels that write what a kernel reads, updates or waits for."""
        behind = group.made.reads.union(*[self.waits.get(self.buffer(node), ()) for node in group.nodes])
        writers = {self.writers[buffer] for buffer in behind & self.writers.keys()}
        writers |= {base_buffer(root) for root in group.roots if root.op in UPDATES}
        return {self.groups[node] for node in writers & self.groups.keys()}

    def needs(self, group: Group, others: Collection[Group]) -> bool:
        """Whether a kernel needs one of the others, perhaps through more of them."""
        stack, seen = [group], set[Group]()
        while stack:
            new = self.needed_by(stack.pop()) - seen
            if not new.isdisjoint(others):
                return True
            seen |= new
            stack += new
        return False


def fuse(graph: Graph, target: Target, *, log: list[Step] | None = None) -> Module:
    """Group a graph into kernels. log: receives a Step for each node but views: fused or not, and why."""
    nodes, exact, log = graph.nodes(), log is not None, [] if log is None else log
    user_table = {node: [one for one in found if _reads(one, node)] for node, found in users(nodes).items()}
    names = buffer_names(graph, user_table)
    state = _State(graph, target, names, Workshop(graph, names, target), behind=barriers(graph))
    needed = _needed_in_memory(graph)
    state.fused |= {node for node in nodes if is_view(node, user_table.get(node, [])) and node not in needed}
    for node in reversed(nodes):
        consumers = user_table.get(node, [])
        if node in state.fused or node.op in LEAVES:
            state.places[node] = tuple(group.roots[0] for group in state.users(consumers))
            continue
        reason = _decide(state, node, consumers, needed.get(node, ""), exact)
        about = tuple(state.buffer(root) for root in state.places[node])
        log.append(replace(reason, what=f"{names[node]} {node.op}", about=about, at=graph.lines(node)))
    state.waits = waiting(graph, {node: names[node] for node in state.groups}, state.places)
    _join(state, [node for node in nodes if node in state.groups], log)
    groups = {id(group): group for node in nodes if (group := state.groups.get(node))}
    kernels = [kernel for group in groups.values() for kernel in _with_copy(state, group)]
    kept = {names[view_source(value).node] for value in graph.outputs}
    return _module(state, _named(in_order(kernels, kept, state.waits)))


def _reads(user: Node, node: Node) -> bool:
    """Whether a user reads a node, and does not only wait for it."""
    return user.op != "optimization_barrier" or user.operands[0].node is node


def _with_copy(state: _State, group: Group) -> list[Kernel]:
    """A kernel; before an update, the copy of its base, unless the base is there already."""
    node = group.roots[0]
    if node.op in UPDATES and state.buffer(base_buffer(node)) != state.buffer(node):
        copy = copy_kernel(node.operands[0], state.buffer(base_buffer(node)), state.buffer(node))
        return [copy, group.made.kernel]
    return [group.made.kernel]


def _needed_in_memory(graph: Graph) -> dict[Node, str]:
    """The nodes whose result must be a buffer, whatever it costs, and why."""
    needed = {}
    for node in graph.nodes():
        for number, value in enumerate(node.operands):
            if _reads_memory(node, number):
                needed[view_source(value).node] = f"a {node.op} reads it, and needs it in memory"
    return needed | {view_source(value).node: "it is an output" for value in graph.outputs}


def _reads_memory(node: Node, number: int) -> bool:
    """Whether an operand is read at places that no block of a value has: looked up, or by many taps."""
    if node.op in UPDATES:
        return number != (2 if node.op == "scatter" else 1)
    return node.op in ("gather", "dynamic_slice") or (node.op, number) == ("convolution", 0)


# -- a node: computed in the kernels that use it, stored by one of them, or in a kernel of its own ----------


def _decide(state: _State, node: Node, consumers: list[Node], needed: str, exact: bool) -> Step:
    """Settle where a node is computed, by the predicted cycles of it and of all kernels that use it. exact:
    build the kernel of its own even where it cannot be faster, to say how much slower it would be."""
    using = state.users(consumers)
    others = sum(group.cycles for group in using)
    refusal, together, joint = needed or _refusal(state, node, using), list[Group](), inf
    if not refusal:
        try:
            together = [state.build(group.roots, group.sides, node) for group in using]
            joint = sum(group.cycles for group in together)
        except Illegal as illegal:
            refusal = str(illegal)
    sure = joint <= others + state.target.least_cycles and not exact
    apart = inf if sure else others + (alone := state.build([node])).cycles
    if joint > apart and not refusal:
        refusal = f"{joint:.0f} cycles fused, {apart:.0f} apart"
    best = apart if refusal else joint
    beside = _beside(state, node, using, together, best) if needed or len(using) > 1 else []
    least = min([best, *(total for total, _ in beside)])
    both = None if needed or refusal else _both(state, node, using)
    if both and both.cycles < least:
        state.settle(both)
        state.fused.add(node)
        state.places[node] = both.roots[:1]
        return Step("", True, f"{both.cycles:.0f} cycles in one kernel that needs it twice, {least:.0f} else")
    if beside:
        total, group = min(beside, key=lambda pair: pair[0])
        state.settle(group)
        state.places[node] = group.roots[:1]
        return Step("", True, f"{total:.0f} cycles stored by {group.made.name} too, {best:.0f} else")
    if refusal:
        state.settle(alone)
        state.places[node] = (node,)
        return Step("", False, refusal)
    state.fused.add(node)
    for group in together:
        state.settle(group)
    state.places[node] = tuple(group.roots[0] for group in together)
    return Step("", True, f"{joint:.0f} cycles fused, {apart:.0f} apart")


def _both(state: _State, node: Node, using: list[Group]) -> Group | None:
    """The one kernel of two that need a node, with the node fused into it, if there can be one."""
    if len(using) != 2 or not state.target.one_core or any(one.roots[0].op in UPDATES for one in using):
        return None
    if state.needs(using[0], using[1:]) or state.needs(using[1], using[:1]):
        return None
    found = list[Group]()
    for one, other in permutations(using):
        with suppress(Illegal):
            found.append(state.build(one.roots + other.roots, one.sides + other.sides, node))
    return min(found, key=lambda group: group.cycles, default=None)


def _beside(state: _State, node: Node, using: list[Group], together: list[Group], best: float
            ) -> list[tuple[float, Group]]:
    """The kernels that could store a node on the way, with the cycles of all its users where these are fewer
    than the best so far. together: the same kernels if they only compute it: the least that they take."""
    found = []
    for number, group in enumerate(using[:MOST_USERS]):
        others = [other for other in using if other is not group]
        rest = sum(other.cycles for other in others)
        if not state.target.one_core or node.op in (*UPDATES, *SPREAD) or group.roots[0].op in UPDATES:
            continue
        if together and together[number].cycles + rest >= best or state.needs(group, others) or any(
                state.waits_more(group, other) for other in others):
            continue
        try:
            more = state.build(group.roots, (*group.sides, node))
        except Illegal:
            continue
        if more.cycles + rest < best and state.buffer(node) not in more.made.reads:
            found.append((more.cycles + rest, more))
    return found


def _refusal(state: _State, node: Node, using: list[Group]) -> str:
    """Why a node that could be fused should not be, whatever the model says; empty when it may."""
    if node.op in UPDATES:
        return "it changes its buffer in place"
    if len(using) > MOST_USERS and node.op not in SPREAD:
        return f"{len(using)} kernels would compute it again, each weighed anew for all that it reads"
    dots = [group for group in using if any(block.op == "dot" for block in group.made.pattern.blocks())]
    if node.op != "dot_general" and dots and not state.target.one_core and _epilogue_of_dot(node):
        return "it ends a dot's kernel: there it is computed once, and a buffer follows in any case"
    return ""


def _epilogue_of_dot(node: Node) -> bool:
    """Whether a node computes elementwise on a dot's result, of the same size, perhaps through others."""
    elements = node.types[0].elements
    while node.op not in ("dot_general", "convolution"):
        larger = [v.node for v in node.operands if v.type.elements >= elements and v.op not in SPREAD]
        if len(larger) != 1 or node.op == "reduce":
            return False
        node = larger[0]
    return True


# -- kernels side by side ------------------------------------------------------------------------------------


def _join(state: _State, nodes: Iterable[Node], log: list[Step]) -> None:
    """Make one kernel of two that read the same, where that is faster: it is then read once."""
    if not state.target.one_core:
        return
    near = _Neighbours(state)
    known: dict[tuple[Group, Group], Group | None] = {}

    def joined(pair: tuple[Group, Group]) -> Group | None:
        if pair not in known:
            one, other = pair
            try:
                known[pair] = state.build(one.roots + other.roots, one.sides + other.sides)
            except Illegal:
                known[pair] = None
        return known[pair]

    for node in nodes:
        group = state.groups[node]
        best, gain = group, 0.0
        for other in near.of(group):
            for both in (joined((group, other)), joined((other, group))):
                if both and group.cycles + other.cycles - both.cycles > gain:
                    best, gain = both, group.cycles + other.cycles - both.cycles
        if best is not group:
            near.joined(best, dict.fromkeys(state.groups[one] for one in best.nodes))
            state.settle(best)
            names = " and ".join(state.buffer(node) for node in best.nodes)
            why = f"{gain:.0f} cycles less in one kernel"
            log.append(Step(names, True, why, (state.buffer(best.roots[0]),)))


class _Neighbours:
    """Which kernels read what others read, and which wait for one another, while some of them are joined.

    bits: kernel -> its own bit, or those of the kernels that it was. needs: of all that must run before it.
    """

    def __init__(self, state: _State) -> None:
        groups = list(dict.fromkeys(state.groups.values()))
        self.bits = {group: 1 << number for number, group in enumerate(groups)}
        self.needs = dict.fromkeys(groups, 0)
        self.readers: dict[str, set[Group]] = {}
        for group in groups:
            self._read(group)
        direct = {group: state.needed_by(group) for group in reversed(groups)}
        changed = True
        while changed:  # once for each time that a kernel stands before one that it needs
            changed = False
            for group, found in direct.items():
                needs = self._all(found)
                changed = changed or needs != self.needs[group]
                self.needs[group] = needs

    def _all(self, groups: Iterable[Group]) -> int:
        """The bits of some kernels and of all that these need."""
        return reduce(or_, [self.bits[group] | self.needs[group] for group in groups], 0)

    def _place(self, group: Group) -> int:
        """Its lowest bit."""
        return self.bits[group] & -self.bits[group]

    def _read(self, group: Group) -> None:
        for buffer in group.made.inputs:
            self.readers.setdefault(buffer, set()).add(group)

    def of(self, group: Group) -> list[Group]:
        """The kernels that read a buffer which this one reads, and that neither need it nor are needed.

        A buffer that nearly all kernels read tells nothing of them.
        """
        shared = [self.readers[buffer] for buffer in group.made.inputs]
        near = set[Group]().union(*[found for found in shared if len(found) <= MOST_USERS]) - {group}
        if group.roots[0].op in UPDATES:
            return []
        return [other for other in sorted(near, key=self._place) if other.roots[0].op not in UPDATES
                and not self.needs[group] & self.bits[other] | self.needs[other] & self.bits[group]]

    def joined(self, both: Group, parts: Iterable[Group]) -> None:
        """Note that some kernels are one now."""
        self.needs[both], bits = self._all(parts), 0
        for part in parts:
            bits |= self.bits.pop(part)
            del self.needs[part]
            for found in self.readers.values():
                found.discard(part)
        self.bits[both] = bits
        self.needs[both] &= ~bits
        for group, needs in self.needs.items():
            if needs & bits:
                self.needs[group] = needs | bits | self.needs[both]
        self._read(both)


# -- the module ----------------------------------------------------------------------------------------------


def _named(kernels: list[Kernel]) -> tuple[Kernel, ...]:
    """Give each kernel a name of its own."""
    seen: dict[str, int] = {}
    named = []
    for kernel in kernels:
        seen[kernel.name] = seen.get(kernel.name, 0) + 1
        suffix = f"_{seen[kernel.name]}" if seen[kernel.name] > 1 else ""
        named.append(kernel.renamed(kernel.name + suffix))
    return tuple(named)


def _module(state: _State, kernels: tuple[Kernel, ...]) -> Module:
    graph = state.graph
    inputs = tuple((state.buffer(value.node), value.type) for value in graph.inputs)
    outputs = tuple((state.buffer(view_source(value).node), value.type) for value in graph.outputs)
    used = {operand.buffer for kernel in kernels for operand in kernel.reads} | {name for name, _ in outputs}
    arrays = {state.buffer(node): node.attrs["value"] for node in graph.nodes() if node.op == "constant"}
    arrays = {name: arrays[name] for name in arrays if name in used}
    return Module(graph.name, kernels, inputs, outputs, arrays, waits=state.waits)
