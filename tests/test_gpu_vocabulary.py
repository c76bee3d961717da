"""Both executions on the whole vocabulary: lookups, updates in place, joins, convolutions, every dtype."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from gpu_programs import TARGET
from test_kernel_lookup import PROGRAMS as LOOKUPS
from test_kernel_lookup import graph_of, shaped

from minicc.errors import MachineFault
from minicc.gpu.calls import CALLS
from minicc.gpu.ir import Array, Barrier, Expr, Load, SimtKernel, Store, const
from minicc.gpu.lower import lower
from minicc.gpu.machine import A100
from minicc.gpu.simt import run_lane
from minicc.gpu.vector import vector_kernel
from minicc.graph.dtypes import DTYPES, decode, encode
from minicc.graph.elementwise import ELEMENTWISE
from minicc.graph.evaluate import evaluate
from minicc.graph.ir import BF16, BOOL, F16, F32, I8, I32, U8, U32, Graph
from minicc.kernel.evaluate import allocate
from minicc.kernel.fuse import fuse
from minicc.kernel.index import Axis, AxisKind, Index, Lookup
from minicc.kernel.ir import Block, Guard, Kernel, Operand, Statement
from minicc.kernel.legalize import legalize
from minicc.kernel.tile import tile

MODES: dict[str, Callable[[Kernel, dict], object]] = {
    "vector": lambda kernel, buffers: vector_kernel(kernel).run(buffers),
    "lane": lambda kernel, buffers: run_lane(lower(kernel), buffers, A100),
}
IDS = shaped(6, dtype=I32)


def drawn(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    """Inputs as they are stored; integers are small, and as indices some lie outside."""
    rng = np.random.default_rng(seed)
    ranges = {"b": (0, 2), "i": (-3, 12)}
    return [encode(rng.standard_normal(v.shape) * 3 if v.dtype.kind == "f"
                   else rng.integers(*ranges[v.dtype.kind], v.shape), v.dtype) for v in graph.inputs]


def results(graph: Graph, mode: str, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """What a mode makes of a graph's kernels."""
    module = fuse(legalize(graph), TARGET)
    buffers = allocate(module, {name: x for (name, _), x in zip(module.inputs, inputs, strict=True)})
    for kernel in module.kernels:
        MODES[mode](tile(kernel, TARGET), buffers)
    return [decode(buffers[name].reshape(type.shape), type.dtype) for name, type in module.outputs]


