"""Lane mode: a SIMT kernel run for all threads of many blocks at once, checked and counted.

    m = blockIdx.x * 16 + threadIdx.y      ->    an array of shape (blocks, 16, 1): it is the same for every x
    x1 = x[m * 784 + k]                    ->    x.take(index), after a look at bounds, sectors and races

Goes in: a SimtKernel and its buffers. Comes out: the outputs, in place, and a LaneReport of what a GPU
would count. A register is an array (blocks, y, x), of size 1 where it does not vary, so that a numpy shape
*is* the uniformity analysis, and what all threads share is computed once. `if` narrows a mask. Blocks run
in chunks that fit a budget of bytes, in a shuffled order, since a GPU promises none. Checks, each a
MachineFault: an index out of bounds, a race, a read of what nobody wrote, a barrier that some threads of a
block do not reach.

A GPU runs warps of 32 in lockstep; GPGPU-Sim models its pipelines and compute-sanitizer has the same
checks. Read next: traffic.py for the counting, watch.py for the races.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from minicc.errors import MachineFault
from minicc.gpu import ir
from minicc.gpu.cost import occupancy
from minicc.gpu.cuda import statement_text
from minicc.gpu.machine import BANK_BYTES, WARP, GPUSpec
from minicc.gpu.traffic import LaneReport, by_warps, count_sectors, count_wavefronts
from minicc.gpu.watch import MANY, Clash, Watch
from minicc.graph.dtypes import decode, encode
from minicc.graph.elementwise import COMPARE, ELEMENTWISE

ASSUMED_REGISTERS = 32  # per thread; what a CUDA compiler gives kernels as plain as ours
CHUNK_BYTES = 64 << 20  # registers and shared memory of the blocks that run together
POISON = {"f": np.nan, "i": -0x7F7F7F80, "b": True}  # 0x80 in each byte
NUMPY: dict[str, Any] = {"floordiv": np.floor_divide, "mod": np.remainder, "select": np.where}
Buffers = Mapping[str, np.ndarray]
EVERYONE = np.ones((1, 1, 1), bool)


@dataclass(frozen=True)
class _Memory:
    """An array: its words, where each block's begin, and who used them; nobody watches what is only read."""

    array: ir.Array
    words: np.ndarray
    starts: np.ndarray
    watch: Watch | None


Memories = dict[str, _Memory]
Access = ir.Load | ir.Store


