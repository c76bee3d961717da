"""Text: faithful in both directions, and errors with a line and a column."""

from __future__ import annotations

import numpy as np
import pytest
from random_graphs import random_graph

from minicc.errors import CompileError, Loc
from minicc.graph.infer import build, constant
from minicc.graph.ir import F32, I32, Builder, Graph, Type
from minicc.graph.printing import describe
from minicc.graph.text import parse_graph

MLP = """\
graph mlp(x: f32[128,784], w: f32[784,512], b: f32[512]) {
  %0 = dot_general(x, w) contract=[1]x[0] : f32[128,512]          loc(train.py:12)
  %1 = broadcast_in_dim(b) shape=[128,512] dims=[1] : f32[128,512]  loc(train.py:12)
  %2 = add(%0, %1) : f32[128,512]                                 loc(train.py:12, model.py:3)
  %3 = maximum(%2, 0.0) : f32[128,512]                            loc(train.py:13)
  return %3
}
"""


def of_constants(*arrays: np.ndarray) -> Graph:
    builder = Builder()
    return builder.graph("f", [], [constant(builder, array) for array in arrays])


def test_a_graph_prints_as_it_was_read():
    assert str(parse_graph(MLP)) == MLP


def test_lines_are_read_back():
    graph = parse_graph(MLP)
    added = graph.outputs[0].node.operands[0].node
    assert graph.lines(added) == (Loc("train.py", 12), Loc("model.py", 3))


@pytest.mark.parametrize("seed", range(30))
def test_random_graphs_survive_the_round_trip(seed):
    graph, _ = random_graph(seed)
    again = parse_graph(str(graph))
    assert str(again) == str(graph)
    assert [node.types for node in again.nodes()] == [node.types for node in graph.nodes()]


def test_constants_come_back_with_the_same_bits():
    bits = np.random.default_rng(0).integers(0, 2**32, 3000, np.uint32)
    is_nan = (bits & 0x7F800000 == 0x7F800000) & (bits & 0x7FFFFF != 0)
    bits |= np.where(is_nan, 0x400000, 0).astype(np.uint32)  # quiet: numpy itself quiets the others
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-45, 3.4028235e38, 0.1], np.float32)
    arrays = [bits.view(np.float32), special, np.array([[True, False]]), np.zeros((2, 0, 3), np.int32),
              np.zeros((0, 3), np.float32), np.array([-2**31, 2**31 - 1], np.int32), np.float32(-0.0),
              np.float32(np.nan), np.int32(-7), np.bool_(True), np.float32(1e16), np.float32(-np.inf)]
    graph = of_constants(*map(np.asarray, arrays))
    values = [v.node.attrs["value"] for v in parse_graph(str(graph)).outputs]
    for before, after in zip(arrays, values, strict=True):
        assert (before.dtype, before.shape, before.tobytes()) == (after.dtype, after.shape, after.tobytes())


def test_constants_of_every_dtype_come_back_with_the_same_bits():
    all_16_bits = np.arange(2**16, dtype=np.uint16)
    halves = all_16_bits.view(np.float16)[::7]
    arrays = [all_16_bits, halves[~np.isnan(halves)], np.arange(256, dtype=np.uint8), np.int8([-128, 127]),
              np.int16([-2**15]), np.uint32([0, 2**32 - 1])]
    scalars = [array[-1] for array in arrays]
    graph = of_constants(*map(np.asarray, arrays + scalars))
    values = [v.node.attrs["value"] for v in parse_graph(str(graph)).outputs]
    for before, after in zip(arrays + scalars, values, strict=True):
        assert (before.dtype, before.tobytes()) == (after.dtype, after.tobytes())


def test_scalars_show_their_dtype_where_the_digits_do_not():
    graph = of_constants(np.uint16(0x3DCD), np.float16(0.5), np.uint32(7), np.int8(-1), np.float32(2))
    assert "return bf16(0.1), f16(0.5), u32(7), i8(-1), 2.0" in str(graph)


VOCABULARY = """\
graph f(x: f32[2,3], i: i32[4], z: i32[], t: bf16[8,1,3,9], w: bf16[1,4,3,2]) {
  %0 = concatenate(x, x) axis=1 : f32[2,6]
  %1 = reverse(%0) axes=[0,1] : f32[2,6]
  %2 = gather(%1, i) axis=0 : f32[4,6]
  %3 = scatter(%0, i, %2) axis=0 kind=sum : f32[2,6]
  %4 = dynamic_slice(%3, z, 1) sizes=[2,2] : f32[2,2]
  %5 = dynamic_update_slice(%3, %4, z, 0) : f32[2,6]
  %6 = convolution(t, w) stride=[2] low=[0] high=[1] dtype=f32 : f32[8,1,4,5]
  %7 = convolution(t, w) low=[1] high=[0] : bf16[8,1,4,9]
  %8 = multiply(%7, bf16(0.5)) : bf16[8,1,4,9]
  %9 = optimization_barrier(%8, z) : bf16[8,1,4,9]
  return %5, %6, %9
}
"""


def test_the_whole_vocabulary_prints_as_it_was_read():
    assert str(parse_graph(VOCABULARY)) == VOCABULARY


