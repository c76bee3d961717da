"""Every program on every execution: tpu, gpu in vector mode and in lane mode give what numpy gives in
float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernel_programs import error
from random_graphs import random_graph

import minicc as mc
from minicc.compiler import compile_graph
from minicc.graph.evaluate import evaluate
from minicc.kernel.evaluate import allocate, evaluate_pipelined
from minicc.kernel.fuse import fuse
from minicc.tools.bisect import first_difference
from minicc.tpu.emulator import run
from minicc.tpu.text import parse

EXECUTIONS = {"tpu": ("tpu:v5e", "vector"), "vector": ("gpu", "vector"), "lane": ("gpu", "lane")}


def linear_relu(x, w, b):
    return (x @ w + b).relu()


def softmax(x):
    return x.softmax(axis=-1)


def layernorm(x, w, b):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / ((centred * centred).mean(axis=-1, keepdims=True) + 1e-5).sqrt() * w + b


def attention(q, k, v):
    return ((q @ k.T) * 0.125).softmax(axis=-1) @ v


def gelu(x, y):
    t = x + y
    return t * 0.5 * ((t * 0.79788456 * (t * t * 0.044715 + 1.0)).tanh() + 1.0), t.exp().sum(), t.max(axis=0)


def transposed(x, y):
    return x.T @ y, (x.T @ y).T, x + 1.0, y.T


def mlp_step(x, w1, b1, w2, b2, onehot):
    def loss(w1, b1, w2, b2):
        logits = (x @ w1 + b1).relu() @ w2 + b2
        return -(logits.log_softmax(axis=-1) * onehot).sum() / x.shape[0]

    value, grads = mc.value_and_grad(loss, argnums=(0, 1, 2, 3))(w1, b1, w2, b2)
    return value, *(p - 0.1 * g for p, g in zip((w1, b1, w2, b2), grads, strict=True))


def batched(q, k):
    return q @ k.transpose(0, 1, 3, 2), q.transpose(0, 2, 1, 3).reshape(2, 5, 12)


def slices(x):
    return x[1:, ::2] * 2.0, x[3], x[:, -1:], x[2:5].sum(axis=1)


def compares(x, y):
    return mc.where(x > y, x, 0.0), (x <= 0.5) & (y > 0.0), (x > y).astype("i32").sum(axis=0)


PROGRAMS = {
    "linear_relu": (linear_relu, [(200, 300), (300, 130), (130,)]),
    "linear_relu_one_row": (linear_relu, [(1, 784), (784, 10), (10,)]),
    "softmax": (softmax, [(37, 10)]),
    "softmax_long": (softmax, [(9, 1000)]),
    "layernorm": (layernorm, [(50, 129), (129,), (129,)]),
    "attention": (attention, [(70, 16), (70, 16), (70, 16)]),
    "gelu": (gelu, [(127, 7), (127, 7)]),
    "transposed": (transposed, [(129, 40), (129, 65)]),
    "mlp_step": (mlp_step, [(33, 64), (64, 128), (128,), (128, 10), (10,), (33, 10)]),
    "batched": (batched, [(2, 3, 5, 4), (2, 3, 7, 4)]),
    "slices": (slices, [(7, 129)]),
    "compares": (compares, [(12, 130), (12, 130)]),
}


def inputs_of(shapes):
    rng = np.random.default_rng(0)
    scales = [0.1 if len(shape) == 2 else 1.0 for shape in shapes]
    pairs = zip(shapes, scales, strict=True)
    return [(rng.standard_normal(shape) * scale).astype(np.float32) for shape, scale in pairs]


def graph_of(name):
    fn, shapes = PROGRAMS[name]
    inputs = inputs_of(shapes)
    graph = mc.compile(fn, *map(mc.Tensor, inputs)).raw_graph
    by_name = dict(zip(list(fn.__code__.co_varnames), inputs, strict=False))
    return graph, [by_name[value.node.attrs["name"]] for value in graph.inputs]


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_execution_gives_what_numpy_gives_in_float64(name, execution):
    graph, inputs = graph_of(name)
    want = evaluate(graph, inputs, dtype64=True)
    got = compile_graph(graph, *EXECUTIONS[execution]).run(inputs)
    assert [error(g, w) < 2e-5 for g, w in zip(got, want, strict=True)] == [True] * len(want)


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("seed", range(40))
def test_random_programs_give_what_numpy_gives(seed, execution):
    graph, inputs = random_graph(seed)
    want = evaluate(graph, inputs, dtype64=True)
    got = compile_graph(graph, *EXECUTIONS[execution]).run(inputs)
    assert all(first_difference(g, w) is None for g, w in zip(got, want, strict=True))


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_tpus_cycles_by_cause_add_up_and_its_text_is_the_program(name):
    graph, inputs = graph_of(name)
    compiled = compile_graph(graph, "tpu:v5e")
    wanted = compiled.run(inputs)
    (report,) = compiled.reports
    assert sum(report.cause_units.values()) == report.cycles * report.mxus
    again = parse(str(compiled.program))
    assert again == compiled.program
    named = {n: a for (n, _), a in zip(compiled.module.inputs, inputs, strict=True)}
    second = run(again, {**compiled.module.constants, **named})
    assert second.cycles == report.cycles
    outputs = [second.outputs[n].reshape(t.shape) for n, t in compiled.module.outputs if n in second.outputs]
    assert all((g == w).all() for g, w in zip(outputs, wanted, strict=True))


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_pipelined_level_means_the_same(name):
    graph, inputs = graph_of(name)
    compiled = compile_graph(graph, "tpu:v5e")
    named = {n: a for (n, _), a in zip(compiled.module.inputs, inputs, strict=True)}
    buffers = allocate(compiled.module, named)
    for pipelined in compiled.pipelined:
        evaluate_pipelined(pipelined, buffers)
    want = evaluate(graph, inputs, dtype64=True)
    got = [buffers[n].reshape(t.shape) for n, t in compiled.module.outputs]
    assert all(error(g, w) < 2e-5 for g, w in zip(got, want, strict=True))


@pytest.mark.parametrize(("m", "k", "n"), [(512, 512, 512), (200, 300, 130)])
def test_relu_of_a_linear_layer_is_one_kernel(m, k, n):
    x, w, b = (mc.zeros(*shape) for shape in ((m, k), (k, n), (n,)))
    assert len(mc.compile(linear_relu, x, w, b, device="tpu:v5e").kernels.kernels) == 1


def test_two_kernels_meet_in_vmem():
    def two(x, w, v):
        return (x @ w).relu() @ v

    arrays = inputs_of([(64, 256), (256, 128), (128, 256)])
    with mc.using(fuse=lambda graph, target: fuse(graph, replace(target, one_core=False))):
        compiled = mc.compile(two, *map(mc.Tensor, arrays), device="tpu:v5e")
    assert [p.space.value for p in compiled.plan.placements.values() if p.role.value == "temp"] == ["vmem"]
    compiled(*map(mc.Tensor, arrays))
    compulsory = 4 * (64 * 256 + 256 * 128 + 128 * 256 + 64 * 256)
    assert compiled.profile().hbm_bytes == compulsory  # the 64 x 128 between them never leaves the chip


def test_a_training_loop_compiles_once():
    def step(w, x):
        loss, grad = mc.value_and_grad(lambda w: ((x @ w) * (x @ w)).mean())(w)
        return loss, w - 0.1 * grad

    jitted = mc.jit(step)
    from minicc import compiler

    seen = []
    compiler.on_compile.append(seen.append)
    w, losses = mc.Tensor(np.ones((5, 3), np.float32)), []
    for seed in range(5):
        x = np.random.default_rng(seed).standard_normal((16, 5)).astype(np.float32)
        loss, w = jitted(w, x)
        losses.append(loss.item())
    compiler.on_compile.remove(seen.append)
    assert len(seen) == 1 and losses[-1] < losses[0]
