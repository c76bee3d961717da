"""`minicc opt`: named passes over a graph file, as LLVM's `opt` runs them over bitcode.

Goes in: graph text and the names of passes. Comes out: graph text; with --print-after-all, also each pass's
result and the rewrites it made, on stderr. A pass is a function from Graph to Graph. Read next:
graph/simplify.py.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from minicc.errors import CompileError
from minicc.graph.attributes import nearest
from minicc.graph.simplify import simplify
from minicc.graph.text import parse_graph
from minicc.tools.output import emit
from minicc.tools.programs import read_text
from minicc.trace import Step

EXAMPLE = "minicc opt model.graph --passes simplify --print-after-all"
PASSES = {"simplify": simplify}


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("program", metavar="FILE.graph")
    parser.add_argument("--passes", default="simplify", metavar="A,B", help=f"of: {', '.join(PASSES)}")
    parser.add_argument("--print-after-all", action="store_true", help="the graph after each pass, on stderr")


def run(options: argparse.Namespace) -> int:
    """Run the passes in order and print the graph."""
    graph = parse_graph(read_text(Path(options.program)), options.program)
    for name in filter(None, options.passes.split(",")):
        if name not in PASSES:
            need = " or ".join(PASSES)
            raise CompileError("opt", "unknown pass", got=name, need=need, hint=nearest(name, PASSES))
        log: list[Step] = []
        graph = PASSES[name](graph, log=log)
        if options.print_after_all:
            print(f"-- after {name}", *log, graph, sep="\n", file=sys.stderr)
    emit(str(graph), {"text": str(graph)}, options)
    return 0
