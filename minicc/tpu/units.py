"""The units behind queues: each takes pushes, and gives the results back in order, some cycles later.

    mxu = Mxu("mxu0", V5E)
    mxu.push_weights(now, rows, ...)  x 16     128 rows of weights slide into the shadow copy, one row a cycle
    mxu.push_rows(now, rows, swap=True, ...)   the shadow becomes active; each row meets all 128 columns
    mxu.pop()                        ->        the product of 8 rows, poppable 254 + 8 cycles after the push

Timing of an MXU. A push of r rows occupies its input for r cycles (f32: 6 r; int8: r / 2). Its results can
be popped `mxu_fill_cycles` + r (f32: + 6 r) cycles after it started, 128 columns at a time. Weights have an
input of their own, so loading the shadow hides behind the products of the active copy;
`overlap_weights=False` makes each load wait until the array is empty, as in a simulator of a lone array
(tests/systolic.py). Every push reserves its places in the FIFO of results when it issues, for the array
cannot be stopped; bundles issue in order, so a push without a place would wait for a pop behind it forever:
that is a fault, not a hang.

Values are lazy: a pop computes the product of all rows pushed so far with the same weights. It is computed
in blocks of BLOCK rows, counted from the swap, so that a row gives the same bits whoever is in its block and
whoever asks when. The real unit's protocol is not public; the TPUv1 paper describes weight-stationary arrays
with a shadow copy. What to read next: tests/systolic.py for why 254, core.py for who calls this.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from minicc.tpu.machine import LANES, SUBLANES, TPUSpec
from minicc.tpu.vector import TILE, Lanes, fault

BLOCK = 24  # rows of a matrix product; sgemm's kernels take 8, 12 or 24 at a time on the CPUs measured


class Queue:
    """A unit that takes one vreg every few cycles and gives one result for each: the EUP, or an XLU."""

    def __init__(self, name: str, cycles: int = 1, latency: int = 0) -> None:
        self.name, self.cycles, self.latency = name, cycles, latency
        self.free_at = 0
        self.results: deque[tuple[int, Any]] = deque()  # the first cycle in which it can be popped, and what
        self.tile: list[Lanes] = []  # of a transposition under way

    def ready(self, port: str, swap: bool = False) -> int:
        """When the next push or pop can issue. Raises: MachineFault if there is nothing to pop."""
        if port != "pop":
            return self.free_at
        if not self.results:
            raise fault("deadlock: a pop of an empty queue waits forever",
                        f"no push to {self.name} before it", "one pop per result")
        return self.results[0][0]

    def push(self, now: int, *results: Lanes) -> None:
        """Take one vreg; give these results for it (none in the midst of a transposition, then 16)."""
        self.free_at = now + self.cycles
        self.results.extend((now + self.latency, lanes) for lanes in results)

    def pop(self) -> Lanes:
        """The oldest result."""
        return self.results.popleft()[1]


class Product:
    """Rows that met the same weights: computed when somebody asks."""

    def __init__(self, kind: str, weights: np.ndarray) -> None:
        self.kind, self.weights = kind, weights
        self.rows: tuple[np.ndarray, ...] = ()  # what is not computed yet
        self.count = 0  # of all rows
        self.values = np.zeros((0, len(weights)), np.float32)  # the last rows of those that are computed
        self.done = 0  # how many these are

    def add(self, rows: np.ndarray) -> int:
        """More rows. Returns: the number of the first."""
        self.rows += rows,
        self.count += len(rows)
        return self.count - len(rows)

    def part(self, start: int, count: int, panel: int = 0) -> np.ndarray:
        """So many rows of the product, 128 columns of them; each is asked for once, and in order. Of int8 it
        is s32, since f32 counts 256 products of such numbers without rounding."""
        if start + count > self.done:
            first, fresh, side = self.done % BLOCK, self.count - self.done, len(self.weights)
            block = self.rows[0]
            if first or fresh % BLOCK or len(self.rows) > 1:
                block = np.zeros((-(-(first + fresh) // BLOCK) * BLOCK, side), np.float32)
                np.concatenate(self.rows, out=block[first:first + fresh])
            product = (block.reshape(-1, BLOCK, side) @ self.weights).reshape(-1, side)[first:first + fresh]
            product = product.astype(np.int32) if self.kind == "int8" else product
            left = self.values[len(self.values) - (self.done - start):] if start < self.done else None
            self.values = product if left is None else np.concatenate((left, product))
            self.rows, self.done = (), self.count
        start -= self.done - len(self.values)
        return self.values[start:start + count, panel * LANES:(panel + 1) * LANES]


def tiles_of(rows: int) -> list[tuple[int, int]]:
    """(first row, how many) of each result for so many rows pushed at once."""
    return [(start, min(SUBLANES, rows - start)) for start in range(0, rows, SUBLANES)]


class Mxu(Queue):
    """One systolic array with active and shadow weights. A kind is "f32", "bf16" or "int8"."""

    def __init__(self, name: str, spec: TPUSpec, overlap_weights: bool = True) -> None:
        super().__init__(name)
        self.spec, self.overlap_weights = spec, overlap_weights
        self.shadow: tuple[np.ndarray, ...] = ()
        self.held = 0  # rows of it so far
        self.shadow_kind, self.transposed = "", False
        self.product = Product("", np.zeros((spec.mxu_side, spec.mxu_side), np.float32))
        self.weights_free_at = self.drained_at = self.busy_cycles = 0

    def ready(self, port: str, swap: bool = False) -> int:
        """When the next push of weights, push of rows, or pop can issue."""
        if port == "weights":
            return max(self.weights_free_at, 0 if self.overlap_weights else self.drained_at)
        return max(super().ready(port), self.weights_free_at if swap else 0)

    def push_weights(self, now: int, rows: np.ndarray, kind: str, transposed: bool = False) -> None:
        """Rows of weights slide into the shadow copy; transposed, they are its columns."""
        other = (kind, transposed) != (self.shadow_kind, self.transposed)
        if self.held == self.spec.mxu_side or (self.held and other):
            raise fault(f"{self.name}: the shadow weights are complete, or of another kind",
                        f"{self.held} rows of {self.shadow_kind}", "a vmatmul with swap before")
        self.shadow += rows,
        self.held, self.shadow_kind, self.transposed = self.held + len(rows), kind, transposed
        self.weights_free_at = now + self.spec.push_cycles(kind, len(rows))

    def push_rows(self, now: int, rows: np.ndarray, kind: str, swap: bool) -> None:
        """1 to 8 rows (bf16: 16, int8: 32) meet the active weights; `swap` makes the shadow active first."""
        if swap and self.held != self.spec.mxu_side:
            raise fault(f"{self.name}: swap of incomplete weights", f"{self.held} rows", self.spec.mxu_side)
        if swap:
            self.swap()
        if self.product.kind != kind:
            raise fault(f"{self.name}: no active weights of this kind", self.product.kind or "none",
                        f"{kind} weights, made active by swap")
        first, busy = self.product.add(rows), self.spec.push_cycles(kind, len(rows))
        for start, count in tiles_of(len(rows)):
            self.drained_at = now + self.spec.mxu_fill_cycles + self.spec.push_cycles(kind, start + count)
            self.results += self.results_of(self.drained_at, first + start, count)
        self.free_at = now + busy
        self.busy_cycles += busy
        if len(self.results) > self.spec.mxu_fifo_vregs:
            raise fault(f"{self.name}: this push can never proceed: FIFO full, and nothing pops",
                        f"{len(self.results)} results pushed and not popped",
                        f"at most {self.spec.mxu_fifo_vregs}", hint=f"pop {self.name} before it")

    def results_of(self, time: int, first: int, count: int) -> list[tuple[int, Any]]:
        """What is to be popped for up to 8 rows: 128 columns at a time."""
        return [(time, (self.product, first, count, panel)) for panel in range(self.spec.mxu_side // LANES)]

    def swap(self) -> None:
        """The shadow becomes active."""
        weights = np.concatenate(self.shadow) if len(self.shadow) > 1 else self.shadow[0]
        self.product = Product(self.shadow_kind, weights.T if self.transposed else weights)
        self.shadow, self.held = (), 0

    def busy_before(self, time: int) -> int:
        """Cycles in which rows went in, before a time at which only the last push can still be going in."""
        return self.busy_cycles - max(0, self.free_at - time)

    def pop(self) -> Lanes:
        """The oldest result: 8 rows, or fewer and garbage behind them."""
        product, start, count, panel = self.results.popleft()[1]
        values = product.part(start, count, panel)
        if count == SUBLANES:
            return Lanes(values)
        data, known = np.zeros(TILE, values.dtype), np.zeros(TILE, bool)
        data[:count], known[:count] = values, True
        return Lanes(data, known, "behind the rows of a vmatmul")
