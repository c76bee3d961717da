"""List scheduling: each basic block becomes bundles, as few and as short as its dependences allow.

    vld v0, [x]                     { vld v0, [x] ;; vld v2, [x + 0x8] }
    vadd.f32 v1, v0, 1.0            { vadd.f32 v1, v0, 1.0 ;; vadd.f32 v3, v2, 1.0 }
    vst [y], v1             ->      { vst [y], v1 }
    vld v2, [x + 0x8]               { vst [y + 0x8], v3 ;; sbr.rel .loop }
    ...

Goes in: a program of one instruction to a bundle. Comes out: the same, packed, over the same registers.
Cycle by cycle, of the instructions whose operands are ready, those with the longest way to the end of the
block go first, as far as the slots reach. Once most registers are taken, only what frees one goes, or what
comes first in the order of the code: so the schedule never needs many more than the code as it was written.
A cycle in which nothing can issue gets no bundle, since the machine waits by itself. A loop takes the bundles
of modulo.py instead, in which its rounds overlap, where that is quicker.

List scheduling is what LLVM does for VLIW machines. Source: Gibbons and Muchnick (1986). Read next:
dependence.py for the edges, modulo.py for loops, registers.py.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from dataclasses import replace

from minicc.tpu.affine import Loop, loop_of
from minicc.tpu.dependence import Dependences, Queues
from minicc.tpu.isa import KERNEL_LABEL, Bundle, Instr, Program, Reg
from minicc.tpu.liveness import live
from minicc.tpu.machine import TPUSpec
from minicc.tpu.modulo import Pipelined, pipeline, refusal
from minicc.trace import Step

SPARE = {"s": 8, "v": 16, "m": 5}  # registers kept free, for what the oldest instruction may still need
PATIENCE = 8  # how many instructions of a class may be passed over in a cycle before it is left alone
WORTH = 0.9  # of the cycles of a loop, that it may take at most when its rounds overlap
WINDOW = 256  # instructions to look ahead of the oldest one, which keeps registers for it to end


def schedule(program: Program, spec: TPUSpec, log: list[Step] | None = None, overlap: bool = True) -> Program:
    """Pack every block. log receives a Step: how many instructions in how many bundles; and one for each loop
    whose rounds overlap, which they do if that is quicker.

    overlap: whether to look for such loops.
    """
    bundles: list[Bundle] = []
    moved: dict[int, int] = {}  # where a block began -> where it begins now
    queues: Queues = {}
    lives, fresh = live(program), unused(program)
    before: list[Instr] = []
    for number, (block, head, end) in enumerate(lives):
        ops = [op for pc in block for op in program.bundles[pc].ops]
        packer = _Packer(Dependences(ops, spec, queues), head, end)
        packed, start = packer.pack(), 0
        loop = loop_of(program, block, before, ops) if overlap else None
        most = WORTH * loop.rounds * (packer.cycle + spec.branch_cycles) if loop else 0
        found = pipeline(loop, spec, head, lives[number + 1][1], fresh, most) if loop else None
        if found:
            packed, start = found.bundles, found.start
        if loop and log is not None:
            log += _told(_kernel(program, block.start), loop, packer.cycle, found)
        moved[block.start] = len(bundles) + start
        bundles += packed
        before = ops
    moved[len(program.bundles)] = len(bundles)
    if log is not None:
        count = sum(len(bundle.ops) for bundle in bundles)
        why = f"{count} instructions in {len(bundles)} bundles, {count / max(1, len(bundles)):.1f} to each"
        log.append(Step(program.name, True, why))
    labels = tuple((label, moved[pc]) for label, pc in program.labels)
    return replace(program, bundles=tuple(bundles), labels=labels)


def _kernel(program: Program, start: int) -> str:
    """The kernel to which a bundle belongs."""
    names = [label.removeprefix(KERNEL_LABEL) for label, pc in program.labels
             if label.startswith(KERNEL_LABEL) and pc <= start]
    return names[-1] if names else program.name


def _told(kernel: str, loop: Loop, cycles: int, found: Pipelined | None) -> list[Step]:
    """What to say of a loop: the interval reached, its bound and what binds, and which slots are taken."""
    if found is None:
        alone = f"{loop.label}: {loop.rounds} rounds of {cycles} cycles, one after the other: {refusal(loop)}"
        return [Step(kernel, False, alone)]
    return [Step(kernel, True, text) for text in (found.says(loop, cycles), *found.table())]


def unused(program: Program) -> Counter[str]:
    """kind -> the number of a register that the program does not use, nor any above it."""
    found = Counter[str]()
    for bundle in program.bundles:
        for reg in (reg for op in bundle.ops for reg in (*op.reads(), *op.writes())):
            found[reg.kind] = max(found[reg.kind], reg.index + 1)
    return found


class _Packer:
    """One block being scheduled."""

    def __init__(self, found: Dependences, head: set[Reg], end: set[Reg]) -> None:
        ops, spec = found.ops, found.machine
        self.ops, self.found, self.spec, self.end = ops, found, spec, end
        self.cycle = self.oldest = 0  # the first instruction, in the order of the code, that has not issued
        self.done = [False] * len(ops)
        self.earliest = list(found.earliest)
        self.waits_for = Counter(after for edges in found.edges for after in edges)
        self.heights = [0] * len(ops)  # cycles to the end of the block
        for number in reversed(range(len(ops))):
            ways = [cycles + self.heights[after] for after, cycles in found.edges[number].items()]
            self.heights[number] = max(ways, default=0)
        self.readers = Counter(reg for op in ops for reg in set(op.reads()))
        self.live, self.taken = set(head), Counter(reg.kind for reg in head)
        self.waiting = [(found.earliest[n], n) for n in range(len(ops)) if not self.waits_for[n]]
        heapq.heapify(self.waiting)
        self.beyond: list[int] = []  # the window
        self.ready: dict[str, list[tuple[int, int]]] = {slot: [] for slot in spec.slots}
        self.room: dict[str, int] = {}
        self.chosen: list[int] = []
        self.popping = deque[int]()  # pops of the EUP, in the order of their pushes
        self.in_turn = set(found.pops.values())

    def pack(self) -> list[Bundle]:
        """The block's bundles."""
        bundles: list[Bundle] = []
        while self.oldest < len(self.ops):
            self.room, self.chosen, before = self.spec.slots, [], -1
            while before < len(self.chosen):  # one may let another into the same bundle, over an edge of 0
                before = len(self.chosen)
                self.wake()
                for slot, heap in self.ready.items():
                    self.fill(slot, heap)
                self.issue_oldest()
            if self.chosen:
                bundles.append(Bundle(tuple(self.ops[number] for number in sorted(self.chosen))))
            asleep = self.waiting and not any(self.ready.values())
            self.cycle = max(self.cycle + 1, self.waiting[0][0]) if asleep else self.cycle + 1
        return bundles

    def wake(self) -> None:
        """What waited until this cycle is ready, if it is within the window."""
        while self.waiting and self.waiting[0][0] <= self.cycle:
            heapq.heappush(self.beyond, heapq.heappop(self.waiting)[1])
        while self.beyond and self.beyond[0] <= self.oldest + WINDOW:
            number = heapq.heappop(self.beyond)
            heapq.heappush(self.ready[self.ops[number].info.slot], (-self.heights[number], number))

    def fill(self, slot: str, heap: list[tuple[int, int]]) -> None:
        """Issue what fits into the slots of one class, the longest way to the end first."""
        aside: list[tuple[int, int]] = []
        while heap and self.room[slot] and len(aside) < PATIENCE:
            best = heapq.heappop(heap)
            if not self.done[best[1]] and not self.issue(best[1]):
                aside.append(best)
        for entry in aside:
            heapq.heappush(heap, entry)

    def issue_oldest(self) -> None:
        """Issue the oldest instruction, if it is ready, however many registers are taken."""
        number = self.oldest
        if number < len(self.ops) and not self.waits_for[number] and self.earliest[number] <= self.cycle \
                and self.room[self.ops[number].info.slot]:
            self.issue(number)

    def issue(self, number: int) -> bool:
        """Issue an instruction, if its unit's port is free and its result, or what its push will pop, finds a
        register."""
        op, popped = self.ops[number], self.found.pops.get(number)
        port, target = _port(op), (op if popped is None else self.ops[popped]).dst
        taken = op.info.queue and any(_port(self.ops[other]) == port for other in self.chosen)
        if taken or (number in self.in_turn and number != self.popping[0]):
            return False
        if target and target not in self.live and number != self.oldest and not self.affords(op, target.kind):
            return False
        self.room[op.info.slot] -= 1
        self.chosen.append(number)
        self.done[number] = True
        while self.oldest < len(self.ops) and self.done[self.oldest]:
            self.oldest += 1
        if popped is not None:
            self.popping.append(popped)
        elif number in self.in_turn:
            self.popping.popleft()
        self.count(op, target)
        for after, cycles in self.found.edges[number].items():
            self.earliest[after] = max(self.earliest[after], self.cycle + cycles)
            self.waits_for[after] -= 1
            if not self.waits_for[after]:
                heapq.heappush(self.waiting, (self.earliest[after], after))
        return True

    def affords(self, op: Instr, kind: str) -> bool:
        """Whether there is a register of this kind for the result, or one is read for the last time."""
        return self.taken[kind] < self.spec.registers[kind] - SPARE[kind] or any(
            reg.kind == kind and self.readers[reg] == 1 and reg not in self.end for reg in op.reads())

    def count(self, op: Instr, target: Reg | None) -> None:
        """Free the registers that were read for the last time, and take the one written."""
        for reg in set(op.reads()):
            self.readers[reg] -= 1
            if not self.readers[reg] and reg not in self.end and reg in self.live:
                self.live.remove(reg)
                self.taken[reg.kind] -= 1
        if target and target not in self.live and (self.readers[target] or target in self.end):
            self.live.add(target)
            self.taken[target.kind] += 1


def _port(op: Instr) -> tuple[str, int, bool]:
    return op.info.queue, op.unit, op.info.port == "pop"
