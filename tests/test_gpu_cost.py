"""The GPU's closed forms against published numbers, and against what lane mode counts from addresses."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from minicc.gpu.cost import bank_ways, occupancy, ridge, sectors_per_request
from minicc.gpu.machine import A100, A6000, H100, SPECS
from minicc.gpu.traffic import by_warps, count_sectors, count_wavefronts

LIMITS = {"warps": "warps", "registers": "regs", "shared": "smem", "blocks": "blocks"}
LANES = np.arange(32).reshape(1, 32)
EVERY = LANES >= 0


def launches() -> list[dict[str, str]]:
    lines = (Path(__file__).parent / "data" / "gpu_occupancy.csv").read_text().splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def test_occupancy_is_the_vendors_on_all_129_launches():
    rows = launches()
    assert len(rows) == 129
    for row in rows:
        spec = SPECS[row["device"].split()[0].lower()]
        got = occupancy(spec, int(row["threads"]), int(row["regs"]), int(row["smem"]))
        assert (got.blocks, got.warps) == (int(row["blocks_per_sm"]), int(row["warps"])), row
        assert got.limits == {name: int(row[f"by_{column}"]) for name, column in LIMITS.items()}, row
        assert f"{got.fraction:.4f}" == row["occupancy"]
        assert [LIMITS[name] for name in got.scarcest] == row["limit"].split()


@pytest.mark.parametrize(("stride", "sectors"), [
    (0, 1), (1, 4), (2, 8), (3, 12), (4, 16), (5, 20), (7, 28), (8, 32), (9, 32), (32, 32),
])
def test_sectors_per_request_by_stride(stride, sectors):
    assert sectors_per_request(stride) == sectors
    assert count_sectors(by_warps(LANES * stride, EVERY), 4) == (1, sectors)


def test_a_misaligned_request_touches_one_sector_more():
    assert sectors_per_request(1, misaligned=1) == 5
    assert count_sectors(by_warps(LANES + 1, EVERY), 4) == (1, 5)


@pytest.mark.parametrize(("itemsize", "sectors"), [(2, 2), (8, 8), (16, 16)])
def test_sectors_of_half_float2_and_float4(itemsize, sectors):
    assert sectors_per_request(1, itemsize) == sectors
    assert count_sectors(by_warps(LANES, EVERY), itemsize) == (1, sectors)


@pytest.mark.parametrize("stride", range(70))
def test_the_ways_of_a_bank_conflict_are_the_common_divisor_with_32(stride):
    ways = int(np.gcd(stride, 32)) if stride else 1
    assert bank_ways(stride) == ways
    assert count_wavefronts(by_warps(LANES * stride, EVERY)) == (1, ways)


def test_a_column_of_32_by_32_conflicts_and_one_of_32_by_33_does_not():
    assert (bank_ways(32), bank_ways(33)) == (32, 1)


def test_idle_lanes_cost_nothing():
    active = LANES < 8
    assert count_sectors(by_warps(LANES, active), 4) == (1, 1)
    assert count_sectors(by_warps(LANES, LANES < 0), 4) == (0, 0)
    assert count_wavefronts(by_warps(LANES * 32, active)) == (1, 8)


@pytest.mark.parametrize(("spec", "kind", "flops_per_byte"), [
    (A100, "bf16", 201), (A100, "tf32", 100), (A100, "fp32", 12.5), (H100, "bf16", 295), (H100, "fp32", 20),
    (A6000, "fp32", 50),
])
def test_ridges_are_the_published_ones(spec, kind, flops_per_byte):
    assert ridge(spec, kind) == pytest.approx(flops_per_byte, rel=0.01)


def test_peaks_follow_from_the_units():
    peaks = [round(spec.peak_fp32_tflops, 1) for spec in (A100, A6000)]
    assert peaks == [A100.published_tflops["fp32"], A6000.published_tflops["fp32"]]
    assert round(H100.peak_fp32_tflops) == 62
