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
step beyond. Source: Gibbons and Muchnick (1986). Read next: dependence.py for the edges, registers.py. """

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence

from minicc.tpu.assembly import Assembly
from minicc.tpu.dependence import Dependences, Queues, dependences
from minicc.tpu.isa import Bundle, Instr, Program, Reg
from minicc.tpu.liveness import live, successors
from minicc.tpu.machine import TPUSpec
from minicc.trace import Step

SPARE = {"s": 8, "v": 16, "m": 5}  # registers kept free, for what the oldest instruction may still need


def schedule(assembly: Assembly, spec: TPUSpec, log: list[Step] | None = None) -> Program:
    """Pack every block. log receives a Step: how many instructions in how many bundles."""
    blocks = assembly.blocks
    following = successors([b.labels for b in blocks], [b.ops[-1] if b.ops else None for b in blocks])
    liveness = live([[(op,) for op in block.ops] for block in blocks], following)
    bundles: list[Bundle] = []
    labels: list[tuple[str, int]] = []
    queues = Queues()
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

    def _heights(self) -> list[int]:
        """Cycles from each instruction to the end of the block."""
        heights = [0] * len(self.ops)
        for number in reversed(range(len(self.ops))):
            ways = [cycles + heights[after] for after, cycles in self.found.edges[number].items()]
            heights[number] = max(ways, default=0)
        return heights

    def pack(self) -> list[Bundle]:
        """The block's bundles."""
        waiting = [(self.found.earliest[n], n) for n in range(len(self.ops)) if not self.waits_for[n]]
        heapq.heapify(waiting)
        bundles, cycle = [], 0
        ready: list[tuple[int, int]] = []
        while waiting or ready:
            chosen: list[int] = []
            held_back: list[tuple[int, int]] = []
            while True:  # issuing one may let another into the same bundle, over an edge of 0 cycles
                while waiting and waiting[0][0] <= cycle:
                    number = heapq.heappop(waiting)[1]
                    heapq.heappush(ready, (-self.heights[number], number))
                if not ready:
                    break
                best = heapq.heappop(ready)
                if self._fits(best[1], chosen):
                    chosen.append(best[1])
                    self._issue(best[1], cycle, waiting)
                else:
                    held_back.append(best)
            ready = held_back
            heapq.heapify(ready)
            if chosen:
                bundles.append(Bundle(tuple(self.ops[number] for number in sorted(chosen))))
            cycle = max(cycle + 1, waiting[0][0]) if waiting and not ready else cycle + 1
        return bundles

    def _fits(self, number: int, chosen: list[int]) -> bool:
        """Whether an instruction may join a bundle: slots, ports and registers."""
        op, beside = self.ops[number], [self.ops[n] for n in chosen]
        if sum(other.info.slot == op.info.slot for other in beside) >= self.spec.slots[op.info.slot]:
            return False
        if op.info.queue and any(_port(other) == _port(op) for other in beside):
            return False
        if not op.dst or op.dst in self.live or number == self._oldest():
            return True
        kind = op.dst.kind
        frees = any(reg.kind == kind and self.readers[reg] == 1 and reg not in self.end for reg in op.reads())
        return frees or self.taken[kind] < self.spec.registers[kind] - SPARE[kind]

    def _oldest(self) -> int:
        """The first instruction, in the order of the code, that has not been issued."""
        while self.done[self.oldest]:
            self.oldest += 1
        return self.oldest

    def _issue(self, number: int, cycle: int, waiting: list[tuple[int, int]]) -> None:
        """Count registers, and hand on to what waits for this instruction."""
        op, earliest = self.ops[number], self.found.earliest
        self.done[number] = True
        for reg in set(op.reads()):
            self.readers[reg] -= 1
            if not self.readers[reg] and reg not in self.end and reg in self.live:
                self.live.remove(reg)
                self.taken[reg.kind] -= 1
        if op.dst and op.dst not in self.live and (self.readers[op.dst] or op.dst in self.end):
            self.live.add(op.dst)
            self.taken[op.dst.kind] += 1
        for after, cycles in self.found.edges[number].items():
            earliest[after] = max(earliest[after], cycle + cycles)
            self.waits_for[after] -= 1
            if not self.waits_for[after]:
                heapq.heappush(waiting, (earliest[after], after))


def _port(op: Instr) -> tuple[str, int, bool]:
    return op.info.queue, op.unit, op.info.port == "pop"
