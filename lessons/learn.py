"""`minicc learn`: the course in a terminal.

    minicc learn start DIR      lay out a workspace, or update one       minicc learn hint 1.2
    minicc learn                lessons, progress, the next step         minicc learn reset 1.2
    minicc learn 1              read a lesson                            minicc learn solution 1.2
    minicc learn check 1.2      look at an answer                        minicc learn report
    minicc learn watch          look at each save                        minicc learn export 1 --ipynb

and for those who write lessons: build, audit. Goes in: words. Comes out: text and an exit code, 1 if a
check failed. Invariants: everything works offline; a check never ends in a bare assertion or in a traceback
of ours. rustlings and OK work the same way. Read next: workspace.py, sandbox.py.
"""

from __future__ import annotations

import argparse
import json
import os
import pydoc
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from minicc.errors import CompileError
from minicc.lessons import pages, report, workspace
from minicc.lessons.audit import audit, gaps
from minicc.lessons.checking import check_all, found_words
from minicc.lessons.course import HERE, HINTS, RUBRIC, Course, Exercise, Lesson
from minicc.lessons.generate import HEAD, generated, regions, solution
from minicc.lessons.pictures import collected
from minicc.lessons.workspace import Workspace, digest
from minicc.tools import commands
from minicc.tools.output import emit, write_file

EXAMPLE = "minicc learn start course && cd course && minicc learn 0"
POLL_SECONDS = 0.2


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("words", nargs="*", metavar="WORD",
                        help=f"a lesson's number, or one of: {', '.join(ACTIONS)}; then what it is about")
    parser.add_argument("--give-up", action="store_true", help="see a solution unpassed; it is recorded")
    parser.add_argument("--ipynb", action="store_true", help="export as a Jupyter notebook")
    parser.add_argument("--in", dest="folder", metavar="DIR", default=".", help="the workspace, if not here")
    parser.add_argument("--course", metavar="DIR", help="a folder of lessons other than minicc's own")


def run(options: argparse.Namespace) -> int:
    """Do what the words say."""
    course = Course(Path(options.course).resolve() if options.course else HERE)
    if not course.lessons:
        raise CompileError("learn", "there are no lessons", got=course.root, need="a folder with keys")
    word, *rest = options.words or ["list"]
    action, words = (ACTIONS[word], rest) if word in ACTIONS else (read, [word, *rest])
    device = os.environ.pop("MINICC_DEVICE", None)  # pages and checks mean the devices that they name
    try:
        return action(course, words, options)
    finally:
        if device is not None:
            os.environ["MINICC_DEVICE"] = device


def one(words: list[str], need: str) -> str:
    """The only word.

    Raises: CompileError if there is another number of them.
    """
    if len(words) != 1:
        raise CompileError("learn", "one word more is needed" if not words else "too many words",
                           got=" ".join(words), need=need)
    return words[0]


def targets(at: Workspace, words: list[str]) -> list[tuple[Lesson, Exercise]]:
    """The exercises that the words name: one, a lesson's, or without words those of the lesson one is at."""
    if not words:
        row = report.next_row(report.rows(at)) or report.rows(at)[-1]
        words = [str(row.lesson.number)]
    word = one(words, "a lesson such as 1, or an exercise such as 1.2")
    lesson = at.course.lesson(word)
    return [(lesson, each) for each in ([lesson.exercise(word)] if "." in word else lesson.exercises)]


def exercise_at(at: Workspace, words: list[str]) -> tuple[Lesson, Exercise]:
    """The exercise that the words name, or the next one."""
    if words:
        found = targets(at, words)
        if len(found) > 1:
            raise CompileError("learn", "which exercise of this lesson", got=words[0],
                               need=", ".join(exercise.id for _, exercise in found))
        return found[0]
    rows = report.rows(at)
    row = report.next_row(rows) or rows[-1]
    return row.lesson, row.exercise


# ---- for the learner ----


def start(course: Course, words: list[str], options: argparse.Namespace) -> int:
    """Lay out a workspace."""
    folder = Path(one(words, "a folder"))
    at, notes = workspace.start(folder, course)
    print(*notes, f"The course is in {folder}. Next:", "", f"  cd {folder}", "  minicc learn", sep="\n")
    return commands.DONE


