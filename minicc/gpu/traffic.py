"""Counting what a warp's memory request costs, exactly, from the addresses of its lanes.

    32 lanes reading x[0], x[1], ... x[31]     ->   1 request, 4 sectors of 32 bytes
    32 lanes reading s[0], s[32], s[64], ...   ->   1 request, 32 wavefronts: all in one bank

Goes in: an array of element indices (blocks, threads) and which lanes are active. Comes out: counts,
summed. These are the counters a profiler shows (Nsight Compute's sectors per request, and shared-memory
wavefronts); the closed forms that they must agree with are in cost.py. Read next: simt.py, which calls this
for every access.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from minicc.gpu.cost import Occupancy
from minicc.gpu.machine import BANKS, SECTOR_BYTES, WARP

IDLE = -1  # stands where a lane is masked off


@dataclass
class Access:
    """Requests of warps to one memory, and the sectors (global) or wavefronts (shared) they took."""

    requests: int = 0
    units: int = 0

    @property
    def per_request(self) -> float:
        """Sectors or wavefronts per request."""
        return self.units / self.requests if self.requests else 0.0

    def add(self, requests: int, units: int) -> None:
        """Count some more."""
        self.requests += requests
        self.units += units


@dataclass
class LaneReport:
    """What a GPU's counters would show for one launch. loads, stores: global memory, by buffer.

    occupancy: for 32 registers a thread, an assumption; a CUDA compiler decides how many it takes.
    branches: executions of an `if` by a warp; divergent: those where its lanes went both ways.
    """

    kernel: str
    blocks: int
    threads: int
    occupancy: Occupancy
    loads: dict[str, Access] = field(default_factory=lambda: defaultdict(Access))
    stores: dict[str, Access] = field(default_factory=lambda: defaultdict(Access))
    shared: Access = field(default_factory=Access)
    branches: int = 0
    divergent: int = 0

    @property
    def sectors(self) -> int:
        """Sectors of 32 bytes that global loads and stores moved."""
        return sum(access.units for access in (*self.loads.values(), *self.stores.values()))

    @property
    def bank_conflicts(self) -> int:
        """Wavefronts of shared memory beyond one per request."""
        return self.shared.units - self.shared.requests

    def __str__(self) -> str:
        rows = [f"kernel {self.kernel}: {self.blocks} blocks of {self.threads} threads; {self.occupancy}"]
        tables = [("load", self.loads, "sectors"), ("store", self.stores, "sectors")]
        tables += [("shared", {"": self.shared}, "wavefronts")] if self.shared.requests else []
        for verb, table, unit in tables:
            rows += [f"  {verb:6} {name:12}{a.requests:10} requests {a.units:10} {unit:10}"
                     f" {a.per_request:5.2f} each" for name, a in table.items()]
        rows.append(f"  {self.sectors * SECTOR_BYTES} bytes; {self.bank_conflicts} bank conflicts; "
                    f"{self.divergent} of {self.branches} branches diverge")
        return "\n".join(rows)


def by_warps(index: np.ndarray, active: np.ndarray) -> np.ndarray:
    """(blocks, threads) -> (warps, 32), with IDLE where a lane is masked off or there is no thread."""
    lanes = np.where(active, index, np.int64(IDLE))
    spare = -lanes.shape[1] % WARP
    if spare:
        lanes = np.pad(lanes, ((0, 0), (0, spare)), constant_values=IDLE)
    return lanes.reshape(-1, WARP)


def distinct(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each row in order, and where in it a value stands for the first time, IDLE aside."""
    ordered = np.sort(values, axis=1)
    first = ordered != IDLE
    first[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    return ordered, first


def count_sectors(warps: np.ndarray, itemsize: int) -> tuple[int, int]:
    """(requests, sectors) of warps that each read or write one item of `itemsize` bytes per lane.

    Shapes: warps[w, 32], element indices. An item never straddles two sectors.
    """
    sectors, first = distinct(warps // (SECTOR_BYTES // itemsize))  # which leaves IDLE as it is
    return int(np.count_nonzero(sectors[:, -1] != IDLE)), int(np.count_nonzero(first))


def count_wavefronts(warps: np.ndarray) -> tuple[int, int]:
    """(requests, wavefronts) of warps that each access a 4-byte word of shared memory per lane.

    A wavefront serves one word of each bank, to any number of lanes. Shapes: warps[w, 32], word indices.
    """
    words, first = distinct(warps)
    banks = words % BANKS + np.arange(len(warps)).reshape(-1, 1) * BANKS
    ways = np.bincount(banks[first], minlength=len(warps) * BANKS).reshape(-1, BANKS).max(axis=1)
    return int(np.count_nonzero(ways)), int(ways.sum())
