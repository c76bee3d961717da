"""A workspace of the lesson that only the tests take, and a way to write an answer into it."""

from __future__ import annotations

from pathlib import Path

from minicc.lessons.course import Course, Lesson
from minicc.lessons.generate import merged, region_with
from minicc.lessons.sandbox import Checked, check
from minicc.lessons.workspace import Workspace, start
from minicc.tools.commands import main

ROOT = Path(__file__).parent / "lesson_course"
COURSE = Course(ROOT)


def lesson() -> Lesson:
    return COURSE.lessons[0]


def laid_out(folder: Path) -> Workspace:
    return start(folder, COURSE)[0]


def answer(at: Workspace, id: str, code: str) -> None:
    """Write an answer where the solution of an exercise belongs."""
    exercise = lesson().exercise(id)
    region = region_with(COURSE.key(lesson()), exercise, code)
    at.file(lesson()).write_text(merged(at.text(lesson()), {id: region}), encoding="utf-8")


def checked(folder: Path, code: str, id: str = "1.2") -> Checked:
    """A workspace's check of this answer."""
    at = laid_out(folder)
    answer(at, id, code)
    return check(COURSE, lesson(), lesson().exercise(id), at.file(lesson()))


def learn(folder: Path, *words: str) -> int:
    """The exit code of `minicc learn WORDS` in this workspace."""
    return main(["learn", *words, "--course", str(ROOT), "--in", str(folder)])
