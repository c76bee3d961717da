"""Adding an elementwise op takes one row in each of three files, and nothing else: this test adds one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import house

# file -> (how a row of the table there begins, the new row that goes before it)
ROWS = {
    "minicc/graph/elementwise.py": (
        '    "add": Elementwise(',
        '    "softsign": Elementwise(lambda x: x / (1 + abs(x)), "f", "{0} / (1 + fabsf({0}))"),\n'),
    "minicc/frontend/vjp.py": (
        '    "add": (',
        '    "softsign": (lambda s: s.g * (1.0 - abs(s.out)) * (1.0 - abs(s.out)),),\n'),
    "minicc/tpu/recipes.py": (
        '    "add": binary(',
        '    "softsign": lambda write, dtype, x: write.op("vmul.f32", x, transcendental("vrcp")(\n'
        '        write, dtype, write.op("vadd.f32", _abs(write, dtype, x), 1.0))),\n'),
}

USE = """
import numpy as np
import minicc as mc
from minicc.compiler import compile_graph
from minicc.frontend.ops import elementwise

softsign = elementwise("softsign")
x = np.linspace(-5, 5, 1001, dtype=np.float32)
wide = x.astype(np.float64)
value, slope = wide / (1 + abs(wide)), 1 / (1 + abs(wide)) ** 2

def both(x):
    return softsign(x), mc.grad(lambda x: softsign(x).sum())(x)

graph = mc.compile(both, mc.Tensor(x)).raw_graph
for device, mode in (("tpu", "vector"), ("gpu", "vector"), ("gpu", "lane")):
    for got, want in zip(compile_graph(graph, device, mode).run([x]), (value, slope)):
        assert abs(got - want).max() < 1e-6, (device, mode)
print("same everywhere")
"""


def test_a_new_elementwise_op_is_one_row_in_each_of_three_files(tmp_path: Path):
    shutil.copytree(house.ROOT / "minicc", tmp_path / "minicc", ignore=shutil.ignore_patterns("__pycache__"))
    for name, (before, row) in ROWS.items():
        path = tmp_path / name
        text = path.read_text(encoding="utf-8")
        assert text.count("\n" + before) == 1, f"{name} has no row `{before}`"
        path.write_text(text.replace("\n" + before, "\n" + row + before), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", USE], cwd=tmp_path, env=environment, capture_output=True,
                         text=True, check=False)
    assert (ran.stdout, ran.returncode) == ("same everywhere\n", 0), ran.stderr
