"""What we ship is what lies in the checkout, and the way there works on more than one machine."""

from __future__ import annotations

import ast
import configparser
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import house
import pytest

import minicc

SETUP = configparser.ConfigParser()
SETUP.read(house.ROOT / "setup.cfg", encoding="utf-8")
PROJECT = tomllib.loads((house.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_every_package_folder_is_listed_and_nothing_else():
    folders = {path.parent.relative_to(house.ROOT) for path in (house.ROOT / "minicc").rglob("__init__.py")}
    ours = {folder.as_posix().replace("/", ".") for folder in folders}
    assert set(SETUP["options"]["packages"].split()) == ours | {"minicc.viz", "minicc.lessons"}


def test_every_shipped_file_has_a_suffix_that_package_data_names():
    globs = SETUP["options.package_data"]["*"].replace(",", " ").split()
    shipped = [Path(name) for name in house.tracked() if name.split("/")[0] in house.OURS]
    assert {path.suffix for path in shipped} <= {Path(glob).suffix for glob in globs}


def test_viz_and_lessons_are_imported_under_our_name_wherever_one_stands(tmp_path: Path):
    for decoy in ("viz.py", "lessons.py"):
        (tmp_path / decoy).write_text("raise ImportError('the decoy was imported')", encoding="utf-8")
    script = "import minicc.viz, minicc.lessons; print(minicc.viz.__name__, minicc.lessons.__name__)"
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.stdout.split() == ["minicc.viz", "minicc.lessons"], ran.stderr


def test_the_version_is_a_plain_string_that_a_build_can_read_without_running_us():
    tree = ast.parse((house.ROOT / "minicc" / "__init__.py").read_text(encoding="utf-8"))
    values = [node.value for node in tree.body if isinstance(node, ast.Assign)
              if getattr(node.targets[0], "id", "") == "__version__"]
    assert [ast.literal_eval(value) for value in values] == [minicc.__version__]


def test_both_files_name_the_same_distribution_and_python():
    assert PROJECT["name"] == SETUP["metadata"]["name"] == "minicc-edu"
    asked = SETUP["options"]["python_requires"].replace(" ", "")
    assert PROJECT["requires-python"] == asked == ">=3.11"


def test_the_readme_names_only_targets_that_the_makefile_has():
    targets = set(re.findall(r"^(\w+):", (house.ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    readme = (house.ROOT / "README.md").read_text(encoding="utf-8")
    assert {"demo", "test"} <= set(re.findall(r"(?:^|`)make (\w+)", readme, re.MULTILINE)) <= targets


# ---- the search for a Python ----

WORKS, NO_VENV, TOO_OLD, STUB = "works", "no venv", "too old", "stub"
BEHAVIOUR = {
    WORKS: "case $2 in *print*) echo 3.12 ;; esac",
    NO_VENV: "case $2 in *print*) echo 3.12 ;; *ensurepip*) exit 1 ;; esac",
    TOO_OLD: "case $2 in *print*) echo 3.9 ;; *) exit 1 ;; esac",
    STUB: "echo 'not installed' >&2; exit 127",
}
SEARCHES = [
    ({"python3.13": STUB, "python3.12": WORKS, "python3": WORKS}, "python3.12", ""),
    ({"python3.14": WORKS, "python3.11": WORKS}, "python3.14", ""),
    ({"python3.12": NO_VENV, "python3": WORKS}, "python3", ""),
    ({"python3.12": NO_VENV}, "", "Run: sudo apt-get install python3.12-venv"),
    ({"python3": TOO_OLD}, "", "python3 is Python 3.9"),
    ({}, "", "needs Python 3.11 or newer; none was found"),
]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no sh; its commands are in the README")
@pytest.mark.parametrize("pythons, found, said", SEARCHES)
def test_make_finds_the_newest_python_that_works_or_says_what_to_run(
    pythons: dict[str, str], found: str, said: str, tmp_path: Path
):
    for name, behaviour in pythons.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{BEHAVIOUR[behaviour]}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    ran = subprocess.run(
        ["/bin/sh", house.ROOT / ".ci" / "find-python"],
        env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )
    assert ran.stdout.strip() == found and ran.returncode == (not found)
    assert said in ran.stderr and bool(ran.stderr) == (not found)
