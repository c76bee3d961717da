"""What moves elements and changes none, against numpy: sizes, axes, joining, parts, padding, diagonals."""

from __future__ import annotations

import contextlib
import inspect
import random
from collections.abc import Callable

import numpy as np
import pytest
from meanings import meaning, same

import minicc as mc
from minicc import Tensor
from minicc.frontend import catalogue

RANDOM = np.random.default_rng(0)
SHAPES = ((3, 4), (1, 5), (2, 0), (4, 1))
X = Tensor(np.ones((2, 3), np.float32))


def numbers(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


# the same on a matrix of ours and of numpy's
ON_MATRICES: dict[str, tuple[Callable, Callable]] = {
    "flatten": (lambda x: x.flatten(), lambda x: x.reshape(-1)),
    "ravel": (lambda x: x.ravel(), lambda x: x.ravel()),
    "view": (lambda x: x.view(x.shape[1], x.shape[0]), lambda x: x.reshape(x.shape[1], x.shape[0])),
    "expand_dims": (lambda x: x.expand_dims((0, -1)), lambda x: np.expand_dims(x, (0, -1))),
    "swapaxes": (lambda x: x.swapaxes(0, -1), lambda x: x.swapaxes(0, -1)),
    "moveaxis": (lambda x: x.unsqueeze(0).moveaxis(2, 0), lambda x: np.moveaxis(x[None], 2, 0)),
    "movedim": (lambda x: x[None].movedim((0, 1), (-1, 0)), lambda x: np.moveaxis(x[None], (0, 1), (-1, 0))),
    "mT": (lambda x: x[None].mT, lambda x: x[None].swapaxes(1, 2)),
    "flip": (lambda x: x.flip(), np.flip), "flip one": (lambda x: x.flip(dim=1), lambda x: x[:, ::-1]),
    "fliplr": (lambda x: x.fliplr(), np.fliplr), "flipud": (lambda x: x.flipud(), np.flipud),
    "rot90": (lambda x: x.rot90(), np.rot90), "rot180": (lambda x: x.rot90(2), lambda x: np.rot90(x, 2)),
    "rot270": (lambda x: x.rot90(-1), lambda x: np.rot90(x, -1)),
    "rot axes": (lambda x: x[None].rot90(1, (2, 0)), lambda x: np.rot90(x[None], 1, (2, 0))),
    "atleast_3d": (lambda x: x.atleast_3d(), np.atleast_3d),
    "atleast of a row": (lambda x: x.ravel().atleast_3d(), lambda x: np.atleast_3d(x.ravel())),
    "tile": (lambda x: x.tile(2, 3), lambda x: np.tile(x, (2, 3))),
    "tile more axes": (lambda x: x.tile((2, 1, 2)), lambda x: np.tile(x, (2, 1, 2))),
    "tile fewer axes": (lambda x: x.tile(2), lambda x: np.tile(x, 2)),
    "repeat": (lambda x: x.repeat(2, 1), lambda x: np.repeat(x, 2, 1)),
    "repeat flat": (lambda x: x.repeat(3), lambda x: np.repeat(x, 3)),
    "repeat each": (lambda x: x.repeat(range(x.shape[0]), axis=0),
                    lambda x: np.repeat(x, range(x.shape[0]), 0)),
    "roll": (lambda x: x.roll(2), lambda x: np.roll(x, 2)),
    "roll axes": (lambda x: x.roll((1, -2), (0, 1)), lambda x: np.roll(x, (1, -2), (0, 1))),
    "concatenate": (lambda x: mc.concatenate([x, x * 2, x], axis=-1),
                    lambda x: np.concatenate([x, x * 2, x], -1)),
    "concatenate flat": (lambda x: mc.concatenate([x, x[0]], axis=None),
                         lambda x: np.concatenate([x, x[0]], None)),
    "cat": (lambda x: mc.cat([x, x], dim=1), lambda x: np.concatenate([x, x], 1)),
    "stack": (lambda x: mc.stack([x, -x], -1), lambda x: np.stack([x, -x], -1)),
    "hstack": (lambda x: mc.hstack([x, x]), lambda x: np.hstack([x, x])),
    "hstack of rows": (lambda x: mc.hstack([x[0], x[0]]), lambda x: np.hstack([x[0], x[0]])),
    "vstack": (lambda x: mc.vstack([x, x[0]]), lambda x: np.vstack([x, x[0]])),
    "dstack": (lambda x: mc.dstack([x, x]), lambda x: np.dstack([x, x])),
    "split": (lambda x: x.split(x.shape[0], 0), lambda x: np.split(x, x.shape[0], 0)),
    "split at": (lambda x: x.split([1, 3, 9], axis=1), lambda x: np.split(x, [1, 3, 9], 1)),
    "array_split": (lambda x: x.array_split(3, 1), lambda x: np.array_split(x, 3, 1)),
    "unbind": (lambda x: x.unbind(dim=0), lambda x: [*x]),
    "broadcast_arrays": (lambda x: mc.broadcast_arrays(x, x[:1], 2.0),
                         lambda x: list(np.broadcast_arrays(x, x[:1], 2.0))),
    "pad": (lambda x: x.pad(((1, 0), (2, 3)), constant_values=7),
            lambda x: np.pad(x, ((1, 0), (2, 3)), constant_values=7)),
    "pad all": (lambda x: x.pad(2), lambda x: np.pad(x, 2)),
    "tril": (lambda x: x.tril(), np.tril),
    "tril k": (lambda x: x[None].tril(-1), lambda x: np.tril(x[None], -1)),
    "triu": (lambda x: x.triu(1), lambda x: np.triu(x, 1)),
    "triu far": (lambda x: x.triu(9), lambda x: np.triu(x, 9)),
    **{f"diagonal {k}": (lambda x, k=k: x.diagonal(k), lambda x, k=k: np.diagonal(x, k))
       for k in range(-6, 7)},
    "diagonal axes": (lambda x: x[None].diagonal(1, 2, 0), lambda x: np.diagonal(x[None], 1, 2, 0)),
    "trace": (lambda x: x.trace(1), lambda x: np.trace(x, 1)),
    "diag": (lambda x: x.diag(-1), lambda x: np.diag(x, -1)),
    **{f"diag of a row {k}": (lambda x, k=k: x[0].diag(k), lambda x, k=k: np.diag(x[0], k))
       for k in (-2, 0, 1)},
}


@pytest.mark.parametrize("name", ON_MATRICES)
def test_moving_elements_means_what_it_means_in_numpy(name: str):
    ours, theirs = ON_MATRICES[name]
    for shape in SHAPES:
        x = numbers(*shape)
        assert same(meaning(ours, x), theirs(x.astype(np.float64))), shape


@pytest.mark.parametrize("name", [name for name in ON_MATRICES if name not in ("pad", "broadcast_arrays")])
def test_a_gradient_is_moved_back_to_where_each_element_came_from(name: str):
    def outputs(x: Tensor) -> list[Tensor]:
        moved = ON_MATRICES[name][0](x)
        return list(moved) if isinstance(moved, tuple) else [moved]
    x = numbers(3, 4)
    weights = [numbers(*y.shape) for y in outputs(Tensor(x))]

    def loss(x: Tensor) -> Tensor:  # is linear, so that it is its gradient times x
        return sum((y * w).sum() for y, w in zip(outputs(x), weights, strict=True))
    value, gradient = meaning(lambda x: (loss(x), mc.grad(loss)(x)), x)
    assert same((gradient * x).sum(), value)


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap"])
def test_padding_with_copies_means_what_it_means_in_numpy(mode: str):
    for shape, widths in (((3, 4), 2), ((5,), (0, 11)), ((1, 3), ((2, 1), (0, 7))), ((2, 3, 2), 3)):
        x = numbers(*shape)
        assert same(meaning(lambda x, w=widths: x.pad(w, mode), x), np.pad(x, widths, mode)), shape


def test_chunks_are_as_long_as_the_first_but_for_the_last():
    def lengths(size: int, parts: int) -> list[int]:
        return [len(part) for part in mc.arange(size).chunk(parts)]
    assert lengths(10, 4) == [3, 3, 3, 1] and lengths(5, 4) == [2, 2, 1] and lengths(6, 2) == [3, 3]


def test_windows_along_axes_are_numpys_windows():
    x = numbers(5, 6)
    windows = np.lib.stride_tricks.sliding_window_view
    assert same(meaning(lambda x: x.sliding_window_view((2, 3)), x), windows(x, (2, 3)))
    assert same(meaning(lambda x: x.sliding_window_view(3, axis=0), x), windows(x, 3, 0))
    assert same(meaning(lambda x: x.unfold(1, 2, 2), x), windows(x, 2, 1)[:, ::2])


def test_joining_gives_the_dtype_that_holds_all():
    joined = mc.concatenate([Tensor([1, 2]), Tensor([0.5]), Tensor([True])])
    assert joined.dtype.name == "f32" and joined.tolist() == [1.0, 2.0, 0.5, 1.0]
    assert mc.stack([Tensor([True]), Tensor([False])]).tolist() == [[True], [False]]


def test_numpys_own_functions_move_tensors_too():
    x = numbers(3, 4)
    t = Tensor(x)
    for ours, want in ((np.concatenate([t, t]), np.concatenate([x, x])), (np.flip(t, 0), x[::-1]),
                       (np.pad(t, 1, "edge"), np.pad(x, 1, "edge")), (np.moveaxis(t, 0, 1), x.T)):
        assert isinstance(ours, Tensor) and same(ours, want)


def test_what_changes_nothing_makes_no_node():
    assert X.flip(()) is X and X.contiguous() is X and X.roll(3, 1) is X and X.pad(0) is X
    assert mc.concatenate([X]) is X and X.swapaxes(0, 0) is X and X.atleast_2d() is X


MISTAKES: list[tuple[str, Callable, type, list[str]]] = [
    ("joining nothing", lambda: mc.concatenate([]), mc.ShapeError, ["nothing to join"]),
    ("joining one tensor that is no list", lambda: mc.stack(3.0), mc.DtypeError, ["list", "stack([x, y])"]),
    ("joining other sizes", lambda: mc.concatenate([X, X.T]), mc.ShapeError, ["f32[2,3]", "f32[3,2]"]),
    ("joining along no axis", lambda: mc.cat([X, X], 2), mc.ShapeError, ["no such axis"]),
    ("stacking other shapes", lambda: mc.stack([X, X[0]]), mc.ShapeError, ["f32[2,3] and f32[3]"]),
    ("parts that are not equal", lambda: X.split(2, axis=1), mc.ShapeError, ["2 parts of 3", "array_split"]),
    ("no parts", lambda: X.chunk(0), mc.ShapeError, ["0", "1 or more"]),
    ("repeats that do not fit", lambda: X.repeat([1, 2], 1), mc.ShapeError, ["[1, 2]", "3"]),
    ("shifts without axes", lambda: X.roll((1, 2, 3), (0, 1)), mc.ShapeError, ["pair up"]),
    ("negative widths", lambda: X.pad(-1), mc.ShapeError, ["-1", "slice"]),
    ("widths for other axes", lambda: X.pad(((1, 1),) * 3), mc.ShapeError, ["2 such pairs"]),
    ("half an integer", lambda: Tensor([1]).pad(1, "constant", 0.5), mc.DtypeError, ["f32[] into i32[1]"]),
    ("tiles of no number", lambda: X.tile(-1), mc.ShapeError, ["[-1]"]),
    ("half a diagonal", lambda: X.tril(0.5), mc.DtypeError, ["integers"]),
    ("an unknown mode", lambda: X.pad(1, "mirror"), mc.CompileError, ["mirror", "reflect"]),
    ("copies of nothing", lambda: mc.zeros(0).pad(1, "edge"), mc.ShapeError, ["empty", "constant"]),
    ("flattening backwards", lambda: X.flatten(1, 0), mc.ShapeError, ["after the last"]),
    ("one axis too many", lambda: X.swapaxes(0, (1, 0)), mc.ShapeError, ["one axis"]),
    ("the transpose of a row", lambda: X[0].mT, mc.ShapeError, ["rank 2"]),
    ("turning a line", lambda: X.rot90(1, (0,)), mc.ShapeError, ["two axes"]),
    ("the diagonal of a row", lambda: X[0].diagonal(), mc.ShapeError, ["rank 2"]),
    ("the diag of a cube", lambda: X[None].diag(), mc.ShapeError, ["diagonal"]),
    ("a window that is too long", lambda: X.unfold(1, 4), mc.ShapeError, ["4 of 3"]),
    ("axis and dim", lambda: X.split(1, 0, dim=0), mc.ShapeError, ["both axis and dim"]),
]


@pytest.mark.parametrize("mistake, kind, words", [pytest.param(*rest, id=name) for name, *rest in MISTAKES])
def test_a_mistake_is_one_clear_error_at_its_line(mistake: Callable, kind: type, words: list[str]):
    with pytest.raises(kind) as caught:
        mistake()
    assert type(caught.value) is kind and all(word in str(caught.value) for word in words), str(caught.value)
    assert caught.value.at[0].file == __file__


def test_whatever_is_passed_the_error_is_one_of_ours():
    chance, image = random.Random(0), mc.ones(1, 2, 5, 5)
    anything = [X, X * 2, image, X > 0, Tensor([0, 1]), Tensor(2.0), mc.zeros(0, 3), None, "same", "ij->ji",
                -1, 0, 1, 2, 1.5, float("nan"), True, (0, 1), [], [[1, 2], [3]], {}, {1}, numbers(2, 2),
                slice(1, 2), object(), b"x", range(2), np.float32(2), [X, X], [X, Tensor([1])], ...]
    functions = [f for families in (catalogue.METHODS, catalogue.ONLY_FUNCTIONS)
                 for family in families.values() for f in family.values()]
    for function in functions:
        for _ in range(40):
            known = [p for p in inspect.signature(function).parameters.values() if p.kind != p.KEYWORD_ONLY]
            least = sum(p.default is p.empty for p in known)
            given = [chance.choice(anything) for _ in range(chance.randint(least, len(known)))]
            with contextlib.suppress(mc.MiniccError):
                function(*given)
