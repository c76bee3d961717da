"""One answer, tried in a process of its own: runs the learner's file and hands back data.

    python -P -m minicc.lessons.child KEY ID EXERCISES RESULT SEED SECONDS    ->  RESULT, a JSON file

Goes in: the key's file and an exercise of it, the learner's file. Comes out: a status, what there is to say
of it, and on "data" what the key's `run` returned, as plain data. Invariants: whatever the learner's code
does, what is written is a status that sandbox.py knows or nothing, and nothing is judged here; an object that
is not exactly of a plain type does not leave; an answer that started a process, or left numpy or minicc other
than it found them, is reported as that. Python builds no wall inside one process, so what judges lives in
another. Read next: sandbox.py, that other side.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import itertools
import json
import linecache
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import minicc
from minicc import compiler
from minicc.errors import MiniccError, Todo
from minicc.lessons.course import Case, Exercise, load_key
from minicc.lessons.drawing import drawn
from minicc.lessons.pictures import picture

try:
    import resource
except ImportError:  # Windows has none
    resource = None  # type: ignore[assignment]

MEMORY_BYTES, FILE_BYTES = 4 << 30, 64 << 20
PROCESS_EVENTS = ("os.fork", "os.forkpty", "os.exec", "os.spawn", "os.posix_spawn", "os.system",
                  "os.startfile", "subprocess.Popen")
GUARDED = ("numpy", "numpy.linalg", "numpy.random", "builtins", "minicc")
PLAIN = (str, int, float, bool, type(None))
CONSTANTS = (*PLAIN, list)  # globals of these types may change in a module that works as it should

TOP, STARTED = "the answer", "started"
FRAMES = 3000  # of a stack, looked through for the learner's lines

Report = dict[str, Any]


class StartedProcess(BaseException):
    """Raised in the learner's line that would start another process."""


class NotPlain(Exception):
    """Something that is not data was about to leave."""


# ---- what leaves ----


def plain(value: Any, path: str = TOP) -> Any:
    """The value in a form that JSON holds; arrays as their bytes.

    Raises: NotPlain for any other object, a subclass of a plain type included.
    """
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind in (list, tuple):
        return [plain(item, f"{path}[{number}]") for number, item in enumerate(value)]
    if kind is dict:
        if odd := [type(key).__name__ for key in value if type(key) is not str]:
            raise NotPlain(f"{path} has a key that is no text but a {odd[0]}")
        above = "" if path == TOP else f"{path}."
        return {key: plain(item, above + key) for key, item in value.items()}
    if kind is np.ndarray and value.dtype.kind in "biuf":
        data = base64.b64encode(value.tobytes()).decode()
        return {"__array__": [value.dtype.str, list(value.shape), data]}
    if kind in np.sctypeDict.values():
        return value.item()
    raise NotPlain(f"{path} is a {kind.__name__}, where plain data belongs")


# ---- what must stay as it is ----


def surroundings() -> dict[tuple[str, str], Any]:
    """Each function, class and table of numpy, minicc and builtins, and each method of minicc's classes."""
    found: dict[tuple[str, str], Any] = {}
    assert minicc.Tensor  # which brings in all that a name of minicc's may need
    for name, module in list(sys.modules.items()):
        if name in GUARDED or name.startswith(("minicc.", "minicc_lesson_")):
            kept = {key: value for key, value in vars(module).items() if type(value) not in CONSTANTS}
            found |= {(name, key): value for key, value in kept.items()}
    for (name, key), value in list(found.items()):
        if isinstance(value, type) and value.__module__ == name and name.startswith("minicc"):
            methods = {method: code for method, code in vars(value).items() if callable(code)}
            found |= {(f"{name}.{key}", method): code for method, code in methods.items()}
    return found


def changes(before: dict[tuple[str, str], Any]) -> list[str]:
    """What is no longer what it was."""
    now = surroundings()
    return sorted(".".join(where) for where, value in before.items() if now.get(where) is not value)


def limit() -> None:
    """Bound memory and the size of files, where the system can."""
    if resource is None:
        return
    for what, most in (("RLIMIT_AS", MEMORY_BYTES), ("RLIMIT_FSIZE", FILE_BYTES), ("RLIMIT_CORE", 0)):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            resource.setrlimit(getattr(resource, what), (most, most))


def forbid_processes() -> None:
    """From now on, a line that would start a process raises instead."""
    def hook(event: str, arguments: tuple) -> None:
        if event in PROCESS_EVENTS:
            raise StartedProcess(event)
    sys.addaudithook(hook)


# ---- the attempt ----


