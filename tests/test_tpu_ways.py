"""The ways to run a program: with copies early or late, unchecked, or without values. They tell the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from random_graphs import random_graph
from tpu_programs import COPY_IN, COPY_OUT, NAMES, broken, random_inputs, text, tiny, with_header

from minicc import compiler
from minicc.compiler import compile_graph
from minicc.errors import CompileError, MachineFault
from minicc.graph.text import parse_graph
from minicc.tools.workloads import TINY
from minicc.tpu.emulator import Run, run
from minicc.tpu.isa import Program
from minicc.tpu.text import parse

RACE = broken("add1000", "{ dma.done.wait [in + 1] }\n{ vld", "{ dma.done.wait [in + 1] ;; vld")


def in_all_ways(program: Program, inputs: dict[str, np.ndarray], checks: bool = True) -> Run:
    """Run a program in all ways: the same bits, cycles, causes and bytes."""
    plain = run(program, inputs, checks=checks)
    for other in (run(program, inputs, dma="late"), run(program, inputs, checks=False),
                  run(program, inputs, checks=False, dma="late", stepping=True)):
        assert replace(other, outputs=plain.outputs) == plain
        for name, array in plain.outputs.items():
            assert other.outputs[name].tobytes() == array.tobytes(), name
    if any(op.op == "sld" for bundle in program.bundles for op in bundle.ops):
        with pytest.raises(CompileError, match="without values nobody knows what is looked up"):
            run(program, {}, values=False)
        return plain
    for stepping in (False, True):
        assert replace(run(program, {}, values=False, stepping=stepping), outputs=plain.outputs) == plain
    return plain


@pytest.fixture
def every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that the compiler runs are run in all ways."""
    monkeypatch.setattr(compiler, "run_tpu", in_all_ways)


@pytest.mark.parametrize("name", NAMES)
def test_programs_by_hand_run_alike_in_all_ways(name: str):
    program = parse(text(name))
    in_all_ways(program, random_inputs(program))


@pytest.mark.parametrize("seed", range(30, 50))
def test_random_programs_run_alike_in_all_ways(seed: int, every_way: None):
    graph, inputs = random_graph(seed)
    compile_graph(graph, "tpu:v5e").run(inputs)


@pytest.mark.parametrize("name", TINY)
def test_the_benchs_programs_run_alike_in_all_ways(name: str, every_way: None):
    tiny(name)


def test_a_race_is_lost_when_copies_are_late_and_is_caught_in_either_case():
    program = parse(RACE)
    inputs = random_inputs(program)
    right = inputs["x"] + inputs["y"]
    early, late = (run(program, inputs, checks=False, dma=dma).outputs["z"] for dma in ("early", "late"))
    assert early.tobytes() == right.tobytes() != late.tobytes()
    for dma in ("early", "late"):
        with pytest.raises(MachineFault, match="race: VMEM buffer yb is read while a DMA owns it"):
            run(program, inputs, dma=dma)


def test_copies_on_one_semaphore_all_move_when_the_last_is_waited_for():
    source = text("add1000").replace("[in + 1]", "[in]")
    program = parse(source)
    inputs = random_inputs(program)
    late = run(program, inputs, dma="late").outputs["z"]
    assert late.tobytes() == (inputs["x"] + inputs["y"]).tobytes()


@pytest.mark.parametrize("old, new", [
    ("[xb], [x]", "[xb + 1], [x]"), ("[y], [yb]", "[y + 1], [yb]"), ("[y], [yb]", "[x], [yb]")])
def test_bounds_and_inputs_are_guarded_without_checks(old: str, new: str):
    source = with_header(*COPY_IN, "{ vsplat v0, 1.0 }", "{ vst [yb], v0 }", *COPY_OUT).replace(old, new)
    program = parse(source)
    with pytest.raises(MachineFault, match="out of bounds in|writes HBM buffer x, an input"):
        run(program, random_inputs(program), checks=False)


def test_copies_come_early_or_late():
    program = parse(text("add1000"))
    with pytest.raises(CompileError, match="copies have no such time. got 'soon'; need early or late"):
        run(program, random_inputs(program), dma="soon")


def matmul(n: int) -> str:
    return f"graph g(x: f32[{n},{n}], w: f32[{n},{n}]) {{\n%0 = dot_general(x, w) contract=[1]x[0] : " \
           f"f32[{n},{n}]\nreturn %0\n}}"


def test_a_program_too_large_to_compute_is_profiled_without_values():
    profile = compile_graph(parse_graph(matmul(8192)), "tpu:v5e").profile(values=False)
    assert profile.causes["mxu"] == 8192 * (8192 // 128) ** 2 * 6 / 4  # rows, tiles, passes of f32, units
    assert profile.hbm_bytes >= profile.compulsory_bytes == 4 * 3 * 8192**2


def test_a_lookup_cannot_be_profiled_without_values():
    source = ("graph g(table: f32[16,128], ids: i32[4]) {\n%0 = gather(table, ids) axis=0 : f32[4,128]"
              "\n%1 = tanh(%0) : f32[4,128]  loc(train.py:12)\nreturn %1\n}")
    made = compile_graph(parse_graph(source, "lookup.graph"), "tpu:v5e")
    with pytest.raises(CompileError, match=r"looked up. got sld (.|\n)*at pc 0x(.|\n)*train.py:12"):
        made.profile(values=False)


def test_a_gpu_is_not_profiled_without_values():
    made = compile_graph(parse_graph(matmul(128)), "gpu")
    profile: Callable = made.profile
    with pytest.raises(CompileError, match="a gpu counts what runs"):
        profile(values=False)
