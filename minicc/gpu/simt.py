"""Lane mode: a SIMT kernel run for all threads of many blocks at once, checked and counted.

    m = blockIdx.y * 16 + threadIdx.y      ->    an array of shape (blocks, 16, 1): it is the same for every x
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
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minicc.errors import MachineFault
from minicc.gpu.cost import occupancy
from minicc.gpu.cuda import statement_text
from minicc.gpu.ir import Barrier, Expr, For, If, Let, Load, Param, Set, SimtKernel, Statement, Store
from minicc.gpu.machine import GPUSpec
from minicc.gpu.traffic import Access, LaneReport, by_warps, count_sectors, count_wavefronts
from minicc.gpu.watch import Clash, Watch
from minicc.graph.elementwise import COMPARE, ELEMENTWISE

ASSUMED_REGISTERS = 32  # per thread; what a CUDA compiler gives kernels as plain as ours
CHUNK_BYTES = 64 << 20  # registers and shared memory of the blocks that run together
Accesses = tuple[np.ndarray, np.ndarray, np.ndarray]
POISON = {"f": np.nan, "i": -(2**31), "b": True}
INTEGER: dict[str, Any] = {"floordiv": np.floor_divide, "mod": np.remainder, "select": np.where}


class _Chunk:
    """Some blocks of a kernel, running together."""

    def __init__(self, kernel: SimtKernel, memory: _Memory, blocks: np.ndarray, report: LaneReport) -> None:
        self.kernel, self.memory, self.report, self.blocks = kernel, memory, report, blocks
        x, y = kernel.threads
        gx, gy, _ = kernel.grid
        shape = (-1, 1, 1)
        self.registers: dict[str, np.ndarray] = {
            "blockIdx.x": (blocks % gx).reshape(shape), "blockIdx.y": (blocks // gx % gy).reshape(shape),
            "blockIdx.z": (blocks // (gx * gy)).reshape(shape),
            "threadIdx.x": np.arange(x).reshape(1, 1, x), "threadIdx.y": np.arange(y).reshape(1, y, 1),
        }
        self.mask: np.ndarray | None = None
        self.shared = {
            array.name: (np.full((len(blocks), array.elements), POISON[array.dtype.kind], array.dtype.numpy),
                         Watch(array.elements, len(blocks)))
            for array in kernel.shared
        }

    # -- statements ------------------------------------------------------------------------------------------

    def run(self, body: Sequence[Statement]) -> None:
        """Execute statements in order."""
        for statement in body:
            match statement:
                case Let():
                    self.registers[statement.name] = self.value(statement.value)
                case Set():
                    self.assign(statement)
                case Load():
                    self.load(statement)
                case Store():
                    self.store(statement)
                case For():
                    for counter in range(0, statement.stop, statement.step):
                        self.registers[statement.name] = np.full((1, 1, 1), counter)
                        self.run(statement.body)
                case If():
                    self.branch(statement)
                case Barrier():
                    self.barrier(statement)

    def value(self, expr: Expr) -> np.ndarray:
        """An expression's value in every thread."""
        if expr.op == "const":
            return np.full((1, 1, 1), expr.value, expr.dtype.numpy)
        if not expr.args:
            return self.registers[expr.value or expr.op]
        args = [self.value(arg) for arg in expr.args]
        if expr.op == "convert":
            return args[0].astype(expr.dtype.numpy)
        if expr.op == "compare":
            return COMPARE[expr.value](*args)
        return (INTEGER.get(expr.op) or ELEMENTWISE[expr.op].numpy)(*args)

    def assign(self, statement: Set) -> None:
        new = self.value(statement.value)
        if self.mask is not None:
            new = np.where(self.mask, new, self.registers[statement.name])
        self.registers[statement.name] = new

    def branch(self, statement: If) -> None:
        """Run the body under a narrower mask, and count the warps whose lanes part ways."""
        condition, before = self.value(statement.condition), self.mask
        lanes, active = self.lanes(condition), None if before is None else self.lanes(before)
        warps, times = by_warps(lanes.astype(np.int64), active), self.times(lanes, active)
        taken, passed = (warps == 1).any(axis=1), (warps == 0).any(axis=1)
        self.report.branches += times * int(np.count_nonzero(taken | passed))
        self.report.divergent += times * int(np.count_nonzero(taken & passed))
        self.mask = condition if before is None else before & condition
        if self.mask.any():
            self.run(statement.body)
        self.mask = before

    def barrier(self, statement: Barrier) -> None:
        """All threads of a block, or none, go on together."""
        arrived = None if self.mask is None else self.lanes(self.mask)
        if arrived is not None:
            stuck = np.nonzero(arrived.any(axis=1) & ~arrived.all(axis=1))[0]
            if len(stuck):
                missing = int(np.argmin(arrived[stuck[0]]))
                what = f"{self.thread(stuck[0], missing)} misses the barrier, but others of its block do not"
                raise self.fault(statement, what, "all threads of a block", "no __syncthreads() in the if")
        for _, watch in self.shared.values():
            watch.barrier(None if arrived is None else np.asarray(arrived.all(axis=1)))

    # -- memory ----------------------------------------------------------------------------------------------

    def load(self, statement: Load) -> None:
        index, mask = self.value(statement.index), self.narrowed(statement.mask)
        own = None if statement.mask is None else self.value(statement.mask)
        index = self.inside(statement, index, mask)
        if statement.buffer in self.shared:
            result = self.load_shared(statement, index, mask)
        else:
            self.count(self.report.loads, statement, index, mask)
            if watch := self.memory.watch.get(statement.buffer):
                self.check(statement, watch.read(*self.grid_accesses(index, mask)))
            result = self.memory.arrays[statement.buffer].take(index)
        if own is not None:
            result = np.where(own, result, statement.dtype.numpy.type(statement.fill))
        self.registers[statement.name] = result

    def load_shared(self, statement: Load, index: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        words, watch = self.shared[statement.buffer]
        self.count_shared(index, mask)
        self.check(statement, watch.read(*self.accesses(index, mask, watch)))
        rows = np.arange(len(self.blocks)).reshape(-1, 1, 1)
        return words[:, index[0]] if len(index) == 1 else words[rows, index]

    def store(self, statement: Store) -> None:
        index, value = self.value(statement.index), self.value(statement.value)
        mask = self.narrowed(statement.mask)
        index = self.inside(statement, index, mask)
        if statement.buffer in self.shared:
            self.count_shared(index, mask)
            words, watch = self.shared[statement.buffer]
            self.check(statement, watch.write(*self.accesses(index, mask, watch)))
        else:
            self.count(self.report.stores, statement, index, mask)
            self.check(statement, self.memory.watch[statement.buffer].write(*self.grid_accesses(index, mask)))
        rows, places, threads = self.accesses(index, mask)
        values = self.lanes(value)[rows if len(value) > 1 else 0, threads]
        if statement.buffer in self.shared:
            words[rows, places] = values
        else:
            self.memory.arrays[statement.buffer][places] = values

    def narrowed(self, own: Expr | None) -> np.ndarray | None:
        """The mask of an access: the threads that are here, and of those the ones it asks for."""
        if own is None:
            return self.mask
        return self.value(own) if self.mask is None else self.mask & self.value(own)

    def inside(self, statement: Load | Store, index: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        """The index, made harmless in threads that are not active, and checked in those that are."""
        size = self.memory.sizes[statement.buffer]
        outside = (index < 0) | (index >= size)
        if not outside.any():
            return index
        bad = outside if mask is None else outside & mask
        if bad.any():
            full = np.broadcast_to(bad, np.broadcast_shapes(bad.shape, (len(self.blocks), 1, 1)))
            lanes = self.lanes(full)
            block, thread = np.argwhere(lanes)[0]
            where = self.lanes(index)[min(block, len(index) - 1), thread]
            raise self.fault(statement, f"{self.thread(block, thread)} leaves {statement.buffer}",
                             f"an index from 0 to {size - 1}", "a mask on the access", got=f"index {where}")
        return np.where(outside, 0, index)

    # -- lanes -----------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Threads of a block."""
        x, y = self.kernel.threads
        return x * y

    def lanes(self, array: np.ndarray) -> np.ndarray:
        """(blocks or 1, y, x) with ones -> (blocks or 1, threads)."""
        x, y = self.kernel.threads
        return np.broadcast_to(array, (len(array), y, x)).reshape(len(array), -1)

    def times(self, *arrays: np.ndarray | None) -> int:
        """How many blocks a row of these arrays stands for."""
        return 1 if any(array is not None and len(array) > 1 for array in arrays) else len(self.blocks)

    def accesses(self, index: np.ndarray, mask: np.ndarray | None, watch: Watch | None = None) -> Accesses:
        """The active lanes as (block in the chunk, index, thread).

        For a watch, the first block stands for all, as long as all have been alike.
        """
        lanes = self.lanes(index)
        active = np.ones((1, self.size), bool) if mask is None else self.lanes(mask)
        blocks = len(self.blocks)
        if watch and len(lanes) == len(active) == 1 and not watch.wide:
            blocks = 1
        elif watch:
            watch.widen()
        rows, threads = np.nonzero(np.broadcast_to(active, (blocks, self.size)))
        return rows, lanes[rows if len(lanes) > 1 else 0, threads], threads

    def grid_accesses(self, index: np.ndarray, mask: np.ndarray | None) -> Accesses:
        """The same for global memory, which is one for all blocks; threads are counted through the grid."""
        rows, places, threads = self.accesses(index, mask)
        return np.zeros_like(rows), places, self.blocks[rows] * self.size + threads

    def count(
        self, table: dict[str, Access], statement: Load | Store, index: np.ndarray, mask: np.ndarray | None
    ) -> None:
        """Count one global access of every warp."""
        lanes, active = self.lanes(index), None if mask is None else self.lanes(mask)
        requests, sectors = count_sectors(by_warps(lanes, active), self.memory.itemsize[statement.buffer])
        times = self.times(lanes, active)
        table.setdefault(statement.buffer, Access()).add(requests * times, sectors * times)

    def count_shared(self, index: np.ndarray, mask: np.ndarray | None) -> None:
        """Count one shared access of every warp; loops repeat the same few, so those are remembered."""
        lanes, active = self.lanes(index), None if mask is None else self.lanes(mask)
        key = (lanes.tobytes(), b"" if active is None else active.tobytes())
        known = self.memory.wavefronts
        if key not in known:
            known[key] = count_wavefronts(by_warps(lanes, active))
        times = self.times(lanes, active)
        self.report.shared.add(known[key][0] * times, known[key][1] * times)

    # -- faults ----------------------------------------------------------------------------------------------

    def thread(self, block: int, thread: int) -> str:
        """A thread's name, from its block in the chunk and its number in the block."""
        return thread_name(self.kernel, int(self.blocks[block]), int(thread))

    def check(self, statement: Load | Store, clash: Clash | None) -> None:
        """Raise what a watch found."""
        if clash is None:
            return
        threads = [clash.thread, clash.other]
        if statement.buffer in self.shared:
            names = [self.thread(clash.row, thread) for thread in threads]
        else:
            names = [thread_name(self.kernel, *divmod(thread, self.size)) for thread in threads]
        place = f"{statement.buffer}[{clash.place}]"
        if clash.kind == "uninitialised":
            what = f"{names[0]} reads {place}, which nobody wrote"
            raise self.fault(statement, what, "a value stored before", "store every word, then a barrier")
        need, hint = "a barrier between the two", "__syncthreads()"
        if statement.buffer not in self.shared:
            need, hint = "one thread for each element", "an index that differs between threads and blocks"
        raise self.fault(statement, f"a race on {place}: {names[0]} {clash.kind} {names[1]}", need, hint)

    def fault(self, statement: Statement, what: str, need: str, hint: str, got: str = "") -> MachineFault:
        text = statement_text(statement)
        return MachineFault(f"lane mode of {self.kernel.name}", f"{what}, in `{text}`", got=got, need=need,
                            at=getattr(statement, "locs", ()), hint=hint)


def thread_name(kernel: SimtKernel, block: int, thread: int) -> str:
    """As CUDA numbers them: thread (x, y) of block (x, y, z)."""
    x, gx, gy = kernel.threads[0], kernel.grid[0], kernel.grid[1]
    at = (block % gx, block // gx % gy, block // (gx * gy))
    return f"thread ({thread % x}, {thread // x}) of block {at}"


@dataclass
class _Memory:
    """Global memory, seen flat, and what is known of it across chunks."""

    arrays: dict[str, np.ndarray]
    sizes: dict[str, int]
    itemsize: dict[str, int]
    watch: dict[str, Watch]
    wavefronts: dict[tuple[bytes, bytes], tuple[int, int]] = field(default_factory=dict)


def flat(param: Param, buffers: Mapping[str, np.ndarray]) -> np.ndarray:
    """A buffer as one dimension; one element if it has none, since even masked lanes must read something."""
    return buffers[param.buffer].reshape(-1) if param.elements else np.zeros(1, param.dtype.numpy)


def run_lane(
    kernel: SimtKernel, buffers: Mapping[str, np.ndarray], spec: GPUSpec, seed: int = 0
) -> LaneReport:
    """Run a kernel over its whole grid, writing outputs in place. seed: of the order in which blocks run.

    Raises: MachineFault for an access out of bounds, a race, a read of what nobody wrote, or a divergent
    barrier.
    """
    memory = _Memory(
        {param.name: flat(param, buffers) for param in kernel.params},
        {param.name: param.elements for param in kernel.params} | {a.name: a.elements for a in kernel.shared},
        {param.name: param.dtype.itemsize for param in kernel.params},
        {param.name: Watch(param.elements, 1) for param in kernel.params if param.written},
    )
    x, y = kernel.threads
    resident = occupancy(spec, x * y, ASSUMED_REGISTERS, kernel.shared_bytes)
    report = LaneReport(kernel.name, kernel.blocks, x * y, resident)
    registers = sum(isinstance(statement, Let | Load) for statement in kernel.statements())
    block_bytes = 8 * x * y * (registers + 4) + 4 * kernel.shared_bytes
    order = np.random.default_rng(seed).permutation(kernel.blocks)
    most = max(1, CHUNK_BYTES // block_bytes)
    with np.errstate(all="ignore"):
        for start in range(0, kernel.blocks, most):
            _Chunk(kernel, memory, order[start : start + most], report).run(kernel.body)
    return report
