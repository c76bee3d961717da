"""Every op of the graph's vocabulary, in every dtype, runs on the emulated TPU and gives what numpy gives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from minicc.compiler import Compiled, compile_graph
from minicc.graph.evaluate import evaluate
from minicc.graph.infer import build
from minicc.graph.ir import (
    BF16,
    BOOL,
    DTYPES,
    F16,
    F32,
    I8,
    I16,
    I32,
    U8,
    U32,
    Builder,
    DType,
    Graph,
    Type,
    Value,
    decode,
    encode,
)
from minicc.graph.text import parse_graph
from minicc.slots import using
from minicc.tpu.isa import Program
from minicc.tpu.text import parse

Ops = Callable[..., Value]
SEED = 11


def graph(make: Callable[..., Value], *arrays: np.ndarray) -> Graph:
    """The graph of `make(op, *inputs)`, where op(name, *operands, **attributes) makes a node."""
    builder = Builder()
    inputs = [builder.parameter(f"x{number}", Type.of(array)) for number, array in enumerate(arrays)]
    return builder.graph("test", inputs, [make(lambda op, *args, **attrs: build(builder, op, args, attrs),
                                               *inputs)])


def compiled(make: Callable[..., Value], *arrays: np.ndarray) -> Compiled:
    """That graph on the machine."""
    return compile_graph(graph(make, *arrays), "tpu:v5e")


def run(make: Callable[..., Value], *arrays: np.ndarray) -> np.ndarray:
    """What it gives."""
    return compiled(make, *arrays).run(arrays)[0]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(SEED).standard_normal(shape).astype(np.float32)


def integers(low: int, high: int, *shape: int, dtype: type = np.int32) -> np.ndarray:
    return np.random.default_rng(SEED).integers(low, high, shape).astype(dtype)


def close(found: np.ndarray, expected: np.ndarray, tolerance: float = 2e-6) -> None:
    """Within a tolerance, relative to the largest value."""
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= tolerance * max(1.0, np.abs(expected).max())


# ---- where to read ----

@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3)])
def test_a_gather_takes_along_any_axis_and_clamps(axis: int, shape: tuple[int, ...]):
    x, ids = normal(4, 6, 9), integers(-3, 12, *shape)
    found = run(lambda op, x, ids: op("gather", x, ids, axis=axis), x, ids)
    assert (found == np.take(x, ids, axis=axis, mode="clip")).all()


def test_a_gather_of_rows_reads_those_rows_and_no_more():
    x, ids = normal(1000, 256), np.array([999, 3, 3, 500], np.int32)
    program = compiled(lambda op, x, ids: op("gather", x, ids, axis=0), x, ids)
    (found,) = program.run([x, ids])
    assert (found == x[ids]).all()
    assert program.reports[0].hbm_read_bytes == 4 * 256 * 4 + 4 * 4


@pytest.mark.parametrize("starts", [(0, 0), (3, 7), (-2, 100), (2**31 - 1, -(2**31))])
def test_a_dynamic_slice_moves_back_inside(starts: tuple[int, int]):
    x, (i, j) = normal(10, 300), np.clip(starts, 0, (10 - 4, 300 - 200))
    given = [np.array(start, np.int32) for start in starts]
    found = run(lambda op, x, *at: op("dynamic_slice", x, *at, sizes=(4, 200)), x, *given)
    assert (found == x[i:i + 4, j:j + 200]).all()


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("shape", [(5, 7), (300, 200)])
def test_an_array_is_read_backwards(axes: tuple[int, ...], shape: tuple[int, int]):
    x = normal(*shape)
    assert (run(lambda op, x: op("reverse", x, axes=axes), x) == np.flip(x, axes)).all()


def test_a_padded_array_is_read_backwards():
    def make(op: Ops, x: Value) -> Value:
        zero = op("constant", value=np.float32(7))
        return op("reverse", op("pad", x, zero, low=(2, 3), high=(1, 150), interior=(0, 0)), axes=(0, 1))

    x = normal(20, 130)
    expected = np.flip(np.pad(x, ((2, 1), (3, 150)), constant_values=7))
    assert (run(make, x) == expected).all()


@pytest.mark.parametrize("axis", [0, 1])
def test_arrays_are_joined_along_any_axis(axis: int):
    arrays = [normal(*((n, 30) if axis == 0 else (30, n))) for n in (1, 100, 7)]
    found = run(lambda op, *xs: op("concatenate", *xs, axis=axis), *arrays)
    assert (found == np.concatenate(arrays, axis)).all()


@pytest.mark.parametrize(("count", "shape", "axis"), [
    (24, (200, 128), 0), (32, (40, 12), 1), (64, (3000,), 0), (20, (1, 1000), 0)])
def test_many_arrays_are_joined_without_running_out_of_registers(count: int, shape: tuple, axis: int):
    arrays = [normal(*shape) + number for number in range(count)]
    found = run(lambda op, *xs: op("concatenate", *xs, axis=axis), *arrays)
    assert (found == np.concatenate(arrays, axis)).all()


# ---- where to write ----

UPDATE = {"set": None, "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", UPDATE)
def test_a_scatter_updates_in_order_and_drops_what_lies_outside(kind: str, axis: int):
    x, ids = normal(7, 6), np.array([[2, 5, 2], [-1, 100, 5]], np.int32)
    updates = normal(*((2, 3, 6) if axis == 0 else (7, 2, 3)))
    expected = x.astype(np.float64)
    turned, parts = np.moveaxis(expected, axis, 0), np.moveaxis(updates, (axis, axis + 1), (0, 1))
    for place, part in zip(ids.ravel(), parts.reshape(6, -1), strict=True):
        if 0 <= place < len(turned):
            turned[place] = UPDATE[kind](turned[place], part) if UPDATE[kind] else part
    found = run(lambda op, *given: op("scatter", *given, axis=axis, kind=kind), x, ids, updates)
    close(found, expected)


@pytest.mark.parametrize("starts", [(0, 0), (3, 250), (-2, 100)])
def test_a_part_of_an_array_is_replaced(starts: tuple[int, int]):
    x, new = normal(10, 300), normal(4, 40)
    expected, (i, j) = x.copy(), np.clip(starts, 0, (10 - 4, 300 - 40))
    expected[i:i + 4, j:j + 40] = new
    given = [np.array(start, np.int32) for start in starts]
    assert (run(lambda op, *all: op("dynamic_update_slice", *all), x, new, *given) == expected).all()


def test_a_program_with_lookups_reads_back_from_its_text():
    x, ids, rows = normal(7, 6), np.array([2, 2, 9], np.int32), normal(3, 6)
    program = compiled(lambda op, *given: op("scatter", *given, axis=0, kind="sum"), x, ids, rows)
    program.run([x, ids, rows])
    assert isinstance(program.levels.program, Program) and "sld" in str(program.levels.program)
    assert parse(str(program.levels.program)) == program.levels.program


# ---- every dtype ----

def sample(dtype: DType, *shape: int) -> np.ndarray:
    """Random numbers of a dtype, stored."""
    if dtype.kind == "f":
        return encode(normal(*shape), dtype)
    if dtype == BOOL:
        return integers(0, 2, *shape, dtype=np.bool_)
    limits = np.iinfo(dtype.numpy)
    random = np.random.default_rng(SEED)
    return random.integers(limits.min, limits.max, shape, dtype.numpy, endpoint=True)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_every_dtype_is_moved_bit_by_bit(dtype: DType):
    x, y, ids = sample(dtype, 6, 140), sample(dtype, 3, 140), np.array([5, 0, 9], np.int32)

    def make(op: Ops, x: Value, y: Value, ids: Value) -> Value:
        rows = op("gather", op("reverse", x, axes=(0,)), ids, axis=0)
        joined = op("transpose", op("concatenate", rows, y, axis=0), perm=(1, 0))
        return op("scatter", joined, ids, op("transpose", y, perm=(1, 0)), axis=1, kind="set")

    expected = np.concatenate((np.take(x[::-1], ids, 0, mode="clip"), y)).T.copy()
    expected[:, [5, 0]] = y.T[:, :2]
    found = run(make, x, y, ids)
    assert found.dtype == dtype.numpy and (found == expected).all()


@pytest.mark.parametrize("dtype", [F32, I32, U32], ids=str)
@pytest.mark.parametrize("shape", [(40,), (3000,), (20, 200)])
def test_an_iota_counts_in_every_dtype(dtype: DType, shape: tuple[int, ...]):
    for axis in range(len(shape)):
        found = run(lambda op, axis=axis: op("iota", axis=axis, shape=shape, dtype=dtype))
        assert found.dtype == dtype.numpy and (found == np.indices(shape)[axis]).all()


@pytest.mark.parametrize("dtype", [I32, U32], ids=str)
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_integers_are_reduced_exactly(kind: str, dtype: DType, axes: tuple[int, ...]):
    x = sample(dtype, 30, 300) | 1  # odd, so that a product does not vanish
    with np.errstate(over="ignore"):
        expected = getattr(np, kind)(x, axis=axes, **({"dtype": x.dtype} if kind in ("sum", "prod") else {}))
    assert (run(lambda op, x: op("reduce", x, kind=kind, axes=axes), x) == expected).all()


@pytest.mark.parametrize("dtype", [BF16, F16, I8, I16, U8], ids=str)
def test_narrow_numbers_are_reduced_in_32_bits(dtype: DType):
    x = sample(dtype, 30, 300)
    found = decode(run(lambda op, x: op("reduce", x, kind="sum", axes=(1,)), x), dtype)
    if dtype.kind == "i":
        assert (found == x.sum(axis=1).astype(dtype.numpy)).all()
    else:
        expected = decode(x, dtype).astype(np.float64).sum(axis=1)
        close(found, expected, 2.0**-8 if dtype is BF16 else 2.0**-11)


# ---- products ----

@pytest.mark.parametrize(("dtype", "to", "tolerance"), [
    (BF16, F32, 2e-6), (BF16, BF16, 2.0**-8), (F16, F32, 2e-6), (F16, F16, 2.0**-11), (I8, I32, 0),
    (U8, I32, 0), (I32, I32, 0), (U32, U32, 0)], ids=str)
@pytest.mark.parametrize(("m", "n", "k"), [(20, 130, 40), (1, 40, 300), (5, 1, 1), (20, 130, 3)])
def test_a_dot_of_every_dtype(dtype: DType, to: DType, tolerance: float, m: int, n: int, k: int):
    x, w = sample(dtype, m, k), sample(dtype, k, n)
    given = {} if to is dtype else {"dtype": to}
    found = run(lambda op, x, w: op("dot_general", x, w, contract=((1,), (0,)), **given), x, w)
    assert found.dtype == to.numpy
    if dtype.kind == "i":
        exact = x.astype(np.int64) @ w.astype(np.int64)  # modulo 2**64
        assert (found.astype(np.uint32) == exact.astype(np.uint32)).all()
    else:
        wide = [decode(side, dtype).astype(np.float64) for side in (x, w)]
        close(decode(found, to), wide[0] @ wide[1], tolerance)


def test_a_small_dot_of_what_is_computed_needs_no_matrix_unit():
    def make(op: Ops, x: Value, w: Value) -> Value:
        return op("dot_general", op("abs", x), op("negate", w), contract=((0,), (1,)))

    x, w = normal(3, 37), normal(150, 3)
    close(run(make, x, w), np.abs(x).T.astype(np.float64) @ -w.T.astype(np.float64))
    assert "vmatmul" not in str(compiled(make, x, w).program)


def test_a_dot_of_bf16_takes_a_sixth_of_the_matrix_units_time():
    pairs = [(encode(normal(256, 256), dtype), encode(normal(256, 256), dtype)) for dtype in (F32, BF16)]
    cycles = []
    for pair in pairs:
        program = compiled(lambda op, x, w: op("dot_general", x, w, contract=((1,), (0,)), dtype=F32), *pair)
        program.run(pair)
        cycles.append(program.reports[0].mxu_busy_cycles)
    assert cycles == [2 * 2 * 256 * 6, 2 * 2 * 256]  # rows past two panels of columns, for two tiles of k


@pytest.mark.parametrize("dtype", [F32, BF16, U32], ids=str)
@pytest.mark.parametrize(("m", "n", "k"), [(12, 726, 223), (718, 18, 724), (527, 12, 823)])
def test_the_masks_of_a_ragged_dot_find_registers(dtype: DType, m: int, n: int, k: int):
    x, w = sample(dtype, m, k), sample(dtype, n, k)
    to = F32 if dtype.kind == "f" else dtype
    with using(tile=lambda kernel, target: kernel.tiled({a.name: min(a.size, 512) for a in kernel.axes})):
        program = compiled(lambda op, x, w: op("dot_general", x, w, contract=((1,), (1,)), dtype=to), x, w)
    assert any(axis.ragged for kernel in program.module.kernels for axis in kernel.axes)


# ---- convolutions ----

@pytest.mark.parametrize("text", [
    "graph f(x: f32[2,3,1,3,7], w: f32[3,2,1,1,2]) { %0 = convolution(x, w) stride=[1,2] dilation=[2,2] "
    "low=[0,0] high=[2,3] : f32[2,3,2,5,4] return %0 }",  # rows beyond the image
    "graph f(x: f32[3,1,2,7], w: f32[1,1,2,2]) { %0 = convolution(x, w) low=[0] high=[2] : f32[3,1,1,8] "
    "%1 = reduce(%0) kind=sum axes=[0,2] : f32[1,8] return %1 }",  # a buffer that both see differently
    "graph f(x: f32[1,3,1,3], w: f32[3,2,1,1]) { %0 = convolution(x, w) stride=[2] dilation=[2] low=[0] "
    "high=[2] : f32[1,3,2,3] return %0 }",  # a window of one tap
])
def test_convolutions_at_the_edge_of_what_unfolds(text: str):
    parsed = parse_graph(text)
    arrays = [normal(*value.shape) for value in parsed.inputs]
    close(compile_graph(parsed, "tpu:v5e").run(arrays)[0], evaluate(parsed, arrays, dtype64=True)[0])


def convolved(x: np.ndarray, w: np.ndarray, stride: tuple, dilation: tuple, low: tuple,
              high: tuple) -> np.ndarray:
    """x[N, G, C, *S] by w[G, O, C, *K] in float64, one tap after the other."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    x = np.pad(x, [(0, 0)] * 3 + list(zip(low, high, strict=True)))
    steps = list(zip(x.shape[3:], w.shape[3:], stride, dilation, strict=True))
    sizes = [(size - (taps - 1) * apart - 1) // step + 1 for size, taps, step, apart in steps]
    total = 0.0
    for tap in np.ndindex(w.shape[3:]):
        cut = [slice(k * apart, k * apart + (size - 1) * step + 1, step)
               for k, size, step, apart in zip(tap, sizes, stride, dilation, strict=True)]
        total = total + np.einsum("ngc...,goc->ngo...", x[(..., *cut)], w[(..., *tap)])
    return total


@pytest.mark.parametrize(("x", "w", "stride", "dilation", "low", "high"), [
    ((2, 1, 3, 8, 9), (1, 4, 3, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    ((1, 2, 3, 8, 9), (2, 4, 3, 3, 2), (2, 1), (1, 2), (1, 2), (0, 1)),
    ((3, 1, 5, 20), (1, 4, 5, 3), (2,), (3,), (0,), (0,)),
    ((1, 4, 1, 10, 10), (4, 1, 1, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    ((1, 1, 2, 4, 5, 6), (1, 3, 2, 2, 2, 2), (1, 1, 2), (1, 1, 1), (0, 1, 0), (1, 0, 0)),
    ((1, 1, 20, 12, 12), (1, 30, 20, 1, 1), (1, 1), (1, 1), (0, 0), (0, 0))])
def test_a_convolution_is_the_sum_over_its_window(x: tuple, w: tuple, stride: tuple, dilation: tuple,
                                                  low: tuple, high: tuple):
    a, b = normal(*x), normal(*w)[..., ::-1].copy()
    attrs = dict(stride=stride, dilation=dilation, low=low, high=high)
    found = run(lambda op, x, w: op("convolution", x, w, **attrs), a, b)
    close(found, convolved(a, b, **attrs))
