"""The units behind queues: each takes pushes, and gives the results back in order, some cycles later.

    mxu = Mxu("mxu0", V5E)
    mxu.push_weights(now, rows, ...)  x 16     128 rows of weights slide into the shadow copy, one row a cycle
    mxu.push_rows(now, rows, swap=True, ...)   the shadow becomes active; each row meets all 128 columns
    mxu.pop()                        ->        the product of 8 rows, poppable 254 + 8 cycles after the push

Timing of an MXU. A push of r rows occupies its input for r cycles (f32: 6 r). Its results can be popped
`mxu_fill_cycles` + r (f32: + 6 r) cycles after it started. Weights have an input of their own, so loading
the shadow hides behind the products of the active copy; `overlap_weights=False` makes each load wait until
the array is empty, as in a simulator of a lone array (tests/systolic.py). Every push reserves its places in
the FIFO of results when it issues, for the array cannot be stopped; bundles issue in order, so a push without
a place would wait for a pop behind it forever: that is a fault, not a hang.

Values are lazy: one matrix product per run of rows pushed with the same weights, when its first result is
popped. The real unit's protocol is not public; the TPUv1 paper describes weight-stationary arrays with a
shadow copy. What to read next: tests/systolic.py for why 254, core.py for who calls this.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from minicc.tpu.machine import LANES, SUBLANES, TPUSpec
from minicc.tpu.vector import TILE, Lanes, fault


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


class _Product:
    """Rows that met the same weights: computed once, when somebody asks."""

    def __init__(self, kind: str, weights: np.ndarray) -> None:
        self.kind, self.weights = kind, weights
        self.rows: list[np.ndarray] = []
        self.values: np.ndarray | None = None

    def part(self, start: int, count: int) -> Lanes:
        """8 rows of it, or fewer and garbage behind them."""
        if self.values is None:
            self.values = np.concatenate(self.rows) @ self.weights
        if count == SUBLANES:
            return Lanes(self.values[start:start + count])
        data, known = np.zeros(TILE, np.float32), np.zeros(TILE, bool)
        data[:count], known[:count] = self.values[start:start + count], True
        return Lanes(data, known, "behind the rows of a vmatmul")


class Mxu(Queue):
    """One systolic array with active and shadow weights. A kind is "f32" or "bf16"."""

    def __init__(self, name: str, spec: TPUSpec, overlap_weights: bool = True) -> None:
        super().__init__(name)
        self.spec, self.overlap_weights = spec, overlap_weights
        self.shadow, self.held = np.zeros((spec.mxu_side, LANES), np.float32), 0  # rows of it so far
        self.shadow_kind, self.transposed = "", False
        self.product = _Product("", self.shadow)
        self.weights_free_at = self.drained_at = self.busy_cycles = 0
        self.passes = {"f32": spec.f32_passes, "bf16": 1}

    def ready(self, port: str, swap: bool = False) -> int:
        """When the next push of weights, push of rows, or pop can issue."""
        if port == "weights":
            return max(self.weights_free_at, 0 if self.overlap_weights else self.drained_at)
        return max(super().ready(port), self.weights_free_at if swap else 0)

    def push_weights(self, now: int, rows: np.ndarray, kind: str, transposed: bool = False) -> None:
        """Rows of weights slide into the shadow copy; transposed, they are its columns."""
        other = (kind, transposed) != (self.shadow_kind, self.transposed)
        if self.held == len(self.shadow) or (self.held and other):
            raise fault(f"{self.name}: the shadow weights are complete, or of another kind",
                        f"{self.held} rows of {self.shadow_kind}", "a vmatmul with swap before")
        self.shadow[self.held:self.held + len(rows)] = rows
        self.held, self.shadow_kind, self.transposed = self.held + len(rows), kind, transposed
        self.weights_free_at = now + len(rows) * self.passes[kind]

    def push_rows(self, now: int, rows: np.ndarray, kind: str, swap: bool) -> None:
        """1 to 8 rows (bf16: 16) meet the active weights; `swap` makes the shadow active first, for free."""
        if swap and self.held != len(self.shadow):
            raise fault(f"{self.name}: swap of incomplete weights", f"{self.held} rows", len(self.shadow))
        if swap:
            weights, self.held = self.shadow.copy(), 0
            self.product = _Product(self.shadow_kind, weights.T if self.transposed else weights)
        if self.product.kind != kind:
            raise fault(f"{self.name}: no active weights of this kind", self.product.kind or "none",
                        f"{kind} weights, made active by swap")
        if self.product.values is not None:  # what was popped is fixed; the next rows are a new product
            self.product = _Product(kind, self.product.weights)
        first, passes = sum(map(len, self.product.rows)), self.passes[kind]
        self.product.rows.append(rows)
        for start in range(0, len(rows), SUBLANES):
            count = min(SUBLANES, len(rows) - start)
            self.drained_at = now + self.spec.mxu_fill_cycles + (start + count) * passes
            self.results.append((self.drained_at, (self.product, first + start, count)))
        self.free_at = now + len(rows) * passes
        self.busy_cycles += len(rows) * passes
        if len(self.results) > self.spec.mxu_fifo_vregs:
            raise fault(f"{self.name}: this push can never proceed: FIFO full, and nothing pops",
                        f"{len(self.results)} results pushed and not popped",
                        f"at most {self.spec.mxu_fifo_vregs}", hint=f"pop {self.name} before it")

    def busy_before(self, time: int) -> int:
        """Cycles in which rows went in, before a time at which only the last push can still be going in."""
        return self.busy_cycles - max(0, self.free_at - time)

    def pop(self) -> Lanes:
        """The oldest result: 8 rows, or fewer and garbage behind them."""
        product, start, count = self.results.popleft()[1]
        return product.part(start, count)
