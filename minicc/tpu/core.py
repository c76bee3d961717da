"""One TPU core: its registers, units, semaphores and memory, and what each instruction does to them.

    core.execute(Instr("vadd.f32", v3, (v1, v2)))    reads v1 and v2 now; v3 changes at core.commit()

The emulator decides when a bundle issues (`core.now`), executes its instructions, then commits, so that all
slots read before any writes. Instructions with a numpy meaning come from the tables in vector.py; this file
has the rest: scalars, memory, copies and semaphores, queues and branches.

Invariants: a register's entry in `ready` is the first cycle in which its value may be read; scalars are
Python integers wrapped to 32 bits, or floats. Semaphores count completions: a copy adds 1 when it is done,
a wait takes 1. The sequencer of a real TPU is not public; the TPUv1 paper's five instructions are its
ancestors. What to read next: memory.py.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from minicc.errors import MachineFault
from minicc.tpu.isa import COMPARISONS, Address, Instr, Operand, Program, Reg, VmemBuffer
from minicc.tpu.machine import LANES, SUBLANES
from minicc.tpu.memory import Dma, Memory
from minicc.tpu.units import Mxu, Queue
from minicc.tpu.vector import ALU, EUP, XLU, Lanes, packed_rows, require_known, splat, transpose, wrap
from minicc.trace import Event


def _divide(a: int, b: int) -> int:
    if b == 0:
        raise MachineFault("", "division by zero")
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


SCALAR: dict[str, Callable] = {
    "smov": lambda a: a,
    "sadd.s32": lambda a, b: a + b,
    "ssub.s32": lambda a, b: a - b,
    "smul.u32": lambda a, b: a * b,
    "smin.s32": min,
    "smax.s32": max,
    "sdiv.s32": _divide,  # towards zero
    "srem.s32": lambda a, b: a - _divide(a, b) * b,  # so this has the sign of a
    "sand.u32": lambda a, b: a & b,
    "sor.u32": lambda a, b: a | b,
    "ssel": lambda condition, a, b: a if condition else b,
    **{f"scmp.{name}.s32": getattr(operator, name) for name in COMPARISONS},
}


@dataclass
class Cell:
    """One semaphore."""

    done: list[tuple[int, str]] = field(default_factory=list)  # a heap of (cycle, buffer) not yet waited for
    starts: int = 0
    waits: int = 0
    owned: list[Dma] = field(default_factory=list)


class Core:
    """The state of a core, and one method per kind of instruction."""

    def __init__(
        self, program: Program, inputs: dict[str, np.ndarray], checks: bool, overlap_weights: bool
    ) -> None:
        spec = program.machine
        self.program, self.spec = program, spec
        self.memory = Memory(program, inputs, checks)
        self.registers: dict[Reg, object] = {}
        self.ready: dict[Reg, int] = {}
        self.pending: list[tuple[Instr, object]] = []
        self.released: list[Dma] = []
        self.mxus = [Mxu(spec, f"mxu{i}", overlap_weights) for i in range(spec.mxus)]
        self.xlus = [Queue(f"xlu{i}", spec.xlu_cycles, spec.xlu_latency) for i in range(spec.xlus)]
        self.eup = Queue("eup", 1, spec.eup_latency)
        self.cells = {(s.name, i): Cell() for s in program.semaphores for i in range(s.count)}
        self.pc = self.now = 0
        self.labels = program.label_pcs
        self.target: int | None = None
        self.halted = False
        self.copies: list[Event] = []
        self.latencies = {op.op: op.latency(spec) for bundle in program.bundles for op in bundle.ops}
        self.handlers = self._handlers()

    def _handlers(self) -> dict[str, Callable[[Instr], None]]:
        table: dict[str, Callable[[Instr], None]] = {
            "sbr.rel": self._branch, "shalt": self._halt, "vld": self._load, "vst": self._store,
            "vst.msk": self._store, "dma.hbm_to_vmem": self._copy, "dma.vmem_to_hbm": self._copy,
            "dma.done.wait": self._wait, "vsyncadd": self._signal,
        }
        return table | dict.fromkeys(SCALAR, self._scalar) | dict.fromkeys(ALU, self._vector)

    def execute(self, op: Instr) -> None:
        """Do one instruction, all but its write to a register."""
        self.handlers.get(op.op, self._queued)(op)

    def commit(self) -> None:
        """The bundle's writes to registers, and what its wait released."""
        for op, value in self.pending:
            self.registers[op.dst] = value  # type: ignore[index]  # whoever computes a value has a dst
            self.ready[op.dst] = self.now + self.latencies[op.op]  # type: ignore[index]
        self.pending.clear()
        if self.released:
            self.memory.release(self.released)
            self.released = []

    def value(self, operand: object) -> int:
        """The integer that a scalar register, or an immediate, holds."""
        found = self.registers[operand] if isinstance(operand, Reg) else operand
        if not isinstance(found, int):
            raise MachineFault("", f"{operand} holds no integer", got=found)
        return found

    def place(self, address: Operand) -> tuple[str, int]:
        """The name in an address, and its base + offset."""
        assert isinstance(address, Address)
        return address.buffer, (self.value(address.base) if address.base else 0) + address.offset

    def lanes(self, operand: Operand) -> Lanes:
        """A vector or mask register, or a number in every lane."""
        found = self.registers[operand] if isinstance(operand, Reg) else operand
        return found if isinstance(found, Lanes) else splat(found)  # type: ignore[arg-type]

    # scalars and control

    def _scalar(self, op: Instr) -> None:
        operands = [self.registers[src] if isinstance(src, Reg) else src for src in op.srcs]
        if op.op != "smov" and any(isinstance(operand, float) for operand in operands):
            raise MachineFault("", "integer arithmetic on a float", got=operands)
        result = SCALAR[op.op](*operands)
        self.pending.append((op, result if isinstance(result, float) else wrap(result)))

    def _branch(self, op: Instr) -> None:
        taken = len(op.srcs) == 1 or (self.value(op.srcs[0]) != 0) != bool(op.attr("unless"))
        if taken:
            self.target = self.labels[str(op.srcs[-1])]

    def _halt(self, op: Instr) -> None:
        self.halted = True

    def check_halt(self) -> None:
        """Nothing may be left in flight. Raises: MachineFault naming what is."""
        if self.memory.flying:
            dma = self.memory.flying[0]
            raise MachineFault("", "a DMA is left over at halt", got=str(dma),
                               need=f"a wait on {dma.instr.srcs[2]}", at=dma.instr.locs)
        left = [f"[{name} + {i:#x}] counts {len(cell.done)}"
                for (name, i), cell in self.cells.items() if cell.done]
        units: list[Queue | Mxu] = [self.eup, *self.xlus, *self.mxus]
        left += [f"{unit.name} holds {len(unit.results)} results" for unit in units if unit.results]
        if left:
            raise MachineFault("", "a semaphore or queue is left over at halt", got=", ".join(left),
                               need="a wait per copy, a pop per push")

    # vectors

    def _vector(self, op: Instr) -> None:
        operands = [self._operand(kind, src) for kind, src in zip(op.info.srcs, op.srcs, strict=True)]
        self.pending.append((op, ALU[op.op](*operands)))

    def _operand(self, kind: str, operand: Operand) -> object:
        if kind == "s":
            return self.value(operand)
        return self.registers.get(operand, operand) if kind == "n" else self.lanes(operand)  # type: ignore

    def _access(self, op: Instr) -> tuple[VmemBuffer, int, int, int]:
        name, row = self.place(op.srcs[0])
        rows, stride = self.value(op.attr("rows", SUBLANES)), self.value(op.attr("stride", 1))
        if not 0 <= rows <= SUBLANES or (stride == 0 and rows > 1 and op.info.memory == "write"):
            raise MachineFault("", "bad rows or stride", got=f"rows={rows} stride={stride}",
                               need="0 to 8 rows; a store's at least 1 apart")
        return self.memory.vmem[name], row, rows, stride

    def _load(self, op: Instr) -> None:
        self.pending.append((op, self.memory.load(*self._access(op))))

    def _store(self, op: Instr) -> None:
        buffer, row, rows, stride = self._access(op)
        mask = self.lanes(op.srcs[2]) if len(op.srcs) == 3 else None
        if mask is not None:
            require_known(mask, rows)
        self.memory.store(buffer, row, rows, stride, self.lanes(op.srcs[1]), mask)

    # queues

    def unit(self, op: Instr) -> Queue | Mxu:
        """The unit that an instruction pushes to or pops from."""
        match op.info.queue:
            case "mxu":
                return self.mxus[op.unit]
            case "xlu":
                return self.xlus[op.unit]
        return self.eup

    def _queued(self, op: Instr) -> None:
        unit = self.unit(op)
        if op.info.port == "pop":
            self.pending.append((op, unit.pop()))
        elif isinstance(unit, Mxu):
            self._matrix(unit, op)
        elif op.op.startswith("vxpose"):
            self._transpose(unit, op)
        else:
            function = EUP[op.op] if unit is self.eup else XLU[op.op.rstrip("0123456789")]
            unit.push(self.now, function(self.lanes(op.srcs[0]), *map(self.value, op.srcs[1:])))

    def _transpose(self, unit: Queue, op: Instr) -> None:
        if bool(op.attr("begin")) != (not unit.tile) or len(unit.tile) == LANES // SUBLANES:
            raise MachineFault("", "vxpose wants begin on its first push, and end by the 16th",
                               got=f"{len(unit.tile)} pushed before")
        unit.tile.append(self.lanes(op.srcs[0]))
        results = transpose(unit.tile) if op.attr("end") else []
        unit.tile = [] if results else unit.tile
        unit.push(self.now, *results)

    def _matrix(self, unit: Mxu, op: Instr) -> None:
        lanes, packed = self.lanes(op.srcs[0]), "bf16" in op.op
        most = SUBLANES * (2 if packed else 1)
        count = self.value(op.attr("rows", most))
        if not 1 <= count <= most:
            raise MachineFault("", "rows out of range", got=count, need=f"1 to {most}")
        require_known(lanes, -(-count // 2) if packed else count)
        rows = (packed_rows(lanes.data) if packed else lanes.data.view(np.float32))[:count]
        kind = "bf16" if packed else "f32"
        if op.info.port == "weights":
            unit.push_weights(self.now, rows, kind + (".xpose" if "xpose" in op.op else ""))
        else:
            unit.push_rows(self.now, rows, kind, bool(op.attr("swap")))

    # copies and semaphores

    def cell(self, address: Operand) -> Cell:
        """A semaphore. Raises: MachineFault if its array has no such index."""
        name, index = self.place(address)
        if (name, index) not in self.cells:
            count = next(s.count for s in self.program.semaphores if s.name == name)
            raise MachineFault("", f"semaphore {name} has no index {index}", need=f"0 to {count - 1}")
        return self.cells[name, index]

    def _copy(self, op: Instr) -> None:
        incoming = op.op == "dma.hbm_to_vmem"
        (vmem, row), (hbm, element) = map(self.place, op.srcs[:2] if incoming else op.srcs[1::-1])
        shape, strides, steps = (tuple(map(self.value, op.attr(name, (1,))))  # type: ignore[arg-type]
                                 for name in ("shape", "strides", "steps"))
        panel, lane = self.value(op.attr("panel", 1)), self.value(op.attr("lane", 0))
        if min(shape) < 0 or not 0 <= lane < LANES:
            raise MachineFault("", "bad extents of a DMA", got=f"shape={shape} lane={lane}",
                               need="extents from 0 on, a lane below 128")
        memory, cell = self.memory, self.cell(op.srcs[2])
        dma = Dma(op, self.pc, incoming, memory.vmem[vmem], row, memory.hbm[hbm].buffer, element,
                  shape, strides, steps, panel, lane)
        done = memory.start(dma, self.now)
        self.copies.append(Event("dma", " -> ".join(dma.ends), self.now, done))
        cell.starts += 1
        cell.owned.append(dma)
        heapq.heappush(cell.done, (done, vmem))

    def _signal(self, op: Instr) -> None:
        cell, count = self.cell(op.srcs[0]), self.value(op.srcs[1])
        for _ in range(count):
            cell.starts += 1
            heapq.heappush(cell.done, (self.now + 1, ""))

    def wait_time(self, op: Instr) -> tuple[int, str]:
        """When the semaphore counts 1, and the buffer whose copy makes it. Raises: MachineFault if never."""
        cell = self.cell(op.srcs[0])
        if not cell.done:
            graph = self._wait_graph(op)
            raise MachineFault("", "deadlock: nothing can run and nothing is in flight\n" + graph)
        return cell.done[0]

    def _wait(self, op: Instr) -> None:
        cell = self.cell(op.srcs[0])
        heapq.heappop(cell.done)
        cell.waits += 1
        if cell.waits == cell.starts:
            self.released += cell.owned
            cell.owned = []

    def _wait_graph(self, op: Instr) -> str:
        """Who waits for what, and who could have signalled it."""
        semaphore, index = self.place(op.srcs[0])
        cell = self.cells[semaphore, index]
        lines = [f"the core waits for [{semaphore} + {index:#x}]: "
                 f"{cell.starts} started, {cell.waits} waited for"]
        lines += [f"[{semaphore}] is signalled at pc {pc:#x}: {other}"
                  for pc, bundle in enumerate(self.program.bundles) for other in bundle.ops
                  if other.info.memory in ("dma", "signal") and f"[{semaphore} " in str(other)]
        lines += [f"[{name} + {i:#x}] counts {len(other.done)}, for nobody"
                  for (name, i), other in self.cells.items() if other.done]
        return "\n".join(f"    {line}" for line in lines[:12]) + "\n "
