"""Affine addresses: how many rounds of a loop lie between two accesses to the same row.

    .loop:  v0 = [acc + s3]            s3 = s1 + s2, and s2 grows by 8 a round: in round t, s1 + s2 + 8 t
            [acc + s3 + 0x8] = v1      what is stored in round t, the load of round t + 1 reads: 1 apart

Goes in: the instructions of a loop of one block, in order. Comes out: which of them touch the same rows, and
after how many rounds. A scalar is a sum of scalars that the loop does not change, a number, and a number
times the round; what is none of that (a minimum, a word from memory) may be anything.

Invariants: where it cannot be told, accesses are in order, from round to round as well.
LLVM's ScalarEvolution knows loops in this way, its DependenceAnalysis tests for the distance.
Read next: modulo.py.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

from minicc.tpu.isa import Address, Instr, Operand, Program, Reg
from minicc.tpu.machine import SUBLANES

Unknowns = tuple[tuple[Reg, int], ...]  # scalars that the loop does not change, and their factors


class Affine(NamedTuple):
    """unknowns + start + step * round."""

    unknowns: Unknowns = ()
    start: int = 0
    step: int = 0

    def plus(self, other: Affine, factor: int = 1) -> Affine:
        """self + factor * other."""
        total = Counter(dict(self.unknowns))
        for reg, times in other.unknowns:
            total[reg] += factor * times
        unknowns = tuple(sorted((reg, times) for reg, times in total.items() if times))
        return Affine(unknowns, self.start + factor * other.start, self.step + factor * other.step)


class Access(NamedTuple):
    """An instruction's rows of a buffer, in round 0, and how far they move each round; None: anywhere."""

    number: int
    writes: bool
    place: Affine | None
    rows: int


@dataclass(frozen=True)
class Loop:
    """A loop of one block, without its branch. rounds: how many there are. label: of its head."""

    ops: tuple[Instr, ...]
    rounds: int
    label: str

    @cached_property
    def writers(self) -> dict[Reg, int]:
        """Register -> who writes it, at last."""
        return {op.dst: number for number, op in enumerate(self.ops) if op.dst}

    @cached_property
    def accesses(self) -> dict[str, list[Access]]:
        """Buffer -> who touches which of its rows."""
        known: dict[Reg, Affine | None] = {}
        found: dict[str, list[Access]] = defaultdict(list)
        for reg, number in self.writers.items():
            if reg in (op := self.ops[number]).reads():  # carried: as it is at the head of a round
                added = op.srcs[1] if op.op == "sadd.s32" and op.srcs[0] == reg else None
                known[reg] = Affine(((reg, 1),), 0, added) if isinstance(added, int) else None
        for number, op in enumerate(self.ops):
            address = next((src for src in op.srcs if isinstance(src, Address)), None)
            if address is not None:
                base = self.affine(address.base or 0, known)
                place = base and base.plus(Affine(start=address.offset))
                found[address.buffer].append(Access(number, op.info.memory == "write", place, _rows(op)))
            if op.dst and op.dst.kind == "s":
                known[op.dst] = self.result(op, known)
        return found

    def affine(self, operand: Operand, known: Mapping[Reg, Affine | None]) -> Affine | None:
        """What an operand is. One that the loop writes later was written by an earlier round: anything."""
        if isinstance(operand, int):
            return Affine(start=operand)
        assert isinstance(operand, Reg)
        return known.get(operand) if operand in self.writers else Affine(((operand, 1),))

    def result(self, op: Instr, known: Mapping[Reg, Affine | None]) -> Affine | None:
        """What an instruction computes."""
        if any(not isinstance(src, int | Reg) for src in op.srcs):
            return None
        srcs = [self.affine(src, known) for src in op.srcs]
        if None in srcs:
            return None
        a, b = (srcs + [Affine()])[:2] if len(srcs) < 3 else (None, None)
        if a is None or b is None:
            return None
        match op.op:
            case "smov" | "sadd.s32":
                return a.plus(b)
            case "ssub.s32":
                return a.plus(b, -1)
            case "smul.u32" if b == Affine(start=b.start):
                return Affine().plus(a, b.start)
        return None


def loop_of(program: Program, block: range, before: Sequence[Instr], ops: Sequence[Instr]) -> Loop | None:
    """A block as a loop, if it is one that counts to a number. before: the block that falls into it."""
    label = str(ops[-1].srcs[-1]) if ops and ops[-1].op == "sbr.rel" and len(ops) > 2 else ""
    if (label, block.start) not in program.labels or [pc for _, pc in program.labels].count(block.start) > 1:
        return None
    add, compare, branch = ops[-3:]
    starts = [op for op in before if op.dst and op.dst == add.dst]
    if (add.op, compare.op, [op.op for op in starts[-1:]]) != ("sadd.s32", "scmp.lt.s32", ["smov"]) \
            or add.srcs[0] != add.dst or compare.srcs[0] != add.dst or branch.srcs != (compare.dst, label):
        return None
    step, limit = add.srcs[1], compare.srcs[1]
    (start,) = starts[-1].srcs
    if branch.attrs or not (isinstance(start, int) and isinstance(step, int) and isinstance(limit, int)
                            and step > 0):
        return None
    return Loop(tuple(ops[:-2]), max(1, -(-(limit - start) // step)), label)


def _rows(op: Instr) -> int:
    rows, stride = op.attr("rows", SUBLANES), op.attr("stride", 1)
    assert isinstance(rows, int) and isinstance(stride, int)
    return (rows - 1) * stride + 1


def distances(loop: Loop) -> Iterator[tuple[int, int, int]]:
    """(access, later access, how many rounds later at least), of two that touch a row, if one writes it."""
    for accesses in loop.accesses.values():
        for before, after in product(accesses, repeat=2):
            rounds = _distance(before, after) if before.writes or after.writes else None
            if rounds is not None and rounds < loop.rounds:
                yield before.number, after.number, rounds


def _distance(before: Access, after: Access) -> int | None:
    """After how many rounds an access touches a row that the other one has touched; None if never."""
    least = int(before.number >= after.number)
    a, b = before.place, after.place
    if a is None or b is None or (a.unknowns, a.step) != (b.unknowns, b.step):
        return least
    apart, step = b.start - a.start, a.step  # rows from one to the other, in the same round
    low, high = -after.rows + 1, before.rows - 1  # they overlap where low <= apart + step * rounds <= high
    if not step:
        return least if low <= apart <= high else None
    if step < 0:
        apart, step, low, high = -apart, -step, -high, -low
    rounds = max(least, -((apart - low) // step))
    return rounds if apart + step * rounds <= high else None
