"""VMEM, HBM, and the DMAs between them: values, who owns what while a copy flies, and when it lands.

    memory = Memory(program, inputs)
    memory.load("xb", row, rows=8, stride=1)    ->  Lanes, with a flag per lane: was it ever written
    memory.start(dma, now)                                 from here until its wait, the copy owns both sides

Every buffer is an array of 32-bit words, and parallel to it two more: whether each word was ever written,
and whether a copy in flight reads or writes it. A DMA is at most three strided copies from one buffer to
another.

Ownership is independent of timing: even a copy that would have landed long ago must be waited for. Only
when as many waits as starts have been consumed on a semaphore are its copies known to be done, for their
order is not promised. A word in flight may be read only if the copy just reads it, and never written.

Timing: a copy starts up for `dma_startup_cycles`, then moves at HBM's bandwidth, after the copies issued
before it; each contiguous run of elements is charged rounded up to the granule. Values move at the start,
which nobody who respects ownership can tell from the end. Real DMA engines run several copies side by side
and promise no order; the race detector here is the vector-clock idea (FastTrack, 2009) shrunk to one thread
and its copies. What to read next: vector.py for what a garbage lane may do, core.py for the instructions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from minicc.errors import CompileError, DtypeError, ShapeError
from minicc.tpu.isa import Instr, Program
from minicc.tpu.machine import LANES, SUBLANES
from minicc.tpu.vector import KNOWN, TILE, Lanes, fault, tidy

POISON = 0x7FC0DEAD  # a NaN that one recognises in a dump
READ, WRITTEN = 1, 2  # what a copy in flight does with a word
_TYPES = {"f32": np.float32, "i32": np.int32, "s32": np.int32, "u32": np.uint32, "bool": np.int32}
Shape = tuple[int, ...]
View = Callable[[np.ndarray], np.ndarray]  # picks the words of an access from any of a buffer's arrays


@dataclass(frozen=True, eq=False)
class Area:
    """A buffer: its words, which of them were ever written, and which a copy in flight owns."""

    kind: str  # "VMEM": (rows, 128) words. "HBM": of the array's shape
    name: str
    words: np.ndarray
    known: np.ndarray
    owned: np.ndarray  # 0, READ or WRITTEN

    def __str__(self) -> str:
        return f"{self.kind} buffer {self.name}"

    def check_bounds(self, low: int, high: int) -> None:
        """Raises: MachineFault if the words from low to high are not all its own."""
        if low < 0 or high >= self.words.size:
            unit, size = ("rows", LANES) if self.kind == "VMEM" else ("elements", 1)
            raise fault(f"out of bounds in {self}", f"{unit} {low // size} to {high // size}",
                        f"0 to {self.words.size // size - 1}")

    def spot(self, word: int) -> str:
        """Where a word is."""
        where = tuple(map(int, np.unravel_index(word, self.words.shape)))
        return f"row {where[0]}, lane {where[1]}" if self.kind == "VMEM" else f"element {where}"


class Block(NamedTuple):
    """Words of a buffer: the one at `offset`, and from there on `shape` of them, `strides` apart."""

    offset: int
    shape: Shape
    strides: Shape

    def of(self, array: np.ndarray) -> np.ndarray:
        """The block's part of one of the buffer's arrays."""
        strides = [stride * array.itemsize for stride in self.strides]
        return as_strided(array.reshape(-1)[self.offset:], self.shape, strides)

    def ends(self) -> tuple[int, int]:
        """The first and the last word."""
        steps = [(n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True)]
        return self.offset + sum(min(0, s) for s in steps), self.offset + sum(max(0, s) for s in steps)


@dataclass(frozen=True, eq=False)
class Copy:
    """A DMA with all its registers read. `reads` and `writes` are of the same shapes, one by one."""

    instr: Instr
    pc: int
    semaphore: tuple[str, int]
    source: Area
    target: Area
    reads: list[Block]
    writes: list[Block]
    charged_bytes: int

    def own(self, free: bool = False) -> None:
        """Mark both sides as its own, or let go of them."""
        for area, blocks, owned in ((self.source, self.reads, READ), (self.target, self.writes, WRITTEN)):
            for block in blocks:
                block.of(area.owned)[...] = 0 if free else owned

    def __str__(self) -> str:
        return f"the copy {self.source.name} -> {self.target.name} started at pc {self.pc:#x}"


def split(
    row: int, element: int, shape: Shape, strides: Shape, steps: Shape, panel: int, lane: int
) -> tuple[list[Block], list[Block]]:
    """(in VMEM, in HBM) at most three blocks that hold the elements of a DMA, as isa.py describes it: the
    panel that a lane offset leaves, the full panels, and the rest."""
    *outer, columns = shape
    head = min(columns, LANES - lane) if lane else 0
    full, tail = divmod(columns - head, LANES)
    vmem, hbm, column = [], [], 0
    rows = [step * LANES for step in (*steps[:len(outer)], panel)]
    for panels, lanes, first in ((1, head, lane), (full, LANES, 0), (1, tail, 0)):
        if math.prod(block := (*outer, panels, lanes)):
            vmem.append(Block(row * LANES + first, block, (*rows, 1)))
            elements = (*strides[:-1], LANES * strides[-1], strides[-1])
            hbm.append(Block(element + column * strides[-1], block, elements))
            row, column = row + panels * panel, column + panels * lanes
    return vmem, hbm


def charged_bytes(shape: Shape, strides: Shape, granule: int) -> int:
    """What HBM is busy for: each contiguous run, rounded up."""
    run, outer = 1, list(zip(shape, strides, strict=True))
    while outer and (outer[-1][1] == run or outer[-1][0] == 1):
        run *= outer.pop()[0]
    return math.prod(n for n, _ in outer) * (-(-4 * run // granule) * granule)


class Memory:
    """All buffers of a program, and the copies in flight."""

    def __init__(self, program: Program, inputs: dict[str, np.ndarray]) -> None:
        self.program = program
        vmem = _arrays((max((b.base_row + b.rows for b in program.vmem), default=0), LANES))
        self.areas = {b.name: Area("VMEM", b.name, *(part[b.base_row:b.base_row + b.rows] for part in vmem))
                      for b in program.vmem}
        self.areas |= {b.name: Area("HBM", b.name, *_arrays(b.shape)) for b in program.hbm}
        for name, array in _inputs(program, inputs).items():
            self.areas[name].words[...] = array.view(np.uint32)
            self.areas[name].known[...] = True
        self.flying: list[Copy] = []
        self.hbm_free_at = 0
        self.moved_bytes = {"HBM": 0, "VMEM": 0}  # by where from
        self.charged_bytes = 0

    def _access(self, name: str, row: int, rows: int, stride: int, writes: bool) -> tuple[Area, View]:
        """The rows of a load or store, within bounds and in nobody's flight. Raises: MachineFault."""
        area, last = self.areas[name], row + (rows - 1) * stride
        if not 0 <= rows <= SUBLANES or stride < 0 or (writes and rows > 1 and not stride):
            raise fault("bad rows or stride", f"rows={rows} stride={stride}", "0 to 8 rows; a store's, apart")
        area.check_bounds(row * LANES, last * LANES)
        view = itemgetter(slice(row, last + 1, stride or 1))
        if self.flying:
            self._check_owners(area, view, writes)
        return area, view

    def load(self, name: str, row: int, rows: int, stride: int) -> Lanes:
        """Up to 8 rows, `stride` apart; the sublanes behind them are 0 and garbage."""
        area, view = self._access(name, row, rows, stride, writes=False)
        data, known = np.zeros(TILE, np.uint32), np.zeros(TILE, bool)
        data[:rows], known[:rows] = view(area.words), view(area.known)
        if (known := tidy(known)) is KNOWN:
            return Lanes(data)
        sublane = int(known.all(axis=1).argmin())
        where = f"row {row + sublane * stride}" if sublane < rows else f"behind the {rows} rows loaded"
        return Lanes(data, known, f"{name} {where}")

    def store(self, name: str, row: int, rows: int, stride: int, lanes: Lanes, mask: Lanes | None) -> None:
        """Write up to 8 rows, where a mask says so, and their flags with them."""
        area, view = self._access(name, row, rows, stride, writes=True)
        if mask:
            mask.require(rows)
        where = mask.data[:rows] if mask else True
        np.copyto(view(area.words), lanes.data.view(np.uint32)[:rows], where=where)
        np.copyto(view(area.known), lanes.known[:rows], where=where)

    def start(self, copy: Copy, now: int) -> int:
        """Begin a copy: check it, claim both sides, move the values. Returns: the cycle when it is done."""
        if copy.reads:
            self._check(copy)
        for source, target in zip(copy.reads, copy.writes, strict=True):
            target.of(copy.target.words)[...] = source.of(copy.source.words)
            target.of(copy.target.known)[...] = True
            self.moved_bytes[copy.source.kind] += 4 * math.prod(source.shape)
        copy.own()
        self.flying.append(copy)
        self.charged_bytes += copy.charged_bytes
        begin = max(now + self.program.machine.dma_startup_cycles, self.hbm_free_at)
        self.hbm_free_at = begin + math.ceil(copy.charged_bytes / self.program.machine.hbm_bytes_per_cycle)
        return self.hbm_free_at

    def release(self, semaphore: tuple[str, int]) -> None:
        """The copies that signal a semaphore own nothing any more: as many waits as starts have seen it."""
        done = [copy for copy in self.flying if copy.semaphore == semaphore]
        self.flying = [copy for copy in self.flying if copy.semaphore != semaphore]
        for copy in done:
            copy.own(free=True)
        for copy in self.flying:  # what two of them read is still read by the other
            copy.own()

    def _check(self, copy: Copy) -> None:
        """Bounds, owners, garbage. Raises: MachineFault."""
        for area, blocks in ((copy.source, copy.reads), (copy.target, copy.writes)):
            writes = area is copy.target
            low, high = min(b.ends()[0] for b in blocks), max(b.ends()[1] for b in blocks)
            area.check_bounds(low, high)
            marks = np.zeros(high + 1, bool)
            for block in blocks:
                self._check_owners(area, block.of, writes)
                block.of(marks)[...] = True
            if writes and np.count_nonzero(marks) < sum(math.prod(block.shape) for block in blocks):
                raise fault(f"the copy writes a row of {area.name} twice", blocks[0], "rows that keep apart")
        for block in copy.reads:
            known = block.of(copy.source.known)
            if not known.all():
                word = block.offset + int(np.argwhere(~known)[0] @ block.strides)
                raise fault(f"uninitialised read of {copy.source}", f"garbage in {copy.source.spot(word)}",
                            "every element written before it is copied")

    def _check_owners(self, area: Area, view: View, writes: bool) -> None:
        """Raises: MachineFault if a copy in flight writes what is accessed, or reads what is written."""
        def conflict() -> bool:
            held = view(area.owned).tobytes()
            return WRITTEN in held or (writes and READ in held)
        if conflict():
            for owner in self.flying:  # let go of one after the other, until nothing is in the way
                owner.own(free=True)
                if not conflict():
                    break
            raise fault(f"race: {area} is {'written' if writes else 'read'} while a DMA owns it", owner,
                        f"as many waits as starts on {owner.instr.srcs[2]} before this",
                        at=owner.instr.locs, hint="a dma.done.wait between the two")

    def outputs(self) -> dict[str, np.ndarray]:
        """The output arrays. Raises: MachineFault if an element was never written."""
        found = {}
        for buffer in self.program.hbm:
            area = self.areas[buffer.name]
            if buffer.role == "output" and not area.known.all():
                raise fault(f"output {buffer.name} is incomplete",
                            f"{np.count_nonzero(~area.known)} of {area.known.size} elements never written")
            if buffer.role == "output":
                values = area.words.view(_TYPES[buffer.dtype])
                found[buffer.name] = values != 0 if buffer.dtype == "bool" else values
        return found


def _arrays(shape: Shape) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.full(shape, POISON, np.uint32), np.zeros(shape, bool), np.zeros(shape, np.uint8)


def _inputs(program: Program, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The given arrays as the program's buffers want them."""
    wanted = {b.name: b for b in program.hbm if b.role == "input"}
    if wanted.keys() != inputs.keys():
        raise CompileError("tpu run", "the inputs do not match the program's",
                           got=", ".join(inputs) or "none", need=", ".join(wanted) or "none")
    arrays = {}
    for buffer in program.hbm:
        if buffer.dtype not in _TYPES:
            raise DtypeError("tpu run", f"HBM buffer {buffer.name} has an unknown dtype", got=buffer.dtype,
                             need=" or ".join(_TYPES))
    for name, buffer in wanted.items():
        array = np.asarray(inputs[name])
        if array.shape != buffer.shape:
            raise ShapeError("tpu run", f"input {name} has a wrong shape", got=array.shape, need=buffer.shape)
        if array.dtype.kind not in ("f" if buffer.dtype == "f32" else "iub"):
            raise DtypeError("tpu run", f"input {name} has a wrong dtype", got=array.dtype, need=buffer.dtype)
        arrays[name] = array.astype(_TYPES[buffer.dtype])
    return arrays
