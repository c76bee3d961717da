"""List scheduling: each basic block becomes bundles, as few and as short as its dependences allow.

    vld v0, [x]                     { vld v0, [x] ;; vld v2, [x + 0x8] }
    vadd.f32 v1, v0, 1.0            { vadd.f32 v1, v0, 1.0 ;; vadd.f32 v3, v2, 1.0 }
    vst [y], v1             ->      { vst [y], v1 }
    vld v2, [x + 0x8]               { vst [y + 0x8], v3 ;; sbr.rel .loop }
    ...

Goes in: an Assembly. Comes out: a Program over the same registers. Cycle by cycle, of the instructions
whose operands are ready, those with the longest way to the end of the block go first, as far as the slots
reach. Once most registers are taken, only what frees one goes, or what comes first in the order of the
code: so the schedule never needs many more than the code as it was written. A cycle in which nothing can
issue gets no bundle, since the machine waits by itself.

List scheduling is what LLVM does for VLIW machines; overlapping rounds of a loop (modulo scheduling) is the
step beyond. Source: Gibbons and Muchnick (1986). Read next: dependence.py for the edges, registers.py.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Sequence

from minicc.tpu.assembly import Assembly
from minicc.tpu.dependence import Dependences, Queues, dependences
from minicc.tpu.isa import Bundle, Instr, Program, Reg
from minicc.tpu.liveness import live, successors
from minicc.tpu.machine import TPUSpec
from minicc.trace import Step

SPARE = {"s": 8, "v": 16, "m": 5}  # registers kept free, for what the oldest instruction may still need
PATIENCE = 8  # how many instructions of a class may be passed over in a cycle before it is left alone
WINDOW = 256  # instructions to look ahead of the oldest one, which keeps registers for it to end


def schedule(assembly: Assembly, spec: TPUSpec, log: list[Step] | None = None) -> Program:
    """Pack every block. log receives a Step: how many instructions in how many bundles."""
    blocks = assembly.blocks
    following = successors([b.labels for b in blocks], [b.ops[-1] if b.ops else None for b in blocks])
    liveness = live([[(op,) for op in block.ops] for block in blocks], following)
    bundles: list[Bundle] = []
    labels: list[tuple[str, int]] = []
    queues: Queues = defaultdict(deque)
    for block, (head, end) in zip(blocks, liveness, strict=True):
        labels += [(label, len(bundles)) for label in block.labels]
        bundles += _Packer(block.ops, dependences(block.ops, spec, queues), spec, head, end).pack()
    if log is not None:
        count = sum(len(block.ops) for block in blocks)
        why = f"{count} instructions in {len(bundles)} bundles, {count / max(1, len(bundles)):.1f} to each"
        log.append(Step(assembly.name, True, why))
    return Program(assembly.name, spec, assembly.buffers, assembly.semaphores, tuple(bundles), tuple(labels))


class _Packer:
    """One block being scheduled."""

    def __init__(
        self, ops: Sequence[Instr], found: Dependences, spec: TPUSpec, head: set[Reg], end: set[Reg]
    ) -> None:
        self.ops, self.found, self.spec = ops, found, spec
        self.earliest, self.cycle = list(found.earliest), 0
        self.waits_for = [0] * len(ops)
        for edges in found.edges:
            for after in edges:
                self.waits_for[after] += 1
        self.heights = self._heights()
        self.done = [False] * len(ops)
        self.oldest = 0
        self.end = end
        self.readers = Counter(reg for op in ops for reg in set(op.reads()))
        self.live = set(head)
        self.taken = Counter(reg.kind for reg in head)
        self.room = spec.slots
        self.ready: dict[str, list[tuple[int, int]]] = {slot: [] for slot in self.room}
        self.beyond: list[int] = []  # the window
        self.waiting = [(found.earliest[n], n) for n in range(len(ops)) if not self.waits_for[n]]
        heapq.heapify(self.waiting)
        self.in_turn = set(found.pops.values())
        self.pushed: deque[int] = deque()  # to the EUP: the pop whose turn it is comes first

    def _heights(self) -> list[int]:
        """Cycles from each instruction to the end of the block."""
        heights = [0] * len(self.ops)
        for number in reversed(range(len(self.ops))):
            ways = [cycles + heights[after] for after, cycles in self.found.edges[number].items()]
            heights[number] = max(ways, default=0)
        return heights

    def pack(self) -> list[Bundle]:
        """The block's bundles."""
        bundles: list[Bundle] = []
        while self._oldest() is not None:
            room, chosen = dict(self.room), []  # type: ignore[var-annotated]
            count = -1
            while count < len(chosen):  # issuing one may let another into the same bundle, over an edge of 0
                count = len(chosen)
                self._wake()
                for slot, heap in self.ready.items():
                    self._fill(slot, heap, room, chosen)
                for number in (self._oldest(), self.pushed[0] if self.pushed else None):
                    if number is not None and self._is_ready(number, room):
                        self._try(number, room, chosen)
            if chosen:
                bundles.append(Bundle(tuple(self.ops[number] for number in sorted(chosen))))
            asleep = self.waiting and not any(self.ready.values()) and not self.pushed
            self.cycle = max(self.cycle + 1, self.waiting[0][0]) if asleep else self.cycle + 1
        return bundles

    def _wake(self) -> None:
        """What waited until this cycle is ready, if it is within the window."""
        while self.waiting and self.waiting[0][0] <= self.cycle:
            number = heapq.heappop(self.waiting)[1]
            if number not in self.in_turn:
                heapq.heappush(self.beyond, number)
        while self.beyond and self.beyond[0] <= (self._oldest() or 0) + WINDOW:
            number = heapq.heappop(self.beyond)
            heapq.heappush(self.ready[self.ops[number].info.slot], (-self.heights[number], number))

    def _fill(self, slot: str, heap: list[tuple[int, int]], room: dict[str, int], chosen: list[int]) -> None:
        """Issue what fits into the slots of one class, the longest way to the end first."""
        aside: list[tuple[int, int]] = []
        while heap and room[slot] and len(aside) < PATIENCE:
            best = heapq.heappop(heap)
            if not self.done[best[1]] and not self._try(best[1], room, chosen):
                aside.append(best)
        for entry in aside:
            heapq.heappush(heap, entry)

    def _try(self, number: int, room: dict[str, int], chosen: list[int]) -> bool:
        """Issue an instruction, if its unit's port is free and its result finds a register."""
        op = self.ops[number]
        if op.info.queue and any(_port(self.ops[other]) == _port(op) for other in chosen):
            return False
        if number in self.in_turn:
            if number != self.pushed[0]:
                return False
        elif number != self._oldest() and (number in self.found.pops or (op.dst and op.dst not in self.live)):
            kind = op.dst.kind if op.dst else "v"
            frees = any(reg.kind == kind and self.readers[reg] == 1 and reg not in self.end
                        for reg in op.reads())
            if not frees and self.taken[kind] >= self.spec.registers[kind] - SPARE[kind]:
                return False
        room[op.info.slot] -= 1
        chosen.append(number)
        self._issue(number)
        return True

    def _is_ready(self, number: int, room: dict[str, int]) -> bool:
        waits = self.waits_for[number] or self.earliest[number] > self.cycle
        return not waits and room[self.ops[number].info.slot] > 0

    def _oldest(self) -> int | None:
        """The first instruction, in the order of the code, that has not been issued."""
        while self.oldest < len(self.ops) and self.done[self.oldest]:
            self.oldest += 1
        return self.oldest if self.oldest < len(self.ops) else None

    def _issue(self, number: int) -> None:
        """Count registers, and hand on to what waits for this instruction."""
        op, earliest = self.ops[number], self.earliest
        self.done[number] = True
        if number in self.found.pops:  # what is in a queue will need a register
            self.pushed.append(self.found.pops[number])
            self.taken["v"] += 1
        elif number in self.in_turn:
            self.pushed.popleft()
            self.taken["v"] -= 1
        for reg in set(op.reads()):
            self.readers[reg] -= 1
            if not self.readers[reg] and reg not in self.end and reg in self.live:
                self.live.remove(reg)
                self.taken[reg.kind] -= 1
        if op.dst and op.dst not in self.live and (self.readers[op.dst] or op.dst in self.end):
            self.live.add(op.dst)
            self.taken[op.dst.kind] += 1
        for after, cycles in self.found.edges[number].items():
            earliest[after] = max(earliest[after], self.cycle + cycles)
            self.waits_for[after] -= 1
            if not self.waits_for[after]:
                heapq.heappush(self.waiting, (earliest[after], after))


def _port(op: Instr) -> tuple[str, int, bool]:
    return op.info.queue, op.unit, op.info.port == "pop"
