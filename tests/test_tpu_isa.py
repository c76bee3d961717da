"""Instructions know what they read, write and wait for, and print as in published dumps."""

from __future__ import annotations

import pytest
from tpu_programs import text

from minicc.errors import CompileError, Loc
from minicc.tpu.isa import Address, Bundle, Instr, Program, Reg
from minicc.tpu.machine import V5E
from minicc.tpu.ops import OPS, lookup
from minicc.tpu.text import parse

S1, S2, V0, V1 = Reg("s", 1), Reg("s", 2), Reg("v", 0), Reg("v", 1)


def test_an_address_prints_as_name_base_and_offset():
    assert str(Address("x", S1, 8)) == "[x + s1 + 0x8]"
    assert str(Address("x", None, -8)) == "[x - 0x8]"


def test_the_base_of_an_address_and_the_extents_of_a_dma_are_read():
    copy = Instr("dma.hbm_to_vmem", None, (Address("xb", S1), Address("x"), Address("sem")),
                 (("shape", (8, S2)), ("strides", (128, 1)), ("panel", 8)))
    assert copy.reads() == (S1, S2) and copy.writes() == ()
    assert Instr("vadd.f32", V1, (V0, 2.0)).writes() == (V1,)


def test_a_units_number_is_the_end_of_its_name():
    assert lookup("vpop.mrf.mxu3") == (OPS["vpop.mrf.mxu"], 3)
    assert lookup("vpow2") == (OPS["vpow2"], 0)
    assert lookup("vmatmul.mxu")[0] is None and lookup("vadd.f33")[0] is None


@pytest.mark.parametrize("op, cycles", [("vadd.f32", 2), ("sadd.s32", 1), ("vmatmul.mxu0", 254), ("vpow2", 6),
                                        ("vadd.xlane.f32.xlu1", 16), ("vld", 2), ("vst", 1)])
def test_latencies_are_the_machines(op: str, cycles: int):
    assert Instr(op).latency(V5E) == cycles


def test_every_op_has_a_slot_and_a_latency_that_the_machine_knows():
    for name, info in OPS.items():
        assert info.slot in V5E.slots, name
        assert not info.latency or isinstance(getattr(V5E, info.latency), int), name


def test_user_lines_do_not_count_in_comparisons():
    assert Instr("shalt", locs=(Loc("a.py", 1),)) == Instr("shalt")


def test_an_unknown_op_names_itself():
    with pytest.raises(CompileError, match="unknown op vfoo"):
        Instr("vfoo").info  # noqa: B018


def test_loops_are_marked_by_header_body_and_exit():
    lines = [line for line in str(parse(text("two_kernels"))).splitlines() if line.startswith("0x")]
    assert [line.split(":")[0].split()[-1] for line in lines[5:13]] == ["LH", *["LB"] * 6, "LX"]
    assert "> {" in lines[5] and ">" not in lines[4]


def test_provenance_is_printed_behind_a_bundle():
    bundle = Bundle((Instr("shalt", locs=(Loc("train.py", 12), Loc("train.py", 13))),))
    printed = str(Program("p", V5E, (), (), (bundle,)))
    assert printed.endswith("0x0   : { shalt }  # train.py:12, train.py:13\n")
