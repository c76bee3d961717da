"""What the writer of assembly folds, shares and drops."""

from __future__ import annotations

from minicc.tpu.assembly import Writer
from minicc.tpu.isa import Address, Reg
from minicc.tpu.machine import V5E


def lines(write: Writer) -> list[str]:
    return [str(op) for bundle in write.finish()[0] for op in bundle.ops]


def test_arithmetic_on_known_numbers_leaves_no_instruction():
    write = Writer(V5E)
    assert write.add(write.mul(3, 4), write.min(9, 5)) == 17
    assert lines(write) == []


def test_adding_nothing_and_multiplying_by_one_leave_the_register():
    write, s0 = Writer(V5E), Reg("s", 99)
    assert write.add(s0, 0) == write.add(0, s0) == write.mul(s0, 1) == write.sub(s0, 0) == s0
    assert write.mul(s0, 0) == 0


def test_the_same_instruction_twice_is_one_register_until_what_it_read_changes():
    write = Writer(V5E)
    counter = write.op("smov", 0, into=write.register("s"))
    before = write.add(counter, 8)
    assert write.add(counter, 8) == before
    write.op("sadd.s32", counter, 1, into=counter)
    assert write.add(counter, 8) != before


def test_zeros_of_either_sign_are_two_constants():
    write = Writer(V5E)
    assert write.op("vsplat", 0.0) != write.op("vsplat", -0.0)
    assert write.op("vsplat", 1.0) != write.op("vsplat", 1)


def test_a_number_that_stands_for_a_vector_is_splatted():
    write = Writer(V5E)
    write.op("vst", Address("x"), write.op("vsub.f32", 1.0, write.op("vld", Address("x"))))
    assert "vsplat v1, 1.0" in lines(write)


def test_what_nobody_reads_is_dropped():
    write = Writer(V5E)
    write.op("vadd.f32", write.op("vld", Address("x")), 1.0)
    write.op("shalt")
    assert lines(write) == ["shalt"]


def test_a_loop_runs_over_whole_places_and_leaves_the_last_one_known():
    write, seen = Writer(V5E), []
    write.loop(7, 6, 2, 8, seen.append)
    assert [[at.offset for at in batch] for batch in seen] == [[0, 8], [48]]
    assert isinstance(seen[0][0].counter, Reg) and seen[1][0].counter == 0


def test_a_short_loop_is_no_loop():
    write, seen = Writer(V5E), []
    write.loop(3, 3, 4, 8, seen.append)
    assert [[at for at in batch] for batch in seen] == [[(0, 0), (0, 8), (0, 16)]]
    assert lines(write) == []


def test_a_branch_whose_way_is_known_is_not_written():
    write, ran = Writer(V5E), []
    write.skip_if(0, "skip", lambda: ran.append("kept"))
    write.skip_if(1, "skip", lambda: ran.append("dropped"))
    assert ran == ["kept"] and lines(write) == []
