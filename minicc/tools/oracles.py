"""Published numbers beside ours: `minicc bench --oracles`.

    a systolic  ws 1024 x 1024 x 1024        89983    89983   +0.0%  exact     ok
    c v5e       8192^3 in 512x1024x1024  6.099 ms    5.957   -2.3%  held out  ok

Goes in: nothing. Comes out: a Row per published number: what minicc says in its place, how far off that is,
and whether it was fitted. Two constants of a v5e were fitted, to the rows of c with 128^3 tiles and to no
other: the start-up of a DMA and the launch of a program. Everything else is held out. What may be off by how
much is part of the row; an estimate of another compiler is shown, and nothing is held to it.

Where the model is too simple: (b) one tile of weights follows the other without a gap, so the paper's stalls
for other reasons have no place, and the share of time outside the matrix unit is the paper's; (c) a step
costs its DMAs or its products, whichever is longer, and nothing for its loop, so that ours are all too fast,
the small ones most; (d) "measured" is 1.2 times what any form here gives: links do not reach their rate.
Sources are said at each table. Read next: tpu/cost.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np

from minicc.compiler import compile_graph
from minicc.devices import find
from minicc.graph.text import parse_graph
from minicc.kernel.cost import Target, cost
from minicc.kernel.fuse import fuse
from minicc.kernel.ir import Kernel
from minicc.kernel.legalize import legalize
from minicc.kernel.tile import tile
from minicc.report import TPUProfile
from minicc.slots import using
from minicc.tpu import cost as forms
from minicc.tpu.machine import LANES, SUBLANES, V4, V5E
from minicc.tpu.units import Mxu

TITLES = f"{'oracle':12}{'what':46}{'published':>11} {'':6}{'ours':>11}{'error':>9}  kind"


@dataclass(frozen=True)
class Row:
    """One published number and ours. kind: exact, fitted, held out or estimate. within: the most that ours
    may be off, relative to the published one, or in its own unit where that is points of percent; None: as
    it comes."""

    oracle: str
    what: str
    unit: str
    published: float
    ours: float
    kind: str
    within: float | None

    @property
    def error(self) -> float:
        """Of ours: in points, or relative to the published number."""
        off = self.ours - self.published
        return off if self.unit == "%" else off / self.published

    @property
    def right(self) -> bool:
        """Is ours as close as it must be?"""
        return self.within is None or abs(self.error) <= self.within

    def __str__(self) -> str:
        error = f"{self.error:+.1f} pt" if self.unit == "%" else f"{self.error:+.1%}"
        verdict = "" if self.within is None else "ok" if self.right else "OFF"
        return (f"{self.oracle:12}{self.what:46}{self.published:>11.6g} {self.unit:6}{self.ours:>11.6g}"
                f"{error:>9}  {self.kind:9} {verdict}").rstrip()


# ---- a: cycles of a systolic array of 128 x 128. Source: an independent simulator ----

# ws: weight stationary, os: output stationary
SYSTOLIC = {("os", 1, 1024, 1024): 10223, ("ws", 1, 1024, 1024): 24511, ("os", 128, 128, 128): 381,
            ("ws", 128, 128, 128): 509, ("os", 256, 256, 256): 2039, ("ws", 256, 256, 256): 2551,
            ("os", 512, 512, 512): 12255, ("ws", 512, 512, 512): 14303, ("os", 1024, 1024, 1024): 81791,
            ("ws", 1024, 1024, 1024): 89983, ("os", 128, 768, 3072): 24527, ("ws", 128, 768, 3072): 73439,
            ("os", 49, 4608, 512): 19447, ("ws", 49, 4608, 512): 62063}


def systolic_rows() -> Iterator[Row]:
    """Weight stationary by the emulator's own unit, its weights not overlapped; the other by its formula."""
    for (flow, m, k, n), cycles in SYSTOLIC.items():
        ours = unit_cycles(m, k, n) if flow == "ws" else forms.output_stationary_cycles(m, k, n, LANES, LANES)
        yield Row("a systolic", f"{flow} {m} x {k} x {n}", "cycles", cycles, ours, "exact", 0.0)


