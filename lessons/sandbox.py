"""Tries an answer in a process of its own, and judges what comes back here.

    check(course, lesson, exercise, file)  ->  Checked(Verdict(False, "still running after 20 s"), ...)

Goes in: an exercise and the file with the learner's answer. Comes out: a verdict, a drawing of the learner's
program, what the answer printed. Invariants: this process never imports the learner's file, so what it judges
with is as clean as it was; whatever happens over there is named as what it is (SAID); limits hold on time, on
what is printed and, where the system can, on memory; nothing that the answer started outlives the check.
OK and nbgrader run answers in the grader's own process; contest judges use containers, which need more than
Python. Read next: child.py, the other side.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from minicc.errors import MiniccError
from minicc.lessons.child import STARTED
from minicc.lessons.course import Course, Exercise, Lesson
from minicc.lessons.verdicts import Verdict, failed

PRINTED_BYTES = 1 << 20
SHOWN_CHARACTERS = 2000  # of what an answer printed, and of an error's text
RESULT_BYTES = 64 << 20
GRACE_SECONDS = 10.0  # to start Python, and beyond the limit that the process keeps itself

_judging = threading.Lock()  # an audit tries answers side by side, but judges one at a time

# status -> what it is called; the names in braces come from the report
SAID = {
    "todo": "not done yet ({text})",
    "missing": "exercises.py has no {answer} any more",
    "syntax": "exercises.py is no Python yet: {name}: {text}",
    "raised": "your answer raised {name}: {text}",
    "refused": "minicc cannot use what you returned: {text}",
    "exit": "your answer called sys.exit({text})",
    "timeout": "still running after {seconds:g} s",
    "memory": "ran out of memory; 4 GiB are allowed",
    "changed": "your answer changed {text}; it must leave numpy and minicc as they are",
    "process": "your answer tried to start another process ({text})",
    "odd": "{text}",
    "uncalled": "{answer} was never called",
    "output": "printed more than 1 MiB and was stopped",
    "gone": "ended the whole process before the check was over (exit code {text}); os._exit does that",
    "crash": "the process crashed ({text}); recursion without end is the usual cause",
    "broken": "the check itself could not start: {text}",
    "garbled": "what came back from the check cannot be read",
}


@dataclass(frozen=True)
class Checked:
    """A check that is over.

    status: a key of SAID, or "data". drawing: the learner's program as text. dot: the same for a renderer.
    printed: the end of what the answer printed.
    """

    verdict: Verdict
    status: str
    drawing: str = ""
    dot: str = ""
    pinned: bool = False
    printed: str = ""


@dataclass
class _Printed:
    """What a process printed, as far as it may."""

    data: bytearray = field(default_factory=bytearray)
    over: bool = False

    def read(self, process: subprocess.Popen) -> None:
        """Read until the end, or until it is too much, which ends the process."""
        assert process.stdout is not None
        with contextlib.suppress(OSError, ValueError):
            while chunk := os.read(process.stdout.fileno(), 1 << 16):
                self.data += chunk
                if len(self.data) > PRINTED_BYTES:
                    self.over = True
                    end(process)
                    return


def end(process: subprocess.Popen) -> None:
    """End a process, and on POSIX all that it started."""
    with contextlib.suppress(OSError):
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)  # it leads a session of its own
        else:
            process.kill()


def check(course: Course, lesson: Lesson, exercise: Exercise, file: Path) -> Checked:
    """Try the answer that stands in a file with each of the exercise's seeds, until one fails."""
    for seed in exercise.all_seeds:
        checked = try_once(course, lesson, exercise, file, seed)
        if not checked.verdict.passed:
            break
    if checked.verdict.passed or seed == exercise.all_seeds[0]:
        return checked
    note = f"on other shapes and data (seed {seed}); those of seed {exercise.all_seeds[0]} passed"
    return replace(checked, verdict=checked.verdict.noting(note))


