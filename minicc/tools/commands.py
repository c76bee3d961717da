"""The command line: `minicc COMMAND ...`.

    $ minicc show -c 'relu(rand(64,32) @ rand(32,16))' --level kernels

Goes in: the words after `minicc`. Comes out: an exit code (0 done, 1 a check failed, 2 bad input, 130
interrupted) and text. Invariants: one row of COMMANDS per command, and its module is imported only when it is
asked for, so that a small question gets its answer at once; a mistake is one `error:` on stderr, never a
traceback; this is the only file that reaches minicc.viz and minicc.lessons, since they need what minicc
itself does not. Each command's module has `arguments(parser)`, `run(options) -> int` and `EXAMPLE`. git and
cargo are built the same way, with a table of subcommands. Read next: show.py.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

from minicc import __version__
from minicc.devices import find
from minicc.errors import CompileError, MiniccError
from minicc.graph.attributes import nearest
from minicc.tools import debug
from minicc.tools.output import make_encodable

# command -> (its module, what it does)
COMMANDS = {
    "demo": ("minicc.tools.demo", "train on handwritten digits, then watch one kernel go down the compiler"),
    "show": ("minicc.tools.show", "print a program at one level: graph, kernels, ...; or why it is so"),
    "run": ("minicc.tools.run", "run a program and summarise what comes out"),
    "draw": ("minicc.tools.draw", "draw a program's graph, kernels and pipelines as SVG and PNG"),
    "profile": ("minicc.tools.profile", "say where a TPU's cycles go, on machines as they are or might be"),
    "machines": ("minicc.tools.machines", "print the emulated machines and where their numbers come from"),
    "opt": ("minicc.tools.opt", "run passes over a graph file and print what is left"),
    "bench": ("minicc.tools.bench", "time known programs beside numpy, and check what they compute"),
    "fuzz": ("minicc.tools.fuzz", "run random programs through every level, against numpy in float64"),
    "reduce": ("minicc.tools.reduce", "shrink a graph that goes wrong to the smallest one that still does"),
    "bisect": ("minicc.tools.bisect", "name the pass that changes an answer, or the op that makes a NaN"),
    "learn": ("minicc.lessons.learn", "a course: rebuild each stage of this compiler, and see it run"),
}
VIZ = "minicc.viz"

DONE, BAD_INPUT, INTERRUPTED = 0, 2, 130


def open_viz() -> ModuleType:
    """The room of drawings.

    Raises: CompileError when the `dot` extra is not installed.
    """
    try:
        return importlib.import_module(VIZ)
    except ModuleNotFoundError as missing:
        raise CompileError("draw", "pictures need one more package", got=f"no {missing.name}",
                           hint="python -m pip install 'minicc-edu[dot]'") from missing


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        make_encodable(stream)
    try:
        code = _dispatch(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return code
    except MiniccError as error:
        print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # the reader has left; what Python flushes at exit must not complain either
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def _dispatch(words: list[str]) -> int:
    name = words[0] if words else "--help"
    if name in ("-h", "--help", "help"):
        print(_overview())
        return DONE
    if name in ("-V", "--version"):
        print(f"minicc {__version__}")
        return DONE
    if name not in COMMANDS:
        hint = f"minicc {nearest(name, COMMANDS) or '--help'}"
        raise CompileError("command line", "unknown command", got=name, need=" | ".join(COMMANDS), hint=hint)
    module = importlib.import_module(COMMANDS[name][0])
    what = COMMANDS[name][1]
    parser = _Parser(
        prog=f"minicc {name}", description=f"{what[0].upper()}{what[1:]}.", allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter, epilog=f"example:\n  {module.EXAMPLE}",
    )
    module.arguments(parser)
    _shared(parser)
    try:
        options = parser.parse_args(words[1:])
    except SystemExit:  # --help has printed, and is content
        return DONE
    if options.device is not None:
        find(options.device)  # which complains, even where the command has no use for it
    with debug.at_level(options.debug):
        return module.run(options)


def _shared(parser: argparse.ArgumentParser) -> None:
    """What every command takes, unless it has its own."""
    known = parser._option_string_actions
    shared = parser.add_argument_group("for every command")
    if "--device" not in known:
        shared.add_argument("--device", metavar="D", help="gpu (the default), gpu:a100, tpu, tpu:v5e, ...")
    shared.add_argument("--json", action="store_true", help="print JSON, for programs to read")
    if "-o" not in known:
        shared.add_argument("-o", "--output", metavar="FILE", help="write to a file instead")
    shared.add_argument("--debug", metavar="N", help="1 kernels and times, 2 decisions, 3 kernels' text, "
                        "4 program text, 5 every rewrite; like MINICC_DEBUG")


class _Parser(argparse.ArgumentParser):
    """argparse, with mistakes as our own errors."""

    def error(self, message: str) -> NoReturn:
        joined = "argument -c: expected one" in message  # argparse takes what begins with - for an option
        raise CompileError(self.prog, message, hint="-c='-rand(3)'" if joined else f"{self.prog} --help")


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"minicc {__version__}: an ML compiler small enough to read", "", "usage: minicc COMMAND", ""]
    lines += [f"  {name:{width}}  {what}" for name, (_, what) in COMMANDS.items()]
    lines += ["", "A PROGRAM is FILE.py (FILE.py:fn for one function of it), FILE.graph, or -c 'EXPRESSION'.",
              "minicc COMMAND --help says more, with an example.", "",
              "example:",
              "  minicc show -c 'relu(rand(64,32) @ rand(32,16))' --level program --device tpu"]
    return "\n".join(lines)
