"""The units behind queues: each takes pushes, and gives the results back in order, some cycles later.

    mxu = Mxu(V5E)
    mxu.push_weights(now, rows, ...)  x 16     128 rows of weights slide into the shadow copy, one row a cycle
    mxu.push_rows(now, rows, swap=True, ...)   the shadow becomes active; each row meets all 128 columns
    mxu.pop()                        ->        the product of 8 rows, poppable 254 + 8 cycles after the push

Timing of an MXU. A push of r rows occupies its input for r cycles (f32: 6 r). Its results can be popped
`mxu_fill_cycles` + r (f32: + 6 r) cycles after it started. Weights have an input of their own, so loading
the shadow hides behind the products of the active copy; `overlap_weights=False` makes each load wait until
the array is empty, as in a simulator of a lone array (systolic.py). Every push reserves its places in the
FIFO of results when it issues, for the array cannot be stopped; bundles issue in order, so a push without a
place would wait for a pop behind it forever: that is a fault, not a hang.

Values are lazy: one matrix product per run of rows pushed with the same weights, when its first result is
popped. The real unit's protocol is not public; the TPUv1 paper describes weight-stationary arrays with a
shadow copy. What to read next: systolic.py for why 254, emulator.py for who calls this.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from minicc.errors import MachineFault
from minicc.tpu.machine import LANES, SUBLANES, TPUSpec
from minicc.tpu.vector import TILE, Lanes


class Result(NamedTuple):
    """Something to pop, and the first cycle in which it can be."""

    ready: int
    lanes: Lanes


def _empty(name: str) -> MachineFault:
    return MachineFault("", "deadlock: a pop of an empty queue waits forever",
                        got=f"no push to {name} before it", need="one pop per result")


class Queue:
    """A unit that takes one vreg every few cycles and gives one result for each: the EUP, or an XLU."""

    def __init__(self, name: str, cycles: int, latency: int) -> None:
        self.name, self.cycles, self.latency = name, cycles, latency
        self.free_at = 0
        self.results: deque[Result] = deque()
        self.tile: list[Lanes] = []  # of a transposition under way

    def push(self, now: int, *results: Lanes) -> None:
        """Take one vreg; give these results for it (none in the midst of a transposition, then 16)."""
        self.free_at = now + self.cycles
        self.results.extend(Result(now + self.latency, lanes) for lanes in results)

    def next_ready(self) -> int:
        """When the next result can be popped. Raises: MachineFault if no push is left to wait for."""
        if not self.results:
            raise _empty(self.name)
        return self.results[0].ready

    def pop(self) -> Lanes:
        """The oldest result."""
        return self.results.popleft().lanes


class _Batch:
    """Rows that met the same weights: their product is computed once, when somebody asks."""

    def __init__(self, weights: np.ndarray) -> None:
        self.weights = weights
        self.blocks: list[np.ndarray] = []
        self.product: np.ndarray | None = None

    def rows(self, start: int, count: int) -> Lanes:
        if self.product is None:
            self.product = np.concatenate(self.blocks) @ self.weights
        part = self.product[start:start + count]
        if count == SUBLANES:
            return Lanes(part)
        data = np.zeros(TILE, np.float32)
        data[:count] = part
        return Lanes(data, (1 << count * LANES) - 1, "behind the rows of a vmatmul")


class Mxu:
    """One systolic array with active and shadow weights."""

    def __init__(self, spec: TPUSpec, name: str = "mxu", overlap_weights: bool = True) -> None:
        self.spec, self.name, self.overlap_weights = spec, name, overlap_weights
        self.shadow: list[np.ndarray] = []
        self.shadow_kind = self.active_kind = ""
        self.batch: _Batch | None = None
        self.results: deque[tuple[int, _Batch, int, int]] = deque()  # ready, batch, first row, rows
        self.weights_free_at = self.rows_free_at = self.drained_at = 0
        self.busy: list[list[int]] = []  # [start, end) of each unbroken run of rows

    def weights_time(self) -> int:
        """When the next push of weights can issue."""
        return self.weights_free_at if self.overlap_weights else max(self.weights_free_at, self.drained_at)

    def rows_time(self, swap: bool) -> int:
        """When the next push of rows can issue."""
        return max(self.rows_free_at, self.weights_free_at) if swap else self.rows_free_at

    def push_weights(self, now: int, rows: np.ndarray, kind: str) -> None:
        """Rows of weights slide into the shadow copy. kind: "f32" or "bf16"; with ".xpose", as columns."""
        side = self.spec.mxu_side
        held = sum(map(len, self.shadow))
        if held >= side or (held and kind != self.shadow_kind):
            raise MachineFault("", f"{self.name}: the shadow weights are complete, or of another kind",
                               got=f"{held} rows of {self.shadow_kind}", need="a vmatmul with swap before")
        self.shadow.append(rows)
        self.shadow_kind = kind
        self.weights_free_at = now + len(rows) * self._passes(kind)

    def push_rows(self, now: int, rows: np.ndarray, kind: str, swap: bool) -> None:
        """1 to 8 rows (bf16: 16) meet the active weights; `swap` makes the shadow active first, for free."""
        if swap:
            self._swap()
        if self.batch is None or self.active_kind.split(".")[0] != kind:
            raise MachineFault("", f"{self.name}: no active weights of this kind",
                               got=self.active_kind or "none", need=f"{kind} weights, made active by swap")
        if self.batch.product is not None:  # what was popped is fixed; the next rows are a new product
            self.batch = _Batch(self.batch.weights)
        cycles, first = len(rows) * self._passes(kind), sum(map(len, self.batch.blocks))
        self.batch.blocks.append(rows)
        for start in range(0, len(rows), SUBLANES):
            count = min(SUBLANES, len(rows) - start)
            self.drained_at = now + self.spec.mxu_fill_cycles + (start + count) * self._passes(kind)
            self.results.append((self.drained_at, self.batch, first + start, count))
        self.rows_free_at = now + cycles
        if self.busy and self.busy[-1][1] == now:
            self.busy[-1][1] = now + cycles
        else:
            self.busy.append([now, now + cycles])
        if len(self.results) > self.spec.mxu_fifo_vregs:
            raise MachineFault("", f"{self.name}: this push can never proceed: FIFO full, and nothing pops",
                               got=f"{len(self.results)} results pushed and not popped",
                               need=f"at most {self.spec.mxu_fifo_vregs}", hint=f"pop {self.name} before it")

    def _swap(self) -> None:
        side = self.spec.mxu_side
        held = sum(map(len, self.shadow))
        if held != side:
            raise MachineFault("", f"{self.name}: swap of incomplete weights", got=f"{held} rows", need=side)
        weights = np.concatenate(self.shadow)
        self.batch = _Batch(weights.T if self.shadow_kind.endswith("xpose") else weights)
        self.active_kind, self.shadow = self.shadow_kind, []

    def _passes(self, kind: str) -> int:
        return self.spec.f32_passes if kind.startswith("f32") else 1

    def next_ready(self) -> int:
        """When the next result can be popped. Raises: MachineFault if no push is left to wait for."""
        if not self.results:
            raise _empty(self.name)
        return self.results[0][0]

    def pop(self) -> Lanes:
        """The oldest result: 8 rows, or fewer and garbage behind them."""
        _, batch, start, count = self.results.popleft()
        return batch.rows(start, count)


def busy_before(units: list[Mxu], times: np.ndarray) -> np.ndarray:
    """How many cycles the arrays were busy before each of these cycles, summed over the units."""
    total = np.zeros(len(times), np.int64)
    for unit in units:
        edges = np.array(unit.busy, np.int64).reshape(-1)
        if len(edges):
            lengths = np.diff(edges, prepend=edges[0])
            lengths[2::2] = 0  # from an end to the next start
            total += np.interp(times, edges, np.cumsum(lengths)).astype(np.int64)
    return total


