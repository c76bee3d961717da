"""VMEM, SMEM, HBM, and the DMAs between them: values, who owns what while a copy flies, and when it lands.

    memory = Memory(program, inputs)
    memory.load("xb", row, rows=8, stride=1)    ->  Lanes, with a flag per lane: was it ever written
    memory.start(dma, now)                                 from here until its wait, the copy owns both sides

VMEM and SMEM are arrays of 32-bit words, an array in HBM is one of its elements, and parallel to each are two
more: whether each word was ever written, and whether a copy in flight reads or writes it. Rows of 16 or 8
bits share words of VMEM; such a word counts as written if a part of it is, and belongs to a copy as a whole.
A DMA is at most three strided copies from one buffer to another, for each place in a word.

Ownership is independent of timing: even a copy that would have landed long ago must be waited for. Only
when as many waits as starts have been consumed on a semaphore are its copies known to be done, for their
order is not promised. A word in flight may be read only if the copy just reads it, and never written.

Timing: a copy starts up for `dma_startup_cycles`, then moves at HBM's bandwidth, after the copies issued
before it; each contiguous run of elements is charged rounded up to the granule. Copies within the chip have
a start-up, a bandwidth and a queue of their own, and are charged the rows of VMEM that they touch. Values
move at the start or, in a run with `dma="late"`, at the end; nobody who respects ownership can tell. Real DMA
engines run several copies side by side and promise no order; the race detector here is the vector-clock idea
(FastTrack, 2009) shrunk to one thread and its copies. What to read next: vector.py for what a garbage lane
may do, core.py for the instructions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from operator import itemgetter, mul
from typing import Any, NamedTuple

import numpy as np

from minicc.errors import CompileError, DtypeError, ShapeError
from minicc.graph.ir import DTYPES
from minicc.tpu.isa import HbmBuffer, Instr, Program, SmemBuffer, VmemBuffer
from minicc.tpu.machine import LANES, ROW_BYTES, SUBLANES
from minicc.tpu.vector import KNOWN, TILE, Lanes, fault, tidy

POISON = 0x7FC0DEAD  # a NaN that one recognises in a dump
READ, WRITTEN, ODD = 1, 2, 3  # what a copy in flight does with a word; a mark on what a fault is about
Shape = tuple[int, ...]


class Area(NamedTuple):
    """A buffer, or a part of it: its words, which were ever written, and which a copy in flight owns."""

    kind: str  # "VMEM": (rows, 128) words. "SMEM": words in a line. "HBM": elements, of the array's shape
    name: str
    words: np.ndarray
    known: np.ndarray
    owned: np.ndarray  # 0, READ or WRITTEN
    dtype: np.dtype | None = None  # of what is packed into its words

    def __str__(self) -> str:
        return f"{self.kind} buffer {self.name}"

    @property
    def given(self) -> bool:
        """Whether it is an input, whole and never written: nobody looks at its flags."""
        return not self.words.flags.writeable

    @property
    def per_word(self) -> int:
        """How many elements are packed into a word."""
        return self.words.itemsize // self.dtype.itemsize if self.dtype else 1

    def part(self, pick: Callable[[np.ndarray], np.ndarray]) -> Area:
        """Some of it, picked alike from each array."""
        return self._replace(words=pick(self.words), known=pick(self.known), owned=pick(self.owned))

    def block(self, offset: int, shape: Shape, strides: Shape, which: int = 0) -> Area:
        """The word at an offset, and from there on so many, strides apart; if they are packed, one element of
        each. Raises: MachineFault."""
        steps = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
        self.check_bounds(offset + sum(min(0, s) for s in steps), offset + sum(max(0, s) for s in steps))
        part = self.part(lambda array: np.ndarray(
            shape, array.dtype, array, offset * array.itemsize, [step * array.itemsize for step in strides]))
        if self.dtype is None:
            return part
        spot = offset * self.words.itemsize + which * self.dtype.itemsize
        return part._replace(words=np.ndarray(shape, self.dtype, self.words, spot, part.words.strides))

    def check_bounds(self, low: int, high: int) -> None:
        """Raises: MachineFault if the words from low to high are not all its own."""
        if low < 0 or high >= self.words.size:
            unit, size = ("rows", LANES) if self.kind == "VMEM" else ("elements", 1)
            raise fault(f"out of bounds in {self}", f"{unit} {low // size} to {high // size}",
                        f"0 to {self.words.size // size - 1}")


Spot = tuple[Area, int]  # an offset in a buffer: of a row in VMEM, of an element in HBM or a line


@dataclass(frozen=True, eq=False)
class Copy:
    """A DMA with all its registers read. parts: what it reads, and words of the same shape that it writes."""

    instr: Instr
    pc: int
    semaphore: tuple[str, int]
    name: str  # x -> xb
    way: str  # "read" from HBM, "write" to it, or "local"
    parts: list[tuple[Area, Area]]
    charged_bytes: int

    def own(self, free: bool = False) -> None:
        """Mark both sides as its own, or let go of them."""
        for source, target in self.parts:
            if not source.given:
                source.owned[...] = 0 if free else READ
            target.owned[...] = 0 if free else WRITTEN

    def move(self) -> None:
        """The values: what is narrower there is extended, what is wider is cut."""
        for source, target in self.parts:
            target.words[...] = source.words

    def __str__(self) -> str:
        return f"the copy {self.name} started at pc {self.pc:#x}"


def split(
    vmem: Spot, line: Spot, shape: Shape, strides: Shape, steps: Shape = (1,), panel: int = 1, lane: int = 0
) -> list[tuple[Area, Area]]:
    """The elements of a DMA in both memories, as isa.py describes it, in at most three parts: the panel that
    a lane offset leaves, the full panels, and the rest; of packed rows, once for each place in a row of VMEM.
    Raises: MachineFault if they leave a buffer."""
    if min(shape) < 0 or not 0 <= lane < LANES:
        raise fault("bad extents of a DMA", f"shape={shape} lane={lane}", "sizes from 0 on, a lane below 128")
    (area, row), (array, element) = vmem, line
    if area.kind == "SMEM":
        return [(area.block(row, shape, (1,)), array.block(element, shape, strides))] if shape[0] else []
    *outer, columns = shape
    head = min(columns, LANES - lane) if lane else 0
    full, tail = divmod(columns - head, LANES)
    rows, moves, fit = (*steps[:len(outer)], panel), (*strides[:-1], LANES * strides[-1]), area.per_word
    parts = []
    for panels, lanes, first in ((1, head, lane), (full, LANES, 0), (1, tail, 0)):
        for firsts, counts, apart in _alike((*outer, panels), rows, fit) if lanes else ():
            spot, which = divmod(row + sum(map(mul, firsts, rows)), fit)
            here = (*(step * by // fit * LANES for step, by in zip(rows, apart, strict=True)), 1)
            there = (*(move * by for move, by in zip(moves, apart, strict=True)), strides[-1])
            parts.append((area.block(spot * LANES + first, (*counts, lanes), here, which),
                          array.block(element + sum(map(mul, firsts, moves)), (*counts, lanes), there)))
        if lanes:
            row, element = row + panels * panel, element + panels * lanes * strides[-1]
    return parts


def _alike(shape: Shape, steps: Shape, fit: int) -> Iterator[tuple[Shape, Shape, Shape]]:
    """The rows of a block, by the place that they have in rows of VMEM which hold so many of them each.

    Yields: the number of the first in each dimension, how many there are, and by how many they are apart.
    """
    apart = tuple(fit // math.gcd(step, fit) for step in steps)
    for firsts in product(*(range(min(size, by)) for size, by in zip(shape, apart, strict=True))):
        sides = zip(shape, firsts, apart, strict=True)
        yield firsts, tuple(-(-(size - first) // by) for size, first, by in sides), apart


def local_bytes(parts: list[tuple[Area, Area]], shape: Shape, strides: Shape, fit: int = 1) -> int:
    """What a copy within the chip is busy for: the rows that it touches in its block, or in the line. parts:
    the block's first. fit: how many rows of the block a row of VMEM holds."""
    rows = sum(math.prod(block.words.shape[:-1]) for block, _ in parts)
    return max(-(-rows // fit) * ROW_BYTES, charged_bytes(shape, strides, ROW_BYTES))


def charged_bytes(shape: Shape, strides: Shape, granule: int, itemsize: int = 4) -> int:
    """What HBM is busy for: each contiguous run, rounded up."""
    run, outer = 1, list(zip(shape, strides, strict=True))
    while outer and (outer[-1][1] == run or outer[-1][0] == 1):
        run *= outer.pop()[0]
    return math.prod(n for n, _ in outer) * (-(-itemsize * run // granule) * granule)


class Memory:
    """All buffers of a program, and the copies in flight.

    checks: whether owners and garbage are looked for. late: whether a copy's values move when it is known to
    be done, and not when it starts. Without values nothing is held; only the bounds of copies are checked.
    """

    def __init__(self, program: Program, inputs: dict[str, np.ndarray], *, checks: bool = True,
                 late: bool = False, values: bool = True) -> None:
        self.program, self.checks, self.late, self.values = program, checks and values, late, values
        dtypes = {b.name: stored(b) for b in program.buffers}
        vmem = self._arrays((max((b.base_row + b.rows for b in program.vmem), default=0), LANES))
        smem = self._arrays((max((b.base_word + b.words for b in program.smem), default=0),))
        self.areas = {b.name: Area("VMEM", b.name, *vmem, dtypes[b.name]).part(
            itemgetter(slice(b.base_row, b.base_row + b.rows))) for b in program.vmem}
        self.areas |= {b.name: Area("SMEM", b.name, *smem).part(
            itemgetter(slice(b.base_word, b.base_word + b.words))) for b in program.smem}
        given = _inputs(program, inputs) if values else {}
        flags = {name: (np.full(array.shape, array.flags.writeable), np.zeros(array.shape, np.uint8))
                 for name, array in given.items()}
        self.areas |= {b.name: Area("HBM", b.name, given[b.name], *flags[b.name]) if b.name in given else
                       Area("HBM", b.name, *self._arrays(b.shape, dtypes[b.name])) for b in program.hbm}
        self.flying: list[Copy] = []
        self.free_at = {"hbm": 0, "local": 0}  # when the last copy issued to each queue is done
        self.charged_bytes = {"hbm": 0, "local": 0}
        self.moved_bytes = Counter[str]()  # by way

    def _arrays(self, shape: Shape, dtype: Any = np.uint32) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Garbage of a shape, and its flags. What nobody will look at is zeros, which cost no memory."""
        words, known = np.zeros(shape, dtype), np.zeros(shape, bool)
        if self.values:
            bits = words.view(f"u{words.itemsize}")
            bits[...] = POISON >> 32 - 8 * words.itemsize
            known[...] = not self.checks
        return words, known, np.zeros(shape, np.uint8)

    def _access(self, name: str, row: int, rows: int, stride: int, writes: bool) -> Area:
        """The rows of a load or store, within bounds and in nobody's flight. Raises: MachineFault."""
        last = row + (rows - 1) * stride
        if not 0 <= rows <= SUBLANES or stride < 0 or (writes and rows > 1 and not stride):
            raise fault("bad rows or stride", f"rows={rows} stride={stride}", "0 to 8 rows; a store's, apart")
        self.areas[name].check_bounds(row * LANES, last * LANES)
        part = self.areas[name].part(itemgetter(slice(row, last + 1 if rows else row, stride or 1)))
        if self.flying:
            self._check_owners(part, writes)
        return part

    def load(self, name: str, row: int, rows: int, stride: int) -> Lanes:
        """Up to 8 rows, `stride` apart; the sublanes behind them are 0 and garbage."""
        part = self._access(name, row, rows, stride, writes=False)
        data, known = np.zeros(TILE, np.uint32), np.zeros(TILE, bool)
        data[:rows] = part.words
        if rows == SUBLANES and tidy(part.known) is KNOWN:
            return Lanes(data)
        known[:rows] = part.known
        sublane = int(known.all(axis=1).argmin())
        where = f"row {row + sublane * stride}" if sublane < rows else f"behind the {rows} rows loaded"
        return Lanes(data, known, f"{name} {where}")

    def load_word(self, name: str, word: int) -> int:
        """A word of scalar memory. There is no flag in a scalar register, so garbage is a fault at once."""
        self.areas[name].check_bounds(word, word)
        part = self.areas[name].part(itemgetter(slice(word, word + 1)))
        self._check_owners(part, writes=False)
        if not part.known[0]:
            raise fault(f"uninitialised read of {part}", f"garbage in word {word}", "a copy to it before")
        return int(part.words.view(np.int32)[0])

    def store(self, name: str, row: int, rows: int, stride: int, lanes: Lanes, mask: Lanes | None) -> None:
        """Write up to 8 rows, where a mask says so, and their flags with them."""
        part = self._access(name, row, rows, stride, writes=True)
        if mask:
            mask.require(rows)
        where = mask.data[:rows] if mask else True
        np.copyto(part.words, lanes.data.view(np.uint32)[:rows], where=where)
        np.copyto(part.known, lanes.known[:rows], where=where)

    def start(self, copy: Copy, now: int) -> int:
        """Begin a copy: check it, claim both sides, move the values. Returns: the cycle when it is done."""
        self.flying.append(copy)
        if self.checks:
            self._check_copy(copy)
            copy.own()
        for source, target in copy.parts:
            if target.given:
                raise fault(f"a copy writes {target}, an input", need="an output, or a temp")
            narrower = min(source.words.itemsize, target.words.itemsize)
            self.moved_bytes[copy.way] += narrower * source.words.size
            if self.checks:
                target.known[...] = True
        if self.values and not self.late:
            copy.move()
        machine, queue = self.program.machine, "local" if copy.way == "local" else "hbm"
        startup, bytes_per_cycle = {
            "hbm": (machine.dma_startup_cycles, machine.hbm_bytes_per_cycle),
            "local": (machine.local_startup_cycles, machine.local_bytes_per_cycle)}[queue]
        self.charged_bytes[queue] += copy.charged_bytes
        begin = max(now + startup, self.free_at[queue])
        self.free_at[queue] = begin + math.ceil(copy.charged_bytes / bytes_per_cycle)
        return self.free_at[queue]

    def release(self, semaphore: tuple[str, int]) -> None:
        """The copies that signal a semaphore own nothing any more: as many waits as starts have seen it."""
        done = [copy for copy in self.flying if copy.semaphore == semaphore]
        self.flying = [copy for copy in self.flying if copy.semaphore != semaphore]
        for copy in done if self.values and self.late else ():
            copy.move()
        if not self.checks:
            return
        for copy in done:
            copy.own(free=True)
        read = {copy.parts[0][0].name for copy in done if copy.parts}
        for copy in self.flying:  # what two of them read is still read by the other
            if copy.way != "read" or copy.parts and copy.parts[0][0].name in read:
                copy.own()

    def _check_copy(self, copy: Copy) -> None:
        """Owners, garbage, and words written twice. Raises: MachineFault."""
        for source, target in copy.parts:
            if source.given:
                continue
            self._check_owners(source, writes=False)
            if source.kind == target.kind:
                source.owned[...] = READ  # within the chip it could write what it reads
            if not source.known.all():
                source.owned[...], area = ODD, self.areas[source.name]
                where = tuple(map(int, np.argwhere((area.owned == ODD) & ~area.known)[0]))
                place = f"row {where[0]}, lane {where[1]}" if area.kind == "VMEM" else f"element {where}"
                raise fault(f"uninitialised read of {area}", f"garbage in {place}",
                            "every element written before it is copied")
        for _, target in copy.parts:
            self._check_owners(target, writes=True)
        rows = [_row_addresses(target.words) for _, target in copy.parts]
        if rows and len(np.unique(np.concatenate(rows))) < sum(map(len, rows)):
            raise fault(f"the copy writes a row of {target.name} twice", f"{sum(map(len, rows))} rows",
                        "rows that keep apart")

    def _check_owners(self, part: Area, writes: bool) -> None:
        """Raises: MachineFault if a copy in flight writes what is accessed, or reads what is written."""
        def conflict() -> bool:
            held = part.owned.tobytes()
            return WRITTEN in held or (writes and READ in held)
        if conflict():
            for owner in self.flying:  # let go of one after the other, until nothing is in the way
                owner.own(free=True)
                if not conflict():
                    break
            raise fault(f"race: {part} is {'written' if writes else 'read'} while a DMA owns it", owner,
                        f"as many waits as starts on {owner.instr.srcs[2]} before this",
                        at=owner.instr.locs, hint="a dma.done.wait between the two")

    def outputs(self) -> dict[str, np.ndarray]:
        """The output arrays. Raises: MachineFault if an element was never written."""
        found = {}
        for buffer in self.program.hbm if self.values else ():
            area = self.areas[buffer.name]
            if buffer.role == "output" and not area.known.all():
                raise fault(f"output {buffer.name} is incomplete",
                            f"{np.count_nonzero(~area.known)} of {area.known.size} elements never written")
            if buffer.role in ("output", "updated"):
                found[buffer.name] = area.words.view(DTYPES[buffer.dtype].numpy)
        return found


def stored(buffer: HbmBuffer | VmemBuffer | SmemBuffer) -> np.dtype:
    """The integers by which memory holds the elements of a buffer: signed ones, if numbers are so.

    Raises: DtypeError for a dtype that nothing can have.
    """
    if buffer.dtype not in DTYPES:
        raise DtypeError("tpu run", f"buffer {buffer.name} has an unknown dtype", got=buffer.dtype,
                         need=" or ".join(DTYPES))
    dtype = DTYPES[buffer.dtype]
    return dtype.numpy if dtype.kind == "i" else np.dtype(f"u{dtype.itemsize}")


def _row_addresses(words: np.ndarray) -> np.ndarray:
    """Where each row of a block begins."""
    spots = np.full(1, words.ctypes.data)
    for size, step in zip(words.shape[:-1], words.strides, strict=False):
        spots = np.add.outer(spots, np.arange(size) * step)
    return spots.reshape(-1)


def _inputs(program: Program, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The elements of the given arrays, not copied where they are as the program's buffers want them."""
    wanted = {b.name: b for b in program.hbm if b.role in ("input", "updated")}
    if wanted.keys() != inputs.keys():
        raise CompileError("tpu run", "the inputs do not match the program's",
                           got=", ".join(inputs) or "none", need=", ".join(wanted) or "none")
    arrays = {}
    for name, buffer in wanted.items():
        array, dtype = np.asarray(inputs[name]), DTYPES[buffer.dtype]
        if array.shape != buffer.shape:
            raise ShapeError("tpu run", f"input {name} has a wrong shape", got=array.shape, need=buffer.shape)
        if array.dtype != dtype.numpy:
            raise DtypeError("tpu run", f"input {name} has a wrong dtype", got=array.dtype, need=dtype.numpy)
        changes = buffer.role == "updated"
        arrays[name] = np.array(array, order="C", copy=changes or None).view(stored(buffer))
        arrays[name].flags.writeable = changes
    return arrays
