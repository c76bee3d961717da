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
    ("-1 for no whole number", lambda: X.reshape(4, -1), mc.ShapeError, ["f32[4,1]"]),
    ("two -1", lambda: X.reshape(-1, -1), mc.ShapeError, ["reshape"]),
    ("a transpose of too few axes", lambda: mc.ones(2, 3, 4).transpose(1, 2), mc.ShapeError,
     ["3 entries for f32[2,3,4]"]),
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
    ("an unknown dtype", lambda: X.astype("f17"), mc.DtypeError, ["f17", "f32, bf16"]),
    ("text as an operand", lambda: X + "a", mc.DtypeError, ["str"]),
    ("& on floats", lambda: X & X, mc.DtypeError, ["bool or integers"]),
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


def leaked_gradient() -> np.ndarray:
    kept = []
    mc.grad(lambda x: kept.append(x * 2) or x.sum())(X)
    return kept[0].numpy()


K = mc.random.key(0)

# ten of each family of names: what was written -> words of the error, which is of one of the classes below
FAMILIES: dict[str, list[tuple[Callable, str]]] = {
    "dtypes": [
        (lambda: Tensor([200], "i8"), "200; need -128 .. 127"),
        (lambda: Tensor([-1], "u8"), "-1; need 0 .. 255"),
        (lambda: Tensor([2**32], "u32"), "0 .. 4294967295"), (lambda: Tensor(1e6, "f16"), "up to 65504"),
        (lambda: Tensor([3.4e38], "bf16"), "does not fit bf16"), (lambda: Tensor([np.nan], "i32"), "got nan"),
        (lambda: Tensor(np.zeros(3, np.uint16)), "array of uint16"),
        (lambda: X.astype("float64"), "need f32, bf16, f16"), (lambda: Tensor([1], object), "class 'object'"),
        (lambda: mc.ones(2, dtype="i8") + 300, "300; need -128"),
        (lambda: Tensor([1], 5), "no such dtype. got 5"),
        (lambda: mc.ones(2, dtype="u8") - (-1), "does not fit u8"),
    ],
    "creation": [
        (lambda: mc.zeros(-1), "a size is negative"), (lambda: mc.ones(2.5), "ones: expected integers"),
        (lambda: mc.full((2,), "a"), "not numeric"), (lambda: mc.full((2,), [1, 2, 3]), "size 3"),
        (lambda: mc.arange(0, 5, 0), "got 0 to 5 by 0"), (lambda: mc.arange(0, np.inf), "leads nowhere"),
        (lambda: mc.linspace("a", 1), "linspace: expected a number"),
        (lambda: mc.linspace(0, 1, -3), "got -3"),
        (lambda: mc.geomspace(-1, 1), "numbers of one sign"),
        (lambda: mc.logspace(0, 300), "does not fit f32"),
        (lambda: mc.eye(2, dtype="f17"), "f17"), (lambda: mc.meshgrid(I, indexing="yx"), "'xy' or 'ij'"),
    ],
    "elements": [
        (lambda: mc.exp(None), "NoneType"), (lambda: X + {}, "a dict"), (lambda: X ^ X, "bool or integers"),
        (lambda: X << 1, "need integers"), (lambda: ~X, "f32[2,3]; need bool or integers"),
        (lambda: X.clip("a"), "a str"), (lambda: X.round("a"), "round: expected integers"),
        (lambda: X % mc.ones(5), "f32[2,3] and f32[5]"), (lambda: X.gelu(approximate="fast"), "got fast"),
        (lambda: X * 1j, "complex"), (lambda: X.atan2(mc.ones(4)), "f32[2,3] and f32[4]"),
        (lambda: X.isclose(I, rtol="a"), "a str"),
    ],
    "what numpy and torch have in the place of a switch": [
        (lambda: np.sort(X, -1, "stable"), "descending is a switch. got 'stable'"),
        (lambda: X.argsort(-1, "stable"), "descending is a switch"),
        (lambda: np.sum(X, 0, "float32"), "keepdims is a switch. got 'float32'"),
        (lambda: np.std(X, 0, np.float32), "keepdims is a switch"), (lambda: np.cov(X, X), "positional"),
        (lambda: np.bincount(I, None, 2), "positional"),
    ],
    "nn and optim": [
        (lambda: mc.nn.linear_init(0, 3), "linear_init"), (lambda: mc.nn.linear_init("a", 3), "linear_init"),
        (lambda: mc.nn.linear({}, X), "'w' is missing"), (lambda: mc.nn.linear(None, X), "a NoneType"),
        (lambda: mc.nn.embedding({"v": X}, I), "'w' is missing. got ['v']"),
        (lambda: mc.nn.batch_norm({"w": X}, {}, X, True), "'b' is missing"),
        (lambda: mc.nn.group_norm({}, X, 0), "0; need one integer, 1 or more"),
        (lambda: mc.nn.dropout(X, "a", K), "dropout: expected a number"),
        (lambda: mc.nn.attention(X, X, X), "[B,H,T,D]"), (lambda: mc.nn.split_heads(X, 3), "[batch, time"),
        (lambda: mc.nn.Draw(-1), "0 or more"), (lambda: mc.nn.Draw().normal((-1,)), "a size is negative"),
        (lambda: mc.nn.Draw().normal((10**7, 10**8)), "memory is too small"),
        (lambda: mc.rand(10**7, 10**8), "memory is too small"),
        (lambda: mc.optim.SGD(1.0).step([I.float()], [X]), "f32[2,3] for f32[3]"),
        (lambda: mc.optim.SGD(1.0).step(1.0, "a"), "a str"),
        (lambda: mc.optim.Adam(1.0).step(X, X, 3), "not this optimiser's state. got an int"),
        (lambda: mc.optim.Adam(1.0).step(X, X, {"step": I}), "got ['step']; need ['step', 'mean', 'square']"),
        (lambda: mc.optim.Adam(1.0, beta2=1.0).step(X, X), "0 or more, less than 1"),
        (lambda: mc.optim.clip_by_global_norm(X, -1.0), "more than 0"),
        (lambda: mc.optim.Adam(1.0).init({"w": "a"}), "not numeric. got a str"),
        (lambda: mc.optim.global_norm({"w": "a"}), "tree.w is not a Tensor"),
    ],
    "the rest": [
        (leaked_gradient, "trace that is over"), (lambda: mc.arange(2**31 + 1), "0 to 2147483648"),
        (lambda: mc.arange(10**12), "does not fit i32"),
        (lambda: mc.histogram(X, 3, ("a", "b")), "('a', 'b')"),
        (lambda: mc.jacrev(lambda x, y: x * y, (0, 1))(X, X), "one integer"),
        (lambda: mc.io.save(3, X), "got 3; need .npz"), (lambda: mc.io.load(None), "got None; need .npz"),
    ],
    "what was called is named, not what it is made of": [
        (lambda: X.softmax(5), "softmax: there is no such axis"), (lambda: X.mean(7), "mean: there is no"),
        (lambda: mc.zeros(-1), "zeros: a size is negative"), (lambda: mc.one_hot(I, -1), "one_hot: a size"),
        (lambda: mc.tensordot(X, X, ([0], [0, 1])), "tensordot: contracted axes do not pair up"),
        (lambda: mc.linear(X, X, mc.ones(7)), "linear: shapes do not broadcast"),
        (lambda: X.diagonal(axis1=0, axis2=0), "diagonal: there is no such axis"),
        (lambda: X.allclose(mc.ones(5)), "allclose: shapes do not broadcast"),
        (lambda: mc.random.normal(K, (2, -1)), "normal: a size is negative"),
        (lambda: X.masked_fill(X > 0, "a"), "masked_fill: the data is not numeric"),
    ],
    "shapes of no sense": [
        (lambda: X.reshape(-1, -1), "these are not sizes. got [-1, -1]; need numbers from 0, and -1 once"),
        (lambda: X.reshape(-2, -3), "these are not sizes"), (lambda: X.unfold(0, 2, 0), "got 2 of 2"),
        (lambda: X.average(weights=mc.ones(3)), "average: the weights do not fit. got f32[3]"),
        (lambda: X.average(0, weights=mc.ones(3)), "average: the weights do not fit. got f32[3]"),
    ],
    "reductions": [
        (lambda: X.mean(7), "got 7; need -2 .. 1"), (lambda: X.var(ddof="a"), "var: expected a number"),
        (lambda: X.argmax((0, 1)), "more than one axis"),
        (lambda: mc.zeros(0).argmin(), "min of no elements"),
        (lambda: X.norm("fro"), "only norms of vectors"), (lambda: I.cov(), "f32[3]; need rank 2"),
        (lambda: X.average(weights=mc.ones(7)), "f32[7]"), (lambda: X.sum(dtype="f17"), "f17"),
        (lambda: X.any("x"), "expected integers"), (lambda: X.softmax(5), "got 5"),
        (lambda: mc.zeros(0).nanmax(), "no elements"), (lambda: X.allclose(mc.ones(5)), "f32[5]"),
    ],
    "random": [
        (lambda: mc.random.key(1.5), "key: expected integers"),
        (lambda: mc.random.key(-1), "this is not a seed"),
        (lambda: mc.random.bits(0), "not a key. got an int"),
        (lambda: mc.random.split(X), "f32[2,3]; need u32[2]"),
        (lambda: mc.random.uniform(mc.random.split(K)), "u32[2,2]; need u32[2]"),
        (lambda: mc.random.uniform(K, (), "a"), "expected a number"),
        (lambda: mc.random.normal(K, -1), "a size is negative"),
        (lambda: mc.random.bits(K, 2**33), "split the key"),
        (lambda: mc.random.randint(K, 2, 5, 5), "low < high"),
        (lambda: mc.random.fold_in(K, I), "one integer"),
        (lambda: mc.random.fold_in(3, 3), "not a key"),
        (lambda: mc.random.permutation(K, Tensor(1)), "no rows"),
    ],
    "numpy": [
        (lambda: np.add(X, X, out=np.ones((2, 3))), "plain call"), (lambda: np.add.reduce(X), "plain call"),
        (lambda: np.exp(X, where=True), "plain call"), (lambda: np.linalg.svd(X), "np.linalg.svd"),
        (lambda: np.sum(X, out=np.ones(1)), "'out'"), (lambda: np.sort(X, kind="stable"), "'kind'"),
        (lambda: np.where(X > 0), "missing a required argument"), (lambda: np.fft.fft(X), "np.fft"),
        (lambda: np.mean(X, dtype=np.float64), "'dtype'"), (lambda: np.concatenate([X, I]), "concatenate"),
        (lambda: range(X[0, 0]), "only an integer counts"), (lambda: float(X), "one element"),
    ],
}
KINDS = (mc.ShapeError, mc.DtypeError, mc.OutOfRangeError, mc.CompileError)
ALL = [pytest.param(mistake, (kind,), words, id=name) for name, mistake, kind, words in MISTAKES]
ALL += [pytest.param(mistake, KINDS, [words], id=f"{family}: {words}")
        for family, rows in FAMILIES.items() for mistake, words in rows]


@pytest.mark.parametrize("mistake, kind, words", ALL)
def test_a_mistake_is_one_clear_error_at_its_line(mistake: Callable, kind: tuple[type], words: list[str]):
    with pytest.raises(kind) as caught, warnings.catch_warnings():
        warnings.simplefilter("error")
        mistake()
    error = caught.value
    said = str(error).replace(error.at[0].source(), "")  # the user's own words do not count
    assert type(error) in kind and all(word in said for word in words), said
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
