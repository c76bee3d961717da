"""Where text and files leave minicc: whole files, any terminal, a quiet broken pipe.

    write_file(Path("out/graph.svg"), data)      all of it, or one error and no half of it

Goes in: finished text or bytes. Comes out: a file, or characters that the terminal can show. Invariants: a
reader never sees half a file (it is written beside its place and renamed); a terminal that cannot encode a
character gets a plain one in its place; progress shows on a terminal only and leaves no carriage return in a
pipe. Read next: commands.py.
"""

from __future__ import annotations

import argparse
import codecs
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TextIO

from minicc.errors import CompileError

# what an ASCII terminal gets instead
PLAIN = {
    "·": ".", "×": "x", "—": "-", "–": "-", "→": "->", "≥": ">=", "≤": "<=", "─": "-", "│": "|", "█": "#",
    "░": ".", "▒": ":", "▓": "*", "▏": "|", "…": "...", "µ": "u", "²": "^2", "✓": "ok", "✗": "no", "’": "'",
}


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    bad = error.object[error.start:error.end]
    return "".join(PLAIN.get(character, "?") for character in bad), error.end


codecs.register_error("minicc.plain", _plain)


def make_encodable(stream: TextIO) -> None:
    """Let a stream replace what it cannot encode, rather than fail in the middle of a report."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="minicc.plain")


def write_file(path: Path, data: bytes | str) -> Path:
    """Write a file whole, making its folder; returns the path. To a device or a pipe, write.

    Raises: CompileError when the place cannot be written.
    """
    if isinstance(data, str):
        data = data.encode()
    temporary = ""
    try:
        place = path.resolve()  # what a link points at
        if place.exists() and not place.is_file():
            path.write_bytes(data)
            return path
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, place.stat().st_mode & 0o777 if place.exists() else 0o644)
        os.replace(temporary, place)
    except OSError as failure:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
        got = failure.strerror or type(failure).__name__
        raise CompileError("write", f"cannot write {path}", got=got, hint="another -o") from failure
    return path


class Progress:
    """One line that is drawn over and over on a terminal, and nothing at all elsewhere."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.alive = self.stream.isatty()

    def show(self, text: str) -> None:
        """Replace the line."""
        if self.alive:
            self.stream.write(f"\r\x1b[2K{text}")
            self.stream.flush()

    def clear(self) -> None:
        """Take the line away, before other output."""
        self.show("")


def bar(fraction: float, width: int) -> str:
    """A bar of so many characters, filled in proportion.

    >>> bar(0.5, 8)
    '████░░░░'
    """
    full = round(max(0.0, min(1.0, fraction)) * width)
    return "█" * full + "░" * (width - full)


def emit(text: str, data: object, options: argparse.Namespace) -> None:
    """Hand over a command's result: the text, or with --json the data; to the file of -o, if there is one."""
    result = json.dumps(data, indent=2) if options.json else text
    if options.output:
        write_file(Path(options.output), result + "\n")
    else:
        print(result)
