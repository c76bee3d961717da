"""Lowering: pipelined kernels become one program for the TPU, over unlimited registers.

    steady  t = 0 .. 7                   .dot.step:
      copy_start x[t+1]                    sbr.rel s9, .dot.skip              unless a step follows
      copy_wait  x[t]                      dma.hbm_to_vmem [dot.x + s4 + 0x0], [x + s5 + 0x0], ...
      body                               .dot.skip:
      copy_start y[t]   at k last          dma.done.wait [dot.x.sem + s3 + 0x0]    ... and the body's loops

Goes in: pipelined kernels, their module, and the plan of its memory. Comes out: a Program. The commands
are followed literally, in order. The grid is one scalar loop, whatever its rank: an odometer of counters for
the step at hand and one for the step being fetched. A kernel of one step has no loop and no counters, since
all that is known is computed here (see Writer.scalar). Guards are branches around what they guard.

Invariants: each buffer has one semaphore per slot, so a wait names its copy; VMEM below `plan.vmem_bytes`
belongs to arrays that stay between kernels, what is above to one kernel at a time. A 1-D block lies as its
Frame says, so that a column arrives as a column, at the price of one granule of HBM (32 bytes) per element.

XLA emits loop nests from its fusions, and Mosaic from a Pallas grid, in the same shape. Read next: body.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from minicc.errors import Loc
from minicc.kernel.ir import AxisKind, Block, Guard, Kernel, Module, Operand
from minicc.kernel.memory import MemoryPlan, Role, Space
from minicc.kernel.pipeline import Command, PipelinedKernel, Verb
from minicc.tpu.assembly import At, Scalar, Writer
from minicc.tpu.body import Body
from minicc.tpu.isa import KERNEL_LABEL, HbmBuffer, Program, Semaphore, VmemBuffer
from minicc.tpu.layout import Frame, Home, Layout, round_up, suited
from minicc.tpu.machine import LANES, ROW_BYTES, SUBLANES, TPUSpec
from minicc.tpu.steps import Point, Slots
from minicc.tpu.windows import window
from minicc.trace import Step

ROLES = {Role.INPUT: "input", Role.CONSTANT: "input", Role.OUTPUT: "output", Role.TEMP: "temp"}


class _Program:
    """The program under construction: what all its kernels share."""

    def __init__(self, plan: MemoryPlan, spec: TPUSpec) -> None:
        self.plan, self.write = plan, Writer(spec)
        self.buffers: list[HbmBuffer | VmemBuffer] = []
        self.semaphores: list[Semaphore] = []
        for place in plan.placements.values():
            dtype = place.type.dtype.name
            if place.space is Space.HBM:
                self.buffers.append(HbmBuffer(place.buffer, dtype, place.type.shape, ROLES[place.role]))
            else:
                rows, base = place.bytes // ROW_BYTES, place.offset_bytes // ROW_BYTES
                self.buffers.append(VmemBuffer(place.buffer, rows, base, dtype))


class _KernelCode:
    """One kernel: where its blocks lie, and the code for its commands."""

    def __init__(self, program: _Program, pipelined: PipelinedKernel) -> None:
        self.program, self.write, self.pipelined = program, program.write, pipelined
        self.kernel: Kernel = suited(pipelined.kernel)
        self.layout = Layout(self.kernel)
        self.operands = {operand.name: operand for operand in self.kernel.operands}
        self.locs: tuple[Loc, ...] = self.kernel.locs()
        self.base_row = round_up(-(-program.plan.vmem_bytes // ROW_BYTES), SUBLANES)
        self.temps = 0
        self.scratch = {s.name: self.allocate(s.name, self.layout.natural(s.axes), s.dtype.name)
                        for s in self.kernel.scratch}
        self.slots: dict[str, Slots] = {}
        for name, depth in pipelined.depths.items():
            frame, dtype = self.layout.operands[name], self.operands[name].type.dtype.name
            self.allocate(name, frame, dtype, depth)
            self.slots[name] = Slots.of(self.write, self.layout.vmem_rows(frame), depth)
            program.semaphores.append(Semaphore(f"{self.kernel.name}.{name}.sem", depth))

    def allocate(self, name: str, frame: Frame, dtype: str, depth: int = 1) -> Home:
        """VMEM for `depth` blocks."""
        rows = depth * self.layout.vmem_rows(frame)
        buffer = VmemBuffer(f"{self.kernel.name}.{name}", rows, self.base_row, dtype)
        self.program.buffers.append(buffer)
        self.base_row += rows
        return Home(buffer.name, 0, frame, self.layout.pitch(frame))

    def temp(self, block: Block, frame: Frame) -> Home:
        """VMEM for a value that the body keeps."""
        self.temps += 1
        return self.allocate(f"temp{self.temps}", frame, block.dtype.name)

    # ---- the grid ----

    def emit(self) -> None:
        """The whole kernel: prologue, loop, epilogue."""
        write, pipelined, steps = self.write, self.pipelined, self.kernel.steps
        write.locs = self.locs
        write.label(f"{KERNEL_LABEL}{self.kernel.name}")
        for command in pipelined.prologue:
            if command.ahead < steps:
                self.command(command, Point.at(write, self.kernel, command.ahead))
        aheads = {0} | {command.ahead for command in pipelined.steady if 0 < command.ahead < steps}
        points = {ahead: Point.at(write, self.kernel, ahead) for ahead in sorted(aheads)}
        head = write.fresh(f"{self.kernel.name}.step")
        if steps > 1:
            kept: list[Point | Slots] = [*points.values(), *self.slots.values()]
            for state in kept:
                state.keep()
            write.label(head)
        for command in pipelined.steady:
            if max(command.ahead, 0) in points:
                self.command(command, points[max(command.ahead, 0)])
        write.locs = self.locs
        if steps > 1:
            for point in points.values():
                point.move_on()
            write.branch(head, points[0].left.value)
        for command in pipelined.epilogue:
            self.command(command, points[0])

    def command(self, command: Command, point: Point) -> None:
        """One command of the pipeline, and the branch around it."""
        write = self.write
        write.locs = self.locs
        if command.verb is Verb.BODY:
            self.body(point)
            return
        operand, slots = self.operands[command.operand], self.slots[command.operand]
        skip = point.away(command.first, command.last)
        if command.ahead > 0:
            skip = write.either(skip, write.less(point.left.value, 1))
        if command.ahead < 0:  # the wait on an output: so many copies need not have started yet
            skip = write.either(skip, write.less(slots.flying.value, -command.ahead))
        starts = command.verb is Verb.START
        run = partial(self.start, operand, point) if starts else partial(self.wait, operand)
        write.skip_if(skip, f"{self.kernel.name}.skip", run)

    # ---- copies ----

    def start(self, operand: Operand, point: Point) -> None:
        """Start the copy of a block."""
        write, name, slots = self.write, f"{self.kernel.name}.{operand.name}", self.slots[operand.name]
        output = operand in self.kernel.outputs
        part = window(write, self.layout, operand, point)
        slot = write.mul(slots.start.value, slots.rows)
        if operand.fill is not None:
            self.fill(operand, slot)
        sides = [write.address(name, slot, *part.rows), write.address(operand.buffer, part.element)]
        write.op("dma.vmem_to_hbm" if output else "dma.hbm_to_vmem", *(sides[::-1] if output else sides),
                 write.address(f"{name}.sem", slots.start.value), shape=part.shape, strides=part.strides,
                 panel=self.layout.pitch(self.layout.operands[operand.name]), lane=part.lane)
        slots.start.add(1)
        if output:
            slots.flying.add(1)
            slots.body.set(slots.start.value)

    def wait(self, operand: Operand) -> None:
        """Wait for the oldest copy in flight of an operand."""
        slots = self.slots[operand.name]
        semaphore = f"{self.kernel.name}.{operand.name}.sem"
        self.write.op("dma.done.wait", self.write.address(semaphore, slots.wait.value))
        if operand in self.kernel.outputs:
            slots.flying.add(-1)
        else:
            slots.body.set(slots.wait.value)
        slots.wait.add(1)

    def fill(self, operand: Operand, slot: Scalar) -> None:
        """Fill a block with what lies outside of the array; the copy then overwrites the part inside."""
        write, name = self.write, f"{self.kernel.name}.{operand.name}"
        value = write.vector(operand.type.dtype.numpy.type(operand.fill).item())

        def store(rows: list[At]) -> None:
            for row in rows:
                write.op("vst", write.address(name, slot, write.place(row)), value)

        count = self.slots[operand.name].rows // SUBLANES
        write.loop(count, count, SUBLANES, SUBLANES, store)

    # ---- the body ----

    def body(self, point: Point) -> None:
        """All statements, each under its guard."""
        starts = {axis.name: point.start(axis) for axis in self.kernel.axes}
        extents = {axis.name: point.extent(axis) for axis in self.kernel.axes}
        homes = {name: self.home(operand, starts, extents) for name, operand in self.operands.items()}
        body = Body(self.write, self.layout, self.scratch | homes, starts, extents, self.temp)
        sequential = [axis.name for axis in self.kernel.axes if axis.kind is AxisKind.SEQUENTIAL]
        for statement in self.kernel.body:
            self.write.locs = statement.value.locs or self.locs
            skip = point.away(sequential if statement.guard is Guard.FIRST else (),
                              sequential if statement.guard is Guard.LAST else ())
            self.write.skip_if(skip, f"{self.kernel.name}.skip", partial(body.statement, statement))

    def home(self, operand: Operand, starts: dict[str, Scalar], extents: dict[str, Scalar]) -> Home:
        """Where an operand's block lies at this step."""
        write, frame, slots = self.write, self.layout.operands[operand.name], self.slots.get(operand.name)
        if slots is not None:
            lane0 = frame.cols is None and operand in self.kernel.inputs
            start = write.mul(slots.body.value, slots.rows)
            return Home(f"{self.kernel.name}.{operand.name}", start, frame, self.layout.pitch(frame), lane0)
        rows, columns = (index.axes[0] for index in operand.index)
        pitch = round_up(operand.type.shape[0], SUBLANES)
        start = write.add(starts[rows], write.mul(write.div(starts[columns], LANES), pitch))
        max_row, max_panel = (  # the last block of an axis may be smaller, and what is behind it not ours
            None if isinstance(extents[axis], int) else write.div(write.sub(extents[axis], 1), unit)
            for axis, unit in ((rows, SUBLANES), (columns, LANES)))
        max_row = None if max_row is None else write.mul(max_row, SUBLANES)
        return Home(operand.buffer, start, frame, pitch, False, max_row, max_panel)


def lower(
    pipelined: Sequence[PipelinedKernel], module: Module, plan: MemoryPlan, spec: TPUSpec,
    log: list[Step] | None = None,
) -> Program:
    """One program of all kernels. log receives a Step per kernel: its registers' frames and its VMEM.

    Raises: CompileError for a block that has more than rows and columns, or a dot that is not f32.
    """
    program = _Program(plan, spec)
    for kernel in pipelined:
        code = _KernelCode(program, kernel)
        code.emit()
        if log is not None:
            frames = ", ".join(f"{name} {frame.rows or 1} x {frame.cols or 1}"
                               for name, frame in code.layout.operands.items())
            why = f"rows x columns: {frames}; {code.base_row} rows of VMEM"
            log.append(Step(kernel.kernel.name, True, why))
    program.write.op("shalt")
    buffers, semaphores = tuple(program.buffers), tuple(program.semaphores)
    return Program(module.name, spec, buffers, semaphores, *program.write.finish())
