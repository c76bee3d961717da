"""The errors of minicc, and the place in the user's program that each one points at.

A tree that one can learn in a minute:

    MiniccError                 something minicc found and can name
      CompileError              the program is wrong
        ShapeError              ... its shapes are        (also a ValueError)
        DtypeError              ... its dtypes are        (also a TypeError)
        OutOfRangeError         ... an index is           (also an IndexError)
      MachineFault              the emulated machine caught something: a race, a deadlock, a garbage read
      Todo                      an exercise that is not done yet (also a NotImplementedError)

Every error says the same five things, in the same order, each left out only when it does not apply:

>>> print(ShapeError("dot_general", "contracted sizes differ", got="784 and 512", need="equal",
...                  at=(Loc("train.py", 12, "h = x @ w"),), hint="w.T"))
dot_general: contracted sizes differ. got 784 and 512; need equal.
  at train.py:12: h = x @ w
  try: w.T

Real compilers print a diagnostic per source location too (clang, MLIR); the ones that do not are why people
ask "which of my lines is fusion_33?". This file imports nothing of minicc.
"""

from __future__ import annotations

import linecache
import os
from dataclasses import dataclass, field

SHOWN_LINES = 3  # an error that lists twenty places helps no one


@dataclass(frozen=True, order=True)
class Loc:
    """One line of a user's program. `text` overrides what linecache finds (an interactive session, a
    test)."""

    file: str
    line: int
    text: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"

    def source(self) -> str:
        """The text of the line, stripped; empty when the file cannot be read."""
        return self.text or linecache.getline(self.file, self.line).strip()


def merge_locs(*groups: tuple[Loc, ...]) -> tuple[Loc, ...]:
    """All lines of the groups, each once, in the order first seen.

    >>> merge_locs((Loc("a.py", 1),), (Loc("a.py", 2), Loc("a.py", 1)))
    (Loc(file='a.py', line=1, text=''), Loc(file='a.py', line=2, text=''))
    """
    return tuple(dict.fromkeys(loc for group in groups for loc in group))


def a_type(x: object) -> str:
    """The type of a Python object, as an error says it.

    >>> a_type("x"), a_type(3)
    ('a str', 'an int')
    """
    name = type(x).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


class MiniccError(Exception):
    """Base of every error minicc raises on purpose.

    stage: the pass, op or machine part that noticed ("dot_general", "parse graph", "vld").
    what:  what was wrong, one clause. got / need: what was found and what would have been right.
    at:    the user's lines. hint: what to try next.
    """

    def __init__(
        self, stage: str, what: str, *, got: object = "", need: object = "", at: tuple[Loc, ...] = (),
        hint: str = "",
    ) -> None:
        self.stage, self.what, self.got, self.need, self.hint = stage, what, str(got), str(need), hint
        self.at = tuple(at)
        super().__init__(stage, what)

    def __str__(self) -> str:
        facts = "; ".join(f"{word} {fact}" for word, fact in (("got", self.got), ("need", self.need)) if fact)
        if "\n" in facts:  # a table or a graph stands on lines of its own
            lines = [f"{self.stage}: {self.what}.", facts.rstrip()]
        else:
            lines = [f"{self.stage}: {self.what}." + (f" {facts}." if facts else "")]
        for loc in self.at[:SHOWN_LINES]:
            source = loc.source()
            lines.append(f"  at {loc}" + (f": {source}" if source else ""))
        if len(self.at) > SHOWN_LINES:
            lines.append(f"  and {len(self.at) - SHOWN_LINES} more lines")
        if self.hint:
            lines.append(f"  try: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple:
        return _rebuild, (type(self), self.stage, self.what, self.got, self.need, self.at, self.hint)


def _rebuild(
    kind: type, stage: str, what: str, got: str, need: str, at: tuple[Loc, ...], hint: str
) -> MiniccError:
    return kind(stage, what, got=got, need=need, at=at, hint=hint)


class CompileError(MiniccError):
    """The program is wrong, or asks for more than the machine has."""


class ShapeError(CompileError, ValueError):
    """Shapes or axes do not fit."""


class DtypeError(CompileError, TypeError):
    """A dtype, or the type of a Python object, does not fit."""


class OutOfRangeError(CompileError, IndexError):
    """An index or a slice lies outside its tensor."""


class MachineFault(MiniccError):
    """The emulated machine caught the program doing something a real one would get silently wrong, or hang
    on."""


class Todo(MiniccError, NotImplementedError):
    """An exercise that has not been done yet."""
