"""An explanation says what is so: its cycles add up, its bytes are counted, its reasons are fusion's own."""

from __future__ import annotations

import re
from functools import reduce

import numpy as np
import pytest
from kernel_programs import PROGRAMS, TARGET, program, tiled_module

import minicc as mc
from minicc.devices import find
from minicc.kernel.cost import cost, operand_bytes
from minicc.kernel.explain import explain, once_bytes, waits
from minicc.kernel.fuse import fuse
from minicc.kernel.memory import plan
from minicc.trace import PassRecord, Step


def net(x: mc.Tensor, w: mc.Tensor, v: mc.Tensor) -> mc.Tensor:
    hidden = (x @ w).relu()
    return hidden @ v


def compiled(fn=net, *shapes, device: str = "tpu", **more):
    wanted = shapes or ((256, 512), (512, 512), (512, 128))
    return mc.compile(fn, *(mc.Tensor(np.ones(shape, np.float32)) for shape in wanted), device=device, **more)


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_kernel_waits_for_adds_up_to_its_cycles(name):
    for module in (fuse(program(name)[0], TARGET), tiled_module(program(name)[0])):
        for kernel in module.kernels:
            assert sum(waits(kernel, TARGET).values()) == pytest.approx(cost(kernel, TARGET).cycles)


@pytest.mark.parametrize("fn, shapes, binds", [
    (lambda x: x + 1.0, [(4096, 1024)], "hbm"), (lambda x, w: x @ w, [(1024, 1024)] * 2, "mxu"),
    (lambda x: x + 1.0, [(8, 128)], "latency"),
    (lambda x: reduce(lambda y, _: y.sin(), range(20), x), [(4096, 1024)], "vector")])
def test_a_kernel_waits_most_for_what_it_needs_most(fn, shapes, binds):
    (kernel,) = compiled(fn, *shapes).kernels.kernels
    assert next(iter(waits(kernel, find("tpu").target))) == binds


def test_a_block_that_comes_back_is_moved_again_and_needed_once():
    (kernel,) = fuse(program("mlp")[0], TARGET).kernels
    x, w, *_ = kernel.tiled({"m": 100, "n": 65, "k": 30}).inputs
    tiled = kernel.tiled({"m": 100, "n": 65, "k": 30})
    assert operand_bytes(tiled, x) == 2 * once_bytes(tiled, x) == 2 * 200 * 300 * 4
    assert operand_bytes(tiled, w) == 2 * once_bytes(tiled, w) == 2 * 300 * 130 * 4


def test_every_kernel_has_a_row_and_a_paragraph():
    made = compiled(device="gpu")
    table, *paragraphs = made.explain().split("\n\n")[1:]
    names = [kernel.name for kernel in made.kernels.kernels]
    assert len(names) == 2
    assert [row.split()[1] for row in table.splitlines()[1:]] == names
    assert [re.match(r"\d+  (\w+):", text)[1] for text in paragraphs] == names


def test_a_paragraph_names_lines_reasons_runners_up_and_bytes():
    text = compiled().explain()
    for part in ("hidden = (x @ w).relu()", "for  out dot_general (test_explain.py:", "it is an output",
                 "cycles fused", "not m=", "of fast memory", "x 512.0 KiB, w 1.0 MiB, v 256.0 KiB", "mxu"):
        assert part in text
    assert "t3 256.0 KiB in main memory" not in text  # one kernel: nothing lies between


def test_temps_say_where_they_live_and_why():
    assert re.search(r"512.0 KiB in main memory, kernels 1 to 2: gpu:a100 has no memory",
                     compiled(device="gpu").explain())


def test_no_line_is_longer_than_a_terminal():
    def deep(x):
        for _ in range(12):
            x = (x @ x).exp() + (x.sum(axis=0, keepdims=True) * x).tanh() + (x @ x.T).softmax(axis=-1)
        return x
    made = compiled(deep, (384, 384), device="gpu")
    assert len(made.kernels.kernels) > 20
    assert max(map(len, made.explain().splitlines())) <= 100


def test_one_kernel_is_explained_in_full():
    def chain(x):
        for _ in range(9):
            x = x.exp() + 1.0
        return x
    made = compiled(chain, (64, 128))
    name = made.kernels.kernels[0].name
    every, one = made.explain(), made.explain(name)
    assert "more: explain(" in every and "more: explain(" not in one
    assert one.count(" exp ") == 9


def test_a_kernel_that_is_not_there_is_an_error_with_the_nearest():
    made = compiled(lambda x: x.exp(), (8, 128))
    with pytest.raises(mc.CompileError, match="no such kernel. got .exq.; need exp"):
        made.explain("exq")


def test_a_learners_passes_are_explained_as_they_were_though_no_longer_in_force():
    with mc.using(tile=lambda kernel, target: kernel.tiled({"m": 8})):
        made = compiled(lambda x, w: x @ w, (64, 128), (128, 128))
    assert re.search(r"tile  m=8 n=128 k=128, .*\n +not m=64 ", made.explain())


def test_what_tuning_did_to_the_whole_program_stands_below_the_table():
    module = tiled_module(program("two_dots")[0])
    step = Step("other blocks for dot", False, "9 cycles for the program, 8 with the tiles predicted best")
    text = explain(module, plan(module, TARGET), TARGET, [PassRecord("tune", None, None, (step,), 0.0)])
    assert "tuned: - other blocks for dot: 9 cycles" in text.split("\n\n")[1]
