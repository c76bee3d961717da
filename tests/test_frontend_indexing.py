"""Reading and writing at an index, against numpy: every spelling of a key, random keys, functions by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from meanings import meaning, same

import minicc as mc
from minicc import Tensor

RANDOM = np.random.default_rng(0)
X = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4))


def numbers(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


A = numbers(4, 5, 3)
MASK = A[:, :, 0] > 0
KEYS: dict[str, Any] = {
    "a number": 2, "a negative number": (-1, 3), "dots": (..., -2), "a step": np.s_[::2, 1:4],
    "backwards": np.s_[::-1], "backwards by two": np.s_[3:0:-2, ..., ::-1], "nothing": np.s_[2:2],
    "beyond": np.s_[-9:99, 4:1], "backwards beyond": np.s_[:, 99::-3], "new axes": (None, 1, None, ..., None),
    "an array": [3, 0, -1], "an array of rank 2": np.array([[0, 1], [2, 3]]),
    "an array behind": np.s_[:, [1, 1, 4]],
    "an array and a slice": np.s_[[2, 0], 1:3], "a slice and an array": np.s_[::-1, [0, -5], 1:],
    "arrays side by side": ([0, 1, 2], [4, 3, 2]), "arrays that broadcast": ([[0], [1]], [2, 3, 4]),
    "arrays apart": np.s_[[0, 1], :, [2, 0]], "an array and a number": np.s_[[0, 3], 2],
    "a number apart from an array": np.s_[0, :, [1, 2]], "a number before an array": np.s_[:, 1, [1, 2]],
    "arrays and a new axis between": ([0, 1], None, [2, 3]),
    "arrays behind a new axis": (None, [0, 1], [2, 3]),
    "all axes": ([0, 1], [2, 2], [1, 1]), "an empty array": [], "an array of rank 0": np.array(2),
    "a mask": MASK, "a mask of one axis": np.s_[:, [True, False, True, True, False]],
    "a mask and a slice": (MASK, slice(1, 3)), "a mask of all": A > 0.5, "a mask of none": A > 99,
    "an array between slices": np.s_[1:, [0, 2], ::2], "bytes as indices": np.array([1, 3], np.uint8),
}


@pytest.mark.parametrize("name", KEYS)
def test_a_key_reads_what_it_reads_in_numpy(name: str):
    key = KEYS[name]
    assert same(meaning(lambda x: x[key], A), A[key])
    assert same(Tensor(A)[key].numpy(), A[key])  # data at hand
    items = key if isinstance(key, tuple) else (key,)
    held = tuple(Tensor(np.asarray(item).tolist()) if isinstance(item, list | np.ndarray) and np.size(item)
                 else item for item in items)
    assert same(Tensor(A)[held].numpy(), A[key])


@pytest.mark.parametrize("name", KEYS)
def test_a_key_writes_what_it_writes_in_numpy(name: str):
    key, want, added = KEYS[name], A.astype(np.float64), A.astype(np.float64)
    new = numbers(*A[key].shape)
    want[key] = new
    np.add.at(added, key if isinstance(key, tuple) else (key,), new)
    assert same(meaning(lambda x, new: x.at[key].set(new), A, new), want)
    assert same(meaning(lambda x, new: x.at[key].add(new), A, new), added)


@pytest.mark.parametrize("name", ["a number", "backwards by two", "an array behind", "arrays that broadcast"])
def test_every_kind_of_write_combines_as_the_ufunc_of_numpy(name: str):
    key = KEYS[name]
    for kind, ufunc in (("multiply", np.multiply), ("max", np.maximum), ("min", np.minimum)):
        want, new = A.astype(np.float64), numbers(*A[key].shape)
        ufunc.at(want, key if isinstance(key, tuple) else (key,), new)
        assert same(meaning(lambda x, new, kind=kind: getattr(x.at[key], kind)(new), A, new), want)
    assert same(meaning(lambda x: x.at[key].get(), A), A[key])


def _random_key(shape: tuple[int, ...]) -> tuple:
    """Slices, numbers, new axes and arrays that broadcast, at random, for an array of this shape."""
    lead, key = (int(RANDOM.integers(1, 3)), int(RANDOM.integers(0, 4))), []
    for size in shape:
        start, stop, step = (int(n) for n in RANDOM.integers(-size - 2, size + 3, 3))
        array = RANDOM.integers(-size, size, [(), lead[1:], lead][RANDOM.integers(3)])
        key += [[slice(start, stop, step or None)], [int(RANDOM.integers(-size, size))], [array],
                [None, slice(None)]][RANDOM.integers(4)]
    return tuple(key[:RANDOM.integers(1, len(key) + 1)]) + ((...,) if RANDOM.integers(2) else ())


def test_random_keys_read_and_write_what_they_do_in_numpy():
    for _ in range(150):
        shape = tuple(int(n) for n in RANDOM.integers(1, 5, RANDOM.integers(1, 5)))
        x, key = numbers(*shape), _random_key(shape)
        assert same(meaning(lambda x, key=key: x[key], x), x[key]), (shape, key)
        want = x.astype(np.float64)
        want[key] = 7
        assert same(meaning(lambda x, key=key: x.at[key].set(7), x), want), (shape, key)


def test_computed_indices_count_from_the_end_and_clamp():
    rows = np.array([1, -1, 3, 99, -99], np.int32)
    clamped = np.array([1, 3, 3, 3, 0])
    assert same(meaning(lambda x, i: x[i], A, rows), A[clamped])
    assert same(meaning(lambda x, i: x[i, i], A, rows), A[clamped, [1, 4, 3, 4, 0]])
    assert same(meaning(lambda x, i: x[i[0], ..., i[1]], A, rows), A[1, :, -1])


def test_computed_indices_outside_write_nothing():
    rows = np.array([1, -1, 99, -99], np.int32)
    want = A.astype(np.float64)
    want[[1, -1]] = 5
    assert same(meaning(lambda x, i: x.at[i].set(5), A, rows), want)
    want = A.astype(np.float64)
    want[[1, 3], [0, 2]] = 5
    columns = np.array([0, 2, 1, 1], np.int32)
    assert same(meaning(lambda x, i, j: x.at[i, j].set(5), A, rows, columns), want)


def test_where_indices_repeat_set_keeps_the_last_and_add_takes_all():
    x, rows = np.zeros(3, np.float32), np.array([1, 1, 2, 1], np.int32)
    new = np.array([1, 2, 3, 4], np.float32)
    assert meaning(lambda x, i, v: x.at[i].set(v), x, rows, new).tolist() == [0, 4, 3]
    assert meaning(lambda x, i, v: x.at[i].add(v), x, rows, new).tolist() == [0, 7, 3]
    assert meaning(lambda x, i, v: x.at[i].multiply(v), x + 1, rows, new).tolist() == [1, 8, 3]


@pytest.mark.parametrize("name", KEYS)
def test_gradients_go_through_what_a_key_reads_and_writes(name: str):
    key = KEYS[name]
    read, written, new = numbers(*A[key].shape), numbers(*A.shape), numbers(*A[key].shape)

    def loss(x: Tensor, new: Tensor) -> Tensor:  # is linear, so that it is its gradient times x and new
        return (x[key] * read).sum() + ((x.at[key].set(new) - x.at[key].add(new * 2)) * written).sum()
    value, (gx, gn) = meaning(lambda x, new: (loss(x, new), mc.grad(loss, (0, 1))(x, new)), A, new)
    assert same((gx * A).sum() + (gn * new).sum(), value, 1e-6)


def test_an_index_has_the_gradient_of_what_it_reads():
    twice = mc.grad(lambda x: (x[[0, 0, 2], 1:] * 2).sum())(X)
    assert twice.tolist() == [[0, 4, 4, 4], [0] * 4, [0, 2, 2, 2]]
    assert mc.grad(lambda x: (x.at[1].set(0.0) * x).sum())(X)[1].tolist() == [0.0] * 4


J = RANDOM.integers(0, 3, (4, 2, 3))
BY_NAME: dict[str, tuple[Callable, Callable]] = {
    "take": (lambda x: x.take([[1, -1]], 1), lambda x: np.take(x, [[1, -1]], 1)),
    "take flat": (lambda x: x.take([7, -2]), lambda x: np.take(x, [7, -2])),
    "index_select": (lambda x: x.index_select(2, [2, 0]), lambda x: x[..., [2, 0]]),
    "select": (lambda x: x.select(1, -2), lambda x: x[:, -2]),
    "narrow": (lambda x: x.narrow(1, 2, 3), lambda x: x[:, 2:5]),
    "dynamic_slice": (lambda x: x.dynamic_slice((1, 0, 2), (2, 5, 1)), lambda x: x[1:3, :, 2:3]),
    "take_along_axis": (lambda x: x.take_along_axis(J, 1), lambda x: np.take_along_axis(x, J, 1)),
    "one index for all": (lambda x: x.take_along_axis(J[:1], 1), lambda x: np.take_along_axis(x, J[:1], 1)),
    "one place for all": (lambda x: x[:1].take_along_axis(J, 1), lambda x: np.take_along_axis(x[:1], J, 1)),
    "gather": (lambda x: x.gather(1, J[:2, :, :2]),
               lambda x: np.take_along_axis(x[:2, :, :2], J[:2, :, :2], 1)),
    "embedding": (lambda x: mc.embedding(x[0], [[4, 0], [1, 1]]), lambda x: x[0][[[4, 0], [1, 1]]]),
    "masked_fill": (lambda x: x.masked_fill(x > 0, -1.0), lambda x: np.where(x > 0, -1.0, x)),
}


@pytest.mark.parametrize("name", BY_NAME)
def test_a_function_by_name_reads_as_the_key_that_it_stands_for(name: str):
    ours, theirs = BY_NAME[name]
    assert same(meaning(ours, A), theirs(A.astype(np.float64)))


def test_writing_along_an_axis_agrees_with_loops():
    rows, source = RANDOM.integers(0, 4, (2, 3)), numbers(3, 3)
    x = numbers(4, 3)
    kinds: dict[Any, Callable] = {None: lambda old, new: new, "add": np.add, "multiply": np.multiply,
                                  "amax": np.maximum, "amin": np.minimum}
    for kind, combine in kinds.items():
        want = x.astype(np.float64)
        for i, j in np.ndindex(2, 3):
            want[rows[i, j], j] = combine(want[rows[i, j], j], source[i, j])
        assert same(meaning(lambda x, v, kind=kind: x.scatter(0, rows, v, kind), x, source), want), kind
    want = x.astype(np.float64)
    np.put_along_axis(want, rows, source[:2], 0)
    assert same(meaning(lambda x, v: x.put_along_axis(rows, v, 0), x, source[:2]), want)
    want = x.astype(np.float64)
    np.add.at(want, np.s_[:, [2, 0, 2]], source[0])
    assert same(meaning(lambda x, v: x.index_add(1, [2, 0, 2], v), x, source[0]), want)


def test_dynamic_slices_move_so_that_they_fit():
    def moved(start: list[int]) -> tuple[slice, ...]:
        firsts = np.clip(start, 0, np.subtract(A.shape, (2, 2, 2)))
        return tuple(slice(first, first + 2) for first in firsts)
    for start in ([0, 1, 1], [-3, 9, 0], [3, 4, 2]):
        i = np.array(start, np.int32)
        assert same(meaning(lambda x, i: x.dynamic_slice([*i], (2, 2, 2)), A, i), A[moved(start)])
        want = A.astype(np.float64)
        want[moved(start)] = 1
        block = np.ones((2, 2, 2), np.float32)
        assert same(meaning(lambda x, u, i: x.dynamic_update_slice(u, [*i]), A, block, i), want)


@pytest.mark.parametrize("device", ["gpu", "tpu"])
def test_devices_index_as_numpy_does(device: str):
    x, rows = numbers(6, 5), np.array([5, 0, 2], np.int32)
    step = mc.jit(lambda x, i: (x[::-2], x[i, 1:], x.at[i].add(1), x.at[1:3].set(0), x[i, i - 1]), device)
    added, cleared = x.copy(), x.copy()
    added[rows] += 1
    cleared[1:3] = 0
    wants = x[::-2], x[rows, 1:], added, cleared, x[rows, rows - 1]
    assert same([y.numpy() for y in step(Tensor(x), Tensor(rows))], wants, 1e-6)


MISTAKES: list[tuple[str, Callable, type, list[str]]] = [
    ("an array out of range", lambda: X[[0, 3]], mc.OutOfRangeError, ["axis 0", "got 3", "-3 .. 2"]),
    ("a tensor out of range", lambda: X[:, Tensor([-5])], mc.OutOfRangeError, ["axis 1", "got -5"]),
    ("a write out of range", lambda: X.at[7].set(0), mc.OutOfRangeError, ["got 7"]),
    ("an array of floats", lambda: X[[0.5]], mc.DtypeError, ["float64[1]", "integers"]),
    ("NaN as an index", lambda: X[float("nan")], mc.DtypeError, ["a float"]),
    ("a tensor of floats", lambda: X[X], mc.DtypeError, ["f32[3,4]", ".int()"]),
    ("a bool as an index", lambda: X[True], mc.DtypeError, ["a bool"]),
    ("text as an index", lambda: X["rows"], mc.DtypeError, ["a str"]),
    ("ragged indices", lambda: X[[[0], [1, 2]]], mc.ShapeError, ["ragged"]),
    ("a lazy mask", lambda: X[X > 0], mc.DtypeError, ["mask.numpy()", "where"]),
    ("a mask of another size", lambda: X[[True, False]], mc.OutOfRangeError, ["bool[2]", "[3]"]),
    ("a mask of too many axes", lambda: X[np.ones((3, 4, 1), bool)], mc.OutOfRangeError, ["too many"]),
    ("arrays that do not broadcast", lambda: X[[0, 1], [0, 1, 2]], mc.ShapeError, ["i32[2] and i32[3]"]),
    ("an index of an empty axis", lambda: mc.zeros(0, 2)[[0]], mc.OutOfRangeError, ["empty"]),
    ("a slice that is computed", lambda: mc.jit(lambda x, i: x[i[0]:])(X, Tensor([1])), mc.CompileError,
     ["bounds are numbers", "narrow"]),
    ("nothing to take", lambda: X.take(None), mc.DtypeError, ["object[]"]),
    ("a bool of numpy", lambda: X[np.True_], mc.DtypeError, ["a bool"]),
    ("a step of 0", lambda: X[::0], mc.DtypeError, ["slice(None, None, 0)"]),
    ("dots twice", lambda: X[..., ...], mc.OutOfRangeError, ["one '...'"]),
    ("values that do not fit", lambda: X.at[0].set([1.0, 2.0]), mc.ShapeError, ["f32[2]", "[4]"]),
    ("values with more axes", lambda: X.at[0].set(X), mc.ShapeError, ["f32[3,4]"]),
    ("floats into integers", lambda: Tensor([1, 2]).at[0].set(1.5), mc.DtypeError, ["f32[] into i32[2]"]),
    ("assignment", lambda: X.__setitem__(0, 1), mc.CompileError, ["at["]),
    ("indices of another rank", lambda: X.take_along_axis([0], 0), mc.ShapeError, ["rank 2"]),
    ("a scatter that is unknown", lambda: X.scatter(0, [[0]], X, "mean"), mc.CompileError, ["mean", "amax"]),
    ("a start outside", lambda: X.narrow(1, 3, 2), mc.OutOfRangeError, ["got 3", "0 .. 2"]),
    ("a start that is missing", lambda: X.dynamic_slice((0,), (1, 1)), mc.ShapeError, ["1 starts"]),
    ("a slice that is too long", lambda: X.dynamic_slice((0, 0), (4, 1)), mc.ShapeError, ["no larger"]),
    ("a mask of integers", lambda: X.masked_fill(Tensor([1, 0, 1, 1]), 0.0), mc.DtypeError, ["i32[4]"]),
    ("nonzero", lambda: X.nonzero(), mc.CompileError, ["depend on the data", "numpy()"]),
    ("unique", lambda: X.unique(), mc.CompileError, ["depend on the data", "sort"]),
]


@pytest.mark.parametrize("mistake, kind, words", [pytest.param(*rest, id=name) for name, *rest in MISTAKES])
def test_a_mistake_is_one_clear_error_at_its_line(mistake: Callable, kind: type, words: list[str]):
    with pytest.raises(kind) as caught:
        mistake()
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert caught.value.at[0].file == __file__
    assert caught.value.__cause__ is None
