"""What stands inside a box: a few lines of text, the name large and what qualifies it small.

    label("dot_general", soft=["f32[128,512]"], mono=["train.py:12"])  ->  "<<table ...>>", a DOT label

Goes in: plain text. Comes out: one HTML-like DOT label. Invariants: text is escaped; the first user line is
shown, and how many more there are. Read next: graph.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from minicc.errors import Loc
from minicc.viz.palette import FAINT, INK, MONO, SANS, SOFT

NAME_POINTS, SOFT_POINTS, MONO_POINTS = 14, 10, 9


def label(name: str, *, soft: Sequence[str] = (), mono: Sequence[str] = (), rest: str = "") -> str:
    """A label of one bold name (and `rest`, not bold), then small lines, then lines in a typewriter face."""
    tail = f'<font point-size="{SOFT_POINTS + 1}" color="{SOFT}"> {escape(rest)}</font>' if rest else ""
    rows = [f'<font point-size="{NAME_POINTS}" color="{INK}"><b>{escape(name)}</b></font>{tail}']
    rows += [
        f'<font point-size="{SOFT_POINTS}" color="{SOFT}">{escape(text)}</font>' for text in soft if text
    ]
    rows += [
        f'<font face="{MONO}" point-size="{MONO_POINTS}" color="{FAINT}">{escape(text)}</font>'
        for text in mono if text
    ]
    cells = "".join(f"<tr><td>{row}</td></tr>" for row in rows)
    return f'<<table border="0" cellborder="0" cellspacing="0" cellpadding="1">{cells}</table>>'


def small(text: str) -> str:
    """A label for an edge, with a little air on both sides."""
    return f'<<font face="{SANS}" point-size="{MONO_POINTS}" color="{SOFT}"> {escape(text)} </font>>'


def lines_text(locs: Sequence[Loc]) -> list[str]:
    """User lines as one line of text: the first, and how many more.

    >>> lines_text([Loc("a.py", 1), Loc("a.py", 2), Loc("b.py", 3)])
    ['a.py:1 and 2 more']
    """
    more = f" and {len(locs) - 1} more" if len(locs) > 1 else ""
    return [f"{locs[0]}{more}"] if locs else []


def bytes_text(count: float) -> str:
    """Bytes as a person says them.

    >>> bytes_text(96), bytes_text(33280), bytes_text(1048576)
    ('96 B', '32.5 KiB', '1 MiB')
    """
    units = ["GiB", "MiB", "KiB", "B"]
    while count >= 1000 and len(units) > 1:
        units.pop()
        count /= 1024
    return f"{count:.3g} {units[-1]}"
