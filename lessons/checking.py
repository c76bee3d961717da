"""One check as a learner sees it: tried, judged, recorded, and told with a picture.

    1.2 build: Double it ... not right yet
      y differs at [0]: got 0.12573, expected 0.25146 (6 of 8 do)
      your program:
        out: maximum f32[8]
        ...
      picture: 01_doubling/pictures/1.2.svg
      next: minicc learn hint 1.2

Goes in: exercises of a workspace. Comes out: text by `say`, a line of progress each, and an SVG where this
machine can draw. Invariants: an untouched starter is told to be that, with what it does if it runs, and is
no attempt; what the answer printed is shown apart from what the check says; control characters of it never
reach the terminal. Read next: sandbox.py.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

from minicc.errors import MiniccError
from minicc.lessons import sandbox
from minicc.lessons.course import Exercise, Kind, Lesson
from minicc.lessons.sandbox import Checked
from minicc.lessons.workspace import Workspace, digest
from minicc.tools import commands
from minicc.tools.output import write_file

Found = list[tuple[Exercise, Checked]]
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
PRINTED_LINES, WIDTH = 12, 100

# status -> what comes next, where it is no hint to the exercise; the names in braces are the exercise's
HINT = "minicc learn hint {id}"
NEXT = {
    "syntax": "mend that line; nothing in the file can run before it is Python",
    "missing": "give it the name {answer} again, or minicc learn reset {id}, which keeps what you wrote",
}


def check_all(
    at: Workspace, exercises: Sequence[tuple[Lesson, Exercise]], say: Callable[[str], None]
) -> Found:
    """Check these, telling each as it is done."""
    found: Found = []
    for lesson, exercise in exercises:
        checked = sandbox.check(at.course, lesson, exercise, at.file(lesson))
        untouched = at.untouched(lesson, exercise)
        if not untouched:
            with at.progress.recording(exercise.id, at.content(lesson, exercise)) as record:
                record.note(checked.verdict, digest(at.region(lesson, exercise)))
        say(told(at, lesson, exercise, checked, untouched))
        found.append((exercise, checked))
    return found


def told(at: Workspace, lesson: Lesson, exercise: Exercise, checked: Checked, untouched: bool) -> str:
    """What the learner reads of one check."""
    verdict = checked.verdict
    state = "passed" if verdict.passed else "not begun" if untouched else "not right yet"
    head = f"{exercise.id} {exercise.kind.value}: {exercise.title} ... {state}"
    edit = f"next: edit {at.file(lesson).relative_to(at.root)}, at # ---- {exercise.id}"
    if untouched and (checked.status == "todo" or exercise.kind is Kind.PREDICT):
        return f"{head}\n  {edit}"
    lines = [*textwrap.wrap(verdict.symptom, WIDTH, subsequent_indent="  "), *verdict.lines]
    if checked.printed.strip():
        printed = CONTROL.sub("?", checked.printed.rstrip()).splitlines()[-PRINTED_LINES:]
        lines += ["it printed:", *(f"  {line}" for line in printed)]
    if not verdict.passed:
        lines += _drawing(at, lesson, exercise, checked)
        lines += [edit if untouched else f"next: {NEXT.get(checked.status, HINT).format_map(vars(exercise))}"]
    elif exercise.kind is not Kind.PREDICT:
        lines += [f"next: minicc learn solution {exercise.id} shows two other ways"]
    return "\n".join([head, *(textwrap.indent(line, "  ") for line in lines)])


def _drawing(at: Workspace, lesson: Lesson, exercise: Exercise, checked: Checked) -> list[str]:
    if not checked.drawing:
        return []
    lines = ["your program:", *(f"  {line}" for line in CONTROL.sub("?", checked.drawing).splitlines())]
    path = at.root / lesson.folder / "pictures" / f"{exercise.id}.svg"
    if drawn := _svg(path, checked):
        lines.append(f"picture: {drawn.relative_to(at.root)}")
    return lines


def _svg(path: Path, checked: Checked) -> Path | None:
    """The picture written, where this machine can draw."""
    if not checked.dot:
        return None
    try:
        drawing = commands.open_viz().Drawing("program", checked.dot, checked.pinned)
        return write_file(path, drawing.svg())
    except MiniccError:
        return None


def found_words(found: Found) -> list[dict]:
    """The checks for programs to read."""
    return [{"id": exercise.id, "passed": checked.verdict.passed, "score": checked.verdict.score,
             "status": checked.status, "symptom": checked.verdict.symptom,
             "lines": list(checked.verdict.lines)}
            for exercise, checked in found]
