"""Optimisers against the published updates, written out in numpy and float64 for five steps."""

from __future__ import annotations

import math

import numpy as np
import pytest

import minicc as mc
from minicc import Tensor, optim

RANDOM = np.random.default_rng(3)
STEPS = 5
P0, GRADIENTS = RANDOM.standard_normal((3, 5)), RANDOM.standard_normal((STEPS, 3, 5))


# -- the published updates: (p, g, memory, number of the step) -> p; memory is a dict that starts empty ------


def sgd(p, g, memory, t, rate=0.1, momentum=0.9, nesterov=False, decay=0.0):
    g = g + decay * p
    memory["v"] = momentum * memory.get("v", 0.0) + g
    return p - rate * (g + momentum * memory["v"] if nesterov else memory["v"])


def adam(p, g, memory, t, rate=0.1, b1=0.9, b2=0.999, epsilon=1e-8, coupled=0.0, decoupled=0.0):
    g = g + coupled * p
    memory["m"] = b1 * memory.get("m", 0.0) + (1 - b1) * g
    memory["v"] = b2 * memory.get("v", 0.0) + (1 - b2) * g ** 2
    m, v = memory["m"] / (1 - b1 ** t), memory["v"] / (1 - b2 ** t)
    return p - rate * (m / (np.sqrt(v) + epsilon) + decoupled * p)


def lion(p, g, memory, t, rate=0.1, b1=0.9, b2=0.99, decay=0.1):
    m = memory.get("m", 0.0)
    memory["m"] = b2 * m + (1 - b2) * g
    return p - rate * (np.sign(b1 * m + (1 - b1) * g) + decay * p)


def muon(p, g, memory, t, rate=0.1, momentum=0.95):
    memory["v"] = momentum * memory.get("v", 0.0) + g
    x = g + momentum * memory["v"]
    x = x / np.linalg.norm(x)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return p - rate * x  # 3 rows and 5 columns: no scale


CASES = {
    "sgd": (optim.SGD(0.1), lambda *a: sgd(*a, momentum=0.0)),
    "momentum": (optim.SGD(0.1, momentum=0.9), sgd),
    "nesterov, decay": (optim.SGD(0.1, 0.9, nesterov=True, weight_decay=0.1),
                        lambda *a: sgd(*a, nesterov=True, decay=0.1)),
    "adam": (optim.Adam(0.1), adam),
    "rms prop": (optim.Adam(0.1, beta1=0.0), lambda *a: adam(*a, b1=0.0)),
    "adam, decay": (optim.Adam(0.1, weight_decay=0.1), lambda *a: adam(*a, coupled=0.1)),
    "adamw": (optim.AdamW(0.1, weight_decay=0.1), lambda *a: adam(*a, decoupled=0.1)),
    "lion": (optim.Lion(0.1, weight_decay=0.1), lion),
    "muon": (optim.Muon(0.1), muon),
}


@pytest.mark.parametrize("name", CASES)
def test_five_steps_under_jit_are_the_published_ones(name):
    optimiser, published = CASES[name]
    params = {"w": Tensor(P0.astype(np.float32))}
    state, step, want, memory = optimiser.init(params), mc.jit(optimiser.step), P0, {}
    for t, g in enumerate(GRADIENTS, 1):
        params, state = step(params, {"w": Tensor(g.astype(np.float32))}, state)
        want = published(want, g, memory, t)
        np.testing.assert_allclose(params["w"].numpy(), want, rtol=2e-5, atol=2e-6)
    assert state["step"].item() == STEPS and len(step.programs) == 1


def test_a_step_outside_jit_is_the_same_step():
    params, gradients = [Tensor([1.0, -2.0])], [Tensor([0.5, 0.25])]
    moved, state = optim.AdamW(0.1).step(params, gradients)
    assert not moved[0].lazy and not state["mean"][0].lazy
    # the first step of Adam is the sign of the gradient, whatever its size
    np.testing.assert_allclose(moved[0].numpy(), [1 - 0.1 * 1.01, -2 - 0.1 * 0.98], rtol=1e-6)


def test_muon_moves_equally_in_every_direction():
    x = RANDOM.standard_normal((16, 6))
    singular = np.linalg.svd(optim.orthogonalised(Tensor(x.astype(np.float32))).numpy())[1]
    assert singular.max() < 1.3 and singular.min() > 0.6  # from 6 values that spread more
    with pytest.raises(mc.ShapeError, match="AdamW for the rest"):
        optim.Muon(0.1).step([Tensor([1.0])], [Tensor([1.0])])


SCHEDULES = {
    "constant": (optim.constant(0.5), lambda t: 0.5),
    "warm up": (optim.warm_up(4, 0.5), lambda t: 0.5 * min(t / 4, 1)),
    "staircase": (optim.staircase(0.5, every=3, factor=0.1), lambda t: 0.5 * 0.1 ** ((t - 1) // 3)),
    "cosine": (optim.cosine(0.5, 8, final=0.1), lambda t: 0.3 + 0.2 * math.cos(math.pi * min(t, 8) / 8)),
    "cosine after warm-up": (optim.cosine(0.5, 8, warm_up_steps=4), lambda t: 0.5 * t / 4 if t < 4 else
                             0.25 * (1 + math.cos(math.pi * min(t - 4, 4) / 4))),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_is_its_formula(name):
    schedule, formula = SCHEDULES[name]
    found = [float(schedule(Tensor(t))) for t in range(1, 11)]
    np.testing.assert_allclose(found, [formula(t) for t in range(1, 11)], rtol=1e-5, atol=1e-7)


def test_a_scheduled_rate_changes_without_a_new_program():
    sgd = optim.SGD(optim.staircase(1.0, every=2, factor=0.5))
    step, params, state, seen = mc.jit(sgd.step), [Tensor(0.0)], sgd.init([Tensor(0.0)]), []
    for _ in range(4):
        params, state = step(params, [Tensor(1.0)], state)
        seen.append(params[0].item())
    assert seen == [-1.0, -2.0, -2.5, -3.0] and len(step.programs) == 1


def test_clipping_by_the_global_norm_keeps_the_direction_and_short_ones():
    tree = {"a": Tensor([3.0, 0.0]), "b": [Tensor([[4.0]])]}
    assert optim.global_norm(tree).item() == 5.0
    clipped = optim.clip_by_global_norm(tree, 1.0)
    np.testing.assert_allclose(clipped["a"].numpy(), [0.6, 0.0], rtol=1e-6)
    np.testing.assert_allclose(clipped["b"][0].numpy(), [[0.8]], rtol=1e-6)
    assert optim.clip_by_global_norm(tree, 6.0)["a"].tolist() == [3.0, 0.0]
    zeros = [Tensor([0.0])]
    assert optim.clip_by_global_norm(zeros, 1.0)[0].tolist() == [0.0]


def test_clipping_by_value_bounds_each_element():
    assert optim.clip_by_value([Tensor([-3.0, 0.5, 2.0])], 1.0)[0].tolist() == [-1.0, 0.5, 1.0]
