"""Each file of golden/ runs a command on itself and checks what is printed, as LLVM's lit and FileCheck do.

    # RUN: opt %s --passes simplify           the command, after `minicc`; %s is this file
    # CHECK: return x                         a line further down that holds this text
    # CHECK-NEXT: }                           the line right after the last one found
    # CHECK-NOT: multiply                     on no line up to the next one that is found, or the end

Runs of blanks count as one; {{...}} is a regular expression. The files are to be read: what a rule is for,
what goes in, what comes out.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from minicc.tools.commands import main

GOLDEN = Path(__file__).parent / "golden"
FILES = sorted(GOLDEN.glob("*.graph"))
DIRECTIVE = re.compile(r"^\s*(?:#|//)\s*(RUN|CHECK(?:-NEXT|-NOT)?):\s*(.*?)\s*$", re.MULTILINE)


def matches(wanted: str, line: str) -> bool:
    """Whether the line holds the text, in which {{...}} is a regular expression."""
    parts = re.split(r"\{\{(.*?)\}\}", " ".join(wanted.split()))
    pattern = "".join(part if i % 2 else re.escape(part) for i, part in enumerate(parts))
    return re.search(pattern, " ".join(line.split())) is not None


def complaint(checks: list[tuple[str, str]], printed: str) -> str:
    """The first check that fails, or nothing."""
    lines, at, unwanted = printed.splitlines(), -1, list[str]()
    for kind, wanted in [*checks, ("END", "")]:
        if kind == "CHECK-NOT":
            unwanted.append(wanted)
            continue
        after = range(at + 1, len(lines))
        found = len(lines) if kind == "END" else next((i for i in after if matches(wanted, lines[i])), None)
        if found is None or (kind == "CHECK-NEXT" and found != at + 1):
            return f"{kind}: {wanted}"
        for line in lines[at + 1:found]:
            if bad := [text for text in unwanted if matches(text, line)]:
                return f"CHECK-NOT: {bad[0]}, but there is: {line.strip()}"
        at, unwanted = found, []
    return ""


def run(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What is wrong with a file, with what its command printed."""
    found = DIRECTIVE.findall(path.read_text(encoding="utf-8"))
    commands, checks = ([pair for pair in found if (pair[0] == "RUN") == wanted] for wanted in (True, False))
    assert len(commands) == 1 and checks, "one RUN line, and CHECK lines"
    code = main([str(path) if word == "%s" else word for word in commands[0][1].split()])
    out, err = capsys.readouterr()
    wrong = complaint(checks, out) if code == 0 else f"exit code {code}"
    return wrong and f"{path.name}: {wrong}\n{out}{err}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_golden_file_prints_what_it_says(path: Path, capsys: pytest.CaptureFixture[str]):
    wrong = run(path, capsys)
    assert not wrong, wrong


@pytest.mark.parametrize("checks, wrong", [
    ([("CHECK", "b  2"), ("CHECK-NEXT", "c")], ""), ([("CHECK", "c"), ("CHECK", "a")], "CHECK: a"),
    ([("CHECK", "a"), ("CHECK-NEXT", "c")], "CHECK-NEXT: c"), ([("CHECK", "b {{[0-9]+}}")], ""),
    ([("CHECK", "a"), ("CHECK-NOT", "b"), ("CHECK", "c")], "CHECK-NOT: b, but there is: b 2"),
    ([("CHECK", "c"), ("CHECK-NOT", "b")], ""), ([("CHECK-NOT", "c")], "CHECK-NOT: c, but there is: c"),
])
def test_the_checker_itself_finds_what_is_wrong(checks, wrong):
    assert complaint(checks, "a\n b 2\nc") == wrong
