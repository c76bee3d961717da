"""An expression on the command line is what Python makes of it; the public operations are its names."""

from __future__ import annotations

import pytest

from minicc.frontend import methods
from minicc.tools import expression


def test_an_expression_draws_the_same_numbers_for_the_same_seed():
    first, again, other = (expression.evaluate("rand(3)", seed)[0].tolist() for seed in (1, 1, 2))
    assert first == again != other


def test_expressions_know_every_public_operation_and_dtype():
    assert {*methods.FUNCTIONS, "bfloat16", "int8"} - {"seed"} <= {*expression.NAMES}


@pytest.mark.parametrize("text, type", [
    ("conv2d(rand(1,4,8,8), rand(4,4,3,3))", "f32[1,4,6,6]"), ("rand(4,4)[[0,2], 1:]", "f32[2,3]"),
    ("concatenate([rand(3), rand(4)])", "f32[7]"), ("zeros(3, dtype=int8) // 2", "i8[3]"),
    ("einsum('ij,jk', rand(2,3), rand(3,5))", "f32[2,5]"), ("ones(5).at[1].set(2.0)", "f32[5]"),
    ("rand(3).astype('bf16') + 1", "bf16[3]"), ("(arange(3) ^ 1) << 2", "i32[3]"),
])
def test_an_expression_is_what_python_makes_of_it(text: str, type: str):
    value, = expression.evaluate(text)
    assert str(value.type) == type


def test_a_subscript_slices_like_numpy():
    whole, part = expression.evaluate("rand(4,6), rand(4,6)[1, ::2]")
    assert part.shape == (3,) and whole.shape == (4, 6)
