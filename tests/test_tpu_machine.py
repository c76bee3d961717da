"""The machines' derived numbers are the published ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minicc.tpu.machine import V4, V5E, TPUSpec


@pytest.mark.parametrize("spec, published", [(V5E, 197), (V4, 275)])  # the vendor's page; the scaling book
def test_the_peak_that_follows_from_the_units_is_the_published_one(spec: TPUSpec, published: float):
    assert spec.peak_bf16_tflops == pytest.approx(published, rel=0.005)


def test_a_core_gets_its_share_of_the_bandwidth():
    assert V5E.hbm_bytes_per_cycle == pytest.approx(546)  # 819 GB/s at 1.5 GHz, one core
    assert V4.hbm_bytes_per_cycle == pytest.approx(1230 / 1.05 / 2)


def test_vmem_is_rows_of_128_words():
    assert V5E.vmem_rows == 262144  # 128 MiB / 512 B


def test_the_ridge_of_v5e_is_240_flops_per_byte():
    assert V5E.peak_bf16_tflops * 1000 / V5E.hbm_gb_per_s == pytest.approx(240, rel=0.005)  # scaling book


def test_a_machine_of_ones_own_has_a_slot_and_a_unit_for_each_mxu():
    own = replace(V5E, mxus=8)
    assert own.slots["mxu"] == own.slots["mxu.pop"] == own.units("mxu") == 8
    assert own.differences(V5E) == {"mxus": 8}