def agrees(graph: Graph, mode: str, tolerance: float = 1e-5) -> bool:
    inputs = drawn(graph)
    expected = [decode(x, v.dtype) for x, v in zip(evaluate(graph, inputs), graph.outputs, strict=True)]
    for got, want in zip(results(graph, mode, inputs), expected, strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        scale = max(1.0, float(np.abs(want[np.isfinite(want)]).max(initial=0)))
        np.testing.assert_allclose(got / scale, want / scale, rtol=0, atol=tolerance)
    return True


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", LOOKUPS)
def test_lookups_updates_joins_and_convolutions_mean_what_the_graph_means(name, mode):
    assert agrees(graph_of(*LOOKUPS[name]), mode)


EINSUMS = ["bmk,bkn->bmn", "mkb,nkb->bnm", "abk,kcd->acbd", "ak,bk->ba", "abkl,lkcd->cdab", "abc,abc->",
           "abk,abk->ab", "ak,k->a", "kab,kb->ba", "abk,ck->cab", "kba,dkc->dbca", "a,b->ba", "bak,bk->ba",
           "bra,acd->bcrd", "bra,acd->brcd"]


def einsum(text: str) -> Graph:
    """A dot_general and a transpose that together are this einsum; a is 3 long, b is 4, and so on."""
    (left, right), out = text.split("->")[0].split(","), text.split("->")[1]
    batch = [c for c in left if c in right and c in out]
    contract = [c for c in left if c in right and c not in out]
    made = batch + [c for c in left + right if c not in batch + contract]
    shapes = [shaped(*(3 + "abcdklmnopqr".index(c) for c in side)) for side in (left, right)]
    pairs = {name: tuple(tuple(map(side.index, which)) for side in (left, right))
             for name, which in (("contract", contract), ("batch", batch))}
    return graph_of(shapes, lambda op, x, y: op(
        "transpose", op("dot_general", op("exp", x), y, **pairs), perm=tuple(map(made.index, out))))


@pytest.mark.parametrize("chunk", [0, 2, 30])
@pytest.mark.parametrize("text", EINSUMS)
def test_dots_of_any_layout_are_einsums(text, chunk):
    graph = einsum(text)
    x, y = drawn(graph)
    module = fuse(legalize(graph), TARGET)
    buffers = allocate(module, {"x0": x, "x1": y})
    for kernel in module.kernels:
        vector_kernel(kernel, chunk).run(buffers)
    want = np.einsum(text, np.exp(x.astype(np.float64)), y)
    np.testing.assert_allclose(buffers["out"].reshape(want.shape), want, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("name, calls", [
    ("gather", ["take(x0, clip(x1, 0, 8), 0, out=out)"]),
    ("dynamic slice", ["number(x1, 0, 5)", "copy(x0, out=out)"]),
    ("dynamic update", ["number(x1, 0, 7)", "exp(x2, out=out)"])])
def test_whole_rows_are_taken_at_once_and_windows_are_views(name, calls):
    module = fuse(legalize(graph_of(*LOOKUPS[name])), TARGET)
    source = vector_kernel(module.kernels[-1]).source
    assert all(call in source for call in calls) and "index(" not in source


@pytest.mark.parametrize("name", LOOKUPS)
def test_small_chunks_are_the_same(name):
    graph = graph_of(*LOOKUPS[name])
    inputs, module = drawn(graph), fuse(legalize(graph), TARGET)
    whole, parts = (allocate(module, {f"x{n}": x for n, x in enumerate(inputs)}) for _ in "12")
    for kernel in module.kernels:
        vector_kernel(kernel).run(whole)
        vector_kernel(kernel, 50).run(parts)
    for name, _ in module.outputs:
        np.testing.assert_allclose(whole[name], parts[name], rtol=1e-5, atol=1e-5)


def test_a_convolution_is_cut_by_images():
    (kernel,) = fuse(legalize(graph_of(*LOOKUPS["convolution"])), TARGET).kernels
    assert "for b0 in range(0, 2, 1):" in vector_kernel(kernel, 1000).source


# -- pieces --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["concatenate", "concatenate columns", "pad of a sum"])
def test_what_is_put_together_is_computed_part_by_part(name):
    module = fuse(legalize(graph_of(*LOOKUPS[name])), TARGET)
    source = vector_kernel(module.kernels[-1]).source
    assert " out = buffers" in source and " select(" not in source and "padded(" not in source


def test_what_is_put_together_of_rows_that_are_looked_up_is_right():
    types = [shaped(9, 40), IDS, shaped(5, 40)]
    assert agrees(graph_of(types, lambda op, x, i, y: op(
        "concatenate", y, op("gather", x, i, axis=0), op("exp", y), axis=0)), "vector")
    assert agrees(graph_of(types, lambda op, x, i, y: op(
        "gather", op("concatenate", y, x, axis=0), i, axis=0)), "vector")


@pytest.mark.parametrize("chunk", [0, 50])
def test_what_a_dot_or_a_reduction_reads_is_put_together_before_it(chunk):
    graph = graph_of([shaped(3, 5), shaped(3, 8), shaped(13, 6)], lambda op, x, y, w: [
        op("dot_general", op("concatenate", op("exp", x), y, axis=1), w, contract=((1,), (0,))),
        op("reduce", op("concatenate", x, op("exp", y), axis=1), kind="max", axes=[1])])
    module = fuse(legalize(graph), TARGET)
    x, y, w = drawn(graph)
    buffers = allocate(module, {"x0": x, "x1": y, "x2": w})
    for kernel in module.kernels:
        made = vector_kernel(kernel, chunk)
        assert " select(" not in made.source
        made.run(buffers)
    product = np.concatenate([np.exp(x), y], 1) @ w
    np.testing.assert_allclose(buffers["out0"], product, atol=1e-5 * np.abs(product).max())
    np.testing.assert_allclose(buffers["out1"], np.concatenate([x, np.exp(y)], 1).max(1), rtol=1e-6)


@pytest.mark.parametrize("direction", ["lt", "le", "gt", "ge", "eq"])
@pytest.mark.parametrize("bound", [-1, 0, 4, 9, 10])
def test_a_condition_on_the_place_splits_where_it_changes(direction, bound):
    def chosen_by_place(op, x, y):
        edge = op("broadcast_in_dim", op("constant", value=np.int32(bound)), shape=(3, 10), dims=())
        place = op("iota", axis=1, shape=(3, 10), dtype=I32)
        return op("select", op("compare", place, edge, direction=direction), op("exp", x), y)

    graph = graph_of([shaped(3, 10), shaped(3, 10)], chosen_by_place)
    x, y = drawn(graph)
    place = np.broadcast_to(np.arange(10), (3, 10))
    chosen = {"lt": place < bound, "le": place <= bound, "gt": place > bound, "ge": place >= bound,
              "eq": place == bound}[direction]
    (got,) = results(graph, "vector", [x, y])
    np.testing.assert_allclose(got, np.where(chosen, np.exp(x), y), rtol=1e-6)


# -- dtypes --------------------------------------------------------------------------------------------------

EXTREMES = [0, 1, -1, 2, -3, 5, 31, 32, 40, -40, 127, 128, -128, 255, 256, 2**31 - 1, -(2**31), 2**31,
            2**32 - 1]
FLOATS = [*EXTREMES, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-3, 3e38, -3e38, 1e10, np.inf, -np.inf, np.nan, -0.0]
CLASSES = {"f": "f", "n": "fi", "i": "i", "bi": "bi"}


def edges(dtype) -> np.ndarray:
    """Numbers of a dtype where ops change what they do."""
    kinds = {"f": np.array(FLOATS), "i": np.array(EXTREMES, np.int64), "b": np.array(EXTREMES) > 1}
    return encode(kinds[dtype.kind], dtype)


def exactly(graph: Graph, mode: str, inputs: list[np.ndarray], ulps: int = 0) -> bool:
    for got, want in zip(results(graph, mode, inputs), evaluate(graph, inputs), strict=True):
        want = decode(want, graph.outputs[0].dtype)
        assert got.dtype == want.dtype
        if ulps and got.dtype.kind == "f":
            np.testing.assert_array_max_ulp(got[~np.isnan(want)], want[~np.isnan(want)], ulps)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        if not ulps:
            np.testing.assert_array_equal(got, want)
    return True


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("op", ELEMENTWISE)
def test_every_op_is_the_graphs_on_every_dtype_at_its_edges(op, mode):
    row = ELEMENTWISE[op]
    for dtype in (F32, BF16, F16, I8, U8, I32, U32, BOOL):
        if dtype.kind in CLASSES[row.operands]:
            x = edges(dtype)
            sides = np.meshgrid(x, x) if row.arity == 2 else [x]
            types = [shaped(*x.shape, dtype=dtype) for x in sides]
            graph = graph_of(types, lambda build, *values, op=op: build(op, *values))
            assert exactly(graph, mode, sides, ulps=1)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("source", DTYPES)
def test_every_convert_is_the_graphs(source, mode):
    x = edges(DTYPES[source])
    graph = graph_of([shaped(*x.shape, dtype=DTYPES[source])], lambda build, v: [
        build("convert", v, dtype=dtype) for dtype in DTYPES.values()])
    for got, want, output in zip(results(graph, mode, [x]), evaluate(graph, [x]), graph.outputs, strict=True):
        np.testing.assert_array_equal(got, decode(want, output.dtype), err_msg=str(output.dtype))


@pytest.mark.parametrize("shape", [(100_003,), (1, 70_000), (3, 40_000), (50, 1000), (0, 5)])
def test_converts_of_long_arrays_are_those_of_their_parts(shape):
    x = np.random.default_rng(0).standard_normal(shape[::-1]).astype(np.float32).T * 9
    out = np.empty(shape, np.uint16)
    CALLS["f32_to_bf16"](x, out=out)
    np.testing.assert_array_equal(out, encode(x.copy(), BF16))
    CALLS["f32_to_bf16"](2.5, out=out)
    assert (decode(out, BF16) == 2.5).all()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("left, right, result", [
    (BF16, BF16, BF16), (BF16, BF16, F32), (F16, F16, F32), (I8, I8, I32), (I8, U8, I32), (I32, I32, I32),
    (U32, U32, U32)])
def test_dots_of_every_dtype(left, right, result, mode):
    graph = graph_of([shaped(5, 40, dtype=left), shaped(40, 21, dtype=right)], lambda op, x, w: op(
        "dot_general", x, w, contract=((1,), (0,)), batch=((), ()), dtype=result))
    assert agrees(graph, mode, tolerance=1e-2 if result is BF16 else 1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_the_largest_small_integers_add_up_exactly(mode):
    x, w = np.full((3, 1001), -127, np.int8), np.full((1001, 4), 255, np.uint8)
    graph = graph_of([shaped(3, 1001, dtype=I8), shaped(1001, 4, dtype=U8)], lambda op, x, w: op(
        "dot_general", x, w, contract=((1,), (0,)), batch=((), ())))
    assert (results(graph, mode, [x, w])[0] == -127 * 255 * 1001).all()  # odd, and above 2**24


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [BF16, F16, I8, U8, U32, BOOL])
def test_what_only_moves_keeps_its_bits(dtype, mode):
    x = np.random.default_rng(0).integers(0, 256, (4, 33, dtype.itemsize), np.uint8)
    x = x.view(dtype.numpy)[..., 0] if dtype is not BOOL else x[..., 0] > 99
    keep = np.random.default_rng(1).random((33, 6)) < 0.5
    graph = graph_of([shaped(4, 33, dtype=dtype), shaped(33, 6, dtype=BOOL)], lambda op, v, k: op(
        "select", k, *[op("pad", op("transpose", v, perm=(1, 0)), op("constant", value=encode(1, dtype)),
                          low=(0, low), high=(0, 2 - low)) for low in (0, 2)]))
    (got,) = results(graph, mode, [x, keep])
    one = decode(encode(1, dtype), dtype)
    left, right = (np.pad(decode(x, dtype).T, ((0, 0), pads), constant_values=one)
                   for pads in ((0, 2), (2, 0)))
    assert got.tobytes() == np.where(keep, left, right).tobytes()


# -- what lane mode must catch and count ---------------------------------------------------------------------


def scatter_kernel(kind: str = "sum") -> tuple[Kernel, dict]:
    """Adds six updates to rows of a buffer that holds ones, two of them to row 2, and one outside."""
    graph = graph_of([shaped(9, 40), IDS, shaped(6, 40)], lambda op, x, i, u: op(
        "scatter", x, i, u, axis=0, kind=kind))
    module = fuse(graph, TARGET)
    ids = np.array([2, 0, 2, 9, 5, 8], np.int32)
    inputs = np.ones((9, 40), np.float32), ids, np.full((6, 40), 0.5, np.float32)
    buffers = allocate(module, {name: x for (name, _), x in zip(module.inputs, inputs, strict=True)})
    buffers["out"][:] = 1.0
    return module.kernels[-1], buffers


def test_updates_of_one_place_by_two_threads_are_a_race():
    kernel, buffers = scatter_kernel()
    meeting = [replace(axis, kind=AxisKind.PARALLEL) for axis in kernel.axes]
    with pytest.raises(MachineFault, match=r"a race on out\[80\]"):
        run_lane(lower(replace(kernel, axes=tuple(meeting))), buffers, A100)


@pytest.mark.parametrize("mode", MODES)
def test_updates_add_up_and_those_outside_are_dropped(mode):
    kernel, buffers = scatter_kernel()
    MODES[mode](tile(kernel, TARGET), buffers)
    assert buffers["out"][:, 7].tolist() == [1.5, 1, 2, 1, 1, 1.5, 1, 1, 1.5]


def test_a_lookup_is_loaded_once_for_a_loop_along_its_row():
    graph = graph_of([shaped(9, 50), IDS], lambda op, x, i: op(
        "reduce", op("gather", x, i, axis=0), kind="sum", axes=[1]))
    module = fuse(graph, TARGET)
    buffers = allocate(module, {"x0": np.ones((9, 50), np.float32), "x1": np.arange(6, dtype=np.int32)})
    report = run_lane(lower(tile(module.kernels[-1], TARGET)), buffers, A100)
    assert buffers["out"].tolist() == [50.0] * 6
    assert (report.loads["x1"].requests, report.loads["x0"].requests) == (1, 50)


@pytest.mark.parametrize("mode", MODES)
def test_what_is_looked_up_outside_reads_as_the_fill(mode):
    place = Index(offset=-1, lookups=(Lookup("i", (Index.axis("n"),)),))
    x, y = Operand("x", "x", shaped(4), (place,), fill=7.0), Operand("y", "y", IDS, (Index.axis("n"),))
    load = Block("load", (), {"ref": "x"}, F32, ("n",))
    kernel = Kernel("copy", (Axis("n", 6, 6, AxisKind.PARALLEL),), (x,), (replace(y, type=shaped(6)),), (),
                    (Statement(Guard.ALWAYS, "y", load),), (Operand("i", "i", IDS, ()),))
    buffers = {"x": np.arange(4, dtype=np.float32), "y": np.zeros(6, np.float32),
               "i": np.array([1, 4, 0, 5, -(2**31), 2**31 - 1], np.int32)}
    MODES[mode](kernel, buffers)
    assert buffers["y"].tolist() == [0, 3, 7, 7, 7, 7]


@pytest.mark.parametrize("dtype, stride, ways", [
    (F32, 1, 1), (F32, 2, 2), (BF16, 2, 1), (BF16, 4, 2), (I8, 4, 1)])
def test_banks_are_four_bytes_wide(dtype, stride, ways):
    place = Expr("threadIdx.x") * stride
    body = Store("s", place, const(0, dtype)), Barrier(), Load("v", "s", place, dtype)
    report = run_lane(SimtKernel("hand", (), (Array("s", dtype, 256),), 1, (32, 1), body), {}, A100)
    assert report.shared.units == 2 * ways


@pytest.mark.parametrize("dtype, sectors", [(F32, 4), (BF16, 2), (U8, 1)])
def test_narrow_numbers_move_fewer_bytes(dtype, sectors):
    graph = graph_of([shaped(32, dtype=dtype)], lambda op, x: op("reverse", x, axes=[0]))
    module = fuse(graph, TARGET)
    buffers = allocate(module, {"x0": np.zeros(32, dtype.numpy)})
    report = run_lane(lower(tile(module.kernels[0], TARGET)), buffers, A100)
    assert report.loads["x0"].units == report.stores["out"].units == sectors


def test_the_tiles_of_a_convolution_are_along_its_channels():
    graph = graph_of([shaped(1, 1, 32, 16, 16), shaped(1, 16, 32, 3, 3)], lambda op, x, w: op(
        "convolution", x, w, low=[1, 1], high=[1, 1]))
    module = fuse(graph, TARGET)
    buffers = allocate(module, {"x0": np.ones((1, 1, 32, 16, 16), np.float32),
                                "x1": np.ones((1, 16, 32, 3, 3), np.float32)})
    report = run_lane(lower(tile(module.kernels[0], TARGET)), buffers, A100)
    # 16 rows of 16 x 16 outputs; 9 taps of 2 tiles; 8 warps, each of two stores and 2 * 16 loads
    assert report.shared.requests == 16 * 9 * 2 * 8 * (2 + 2 * 16)
    assert buffers["out"].reshape(16, 16, 16)[3, 0, :2].tolist() == [4 * 32, 6 * 32]
