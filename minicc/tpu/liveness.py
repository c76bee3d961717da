"""Liveness: which registers still hold something that will be read, at the ends of each basic block.

    .loop:  s1 = s0 + 8 ; branch .loop if s2      live in: s0, s2     live out: the same, for the next round

Goes in: blocks, each a list of steps (instructions that read together, then write together), and for each
block those that can follow it. Comes out: for each block, the registers live at its head and at its end.
The textbook backward dataflow, until nothing changes. Read next: schedule.py and registers.py, which both
count with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from minicc.tpu.isa import Instr, Reg

Steps = Sequence[Sequence[Instr]]


def successors(labels: Sequence[Sequence[str]], last: Sequence[Instr | None]) -> list[list[int]]:
    """For each block, by the labels at its head and the instruction at its end: the blocks that can
    follow."""
    where = {label: number for number, names in enumerate(labels) for label in names}
    found = []
    for number, op in enumerate(last):
        jumps = op is not None and op.op == "sbr.rel"
        falls = not (op is not None and (op.op == "shalt" or (jumps and len(op.srcs) == 1)))
        following = [number + 1] if falls and number + 1 < len(labels) else []
        found.append(following + ([where[str(op.srcs[-1])]] if jumps and op is not None else []))
    return found


def live(blocks: Sequence[Steps], following: Sequence[Sequence[int]]) -> list[tuple[set[Reg], set[Reg]]]:
    """(live at the head, live at the end) of each block."""
    uses, defines = zip(*map(_exposed, blocks), strict=True) if blocks else ((), ())
    heads: list[set[Reg]] = [set(use) for use in uses]
    ends: list[set[Reg]] = [set() for _ in blocks]
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(blocks))):
            ends[number] = set().union(*(heads[after] for after in following[number]))
            head = uses[number] | (ends[number] - defines[number])
            changed |= head != heads[number]
            heads[number] = head
    return list(zip(heads, ends, strict=True))


def _exposed(steps: Steps) -> tuple[set[Reg], set[Reg]]:
    """What a block reads before it writes it, and what it writes."""
    reads: set[Reg] = set()
    writes: set[Reg] = set()
    for ops in steps:
        reads.update(reg for op in ops for reg in op.reads() if reg not in writes)
        writes.update(reg for op in ops for reg in op.writes())
    return reads, writes
