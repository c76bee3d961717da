"""Liveness: which registers still hold something that will be read, at the ends of each basic block.

    .loop:  s1 = s0 + 8 ; branch .loop if s2      live in: s0, s2     live out: the same, for the next round

Goes in: a program, packed or not. Comes out: its basic blocks, and for each of them the registers live at
its head and at its end. Control enters a block at its first bundle alone and leaves it at its last. Within
a bundle, all read before any writes. The textbook backward dataflow, until nothing changes. Read next:
schedule.py and registers.py, which both count with it.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from minicc.tpu.isa import Program, Reg

Live = tuple[range, set[Reg], set[Reg]]  # a block's bundles, the registers live at its head and at its end


def basic_blocks(program: Program) -> list[range]:
    """The bundles of each block: one begins at the first, at labels and behind branches."""
    end = len(program.bundles)
    starts = {0, end} | {pc for _, pc in program.labels}
    starts |= {pc + 1 for pc, bundle in enumerate(program.bundles) for op in bundle.ops if op.op == "sbr.rel"}
    return [range(a, b) for a, b in pairwise(sorted(starts))]


def following(program: Program, block: range) -> list[int]:
    """Where control can go from the end of a block."""
    ops = program.bundles[block[-1]].ops
    last = next((op.srcs for op in ops if op.op in ("sbr.rel", "shalt")), None)
    falls = last is None or len(last) == 2  # no branch, or one with a condition
    labels = dict(program.labels)
    return ([block.stop] if falls else []) + [labels[str(label)] for label in (last or ())[-1:]]


def live(program: Program) -> list[Live]:
    """The blocks of a program, in order, and what lives at their ends."""
    blocks = [(b, *_exposed(program, b), following(program, b)) for b in basic_blocks(program)]
    heads: dict[int, set[Reg]] = defaultdict(set)
    ends: dict[int, set[Reg]] = {}
    changed = True
    while changed:
        changed = False
        for block, uses, defines, after in reversed(blocks):
            ends[block.start] = set().union(*(heads[pc] for pc in after))
            head = uses | (ends[block.start] - defines)
            changed |= head != heads[block.start]
            heads[block.start] = head
    return [(block, heads[block.start], ends[block.start]) for block, *_ in blocks]


def _exposed(program: Program, block: range) -> tuple[set[Reg], set[Reg]]:
    """What a block reads before it writes it, and what it writes."""
    reads: set[Reg] = set()
    writes: set[Reg] = set()
    for pc in block:
        ops = program.bundles[pc].ops
        reads.update(reg for op in ops for reg in op.reads() if reg not in writes)
        writes.update(reg for op in ops for reg in op.writes())
    return reads, writes