def unit_cycles(m: int, k: int, n: int, overlap_weights: bool = False) -> int:
    """Cycles of one emulated MXU from the first push of bf16 weights until the last result leaves it."""
    unit, tile_rows, poppable = Mxu("mxu0", V5E, overlap_weights), np.zeros((SUBLANES, LANES), np.float32), 0
    for _ in range(-(-k // LANES) * -(-n // LANES)):
        for _ in range(LANES // SUBLANES):
            unit.push_weights(unit.ready("weights"), tile_rows, "bf16")
        for start in range(0, m, SUBLANES):
            while len(unit.results) >= V5E.mxu_fifo_vregs // 2:
                unit.pop()
            unit.push_rows(unit.ready("push", start == 0), tile_rows[:m - start], "bf16", start == 0)
            poppable = unit.results[-1][0]
    return poppable - 1  # a result leaves in the cycle before it can be popped


# ---- b: where the cycles of the first TPU went. Source: its paper, ISCA 2017, Table 3 ----

# application -> batch, passes (16-bit operands run at half speed: inferred from its TOPS), non-matrix %, and
# array active, weight stall, weight shift %
TPUV1 = {"MLP0": (200, 1, 17.5, 12.7, 53.9, 15.9), "MLP1": (168, 1, 31.9, 10.6, 44.2, 13.4),
         "LSTM0": (64, 2, 17.9, 8.2, 58.1, 15.8), "LSTM1": (96, 2, 10.3, 10.5, 62.1, 17.1)}


def tpuv1_rows() -> Iterator[Row]:
    """A machine that waits for weights, with the paper's share of time outside the matrix unit."""
    for name, (batch, passes, other, *shares) in TPUV1.items():
        ours = forms.weight_fetch_shares(forms.V1, batch, passes, other / 100)
        for (part, share), published in zip(ours.items(), shares, strict=True):
            yield Row("b TPUv1", f"{name} {part}", "%", published, 100 * share, "held out", 2.5)


# ---- c: bf16 matmuls of n^3 on a v5e. Source: the Pallas guide to matmuls in JAX's documentation ----

MATMUL_MS: Mapping[tuple[int, ...] | None, Mapping[int, float]] = {
    (128, 128, 128): {1024: 0.2977, 4096: 11.77, 8192: 91.84},  # m, n, k of a tile
    (512, 1024, 1024): {1024: 0.1271, 4096: 0.8891, 8192: 6.099},
    None: {1024: 0.1194, 4096: 0.8273, 8192: 6.047},  # XLA's own
}
EMULATED_N = {(512, 1024, 1024): (1024, 4096, 8192), (128, 128, 128): (1024,)}  # in a second or two
EMULATED_VMEM_MIB = {(512, 1024, 1024): 40, (128, 128, 128): 2}  # so little that inputs cannot stay in it


def bf16_target() -> Target:
    """A v5e for kernels of bf16 dots, with the launch of a program."""
    of_f32 = find(V5E).target
    return replace(of_f32, dot_flops_per_cycle=of_f32.dot_flops_per_cycle * V5E.f32_passes, dot_row_cycles=1,
                   dot_fill_cycles=V5E.mxu_side + V5E.mxu_fill_cycles,
                   launch_cycles=round(V5E.launch_us * V5E.clock_ghz * 1e3))


def matmul_text(n: int) -> str:
    """x[n,n] @ w[n,n] in bf16."""
    of = f"bf16[{n},{n}]"
    return f"graph matmul(x: {of}, w: {of}) {{\n%0 = dot_general(x, w) contract=[1]x[0] : {of}\nreturn %0\n}}"


def blocks_of(kernel: Kernel, sizes: tuple[int, ...]) -> Kernel:
    """The kernel of a matmul in blocks of m, n, k."""
    return kernel.tiled(dict(zip("mnk", sizes, strict=True)))


def matmul_rows() -> Iterator[Row]:
    """By the closed form that tiles are chosen with; in tiles of our own choice where XLA chose."""
    target = bf16_target()
    for sizes, times in MATMUL_MS.items():
        for n, published in times.items():
            kernel, = fuse(legalize(parse_graph(matmul_text(n))), target).kernels
            tiled = blocks_of(kernel, sizes) if sizes else tile(kernel, target)
            ours = cost(tiled, target).cycles / V5E.clock_ghz / 1e6
            kind = "fitted" if sizes == (128, 128, 128) else "held out"
            within = 0.1 if n > 1024 else None
            what = f"in tiles of {'x'.join(map(str, sizes))}" if sizes else "by XLA; ours in our tiles"
            yield Row("c v5e", f"{n}^3 {what}", "ms", published, ours, kind, within)


def emulated_rows() -> Iterator[Row]:
    """Emulated, with the launch, and without values."""
    for sizes, mib in EMULATED_VMEM_MIB.items():
        for n in EMULATED_N[sizes]:
            with using(tile=lambda kernel, target, sizes=sizes: blocks_of(kernel, sizes)):
                program = compile_graph(parse_graph(matmul_text(n)), replace(V5E, vmem_mib=mib))
            cycles = cast(TPUProfile, program.profile(values=False)).cycles
            ours = cycles / V5E.clock_ghz / 1e6 + V5E.launch_us / 1e3
            what = f"{n}^3 in tiles of {'x'.join(map(str, sizes))}, emulated"
            kind = "fitted" if sizes == (128, 128, 128) else "held out"
            yield Row("c v5e", what, "ms", MATMUL_MS[sizes][n], ours, kind, 0.1)


# ---- d: what people work out on paper. Source: the scaling book; the Pallas guide for f32 ----

def ridge_rows() -> Iterator[Row]:
    """Bounds of a v5e, and times between chips."""
    array, slab = 1024 * 4096 * 2, 2048 * 8192 * 2  # bytes of bf16
    ours = {
        ("v5e: bf16 ridge", "FLOP/B", 240): forms.ridge(V5E),
        ("v5e: int8 x int8, batch", "", 243): forms.critical_batch(V5E, "int8", 1),
        ("v5e: bf16 x int8, batch", "", 120): forms.critical_batch(V5E, "bf16", 1),
        ("v5e: square of f32 in one pass, side", "", 1440): forms.critical_side(V5E, 4),
        ("v5e: int8[B,4096] x [4096,16384], B, HBM", "", 271): forms.critical_rows(V5E, 4096, 16384),
        ("v5e: the same from VMEM", "", 11): forms.critical_rows(V5E, 4096, 16384, vmem=True),
        ("v5e 4x4: corner to corner, first byte", "us", 6): forms.send_us(V5E, 0, 6, 2),
        ("v5e 4x4: bf16[8,128,8192] so, all", "us", 194): forms.send_us(V5E, 8 * 128 * 8192 * 2, 6, 2),
        ("v5e 8x4: all-gather y of 2048x8192, ring", "us", 377): forms.all_gather_us(V5E, slab, 4, True),
        ("v5e 8x4: the same, not closed", "us", 560): forms.all_gather_us(V5E, slab, 4, False),
        ("v4 4x4x4: all-gather x of [1024_x,4096_y]", "us", 23): forms.all_gather_us(V4, array / 4, 4, True),
        ("v4 4x4x4: all-gather x and y", "us", 46): forms.all_gather_us(V4, array, 4, True, axes=2),
        ("v4 4x4x4: all-reduce z of [1024,4096]", "us", 190): forms.all_reduce_us(V4, array, 4, True),
        ("v4 4x4x4: the same of [1024_x,4096_y]", "us", 11.6): forms.all_reduce_us(V4, array / 16, 4, True),
    }
    for (what, unit, published), value in ours.items():
        yield Row("d paper", what, unit, published, value, "held out", 0.05)
    unclosed = forms.all_gather_us(V5E, slab, 4, False)
    yield Row("d paper", "v5e 8x4: the same, measured", "us", 680, unclosed, "estimate", None)


# ---- e: what the real compiler expects. Source: XLA:TPU for v5e, ahead of time, its own cost model ----

# Programs of workloads.py. It leaves out that DMAs overlap, and its dots of f32 are one bf16 pass, ours six;
# programs with custom calls (attention, training, GPT) have no whole estimate.
XLA_CYCLES = {"a_elementwise10_1M": 30511, "b_softmax_1024": 63298, "c_layernorm_1024": 66706,
              "d_matmul_1024": 31668, "d_matmul_256": 5178, "h_conv3x3_64c": 36500, "i_llama_decode": 53239}


def xla_rows(cycles_of: Callable[[str], float]) -> Iterator[Row]:
    """Emulated cycles beside another compiler's estimate. cycles_of: runs a program of workloads.py."""
    for name, published in XLA_CYCLES.items():
        yield Row("e XLA", name, "cycles", published, cycles_of(name), "estimate", None)


def oracle_rows(cycles_of: Callable[[str], float], only: str = "") -> Iterator[Row]:
    """Every row, or those of one oracle, "a" to "e"."""
    for letter, rows in (("a", systolic_rows), ("b", tpuv1_rows), ("c", matmul_rows), ("c", emulated_rows),
                         ("d", ridge_rows), ("e", partial(xla_rows, cycles_of))):
        yield from rows() if letter.startswith(only) else ()
