"""Layers, norms, attention and losses against their formulas in numpy and float64; what they refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest

import minicc as mc
from minicc import Tensor, nn
from minicc.frontend import random
from minicc.frontend.pytree import tree_map

RANDOM, DRAW = np.random.default_rng(7), nn.Draw(7)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def near(got: Tensor, want: np.ndarray, tolerance: float = 3e-6) -> bool:
    return got.shape == want.shape and np.abs(got.numpy() - want).max() <= tolerance * np.abs(want).max()


def wide(tree: dict) -> dict:
    return tree_map(lambda x: np.asarray(x.numpy(), np.float64), tree)


def shaken(tree: dict) -> dict:
    return tree_map(lambda x: Tensor(x.numpy() + 0.3 * normal(*x.shape)), tree)


# -- what parameters begin as --------------------------------------------------------------------------------


def test_initial_numbers_have_the_spread_that_their_rules_say():
    draw, shape = nn.Draw(0), (300, 200)
    for x, deviation, bound in (
            (draw.normal(shape, 0.5), 0.5, 10), (draw.uniform(shape, 0.5), 0.5 / math.sqrt(3), 0.5),
            (draw.xavier(shape), math.sqrt(2 / 500), math.sqrt(6 / 500)),
            (draw.kaiming(shape), math.sqrt(2 / 300), 10),
            # a normal distribution cut at two deviations has 0.8796 of its deviation
            (draw.truncated(shape, 0.5), 0.5 * 0.8796, 1.0)):
        numbers = x.numpy()
        assert abs(numbers.std() - deviation) < 0.01 * deviation and abs(numbers.mean()) < 0.02 * deviation
        assert np.abs(numbers).max() <= bound and numbers.dtype == np.float32


def test_convolutions_count_their_window_among_inputs():
    assert nn.fans((8, 3, 5, 5)) == (3 * 25, 8 * 25)
    with pytest.raises(mc.ShapeError, match="a vector has no inputs"):
        nn.fans((3,))


def test_what_is_never_drawn_takes_no_memory():
    shapes = nn.Draw(None).normal((1 << 20, 1 << 20))  # 4 TiB, if it were
    assert shapes.lazy and nn.parameter_count([shapes, {"b": shapes}]) == 1 << 41


# -- linear, embedding, convolution --------------------------------------------------------------------------


def test_linear_has_a_bias_or_none():
    params, x = shaken(nn.linear_init(5, 3, DRAW)), normal(2, 4, 5)
    p = wide(params)
    assert near(nn.linear(params, Tensor(x)), x @ p["w"] + p["b"])
    assert near(nn.linear({"w": params["w"]}, Tensor(x)), x @ p["w"])
    assert set(nn.linear_init(5, 3, DRAW, bias=False)) == {"w"} and set(nn.linear_init(5, 3)) == {"w", "b"}


def test_embedding_takes_rows_and_clamps_what_has_none():
    params = nn.embedding_init(4, 3, DRAW)
    found = nn.embedding(params, Tensor([[0, 3], [7, -5]])).numpy()
    assert (found == params["w"].numpy()[[[0, 3], [3, 0]]]).all()


def test_a_rare_row_gets_all_its_gradients():
    table, ids = Tensor(normal(4, 2)), Tensor([1, 3, 1, 1])
    gradient = mc.grad(lambda w: nn.embedding({"w": w}, ids).sum())(table)
    assert gradient.tolist() == [[0, 0], [3, 3], [0, 0], [1, 1]]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_conv_convolves_over_as_many_axes_as_its_weights_have(rank: int):
    params = shaken(nn.conv_init(2, 4, (3,) * rank, DRAW, groups=2))
    x, p = normal(2, 2, *[6] * rank), wide(params)
    found = nn.conv(params, Tensor(x), stride=2, padding=1, groups=2)
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0)] + [(1, 1)] * rank)
    want = np.zeros((2, 4, *[3] * rank))
    for place in np.ndindex(*[3] * rank):
        window = padded[(slice(None), slice(None), *(slice(2 * i, 2 * i + 3) for i in place))]
        for out in range(4):  # channels 0 and 1 see input 0, 2 and 3 see input 1
            heard = (window[:, out // 2] * p["w"][out, 0]).reshape(2, -1).sum(1)
            want[(slice(None), out, *place)] = heard + p["b"][out]
    assert near(found, want)


# -- norms ---------------------------------------------------------------------------------------------------

NORMED = normal(3, 4, 6) * 5 + 20


def standard(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    x = x.astype(np.float64)
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


def test_layer_norm_and_rms_norm_are_their_formulas():
    params = shaken(nn.norm_init(6, DRAW))
    p, x = wide(params), NORMED.astype(np.float64)
    assert near(nn.layer_norm(params, Tensor(NORMED)), standard(NORMED, (2,)) * p["w"] + p["b"], 2e-5)
    root = np.sqrt((x ** 2).mean(-1, keepdims=True) + 1e-5)
    assert near(nn.rms_norm({"w": params["w"]}, Tensor(NORMED)), x / root * p["w"])


def test_group_norm_standardises_groups_of_channels():
    params = shaken(nn.norm_init(4, DRAW))
    p, want = wide(params), standard(NORMED.reshape(3, 2, 12), (2,)).reshape(3, 4, 6)
    found = nn.group_norm(params, Tensor(NORMED), 2)
    assert near(found, want * p["w"][:, None] + p["b"][:, None], 2e-5)


def test_batch_norm_uses_the_batch_in_training_and_what_ran_along_after():
    params, state = nn.batch_norm_init(4, DRAW)
    params, x = shaken(params), NORMED.astype(np.float64)
    p = wide(params)
    y, state = nn.batch_norm(params, state, Tensor(NORMED), training=True)
    assert near(y, standard(NORMED, (0, 2)) * p["w"][:, None] + p["b"][:, None], 2e-5)
    mean, var = 0.1 * x.mean((0, 2)), 0.9 + 0.1 * x.transpose(1, 0, 2).reshape(4, -1).var(1, ddof=1)
    assert near(state["mean"], mean) and near(state["var"], var, 2e-5)
    y, same = nn.batch_norm(params, state, Tensor(NORMED), training=False)
    want = (x - mean[:, None]) / np.sqrt(var + 1e-5)[:, None] * p["w"][:, None] + p["b"][:, None]
    assert near(y, want, 2e-5) and same is state


def test_norms_of_bf16_are_computed_in_f32():
    x = Tensor(NORMED, dtype="bf16")
    found = nn.layer_norm({}, x)
    assert str(found.dtype) == "bf16"
    want = standard(x.numpy(), (2,))
    assert np.abs(found.numpy() - want).max() <= 2.0**-8 * np.abs(want).max()  # half a step of bf16


# -- dropout -------------------------------------------------------------------------------------------------


def test_dropout_keeps_the_mean_and_is_nothing_without_a_key():
    x = mc.ones(200, 100)
    y = nn.dropout(x, 0.25, random.key(3)).numpy()
    share = (y == 0).mean()
    assert abs(share - 0.25) < 0.015 and set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.75)}
    assert nn.dropout(x, 0.25, None) is x and nn.dropout(x, 0.0, random.key(3)) is x
    again, other = (nn.dropout(x, 0.25, random.key(seed)).numpy() for seed in (3, 4))
    assert (again == y).all() and (other != y).any()


# -- attention -----------------------------------------------------------------------------------------------


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, seen: np.ndarray, scale: float) -> np.ndarray:
    """One head of one batch at a time."""
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    for b, h in np.ndindex(*q.shape[:2]):
        g = h // (q.shape[1] // k.shape[1])
        scores = np.where(seen[b], q[b, h].astype(np.float64) @ k[b, g].T * scale, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        out[b, h] = weights / weights.sum(-1, keepdims=True) @ v[b, g]
    return out


@pytest.mark.parametrize("causal", [False, True])
def test_attention_looks_where_the_mask_lets_it_with_grouped_heads(causal: bool):
    q, k, v = normal(2, 4, 5, 8), normal(2, 2, 5, 8), normal(2, 2, 5, 3)
    mask = RANDOM.random((2, 5, 5)) < 0.6
    mask[:, np.arange(5), np.arange(5)] = True
    seen = mask & np.tri(5, dtype=bool) if causal else mask
    found = nn.attention(*map(Tensor, (q, k, v)), Tensor(mask[:, None]), causal, scale=0.7)
    assert near(found, attended(q, k, v, seen, 0.7))


def test_a_position_that_may_look_nowhere_is_even_and_not_nan():
    v = normal(1, 1, 4, 2)
    q, k, nowhere = Tensor(normal(1, 1, 1, 2)), Tensor(normal(1, 1, 4, 2)), Tensor([False] * 4)
    found = nn.attention(q, k, Tensor(v), nowhere)
    assert near(found, v.astype(np.float64).mean(2, keepdims=True))


def test_rotations_depend_on_the_distance_alone():
    q, k = (Tensor(normal(1, 1, 1, 16)) for _ in "qk")

    def product(i: int, j: int) -> float:
        a, b = (nn.rotate(x, *nn.rotary(Tensor([at]), 16)) for x, at in ((q, i), (k, j)))
        return (a * b).sum().item()

    assert math.isclose(product(3, 5), product(103, 105), abs_tol=1e-4)
    assert not math.isclose(product(3, 5), product(3, 6), abs_tol=1e-2)
    assert near(nn.rotate(q, *nn.rotary(Tensor([0]), 16)), q.numpy())


def test_a_cache_is_written_at_a_place_that_is_computed():
    cache = nn.cache_init(1, 2, 5, 3)
    k, v = normal(1, 2, 2, 3), normal(1, 2, 2, 3)
    write = mc.jit(nn.cache_update)
    for start in (0, 3):
        cache = write(cache, Tensor(k), Tensor(v), Tensor(start))
    for name, new in (("k", k), ("v", v)):
        want = np.concatenate([new, np.zeros((1, 2, 1, 3)), new], 2)
        assert (cache[name].numpy() == want).all()
    assert len(write.programs) == 1


# -- losses --------------------------------------------------------------------------------------------------

X, Y = normal(4, 3), RANDOM.random((4, 3)).astype(np.float32)
X64, Y64 = X.astype(np.float64) * 3, Y.astype(np.float64)


def log_softmax(x: np.ndarray) -> np.ndarray:
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


LOSSES = {
    "mse": (nn.mse, ((X64 - Y64) ** 2).mean()), "l1": (nn.l1, np.abs(X64 - Y64).mean()),
    "huber": (nn.huber, np.where(np.abs(X64 - Y64) < 1, (X64 - Y64) ** 2 / 2,
                                 np.abs(X64 - Y64) - 0.5).mean()),
    "bce_with_logits": (nn.bce_with_logits, -(Y64 * np.log(1 / (1 + np.exp(-X64)))
                                              + (1 - Y64) * np.log(1 - 1 / (1 + np.exp(-X64)))).mean()),
    "kl": (nn.kl, (np.exp(log_softmax(Y64)) * (log_softmax(Y64) - log_softmax(X64))).sum(-1).mean()),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_its_formula(name: str):
    loss, want = LOSSES[name]
    np.testing.assert_allclose(loss(Tensor(X * 3), Tensor(Y)).item(), want, rtol=3e-6)


def test_losses_per_element_have_the_elements_shape_and_large_logits_overflow_nowhere():
    assert nn.huber(Tensor(X), Tensor(Y), delta=0.5, reduce=False).shape == (4, 3)
    far = nn.bce_with_logits(Tensor([1000.0, -1000.0]), Tensor([0.0, 0.0]), reduce=False)
    assert far.tolist() == [1000.0, 0.0]


# -- mistakes ------------------------------------------------------------------------------------------------

W = nn.linear_init(4, 4, DRAW)
MISTAKES = {
    "losses of two shapes": (lambda: nn.mse(mc.zeros(3), mc.zeros(3, 1)), mc.ShapeError, "f32.3. and f32.3"),
    "floats as rows": (lambda: nn.embedding(W, mc.zeros(3)), mc.DtypeError, "picked by integers"),
    "groups": (lambda: nn.group_norm({}, mc.zeros(2, 4, 3), 3), mc.ShapeError, "3 for f32.2,4,3."),
    "heads": (lambda: nn.split_heads(mc.zeros(1, 2, 6), 4), mc.ShapeError, "4 heads for f32.1,2,6."),
    "grouped heads": (lambda: nn.attention(*(mc.zeros(1, n, 2, 4) for n in (4, 3, 3))), mc.ShapeError,
                      "G divides H"),
    "a rate": (lambda: nn.dropout(mc.zeros(3), 1.5, random.key(0)), mc.CompileError, "1.5"),
    "a convolution by a matrix": (lambda: nn.conv(W, mc.zeros(1, 4, 4)), mc.ShapeError, "rank 3, 4 or 5"),
    "sizes of a layer": (lambda: nn.linear(W, mc.zeros(2, 3)), mc.ShapeError, "3 .*and 4"),
    "a scale of another size": (lambda: nn.layer_norm({"w": mc.zeros(3)}, mc.zeros(2, 4)), mc.ShapeError,
                                "broadcast"),
    "statistics of others": (lambda: nn.batch_norm(W, {"mean": mc.zeros(2), "var": mc.zeros(2)},
                                                   mc.zeros(2, 4), False), mc.ShapeError, "broadcast"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_clear_error_at_its_line(name: str):
    mistake, kind, words = MISTAKES[name]
    with pytest.raises(kind, match=words) as caught:
        mistake()
    assert caught.value.at[0].file == __file__
