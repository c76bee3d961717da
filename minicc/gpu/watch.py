"""Watching a memory for races and for reads of what nobody wrote.

    thread 3 writes s[5]; thread 4 reads s[5]              ->   Clash: "reads what was just written by"
    thread 3 writes s[5]; barrier; thread 4 reads s[5]     ->   fine

Goes in: accesses, as (place, thread) of every active lane of one statement. Comes out: a Clash, or None. For
each word it remembers whether it was ever written, and which threads wrote and read it since the last
barrier; a barrier forgets those two. Two accesses of one word between barriers by different threads clash if
one of them writes, however far apart their warps may run: the order between threads is not promised.
ThreadSanitizer's shadow words are the same with vector clocks, since locks order only some threads; on a GPU
a barrier orders all of a block. Read next: simt.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NOBODY, MANY = -1, -2


@dataclass(frozen=True)
class Clash:
    """What a thread did to one word. kind reads between the two threads: "writes what was just read by"."""

    kind: str
    place: int
    thread: int
    other: int


class Watch:
    """The shadow of a memory: `rows` copies (one per block) of `words` words.

    While all rows are used alike, the shadow of one stands for all of them.
    """

    def __init__(self, words: int, rows: int = 1) -> None:
        self.words, self.rows, self.wide = words, rows, rows == 1
        self.written = np.zeros(words, bool)
        self.writer, self.reader = (np.full(words, NOBODY, np.int64) for _ in "wr")

    def widen(self) -> None:
        """Give each row a shadow of its own, before rows are used differently."""
        if not self.wide:
            self.wide = True
            self.written, self.writer, self.reader = (
                np.tile(shadow, self.rows) for shadow in (self.written, self.writer, self.reader))

    def barrier(self, arrived: np.ndarray) -> None:
        """Forget who read and wrote, in the rows that arrived at the barrier. Shapes: arrived[rows or 1]."""
        if len(arrived) > 1:
            self.widen()
        for shadow in (self.writer, self.reader):
            rows = shadow.reshape(-1, self.words)
            rows[np.broadcast_to(arrived, len(rows))] = NOBODY

    def read(self, places: np.ndarray, threads: np.ndarray) -> Clash | None:
        """Note what some threads read."""
        writer, before = self.writer[places], self.reader[places]
        self.reader[places] = threads
        shared = (self.reader[places] != threads) | _others(before, threads)
        self.reader[places[shared]] = MANY
        return _first(places, threads, [
            ("reads", ~self.written[places], writer),
            ("reads what was just written by", _others(writer, threads), writer)])

    def write(self, places: np.ndarray, threads: np.ndarray) -> Clash | None:
        """Note what some threads write."""
        writer, reader = self.writer[places], self.reader[places]
        self.written[places] = True
        self.writer[places] = threads
        winner = self.writer[places]
        return _first(places, threads, [
            ("writes over what was just written by", _others(writer, threads), writer),
            ("writes what was just read by", _others(reader, threads), reader),
            ("writes together with", winner != threads, winner)])


def _others(owner: np.ndarray, threads: np.ndarray) -> np.ndarray:
    """Where somebody else is noted."""
    return (owner != NOBODY) & (owner != threads)


def _first(
    places: np.ndarray, threads: np.ndarray, kinds: list[tuple[str, np.ndarray, np.ndarray]]
) -> Clash | None:
    """The first access that clashes, of the first kind that there is."""
    for kind, where, others in kinds:
        if where.any():
            at = int(np.argmax(where))
            return Clash(kind, int(places[at]), int(threads[at]), int(others[at]))
    return None
