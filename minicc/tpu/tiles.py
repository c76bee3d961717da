"""What the functions of blocks call: tiles of many iterations at once, in registers, VMEM and the MXUs.

    tiles.load('x', a, [0, 8, 16, 24], 8, 1)   ->  Lanes of (iterations, 4, 8, 128): rows a[i], a[i] + 8, ...
    tiles.store('y', a, [0, 8], 8, 1, lanes)       the same the other way
    tiles.rows(0, lanes, 4, 8, 'f32', False)       pushed to mxu0, one iteration's after the other's

Invariants: nothing is checked here that the emulator has checked before the call: bounds, owners, and, unless
`flags` is set, that all that is read was written. With `flags`, each lane's flag is kept, and a fault may
come, after which `undo` leaves memory and MXUs as they were before the block. A load copies, so that a later
store does not change it. What to read next: emulator.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from minicc.tpu.core import Core
from minicc.tpu.isa import Program
from minicc.tpu.machine import LANES, SUBLANES
from minicc.tpu.ops import FORMS
from minicc.tpu.units import Mxu, tiles_of
from minicc.tpu.vector import KNOWN, TILE, Lanes, tidy, transpose

HERE = np.zeros((1, 1), int)  # the start of an access whose address is known


def pick(lanes: Lanes, members: Any) -> Lanes:
    """Some members of a pack. Of an array that is the same for all, there is one."""
    data, known, origin = lanes
    if data.ndim == 4 and data.shape[1] > 1:
        data = data[:, members]
    if known is not KNOWN and known.ndim == 4 and known.shape[1] > 1:
        known = known[:, members]
    return Lanes(data, known, origin)


def at(lanes: Lanes, i: int) -> Lanes:
    """One iteration. Of an array that is the same for all, there is one."""
    data, known, origin = lanes
    if data.ndim == 4 and data.shape[0] > 1:
        data = data[i:i + 1]
    if known is not KNOWN and known.ndim == 4 and known.shape[0] > 1:
        known = known[i:i + 1]
    return Lanes(data, known, origin)


def last(lanes: Lanes) -> Lanes:
    """The tile of the last iteration, for a register."""
    data, known = (part[-1, 0] if part.ndim == 4 else part for part in (lanes.data, lanes.known))
    return Lanes(data, KNOWN if lanes.known is KNOWN else tidy(known), lanes.origin)


def joined(parts: Sequence[Lanes], members: Sequence[int]) -> Lanes:
    """So many members of several packs, beside one another."""
    arrays = [part.data if part.data.dtype == bool else part.data.view(np.uint32) for part in parts]
    count = max(array.shape[0] if array.ndim == 4 else 1 for array in arrays)

    def together(arrays: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate([_spread(array, (count, size, *TILE)) for array, size
                               in zip(arrays, members, strict=True)], axis=1)
    if all(part.known is KNOWN for part in parts):
        return Lanes(together(arrays))
    origin = next((part.origin for part in parts if part.origin), "")
    return Lanes(together(arrays), tidy(together([part.known for part in parts])), origin)


def transposed(parts: Sequence[Lanes]) -> Lanes:
    """Up to 16 tiles -> the 16 of the transposed one, as a pack."""
    count = max(part.data.shape[0] if part.data.ndim == 4 else 1 for part in parts)
    results = []
    for i in range(count):
        tiles = transpose([last(at(part, i)) for part in parts])
        data, known = (np.stack(parts)[None] for parts in ([t.data for t in tiles], [t.known for t in tiles]))
        results.append(Lanes(data, tidy(known), tiles[0].origin))
    if count == 1:
        return results[0]
    known = tidy(np.concatenate([np.broadcast_to(one.known, one.data.shape) for one in results]))
    return Lanes(np.concatenate([one.data for one in results]), known, results[0].origin)


class Tiles:
    """VMEM and the MXUs of a core, by many tiles at a time.

    count: iterations at hand. flags: whether garbage may turn up. fresh: whether what is stored may be the
    first in its place.
    """

    def __init__(self, program: Program, core: Core) -> None:
        self.core, self.count, self.flags, self.fresh = core, 1, False, False
        self.base = {buffer.name: buffer.base_row for buffer in program.vmem}
        self.views: dict[tuple[str, int, int], tuple[np.ndarray, np.ndarray]] = {}
        self.saved: list[tuple[np.ndarray, np.ndarray]] = []  # parts of memory, and what was there
        self.saved_units: list[tuple[Mxu, dict[str, Any], dict[str, Any], list[Any]]] = []

    def begin(self, count: int, flags: bool) -> None:
        """A block of so many iterations."""
        self.count, self.flags = count, flags
        self.saved = []
        self.saved_units = [(mxu, vars(mxu).copy(), vars(mxu.product).copy(), list(mxu.results))
                            for mxu in self.core.mxus] if flags else []

    def undo(self) -> None:
        """Everything as it was at the beginning of the block."""
        for part, before in reversed(self.saved):
            part[...] = before
        for mxu, fields, product, results in self.saved_units:
            vars(mxu).update(fields)
            vars(mxu.product).update(product)
            mxu.results.clear()
            mxu.results.extend(results)

    # ---- VMEM ----

    def windows(self, buffer: str, rows: int, stride: int) -> tuple[np.ndarray, np.ndarray]:
        """For each row of a buffer, the tile that begins there: its words, and their flags."""
        key = buffer, rows, stride
        if key not in self.views:
            area = self.core.memory.areas[buffer]
            height = len(area.words) - (rows - 1) * stride
            self.views[key] = (_windows(area.words, height, rows, stride),
                               _windows(area.known, height, rows, stride))
        return self.views[key]

    def independent(self, accesses: Sequence[tuple], starts: np.ndarray) -> bool:
        """Whether no iteration touches rows that another one writes. starts: by iteration and address."""
        touched = []
        for buffer, address, offsets, height, writes in accesses:
            begin = starts[:, address] if address >= 0 else np.zeros(len(starts), int)
            tiles = self.base[buffer] + begin[:, None] + np.array(offsets)
            touched.append((tiles[..., None] + np.arange(height), writes))
        low, high = min(rows.min() for rows, _ in touched), max(rows.max() for rows, _ in touched)
        owner, names = np.full(high + 1 - low, -1), np.arange(len(starts))[:, None, None]
        for rows, writes in touched:
            if writes:
                owner[rows - low] = names
        return all(((owner[rows - low] == names) | (owner[rows - low] == -1)).all() for rows, _ in touched)

    def load(self, buffer: str, starts: np.ndarray, offsets: np.ndarray, rows: int, stride: int) -> Lanes:
        """The tiles at each start plus each offset."""
        words, known = self.windows(buffer, rows, stride)
        index = starts + offsets
        data = _filled(words[index])
        if not self.flags:
            return Lanes(data)
        flags = tidy(_filled(known[index]))
        if flags is not KNOWN and (flags == flags[:1, :1]).all():
            flags = flags[:1, :1]
        return Lanes(data, flags, buffer)

    def store(self, buffer: str, starts: np.ndarray, offsets: np.ndarray, rows: int, stride: int,
              lanes: Lanes, mask: Lanes | None = None) -> None:
        """The tiles to each start plus each offset, where a mask says so."""
        words, known = self.windows(buffer, rows, stride)
        index = starts + offsets
        data = lanes.data.view(np.uint32)[..., :rows, :]
        if not self.flags:
            words[index] = data
            if self.fresh:
                known[index] = True
            return
        area, flags = self.core.memory.areas[buffer], lanes.known[..., :rows, :]
        touched = slice(int(index.min()), int(index.max()) + (rows - 1) * stride + 1)
        self.saved += [(part[touched], part[touched].copy()) for part in (area.words, area.known)]
        if mask:
            mask.require(rows)
            where = mask.data[..., :rows, :]
            data, flags = np.where(where, data, words[index]), np.where(where, flags, known[index])
        words[index], known[index] = data, flags

    # ---- MXUs ----

    def operand(self, beside: Sequence[Lanes], members: int, count: int, form: str) -> np.ndarray:
        """The rows that are pushed, all of them in turn. beside: the lanes of a row, 128 at a time."""
        _, most, numbers = FORMS[form]
        for lanes in beside:
            lanes.require(-(-count * SUBLANES // most))
        parts = [_spread(numbers(lanes.data), (self.count, members, most, LANES)) for lanes in beside]
        data = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)
        return data[:, :, :count].reshape(-1, data.shape[-1])

    def weights(self, unit: int, beside: Sequence[Lanes], members: int, count: int, form: str,
                transposed: bool) -> None:
        """Rows of weights for the shadow of an MXU."""
        mxu = self.core.mxus[unit]
        mxu.shadow += self.operand(beside, members, count, form),
        mxu.held, mxu.transposed = mxu.held + members * count, transposed
        mxu.shadow_kind = FORMS[form].kind

    def rows(self, unit: int, beside: Sequence[Lanes], members: int, count: int, form: str,
             swap: bool) -> None:
        """Rows that meet the active weights."""
        mxu = self.core.mxus[unit]
        if swap:
            mxu.swap()
        rows = self.operand(beside, members, count, form)
        first, spots = mxu.product.add(rows), tiles_of(count)
        for push in range(0, len(rows), count):
            for start, size in spots:
                mxu.results += mxu.results_of(0, first + push + start, size)

    def pop(self, unit: int, members: int) -> Lanes:
        """The oldest results."""
        results = self.core.mxus[unit].results
        wanted = [results.popleft()[1] for _ in range(self.count * members)]
        shape = self.count, members, *TILE
        if all(size == SUBLANES and product.values.shape[1] == LANES for product, _, size, _ in wanted):
            spans = [(product, list(some)) for product, some in groupby(wanted, key=itemgetter(0))]
            parts = [product.part(some[0][1], len(some) * SUBLANES) for product, some in spans]
            return Lanes((parts[0] if len(parts) == 1 else np.concatenate(parts)).reshape(shape))
        data, known = np.zeros((len(wanted), *TILE), np.uint32), np.zeros((len(wanted), *TILE), bool)
        for i, (product, start, size, panel) in enumerate(wanted):
            data[i, :size], known[i, :size] = product.part(start, size, panel).view(np.uint32), True
        return Lanes(data.reshape(shape), tidy(known.reshape(shape)), "behind the rows of a vmatmul")


def _spread(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """An array of this shape."""
    return array if array.shape == shape else np.broadcast_to(array, shape)


def _windows(part: np.ndarray, height: int, rows: int, stride: int) -> np.ndarray:
    """The `rows` rows, `stride` apart, that begin at each of the first `height` rows; a view."""
    row, *lanes = part.strides
    return np.ndarray((height, rows, *part.shape[1:]), part.dtype, part, 0, (row, row * stride, *lanes))


def _filled(part: np.ndarray) -> np.ndarray:
    """Tiles of 8 rows, with zeros where there were fewer."""
    missing = SUBLANES - part.shape[2]
    if not missing:
        return part
    return np.concatenate((part, np.zeros((*part.shape[:2], missing, LANES), part.dtype)), axis=2)
