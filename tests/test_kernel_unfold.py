"""Convolutions as products of matrices: which kernels can be seen so, and that the copies bring each element
once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernels import accumulating, assembled, axes, load, op, operand, outputs
from kernels import module as module_of

import minicc as mc
from minicc import devices
from minicc.compiler import compile_graph
from minicc.graph.evaluate import evaluate
from minicc.graph.ir import F32
from minicc.kernel.cost import cost, operand_bytes
from minicc.kernel.index import Index
from minicc.kernel.ir import Kernel, Scratch
from minicc.kernel.unfold import Walk, applied, unfolding
from minicc.tpu.layout import Frame, Layout
from minicc.tpu.machine import V5E
from minicc.tpu.matmul import accumulator

TARGET = devices.find("tpu:v5e").target
RANDOM = np.random.default_rng(0)


def shifted(pixel: str, tap: str, offset: int, stride: int, dilation: int) -> Index:
    return Index(((pixel, stride), (tap, dilation)), offset)


def convolution(b: int = 2, c: int = 12, o: int = 10, size: tuple = (9, 11), taps: tuple = (3, 3),
                low: int = 1, dilation: int = 1, stride: int = 1, blocks: dict | None = None) -> Kernel:
    """out[b, o, m, n] = the sum over k, k2, k3 of x[b, k, s * m + d * k2 - low, s * n + d * k3 - low] * w."""
    out = tuple((n + 2 * low - dilation * (k - 1) - 1) // stride + 1 for n, k in zip(size, taps, strict=True))
    x = operand("x", F32, (b, c, *size), "b", "k", shifted("m", "k2", -low, stride, dilation),
                shifted("n", "k3", -low, stride, dilation), fill=0.0)
    w = operand("w", F32, (o, c, *taps), "h", "k", "k2", "k3")
    y = operand("y", F32, (b, o, *out), "b", "h", "m", "n")
    acc = Scratch("acc", F32, ("b", "h", "m", "n"))
    sizes = dict(b=b, h=o, m=out[0], n=out[1], k=c, k2=taps[0], k3=taps[1])
    block = sizes | {"b": 1} | (blocks or {})
    grid = axes(**{name: (n, block[name], "s" if name[0] == "k" else "p") for name, n in sizes.items()})
    dot = op("dot", load(x), load(w), contract=("k", "k2", "k3"))
    return accumulating("conv", grid, y, acc, 0.0, op("add", load(acc), dot), load(acc), x, w)


def expected(x: np.ndarray, w: np.ndarray, low: int, dilation: int = 1, stride: int = 1) -> np.ndarray:
    """The same in float64, tap by tap."""
    x = np.pad(x.astype(float), ((0, 0), (0, 0), (low, low), (low, low)))
    sides = zip(x.shape[2:], w.shape[2:], strict=True)
    sizes = [(n - dilation * (k - 1) - 1) // stride + 1 for n, k in sides]
    total = np.zeros((x.shape[0], w.shape[0], *sizes))
    for i, j in np.ndindex(w.shape[2:]):
        cut = [slice(at * dilation, at * dilation + stride * (n - 1) + 1, stride)
               for at, n in zip((i, j), sizes, strict=True)]
        total += np.einsum("bchw,oc->bohw", x[:, :, *cut], w[:, :, i, j].astype(float))
    return total


def numbers(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def close(found: np.ndarray, want: np.ndarray) -> bool:
    return np.abs(found - want).max() < 3e-6 * np.abs(want).max()


# ---- what can be unfolded ----

def test_a_convolution_is_a_matrix_of_taps_by_pixels():
    kernel = convolution()
    how = unfolding(kernel)
    assert (how.rows, how.columns) == (("k", "k2", "k3"), ("m", "n"))
    flat = how.flat(kernel)
    shapes = {one.name: (one.type.shape, one.axes) for one in flat.operands}
    assert shapes == {"x": ((2, 108, 99), ("b", "k", "m")), "w": ((10, 108), ("h", "k")),
                      "y": ((2, 10, 99), ("b", "h", "m"))}


def test_a_block_covers_its_window():
    kernel = convolution(dilation=2, low=2, blocks={"m": 4})
    assert [walk.span for walk in unfolding(kernel).walks(kernel)] == [4 + 2 * 2, 11 + 2 * 2]


def test_pixels_two_apart_are_copied_in_two_phases():
    """Of 3 taps, the outer ones see the even elements from the first one on, the middle one the odd ones."""
    kernel = convolution(size=(16, 16), stride=2)
    rows, columns = unfolding(kernel).walks(kernel)
    assert rows == Walk(taps=3, apart=1, pixels=8, stride=2, step=1)
    assert (rows.phases, rows.span, rows.place(2, 7)) == ([0], 17, (0, 16))
    assert columns == Walk(taps=3, apart=1, pixels=8, stride=2, step=2)
    assert [columns.place(tap, 0) for tap in range(3)] == [(0, 0), (1, 0), (0, 1)]


def test_what_walks_part_of_a_group_is_no_matrix():
    part = operand("part", F32, (12, 3), "k", "k2")
    kernel = convolution()
    assert unfolding(replace(kernel, inputs=(*kernel.inputs, part))) is None


@pytest.mark.parametrize("blocks", [{}, {"k": 8, "h": 8, "m": 4}])
def test_weights_that_are_reversed_are_gathered_to_rows(blocks: dict):
    """As in the gradient by x: w[k, h, 2 - k2, 2 - k3]."""
    kernel = convolution(blocks=blocks)
    turned = operand("w", F32, (12, 10, 3, 3), "k", "h", Index((("k2", -1),), 2), Index((("k3", -1),), 2))
    kernel = replace(kernel, inputs=(kernel.inputs[0], turned))
    how = applied(kernel)
    assert how.gathered == (("w", "h"),)
    assert how.flat(kernel).inputs[1].axes == ("k", "h")
    x, w = numbers(2, 12, 9, 11), numbers(12, 10, 3, 3)
    (found,) = outputs(module_of(kernel), x=x, w=w)
    assert close(found, expected(x, w.swapaxes(0, 1)[:, :, ::-1, ::-1], 1))


def test_weights_with_no_axis_for_the_lanes_are_not_gathered():
    """As in such a gradient of a convolution of groups of one channel: h walks x, too, so w has k alone."""
    x = operand("x", F32, (10, 12, 9, 11), "h", "k", shifted("m", "k2", -1, 1, 1),
                shifted("n", "k3", -1, 1, 1), fill=0.0)
    w = operand("w", F32, (10, 12, 3, 3), "h", "k", Index((("k2", -1),), 2), Index((("k3", -1),), 2))
    kernel = replace(convolution(b=1, o=10), inputs=(x, w))
    assert unfolding(kernel) is None


def test_taps_that_are_walked_step_by_step_are_not_unfolded():
    assert applied(convolution()) is not None
    assert applied(convolution(blocks={"k2": 1, "k3": 1})) is None


# ---- what it computes ----

BLOCKS = {
    "whole": {},
    "rows of pixels, the last fewer": {"m": 4},
    "channels, the last fewer": {"k": 8},
    "results, the last fewer": {"h": 8},
    "all": {"m": 2, "k": 8, "h": 8},
}


@pytest.mark.parametrize("name", BLOCKS)
def test_any_blocks_give_the_convolution(name: str):
    kernel = convolution(blocks=BLOCKS[name])
    assert applied(kernel)
    x, w = numbers(2, 12, 9, 11), numbers(10, 12, 3, 3)
    (found,) = outputs(module_of(kernel), x=x, w=w)
    assert close(found, expected(x, w, 1))


@pytest.mark.parametrize("size, taps, low, dilation, stride", [
    ((5, 140), (3, 3), 1, 1, 1), ((4, 128), (1, 5), 0, 1, 1), ((7, 7), (7, 7), 3, 1, 1),
    ((12, 40), (3, 3), 2, 2, 1), ((3, 300), (2, 3), 0, 1, 1), ((40, 6), (3, 2), 3, 1, 1),
    ((17, 18), (3, 3), 1, 1, 2), ((14, 15), (7, 7), 3, 1, 2), ((9, 300), (2, 3), 0, 1, 2),
    ((20, 21), (3, 4), 2, 2, 3), ((20, 21), (3, 4), 4, 3, 2), ((9, 9), (2, 2), 0, 1, 4)])
def test_any_window_gives_the_convolution(size: tuple, taps: tuple, low: int, dilation: int, stride: int):
    for blocks in ({}, {"m": 2}):
        kernel = convolution(1, 3, 9, size, taps, low, dilation, stride, blocks)
        assert applied(kernel)
        x, w = numbers(1, 3, *size), numbers(9, 3, *taps)
        (found,) = outputs(module_of(kernel), x=x, w=w)
        assert close(found, expected(x, w, low, dilation, stride))


# ---- what it moves ----

def compiled(function, *arrays: np.ndarray):
    """A function of the frontend on the TPU, and what it gives."""
    found = compile_graph(mc.compile(function, *map(mc.Tensor, arrays)).raw_graph, "tpu:v5e")
    (output,) = found.run(list(arrays))
    return found, output


def test_an_image_is_copied_once_and_nothing_else_is():
    x, w, bias = numbers(2, 16, 16, 16), numbers(24, 16, 3, 3), numbers(24, 1, 1)
    found, output = compiled(lambda x, w, bias: mc.relu(mc.conv2d(x, w, padding=1) + bias), x, w, bias)
    (kernel,), (report,) = found.kernels.kernels, found.reports
    assert close(output, np.maximum(expected(x, w, 1) + bias, 0))
    assert report.hbm_read_bytes == 4 * (x.size + w.size + bias.size)
    assert report.hbm_write_bytes == 4 * output.size
    assert kernel.steps == 2  # one for each image


def test_a_dimension_without_taps_may_leave_the_array_too():
    x, w = numbers(1, 3, 3, 5), numbers(4, 3, 1, 3)
    found, output = compiled(lambda x, w: mc.conv2d(x, w, stride=(2, 1), padding=(1, 0)), x, w)
    (kernel,) = found.kernels.kernels
    assert str(kernel.inputs[0].index[-2]) == "2*m-1"  # -1 and 3 are outside, and are zeros
    assert applied(kernel)
    assert (output[:, :, ::2] == 0).all()
    assert close(output[:, :, 1:2], expected(x[:, :, 1:2], w, 0))


def test_a_block_and_its_halo_are_priced_as_they_are_copied():
    kernel = convolution(size=(8, 8), blocks={"m": 4})  # the window of 4 rows has 6
    x = next(one for one in kernel.inputs if one.name == "x")
    assert operand_bytes(kernel, x) == 4 * 2 * 12 * (6 + 6) * 8


def test_tiling_unfolds_since_that_is_cheaper_and_the_price_is_about_right():
    x, w = numbers(1, 32, 16, 16), numbers(32, 32, 3, 3)
    found, output = compiled(lambda x, w: mc.conv2d(x, w, padding=1), x, w)
    (kernel,) = found.kernels.kernels
    assert applied(kernel)
    assert close(output, expected(x, w, 1))
    assert 0.75 < cost(kernel, TARGET).cycles / found.reports[0].cycles < 1.33


def test_both_gradients_of_a_convolution_are_unfolded():
    x, w, g = numbers(2, 8, 12, 12), numbers(16, 8, 3, 3), numbers(2, 16, 12, 12)

    def loss(x, w, g):
        return (mc.conv2d(x, w, padding=1) * g).sum()

    padded = np.pad(x.astype(float), ((0, 0), (0, 0), (1, 1), (1, 1)))
    by_x, by_w = np.zeros_like(padded), np.zeros(w.shape)
    for i, j in np.ndindex(3, 3):
        part = np.s_[:, :, i:i + 12, j:j + 12]
        by_x[part] += np.einsum("bohw,oc->bchw", g.astype(float), w[:, :, i, j])
        by_w[:, :, i, j] = np.einsum("bohw,bchw->oc", g.astype(float), padded[part])
    for number, want in enumerate((by_x[:, :, 1:-1, 1:-1], by_w)):
        found, output = compiled(mc.grad(loss, number), x, w, g)
        assert close(output, want)
        assert any(applied(kernel) for kernel in found.kernels.kernels)


# ---- which way round ----

def test_the_longer_side_of_a_result_streams_if_its_panels_would_come_in_two_rounds():
    """64 rows past 5 panels: 4 MXUs in 2 rounds of 128 weights for 8 parts of k, 2048 rows. The other way
    round, 576 rows shared by 4 past one panel, 144 for each part: 1152, and 5 tiles turned at the end."""
    x, g = operand("x", F32, (576, 1024), "n", "k"), operand("g", F32, (64, 1024), "m", "k")
    y, acc = operand("y", F32, (64, 576), "m", "n"), Scratch("acc", F32, ("m", "n"))
    grid = axes(m=(64, 64, "p"), n=(576, 576, "p"), k=(1024, 1024, "s"))
    update = op("add", load(acc), op("dot", load(g), load(x), contract=("k",)))
    kernel = accumulating("dw", grid, y, acc, 0.0, update, load(acc), x, g)
    assert accumulator(Layout(kernel), V5E, acc) == Frame("n", "m")
    a, b = numbers(576, 1024), numbers(64, 1024)
    (found,) = outputs(module_of(kernel), x=a, g=b)
    assert close(found, b.astype(float) @ a.T.astype(float))


def test_units_that_share_a_panel_share_k_if_there_are_few_rows():
    """32 rows, 8 tiles of k, one panel: each tile's 16 pushes of weights go to one of 4 MXUs, not to all."""
    x, w = operand("x", F32, (32, 1000), "m", "k"), operand("w", F32, (1000, 96), "k", "n")
    y, acc = operand("y", F32, (32, 96), "m", "n"), Scratch("acc", F32, ("m", "n"))
    update = op("add", load(acc), op("dot", load(x), load(w), contract=("k",)))
    grid = axes(m=(32, 32, "p"), n=(96, 96, "p"), k=(1000, 1000, "s"))
    kernel = accumulating("deep", grid, y, acc, 0.0, update, load(acc), x, w)
    ops = [instr.op for bundle in assembled(module_of(kernel)).bundles for instr in bundle.ops]
    assert {mxu: ops.count(f"vmatpush.mxu{mxu}") for mxu in range(4)} == dict.fromkeys(range(4), 2 * 16)
    a, b = numbers(32, 1000), numbers(1000, 96)
    (found,) = outputs(module_of(kernel), x=a, w=b)
    assert close(found, a.astype(float) @ b.astype(float))


@pytest.mark.parametrize("x, w, attrs", [
    ((2, 8, 12, 2), (4, 8, 2, 2), dict(stride=(2, 2), padding=(1, 2), dilation=(2, 1))),  # 4 dimensions
    ((3, 2, 14, 3), (6, 2, 1, 3), dict(stride=(1, 2), padding=(1, 0), dilation=(2, 1))),  # one row of taps
    ((2, 2, 3, 4), (4, 1, 3, 3), dict(stride=(3, 1), padding=(2, 0), dilation=(2, 1), groups=2)),
])
def test_gradients_of_odd_convolutions_are_those_of_float64(x: tuple, w: tuple, attrs: dict):
    arrays = [numbers(*x), numbers(*w)]

    def loss(x, w):
        y = mc.conv2d(x, w, **attrs)
        return (y * y).sum()

    for number in range(2):
        graph = mc.compile(mc.grad(loss, number), *map(mc.Tensor, arrays)).raw_graph
        (found,) = compile_graph(graph, "tpu:v5e").run(arrays)
        (want,) = evaluate(graph, arrays, dtype64=True)
        assert close(found, want)
