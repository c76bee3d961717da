"""A learner's own folder: pages to read, exercises to edit, and their progress.

    course/minicc-learn.json           progress
    course/01_record/lesson.md         the page and its pictures
    course/01_record/exercises.py      the learner's; what they wrote is never overwritten
    course/01_record/kept/             what `reset` put away
    course/01_record/pictures/         of their own programs

Goes in: a folder, and the course. Comes out: a Workspace. Invariants: laying out twice is an update: a
region of exercises.py that was never edited gets the course's new text, an edited one stays, a new exercise
comes last; so an update loses nothing. Regions are told apart by the hash they had when they were laid out.
Read next: learn.py.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from minicc.errors import CompileError
from minicc.lessons import progress
from minicc.lessons.course import Course, Exercise, Lesson
from minicc.lessons.generate import HEAD, content_hash, generated, merged, regions
from minicc.lessons.progress import Progress
from minicc.tools.output import write_file

README = """# A course in how an ML compiler works

    minicc learn              where you are, and what comes next
    minicc learn 0            read a lesson
    minicc learn check 0.1    look at an answer; `watch` looks whenever you save
    minicc learn hint 0.1     where to look, what to think, how to start

Each folder holds a page, lesson.md, and exercises.py, which is yours to edit. Your progress is in
minicc-learn.json; nothing of it leaves this folder.
"""


def digest(text: str) -> str:
    """A short hash of a region."""
    return hashlib.sha256(text.strip().encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Workspace:
    """A folder that `minicc learn start` laid out."""

    root: Path
    course: Course

    @property
    def progress(self) -> Progress:
        """Its progress file."""
        return Progress(self.root / progress.FILE)

    def file(self, lesson: Lesson) -> Path:
        """The learner's exercises.py of a lesson."""
        return self.root / lesson.folder / "exercises.py"

    def text(self, lesson: Lesson) -> str:
        """What it says.

        Raises: CompileError when it is gone or no text.
        """
        try:
            return self.file(lesson).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as failure:
            raise CompileError("learn", f"cannot read {self.file(lesson)}", got=failure, need="UTF-8",
                               hint="save it as UTF-8 in your editor") from failure
        except OSError as failure:
            raise CompileError("learn", f"cannot read {self.file(lesson)}", got=failure,
                               hint=f"minicc learn start {self.root} lays it out again") from failure

    def region(self, lesson: Lesson, exercise: Exercise) -> str:
        """The learner's part of an exercise; nothing if its `# ----` line is gone."""
        return regions(self.text(lesson)).get(exercise.id, "")

    def content(self, lesson: Lesson, exercise: Exercise) -> str:
        """The hash under which progress with the exercise is kept."""
        return content_hash(self.course.key(lesson), exercise)

    def untouched(self, lesson: Lesson, exercise: Exercise) -> bool:
        """Whether the learner has not edited the exercise yet."""
        return digest(self.region(lesson, exercise)) == self.content(lesson, exercise)

    def replace(self, lesson: Lesson, exercise: Exercise) -> Path:
        """Put the starter back, and keep what was there; returns where."""
        text, before = self.text(lesson), self.region(lesson, exercise)
        folder = self.root / lesson.folder / "kept"
        number = len(list(folder.glob(f"{exercise.id}-*.py"))) + 1
        kept = write_file(folder / f"{exercise.id}-{number}.py", before)
        fresh = regions(generated(lesson, self.course.key(lesson)))
        write_file(self.file(lesson), merged(text, {exercise.id: fresh[exercise.id]}))
        return kept


def find(start: Path, course: Course) -> Workspace:
    """The workspace around a folder.

    Raises: CompileError when there is none.
    """
    root = progress.find(start)
    if root is None and (bereft := without_progress(start, course)):
        raise CompileError("learn", f"{progress.FILE} is gone from {bereft}",
                           hint=f"put it back, or minicc learn start {bereft}: it begins a new one, and your "
                                "answers stay")
    if root is None:
        raise CompileError("learn", "there is no course in this folder, nor above it",
                           hint="minicc learn start course, and then cd course")
    return Workspace(root, course)


def without_progress(start: Path, course: Course) -> Path | None:
    """The nearest folder, from this one up, that has exercises of the course in it; None if none has."""
    folders = (start.resolve(), *start.resolve().parents)
    names = [lesson.folder for lesson in course.lessons]
    return next((folder for folder in folders for name in names
                 if (folder / name / "exercises.py").is_file() and folder != course.root), None)


def start(folder: Path, course: Course) -> tuple[Workspace, list[str]]:
    """Lay out a workspace, or bring one up to date; also what was kept or changed.

    Raises: CompileError if the folder cannot be written.
    """
    workspace = Workspace(folder.resolve(), course)
    notes: list[str] = []
    workspace.progress.read()  # a file that is no progress file stops us before anything is written
    try:
        for lesson in course.lessons:
            notes += _lay_out(workspace, lesson)
    except OSError as failure:
        raise CompileError("learn start", f"cannot lay out {folder}", got=failure.strerror) from failure
    if not (workspace.root / "README.md").exists():
        write_file(workspace.root / "README.md", README)
    return workspace, notes


def _lay_out(workspace: Workspace, lesson: Lesson) -> list[str]:
    course, target = workspace.course, workspace.root / lesson.folder
    source = course.page(lesson).parent
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.iterdir()) if source.is_dir() else ():
        if path.is_file() and path.suffix != ".py":
            shutil.copyfile(path, target / path.name)
    fresh = regions(generated(lesson, course.key(lesson)))
    file, notes = workspace.file(lesson), []
    with workspace.progress.changing() as data:
        known = data["laid_out"].setdefault(lesson.folder, {})
        if file.exists():
            mine = regions(workspace.text(lesson))
            edited = {id for id, text in mine.items()
                      if digest(text) not in (known.get(id), digest(fresh.get(id, "")))}
            known |= {id: digest(fresh[id]) for id in fresh if id in edited and id not in known}
            notes = [f"{lesson.folder}/exercises.py: kept your {_named(id)}; the course's has changed"
                     for id in fresh if id in edited and known[id] != digest(fresh[id])]
            text = workspace.text(lesson)
            lost = {each.id for each in lesson.exercises if each.id not in mine and _defines(text, each)}
            take = {id: text for id, text in fresh.items() if id not in edited | lost}
            write_file(file, merged(text, take))
        else:
            take = fresh
            write_file(file, "".join(fresh.values()))
        known |= {id: digest(text) for id, text in take.items()}
    return notes


def _defines(text: str, exercise: Exercise) -> bool:
    """Whether the answer stands in a file whose `# ----` line is gone."""
    return re.search(rf"^(def )?{re.escape(exercise.answer)}\b", text, re.MULTILINE) is not None


def _named(id: str) -> str:
    return "imports" if id == HEAD else f"answer to {id}"
