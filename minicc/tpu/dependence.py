"""Dependences: which instructions of a basic block must wait for which, and for how many cycles.

    vld v0, [x]  --2-->  vadd.f32 v1, v0, v0  --2-->  vst [y], v1          results, after their latency
    vmatmul.mxu0 --48--> vmatmul.mxu0                                      a unit is busy for so long
    vmatmul.mxu0 --302--> vpop.mrf.mxu0                                    a result comes out of its queue

Goes in: the instructions of a block in order, the machine, and what its queues hold at entry. Comes out:
for each instruction, (later instruction, cycles) pairs. Cycles of 0 let both stand in one bundle, where all
slots read before any writes. Two accesses of VMEM are independent if their buffers differ, or their base
register is the same and their rows are disjoint. Copies, waits and branches stay in order, and no access of
VMEM crosses a copy or a wait.

LLVM's ScheduleDAG holds the same edges. Read next: schedule.py.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from minicc.tpu.isa import Address, Instr, Reg
from minicc.tpu.machine import LANES, SUBLANES, TPUSpec

Unit = tuple[str, int]
# What every unit holds: the results still to pop, each as the instruction that pushed it, or None if that is
# in an earlier block. Kept from block to block, since a loop may pop what the round before has pushed.
Queues = defaultdict[Unit, deque[int | None]]
Access = tuple[int, tuple, range]  # instruction, base register and its version, rows


@dataclass
class Dependences:
    """edges: instruction -> (later instruction, cycles). earliest: instruction -> cycle of the block.

    pops: push -> pop, of the EUP, whose order is for the scheduler to choose, as long as both agree.
    """

    edges: list[dict[int, int]]
    earliest: list[int]
    pops: dict[int, int] = field(default_factory=dict)

    def add(self, before: int | None, after: int, cycles: int) -> None:
        """`after` issues at least so many cycles later than `before`."""
        if before is not None and before != after:
            self.edges[before][after] = max(cycles, self.edges[before].get(after, 0))


class _Builder:
    def __init__(self, ops: Sequence[Instr], machine: TPUSpec, queues: Queues) -> None:
        self.ops, self.machine, self.queues = ops, machine, queues
        self.found = Dependences([{} for _ in ops], [0] * len(ops))
        self.written: dict[Reg, int] = {}
        self.read: dict[Reg, list[int]] = defaultdict(list)
        self.versions: dict[Reg, int] = defaultdict(int)
        self.accesses: dict[tuple[str, bool], list[Access]] = defaultdict(list)
        self.since_fence: list[int] = []
        self.fence: int | None = None
        self.last: dict[tuple, int] = {}  # (unit, port) -> the last push or pop there
        self.popped: dict[Unit, list[int]] = defaultdict(list)
        self.carried = {unit: len(held) for unit, held in queues.items()}
        ports = [op.info.port for op in ops if op.info.queue == "eup"]
        self.reorders = not self.carried.get(("eup", 0)) and 2 * ports.count("pop") == len(ports)

    def build(self) -> Dependences:
        for number, op in enumerate(self.ops):
            self.registers(number, op)
            if op.info.memory in ("read", "write"):
                self.access(number, op)
            if op.info.queue:
                self.queue(number, op)
            if op.info.slot == "misc":
                self.control(number, op)
        for unit, held in self.queues.items():
            self.queues[unit] = deque([None] * len(held))
        return self.found

    def registers(self, number: int, op: Instr) -> None:
        """A read waits for the write; a write for the reads and the write before it."""
        for reg in op.reads():
            if reg in self.written:
                before = self.written[reg]
                self.found.add(before, number, self.ops[before].latency(self.machine))
            self.read[reg].append(number)
        for reg in op.writes():
            for reader in self.read.pop(reg, ()):
                self.found.add(reader, number, 0)
            if reg in self.written:
                before = self.written[reg]
                gap = self.ops[before].latency(self.machine) - op.latency(self.machine)
                self.found.add(before, number, max(1, gap + 1))
            self.written[reg] = number
            self.versions[reg] += 1

    def access(self, number: int, op: Instr) -> None:
        """A load or store waits for the stores (and loads) that may touch its rows."""
        address = next(src for src in op.srcs if isinstance(src, Address))
        base = (address.base, self.versions[address.base] if address.base else 0)
        rows, stride = op.attr("rows", SUBLANES), op.attr("stride", 1)
        assert isinstance(rows, int) and isinstance(stride, int)
        touched = range(address.offset, address.offset + (rows - 1) * stride + 1)
        writes = op.info.memory == "write"
        for wrote in (True, False) if writes else (True,):
            for before, other_base, other in self.accesses[address.buffer, wrote]:
                if base != other_base or (touched.start < other.stop and other.start < touched.stop):
                    self.found.add(before, number, self.machine.store_latency if wrote else 0)
        self.accesses[address.buffer, writes].append((number, base, touched))
        self.found.add(self.fence, number, 1)
        self.since_fence.append(number)

    def control(self, number: int, op: Instr) -> None:
        """Copies, waits and branches keep their order; a branch ends the block."""
        self.found.add(self.last.get(("misc",)), number, 1)
        self.last["misc",] = number
        if op.info.memory:
            for before in self.since_fence:
                self.found.add(before, number, 1)
            self.fence, self.since_fence = number, []
            self.accesses.clear()
        else:
            for before in range(number):
                self.found.add(before, number, 0)

    def queue(self, number: int, op: Instr) -> None:
        """Pushes to a unit stay in order, pops too; a pop waits for its result, a push for room."""
        unit = (op.info.queue, op.unit)
        if unit[0] == "eup" and self.reorders:
            self.pair(number, op, self.queues[unit])
        elif op.info.port == "pop":
            self.pop(number, unit)
        elif op.info.port == "weights":
            self.found.add(self.last.get((unit, "swap")), number, 1)
            self.found.add(self.last.get((unit, "weights")), number, self.busy(op))
            self.last[unit, "weights"] = number
        else:
            self.push(number, op, unit)

    def pair(self, number: int, op: Instr, held: deque[int | None]) -> None:
        """A push of the EUP, or its pop: no order but that one comes after the other."""
        if op.info.port == "push":
            held.append(number)
        elif (push := held.popleft()) is not None:
            self.found.add(push, number, self.answer(self.ops[push]))
            self.found.pops[push] = number

    def push(self, number: int, op: Instr, unit: Unit) -> None:
        before = self.last.get((unit, "push"))
        self.found.add(before, number, 0 if before is None else self.busy(self.ops[before]))
        self.last[unit, "push"] = number
        if op.attr("swap"):
            weights = self.last.get((unit, "weights"))
            self.found.add(weights, number, 0 if weights is None else self.busy(self.ops[weights]))
            self.last[unit, "swap"] = number
        results = 1 if not op.op.startswith("vxpose") else LANES // SUBLANES if op.attr("end") else 0
        held = self.queues[unit]
        held.extend([number] * results)
        room = len(held) + len(self.popped[unit]) - self.machine.mxu_fifo_vregs
        if unit[0] == "mxu" and room > 0:
            self.found.add(self.popped[unit][room - 1] if room <= len(self.popped[unit]) else None, number, 1)

    def pop(self, number: int, unit: Unit) -> None:
        self.found.add(self.last.get((unit, "pop")), number, 1)
        self.last[unit, "pop"] = number
        held = self.queues[unit]
        before = held.popleft() if held else None
        if before is not None:
            self.found.add(before, number, self.answer(self.ops[before]))
        elif unit[0] == "mxu":  # pushed before this block, one of the last; as if without a gap
            busy = SUBLANES * self.machine.f32_passes
            ago = (self.carried.get(unit, 0) - len(self.popped[unit])) * busy
            self.found.earliest[number] = max(0, self.machine.mxu_fill_cycles + busy - ago)
        self.popped[unit].append(number)

    def busy(self, op: Instr) -> int:
        """Cycles for which a push keeps its unit's input."""
        match op.info.queue:
            case "mxu":
                rows = op.attr("rows", SUBLANES)
                assert isinstance(rows, int)
                return rows * (1 if "bf16" in op.op else self.machine.f32_passes)
            case "xlu":
                return self.machine.xlu_cycles
        return 1

    def answer(self, op: Instr) -> int:
        """Cycles from a push until its result can be popped."""
        return op.latency(self.machine) + (self.busy(op) if op.info.queue == "mxu" else 0)


def dependences(ops: Sequence[Instr], machine: TPUSpec, queues: Queues) -> Dependences:
    """The edges among the instructions of a block; `queues` is brought up to date for the next one."""
    return _Builder(ops, machine, queues).build()
