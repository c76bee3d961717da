"""`minicc reduce`: the smallest graph that still goes wrong in the same way.

    $ minicc reduce fuzz-7.graph
    graph random_7(x0: f32[1]) { %0 = ...      the pass that bisect names is still the one to blame

Goes in: a graph that some level gets wrong. Comes out: a graph from which nothing can be taken, on the
screen and in FILE.min.graph. One step drops an output, or the op that makes one, puts an operand or an input
in the place of an op, or makes a size smaller; a step is kept if the graph fails as before. Invariant: every
step leaves fewer outputs or ops, or smaller numbers, so that it ends.

C-Reduce does this to C text, LLVM's llvm-reduce to its IR, both by many more kinds of steps. Source: Zeller
and Hildebrandt, "Simplifying and isolating failure-inducing input" (2002). Read next: fuzz.py.
"""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from minicc.errors import CompileError
from minicc.graph.ir import Builder, Graph, Node, Value, topological
from minicc.graph.printing import is_scalar_constant
from minicc.graph.text import parse_graph
from minicc.tools.bisect import first_finding, graph_arguments, read_graph
from minicc.tools.output import Progress, emit, write_file

EXAMPLE = "minicc reduce fuzz-7.graph --device tpu"
SIZE = r"(?<=[\[,]){}(?=[\],])"  # a number among those of a shape or an attribute


def reduce_graph(graph: Graph, fails: Callable[[Graph], bool]) -> Graph:
    """The smallest graph, one step at a time, that still fails."""
    while smaller := next(filter(fails, _smaller(graph)), None):
        graph = smaller
    return graph


def _smaller(graph: Graph) -> Iterator[Graph]:
    """Every graph that is one step smaller, those that lose most first."""
    one = [[value] for value in graph.outputs]
    others = [[value for value in graph.outputs if value != gone] for gone in graph.outputs]
    made_of = [[operand] for output in graph.outputs for operand in output.node.operands]
    yield from (_rebuilt(graph, v) for v in (*one, *others, *made_of) if v and v != [*graph.outputs])
    ops = [node for node in graph.nodes() if node.op != "parameter" and not is_scalar_constant(node)]
    for node in reversed(ops):
        cut = Builder().parameter(f"cut_{len(ops)}", node.types[0])  # a new name: there will be fewer ops
        parts = (*(operand for operand in node.operands if operand.type == cut.type), cut)
        yield from (_rebuilt(graph, graph.outputs, node, part) for part in parts)
    yield from _resized(str(graph))


def _rebuilt(
    graph: Graph, outputs: Sequence[Value], gone: Node | None = None, part: Value | None = None
) -> Graph:
    """The graph of these outputs, with a value in the place of a node that goes; unused inputs go too."""
    builder, new = Builder(), dict[Node, Value]()
    for node in topological(value.node for value in outputs):
        operands = tuple(new[value.node] for value in node.operands)
        if part and node is gone:
            new[node] = new.get(part.node, part)
        elif node.op == "parameter":
            new[node] = Value(node)
        else:
            new[node] = builder.node(node.op, operands, node.attrs, node.types, graph.lines(node))
    results = [new[value.node] for value in outputs]
    inputs = [Value(node) for node in topological(v.node for v in results) if node.op == "parameter"]
    return builder.graph(graph.name, inputs, results)


def _resized(text: str) -> Iterator[Graph]:
    """The graphs with every number of one size made smaller, where that is still well typed."""
    sizes = {int(size) for size in re.findall(SIZE.format(r"\d+"), text)}
    for size in sorted(sizes, reverse=True):
        for less in sorted({1, 2, size // 2, size - 1}):
            if 0 < less < size:
                with contextlib.suppress(CompileError):
                    yield parse_graph(re.sub(SIZE.format(size), str(less), text))


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    graph_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Reduce the graph; print it, and write it beside the file."""
    graph, progress = read_graph(options), Progress()
    finding = first_finding(graph, options)
    if finding is None:
        raise CompileError("reduce", "every level gives the same answer", need="a graph that goes wrong",
                           hint="the --seed, --skip and --device that minicc fuzz named")
    options.device = finding.device

    def fails(smaller: Graph) -> bool:
        progress.show(f"{len(smaller.nodes())} nodes")
        return first_finding(smaller, options) == finding

    smallest = reduce_graph(graph, fails)
    progress.clear()
    path = write_file(Path(options.program).with_suffix(".min.graph"), str(smallest))
    text = f"{smallest}{first_finding(smallest, options)}\nwritten to {path}"
    emit(text, {"text": str(smallest), "file": str(path)}, options)
    return 0
