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
from dataclasses import dataclass, fields, replace

from minicc.errors import CompileError, Loc
from minicc.tpu.isa import (
    Address,
    Attr,
    Bundle,
    HbmBuffer,
    Instr,
    Operand,
    Program,
    Reg,
    Semaphore,
    VmemBuffer,
    lookup,
)
from minicc.tpu.machine import SPECS, TPUSpec
from minicc.tpu.verify import problems

_NUMBER = r"-?(?:0x[0-9a-f]+|\d+\.?\d*(?:e[-+]?\d+)?|inf|nan)"
_OPERAND = re.compile(rf"""
      (?P<reg>!?[svm]\d+)\b
    | (?P<number>{_NUMBER})(?![\w.])
    | \[\s*(?P<name>[\w.]+)
      (?:\s*\+\s*(?P<base>s\d+))?
      (?:\s*(?P<sign>[+-])\s*(?P<offset>0x[0-9a-f]+|\d+))?\s*\]
    | (?P<label>\.[\w.]+)
    """, re.VERBOSE)
_ATTR = re.compile(rf"(?P<key>[a-z]+)(?:=(?:\((?P<tuple>[^()]*)\)|(?P<one>s\d+|{_NUMBER})))?(?![\w=])")
_BUNDLE = re.compile(r"(?:(?P<pc>0x[0-9a-f]+|\d+)\s*(?:L[HBX])?\s*:)?[\s>]*\{(?P<ops>.*)\}$")
_PLACES = re.compile(r"\S+:\d+(?:, \S+:\d+)*$")
_NAME = r"(?P<name>\w[\w.]*)"
_HEADER = {
    "program": re.compile(r"program (?P<name>\S+)$"),
    "machine": re.compile(r"machine (?P<name>\S+)(?P<own>(?: \w+=\S+)*)$"),
    "hbm": re.compile(rf"hbm {_NAME}: (?P<dtype>\w+)\[(?P<shape>[\d, ]*)\] (?P<role>input|output|temp)$"),
    "vmem": re.compile(rf"vmem {_NAME}: (?P<dtype>\w+) rows=(?P<rows>{_NUMBER}) base=(?P<base>{_NUMBER})$"),
    "semaphore": re.compile(rf"semaphore {_NAME}: (?P<count>\d+)$"),
}
_FORMS = {
    "program": "program NAME",
    "machine": "machine v5e, and the fields that differ, as in mxus=8",
    "hbm": "hbm x: f32[8,128] input (or output, temp)",
    "vmem": "vmem xb: f32 rows=8 base=0x0",
    "semaphore": "semaphore done: 1",
}


@dataclass(frozen=True)
class _Line:
    """One line of the text and its number, so that whatever is wrong with it can say where."""

    number: int
    text: str
    file: str

    def error(self, what: str, column: int = 0, need: str = "", hint: str = "") -> CompileError:
        where = f"parse tpu program, line {self.number}, column {column + 1}"
        place = (Loc(self.file, self.number, self.text.strip()),) if self.file else ()
        return CompileError(where, what, got=self.text.strip()[:80], need=need, at=place, hint=hint)


def _number(text: str) -> int | float:
    if text in ("inf", "-inf", "nan"):
        return math.nan if text == "nan" else float(text)  # one NaN object, so that programs compare equal
    if "0x" in text:
        return int(text, 16)
    return float(text) if "." in text or "e" in text else int(text)


def _operand(line: _Line, text: str, column: int) -> tuple[Operand, int, bool]:
    """The operand at a column, the column behind it, and whether it was written with a `!`."""
    found = _OPERAND.match(text, column)
    if not found:
        raise line.error("not an operand", column, "s0, v0, m0, a number, [buffer + s0 + 0x8] or .label")
    if found["reg"]:
        name = found["reg"].lstrip("!")
        return Reg(name[0], int(name[1:])), found.end(), found["reg"].startswith("!")
    if found["number"]:
        return _number(found["number"]), found.end(), False
    if found["label"]:
        return found["label"], found.end(), False
    base = Reg("s", int(found["base"][1:])) if found["base"] else None
    offset = int(found["offset"] or "0", 0) * (-1 if found["sign"] == "-" else 1)
    return Address(found["name"], base, offset), found.end(), False


def _attr_value(line: _Line, text: str, column: int) -> int | Reg:
    value, end, _ = _operand(line, text, 0)
    if text[end:].strip() or not isinstance(value, int | Reg) or str(value)[0] in "vm":
        raise line.error(f"not an integer or scalar register: {text}", column)
    return value


def _attrs(line: _Line, start: int, end: int) -> tuple[tuple[str, Attr], ...]:
    """`stride=0 rows=s3 begin shape=(8, s1)`: everything behind the operands."""
    attrs: list[tuple[str, Attr]] = []
    column = start
    while column < end:
        found = _ATTR.match(line.text, column, end)
        if not found:
            raise line.error("not an attribute", column, "key, key=number or key=(number, s0)")
        value: Attr = True
        if found["one"]:
            value = _attr_value(line, found["one"], column)
        elif found["tuple"] is not None:
            value = tuple(_attr_value(line, part.strip(), column) for part in found["tuple"].split(","))
        attrs.append((found["key"], value))
        column = _skip_space(line.text, found.end())
    return tuple(attrs)


