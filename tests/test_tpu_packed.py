"""Numbers of 16 and 8 bits take two bytes and one, in HBM, in VMEM and on the way."""

from __future__ import annotations

import numpy as np
import pytest
from tpu_programs import run_both

import minicc as mc
from minicc import compiler
from minicc.frontend.convolution import conv2d
from minicc.tpu.emulator import run
from minicc.tpu.memory import Area, charged_bytes, split
from minicc.tpu.stepping import Run
from minicc.tpu.text import parse

DTYPES = {"bf16": 2, "f16": 2, "i16": 2, "i8": 1, "u8": 1, "bool": 1, "f32": 4}
SIZES = (1, 7, 127, 129)


def whole(shape: tuple[int, ...], dtype: str, seed: int = 0) -> mc.Tensor:
    """Small whole numbers, which every dtype has and adds exactly."""
    numbers = np.random.default_rng(seed).integers(0, 2 if dtype == "bool" else 6, shape)
    return mc.Tensor(numbers.astype(np.int32)).astype(dtype)


def integers(x: mc.Tensor) -> np.ndarray:
    """Its numbers, exactly."""
    return np.asarray(x.numpy()).astype(np.int64)


def report_of(function, *args: mc.Tensor) -> tuple[np.ndarray, Run]:
    """What a function gives on a v5e, and the report of its run."""
    compiled = mc.compile(function, *args, device="tpu:v5e")
    return compiled(*args).numpy(), compiled.reports[0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_elementwise_kernel_moves_the_bytes_of_its_dtype(dtype: str):
    x, y = whole((64, 300), dtype), whole((64, 300), dtype, 1)
    got, run = report_of(lambda x, y: x | y if dtype == "bool" else x + y, x, y)
    a, b = integers(x), integers(y)
    assert np.array_equal(got, a | b if dtype == "bool" else a + b)
    size = 64 * 300 * DTYPES[dtype]
    assert (run.hbm_read_bytes, run.hbm_write_bytes, run.hbm_charged_bytes) == (2 * size, size, 3 * size)


@pytest.mark.parametrize("dtype", DTYPES)
def test_shapes_that_fill_no_register_are_right_in_every_dtype(dtype: str):
    for rows, columns in [(rows, columns) for rows in SIZES for columns in SIZES]:
        x, y = whole((rows, columns), dtype), whole((columns,), dtype, 1)
        got, run = report_of(lambda x, y: x & y if dtype == "bool" else x * y, x, y)
        assert np.array_equal(got, integers(x) * integers(y)), (rows, columns)
        assert run.hbm_write_bytes == rows * columns * DTYPES[dtype]


@pytest.mark.parametrize("dtype", ["bf16", "f16", "i8", "u8", "i16"])
@pytest.mark.parametrize("rows", SIZES)
def test_what_turns_reduces_and_shifts_rows_is_right_in_packed_ones(dtype: str, rows: int):
    x = whole((rows, 130), dtype)
    functions = {
        "transpose": lambda x: x.T, "max": lambda x: x.max(axis=0), "a slice": lambda x: x[rows // 2:, 3:],
        "padding": lambda x: mc.pad(x, ((3, 1), (5, 2))), "reverse": lambda x: mc.flip(x, 0)}
    a = integers(x)
    wanted = {"transpose": a.T, "max": a.max(axis=0), "a slice": a[rows // 2:, 3:],
              "padding": np.pad(a, ((3, 1), (5, 2))), "reverse": a[::-1]}
    for name, function in functions.items():
        assert np.array_equal(mc.compile(function, x, device="tpu:v5e")(x).numpy(), wanted[name]), name


def test_a_product_of_bf16_moves_half_the_bytes_and_one_of_i8_a_quarter():
    for dtype, itemsize in (("f32", 4), ("bf16", 2), ("i8", 1)):
        x, y = whole((128, 256), dtype), whole((256, 384), dtype, 1)
        got, run = report_of(lambda x, y: mc.einsum("mk,kn->mn", x, y), x, y)
        assert run.hbm_read_bytes == (128 * 256 + 256 * 384) * itemsize
        want = integers(x) @ integers(y)
        assert np.allclose(got, want.astype(got.dtype), rtol=2**-8 if dtype == "bf16" else 0)


def test_element_r_c_of_a_packed_block_lies_in_its_part_of_a_word():
    for dtype, fit in ((np.dtype(np.uint16), 2), (np.dtype(np.int8), 4)):
        words = np.zeros((32, 128), np.uint32)
        block = Area("VMEM", "x", words, np.zeros((32, 128), bool), np.zeros((32, 128), np.uint8), dtype)
        given = np.arange(1, 1 + 9 * 200).reshape(9, 200).astype(dtype)
        array = Area("HBM", "y", given, np.ones((9, 200), bool), np.zeros((9, 200), np.uint8))
        for target, source in split((block, 3), (array, 0), (9, 200), (200, 1), panel=16):
            target.words[...] = source.words
        elements = words.view(dtype).reshape(32, 128, fit)
        for row, column in [(0, 0), (1, 127), (8, 128), (5, 199)]:
            place = 3 + row + column // 128 * 16
            assert elements[place // fit, column % 128, place % fit] == given[row, column]


@pytest.mark.parametrize("shape, strides, itemsize, charged", [
    ((8, 128), (128, 1), 2, 2048), ((8, 128), (512, 1), 2, 8 * 256), ((20, 10), (16, 1), 1, 20 * 32),
    ((4, 8), (1, 64), 2, 32 * 32)])
def test_runs_are_charged_by_the_bytes_they_have(
    shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, charged: int
):
    assert charged_bytes(shape, strides, 32, itemsize) == charged


def test_blocks_of_bf16_take_half_the_rows_of_vmem():
    buffers = {}
    for dtype in ("f32", "bf16", "i8"):
        x = whole((64, 256), dtype)
        program = mc.compile(lambda x: x + x, x, device="tpu:v5e").program
        buffers[dtype] = sum(buffer.rows for buffer in program.vmem)
    assert buffers["f32"] == 2 * buffers["bf16"] == 4 * buffers["i8"] == 2 * 64 * 2


@pytest.mark.parametrize("dtype", ["bf16", "i8"])
def test_packed_programs_give_the_same_bits_by_blocks_and_step_by_step(
    dtype: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(compiler, "run_tpu", run_both)
    x, y = whole((50, 200), dtype), whole((200, 40), dtype, 1)
    got, _ = report_of(lambda x, y: x @ y, x, y)
    want = integers(x) @ integers(y)
    assert np.allclose(got, want.astype(got.dtype), rtol=2**-8 if dtype == "bf16" else 0)


def test_rows_of_bf16_go_from_memory_to_the_matrix_units_as_they_lie():
    x, y = whole((128, 128), "bf16"), whole((128, 128), "bf16", 1)
    program = mc.compile(lambda x, y: mc.einsum("mk,kn->mn", x, y), x, y, device="tpu:v5e").program
    loads, pushes = ({op.dst if op.op == "vld" else op.srcs[0] for bundle in program.bundles
                      for op in bundle.ops if op.op.startswith(name)} for name in ("vld", "vmat"))
    assert pushes <= loads


def test_floats_that_are_rounded_and_stored_are_packed_once_two_registers_at_a_time():
    x = whole((128, 128), "f32")
    program = mc.compile(lambda x: (x + 1.0).astype("bf16"), x, device="tpu:v5e").program
    names = [op.op for bundle in program.bundles for op in bundle.ops]
    assert names.count("vpack.bf16") == names.count("vst") == names.count("vadd.f32") // 2
    assert "vunpack.bf16" not in names


@pytest.mark.parametrize("channels", [1, 7, 17, 33])
@pytest.mark.parametrize("dtype", ["bf16", "i8"])
def test_a_convolution_of_packed_channels_is_exact(dtype: str, channels: int):
    x, w = whole((1, channels, 9, 10), dtype), whole((3, channels, 3, 3), dtype, 1)
    got = mc.compile(lambda x, w: conv2d(x, w, padding=1), x, w, device="tpu:v5e")(x, w).numpy()
    padded = np.pad(integers(x), ((0, 0), (0, 0), (1, 1), (1, 1)))
    want = sum(np.einsum("bchw,oc->bohw", padded[:, :, i:i + 9, j:j + 10], integers(w)[:, :, i, j])
               for i in range(3) for j in range(3))
    assert np.allclose(got, np.asarray(want).astype(got.dtype), rtol=2**-8 if dtype == "bf16" else 0)


@pytest.mark.parametrize("device, dtype, busy", [
    ("v5e", "f32", 6 * 2 * 2 * 256), ("v5e", "bf16", 2 * 2 * 256), ("v5e", "i8", 2 * 2 * 256 // 2),
    ("v5e", "u8", 2 * 2 * 256 // 2), ("v4", "i8", 2 * 2 * 256), ("v2", "i8", 2 * 2 * 256),
    ("v6e", "bf16", 256 // 2), ("v6e", "i8", 256 // 4)])
def test_matrix_units_take_rows_at_the_rate_of_their_dtype(device: str, dtype: str, busy: int):
    x, y = whole((256, 256), dtype), whole((256, 256), dtype, 1)
    compiled = mc.compile(lambda x, y: mc.einsum("mk,kn->mn", x, y), x, y, device=f"tpu:{device}")
    got = compiled(x, y).numpy()
    assert np.allclose(got, integers(x) @ integers(y), rtol=2**-8 if dtype == "bf16" else 0)
    assert compiled.reports[0].mxu_busy_cycles == busy  # tiles of weights, times rows, by rows a cycle


@pytest.mark.parametrize("m, k, n", [(17, 40, 300), (300, 129, 7), (384, 385, 129)])
def test_arrays_of_256_give_what_those_of_128_give_leaping_or_not(
    m: int, k: int, n: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(compiler, "run_tpu", run_both)
    x, y = whole((m, k), "f32"), whole((n, k), "f32", 1)
    got = mc.compile(lambda x, y: x @ y.T, x, y, device="tpu:v6e")(x, y).numpy()
    assert np.array_equal(got, integers(x) @ integers(y).T)


def test_attention_runs_on_arrays_of_256():
    q, k, v = (mc.Tensor(np.random.default_rng(seed).normal(size=(70, 64)).astype(np.float32))
               for seed in range(3))
    got = mc.compile(lambda q, k, v: (q @ k.T / 8.0).softmax(axis=-1) @ v, q, k, v, device="tpu:v6e")(q, k, v)
    a, b, c = (one.numpy().astype(np.float64) for one in (q, k, v))
    scores = np.exp(a @ b.T / 8.0)
    assert np.allclose(got.numpy(), scores / scores.sum(axis=1, keepdims=True) @ c, atol=1e-5)


def test_signed_and_unsigned_bytes_meet_in_a_product():
    x, y = whole((70, 300), "i8"), whole((300, 65), "u8", 1)
    x, y = x * mc.Tensor(np.int8(-20)), y * mc.Tensor(np.uint8(50))  # from -100, and to 250
    got, _ = report_of(lambda x, y: mc.einsum("mk,kn->mn", x, y), x, y)
    assert np.array_equal(got, integers(x) @ integers(y))


COPIES = """
hbm x: bf16[4,128] input
hbm y: bf16[6,128] output
vmem xb: bf16 rows=8 base=0x0
semaphore sem: 1

{ dma.hbm_to_vmem [xb + 0x1], [x], [sem] shape=(4, 128) strides=(128, 1) panel=16 }
{ dma.done.wait [sem] }
{ dma.vmem_to_hbm [y], [xb], [sem] shape=(6, 128) strides=(128, 1) panel=16 }
{ dma.done.wait [sem] }
{ shalt }
"""


def test_copies_count_rows_of_the_dtype_from_an_odd_one_too():
    given = np.arange(1, 4 * 128 + 1).reshape(4, 128).astype(np.uint16)
    got = run(parse(COPIES), {"x": given}).outputs["y"]
    assert np.array_equal(got[1:5], given)  # rows 0 and 5 share their words with 1 and 4


def test_a_packed_word_that_was_never_written_is_garbage():
    program = parse(COPIES.replace("shape=(6, 128)", "shape=(7, 128)").replace("bf16[6,", "bf16[7,"))
    with pytest.raises(mc.MachineFault, match="garbage in row 3, lane 0"):  # of VMEM, for rows 6 and 7
        run(program, {"x": np.zeros((4, 128), np.uint16)})


def test_a_machine_without_int8_refuses_a_push_of_it():
    with pytest.raises(mc.CompileError, match="its matrix units take no int8"):
        run(parse("machine v2\n\n{ vsplat v0, 0 }\n{ vmatpush.s8.mxu0 v0 }\n{ shalt }\n"), {})


def test_rows_are_as_many_registers_as_a_matrix_unit_is_wide():
    with pytest.raises(mc.CompileError, match="rows are as long as the matrix unit is wide"):
        run(parse("machine v6e\n\n{ vsplat v0, 0 }\n{ vmatpush.mxu0 v0 }\n{ shalt }\n"), {})
