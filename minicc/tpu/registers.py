"""Register allocation: from unlimited registers to the machine's 64 scalar, 64 vector and 16 mask registers.

    v117 lives from bundle 0x12 to 0x15,  v118 from 0x14 to 0x20,  v119 from 0x16 on    ->    v0, v1, v0

Goes in: a scheduled Program over virtual registers. Comes out: the same program over the machine's. Linear
scan: each register's life is one interval of bundles, from its first write to its last read, stretched over
every block it is live through; in the order of their starts, each takes a register that no living interval
holds. A read in a bundle comes before a write, so one's last bundle may be the other's first. Running out
is an error that shows who holds what: spilling to VMEM is an exercise.

Source: Poletto and Sarkar, "Linear scan register allocation" (1999). LLVM splits and evicts intervals as
well; XLA's TPU backend spills to VMEM. Read next: emulator.py, where the program runs.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from minicc.errors import CompileError, merge_locs
from minicc.tpu.isa import Address, Bundle, Instr, Program, Reg
from minicc.tpu.liveness import live
from minicc.tpu.machine import TPUSpec
from minicc.tpu.verify import verify
from minicc.trace import Step

SHOWN_REGISTERS = 12


class Interval(NamedTuple):
    """A register's life. start, end: twice the bundle's number, plus one for a write."""

    reg: Reg
    start: int
    end: int


def allocate(program: Program, spec: TPUSpec, log: list[Step] | None = None) -> Program:
    """Give every virtual register one of the machine's, and verify what comes out.

    Raises: CompileError if more values live at once than there are registers, or the program overflows a
    memory.
    """
    found = intervals(program)
    names: dict[Reg, Reg] = {}
    for kind, count in spec.registers.items():
        names |= _scan([i for i in found if i.reg.kind == kind], kind, count, program)
    bundles = tuple(Bundle(tuple(renamed(op, names, names[op.dst] if op.dst else None) for op in bundle.ops))
                    for bundle in program.bundles)
    allocated = replace(program, bundles=bundles)
    verify(allocated)
    if log is not None:
        most = Counter(reg.kind for reg in set(names.values()))
        why = ", ".join(f"{most[kind]} of {count} {kind}" for kind, count in spec.registers.items())
        log.append(Step(program.name, True, f"{len(found)} values in {why} registers"))
    return allocated


def intervals(program: Program) -> list[Interval]:
    """The life of every register, by start."""
    first: dict[Reg, int] = {}
    final: dict[Reg, int] = {}

    def touch(registers: Iterable[Reg], time: int) -> None:
        for reg in registers:
            first[reg] = min(first.get(reg, time), time)
            final[reg] = max(final.get(reg, time), time)

    for pc, bundle in enumerate(program.bundles):
        for op in bundle.ops:
            touch(op.reads(), 2 * pc)
            touch(op.writes(), 2 * pc + 1)
    for block, head, end in live(program):
        touch(head, 2 * block.start)
        touch(end, 2 * block.stop - 1)
    return sorted((Interval(reg, first[reg], final[reg]) for reg in first), key=lambda i: (i.start, i.reg))


def _scan(ordered: list[Interval], kind: str, count: int, program: Program) -> dict[Reg, Reg]:
    free = list(range(count))
    active: list[tuple[int, int, Interval]] = []  # (end, register, whose)
    names: dict[Reg, Reg] = {}
    for interval in ordered:
        while active and active[0][0] < interval.start:
            heapq.heappush(free, heapq.heappop(active)[1])
        if not free:
            raise _out_of_registers([*(a for *_, a in active), interval], kind, count, program)
        index = heapq.heappop(free)
        names[interval.reg] = Reg(kind, index)
        heapq.heappush(active, (interval.end, index, interval))
    return names


def _out_of_registers(living: list[Interval], kind: str, count: int, program: Program) -> CompileError:
    """The error, with a table: who was written where, and is read until when."""
    what = {"s": "scalar", "v": "vector", "m": "mask"}[kind]
    text = f"out of {what} registers; the longest lives, in bundles:"
    writers = {op.dst: op for bundle in reversed(program.bundles) for op in bundle.ops}  # the first of each
    longest = sorted(living, key=lambda i: i.start - i.end)[:SHOWN_REGISTERS]
    for reg, start, end in longest:
        text += f"\n    {reg!s:8}{start // 2:#7x} to {end // 2:#7x}   {writers.get(reg, '-')}"
    text += f"\n    and {len(living) - SHOWN_REGISTERS} more" if len(living) > SHOWN_REGISTERS else ""
    got = f"{len(living)} live at bundle {max(i.start for i in living) // 2:#x}"
    locs = merge_locs(*(writers[i.reg].locs for i in longest if i.reg in writers))
    return CompileError("tpu registers", text + "\n ", got=got, need=f"at most {count}", at=locs,
                        hint="a smaller kernel, or smaller tiles")


def renamed(op: Instr, names: Mapping[Reg, Reg], dst: Reg | None) -> Instr:
    """The instruction over other registers. dst: what it writes."""
    def name(value: Any) -> Any:
        match value:
            case Reg():
                return names[value]
            case Address(base=Reg() as base):
                return replace(value, base=names[base])
            case tuple():
                return tuple(map(name, value))
        return value

    return replace(op, dst=dst, srcs=name(op.srcs), attrs=name(op.attrs))
