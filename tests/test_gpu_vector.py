"""Vector mode: numpy functions written from kernels. Expected values are numpy's own in float64."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from gpu_programs import F32, PROGRAMS, Sketch, agrees, kernels_of, layer, softmax

from minicc.errors import OutOfRangeError
from minicc.gpu.calls import select
from minicc.gpu.vector import vector_kernel
from minicc.graph.ir import Type
from minicc.kernel.ir import Axis, AxisKind, Block, Guard, Index, Kernel, Operand, Statement

RAGGED = (1, 7, 127, 129, 1000)


def run_vector(kernel: Kernel, buffers: dict[str, np.ndarray], chunk_elements: int = 0) -> None:
    vector_kernel(kernel, chunk_elements).run(buffers)


@pytest.mark.parametrize("name", PROGRAMS)
def test_vector_mode_agrees_with_float64_at_ragged_sizes(name):
    for n in RAGGED:
        assert agrees(PROGRAMS[name](n), run_vector)


@pytest.mark.parametrize("name", PROGRAMS)
def test_chunks_change_nothing_but_the_rounding(name):
    for chunk in (5, 64):
        run = partial(run_vector, chunk_elements=chunk)
        assert agrees(PROGRAMS[name](37), run)


def test_a_layer_is_three_calls_that_write_into_the_output():
    (kernel,) = kernels_of(layer(64)).kernels
    assert vector_kernel(kernel).source == """\
def dot_add_maximum(buffers):
    # m = 1 x 64 of 64 parallel
    # n = 1 x 20 of 20 parallel
    # k = 1 x 33 of 33 whole
    x = buffers['x'].reshape((64, 33))
    w = buffers['w'].reshape((33, 20))
    b = buffers['b'].reshape((20,))
    out = buffers['out'].reshape((64, 20))
    matmul(x, w, out=out)  # model.py:1
    add(out, b, out=out)  # model.py:3
    maximum(out, 0.0, out=out)  # model.py:4
"""


def test_a_long_softmax_runs_in_chunks_of_rows():
    (kernel,) = kernels_of(softmax(1000)).kernels
    source = vector_kernel(kernel, chunk_elements=2560).source
    assert "    for m0 in range(0, 1000, 250):\n" in source


def test_a_sum_over_a_long_axis_keeps_an_accumulator_between_chunks():
    s = Sketch()
    x = s.input("x", 10_000)
    graph = s.graph(s.reduce(s.exp(x), kind="sum", axes=(0,)))
    (kernel,) = kernels_of(graph).kernels
    assert "add(acc, " in vector_kernel(kernel, chunk_elements=300).source
    assert agrees(graph, partial(run_vector, chunk_elements=300))


def test_a_transposed_operand_is_a_view_not_a_copy():
    s = Sketch()
    x, w = s.input("x", 30, 40), s.input("w", 20, 40)
    (kernel,) = kernels_of(s.graph(s.dot_general(x, w, contract=((1,), (1,)), batch=((), ())))).kernels
    source = vector_kernel(kernel).source
    assert "w.transpose(1, 0)" in source and "contiguous" not in source


def test_names_of_buffers_cannot_reach_the_generated_text():
    s = Sketch()
    x, y = s.input("exp", 4), s.input("a-b'; import os #", 4)
    graph = s.graph(s.add(s.exp(x), y))
    assert agrees(graph, run_vector)


def copy_kernel(index: Index) -> Kernel:
    """y[8] = x[8] at an index of the test's choice."""
    x = Operand("x", "x", Type(F32, (8,)), (index,))
    y = Operand("y", "y", Type(F32, (8,)), (Index.axis("n"),))
    load = Block("load", (), {"ref": "x"}, F32, index.axes)
    axis = Axis("n", 8, 8, AxisKind.PARALLEL)
    return Kernel("copy", (axis,), (x,), (y,), (), (Statement(Guard.ALWAYS, "y", load),))


def test_an_operand_may_be_read_backwards():
    buffers = {"x": np.arange(8, dtype=np.float32), "y": np.zeros(8, np.float32)}
    vector_kernel(copy_kernel(Index((("n", -1),), 7))).run(buffers)
    assert buffers["y"].tolist() == [7, 6, 5, 4, 3, 2, 1, 0]


def test_an_index_that_leaves_its_array_without_a_fill_is_refused():
    with pytest.raises(OutOfRangeError, match="leaves its array"):
        vector_kernel(copy_kernel(Index((("n", 1),), 1)))


def test_select_takes_bits_so_nan_and_signed_zero_pass_unharmed():
    on_true = np.array([np.nan, -0.0, 3, np.inf], np.float32)
    out = np.empty(4, np.float32)
    mask, chosen = np.empty((2, 4), np.int32)
    select(np.array([True, True, False, False]), on_true, np.float32(-0.0), mask, chosen, out)
    assert np.isnan(out[0]) and np.signbit(out[1:]).tolist() == [True, True, True]
