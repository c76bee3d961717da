"""A systolic array, moved value by value, takes the cycles of the closed forms, and so does the MXU."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from systolic import output_stationary, weight_stationary

from minicc.tpu.cost import output_stationary_cycles, weight_stationary_cycles
from minicc.tpu.emulator import run
from minicc.tpu.machine import V5E
from minicc.tpu.text import parse
from minicc.tpu.units import Mxu

LINES = (Path(__file__).parent / "data" / "systolic_cycles.csv").read_text(encoding="utf-8").splitlines()
ROWS = [(row["dataflow"], int(row["m"]), int(row["k"]), int(row["n"]), int(row["cycles"]))
        for row in csv.DictReader(line for line in LINES if not line.startswith("#"))]


@pytest.mark.parametrize("sizes", [(7, 9, 5, 4, 3), (1, 4, 4, 4, 4), (5, 2, 3, 3, 2)])
def test_the_grid_computes_the_product_in_the_cycles_of_the_formula(sizes: tuple[int, ...]):
    m, k, n, rows, columns = sizes
    random = np.random.default_rng(0)
    x, w = random.normal(size=(m, k)), random.normal(size=(k, n))
    for simulate, formula in ((weight_stationary, weight_stationary_cycles),
                              (output_stationary, output_stationary_cycles)):
        y, cycles = simulate(x, w, rows, columns)
        assert np.allclose(y, x @ w)
        assert cycles == formula(m, k, n, rows, columns)


@pytest.mark.parametrize("dataflow, m, k, n, cycles", ROWS)
def test_the_formulas_are_exact_on_a_simulators_counts(dataflow: str, m: int, k: int, n: int, cycles: int):
    formula = {"ws": weight_stationary_cycles, "os": output_stationary_cycles}[dataflow]
    assert formula(m, k, n, 128, 128) == cycles


def _stream(unit: Mxu, m: int, folds: int) -> int:
    """Push weights and m rows per fold as soon as the unit allows. Returns: the cycle of the last result."""
    tile, last = np.zeros((8, 128), np.float32), 0
    for _ in range(folds):
        for _ in range(16):
            unit.push_weights(unit.ready("weights"), tile, "bf16")
        for start in range(0, m, 8):
            swap = start == 0
            while len(unit.results) >= 48:
                unit.pop()
            unit.push_rows(unit.ready("push", swap), tile[:min(8, m - start)], "bf16", swap)
            last = unit.results[-1][0]
    return last


@pytest.mark.parametrize("m, k, n, cycles", [row[1:] for row in ROWS if row[0] == "ws"])
def test_the_mxu_without_overlap_is_exact_on_every_weight_stationary_row(m: int, k: int, n: int, cycles: int):
    unit = Mxu("mxu0", V5E, overlap_weights=False)
    poppable = _stream(unit, m, (k // 128) * (n // 128))
    assert poppable - 1 == cycles  # a result leaves the array in the cycle before it can be popped


def test_with_overlap_512_cubed_approaches_the_ideal():
    folds, m = 16, 512
    overlapped = _stream(Mxu("mxu0", V5E), m, folds)
    assert overlapped == 128 + folds * m + 254  # first weights, rows without a gap, the last drains


@pytest.mark.parametrize("size", [128, 256])
def test_a_bundle_program_is_exact_too(size: int):
    """bf16, one MXU: from the issue of the first push of weights to that of the last pop."""
    cycles = {m: cycles for flow, m, k, n, cycles in ROWS if flow == "ws" and m == k == n}
    folds = (size // 128) ** 2
    weights = ["vmatpush.bf16.mxu0 v0"] * 8
    rows = ["vmatmul.bf16.mxu0 v0 swap", *["vmatmul.bf16.mxu0 v0"] * (size // 16 - 1)]
    pops = ["vpop.mrf.mxu0 v1"] * (size // 8)
    fold = [f"{{ {op} }}" for op in (*weights[1:], *rows, *pops[1:])]
    turn = f"{{ {pops[0]} ;; {weights[0]} }}"  # the last pop of a fold frees the array for the next one
    bundles = [f"{{ {weights[0]} }}", *([*fold, turn] * folds)[:-1], f"{{ {pops[0]} }}"]
    source = ["{ vsplat v0, 0.0 }", "{ }", ".kernel.array:", *bundles, ".kernel.rest:", "{ shalt }"]
    result = run(parse("\n".join(source)), {}, overlap_weights=False)
    # a result can be popped in the cycle after it left the array, and its pop is counted too
    assert result.kernel_cycles["array"] == cycles[size] + 2
