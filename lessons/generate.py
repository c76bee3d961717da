"""From a key to what the learner edits: exercises.py, with every solution taken out.

    # ---- 1.1                                       # ---- 1.1 build: Double it (10 minutes)
    def double(x):                                   def double(x):
        # solution begin                       ->        raise Todo("1.1", "not written yet")
        #| raise Todo("1.1", "not written yet")
        return x + x
        # solution end

Goes in: the text of a key. Comes out: the file's text, or an exercise's alone, with any answer in the
solution's place. Invariants: what is generated depends on the key only, so a test can tell when a file is
stale; a region runs from its `# ----` line to the next, and `merged` swaps regions and leaves the rest of a
learner's file alone. Read next: course.py, which shows a whole key.
"""

from __future__ import annotations

import hashlib
import re
import textwrap
from pathlib import Path

from minicc.errors import CompileError
from minicc.lessons.course import Exercise, Lesson

BEGIN, END = "# exercises begin\n", "# exercises end\n"
REGION = re.compile(r"^# ---- (\d+\.\d+)\b.*\n", re.MULTILINE)
SOLUTION = re.compile(
    r"^( *)# solution begin\n((?: *#\|[^\n]*\n)*)(.*?)^ *# solution end\n", re.MULTILINE | re.DOTALL)
LEARNERS = re.compile(r"^( *)#\| ?", re.MULTILINE)  # code that the key itself does not run
HEAD = "head"


def regions(text: str) -> dict[str, str]:
    """Exercise id -> its part of an exercises.py, with what stands before the first under "head".

    >>> regions("import a\\n# ---- 1.1 x\\nb\\n")
    {'head': 'import a\\n', '1.1': '# ---- 1.1 x\\nb\\n'}
    """
    starts = list(REGION.finditer(text))
    ends = [*(match.start() for match in starts), len(text)]
    found = {HEAD: text[: ends[0]]}
    for match, end in zip(starts, ends[1:], strict=True):
        found[match[1]] = found.get(match[1], "") + text[match.start(): end]  # it may stand there twice
    return found


def merged(text: str, fresh: dict[str, str]) -> str:
    """A file with these regions in place of its own; new ones come last."""
    parts = regions(text) | fresh
    return "".join(part if part.endswith("\n") else part + "\n" for part in parts.values())


def solved(key: Path) -> dict[str, str]:
    """The regions of a key, solutions and marks included.

    Raises: CompileError if the marks are missing.
    """
    text = key.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise CompileError("learn build", f"the key {key.name} does not say where its exercises are",
                           need=f"one line {BEGIN.strip()!r} and one {END.strip()!r}")
    return regions(text.split(BEGIN)[1].split(END)[0])


def _solution(region: str, exercise: Exercise) -> re.Match[str]:
    found = list(SOLUTION.finditer(region))
    if len(found) != 1:
        raise CompileError("learn build", f"exercise {exercise.id} needs one solution between marks",
                           got=len(found))
    return found[0]


def region_with(key: Path, exercise: Exercise, answer: str) -> str:
    """The exercise's region with this code where the solution stood."""
    region = solved(key).get(exercise.id)
    if region is None:
        raise CompileError("learn build", f"the key {key.name} has no region {exercise.id}",
                           need=f"# ---- {exercise.id}")
    match = _solution(region, exercise)
    code = textwrap.indent(textwrap.dedent(answer).strip("\n") + "\n", match[1])
    before, after = (LEARNERS.sub(r"\1", part) for part in (region[: match.start()], region[match.end():]))
    return titled(before + code + after, exercise)


def titled(region: str, exercise: Exercise) -> str:
    """The region under a line that says what it is."""
    title = f"# ---- {exercise.id} {exercise.kind.value}: {exercise.title} ({exercise.minutes} minutes)\n"
    return REGION.sub(lambda _: title, region, count=1)


def starter(key: Path, exercise: Exercise) -> str:
    """The code that stands in the solution's place when a learner begins."""
    lines = _solution(solved(key)[exercise.id], exercise)[2].splitlines()
    return "\n".join(re.sub(r"^ *#\| ?", "", line) for line in lines)


def solution(key: Path, exercise: Exercise) -> str:
    """The key's own answer."""
    return textwrap.dedent(_solution(solved(key)[exercise.id], exercise)[3]).strip("\n")


def generated(lesson: Lesson, key: Path) -> str:
    """The exercises.py of a lesson."""
    text = textwrap.fill(f"{lesson.question} The page beside this file says what to do; `minicc learn check "
                         f"{lesson.number}` looks at what you wrote.", 106)
    head = (f'"""Exercises of lesson {lesson.number}: {lesson.title}\n\n{text}\n"""\n\n'
            "# ruff: noqa: F401, I001  you will need what is imported here\n")
    body = LEARNERS.sub(r"\1", solved(key)[HEAD]).strip("\n")
    parts = [region_with(key, exercise, starter(key, exercise)) for exercise in lesson.exercises]
    return head + (body + "\n\n\n" if body else "") + "\n\n".join(part.strip("\n") + "\n" for part in parts)


def content_hash(key: Path, exercise: Exercise) -> str:
    """What progress is kept under, beside the exercise's id: changes when what the learner is asked does."""
    region = region_with(key, exercise, starter(key, exercise))
    return hashlib.sha256(region.strip().encode()).hexdigest()[:12]
