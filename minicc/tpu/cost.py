"""What a TPU and its network make of a task, in closed forms: systolic arrays, ridges, collectives.

    weight_stationary_cycles(1024, 1024, 1024, 128, 128)   ->   89983
    ridge(V5E)                                              ->   240 flops a byte of HBM
    all_gather_us(V5E, 2**25, chips=4, ring=True)           ->   373 us

Goes in: a machine and the sizes of a task. Comes out: cycles, flops per byte, microseconds. Nothing runs: the
emulator counts the same things where it can (one core, one chip), and the kernel room's cost model prices
kernels. These forms are the ones that people do on paper; tools/oracles.py holds them to published numbers.
Chips are joined by a mesh of links; a closed axis of it is a ring, on which both ways are used at once.

XLA's cost model has such terms for every collective. Read next: the scaling book's chapters on rooflines and
on sharding, then tools/oracles.py.
"""

from __future__ import annotations

from minicc.tpu.machine import ROW_BYTES, SUBLANES, TPUSpec

# The first TPU, of its paper's Table 2: one array of 256 x 256 for int8, and weights from DRAM at 34 GB/s.
# Its vector unit and its instructions have nothing to do with the defaults of TPUSpec: closed forms only.
V1 = TPUSpec("v1", 0.7, 1, 1, 34.0, 8, 24, mxu_side=256, mxu_rows=0, int8_rows=1, ici_axes=0)


# ---- systolic arrays ----

def weight_stationary_cycles(m: int, k: int, n: int, rows: int, columns: int) -> int:
    """Cycles of x[m,k] @ w[k,n] when loads of weights do not overlap with anything."""
    return (2 * rows + columns + m - 2) * -(-k // rows) * -(-n // columns) - 1


def output_stationary_cycles(m: int, k: int, n: int, rows: int, columns: int) -> int:
    """Cycles of x[m,k] @ w[k,n] when each cell keeps a sum.

    >>> weight_stationary_cycles(128, 128, 128, 128, 128), output_stationary_cycles(128, 128, 128, 128, 128)
    (509, 381)
    """
    return (rows + columns + k - 2) * -(-m // rows) * -(-n // columns) - 1


def weight_fetch_shares(spec: TPUSpec, rows: int, passes: int = 1, other: float = 0.0) -> dict[str, float]:
    """Where the cycles go when every tile of int8 weights comes from DRAM for one use of it.

    rows: of the batch, that stream past a tile of weights. passes: of each row. other: the part of all cycles
    in which the array has no part. The next tile is fetched meanwhile; then it is shifted in, a row a cycle.
    Units: parts of all cycles. Source: TPUv1 paper, Table 3.

    >>> {name: round(part, 3) for name, part in weight_fetch_shares(V1, rows=200).items()}
    {'active': 0.148, 'stall': 0.662, 'shift': 0.19}
    """
    fetch = spec.mxu_side**2 / spec.hbm_bytes_per_cycle
    active, shift = rows * passes / spec.int8_rows, spec.mxu_side
    tile = max(fetch, active + shift)
    cycles = {"active": active, "stall": tile - active - shift, "shift": shift}
    return {name: part / tile * (1 - other) for name, part in cycles.items()}


# ---- ridges ----

def peak_ops(spec: TPUSpec, rate: str = "bf16") -> float:
    """Multiplications and additions of the chip in a second, "bf16" or "int8"."""
    return {"bf16": spec.peak_bf16_tflops, "int8": spec.peak_int8_tops}[rate] * 1e12


def vmem_bytes_per_s(spec: TPUSpec) -> float:
    """What the load slots of all cores read from VMEM; on a v5e that is 22 times HBM's bandwidth."""
    return spec.load_slots * SUBLANES * ROW_BYTES * spec.clock_ghz * 1e9 * spec.cores


def ridge(spec: TPUSpec, rate: str = "bf16", vmem: bool = False) -> float:
    """Operations per byte of HBM (or of VMEM) above which arithmetic is the bound, not memory."""
    return peak_ops(spec, rate) / (vmem_bytes_per_s(spec) if vmem else spec.hbm_gb_per_s * 1e9)


def critical_batch(spec: TPUSpec, rate: str = "bf16", weight_bytes: int = 2) -> float:
    """The batch above which a product with large weights is bound by arithmetic: 2 operations per weight."""
    return ridge(spec, rate) * weight_bytes / 2


def critical_rows(spec: TPUSpec, k: int, n: int, rate: str = "int8", vmem: bool = False) -> float:
    """The m above which x[m,k] @ w[k,n], all of it of int8 and moved once, is bound by arithmetic.

    2 m k n operations = ridge * (m k + k n + m n) bytes, solved for m.
    """
    least = ridge(spec, rate, vmem)
    return least * k * n / (2 * k * n - least * (k + n))


def critical_side(spec: TPUSpec, itemsize: int) -> float:
    """The n above which x[n,n] @ w[n,n] is bound by arithmetic, in one bf16 pass: 2 n^3 operations = ridge *
    3 n^2 itemsize bytes."""
    return ridge(spec) * 3 * itemsize / 2


# ---- between chips ----

def send_us(spec: TPUSpec, count_bytes: float, hops: int, links: int) -> float:
    """From one chip to another over so many hops, by `links` ways at once, until the last byte is there."""
    return hops * spec.ici_hop_us + count_bytes / (links * spec.ici_gb_per_s * 1e3)


def all_gather_us(spec: TPUSpec, count_bytes: float, chips: int, ring: bool, axes: int = 1) -> float:
    """Until each of so many chips along an axis (or along each of two) has all of an array of which it had a
    part.

    Parts travel hop by hop: on a ring both ways, so that the farthest has half of it to go; else one way.
    count_bytes: of the whole array, without what other axes hold of it.
    """
    hops = chips // 2 if ring else chips - 1
    return hops * max(spec.ici_hop_us, count_bytes / chips / axes / (spec.ici_gb_per_s * 1e3))


def all_reduce_us(spec: TPUSpec, count_bytes: float, chips: int, ring: bool, axes: int = 1) -> float:
    """Until each chip has the sum of all chips' arrays: each sums a part, then the parts are gathered."""
    return 2 * all_gather_us(spec, count_bytes, chips, ring, axes)
