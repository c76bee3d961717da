"""Each elementwise op, made of vector instructions, is within a few units in the last place of float64's."""

from __future__ import annotations

import numpy as np
import pytest
from kernels import axes, kernel, load, module, op, operand, outputs

from minicc.graph.elementwise import ELEMENTWISE
from minicc.graph.ir import BOOL, F32, I32
from minicc.tpu.recipes import RECIPES

N = 1024
ULP = 2.0**-23
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-30, 3e38, 0.5], np.float32)
DOMAIN = {"log": (1e-3, 1e3), "sqrt": (0.0, 1e6), "rsqrt": (1e-6, 1e6), "exp": (-80.0, 80.0)}
FLOAT = [name for name, row in ELEMENTWISE.items() if "f" in row.operands or "n" in row.operands]
EXACT = {"add", "subtract", "multiply", "negate", "abs", "sign", "maximum", "minimum"}


def apply(name: str, *arrays: np.ndarray, dtype=F32) -> np.ndarray:
    """One op on the emulated machine."""
    inputs = [operand(f"x{i}", dtype, (len(a),), "n") for i, a in enumerate(arrays)]
    y = operand("y", dtype, (len(arrays[0]),), "n")
    value = op(name, *map(load, inputs), dtype=dtype)
    k = kernel("one", axes(n=(len(arrays[0]), len(arrays[0]), "p")), y, value, *inputs)
    return outputs(module(k), **{f"x{i}": a for i, a in enumerate(arrays)})[0]


def test_every_elementwise_op_has_a_recipe():
    assert RECIPES.keys() == ELEMENTWISE.keys() | {"compare", "select", "convert"}


@pytest.mark.parametrize("name", FLOAT)
def test_a_float_op_is_within_two_units_in_the_last_place(name: str):
    low, high = DOMAIN.get(name, (-30.0, 30.0))
    random = np.random.default_rng(3)
    arrays = [random.uniform(low, high, N).astype(np.float32) for _ in range(ELEMENTWISE[name].arity)]
    expected = ELEMENTWISE[name].numpy(*(a.astype(np.float64) for a in arrays))
    error = np.abs(apply(name, *arrays) - expected)
    tolerance = 8 * ULP if name == "exp" else ULP / 2 if name in EXACT else 2 * ULP
    assert (error <= tolerance * np.maximum(np.abs(expected), 2.0**-126)).all()


@pytest.mark.parametrize("name", FLOAT)
def test_zeros_infinities_and_nans_come_out_as_in_numpy(name: str):
    pairs = np.array(np.meshgrid(SPECIAL, SPECIAL)).reshape(2, -1)
    arrays = [np.ascontiguousarray(row) for row in pairs[: ELEMENTWISE[name].arity]]
    with np.errstate(all="ignore"):
        expected = ELEMENTWISE[name].numpy(*arrays)
    found = apply(name, *arrays)
    kinds = [np.isnan, np.isposinf, np.isneginf]
    assert all((kind(found) == kind(expected)).all() for kind in kinds)
    finite = np.isfinite(expected)
    assert np.allclose(found[finite], expected[finite], rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("name", [name for name, row in ELEMENTWISE.items() if "n" in row.operands])
def test_an_integer_op_is_exact(name: str):
    random = np.random.default_rng(3)
    arrays = [random.integers(-1000, 1000, N, dtype=np.int32) for _ in range(ELEMENTWISE[name].arity)]
    assert (apply(name, *arrays, dtype=I32) == ELEMENTWISE[name].numpy(*arrays)).all()


@pytest.mark.parametrize("name", [name for name, row in ELEMENTWISE.items() if row.operands == "b"])
def test_a_logical_op_is_exact(name: str):
    arrays = list(np.array([[0, 0, 1, 1], [0, 1, 0, 1]], bool))[: ELEMENTWISE[name].arity]
    assert (apply(name, *arrays, dtype=BOOL) == ELEMENTWISE[name].numpy(*arrays)).all()


def test_a_number_may_stand_on_either_side():
    x, y = operand("x", F32, (N,), "n"), operand("y", F32, (N,), "n")
    value = op("subtract", 1.0, op("divide", 3.0, op("multiply", 2.0, load(x))))
    a = np.linspace(1, 9, N, dtype=np.float32)
    (found,) = outputs(module(kernel("numbers", axes(n=(N, N, "p")), y, value, x)), x=a)
    assert np.allclose(found, 1 - 3 / (2 * a.astype(np.float64)), rtol=0, atol=1e-6)
