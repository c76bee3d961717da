"""What leaves minicc is whole, and says what it got: files, pipes, terminals, and complaints about words."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from minicc.errors import CompileError
from minicc.tools import output
from minicc.tools.commands import main


def test_a_terminal_without_unicode_gets_plain_characters():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    output.make_encodable(stream)
    stream.write("4 × 2 → 8 █ ž")
    stream.flush()
    assert raw.getvalue() == b"4 x 2 -> 8 # ?"


def test_progress_is_silent_in_a_pipe():
    stream = io.StringIO()
    progress = output.Progress(stream)
    progress.show("half way")
    progress.clear()
    assert stream.getvalue() == ""


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(output.os, "replace", full)
    with pytest.raises(CompileError, match="No space left"):
        output.write_file(tmp_path / "a.txt", "text")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_is_written_to_and_a_link_followed_rather_than_replaced(tmp_path: Path):
    real, link, pipe = tmp_path / "real.txt", tmp_path / "link", tmp_path / "pipe"
    real.write_text("old")
    link.symlink_to(real)
    output.write_file(link, "new")
    assert link.is_symlink() and real.read_text() == "new"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    output.write_file(pipe, "text")
    assert os.read(reader, 9) == b"text" and pipe.is_fifo()
    os.close(reader)


@pytest.mark.parametrize("words, said", [
    (["opt", "model.py"], "got 'model.py'; need FILE.graph."), (["show", ""], "got ''; need FILE.py"),
    (["show", "-c", "rand(2)", "--seed", "-1"], "'-1' is no integer from 0"),
    (["run", "-c", "-rand(2)"], "try: -c='-rand(3)'"), (["run", "-c", "rand(-1)"], "got [-1]; need 0 to"),
    (["run", "-c", "é + rand(1)"], "column 1: unknown name"),
])
def test_a_mistyped_command_says_what_it_got_and_what_would_do(
        words: list[str], said: str, capsys: pytest.CaptureFixture[str]):
    assert main(words) == 2 and said in capsys.readouterr().err


def test_a_graph_is_shown_without_room_for_its_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "large.graph"
    path.write_text("graph f(x: f32[90000,90000]) {\n  %0 = exp(x) : f32[90000,90000]\n  return %0\n}\n")
    assert main(["show", str(path), "--device", "gpu:h100"]) == 0
    assert "kernel exp" in capsys.readouterr().out
