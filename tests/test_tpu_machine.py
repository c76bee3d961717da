"""The machines' numbers are the published ones, each says where it is from, and one's own machine works."""

from __future__ import annotations

import re
from dataclasses import fields, replace

import pytest

import minicc as mc
from minicc.devices import find
from minicc.tpu.emulator import run
from minicc.tpu.machine import SOURCES, SPECS, V4, V5E, TPUSpec
from minicc.tpu.text import parse

# bf16 and int8 of a chip, 1e12/s: JAX's table, third-party notes, the scaling book, the vendor's pages
PEAKS = {"v2": (46, None), "v3": (123, None), "v4": (275, 275), "v5e": (197, 393), "v5p": (459, 918),
         "v6e": (918, 1836)}


@pytest.mark.parametrize("name", PEAKS)
def test_the_peaks_that_follow_from_the_units_are_the_published_ones(name: str):
    bf16, int8 = PEAKS[name]
    assert SPECS[name].peak_bf16_tflops == pytest.approx(bf16, rel=0.005)
    assert SPECS[name].peak_int8_tops == pytest.approx(int8 or 0, rel=0.005)


@pytest.mark.parametrize("name, gb_per_s, gb, vmem_mib", [  # of one chip, VMEM of one core
    ("v2", 716, 16, 16), ("v3", 900, 32, 16), ("v4", 1230, 32, 16), ("v5e", 819, 16, 128),
    ("v5p", 2765, 95, 64), ("v6e", 1638, 32, 128),
])
def test_the_memories_are_the_published_ones(name: str, gb_per_s: float, gb: int, vmem_mib: int):
    spec = SPECS[name]
    assert (spec.hbm_gb_per_s, spec.hbm_gb, spec.vmem_mib) == (gb_per_s, gb, vmem_mib)


def test_every_number_of_every_chip_says_where_it_is_from():
    for field in fields(TPUSpec):
        if field.name != "name":
            said = all(SOURCES[name].get(field.name, "") in tuple("JSCNDA") for name in SPECS)
            assert said or re.search(r"\[[A-Z]\]$", field.metadata["says"]), field.name


def test_a_core_gets_its_share_of_the_bandwidth():
    assert V5E.hbm_bytes_per_cycle == pytest.approx(546)  # 819 GB/s at 1.5 GHz, one core
    assert V4.hbm_bytes_per_cycle == pytest.approx(1230 / 1.05 / 2)


def test_vmem_is_rows_of_128_words():
    assert V5E.vmem_rows == 262144  # 128 MiB / 512 B


def test_the_ridge_of_v5e_is_240_flops_per_byte():
    assert V5E.peak_bf16_tflops * 1000 / V5E.hbm_gb_per_s == pytest.approx(240, rel=0.005)  # scaling book


# ---- a machine of one's own ----

def test_a_machine_of_ones_own_has_a_slot_and_a_unit_for_each_mxu():
    own = replace(V5E, mxus=8)
    assert own.slots["mxu"] == own.slots["mxu.pop"] == own.units("mxu") == 8
    assert own.differences(V5E) == {"mxus": 8}


def test_a_device_is_named_by_the_numbers_in_which_it_differs():
    assert find("tpu:v5e,mxus=8,clock_ghz=2").spec == replace(V5E, mxus=8, clock_ghz=2.0)
    assert find("tpu,hbm_gb_per_s=1638").spec.hbm_bytes_per_cycle == 2 * V5E.hbm_bytes_per_cycle


@pytest.mark.parametrize("device, said", [
    ("tpu:v5e,mxu=8", r"no such number. got mxu;(.|\n)*try: mxus"),
    ("tpu:v5e,mxus=many", "mxus is no int. got 'many'"),
    ("tpu:v5e,mxus", "mxus is no int. got ''"), ("tpu:v5e,mxus=0", "mxus is too small. got 0"),
    ("tpu:v5e,clock_ghz=nan", "clock_ghz is"), ("gpu:a100,sms=3", "only a tpu has numbers of your own"),
])
def test_numbers_that_cannot_be_are_refused(device: str, said: str):
    with pytest.raises(mc.CompileError, match=said):
        find(device)


# ---- what programs cannot drive yet ----

@pytest.mark.parametrize("device", ["tpu:v5e,mxu_rows=0", "tpu:v5e,mxu_side=64", "tpu:v6e,mxu_side=512"])
def test_arrays_that_code_generation_does_not_know_are_refused(device: str):
    with pytest.raises(mc.CompileError, match="emulated arrays are 128 x 128 or 256 x 256"):
        mc.compile(lambda x: x + 1.0, mc.zeros(8, 128), device=device)


def test_a_program_text_for_such_a_machine_is_refused_too():
    with pytest.raises(mc.CompileError, match="emulated arrays are 128 x 128"):
        run(parse("program p\nmachine v6e mxu_side=64\n\n{ shalt }\n"), {})


@pytest.mark.parametrize("name", SPECS)
def test_every_chip_multiplies(name: str):
    x = mc.arange(256.0).reshape(16, 16)
    y = mc.compile(lambda x: (x @ x).relu(), x, device=f"tpu:{name}")(x)
    assert y.tolist() == (x.numpy() @ x.numpy()).tolist()  # exact: sums of small integers
