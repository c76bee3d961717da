"""The machines reproduce published numbers: exactly, or as closely as the table of the oracles demands."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from minicc.tools import oracles
from minicc.tools.commands import main
from minicc.tpu import cost
from minicc.tpu.machine import SPECS, V4, V5E

DATA = Path(__file__).parent / "data"


def named(rows) -> dict[str, oracles.Row]:
    return {row.what: row for row in rows}


def table(name: str) -> list[dict[str, str]]:
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


# ---- the tables are the published ones ----

def test_the_systolic_rows_are_those_of_the_simulator():
    read = {(r["dataflow"], int(r["m"]), int(r["k"]), int(r["n"])): int(r["cycles"])
            for r in table("systolic_cycles.csv")}
    assert read == oracles.SYSTOLIC


def test_the_rows_of_the_first_tpu_are_those_of_its_paper():
    read = {r["row"]: r for r in table("tpuv1_table3.csv")}
    wanted = ("batch", "non_matrix_percent", "array_active_percent", "weight_stall_percent",
              "weight_shift_percent")
    for name, (batch, _, *percents) in oracles.TPUV1.items():
        assert [batch, *percents] == [float(read[key][name]) for key in wanted]


def test_16_bit_operands_run_at_half_speed_in_the_paper_too():
    """Useful work is the active part where the mode is full speed, its TOPS are of 92; LSTM0 does half."""
    read = {r["row"]: r for r in table("tpuv1_table3.csv")}
    for name, (_, passes, *_) in oracles.TPUV1.items():
        done = float(read["tops"][name]) / 92 / (float(read["useful_macs_percent"][name]) / 100)
        assert done == pytest.approx(1 / passes, rel=0.13)


# ---- each oracle ----

def test_a_systolic_array_takes_the_simulators_cycles_exactly():
    small = [row for row in oracles.SYSTOLIC if max(row[1:]) < 4000]
    for flow, m, k, n in small:
        forms = {"ws": oracles.unit_cycles, "os": lambda *mkn: cost.output_stationary_cycles(*mkn, 128, 128)}
        assert forms[flow](m, k, n) == oracles.SYSTOLIC[flow, m, k, n]


def test_b_the_first_tpu_waits_for_weights_as_its_paper_says():
    rows = list(oracles.tpuv1_rows())
    assert len(rows) == 12 and all(abs(row.ours - row.published) <= 2.5 for row in rows)
    assert cost.V1.mxu_side**2 / cost.V1.hbm_bytes_per_cycle == pytest.approx(1349, abs=0.5)  # cycles a tile
    assert cost.V1.peak_int8_tops == pytest.approx(92, rel=0.005)


def test_b_a_batch_that_covers_the_fetch_never_stalls():
    shares = cost.weight_fetch_shares(cost.V1, rows=2000)  # 2000 + 256 cycles, more than 1349
    assert shares["stall"] == 0 and shares["active"] == pytest.approx(2000 / 2256)


def test_c_v5e_matmuls_take_the_published_times_within_10_percent():
    rows = list(oracles.matmul_rows())
    held = [row for row in rows if not row.what.startswith("1024")]
    assert len(held) == 6 and all(abs(row.ours / row.published - 1) <= 0.1 for row in held)
    fitted = {row.what.split()[-1] for row in rows if row.kind == "fitted"}
    assert fitted == {"128x128x128"}  # nothing was fitted to larger tiles or to XLA's


def test_c_the_emulator_takes_the_published_times_within_10_percent():
    rows = oracles.emulated_rows()
    for row, published in zip(rows, (0.1271, 0.8891), strict=False):  # ms of 1024^3, 4096^3
        assert row.kind == "held out" and row.ours == pytest.approx(published, rel=0.1)


@pytest.mark.parametrize("what, unit, published", [  # the scaling book; the Pallas guide for the f32 one
    ("v5e: bf16 ridge", "FLOP/B", 240), ("v5e: int8 x int8, batch", "", 243),
    ("v5e: bf16 x int8, batch", "", 120), ("v5e: square of f32 in one pass, side", "", 1440),
    ("v5e: int8[B,4096] x [4096,16384], B, HBM", "", 271), ("v5e: the same from VMEM", "", 11),
    ("v5e 4x4: corner to corner, first byte", "us", 6), ("v5e 4x4: bf16[8,128,8192] so, all", "us", 194),
    ("v5e 8x4: all-gather y of 2048x8192, ring", "us", 377), ("v5e 8x4: the same, not closed", "us", 560),
    ("v4 4x4x4: all-gather x of [1024_x,4096_y]", "us", 23), ("v4 4x4x4: all-gather x and y", "us", 46),
    ("v4 4x4x4: all-reduce z of [1024,4096]", "us", 190),
    ("v4 4x4x4: the same of [1024_x,4096_y]", "us", 11.6),
])
def test_d_what_people_work_out_on_paper_comes_out_within_5_percent(what: str, unit: str, published: float):
    row = named(oracles.ridge_rows())[what]
    assert (row.unit, row.published) == (unit, published) and row.ours == pytest.approx(published, rel=0.05)


def test_d_short_messages_cost_hops_not_bytes():
    assert cost.all_gather_us(V4, 256, 4, ring=True) == 2.0  # two hops of 1 us, either way round
    assert cost.all_gather_us(V5E, 256, 4, ring=False) == 3.0


def test_a_v6e_has_twice_the_ridge_of_a_v5e_per_byte():
    assert cost.ridge(SPECS["v6e"]) == pytest.approx(918e12 / 1638e9, rel=0.005)  # the vendor's two numbers


# ---- the command ----

def test_the_bench_prints_each_row_and_fails_if_one_is_off(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert main(["bench", "--oracles", "--only", "b", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 12 and all(row["right"] and row["kind"] == "held out" for row in rows)
    monkeypatch.setitem(oracles.TPUV1, "MLP0", (100, 1, 17.5, 12.7, 53.9, 15.9))  # half of the batch
    assert main(["bench", "--oracles", "--only", "b"]) == 1
    assert "MLP0 active" in (out := capsys.readouterr().out) and "OFF" in out


def test_no_such_oracle_is_one_error(capsys: pytest.CaptureFixture[str]):
    assert main(["bench", "--oracles", "--only", "z"]) == 2
    assert "need a, b, c, d or e" in capsys.readouterr().err
