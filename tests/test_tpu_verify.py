"""The machine's limits are checked before a program runs, and the tables say who takes what."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tpu_programs import text, with_header

from minicc.errors import CompileError
from minicc.tpu.isa import Bundle, Instr, VmemBuffer
from minicc.tpu.text import parse
from minicc.tpu.verify import verify


def test_registers_beyond_the_machines_are_virtual():
    program = parse(with_header("{ vsplat v64, 0.0 }"))
    verify(program, virtual=True)
    with pytest.raises(CompileError, match="register v64 does not exist"):
        verify(program)


def test_vmem_overflow_names_the_buffer_and_shows_all_of_them():
    program = parse(text("add1000"))
    big = VmemBuffer("tile", 200_000, 0x18)
    program = replace(program, buffers=(*program.buffers, big, VmemBuffer("spare", 100_000, 0x18 + big.rows)))
    with pytest.raises(CompileError, match="VMEM overflow") as caught:
        verify(program)
    assert "spare" in caught.value.got and "97.66 MiB" in str(caught.value) and "xb" in str(caught.value)


def test_buffers_may_share_rows():
    program = parse(text("two_kernels"))
    assert {b.base_row for b in program.vmem if b.name in ("xb", "yb")} == {0}
    verify(program)


def test_instruction_memory_overflow_is_an_error():
    program = replace(parse(text("add1000")), bundles=(Bundle((Instr("shalt"),)),) * 16385)
    with pytest.raises(CompileError, match="instruction memory overflow") as caught:
        verify(program)
    assert caught.value.got == "16385 bundles in one kernel"
