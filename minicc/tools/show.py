"""`minicc show`: a program at one level, as text.

Goes in: a program and a level. Comes out: what `str()` of that level says, the same text that its parser
reads where it has one. XLA's --xla_dump_to and LLVM's -print-after are the same window. Read next:
programs.py.
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext

from minicc.compiler import Compiled
from minicc.errors import CompileError
from minicc.graph.simplify import fast_simplify
from minicc.slots import using
from minicc.tools import programs
from minicc.tools.output import emit

EXAMPLE = "minicc show -c 'relu(rand(64,32) @ rand(32,16))' --level pipelined --device tpu"
LEVELS = ("graph", "kernels", "memory", "pipelined", "program", "explain")


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    programs.arguments(parser)
    parser.add_argument("--level", choices=LEVELS, default="kernels", help="how far down (default: kernels); "
                        "explain: why these kernels")
    parser.add_argument("--fast-math", action="store_true", help="with the rules of simplify that may round")


def run(options: argparse.Namespace) -> int:
    """Print the level of each compile in the program."""
    with using(simplify=fast_simplify) if options.fast_math else nullcontext():
        found = [loaded.compiled for loaded in programs.load(options)]
    rows = [{"name": compiled.graph.name, "device": compiled.device, "level": options.level,
             "text": level_text(compiled, options.level)} for compiled in found]
    emit("\n\n".join(row["text"].rstrip() for row in rows), rows, options)
    return 0


def level_text(compiled: Compiled, level: str) -> str:
    """One level of a compiled program as text.

    Raises: CompileError for a level that its device does not have.
    """
    if level == "explain":
        return compiled.explain()
    if level != "pipelined":
        return str(getattr(compiled, level))
    if not compiled.kernels.kernels:
        raise CompileError("show", "there is nothing to pipeline", got="a program without kernels",
                           hint="its outputs are inputs or constants")
    if not compiled.pipelined:
        what = "only a TPU's copies are explicit"
        raise CompileError("show", what, got=compiled.device, hint="--device tpu")
    return "\n\n".join(map(str, compiled.pipelined))