def lines_in(file: str, numbers: Iterable[int]) -> list[list[Any]]:
    """[line, its text] of the learner's lines, each once, innermost first; a few of them."""
    return [[number, linecache.getline(file, number).strip()] for number in dict.fromkeys(numbers)][:3]


def raised_in(file: str, error: BaseException) -> list[int]:
    """The lines of the learner's file through which an exception came, innermost first."""
    frames = itertools.islice(traceback.walk_tb(error.__traceback__), FRAMES)
    return [line for frame, line in frames if frame.f_code.co_filename == file][::-1]


def running_in(file: str, thread: int) -> list[int]:
    """The lines of the learner's file that a thread is in now, innermost first."""
    frames = itertools.islice(traceback.walk_stack(sys._current_frames()[thread]), FRAMES)
    return [line for frame, line in frames if frame.f_code.co_filename == file]


def described(error: BaseException, file: str) -> Report:
    """An exception of the learner's as a report."""
    name = type(error).__name__
    try:
        text = str(error)
    except BaseException:  # an exception may even fail to say what it is
        text = ""
    lines = lines_in(file, raised_in(file, error))
    if isinstance(error, SyntaxError) and error.filename == file:
        lines = [[error.lineno or 1, (error.text or "").strip()]]
        return {"status": "syntax", "text": error.msg, "name": name, "lines": lines}
    match error:
        case Todo():
            status, text = "todo", f"{error.stage}: {error.what}"
        case SystemExit():
            status, text = "exit", str(error.code or "")
        case MemoryError():
            status = "memory"
        case StartedProcess():
            status = "process"
        case NotPlain() if not lines:
            status = "odd"
        case MiniccError() if not lines:
            status = "refused"
        case _:
            status = "raised"
    return {"status": status, "text": text, "name": name, "lines": lines}


def load(file: str) -> ModuleType:
    """The learner's file as a module."""
    module = ModuleType("exercises")
    module.__file__ = file
    sys.modules["exercises"] = module
    sys.path.append(str(Path(file).parent))  # last, so that a file named numpy.py there hides nothing
    exec(compile(Path(file).read_text(encoding="utf-8-sig"), file, "exec"), vars(module))
    return module


def watched(answer: Callable) -> tuple[Callable, list[int]]:
    """The function, and a list that grows with each call of it."""
    calls: list[int] = []

    @functools.wraps(answer)
    def call(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        return answer(*arguments, **options)

    return call, calls


def attempt(exercise: Exercise, file: str, case: Case) -> Report:
    """Run the learner's file, then the key's `run` on the answer in it."""
    before = surroundings()
    try:
        module = load(file)
        if exercise.answer not in vars(module):
            report: Report = {"status": "missing"}
        else:
            answer, calls = getattr(module, exercise.answer), [1]
            if callable(answer):
                answer, calls = watched(answer)
            data = exercise.run(answer, case)
            called = calls or not exercise.called
            report = {"status": "data", "data": plain(data)} if called else {"status": "uncalled"}
    except BaseException as error:  # whatever it is, it is the learner's, and is reported
        report = described(error, file)
    if found := changes(before):
        report = {"status": "changed", "text": ", ".join(found[:3])}
    return report


def with_pictures(report: Report, shown: list[object]) -> Report:
    """The report with a drawing of the learner's program in text and, if this machine can, as DOT."""
    if not shown:
        return report
    with contextlib.suppress(Exception):  # a level that the learner's pass spoiled may not draw
        report["drawing"] = drawn(shown[-1])
        drawing = picture(shown[-1], "program")
        report |= {"dot": drawing.source, "pinned": drawing.pinned} if drawing else {}
    return report


def main(arguments: list[str]) -> None:
    """Try one answer and write the report."""
    key, id, file, result, seed, seconds = arguments
    sys.argv = [file]
    exercise = load_key(Path(key)).LESSON.exercise(id)
    owner, case, once, compiled = os.getpid(), Case(int(seed)), threading.Lock(), list[object]()
    compiler.on_compile.append(lambda program: compiled.append(program.kernels))
    write, end, dumps = Path(result).write_text, os._exit, json.dumps

    def finish(report: Report) -> None:
        if os.getpid() == owner and once.acquire(blocking=False):
            sys.stdout.flush()
            write(dumps(report), encoding="utf-8")
        end(0)

    write(dumps({"status": STARTED}), encoding="utf-8")
    learner = threading.get_ident()

    def late() -> None:
        finish({"status": "timeout", "lines": lines_in(file, running_in(file, learner))})

    limit()
    forbid_processes()
    watchdog = threading.Timer(float(seconds), late)
    watchdog.daemon = True
    watchdog.start()
    finish(with_pictures(attempt(exercise, file, case), case.shown or compiled))


if __name__ == "__main__":
    main(sys.argv[1:])
