"""minicc profile says where cycles go, on machines as they are and as they might be."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from minicc.report import TPUProfile
from minicc.tools.commands import main
from minicc.tools.profile import Point, elasticity, verdict
from minicc.tpu.machine import V5E

DENSE = "relu(rand(256,256) @ rand(256,256))"


def profile(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(["profile", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def point(mxus: int, cycles: int) -> Point:
    """A machine that takes so many cycles of a v5e's clock."""
    return Point({"mxus": str(mxus)}, cast(TPUProfile, SimpleNamespace(cycles=cycles, spec=V5E)))


# ---- one machine ----

def test_without_a_sweep_every_cycle_has_a_cause(capsys: pytest.CaptureFixture[str]):
    code, out, _ = profile(["-c", DENSE, "--json"], capsys)
    row, = json.loads(out)
    assert code == 0 and sum(row["causes"].values()) == row["cycles"]
    assert row["hbm_bytes"] == 3 * 256 * 256 * 4  # two inputs and the output, each once


def test_without_values_the_cycles_are_the_same(capsys: pytest.CaptureFixture[str]):
    same = [profile(["-c", DENSE, *words], capsys)[1] for words in ([], ["--no-values"])]
    assert same[0] == same[1]


def test_a_gpu_counts_threads(capsys: pytest.CaptureFixture[str]):
    code, out, _ = profile(["-c", "rand(64) + 1.0", "--device", "gpu"], capsys)
    assert code == 0 and "emulated thread by thread" in out


def test_a_trace_lasts_as_long_as_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "trace.json"
    code, out, _ = profile(["-c", DENSE, "--trace", str(path), "--json"], capsys)
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    ends = max(event["ts"] + event["dur"] for event in events)
    assert code == 0 and ends * 1500 == pytest.approx(json.loads(out)[0]["cycles"])  # 1.5 GHz
    assert {event["tid"] for event in events} == set(range(len({event["tid"] for event in events})))


# ---- sweeps ----

def test_speed_that_a_number_brings_is_a_share_of_what_it_changes_by():
    assert elasticity(point(1, 800), point(2, 400), "mxus") == pytest.approx(1)  # twice is twice as fast
    assert elasticity(point(1, 800), point(4, 400), "mxus") == pytest.approx(0.5)  # four times is twice
    assert elasticity(point(4, 800), point(1, 400), "mxus") == pytest.approx(0.5)  # less can be better
    assert elasticity(point(2, 800), point(4, 800), "mxus") == 0
    assert elasticity(point(2, 800), point(2, 400), "mxus") is None


def test_a_number_stops_paying_where_twice_of_it_brings_less_than_a_fifth():
    steps = [point(1, 1000), point(2, 500), point(4, 420), point(8, 370)]  # 2.00, 1.19 and 1.14 times as fast
    assert verdict(steps, "mxus") == "mxus stops paying at 8: 1.14 times as fast as 4"
    assert verdict(steps[:3], "mxus") == "mxus pays all the way"
    refused = Point({"mxus": "2"}, None, "machine: why")
    assert verdict(steps[:1], "mxus") == verdict([steps[0], refused], "mxus") == (
        "mxus: no two machines to compare")


def test_a_table_has_a_line_for_each_machine(capsys: pytest.CaptureFixture[str]):
    code, out, _ = profile(["-c", DENSE, "--sweep", "mxus=1,2"], capsys)
    title, columns, one, two, said = out.splitlines()
    assert code == 0 and "emulated" in title and columns.split()[:3] == ["mxus", "cycles", "us"]
    assert int(two.split()[1]) < int(one.split()[1]) and "mxu" in one and said.startswith("mxus")


def test_a_number_that_programs_do_not_feel_pays_nothing(capsys: pytest.CaptureFixture[str]):
    _, out, _ = profile(["-c", DENSE, "--sweep", "ici_gb_per_s=45,90"], capsys)
    assert out.splitlines()[-1] == "ici_gb_per_s stops paying at 90: 1.00 times as fast as 45"


