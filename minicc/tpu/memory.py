"""VMEM, HBM, and the DMAs between them: values, who owns what while a copy flies, and when it lands.

    memory = Memory(program, inputs)
    memory.load(buffer, row, rows=8, stride=1)    ->  Lanes, with a bit per lane: was it ever written
    memory.start(dma, now)                            from here until its wait, the copy owns both sides

Ownership is independent of timing: even a copy that would have landed long ago must be waited for. Only
when as many waits as starts have been consumed on a semaphore are its copies known to be done, for their
order is not promised. A row (VMEM) or element (HBM) in flight may be read only if the copy just reads it,
and never written.

Timing: a copy starts up for `dma_startup_cycles`, then moves at HBM's bandwidth, after the copies issued
before it; each contiguous run of elements is charged rounded up to the granule. Values move at the start,
which nobody who respects ownership can tell from the end. Real DMA engines run several copies side by side
and promise no order; the race detector here is the vector-clock idea (FastTrack, 2009) shrunk to one thread
and its copies. What to read next: vector.py for what a garbage lane may do, emulator.py for the
instructions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
from numpy.lib.stride_tricks import as_strided

from minicc.errors import CompileError, DtypeError, MachineFault, ShapeError
from minicc.tpu.isa import Address, HbmBuffer, Instr, Program, VmemBuffer
from minicc.tpu.machine import LANES, SUBLANES
from minicc.tpu.vector import Lanes, to_bits

POISON = 0x7FC0DEAD  # a NaN that one recognises in a dump
BITS = LANES // 8  # bytes of initialised-bits per row
_TYPES = {"f32": np.float32, "i32": np.int32, "s32": np.int32, "u32": np.uint32, "bool": np.int32}


@dataclass(frozen=True)
class Span:
    """A part of a copy's VMEM side: these rows, lanes lo to hi, for columns from `column` on (per panel)."""

    rows: np.ndarray  # (*outer dimensions, panels)
    lo: int
    hi: int
    column: int


