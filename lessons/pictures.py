"""The pictures of a page: a block asks for one, and it is kept as a file beside the page.

    picture(compiled.graph, "graph")        in a block of lesson.md
    ![the graph](graph.svg)                 below it

Goes in: a level of the compiler, or a Drawing. Comes out: a Drawing, which a notebook shows. Invariants: a
page writes nothing while it is read or run; `minicc learn build` keeps what its blocks drew, and a test
compares what is drawn today with what is kept; without the `dot` extra a page still runs. Read next:
pages.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from minicc.errors import CompileError
from minicc.tools import commands

_drawn: ContextVar[dict[str, Any] | None] = ContextVar("drawn", default=None)


def picture(level: object, name: str) -> Any:
    """The picture of a level; None where this machine has no way to draw."""
    try:
        viz = commands.open_viz()
    except CompileError:
        return None
    drawing = level if isinstance(level, viz.Drawing) else viz.draw(level)
    drawn = _drawn.get()
    if drawn is not None:
        drawn[name] = drawing
    return drawing


@contextmanager
def collected() -> Iterator[dict[str, Any]]:
    """The pictures asked for inside, by name."""
    token = _drawn.set({})
    try:
        found = _drawn.get()
        assert found is not None
        yield found
    finally:
        _drawn.reset(token)
