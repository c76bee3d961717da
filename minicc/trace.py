"""What a compile leaves behind for people to look at: plain data, read by viz and by the profiler.

    PassRecord("fuse", before=<Graph>, after=<Module>, steps=(Step("%2 into %3", True, "saves 256 KiB"), ...))

A pass takes an optional `log`, a list to which it appends a `Step` per decision; the compiler wraps what it
appended in a `PassRecord`. A pass that is handed no list makes no steps, so tracing costs nothing when it
is off. XLA dumps its modules between passes in the same spirit; LLVM calls the decisions "optimisation
remarks". This file imports nothing of minicc.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """One decision of a pass: what was considered, whether it was taken, and why, in words that carry the
    numbers.

    about: the buffers whose kernels it concerns; at: the user's lines of what was considered.
    """

    what: str
    taken: bool
    why: str
    about: tuple[str, ...] = ()
    at: tuple = ()

    def __str__(self) -> str:
        return f"{'+' if self.taken else '-'} {self.what}: {self.why}"


@dataclass(frozen=True)
class PassRecord:
    """One pass over one program: both sides of it, its decisions, and how long it took (on this CPU, in
    seconds)."""

    name: str
    before: object
    after: object
    steps: tuple[Step, ...]
    seconds: float


@dataclass(frozen=True)
class Event:
    """Something that happened on an emulated machine between two cycles, on one of its tracks ("mxu0",
    "dma", ...)."""

    track: str
    name: str
    start_cycles: int
    end_cycles: int


def chrome_trace(events: Sequence[Event], clock_ghz: float) -> dict[str, object]:
    """Events as the JSON that chrome://tracing and ui.perfetto.dev open; a thread per track. Units: its
    times are microseconds.

    >>> chrome_trace([Event("mxu0", "rows", 3000, 4500)], 1.5)["traceEvents"][1]
    {'name': 'rows', 'ph': 'X', 'pid': 0, 'tid': 0, 'ts': 2.0, 'dur': 1.0}
    """
    tracks = {track: number for number, track in enumerate(sorted({event.track for event in events}))}
    per_us = clock_ghz * 1e3
    names: list[dict] = [{"name": "thread_name", "ph": "M", "pid": 0, "tid": number, "args": {"name": track}}
                         for track, number in tracks.items()]
    spans: list[dict] = [{"name": event.name, "ph": "X", "pid": 0, "tid": tracks[event.track],
                          "ts": event.start_cycles / per_us,
                          "dur": (event.end_cycles - event.start_cycles) / per_us} for event in events]
    return {"traceEvents": names + spans, "displayTimeUnit": "ns"}
