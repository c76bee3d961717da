"""Result types, and an error at the user's line for every mistake in an operand or an attribute."""

from __future__ import annotations

import numpy as np
import pytest

from minicc.errors import CompileError, DtypeError, Loc, ShapeError
from minicc.graph.attributes import ATTRIBUTES, normal_attributes
from minicc.graph.elementwise import ELEMENTWISE
from minicc.graph.infer import OPS, infer
from minicc.graph.ir import BF16, BOOL, F32, I8, I32, U8, Type
from minicc.graph.text import parse_graph

MATMUL = {"contract": ((1,), (0,))}
WINDOW = {"stride": (2, 1), "dilation": (1, 2), "low": (1, 3), "high": (1, 3)}
LINE = Loc("train.py", 12, "h = x @ w")


def f32(*shape: int) -> Type:
    return Type(F32, shape)


def i32(*shape: int) -> Type:
    return Type(I32, shape)


def bf16(*shape: int) -> Type:
    return Type(BF16, shape)


def i8(*shape: int) -> Type:
    return Type(I8, shape)


def u8(*shape: int) -> Type:
    return Type(U8, shape)


def boolean(*shape: int) -> Type:
    return Type(BOOL, shape)


@pytest.mark.parametrize(("op", "operands", "attrs", "result"), [
    ("add", [f32(3, 4), f32(3, 4)], {}, "f32[3,4]"),
    ("add", [f32(), i32()], {}, DtypeError),
    ("multiply", [f32(3), f32()], {}, "f32[3]"),
    ("and", [boolean(2), boolean(2)], {}, "bool[2]"),
    ("compare", [i32(2), i32()], {"direction": "lt"}, "bool[2]"),
    ("select", [boolean(), f32(2), f32()], {}, "f32[2]"),
    ("convert", [f32(0, 3)], {"dtype": "i32"}, "i32[0,3]"),
    ("iota", [], {"axis": 1, "shape": (2, 3), "dtype": I32}, "i32[2,3]"),
    ("broadcast_in_dim", [f32(3, 1)], {"shape": (2, 3, 4), "dims": (1, 2)}, "f32[2,3,4]"),
    ("broadcast_in_dim", [f32(2, 3)], {"shape": (3, 2), "dims": (1, 0)}, "f32[3,2]"),
    ("reshape", [f32(6)], {"shape": [2, np.int64(3)]}, "f32[2,3]"),
    ("reshape", [f32(0, 5)], {"shape": (7, 0)}, "f32[7,0]"),
    ("transpose", [f32(2, 3, 4)], {"perm": (2, 0, 1)}, "f32[4,2,3]"),
    ("slice", [f32(10)], {"start": (1,), "limit": (10,), "stride": (3,)}, "f32[3]"),
    ("slice", [f32(10)], {"start": (4,), "limit": (4,)}, "f32[0]"),
    ("pad", [f32(3), f32()], {"low": (1,), "high": (2,), "interior": (1,)}, "f32[8]"),
    ("pad", [f32(0), f32()], {"low": (1,), "high": (2,), "interior": (5,)}, "f32[3]"),
    ("reduce", [f32(2, 3, 4)], {"kind": "sum", "axes": (0, 2)}, "f32[3]"),
    ("reduce", [f32(0, 3)], {"kind": "max", "axes": (1,)}, "f32[0]"),
    ("dot_general", [f32(2, 3), f32(3, 4)], {"contract": ((1,), (0,))}, "f32[2,4]"),
    ("dot_general", [f32(5, 2, 3), f32(5, 4, 3)], {"contract": ((2,), (2,)), "batch": ((0,), (0,))},
     "f32[5,2,4]"),
    ("dot_general", [f32(0, 3), f32(3, 4)], {"contract": ((1,), (0,))}, "f32[0,4]"),
    ("remainder", [i32(3), i32()], {}, "i32[3]"),
    ("shift_left", [u8(3), u8()], {}, "u8[3]"),
    ("xor", [boolean(3), boolean()], {}, "bool[3]"),
    ("iota", [], {"axis": 0, "shape": (3,), "dtype": "bf16"}, "bf16[3]"),
    ("dot_general", [bf16(2, 3), bf16(3, 4)], MATMUL, "bf16[2,4]"),
    ("dot_general", [bf16(2, 3), bf16(3, 4)], {**MATMUL, "dtype": "f32"}, "f32[2,4]"),
    ("dot_general", [u8(2, 3), i8(3, 4)], MATMUL, "i32[2,4]"),
    ("concatenate", [f32(2, 3), f32(2, 0), f32(2, 4)], {"axis": 1}, "f32[2,7]"),
    ("concatenate", [f32(2)], {"axis": 0}, "f32[2]"),
    ("reverse", [f32(2, 3)], {"axes": (1,)}, "f32[2,3]"),
    ("gather", [f32(5, 6, 7), i32(2, 3)], {"axis": 1}, "f32[5,2,3,7]"),
    ("gather", [f32(5), i32()], {"axis": 0}, "f32[]"),
    ("gather", [f32(0, 3), i32(0)], {"axis": 0}, "f32[0,3]"),
    ("scatter", [f32(5, 6), i32(2), f32(2, 6)], {"axis": 0, "kind": "sum"}, "f32[5,6]"),
    ("dynamic_slice", [f32(5, 6), i32(), i32()], {"sizes": (2, 6)}, "f32[2,6]"),
    ("dynamic_slice", [f32()], {"sizes": ()}, "f32[]"),
    ("dynamic_update_slice", [f32(5, 6), f32(1, 2), i32(), i32()], {}, "f32[5,6]"),
    ("convolution", [f32(8, 1, 3, 28, 28), f32(1, 16, 3, 5, 5)], WINDOW, "f32[8,1,16,13,26]"),
    ("convolution", [i8(8, 2, 3), u8(2, 4, 3)], {"low": (), "high": ()}, "i32[8,2,4]"),
    ("convolution", [bf16(0, 1, 1, 4), bf16(1, 1, 1, 4)], {"low": [0], "high": [0], "dtype": F32},
     "f32[0,1,1,1]"),
    ("optimization_barrier", [f32(3), i32()], {}, "f32[3]"),
    # mistakes
    ("power", [i32(3), i32(3)], {}, DtypeError),
    ("shift_left", [f32(3), f32(3)], {}, DtypeError),
    ("concatenate", [], {"axis": 0}, CompileError),
    ("concatenate", [f32(2, 3), f32(3, 3)], {"axis": 1}, ShapeError),
    ("concatenate", [f32(2), f32(2, 1)], {"axis": 0}, ShapeError),
    ("concatenate", [f32(2), i32(2)], {"axis": 0}, DtypeError),
    ("concatenate", [f32()], {"axis": 0}, ShapeError),
    ("concatenate", [f32(2)], {"axis": -1}, ShapeError),
    ("reverse", [f32(2, 3)], {"axes": (2,)}, ShapeError),
    ("gather", [f32(5), f32(2)], {"axis": 0}, DtypeError),
    ("gather", [f32(0, 3), i32(2)], {"axis": 0}, ShapeError),
    ("gather", [f32(5), i32(2)], {"axis": 1}, ShapeError),
    ("scatter", [f32(5, 6), i32(2), f32(6, 2)], {"axis": 0, "kind": "set"}, ShapeError),
    ("scatter", [f32(5, 6), i32(2), i32(2, 6)], {"axis": 0, "kind": "set"}, DtypeError),
    ("scatter", [f32(5), i32(2), f32(2)], {"axis": 0, "kind": "mean"}, CompileError),
    ("scatter", [boolean(5), i32(2), boolean(2)], {"axis": 0, "kind": "max"}, DtypeError),
    ("dynamic_slice", [f32(5, 6), i32()], {"sizes": (2, 6)}, ShapeError),
    ("dynamic_slice", [f32(5), f32()], {"sizes": (2,)}, DtypeError),
    ("dynamic_slice", [f32(5), i32()], {"sizes": (6,)}, ShapeError),
    ("dynamic_slice", [f32(5), i32()], {"sizes": (-1,)}, ShapeError),
    ("dynamic_update_slice", [f32(5, 6), f32(2), i32(), i32()], {}, ShapeError),
    ("dynamic_update_slice", [f32(5), f32(6), i32()], {}, ShapeError),
    ("dynamic_update_slice", [f32(5), i32(2), i32()], {}, DtypeError),
    ("dynamic_update_slice", [f32(5)], {}, CompileError),
    ("dot_general", [bf16(2, 3), f32(3, 4)], MATMUL, DtypeError),
    ("dot_general", [f32(2, 3), f32(3, 4)], {**MATMUL, "dtype": "bf16"}, DtypeError),
    ("convolution", [f32(8, 3, 28), f32(16, 3, 5, 5)], {"low": (), "high": ()}, ShapeError),
    ("convolution", [f32(8, 28), f32(16, 5)], {"low": (), "high": ()}, ShapeError),
    ("convolution", [f32(8, 1, 3, 28), f32(1, 16, 4, 5)], {"low": [0], "high": [0]}, ShapeError),
    ("convolution", [f32(8, 2, 3, 28), f32(1, 16, 3, 5)], {"low": [0], "high": [0]}, ShapeError),
    ("convolution", [f32(8, 1, 3, 4), f32(1, 16, 3, 5)], {"low": [0], "high": [0]}, ShapeError),
    ("convolution", [f32(8, 1, 3, 4), f32(1, 16, 3, 0)], {"low": [0], "high": [0]}, ShapeError),
    ("convolution", [f32(8, 1, 3, 9), f32(1, 16, 3, 5)], {"low": [-1], "high": [0]}, ShapeError),
    ("convolution", [f32(8, 1, 3, 9), f32(1, 16, 3, 5)], {"low": [0, 0], "high": [0]}, ShapeError),
    ("convolution", [f32(8, 1, 3, 9), f32(1, 2, 3, 5)], {"low": [0], "high": [0], "stride": [0]}, ShapeError),
    ("convolution", [f32(8, 1, 3, 9), i32(1, 16, 3, 5)], {"low": [0], "high": [0]}, DtypeError),
    ("optimization_barrier", [], {}, CompileError),
    ("add", [f32(3), f32(4)], {}, ShapeError),
    ("add", [f32(3), f32(1)], {}, ShapeError),
    ("add", [f32(3)], {}, CompileError),
    ("add", [boolean(3), boolean(3)], {}, DtypeError),
    ("exp", [i32(3)], {}, DtypeError),
    ("not", [f32(3)], {}, DtypeError),
    ("compare", [boolean(2), boolean(2)], {"direction": "lt"}, DtypeError),
    ("compare", [f32(2), f32(2)], {"direction": "less"}, CompileError),
    ("select", [f32(2), f32(2), f32(2)], {}, DtypeError),
    ("select", [boolean(2), f32(2), i32(2)], {}, DtypeError),
    ("convert", [f32(2)], {"dtype": "f64"}, CompileError),
    ("constant", [], {"value": np.zeros(2)}, CompileError),
    ("iota", [], {"axis": 2, "shape": (2, 3), "dtype": I32}, ShapeError),
    ("iota", [], {"axis": 0, "shape": (2,), "dtype": BOOL}, DtypeError),
    ("broadcast_in_dim", [f32(2)], {"shape": (2, 3), "dims": (1,)}, ShapeError),
    ("broadcast_in_dim", [f32(2)], {"shape": (2, 3), "dims": ()}, ShapeError),
    ("broadcast_in_dim", [f32(2, 2)], {"shape": (2, 2), "dims": (0, 0)}, ShapeError),
    ("reshape", [f32(6)], {"shape": (4,)}, ShapeError),
    ("reshape", [f32(6)], {"shape": (-2, -3)}, ShapeError),
    ("reshape", [f32(6)], {"shape": (6.0,)}, CompileError),
    ("reshape", [f32(1)], {"shape": (True,)}, CompileError),
    ("reshape", [f32(6)], {}, CompileError),
    ("reshape", [f32(6)], {"shape": 6}, CompileError),
    ("reshape", [f32(6)], {"shape": (6,), "perm": (0,)}, CompileError),
    ("transpose", [f32(2, 3)], {"perm": (0, 0)}, ShapeError),
    ("transpose", [f32(2, 3)], {"perm": (0,)}, ShapeError),
    ("transpose", [f32(2, 3)], {"perm": (0, -1)}, ShapeError),
    ("slice", [f32(10)], {"start": (1,), "limit": (11,)}, ShapeError),
    ("slice", [f32(10)], {"start": (5,), "limit": (4,)}, ShapeError),
    ("slice", [f32(10)], {"start": (0,), "limit": (4,), "stride": (0,)}, ShapeError),
    ("pad", [f32(3), f32()], {"low": (-1,), "high": (0,)}, ShapeError),
    ("pad", [f32(3), f32(1)], {"low": (1,), "high": (0,)}, ShapeError),
    ("pad", [f32(3), i32()], {"low": (1,), "high": (0,)}, DtypeError),
    ("reduce", [f32(0, 3)], {"kind": "max", "axes": (0,)}, ShapeError),
    ("reduce", [f32(3)], {"kind": "sum", "axes": (1,)}, ShapeError),
    ("reduce", [f32(3)], {"kind": "mean", "axes": (0,)}, CompileError),
    ("reduce", [boolean(3)], {"kind": "sum", "axes": (0,)}, DtypeError),
    ("dot_general", [f32(2, 3), f32(4, 3)], {"contract": ((1,), (0,))}, ShapeError),
    ("dot_general", [f32(2, 3), f32(3, 4)], {"contract": ((1,), (0, 1))}, ShapeError),
    ("dot_general", [f32(2, 3), f32(2, 3)], {"contract": ((1,), (1,)), "batch": ((1,), (1,))}, ShapeError),
    ("dot_general", [f32(2, 3), i32(3, 4)], {"contract": ((1,), (0,))}, DtypeError),
    ("dot_general", [f32(2, 3), f32(3, 4)], {"contract": (1, 0)}, CompileError),
    ("tan", [f32(2)], {}, CompileError),
])
def test_the_type_or_the_error_of_each_op(op, operands, attrs, result):
    if isinstance(result, str):
        types, _ = infer(op, tuple(operands), attrs)
        assert str(*types) == result
        return
    with pytest.raises(result) as caught:
        infer(op, tuple(operands), attrs, (LINE,))
    assert str(caught.value).startswith(f"{op}: ")
    assert "at train.py:12: h = x @ w" in str(caught.value)


