"""Each model, tiny, against its paper in plain numpy and float64; the real sizes against published ones."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import model_references as reference
import numpy as np
import pytest

import minicc as mc
from minicc import Tensor, nn
from minicc.frontend.models import bert, dit, gpt2, llama, moe, resnet, train, video
from minicc.frontend.pytree import flatten, tree_map
from minicc.graph.evaluate import evaluate

RANDOM = np.random.default_rng(5)


def shaken(tree: Any) -> Any:
    """The parameters with noise on each, so that no bias is 0, no scale is 1, and weights matter."""
    def shake(x: Tensor) -> Tensor:
        spread = 0.1 if x.ndim < 2 else 0.3 / x.shape[-2] ** 0.5
        return Tensor((x.numpy() + spread * RANDOM.standard_normal(x.shape)).astype(np.float32))
    return tree_map(shake, tree)


def ids(*shape: int, below: int = 96) -> np.ndarray:
    return RANDOM.integers(0, below, shape).astype(np.int32)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


MASK = np.array([[True] * 7, [True] * 4 + [False] * 3])


def model(module: Any, *inputs: np.ndarray, part: int | None = None, **options: Any) -> tuple:
    """part: which of what forward returns is compared."""
    def forward(params: Any, *xs: Tensor) -> Any:
        result = module.forward(params, module.TINY, *xs)
        return result if part is None else result[part]

    in_numpy = getattr(reference, module.__name__.split(".")[-1])
    params = shaken(module.init(module.TINY, **options))
    return forward, params, inputs, lambda p, *xs: in_numpy(p, module.TINY, *xs)


def a_resnet(training: bool) -> tuple:
    params, state = resnet.init(resnet.TINY)
    both = [shaken(params), tree_map(lambda x: x + abs(Tensor(normal(*x.shape))), state)]

    def compared(result: tuple) -> Any:  # in training, the statistics too
        return result if training else result[0]

    ours, theirs = (lambda both, x, forward=forward: compared(forward(*both, resnet.TINY, x, training))
                    for forward in (resnet.forward, reference.resnet))
    return ours, both, (normal(3, 1, 8, 8),), theirs


# name -> the model as a function of (params, inputs), its parameters, inputs, and the same in numpy
MODELS: dict[str, Callable[[], tuple]] = {
    "gpt2": lambda: model(gpt2, ids(2, 7)),
    "llama": lambda: model(llama, ids(2, 7), part=0),
    "bert": lambda: model(bert, ids(2, 7), ids(2, 7, below=2), MASK),
    "moe": lambda: model(moe, ids(2, 7), part=0),
    "dit": lambda: model(dit, normal(2, 2, 8, 8), np.float32([3.0, 700.0]), ids(2, below=5), zero=False),
    "video": lambda: model(video, normal(2, 1, 4, 8, 8)),
    "resnet": lambda: a_resnet(False), "resnet in training": lambda: a_resnet(True),
}


def float64(tree: Any) -> Any:
    return tree_map(lambda x: np.asarray(x.numpy(), np.float64), tree)


def compare(name: str, device: str, tolerance: float) -> None:
    function, params, inputs, in_numpy = MODELS[name]()
    found = flatten(mc.jit(function, device=device)(params, *map(Tensor, inputs)))[0]
    wanted = flatten(in_numpy(float64(params), *inputs))[0]
    for (_, got), (_, want) in zip(found, wanted, strict=True):
        assert got.shape == want.shape
        assert np.abs(got.numpy() - want).max() < tolerance * np.abs(want).max()


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_what_its_paper_says(name: str):
    compare(name, "gpu", 2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_what_its_paper_says_on_the_tpu(name: str):
    compare(name, "tpu", 5e-5)


# -- gradients -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "moe", "resnet in training"])
def test_the_slope_along_the_gradient_is_its_length(name: str):
    function, params, inputs, _ = MODELS[name]()

    def loss(params: Any, *inputs: Tensor) -> Tensor:
        y = flatten(function(params, *inputs))[0][0][1]
        return (y * (mc.arange(y.size).reshape(y.shape) * 0.37).sin()).sum()

    compiled = mc.compile(mc.value_and_grad(loss), params, *map(Tensor, inputs))
    arrays = [np.asarray(x.numpy(), np.float64) for _, x in flatten(params)[0]]
    rest = [*inputs, *(x.numpy() for x in compiled.hidden)]
    _, *gradients = evaluate(compiled.raw_graph, [*arrays, *rest], dtype64=True)
    length = np.sqrt(sum((g ** 2).sum() for g in gradients))
    ends = []
    for step in (1e-5, -1e-5):
        moved = [array + step * g / length for array, g in zip(arrays, gradients, strict=True)]
        ends.append(evaluate(compiled.raw_graph, [*moved, *rest], dtype64=True)[0])
    assert length > 0
    np.testing.assert_allclose((ends[0] - ends[1]) / 2e-5, length, rtol=1e-6)


# -- decoding ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["gpu", "tpu"])
def test_llama_token_by_token_is_llama_at_once(device: str):
    config, params, tokens = llama.TINY, shaken(llama.init(llama.TINY)), Tensor(ids(2, 9))
    whole, none = llama.forward(params, config, tokens)
    first, caches = llama.prefill(params, config, tokens[:, :4], length=12)
    step, rows = mc.jit(llama.decode, device, static_argnames="config"), [first]
    for t in range(4, 9):
        logits, caches = step(params, config, tokens[:, t:t + 1], caches, Tensor(t))
        rows.append(logits)
    assert none is None and len(step.programs) == 1 and caches[0]["k"].shape == (2, 2, 12, 8)
    found = np.concatenate([row.numpy() for row in rows], 1)
    np.testing.assert_allclose(found, whole.numpy(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype, digits", [("bf16", 2.0**-8), ("f16", 2.0**-11)])
def test_a_model_in_16_bits_loses_only_their_digits(dtype: str, digits: float):
    function, params, (tokens,), in_numpy = MODELS["llama"]()
    narrow = tree_map(lambda x: x.astype(dtype), params)
    found, want = function(narrow, Tensor(tokens)), in_numpy(float64(narrow), tokens)
    assert str(found.dtype) == dtype  # a dozen roundings in a row, of half a digit each
    assert np.abs(found.numpy() - want).max() < 12 * digits / 2 * np.abs(want).max()


def test_an_expert_without_a_seat_leaves_the_token_as_it_is():
    config = moe.Config(96, 8, 1, 2, 2, 8, experts=2, chosen=1, capacity=0.5)
    params = shaken(moe.experts_init(config, nn.Draw(0)))
    params["router"]["w"] = Tensor(np.float32([[1, 0]] * 8))  # all go to expert 0, which has one seat in four
    out, uneven = moe.mixture(params, config, Tensor(np.abs(normal(1, 4, 8))))
    assert np.abs(out.numpy()[0, 0]).max() > 0 and not out.numpy()[0, 1:].any()


def test_a_new_dit_answers_nothing():
    # adaLN-zero: the last layer begins at zero
    x = dit.forward(dit.init(dit.TINY), dit.TINY, Tensor(normal(1, 2, 8, 8)), Tensor([1.0]), Tensor([0]))
    assert x.shape == (1, 4, 8, 8) and not x.numpy().any()


# -- sizes ---------------------------------------------------------------------------------------------------

# published: GPT-2 and BERT by their released weights, ResNet by torchvision's table, LLaMA and Mixtral by
# theirs too, DiT by its training log, which counts the 256 fixed positions of 1152
PUBLISHED = {
    "GPT-2 small": (gpt2.SMALL, gpt2, 124_439_808), "BERT-base": (bert.BASE, bert, 109_482_240),
    "LLaMA-2-7B": (llama.LLAMA2_7B, llama, 6_738_415_616),
    "LLaMA-3-8B": (llama.LLAMA3_8B, llama, 8_030_261_248),
    "Mixtral-8x7B": (moe.MIXTRAL_8X7B, moe, 46_702_792_704),
    "DiT-XL/2": (dit.XL_2, dit, 675_129_632 - 256 * 1152),
    "GPT-2 XL": (gpt2.XL, gpt2, 1_557_611_200), "BERT-large": (bert.LARGE, bert, 335_141_888),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_real_model_has_the_published_number_of_parameters(name: str):
    config, module, count = PUBLISHED[name]
    assert nn.parameter_count(module.init(config, seed=None)) == count


def test_resnets_have_the_published_number_of_parameters():
    for config, count in ((resnet.RESNET_18, 11_689_512), (resnet.RESNET_34, 21_797_672)):
        assert nn.parameter_count(resnet.init(config, seed=None)[0]) == count


def test_vivit_has_the_published_millions_of_parameters():
    assert round(nn.parameter_count(video.init(video.BASE, seed=None)) / 1e6, 1) == 117.3  # its table 2


def test_one_seed_is_one_network_and_shapes_alone_are_its_shapes():
    one, same, other = (gpt2.init(gpt2.TINY, seed) for seed in (1, 1, 2))
    leaves = zip(*(flatten(tree)[0] for tree in (one, same, other, gpt2.init(gpt2.TINY, None))), strict=True)
    for (path, a), (_, b), (_, c), (_, shape) in leaves:
        assert (a.numpy() == b.numpy()).all() and a.type == shape.type and shape.lazy
        assert path.endswith(".b") or "norm" in path or (a.numpy() != c.numpy()).any()


WRONG = {
    "heads": (lambda: gpt2.Config(width=768, heads=7), "heads do not divide the width. got 7 and 768"),
    "groups": (lambda: llama.Config(96, 32, 1, 4, 3, 48), "groups do not divide the heads. got 3 and 4"),
    "patches": (lambda: dit.Config(9, 1, 2, 32, 1, 2, 4), "patches do not divide the size. got 2 and 9"),
    "frames": (lambda: video.Config(frames=5), "frames of a box do not divide the frames. got 2 and 5"),
    "zero": (lambda: bert.Config(heads=0), "heads do not divide the width. got 0 and 768"),
    "replaced": (lambda: replace(gpt2.TINY, heads=5), "heads do not divide the width. got 5 and 32"),
    "odd heads": (lambda: llama.Config(96, 12, 1, 4, 2, 48), "halves of a head do not divide"),
    "no layers": (lambda: replace(gpt2.TINY, layers=0), "layers of 1 or more"),
    "more than there are": (lambda: replace(moe.TINY, chosen=5), "got 5 of 4"),
    "no experts": (lambda: replace(moe.TINY, experts=0), "got 2 of 0"),
    "stages": (lambda: replace(resnet.TINY, widths=(8,)), "stages do not pair up"),
    "too long": (lambda: gpt2.forward({}, gpt2.TINY, Tensor(ids(1, 33))), "a time of 32 at most"),
    "no batch": (lambda: gpt2.forward({}, gpt2.TINY, Tensor([1, 2])), "i32.2.; need .batch, time"),
}


@pytest.mark.parametrize("name", WRONG)
def test_sizes_that_do_not_divide_are_an_error_at_the_line_that_chose_them(name: str):
    choose, words = WRONG[name]
    with pytest.raises(mc.ShapeError, match=words) as caught:
        choose()
    assert caught.value.at[0].file == __file__ and caught.value.at[0].line == choose.__code__.co_firstlineno


def test_parameters_are_not_drawn_inside_a_program():
    with pytest.raises(mc.CompileError, match="same numbers in every call"):
        mc.jit(lambda x: gpt2.forward(gpt2.init(gpt2.TINY), gpt2.TINY, x))(Tensor(ids(1, 4)))


# -- training ------------------------------------------------------------------------------------------------


def test_a_small_resnet_learns_to_read_the_digits():
    said: list[str] = []
    assert train.train_resnet(epochs=2, say=said.append) > 0.9
    assert said[-1].startswith("reads 9")


@pytest.mark.slow
def test_a_small_gpt_more_than_halves_its_loss():
    first, last = train.train_gpt(say=lambda line: None)
    assert last < 0.45 * first


# -- a real size ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_gpt2_small_is_right_and_needs_little_more_than_its_weights():
    tracemalloc.start()
    params, tokens = gpt2.init(gpt2.SMALL), ids(1, 128, below=50257)
    found = mc.jit(gpt2.forward, static_argnames="config")(params, gpt2.SMALL, Tensor(tokens)).numpy()
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 4 * 124_439_808 + (256 << 20)
    want = reference.gpt2(float64(params), gpt2.SMALL, tokens)
    assert np.abs(found - want).max() < 1e-5 * np.abs(want).max()
