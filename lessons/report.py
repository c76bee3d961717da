"""Where a learner is: the list of lessons, and the report on one page.

    1  Twice the answer                    2 of 3 passed   next: 1.3 beat: Few products
    ...
    predictions: 6, typically off by a factor of 1.4 (the first three: 2.1, the last three: 1.2)

Goes in: a workspace. Comes out: text, and the same as data. Invariants: calibration is the geometric mean
of how far first predictions were off, in the order of the course, so that it shows whether a learner's
sense of numbers grows; one that is off by more than ten, or of zero, counts as off by ten, since it would
hide all others; the report says that predictions and hints are self-reported. Read next: progress.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from minicc.lessons.course import Exercise, Kind, Lesson
from minicc.lessons.progress import Record, passed_before, record_of
from minicc.lessons.verdicts import ratio
from minicc.lessons.workspace import Workspace

WORST = 10.0  # a prediction further off, of zero or against zero counts as this far off
SELF_REPORTED = "Predictions and hints are self-reported: nobody watched them being made or read."


@dataclass(frozen=True)
class Row:
    """One exercise in the report."""

    lesson: Lesson
    exercise: Exercise
    record: Record
    state: str  # passed, passed an earlier form, given up, tried, untouched

    @property
    def done(self) -> bool:
        """Whether there is nothing left to do here."""
        return bool(self.record.passed)


def rows(workspace: Workspace) -> list[Row]:
    """Every exercise of the course, in order."""
    data = workspace.progress.read()
    return [_row(workspace, data, lesson, exercise)
            for lesson in workspace.course.lessons for exercise in lesson.exercises]


def _row(workspace: Workspace, data: dict, lesson: Lesson, exercise: Exercise) -> Row:
    record = record_of(data, exercise.id, workspace.content(lesson, exercise))
    if record.passed:
        state = "passed after giving up" if record.gave_up else "passed"
    elif passed_before(data, exercise.id):
        state = "passed an earlier form"
    elif record.gave_up:
        state = "given up"
    else:
        state = "tried" if record.attempts else "untouched"
    return Row(lesson, exercise, record, state)


def next_row(found: Sequence[Row]) -> Row | None:
    """The first exercise that is not passed."""
    return next((row for row in found if not row.done), None)


def listing(found: Sequence[Row]) -> str:
    """The lessons, one a line, and the next step."""
    lines = []
    for lesson in dict.fromkeys(row.lesson for row in found):
        own = [row for row in found if row.lesson is lesson]
        done = sum(row.done for row in own)
        progress = f"{done} of {len(own)} passed"
        lines.append(f"{lesson.number:3}  {lesson.title:34} {progress:15} {lesson.minutes} min")
    row = next_row(found)
    if row is None:
        return "\n".join([*lines, "", "all passed; minicc learn report says how"])
    begun = any(other.record.attempts for other in found if other.lesson is row.lesson)
    step = f"minicc learn check {row.exercise.id}" if begun else f"minicc learn {row.lesson.number}"
    what = f"{row.exercise.id} {row.exercise.kind.value}: {row.exercise.title}"
    return "\n".join([*lines, "", f"next: {what}", f"      {step}"])


def offs(found: Sequence[Row]) -> list[float]:
    """How far each first prediction was off, as a ratio of 1 or more, in the order of the course."""
    pairs = [pair for row in found for pair in row.record.first.values() if len(pair) == 2]
    return [min(ratio(said, right), WORST) for said, right in pairs]


def typical(ratios: Sequence[float]) -> float:
    """The geometric mean.

    >>> typical([1.0, 4.0])
    2.0
    """
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else 1.0


def calibration(found: Sequence[Row]) -> str:
    """One line on how near first predictions come."""
    ratios = offs(found)
    if not ratios:
        return "no predictions yet"
    text = f"{len(ratios)} first predictions, typically off by a factor of {typical(ratios):.2f}"
    if worst := sum(each == WORST for each in ratios):
        text += f", {worst} of them by {WORST:g} or more, or where one is zero, each counted as {WORST:g}"
    if len(ratios) < 4:
        return text
    half = len(ratios) // 2
    return f"{text} (first half {typical(ratios[:half]):.2f}, second half {typical(ratios[half:]):.2f})"


def report(found: Sequence[Row]) -> str:
    """One page: attempts, hints, scores, counts, calibration."""
    head = f"{'exercise':44} {'state':23} {'attempts':>8} {'hints':>6} {'score':>6}"
    lines = [head, "-" * len(head), *(_line(row) for row in found), ""]
    lines += [f"predictions: {calibration(found)}"]
    for kind in Kind:
        own = [row for row in found if row.exercise.kind is kind]
        if own:
            lines.append(f"{kind.value}: {sum(row.done for row in own)} of {len(own)} passed")
    return "\n".join([*lines, "", *_counts(found), SELF_REPORTED])


def _line(row: Row) -> str:
    what = f"{row.exercise.id} {row.exercise.kind.value}: {row.exercise.title}"
    score = f"{row.record.score:.0%}" if row.done else "-"
    return f"{what:44.44} {row.state:23} {row.record.attempts:8} {row.record.hints:6} {score:>6}"


def _counts(found: Sequence[Row]) -> Iterator[str]:
    for row in found:
        for name, count in row.record.counts.items():
            yield f"{row.exercise.id}: {count:g} {name}"


def as_data(found: Sequence[Row]) -> dict:
    """The report for programs to read."""
    table = [{"id": row.exercise.id, "kind": row.exercise.kind.value, "title": row.exercise.title,
              "state": row.state, "attempts": row.record.attempts, "hints": row.record.hints,
              "score": row.record.score, "counts": row.record.counts, "predictions": row.record.first}
             for row in found]
    return {"exercises": table, "calibration": offs(found), "note": SELF_REPORTED}
