"""What tuning measured, kept on disk from one day to the next.

    ~/.cache/minicc/tiles/3f9a...json       $XDG_CACHE_HOME/minicc, or where MINICC_CACHE says; off: nowhere

Goes in: a text that says what was measured, and a function that measures it. Comes out: the measurement, from
memory, from disk, or made now. Invariants: the key holds a digest of the compiler's own sources, for what
another compiler measured says nothing; a file that cannot be read, or holds something else, is measured again
and said so; a file is written beside its place and renamed, so that no half of one is ever read. ccache and
Triton's cache are built in this way. Read next: tune.py.
"""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

OFF = ("off", "0", "none")
SOURCES = ("graph", "kernel", "tpu")  # the rooms that decide how many cycles a kernel takes


class CacheNotice(UserWarning):
    """Something about the cache of measurements that does no harm, but costs time."""


class Cache:
    """Measurements by text. folder: where they are kept; None: in memory only."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.known: dict[str, Any] = {}

    def remembered(self, text: str, measure: Callable[[], Any], well_formed: Callable[[Any], bool]) -> Any:
        """The measurement that belongs to this text; well_formed: whether what was found can be one."""
        key = sha256((sources_digest() + text).encode()).hexdigest()
        if key not in self.known:
            found = self._read(key)
            if found is not None and not well_formed(found):
                self._notice(f"{self._path(key)} holds something else, and is measured again")
                found = None
            if found is None:
                found = measure()
                self._write(key, found)
            self.known[key] = found
        return self.known[key]

    def _path(self, key: str) -> Path:
        return (self.folder or Path()) / "tiles" / f"{key[:32]}.json"

    def _read(self, key: str) -> Any:
        if self.folder is None:
            return None
        try:
            return json.loads(self._path(key).read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, RecursionError) as error:
            reason = getattr(error, "strerror", None) or "it is not JSON"
            self._notice(f"{self._path(key)} cannot be read ({reason}), and is measured again")
            return None

    def _write(self, key: str, found: Any) -> None:
        if self.folder is None:
            return
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
                json.dump(found, file)
            os.replace(file.name, path)
        except OSError as error:
            self._notice(f"{path} cannot be written: {error.strerror}. MINICC_CACHE says where else, or off")

    def _notice(self, text: str) -> None:
        warnings.warn(f"tuning: {text}", CacheNotice, stacklevel=2)


@cache
def sources_digest() -> str:
    """A digest of the sources of what compiles and runs kernels."""
    here = Path(__file__).parent.parent
    digest = sha256()
    for path in sorted(path for room in SOURCES for path in (here / room).glob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


@cache
def cache_at(folder: Path | None) -> Cache:
    """The one cache of a folder."""
    return Cache(folder)


def user_cache() -> Cache:
    """The cache that the environment asks for: MINICC_CACHE (a folder, or off), else XDG_CACHE_HOME."""
    asked = os.environ.get("MINICC_CACHE", "")
    if asked.lower() in OFF:
        return cache_at(None)
    if asked:
        return cache_at(Path(asked).expanduser())
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # as its specification has it
        base = Path(os.path.expanduser("~")) / ".cache"
    return cache_at(base / "minicc")