def listing(course: Course, words: list[str], options: argparse.Namespace) -> int:
    """The lessons, and the next step."""
    root = workspace.progress.find(Path(options.folder))
    if root is None:
        if workspace.without_progress(Path(options.folder), course):
            workspace.find(Path(options.folder), course)  # says what is gone
        print(*(f"{lesson.number:3}  {lesson.title:34} {lesson.minutes} min" for lesson in course.lessons),
              "", "next: minicc learn start course, and then cd course", sep="\n")
        return commands.DONE
    rows = report.rows(Workspace(root, course))
    emit(report.listing(rows), report.as_data(rows), options)
    return commands.DONE


def read(course: Course, words: list[str], options: argparse.Namespace) -> int:
    """Print a lesson's page, in a pager on a terminal."""
    lesson = course.lesson(one(words, "a lesson"))
    text = course.text(lesson)
    root = workspace.progress.find(Path(options.folder))
    where = f" in {root / lesson.folder / 'exercises.py'}" if root else "; minicc learn start course first"
    text += f"\n{'-' * 60}\nminicc learn check {lesson.number} looks at your answers{where}"
    if sys.stdout.isatty():
        pydoc.pager(text)
    else:
        print(text)
    return commands.DONE


def check(course: Course, words: list[str], options: argparse.Namespace) -> int:
    """Look at answers; 1 if one is not right yet."""
    at = workspace.find(Path(options.folder), course)
    found = check_all(at, targets(at, words), print if not options.json else lambda text: None)
    if options.json:
        print(json.dumps(found_words(found), indent=2))
    return commands.DONE if all(checked.verdict.passed for _, checked in found) else 1


def watch(course: Course, words: list[str], options: argparse.Namespace) -> int:
    """Look at what changed whenever a file is saved, until Ctrl-C."""
    at = workspace.find(Path(options.folder), course)
    print("watching; save an exercises.py, or press Ctrl-C to end")
    try:
        for changed in saves(at):
            print(f"\n{time.strftime('%H:%M:%S')}  saved", flush=True)
            try:
                check_all(at, changed, lambda text: print(text, flush=True))
            except CompileError as gone:  # the file was saved once more, and is not there at this moment
                print(gone, flush=True)
    except KeyboardInterrupt:
        print("\nno longer watching")
    return commands.DONE


def saves(at: Workspace) -> Iterator[list[tuple[Lesson, Exercise]]]:
    """At each save, the exercises whose text changed; all of a lesson that were begun, if its imports did.

    A file that is missing or no text is in the middle of a save: it is looked at again.
    """
    known = {lesson.number: _text(at, lesson) for lesson in at.course.lessons}
    while True:
        time.sleep(POLL_SECONDS)
        for lesson in at.course.lessons:
            if (text := _text(at, lesson)) is None:
                continue
            before, now = regions(known[lesson.number] or ""), regions(text)
            known[lesson.number] = text
            changed = {id for id in now if now[id] != before.get(id)}
            begun = {each.id for each in lesson.exercises
                     if digest(now.get(each.id, "")) != at.content(lesson, each)}
            again = [each for each in lesson.exercises
                     if each.id in changed or HEAD in changed and each.id in begun]
            if again:
                yield [(lesson, each) for each in again]


def _text(at: Workspace, lesson: Lesson) -> str | None:
    try:
        return at.text(lesson)
    except CompileError:
        return None


def hint(course: Course, words: list[str], options: argparse.Namespace) -> int:
    """One more of the three hints."""
    at = workspace.find(Path(options.folder), course)
    lesson, exercise = exercise_at(at, words)
    with at.progress.recording(exercise.id, at.content(lesson, exercise)) as record:
        record.hints = min(record.hints + 1, len(HINTS))
        seen = record.hints
    print(f"{exercise.id} {exercise.title}")
    print(*(f"  {name}: {exercise.hints[level]}" for level, name in enumerate(HINTS[:seen])), sep="\n")
    print(f"  ({seen} of {len(HINTS)}{'' if seen < len(HINTS) else '; what is left is solution --give-up'})")
    return commands.DONE


