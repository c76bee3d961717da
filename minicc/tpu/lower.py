"""Lowering: pipelined kernels become one program for the TPU, over unlimited registers.

    steady  t = 0 .. 7                   .dot.step:
      copy_start x[t+1]                    sbr.rel s9, .dot.skip              unless a step follows
      copy_wait  x[t]                      dma.hbm_to_vmem [dot.x + s4 + 0x0], [x + s5 + 0x0], ...
      body                               .dot.skip:
      copy_start y[t]   at k last          dma.done.wait [dot.x.sem + s3 + 0x0]    ... and the body's loops

Goes in: pipelined kernels, their module, and the plan of its memory. Comes out: a Program. The commands
are followed literally, in order, but that a kernel begins to copy at the last step of the one before it, and
its last outputs are waited for at the end of the one behind it, where nobody can tell (crossing.py). The grid
is one scalar loop, whatever its rank: an odometer of counters for the step at hand and one for the step being
fetched. A kernel of one step has no loop and no counters, since all that is known is computed here (see
Writer.scalar). Guards are branches around what they guard.

A kernel begins with copying the numbers that its indices look up to scalar memory, where the loop's `sld`
finds them; then it starts to fetch what later kernels read more than once (arrays.py). A copy is of an array
in HBM or of a line in VMEM, and differs in its name alone. What lies outside of an array, of an output in
place too, is not copied: its DMA is empty.

Invariants: each buffer has one semaphore per slot, so a wait names its copy; VMEM below `plan.vmem_bytes`
belongs to arrays that stay between kernels, what is above to one kernel at a time. A 1-D block lies as its
Frame says, so that a column arrives as a column, at the price of one granule of HBM (32 bytes) per element.

XLA emits loop nests from its fusions, and Mosaic from a Pallas grid, in the same shape. Read next: body.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

from minicc.errors import CompileError
from minicc.graph.ir import BF16, DType
from minicc.kernel.ir import Block, Guard, Module, Operand
from minicc.kernel.memory import MemoryPlan
from minicc.kernel.pipeline import Command, PipelinedKernel, Verb, axes_inside, blocks_of
from minicc.kernel.unfold import applied
from minicc.tpu.arrays import Arrays
from minicc.tpu.assembly import At, Scalar, Writer
from minicc.tpu.body import Body
from minicc.tpu.crossing import REACHES, Late, places, settled
from minicc.tpu.isa import KERNEL_LABEL, Address, HbmBuffer, Program, Reg, Semaphore, SmemBuffer, VmemBuffer
from minicc.tpu.layout import Frame, Home, Layout, round_up, suited, word_dtype
from minicc.tpu.machine import LANES, ROW_BYTES, SUBLANES, TPUSpec
from minicc.tpu.matmul import accumulator
from minicc.tpu.steps import Counter, Point, Slots
from minicc.tpu.unfold import Seen
from minicc.tpu.windows import Window, window
from minicc.tpu.words import packed
from minicc.trace import Step


class _KernelCode:
    """One kernel: where its blocks lie, and the code for its commands."""

    def __init__(self, write: Writer, pipelined: PipelinedKernel, arrays: Arrays, number: int) -> None:
        self.write, self.pipelined, self.arrays, self.number = write, pipelined, arrays, number
        self.rows = self.reach = 0  # of VMEM so far; how many kernels before this one it may begin in
        self.begun: set[Command | str] = set()  # copies of blocks, and of arrays to scalar memory
        self.given = {operand.name: operand for operand in pipelined.kernel.operands}
        how = applied(pipelined.kernel)
        self.seen = Seen(pipelined.kernel, how) if how else None
        self.kernel = suited(how.flat(pipelined.kernel) if how else pipelined.kernel)
        self.layout = Layout(self.kernel)
        self.operands = {operand.name: operand for operand in self.kernel.operands}
        self.locs = self.kernel.locs()
        self.buffers: list[VmemBuffer | SmemBuffer] = []
        self.semaphores: list[Semaphore] = []
        frames = {s.name: accumulator(self.layout, write.machine, s) for s in self.kernel.scratch}
        self.scratch = {s.name: self.kept(s.name, frames[s.name], s.dtype) for s in self.kernel.scratch}
        self.scalars = self.allocate_scalars()
        self.buffers += self.scalars
        self.slots: dict[str, Slots] = {}
        for name, depth in pipelined.depths.items():
            frame = self.layout.operands[name]
            dtype = self.operands[name].type.dtype
            rows = self.layout.vmem_rows(frame, dtype)
            if seen := self.seen_through(self.operands[name]):
                self.matrix, rows = self.kept(f"{name}.matrix", frame, dtype), seen.vmem_rows
            self.slots[name] = Slots(write, self.packed(name, frame, dtype, depth * rows), rows, depth)
            self.semaphores.append(Semaphore(f"{self.kernel.name}.{name}.sem", depth))

    def allocate(self, name: str, rows: int, dtype: str) -> str:
        """So many rows of VMEM. Returns: the name of the buffer."""
        buffer = VmemBuffer(f"{self.kernel.name}.{name}", rows, self.rows, dtype)
        self.buffers.append(buffer)
        self.rows += rows
        return buffer.name

    def packed(self, name: str, frame: Frame, dtype: DType, rows: int) -> Home:
        """So many rows of VMEM for blocks as copies bring them: if narrow, several rows lie in one."""
        buffer = self.allocate(name, rows, dtype.name)
        return Home(buffer, 0, frame, self.layout.pitch(frame, dtype), packed=dtype)

    def kept(self, name: str, frame: Frame, dtype: DType) -> Home:
        """VMEM for a block that never leaves the kernel: it has a word for each element, as registers do."""
        buffer = self.allocate(name, self.layout.vmem_rows(frame), word_dtype(dtype))
        return Home(buffer, 0, frame, self.layout.pitch(frame))

    def allocate_scalars(self) -> list[SmemBuffer]:
        """Scalar memory for the numbers that indices look up, as if the kernel had it all.

        Raises: CompileError if they are too many.
        """
        kernel, kib, found = self.kernel, self.write.machine.smem_kib, list[SmemBuffer]()
        for array in kernel.scalars:
            words, base = array.type.elements, sum(buffer.words for buffer in found)
            found.append(SmemBuffer(f"{kernel.name}.{array.name}", words, base))
            self.semaphores.append(Semaphore(f"{kernel.name}.{array.name}.sem"))
        if sum(buffer.words for buffer in found) > kib * 256:
            raise CompileError(
                "tpu lower", "the numbers that indices look up do not fit scalar memory",
                got=", ".join(f"{array.name}: {array.type}" for array in kernel.scalars),
                need=f"at most {kib * 256} of 32 bits on {self.write.machine.name}", at=self.locs,
                hint="fewer indices at a time")
        return found

    def temp(self, block: Block, frame: Frame) -> Home:
        """VMEM for a value that the body keeps; bf16 in rows lies as the matrix units take it, packed."""
        name, dtype = f"temp{len(self.buffers)}", block.dtype
        if dtype is not BF16 or not frame.rows:
            return self.kept(name, frame, dtype)
        return self.packed(name, frame, dtype, self.layout.vmem_rows(frame, dtype))

    # ---- the grid ----

    def emit(self, before: list[Late], following: Sequence[_KernelCode]) -> list[Late]:
        """The whole kernel: prologue, loop, epilogue.

        before: what kernels before it still write. following: those that may begin meanwhile. Returns: what
        is still written then.
        """
        write, pipelined = self.write, self.pipelined
        write.locs = self.locs
        write.label(f"{KERNEL_LABEL}{self.kernel.name}")
        over = {late.buffer for late in before if self.arrays.over(late.buffer, self.number)}
        before = settled(before, {*over, *(op.buffer for op in self.kernel.scalars)} if self.reach else None)
        self.fetch_scalars()
        points = {ahead: Point(write, self.kernel, ahead)
                  for ahead in sorted({0} | {max(command.ahead, 0) for command in pipelined.steady})}
        before = self.open(before)
        begin = partial(self.begin_others, following, {late.buffer for late in before})
        steady = [command for command in pipelined.steady if command not in self.begun]
        if self.kernel.steps == 1:
            begin()  # and only then wait
            for command in steady:
                self.command(command, points[0])
        else:
            self.loop(steady, points, begin if following and following[0].reach else None)
        due = self.number - min([code.reach for code in following[:REACHES[0] + 1] if code.reach], default=1)
        before = settled(before, {late.buffer for late in before if late.number <= due})
        for command in pipelined.epilogue:
            if not self.lingers(command.operand):
                self.command(command, points[0])
        return before + [Late(op.buffer, self.number, partial(self.land, op)) for op in self.kernel.outputs
                         if op.name in self.slots and self.lingers(op.name)]

    @property
    def opening(self) -> list[Command]:
        """The copies that are started before anything is waited for."""
        first = self.pipelined.steady if self.kernel.steps == 1 else ()
        inputs = {op.name for op in self.kernel.inputs}
        return [command for command in (*self.pipelined.prologue, *first)
                if command.verb is Verb.START and command.operand in inputs]

    def begin(self, busy: Collection[str], during: int) -> None:
        """Start the first copies of what is there already, in a kernel. busy: arrays that may be written."""
        for array in self.kernel.scalars:
            if array.buffer not in busy:
                self.start_scalars(array)
        for command in self.opening:
            operand = self.operands[command.operand]
            known = during >= self.number or not any(index.lookups for index in operand.index)
            ready = operand.buffer not in busy and not self.arrays.late(operand.buffer, during + 1)
            if known and ready and command not in self.begun:
                self.command(command, Point(self.write, self.kernel, command.ahead))
                self.begun.add(command)

    def begin_others(self, following: Sequence[_KernelCode], busy: Collection[str]) -> None:
        """Start the first copies of later kernels, and to fetch arrays for them, in the order of need."""
        busy = {*busy, *(op.buffer for op in self.kernel.outputs)}
        for code in following:
            brought = self.arrays.bring(self.write, code.number, self.number)
            if not brought or code.number - self.number > code.reach:
                return
            code.begin(busy, self.number)
            busy |= {op.buffer for op in code.kernel.outputs}

    def open(self, before: list[Late]) -> list[Late]:
        """What comes before the loop; between the copies that need not wait and the rest, start and wait for
        the arrays that are fetched whole. Returns: what kernels before still write then."""
        self.begin({late.buffer for late in before}, self.number - 1)
        for reader in (self.number, self.number + 1):
            self.arrays.bring(self.write, reader, self.number)
        self.arrays.wait(self.write, self.number)
        before = settled(before, {op.buffer for op in self.kernel.operands})
        self.begin((), self.number)
        return before

    def loop(self, steady: Sequence[Command], points: dict[int, Point], begin: Callable | None) -> None:
        """All steps; the next kernel begins in the last of them."""
        write, head = self.write, self.write.fresh(f"{self.kernel.name}.step")
        kept: list[Point | Slots] = [*points.values(), *self.slots.values()]
        for counter in (counter for state in kept for counter in state.counters):
            counter.keep()
        write.label(head)
        if begin:
            write.skip_if(write.sub(points[0].left.value, 1), f"{self.kernel.name}.skip", begin)
        for command in steady:
            self.command(command, points[max(command.ahead, 0)])
        write.locs = self.locs
        for point in points.values():
            point.move_on()
        write.branch(head, points[0].left.value)

    def lingers(self, name: str) -> bool:
        """Whether an output is still being written after the last step, from as many blocks as it has."""
        depth, kernel = self.pipelined.depths[name], self.pipelined.kernel
        drain = Command(Verb.WAIT, name, -depth, first=axes_inside(kernel, self.given[name]))
        waits = sum(command.operand == name for command in self.pipelined.epilogue)
        return waits == depth and drain in self.pipelined.steady

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

    def seen_through(self, operand: Operand) -> Seen | None:
        """How an operand is seen, if it is through a window."""
        return self.seen if self.seen and self.seen.how.operand.name == operand.name else None

    def start_scalars(self, array: Operand) -> None:
        """Start to copy numbers that indices look up, unless that was done."""
        buffer = f"{self.kernel.name}.{array.name}"
        if buffer not in self.begun:
            self.begun.add(buffer)
            self.write.op(f"dma.{self.arrays.kind(array.buffer)}_to_smem", Address(buffer),
                          Address(array.buffer), Address(f"{buffer}.sem"), shape=(array.type.elements,),
                          strides=(1,))

    def fetch_scalars(self) -> None:
        """Copy the numbers that indices look up, and wait for them."""
        for array in self.kernel.scalars:
            self.start_scalars(array)
        for buffer in self.scalars:
            self.write.op("dma.done.wait", Address(f"{buffer.name}.sem"))

    def start(self, operand: Operand, point: Point) -> None:
        """Start the copy of a block."""
        write, slots = self.write, self.slots[operand.name]
        buffer, fit = slots.home.buffer, slots.home.packed.per_word
        windows = self.windows(operand, point)
        if operand.fill is not None:
            self.fill(operand, write.mul(slots.start.value, slots.rows))
        slot = write.mul(slots.start.value, slots.rows * fit)
        semaphore, kind = write.address(f"{buffer}.sem", slots.start.value), self.arrays.kind(operand.buffer)
        out = operand in self.kernel.outputs
        for element, place, attrs in windows:
            array = write.address(self.arrays.name(operand.buffer), element)
            block = write.address(buffer, slot, *place)
            sides = [array, block] if out else [block, array]
            write.op(f"dma.vmem_to_{kind}" if out else f"dma.{kind}_to_vmem", *sides, semaphore, **attrs)
        slots.start.add(1)
        if out:
            slots.flying.add(1)
            slots.body.set(slots.start.value)

    def windows(self, operand: Operand, point: Point) -> Iterable[Window]:
        """What the copies of a block move: one of them, but for what is seen through a window."""
        if seen := self.seen_through(operand):
            return seen.windows(self.write, point)
        if self.seen and (lanes := self.seen.how.lanes(operand)):
            pitch = self.layout.rows_apart(self.layout.operands[operand.name], operand.type.dtype)
            return [self.seen.gathered(self.write, point, operand.name, lanes, pitch)]
        return [window(self.write, self.layout, operand, point)]

    def land(self, operand: Operand) -> None:
        """Wait for the last copies out of an output that lingers, when no counter is kept any more."""
        slots, depth = self.slots[operand.name], self.pipelined.depths[operand.name]
        blocks = blocks_of(self.pipelined.kernel, self.given[operand.name])
        slots.wait, slots.flying = Counter(self.write, blocks % depth, depth), Counter(self.write, depth)
        for _ in range(depth):
            self.wait(operand)

    def wait(self, operand: Operand) -> None:
        """Wait for the oldest copy in flight of an operand."""
        slots, seen = self.slots[operand.name], self.seen_through(operand)
        for _ in range(seen.copies if seen else 1):
            self.write.op("dma.done.wait", self.write.address(f"{slots.home.buffer}.sem", slots.wait.value))
        if operand in self.kernel.outputs:
            slots.flying.add(-1)
        else:
            slots.body.set(slots.wait.value)
        slots.wait.add(1)

    def fill(self, operand: Operand, slot: Scalar) -> None:
        """Fill a block with what lies outside of the array; the copy then overwrites the part inside."""
        write, slots = self.write, self.slots[operand.name]
        assert operand.fill is not None
        dtype = operand.type.dtype
        value = write.vector(float(operand.fill) if dtype.kind == "f" else int(operand.fill))
        value = packed(write, dtype, [value]) if dtype.per_word > 1 else value

        def store(rows: list[At]) -> None:
            for row in rows:
                write.op("vst", write.address(slots.home.buffer, slot, row), value)

        count = slots.rows // SUBLANES
        write.loop(count, count, SUBLANES, SUBLANES, store)

    # ---- the body ----

    def body(self, point: Point) -> None:
        """All statements, those in a row with one guard under one branch."""
        starts, extents = point.starts(), point.extents()
        homes = {name: self.home(operand, starts, extents) for name, operand in self.operands.items()}
        if self.seen:
            operand = self.operands[self.seen.how.operand.name]
            unfold = partial(self.seen.unfold, self.write, homes[operand.name], self.matrix)
            self.write.skip_if(point.away(axes_inside(self.kernel, operand), ()), f"{self.kernel.name}.skip",
                               unfold)
            homes[operand.name] = self.matrix
        sequential = [axis.name for axis in self.kernel.sequential]
        once = all(axis.steps == 1 for axis in self.kernel.sequential)
        body = Body(self.write, self.layout, self.scratch | homes, starts, extents, self.temp, once)
        for guard, statements in groupby(self.kernel.body, lambda statement: statement.guard):
            skip = point.away(sequential if guard is Guard.FIRST else (),
                              sequential if guard is Guard.LAST else ())
            self.write.skip_if(skip, f"{self.kernel.name}.skip", partial(body.statements, list(statements)))

    def home(self, operand: Operand, starts: dict[str, Scalar], extents: dict[str, Scalar]) -> Home:
        """Where an operand's block lies at this step."""
        write, frame = self.write, self.layout.operands[operand.name]
        if operand.name in self.slots:
            slots, column = self.slots[operand.name], frame.cols is None and operand in self.kernel.inputs
            return replace(slots.home, start=write.mul(slots.body.value, slots.rows), lane0=column)
        rows, columns = (index.axes[0] for index in operand.index)
        dtype = operand.type.dtype
        pitch = round_up(operand.type.shape[0], dtype.per_word * SUBLANES) // dtype.per_word
        start = write.mul(write.div(starts[columns], LANES), pitch)
        start = write.add(write.div(starts[rows], dtype.per_word), start)
        cut = isinstance(extents[rows], Reg) or isinstance(extents[columns], Reg)
        return Home(self.arrays.name(operand.buffer), start, frame, pitch, cut=cut, packed=dtype)


