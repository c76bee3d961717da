"""Kernels that look up where they read and write, that join arrays, and that convolve, in any blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernel_programs import TARGET, error, named

from minicc.errors import CompileError
from minicc.graph.evaluate import evaluate as evaluate_graph
from minicc.graph.infer import build
from minicc.graph.ir import BF16, F32, I8, I32, Builder, Type
from minicc.kernel.evaluate import allocate, evaluate, evaluate_pipelined
from minicc.kernel.fuse import fuse
from minicc.kernel.ir import AxisKind
from minicc.kernel.legalize import legalize
from minicc.kernel.pipeline import pipeline
from minicc.kernel.tile import tile
from minicc.kernel.verify import verify


def graph_of(types, make):
    """A graph: make(op, *values, **attrs) builds its nodes from one input per type."""
    builder = Builder()
    inputs = [builder.parameter(f"x{n}", type) for n, type in enumerate(types)]

    def op(name, *operands, **attrs):
        return build(builder, name, operands, attrs)

    outputs = make(op, *inputs)
    return builder.graph("g", inputs, outputs if isinstance(outputs, list) else [outputs])


def shaped(*shape, dtype=F32):
    return Type(dtype, shape)


def scalar(op, value):
    return op("constant", value=np.array(value, np.int32))


IDS = shaped(6, dtype=I32)
PROGRAMS = {
    "gather": ([shaped(9, 130), IDS], lambda op, x, i: op("gather", x, i, axis=0)),
    "gather columns": ([shaped(9, 4), shaped(2, 3, dtype=I32)], lambda op, x, i: op("gather", x, i, axis=1)),
    "sum of gathered rows": ([shaped(9, 130), IDS], lambda op, x, i: op(
        "reduce", op("exp", op("gather", x, i, axis=0)), kind="sum", axes=[0])),
    "gather of a sum": ([shaped(9, 130), IDS], lambda op, x, i: op("gather", op("add", x, x), i, axis=0)),
    **{f"scatter {kind}": ([shaped(9, 130), IDS, shaped(6, 130)], lambda op, x, i, u, kind=kind: op(
        "scatter", x, i, u, axis=0, kind=kind)) for kind in ("set", "sum", "prod", "max", "min")},
    "scatter columns": ([shaped(3, 9), IDS, shaped(3, 6)], lambda op, x, i, u: op(
        "scatter", x, i, u, axis=1, kind="sum")),
    "scatter into one": ([shaped(1, 130), IDS, shaped(6, 130)], lambda op, x, i, u: op(
        "scatter", x, i, u, axis=0, kind="sum")),
    "scatter twice": ([shaped(9, 130), IDS, shaped(6, 130)], lambda op, x, i, u: op("scatter", op(
        "scatter", op("exp", x), i, u, axis=0, kind="sum"), i, op("negate", u), axis=0, kind="set")),
    "base kept": ([shaped(9, 130), IDS, shaped(6, 130)], lambda op, x, i, u: [
        (e := op("exp", x)), op("scatter", e, i, u, axis=0, kind="max")]),
    "dynamic slice": ([shaped(9, 130), shaped(dtype=I32)], lambda op, x, i: op(
        "dynamic_slice", x, i, scalar(op, 3), sizes=[4, 70])),
    "dynamic update": ([shaped(9, 130), shaped(dtype=I32), shaped(2, 130)], lambda op, x, i, u: op(
        "dynamic_update_slice", x, op("exp", u), i, scalar(op, 0))),
    "concatenate": ([shaped(3, 130), shaped(5, 130), shaped(1, 130)], lambda op, x, y, z: op(
        "concatenate", op("exp", x), y, op("negate", z), axis=0)),
    "concatenate columns": ([shaped(3, 5), shaped(3, 0), shaped(3, 8)], lambda op, x, y, z: op(
        "concatenate", x, y, op("exp", z), axis=1)),
    "pad of a sum": ([shaped(3, 130)], lambda op, x: op("pad", op("exp", x), op(
        "constant", value=np.float32(-2)), low=[1, 0], high=[2, 3])),
    "reverse": ([shaped(7, 130)], lambda op, x: op("exp", op("reverse", x, axes=[0, 1]))),
    "convolution": ([shaped(2, 1, 3, 9, 10), shaped(1, 4, 3, 3, 2)], lambda op, x, w: op(
        "maximum", op("convolution", x, w, stride=[2, 1], dilation=[1, 2], low=[1, 0], high=[2, 1]),
        op("constant", value=np.float32(0)))),
    "groups": ([shaped(2, 3, 2, 9), shaped(3, 4, 2, 3)], lambda op, x, w: op(
        "convolution", x, w, low=[0], high=[0])),
    "depthwise": ([shaped(2, 5, 1, 9), shaped(5, 1, 1, 3)], lambda op, x, w: op(
        "convolution", op("exp", x), w, low=[1], high=[1])),
}


def random_inputs(graph, seed=0):
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.integers(-3, 12, v.shape), np.int32) if v.dtype is I32
            else rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs]


def modules_of(graph):
    """The graph's kernels: untiled, tiled, and in odd blocks."""
    module = fuse(legalize(graph), TARGET)
    yield module
    yield replace(module, kernels=tuple(tile(kernel, TARGET) for kernel in module.kernels))
    odd = [kernel.tiled({a.name: max(1, a.size // 3) for a in kernel.axes
                         if a.kind is not AxisKind.WHOLE and a.block > 1}) for kernel in module.kernels]
    yield replace(module, kernels=tuple(odd))


@pytest.mark.parametrize("name", PROGRAMS)
def test_any_blocks_and_their_pipelines_mean_what_the_graph_means(name):
    graph = graph_of(*PROGRAMS[name])
    inputs = random_inputs(graph)
    want = evaluate_graph(graph, inputs, dtype64=True)
    for module in modules_of(graph):
        verify(module)
        got = evaluate(module, named(module, inputs), float64=True)
        assert max(map(error, got, want)) < 1e-12
        buffers = allocate(module, named(module, inputs))
        for kernel in module.kernels:
            evaluate_pipelined(pipeline(kernel), buffers)
        piped = [buffers[name].reshape(type.shape) for name, type in module.outputs]
        assert max(map(error, piped, want)) < 1e-5


def test_a_base_that_nobody_else_needs_is_updated_where_it_was_made():
    twice, kept = (fuse(graph_of(*PROGRAMS[name]), TARGET) for name in ("scatter twice", "base kept"))
    assert [kernel.outputs[0].buffer for kernel in twice.kernels] == ["out", "out", "out"]
    assert [kernel.name for kernel in kept.kernels] == ["exp", "copy", "scatter_maximum"]


def test_a_convolution_is_one_kernel_with_a_dot_over_channels_and_taps():
    (kernel,) = fuse(graph_of(*PROGRAMS["convolution"]), TARGET).kernels
    (dot,) = (block for block in kernel.blocks() if block.op == "dot")
    assert len(dot.attrs["contract"]) == 3
    assert kernel.inputs[0].fill == 0.0


def test_a_pad_takes_along_what_is_computed():
    (kernel,) = fuse(graph_of(*PROGRAMS["pad of a sum"]), TARGET).kernels
    assert [block.op for block in kernel.blocks()].count("select") == 3  # above, below, and to the right


def test_arithmetic_on_narrow_numbers_is_widened_and_moves_are_not():
    graph = graph_of([shaped(3, 4, dtype=BF16)], lambda op, x: op(
        "transpose", op("add", x, x), perm=[1, 0]))
    ops = [(node.op, str(node.types[0].dtype)) for node in legalize(graph).nodes()[1:]]
    assert ops == [("convert", "f32"), ("add", "f32"), ("convert", "bf16"), ("transpose", "bf16")]


@pytest.mark.parametrize("dtype, result", [(BF16, F32), (I8, I32)])
def test_products_take_narrow_numbers_as_they_are(dtype, result):
    graph = graph_of([shaped(3, 4, dtype=dtype)] * 2, lambda op, x, y: op(
        "dot_general", x, y, contract=[[1], [1]]))
    dot = next(node for node in legalize(graph).nodes() if node.op == "dot_general")
    assert [value.dtype for value in dot.operands] == [dtype, dtype]
    assert dot.types[0].dtype == result


def test_verify_names_a_lookup_in_blocks():
    module = fuse(graph_of(*PROGRAMS["gather"]), TARGET)
    (kernel,) = module.kernels
    with pytest.raises(CompileError, match="looks up its place along m, which has blocks of 2"):
        verify(kernel.tiled({"m": 2}))