def reset(course: Course, words: list[str], options: argparse.Namespace) -> int:
    """Put starters back; what was written is kept."""
    at = workspace.find(Path(options.folder), course)
    one(words, "a lesson such as 1, or an exercise such as 1.2")
    for lesson, exercise in targets(at, words):
        if not at.untouched(lesson, exercise):
            print(f"{exercise.id}: the starter is back; yours is in {at.replace(lesson, exercise)}")
    return commands.DONE


def show_solution(course: Course, words: list[str], options: argparse.Namespace) -> int:
    """The key's answer, another, and what there is to say; after a pass, or recorded as given up."""
    at = workspace.find(Path(options.folder), course)
    lesson, exercise = exercise_at(at, words)
    with at.progress.recording(exercise.id, at.content(lesson, exercise)) as record:
        if not record.passed and not options.give_up:
            raise CompileError("learn", f"{exercise.id} is not passed yet",
                               hint=f"minicc learn hint {exercise.id}, or solution {exercise.id} --give-up, "
                                    "which is recorded")
        record.gave_up = record.gave_up or not record.passed
    print(f"{exercise.id} {exercise.title}\n\n{solution(course.key(lesson), exercise)}\n\nor\n")
    print(pages.dedented(exercise.second_right), "", exercise.discussion, "", sep="\n")
    print(*(f"  {name:10} {text}" for name, text in zip(RUBRIC, exercise.rubric, strict=True)), sep="\n")
    return commands.DONE


def show_report(course: Course, words: list[str], options: argparse.Namespace) -> int:
    """One page on all exercises."""
    rows = report.rows(workspace.find(Path(options.folder), course))
    emit(report.report(rows), report.as_data(rows), options)
    return commands.DONE


def export(course: Course, words: list[str], options: argparse.Namespace) -> int:
    """Write a notebook of a lesson, beside its pictures if there is a workspace."""
    lesson = course.lesson(one(words, "a lesson"))
    if not options.ipynb:
        raise CompileError("learn export", "which form", need="--ipynb")
    root = workspace.progress.find(Path(options.folder))
    folder = root / lesson.folder if root else Path(options.folder)
    path = Path(options.output) if options.output else folder / f"{lesson.folder}.ipynb"
    print(write_file(path, pages.notebook(course.text(lesson))))
    return commands.DONE


# ---- for those who write lessons ----


def build(course: Course, words: list[str], options: argparse.Namespace) -> int:
    """Make each exercises.py again from its key, and what a page prints and draws from its blocks."""
    lessons = [course.lesson(word) for word in words] or course.lessons
    for lesson in lessons:
        print(write_file(course.exercises(lesson), generated(lesson, course.key(lesson))))
        page = course.page(lesson)
        with collected() as drawn:
            text = pages.refreshed(page)
        if text != course.text(lesson):
            print(write_file(page, text), "printed something else; read what stands around it")
        for name, drawing in drawn.items():
            print(write_file(page.parent / f"{name}.svg", drawing.svg()))
    return commands.DONE


def show_audit(course: Course, words: list[str], options: argparse.Namespace) -> int:
    """Prove every check; 1 if one is not what the key says."""
    lessons = tuple(course.lesson(word) for word in words) or course.lessons
    missing = gaps(course, lessons)
    proofs = []
    for proof in audit(course, lessons):
        proofs.append(proof)
        print(proof, flush=True)
    wrong = sum(not proof.ok for proof in proofs)
    print(*missing, f"{len(proofs)} answers, {wrong} not as the key says, {len(missing)} gaps", sep="\n")
    return 1 if wrong or missing else commands.DONE


ACTIONS: dict[str, Callable[[Course, list[str], argparse.Namespace], int]] = {
    "start": start, "list": listing, "check": check, "watch": watch, "hint": hint, "reset": reset,
    "solution": show_solution, "report": show_report, "export": export, "build": build, "audit": show_audit,
}
