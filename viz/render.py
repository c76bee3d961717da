"""From a drawing to a picture, SVG or PNG, by whichever `dot` this machine has.

    Drawing("graph", "digraph { a -> b }").svg()  ->  "<svg ...>"          .png()  ->  b"\\x89PNG..."

Goes in: text in the DOT language. Comes out: a picture. Invariants: the renderer is `dot` if it is there and
runs, else `graphviz-pure` of the `dot` extra, which brings its own fonts and so gives the same bytes on every
platform; without either, one error names both installs. Nothing is written here; tools/draw.py does that. The
Python package `graphviz` can render too, but only by a `dot` on PATH. Read next: palette.py, then graph.py.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from minicc.errors import CompileError

PNG_DOTS_PER_INCH = 144  # twice the screen's 72, so that small text stays sharp
MOST_PIXELS = 8000  # of a PNG's longer side; dot takes minutes for the pixels of a large graph
HINT = "python -m pip install 'minicc-edu[dot]', or Graphviz (graphviz.org/download), whose `dot` must run"
SECONDS = 60.0


@dataclass(frozen=True)
class Drawing:
    """A picture as DOT text. pinned: its nodes carry their positions already, so nothing is laid out."""

    name: str
    source: str
    pinned: bool = False

    def svg(self) -> str:
        """The picture as SVG text."""
        return self._render("svg").decode()

    def png(self) -> bytes:
        """The picture as PNG bytes, of at most MOST_PIXELS a side."""
        points = max(map(float, re.findall(r'(?:width|height)="([\d.]+)pt"', self.svg())))
        return self._render("png", f"-Gdpi={min(PNG_DOTS_PER_INCH, MOST_PIXELS * 72 / points):.0f}")

    def _repr_svg_(self) -> str:
        return self.svg()

    def _render(self, form: str, *size: str) -> bytes:
        engine = ["-Kneato", "-n2"] if self.pinned else ["-Kdot"]
        command = [find_renderer(), *engine, f"-T{form}", "-q", *size]
        try:
            done = subprocess.run(command, input=self.source.encode(), capture_output=True, timeout=SECONDS)
        except subprocess.TimeoutExpired as failure:
            raise CompileError("draw", f"{self.name} is too large to lay out", got=f"{SECONDS:.0f} s of work",
                               hint="--level, or draw one function of the program") from failure
        except OSError as failure:
            raise CompileError("draw", f"{command[0]} did not finish", got=failure, hint=HINT) from failure
        if done.returncode or not done.stdout:
            said = (done.stderr.decode(errors="replace").strip().splitlines() or ["nothing"])[0]
            raise CompileError("draw", f"{command[0]} could not draw {self.name}", got=said, hint=HINT)
        return done.stdout


@functools.cache
def find_renderer() -> str:
    """The program that turns DOT text into pictures.

    Raises: CompileError when there is none, naming both ways to get one.
    """
    beside = Path(sys.executable).with_name("graphviz-pure")  # a virtual environment that was not activated
    for name in ("dot", "graphviz-pure", str(beside)):
        path = shutil.which(name)
        if path and _runs(path):
            return path
    raise CompileError("draw", "no program to draw with", got="neither `dot` nor `graphviz-pure`", hint=HINT)


def _runs(path: str) -> bool:
    try:
        return subprocess.run([path, "-V"], capture_output=True, timeout=SECONDS).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
