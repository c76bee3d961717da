"""Convolution and pooling against loops in float64 that are written from the definitions, at random."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from meanings import meaning, same

import minicc as mc
from minicc import Tensor

RANDOM = np.random.default_rng(0)
X, W = Tensor(np.ones((2, 4, 5, 5), np.float32)), Tensor(np.ones((6, 4, 3, 3), np.float32))
CONV = {1: mc.conv1d, 2: mc.conv2d, 3: mc.conv3d}
TRANSPOSE = {1: mc.conv_transpose1d, 2: mc.conv_transpose2d, 3: mc.conv_transpose3d}
MAX_POOL = {1: mc.max_pool1d, 2: mc.max_pool2d, 3: mc.max_pool3d}
AVG_POOL = {1: mc.avg_pool1d, 2: mc.avg_pool2d, 3: mc.avg_pool3d}


def numbers(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def padded(x: np.ndarray, low: tuple[int, ...], high: tuple[int, ...], fill: float = 0.0) -> np.ndarray:
    widths = [(0, 0), (0, 0), *zip(low, high, strict=True)]
    return np.pad(x.astype(np.float64), widths, constant_values=fill)


def convolved(x: np.ndarray, w: np.ndarray, stride: tuple, low: tuple, high: tuple, dilation: tuple,
              groups: int) -> np.ndarray:
    """out[n, o, s] = the sum over c, k of x[n, group of o + c, s * stride + k * dilation] * w[o, c, k]."""
    x, kernel = padded(x, low, high), w.shape[2:]
    sizes = [(n - (k - 1) * d - 1) // s + 1
             for n, k, d, s in zip(x.shape[2:], kernel, dilation, stride, strict=True)]
    out = np.zeros((x.shape[0], w.shape[0], *sizes))
    per_group, outs = w.shape[1], w.shape[0] // groups
    for n, o, c in product(range(x.shape[0]), range(w.shape[0]), range(per_group)):
        for at, k in product(np.ndindex(*sizes), np.ndindex(*kernel)):
            place = tuple(a * s + i * d for a, s, i, d in zip(at, stride, k, dilation, strict=True))
            out[n, o][at] += x[n, o // outs * per_group + c][place] * w[o, c][k]
    return out


def transposed(x: np.ndarray, w: np.ndarray, stride: tuple, padding: tuple, more: tuple, dilation: tuple,
               groups: int) -> np.ndarray:
    """Every x[n, c, s] adds x * w[c, o, k] to out[n, group of c + o, s * stride + k * dilation - padding]."""
    w, kernel, outs, ins = w.astype(np.float64), w.shape[2:], w.shape[1], x.shape[1] // groups
    sizes = [(n - 1) * s - 2 * p + d * (k - 1) + extra + 1 for n, s, p, d, k, extra
             in zip(x.shape[2:], stride, padding, dilation, kernel, more, strict=True)]
    out = np.zeros((x.shape[0], outs * groups, *sizes))
    for n, c, o in product(range(x.shape[0]), range(x.shape[1]), range(outs)):
        for at, k in product(np.ndindex(*x.shape[2:]), np.ndindex(*kernel)):
            walks = zip(at, stride, k, dilation, padding, strict=True)
            place = tuple(a * s + i * d - p for a, s, i, d, p in walks)
            if all(0 <= one < size for one, size in zip(place, sizes, strict=True)):
                out[n, c // ins * outs + o][place] += x[n, c][at] * w[c, o][k]
    return out


def pooled(x: np.ndarray, kernel: tuple, stride: tuple, padding: tuple, kind: str) -> np.ndarray:
    x = padded(x, padding, padding, -np.inf if kind == "max" else 0.0)
    sizes = [(n - k) // s + 1 for n, k, s in zip(x.shape[2:], kernel, stride, strict=True)]
    out = np.zeros((*x.shape[:2], *sizes))
    for at in np.ndindex(*sizes):
        window = x[(..., *(slice(a * s, a * s + k) for a, s, k in zip(at, stride, kernel, strict=True)))]
        axes = tuple(range(2, x.ndim))
        out[(..., *at)] = window.max(axes) if kind == "max" else window.mean(axes)
    return out


def draw(rank: int, low: int, high: int) -> tuple[int, ...]:
    return tuple(int(n) for n in RANDOM.integers(low, high + 1, rank))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolution_is_the_sum_it_is_defined_by(rank: int):
    for _ in range(8):
        kernel, stride, dilation, padding = (draw(rank, *ends) for ends in ((1, 3), (1, 3), (1, 2), (0, 2)))
        groups, per_group, outs = draw(3, 1, 2)
        reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
        space = tuple(size + int(RANDOM.integers(3)) for size in reach)
        x, w = numbers(2, groups * per_group, *space), numbers(groups * outs, per_group, *kernel)
        bias = numbers(groups * outs)
        want = convolved(x, w, stride, padding, padding, dilation, groups) + bias.reshape(-1, *[1] * rank)
        settings = stride, padding, dilation, groups
        assert same(meaning(lambda *xs: CONV[rank](*xs, *settings), x, w, bias), want)  # noqa: B023


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_transposed_convolution_spreads_what_it_is_defined_to(rank: int):
    for _ in range(8):
        kernel, stride, dilation, padding = (draw(rank, *ends) for ends in ((1, 3), (1, 3), (1, 2), (0, 3)))
        groups, ins, outs = draw(3, 1, 2)
        more = tuple(int(RANDOM.integers(step)) for step in stride)
        space = tuple(p + 1 + int(RANDOM.integers(2)) for p in padding)
        space = tuple(max(n, 2 * p // s + 2) for n, p, s in zip(space, padding, stride, strict=True))
        x, w = numbers(2, groups * ins, *space), numbers(groups * ins, outs, *kernel)
        want = transposed(x, w, stride, padding, more, dilation, groups)
        settings = (None, stride, padding, more, groups, dilation)
        assert same(meaning(lambda x, w: TRANSPOSE[rank](x, w, *settings), x, w), want)  # noqa: B023


def test_same_padding_keeps_the_size_over_the_stride_and_puts_the_odd_one_behind():
    x, w = numbers(1, 1, 7), numbers(1, 1, 4)
    assert same(meaning(lambda x, w: mc.conv1d(x, w, padding="same"), x, w),
                convolved(x, w, (1,), (1,), (2,), (1,), 1))
    assert same(meaning(lambda x, w: mc.conv1d(x, w, stride=3, padding="same"), x, w),
                convolved(x, w, (3,), (1,), (2,), (1,), 1))
    assert same(meaning(lambda x, w: mc.conv1d(x, w, padding="valid"), x, w),
                convolved(x, w, (1,), (0,), (0,), (1,), 1))


def test_a_convolution_is_one_op_and_a_pool_beside_itself_a_reduction_per_axis():
    def ops(function: Callable) -> list[str]:
        graph = mc.compile(function, X, W).raw_graph
        return [node.op for node in graph.nodes() if node.op not in ("parameter", "reshape", "constant")]
    assert ops(lambda x, w: mc.conv2d(x, w, stride=2, padding=1)) == ["convolution"]
    assert ops(lambda x, w: mc.max_pool2d(w, 3)) == ["reduce", "reduce"]
    assert sorted(ops(lambda x, w: mc.max_pool2d(x, 3, 1))) == 4 * ["maximum"] + 6 * ["slice"]


def test_a_batch_may_be_missing_or_empty():
    x, w = numbers(2, 5, 4), numbers(3, 2, 2, 2)
    want = convolved(x[None], w, (1, 1), (0, 0), (0, 0), (1, 1), 1)
    assert same(meaning(mc.conv2d, x, w), want[0])
    assert mc.conv2d(mc.zeros(0, 2, 5, 4), Tensor(w)).shape == (0, 3, 4, 3)
    assert same(meaning(lambda x: mc.max_pool2d(x, 2), x), pooled(x[None], (2, 2), (2, 2), (0, 0), "max")[0])


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_pooling_takes_each_window(kind: str, rank: int):
    for _ in range(8):
        kernel, stride = draw(rank, 1, 3), draw(rank, 1, 3)
        padding = tuple(int(RANDOM.integers(k // 2 + 1)) for k in kernel)
        x = numbers(2, 2, *(k + int(RANDOM.integers(4)) for k in kernel))
        pool = (MAX_POOL if kind == "max" else AVG_POOL)[rank]
        got = meaning(lambda x: (pool(x, kernel, stride, padding), pool(x, kernel)), x)  # noqa: B023
        beside = pooled(x, kernel, kernel, (0,) * rank, kind)
        assert same(got, (pooled(x, kernel, stride, padding, kind), beside))


def test_adaptive_and_global_pools_are_means_of_parts():
    x = numbers(2, 3, 7, 5)
    rows, columns = [(0, 3), (2, 5), (4, 7)], [(0, 3), (2, 5)]  # where torch's rule cuts 7 in 3 and 5 in 2
    want = [[x[:, :, a:b, c:d].astype(np.float64).mean((2, 3)) for c, d in columns] for a, b in rows]
    assert same(meaning(lambda x: mc.adaptive_avg_pool2d(x, (3, 2)), x), np.moveaxis(want, (0, 1), (2, 3)))
    assert same(meaning(mc.global_avg_pool, x), x.astype(np.float64).mean((2, 3)))
    want = x[0].mean(-1, dtype=np.float64, keepdims=True)
    assert same(meaning(lambda x: mc.adaptive_avg_pool1d(x, 1), x[0]), want)


def test_a_mean_of_bf16_is_rounded_once():
    ones = mc.full((1, 1, 300), 1.0, "bf16")  # of which bf16 cannot add up more than 256
    for mean in (mc.avg_pool1d(ones, 300, 1), mc.adaptive_avg_pool1d(ones, 1), mc.global_avg_pool(ones)):
        assert mean.dtype.name == "bf16" and mean.item() == 1.0


def test_patches_times_flat_weights_are_a_convolution():
    x, w = numbers(2, 3, 6, 5), numbers(4, 3, 2, 3)
    columns = meaning(lambda x: mc.im2col(x, (2, 3), (2, 1), (1, 0), (1, 2)), x)
    want = convolved(x, w, (1, 2), (1, 0), (1, 0), (2, 1), 1)
    assert same((w.reshape(4, -1).astype(np.float64) @ columns).reshape(want.shape), want)


def test_interpolation_takes_the_nearest_before():
    x = numbers(1, 2, 3, 4)
    assert same(meaning(lambda x: mc.interpolate(x, scale_factor=(2, 3)), x), x.repeat(2, 2).repeat(3, 3))
    rows, columns = [0, 0, 1, 1, 2], [0, 1, 2]  # floor(i * 3 / 5), floor(i * 4 / 3)
    assert same(meaning(lambda x: mc.interpolate(x, (5, 3)), x), x[:, :, rows][..., columns])


@pytest.mark.parametrize("device", ["gpu", "tpu"])
def test_devices_convolve_and_pool_as_defined(device: str):
    x, w = numbers(1, 4, 6, 5), numbers(4, 2, 3, 2)
    step = mc.jit(lambda x, w: (mc.conv2d(x, w, None, 2, 1, 1, 2), mc.max_pool2d(x, 3, 2, 1)), device)
    wants = convolved(x, w, (2, 2), (1, 1), (1, 1), (1, 1), 2), pooled(x, (3, 3), (2, 2), (1, 1), "max")
    assert same([y.numpy().astype(np.float64) for y in step(Tensor(x), Tensor(w))], wants, 1e-5)


@pytest.mark.parametrize("device", ["gpu", "tpu"])
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_a_kernel_of_one_element_multiplies_the_numbers_and_not_their_bits(dtype: str, device: str):
    x, w = mc.full((1, 2, 3), 3.0, dtype), mc.full((4, 1, 1), 1.5, dtype)
    y = mc.jit(lambda x, w: mc.conv1d(x, w, groups=2), device)(x, w)
    assert y.dtype.name == dtype and (y.numpy() == 4.5).all() and y.shape == (1, 4, 3)


@pytest.mark.parametrize("device", ["gpu", "tpu"])
def test_small_integers_are_convolved_in_i32(device: str):
    x, w = np.full((1, 3, 4, 4), -128, np.int8), np.full((2, 3, 3, 3), 127, np.int8)
    y = mc.jit(mc.conv2d, device)(Tensor(x), Tensor(w))
    assert y.dtype.name == "i32" and (y.numpy() == -128 * 127 * 27).all()
    assert meaning(mc.conv_transpose2d, np.ones((1, 2, 2, 2), np.int32), w).dtype == np.int32


@pytest.mark.parametrize("device", ["gpu", "tpu"])
def test_devices_give_pools_that_overlap_their_gradient(device: str):
    x, weights = numbers(2, 4, 8, 8), numbers(2, 4, 4, 4)
    want = np.zeros((2, 4, 10, 10))
    inside = padded(x, (1, 1), (1, 1), -np.inf)
    for n, c, y, z in np.ndindex(weights.shape):
        window = inside[n, c, 2 * y:2 * y + 3, 2 * z:2 * z + 3]
        row, column = np.unravel_index(window.argmax(), (3, 3))
        want[n, c, 2 * y + row, 2 * z + column] += weights[n, c, y, z]
    step = mc.jit(mc.grad(lambda x, w: (mc.max_pool2d(x, 3, 2, 1) * w).sum()), device)
    assert same(step(Tensor(x), Tensor(weights)).numpy().astype(np.float64), want[:, :, 1:-1, 1:-1], 1e-6)


def test_a_convolution_by_a_transposed_one_is_its_gradient():
    x, w = numbers(1, 2, 7), numbers(3, 2, 3)
    gradient = mc.grad(lambda x, w: mc.conv1d(x, w, stride=2, padding=1).sum())(Tensor(x), Tensor(w))
    want = transposed(np.ones((1, 3, 4), np.float32), w, (2,), (1,), (0,), (1,), 1)
    assert same(gradient.numpy().astype(np.float64), want, 1e-5)


MISTAKES: list[tuple[str, Callable, type, list[str]]] = [
    ("a row as an image", lambda: mc.conv2d(X[0, 0], W), mc.ShapeError, ["f32[5,5]", "batch, channels"]),
    ("weights of another rank", lambda: mc.conv1d(X[0], W), mc.ShapeError, ["f32[6,4,3,3]", "in / groups"]),
    ("other channels", lambda: mc.conv2d(X, W[:, :3]), mc.ShapeError, ["f32[6,3,3,3] for f32[2,4,5,5]"]),
    ("groups that do not divide", lambda: mc.conv2d(X, W[:, :1], groups=4), mc.ShapeError, ["4 groups"]),
    ("a kernel that is too large", lambda: mc.conv2d(X, W, dilation=3), mc.ShapeError, ["larger", "need 7"]),
    ("a bias of another length", lambda: mc.conv2d(X, W, mc.ones(4)), mc.ShapeError, ["f32[4]", "6 ch"]),
    ("a stride of 0", lambda: mc.conv2d(X, W, stride=0), mc.ShapeError, ["stride", "1 or more"]),
    ("a stride for another rank", lambda: mc.conv2d(X, W, stride=(1, 2, 3)), mc.ShapeError, ["2"]),
    ("half a stride", lambda: mc.conv2d(X, W, stride=0.5), mc.DtypeError, ["integers"]),
    ("negative padding", lambda: mc.conv2d(X, W, padding=-1), mc.ShapeError, ["padding", "-1"]),
    ("an unknown padding", lambda: mc.conv2d(X, W, padding="full"), mc.CompileError, ["'full'", "same"]),
    ("a pool larger than the image", lambda: mc.max_pool2d(X, 6), mc.ShapeError, ["6 of 5"]),
    ("a pool that sees only padding", lambda: mc.max_pool2d(X, 2, padding=2), mc.ShapeError, ["half"]),
    ("a transpose of other channels", lambda: mc.conv_transpose2d(X, W), mc.ShapeError, ["transpose"]),
    ("a smooth interpolation", lambda: mc.interpolate(X, 8, mode="bilinear"), mc.CompileError, ["nearest"]),
    ("no size", lambda: mc.interpolate(X), mc.CompileError, ["scale_factor"]),
    ("patches of a row", lambda: mc.im2col(X[0, 0], 2), mc.ShapeError, ["f32[5,5]"]),
]


@pytest.mark.parametrize("mistake, kind, words", [pytest.param(*rest, id=name) for name, *rest in MISTAKES])
def test_a_mistake_is_one_clear_error_at_its_line(mistake: Callable, kind: type, words: list[str]):
    with pytest.raises(kind) as caught:
        mistake()
    assert type(caught.value) is kind and all(word in str(caught.value) for word in words), str(caught.value)
    assert caught.value.at[0].file == __file__