class _Chunk:
    """Some blocks of a kernel, running together, with the report that they add to."""

    def __init__(self, kernel: ir.SimtKernel, memory: Memories, blocks: np.ndarray, report: LaneReport):
        x, y = kernel.threads
        self.kernel, self.blocks, self.report, self.shape = kernel, blocks, report, (len(blocks), y, x)
        self.registers: dict[str, np.ndarray] = {
            "blockIdx.x": blocks.reshape(-1, 1, 1), "threadIdx.x": np.arange(x).reshape(1, 1, x),
            "threadIdx.y": np.arange(y).reshape(1, y, 1)}
        self.mask = EVERYONE
        self.memory = {**memory, **{array.name: self.shared(array) for array in kernel.shared}}

    def shared(self, array: ir.Array) -> _Memory:
        """The poisoned shared memory of the blocks."""
        blocks, size = len(self.blocks), array.elements
        words = np.full(blocks * size, encode(POISON[array.dtype.kind], array.dtype))
        return _Memory(array, words, np.arange(blocks).reshape(-1, 1, 1) * size, Watch(size, blocks))

    # -- statements ------------------------------------------------------------------------------------------

    def run(self, body: Sequence[ir.Statement]) -> None:
        """Execute statements in order."""
        for statement in body:
            match statement:
                case ir.Let(name, value):
                    self.registers[name] = self.value(value)
                case ir.Set(name, value):
                    new = self.value(value)
                    held = self.registers[name]
                    self.registers[name] = new if self.mask is EVERYONE else np.where(self.mask, new, held)
                case ir.Load():
                    self.load(statement)
                case ir.Store():
                    self.store(statement)
                case ir.For(name, stop, step, inner):
                    for counter in range(0, stop, step):
                        self.registers[name] = np.full((1, 1, 1), counter)
                        self.run(inner)
                case ir.If():
                    self.branch(statement)
                case ir.Barrier():
                    self.barrier(statement)

    def value(self, expr: ir.Expr) -> np.ndarray:
        """An expression's value in every thread."""
        if expr.op == "const":
            return np.full((1, 1, 1), expr.value, expr.dtype.numpy)
        if not expr.args:
            return self.registers[expr.value or expr.op]
        args = [self.value(arg) for arg in expr.args]
        if expr.op == "convert":
            return encode(decode(args[0], expr.args[0].dtype), expr.dtype)
        if expr.op in ELEMENTWISE:
            return ELEMENTWISE[expr.op].function(expr.dtype.kind)(*args)
        return np.asarray((COMPARE[expr.value] if expr.op == "compare" else NUMPY[expr.op])(*args))

    def branch(self, statement: ir.If) -> None:
        """Run the body under a narrower mask, and count the warps whose lanes part ways."""
        condition, before = self.value(statement.condition), self.mask
        warps, times = self.warps(self.lanes(condition), self.lanes(before))
        taken, passed = (warps == 1).any(axis=1), (warps == 0).any(axis=1)
        self.report.branches += times * int(np.count_nonzero(taken | passed))
        self.report.divergent += times * int(np.count_nonzero(taken & passed))
        self.mask = before & condition
        if self.mask.any():
            self.run(statement.body)
        self.mask = before

    def barrier(self, statement: ir.Barrier) -> None:
        """All threads of a block, or none, go on together."""
        arrived = self.lanes(self.mask)
        every = np.asarray(arrived.all(axis=1))
        stuck = np.argwhere(arrived.any(axis=1) & ~every)
        if len(stuck):
            missing = self.thread(self.number(stuck[0, 0], np.argmin(arrived[stuck[0, 0]])))
            raise self.fault(statement, f"{missing} misses the barrier, but others of its block do not",
                             need="all threads of a block", hint="no __syncthreads() in the if")
        for memory in self.memory.values():
            if memory.watch and not memory.array.buffer:
                memory.watch.barrier(every)

    # -- memory ----------------------------------------------------------------------------------------------

    def load(self, statement: ir.Load) -> None:
        """A value for a register; the fill in threads that are not active."""
        memory, places, mask = self.access(statement)
        result = memory.words.take(places, mode="clip")
        if statement.mask is not None:
            result = np.where(mask, result, statement.dtype.numpy.type(statement.fill))
        self.registers[statement.name] = result

    def store(self, statement: ir.Store) -> None:
        """Values into memory, from the threads that are active."""
        value = self.value(statement.value)
        memory, places, mask = self.access(statement)
        places, values = np.broadcast_to(places, self.shape), np.broadcast_to(value, self.shape)
        if mask is not EVERYONE:
            active = np.broadcast_to(mask, self.shape)
            places, values = places[active], values[active]
        memory.words[places] = values

    def access(self, statement: Access) -> tuple[_Memory, np.ndarray, np.ndarray]:
        """Check and count an access: its memory, each thread's place in it, and which threads are active."""
        memory, index = self.memory[statement.buffer], self.value(statement.index)
        mask = self.mask if statement.mask is None else self.mask & self.value(statement.mask)
        lanes, active = self.lanes(index), self.lanes(mask)
        outside = active & ((lanes < 0) | (lanes >= memory.array.elements))
        if outside.any():
            block, thread = np.argwhere(outside)[0]
            name = self.thread(self.number(block, thread))
            raise self.fault(statement, f"{name} leaves {statement.buffer}", hint="a mask on the access",
                             got=f"index {np.broadcast_to(lanes, outside.shape)[block, thread]}",
                             need=f"an index from 0 to {memory.array.elements - 1}")
        self.count(statement, memory.array, *self.warps(lanes, active))
        if memory.watch:
            note = memory.watch.read if isinstance(statement, ir.Load) else memory.watch.write
            if clash := note(*self.accesses(memory.watch, lanes, active)):
                raise self.clash(statement, memory.array, clash)
        return memory, index + memory.starts, mask

    def accesses(self, watch: Watch, lanes: np.ndarray, active: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The place and the thread of every active lane; one block stands for all while they are alike."""
        alike = len(lanes) == len(active) == 1 and not watch.wide
        if not alike:
            watch.widen()
        shape = (1 if alike else len(self.blocks), lanes.shape[1])
        rows, threads = np.nonzero(np.broadcast_to(active, shape))
        places = np.broadcast_to(lanes, shape)[rows, threads]
        return places + rows * watch.words * (watch.rows > 1), self.number(rows, threads)

    def count(self, statement: Access, array: ir.Array, warps: np.ndarray, times: int) -> None:
        """Count one access of every warp. times: the blocks that each warp stands for."""
        report = self.report
        if array.buffer:
            table = report.loads if isinstance(statement, ir.Load) else report.stores
            access, counts = table[array.name], count_sectors(warps, array.dtype.itemsize)
        else:
            words = warps * array.dtype.itemsize // BANK_BYTES  # which leaves idle lanes as they are
            access, counts = report.shared, wavefronts(words.tobytes())
        access.add(*(count * times for count in counts))

    # -- lanes -----------------------------------------------------------------------------------------------

    def lanes(self, array: np.ndarray) -> np.ndarray:
        """(blocks or 1, y, x) with ones -> (blocks or 1, threads)."""
        return np.broadcast_to(array, (len(array), *self.shape[1:])).reshape(len(array), -1)

    def warps(self, lanes: np.ndarray, active: np.ndarray) -> tuple[np.ndarray, int]:
        """Lanes as the warps see them, and how many blocks each stands for."""
        return by_warps(lanes, active), len(self.blocks) if len(lanes) == len(active) == 1 else 1

    def number(self, rows: Any, threads: Any) -> Any:
        """Threads of blocks of the chunk, counted through the grid."""
        return self.blocks[rows] * self.shape[1] * self.shape[2] + threads

    # -- faults ----------------------------------------------------------------------------------------------

    def thread(self, number: int) -> str:
        """A thread of the grid, as CUDA numbers it."""
        x, y = self.kernel.threads
        block, thread = divmod(int(number), x * y)
        return f"thread ({thread % x}, {thread // x}) of block {block}"

    def clash(self, statement: Access, array: ir.Array, clash: Clash) -> MachineFault:
        """What a watch found, in words."""
        name, place = self.thread(clash.thread), f"{statement.buffer}[{clash.place % array.elements}]"
        if clash.kind == "reads":
            return self.fault(statement, f"{name} reads {place}, which nobody wrote",
                              need="a value stored before", hint="store every word, then a barrier")
        other = "others" if clash.other == MANY else self.thread(clash.other)
        need, hint = ("one thread for each element", "an index that differs between threads and blocks")
        if not array.buffer:
            need, hint = "a barrier between the two", "__syncthreads()"
        return self.fault(statement, f"a race on {place}: {name} {clash.kind} {other}", need=need, hint=hint)

    def fault(self, statement: ir.Statement, what: str, **facts: str) -> MachineFault:
        text, locs = statement_text(statement), getattr(statement, "locs", ())
        return MachineFault(f"lane mode of {self.kernel.name}", f"{what}, in `{text}`", at=locs, **facts)


@lru_cache(maxsize=256)
def wavefronts(warps: bytes) -> tuple[int, int]:
    """count_wavefronts, remembered: loops repeat the same few requests."""
    return count_wavefronts(np.frombuffer(warps, np.int64).reshape(-1, WARP))


def run_lane(kernel: ir.SimtKernel, buffers: Buffers, spec: GPUSpec, seed: int = 0) -> LaneReport:
    """Run a kernel over its whole grid, writing outputs in place. seed: of the order in which blocks run.

    Raises: MachineFault for an access out of bounds, a race, a read of what nobody wrote, or a divergent
    barrier.
    """
    memory: Memories = {}
    for param in kernel.params:  # even masked lanes must read something, so an empty array is given one word
        words = buffers[param.buffer].reshape(-1) if param.elements else np.zeros(1, param.dtype.numpy)
        watch = Watch(param.elements) if param.written else None
        if watch and param.held:
            watch.written[:] = True
        memory[param.name] = _Memory(param, words, np.zeros((1, 1, 1), np.int64), watch)
    threads = prod(kernel.threads)
    resident = occupancy(spec, threads, ASSUMED_REGISTERS, kernel.shared_bytes)
    report = LaneReport(kernel.name, kernel.blocks, threads, resident)
    order = np.random.default_rng(seed).permutation(kernel.blocks)
    most = max(1, CHUNK_BYTES // (8 * threads * ASSUMED_REGISTERS + 4 * kernel.shared_bytes))
    with np.errstate(all="ignore"):
        for start in range(0, kernel.blocks, most):
            _Chunk(kernel, memory, order[start : start + most], report).run(kernel.body)
    return report
