"""Printing SIMT kernels as CUDA C.

    Store y[n] = maximum(x1, 0.0) if n < 1000      ->      if (n < 1000) y[n] = max(x1, 0.0f);  // train.py:12

Goes in: a SimtKernel. Comes out: the text of a `__global__` function that a CUDA compiler takes, with the
launch in a comment and the user's line behind each statement. Nothing here runs it: simt.py does.
Invariant: one line per statement, so that an error can quote the line it is about. Read next: simt.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from minicc.errors import Loc
from minicc.gpu.ir import Barrier, Expr, For, If, Let, Load, Set, SimtKernel, Statement, Store, const
from minicc.graph.elementwise import COMPARE_C, ELEMENTWISE
from minicc.graph.ir import DType

INDENT = "    "
C_TYPES = {"f32": "float", "i32": "int", "bool": "bool"}
C_WORDS = {"nan": "NAN", "inf": "INFINITY", "-inf": "-INFINITY", "True": "true", "False": "false",
           str(-(2**31)): "INT_MIN"}
ATOM = 9
# op -> C text and how tightly it binds; what is not here is a function call or an atom
OPERATORS = {
    "multiply": ("{0} * {1}", 5), "divide": ("{0} / {1}", 5), "floordiv": ("{0} / {1}", 5),
    "mod": ("{0} % {1}", 5), "add": ("{0} + {1}", 4), "subtract": ("{0} - {1}", 4), "and": ("{0} && {1}", 2),
    "or": ("{0} || {1}", 1), "negate": ("-{0}", 6), "not": ("!{0}", 6), "select": ("{0} ? {1} : {2}", 0),
}


def expression_text(expr: Expr) -> str:
    """An expression in C, with no more parentheses than it needs.

    >>> m = Expr("reg", value="m")
    >>> expression_text(Expr("multiply", (Expr("add", (m, m)), m)))
    '(m + m) * m'
    """
    return _text(expr)[0]


def _text(expr: Expr) -> tuple[str, int]:
    match expr.op:
        case "const":
            return literal_text(expr.value, expr.dtype), ATOM
        case "reg":
            return expr.value, ATOM
        case "add" if expr.args[1].op == "const" and expr.args[1].value < 0:
            positive = const(-expr.args[1].value, expr.dtype)
            return _text(replace(expr, op="subtract", args=(expr.args[0], positive)))
        case "compare":
            template, strength = f"{{0}} {COMPARE_C[expr.value]} {{1}}", 3
        case "convert":
            template, strength = f"({C_TYPES[expr.dtype.name]}){{0}}", 6
        case op if op in OPERATORS:
            template, strength = OPERATORS[op]
        case op if op in ELEMENTWISE:
            template, strength = ELEMENTWISE[op].cuda, 3  # its operands may stand in a comparison
        case place:
            return place, ATOM
    texts = [f"({text})" if binds <= strength - (number == 0) else text
             for number, (text, binds) in enumerate(map(_text, expr.args))]
    return template.format(*texts), ATOM if expr.op in ELEMENTWISE and expr.op not in OPERATORS else strength


def literal_text(value: float, dtype: DType) -> str:
    """A constant in C, to the last bit."""
    text = str(dtype.numpy.type(value))
    return C_WORDS.get(text) or (f"{text}f" if dtype.kind == "f" else text)


def statement_text(statement: Statement) -> str:
    """One statement in C, without what it contains."""
    match statement:
        case Let(name, value):
            fixed = "" if value.op == "const" else "const "  # what starts as a constant will be added to
            return f"{fixed}{C_TYPES[value.dtype.name]} {name} = {expression_text(value)};"
        case Set(name, value):
            if value.op == "add" and value.args[0].value == name:
                return f"{name} += {expression_text(value.args[1])};"
            return f"{name} = {expression_text(value)};"
        case Load(name, buffer, index, dtype, mask, fill):
            read = f"{buffer}[{expression_text(index)}]"
            if mask is not None:
                read = f"{expression_text(mask)} ? {read} : {literal_text(fill, dtype)}"
            return f"const {C_TYPES[dtype.name]} {name} = {read};"
        case Store(buffer, index, value, mask):
            guard = f"if ({expression_text(mask)}) " if mask is not None else ""
            return f"{guard}{buffer}[{expression_text(index)}] = {expression_text(value)};"
        case For(name, stop, step):
            advance = f"{name} += {step}" if step > 1 else f"++{name}"
            return f"for (int {name} = 0; {name} < {stop}; {advance}) {{"
        case If(condition):
            return f"if ({expression_text(condition)}) {{"
        case Barrier():
            return "__syncthreads();"


def cuda_text(kernel: SimtKernel) -> str:
    """The whole kernel as CUDA C."""
    params = [f"{'' if array.written else 'const '}{C_TYPES[array.dtype.name]}* __restrict__ {array.name}"
              for array in kernel.params]
    launch = f"// launch: {kernel.blocks} blocks of {kernel.threads} threads"
    lines = [launch, f"__global__ void {kernel.name}({', '.join(params)}) {{"]
    lines += [f"{INDENT}__shared__ {C_TYPES[a.dtype.name]} {a.name}[{a.elements}];" for a in kernel.shared]
    lines += _lines(kernel.body, 1) + ["}"]
    return "\n".join(lines) + "\n"


def _lines(body: Sequence[Statement], depth: int) -> list[str]:
    lines = []
    for statement in body:
        locs: tuple[Loc, ...] = getattr(statement, "locs", ())
        where = f"  // {locs[0]}" if locs else ""
        lines.append(INDENT * depth + statement_text(statement) + where)
        if isinstance(statement, For | If):
            lines += [*_lines(statement.body, depth + 1), INDENT * depth + "}"]
    return lines
