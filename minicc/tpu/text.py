"""The TPU program's text form, read back: what `str(program)` prints goes in, the same Program comes out.

    program double
    machine v5e
    hbm x: f32[1024] input
    vmem xb: f32 rows=8 base=0x0
    semaphore done: 1

    .start:
    0x0   : { vld v0, [xb + 0x0] }  # train.py:12
    { vadd.f32 v1, v0, v0 ;; shalt }          a pc and the marks LH LB LX > may be left out: they are derived

`parse(str(p)) == p` for every program. A comment that lists places (`# train.py:12, train.py:13`) is
provenance, given to every instruction of its bundle; any other comment is dropped. Text is read by regular
expressions and never evaluated; an error names line and column. Assemblers for real TPUs are not public;
LLVM's (AsmParser) works in the same two steps: operands by their shape, then the instruction's table.
What to read next: verify.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from minicc.errors import CompileError, Loc
from minicc.tpu import isa
from minicc.tpu.isa import Address, Attr, Bundle, Instr, Operand, Program, Reg
from minicc.tpu.machine import SPECS, TPUSpec
from minicc.tpu.ops import lookup
from minicc.tpu.verify import problems

_INTEGER = r"(?:0x[0-9a-f]+|\d+)"
_OPERAND = re.compile(rf"""
    (?: (?P<reg>[svm]\d+)\b
      | (?P<number>-?(?:{_INTEGER}(?![\w.])|\d+\.?\d*(?:e[-+]?\d+)?|inf|nan))(?![\w.])
      | \[\s*(?P<name>[\w.]+)(?:\s*\+\s*(?P<base>s\d+))?(?:\s*(?P<offset>[+-]\s*{_INTEGER}))?\s*\]
      | (?P<label>\.[\w.]+)
    )\s*(?P<more>,?)\s*""", re.VERBOSE)
_ATTR = re.compile(r"(?P<key>[a-z]+)(?:=(?:\((?P<list>[^()]*)\)|(?P<one>[^\s(),=]+)))?(?:\s+|$)")
_OP = re.compile(r"([\w.]+)\s*(!?)")
_BUNDLE = re.compile(rf"(?:(?P<pc>{_INTEGER})\s*(?:L[HBX])?\s*:)?[\s>]*\{{(?P<ops>.*)\}}$")
_PLACES = re.compile(r"\S+:\d+(?:, \S+:\d+)*$")
_NAME = r"(?P<name>\w[\w.]*)"
# first word of a line: the rest of it, an example, and what it declares
_HEADER: dict[str, tuple[str, str, Any]] = {
    "program": (r"(?P<name>\S+)", "NAME", None),
    "machine": (r"(?P<name>\S+)(?P<own>(?: \w+=\S+)*)", "v5e, and what differs, as in mxus=8", None),
    "hbm": (rf"{_NAME}: (?P<dtype>\w+)\[(?P<shape>(?:\d+(?:, *\d+)*)?)\] (?P<role>input|output|updated|temp)",
            "x: f32[8,128] input (or output, temp)", isa.HbmBuffer),
    "vmem": (rf"{_NAME}: (?P<dtype>\w+) rows=(?P<rows>{_INTEGER}) base=(?P<base_row>{_INTEGER})",
             "xb: f32 rows=8 base=0x0", isa.VmemBuffer),
    "smem": (rf"{_NAME}: (?P<dtype>\w+) words=(?P<words>{_INTEGER}) base=(?P<base_word>{_INTEGER})",
             "ids: i32 words=12 base=0x0", isa.SmemBuffer),
    "semaphore": (rf"{_NAME}: (?P<count>\d+)", "done: 1", isa.Semaphore),
}


@dataclass(frozen=True)
class _Line:
    """One line of the text and its number, so that whatever is wrong with it can say where."""

    number: int
    text: str
    file: str

    @property
    def locs(self) -> tuple[Loc, ...]:
        return (Loc(self.file, self.number, self.text),) if self.file else ()

    def error(self, what: str, column: int = 0, need: str = "", hint: str = "") -> CompileError:
        where = f"parse tpu program, line {self.number}, column {column + 1}"
        return CompileError(where, what, got=self.text[:80], need=need, at=self.locs, hint=hint)


def _integer(text: str) -> int:
    return int(text.replace(" ", ""), 16 if "0x" in text else 10)


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split(",") if size)


_FIELDS: dict[str, Callable] = {"shape": _shape} | dict.fromkeys(
    ("rows", "base_row", "words", "base_word", "count"), _integer)


def _operand(line: _Line, found: re.Match[str] | None, column: int) -> Operand:
    """What a match of _OPERAND means."""
    if not found:
        raise line.error("not an operand", column, "s0, v0, m0, a number, [buffer + s0 + 0x8] or .label")
    if found["reg"]:
        return Reg(found["reg"][0], int(found["reg"][1:]))
    if number := found["number"]:
        is_float = "0x" not in number and set(number) & set(".einf")
        return _integer(number) if not is_float else math.nan if "nan" in number else float(number)
    base = Reg("s", int(found["base"][1:])) if found["base"] else None
    return found["label"] or Address(found["name"], base, _integer(found["offset"] or "0"))


def _attr(line: _Line, found: re.Match[str]) -> Attr:
    """`begin`, `stride=0`, `rows=s3` or `shape=(8, s1)`."""
    def value(piece: str) -> Any:
        return _operand(line, _OPERAND.fullmatch(piece.strip()), found.start())
    if found["list"] is not None:
        return tuple(value(piece) for piece in found["list"].split(",") if piece.strip())
    return value(found["one"]) if found["one"] else True


def _instr(line: _Line, text: str, column: int, locs: tuple[Loc, ...]) -> Instr:
    """`vadd.f32 v1, v0, 1.0`, from a column of the line to the end of `text`, its beginning."""
    head = _OP.match(text, column)
    info = lookup(head[1])[0] if head else None
    if not head or not info:
        name = text[column:].split()[0]
        raise line.error(f"unknown op {name}", column, hint="the names in ops.OPS; mxu, xlu and a number")
    operands: list[Operand] = []
    attrs: list[tuple[str, Attr]] = [("unless", True)] if head[2] else []
    column, more = head.end(), _OPERAND.match(text, head.end()) is not None
    while more:
        found = _OPERAND.match(text, column)
        operands.append(_operand(line, found, column))
        column, more = (found.end(), bool(found["more"])) if found else (column, False)
    while column < len(text):
        attr = _ATTR.match(text, column)
        if not attr:
            raise line.error("not an attribute", column, "key, key=number or key=(number, s0)")
        attrs.append((attr["key"], _attr(line, attr)))
        column = attr.end()
    dst = operands.pop(0) if info.dst and operands and isinstance(operands[0], Reg) else None
    return Instr(head[1], dst, tuple(operands), tuple(attrs), locs)  # type: ignore[arg-type]


def _bundle(line: _Line, pc: int) -> Bundle:
    """`0x2a LB: > { op ;; op }  # train.py:12`. A comment that lists no places leaves the text's own line."""
    code, _, comment = line.text.partition("#")
    found = _BUNDLE.match(code.rstrip())
    if not found:
        raise line.error("not a header, label or bundle", 0, "`0x0 : { op ;; op }`, `.label:`, a declaration")
    if found["pc"] and _integer(found["pc"]) != pc:
        raise line.error(f"this is bundle {pc:#x}", 0, hint="leave the number out")
    locs = line.locs
    if _PLACES.match(comment.strip()):
        places = [place.rsplit(":", 1) for place in comment.strip().split(", ")]
        locs = tuple(Loc(file, int(number)) for file, number in places)
    ops, column = [], found.start("ops")
    for part in found["ops"].split(";;"):
        if part.strip():
            start = column + len(part) - len(part.lstrip())
            ops.append(_instr(line, line.text[:column + len(part)], start, locs))
        column += len(part) + 2
    return Bundle(tuple(ops))


