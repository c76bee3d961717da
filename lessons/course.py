"""What a lesson is made of, and where the lessons lie.

    lessons/01_record/lesson.md       the page: its ```python blocks run in order, in one namespace
    lessons/01_record/exercises.py    what a learner edits; `minicc learn build` makes it from the key
    lessons/key/01_record.py          the key: LESSON = Lesson(...), and the exercises, solved

A key, whole (a tiny one is in tests/lesson_course):

    import ...                          what the checks need
    # isort: split
    # exercises begin
    from minicc.graph.ir import Graph   what both need
    #| from minicc import Todo          what only the learner needs: any line after #| is the learner's alone

    # ---- 1.1
    def double(graph):
        '''What the learner reads stays; only the solution between its two marks is taken out.'''
        # solution begin
        #| raise Todo("1.1", "double is not written yet", hint="minicc learn hint 1.1")
        return ...
        # solution end
    # exercises end

    def run_double(answer, case):                    in the learner's process; answer is exercises.double
        with mc.using(simplify=answer): ...          raises if the compiler never called it
        case.show(compiled.graph)                    what a failed check draws
        return {"y": y.numpy(), "text": str(g)}      data: text, numbers, bools, None, arrays, lists, dicts

    def judge_double(data, seed):                    in a clean process; makes its own inputs from the seed
        return compare("y", data["y"], expected)     a Verdict; verdicts.py has more of them

    LESSON = Lesson(1, "record", "Record, don't run", ..., exercises=(
        Exercise("1.1", Kind.BUILD, "Double it", answer="double", run=run_double, judge=judge_double,
                 second_right="return ...",          stands where the solution stood, with any indent
                 wrong=(Wrong("return graph", "y differs at", "Who adds the second half?"), ...), ...),))

Goes in: the folder of lessons. Comes out: Lessons. Invariants:
- Lines `#| code` after `# solution begin` are the starter. An exercise has one solution: the body of a
  function, or a value (starter `#| prediction = {"kernels": None}`). What precedes the first `# ----` is the
  head of exercises.py, under a docstring made from the Lesson; comments and docstrings reach the learner.
- The untouched starter is a wrong answer too, by `starter_symptom`; so two more at least, three are usual.
- A symptom is part of what the failed check says. Sandbox findings (sandbox.py) are symptoms as well.
- A key too long for one file keeps parts in lessons/key/record_more.py: `from minicc.lessons.key.record_more
  import ...`; only files whose names begin with two digits are lessons.

nbgrader and OK keep solutions between marks as well. Read next: generate.py, verdicts.py, sandbox.py.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from minicc.errors import CompileError
from minicc.graph.attributes import nearest
from minicc.lessons.verdicts import Verdict

HERE = Path(__file__).resolve().parent
HINTS = ("where to look", "what to think", "how to start")
RUBRIC = ("claim", "mechanism", "number", "trade-off")
SHOWN_SEED, HIDDEN_SEED = 0, 7
KEY_FILE = re.compile(r"\d\d_\w+\.py")


class Kind(Enum):
    """What a learner does in an exercise."""

    PREDICT = "predict"     # write a number down before running; scored by ratio
    BUILD = "build"         # fill a slot of the compiler
    MISCOMPILE = "find"     # name the pass that is wrong, and the smallest input that shows it
    COUNT = "beat"          # get below a count: cycles, bytes, kernels, bundles
    KILL = "kill"           # write tests that catch planted bugs


@dataclass(frozen=True)
class Wrong:
    """An answer that must fail: code in the place of the solution, part of what the check says of it, and a
    question that lets its author see why."""

    code: str
    symptom: str
    question: str


@dataclass
class Case:
    """What `run` is handed beside the answer: a seed for its shapes and data, and a place for a picture."""

    seed: int = 0
    shown: list[object] = field(default_factory=list)

    def show(self, level: object) -> None:
        """Draw this level (a Graph, Module, PipelinedKernel, ...) if the check fails; the last one counts."""
        self.shown.append(level)


@dataclass(frozen=True, eq=False)
class Exercise:
    """One exercise with all that its key knows.

    answer: the name in exercises.py that is checked. run(answer, case) -> data, in the learner's process.
    judge(data, seed) -> Verdict, in a clean one. hints: one for each of HINTS. rubric: what an answer in talk
    has at each of RUBRIC. seconds: what a check may take, at most. called: whether a function `answer` that
    nothing called fails the check. seeds: what shapes and data are made from, one trial each; without any,
    0, and for what is built another one, so that an answer cut to the shapes it saw fails.
    """

    id: str
    kind: Kind
    title: str
    answer: str
    run: Callable[[Any, Case], dict[str, Any]]
    judge: Callable[[Mapping[str, Any], int], Verdict]
    second_right: str
    wrong: tuple[Wrong, ...]
    hints: tuple[str, str, str]
    discussion: str
    rubric: tuple[str, str, str, str]
    minutes: int
    starter_symptom: str = "not done yet"
    seconds: float = 20.0
    called: bool = True
    seeds: tuple[int, ...] = ()

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds that an answer is tried with, in order."""
        return self.seeds or (SHOWN_SEED, *((HIDDEN_SEED,) if self.kind is Kind.BUILD else ()))


