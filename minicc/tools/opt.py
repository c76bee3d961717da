"""`minicc opt`: named passes over a graph file, as LLVM's `opt` runs them over bitcode.

    $ minicc opt model.graph --passes simplify,legalize,fuse --print-after-all --device tpu

Goes in: graph text and the names of passes, in any order in which each gets what it takes: a graph, or the
kernels that fuse makes. Comes out: what the last one made, as text; with --print-after-all, also each pass's
result and the steps it took, on stderr. Graph passes may come again and again. The golden tests are files of
such commands with what they must print. Read next: graph/simplify.py.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from minicc import compiler
from minicc.compiler import Levels
from minicc.devices import find
from minicc.errors import CompileError
from minicc.graph.attributes import nearest
from minicc.graph.text import parse_graph
from minicc.slots import run_pass
from minicc.tools.output import emit
from minicc.tools.programs import read_text
from minicc.trace import Step

EXAMPLE = "minicc opt model.graph --passes simplify --print-after-all"
TAKES = {"simplify": "graph", "legalize": "graph", "fuse": "graph", "tile": "module"}
PASSES = {line.name: line for line in compiler.PASSES if line.name in TAKES}


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("program", metavar="FILE.graph")
    parser.add_argument("--passes", default="simplify", metavar="A,B", help=f"of: {', '.join(PASSES)}")
    parser.add_argument("--fast-math", action="store_true", help="with the rules of simplify that may round")
    parser.add_argument("--print-after-all", action="store_true", help="the result of each pass, on stderr")


def run(options: argparse.Namespace) -> int:
    """Run the passes in order and print what the last one made."""
    graph = parse_graph(read_text(Path(options.program)), options.program)
    levels, level = Levels(find(options.device), graph, fast_math=options.fast_math), "graph"
    for name in filter(None, options.passes.split(",")):
        if name not in PASSES:
            need = " or ".join(PASSES)
            raise CompileError("opt", "unknown pass", got=name, need=need, hint=nearest(name, PASSES))
        if TAKES[name] != level:
            hint = "fuse makes kernels of a graph: before it simplify and legalize, after it tile"
            raise CompileError("opt", f"{name} comes at the wrong place", got=options.passes, hint=hint)
        log: list[Step] = []
        line = PASSES[name]
        level = line.fills
        setattr(levels, level, line.call(partial(run_pass, name, line.function, log=log), levels))
        if options.print_after_all:
            print(f"-- after {name}", *log, getattr(levels, level), sep="\n", file=sys.stderr)
    text = str(getattr(levels, level))
    emit(text, {"text": text}, options)
    return 0
