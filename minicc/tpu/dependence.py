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

from minicc.tpu.isa import Address, Instr, Reg
from minicc.tpu.machine import LANES, SUBLANES, TPUSpec
from minicc.tpu.ops import form

Unit = tuple[str, int]
Queues = dict[Unit, int]  # results in each queue, between blocks: a loop may pop what the round before pushed
Access = tuple[int, tuple, range]  # instruction, base register and its version, rows


class Dependences:
    """The edges among the instructions of a block; `queues` is brought up to date for the next one.

    edges: instruction -> {later instruction: cycles}. earliest: instruction -> cycle of the block. pops: push
    -> pop, of the EUP, whose order is for the scheduler to choose, as long as both agree.
    """

    def __init__(self, ops: Sequence[Instr], machine: TPUSpec, queues: Queues) -> None:
        self.ops, self.machine, self.queues = ops, machine, queues
        self.edges: list[dict[int, int]] = [{} for _ in ops]
        self.earliest, self.pops = [0] * len(ops), dict[int, int]()
        self.written: dict[Reg, tuple[int | None, int]] = {}  # by whom, and its latency
        self.read: dict[Reg, list[int]] = defaultdict(list)
        self.accesses: dict[tuple[str, bool], list[Access]] = defaultdict(list)  # since the last copy or wait
        self.last: dict[tuple, int] = {}  # what came last, of each kind of which there is an order
        # of each unit, the results still to pop, each as the push it is of; None: in an earlier block
        self.held: dict[Unit, deque[int | None]] = defaultdict(deque)
        for unit, count in queues.items():
            self.held[unit].extend([None] * count)
        self.popped: dict[Unit, list[int]] = defaultdict(list)
        self.pace: dict[Unit, int] = {}  # of an MXU, cycles between two results
        ports = [op.info.port for op in ops if op.info.queue == "eup"]
        self.reorders = not queues.get(("eup", 0)) and 2 * ports.count("pop") == len(ports)
        for number, op in enumerate(ops):
            self.registers(number, op)
            if op.info.memory in ("read", "write"):
                self.access(number, op)
            if op.info.queue:
                self.queue(number, op)
            if op.info.slot == "misc":
                self.control(number, op)
        queues |= {unit: len(held) for unit, held in self.held.items()}

    def add(self, before: int | None, after: int, cycles: int) -> None:
        """`after` issues at least so many cycles later than `before`."""
        if before is not None and before != after:
            self.edges[before][after] = max(cycles, self.edges[before].get(after, 0))

    def registers(self, number: int, op: Instr) -> None:
        """A read waits for the write; a write for the reads and the write before it."""
        for reg in op.reads():
            before, latency = self.written.get(reg, (None, 0))
            self.add(before, number, latency)
            self.read[reg].append(number)
        for reg in op.writes():
            before, latency = self.written.get(reg, (None, 0))
            own = op.latency(self.machine)
            self.add(before, number, max(1, latency - own + 1))
            for reader in self.read.pop(reg, ()):
                self.add(reader, number, 0)
            self.written[reg] = number, own

    def access(self, number: int, op: Instr) -> None:
        """A load or store waits for the stores (and loads) that may touch its rows."""
        address = next(src for src in op.srcs if isinstance(src, Address))
        base = (address.base, self.written.get(address.base) if address.base else None)
        rows, stride = op.attr("rows", 1 if op.op == "sld" else SUBLANES), op.attr("stride", 1)
        assert isinstance(rows, int) and isinstance(stride, int)
        touched = range(address.offset, address.offset + (rows - 1) * stride + 1)
        writes = op.info.memory == "write"
        for wrote in (True, False) if writes else (True,):
            for before, other_base, other in self.accesses[address.buffer, wrote]:
                if base != other_base or (touched.start < other.stop and other.start < touched.stop):
                    self.add(before, number, self.machine.store_latency if wrote else 0)
        self.accesses[address.buffer, writes].append((number, base, touched))
        self.add(self.last.get(("fence",)), number, 1)

    def control(self, number: int, op: Instr) -> None:
        """Copies, waits and branches keep their order; a branch ends the block."""
        self.add(self.last.get(("misc",)), number, 1)
        self.last["misc",] = number
        if op.info.memory:
            for before in [before for accesses in self.accesses.values() for before, *_ in accesses]:
                self.add(before, number, 1)
            self.last["fence",] = number
            self.accesses.clear()
        else:
            for before in range(number):
                self.add(before, number, 0)

    def queue(self, number: int, op: Instr) -> None:
        """Pushes to a unit stay in order, pops too; a pop waits for its result, a push for room. Those of the
        EUP in a block of its own have no order, but that a pop comes after its push."""
        unit, port = (op.info.queue, op.unit), op.info.port
        if unit[0] != "eup" or not self.reorders:
            self.follow((unit, port), number)
            self.last[unit, port] = number
        if port == "push":
            self.push(number, op, unit)
        elif port == "pop":
            self.pop(number, unit)
        elif (unit, "swap") in self.last:
            self.add(self.last[unit, "swap"], number, 1)

    def follow(self, kind: tuple, number: int) -> None:
        """Come after the last of a kind, when that lets go of its unit's port."""
        if kind in self.last:
            self.add(self.last[kind], number, self.busy(self.ops[self.last[kind]]))

    def push(self, number: int, op: Instr, unit: Unit) -> None:
        if op.attr("swap"):
            self.follow((unit, "weights"), number)
            self.last[unit, "swap"] = number
        results = 1 if not op.op.startswith("vxpose") else LANES // SUBLANES if op.attr("end") else 0
        if unit[0] == "mxu":
            results = -(-self.rows(op) // SUBLANES) * (self.machine.mxu_side // LANES)
            self.pace[unit] = self.busy(op) // results
        held, popped = self.held[unit], self.popped[unit]
        held.extend([number] * results)
        room = len(held) + len(popped) - self.machine.mxu_fifo_vregs
        if unit[0] == "mxu" and 0 < room <= len(popped):
            self.add(popped[room - 1], number, 1)

    def pop(self, number: int, unit: Unit) -> None:
        held, popped = self.held[unit], self.popped[unit]
        before = held.popleft() if held else None
        if before is not None:
            push = self.ops[before]
            busy = self.busy(push) if unit[0] == "mxu" else 0
            self.add(before, number, push.latency(self.machine) + busy)
        elif unit[0] == "mxu":  # pushed before this block, one of the last; as if without a gap
            busy = self.pace.get(unit, SUBLANES * self.machine.f32_passes)
            ago = (self.queues.get(unit, 0) - len(popped)) * busy
            self.earliest[number] = max(0, self.machine.mxu_fill_cycles + busy - ago)
        if unit[0] == "eup" and self.reorders and before is not None:
            self.pops[before] = number
        popped.append(number)

    def busy(self, op: Instr) -> int:
        """Cycles for which a push keeps its unit's input, or a pop its output."""
        if op.info.port == "pop" or op.info.queue == "eup":
            return 1
        if op.info.queue == "xlu":
            return self.machine.xlu_cycles
        return self.machine.push_cycles(form(op.op).kind, self.rows(op))

    def rows(self, op: Instr) -> int:
        """The rows that a push brings to its MXU."""
        rows = op.attr("rows", form(op.op).rows)
        assert isinstance(rows, int)
        return rows
