"""Every kind of fusion, on sizes that are no multiple of any tile: kernels mean what the program means."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from kernel_programs import error, named

import minicc as mc
from minicc.devices import find
from minicc.graph.evaluate import evaluate as evaluate_graph
from minicc.graph.ir import Graph
from minicc.graph.simplify import simplify
from minicc.kernel.evaluate import evaluate
from minicc.kernel.fuse import fuse
from minicc.kernel.ir import Module
from minicc.kernel.legalize import legalize
from minicc.kernel.tile import tile

SIZES = [(1, 7), (7, 127), (127, 129), (129, 1000), (1000, 1)]
IDS = mc.Tensor([3, 0, 0, 5, 9])
NORMAL = 1e-5


def normalised(x):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / ((centred * centred).mean(axis=-1, keepdims=True) + NORMAL).sqrt()


def attention(q, k, v):
    return ((q @ k.T) * 0.125).softmax(axis=-1) @ v


def diamond(x):
    y = x.exp()
    return y * (y + 1.0).log()


def both(x):
    y = (x * 2.0).tanh()
    return y, y.sum(axis=1)


# kind -> (the program, the shapes of what it takes, for two sizes). f: of m x n, t: of n x m
KINDS: dict[str, tuple[Callable, Callable[[int, int], list[tuple[int, ...]]]]] = {
    "elementwise chain": (lambda x: ((x * 2.0 + 1.0).exp() - 0.5).tanh(), lambda m, n: [(m, n)]),
    "diamond": (diamond, lambda m, n: [(m, n)]),
    "broadcast": (lambda x, row, column: (x + row) * column, lambda m, n: [(m, n), (n,), (m, 1)]),
    "reshape that merges": (lambda x: (x.exp().reshape(-1) + 1.0).tanh(), lambda m, n: [(m, n)]),
    "reshape that splits": (lambda x, y: x.exp().reshape(y.shape) + y, lambda m, n: [(m * n,), (m, n)]),
    "transpose": (lambda x, y: x.exp().T + y, lambda m, n: [(m, n), (n, m)]),
    "slice": (lambda x: (x.exp()[::2, : max(1, x.shape[1] // 2)] + 1.0).tanh(), lambda m, n: [(m, n)]),
    "pad": (lambda x: mc.pad(x.exp(), ((1, 0), (2, 3))) * 2.0, lambda m, n: [(m, n)]),
    "concatenate": (lambda x, y: mc.concatenate([x.exp(), -y], axis=1).tanh(), lambda m, n: [(m, n), (m, 3)]),
    "reverse": (lambda x, y: mc.flip(x.exp(), axis=1) + y, lambda m, n: [(m, n), (m, n)]),
    "prologue and epilogue of a dot": (lambda x, w, b: (x.exp() @ w + b).relu(),
                                       lambda m, n: [(m, n), (n, 129), (129,)]),
    "prologue and epilogue of a convolution": (
        lambda x, w, b: (mc.conv2d(x.tanh(), w, padding=1) + b).relu(),
        lambda m, n: [(2, 3, 5, min(n, 129)), (min(m, 127), 3, 3, 3), (min(m, 127), 1, 1)]),
    "rows normalised": (normalised, lambda m, n: [(m, n)]),
    "softmax": (lambda x: x.softmax(axis=-1), lambda m, n: [(m, n)]),
    "attention": (attention, lambda m, n: [(m, 7), (n, 7), (n, 9)]),
    "siblings": (lambda x, w, v: (x @ w, (x @ v).tanh()), lambda m, n: [(m, n), (n, 7), (n, 7)]),
    "stored besides": (both, lambda m, n: [(m, n)]),
    "all to a scalar": (lambda x: (x * x).sum(), lambda m, n: [(m, n)]),
    "update after the gradient": (lambda x, g, w: w - (x.T @ g) * 0.01,
                                  lambda m, n: [(m, n), (m, 9), (n, 9)]),
    "gather": (lambda table: mc.take(table.exp(), IDS, axis=0) * 2.0, lambda m, n: [(m + 9, n)]),
    "scatter": (lambda table, rows: table.at[IDS].add(-rows), lambda m, n: [(m + 9, n), (5, n)]),
    "dynamic": (lambda x, row: mc.dynamic_slice(
        mc.dynamic_update_slice(x, row * 2.0, (IDS[0], 0)), (IDS[3], 0), (1, x.shape[1])) + 1.0,
                lambda m, n: [(m, n), (1, n)]),
}


@cache
def program(kind: str, m: int, n: int) -> tuple[Graph, list[np.ndarray], list[np.ndarray]]:
    """A program as traced, inputs for it, and its outputs in float64."""
    fn, shapes = KINDS[kind]
    rng = np.random.default_rng(m * n)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes(m, n)]
    traced = mc.jit(fn)
    graph, hidden, _ = traced.trace(traced.take(tuple(map(mc.Tensor, arrays)), {}))
    inputs = [*arrays, *(one.numpy() for one in hidden)]
    return graph, inputs, evaluate_graph(graph, inputs, dtype64=True)


def kernels(graph: Graph, device: str, log: list | None = None) -> Module:
    """The program as untiled kernels of a device."""
    return fuse(legalize(simplify(graph)), find(device).target, log=log)


def in_tiles(module: Module, device: str) -> Module:
    target = find(device).target
    return Module(module.name, tuple(tile(kernel, target) for kernel in module.kernels), module.inputs,
                  module.outputs, module.constants)


@pytest.mark.parametrize("device", ["tpu", "gpu"])
@pytest.mark.parametrize("kind", KINDS)
def test_kernels_mean_what_the_program_means(kind: str, device: str):
    for m, n in SIZES:
        graph, inputs, want = program(kind, m, n)
        module = in_tiles(kernels(graph, device), device)
        got = evaluate(module, named(module, inputs), float64=True)
        assert max(map(error, got, want)) < 1e-11, (m, n)


def ops(module: Module) -> list[list[str]]:
    """The ops of each kernel, each block once."""
    return [[block.op for block in kernel.blocks()] for kernel in module.kernels]


def traced(fn: Callable, *shapes: tuple[int, ...]) -> Graph:
    made = mc.jit(fn)
    return made.trace(made.take(tuple(mc.Tensor(np.ones(shape, np.float32)) for shape in shapes), {}))[0]


def to_three_dots(x, a, b, c):
    y = mc.gelu(x)
    return y @ a, y @ b, y @ c


def test_an_expensive_value_of_three_users_is_computed_once_and_stored():
    log = []
    module = kernels(traced(to_three_dots, *[(512, 512)] * 4), "tpu", log)
    assert [found.count("tanh") for found in ops(module)] == [1, 0]
    first, second = module.kernels
    value = next(operand.buffer for operand in first.outputs if operand.buffer.startswith("t"))
    assert value in {operand.buffer for operand in second.inputs}
    (step,) = [step for step in log if step.what.startswith(f"{value} ")]
    assert step.taken and "cycles stored by" in step.why and step.why.endswith("else")


def test_gelu_of_a_layer_is_computed_once_for_all_who_read_it():
    graph = traced(lambda x, w, a, b, c: to_three_dots(x @ w, a, b, c), *[(512, 512)] * 5)
    found = ops(kernels(graph, "tpu"))
    assert [sum(one.count(op) for one in found) for op in ("tanh", "dot")] == [1, 4]


def test_recompute_is_refused_where_it_costs_more_than_memory_and_the_log_says_both():
    log = []
    module = kernels(traced(lambda x, w: ((x @ w).tanh(), (x @ w).T + 1.0), *[(512, 512)] * 2), "gpu", log)
    assert sum(found.count("dot") for found in ops(module)) == 1
    (refused,) = [step for step in log if not step.taken and "cycles fused" in step.why]
    together, apart = map(int, re.findall(r"\d+", refused.why))
    assert refused.what.endswith("dot_general") and together > apart


@pytest.mark.parametrize("kind, device, count, reason", [
    ("attention", "tpu", 1, "cycles fused"),
    ("attention", "gpu", 3, "does not reduce in the kernel of a dot"),
    ("siblings", "tpu", 1, "cycles less in one kernel"), ("siblings", "gpu", 2, "it is an output"),
    ("stored besides", "tpu", 1, "cycles stored by"), ("stored besides", "gpu", 2, "it is an output"),
    ("update after the gradient", "tpu", 1, "cycles fused"),
    ("update after the gradient", "gpu", 1, "cycles fused"), ("rows normalised", "gpu", 1, "cycles fused"),
    ("scatter", "tpu", 2, "it is an output")])
def test_each_kind_becomes_so_many_kernels_for_a_reason_in_the_log(kind, device, count, reason):
    log = []
    module = kernels(program(kind, 129, 1000)[0], device, log)
    assert len(module.kernels) == count
    assert any(reason in step.why for step in log)
