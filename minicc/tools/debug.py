"""MINICC_DEBUG=1..5: what every compile and run says about itself, on stderr.

    1 kernels and times    2 + decisions    3 + kernels' text    4 + program text    5 + every rewrite

Goes in: the environment, or --debug. Comes out: lines on stderr. Invariants: without a level nothing listens;
the level is read at each compile, so that a mistake in it is an error of the program and not of `import
minicc`; DEBUG counts only where it is a digit, since other tools use that name too. tinygrad's DEBUG is the
model. Read next: trace.py.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from minicc.compiler import Compiled, on_compile, on_run
from minicc.errors import CompileError

LEVELS = ("0", "1", "2", "3", "4", "5")
REWRITES = ("simplify", "legalize")  # passes of many small steps, for the last level


def level() -> int:
    """The debug level in force.

    Raises: CompileError when MINICC_DEBUG (or --debug, which sets it) is not one digit from 0 to 5.
    """
    word = os.environ.get("MINICC_DEBUG") or ""
    if not word:
        other = os.environ.get("DEBUG", "")
        return int(other) if other in LEVELS else 0
    if word not in LEVELS:
        raise CompileError("debug", "MINICC_DEBUG is not a level", got=word, need="a digit from 0 to 5")
    return int(word)


@contextmanager
def at_level(word: str | None) -> Iterator[None]:
    """Use this level inside; None leaves it to the environment. A wrong one fails here and now."""
    before, started = os.environ.get("MINICC_DEBUG", ""), False
    os.environ["MINICC_DEBUG"] = before if word is None else word
    try:
        started = level() > 0 and watch()
        yield
    finally:
        os.environ["MINICC_DEBUG"] = before
        if started:
            on_compile.remove(compiled)
            on_run.remove(ran)


def watch() -> bool:
    """Listen to every compile and run from now on; False if that is so already."""
    if compiled in on_compile:
        return False
    on_compile.append(compiled)
    on_run.append(ran)
    return True


def watch_if_asked() -> None:
    """Listen if the environment has a setting at all, right or wrong."""
    if os.environ.get("MINICC_DEBUG") or os.environ.get("DEBUG") in LEVELS:
        watch()


def compiled(program: Compiled) -> None:
    """Report a compile."""
    depth = level()
    if not depth:
        return
    names = ", ".join(kernel.name for kernel in program.kernels.kernels)
    seconds = sum(record.seconds for record in program.records)
    what = f"{program.graph.name} on {program.device}"
    _say(f"{what}: compiled in {seconds * 1e3:.1f} ms, kernels {names or 'none'}")
    for record in program.records:
        _say(f"  {record.name:12} {record.seconds * 1e3:8.2f} ms")
        if depth >= (5 if record.name in REWRITES else 2):
            for step in record.steps:
                _say(f"    {step}")
    if depth >= 3:
        _say(str(program.kernels))
    if depth >= 4:
        _say(str(program.program))


def ran(program: Compiled, seconds: float) -> None:
    """Report a run."""
    if level():
        _say(f"{program.graph.name} on {program.device}: ran in {seconds * 1e3:.2f} ms on this CPU")


def _say(text: str) -> None:
    print(text, file=sys.stderr)
