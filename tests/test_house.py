"""The house rules hold, and each rule is shown to catch what it forbids."""

from __future__ import annotations

from collections.abc import Callable

import house
import pytest
from house import Source


def report(found: list[str]) -> None:
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("rule", house.OURS_ONLY, ids=lambda rule: rule.__name__)
def test_no_shipped_file_breaks(rule: Callable[[Source], list[str]]):
    report([line for source in house.sources(*house.OURS) for line in rule(source)])


@pytest.mark.parametrize("rule", house.EVERYWHERE, ids=lambda rule: rule.__name__)
def test_no_file_at_all_breaks(rule: Callable[[Source], list[str]]):
    report([line for source in house.sources(*house.OURS, "tests") for line in rule(source)])


def test_no_tracked_file_names_a_folder_of_one_machine():
    report([line for name, text in house.tracked_texts() for line in house.machine_paths(name, text)])


@pytest.mark.parametrize("part", range(3), ids=["compiler", "frontend", "tools"])
def test_each_part_stays_within_its_lines_of_code(part: int):
    _, code, most = house.totals()[part]
    assert code <= most, f"{code - most} lines of code over\n{house.show_table()}"


WRONG_IMPORTS = [
    ("minicc/graph/ir.py", "import minicc.kernel.ir"),            # up the house
    ("minicc/graph/ir.py", "from ..kernel import ir"),
    ("minicc/graph/ir.py", "from .. import compiler"),
    ("minicc/frontend/tensor.py", "from minicc.tpu.isa import Program"),
    ("minicc/kernel/fuse.py", "from minicc.tpu import machine"),  # machines are passed in
    ("minicc/tpu/lower.py", "from minicc.gpu.ir import Program"),
    ("minicc/errors.py", "from . import trace"),
    ("minicc/compiler.py", "import minicc.viz"),
    ("minicc/compiler.py", "from minicc.tools import commands"),
    ("minicc/graph/ir.py", "import scipy"),
    ("minicc/somewhere/new.py", "import numpy"),                  # a room that the table does not know
    ("viz/draw.py", "import viz.colours"),                        # it is called minicc.viz
    ("lessons/run.py", "from lessons import key"),
]
RIGHT_IMPORTS = [
    ("minicc/graph/ir.py", "from . import infer\nfrom ..errors import CompileError\nimport numpy as np, os"),
    ("minicc/tpu/lower.py", "from minicc.kernel.ir import Kernel"),
    ("minicc/compiler.py", "from minicc import frontend, graph, kernel, tpu, gpu"),
    ("minicc/tools/commands.py", "import minicc as mc\nfrom minicc.compiler import Compiled"),
    ("viz/draw.py", "import graphviz\nfrom minicc.graph.ir import Graph"),
]


@pytest.mark.parametrize("path, text", WRONG_IMPORTS)
def test_a_wrong_import_is_caught(path: str, text: str):
    assert len(house.wrong_imports(Source(path, text))) == 1


@pytest.mark.parametrize("path, text", RIGHT_IMPORTS)
def test_a_right_import_is_let_through(path: str, text: str):
    assert house.wrong_imports(Source(path, text)) == []


def test_imports_hidden_in_functions_stars_and_strings_are_caught():
    text = "from os import *\ndef f():\n    import re\nwhere = 'minicc.viz'\n"
    assert len(house.hidden_imports(Source("minicc/graph/ir.py", text))) == 3
    assert house.hidden_imports(Source(house.DOOR, "where = 'minicc.viz'")) == []


def test_only_code_counts_as_lines_of_code():
    text = '"""Doc,\nlong."""\n\nimport os  # on\n# why\n\ndef f():\n    """Doc."""\n    return """a\nb"""\n'
    assert house.code_lines(Source("a.py", text)) == 4  # import, def, and the two lines of the string


def test_nesting_counts_blocks_but_not_elif_nor_a_function_inside():
    text = "def f(a):\n for b in a:\n  if b: pass\n  elif a:\n   with a: pass\n  def g():\n   while a: pass\n"
    function = next(Source("a.py", text).functions())
    assert house.nesting(function) == 3  # for, if, with


def test_what_is_too_long_is_named_with_how_much():
    long = Source("a.py", "def f():\n" + "    x = 1\n" * 400 + "y" * 113)
    assert house.long_files(long) == ["a.py: 402 lines, 2 over"]
    assert house.long_lines(long) == ["a.py:402: 113 columns, 3 over"]
    assert house.long_functions(long) == ["a.py:1: f has 401 lines, 356 over"]


def test_a_public_function_without_types_is_named_and_a_private_one_is_left_alone():
    text = "class A:\n def f(self, x, *rest: int): pass\n def _g(self, x): pass\ndef h(x: int) -> int: pass\n"
    assert house.unannotated(Source("a.py", text)) == ["a.py:2: f leaves x, its result without a type"]


@pytest.mark.parametrize("folder", ["/wo" + "rk/main", "/ro" + "ot/x", "C:\\" + "Users\\me"])
def test_a_path_of_one_machine_is_caught(folder: str):
    assert house.machine_paths("a.md", f"one\nsee {folder}") and not house.machine_paths("a.md", "src/tmp/x")
