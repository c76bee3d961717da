"""Every mistake a user makes with tensors gives one clear error, with the line that made it."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest

import minicc as mc
from minicc import Tensor
from minicc.frontend import functional as F

X = Tensor(np.ones((2, 3), np.float32))
I = Tensor([1, 2, 3])


def leak() -> Tensor:
    kept = []
    mc.jit(lambda x: kept.append(x) or x)(X)
    return kept[0] + 1


def branch(x: Tensor) -> Tensor:
    return x if x.sum() > 0 else -x


# what the user wrote -> the error's class, and words that it must say: what was found, needed, or to try
MISTAKES: list[tuple[str, Callable, type, list[str]]] = [
    ("shapes that do not broadcast", lambda: X + Tensor([1.0, 2.0]), mc.ShapeError, ["f32[2,3] and f32[2]",
                                                                                     "broadcast"]),
    ("contracted sizes differ", lambda: X @ X, mc.ShapeError, ["3 (axis 1", "2 (axis 0", ".T"]),
    ("a scalar in a dot", lambda: X @ Tensor(1.0), mc.ShapeError, ["f32[]"]),
    ("batches that do not broadcast", lambda: mc.ones(2, 3, 4) @ mc.ones(3, 4, 5), mc.ShapeError, ["matmul"]),
    ("an axis too many", lambda: X.sum(axis=2), mc.ShapeError, ["no such axis", "got 2", "-2 .. 1"]),
    ("an axis twice", lambda: X.sum(axis=(0, -2)), mc.ShapeError, ["twice"]),
    ("axis and dim", lambda: X.sum(axis=0, dim=1), mc.ShapeError, ["both"]),
    ("an axis that is no number", lambda: X.sum(axis="rows"), mc.DtypeError, ["integers", "rows"]),
    ("the maximum of nothing", lambda: Tensor(np.ones((0, 3), np.float32)).max(0), mc.ShapeError,
     ["no elements"]),
    ("a reshape to another size", lambda: X.reshape(4, 2), mc.ShapeError, ["6 elements", "8"]),
    ("-1 for no whole number", lambda: X.reshape(4, -1), mc.ShapeError, ["-1"]),
    ("two -1", lambda: X.reshape(-1, -1), mc.ShapeError, ["reshape"]),
    ("a transpose of too few axes", lambda: mc.ones(2, 3, 4).transpose(1, 2), mc.ShapeError, ["all 3 axes"]),
    ("a broadcast that does not fit", lambda: X.broadcast_to(3, 3), mc.ShapeError, ["f32[2,3]"]),
    ("squeezing a long axis", lambda: X.squeeze(0), mc.ShapeError, ["longer than 1"]),
    ("an index out of range", lambda: X[2], mc.OutOfRangeError, ["axis 0", "got 2", "-2 .. 1"]),
    ("too many indices", lambda: X[0, 0, 0], mc.OutOfRangeError, ["too many", "at most 2"]),
    ("a float index", lambda: X[1.5], mc.DtypeError, ["a float"]),
    ("a mask as an index", lambda: X[X > 0], mc.DtypeError, ["where"]),
    ("an assignment", lambda: X.__setitem__(0, 1), mc.CompileError, ["never changes", "where"]),
    ("text as data", lambda: Tensor("hello"), mc.DtypeError, ["not numeric", "str"]),
    ("None as data", lambda: Tensor(None), mc.DtypeError, ["NoneType"]),
    ("an array of objects", lambda: Tensor(np.array([object()])), mc.DtypeError, ["object"]),
    ("complex data", lambda: Tensor([1j]), mc.DtypeError, ["complex"]),
    ("ragged lists", lambda: Tensor([[1, 2], [3]]), mc.ShapeError, ["ragged"]),
    ("an integer too large", lambda: Tensor(2**31), mc.OutOfRangeError, ["2147483648", "i32"]),
    ("a huge integer", lambda: Tensor(2**70), mc.DtypeError, ["Tensor"]),
    ("a float too large", lambda: X * 1e300, mc.OutOfRangeError, ["1e+300", "f32"]),
    ("an unknown dtype", lambda: X.astype("f17"), mc.DtypeError, ["f17", "f32, i32, bool"]),
    ("text as an operand", lambda: X + "a", mc.DtypeError, ["str"]),
    ("& on floats", lambda: X & X, mc.DtypeError, ["bool", "compare"]),
    ("a condition of floats", lambda: mc.where(X, X, X), mc.DtypeError, ["condition", "bool"]),
    ("a numpy function that is none of ours", lambda: np.nextafter(X, X), mc.DtypeError, ["np.nextafter"]),
    ("item of many", lambda: X.item(), mc.ShapeError, ["f32[2,3]", "tolist"]),
    ("the truth of many", lambda: bool(X > 0), mc.ShapeError, ["bool[2,3]"]),
    ("the length of a scalar", lambda: len(Tensor(1.0)), mc.DtypeError, ["f32[]"]),
    ("iterating over a scalar", lambda: list(Tensor(1.0)), mc.DtypeError, ["f32[]"]),
    ("labels that are floats", lambda: F.one_hot(X, 3), mc.DtypeError, ["i32"]),
    ("labels that do not fit", lambda: F.cross_entropy(X, I), mc.ShapeError, ["f32[2,3] and i32[3]"]),
    ("a negative size", lambda: mc.zeros(-1), mc.ShapeError, ["negative"]),
    ("a size that is no integer", lambda: mc.zeros(1.5), mc.DtypeError, ["1.5"]),
    ("a loss with axes", lambda: mc.grad(lambda x: x * 2)(X), mc.ShapeError, ["f32[2,3]", "sum"]),
    ("an integer loss", lambda: mc.grad(lambda x: x.int().sum())(X), mc.DtypeError, ["i32[]"]),
    ("a gradient by integers", lambda: mc.grad(lambda x: x.mean())(I), mc.DtypeError, ["i32[3]", "float"]),
    ("a gradient by a name", lambda: mc.grad(lambda p: p)({"w": ["a"]}), mc.DtypeError, ["args[0].w[0]",
                                                                                         "str"]),
    ("a loss that is no tensor", lambda: mc.grad(lambda x: None)(X), mc.DtypeError, ["NoneType", "return"]),
    ("argnums without argument", lambda: mc.grad(lambda x: x, argnums=1)(X), mc.CompileError, ["argnums 1"]),
    ("grad of a tensor", lambda: mc.grad(X), mc.CompileError, ["grad(f)(x)"]),
    ("trees that differ", lambda: mc.optim.SGD(1.0).step({"w": X}, {"v": X}), mc.ShapeError, ["structure"]),
    ("jit of a tensor", lambda: mc.jit(X), mc.CompileError, ["jit(f)(x)"]),
    ("jit that returns a number", lambda: mc.jit(lambda x: (x, 3))(X), mc.DtypeError, ["result[1]", "int"]),
    ("jit that returns nothing", lambda: mc.jit(lambda x: None)(X), mc.DtypeError, ["return"]),
    ("jit with a name", lambda: mc.jit(lambda x, mode: x)(X, "fast"), mc.DtypeError, ["argument mode",
                                                                                      "static_argnames"]),
    ("jit without its argument", lambda: mc.jit(lambda x, y: x)(X), mc.DtypeError, ["'y'"]),
    ("an unknown static name", lambda: mc.jit(lambda x: x, static_argnames="y"), mc.CompileError, ["got y"]),
    ("a static list", lambda: mc.jit(lambda x, n: x, static_argnames="n")(X, [1]), mc.DtypeError, ["static"]),
    ("a branch on a lazy value", lambda: mc.jit(branch)(X), mc.CompileError, ["branches on a lazy value",
                                                                              "where"]),
    ("data while tracing", lambda: mc.jit(lambda x: Tensor(x.numpy()))(X), mc.CompileError,
     ["while it is traced"]),
    ("random numbers while tracing", lambda: mc.jit(lambda x: x + mc.rand(3))(X), mc.CompileError,
     ["outside"]),
    ("a leaked tensor", leak, mc.CompileError, ["trace that is over"]),
    ("compile without arguments", lambda: mc.compile(branch), mc.CompileError, ["(x", "jit"]),
    ("other arguments than compiled for", lambda: mc.compile(F.relu, X)(I), mc.ShapeError, ["i32[3]",
                                                                                            "f32[2,3]"]),
    ("an unknown device", lambda: mc.jit(F.relu, device="tpu:v9x")(X), mc.CompileError, ["tpu:v9x",
                                                                                         "tpu:v5e"]),
]


@pytest.mark.parametrize("mistake, kind, words", [pytest.param(*rest, id=name) for name, *rest in MISTAKES])
def test_a_mistake_is_one_clear_error_at_its_line(mistake: Callable, kind: type, words: list[str]):
    with pytest.raises(kind) as caught, warnings.catch_warnings():
        warnings.simplefilter("error")
        mistake()
    error = caught.value
    assert type(error) is kind and all(word in str(error) for word in words), str(error)
    assert error.at and error.at[0].file == __file__
    assert error.__cause__ is None and (error.__context__ is None or error.__suppress_context__)


@pytest.mark.parametrize("error, builtin", [
    (mc.ShapeError, ValueError), (mc.DtypeError, TypeError), (mc.OutOfRangeError, IndexError),
])
def test_pythons_own_error_classes_catch_ours(error: type, builtin: type):
    assert issubclass(error, builtin)


def test_a_device_that_the_environment_names_wrongly_is_an_error_at_the_line_that_reads(
        monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MINICC_DEVICE", "tpx")
    for read in (lambda: (X + 1).numpy(), lambda: mc.jit(F.relu, device="gpu") and mc.jit(F.relu)(X)):
        with pytest.raises(mc.CompileError, match="tpx(.|\n)*tpu") as caught:
            read()
        assert caught.value.at[0].file == __file__


def test_an_error_in_a_branch_points_at_the_branch():
    with pytest.raises(mc.CompileError) as caught:
        mc.jit(branch)(X)
    assert caught.value.at[0].line == branch.__code__.co_firstlineno + 1
    assert "return x if x.sum() > 0 else -x" in str(caught.value)
