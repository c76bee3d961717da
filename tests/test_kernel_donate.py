"""Donated arguments: results take their bytes, to the byte; and nobody can use them afterwards."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from random_graphs import random_graph, random_inputs

import minicc as mc
from minicc import Tensor, errors
from minicc.compiler import Options, run_passes
from minicc.devices import find
from minicc.frontend import optim
from minicc.frontend.models import gpt2
from minicc.kernel.memory import Space
from minicc.kernel.verify import verify_plan
from minicc.tools.levels import LEVELS

W, X, Y = (np.random.default_rng(0).normal(size=shape).astype(np.float32)
           for shape in ((256, 128), (64, 256), (64, 128)))


def step(w, x, y):
    error = x @ w - y
    return w - 0.1 * (x.T @ error), (error * error).sum()


def test_new_weights_are_written_onto_the_old_ones():
    w, x, y, error, loss = 256 * 128 * 4, 64 * 256 * 4, 64 * 128 * 4, 64 * 128 * 4, 512  # 4 bytes, in 512
    kept, given = (mc.compile(step, W, X, Y, device="gpu", donate_argnums=numbers) for numbers in ((), 0))
    assert kept.plan.hbm_bytes == 2 * w + x + y + error + loss
    assert given.plan.hbm_bytes == w + x + y + error + loss
    assert given.module.donated == {"w": "out0"}
    assert given.memory.lower_bound(Space.HBM)[0] == given.plan.hbm_bytes
    assert "donated: w, and its bytes hold out0 later" in str(given.memory)


@pytest.mark.parametrize("device", ["gpu", "tpu"])
def test_a_step_gives_what_numpy_gives_whether_or_not_the_weights_are_donated(device):
    w = W.astype(np.float64)
    expected = w - 0.1 * (X.T @ (X @ w - Y))
    for numbers in ((), (0,), (0, 1, 2)):
        found = mc.jit(step, device, donate_argnums=numbers)(Tensor(W), Tensor(X), Tensor(Y))[0].numpy()
        assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()


@cache
def training_graph():
    def training(params, ids):
        loss, gradients = mc.value_and_grad(lambda p: gpt2.loss(p, gpt2.TINY, ids))(params)
        return loss, optim.SGD(0.1).step(params, gradients)[0]

    params, ids = gpt2.init(gpt2.TINY, seed=None), mc.zeros((1, 33), dtype="i32")
    return mc.compile(training, params, ids, device="gpu").raw_graph


def trained(device, donated):
    """A step of training as far as its plan, with its weights donated or not."""
    graph = training_graph()
    every = tuple(range(len(graph.inputs) - 1)) if donated else ()
    return run_passes(graph, find(device), options=Options(donated=every), until="plan")


def test_training_a_gpt_holds_its_weights_once():
    """On a gpu each weight is updated where it lies; what else is alive is counted kernel by kernel."""
    made = trained("gpu", True)
    params = {name for name, _ in made.module.inputs} - {"ids"}
    assert set(made.module.donated) == params and "" not in made.module.donated.values()
    sizes = {name: -(-type.elements * 4 // 512) * 512 for name, type in made.module.inputs}
    there, most, last = sum(sizes.values()), 0, {}
    for number, kernel in enumerate(made.module.kernels):
        last |= {op.buffer: number for op in (*kernel.reads, *kernel.outputs)}
    alive = {name: -(-array.size * 4 // 512) * 512 for name, array in made.module.constants.items()}
    for number, kernel in enumerate(made.module.kernels):
        for op in kernel.outputs:
            if op.buffer not in made.module.donated.values():
                alive[op.buffer] = -(-op.type.elements * 4 // 512) * 512
        most = max(most, there + sum(alive.values()))
        alive = {name: size for name, size in alive.items() if last[name] > number or
                 name in {*made.module.constants, *dict(made.module.outputs)}}
    assert made.plan.hbm_bytes == most < trained("gpu", False).plan.hbm_bytes


def test_a_tpu_holds_the_weights_once_but_for_those_of_one_kernel():
    """Without donation nothing but inputs and outputs is in HBM; with it, less than 1.25 of the inputs."""
    kept, given = trained("tpu", False), trained("tpu", True)
    inputs, outputs = (sum(-(-type.elements * 4 // 512) * 512 for _, type in found)
                       for found in (kept.module.inputs, kept.module.outputs))
    assert kept.plan.hbm_bytes == inputs + outputs
    assert given.plan.hbm_bytes <= 1.25 * inputs


def write(cache, new, place):
    return mc.dynamic_update_slice(cache, new, (place, 0))


@pytest.mark.parametrize("device", ["gpu", "tpu"])
def test_a_cache_that_is_donated_is_updated_where_it_is(device):
    """One kernel in place of two, and no byte of the cache but the new ones; the caller's array stays."""
    cache, new, place = np.zeros((1024, 64), np.float32), mc.ones((1, 64)), Tensor(3, "i32")
    kept, given = (mc.compile(write, cache, new, place, device=device, donate_argnums=numbers)
                   for numbers in ((), 0))
    assert kept.plan.hbm_bytes - given.plan.hbm_bytes == cache.nbytes
    assert [kernel.name for kernel in kept.module.kernels][:1] == ["copy"]
    assert [kernel.name for kernel in given.module.kernels] == ["dynamic_update_slice"]
    expected = cache.copy()
    expected[3] = 1
    for made in (kept, given, given):
        x = Tensor(cache)
        assert np.array_equal(made(x, new, place).numpy(), expected) and not cache.any()
    assert "donated: cache is changed in place" in str(given.memory)
    assert given.memory.lower_bound(Space.HBM)[0] == given.plan.hbm_bytes == cache.nbytes + 512 + 512
    assert "it changes cache, which is donated" in given.explain()
    if device == "tpu":  # it takes no more than the roofline of a program that moves the cache
        assert given.profile().cycles < kept.profile().least.cycles
        assert given.profile().least.cycles <= given.profile().cycles


