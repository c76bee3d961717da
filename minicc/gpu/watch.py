"""Watching a memory for races and for reads of what nobody wrote.

    thread 3 writes s[5]; thread 4 reads s[5]              ->   Clash: "reads what was just written by"
    thread 3 writes s[5]; barrier; thread 4 reads s[5]     ->   fine

Goes in: accesses, as (row, index, thread) of every active lane of one statement. Comes out: a Clash, or
None. For each word it remembers who wrote it last, who read it since, and in which epoch; a barrier starts
a new epoch. Two accesses of one word in one epoch by different threads clash if one of them writes, however
far apart their warps may run: the order between threads is not promised. Invariant: memory starts
unwritten. ThreadSanitizer's shadow words are the same with vector clocks; on a GPU barriers make one
counter enough. Read next: simt.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NOBODY, MANY = -1, -2


@dataclass(frozen=True)
class Clash:
    """What two threads did to one word. kind reads between their names: "reads what was just written by"."""

    kind: str
    row: int
    place: int
    thread: int
    other: int = NOBODY


class Watch:
    """The shadow of a memory: `rows` copies (one per block) of `words` words.

    While all rows are used alike, one row stands for all of them.
    """

    def __init__(self, words: int, rows: int) -> None:
        self.rows = rows
        self.writer, self.reader = (np.full((1, words), NOBODY, np.int64) for _ in range(2))
        self.wrote, self.read_in = (np.full((1, words), -1, np.int64) for _ in range(2))
        self.epoch = np.zeros(1, np.int64)

    def barrier(self, arrived: np.ndarray | None) -> None:
        """Start a new epoch, in the rows that arrived at the barrier."""
        if arrived is not None and len(arrived) > 1:
            self.widen()
        self.epoch = self.epoch + (1 if arrived is None else arrived)

    def read(self, rows: np.ndarray, places: np.ndarray, threads: np.ndarray) -> Clash | None:
        """Note what some threads read."""
        writer, epoch = self.writer[rows, places], self.now(rows)
        if clash := self.found("uninitialised", writer == NOBODY, rows, places, threads, writer):
            return clash
        raced = (self.wrote[rows, places] == epoch) & (writer != threads)
        if clash := self.found("reads what was just written by", raced, rows, places, threads, writer):
            return clash
        before = np.where(self.read_in[rows, places] == epoch, self.reader[rows, places], NOBODY)
        self.reader[rows, places] = threads
        shared = (self.reader[rows, places] != threads) | (before != NOBODY) & (before != threads)
        self.reader[rows[shared], places[shared]] = MANY
        self.read_in[rows, places] = epoch
        return None

    def write(self, rows: np.ndarray, places: np.ndarray, threads: np.ndarray) -> Clash | None:
        """Note what some threads write."""
        writer, reader, epoch = self.writer[rows, places], self.reader[rows, places], self.now(rows)
        raced = (self.wrote[rows, places] == epoch) & (writer != threads)
        if clash := self.found("writes over what was just written by", raced, rows, places, threads, writer):
            return clash
        raced = (self.read_in[rows, places] == epoch) & (reader != threads)
        if clash := self.found("writes what was just read by", raced, rows, places, threads, reader):
            return clash
        self.writer[rows, places] = threads
        winner = self.writer[rows, places]
        self.wrote[rows, places] = epoch
        return self.found("writes together with", winner != threads, rows, places, threads, winner)

    @property
    def wide(self) -> bool:
        """Whether each row has a shadow of its own."""
        return len(self.writer) == self.rows

    def widen(self) -> None:
        """Give each row a shadow of its own, before rows are used differently."""
        if not self.wide:
            for name in ("writer", "reader", "wrote", "read_in"):
                setattr(self, name, np.repeat(getattr(self, name), self.rows, axis=0))

    def now(self, rows: np.ndarray) -> np.ndarray:
        """The epoch of each access."""
        return self.epoch[rows] if len(self.epoch) > 1 else self.epoch

    def found(
        self, kind: str, where: np.ndarray, rows: np.ndarray, places: np.ndarray, threads: np.ndarray,
        others: np.ndarray,
    ) -> Clash | None:
        """The first of the accesses that clash."""
        if not where.any():
            return None
        first = int(np.argmax(where))
        return Clash(kind, int(rows[first]), int(places[first]), int(threads[first]), int(others[first]))
