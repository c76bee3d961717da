"""Where a program's blocks begin and end, and which of them do the same.

    .loop:   vld v4, [a.x + s14 + 0x0] ;; ...      Form(bundles, spaces=((0, 0), (1, 0)), exits={}, loop=True)
    .again:  vld v4, [b.x + s14 + 0x0] ;; ...      the same form, of other buffers: compiled once for both

Goes in: a program, decoded. Comes out: a Span for each run of bundles that could be leapt over, that is, of
those between labels, branches, copies and waits. The layers of a model become kernels that differ in names
alone; a Form has none: its buffers are numbered as they turn up. It has all else that the functions of a
block depend on: which of its buffers share rows, and which registers somebody reads after it.

Invariant: numbers of a form compare as they are printed, since 1, 1.0 and True, or 0.0 and -0.0, differ in
what they do. Read next: blocks.py, which finds out what the bundles amount to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from minicc.tpu.isa import Address, Instr, Program, Reg
from minicc.tpu.liveness import live
from minicc.tpu.machine import SUBLANES
from minicc.tpu.stepping import Decoded

STEPPED = {"halt", "load_word", "copy", "wait", "signal"}  # meanings that no block has


class Form(NamedTuple):
    """What blocks that do the same have in common.

    spaces: for each buffer, the number of its group (those that share rows with one another, or may), and its
    first row, counted from where the group begins here. exits: the registers read after the block, of those
    that it writes. loop: whether it branches back to its begin.
    """

    bundles: tuple[tuple, ...]
    spaces: tuple[tuple[int, int], ...]
    exits: frozenset[Reg]
    loop: bool


class Span(NamedTuple):
    """Bundles that could be a block, from `start` to before `end`. target: of the branch at their end, or -1.
    alive: the registers read after them."""

    start: int
    end: int
    target: int
    alive: frozenset[Reg]


def spans(code: Sequence[Decoded], program: Program) -> Iterator[Span]:
    """Each run of bundles that could be a block."""
    labels, found, begin = dict(program.labels), list[tuple[int, int, int]](), 0
    heads = set(labels.values())
    for pc, bundle in enumerate(code):
        if pc in heads and begin < pc:
            found.append((begin, pc, -1))
            begin = pc
        stepped = any(op.info.run in STEPPED for op in bundle.ops)
        targets = [labels[str(op.srcs[-1])] for op in bundle.ops if op.info.run == "branch"]
        if stepped and begin < pc:
            found.append((begin, pc, -1))
        if targets and not stepped:
            found.append((begin, pc + 1, targets[0]))
        if targets or stepped:
            begin = pc + 1
    alive = _alive(program, {end for _, end, _ in found})
    return (Span(*span, alive[span[1]]) for span in found)


def _alive(program: Program, ends: set[int]) -> dict[int, frozenset[Reg]]:
    """The registers read after the bundle before each of these pcs."""
    found = {}
    for block, _, after in live(program):
        alive = set(after)
        for pc in reversed(block):
            if pc + 1 in ends:
                found[pc + 1] = frozenset(alive)
            ops = program.bundles[pc].ops
            alive.difference_update(op.dst for op in ops if op.dst)
            alive.update(*(op.reads() for op in ops))
    return found


class Rows:
    """Where the buffers of a program lie in VMEM: name -> the group that it shares rows with, first row."""

    def __init__(self, program: Program) -> None:
        self.of: dict[str, tuple[int, int]] = {}
        end = group = -1
        for buffer in sorted(program.vmem, key=lambda b: b.base_row):
            group += buffer.base_row >= end
            self.of[buffer.name], end = (group, buffer.base_row), max(end, buffer.base_row + buffer.rows)

    def form(self, bundles: Sequence[Decoded], span: Span) -> tuple[Form, dict[str, int]]:
        """The form of a block, and its buffers with their numbers."""
        numbers: dict[str, int] = {}
        keys = tuple(tuple(_key(op, numbers) for op in bundle.ops) for bundle in bundles)
        groups: dict[int, tuple[int, int]] = {}  # its number here, and where it begins
        for name in numbers:
            group, row = self.of[name]
            number, first = groups.get(group, (len(groups), row))
            groups[group] = number, min(first, row // SUBLANES * SUBLANES)
        spaces = [(groups[group][0], row - groups[group][1])
                  for group, row in (self.of[name] for name in numbers)]
        written = frozenset(op.dst for bundle in bundles for op in bundle.ops if op.dst)
        return Form(keys, tuple(spaces), span.alive & written, span.target == span.start), numbers


def _key(op: Instr, numbers: dict[str, int]) -> tuple:
    """An instruction without names."""
    if op.info.run == "branch":
        return ("branch", *op.srcs[:-1], op.attrs)
    srcs: list[Any] = []
    for src in op.srcs:
        if isinstance(src, Address):
            srcs.append((numbers.setdefault(src.buffer, len(numbers)), src.base, src.offset))
        else:
            srcs.append(src if isinstance(src, Reg) else repr(src))
    return (op.op, op.dst, *srcs, op.attrs)
