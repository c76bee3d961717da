"""Rows that do not fit: one kernel walks them in steps, and means what the program means."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_programs import error

import minicc as mc
from minicc import nn
from minicc.compiler import compile_graph
from minicc.graph.evaluate import evaluate
from minicc.graph.text import parse_graph
from minicc.kernel.online import is_online, online
from minicc.kernel.tile import candidates, tile

HEADS, SIZE = 4, 8
LENGTHS = [1, 7, 127, 129, 1000]


def in_steps(kernel, target, *, log=None):
    """The pass `tile`, but that whatever can be online is, in two steps or more."""
    forms = [kernel] if is_online(kernel) else online(kernel, target)
    if not forms:
        return tile(kernel, target, log=log)
    walked = forms[0].axes[-1]
    most = max(128, walked.size // 2 + 64)
    tried = candidates(forms[0], target)
    return forms[0].tiled(next(one.blocks for one in tried if one.blocks[walked.name] <= most))


# -- attention: the program, and what it sees and computes in numpy, float64 --------------------------------


def heads(x):
    """(T, H * D) -> (1, H, T, D), as a view."""
    return x.reshape(1, len(x), -1, SIZE).transpose(0, 2, 1, 3)


def joined(x):
    return x[0].transpose(1, 0, 2).reshape(x.shape[2], -1)


def angles(length):
    return np.arange(length)[:, None] * 100.0 ** (-2 / SIZE * np.arange(SIZE // 2))


def turned(x, library):
    """Each head's first half and second turned together by the angles."""
    cos, sin = (library.cos(angles(x.shape[2])), library.sin(angles(x.shape[2])))
    a, b = x[..., : SIZE // 2], x[..., SIZE // 2:]
    return library.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def causal(q, k, v):
    return joined(nn.attention(heads(q), heads(k), heads(v), causal=True))


def grouped(q, k, v):
    return joined(nn.attention(heads(q), *(heads(x[:, : HEADS * SIZE // 2]) for x in (k, v))))


def rotated(q, k, v):
    q, k = (nn.rotate(heads(x), *nn.rotary(mc.arange(len(x)), SIZE, 100.0)) for x in (q, k))
    return joined(nn.attention(q, k, heads(v), causal=True))


def masked(q, k, v):
    """Some keys are seen by no query of the first block, which holds -inf alone; and one query sees none."""
    seen = mc.Tensor(third(len(q)))
    scores = mc.where(seen, heads(q) @ heads(k).transpose(0, 1, 3, 2) * SIZE**-0.5, -np.inf)
    return joined(scores.softmax(-1) @ heads(v))


def third(length):
    seen = (np.arange(length)[:, None] + np.arange(length)) % 3 > 0
    seen[:, : length // 2] = False
    seen[length // 3] = False
    return seen


def expected(q, k, v, seen=True, groups=HEADS, turn=lambda x: x):
    q, k, v = (heads(x.astype(np.float64)) for x in (q, k[:, : groups * SIZE], v[:, : groups * SIZE]))
    k, v = (np.repeat(x, HEADS // groups, axis=1) for x in (turn(k), v))
    scores = np.where(seen, turn(q) @ k.swapaxes(2, 3) * SIZE**-0.5, -np.inf)
    with np.errstate(invalid="ignore"):
        e = np.exp(scores - scores.max(-1, keepdims=True))
    return joined(e / e.sum(-1, keepdims=True) @ v)


KINDS = {
    "causal": (causal, lambda n: {"seen": np.tri(n, dtype=bool)}),
    "grouped": (grouped, lambda n: {"groups": HEADS // 2}),
    "rotated": (rotated, lambda n: {"seen": np.tri(n, dtype=bool), "turn": lambda x: turned(x, np)}),
    "masked": (masked, lambda n: {"seen": third(n)}),
}


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("kind, length", [(kind, length) for kind in KINDS for length in LENGTHS
                                          if length < 1000 or kind == "causal"])
@pytest.mark.parametrize("device", ["tpu"])
def test_attention_in_steps_of_keys_is_attention(kind, device, length):
    program, how = KINDS[kind]
    arrays = [normal(length, HEADS * SIZE, seed=seed) for seed in range(3)]
    with mc.using(tile=in_steps):
        compiled = mc.compile(program, *map(mc.Tensor, arrays), device=device)
    got = compiled(*map(mc.Tensor, arrays)).numpy()
    want = expected(*arrays, **how(length))
    assert np.array_equal(np.isnan(got), np.isnan(want))
    assert error(np.nan_to_num(got), np.nan_to_num(want)) < 1e-5
    if length > 128:
        assert any(is_online(kernel) for kernel in compiled.kernels.kernels)


def softmax(x):
    return x.softmax(-1)


def normalised(x):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / ((centred * centred).mean(axis=-1, keepdims=True) + 1e-5).sqrt()


@pytest.mark.parametrize("device", ["tpu", "gpu"])
@pytest.mark.parametrize("program, want", [
    (softmax, lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    (normalised, lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5))])
def test_rows_that_do_not_fit_take_few_kernels(program, want, device):
    x = normal(4, 300_000)
    compiled = mc.compile(program, mc.Tensor(x), device=device)
    assert error(compiled(mc.Tensor(x)).numpy(), want(x.astype(np.float64))) < 1e-5
    assert len(compiled.kernels.kernels) <= 4


@pytest.mark.parametrize("x, w, window, to, axes", [
    ("3,3,2,7,4", "3,3,2,1,1", "stride=[1,2] dilation=[2,1] low=[0,0] high=[2,3]", "3,3,3,9,4", "0,1,2,4"),
    ("3,1,2,3", "1,2,2,1", "low=[2] high=[3]", "3,1,2,8", "0,2,3"),
])
def test_a_form_that_the_target_cannot_run_is_no_choice(x, w, window, to, axes):
    """What is reduced after a product would have more whole axes than a block has, if only the product is
    walked."""
    graph = parse_graph(f"""graph g(x: f32[{x}], w: f32[{w}]) {{
      %0 = convolution(x, w) {window} : f32[{to}]
      %1 = reduce(%0) kind=sum axes=[{axes}] : f32[{9 if to.endswith("9,4") else 1}]
      return %1
    }}""")
    random = np.random.default_rng(0)
    inputs = [random.uniform(size=value.shape).astype(np.float32) for value in graph.inputs]
    got = compile_graph(graph, "tpu:v5e").run(inputs)
    assert error(got[0], evaluate(graph, inputs, dtype64=True)[0]) < 1e-6
