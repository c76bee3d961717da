"""Each idea of the compiler is worth what the ladder says: every rung is right, and none is a step down."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from minicc.tools.bench import Adapter
from minicc.tools.commands import main
from minicc.tools.ladder import RUNGS, climb, draw, op_by_op, table
from minicc.tools.workloads import WORKLOADS, Workload, make_rows, run_softmax

SMALL = {
    "matmul": WORKLOADS["d_matmul_256"]._replace(sizes={"n": 160}),
    "softmax": Workload(make_rows, run_softmax, {"r": 200, "c": 300}),
    "attention": WORKLOADS["e_attention_512x64"]._replace(sizes={"t": 160, "dh": 40}),
    "gpt block": WORKLOADS["g_gpt_fwd"]._replace(sizes={"b": 1, "t": 24, "d": 64}),
}


@pytest.fixture(scope="module")
def ladders():
    return {name: list(climb(name, workload, Adapter, "tpu")) for name, workload in SMALL.items()}


@pytest.mark.parametrize("name", SMALL)
def test_every_rung_is_right_and_none_is_a_step_down(ladders, name: str):
    steps = ladders[name]
    assert [step.rung for step in steps] == [rung.name for rung in RUNGS]
    assert all(step.off < 3e-6 for step in steps)
    assert all(above.profile.cycles <= below.profile.cycles for below, above in pairwise(steps))
    assert all(step.profile.least.cycles <= step.profile.cycles for step in steps)


def test_each_idea_helps_where_it_should(ladders):
    cycles = {name: {step.rung: step.profile.cycles for step in steps} for name, steps in ladders.items()}
    assert cycles["softmax"]["naive"] > 1.5 * cycles["softmax"]["fused"]  # five kernels, five round trips
    assert cycles["matmul"]["fused"] > 3 * cycles["matmul"]["tiled"]  # 8 rows do not fill an array
    assert cycles["gpt block"]["tiled"] > cycles["gpt block"]["pipelined"]  # copies for the next kernel
    assert cycles["softmax"]["pipelined"] > 1.5 * cycles["softmax"]["scheduled"]  # four vector slots


def test_the_naive_rung_has_a_kernel_for_each_op(ladders):
    assert ladders["softmax"][0].kernels == 5  # max, subtract, exp, sum, divide
    assert ladders["softmax"][1].kernels == 1
    assert op_by_op is RUNGS[0].passes["fuse"]


def test_a_table_and_a_picture_show_every_rung(ladders, tmp_path: Path):
    text = "\n".join(table(ladders["softmax"]))
    assert all(rung.name in text for rung in RUNGS)
    drawn = draw(ladders["softmax"], tmp_path / "ladder.svg").read_text()
    assert all(f"{step.rung} {step.profile.cycles:,}<" in drawn for step in ladders["softmax"])


def test_the_command_prints_a_row_for_each_rung(capsys: pytest.CaptureFixture[str]):
    assert main(["bench", "--ladder", "tpu", "--tiny", "--only", "softmax", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["rung"] for row in rows] == [rung.name for rung in RUNGS]


@pytest.mark.parametrize("words, said", [
    (["--ladder", "gpu"], "a ladder is climbed on a TPU"),
    (["--ladder", "tpu", "--chart", "x.svg"], "a chart is a picture of one ladder"),
    (["--ladder", "tpu", "--only", "d_matmul_256", "--chart", "x.txt"], "a chart is a picture of one ladder"),
])
def test_bad_input_is_one_error(words: list[str], said: str, capsys: pytest.CaptureFixture[str]):
    assert main(["bench", *words]) == 2
    assert said in capsys.readouterr().err