def _skip_space(text: str, column: int) -> int:
    return column + len(text[column:]) - len(text[column:].lstrip())


def _instr(line: _Line, start: int, end: int, locs: tuple[Loc, ...]) -> Instr:
    """One instruction: op, then operands between commas, then attributes."""
    op_match = re.compile(r"[a-z][\w.]*").match(line.text, start)
    info = lookup(op_match.group())[0] if op_match else None
    if op_match is None or info is None:
        op = op_match.group() if op_match else line.text[start:end]
        raise line.error(f"unknown op {op}", start, hint="the names in isa.OPS; mxu, xlu and a number")
    operands: list[Operand] = []
    attrs: tuple[tuple[str, Attr], ...] = ()
    column = _skip_space(line.text, op_match.end())
    while column < end and _OPERAND.match(line.text, column, end):
        value, column, negated = _operand(line, line.text, column)
        operands.append(value)
        attrs += (("unless", True),) if negated else ()
        column = _skip_space(line.text, column)
        if column >= end or line.text[column] != ",":
            break
        column = _skip_space(line.text, column + 1)
        _operand(line, line.text[:end], column)  # a comma promises one more
    attrs += _attrs(line, column, end)
    dst = operands.pop(0) if info.dst and operands else None
    if dst is not None and not isinstance(dst, Reg):
        raise line.error(f"{op_match.group()} writes a register; it comes first", start)
    return Instr(op_match.group(), dst, tuple(operands), attrs, locs)


def _bundle(line: _Line, pc: int) -> Bundle:
    """`0x2a LB: > { op ;; op }  # train.py:12`."""
    code, _, comment = line.text.partition("#")
    found = _BUNDLE.match(code.rstrip())
    if not found:
        raise line.error("not a header, label or bundle", 0, "`0x0 : { op ;; op }`, `.label:`, a declaration")
    if found["pc"] and int(found["pc"], 0) != pc:
        raise line.error(f"this is bundle {pc:#x}", 0, hint="leave the number out")
    locs = _provenance(comment.strip(), line)
    ops, column = [], found.start("ops")
    for part in re.split(";;", found["ops"]):
        start, end = _skip_space(line.text, column), column + len(part.rstrip())
        if part.strip():
            ops.append(_instr(line, start, end, locs))
        column += len(part) + 2
    return Bundle(tuple(ops))


def _provenance(comment: str, line: _Line) -> tuple[Loc, ...]:
    """The places a comment lists; without any, the text's own line, when it has a file name."""
    if _PLACES.match(comment):
        pairs = [place.rsplit(":", 1) for place in comment.split(", ")]
        return tuple(Loc(file, int(number)) for file, number in pairs)
    return (Loc(line.file, line.number, line.text.strip()),) if line.file else ()


def _machine(line: _Line, name: str, own: str) -> TPUSpec:
    """`machine v5e mxus=8 name=mine`: a known machine and the fields in which this one differs."""
    if name not in SPECS:
        raise line.error(f"unknown machine {name}", 8, " or ".join(SPECS))
    types: dict[str, type] = {"str": str, "int": int, "float": float}
    kinds = {field.name: types[str(field.type)] for field in fields(TPUSpec)}
    pairs = [pair.split("=", 1) for pair in own.split()]
    try:
        return replace(SPECS[name], **{key: kinds[key](value) for key, value in pairs})
    except (KeyError, ValueError):
        raise line.error("not a field of TPUSpec and its value", 8, ", ".join(kinds)) from None


def _declaration(word: str, found: re.Match[str]) -> HbmBuffer | VmemBuffer | Semaphore:
    if word == "hbm":
        shape = tuple(int(size) for size in found["shape"].split(",") if size.strip())
        return HbmBuffer(found["name"], found["dtype"], shape, found["role"])
    if word == "vmem":
        return VmemBuffer(found["name"], int(found["rows"], 0), int(found["base"], 0), found["dtype"])
    return Semaphore(found["name"], int(found["count"]))


def _read(line: _Line, code: str, program: Program) -> Program:
    """The program with one more line read."""
    word = code.split(" ", 1)[0]
    found = _HEADER[word].match(code) if word in _HEADER else None
    if word in _HEADER and not found:
        raise line.error(f"malformed {word} line", 0, _FORMS[word])
    if found and word == "program":
        return replace(program, name=found["name"])
    if found and word == "machine":
        return replace(program, machine=_machine(line, found["name"], found["own"]))
    if found:
        declared = _declaration(word, found)
        if isinstance(declared, Semaphore):
            return replace(program, semaphores=(*program.semaphores, declared))
        return replace(program, buffers=(*program.buffers, declared))
    return program


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
        if code.split(" ", 1)[0] in _HEADER:
            program = _read(line, code, program)
        elif re.fullmatch(r"\.[\w.]+:", code):
            program = replace(program, labels=(*program.labels, (code[:-1], len(bundles))))
        elif code:
            bundles.append(_bundle(line, len(bundles)))
            at.append(line)
    program = replace(program, bundles=tuple(bundles))
    for problem in problems(program, virtual=True):
        line = at[min(problem.pc, len(at) - 1)] if at else _Line(1, "", file)
        column = max(0, line.text.find(str(problem.instr.op) if problem.instr else "{"))
        raise line.error(problem.what, column, str(problem.need))
    return program
