"""The bench measures the programs it says, checks what they compute, and knows the least they could cost."""

from __future__ import annotations

import json

import numpy as np
import pytest

from minicc.tools import bench
from minicc.tools.bench import Adapter
from minicc.tools.by_hand import BY_HAND, by_hand
from minicc.tools.commands import main
from minicc.tools.workloads import TINY, WORKLOADS, Workload, run_gpt_train, run_mlp_train

TITLES = ["workload", "device", "kernels", "compile_ms", "run_ms", "numpy_ms", "ratio", "max_abs_err"]
ON_A_TPU = ["cycles", "bound_cycles", "hbm_bytes", "emulate_ms"]


def made(workload: Workload, dtype: type = np.float64):
    made = workload.make(np.random.default_rng(0), **workload.sizes)
    return [[array.astype(dtype) for array in arrays] for arrays in made]


# ---- the programs ----

@pytest.mark.parametrize("name, loss", [("f_mlp_train", 3.0672574), ("g_gpt_train", 2.0191998)])
def test_a_training_step_starts_from_the_loss_that_others_report(name: str, loss: float):
    assert by_hand(WORKLOADS[name])(*made(WORKLOADS[name]))[0] == pytest.approx(loss, abs=1e-5)


@pytest.mark.parametrize("run, name, sizes", [
    (run_mlp_train, "f_mlp_train", {"b": 3, "dims": (5, 4, 3)}),
    (run_gpt_train, "g_gpt_train", {"b": 2, "t": 5, "d": 16}),
])
def test_the_gradients_by_hand_are_central_differences(run, name: str, sizes: dict):
    params, data = made(Workload(WORKLOADS[name].make, run, sizes))
    direction = [np.random.default_rng(1).standard_normal(p.shape) for p in params]
    moved = [[p + step * u for p, u in zip(params, direction, strict=True)] for step in (1e-6, -1e-6)]
    there, back = (BY_HAND[run](each, data)[0] for each in moved)
    _, *stepped = BY_HAND[run](params, data)
    along = sum(((p - q) / 0.01 * u).sum() for p, q, u in zip(params, stepped, direction, strict=True))
    assert along == pytest.approx((there - back) / 2e-6, rel=1e-6)


@pytest.mark.parametrize("name", [*TINY, "d_matmul_256", "i_llama_decode"])
def test_minicc_computes_what_numpy_does_in_float64(name: str):
    row = bench.measure({**TINY, **WORKLOADS}[name], "gpu", repeat=1)
    assert row["right"] and row["error"] < 3e-6 and row["max_abs_err"] > 0


def test_the_adapter_runs_eagerly_too():
    tiny = TINY["mlp_train_tiny"]
    params, data = ([Adapter.tensor(array) for array in arrays] for arrays in made(tiny, np.float32))
    outputs = Adapter.force(run_mlp_train(Adapter, params, data))
    want = by_hand(tiny)(*made(tiny))
    for ours, right in zip(outputs, want, strict=True):
        assert np.abs(Adapter.to_numpy(ours) - right).max() <= 3e-6 * np.abs(right).max()


# ---- the machine's bound ----

def test_on_a_tpu_cycles_stand_beside_the_least_of_any_program():
    moved = bench.measure(TINY["softmax_16"], "tpu:v5e", repeat=1)
    begins, per_cycle = 385, 819e9 / 1.5e9  # cycles; bytes: the v5e's published bandwidth and clock
    assert moved["bound_cycles"] == round(begins + 16 * 16 * 4 / per_cycle + begins) < moved["cycles"]
    assert moved["hbm_bytes"] == 2 * 16 * 16 * 4


def test_in_bf16_answers_are_right_within_its_rounding_and_products_are_faster(
        capsys: pytest.CaptureFixture[str]):
    rows = {}
    for precision in ("f32", "bf16"):
        words = ["--tiny", "--only", "matmul_64", "--device", "tpu", "--repeat", "1", "--json"]
        assert main(["bench", *words, "--precision", precision]) == 0
        rows[precision], = json.loads(capsys.readouterr().out)
    assert rows["f32"]["error"] < 1e-6 < 2**-10 < rows["bf16"]["error"] < 2**-7  # 8 bits of a fraction
    assert rows["bf16"]["cycles"] < rows["f32"]["cycles"]


# ---- the command ----

def test_json_has_every_key_and_a_tpu_more(capsys: pytest.CaptureFixture[str]):
    assert main(["bench", "--tiny", "--only", "matmul_16", "--repeat", "1", "--json"]) == 0
    gpu, = json.loads(capsys.readouterr().out)
    assert set(TITLES) <= set(gpu) and not set(ON_A_TPU) & set(gpu)
    assert main(["bench", "--tiny", "--only", "matmul", "--repeat", "1", "--device", "tpu", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["workload"] for row in rows] == ["matmul_16", "matmul_32", "matmul_64"]
    assert all({*TITLES, *ON_A_TPU} <= set(row) for row in rows)


def test_the_table_says_whose_time_it_is(capsys: pytest.CaptureFixture[str]):
    assert main(["bench", "--tiny", "--only", "soft", "--repeat", "2"]) == 0
    title, columns, row = capsys.readouterr().out.splitlines()
    assert title == "emulated gpu:a100, f32 products; ms on this CPU, medians of 2"
    assert columns.startswith("workload    kernels  compile ms  run ms")
    assert row.startswith("softmax_16        1")


def test_a_wrong_answer_is_a_failure_however_fast(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(Adapter, "exp", staticmethod(lambda x: x.exp() * 1.001))
    assert main(["bench", "--tiny", "--only", "elementwise", "--repeat", "1"]) == 1
    assert "WRONG: elementwise_1k" in capsys.readouterr().out


@pytest.mark.parametrize("words, said", [
    (["--only", "g_gpt_fwdd"], "try: g_gpt_fwd"), (["--only", "matmul_16"], "try: with --tiny"),
    (["--only", "g_", "--tiny"], "try: without --tiny"), (["--repeat", "0"], "need 1 or more"),
    (["--only", "zzz"], "no program has a name that begins so. got zzz"),
    (["--device", "tpu:v9"], "no such device"),
])
def test_bad_input_is_one_error(words: list[str], said: str, capsys: pytest.CaptureFixture[str]):
    assert main(["bench", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("error:")) == ("", 1) and said in err
