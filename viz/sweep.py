"""Draws how long things take, as bars under one another: a sweep of a machine's number, or a ladder.

    mxus 1   [ mxu                                  ][dma][vector]
    mxus 2   [ mxu              ][dma][vector]                       shorter is faster
    mxus 4   [ mxu    ][ dma ][vector]

Goes in: a title, and for each bar its name and what its time is made of. Comes out: a Drawing. Invariants:
one scale for all bars, one order and colour of the causes in all of them; a row of names says which colour is
what. Read next: timeline.py, whose rows these are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10

from minicc.viz.render import Drawing
from minicc.viz.timeline import Span, draw_rows

CAUSES = {  # cause -> role of its colour, from left to right
    "mxu": "body", "vector": "vector", "mxu wait": "reduce", "dma": "copy_in", "register": "temp",
    "scalar": "shape",
}


def draw_sweep(title: str, unit: str, bars: Sequence[tuple[str, Mapping[str, float]]]) -> Drawing:
    """One bar per point of a sweep: its name, and cause -> how long, in the unit."""
    rows = [(name, _stacked(parts)) for name, parts in bars]
    longest = max((sum(parts.values()) for _, parts in bars), default=1.0)
    used = [cause for cause in CAUSES if any(parts.get(cause) for _, parts in bars)]
    width = longest / max(1, len(used))
    legend = [Span(place * width, (place + 1) * width, cause, CAUSES[cause])
              for place, cause in enumerate(used)]
    return draw_rows("sweep", title, unit, [*rows, ("colours", legend)])


def draw_ladder(title: str, rungs: Sequence[tuple[str, float]]) -> Drawing:
    """One bar per rung: its name, and how many times the bound it takes, on a logarithmic scale."""
    rows = [(name, [Span(0.0, log10(max(times, 1.0)), f"{times:.2f}", "body")]) for name, times in rungs]
    return draw_rows("ladder", f"{title}: times the bound, on a logarithmic scale", "1 is 10x", rows)


def _stacked(parts: Mapping[str, float]) -> list[Span]:
    spans, end = [], 0.0
    for cause, role in CAUSES.items():
        if length := parts.get(cause, 0.0):
            spans.append(Span(end, end + length, cause, role))
            end += length
    return spans