def test_contracted_sizes_that_differ_are_both_named():
    with pytest.raises(ShapeError) as caught:
        infer("dot_general", (f32(128, 784), f32(512, 10)), {"contract": ((1,), (0,))}, (LINE,))
    assert str(caught.value) == (
        "dot_general: contracted sizes differ. "
        "got 784 (axis 1 of f32[128,784]) and 512 (axis 0 of f32[512,10]); need equal.\n"
        "  at train.py:12: h = x @ w\n"
        "  try: transpose an operand, or check the layer sizes")


def test_a_misspelt_op_names_the_nearest():
    with pytest.raises(CompileError, match="try: transpose"):
        infer("transpos", (f32(2),), {})


def test_a_result_dtype_that_says_nothing_is_left_out():
    plain = normal_attributes("dot_general", (i8(2, 3), i8(3, 4)), MATMUL)
    assert normal_attributes("dot_general", (i8(2, 3), i8(3, 4)), {**MATMUL, "dtype": "i32"}) == plain
    assert "dtype" in normal_attributes("dot_general", (bf16(2, 3), bf16(3, 4)), {**MATMUL, "dtype": "f32"})


def test_attributes_have_one_normal_form_with_defaults():
    given = {"start": [1], "limit": np.array([5])}
    assert normal_attributes("slice", (f32(9),), given) == {"start": (1,), "limit": (5,), "stride": (1,)}


def test_every_op_has_a_rule_and_only_known_attributes():
    assert set(ATTRIBUTES) <= {*OPS, "parameter"}
    assert set(ELEMENTWISE) <= set(OPS)


def test_zero_size_arrays_go_through_a_whole_graph():
    graph = parse_graph("""graph f(x: f32[0,3], w: f32[3,4]) {
        %0 = dot_general(x, w) contract=[1]x[0] : f32[0,4]
        %1 = reduce(%0) kind=sum axes=[0] : f32[4]
        return %0, %1 }""")
    assert [str(value.type) for value in graph.outputs] == ["f32[0,4]", "f32[4]"]
