"""One program, many askers: what a program depends on, and whose lines it speaks of.

    f in a.py and g in b.py compute the same    ->  one compile; an error of f names a.py, one of g b.py

Goes in: a graph. Comes out: its `structure`, equal for graphs that differ only in their own name and their
user lines, which is the compile cache's key; and a way to compile it with the *number* of each node in
place of its lines, so that whatever is shared can be made to speak of the lines of whoever asks. XLA
fingerprints a module with its metadata left out, and so may name another program's lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial

from minicc.errors import Loc, MiniccError, merge_locs
from minicc.graph.ir import Graph, Value, attribute_key
from minicc.kernel.ir import Kernel
from minicc.tpu.isa import Program
from minicc.trace import PassRecord

NODE = "<node>"  # the file name of a Loc that is a node's number
Lines = Sequence[tuple[Loc, ...]]


def structure(graph: Graph) -> tuple:
    """What a program depends on: ops, attributes (its inputs' names too: each level shows them), types,
    wiring."""
    numbers = {node: number for number, node in enumerate(graph.nodes())}

    def wiring(values: Sequence[Value]) -> tuple:
        return tuple((numbers[value.node], value.index) for value in values)

    rows = [(node.op, wiring(node.operands), attribute_key(node.attrs), node.types) for node in numbers]
    return tuple(rows), wiring(graph.inputs), wiring(graph.outputs)


def numbered(graph: Graph) -> Graph:
    """The graph with each node's number in place of its lines; passes merge these as they merge lines."""
    return replace(graph, locs={node: (Loc(NODE, number),) for number, node in enumerate(graph.nodes())})


def rebound(numbers: tuple[Loc, ...], lines: Lines) -> tuple[Loc, ...]:
    """The user's lines that numbers of nodes stand for; other lines stay."""
    return merge_locs(*(lines[loc.line] if loc.file == NODE else (loc,) for loc in numbers))


def rebound_graph(graph: Graph, lines: Lines) -> Graph:
    """A graph with the user's lines back in their places."""
    return replace(graph, locs={node: rebound(graph.lines(node), lines) for node in graph.nodes()})


def rebound_kernel(kernel: Kernel, lines: Lines) -> Kernel:
    """A kernel with the user's lines back in their places."""
    return kernel.mapped(lambda block: replace(block, locs=rebound(block.locs, lines)))


def rebound_program(program: Program, lines: Lines) -> Program:
    """A TPU program with the user's lines back in their places."""
    lines_of = cache(partial(rebound, lines=lines))
    bundles = tuple(
        replace(bundle, ops=tuple(replace(op, locs=lines_of(op.locs)) for op in bundle.ops))
        for bundle in program.bundles)
    return replace(program, bundles=bundles)


def rebound_records(records: Sequence[PassRecord], lines: Lines) -> list[PassRecord]:
    """What passes noted of their decisions, with the user's lines back in their places."""
    return [replace(record, steps=tuple(replace(step, at=rebound(step.at, lines)) for step in record.steps))
            for record in records]


@contextmanager
def speaking_of(lines: Lines) -> Iterator[None]:
    """Let errors from inside name the user's lines."""
    try:
        yield
    except MiniccError as error:
        error.at = rebound(error.at, lines)
        raise
