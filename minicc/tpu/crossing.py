"""Crossings: copies of a kernel that fly while others compute.

    kernel a    loop; at its last step start to copy b's first blocks, and c's if b is short; body
    kernel b    wait for those; loop
    kernel c    loop; wait for a's last blocks to be out
    places([100, 80, 60, 300], room=300)   ->   [(0, 8), (100, 8), (180, 8), (0, 0)]

Goes in: how many rows of VMEM each kernel's blocks take. Comes out: where they begin, and how many kernels
before it a kernel may begin to copy, its reach. Blocks of several kernels are about by then: of the one that
computes, of some before it, whose last outputs are still being written, and of some behind it. Invariants:
nothing is copied early that may still be written; a kernel that touches what another one writes waits for it
first; what lingers has been waited for before a kernel begins that has the same rows.

Between the kernels of one program there is no launch, so that a TPU's queue of copies need never run empty;
XLA prefetches the weights that it chose to while other fusions compute. On a GPU the next kernel's prologue
overlaps by programmatic dependent launch. Read next: lower.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

REACHES = (8, 1)  # how many kernels ahead to begin, at the most; if there is no room for it, the next only


class Late(NamedTuple):
    """An array whose last blocks are still being written when their kernel is over; land() waits for it."""

    buffer: str
    number: int  # of the kernel
    land: Callable[[], None]


def settled(late: list[Late], touched: Collection[str] | None = None) -> list[Late]:
    """Wait for the arrays that are touched now, or for all. Returns: the others."""
    rest = []
    for one in late:
        if touched is None or one.buffer in touched:
            one.land()
        else:
            rest.append(one)
    return rest


def places(sizes: Sequence[int], room: int) -> list[tuple[int, int]]:
    """For each kernel the first row of its blocks, and how many kernels before it may begin to copy to them.

    Units: rows. Nobody else's blocks are there then: of those kernels, and of as many before them, whose last
    outputs may linger. A kernel that finds no room begins at row 0, in its own time.
    """
    found: list[tuple[int, int]] = []
    for number, size in enumerate(sizes):
        tried = [(_lowest(sizes, found, number - 2 * reach, size), reach) for reach in REACHES]
        found.append(next((spot for spot in tried if spot[0] + size <= room), (0, 0)))
    return found


def _lowest(sizes: Sequence[int], found: Sequence[tuple[int, int]], first: int, size: int) -> int:
    """The lowest row with so much room beside the blocks of all kernels from `first` on."""
    row = 0
    others = range(max(0, first), len(found))
    for start, end in sorted((found[other][0], found[other][0] + sizes[other]) for other in others):
        row = row if row + size <= start else max(row, end)
    return row