@dataclass(frozen=True, eq=False)
class Lesson:
    """One lesson.

    question: the one it answers. designs: two or three acceptable ones. interviews: minutes (5, 15 and 45) ->
    how to ask it in that time.
    """

    number: int
    topic: str
    title: str
    question: str
    minutes: int
    exercises: tuple[Exercise, ...]
    designs: tuple[str, ...]
    mistakes: tuple[str, ...]
    interviews: Mapping[int, str]

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return f"{self.number:02}_{self.topic}"

    def exercise(self, id: str) -> Exercise:
        """The exercise of this id, such as "1.2".

        Raises: CompileError if the lesson has none.
        """
        for exercise in self.exercises:
            if exercise.id == id:
                return exercise
        known = ", ".join(exercise.id for exercise in self.exercises)
        raise CompileError("learn", "there is no such exercise", got=id, need=known)


@dataclass(frozen=True)
class Course:
    """The lessons in one folder, which is minicc's own unless a test brings another."""

    root: Path = HERE

    @property
    def lessons(self) -> tuple[Lesson, ...]:
        """Every lesson that has a key, by number."""
        found = sorted(path for path in (self.root / "key").glob("*.py") if KEY_FILE.fullmatch(path.name))
        return tuple(load_key(path).LESSON for path in found)

    def lesson(self, word: str) -> Lesson:
        """The lesson that a word names: a number, an exercise's id, or the topic.

        Raises: CompileError when there is none.
        """
        number = word.partition(".")[0]
        for lesson in self.lessons:
            if word in (lesson.topic, lesson.folder) or number.isdecimal() and int(number) == lesson.number:
                return lesson
        known = {str(lesson.number): lesson.title for lesson in self.lessons}
        hint = f"minicc learn {nearest(word, known) or ''}".rstrip()
        raise CompileError("learn", "there is no such lesson", got=word, need=", ".join(known), hint=hint)

    def text(self, lesson: Lesson) -> str:
        """What a lesson's page says.

        Raises: CompileError if it has none.
        """
        try:
            return self.page(lesson).read_text(encoding="utf-8")
        except OSError as failure:
            what = f"lesson {lesson.number} has no page"
            raise CompileError("learn", what, got=failure.strerror) from failure

    def key(self, lesson: Lesson) -> Path:
        """The file of a lesson's key."""
        return self.root / "key" / f"{lesson.folder}.py"

    def page(self, lesson: Lesson) -> Path:
        """The file of a lesson's page."""
        return self.root / lesson.folder / "lesson.md"

    def exercises(self, lesson: Lesson) -> Path:
        """The file that a learner starts from."""
        return self.root / lesson.folder / "exercises.py"


@cache
def load_key(path: Path) -> ModuleType:
    """A key as a module; its name begins with digits, so that no import statement can spell it.

    Raises: CompileError if it has no LESSON.
    """
    name = f"minicc_lesson_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look for their module there
    spec.loader.exec_module(module)
    if not isinstance(getattr(module, "LESSON", None), Lesson):
        raise CompileError("learn", f"the key {path.name} has no LESSON", need="LESSON = Lesson(...)")
    return module
