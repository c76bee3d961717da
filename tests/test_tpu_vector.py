"""Each vector op computes what numpy does, and garbage goes exactly where its lanes go."""

from __future__ import annotations

import numpy as np
import pytest

from minicc.errors import MachineFault
from minicc.tpu.core import Core
from minicc.tpu.ops import OPS
from minicc.tpu.vector import KNOWN, Lanes, packed_rows, rectangle, select, splat, transpose

RANDOM = np.random.default_rng(0)
X, Y = (Lanes(RANDOM.normal(size=(8, 128)).astype(np.float32)) for _ in range(2))
I, J = (Lanes(RANDOM.integers(-9, 9, size=(8, 128), dtype=np.int32)) for _ in range(2))
HALF = Lanes(X.data, np.arange(128) < np.full((8, 1), 64), "xb row 3")  # lanes 64 on are garbage


def meaning(op: str, *operands: object) -> Lanes:
    """What the table says an op makes of its operands."""
    return OPS[op].run(*operands)


def test_every_op_has_a_meaning_and_operands_for_it():
    for name, info in OPS.items():
        assert callable(info.run) or callable(getattr(Core, info.run)), name


@pytest.mark.parametrize("op, expected", [
    ("vadd.f32", X.data + Y.data), ("vsub.f32", X.data - Y.data), ("vmul.f32", X.data * Y.data),
    ("vmax.f32", np.maximum(X.data, Y.data)), ("vmin.f32", np.minimum(X.data, Y.data)),
    ("vcmp.lt.f32", X.data < Y.data), ("vcmp.ne.f32", X.data != Y.data),
])
def test_f32_arithmetic_is_numpys(op: str, expected: np.ndarray):
    assert np.array_equal(meaning(op, X, Y).data, expected)


@pytest.mark.parametrize("op, expected", [
    ("vadd.s32", I.data + J.data), ("vmul.s32", I.data * J.data), ("vmin.s32", np.minimum(I.data, J.data)),
    ("vcmp.ge.s32", I.data >= J.data), ("vcvt.s32.f32", I.data.astype(np.float32)),
])
def test_s32_arithmetic_is_numpys(op: str, expected: np.ndarray):
    assert np.array_equal(meaning(op, *(I, J)[:len(OPS[op].srcs)]).data, expected)


def test_integers_wrap_and_shifts_beyond_the_word_give_zero():
    assert meaning("vadd.s32", splat(2**31 - 1), splat(1)).data[0, 0] == -2**31
    assert meaning("vshll.u32", splat(1), splat(31)).data[0, 0] == 2**31
    assert meaning("vshll.u32", splat(1), splat(32)).data[0, 0] == 0
    assert meaning("vshrl.u32", splat(-1), splat(28)).data[0, 0] == 15
    assert meaning("vshra.s32", splat(-16), splat(2)).data[0, 0] == -4


@pytest.mark.parametrize("given, expected", [
    (2.9, 2), (-2.9, -2), (1e20, 2**31 - 1), (-1e20, -2**31), (np.nan, 0)])
def test_conversion_to_integers_goes_towards_zero_and_saturates(given: float, expected: int):
    assert meaning("vcvt.f32.s32", splat(float(given))).data[0, 0] == expected


@pytest.mark.parametrize("op, function", [("vpow2", np.exp2), ("vlog2", np.log2), ("vtanh", np.tanh),
                                          ("vrcp", lambda x: 1 / x), ("vrsqrt", lambda x: 1 / np.sqrt(x))])
def test_transcendentals_are_within_f32(op: str, function: np.ufunc):
    positive = np.abs(X.data) + np.float32(0.1)
    assert np.allclose(meaning(op, Lanes(positive)).data, function(positive.astype(np.float64)), rtol=3e-7)


def test_rotation_moves_sublane_i_to_i_plus_n():
    assert np.array_equal(meaning("vrot.slane", X, 3).data[3], X.data[0])
    assert np.array_equal(meaning("vrot.lane.xlu", X, 5).data[:, 5], X.data[:, 0])
    assert (meaning("vbcast.lane.xlu", X, 7).data == X.data[:, 7:8]).all()


