"""`minicc opt`: named passes over a graph file, as LLVM's `opt` runs them over bitcode.

    $ minicc opt model.graph --passes simplify,legalize,fuse --print-after-all --device tpu

Goes in: graph text and the names of passes, in an order in which each gets what it takes: a graph, the legal
one that fuse needs, or the kernels that fuse makes. Comes out: what the last one made, as text; with
--print-after-all, also each pass's result and the steps it took, on stderr. The golden tests are files of
such commands with what they must print. Read next: graph/simplify.py.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

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
# pass -> what it takes, what it gives
STEPS = {"simplify": ("graph", "graph"), "legalize": ("graph", "legal graph"),
         "fuse": ("legal graph", "kernels"), "tile": ("kernels", "kernels")}
PASSES = {line.name: line for line in compiler.PASSES if line.name in STEPS}


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("program", metavar="FILE.graph")
    parser.add_argument("--passes", default="simplify", metavar="A,B", help=f"of: {', '.join(PASSES)}")
    parser.add_argument("--fast-math", action="store_true", help="with the rules of simplify that may round")
    parser.add_argument("--print-after-all", action="store_true", help="the result of each pass, on stderr")


def run(options: argparse.Namespace) -> int:
    """Run the passes in order and print what the last one made."""
    graph = parse_graph(read_text(options.program), options.program)
    levels = Levels(find(options.device), graph, options=compiler.Options(options.fast_math))
    here, made = "graph", str(graph)
    for name in filter(None, options.passes.split(",")):
        if name not in PASSES:
            need = " or ".join(PASSES)
            raise CompileError("opt", "unknown pass", got=name, need=need, hint=nearest(name, PASSES))
        if STEPS[name][0] != here:
            raise CompileError("opt", f"{name} comes at the wrong place", got=f"{here}, in {options.passes}",
                               need=STEPS[name][0], hint="simplify,legalize,fuse,tile")
        log: list[Step] = []
        line, here = PASSES[name], STEPS[name][1]
        level = line.call(partial(run_pass, name, line.function, log=log), levels)
        setattr(levels, line.fills, level)
        made = str(level)
        if options.print_after_all:
            print(f"-- after {name}", *log, made, sep="\n", file=sys.stderr)
    emit(made.rstrip(), {"text": made}, options)
    return 0
