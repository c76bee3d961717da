"""What a learner has done: one JSON file in the workspace, keyed by exercise and content.

    {"version": 1, "exercises": {"1.2": {"9c01a6...": {"attempts": 3, "passed": 3, "hints": 1, ...}}},
     "laid_out": {"01_record": {"1.2": "51f0..."}}}

Goes in: what happened. Comes out: the file, changed. Invariants: it is written beside its place and
renamed, so that Ctrl-C, a killed process or a full disk leaves the old one whole; an exercise that the
course changes gets an entry of its own, and the old one stays; a file that is not ours to read is an error
and is never overwritten; predictions and hints are what the learner says of themselves. Read next:
workspace.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from minicc.errors import CompileError
from minicc.lessons.verdicts import Verdict, nearness
from minicc.tools.output import write_file

FILE, VERSION = "minicc-learn.json", 1


@dataclass
class Record:
    """One exercise, as far as the learner got.

    passed: at which attempt (0: not yet). tried: hash of the last attempt, since the same text twice is one
    attempt. first: prediction -> [said, right] of the first attempt; the score of predictions is that one's.
    """

    attempts: int = 0
    passed: int = 0
    hints: int = 0
    gave_up: bool = False
    score: float = 0.0
    counts: dict[str, float] = field(default_factory=dict)
    first: dict[str, list[float]] = field(default_factory=dict)
    tried: str = ""
    symptom: str = ""

    def note(self, verdict: Verdict, tried: str) -> None:
        """One more attempt, unless it is the last one again."""
        if tried != self.tried:
            self.attempts += 1
        self.tried, self.symptom = tried, verdict.symptom
        if not self.first and verdict.ratios:
            self.first = {name: list(pair) for name, pair in verdict.ratios.items()}
        if verdict.passed:
            self.passed = self.passed or max(self.attempts, 1)
            score = nearness(self.first.values()) if self.first else float(verdict.score)
            if score >= self.score:
                self.score, self.counts = score, dict(verdict.counts)


class Progress:
    """The progress file of one workspace."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Any]:
        """All of it; a fresh one where there is none.

        Raises: CompileError if it is no progress file, or of a later version.
        """
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {"version": VERSION, "exercises": {}, "laid_out": {}}
        except (OSError, ValueError, RecursionError) as failure:
            raise self._unreadable(f"{type(failure).__name__}: {failure}") from failure
        if not isinstance(data, dict) or not isinstance(data.get("exercises"), dict):
            raise self._unreadable("no exercises in it")
        if data.get("version") != VERSION:
            raise CompileError("learn", f"{self.path.name} is of another version", got=data.get("version"),
                               need=VERSION, hint="a newer minicc")
        return {"laid_out": {}, **data}

    def _unreadable(self, why: str) -> CompileError:
        return CompileError("learn", f"cannot read {self.path}", got=why,
                            hint="mend it, or rename it and begin anew; it is left as it is")

    @contextmanager
    def changing(self) -> Iterator[dict[str, Any]]:
        """Read, let the caller change, and write all of it at once."""
        data = self.read()
        yield data
        write_file(self.path, json.dumps(data, indent=1) + "\n")

    def record(self, id: str, content: str) -> Record:
        """What is known of an exercise in its present form."""
        return record_of(self.read(), id, content)

    @contextmanager
    def recording(self, id: str, content: str) -> Iterator[Record]:
        """The same, to be changed."""
        with self.changing() as data:
            record = record_of(data, id, content)
            yield record
            data["exercises"].setdefault(id, {})[content] = asdict(record)


def record_of(data: Mapping[str, Any], id: str, content: str) -> Record:
    """One entry of a progress file; unknown fields are left out, wrong ones are a fresh start."""
    entry = data["exercises"].get(id, {})
    found = entry.get(content, {}) if isinstance(entry, dict) else {}
    fresh = Record()
    kinds = {each.name: type(getattr(fresh, each.name)) for each in fields(Record)}
    return Record(**{name: value for name, value in found.items() if type(value) is kinds.get(name)})


def passed_before(data: Mapping[str, Any], id: str) -> bool:
    """Whether any form of the exercise was passed."""
    forms = data["exercises"].get(id, {})
    return any(record_of(data, id, content).passed for content in forms)


def find(start: Path) -> Path | None:
    """The workspace around a folder: the nearest one above it with a progress file."""
    folders = (start.resolve(), *start.resolve().parents)
    return next((folder for folder in folders if os.path.isfile(folder / FILE)), None)
