"""One TPU core: its registers, units, semaphores and memory, and what each instruction does to them.

    core.execute(Instr("vadd.f32", v3, (v1, v2)))    reads v1 and v2 now; v3 changes at core.commit()

The emulator decides when a bundle issues (`core.now`), executes its instructions, then commits, so that all
slots read before any writes. An instruction whose meaning in ops.py is a function is computed; one whose
meaning is a name has its method here: memory, copies and semaphores, queues and branches.

Invariants: a register's entry in `ready` is the first cycle in which its value may be read; scalars are
Python integers wrapped to 32 bits, or floats. Semaphores count completions: a copy adds 1 when it is done,
a wait takes 1. The sequencer of a real TPU is not public; the TPUv1 paper's five instructions are its
ancestors. What to read next: memory.py.
"""

from __future__ import annotations

import heapq
from collections import Counter
from typing import Any

import numpy as np

from minicc.tpu.isa import Address, Instr, Operand, Program, Reg
from minicc.tpu.machine import LANES, SUBLANES
from minicc.tpu.memory import Copy, Memory, charged_bytes, local_bytes, split
from minicc.tpu.ops import form
from minicc.tpu.units import Mxu, Queue
from minicc.tpu.vector import Lanes, fault, splat, transpose, wrap
from minicc.trace import Event


