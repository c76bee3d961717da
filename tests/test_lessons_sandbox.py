"""Whatever an answer does, its check ends, and says what it was."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import lesson_workspace as lw
import numpy as np
import pytest

from minicc.lessons.child import NotPlain, attempt, plain
from minicc.lessons.course import Case
from minicc.lessons.sandbox import _arrays

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such call")
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds memory reliably")

HOSTILE = [
    ("while True: pass", "timeout", "still running after 3 s"),
    ("while True: print('x' * 100000)", "output", "printed more than 1 MiB"),
    ("import sys; sys.exit(0)", "exit", "called sys.exit"),
    ("import os; os._exit(0)", "gone", "ended the whole process before the check was over"),
    ("import subprocess; subprocess.run(['ls'])", "process", "start another process (subprocess.Popen)"),
    ("import numpy; numpy.allclose = lambda *_: True; return graph", "changed", "changed numpy.allclose"),
    ("import minicc; minicc.Tensor.numpy = None; return graph", "changed", "tensor.Tensor.numpy"),
    ("def f(): return f()\nreturn f()", "raised", "RecursionError"),
    ("import ctypes; ctypes.string_at(0)", "crash", "the process crashed"),
    ("raise KeyboardInterrupt", "raised", "KeyboardInterrupt"),
    ("class E(Exception):\n    def __str__(self): return 1 / 0\nraise E", "raised", "your answer raised E"),
    ("class Yes:\n    __eq__ = lambda *_: True\nreturn Yes()", "refused", "got a Yes; need a Graph"),
    ("return (", "syntax", "SyntaxError: '(' was never closed"),
    pytest.param("import os; os.fork()", "process", "another process (os.fork)", marks=POSIX),
    pytest.param("import os; os.kill(os.getpid(), 9)", "crash", "SIGKILL", marks=POSIX),
    pytest.param("bytearray(10**11)", "memory", "ran out of memory", marks=LINUX),
]


@pytest.mark.parametrize("code, status, said", HOSTILE)
def test_what_an_answer_does_is_reported_as_what_it_is(code: str, status: str, said: str, tmp_path: Path):
    found = lw.checked(tmp_path, code)
    assert not found.verdict.passed and found.status == status
    assert said in found.verdict.symptom


def test_a_prediction_that_equals_everything_is_not_data(tmp_path: Path):
    found = lw.checked(tmp_path, "class Yes(int):\n    __eq__ = lambda *_: True\nprediction = Yes()", "1.1")
    assert found.verdict.symptom == "prediction is a Yes, where plain data belongs"


def test_a_thread_that_never_ends_does_not_keep_the_check(tmp_path: Path):
    code = "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()\nreturn graph"
    assert lw.checked(tmp_path, code).status == "data"


def test_the_learners_own_line_is_shown_innermost_first(tmp_path: Path):
    found = lw.checked(tmp_path, "def inner():\n    return 1 / 0\nreturn inner()")
    numbered = [line.partition(": ")[2] for line in found.verdict.lines]
    assert numbered == ["return 1 / 0", "return inner()"]
    assert found.verdict.symptom == "your answer raised ZeroDivisionError: division by zero"


def test_a_function_that_nothing_calls_fails(tmp_path: Path):
    at = lw.laid_out(tmp_path)
    text = at.text(lw.lesson()) + "\ndef double(graph): return graph\n"
    at.file(lw.lesson()).write_text(text.replace("def double(graph: Graph)", "def other(graph: Graph)"))
    assert "y differs" in _check(at)
    at.file(lw.lesson()).write_text(text.replace("def double", "def other"))
    assert _check(at) == "exercises.py has no double any more"


def test_a_function_that_the_check_never_reaches_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    at = lw.laid_out(tmp_path)
    idle = replace(lw.lesson().exercise("1.2"), run=lambda answer, case: {})
    assert attempt(idle, str(at.file(lw.lesson())), Case()) == {"status": "uncalled"}


def _check(at: lw.Workspace) -> str:
    return lw.check(lw.COURSE, lw.lesson(), lw.lesson().exercise("1.2"), at.file(lw.lesson())).verdict.symptom


def test_an_answer_cut_to_the_shapes_that_it_saw_fails_on_others(tmp_path: Path):
    code = ("value, b = graph.outputs[0], Builder()\n"
            "if value.shape != (8,): return graph\n"
            "return b.graph('f', graph.inputs, [build(b, 'add', (value, value))])")
    verdict = lw.checked(tmp_path, code).verdict
    assert not verdict.passed and "y differs" in verdict.symptom
    assert verdict.lines == ("on other shapes and data (seed 7); those of seed 0 passed",)


def test_a_failed_check_draws_the_learners_own_program(tmp_path: Path):
    found = lw.checked(tmp_path, "return graph")
    assert found.drawing.splitlines()[1:] == ["out: maximum f32[8]", "|-- x f32[8]", "`-- 0.0"]
    assert found.dot.startswith('digraph "graph"')


def test_a_file_of_the_learners_hides_no_library(tmp_path: Path):
    at = lw.laid_out(tmp_path)
    (at.file(lw.lesson()).parent / "numpy.py").write_text("raise ImportError('the decoy was imported')")
    assert "not done yet" in _check(at)


@pytest.mark.parametrize("value", [
    {"a": [1, 2.5, None, True, "x"]}, {"y": np.arange(6, dtype=np.float32).reshape(2, 3)},
    {"inner": {"b": np.array([True, False])}}, {"nothing": np.zeros((0, 3), np.int32)},
])
def test_plain_data_comes_back_as_it_left(value: dict):
    np.testing.assert_equal(_arrays(plain(value)), value)


@pytest.mark.parametrize("value, said", [
    ({"y": object()}, "y is a object"), ({"a": {1: 2}}, "a has a key that is no text but a int"),
    ({"y": np.array([None])}, "y is a ndarray"), ({"y": [np.ma.array([1])]}, r"y\[0\] is a MaskedArray"),
])
def test_anything_else_stays_where_it_is(value: dict, said: str):
    with pytest.raises(NotPlain, match=said):
        plain(value)