def test_names_become_legal_and_different():
    builder = Builder()
    names = ("a b", "a_b", "", "inf", "2", "p['w']", "p.w1")
    inputs = [builder.parameter(name, Type(F32, ())) for name in names]
    text = str(builder.graph("<lambda>", inputs, inputs))
    head = "graph _lambda_(a_b: f32[], a_b_1: f32[], _: f32[], inf_1: f32[], _2: f32[], p__w__: f32[], p.w1:"
    assert text.startswith(head)
    assert str(parse_graph(text)) == text


def test_a_file_name_with_odd_letters_does_not_break_the_text():
    builder = Builder()
    x = builder.parameter("x", Type(F32, ()))
    graph = builder.graph("f", [x], [build(builder, "exp", (x,), locs=(Loc("/a/my (old), file.py", 3),))])
    assert str(parse_graph(str(graph))) == str(graph)


def test_what_a_person_writes_is_understood():
    graph = parse_graph("""
        # names, comments of two kinds, and integers in a float array
        graph f(x: f32[3]) { %c = constant() value=[1, 2, 3] : f32[3]   // three
          %twice = multiply(x, %c) : f32[3]
          return %twice, true, -2 }""")
    assert graph.outputs[0].node.operands[1].node.attrs["value"].dtype == np.float32
    assert [str(value.type) for value in graph.outputs] == ["f32[3]", "bool[]", "i32[]"]


def test_a_node_is_described_in_a_few_words():
    builder = Builder()
    x = builder.parameter("x", Type(I32, (4,)))
    assert describe(build(builder, "add", (x, constant(builder, 3, I32))).node) == "add(x, 3) : i32[4]"


@pytest.mark.parametrize(("text", "place", "says"), [
    ("", "line 1, column 1", "need 'graph'"),
    ("graph f(", "line 1, column 9", "a parameter's name"),
    ("graph f(x: f33[2]) { return x }", "line 1, column 12", "try: f32"),
    ("graph f(x: f32[-2]) { return x }", "line 1, column 12", "a size is not a count"),
    ("graph f(x: f32[2], x: f32[2]) { return x }", "line 1, column 20", "this name is taken"),
    ("graph f(x: f32[2]) { %0 = reduce(x) kind=sum kind=max : f32[] return %0 }", "line 1, column 46",
     "kind is given twice"),
    ("graph f(graph: f32[2]) { return graph }", "line 1, column 9", "another name"),
    ("graph f(x: f32[2]) {\n  return y\n}", "line 2, column 10", "not defined above"),
    ("graph f(x: f32[2]) {\n  %0 = add(x, 1.0) : f32[3]\n  return %0 }", "line 2, column 20",
     "need f32[2]"),
    ("graph f(x: f32[]) {\n  %0 = exp(x) : f32[]\n  %0 = exp(x) : f32[]\n return x }",
     "line 3, column 3", "taken"),
    ("graph f(x: f32[2]) { %0 = reduce(x) kind=sum axes=[0.5] : f32[] return %0 }", "column 52",
     "an integer"),
    ("graph f(x: f32[2]) { return x } $", "line 1, column 33", "begins no word"),
    ("graph f(x: f32[2]) { return x } x", "line 1, column 33", "the end of the text"),
    ("graph f(x: f32[2]) { return }", "line 1, column 29", "an operand"),
    ("graph f() { return 1e99 }", "line 1, column 20", "does not fit f32"),
    ("graph f() { return 2147483648 }", "line 1, column 20", "does not fit i32"),
    (f"graph f() {{ return {'9' * 5000} }}", "line 1, column 20", "does not fit i32"),
    ("graph f() { %0 = constant() value=[[1,2],[3]] : i32[3] return %0 }", "column 47", "equal rows"),
    ("graph f() { %0 = constant() value=[1,2] : i32[3] return %0 }", "column 41", "need [3]"),
    ("graph f() { %0 = constant() value=[1,2.0] : i32[2] return %0 }", "column 38", "need i32 digits"),
    ("graph f() { %0 = constant() value=word : i32[] return %0 }", "column 35", "a number"),
    ("graph f() { %0 = constant() value=" + "[" * 5000, "column 99", "at most 64 axes"),
    ("graph f() { %0 = iota() axis=0 shape=[2] dtype=f32 : f32[2] loc(nowhere) return %0 }", "column 61",
     "loc("),
])
def test_a_mistake_in_the_text_is_named_with_line_and_column(text, place, says):
    with pytest.raises(CompileError) as caught:
        parse_graph(text, "net.graph")
    assert place in str(caught.value) and says in str(caught.value)
    assert "net.graph:" in str(caught.value)


def test_a_mistake_in_a_shape_is_named_with_the_line_of_the_text():
    with pytest.raises(CompileError, match="at net.graph:2: %0 = add"):
        parse_graph("graph f(x: f32[2], y: f32[3]) {\n %0 = add(x, y) : f32[2]\n return %0 }", "net.graph")


def test_something_that_is_no_text_is_refused():
    with pytest.raises(CompileError, match="need a str"):
        parse_graph(None)  # type: ignore[arg-type]


def test_any_cut_of_a_text_is_an_error_and_nothing_else():
    for end in range(len(MLP) - 2):
        with pytest.raises(CompileError):
            parse_graph(MLP[:end])
