"""Tuning takes what is measured fastest, never what computes something else, and measures once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kernel_programs import PROGRAMS, TARGET, tiled_module

import minicc as mc
from minicc.errors import CompileError, MachineFault
from minicc.graph.text import parse_graph
from minicc.kernel.evaluate import evaluate
from minicc.kernel.ir import Module
from minicc.kernel.tile import candidates
from minicc.kernel.tune import tune
from minicc.kernel.tune_cache import Cache, CacheNotice, user_cache

MLP = tiled_module(parse_graph(PROGRAMS["mlp"]))
(KERNEL,) = MLP.kernels
FIRST, SECOND, THIRD, *_ = [dict(one.blocks) for one in candidates(KERNEL, TARGET)]


class Machine:
    """A machine that takes 1000 cycles for a kernel, but for the blocks it was told of; counts its runs."""

    def __init__(self, cycles: Mapping[str, int], wrong: str = "", broken: str = "", program: int = 0):
        self.cycles, self.wrong, self.broken, self.program, self.runs = cycles, wrong, broken, program, 0

    def __call__(self, module: Module, inputs: Mapping[str, np.ndarray]) -> tuple[int, list[np.ndarray]]:
        self.runs += 1
        outputs = evaluate(module, inputs)
        texts = [text({axis.name: axis.block for axis in kernel.axes}) for kernel in module.kernels]
        if self.broken in texts:
            raise MachineFault("vld", "out of bounds")
        if self.wrong in texts:
            outputs[0].flat[-1] += 1.0
        total = sum(self.cycles.get(one, 1000) for one in texts)
        return total + self.program * (len(texts) > 1 and self.runs % 2 == 0), outputs


def text(blocks: Mapping[str, int]) -> str:
    return " ".join(f"{name}={size}" for name, size in blocks.items())


def blocks(module: Module, which: int = 0) -> dict[str, int]:
    return {axis.name: axis.block for axis in module.kernels[which].axes}


def tuned(machine: Machine, module: Module = MLP, **more: object) -> Module:
    return tune(module, TARGET, "a machine", machine, **more)


def test_the_blocks_that_take_fewest_cycles_are_chosen():
    machine = Machine({text(SECOND): 900, text(THIRD): 800})
    assert blocks(tuned(machine)) == THIRD != blocks(MLP) == FIRST
    assert machine.runs == 4


def test_among_equals_the_model_decides():
    assert tuned(Machine({})) == MLP


def test_blocks_whose_values_are_wrong_are_never_chosen():
    log = []
    machine = Machine({text(SECOND): 900, text(THIRD): 1}, wrong=text(THIRD))
    assert blocks(tuned(machine, log=log)) == SECOND
    assert [step.taken for step in log] == [False, True, False, False]
    assert "its values are wrong" in log[2].why


def test_blocks_that_do_not_run_are_never_chosen():
    assert blocks(tuned(Machine({text(SECOND): 1}, broken=text(SECOND)))) == FIRST


def test_where_all_is_wrong_nothing_changes():
    one = replace(KERNEL, axes=tuple(replace(axis, block=axis.size) for axis in KERNEL.axes))
    module = replace(MLP, kernels=(one,))
    assert tune(module, TARGET, "", lambda module, inputs: (1, [np.zeros((200, 130))])) == module


def twins() -> Module:
    """The kernel twice; the second writes `q`."""
    (out,) = KERNEL.outputs
    body = tuple(replace(one, target="q" if one.target == "out" else one.target) for one in KERNEL.body)
    twin = replace(KERNEL.renamed("twin"), outputs=(replace(out, name="q", buffer="q"),), body=body)
    return Module("two", (KERNEL, twin), MLP.inputs, (*MLP.outputs, ("q", out.type)))


def test_choices_that_make_the_program_slower_are_undone():
    fast, slow = (Machine({text(SECOND): 900}, program=more) for more in (0, 10**6))
    assert blocks(tuned(fast, twins()), 1) == SECOND
    assert tuned(slow, twins()) == twins()


def test_a_kernel_like_another_is_measured_once():
    machine = Machine({})
    tuned(machine, twins())
    assert machine.runs == 4


def test_what_was_measured_is_read_from_disk(tmp_path: Path):
    machine = Machine({text(SECOND): 900})
    for _ in range(3):
        assert blocks(tuned(machine, cache=Cache(tmp_path))) == SECOND
    assert machine.runs == 4
    assert tune(MLP, TARGET, "another machine", machine, cache=Cache(tmp_path)) and machine.runs == 8


@pytest.mark.parametrize("content", [
    "", "{", "[1, 2]", '{"blocks": 3}', "[" * 10**5, '"text"', "\udcff",
    json.dumps([{"blocks": {"m": 10**9}, "cycles": 1}]),
    json.dumps([{"blocks": FIRST, "cycles": "few"}] * 4)])
def test_a_file_that_holds_something_else_is_measured_again_and_said_so(tmp_path: Path, content: str):
    machine = Machine({text(SECOND): 900})
    tuned(machine, cache=Cache(tmp_path))
    (file,) = (tmp_path / "tiles").iterdir()
    file.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.warns(CacheNotice, match="measured again"):
        assert blocks(tuned(machine, cache=Cache(tmp_path))) == SECOND
    assert machine.runs == 8
    tuned(machine, cache=Cache(tmp_path))
    assert machine.runs == 8  # the file is right again


def test_a_folder_that_cannot_be_written_costs_a_notice_only(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.warns(CacheNotice, match="MINICC_CACHE says where else, or off"):
        assert blocks(tuned(Machine({text(SECOND): 900}), cache=Cache(tmp_path / "file"))) == SECOND


@pytest.mark.parametrize("set, folder", [
    ({"MINICC_CACHE": "{tmp}/mine"}, "{tmp}/mine"), ({"XDG_CACHE_HOME": "{tmp}"}, "{tmp}/minicc"),
    ({"XDG_CACHE_HOME": "relative", "HOME": "{tmp}"}, "{tmp}/.cache/minicc"), ({"MINICC_CACHE": "off"}, None),
    ({"MINICC_CACHE": "OFF", "XDG_CACHE_HOME": "{tmp}"}, None), ({"HOME": "{tmp}"}, "{tmp}/.cache/minicc")])
def test_the_environment_says_where_the_cache_is(set, folder, tmp_path: Path, monkeypatch):
    for name in ("MINICC_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in set.items():
        monkeypatch.setenv(name, value.format(tmp=tmp_path))
    assert user_cache().folder == (folder and Path(folder.format(tmp=tmp_path)))


def test_a_tuned_program_is_no_slower_and_says_what_was_measured(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("MINICC_CACHE", str(tmp_path))
    x = np.random.default_rng(0).standard_normal((129, 300)).astype(np.float32)
    programs = [mc.compile(lambda a: (a.exp() * 2.0).sum(axis=1), mc.Tensor(x), device="tpu", tune=on)
                for on in (False, True)]
    for made in programs:
        assert np.allclose(made(mc.Tensor(x)).numpy(), (np.exp(x.astype(float)) * 2).sum(axis=1), rtol=1e-5)
    plain, fast = (made.profile().cycles for made in programs)
    assert fast <= plain
    assert f"{fast:,} cycles, " in programs[1].explain() and "measured" not in programs[0].explain()
    assert list((tmp_path / "tiles").iterdir())


def test_a_gpu_has_no_cycles_to_measure():
    with pytest.raises(CompileError, match="measured in a TPU's cycles. got gpu:a100(.|\n)*profile"):
        mc.compile(lambda a: a.exp(), mc.zeros(3), device="gpu", tune=True)


def test_what_changes_in_place_is_left_alone():
    made = mc.compile(lambda a, i: a.at[i].add(1.0), mc.zeros((8, 128)), mc.Tensor([1, 2]), device="gpu")
    module = tiled_module(made.graph)
    assert any(op.in_place for kernel in module.kernels for op in kernel.outputs)
    assert tuned(Machine({}), module) == module