def _machine(line: _Line, name: str, own: str) -> TPUSpec:
    """`machine v5e mxus=8 name=mine`: a known machine and the fields in which this one differs."""
    if name not in SPECS:
        raise line.error(f"unknown machine {name}", 8, " or ".join(SPECS))
    base, changes = SPECS[name], dict(pair.split("=", 1) for pair in own.split())
    try:
        return replace(base, **{key: type(getattr(base, key))(value) for key, value in changes.items()})
    except (AttributeError, TypeError, ValueError):
        names = ", ".join(field.name for field in fields(TPUSpec))
        raise line.error("not a field of TPUSpec and its value", 8, names) from None


def _declare(line: _Line, program: Program, word: str, rest: str) -> Program:
    """The program with what one line of its header says."""
    form, example, kind = _HEADER[word]
    found = re.fullmatch(form, rest)
    if not found:
        raise line.error(f"malformed {word} line", 0, f"{word} {example}")
    if word == "program":
        return replace(program, name=found["name"])
    if word == "machine":
        return replace(program, machine=_machine(line, found["name"], found["own"]))
    declared = kind(**{key: _FIELDS.get(key, str)(value) for key, value in found.groupdict().items()})
    if word == "semaphore":
        return replace(program, semaphores=(*program.semaphores, declared))
    return replace(program, buffers=(*program.buffers, declared))


def parse(text: str, file: str = "") -> Program:
    """The program that a text describes, checked by `verify.problems`; its registers may be virtual.

    file: its name, if its own lines are to be the provenance of bundles that name no other place.
    Raises: CompileError, with line and column.
    """
    program = Program("program", SPECS["v5e"], (), (), ())
    bundles: list[Bundle] = []
    at: list[_Line] = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = _Line(number, raw.strip(), file)
        code = line.text.partition("#")[0].strip()
        word, _, rest = code.partition(" ")
        if word in _HEADER:
            program = _declare(line, program, word, rest)
        elif re.fullmatch(r"\.[\w.]+:", code):
            program = replace(program, labels=(*program.labels, (code[:-1], len(bundles))))
        elif code:
            bundles.append(_bundle(line, len(bundles)))
            at.append(line)
    program = replace(program, bundles=tuple(bundles))
    for problem in problems(program, virtual=True):
        line = at[min(problem.pc, len(at) - 1)] if at else _Line(1, "", file)
        column = line.text.find(problem.instr.op if problem.instr else "{")
        raise line.error(problem.what, max(0, column), str(problem.need))
    return program
