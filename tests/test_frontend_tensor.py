"""The lazy tensor against numpy: operators, broadcasting, indexing, reductions, Python's protocols."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings
import weakref

import numpy as np
import pytest

import minicc as mc
from minicc import Tensor
from minicc.frontend import arrays
from minicc.frontend import functional as F
from minicc.frontend.scope import EAGER
from minicc.graph.evaluate import evaluate

RANDOM = np.random.default_rng(0)
A = RANDOM.standard_normal((3, 4)).astype(np.float32)
B = RANDOM.standard_normal((2, 1, 4)).astype(np.float32)
I = RANDOM.integers(-5, 6, (3, 4)).astype(np.int32)


def agrees(got: Tensor, want: np.ndarray, tolerance: float = 1e-5) -> bool:
    """Same shape, and equal to float64 numpy relative to the largest value."""
    have = got.numpy().astype(np.float64)
    largest = np.abs(want[np.isfinite(want)]).max(initial=1e-30) if want.dtype.kind == "f" else 1
    return have.shape == want.shape and np.allclose(have, want, rtol=0, atol=tolerance * largest,
                                                    equal_nan=True)


SAME_IN_NUMPY = {
    "x + y": lambda x, y, i: x + y, "x - y": lambda x, y, i: x - y, "x * y": lambda x, y, i: x * y,
    "x / y": lambda x, y, i: x / y, "i / 2": lambda x, y, i: i / 2, "2 - x": lambda x, y, i: 2 - x,
    "3 / y": lambda x, y, i: 3 / y, "x + i": lambda x, y, i: x + i, "i * 2.5": lambda x, y, i: i * 2.5,
    "-i": lambda x, y, i: -i, "abs(x)": lambda x, y, i: abs(x), "i ** 3": lambda x, y, i: i ** 3,
    "x ** 0": lambda x, y, i: x ** 0, "x ** -2": lambda x, y, i: x ** -2.0, "2 ** x": lambda x, y, i: 2 ** x,
    "abs(x) ** 0.5": lambda x, y, i: abs(x) ** 0.5, "x @ x.T": lambda x, y, i: x @ x.T,
    "i @ i.T": lambda x, y, i: i @ i.T, "x @ y": lambda x, y, i: x @ y.reshape(2, 4, 1),
    "row @": lambda x, y, i: x[0] @ x.T, "@ column": lambda x, y, i: x @ x[1],
    "row @ batch": lambda x, y, i: x[0] @ y.reshape(2, 4, 1), "row @ column": lambda x, y, i: x[0] @ x[1],
    "batch @ batch": lambda x, y, i: y @ y.transpose(0, 2, 1), "batch @ matrix": lambda x, y, i: y @ x.T,
    "x < y": lambda x, y, i: x < y, "i >= 0": lambda x, y, i: i >= 0, "i == 2": lambda x, y, i: i == 2,
    "i != x": lambda x, y, i: i != x, "and": lambda x, y, i: (x > 0) & (i > 0),
    "or not": lambda x, y, i: (x > 0) | ~(i > 0), "bool + bool": lambda x, y, i: (x > 0) * 1 + (y > 0) * 1,
    "x[1]": lambda x, y, i: x[1], "x[-1, 2]": lambda x, y, i: x[-1, 2], "x[:, 1:3]": lambda x, y, i: x[:,
                                                                                                       1:3],
    "x[::2, ..., None]": lambda x, y, i: x[::2, ..., None], "x[2:1]": lambda x, y, i: x[2:1],
    "y[..., 1]": lambda x, y, i: y[..., 1], "x[None]": lambda x, y, i: x[None], "y[:]": lambda x, y, i: y[:],
    "x[1:99, -3::3]": lambda x, y, i: x[1:99, -3::3], "reshape": lambda x, y, i: x.reshape(2, -1),
    "transpose": lambda x, y, i: y.transpose((2, 0, 1)), "T": lambda x, y, i: y.T,
    "sum": lambda x, y, i: x.sum(), "sum axis": lambda x, y, i: y.sum(axis=(0, -1)),
    "sum keepdims": lambda x, y, i: x.sum(1, keepdims=True), "sum of bools": lambda x, y, i: (x > 0).sum(0),
    "mean": lambda x, y, i: i.mean(axis=0), "var": lambda x, y, i: x.var(axis=1), "max": lambda x, y,
    i: i.max(1),
    "min": lambda x, y, i: x.min(), "prod": lambda x, y, i: x.prod(0), "argmax": lambda x, y, i: x.argmax(1),
    "argmax of all": lambda x, y, i: i.argmax(), "squeeze": lambda x, y, i: y.squeeze(1),
    "clip": lambda x, y, i: x.clip(-0.5, 0.5),
}


@pytest.mark.parametrize("name", SAME_IN_NUMPY)
def test_an_expression_means_what_it_means_in_numpy(name: str):
    expression = SAME_IN_NUMPY[name]
    want = np.asarray(expression(A.astype(np.float64), B.astype(np.float64), I.astype(np.int64)))
    assert agrees(expression(Tensor(A), Tensor(B), Tensor(I)), want)


ONE_ARGUMENT = {
    "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0), "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softmax": lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
    "log_softmax": lambda x: np.log(np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    "logsumexp": lambda x: np.log(np.exp(x).sum()),
    "gelu": lambda x: x * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}


@pytest.mark.parametrize("name", ONE_ARGUMENT)
def test_a_function_agrees_with_its_definition_in_float64(name: str):
    x = np.abs(A) + np.float32(0.1) if name in ("log", "sqrt", "rsqrt") else A
    assert agrees(getattr(Tensor(x), name)(), np.asarray(ONE_ARGUMENT[name](x.astype(np.float64))))


def test_softmax_and_sigmoid_of_large_numbers_do_not_overflow():
    assert Tensor([1000.0, 0.0]).softmax().tolist() == [1.0, 0.0]
    assert Tensor([-1000.0, 1000.0]).sigmoid().tolist() == [0.0, 1.0]
    assert Tensor([1000.0, 1000.0]).logsumexp().item() == pytest.approx(1000 + np.log(2))


def test_cross_entropy_of_equal_logits_is_the_log_of_the_classes():
    logits, labels = Tensor(np.zeros((4, 10), np.float32)), Tensor([1, 2, 3, 9])
    assert F.cross_entropy(logits, labels).item() == pytest.approx(np.log(10), rel=1e-6)
    assert F.cross_entropy(logits, F.one_hot(labels, 10)).item() == pytest.approx(np.log(10), rel=1e-6)


def test_where_maximum_minimum_and_creation():
    x = Tensor(A)
    assert agrees(mc.where(x > 0, x, -1), np.where(A > 0, A, -1.0))
    assert agrees(mc.maximum(x, 0.25), np.maximum(A, 0.25)) and agrees(mc.minimum(x, B), np.minimum(A, B))
    assert mc.eye(3).tolist() == np.eye(3).tolist() and mc.arange(7, 0, -3).tolist() == [7, 4, 1]
    assert mc.full((2, 2), 7).tolist() == [[7, 7], [7, 7]] and mc.zeros(2, 3).shape == mc.ones((2, 3)).shape
    assert F.one_hot(Tensor([0, 2]), 3).tolist() == [[1, 0, 0], [0, 0, 1]]


def test_torch_names_for_axes_are_accepted():
    x = Tensor(A)
    assert agrees(x.sum(dim=1, keepdim=True), A.sum(1, keepdims=True)) and agrees(x.max(dim=0), A.max(0))
    assert x.softmax(dim=0).shape == (3, 4) and x.permute(1, 0).shape == (4, 3)
    assert x.unsqueeze(-1).shape == (3, 4, 1) and x.unsqueeze(-1).expand(-1, -1, 5).shape == (3, 4, 5)


def test_argmax_takes_the_first_of_equals_and_the_first_nan():
    x = np.array([[1, 3, 3], [0, np.nan, 9], [np.nan, np.nan, 1]], np.float32)
    assert Tensor(x).argmax(1).tolist() == np.argmax(x, 1).tolist()


@pytest.mark.parametrize("left, right, result", [
    (Tensor([True]), Tensor([1]), "i32"), (Tensor([1]), Tensor([1.0]), "f32"), (Tensor([True]), 1.0, "f32"),
    (Tensor([1]), 1, "i32"), (Tensor([1]), 1.0, "f32"), (Tensor([True]), Tensor([True]), "i32"),
])
def test_promotion_of_mixed_dtypes(left: Tensor, right: object, result: str):
    assert (left + right).dtype.name == result and (right * left).dtype.name == result


def test_an_array_on_the_left_gives_a_lazy_tensor():
    x = Tensor(A)
    assert isinstance(A + x, Tensor) and agrees(A - x, A * 0) and agrees(A.T @ x, A.T @ A)
    assert np.less(A, x + 1).tolist() == np.not_equal(A, x + 1).tolist() == [[True] * 4] * 3
    assert agrees(np.exp(x), np.exp(A.astype(np.float64))) and (np.float32(2) * x).dtype.name == "f32"


def test_zero_size_and_rank_zero_tensors_work():
    empty = Tensor(np.zeros((0, 3), np.float32))
    assert empty.sum().item() == 0 and (empty + 1).shape == (0, 3) and (empty @ Tensor(A)).shape == (0, 4)
    assert len(empty) == 0 and list(empty) == [] and empty.reshape(3, 0).shape == (3, 0)
    assert (Tensor(2.0) * Tensor(3)).item() == 6.0 and Tensor(5).shape == ()


# -- laziness ------------------------------------------------------------------------------------------------


def test_nothing_runs_until_data_is_asked_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("minicc.frontend.tensor.compile_graph", lambda graph: pytest.fail("something ran"))
    y = (Tensor(A) @ Tensor(A).T).softmax()
    assert repr(y) == "Tensor(f32[3,3], lazy)" and y.shape == (3, 3) and len(y) == 3 and y.lazy


def test_a_tensor_that_was_computed_lets_go_of_its_graph():
    y = Tensor(A).exp()
    node = weakref.ref(y._value.node)
    y.numpy()
    gc.collect()
    assert node() is None and not y.lazy


def test_what_was_computed_is_not_computed_again():
    hidden = Tensor(A).exp()
    out = hidden + 1
    hidden.numpy()
    graph, inputs = EAGER.graph([out._value])
    assert [node.op for node in graph.nodes()] == ["parameter", "constant", "add"] and len(inputs) == 1


def test_ten_thousand_chained_additions_stay_clear_of_the_recursion_limit():
    x = Tensor([0])
    for _ in range(10_000):
        x = x + 1
    graph, inputs = EAGER.graph([x._value])
    assert evaluate(graph, inputs)[0].tolist() == [10_000]


def test_taking_a_batch_of_data_compiles_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("minicc.frontend.tensor.compile_graph", lambda graph: pytest.fail("something ran"))
    x = Tensor(A)
    assert x[1:3].tolist() == A[1:3].tolist() and [row.tolist() for row in x] == A.tolist()
    assert x[0, 1].item() == A[0, 1]


# -- data and protocols --------------------------------------------------------------------------------------


def test_sixty_four_bit_data_becomes_thirty_two_with_one_notice(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(arrays, "_noticed", False)
    with pytest.warns(mc.PrecisionNotice, match="float64 data becomes f32") as said:
        assert Tensor(np.zeros(3)).dtype.name == "f32"
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Tensor(np.arange(3)).dtype.name == "i32" and Tensor([1, 2]).dtype.name == "i32"


def test_the_data_is_the_tensors_own_and_read_only():
    data = A.copy()
    x = Tensor(data)
    data[:] = 0
    assert agrees(x, A)
    with pytest.raises(ValueError, match="read-only"):
        x.numpy()[0] = 1
    np.array(x)[0] = 1
    assert agrees(x, A)


def test_pythons_protocols_hold():
    x, y = Tensor([1.0, 2.0]), Tensor([1.0, 2.0]) * 2
    assert not hasattr(x, "grad_fn") and {x: 1}[x] == 1 and x in [x] and (x == None) is False  # noqa: E711
    assert float(y.sum()) == 6.0 and int(y[1]) == 4 and f"{y.sum():.2f}" == "6.00" and bool(y[0] > 1)
    assert np.asarray(y).tolist() == [2.0, 4.0] and [v.item() for v in y] == [2.0, 4.0]
    assert pickle.loads(pickle.dumps(y)).tolist() == copy.deepcopy(y).tolist() == copy.copy(y).tolist()
    assert Tensor([x, y]).shape == (2, 2)
    a, b = x
    assert (a.item(), b.item()) == (1.0, 2.0)


NAMES = {"f32": [np.float32, "float32", float, "float"], "bf16": ["bfloat16", mc.bfloat16],
         "f16": [np.float16, "float16", "half", np.dtype("float16")], "i8": [np.int8, "int8"],
         "i16": [np.int16, "int16"],
         "i32": [np.int32, "int32", int], "u8": [np.uint8, "uint8"], "u32": [np.uint32, "uint32"],
         "bool": [bool, np.bool_, "bool"]}


@pytest.mark.parametrize("dtype", NAMES)
def test_a_dtype_goes_by_the_names_that_users_write(dtype: str):
    x = Tensor([0, 1, 1])
    assert {x.astype(name).dtype.name for name in (dtype, *NAMES[dtype])} == {dtype}
    again = pickle.loads(pickle.dumps(x.astype(dtype) * 1))
    assert again.tolist() == [0, 1, 1] and copy.copy(again).dtype is again.dtype


@pytest.mark.parametrize("dtype", [np.float16, np.int8, np.int16, np.uint8, np.uint32, np.bool_])
def test_an_array_keeps_its_dtype_where_minicc_has_it(dtype: type):
    array = np.arange(3).astype(dtype)
    assert Tensor(array).numpy().dtype == dtype and (Tensor(array)[1:]).tolist() == [1, dtype(2)]


def test_bf16_rounds_to_even_and_shows_its_values_in_float32():
    x = Tensor([1.00390625, 1.01171875, 3.14159, -0.0, np.inf, np.nan, 3.38e38], "bf16")  # by hand: 8 bits
    assert x.numpy().dtype == np.float32 and x.stored().dtype == np.uint16
    assert x.tolist()[:5] == [1.0, 1.015625, 3.140625, -0.0, np.inf] and np.isnan(x.tolist()[5])
    assert repr(x[:2]) == "Tensor(bf16[2], [1.0, 1.015625])" and repr(x + 1) == "Tensor(bf16[7], lazy)"
    assert (x[2] + 1.0).item() == 4.125 and np.asarray(x)[2] == 3.140625  # 4.140625: the even of its two


def test_an_integer_tensor_of_one_element_counts():
    two = Tensor(2) * 1
    assert list(range(two)) == [0, 1] and [5, 6, 7][two] == 7 and mc.zeros(two, 3).shape == (2, 3)


def test_adding_in_place_gives_a_new_tensor_and_leaves_the_old_one():
    old = x = Tensor([1.0, 2.0])
    x += 1
    assert x.tolist() == [2, 3] and old.tolist() == [1, 2] and old.at[0].set(9).tolist() == [9, 2]


def test_the_same_seed_draws_the_same_numbers():
    mc.seed(5)
    first = mc.rand(3).tolist() + mc.randn(2).tolist()
    mc.seed(5)
    assert mc.rand(3).tolist() + mc.randn(2).tolist() == first and min(first[:3]) >= 0 and max(first[:3]) < 1
