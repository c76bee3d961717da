"""Planted bugs are found by the fuzzer, named by bisect, and reduced to a few nodes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import minicc as mc
from minicc.gpu.program import GPUProgram
from minicc.graph.dtypes import BF16, BOOL, DTYPES, F16, encode
from minicc.graph.evaluate import evaluate
from minicc.graph.infer import OPS
from minicc.graph.ir import Graph
from minicc.graph.rewrite import Rule, X, Y, Z, pattern
from minicc.graph.simplify import RULES, simplify
from minicc.graph.text import parse_graph
from minicc.kernel.fuse import fuse
from minicc.kernel.ir import AxisKind
from minicc.kernel.pipeline import pipeline
from minicc.kernel.tile import tile
from minicc.tools import fuzz
from minicc.tools.bisect import Finding, bisect, first_difference, first_nan
from minicc.tools.commands import main
from minicc.tools.random_graphs import random_graph, random_inputs
from minicc.tools.reduce import reduce_graph
from minicc.tpu.isa import Bundle
from minicc.tpu.lower import lower
from minicc.tpu.registers import allocate
from minicc.tpu.schedule import schedule

SUM = parse_graph("""graph f(x: f32[300,130], w: f32[300,130]) {
  %0 = subtract(x, w) : f32[300,130]        loc(train.py:3)
  %1 = reduce(%0) kind=sum axes=[1] : f32[300]   loc(train.py:4)
  return %1
}""")

WRONG = Rule("x - y -> y - x", pattern("subtract")(X, Y),
             lambda m: m.build("negate", m.build("abs", m.build("add", m[X], m[Y]))))


def wrong_rule(graph, log=None):
    return simplify(graph, rules=(WRONG, *RULES), log=log)


def without_last_op(module):
    *others, last = module.kernels
    body = tuple(replace(statement, value=statement.value.args[0]) if statement.value.args else statement
                 for statement in last.body)
    return replace(module, kernels=(*others, replace(last, body=body)))


def wrong_fuse(graph, target):
    return without_last_op(fuse(graph, target))


def tile_without_tail(kernel, target):
    """Blocks of 8, and the last, smaller one is forgotten."""
    tiled = tile(kernel, target)
    axes = tuple(replace(axis, size=axis.size - axis.size % 8, block=8) if axis.size > 8 and
                 axis.kind is AxisKind.PARALLEL else axis for axis in tiled.axes)
    return replace(tiled, axes=axes)


def pipeline_without_wait(kernel, resident=()):
    made = pipeline(kernel, resident=resident)
    return replace(made, steady=tuple(c for c in made.steady if c.verb.value != "copy_wait"))


def changed(program, op, other):
    """A program with every instruction of one kind made another."""
    bundles = [Bundle(tuple(replace(i, op=other) if i.op == op else i for i in bundle.ops))
               for bundle in program.bundles]
    return replace(program, bundles=tuple(bundles))


def wrong_lower(*levels):
    return changed(lower(*levels), "vsub.f32", "vadd.f32")


def wrong_schedule(program, spec):
    return changed(schedule(program, spec), "vsub.f32", "vmax.f32")


def wrong_allocate(program, spec):
    return changed(allocate(program, spec), "vsub.f32", "vmin.f32")


MUTANTS = {  # slot -> its function, the level at which it shows
    "simplify": (wrong_rule, "graph"), "fuse": (wrong_fuse, "kernels"),
    "tile": (tile_without_tail, "tiled kernels"), "pipeline": (pipeline_without_wait, "pipelines"),
    "lower": (wrong_lower, "assembly"), "schedule": (wrong_schedule, "bundles"),
    "allocate": (wrong_allocate, "program"),
}


def search(graph: Graph, **slots) -> Finding | None:
    with mc.using(**slots):
        return bisect(graph, random_inputs(graph), "tpu")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---- bisect ----

@pytest.mark.parametrize("slot", MUTANTS)
def test_the_pass_that_went_wrong_is_named(slot):
    function, level = MUTANTS[slot]
    found = search(SUM, **{slot: function})
    assert found is not None and (found.guilty, found.level) == (slot, level)


@pytest.mark.parametrize("device", ["tpu", "gpu"])
def test_nothing_is_found_where_nothing_is_wrong(device):
    assert bisect(SUM, random_inputs(SUM), device) is None


def test_a_finding_has_the_rule_the_element_and_the_line():
    found = search(SUM, simplify=wrong_rule)
    x, w = (array.astype(np.float64) for array in random_inputs(SUM))
    assert found.step.startswith("rule `x - y -> y - x`: subtract(x, w) : f32[300,130] -> negate(abs)")
    assert (found.index, found.expected) == ((0,), (x - w).sum(1)[0])
    assert str(found.at[0]) == "train.py:4" and "at train.py:4" in str(found)


def test_a_rule_of_legalize_is_named_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("minicc.kernel.legalize.RULES", (WRONG,))
    found = search(SUM)
    assert found.guilty == "legalize" and "x - y -> y - x" in found.step


@pytest.mark.parametrize("method, level", [("run", "vector mode"), ("run_lane", "lane mode")])
def test_the_two_modes_of_a_gpu_are_told_apart(method, level, monkeypatch: pytest.MonkeyPatch):
    right = getattr(GPUProgram, method)

    def off_by_one(program, buffers):
        reports = right(program, buffers)
        buffers[program.module.outputs[0][0]][7] += 1
        return reports

    monkeypatch.setattr(GPUProgram, method, off_by_one)
    found = bisect(SUM, random_inputs(SUM), "gpu")
    assert (found.guilty, found.level, found.index) == ("lower_gpu", level, (7,))
    assert found.got == found.expected + 1


def test_a_pass_that_raises_is_found_with_what_it_said():
    found = search(SUM, fuse=lambda graph, target: {}["kernel"])
    assert (found.guilty, found.did, found.detail) == ("fuse", "failed", "KeyError: 'kernel'")


def test_a_graph_that_float32_cannot_hold_is_no_pass_s_fault():
    text = "graph f(x: f32[2]) { %0 = add(x, 1e8) : f32[2] %1 = subtract(%0, 1e8) : f32[2] return %1 }"
    graph = parse_graph(text)
    assert bisect(graph, [np.float32([0.5, 0.25])], "tpu").guilty == "float32"


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_a_16_bit_float_may_be_one_unit_off_in_the_last_place(dtype):
    one = encode(np.array([1.0]), dtype)
    units = [(one.view(np.uint16) + count).view(dtype.numpy) for count in (0, 1, 2)]
    assert [first_difference(got, np.array([1.0])) for got in units] == [None, None, (0,)]


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_a_fault_is_named_and_reduced_in_every_dtype(dtype, here: Path, capsys: pytest.CaptureFixture[str]):
    ones = "true, false, true" if dtype is BOOL else "1, 0, 1"
    (here / "f.graph").write_text(f"""graph f(x: {dtype}[3], at: i32[2]) {{
      %0 = constant() value=[{ones}] : {dtype}[3]
      %1 = select(true, x, %0) : {dtype}[3]
      %2 = concatenate(%1, %0) axis=0 : {dtype}[6]
      %3 = gather(%2, at) axis=0 : {dtype}[2]
      return %3
    }}""")
    wrong = Rule("select(p, x, y) -> y", pattern("select")(Z, X, Y), lambda m: m[Y])
    with mc.using(simplify=lambda graph, log=None: simplify(graph, rules=(wrong,), log=log)):
        assert main(["bisect", "f.graph", "--device", "gpu", "--seed", "1"]) == 1
        assert "rule `select(p, x, y) -> y`: select(true" in capsys.readouterr().out
        assert main(["reduce", "f.graph", "--device", "gpu", "--seed", "1"]) == 0
    assert {node.op for node in parse_graph((here / "f.min.graph").read_text()).nodes()} <= {
        "parameter", "constant", "select"}


def test_nan_equals_nan_and_integers_are_exact():
    assert first_difference(np.float32([np.nan, np.inf, 1]), np.array([np.nan, 1e39, 1 + 1e-6])) is None
    assert first_difference(np.float32([[1, 2], [3, np.nan]]), np.array([[1, 2], [3, 4]])) == (1, 1)
    assert first_difference(np.int32([10**9]), np.int32([10**9 + 1])) == (0,)


# ---- the first NaN ----

def test_the_first_nan_is_named_with_its_op_and_line():
    graph = parse_graph("""graph f(x: f32[3]) {
      %0 = log(x) : f32[3]          loc(train.py:7)
      %1 = multiply(%0, 0.0) : f32[3]
      return %1
    }""")
    assert str(first_nan(graph, [np.float32([1, 0, -1])]).at[0]) == "train.py:7"
    found = first_nan(graph, [np.float32([1, 0, 2])])
    assert found.guilty.startswith("%0 = log(x)") and (found.index, found.got) == ((1,), -np.inf)
    assert first_nan(graph, [np.float32([1, 2, 3])]) is None


def test_a_nan_of_the_backward_pass_has_the_line_of_the_forward_op():
    step = mc.compile(mc.value_and_grad(lambda x: x.sqrt().sum()), mc.zeros(3))
    found = first_nan(step.raw_graph, [np.float32([1, 0, 4])])
    assert found.got == np.inf and found.index == (1,) and Path(found.at[0].file).name == "test_fuzz.py"


def test_a_training_step_names_the_line_of_the_loss_that_makes_its_gradient_infinite():
    def step(w, x):
        loss, gradient = mc.value_and_grad(
            lambda w: (w * x).sqrt().sum()  # the slope of a root at 0
        )(w)
        return loss, w - gradient * 0.1
    compiled = mc.compile(step, mc.ones(3), mc.ones(3))
    found = first_nan(compiled.raw_graph, [np.float32([1, 2, 3]), np.float32([1, 0, 1])])
    assert np.isinf(found.got) and found.index == (1,) and found.at[0].source().endswith("a root at 0")


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_a_nan_is_named_in_16_bits_too(dtype):
    graph = parse_graph(f"graph f(x: {dtype}[2]) {{ %0 = log(x) : {dtype}[2] return %0 }}")
    assert first_nan(graph, [encode(np.array([1.0, 0.0]), dtype)]).got == -np.inf
    assert first_nan(graph, [encode(np.array([1.0, 2.0]), dtype)]) is None


def test_what_a_constant_holds_was_meant():
    text = "graph f(x: f32[2]) { %0 = minimum(x, inf) : f32[2] %1 = multiply(%0, inf) : f32[2] return %1 }"
    found = first_nan(parse_graph(text), [np.float32([1, 0])])
    assert found.guilty.startswith("%1 = multiply") and np.isnan(found.got)


# ---- reduce ----

@pytest.mark.parametrize("slot", MUTANTS)
def test_a_planted_bug_reduces_to_a_few_nodes(slot, here: Path, capsys: pytest.CaptureFixture[str]):
    function, level = MUTANTS[slot]
    with mc.using(**{slot: function}):
        assert main(["fuzz", "--n", "60", "--device", "tpu"]) == 1
        file, = here.glob("fuzz-*.graph")
        out = capsys.readouterr().out
        assert f"{slot} " in out and f"minicc reduce {file.name} --device tpu:v5e" in out
        words = next(line for line in out.splitlines() if "reduce: " in line).split()[3:]
        assert main(["reduce", *words]) == 0
        out = capsys.readouterr().out
        smallest = file.with_suffix(".min.graph")
        small = parse_graph(smallest.read_text())
        assert len(small.nodes()) <= 5 and out.startswith(str(small))
        words[0] = smallest.name
        assert main(["bisect", *words]) == 1
        out = capsys.readouterr().out
    assert f"tpu:v5e: {slot} " in out and f"seen by running the {level}" in out
    assert main(["bisect", *words]) == 0


def test_reducing_drops_outputs_ops_inputs_and_sizes():
    def has_a_dot(graph: Graph) -> bool:
        return any(node.op == "dot_general" for node in graph.nodes())
    graph = next(filter(has_a_dot, (random_graph(seed, size=30)[0] for seed in range(60))))
    small = reduce_graph(graph, has_a_dot)
    assert {node.op for node in small.nodes()} == {"parameter", "dot_general"}
    assert all(set(value.shape) <= {1} for value in small.inputs)


# ---- the commands ----

def test_a_fuzz_without_failures_says_what_it_did_and_writes_nothing(
    here: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["fuzz", "--n", "3", "--seed", "5"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("3 programs from seed 5, every level of tpu and gpu: all right") and err == ""
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("text", [
    # the place that concatenate asks the gather for may lie behind the end of the indices
    """graph f(x: f32[2], at: i32[129]) {
      %0 = gather(x, at) axis=0 : f32[129]
      %1 = concatenate(%0, x, x) axis=0 : f32[133]
      return %1
    }""",
    # an update that is its own base
    """graph f(x: f32[1], at: i32[1]) {
      %0 = tanh(x) : f32[1]
      %1 = scatter(%0, at, %0) axis=0 kind=prod : f32[1]
      return %1
    }""",
    # kernels side by side, of which one makes the base and the other reads the update of it
    """graph f(x: f32[1,1], at: i32[], y: f32[1]) {
      %0 = add(x, 0.5) : f32[1,1]
      %1 = scatter(%0, at, y) axis=0 kind=max : f32[1,1]
      %2 = add(%1, x) : f32[1,1]
      %3 = convert(%0) dtype=i8 : i8[1,1]
      return %2, %3
    }""",
    """graph f(x: f32[1], at: i32[], y: f32[], z: f32[1]) {
      %0 = tanh(x) : f32[1]
      %1 = scatter(%0, at, y) axis=0 kind=prod : f32[1]
      %2 = dot_general(%1, z) contract=[]x[] batch=[0]x[0] : f32[1]
      %3 = multiply(%1, x) : f32[1]
      return %2, %3
    }""",
    # a sum of one product, of bits that are no numbers yet
    """graph f(x: bf16[1,1], w: bf16[1,1]) {
      %0 = dot_general(x, w) contract=[1]x[0] : bf16[1,1]
      return %0
    }""",
])
@pytest.mark.parametrize("device", ["tpu", "gpu"])
def test_what_went_wrong_once_is_right(text: str, device: str):
    graph = parse_graph(text)
    assert bisect(graph, random_inputs(graph), device) is None


def test_the_programs_have_every_op_and_every_dtype():
    nodes = [node for seed in range(150) for node in random_graph(seed)[0].nodes()]
    assert {node.op for node in nodes} - {"parameter"} == set(OPS)
    assert {node.types[0].dtype for node in nodes} == set(DTYPES.values())


def test_the_programs_mean_the_same_however_floats_are_rounded():
    for seed in range(150):
        graph, inputs = random_graph(seed)
        rounded, exact = evaluate(graph, inputs), evaluate(graph, inputs, dtype64=True)
        assert {*map(first_difference, rounded, exact)} == {None}, seed


def test_a_fuzz_says_what_it_covered(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fuzz, "bisect", lambda *_: None)
    used = {node.op for seed in range(3) for node in random_graph(seed)[0].nodes()} - {"parameter"}
    assert main(["fuzz", "--n", "3"]) == 0
    _, covered, *unused = capsys.readouterr().out.splitlines()
    assert covered.startswith(f"covered: {len(used)} ops, ")
    assert set(" ".join(unused).removeprefix("not used: ").split(", ")) >= set(OPS) - used
    assert main(["fuzz", "--n", "3", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["covered"]) == used


def test_processes_that_share_the_work_find_the_same(here: Path, capsys: pytest.CaptureFixture[str]):
    outputs = []
    for jobs in ("1", "2"):
        assert main(["fuzz", "--n", "4", "--seed", "5", "--device", "gpu", "--jobs", jobs]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal as a terminal does")
def test_ctrl_c_ends_all_processes(here: Path):
    script = """if True:
        import multiprocessing, os, signal, sys, threading, time
        from minicc.tools.commands import main

        def interrupt():
            ignored = lambda: signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            while len(multiprocessing.active_children()) < 2 or ignored():
                time.sleep(0.01)
            os.killpg(0, signal.SIGINT)

        threading.Thread(target=interrupt, daemon=True).start()
        sys.exit(main(["fuzz", "--n", "9999", "--device", "gpu", "--jobs", "2"]))
    """
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               start_new_session=True)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"interrupted\n")


def test_bisect_speaks_json_and_names_a_nan(here: Path, capsys: pytest.CaptureFixture[str]):
    (here / "f.graph").write_text("graph f(x: f32[9]) { %0 = log(x) : f32[9] return %0 }")
    assert main(["bisect", "f.graph", "--nan", "--json"]) == 1
    found = json.loads(capsys.readouterr().out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert (found["guilty"], found["got"]) == ("%0 = log(x) : f32[9]", "nan")
    assert main(["bisect", "f.graph", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) is None


@pytest.mark.parametrize("words, said", [
    (["reduce", "f.graph"], "every level gives the same answer"), (["reduce", "g.graph"], "cannot read"),
    (["bisect", "f.graph", "--skip", "fuse"], "invalid choice"), (["bisect", "f.py"], "unknown kind"),
    (["fuzz", "--n", "2", "--device", "tpu:v9"], "no such device"),
    (["bisect", "huge.graph", "--nan"], "too large to try"), (["fuzz", "--n", "0"], "need 1 or more"),
    (["fuzz", "--n", "many"], "invalid int value"), (["fuzz", "--jobs", "0"], "need 1 or more"),
])
def test_bad_input_is_one_error_and_code_2(words, said, here: Path, capsys: pytest.CaptureFixture[str]):
    (here / "f.graph").write_text(str(SUM))
    (here / "huge.graph").write_text("graph f(x: f32[9999999,9999999,9999999]) { return x }")
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("error:"), len(list(here.iterdir()))) == ("", 1, 2) and said in err