@pytest.mark.parametrize("device", ["gpu", "tpu"])
def test_what_reads_the_old_cache_comes_before_it_is_updated(device):
    rng = np.random.default_rng(0)
    cache, new = (rng.normal(size=(rows, 64)).astype(np.float32) for rows in (64, 1))

    def step(cache, new, place):
        updated = write(cache, new, place)
        return updated, (cache @ cache.T).sum() + (updated @ updated.T).max()

    found, score = mc.jit(step, device, donate_argnums=0)(Tensor(cache), new, Tensor(5, "i32"))
    updated = cache.astype(np.float64)
    expected = (updated @ updated.T).sum()
    updated[5] = new
    assert np.array_equal(found.numpy(), updated.astype(np.float32))
    expected += (updated @ updated.T).max()
    assert abs(score.item() - expected) < 1e-5 * np.abs(cache @ cache.T).sum()


def test_what_cannot_be_used_is_said_and_what_is_returned_stays():
    made = mc.compile(lambda x, y: (x, y.sum(axis=0)), Tensor(W), Tensor(X), device="gpu",
                      donate_argnums=(0, 1))
    lines = str(made.memory).splitlines()[-2:]
    assert lines == ["donated: x is returned as it is", "donated: y, and its bytes hold nothing else later"]
    x, _ = made(Tensor(W), Tensor(X))
    assert np.array_equal(x.numpy(), W)


# -- what is gone is gone ------------------------------------------------------------------------------------


def test_a_donated_tensor_names_the_call_that_took_it():
    f, x = mc.jit(lambda x: x + 1, donate_argnums=0), Tensor(W)
    before = x * 2
    f(x)
    for use in (lambda: x + 1, x.numpy, x.tolist, lambda: f(x), lambda: mc.jit(lambda: x + 1)()):
        with pytest.raises(errors.CompileError, match=r"donated to <lambda> at .*test_kernel_donate.py:\d+"):
            use()
    assert repr(x) == "Tensor(f32[256,128], donated)" and x.shape == (256, 128)
    assert np.array_equal(before.numpy(), 2 * W)  # asked for before


