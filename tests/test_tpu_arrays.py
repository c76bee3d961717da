"""What kernels hand on stays on the chip, however they see it, and what they read again is fetched once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernels import axes, compiled, kernel, load, module, op, operand, outputs

import minicc as mc
from minicc.devices import find
from minicc.errors import CompileError
from minicc.graph.ir import F32
from minicc.kernel.index import Index
from minicc.kernel.ir import Kernel, Module, Operand
from minicc.kernel.memory import MemoryPlan, Space, plan
from minicc.kernel.verify import verify_plan
from minicc.tpu.emulator import Run, run
from minicc.tpu.text import parse
from minicc.trace import Step

TARGET = find("tpu:v5e").target
RANDOM = np.random.default_rng(0)
ROWS, COLUMNS = 40, 256
MATRIX = operand("h", F32, (ROWS, COLUMNS), "m", "n")
BLOCKS = axes(m=(ROWS, 16, "p"), n=(COLUMNS, 128, "p"))


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def close(found: np.ndarray, want: np.ndarray) -> None:
    assert found.shape == want.shape and np.abs(found - want).max() <= 1e-6 * np.abs(want).max()


def tanh_to(h: Operand) -> Kernel:
    """h = tanh(x), in blocks of 16 x 128, the last of 8."""
    return kernel("one", BLOCKS, h, op("tanh", load(x := operand("x", F32, (ROWS, COLUMNS), "m", "n"))), x)


def handed_on(h: Operand) -> Module:
    """tanh(x) in one kernel; in the next, the square of what it sees of that, in blocks of 128 a side."""
    names, sizes = zip(*[(name, SIZES[name]) for name in h.axes], strict=True)
    grid = axes(**{name: (size, min(size, 128), "p") for name, size in zip(names, sizes, strict=True)})
    y = operand("y", F32, sizes, *names)
    return module(tanh_to(MATRIX), kernel("two", grid, y, op("multiply", load(h), load(h)), h))


def traffic(mod: Module, places: MemoryPlan, **inputs: np.ndarray) -> Run:
    """A run of a module under a plan that can be."""
    verify_plan(places, mod)
    return run(compiled(mod, places), inputs)


SIZES = {"all": ROWS * COLUMNS, "m": ROWS, "n": COLUMNS, "p": 80, "q": 128}
SHAPE = (ROWS, COLUMNS)
VIEWS = {  # how the second kernel sees h, and what it reads of tanh(x)
    "a line": (operand("h", F32, (ROWS * COLUMNS,), "all"), lambda t: t.reshape(-1)),
    "other rows": (operand("h", F32, (80, 128), "p", "q"), lambda t: t.reshape(80, 128)),
    "backwards": (operand("h", F32, SHAPE, "m", Index((("n", -1),), COLUMNS - 1)), lambda t: t[:, ::-1]),
}


@pytest.mark.parametrize("view", VIEWS)
def test_however_it_is_seen_a_buffer_between_kernels_costs_no_bytes_of_hbm(view: str):
    (h, seen), x = VIEWS[view], normal(*SHAPE)
    mod = handed_on(h)
    places = plan(mod, TARGET)
    close(outputs(mod, places, x=x)[0], seen(np.tanh(x.astype(float))) ** 2)
    result = traffic(mod, places, x=x)
    assert places.resident("h") and not places.in_place("h")
    assert (result.hbm_read_bytes, result.hbm_write_bytes) == (x.nbytes, x.nbytes)
    assert result.local_bytes == 2 * x.nbytes  # written once and read once, in blocks


def test_where_all_see_the_same_rows_and_columns_nothing_is_copied_at_all():
    mod, x = handed_on(MATRIX), normal(*SHAPE)
    places = plan(mod, TARGET)
    result = traffic(mod, places, x=x)
    assert places.in_place("h") and result.local_bytes == 0
    assert (result.hbm_read_bytes, result.hbm_write_bytes) == (x.nbytes, x.nbytes)


def scaled(name: str, source: str, target: str, w: Operand) -> Kernel:
    """target = source * w, in blocks of 16 x 128."""
    a, b = (operand(one, F32, (ROWS, COLUMNS), "m", "n") for one in (source, target))
    return kernel(name, BLOCKS, b, op("multiply", load(a), load(w)), a, w)


ROW, FULL = operand("w", F32, (COLUMNS,), "n"), operand("w", F32, (ROWS, COLUMNS), "m", "n")


def twice(w: Operand) -> Module:
    """tanh(x) * w * w, in three kernels."""
    return module(tanh_to(MATRIX), scaled("two", "h", "g", w), scaled("three", "g", "y", w))


@pytest.mark.parametrize(("w", "in_place"), [(FULL, True), (ROW, False)], ids=["matrix", "row"])
def test_what_two_kernels_read_crosses_once(w: Operand, in_place: bool):
    mod = twice(w)
    places, x, factor = plan(mod, TARGET), normal(ROWS, COLUMNS), normal(*w.type.shape)
    fetched = places.fetched["w"]
    assert (fetched.first, fetched.last, places.in_place("w")) == (0, 2, in_place)
    close(outputs(mod, places, x=x, w=factor)[0], np.tanh(x.astype(float)) * factor.astype(float) ** 2)
    result = traffic(mod, places, x=x, w=factor)
    assert result.hbm_read_bytes == x.nbytes + factor.nbytes
    # as a line, its block of 128 comes anew for each of 3 blocks of rows, in both kernels
    assert result.local_bytes == (0 if in_place else 2 * 3 * factor.nbytes)


def test_what_one_kernel_reads_again_for_each_block_of_rows_crosses_once():
    mod, x, row = module(tanh_to(MATRIX), scaled("two", "h", "y", ROW)), normal(*SHAPE), normal(COLUMNS)
    assert run(compiled(mod), {"x": x, "w": row}).hbm_read_bytes == 2 * x.nbytes + 3 * row.nbytes
    assert traffic(mod, plan(mod, TARGET), x=x, w=row).hbm_read_bytes == x.nbytes + row.nbytes


def test_the_first_kernel_of_a_program_does_not_wait_for_a_few_bytes_that_it_can_stream():
    mod, x, row = module(scaled("one", "x", "y", ROW)), normal(*SHAPE), normal(COLUMNS)
    places = plan(mod, TARGET)
    waits = replace(places, vmem_bytes=4096, fetched={
        "w": replace(places.placements["w"], space=Space.VMEM, offset_bytes=0, bytes=4096)})
    streamed, waited = traffic(mod, places, x=x, w=row), traffic(mod, waits, x=x, w=row)
    assert not places.fetched and streamed.cycles < waited.cycles
    assert streamed.hbm_read_bytes - waited.hbm_read_bytes == 2 * row.nbytes


def test_the_program_fetches_while_the_kernel_before_computes():
    mod = twice(FULL)
    places = plan(mod, TARGET)
    late = replace(places, fetched={name: replace(place, first=1) for name, place in places.fetched.items()})
    x, w = normal(ROWS, COLUMNS), normal(ROWS, COLUMNS)
    early, waited = traffic(mod, places, x=x, w=w), traffic(mod, late, x=x, w=w)
    assert early.cycles < waited.cycles and early.hbm_read_bytes == waited.hbm_read_bytes
    assert any(cause == "dma w.near" for cause in waited.causes)


def test_the_text_of_such_a_program_is_the_program():
    mod = twice(ROW)
    program = compiled(mod, plan(mod, TARGET))
    assert parse(str(program)) == program and "dma.line_to_vmem" in str(program)


def test_a_planted_overlap_is_caught_by_the_plans_check_and_spoils_the_answer():
    mod = twice(FULL)
    good = plan(mod, TARGET)
    there = good.placements["g"].offset_bytes
    bad = replace(good, fetched={"w": replace(good.fetched["w"], offset_bytes=there)})
    with pytest.raises(CompileError, match="bytes of vmem in common"):
        verify_plan(bad, mod)
    x, w = normal(ROWS, COLUMNS), normal(ROWS, COLUMNS)
    want = np.tanh(x.astype(float)) * w.astype(float) ** 2
    close(outputs(mod, good, x=x, w=w)[0], want)
    assert np.abs(outputs(mod, bad, x=x, w=w)[0] - want).max() > 0.1


def test_where_they_would_not_fit_buffers_stay_in_hbm_the_largest_saving_first():
    mod = twice(ROW)
    blocks = max(6 * 16 * 128 * 4, 2 * 3 * 16 * 128 * 4)  # of each kernel: three operands, twice
    tight = replace(TARGET, fast_bytes=blocks + 60_000)  # for w and one of h and g, 40 x 256 words
    log: list[Step] = []
    places = plan(mod, tight, log=log)
    found = {name: places.resident(name) for name in ("h", "g", "w")}
    assert found == {"h": True, "g": False, "w": True}
    assert any("are left beside the kernels' blocks" in step.why for step in log if not step.taken)
    assert sum(places.at(name).space is Space.VMEM for name in found) == 2


def test_numbers_that_are_looked_up_go_to_scalar_memory_without_leaving_the_chip():
    table, ids = np.arange(40, dtype=np.float32).reshape(10, 4), np.array([3, 0, 9, 5], np.int32)
    made = mc.compile(lambda t, i: mc.take(t, (i * 3 + 1) % 10, axis=0), mc.Tensor(table), mc.Tensor(ids),
                      device="tpu:v5e")
    got = made(mc.Tensor(table), mc.Tensor(ids)).numpy()
    assert (got == table[(ids * 3 + 1) % 10]).all()
    assert "dma.line_to_smem" in str(made.program)
    assert made.profile().hbm_bytes == ids.nbytes + 4 * 4 * 4 + got.nbytes  # ids, four rows of the table, out


def test_an_update_in_place_of_a_buffer_between_kernels_stays_on_the_chip():
    base, rows, ids = normal(9, 4), normal(3, 4), np.array([7, 2, 7], np.int32)

    def update(b, r, i):
        return (b * 2.0).at[i].add(r).sum(axis=0)

    made = mc.compile(update, *map(mc.Tensor, (base, rows, ids)), device="tpu:v5e")
    got = made(*map(mc.Tensor, (base, rows, ids))).numpy()
    want = base.astype(float) * 2
    np.add.at(want, ids, rows.astype(float))
    close(got, want.sum(axis=0))
    assert made.profile().hbm_bytes == base.nbytes + rows.nbytes + ids.nbytes + got.nbytes
