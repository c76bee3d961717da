"""Precision: only factors of f32 products are rounded, and to bf16."""

from __future__ import annotations

import numpy as np
import pytest

import minicc as mc
from minicc.errors import CompileError
from minicc.graph.dtypes import BF16, decode, encode
from minicc.graph.precision import reduce_precision
from minicc.graph.text import parse_graph

GRAPH = parse_graph("""graph f(x: f32[3,4], w: f32[4,5], n: i32[4,5], m: i32[3,4]) {
  %0 = dot_general(x, w) contract=[1]x[0] : f32[3,5]
  %1 = dot_general(m, n) contract=[1]x[0] : i32[3,5]
  return %0, %1
}""")


def test_f32_products_take_bf16_factors_and_others_stay():
    narrow = reduce_precision(GRAPH, "bf16")
    dots = [node for node in narrow.nodes() if node.op == "dot_general"]
    factors = {str(node.types[0].dtype): [str(value.dtype) for value in node.operands] for node in dots}
    assert factors == {"f32": ["bf16", "bf16"], "i32": ["i32", "i32"]}
    assert str(reduce_precision(narrow, "bf16")) == str(narrow)
    assert reduce_precision(GRAPH, "f32") is GRAPH


@pytest.mark.parametrize("device", ["gpu", "tpu"])
def test_the_answer_is_that_of_rounded_factors(device):
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((40, 200), (200, 30)))
    got = mc.compile(lambda x, w: x @ w + 1 / 3, mc.Tensor(x), mc.Tensor(w), device=device, precision="bf16")(
        mc.Tensor(x), mc.Tensor(w)).numpy()
    left, right = (decode(encode(array, BF16), BF16).astype(np.float64) for array in (x, w))
    want = left @ right + 1 / 3
    assert np.abs(got - want).max() < 3e-6 * np.abs(want).max()
    assert np.abs(got - (x.astype(np.float64) @ w + 1 / 3)).max() > 1e-3  # which f32 would not have


def test_a_dot_at_half_precision_takes_a_sixth_of_the_matrix_units_time():
    x = mc.zeros(256, 256)
    compiled = [mc.compile(lambda x, w: x @ w, x, x, device="tpu", precision=p) for p in ("f32", "bf16")]
    slow, fast = (one.profile().run.mxu_busy_cycles for one in compiled)
    assert slow == 6 * fast


def test_an_unknown_precision_is_named():
    with pytest.raises(CompileError, match="no such precision. got 'f64'; need f32 or bf16"):
        mc.jit(lambda x: x, precision="f64")