def lower(
    pipelined: Sequence[PipelinedKernel], module: Module, plan: MemoryPlan, spec: TPUSpec,
    reach: int = REACHES[0], log: list[Step] | None = None,
) -> Program:
    """One program of all kernels. log receives a Step per kernel: its registers' frames and its VMEM.

    reach: how many kernels before it one may begin to copy, at the most; with 0 each copies in its own time.

    Raises: CompileError for a block that has more than rows and columns, or for more numbers to look up than
    scalar memory holds.
    """
    write = Writer(spec)
    arrays = Arrays(plan, [one.kernel for one in pipelined])
    buffers: list[HbmBuffer | VmemBuffer | SmemBuffer] = [*arrays.buffers]
    semaphores: list[Semaphore] = [*arrays.semaphores]
    codes = [_KernelCode(write, kernel, arrays, number) for number, kernel in enumerate(pipelined)]
    base_row = round_up(plan.vmem_bytes, ROW_BYTES * SUBLANES) // ROW_BYTES
    spots = places([code.rows for code in codes], (spec.vmem_rows - base_row) // 2)
    words = places([sum(buffer.words for buffer in code.scalars) for code in codes], spec.smem_kib * 256)
    top = max((start + code.rows for code, (start, _) in zip(codes, spots, strict=True)), default=0)
    for code, (row, most), (_, more) in zip(codes, spots, words, strict=True):
        code.rows, code.reach = top - row, min(reach, most, more)  # above all blocks lies what bodies keep
    before: list[Late] = []
    for code, (row, _), (word, _) in zip(codes, spots, words, strict=True):
        before = code.emit(before, codes[code.number + 1:])
        buffers += [replace(b, base_row=base_row + row + b.base_row) if isinstance(b, VmemBuffer) else
                    replace(b, base_word=word + b.base_word) for b in code.buffers]
        semaphores += code.semaphores
        if log is not None:
            frames = ", ".join(f"{name} {frame.rows or 1} x {frame.cols or 1}"
                               for name, frame in code.layout.operands.items())
            why = f"rows x columns: {frames}; {base_row + row + code.rows} rows of VMEM"
            log.append(Step(code.kernel.name, True, why))
    settled(before)
    write.op("shalt")
    return Program(module.name, spec, tuple(buffers), tuple(semaphores), *write.finish())
