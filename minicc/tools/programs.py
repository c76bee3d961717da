"""A program as the command line names it, compiled.

    FILE.py          run as __main__; every compile in it          FILE.py:fn   those of the function fn
    FILE.graph       text of a graph; inputs are random, by seed
    -c 'EXPRESSION'  one expression of tensors

Goes in: the options of a command. Comes out: a list of `Loaded`, a compiled program with arrays to run it on.
Invariants: graph text and expressions are parsed, never executed; what a script prints goes to stderr, so
that a level on stdout is that level alone; a script's own mistake is reported with its line. Read next:
expression.py.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import runpy
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from minicc import compiler
from minicc.compiler import Compiled
from minicc.errors import CompileError, Loc, MiniccError
from minicc.frontend.scope import EAGER
from minicc.graph.attributes import nearest
from minicc.graph.dtypes import BOOL, encode
from minicc.graph.ir import Graph, Type
from minicc.graph.text import parse_graph
from minicc.tools.expression import evaluate

GRAPH = "FILE.graph"
FORMS = "FILE.py, FILE.py:function, FILE.graph or -c 'EXPRESSION'"


@dataclass(frozen=True)
class Loaded:
    """A compiled program and the arrays to run it on, which an expression alone brings."""

    compiled: Compiled
    arrays: tuple[np.ndarray, ...] | None

    def run(self, seed: int = 0) -> list[np.ndarray]:
        """Its outputs, for random inputs if it brings none."""
        given = random_inputs(self.compiled.raw_graph, seed) if self.arrays is None else list(self.arrays)
        return self.compiled.run(given)


def arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments by which a command takes a program."""
    parser.add_argument("program", nargs="?", help=FORMS)
    parser.add_argument("-c", dest="expression", metavar="EXPR", help="an expression of tensors")
    parser.add_argument("--seed", type=_seed, default=0, help="for random inputs (default 0)")


def _seed(text: str) -> int:
    """A seed of numpy's, or argparse's own error."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no integer from 0")
    return int(text)


def check(options: argparse.Namespace) -> None:
    """Exactly one form of a program must be given."""
    if (options.program is None) == (options.expression is None):
        raise CompileError("command line", "no program, or two of them", need=FORMS)


def load(options: argparse.Namespace) -> list[Loaded]:
    """The program that the options name.

    Raises: CompileError when there is none, or more than one, or it compiles nothing.
    """
    check(options)
    if options.expression is not None:
        tensors = evaluate(options.expression, options.seed)
        graph, arrays = EAGER.graph([EAGER.lift(tensor) for tensor in tensors])
        graph = dataclasses.replace(graph, name="expression")
        return [Loaded(compiler.compile_graph(graph, options.device), tuple(arrays))]
    path, colon, function = options.program.partition(".py:")
    if colon or path.endswith(".py"):
        return _script(Path(path + ".py" if colon else path), function, options.device)
    graph = parse_graph(read_text(path, FORMS), path)
    return [Loaded(compiler.compile_graph(graph, options.device), None)]


def random_inputs(graph: Graph, seed: int) -> list[np.ndarray]:
    """An array for each input of a graph.

    Raises: CompileError when this computer has no room for them.
    """
    generator = np.random.default_rng(seed)
    try:
        return [random_array(value.type, generator) for value in graph.inputs]
    except (MemoryError, ValueError):  # numpy's errors for arrays too large, and for far too large
        got = f"inputs of {sum(value.type.bytes for value in graph.inputs) / 2**30:.1f} GiB"
        raise CompileError("command line", "this computer's own memory is too small", got=got) from None


def random_array(type: Type, generator: np.random.Generator) -> np.ndarray:
    """An array of this type: floats of a normal distribution, integers 0 to 9, bools of a coin."""
    if type.dtype is BOOL:
        return generator.random(type.shape) < 0.5
    if type.dtype.kind == "i":
        return generator.integers(0, 10, type.shape).astype(type.dtype.numpy)
    return encode(generator.standard_normal(type.shape), type.dtype)


def read_text(path: str, need: str = GRAPH) -> str:
    """The text of a graph file. need: the forms of a program that would be right.

    Raises: CompileError for another kind of file, or one that cannot be read.
    """
    if not path.endswith(".graph"):
        raise CompileError("command line", "a program of unknown kind", got=repr(path), need=need)
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        raise _unreadable(path, failure, need) from failure


def _unreadable(path: object, failure: Exception, need: str) -> CompileError:
    reason = getattr(failure, "strerror", None) or "it is not text in UTF-8"
    return CompileError("command line", f"cannot read {path}", got=reason, need=need)


def _script(path: Path, function: str, device: str | None) -> list[Loaded]:
    with _recorded() as seen, contextlib.redirect_stdout(sys.stderr):
        run_script(path, device)
    names = list(dict.fromkeys(compiled.graph.name for compiled in seen))
    found = [compiled for compiled in seen if not function or compiled.graph.name == function]
    if not found:
        what = f"it compiles no function {function}" if function else "it compiles nothing"
        hint = nearest(function, names) if names else "call .numpy() on a result, or a function made by jit"
        raise CompileError("command line", f"{path}: {what}", got=", ".join(names), hint=hint)
    if device is not None:
        found = [compiler.compile_graph(compiled.raw_graph, device) for compiled in found]
    return [Loaded(compiled, None) for compiled in {str(c.graph) + c.device: c for c in found}.values()]


@contextlib.contextmanager
def _recorded() -> Iterator[list[Compiled]]:
    """What is compiled or run inside; a program that was compiled before shows only by its run."""
    seen: list[Compiled] = []

    def record(program: Compiled, seconds: float = 0.0) -> None:
        seen.append(program)

    compiler.on_compile.append(record)
    compiler.on_run.append(record)
    try:
        yield seen
    finally:
        compiler.on_compile.remove(record)
        compiler.on_run.remove(record)


def run_script(path: Path, device: str | None = None) -> None:
    """Run a file as __main__, the way `python FILE.py` would; on this device where it names none.

    Raises: CompileError with the line on which the script failed; minicc's own errors as they are.
    """
    if not path.is_file():
        raise _unreadable(path, FileNotFoundError(2, os.strerror(2)), FORMS)
    argv, first, environment = sys.argv, sys.path[0], dict(os.environ)
    sys.argv, sys.path[0] = [str(path)], str(path.resolve().parent)
    if device is not None:
        os.environ["MINICC_DEVICE"] = device
    try:
        runpy.run_path(str(path), run_name="__main__")
    except MiniccError:
        raise
    except SystemExit as stop:
        if stop.code not in (None, 0):
            raise CompileError("run", f"{path} stopped", got=f"exit code {stop.code}") from stop
    except Exception as failure:
        raise CompileError("run", f"{path} failed", got=f"{type(failure).__name__}: {failure}",
                           at=_lines_in(path, failure), hint=f"python {path} shows all of it") from failure
    finally:
        sys.argv, sys.path[0] = argv, first
        os.environ.clear()
        os.environ.update(environment)


def _lines_in(path: Path, failure: Exception) -> tuple[Loc, ...]:
    if isinstance(failure, SyntaxError) and failure.filename == str(path):
        return (Loc(str(path), failure.lineno or 1),)
    frames = traceback.extract_tb(failure.__traceback__)
    own = [Loc(frame.filename, frame.lineno or 1) for frame in frames if frame.filename == str(path)]
    return tuple(own[-1:])
