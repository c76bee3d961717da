"""Lowering: pipelined kernels become one program for the TPU, in assembly over unlimited registers.

    steady  t = 0 .. 7                       .dot.step:
      copy_start x[t+1]                        sbr.rel s9, .dot.skip        unless a step follows
      copy_wait  x[t]                          dma.hbm_to_vmem [dot.x + s4 + 0x0], [x + s5 + 0x0], [dot.x.sem + s6 + 0x0]
      body                                   .dot.skip:
      copy_start y[t]   at k last              dma.done.wait [dot.x.sem + s3 + 0x0]    ... and the body's loops

Goes in: pipelined kernels, their module, and the plan of its memory. Comes out: an Assembly. The commands are followed
literally, in order. The grid is one scalar loop, whatever its rank: an odometer of counters for the step at hand and
one for the step being fetched. A kernel of one step has no loop and no counters, since all that is known is computed
here (see Writer.scalar). Guards are branches around what they guard.

Invariants: each buffer has one semaphore per slot, so a wait names its copy; VMEM below `plan.vmem_bytes` belongs to
arrays that stay between kernels, what is above to one kernel at a time. A 1-D block lies as its Frame says, so that a
column arrives as a column, at the price of one 32-byte granule of HBM per element.

XLA emits loop nests from its fusions, and Mosaic from a Pallas grid, in the same shape. Read next: body.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from minicc.errors import Loc
from minicc.kernel.ir import AxisKind, Block, Guard, Kernel, Module, Operand
from minicc.kernel.memory import MemoryPlan, Role, Space
from minicc.kernel.pipeline import Command, PipelinedKernel, Verb
from minicc.tpu.assembly import Assembly, Scalar, Writer
from minicc.tpu.body import Body
from minicc.tpu.isa import KERNEL_LABEL, Address, HbmBuffer, Reg, Semaphore, VmemBuffer
from minicc.tpu.layout import Frame, Home, Layout, round_up, without_thin_dots
from minicc.tpu.machine import LANES, ROW_BYTES, SUBLANES, TPUSpec
from minicc.tpu.steps import Counter, Point, Ring
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
        self.kernel: Kernel = without_thin_dots(pipelined.kernel)
        self.layout = Layout(self.kernel)
        self.operands = {operand.name: operand for operand in self.kernel.operands}
        self.locs: tuple[Loc, ...] = self.kernel.locs()
        self.base_row = round_up(-(-program.plan.vmem_bytes // ROW_BYTES), SUBLANES)
        self.temps = 0
        self.scratch = {s.name: self.allocate(s.name, self.layout.natural(s.axes), s.dtype.name)
                        for s in self.kernel.scratch}
        self.rings: dict[str, dict[str, Ring]] = {}
        self.inflight = {name: Counter(self.write, 0) for name in pipelined.depths}
        self.block_rows: dict[str, int] = {}
        for name, depth in pipelined.depths.items():
            self.block_rows[name] = self.layout.vmem_rows(self.layout.operands[name])
            self.allocate(name, self.layout.operands[name], self.operands[name].type.dtype.name, depth)
            program.semaphores.append(Semaphore(f"{self.kernel.name}.{name}.sem", depth))
            self.rings[name] = {use: Ring(self.write, depth, Counter(self.write, 0)) for use in ("start", "wait")}
        self.current = {name: Counter(self.write, 0) for name in pipelined.depths}  # the slot the body works on

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
        aheads = {0} | {command.ahead for command in pipelined.steady if command.ahead > 0}
        points = {ahead: Point.at(write, self.kernel, ahead) for ahead in sorted(aheads) if ahead < steps}
        if steps > 1:
            self.keep(points)
            head = write.fresh(f"{self.kernel.name}.step")
            write.label(head)
        for command in pipelined.steady:
            if max(command.ahead, 0) in points:
                self.command(command, points[max(command.ahead, 0)])
        if steps > 1:
            for point in points.values():
                write.locs = self.locs
                point.move_on()
            assert isinstance(points[0].left.value, Reg)
            write.branch(head, points[0].left.value)
        for command in pipelined.epilogue:
            self.command(command, points[0])

    def keep(self, points: dict[int, Point]) -> None:
        """Before the loop: what changes in it goes to registers."""
        for point in points.values():
            point.keep()
        for name, rings in self.rings.items():
            for ring in rings.values():
                ring.keep()
            if self.pipelined.depths[name] > 1:
                self.current[name].keep()
            if name in {op.name for op in self.kernel.outputs}:
                self.inflight[name].keep()

    def command(self, command: Command, point: Point) -> None:
        """One command of the pipeline, and the branch around it."""
        self.write.locs = self.locs
        if command.verb is Verb.BODY:
            self.body(point)
            return
        operand = self.operands[command.operand]
        output = operand in self.kernel.outputs
        skip = point.away(command.first, command.last)
        if command.ahead > 0:
            skip = self.write.scalar("sor.u32", skip, self.write.scalar("scmp.le.s32", point.left.value, 0))
        if output and command.verb is Verb.WAIT:
            ready = self.write.scalar("scmp.lt.s32", self.inflight[operand.name].value, -command.ahead)
            skip = self.write.scalar("sor.u32", skip, ready)
        emit = self.start if command.verb is Verb.START else self.wait
        self.write.skip_if(skip, f"{self.kernel.name}.skip", lambda: emit(operand, output, point))

    # ---- copies ----

    def start(self, operand: Operand, output: bool, point: Point) -> None:
        """Start the copy of a block."""
        write, name, frame = self.write, operand.name, self.layout.operands[operand.name]
        ring = self.rings[name]["start"]
        place = window(write, self.layout, operand, point)
        slot = write.mul(ring.slot.value, self.block_rows[name])
        if operand.fill is not None:
            self.fill(operand, slot)
        vmem = write.address(f"{self.kernel.name}.{name}", slot, *place.rows)
        hbm = write.address(operand.buffer, place.element)
        sides = (hbm, vmem) if output else (vmem, hbm)
        write.op(f"dma.{'vmem_to_hbm' if output else 'hbm_to_vmem'}", *sides, self.semaphore(name, ring),
                 shape=place.shape, strides=place.strides, panel=self.layout.pitch(frame), lane=place.lane)
        ring.advance()
        if output:
            self.inflight[name].add(1)
            if self.pipelined.depths[name] > 1:
                self.current[name].set(ring.slot.value)

    def wait(self, operand: Operand, output: bool, point: Point) -> None:
        """Wait for the oldest copy in flight of an operand."""
        name, ring = operand.name, self.rings[operand.name]["wait"]
        self.write.op("dma.done.wait", self.semaphore(name, ring))
        if output:
            self.inflight[name].add(-1)
        elif self.pipelined.depths[name] > 1:
            self.current[name].set(ring.slot.value)
        ring.advance()

    def semaphore(self, name: str, ring: Ring) -> Address:
        """The semaphore of the slot whose turn it is."""
        return self.write.address(f"{self.kernel.name}.{name}.sem", ring.slot.value)

    def fill(self, operand: Operand, slot: Scalar) -> None:
        """Fill a block with what lies outside of the array; the copy then overwrites the part inside."""
        write = self.write
        value = write.vector(float(operand.fill or 0) if operand.type.dtype.kind == "f" else int(operand.fill or 0))
        home = write.address(f"{self.kernel.name}.{operand.name}", slot)

        def store(rows: list) -> None:
            for row in rows:
                parts = [part for part in (home.base, home.offset, row.counter, row.offset) if part is not None]
                write.op("vst", write.address(home.buffer, *parts), value)

        rows = self.block_rows[operand.name] // SUBLANES
        write.loop(rows, rows, 8, SUBLANES, store)

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
            first, last = (sequential if statement.guard is guard else () for guard in (Guard.FIRST, Guard.LAST))
            skip = point.away(first, last)
            self.write.skip_if(skip, f"{self.kernel.name}.skip", partial(body.statement, statement))

    def home(self, operand: Operand, starts: dict[str, Scalar], extents: dict[str, Scalar]) -> Home:
        """Where an operand's block lies at this step."""
        write, frame, name = self.write, self.layout.operands[operand.name], operand.name
        if name in self.pipelined.depths:
            start = write.mul(self.current[name].value, self.block_rows[name])
            lane0 = frame.cols is None and operand in self.kernel.inputs
            return Home(f"{self.kernel.name}.{name}", start, frame, self.layout.pitch(frame), lane0)
        rows, columns = (index.axes[0] for index in operand.index)
        pitch = round_up(operand.type.shape[0], SUBLANES)
        panel = write.scalar("sdiv.s32", starts[columns], LANES)
        start = write.add(starts[rows], write.mul(panel, pitch))
        limits = [None if isinstance(extents[axis], int) else
                  write.scalar("sdiv.s32", write.sub(extents[axis], 1), unit)
                  for axis, unit in ((rows, SUBLANES), (columns, LANES))]
        max_row = None if limits[0] is None else write.mul(limits[0], SUBLANES)
        return Home(operand.buffer, start, frame, pitch, False, max_row, limits[1])


def lower(
    pipelined: Sequence[PipelinedKernel], module: Module, plan: MemoryPlan, spec: TPUSpec,
    log: list[Step] | None = None,
) -> Assembly:
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
            log.append(Step(kernel.kernel.name, True, f"rows x columns: {frames}; {code.base_row} rows of VMEM"))
    program.write.op("shalt")
    return Assembly(module.name, spec, tuple(program.buffers), tuple(program.semaphores), program.write.finish())
