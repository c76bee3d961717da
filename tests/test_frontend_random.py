"""Random keys against published numbers and across devices, and draws against their distributions."""

from __future__ import annotations

import numpy as np
import pytest

import minicc as mc
from minicc import Tensor
from minicc.frontend.random import threefry

# Random123's known answers for threefry2x32 with 20 rounds: counter, key -> words
KNOWN = [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize("counter, key, words", KNOWN)
def test_threefry_gives_the_published_answers(counter: tuple, key: tuple, words: tuple):
    def scalars(pair: tuple) -> tuple:
        return tuple(Tensor(np.array(word, np.uint32)) for word in pair)
    assert tuple(word.item() for word in threefry(scalars(key), scalars(counter))) == words


def test_keys_give_the_numbers_that_jax_documents():
    key = mc.random.key(0)
    assert mc.random.split(key).tolist() == [[1797259609, 2579123966], [928981903, 3453687069]]
    assert mc.random.normal(mc.random.key(42)).item() == pytest.approx(-0.028304616, rel=1e-5)


def test_bits_and_uniform_numbers_are_the_same_on_every_device_and_under_jit():
    key = mc.random.fold_in(mc.random.key(5), 3)
    def draw(key: Tensor) -> tuple[Tensor, Tensor]:
        return mc.random.bits(key, (5,)), mc.random.uniform(key, (2, 3))
    for (b, u), (bits, uniform) in [[mc.jit(draw, device=device)(key) for device in ("gpu", "tpu")]]:
        assert b.tolist() == bits.tolist() and u.tolist() == uniform.tolist()
        assert mc.random.uniform(key, (6,)).tolist() == uniform.reshape(-1).tolist()


def test_draws_have_the_distributions_they_are_named_for():
    key, n = mc.random.key(1), 20000
    shares = mc.log(Tensor([0.1, 0.6, 0.3])).broadcast_to(n, 3)
    drawn = (mc.random.uniform(key, n), mc.random.normal(key, n), mc.random.randint(key, n, 1, 7),
             mc.random.bernoulli(key, 0.2, n), mc.random.categorical(key, shares))
    mc.realise(drawn)
    uniform, normal, dice, coins, classes = (x.numpy() for x in drawn)
    assert 0 <= uniform.min() < 1e-3 and 0.999 < uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.01
    assert abs(normal.mean()) < 0.03 and abs(normal.std() - 1) < 0.02
    assert dice.dtype == np.int32 and abs(np.bincount(dice, minlength=7)[1:] / n - 1 / 6).max() < 0.01
    assert abs(coins.mean() - 0.2) < 0.01 and abs(np.bincount(classes) / n - [0.1, 0.6, 0.3]).max() < 0.015
    order = mc.random.permutation(key, 16).tolist()
    assert sorted(order) == list(range(16)) != order


def test_keys_that_split_or_fold_gave_draw_other_numbers():
    key = mc.random.key(9)
    keys = [key, *mc.random.split(key), mc.random.fold_in(key, Tensor(3))]
    bits = mc.stack([mc.random.bits(one, 4) for one in keys]).tolist()
    assert len({tuple(row) for row in bits}) == len(keys)
