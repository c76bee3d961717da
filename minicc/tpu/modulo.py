"""Modulo scheduling: a round of a loop begins before the rounds before it have ended.

    load, add, store of round 0        { vld v0 }
                load, add, store of 1  { vld v1 ;; vadd v2, v0 }                 prologue
                           ... of 2    { vld v0 ;; vadd v3, v1 ;; vst v2 }  <-   one bundle: a whole round, in
                                                                                 three stages of three rounds

Goes in: a loop of one block whose number of rounds is known, its instructions in order. Comes out: bundles of
prologue, kernel and epilogue. Every `interval` cycles a round begins, and each does the same, so that a slot
taken in one cycle is taken in all cycles that are a multiple of the interval away. The interval begins at
its lower bound: what the busiest resource takes for a round, or a recurrence (a chain from a round to a later
one, divided by how many rounds it spans). An instruction that finds no place throws out those in its way,
and they are placed anew (iterative modulo scheduling); if that goes on, the interval grows.

A value that outlives the interval would be overwritten by the next round's, so the kernel is unrolled, and
each copy writes registers of its own (modulo variable expansion). Rounds that do not fill it go before it.
Results of the EUP and the cross-lane units are popped a fixed time after their push, which keeps the order of
their queues in any overlap. Rows are told apart by the affine addresses, so many rounds apart at least.

Invariants: left to the list scheduler are loops with copies, waits, matrix units (which flattened code keeps
busy as it is) or transpositions, those whose registers would not suffice, and those that gain little.
LLVM's MachinePipeliner does the same for Hexagon. Source: Rau, "Iterative modulo scheduling" (1994), and Lam,
"Software pipelining" (1988). Read next: affine.py for the distances, registers.py.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from minicc.tpu.affine import Loop, distances
from minicc.tpu.isa import Bundle, Instr, Reg
from minicc.tpu.machine import TPUSpec
from minicc.tpu.registers import renamed

PATIENCE = 8  # placements per instruction, before the interval grows
TRIES = 12  # intervals
MOST_BUNDLES = 600  # that a loop may become
LEAST = 2  # cycles of an interval: one counts the rounds, a later one branches
SHOWN_CYCLES = 72  # of a table
SPARE = 2  # registers of a kind left alone
NO_GAIN = "overlapping them would gain little"
MOVES = {"s": "smov", "v": "vmov"}

Resource = str | tuple[str, int]  # a slot of the bundle, or the port of a unit


class Edge(NamedTuple):
    """`after` issues at least `cycles` after the `before` of so many rounds earlier."""

    before: int
    after: int
    cycles: int
    rounds: int


class Pipelined(NamedTuple):
    """What a loop became. start, stop: its kernel among the bundles; the same if none is left."""

    bundles: list[Bundle]
    start: int
    stop: int
    cycles: int  # for all rounds
    interval: int
    stages: int
    copies: int
    taken: Counter[tuple[str, int]]  # by slot and cycle of the interval
    binds: str = ""  # what the interval is bound by

    def says(self, loop: Loop, cycles: int) -> str:
        """In words. cycles: of a round that does not overlap with others."""
        return (f"{loop.label}: {loop.rounds} rounds, one every {self.interval} cycles instead of {cycles}: "
                f"{self.binds}; {self.stages} stages, {self.copies} copies")

    def table(self) -> list[str]:
        """How many slots are taken in each cycle of the interval: a row for each class, a column a cycle."""
        cycles = range(min(self.interval, SHOWN_CYCLES))
        return [f"{slot:8} " + "".join(str(self.taken[slot, cycle] or ".") for cycle in cycles)
                for slot in sorted({slot for slot, _ in self.taken})]


def pipeline(loop: Loop, spec: TPUSpec, head: set[Reg], after: set[Reg], fresh: Counter[str],
             most: float) -> Pipelined | None:
    """The loop with its rounds overlapped; None if it is not of the kind, or takes `most` cycles or more.

    head, after: the registers live where it begins and where it ends. fresh: kind -> the next unused
    register, brought up to date.
    """
    if refusal(loop) != NO_GAIN:
        return None
    loop = replace(loop, ops=tuple(_once(loop.ops, fresh)))
    problem = _Problem(loop, spec)
    interval = max(LEAST, *problem.resources().values())
    for _ in range(TRIES):
        if interval * loop.rounds >= most:
            break
        if times := problem.place(interval):
            code = _Code(loop, problem, times, interval, fresh)
            found = code.emit(head, most)
            if found and max(found.cycles - most, len(found.bundles) - MOST_BUNDLES) < 0 \
                    and _fits(found, head, after, spec):
                fresh |= code.fresh
                return found._replace(binds=problem.binding(interval))
        interval += max(1, interval // 16)
    return None


def refusal(loop: Loop) -> str:
    """Why the rounds of a loop do not overlap."""
    unfit = next((op.op for op in loop.ops if op.info.queue == "mxu" or op.info.slot == "misc"
                  or op.op.startswith("vxpose")), None)
    return f"{unfit} keeps its order" if unfit else NO_GAIN


def _once(ops: Sequence[Instr], fresh: Counter[str]) -> Iterator[Instr]:
    """The instructions with a register of its own for each write, but for the last of each."""
    left, now = Counter(op.dst for op in ops), dict[Reg, Reg]()
    for op in ops:
        names, dst = {reg: now.get(reg, reg) for reg in op.reads()}, op.dst
        left[dst] -= 1
        if dst and left[dst]:
            now[dst] = Reg(dst.kind, fresh[dst.kind])
            fresh[dst.kind] += 1
            dst = now[dst]
        elif dst:
            now.pop(dst, None)
        yield renamed(op, names, dst)


@dataclass
class _Problem:
    """What has to be placed, and what it needs. A push and its pop are one node: the pop's time is fixed."""

    loop: Loop
    spec: TPUSpec
    nodes: list[int] = field(default_factory=list)  # instructions, without pops
    node: dict[int, tuple[int, int]] = field(default_factory=dict)  # instruction -> its node, cycles behind
    edges: list[Edge] = field(default_factory=list)
    uses: dict[int, list[tuple[Resource, int]]] = field(default_factory=dict)  # node -> what, cycles behind

    def __post_init__(self) -> None:
        pushed: dict[tuple[str, int], list[int]] = defaultdict(list)
        for number, op in enumerate(self.loop.ops):
            unit = op.info.queue, op.unit
            if op.info.port == "pop":
                push = pushed[unit].pop(0)
                behind = self.loop.ops[push].latency(self.spec)
                self.node[number] = push, behind
                self.uses[push].append((op.info.slot, behind))
                continue
            self.node[number] = number, 0
            self.nodes.append(number)
            self.uses[number] = [(op.info.slot, 0)]
            if op.info.queue:
                pushed[unit].append(number)
                busy = self.spec.xlu_cycles if op.info.queue == "xlu" else 1
                self.uses[number] += [(unit, cycle) for cycle in range(busy)]
        self.dependences()

    def dependences(self) -> None:
        """The edges between nodes: of registers, and of rows of memory."""
        ops, found = self.loop.ops, list[Edge]()
        for number, op in enumerate(ops):
            for reg in op.reads():
                writer = self.loop.writers.get(reg)
                if writer is not None:
                    found.append(Edge(writer, number, ops[writer].latency(self.spec), int(writer >= number)))
        for before, after, rounds in distances(self.loop):
            wrote = ops[before].info.memory == "write"
            found.append(Edge(before, after, self.spec.store_latency if wrote else 0, rounds))
        for before, after, cycles, rounds in found:
            (a, behind), (b, late) = self.node[before], self.node[after]
            self.edges.append(Edge(a, b, cycles + behind - late, rounds))

    def capacity(self, resource: Resource) -> int:
        """How many nodes may use a resource in a cycle: a slot of the bundle, or the port of a unit."""
        return self.spec.slots[resource] if isinstance(resource, str) else 1

    def resources(self) -> dict[str, int]:
        """resource -> cycles for which it is busy in a round. One scalar is the loop's own."""
        total = Counter(resource for uses in self.uses.values() for resource, _ in uses)
        total["scalar"] += 1
        return {resource if isinstance(resource, str) else f"{resource[0]}{resource[1]}":
                -(-count // self.capacity(resource)) for resource, count in total.items()}

    def binding(self, interval: int) -> str:
        """What keeps the interval from being shorter."""
        least, name = max((cycles, name) for name, cycles in self.resources().items())
        if interval <= max(LEAST, least):
            return f"{name} takes {least}"
        recurs = self.heights(interval - 1) is None
        return f"{'a recurrence takes that' if recurs else 'registers leave no less'}, {name} {least}"

    def heights(self, interval: int) -> dict[int, int] | None:
        """Cycles from each node to the end; None if a recurrence takes longer than its rounds."""
        heights = dict.fromkeys(self.nodes, 0)
        edges = sorted(self.edges, key=lambda edge: -edge.before)
        for _ in range(len(heights) + 1):
            changed = False
            for before, after, cycles, rounds in edges:
                height = cycles - interval * rounds + heights[after]
                if height > heights[before]:
                    heights[before], changed = height, True
            if not changed:
                return heights
        return None

    def place(self, interval: int) -> dict[int, int] | None:
        """Node -> cycle, at this interval; None if none were found."""
        alone = [Counter((resource, behind % interval) for resource, behind in uses)
                 for uses in self.uses.values()]
        if any(count > self.capacity(resource) for rows in alone for (resource, _), count in rows.items()):
            return None  # a push and its pop would share a slot
        heights = self.heights(interval)
        return _Table(self, interval, heights).fill() if heights else None


class _Table:
    """The slots of an interval, and who takes them."""

    def __init__(self, problem: _Problem, interval: int, heights: dict[int, int]) -> None:
        self.problem, self.interval, self.heights = problem, interval, heights
        self.taken: dict[tuple[Resource, int], list[int]] = defaultdict(list)
        self.taken["scalar", 0].append(-1)  # counts the rounds
        self.times: dict[int, int] = {}
        self.last: dict[int, int] = {}  # where a node was, at last
        self.into: dict[int, list[Edge]] = defaultdict(list)
        self.out: dict[int, list[Edge]] = defaultdict(list)
        for edge in problem.edges:
            self.into[edge.after].append(edge)
            self.out[edge.before].append(edge)

    def fill(self) -> dict[int, int] | None:
        """Place all nodes, the longest way to the end first."""
        left = [(-self.heights[node], node) for node in self.problem.nodes]
        heapify(left)
        for _ in range(PATIENCE * len(left)):
            if not left:
                first = min(self.times.values())
                first -= first % self.interval
                return {node: time - first for node, time in self.times.items()}
            for thrown in self.put(heappop(left)[1]):
                heappush(left, (-self.heights[thrown], thrown))
        return None

    def put(self, node: int) -> set[int]:
        """Place a node. Returns: those that had to go."""
        times, interval = self.times, self.interval
        earliest = max([times[e.before] + e.cycles - interval * e.rounds for e in self.into[node]
                        if e.before in times and e.before != node], default=0)
        free = (t for t in range(earliest, earliest + interval) if not self.rivals(node, t))
        time = next(free, max(earliest, self.last.get(node, earliest - 1) + 1))
        thrown = self.rivals(node, time)
        times[node] = self.last[node] = time
        thrown |= {e.after for e in self.out[node] if e.after in times and e.after != node
                   and times[e.after] < time + e.cycles - interval * e.rounds}
        for other in thrown:
            for resource, behind in self.problem.uses[other]:
                self.taken[resource, (times[other] + behind) % interval].remove(other)
            del times[other]
        for resource, behind in self.problem.uses[node]:
            self.taken[resource, (time + behind) % interval].append(node)
        return thrown

    def rivals(self, node: int, time: int) -> set[int]:
        """Those that take what the node needs at a time, as many as must go."""
        found: set[int] = set()
        rows = Counter((resource, (time + behind) % self.interval)
                       for resource, behind in self.problem.uses[node])
        for (resource, row), wanted in rows.items():
            there = self.taken[resource, row]
            too_many = len(there) + wanted - self.problem.capacity(resource)
            found.update(there[max(0, len(there) - too_many):] if too_many > 0 else ())
        return found


class _Code:
    """Writes a placed loop down: each instruction of each round at its cycle, with its round's registers."""

    def __init__(self, loop: Loop, problem: _Problem, times: dict[int, int], interval: int,
                 fresh: Counter[str]) -> None:
        self.loop, self.interval, self.branch_cycles = loop, interval, problem.spec.branch_cycles
        self.times = {n: times[node] + behind for n, (node, behind) in problem.node.items()}
        self.span = max(self.times.values()) + 1
        least = self.unrolling()
        self.copies = next((n for n in range(least, 2 * least) if loop.rounds % n == 0), least)
        self.last = loop.rounds % self.copies  # which copy of a register holds what the last round wrote
        self.names: dict[tuple[Reg, int], Reg] = {}
        self.fresh = Counter(fresh)

    def unrolling(self) -> int:
        """How many rounds may need a register at a time."""
        most = 1
        for number, op in enumerate(self.loop.ops):
            for reg in op.reads():
                writer = self.loop.writers.get(reg)
                if writer is not None:
                    read = self.times[number] + self.interval * (writer >= number)
                    most = max(most, -(-(read - self.times[writer]) // self.interval))
        return most

    def name(self, reg: Reg, copy: int) -> Reg:
        """A register's name in a copy: its own where the loop ends."""
        key = reg, copy % self.copies
        if reg not in self.loop.writers or key[1] == self.last:
            return reg
        if key not in self.names:
            self.names[key] = Reg(reg.kind, self.fresh[reg.kind])
            self.fresh[reg.kind] += 1
        return self.names[key]

    def renamed(self, number: int, turn: int) -> Instr:
        """An instruction in a round: it writes that round's registers, and reads them or the one before's."""
        op = self.loop.ops[number]
        behind = {reg: turn + (self.loop.writers.get(reg, number) < number) for reg in op.reads()}
        target = self.name(op.dst, turn + 1) if op.dst else None
        return renamed(op, {reg: self.name(reg, copy) for reg, copy in behind.items()}, target)

    def emit(self, head: set[Reg], most: float) -> Pipelined | None:
        """All bundles; None if it is clear ahead that they are too many, or take `most` cycles or more, or
        if a mask would have to be moved."""
        rounds, interval = self.loop.rounds, self.interval
        stages = -(-self.span // interval)
        turns = max(0, rounds - (stages - 1)) // self.copies  # of the kernel
        turns = turns if turns > 1 else 0
        first = rounds - turns * self.copies  # rounds that begin in the prologue
        kernel = range(first * interval, (first + self.copies) * interval) if turns else range(0)
        seen = first + self.copies
        issued = [(cycle, number, turn)
                  for turn in (*range(min(seen, rounds)), *range(max(seen, rounds - stages), rounds))
                  for number, time in self.times.items()
                  if (cycle := time + turn * interval) < first * interval or cycle in kernel
                  or cycle >= rounds * interval]
        cycles = rounds * interval + self.span - interval + turns * self.branch_cycles
        if cycles >= most or len({cycle for cycle, *_ in issued}) >= MOST_BUNDLES:
            return None
        rows: dict[int, list[Instr]] = defaultdict(list)
        for cycle, number, turn in issued:
            rows[cycle].append(self.renamed(number, turn))
        carried = sorted(reg for reg in head & set(self.loop.writers) if self.name(reg, 0) != reg)
        if any(reg.kind not in MOVES for reg in carried):
            return None
        before = [Bundle((Instr(MOVES[reg.kind], self.name(reg, 0), (reg,)),)) for reg in carried]
        if kernel:
            counter = Reg("s", self.fresh["s"])
            self.fresh["s"] += 1
            before.append(Bundle((Instr("smov", counter, (turns,)),)))
            rows[kernel[0]].append(Instr("sadd.s32", counter, (counter, -1)))
            rows[kernel[-1]].append(Instr("sbr.rel", None, (counter, self.loop.label)))
        ends = kernel.start, kernel.stop
        start, stop = (len(before) + sum(cycle < end for cycle in rows) for end in ends)
        bundles = [*before, *(Bundle(tuple(rows[cycle])) for cycle in sorted(rows))]
        taken = Counter((op.info.slot, self.times[number] % interval)
                        for number, op in enumerate(self.loop.ops))
        stop = stop if kernel else start
        return Pipelined(bundles, start, stop, len(before) + cycles, interval, stages, self.copies, taken)


def _fits(found: Pipelined, head: set[Reg], after: set[Reg], spec: TPUSpec) -> bool:
    """Whether the registers suffice: each is taken from its first use to its last, or for the whole kernel if
    it lives from one round of that to the next."""
    first: dict[Reg, int] = dict.fromkeys(head, 0)
    final: dict[Reg, int] = dict.fromkeys(after, len(found.bundles))
    kernel, written = range(found.start, found.stop), set[Reg]()
    for place, bundle in enumerate(found.bundles):
        for op in bundle.ops:
            for reg in op.reads():
                lives_on = place in kernel and reg not in written
                first.setdefault(reg, place)
                final[reg] = max(final.get(reg, 0), found.stop if lives_on else place)
        written = written if place in kernel else set()
        for reg in (reg for op in bundle.ops for reg in op.writes()):
            written.add(reg)
            first.setdefault(reg, place)
            final[reg] = max(final.get(reg, 0), place)
    changes = Counter[tuple[int, str]]()
    for reg in first | final:
        changes[first.get(reg, 0), reg.kind] += 1
        changes[final.get(reg, len(found.bundles)), reg.kind] -= 1
    taken = Counter[str]()
    for (_, kind), change in sorted(changes.items()):
        taken[kind] += change
        if taken[kind] > spec.registers[kind] - SPARE:
            return False
    return True
