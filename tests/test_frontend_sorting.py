"""Order against numpy: sorting with equal elements, NaN and infinities; medians, running sums, counts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from meanings import meaning, same

import minicc as mc
from minicc import Tensor

RANDOM = np.random.default_rng(0)
SHAPES = ((7,), (3, 1), (2, 5, 3), (8,), (0, 4), (4, 0), (1, 33))
X = Tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]])


def floats(*shape: int) -> np.ndarray:
    """Numbers of which many are equal, some are no numbers, infinite, or zeros of either sign."""
    some = np.array([0.0, -0.0, 1.5, -2.0, np.nan, np.inf, -np.inf, 7.25, 1e-40, -3e38], np.float32)
    return RANDOM.choice(some, shape)


def integers(*shape: int) -> np.ndarray:
    return RANDOM.choice(np.array([0, 1, -1, 5, 2**31 - 1, -2**31], np.int32), shape)


def bools(*shape: int) -> np.ndarray:
    return RANDOM.random(shape) < 0.5


def small(*shape: int) -> np.ndarray:
    return RANDOM.integers(0, 256, shape).astype(np.uint8)


def unsigned(*shape: int) -> np.ndarray:
    return RANDOM.choice(np.array([0, 1, 2**31, 2**32 - 1, 7], np.uint32), shape)


DRAWS = [floats, integers, bools, small, unsigned]


@pytest.mark.parametrize("draw", DRAWS)
def test_sort_and_argsort_are_numpys_stable_ones(draw: Callable):
    for shape in SHAPES:
        for axis in range(len(shape)):
            x = draw(*shape)
            got = meaning(lambda x, axis=axis: (x.sort(axis), x.argsort(axis), x.sort(dim=axis)), x)
            order = np.argsort(x, axis, kind="stable")
            assert same(got, (np.sort(x, axis), order, np.sort(x, axis))), (shape, axis)


def test_sorting_keeps_the_bits_of_every_element():
    x = floats(40)
    got = meaning(lambda x: x.sort(), x).astype(np.float32)
    want = x[np.argsort(x, kind="stable")]
    assert (np.signbit(got) == np.signbit(want))[~np.isnan(want)].all()


@pytest.mark.parametrize("draw", DRAWS)
def test_descending_is_stable_too_and_begins_with_nan(draw: Callable):
    for shape in ((9,), (3, 6), (2, 1)):
        x = draw(*shape)
        with np.errstate(all="ignore"):
            keys = -x if draw is floats else -x.astype(np.int64)
        keys = np.where(np.isnan(x), -np.inf, keys) if draw is floats else keys
        ranks = np.arange(shape[-1]) + shape[-1] * (x == x)  # a NaN comes before infinity
        order = np.lexsort((ranks, keys))
        got = meaning(lambda x: (x.sort(-1, True), x.argsort(descending=True)), x)
        assert same(got, (np.take_along_axis(x, order, -1), order)), shape


def test_a_sort_is_rounds_of_compares_and_looks_nothing_up():
    graph = mc.jit(lambda x: x.sort()).trace(mc.jit(lambda x: x).take((mc.zeros(100),), {}))[0]
    ops = [node.op for node in graph.nodes()]
    assert ops.count("reverse") == 2 * 7 * 8 / 2 and not {"gather", "scatter"} & {*ops}  # 100 <= 2**7


def test_topk_takes_the_largest_first_or_the_smallest():
    x = RANDOM.standard_normal((4, 9)).astype(np.float32)
    order = np.argsort(-x, 1)
    largest = np.take_along_axis(x, order[:, :3], 1), order[:, :3]
    assert same(meaning(lambda x: x.topk(3), x), largest)
    least = np.sort(x, 0)[:2], np.argsort(x, 0)[:2]
    assert same(meaning(lambda x: x.topk(2, axis=0, largest=False), x), least)
    assert same(meaning(lambda x: x.topk(0), x), (x[:, :0], order[:, :0]))


def test_the_gradient_of_a_sort_goes_where_each_element_came_from():
    gradient = mc.grad(lambda x: (x.sort(-1) * Tensor([1.0, 10.0, 100.0])).sum())(X)
    assert gradient.tolist() == [[100.0, 1.0, 10.0], [1.0, 100.0, 10.0]]
    assert mc.grad(lambda x: x.topk(1)[0].sum())(X).tolist() == [[1, 0, 0], [0, 1, 0]]


AGAINST_NUMPY: dict[str, Callable] = {
    "median": lambda lib, x: lib.median(x), "median axis": lambda lib, x: lib.median(x, axis=0),
    "median axes": lambda lib, x: lib.median(x, axis=(0, -1), keepdims=True),
    "quantile": lambda lib, x: lib.quantile(x, 0.3, axis=1), "the least": lambda lib, x: lib.quantile(x, 0.0),
    "percentile": lambda lib, x: lib.percentile(x, 87.5, axis=-1, keepdims=True),
    "cumsum": lambda lib, x: lib.cumsum(x, axis=1), "cumsum flat": lambda lib, x: lib.cumsum(x),
    "cumprod": lambda lib, x: lib.cumprod(x, axis=0),
    "cumsum of bools": lambda lib, x: lib.cumsum(x > 0, axis=1),
    "diff": lambda lib, x: lib.diff(x), "diff twice": lambda lib, x: lib.diff(x, 2, axis=0),
    "diff of bools": lambda lib, x: lib.diff(x > 0),
}


@pytest.mark.parametrize("name", AGAINST_NUMPY)
def test_what_depends_on_order_means_what_it_means_in_numpy(name: str):
    for shape in ((3, 4), (1, 7), (5, 1), (8, 2, 3)[:2], (2, 9)):
        x = RANDOM.standard_normal(shape).astype(np.float32)
        want = AGAINST_NUMPY[name](np, x.astype(np.float64))
        assert same(meaning(lambda x: AGAINST_NUMPY[name](mc, x), x), want, 1e-6), shape


def test_running_maxima_and_minima_are_ufunc_accumulate():
    for draw in (floats, integers):
        x = draw(3, 13)
        got = meaning(lambda x: (x.cummax(1), x.cummin(1), x.cummax(dim=0)), x)
        wants = np.maximum.accumulate(x, 1), np.minimum.accumulate(x, 1), np.maximum.accumulate(x, 0)
        assert same(got, wants)


def test_a_running_sum_is_infinite_only_from_infinity_on():
    x = np.array([1, 2, np.inf, 3], np.float32)
    assert meaning(lambda x: x.cumsum(), x).tolist() == [1, 3, np.inf, np.inf]


def test_the_median_of_a_row_with_nan_is_nan_and_of_infinities_infinite():
    x = np.array([[1, np.nan, 3], [np.inf, 2, np.inf], [1, 2, 4]], np.float32)
    assert same(meaning(lambda x: x.median(1), x), [np.nan, np.inf, 2.0])


@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted_counts_what_comes_before(side: str):
    row = np.sort(floats(17))
    values = floats(3, 5)
    got = meaning(lambda row, values: row.searchsorted(values, side), row, values)
    assert same(got, np.searchsorted(row, values, side))


def test_counts_are_numpys():
    x = RANDOM.integers(0, 9, 30)
    weights = RANDOM.standard_normal(30).astype(np.float32)
    assert same(meaning(lambda x: x.bincount(length=9), x.astype(np.int32)), np.bincount(x, minlength=9))
    want = np.bincount(x, weights.astype(np.float64), 9)
    assert same(meaning(lambda x, w: x.bincount(w, length=9), x.astype(np.int32), weights), want)
    values = RANDOM.standard_normal((6, 7)).astype(np.float32)
    values[0, :2] = -2, 2  # the last bin holds its upper edge
    got = meaning(lambda x: x.histogram(8, (-2, 2)), values)
    counts, edges = np.histogram(values, 8, (-2, 2))
    assert same(got, (counts, edges))


@pytest.mark.parametrize("device", ["gpu", "tpu"])
def test_devices_sort_as_numpy_does(device: str):
    x = RANDOM.standard_normal((3, 6)).astype(np.float32)
    x[0, 2], x[1, 1:3] = np.nan, 0.5
    step = mc.jit(lambda x: (x.sort(), x.argsort(0), x.topk(2)[1], x.cumsum(1)), device)
    wants = np.sort(x), np.argsort(x, 0, kind="stable"), np.argsort(np.where(np.isnan(x), -9, -x), 1)[:, :2]
    assert same([y.numpy() for y in step(Tensor(x))], (*wants, np.cumsum(x.astype(np.float64), 1)), 1e-6)


MISTAKES: list[tuple[str, Callable, type, list[str]]] = [
    ("sorting along no axis", lambda: X.sort(2), mc.ShapeError, ["no such axis"]),
    ("sorting along two", lambda: X.sort((0, 1)), mc.ShapeError, ["one axis"]),
    ("sorting a scalar", lambda: Tensor(1.0).sort(), mc.ShapeError, ["no axes"]),
    ("more than there are", lambda: X.topk(4), mc.ShapeError, ["got 4", "0 .. 3"]),
    ("half an element", lambda: X.topk(1.5), mc.DtypeError, ["integers"]),
    ("a share of two", lambda: X.quantile(2), mc.ShapeError, ["0 .. 1", "percentile"]),
    ("the median of nothing", lambda: mc.zeros(2, 0).median(1), mc.ShapeError, ["no elements"]),
    ("searching a matrix", lambda: X.searchsorted(1.0), mc.ShapeError, ["f32[2,3]", "one row"]),
    ("searching on no side", lambda: X[0].searchsorted(1.0, "middle"), mc.ShapeError, ["'middle'"]),
    ("counting floats", lambda: X[0].bincount(length=3), mc.DtypeError, ["f32[3]"]),
    ("bins without a number", lambda: Tensor([1, 2]).bincount(), mc.CompileError, ["length="]),
    ("bins without a range", lambda: X.histogram(3), mc.CompileError, ["range="]),
    ("less than no differences", lambda: X.diff(-1), mc.ShapeError, ["-1"]),
]


@pytest.mark.parametrize("mistake, kind, words", [pytest.param(*rest, id=name) for name, *rest in MISTAKES])
def test_a_mistake_is_one_clear_error_at_its_line(mistake: Callable, kind: type, words: list[str]):
    with pytest.raises(kind) as caught:
        mistake()
    assert type(caught.value) is kind and all(word in str(caught.value) for word in words), str(caught.value)
    assert caught.value.at[0].file == __file__


@pytest.mark.parametrize(("change", "shape"), [
    (lambda x: mc.roll(x, 1) * x, (2, 2)), (lambda x: x.sort(), (7,)), (lambda x: x.sort(0), (17, 3)),
    (lambda x: x.median(), (5, 7)), (lambda x: x.topk(3)[0], (20, 30))], ids=str)
def test_small_arrays_are_sorted_on_the_tpu_too(change, shape):
    x = mc.Tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32))
    assert (mc.jit(change, device="tpu")(x).numpy() == change(x).numpy()).all()
