"""What the documents and docstrings show is what happens."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import house
import pytest

from minicc.lessons import pages as docs

DOCUMENTS = ["README.md", "CONTRIBUTING.md"]
# viz and lessons are imported as minicc.viz and minicc.lessons.
MODULES = [
    ("" if source.path.startswith(("minicc", "tests")) else "minicc.")
    + source.path.removesuffix(".py").removesuffix("/__init__").removeprefix("tests/").replace("/", ".")
    for source in [*house.sources(*house.OURS), house.source("tests/house.py")]
    if ">>> " in source.text
]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_block_prints_what_its_document_says(
    document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)  # what a block writes must not land in the checkout
    wrong = docs.check(house.ROOT / document)
    assert not wrong, "\n\n".join(f"{document} {mismatch}" for mismatch in wrong)


@pytest.mark.parametrize("name", MODULES)
def test_every_doctest_holds(name: str):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0 and result.failed == 0


def checked(tmp_path: Path, text: str) -> list[docs.Mismatch]:
    path = tmp_path / "lesson.md"
    path.write_text(text, encoding="utf-8")
    return docs.check(path)


def test_a_document_that_says_something_else_is_caught_at_its_line(tmp_path: Path):
    (wrong,) = checked(tmp_path, "# A lesson\n\n```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n")
    assert (wrong.line, wrong.said, wrong.printed) == (8, "3\n", "2\n")


def test_a_block_that_prints_without_saying_what_is_caught(tmp_path: Path):
    assert checked(tmp_path, "```python\nprint(2)\n```\nand so on\n\n```text\n2\n```\n")
    assert checked(tmp_path, "```python\nprint(2)\n```\n")


def test_blocks_share_one_namespace_and_errors_name_the_documents_line(tmp_path: Path):
    assert not checked(tmp_path, "```python\nx = 2\n```\n\n```python\nprint(x)\n```\n\n```text\n2\n```\n")
    with pytest.raises(ZeroDivisionError) as error:
        checked(tmp_path, "one\n\n```python\n1 / 0\n```\n")
    assert error.traceback[-1].lineno + 1 == 4


def test_a_console_block_runs_each_command_and_compares_its_output(tmp_path: Path):
    command = "$ python -c 'print(6 * 7)'"
    assert not checked(tmp_path, f"```console\n{command}\n42\n{command}\n4...\n```\n")
    (wrong,) = checked(tmp_path, f"```console\n{command}\n42\n{command}\n43\n```\n")
    assert (wrong.line, wrong.said, wrong.printed) == (4, "43\n", "42\n")