def test_with_one_vector_slot_vector_work_is_the_bound(capsys: pytest.CaptureFixture[str]):
    _, out, _ = profile(["-c", "softmax(rand(512,512))", "--sweep", "vector_slots=1", "--json"], capsys)
    row, = json.loads(out)
    assert row["bound"].startswith("vector") and row["causes"]["vector"] > row["cycles"] / 2


def test_twice_the_clock_at_the_same_cycles_is_half_the_time(capsys: pytest.CaptureFixture[str]):
    """With HBM's bandwidth in bytes per cycle held, nothing but the clock changes."""
    times = []
    for clock, bandwidth in (("1.5", "819"), ("3", "1638")):
        words = ["--sweep", f"clock_ghz={clock}", "--sweep", f"hbm_gb_per_s={bandwidth}", "--json"]
        times += [row["us"] for row in json.loads(profile(["-c", DENSE, *words], capsys)[1])]
    assert times[0] == pytest.approx(2 * times[1])


def test_a_machine_that_cannot_be_driven_says_why_and_the_others_stay(capsys: pytest.CaptureFixture[str]):
    code, out, _ = profile(["-c", DENSE, "--sweep", "mxu_side=128,512"], capsys)
    assert code == 0 and "512       machine: emulated arrays are 128 x 128" in out
    _, out, _ = profile(["-c", DENSE, "--sweep", "mxu_side=128,512", "--sweep", "mxus=4"], capsys)
    assert "does not compile" in out and out.splitlines()[-1].startswith("machine: emulated arrays")


def test_two_numbers_make_a_grid(capsys: pytest.CaptureFixture[str]):
    words = ["-c", DENSE, "--sweep", "mxus=1,4", "--sweep", "hbm_gb_per_s=50,819,3200"]
    code, out, _ = profile(words, capsys)
    lines = out.splitlines()
    assert code == 0 and lines[1].split()[-3:] == ["50", "819", "3200"]
    assert [line.split()[0] for line in lines[2:4]] == ["1", "4"] and lines[2].count("%") == 3
    rows = json.loads(profile([*words, "--json"], capsys)[1])
    assert [(row["mxus"], row["hbm_gb_per_s"]) for row in rows][:4] == [
        ("1", "50"), ("1", "819"), ("1", "3200"), ("4", "50")]
    assert next(row["bound"] for row in rows if row["mxus"] == "4").startswith("hbm")  # 0.8 MB at 50 GB/s
    assert rows[1]["bound"].startswith("mxu")  # 6 passes through one array


@pytest.mark.parametrize("suffix, begins", [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_a_chart_shows_each_machine(
    suffix: str, begins: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / f"sweep.{suffix}"
    code, out, _ = profile(["-c", DENSE, "--sweep", "mxus=1,2", "--chart", str(path)], capsys)
    drawn = path.read_bytes()
    assert code == 0 and str(path) in out and drawn.startswith(begins)
    assert suffix == "png" or all(word in drawn for word in (b">mxus 1<", b">mxus 2<", b">dma<", b">us<"))


# ---- bad input ----

@pytest.mark.parametrize("words, said", [
    (["--sweep", "mxu=1"], "a TPU has no such number. got mxu"),
    (["--sweep", "mxus"], "no values. got 'mxus'"),
    (["--sweep", "mxus=1,many"], "mxus is no int. got 'many'"), (["--sweep", "mxus=0"], "mxus is too small"),
    (["--sweep", "mxus=1", "--sweep", "xlus=1", "--sweep", "cores=1"], "a table has two sides"),
    (["--sweep", "mxus=1", "--device", "gpu"], "only a TPU is swept"),
    (["--chart", "a.svg"], "a chart is of a sweep"),
    (["--sweep", "mxus=1", "--chart", "a.pdf"], "need FILE.svg or FILE.png"),
    (["--sweep", "mxus=1", "--trace", "a.json"], "a trace is of one machine"),
    (["--trace", "no/such/folder/a.json"], "cannot write no/such/folder/a.json"),
    (["--trace", "a.json", "--device", "gpu"], "a trace is of one program on a TPU"),
])
def test_bad_input_is_one_error(words: list[str], said: str, capsys: pytest.CaptureFixture[str]):
    code, out, err = profile(["-c", DENSE, *words], capsys)
    assert (code, out, err.count("error:")) == (2, "", 1) and said in err
