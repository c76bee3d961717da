"""Runs the blocks of a page, and compares what they print with what the page says they print.

    a page                              what is checked
    ```python  ... ```                  runs, after the page's earlier blocks, in one namespace
    ```text    ... ``` right below it   equals what that block printed, line by line
    ```console ... ```                  runs each `$ minicc ...` and `$ python ...`; its output is below it
    ![...](graph.svg)                   a picture that a block drew with picture(..., "graph")

Goes in: a Markdown file. Comes out: its mismatches, the page as it would read today, or a notebook. A line
`...` stands for any lines, and `...` within a line for any text, as in doctest: times vary between
machines. A block that prints must show what, so that no reader has to guess. Commands that only instruct
(`make test`) stand in `sh` blocks, which are not run here. rustdoc and Elixir run documents the same way.
Read next: pictures.py.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FENCE = re.compile(r"^(`{3,})(\w*)\s*$")
RUNNABLE = {"minicc": ["-m", "minicc"], "python": []}
LIMIT_SECONDS = 120


@dataclass(frozen=True)
class Block:
    """One fenced block; `line` is its first line of text, `follows` if only blank lines lie before it."""

    language: str
    text: str
    line: int
    follows: bool


@dataclass(frozen=True)
class Mismatch:
    """A block that did not print what its page says; `line` is where the page says it."""

    line: int
    said: str
    printed: str

    def __str__(self) -> str:
        return f"line {self.line} says\n{self.said}\nbut it prints\n{self.printed}"


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a Markdown text, in order.

    >>> [block.language for block in blocks("```python\\n1\\n```\\n\\n```text\\n1\\n```\\n")]
    ['python', 'text']
    """
    lines, number, follows = text.splitlines(), 0, False
    while number < len(lines):
        opening = FENCE.match(lines[number])
        if opening is None:
            follows = follows and not lines[number].strip()
            number += 1
            continue
        first = number + 1
        number = next(n for n in range(first, len(lines)) if lines[n].rstrip() == opening[1])
        yield Block(opening[2], "\n".join(lines[first:number]) + "\n", first + 1, follows)
        number, follows = number + 1, True


def same(said: str, printed: str) -> bool:
    """Whether the page's text stands for what was printed.

    >>> same("a\\n...\\nd 1... ms", "a\\nb\\nc\\nd 17 ms\\n")
    True
    """
    return doctest.OutputChecker().check_output(_trimmed(said), _trimmed(printed), doctest.ELLIPSIS)


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n"


def check(path: Path) -> list[Mismatch]:
    """Run the blocks of one page; the mismatches, in order. What a block raises goes up."""
    names: dict[str, object] = {"__name__": "__main__"}
    wrong: list[Mismatch] = []
    found = list(blocks(path.read_text(encoding="utf-8")))
    for block, after in itertools.zip_longest(found, found[1:]):
        if block.language == "console":
            wrong += check_console(block)
        elif block.language == "python":
            printed = printed_by(block, path, names)
            shown = after if after and after.follows and after.language == "text" else None
            said, line = (shown.text, shown.line) if shown else ("", block.line)
            wrong += [] if same(said, printed) else [Mismatch(line, said, printed)]
    return wrong


def refreshed(path: Path) -> str:
    """The page, with what its Python blocks print today wherever it says something else."""
    names: dict[str, object] = {"__name__": "__main__"}
    text = path.read_text(encoding="utf-8")
    lines, found = text.splitlines(), list(blocks(text))
    edits: list[tuple[int, int, list[str]]] = []
    for block, after in itertools.zip_longest(found, found[1:]):
        if block.language != "python":
            continue
        printed = _trimmed(printed_by(block, path, names))
        said = re.sub(rf"{re.escape(path.name)}:\d+", f"{path.name}:...", printed).splitlines()
        if after and after.follows and after.language == "text":
            if not same(after.text, printed):
                edits.append((after.line - 1, after.line - 1 + after.text.count("\n"), said))
        elif printed.strip():
            end = block.line + block.text.count("\n")
            edits.append((end, end, ["", "```text", *said, "```"]))
    for first, last, said in reversed(edits):
        lines[first:last] = said
    return "\n".join(lines) + "\n"


def printed_by(block: Block, path: Path, names: dict[str, object]) -> str:
    """Run one Python block as lines of its page, so that an error or a `loc` points into the page."""
    code = compile("\n" * (block.line - 1) + block.text, str(path), "exec")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, names)
    return printed.getvalue()


def check_console(block: Block) -> list[Mismatch]:
    """Run each command of a console block, without a shell, and compare its output."""
    wrong = []
    for part in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE):
        program, *arguments = shlex.split(part[1], comments=True)
        command = [sys.executable, *RUNNABLE[program], *arguments]
        ran = subprocess.run(
            command, capture_output=True, text=True, encoding="utf-8", timeout=LIMIT_SECONDS, check=False,
            env=os.environ | {"PYTHONIOENCODING": "utf-8"},
        )
        if not same(part[2], printed := ran.stdout + ran.stderr):
            line = block.line + block.text[: part.start()].count("\n")
            wrong.append(Mismatch(line, part[2], printed))
    return wrong


def notebook(text: str) -> str:
    """A page as a Jupyter notebook: Python blocks are cells to run, with what they print below them."""
    cells: list[dict[str, Any]] = []
    lines, done = text.splitlines(keepends=True), 0
    for block in blocks(text):
        last = block.line - 1 + block.text.count("\n")  # the closing fence, counted from 0
        output = block.language == "text" and block.follows and cells and cells[-1]["cell_type"] == "code"
        if not output and block.language != "python":
            continue
        _add_words(cells, lines[done: block.line - 2])
        done = last + 1
        if output:
            cells[-1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": block.text}]
        else:
            cells.append({"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [],
                          "source": block.text.rstrip("\n")})
    _add_words(cells, lines[done:])
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1) + "\n"


def _add_words(cells: list[dict[str, Any]], lines: list[str]) -> None:
    if words := "".join(lines).strip():
        cells.append({"cell_type": "markdown", "metadata": {}, "source": words})


def dedented(code: str) -> str:
    """Code without its common indent and its blank ends."""
    return textwrap.dedent(code).strip("\n")
