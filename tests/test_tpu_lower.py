"""Lowered kernels give on the emulator, with every check on, what numpy gives in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernels import accumulating, axes, compiled, constant, kernel, load, module, op, operand, outputs

from minicc.devices import find
from minicc.errors import CompileError
from minicc.graph.ir import BF16, BOOL, F16, F32, I8, I32, U8, U32, DType, decode, encode
from minicc.kernel.ir import Index, Kernel, Scratch
from minicc.kernel.memory import Space, plan
from minicc.tpu.emulator import run
from minicc.tpu.isa import KERNEL_LABEL
from minicc.tpu.text import parse

RANDOM = np.random.default_rng(7)
COMBINE = {"sum": "add", "max": "maximum", "min": "minimum", "prod": "multiply"}


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def wide(*arrays: np.ndarray) -> list[np.ndarray]:
    return [array.astype(np.float64) for array in arrays]


def close(found: np.ndarray, expected: np.ndarray, tolerance: float = 2e-6) -> None:
    """Within a tolerance, relative to the largest value."""
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= tolerance * max(1.0, np.abs(expected).max())


# ---- elementwise ----

@pytest.mark.parametrize(("n", "block"), [(1000, 1000), (1025, 1024), (1025, 1025), (40000, 8192)])
def test_a_vector_fills_rows_and_lanes_whatever_its_size(n: int, block: int):
    x, y, z = (operand(name, F32, (n,), "n") for name in "xyz")
    k = kernel("add", axes(n=(n, block, "p")), z, op("add", load(x), op("multiply", load(y), 2.0)), x, y)
    a, b = normal(n), normal(n)
    (found,) = outputs(module(k), x=a, y=b)
    close(found, wide(a)[0] + 2 * wide(b)[0])


@pytest.mark.parametrize(("m", "n", "blocks"), [
    (7, 129, (7, 129)), (200, 300, (64, 128)), (200, 300, (8, 300))])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_rows_and_columns_broadcast_over_a_matrix(m: int, n: int, blocks: tuple[int, int], depth: int):
    x, y = operand("x", F32, (m, n), "m", "n"), operand("y", F32, (m, n), "m", "n")
    row, column = operand("row", F32, (n,), "n"), operand("column", F32, (m,), "m")
    value = op("multiply", op("add", load(x), load(row)), load(column))
    k = kernel("bias", axes(m=(m, blocks[0], "p"), n=(n, blocks[1], "p")), y, value, x, row, column)
    a, b, c = normal(m, n), normal(n), normal(m)
    (found,) = outputs(module(k), depth=depth, x=a, row=b, column=c)
    a, b, c = wide(a, b, c)
    close(found, (a + b) * c[:, None])


def test_integers_bools_and_indices_are_exact():
    n = 1100
    x, y, z = (operand(name, I32, (n,), "n") for name in "xyz")
    both = op("and", op("compare", load(x), load(y), dtype=BOOL, direction="lt"),
              op("not", op("compare", load(x), 3, dtype=BOOL, direction="eq")))
    index = op("iota", index=Index((("n", 2),), 1), dtype=I32)
    value = op("select", both, op("abs", op("subtract", load(x), load(y))), op("add", load(x), index))
    k = kernel("ints", axes(n=(n, 1024, "p")), z, value, x, y)
    a, b = RANDOM.integers(-9, 9, (2, n), dtype=np.int32)
    (found,) = outputs(module(k), x=a, y=b)
    assert (found == np.where((a < b) & (a != 3), np.abs(a - b), a + 2 * np.arange(n) + 1)).all()


def test_bools_are_read_and_written():
    p, q, z = (operand(name, BOOL, (20, 200), "m", "n") for name in "pqz")
    value = op("or", load(p), op("not", load(q)))
    k = kernel("either", axes(m=(20, 8, "p"), n=(200, 128, "p")), z, value, p, q)
    a, b = RANDOM.integers(0, 2, (2, 20, 200)).astype(bool)
    (found,) = outputs(module(k), p=a, q=b)
    assert found.dtype == bool and (found == (a | ~b)).all()


def test_an_index_counts_rows_and_lanes():
    z = operand("z", F32, (20, 200), "m", "n")
    rows = op("convert", op("iota", index=Index((("m", 3),), 1), dtype=I32), dtype=F32)
    k = kernel("iota", axes(m=(20, 8, "p"), n=(200, 128, "p")), z,
               op("add", rows, op("iota", index=Index.axis("n"), dtype=F32)))
    (found,) = outputs(module(k))
    assert (found == 3 * np.arange(20)[:, None] + 1 + np.arange(200)).all()


# ---- how blocks are read ----

@pytest.mark.parametrize("blocks", [(70, 300), (32, 128)])
def test_a_matrix_is_transposed_through_the_cross_lane_units(blocks: tuple[int, int]):
    x, y = operand("x", F32, (300, 70), "n", "m"), operand("y", F32, (70, 300), "m", "n")
    k = kernel("transpose", axes(m=(70, blocks[0], "p"), n=(300, blocks[1], "p")), y, load(x), x)
    a = normal(300, 70)
    (found,) = outputs(module(k), x=a)
    assert (found == a.T).all()


def test_slices_with_strides_and_offsets_are_read_by_the_copy():
    x = operand("x", F32, (20, 1000), Index((("m", 2),), 3), Index((("n", 3),), 5))
    y = operand("y", F32, (8, 300), "m", "n")
    k = kernel("slice", axes(m=(8, 8, "p"), n=(300, 128, "p")), y, op("negate", load(x)), x)
    a = normal(20, 1000)
    (found,) = outputs(module(k), x=a)
    assert (found == -a[3:19:2, 5:905:3]).all()


def test_a_block_may_be_moved_along_an_axis_it_does_not_span():
    both = Index((("k", 2), ("n", 1)), -3)
    x, y = operand("x", F32, (6, 300), "m", both, fill=0.0), operand("y", F32, (6, 300), "m", "n")
    acc, grid = Scratch("acc", F32, ("m", "n")), {"m": (6, 6, "p"), "n": (300, 128, "p")}
    update = op("add", load(acc), op("reduce", load(x), kind="sum", axes=("k",)))
    a = normal(6, 300)
    k = accumulating("window", axes(**grid, k=(4, 1, "s")), y, acc, 0.0, update, load(acc), x)
    (found,) = outputs(module(k), x=a)
    padded = np.pad(wide(a)[0], ((0, 0), (3, 3)))
    close(found, sum(padded[:, tap:tap + 300] for tap in (0, 2, 4, 6)))
    with pytest.raises(CompileError, match=r"leaves its array(.|\n)*n=128 in dimension 1(.|\n)*train.py:12"):
        compiled(module(replace(k, axes=axes(m=(6, 1, "p"), n=(300, 128, "p"), k=(4, 4, "s")))))


@pytest.mark.parametrize("blocks", [(30, 300), (8, 128)])
def test_outside_of_its_array_a_padded_operand_reads_as_its_fill(blocks: tuple[int, int]):
    x = operand("x", F32, (20, 100), Index((("m", 1),), -3), Index((("n", 1),), -5), fill=1.5)
    y = operand("y", F32, (30, 300), "m", "n")
    k = kernel("pad", axes(m=(30, blocks[0], "p"), n=(300, blocks[1], "p")), y, op("negate", load(x)), x)
    a = normal(20, 100)
    (found,) = outputs(module(k), x=a)
    assert (found == -np.pad(a, ((3, 7), (5, 195)), constant_values=1.5)).all()


def test_a_block_that_lies_outside_altogether_copies_nothing_and_reads_back_from_text():
    x = operand("x", F32, (4, 100), Index((("b", 1),), -1), Index((("n", 1),), -5), fill=1.5)
    y = operand("y", F32, (6, 300), "b", "n")
    mod = module(kernel("pad", axes(b=(6, 1, "p"), n=(300, 300, "p")), y, op("negate", load(x)), x))
    a = normal(4, 100)
    (found,) = outputs(mod, x=a)
    assert (found == -np.pad(a, ((1, 1), (5, 195)), constant_values=1.5)).all()
    assert parse(str(compiled(mod))) == compiled(mod)


def test_a_body_in_which_everything_is_used_twice_is_lowered_once():
    x, y = operand("x", F32, (3000,), "n"), operand("y", F32, (3000,), "n")
    value = load(x)
    for _ in range(100):
        value = op("add", value, op("multiply", value, 0.01))
    k = kernel("deep", axes(n=(3000, 1024, "p")), y, value, x)
    (found,) = outputs(module(k), x=np.ones(3000, np.float32))
    close(found, np.full(3000, 1.01**100), 1e-4)


# ---- reductions ----

@pytest.mark.parametrize(("m", "n", "block"), [(37, 10, 8), (20, 1000, 16), (3, 5000, 3)])
def test_softmax_of_rows_masks_what_is_no_part_of_a_row(m: int, n: int, block: int):
    x, y = operand("x", F32, (m, n), "m", "n"), operand("y", F32, (m, n), "m", "n")
    power = op("exp", op("subtract", load(x), op("reduce", load(x), kind="max", axes=("n",))))
    value = op("divide", power, op("reduce", power, kind="sum", axes=("n",)))
    a = 5 * normal(m, n)
    (found,) = outputs(module(kernel("softmax", axes(m=(m, block, "p"), n=(n, n, "w")), y, value, x)), x=a)
    powers = np.exp(wide(a)[0] - a.max(axis=1, keepdims=True))
    close(found, powers / powers.sum(axis=1, keepdims=True))


@pytest.mark.parametrize(("n", "block"), [(1000, 1000), (5000, 1024), (100000, 16384)])
@pytest.mark.parametrize(("kind", "start"), [("sum", 0.0), ("max", -np.inf), ("min", np.inf), ("prod", 1.0)])
def test_a_whole_array_is_reduced_step_by_step(n: int, block: int, kind: str, start: float):
    x, y, acc = operand("x", F32, (n,), "k"), operand("y", F32, ()), Scratch("acc", F32, ())
    update = op(COMBINE[kind], load(acc), op("reduce", load(x), kind=kind, axes=("k",)))
    k = accumulating("total", axes(k=(n, block, "s")), y, acc, start, update, load(acc), x)
    a = normal(n) if kind != "prod" else (1 + normal(n) / 1000).astype(np.float32)
    (found,) = outputs(module(k), x=a)
    expected = getattr(np, kind)(wide(a)[0])
    assert abs(found - expected) <= 1e-5 * max(abs(expected), np.sqrt(n))


@pytest.mark.parametrize("blocks", [(100, 300), (32, 128)])
@pytest.mark.parametrize("reduced", ["m", "n"])
def test_rows_and_columns_are_summed(blocks: tuple[int, int], reduced: str):
    sizes, kept = {"m": 100, "n": 300}, "n" if reduced == "m" else "m"
    x, y = operand("x", F32, (100, 300), "m", "n"), operand("y", F32, (sizes[kept],), kept)
    acc, block = Scratch("acc", F32, (kept,)), dict(zip("mn", blocks, strict=True))
    update = op("add", load(acc), op("reduce", load(x), kind="sum", axes=(reduced,)))
    grid = axes(**{kept: (sizes[kept], block[kept], "p"), reduced: (sizes[reduced], block[reduced], "s")})
    a = normal(100, 300)
    (found,) = outputs(module(accumulating("sum", grid, y, acc, 0.0, update, load(acc), x)), x=a)
    close(found, wide(a)[0].sum(axis="mn".index(reduced)))


# ---- dots ----

def linear(m: int, n: int, k: int, blocks: tuple[int, int, int], turned: str = "") -> Kernel:
    """y = relu(x @ w + b); `turned` names the matrices that lie transposed in memory."""
    def matrix(name: str, rows: int, cols: int, *index: str):
        flip = name in turned
        return operand(name, F32, (cols, rows) if flip else (rows, cols), *(index[::-1] if flip else index))

    x, w, y = matrix("x", m, k, "m", "k"), matrix("w", k, n, "k", "n"), matrix("y", m, n, "m", "n")
    b, acc = operand("b", F32, (n,), "n"), Scratch("acc", F32, ("m", "n"))
    update = op("add", load(acc), op("dot", load(x), load(w), contract=("k",)))
    grid = axes(m=(m, blocks[0], "p"), n=(n, blocks[1], "p"), k=(k, blocks[2], "s"))
    value = op("maximum", op("add", load(acc), load(b)), 0.0)
    return accumulating("linear", grid, y, acc, 0.0, update, value, x, w, b)


def check_linear(m: int, n: int, k: int, blocks: tuple[int, int, int], turned: str = "") -> None:
    x, w, b = normal(m, k), normal(k, n), normal(n)
    given = {name: a.T if name in turned else a for name, a in (("x", x), ("w", w), ("b", b))}
    (found,) = outputs(module(linear(m, n, k, blocks, turned)), **given)
    x, w, b = wide(x, w, b)
    close(found.T if "y" in turned else found, np.maximum(x @ w + b, 0.0))


@pytest.mark.parametrize(("m", "n", "k", "blocks"), [
    (64, 16, 32, (64, 16, 32)), (200, 130, 300, (64, 128, 128)), (200, 130, 300, (200, 130, 300)),
    (9, 700, 140, (9, 700, 128)), (512, 512, 512, (256, 512, 256))])
def test_a_dot_with_bias_and_relu_is_right_at_ragged_edges(m: int, n: int, k: int, blocks: tuple):
    check_linear(m, n, k, blocks)


@pytest.mark.parametrize("turned", ["x", "w", "y", "xw", "xwy"])
def test_a_dot_reads_and_writes_matrices_either_way_round(turned: str):
    check_linear(100, 60, 130, (64, 60, 128), turned)


def test_a_dot_with_one_row_is_multiplied_on_the_vector_alu():
    x, v = operand("x", F32, (100, 300), "m", "k"), operand("v", F32, (300,), "k")
    y, acc = operand("y", F32, (100,), "m"), Scratch("acc", F32, ("m",))
    update = op("add", load(acc), op("dot", load(x), load(v), contract=("k",)))
    grid = axes(m=(100, 64, "p"), k=(300, 128, "s"))
    k = accumulating("matvec", grid, y, acc, 0.0, update, load(acc), x, v)
    a, b = normal(100, 300), normal(300)
    (found,) = outputs(module(k), x=a, v=b)
    close(found, wide(a)[0] @ wide(b)[0])
    assert not any("vmatmul" in o.op for bundle in compiled(module(k)).bundles for o in bundle.ops)


def test_a_batch_of_dots_is_one_dot_at_each_step():
    x, w = operand("x", F32, (3, 50, 70), "b", "m", "k"), operand("w", F32, (3, 70, 90), "b", "k", "n")
    y, acc = operand("y", F32, (3, 50, 90), "b", "m", "n"), Scratch("acc", F32, ("b", "m", "n"))
    update = op("add", load(acc), op("dot", load(x), load(w), contract=("k",)))
    grid = axes(b=(3, 1, "p"), m=(50, 50, "p"), n=(90, 90, "p"), k=(70, 70, "s"))
    a, b = normal(3, 50, 70), normal(3, 70, 90)
    (found,) = outputs(module(accumulating("batch", grid, y, acc, 0.0, update, load(acc), x, w)), x=a, w=b)
    close(found, wide(a)[0] @ wide(b)[0])


def test_the_matrix_units_are_busy_for_most_of_a_large_dot():
    program = compiled(module(linear(512, 512, 512, (512, 512, 512))))
    result = run(program, {"x": normal(512, 512), "w": normal(512, 512), "b": normal(512)})
    assert result.mxu_busy_cycles == 512 * 4 * 6 * 4  # rows, panels, f32's passes, tiles of k: none twice
    waits = sum(cycles for cause, cycles in result.causes.items() if cause.startswith("dma"))
    assert result.mxu_busy_cycles / result.mxus > 0.8 * (result.cycles - waits)


# ---- kernels that meet, and the program as a whole ----

@pytest.mark.parametrize(("m", "n", "first", "second"), [
    (128, 256, (64, 128), (32, 256)), (130, 300, (64, 128), (24, 256)), (9, 10, (9, 10), (9, 10))])
def test_two_kernels_meet_in_vmem(m: int, n: int, first: tuple[int, int], second: tuple[int, int]):
    x, h, y = (operand(name, F32, (m, n), "m", "n") for name in "xhy")
    one = kernel("one", axes(m=(m, first[0], "p"), n=(n, first[1], "p")), h, op("tanh", load(x)), x)
    square = op("multiply", load(h), load(h))
    two = kernel("two", axes(m=(m, second[0], "p"), n=(n, second[1], "p")), y, square, h)
    mod = module(one, two)
    places = plan(mod, find("tpu").target)
    assert places.placements["h"].space is Space.VMEM
    a = normal(m, n)
    (found,) = outputs(mod, places, x=a)
    close(found, np.tanh(wide(a)[0]) ** 2)
    moved = run(compiled(mod, places), {"x": a})
    assert (moved.hbm_read_bytes, moved.hbm_write_bytes) == (a.nbytes, a.nbytes)  # h never leaves the chip


@pytest.mark.parametrize("size", [(200, 130, 300, (64, 128, 128)), (512, 512, 512, (512, 512, 512))])
def test_the_text_of_a_program_is_the_program(size: tuple):
    program = compiled(module(linear(*size)))
    again = parse(str(program))
    assert again == program
    m, n, k, _ = size
    given = {"x": normal(m, k), "w": normal(k, n), "b": normal(n)}
    first, second = run(program, given), run(again, given)
    assert first.cycles == second.cycles and (first.outputs["y"] == second.outputs["y"]).all()


def test_every_bundle_of_a_kernel_names_the_users_line_and_the_kernel_a_label():
    program = compiled(module(linear(64, 16, 32, (64, 16, 32))))
    assert all([str(loc) for loc in bundle.locs] == ["train.py:12"] for bundle in program.bundles)
    assert dict(program.labels)[f"{KERNEL_LABEL}linear"] == 0


def test_a_grid_is_a_loop_and_a_longer_one_needs_no_more_bundles():
    short, long = (compiled(module(linear(m, 130, 300, (64, 128, 128)))) for m in (128, 64 * 50))
    assert len(long.bundles) == len(short.bundles)


def test_a_block_of_three_dimensions_is_refused_with_the_users_line():
    x, y = (operand(name, F32, (4, 8, 16), "a", "b", "c") for name in "xy")
    with pytest.raises(CompileError, match=r"rows and columns.*a=4 x b=8 x c=16(.|\n)*train.py:12"):
        compiled(module(kernel("cube", axes(a=(4, 4, "p"), b=(8, 8, "p"), c=(16, 16, "p")), y, load(x), x)))


@pytest.mark.parametrize("blocks", [(40, 130, 150), (24, 128, 128)])
@pytest.mark.parametrize("dtype", [I32, U32, I8, U8, BF16, F16], ids=str)
def test_a_dot_of_every_dtype_is_exact_or_rounds_once(dtype: DType, blocks: tuple[int, int, int]):
    m, n, k = 40, 130, 150
    to = I32 if dtype.narrow and dtype.kind == "i" else F32 if dtype.kind == "f" else dtype
    x, w = operand("x", dtype, (m, k), "m", "k"), operand("w", dtype, (k, n), "k", "n")
    y, acc = operand("y", to, (m, n), "m", "n"), Scratch("acc", to, ("m", "n"))
    update = op("add", load(acc), op("dot", load(x), load(w), dtype=to, contract=("k",)), dtype=to)
    grid = axes(m=(m, blocks[0], "p"), n=(n, blocks[1], "p"), k=(k, blocks[2], "s"))
    start = to.numpy.type(0)
    mod = module(accumulating("dot", grid, y, acc, start, update, load(acc), x, w))
    if dtype.kind == "f":
        a, b = encode(normal(m, k), dtype), encode(normal(k, n), dtype)
        left, right = wide(decode(a, dtype), decode(b, dtype))
        close(outputs(mod, x=a, w=b)[0], left @ right)
        return
    limits = np.iinfo(dtype.numpy)
    a, b = (RANDOM.integers(limits.min, limits.max, shape, dtype.numpy, endpoint=True)
            for shape in ((m, k), (k, n)))
    a[:2], b[:, :2] = limits.min, limits.max  # the largest products of all
    exact = (a.astype(np.int64) @ b.astype(np.int64)).astype(np.uint32)  # modulo 2**64, and so 2**32
    assert (outputs(mod, x=a, w=b)[0].view(np.uint32) == exact).all()


def test_a_constant_alone_fills_its_output():
    y = operand("y", F32, (20, 200), "m", "n")
    (found,) = outputs(module(kernel("fill", axes(m=(20, 8, "p"), n=(200, 128, "p")), y, constant(2.5))))
    assert (found == 2.5).all()