def test_garbage_moves_with_its_lanes():
    moved = meaning("vrot.lane.xlu", HALF, 64)
    assert np.array_equal(moved.known[0], np.arange(128) >= 64)
    assert moved.origin == "xb row 3"


def test_a_lane_by_lane_op_is_garbage_where_an_operand_is():
    assert meaning("vadd.f32", HALF, X).known is HALF.known
    assert meaning("vcmp.lt.f32", X, HALF).known is HALF.known


def test_a_select_is_known_where_the_side_it_takes_is():
    assert select(rectangle(8, 64), HALF, splat(0.0)).known is KNOWN
    assert select(rectangle(8, 65), HALF, splat(0.0)).known is not KNOWN
    garbage = Lanes(rectangle(8, 64).data, HALF.known)
    assert np.array_equal(select(garbage, X, X).known, HALF.known)


def test_a_total_is_in_all_lanes_of_its_row():
    total = meaning("vadd.xlane.f32.xlu", X).data
    assert np.allclose(total, X.data.astype(np.float64).sum(axis=1, keepdims=True), atol=1e-4)
    assert total.shape == (8, 128)


def test_an_integer_total_wraps_in_32_bits():
    total = meaning("vadd.xlane.s32.xlu", splat(2**30)).data
    assert total.dtype == np.int32 and not total.any()  # 128 * 2^30 = 2^37


def test_a_total_over_a_row_that_ends_in_garbage_faults_and_says_whence():
    with pytest.raises(MachineFault) as caught:
        meaning("vmax.xlane.f32.xlu", HALF)
    assert "sublane 0, lane 64 (xb row 3)" in str(caught.value)


def test_a_total_over_a_row_behind_the_block_is_garbage():
    behind = Lanes(X.data, np.arange(8)[:, None] < np.full(128, 5))
    assert np.array_equal(meaning("vadd.xlane.f32.xlu", behind).known, behind.known)


def test_a_tile_transposes_and_its_garbage_with_it():
    tile = RANDOM.normal(size=(16, 128)).astype(np.float32)
    known = np.arange(128) < np.full((8, 1), 3)
    results = transpose([Lanes(tile[:8], known), Lanes(tile[8:], known)])
    out = np.concatenate([lanes.data for lanes in results]).view(np.float32)
    assert np.array_equal(out[:, :16], tile.T) and len(results) == 16
    flags = np.concatenate([lanes.known for lanes in results])
    assert np.array_equal(flags, np.add.outer(np.arange(128) >= 3, np.arange(128) >= 16) == 0)


def test_packing_rounds_to_the_nearest_bf16_ties_to_even():
    # 1 + 2^-8 lies between the bf16 neighbours 1 and 1 + 2^-7: to even, 1. 1 + 3 * 2^-8: to even, 1 + 2^-6.
    packed = meaning("vpack.bf16", splat(1 + 2**-8), splat(1 + 3 * 2**-8))
    assert (packed_rows(packed.data)[:8] == 1).all() and (packed_rows(packed.data)[8:] == 1 + 2**-6).all()


def test_unpacking_gives_both_halves_back_with_their_garbage():
    exact = Lanes(np.round(X.data * 8), HALF.known)  # few bits: exact in bf16
    packed = meaning("vpack.bf16", splat(1.0), exact)
    assert np.array_equal(meaning("vunpack.bf16", packed, 1).data, exact.data)
    assert np.array_equal(meaning("vunpack.bf16", packed, 1).known, HALF.known)


def test_masks_count_rows_and_columns_or_lanes_in_a_line():
    assert rectangle(2, 3).data.sum() == 6 and rectangle(9, 999).data.all()
    assert not rectangle(-1, 3).data.any()
    assert np.array_equal(meaning("vcmask.linear", 130).data[1, :3], [True, True, False])


@pytest.mark.parametrize("op", ["vadd.f32", "vsel", "vmnot", "vrot.slane"])
def test_no_op_changes_its_operands(op: str):
    before = X.data.copy()
    others = {"vsel": (rectangle(1, 1), X, Y), "vmnot": (rectangle(1, 1),), "vrot.slane": (X, 1)}
    meaning(op, *others.get(op, (X, Y)))
    assert np.array_equal(X.data, before) and rectangle(1, 1).data.sum() == 1