class Core:
    """The state of a core, and one method per kind of instruction."""

    def __init__(self, program: Program, memory: Memory, overlap_weights: bool, trace: bool = False) -> None:
        self.program, self.spec, self.memory = program, program.machine, memory
        self.registers: dict[Reg, Any] = {}
        self.ready: dict[Reg, int] = {}
        self.pending: list[tuple[Instr, Any]] = []
        self.latencies = vars(self.spec)
        spec = self.spec
        self.mxus = [Mxu(f"mxu{i}", spec, overlap_weights) for i in range(spec.mxus)]
        xlus = [Queue(f"xlu{i}", spec.xlu_cycles, spec.xlu_latency) for i in range(spec.xlus)]
        eups = [Queue("eup", 1, spec.eup_latency)]
        self.units: dict[str, list[Any]] = {"mxu": self.mxus, "xlu": xlus, "eup": eups}
        # semaphore -> what it counts, or will: a heap of (cycle, buffer); and how often it counts up in all
        names = [(s.name, i) for s in program.semaphores for i in range(s.count)]
        self.counts: dict[tuple[str, int], list[tuple[int, str]]] = {name: [] for name in names}
        self.started: Counter[tuple[str, int]] = Counter()
        self.labels = dict(program.labels)
        self.pc = self.now = 0
        self.target: int | None = None  # of a branch taken
        self.halted: Instr | None = None
        self.events: list[Event] | None = [] if trace else None

    def execute(self, op: Instr) -> None:
        """Do one instruction, all but its write to a register."""
        run = op.info.run
        if isinstance(run, str):
            getattr(self, run)(op)
        elif op.info.queue:
            self.unit(op).push(self.now, run(*map(self.operand, op.info.srcs, op.srcs)))
        else:
            self.pending.append((op, run(*map(self.operand, op.info.srcs, op.srcs))))

    def commit(self) -> None:
        """The bundle's writes to registers."""
        for op, value in self.pending:
            self.registers[op.dst] = wrap(value) if isinstance(value, int) else value  # type: ignore[index]
            self.ready[op.dst] = self.now + self.latencies[op.info.latency]  # type: ignore[index]
        self.pending.clear()

    def record(self, track: str, name: str, start: int, end: int) -> None:
        """Note for the trace, if there is one, what happened."""
        if self.events is not None:
            self.events.append(Event(track, name, start, end))

    # operands

    def operand(self, kind: str, operand: object) -> Any:
        """What an operand of a kind (`ops.KINDS`) holds: an integer, a number, or Lanes."""
        found = self.registers[operand] if isinstance(operand, Reg) else operand
        if kind == "s" and not isinstance(found, int):
            raise fault("integer arithmetic on a float", f"{operand} = {found}", "an integer")
        if kind in ("s", "n") or isinstance(found, Lanes):
            return found
        return splat(found)  # type: ignore[arg-type]  # the verifier has seen that it is a number

    def value(self, operand: object) -> int:
        """The integer that a scalar register, or an immediate, holds."""
        return self.operand("s", operand)

    def place(self, address: Operand) -> tuple[str, int]:
        """The name in an address, and its base + offset."""
        assert isinstance(address, Address)
        return address.buffer, (self.value(address.base) if address.base else 0) + address.offset

    def unit(self, op: Instr) -> Any:
        """The unit that an instruction pushes to or pops from."""
        return self.units[op.info.queue][op.unit]

    def semaphore(self, address: Operand) -> tuple[str, int]:
        """Which one an address means. Raises: MachineFault if its array has no such index."""
        name, index = self.place(address)
        if (name, index) not in self.counts:
            last = max(i for other, i in self.counts if other == name)
            raise fault(f"semaphore {name} has no index {index}", need=f"0 to {last}")
        return name, index

    # control

    def branch(self, op: Instr) -> None:
        """Always, or if a register is not 0, or is."""
        if len(op.srcs) == 1 or (self.value(op.srcs[0]) != 0) != bool(op.attr("unless")):
            self.target = self.labels[str(op.srcs[-1])]

    def halt(self, op: Instr) -> None:
        """The end of the program."""
        self.halted = op

    def check_halt(self) -> None:
        """Nothing may be left in flight. Raises: MachineFault naming what is."""
        for copy in self.memory.flying:
            raise fault("a DMA is left over at halt", copy, f"a wait on {copy.instr.srcs[2]}",
                        at=copy.instr.locs)
        left = [f"[{name} + {i:#x}] counts {len(held)}" for (name, i), held in self.counts.items() if held]
        left += [f"{unit.name} holds {len(unit.results)} results"
                 for units in self.units.values() for unit in units if unit.results]
        if left:
            raise fault("a semaphore or queue is left over at halt", ", ".join(left),
                        "a wait per copy, a pop per push")

    # loads and stores

    def _rows(self, op: Instr) -> tuple[str, int, int, int]:
        """The buffer, first row, number of rows and stride of an access."""
        rows, stride = self.value(op.attr("rows", SUBLANES)), self.value(op.attr("stride", 1))
        return *self.place(op.srcs[0]), rows, stride

    def load(self, op: Instr) -> None:
        """Rows of VMEM."""
        self.pending.append((op, self.memory.load(*self._rows(op))))

    def load_word(self, op: Instr) -> None:
        """A word of scalar memory."""
        self.pending.append((op, self.memory.load_word(*self.place(op.srcs[0]))))

    def store(self, op: Instr) -> None:
        """A register to VMEM, all of it or where a mask says so."""
        mask = self.operand("m", op.srcs[2]) if len(op.srcs) == 3 else None
        self.memory.store(*self._rows(op), self.operand("v", op.srcs[1]), mask)

    # queues

    def pop(self, op: Instr) -> None:
        """The oldest result of a unit."""
        self.pending.append((op, self.unit(op).pop()))

    def transpose(self, op: Instr) -> None:
        """8 more rows of a tile; with the last of them, all that is to be popped."""
        unit, last = self.unit(op), bool(op.attr("end"))
        if bool(op.attr("begin")) != (not unit.tile) or len(unit.tile) == LANES // SUBLANES:
            raise fault("vxpose wants begin on its first push, and end by the 16th",
                        f"{len(unit.tile)} pushed before")
        tile = [*unit.tile, self.operand("v", op.srcs[0])]
        unit.tile = [] if last else tile
        unit.push(self.now, *transpose(tile) if last else ())

    def multiply(self, op: Instr) -> None:
        """Rows, or weights, for a matrix unit."""
        unit, (kind, most, numbers), beside = self.unit(op), form(op.op), []
        count = self.value(op.attr("rows", most))
        if not 1 <= count <= most:
            raise fault("rows out of range", count, f"1 to {most}")
        for lanes in (self.operand("v", src) for src in op.srcs):
            lanes.require(-(-count * SUBLANES // most))
            beside.append(numbers(lanes.data)[:count])
        rows = np.concatenate(beside, axis=-1)
        if op.info.port == "weights":
            unit.push_weights(self.now, rows, kind, "xpose" in op.op)
            self.record(f"{unit.name} weights", "load", self.now, unit.weights_free_at)
        else:
            unit.push_rows(self.now, rows, kind, bool(op.attr("swap")))
            self.record(unit.name, "matmul", self.now, unit.free_at)

    # copies and semaphores

    def copy(self, op: Instr) -> None:
        """Start a DMA."""
        places = [self.place(address) for address in op.srcs[:2]]  # destination, source
        kinds, semaphore = op.info.srcs, self.semaphore(op.srcs[2])
        numbers: dict[str, Any] = {
            key: tuple(map(self.value, attr)) if type(attr) is tuple else self.value(attr)
            for key, attr in op.attrs}
        target, source = ((self.memory.areas[name], offset) for name, offset in places)
        inward = kinds[0] in ("vmem", "smem")
        near, line = (target, source) if inward else (source, target)
        parts, shape, strides = split(near, line, **numbers), numbers["shape"], numbers["strides"]
        way, charged = "local", local_bytes(parts, shape, strides, near[0].per_word)
        if "hbm" in kinds:
            way, charged = "read" if inward else "write", charged_bytes(
                shape, strides, self.spec.hbm_granule_bytes, line[0].words.itemsize)
        if inward:
            parts = [(there, here) for here, there in parts]
        name = f"{source[0].name} -> {target[0].name}"
        done = self.memory.start(Copy(op, self.pc, semaphore, name, way, parts, charged), self.now)
        self.record("dma", name, self.now, done)
        self._count(semaphore, done, near[0].name)

    def signal(self, op: Instr) -> None:
        """Count up, in the next cycle."""
        for _ in range(self.value(op.srcs[1])):
            self._count(self.semaphore(op.srcs[0]), self.now + 1, "")

    def _count(self, semaphore: tuple[str, int], cycle: int, buffer: str) -> None:
        heapq.heappush(self.counts[semaphore], (cycle, buffer))
        self.started[semaphore] += 1

    def wait(self, op: Instr) -> None:
        """Count down. When nothing is left to wait for, the copies are known to be done."""
        semaphore = self.semaphore(op.srcs[0])
        heapq.heappop(self.counts[semaphore])
        if not self.counts[semaphore]:
            self.memory.release(semaphore)

    def issue_time(self, op: Instr) -> tuple[int, str]:
        """When its unit or semaphore lets an instruction issue, and the cause of the cycles until then."""
        if queue := op.info.queue:
            ready = self.unit(op).ready(op.info.port, bool(op.attr("swap")))
            return ready, "mxu wait" if queue == "mxu" else "register"
        semaphore = self.semaphore(op.srcs[0])
        if not self.counts[semaphore]:
            graph = self._wait_graph(*semaphore)
            raise fault("deadlock: nothing can run and nothing is in flight\n" + graph)
        cycle, buffer = self.counts[semaphore][0]
        return cycle, f"dma {buffer}"

    def _wait_graph(self, name: str, index: int) -> str:
        """Who waits for what, and who could have signalled it."""
        started = self.started[name, index]
        lines = [f"the core waits for [{name} + {index:#x}]: {started} started, {started} waited for"]
        lines += [f"[{name}] is signalled at pc {pc:#x}: {op}"
                  for pc, bundle in enumerate(self.program.bundles) for op in bundle.ops
                  if op.info.memory in ("dma", "signal") and f"[{name} " in str(op)]
        lines += [f"[{other} + {i:#x}] counts {len(held)}, for nobody"
                  for (other, i), held in self.counts.items() if held]
        return "\n".join(f"    {line}" for line in lines[:12]) + "\n "
