"""The command line answers in text or JSON, and every mistake is one error with exit code 2."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from minicc.errors import CompileError
from minicc.tools import commands, demo, expression
from minicc.tools.commands import main
from minicc.tools.programs import random_array

DENSE = "relu(rand(64,32) @ rand(32,16))"
GRAPH = "graph f(x: f32[4,8]) {\n  %0 = maximum(x, 0.0) : f32[4,8]\n  return %0\n}\n"
SCRIPT = """\
import numpy as np
from minicc import Tensor
print("from the script")
x = Tensor(np.ones((2, 3), np.float32))
y = (x * 2.0).tanh()
y.numpy()
"""


def run(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(words)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def graph_file(tmp_path: Path) -> Path:
    path = tmp_path / "f.graph"
    path.write_text(GRAPH)
    return path


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


# ---- what works ----

def test_an_expression_shows_its_graph_and_points_at_itself(capsys: pytest.CaptureFixture[str]):
    code, out, err = run(["show", "-c", DENSE, "--level", "graph"], capsys)
    assert (code, err) == (0, "")
    assert out.startswith("graph expression(x0: f32[64,32], x1: f32[32,16]) {")
    assert "dot_general(x0, x1)" in out and "loc(-c:1)" in out


def test_a_graph_file_shows_as_it_is_written(graph_file: Path, capsys: pytest.CaptureFixture[str]):
    code, out, _ = run(["show", str(graph_file), "--level", "graph"], capsys)
    assert code == 0 and "maximum(x, 0.0)" in out


def test_a_script_shows_what_it_compiles_and_keeps_its_own_output_apart(
    script: Path, capsys: pytest.CaptureFixture[str]
):
    code, out, err = run(["show", str(script), "--level", "graph"], capsys)
    assert code == 0 and "tanh" in out and "loc(train.py:5)" in out
    assert "from the script" in err and "from the script" not in out


def test_run_prints_the_numbers_that_numpy_finds(graph_file: Path, capsys: pytest.CaptureFixture[str]):
    code, out, _ = run(["run", str(graph_file), "--seed", "3", "--json"], capsys)
    x = np.random.default_rng(3).standard_normal((4, 8)).astype(np.float32)
    row, = json.loads(out)
    assert code == 0 and row["type"] == "f32[4,8]"
    assert row["most"] == pytest.approx(np.maximum(x, 0).max()) and row["least"] == 0


def test_a_script_runs_as_itself(script: Path, capsys: pytest.CaptureFixture[str]):
    code, out, _ = run(["run", str(script)], capsys)
    assert code == 0 and out == "from the script\n"


def test_a_script_runs_on_the_device_of_the_command(
    script: Path, capsys: pytest.CaptureFixture[str]
):
    code, _, err = run(["run", str(script), "--device", "tpu", "--debug", "1"], capsys)
    assert code == 0 and "eager on tpu:v5e: ran in" in err


def test_opt_prints_the_graph_and_each_rewrite(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "g.graph"
    path.write_text("graph g(x: f32[4]) {\n  %0 = multiply(x, 1.0) : f32[4]\n  %1 = exp(%0) : f32[4]\n"
                    "  return %1\n}\n")
    code, out, err = run(["opt", str(path), "--passes", "simplify", "--print-after-all"], capsys)
    assert code == 0 and "multiply" not in out and "exp(x)" in out
    assert "-- after simplify" in err


def test_opt_goes_on_to_kernels(graph_file: Path, capsys: pytest.CaptureFixture[str]):
    words = ["opt", str(graph_file), "--passes", "simplify,legalize,fuse,tile", "--device", "tpu"]
    code, out, err = run(words, capsys)
    assert code == 0 and "kernel maximum" in out and "always:  out = maximum(x, 0.0)" in out and err == ""


@pytest.mark.parametrize("passes", ["tile", "simplify,fuse", "legalize,fuse,simplify", "legalize,fuse,fuse"])
def test_a_pass_at_the_wrong_place_is_refused(
    passes: str, graph_file: Path, capsys: pytest.CaptureFixture[str]
):
    code, out, err = run(["opt", str(graph_file), "--passes", passes], capsys)
    assert (code, out) == (2, "") and "comes at the wrong place. got " in err and passes in err


def test_json_has_the_text_of_the_level(capsys: pytest.CaptureFixture[str]):
    _, text, _ = run(["show", "-c", DENSE, "--level", "graph"], capsys)
    _, data, _ = run(["show", "-c", DENSE, "--level", "graph", "--json"], capsys)
    row, = json.loads(data)
    assert row["text"].strip() == text.strip() and row["level"] == "graph" and row["device"] == "gpu:a100"


def test_output_goes_to_a_file_whose_folder_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    target = tmp_path / "new" / "out.txt"
    code, out, _ = run(["show", "-c", DENSE, "--level", "graph", "-o", str(target)], capsys)
    assert (code, out) == (0, "") and "dot_general" in target.read_text()
    assert [path.name for path in target.parent.iterdir()] == ["out.txt"]  # no half file beside it


@pytest.mark.parametrize("command", commands.COMMANDS)
def test_each_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]):
    code, out, err = run([command, "--help"], capsys)
    assert (code, err) == (0, "") and f"example:\n  minicc {command}" in out


def test_the_overview_names_every_command(capsys: pytest.CaptureFixture[str]):
    code, out, _ = run([], capsys)
    assert code == 0 and all(f"  {command} " in out for command in commands.COMMANDS)


@pytest.mark.parametrize("level, said", [
    ("kernels", "kernel dot_maximum"), ("pipelined", "copy_start x0[t]"), ("program", ".kernel.dot_maximum:"),
    ("memory", "hbm: "), ("explain", "for  out maximum (-c:1): it is an output"),
])
def test_a_tpu_has_every_level(level: str, said: str, capsys: pytest.CaptureFixture[str]):
    code, out, _ = run(["show", "-c", DENSE, "--level", level, "--device", "tpu"], capsys)
    assert code == 0 and said in out


def test_a_gpus_program_is_cuda(capsys: pytest.CaptureFixture[str]):
    code, out, _ = run(["show", "-c", DENSE, "--level", "program"], capsys)
    assert code == 0 and "__global__ void dot_maximum(" in out and "-c:1" in out


def test_machines_print_their_published_numbers(capsys: pytest.CaptureFixture[str]):
    _, text, _ = run(["machines"], capsys)
    _, data, _ = run(["machines", "--json"], capsys)
    machines = json.loads(data)
    assert (machines["tpu:v5e"]["hbm_gb_per_s"], machines["gpu:a100"]["dram_gb_per_s"]) == (819, 1555)
    assert "hbm_gb_per_s" in text


def test_draw_writes_each_level_twice_and_lists_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    code, out, _ = run(["draw", "-c", DENSE, "--device", "tpu", "-o", str(tmp_path / "out")], capsys)
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    levels = ("graph", "kernels", "memory", "pipeline", "timeline")
    assert code == 0 and names == sorted(f"{level}.{form}" for level in levels for form in ("png", "svg"))
    assert [Path(line).name for line in out.split()] == [f"{n}.{f}" for n in levels for f in ("svg", "png")]


def test_draw_draws_one_level_if_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    asked = ["draw", "-c", DENSE, "--level", "memory", "-o", str(tmp_path / "out")]
    assert run(asked, capsys)[0] == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["memory.png", "memory.svg"]
    code, _, err = run([*asked, "--level", "pipeline"], capsys)
    assert code == 2 and "only a TPU's copies are explicit" in err


@pytest.mark.parametrize("level, said, unsaid", [
    ("1", "kernels dot_maximum", "cycles fused"), ("2", "cycles fused", "grid  m ="),
    ("3", "grid  m =", "__global__"), ("4", "__global__", "multiply_one"), ("5", "__global__", "Traceback"),
])
def test_each_debug_level_says_more(level: str, said: str, unsaid: str, capsys: pytest.CaptureFixture[str]):
    expression_of_its_own = f"relu(rand(1{level}7,32) @ rand(32,16))"  # so that it is compiled anew
    code, out, err = run(["run", "-c", expression_of_its_own, "--debug", level], capsys)
    assert code == 0 and said in err and unsaid not in err and "ran in" in err and "f32[1" in out


def test_debugging_ends_with_its_command(capsys: pytest.CaptureFixture[str]):
    run(["show", "-c", DENSE, "--debug", "1"], capsys)
    assert run(["run", "-c", DENSE], capsys)[2] == ""


def test_the_demo_learns_and_every_execution_agrees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(["demo", "-o", "pictures"], capsys)
    assert (code, err) == (0, "")
    assert out.count("identical predictions") == 3 and "DIFFERENT" not in out and "\r" not in out
    accuracy = float(out.split("numpy, float64")[1].split("%")[0])
    assert accuracy >= 95
    assert max(map(len, out.splitlines())) <= 80
    assert (tmp_path / "pictures" / "kernels.png").stat().st_size > 1000


def test_the_demo_cannot_write_where_a_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(demo, "EPOCHS", 4)
    (tmp_path / "file").write_text("in the way")
    code, _, err = run(["demo", "-o", str(tmp_path / "file" / "pictures")], capsys)
    assert code == 2 and "cannot write" in err


def test_the_demo_goes_on_without_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(demo, "EPOCHS", 8)
    def missing() -> None:
        raise CompileError("draw", "no program to draw with", hint="minicc-edu[dot]")
    monkeypatch.setattr(commands, "open_viz", missing)
    code, out, _ = run(["demo", "-o", str(tmp_path)], capsys)
    assert code == 0 and "none: draw: no program to draw with" in out and "Done in" in out


# ---- bad input ----

BAD = [
    (["shwo"], "unknown command. got shwo"),
    (["shwo"], "try: minicc show"),
    (["show"], "no program"),
    (["show", "a.graph", "-c", "rand(3)"], "no program, or two of them"),
    (["show", "missing.graph"], "cannot read missing.graph. got No such file"),
    (["run", "missing.py"], "cannot read missing.py. got No such file"),
    (["run", "train.py", "-c", "rand(3)"], "no program, or two of them"),
    (["show", "missing.py"], "cannot read missing.py. got No such file"),
    (["show", "notes.txt"], "a program of unknown kind. got 'notes.txt'"),
    (["show", "-c", DENSE, "--level", "bundles"], "invalid choice: 'bundles'"),
    (["show", "-c", DENSE, "--device", "tpu:v55"], "no such device. got 'tpu:v55'"),
    (["show", "-c", DENSE, "--device", "tpu:v5ee"], "try: tpu:v5e"),
    (["show", "-c", DENSE, "--debug", "lots"], "MINICC_DEBUG is not a level. got lots"),
    (["show", "-c", DENSE, "--wat"], "unrecognized arguments: --wat"),
    (["show", "-c", DENSE, "--level", "pipelined"], "only a TPU's copies are explicit"),
    (["run", "-c", "rand(2,3) @ rand(2,3)"], "ShapeError: matmul: contracted sizes differ. got 3"),
    (["run", "-c", "softmx(rand(3))"], "column 1: unknown name. got softmx"),
    (["run", "-c", "rand(3).numpy()"], "column 9: unknown name. got numpy"),
    (["run", "-c", "rand(3).__class__"], "column 9: unknown name. got __class__"),
    (["run", "-c", "().__class__"], "only tensors have attributes here. got tuple"),
    (["run", "-c", "[x for x in (1,)]"], "the expression language does not have this. got ListComp"),
    (["run", "-c", "lambda: 1"], "does not have this. got Lambda"),
    (["run", "-c", "relu(**{})"], "does not have this. got Call"),
    (["run", "-c", "1 +"], "this is not an expression"),
    (["run", "-c", "1" + "+1" * 5000], "this is not an expression"),
    (["run", "-c", "1 / 0"], "got division by zero"),
    (["run", "-c", "3"], "the expression gives no tensor. got int"),
    (["run", "-c", "rand(100000, 100000)"], "elements"),
]


@pytest.mark.parametrize("words, said", BAD)
def test_bad_input_is_one_error(words: list[str], said: str, capsys: pytest.CaptureFixture[str]):
    code, out, err = run(words, capsys)
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and said in err and "Traceback" not in err


def test_malformed_graph_text_is_named_by_line_and_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "bad.graph"
    path.write_text("graph f(x: f32[4]) {\n  %0 = exp(x : f32[4]\n  return %0\n}\n")
    code, _, err = run(["show", str(path)], capsys)
    assert code == 2 and "bad.graph:2" in err and "column 14" in err


def test_a_scripts_own_mistake_is_shown_by_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "boom.py"
    path.write_text("x = 1\ny = x / 0\n")
    code, _, err = run(["show", str(path)], capsys)
    assert code == 2 and "ZeroDivisionError: division by zero" in err and "boom.py:2: y = x / 0" in err


def test_a_script_that_compiles_nothing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "idle.py"
    path.write_text("x = 1\n")
    code, _, err = run(["show", str(path)], capsys)
    assert code == 2 and "it compiles nothing" in err


def test_an_unknown_function_of_a_script_names_those_there_are(
    script: Path, capsys: pytest.CaptureFixture[str]
):
    code, _, err = run(["show", f"{script}:trian"], capsys)
    assert code == 2 and "it compiles no function trian" in err


def test_an_unknown_pass_is_refused(graph_file: Path, capsys: pytest.CaptureFixture[str]):
    code, _, err = run(["opt", str(graph_file), "--passes", "simplfy"], capsys)
    assert code == 2 and "unknown pass. got simplfy" in err and "try: simplify" in err


def test_a_folder_that_cannot_be_written_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "file").write_text("in the way")
    place = str(tmp_path / "file" / "out.txt")
    code, _, err = run(["show", "-c", DENSE, "--level", "graph", "-o", place], capsys)
    assert code == 2 and "cannot write" in err and (tmp_path / "file").read_text() == "in the way"


@pytest.mark.parametrize("name, word", [("MINICC_DEBUG", "*"), ("MINICC_DEBUG", "6"), ("MINICC_DEBUG", "-1")])
def test_a_debug_level_that_is_none_is_one_error(
    name: str, word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv(name, word)
    code, _, err = run(["show", "-c", DENSE, "--level", "graph"], capsys)
    assert code == 2 and f"MINICC_DEBUG is not a level. got {word}" in err


def test_another_tools_debug_setting_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("DEBUG", "*")
    assert run(["show", "-c", DENSE, "--level", "graph"], capsys)[0] == 0


def test_an_interrupt_ends_with_its_own_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt
    monkeypatch.setattr(commands, "_dispatch", interrupted)
    assert run(["show"], capsys) == (130, "", "interrupted\n")


# ---- pieces ----

def test_random_arrays_have_their_types():
    value, = expression.evaluate("rand(2,3) < 0.5")
    generator = np.random.default_rng(0)
    assert random_array(value.type, generator).dtype == np.bool_


# ---- as a process ----

def test_a_reader_that_leaves_early_is_no_error():
    words = [sys.executable, "-m", "minicc", "show", "-c", DENSE, "--level", "graph"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert (process.wait(), process.stderr.read()) == (0, b"")
    process.stderr.close()


def test_importing_minicc_brings_in_nothing_until_a_name_is_asked_for():
    script = """if True:
        import sys, minicc
        print(sorted(name for name in sys.modules if name.startswith("minicc")))
        import minicc.trace
        names = "trace", "Tensor", "nope"
        print(*(callable(getattr(minicc, name, None)) for name in names), "zeros" in dir(minicc))
    """
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["['minicc', 'minicc.trace']", "True True False True"]


@pytest.mark.parametrize("module", ["frontend.ops", "frontend.vjp", "frontend.nn", "tools.bench", "face"])
def test_whichever_module_comes_first_the_others_follow(module: str):
    subprocess.run([sys.executable, "-c", f"import minicc.{module}"], check=True)


def test_python_dash_m_says_its_version():
    words = [sys.executable, "-m", "minicc", "--version"]
    assert subprocess.run(words, capture_output=True, text=True).stdout.startswith("minicc 0.")
