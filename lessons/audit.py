"""Proves the checks: each must fail every wrong answer, by its symptom, and pass both right ones.

    1.2   starter             fails   not done yet (1.2: double is not written yet)        ok
    1.2   wrong 1             fails   y differs at [0]: got 0.12573, expected 0.25146      ok
    1.2   solution            passes                                                       ok

Goes in: a course. Comes out: a row for each answer of each exercise, and what is stale. Invariants: answers
go the learner's own way, through a file and a process; a symptom is looked for in all that the learner
would read; an exercise has two wrong answers at least, beside its starter. Mutation testing asks the same
of a test suite. Read next: sandbox.py.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from minicc.lessons import sandbox
from minicc.lessons.course import Course, Exercise, Lesson
from minicc.lessons.generate import generated, merged, region_with, solution, starter

FEWEST_WRONG = 2  # and the starter
SIDE_BY_SIDE = 4  # processes, at most


@dataclass(frozen=True)
class Trial:
    """An answer that the key knows. symptom: part of what its check must say; None if it must pass."""

    exercise: Exercise
    name: str
    code: str
    symptom: str | None


@dataclass(frozen=True)
class Proof:
    """What became of a trial."""

    trial: Trial
    passed: bool
    said: str
    ok: bool

    def __str__(self) -> str:
        what = "passes" if self.passed else "fails"
        end = "ok" if self.ok else f"WRONG: expected {self._expected}"
        return f"{self.trial.exercise.id:5} {self.trial.name:10} {what:7} {self.said[:70]:70} {end}"

    @property
    def _expected(self) -> str:
        symptom = self.trial.symptom
        return "a pass" if symptom is None else f"it to fail with {symptom!r}"


def trials(course: Course, lesson: Lesson, exercise: Exercise) -> Iterator[Trial]:
    """Every answer that the key knows to an exercise."""
    key = course.key(lesson)
    yield Trial(exercise, "starter", starter(key, exercise), exercise.starter_symptom)
    for number, wrong in enumerate(exercise.wrong, 1):
        yield Trial(exercise, f"wrong {number}", wrong.code, wrong.symptom)
    yield Trial(exercise, "solution", solution(key, exercise), None)
    yield Trial(exercise, "second", exercise.second_right, None)


def prove(course: Course, lesson: Lesson, trial: Trial) -> Proof:
    """Try one answer the learner's way."""
    key = course.key(lesson)
    text = merged(generated(lesson, key),
                  {trial.exercise.id: region_with(key, trial.exercise, trial.code)})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        file = Path(folder, "exercises.py")
        file.write_text(text, encoding="utf-8")
        verdict = sandbox.check(course, lesson, trial.exercise, file).verdict
    said = "\n".join([verdict.symptom, *verdict.lines])
    ok = verdict.passed if trial.symptom is None else not verdict.passed and trial.symptom in said
    return Proof(trial, verdict.passed, verdict.symptom or " ".join(verdict.lines), ok)


def audit(course: Course, lessons: tuple[Lesson, ...], names: Collection[str] = ()) -> Iterator[Proof]:
    """Every answer to every exercise of these lessons, or those of these names."""
    every = [(lesson, trial) for lesson in lessons for exercise in lesson.exercises
             for trial in trials(course, lesson, exercise) if not names or trial.name in names]
    with ThreadPoolExecutor(min(SIDE_BY_SIDE, os.cpu_count() or 1)) as pool:
        yield from pool.map(lambda pair: prove(course, *pair), every)


def gaps(course: Course, lessons: tuple[Lesson, ...]) -> list[str]:
    """What a key leaves out, and files that are not what the key would generate."""
    found = []
    for lesson in lessons:
        file = course.exercises(lesson)
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        if text != generated(lesson, course.key(lesson)):
            found.append(f"{lesson.folder}/exercises.py is stale: minicc learn build")
        if not course.page(lesson).exists():
            found.append(f"{lesson.folder}/lesson.md is missing")
        if set(lesson.interviews) != {5, 15, 45}:
            found.append(f"lesson {lesson.number}: interviews of 5, 15 and 45 minutes are needed")
        found += [f"exercise {exercise.id} has {len(exercise.wrong)} wrong answers; {FEWEST_WRONG} are needed"
                  for exercise in lesson.exercises if len(exercise.wrong) < FEWEST_WRONG]
    return found