def test_trees_are_donated_leaf_by_leaf_and_arrays_of_numpy_are_copied():
    params = {"w": Tensor(W), "rest": [Tensor(X), None]}
    f = mc.jit(lambda p, y: (p["w"] + y, p["rest"][0] + 1), donate_argnums=(0, -1))
    f(params, Y[:1])
    assert all("donated" in repr(x) for x in (params["w"], params["rest"][0]))
    new, _ = f({"w": W, "rest": [X, None]}, Y[:1])
    assert np.array_equal(f({"w": W, "rest": [X, None]}, Y[:1])[0].numpy(), new.numpy())


@pytest.mark.parametrize("call", [lambda f, x: f(x, x), lambda f, x: f(x, Tensor(x)),
                                  lambda f, x: f([x, x], x + 1)])
def test_what_is_donated_is_passed_once(call):
    f, x = mc.jit(lambda a, b: (a, b), donate_argnums=0), Tensor(W)
    with pytest.raises(errors.CompileError, match="passed again in the same call"):
        call(f, x)
    assert np.array_equal(x.numpy(), W)


def test_what_is_donated_is_not_closed_over():
    x = Tensor(W)
    with pytest.raises(errors.CompileError, match="got a and what it closes over"):
        mc.jit(lambda a: a + x, donate_argnums=0)(x)


def test_a_call_inside_a_trace_or_under_grad_takes_nothing():
    f, x = mc.jit(lambda x: (x * x).sum(), donate_argnums=0), Tensor(W)
    mc.jit(lambda x: f(x))(x)
    assert np.array_equal(mc.grad(f)(x).numpy(), 2 * W)
    assert np.array_equal(x.numpy(), W)


@pytest.mark.parametrize("numbers, kind, complaint", [
    (2, IndexError, "no positional argument of this number. got 2; need -2 .. 1: a, b"),
    (-3, IndexError, "got -3"), ((0, 5), IndexError, "got 5"), ("a", TypeError, "expected integers"),
    (0.5, TypeError, "expected integers"), (True, TypeError, "expected numbers of arguments"),
    (None, TypeError, "expected integers"), (1, errors.CompileError, "argument 1 of f is static")])
def test_wrong_numbers_of_arguments(numbers, kind, complaint):
    def f(a, b):
        return a

    with pytest.raises(kind, match=complaint):
        mc.jit(f, static_argnames="b", donate_argnums=numbers)


# -- any program ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["gpu", "tpu"])
def test_random_programs_give_the_same_bits_in_the_bytes_of_their_inputs(device):
    for seed in range(40):
        graph, _ = random_graph(seed)
        every, inputs = tuple(range(len(graph.inputs))), random_inputs(graph, seed)
        kept, given = (run_passes(graph, find(device), options=Options(donated=numbers), until="plan")
                       for numbers in ((), every))
        verify_plan(given.plan, given.module)
        assert given.plan.hbm_bytes <= kept.plan.hbm_bytes
        found, expected = (LEVELS["plan"]["planned kernels"](levels, inputs) for levels in (given, kept))
        assert [one.tobytes() for one in found] == [one.tobytes() for one in expected]


@pytest.mark.parametrize("name, complaint", [
    ("x", "x and out0 have bytes of hbm in common"),  # its kernel reads all of x for each block
    ("y", "y and out0 have bytes of hbm in common")])  # and y is read again afterwards
def test_an_output_in_the_wrong_place_is_caught(name, complaint):
    made = mc.compile(step, W, X, Y, device="gpu", donate_argnums=0)
    verify_plan(made.plan, made.module)
    out, other = made.plan.placements["out0"], made.plan.placements[name]
    placements = {**made.plan.placements, "out0": replace(out, offset_bytes=other.offset_bytes, bytes=512)}
    with pytest.raises(errors.CompileError, match=complaint):
        verify_plan(replace(made.plan, placements=placements), made.module)
