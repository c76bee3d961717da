"""The table of names: what it holds, how numpy reaches it, and that its printed list is the shipped one."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest

import minicc as mc
from minicc import Tensor
from minicc.frontend import api, catalogue, methods


def test_there_are_at_least_150_operations_and_most_are_methods():
    assert len(methods.FUNCTIONS) >= 150 and len(methods.METHODS) >= 150
    assert len(set(methods.FUNCTIONS.values())) >= 150  # not counting second names


@pytest.mark.parametrize("name", methods.FUNCTIONS)
def test_a_name_is_a_function_of_minicc_with_a_line_that_says_what_it_does(name: str):
    function = methods.FUNCTIONS[name]
    assert getattr(mc, name) is function and inspect.getdoc(function)
    assert name not in methods.METHODS or getattr(Tensor, name) is function


def test_numpys_functions_take_tensors_and_give_what_ours_of_that_name_give():
    x, y = Tensor(np.float32([[1, 2], [3, 4]])), np.float32([[2, 2], [1, 1]])
    for name, args in {"exp": (x,), "arctan2": (x, y), "sum": (x,), "mean": (x, 0), "concatenate": ([x, x],),
                       "where": (x > 1, x, y), "std": (x,), "transpose": (x,), "clip": (x, 1, 2)}.items():
        got = getattr(np, name)(*args)
        want = getattr(np, name)(*[a.numpy() if isinstance(a, Tensor) else a for a in args])
        assert isinstance(got, Tensor) and np.allclose(got.numpy(), want), name
    assert np.sum(x, axis=1, keepdims=True).shape == (2, 1) and np.allclose(x, x.numpy())
    np.testing.assert_allclose(x, x.numpy())
    assert (y + x).lazy and np.shape(x) == (2, 2)


def test_every_name_in_numpy_that_is_ours_and_means_the_same_is_dispatched():
    ours = {getattr(np, name) for name in methods.FUNCTIONS if hasattr(np, name)}
    other = {getattr(np, name) for name in catalogue.OTHER_IN_NUMPY}
    assert set(methods.NUMPY) == (ours - other) | {np.shape, np.ndim, np.size} and len(ours) > 100


def test_the_printed_list_of_operations_is_the_one_that_is_shipped():
    shipped = Path(api.__file__).with_name("API.md").read_text(encoding="utf-8")
    assert shipped == api.markdown(), "python -m minicc.frontend.api > minicc/frontend/API.md"
    assert shipped.count("\n| ") >= 150
