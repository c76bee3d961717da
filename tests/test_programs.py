"""Programs that the command line names: what cannot be read, held or ended is one error."""

from __future__ import annotations

from pathlib import Path

import pytest

from minicc.tools.commands import main

BAD = {
    "9**9**9 * rand(3)": "this number is too large",
    "(1 << 10**12) * rand(3)": "this number is too large",
    "arange(10**12).sum()": "does not fit i32",
}


@pytest.mark.parametrize("text", BAD)
def test_an_expression_that_would_never_end_is_one_error(text: str, capsys: pytest.CaptureFixture[str]):
    assert main(["run", "-c", text]) == 2
    assert BAD[text] in capsys.readouterr().err


@pytest.mark.parametrize("command", [["demo"], ["machines"], ["learn", "list"]])
def test_a_device_that_there_is_not_is_an_error_even_to_who_needs_none(
        command: list[str], capsys: pytest.CaptureFixture[str]):
    assert main([*command, "--device", "abacus"]) == 2
    assert "no such device. got 'abacus'" in capsys.readouterr().err


def test_a_program_without_kernels_has_nothing_to_pipeline(capsys: pytest.CaptureFixture[str]):
    assert main(["show", "-c", "rand(3)", "--level", "pipelined", "--device", "tpu"]) == 2
    assert "there is nothing to pipeline" in capsys.readouterr().err


@pytest.mark.parametrize("size", [10**7, 10**10])
def test_inputs_that_this_computer_cannot_hold_are_one_error(
        size: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "a.graph").write_text(f"graph f(x: f32[{size},{size}]) {{\n  return x\n}}\n")
    assert main(["run", str(tmp_path / "a.graph")]) == 2
    assert "do not fit the memory of gpu:a100" in capsys.readouterr().err


def test_one_function_of_a_script_runs_on_random_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "one.py"
    path.write_text("import minicc as mc\n"
                    "@mc.jit\n"
                    "def f(x): return x * 0 + 7\n"
                    "@mc.jit\n"
                    "def g(x, y): return x - x\n"
                    "f(mc.ones(2)), g(mc.ones(2), mc.ones(3)), g(mc.ones(4), mc.ones(3))\n")
    assert main(["run", f"{path}:g"]) == 0
    found = capsys.readouterr().out.splitlines()
    assert found == [f"f32[{n}]  least 0  mean 0  most 0" for n in (2, 4)]