@dataclass(frozen=True, eq=False)
class Dma:
    """A copy with all its registers read: sizes and strides are numbers here."""

    instr: Instr
    pc: int
    incoming: bool
    vmem: VmemBuffer
    row: int  # relative to the buffer
    hbm: HbmBuffer
    element: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # HBM, in elements
    steps: tuple[int, ...]  # VMEM, in rows
    panel: int
    lane: int
    spans: tuple[Span, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "spans", tuple(self._spans()))

    def _spans(self) -> list[Span]:
        """At most three: the panel that a lane offset leaves, the full panels, and the rest."""
        columns = self.shape[-1]
        if math.prod(self.shape) == 0:
            return []
        ranges = [np.arange(n) * step for n, step in zip(self.shape[:-1], self.steps, strict=False)]
        rows = reduce(np.add.outer, ranges, np.array(self.vmem.base_row + self.row))
        head = min(columns, LANES - self.lane) if self.lane else 0
        full, tail = divmod(columns - head, LANES)
        parts = [(1, self.lane, self.lane + head, 0), (full, 0, LANES, head), (1, 0, tail, columns - tail)]
        first, spans = 0, []
        for panels, lo, hi, column in parts:
            if panels and hi > lo:
                spans.append(Span(rows[..., None] + (first + np.arange(panels)) * self.panel, lo, hi, column))
                first += panels
        return spans

    @property
    def payload_bytes(self) -> int:
        """What it moves."""
        return 4 * math.prod(self.shape)

    def charged_bytes(self, granule: int) -> int:
        """What HBM is busy for: each contiguous run, rounded up."""
        run, outer = 1, list(zip(self.shape, self.strides, strict=True))
        while outer and (outer[-1][1] == run or outer[-1][0] == 1):
            run *= outer.pop()[0]
        return math.prod(n for n, _ in outer) * (-(-4 * run // granule) * granule)

    def overlaps(self, other: Dma) -> bool:
        """Whether the VMEM sides share a lane of a row."""
        return any(max(a.lo, b.lo) < min(a.hi, b.hi) and np.intersect1d(a.rows, b.rows).size
                   for a in self.spans for b in other.spans)

    @property
    def ends(self) -> tuple[str, str]:
        """The names of its source and its destination."""
        return (self.hbm.name, self.vmem.name) if self.incoming else (self.vmem.name, self.hbm.name)

    def __str__(self) -> str:
        return f"the copy {' -> '.join(self.ends)} started at pc {self.pc:#x}"


class HbmArray:
    """An array in HBM as flat 32-bit words, with what is known of each, and in flight (if ever written)."""

    def __init__(self, buffer: HbmBuffer, given: np.ndarray | None, written: bool) -> None:
        size = math.prod(buffer.shape)
        self.buffer = buffer
        poison = np.full(size, POISON, np.uint32)
        self.words = poison if given is None else given.reshape(-1).view(np.uint32)
        self.known = np.zeros(size, bool) if given is None else None
        self.claims = np.zeros((2, size), np.uint8) if written else None  # copies in flight: reading, writing

    def view(self, dma: Dma, array: np.ndarray) -> np.ndarray:
        """The part of an array parallel to `words` that a copy touches."""
        strides = tuple(stride * array.itemsize for stride in dma.strides)
        return as_strided(array[dma.element:], dma.shape, strides)

    def check_bounds(self, dma: Dma) -> None:
        """Raises: MachineFault if a copy leaves the array."""
        reach = [(n - 1) * stride for n, stride in zip(dma.shape, dma.strides, strict=True)]
        low = dma.element + sum(min(0, r) for r in reach)
        high = dma.element + sum(max(0, r) for r in reach)
        if low < 0 or high >= self.words.size:
            raise MachineFault("", f"out of bounds in HBM buffer {self.buffer.name}",
                               got=f"elements {low} to {high}", need=f"0 to {self.words.size - 1}")


class Memory:
    """All memories of one core, and the copies in flight."""

    def __init__(self, program: Program, inputs: dict[str, np.ndarray], checks: bool = True) -> None:
        rows = max((b.base_row + b.rows for b in program.vmem), default=0)
        written = {op.srcs[0].buffer for bundle in program.bundles for op in bundle.ops
                   if op.op == "dma.vmem_to_hbm" and isinstance(op.srcs[0], Address)}
        self.machine, self.checks = program.machine, checks
        self.vmem = {b.name: b for b in program.vmem}
        self.words = np.full((rows, LANES), POISON, np.uint32)
        self.known = bytearray((b"\0" if checks else b"\xff") * (rows * BITS))
        self.reading, self.writing = bytearray(rows), bytearray(rows)  # copies in flight per row
        self._known, self._reading, self._writing = (
            np.frombuffer(part, np.uint8) for part in (self.known, self.reading, self.writing))
        self._known = self._known.reshape(rows, BITS)
        given = _inputs(program, inputs)
        self.hbm = {b.name: HbmArray(b, given.get(b.name), b.name in written and checks) for b in program.hbm}
        self.flying: list[Dma] = []
        self.hbm_free_at = 0
        self.moved_bytes = {True: 0, False: 0}  # by `incoming`
        self.charged_bytes = 0

    def rows_of(self, buffer: VmemBuffer, row: int, rows: int, stride: int, writes: bool) -> slice:
        """The rows an access touches, within bounds and in nobody's flight. Raises: MachineFault."""
        last = row + (rows - 1) * stride
        if row < 0 or last >= buffer.rows or stride < 0:
            raise MachineFault("", f"out of bounds in VMEM buffer {buffer.name}", got=f"rows {row} to {last}",
                               need=f"0 to {buffer.rows - 1}")
        part = slice(buffer.base_row + row, buffer.base_row + last + 1, stride or 1)
        if self.flying and (any(self.writing[part]) or (writes and any(self.reading[part]))):
            self._race(np.arange(part.start, part.stop, part.step), writes)
        return part

    def _race(self, rows: np.ndarray, writes: bool) -> None:
        owner = next(dma for dma in self.flying if (writes or dma.incoming)
                     and any(np.intersect1d(span.rows, rows).size for span in dma.spans))
        raise _race(owner, "written" if writes else "read", f"VMEM buffer {owner.vmem.name}")

    def load(self, buffer: VmemBuffer, row: int, rows: int, stride: int) -> Lanes:
        """Up to 8 rows, `stride` apart; the sublanes behind them are 0 and garbage."""
        part = self.rows_of(buffer, row, rows, stride, writes=False)
        data = np.zeros((SUBLANES, LANES), np.uint32)
        data[:rows] = self.words[part]
        if stride == 1:
            raw: bytes | bytearray = self.known[part.start * BITS:part.stop * BITS]
        else:
            raw = np.broadcast_to(self._known[part], (rows, BITS)).tobytes()
        known = int.from_bytes(raw, "little")
        if not self.checks or known.bit_count() == SUBLANES * LANES:
            return Lanes(data)
        short = next((i for i in range(rows) if raw[i * BITS:(i + 1) * BITS] != b"\xff" * BITS), None)
        place = f"row {row + short * stride}" if short is not None else f"behind the {rows} rows loaded"
        return Lanes(data, known, f"{buffer.name} {place}")

    def store(
        self, buffer: VmemBuffer, row: int, rows: int, stride: int, lanes: Lanes, mask: Lanes | None
    ) -> None:
        """Write up to 8 rows, where the mask says so, and their bits with them."""
        part = self.rows_of(buffer, row, rows, stride, writes=True)
        data, known = lanes.data.view(np.uint32)[:rows], lanes.known
        if mask is None:
            self.words[part] = data
        else:
            np.copyto(self.words[part], data, where=mask.data[:rows])
            pick = to_bits(mask.data)
            old = int.from_bytes(self._known[part].tobytes(), "little")
            known = (pick & known) | (~pick & old)
        raw = known.to_bytes(SUBLANES * BITS, "little")[:rows * BITS]
        self._known[part] = np.frombuffer(raw, np.uint8).reshape(rows, BITS)

    def start(self, dma: Dma, now: int) -> int:
        """Begin a copy: check it, claim both sides, move the values. Returns: the cycle when it is done."""
        array = self.hbm[dma.hbm.name]
        if dma.spans:
            self._check_bounds(dma, array)
            if self.checks:
                self._check_races(dma, array)
                self._claim(dma, array, 1)
            self._move(dma, array)
        self.flying.append(dma)
        charged = dma.charged_bytes(self.machine.hbm_granule_bytes)
        self.moved_bytes[dma.incoming] += dma.payload_bytes
        self.charged_bytes += charged
        begin = max(now + self.machine.dma_startup_cycles, self.hbm_free_at)
        self.hbm_free_at = begin + math.ceil(charged / self.machine.hbm_bytes_per_cycle)
        return self.hbm_free_at

    def release(self, dmas: list[Dma]) -> None:
        """Copies that a wait has seen done own nothing any more."""
        for dma in dmas:
            self.flying.remove(dma)
            if dma.spans and self.checks:
                self._claim(dma, self.hbm[dma.hbm.name], -1)

    def _check_bounds(self, dma: Dma, array: HbmArray) -> None:
        rows = np.concatenate([span.rows.reshape(-1) for span in dma.spans]) - dma.vmem.base_row
        if rows.min() < 0 or rows.max() >= dma.vmem.rows:
            raise MachineFault("", f"out of bounds in VMEM buffer {dma.vmem.name}",
                               got=f"rows {rows.min()} to {rows.max()}", need=f"0 to {dma.vmem.rows - 1}")
        if dma.incoming and len(np.unique(rows)) != len(rows):
            raise MachineFault("", f"the copy writes a row of {dma.vmem.name} twice",
                               got=f"panel={dma.panel} steps={dma.steps}", need="rows that keep apart")
        array.check_bounds(dma)

    def _check_races(self, dma: Dma, array: HbmArray) -> None:
        for other in self.flying:
            if (dma.incoming or other.incoming) and dma.overlaps(other):
                raise _race(other, "written" if dma.incoming else "read", f"VMEM buffer {dma.vmem.name}")
        if array.claims is None:
            return
        reading, writing = (array.view(dma, claims).any() for claims in array.claims)
        if writing or (reading and not dma.incoming):
            other = next(d for d in self.flying if d.hbm is dma.hbm and not (d.incoming and dma.incoming))
            raise _race(other, "read" if dma.incoming else "written", f"HBM buffer {dma.hbm.name}")

    def _claim(self, dma: Dma, array: HbmArray, count: int) -> None:
        for span in dma.spans:
            (self._writing if dma.incoming else self._reading)[span.rows] += np.uint8(count % 256)
        if array.claims is not None:
            claims = array.view(dma, array.claims[0 if dma.incoming else 1])
            claims += np.uint8(count % 256)

    def _move(self, dma: Dma, array: HbmArray) -> None:
        """Copy values and bits, span by span."""
        words = array.view(dma, array.words)
        known = None if array.known is None else array.view(dma, array.known)
        if dma.incoming and self.checks and known is not None and not known.all():
            missing = tuple(map(int, np.argwhere(~known)[0]))
            raise MachineFault("", f"uninitialised read of HBM buffer {dma.hbm.name}",
                               got=f"element {missing} of the block was never written")
        for span in dma.spans:
            panels, width = span.rows.shape[-1], span.hi - span.lo
            columns = words[..., span.column:span.column + panels * width]
            mask = np.packbits([span.lo <= lane < span.hi for lane in range(LANES)], bitorder="little")
            if dma.incoming:
                self.words[span.rows, span.lo:span.hi] = columns.reshape(*dma.shape[:-1], panels, width)
                self._known[span.rows] |= mask
                continue
            if self.checks and ((self._known[span.rows] & mask) != mask).any():
                self._garbage(dma, span, mask)
            columns[...] = self.words[span.rows, span.lo:span.hi].reshape(columns.shape)
        if not dma.incoming and known is not None:
            known[...] = True

    def _garbage(self, dma: Dma, span: Span, mask: np.ndarray) -> None:
        row = int(span.rows[((self._known[span.rows] & mask) != mask).any(axis=-1)][0])
        known = int.from_bytes(self._known[row].tobytes(), "little")
        lane = next(lane for lane in range(span.lo, span.hi) if not known >> lane & 1)
        raise MachineFault("", f"uninitialised read of VMEM buffer {dma.vmem.name}",
                           got=f"garbage in row {row - dma.vmem.base_row}, lane {lane}",
                           need="every element written before it is copied out")

    def outputs(self) -> dict[str, np.ndarray]:
        """The output arrays. Raises: MachineFault if an element was never written."""
        found = {}
        for name, array in self.hbm.items():
            if array.buffer.role != "output":
                continue
            if self.checks and array.known is not None and not array.known.all():
                missing = int((~array.known).sum())
                raise MachineFault("halt", f"output {name} is incomplete",
                                   got=f"{missing} of {array.known.size} elements never written")
            values = array.words.view(_TYPES[array.buffer.dtype]).reshape(array.buffer.shape)
            found[name] = values != 0 if array.buffer.dtype == "bool" else values
        return found


def _race(owner: Dma, verb: str, where: str) -> MachineFault:
    return MachineFault("", f"race: {where} is {verb} while a DMA owns it", got=str(owner),
                        need=f"as many waits as starts on {owner.instr.srcs[2]} before this",
                        at=owner.instr.locs, hint="a dma.done.wait between the two")


def _inputs(program: Program, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The given arrays as the program's buffers want them, each a private copy."""
    wanted = {b.name: b for b in program.hbm if b.role == "input"}
    if wanted.keys() != inputs.keys():
        raise CompileError("tpu run", "the inputs do not match the program's",
                           got=", ".join(inputs) or "none", need=", ".join(wanted) or "none")
    for buffer in program.hbm:
        if buffer.dtype not in _TYPES:
            raise DtypeError("tpu run", f"HBM buffer {buffer.name} has an unknown dtype", got=buffer.dtype,
                             need=" or ".join(_TYPES))
    arrays = {}
    for name, buffer in wanted.items():
        array = np.asarray(inputs[name])
        if array.shape != buffer.shape:
            raise ShapeError("tpu run", f"input {name} has a wrong shape", got=array.shape, need=buffer.shape)
        if array.dtype.kind not in ("f" if buffer.dtype == "f32" else "iub"):
            raise DtypeError("tpu run", f"input {name} has a wrong dtype", got=array.dtype, need=buffer.dtype)
        arrays[name] = np.array(array, _TYPES[buffer.dtype], order="C")
    return arrays