def try_once(course: Course, lesson: Lesson, exercise: Exercise, file: Path, seed: int) -> Checked:
    """Try the answer that stands in a file with one seed, and judge it."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        result = Path(folder, "result.json")
        words = [course.key(lesson), exercise.id, file.resolve(), result, seed, exercise.seconds]
        code, printed = _run([str(word) for word in words], file.parent, exercise.seconds + GRACE_SECONDS)
        report = _report(result, code, printed)
    status = report["status"]
    verdict = _judged(exercise, report, seed) if status == "data" else failed(*_said(exercise, report))
    shown = bytes(printed.data).decode("utf-8", "replace")[-SHOWN_CHARACTERS:]
    return Checked(verdict, status, str(report.get("drawing", "")), str(report.get("dot", "")),
                   bool(report.get("pinned", False)), shown)


def _run(words: list[str], folder: Path, seconds: float) -> tuple[int | None, _Printed]:
    """The exit code (None: too long), and what was printed."""
    settings = {name: value for name, value in os.environ.items() if not name.startswith("MINICC_")}
    settings |= {"PYTHONIOENCODING": "utf-8", "PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "2"}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "minicc.lessons.child", *words], cwd=folder, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=os.name == "posix",
        env=settings)
    printed = _Printed()
    reader = threading.Thread(target=printed.read, args=(process,), daemon=True)
    reader.start()
    code: int | None = None
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        pass
    finally:  # Ctrl-C comes through here too
        end(process)
        process.wait()
        reader.join(1.0)
        if process.stdout is not None and not reader.is_alive():
            process.stdout.close()
    return code, printed


def _report(result: Path, code: int | None, printed: _Printed) -> dict[str, Any]:
    """What the process wrote; without that, what became of it."""
    if printed.over:
        return {"status": "output"}
    if not result.exists():  # not even the first line of child.main
        last = printed.data.decode("utf-8", "replace").strip().splitlines() or ["nothing was said"]
        return {"status": "broken", "text": last[-1]}
    try:
        if result.stat().st_size > RESULT_BYTES:
            return {"status": "garbled"}
        report = json.loads(result.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return {"status": "garbled"}
    status = report.get("status") if isinstance(report, dict) else ""
    if status == STARTED:
        return _unfinished(code)
    return report if status in ("data", *SAID) else {"status": "garbled"}


def _unfinished(code: int | None) -> dict[str, Any]:
    """What became of a process that began and did not report."""
    if code is None:
        return {"status": "timeout"}
    if code < 0 or code > 255:  # a signal; on Windows, an exception's number
        return {"status": "crash", "text": _signal_name(code)}
    return {"status": "gone", "text": str(code)}


def _signal_name(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"code {code:#x}"


def _said(exercise: Exercise, report: Mapping[str, Any]) -> list[str]:
    """What is told of a report without data: what it is, then the learner's lines."""
    names = {"text": "", "name": "", "answer": exercise.answer, "seconds": exercise.seconds, **report}
    text = str(names["text"])
    names["text"] = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]} ..."
    said = SAID[report["status"]].format_map(names).replace(" ()", "").rstrip(": ")
    lines = [f"at exercises.py:{number}: {text}" for number, text in report.get("lines", ())]
    if report["status"] == "raised" and not lines:
        lines = ["not in a line of yours: the check could not use what you returned"]
    first, *rest = said.splitlines() or [""]
    return [first, *rest, *lines]


def _judged(exercise: Exercise, report: Mapping[str, Any], seed: int) -> Verdict:
    try:
        with _judging:
            return exercise.judge(_arrays(report["data"]), seed)
    except MiniccError as error:
        return failed(f"what you returned does not hold: {str(error).splitlines()[0]}",
                      *str(error).splitlines()[1:])
    except Exception as error:  # data of a form that the key did not foresee is wrong, whatever trips over it
        return failed(f"the check cannot read what you returned: {type(error).__name__}: {error}")


def _arrays(value: Any) -> Any:
    """Plain data with its arrays back."""
    if isinstance(value, list):
        return [_arrays(item) for item in value]
    if not isinstance(value, dict):
        return value
    if list(value) == ["__array__"]:
        dtype, shape, text = value["__array__"]
        return np.frombuffer(base64.b64decode(text), np.dtype(dtype)).reshape(shape)
    return {name: _arrays(item) for name, item in value.items()}
