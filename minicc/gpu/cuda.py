"""Printing SIMT kernels as CUDA C.

    Store y[n] = maximum(x1, 0.0) if n < 1000      ->      if (n < 1000) y[n] = max(x1, 0.0f);  // train.py:12

Goes in: a SimtKernel. Comes out: the text of a `__global__` function that a CUDA compiler takes, with the
launch in a comment and the user's line behind each statement. Nothing here runs it: simt.py does.
Invariant: one line per statement, so that an error can quote the line it is about. Read next: simt.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from minicc.errors import Loc
from minicc.gpu.ir import Barrier, Expr, For, If, Let, Load, Set, SimtKernel, Statement, Store, const
from minicc.graph.dtypes import F32, U32, DType, decode
from minicc.graph.elementwise import COMPARE_C, CUDA_FUNCTIONS, ELEMENTWISE

INDENT = "    "
C_TYPES = {"f32": "float", "bf16": "__nv_bfloat16", "f16": "__half", "i8": "signed char", "i16": "short",
           "i32": "int", "u8": "unsigned char", "u32": "unsigned int", "bool": "bool"}
HEADERS = {"__nv_bfloat16": "cuda_bf16.h", "__half": "cuda_fp16.h"}  # where C++ finds a type
C_WORDS = {"nan": "NAN", "inf": "INFINITY", "-inf": "-INFINITY", "True": "true", "False": "false",
           str(-(2**31)): "INT_MIN"}
ATOM = 10
# how tightly C text binds, more than what stands lower; what is not here is a function call or an atom
BINDS = {
    **dict.fromkeys(("-{0}", "!{0}", "~{0}"), 9), **dict.fromkeys(("{0} * {1}", "{0} / {1}", "{0} % {1}"), 8),
    "{0} + {1}": 7, "{0} - {1}": 7, **{f"{{0}} {sign} {{1}}": 6 for sign in COMPARE_C.values()},
    "{0} & {1}": 5, "{0} ^ {1}": 4, "{0} | {1}": 3, "{0} && {1}": 2, "{0} || {1}": 1, "{0} ? {1} : {2}": 0,
}
INDEX_OPS = {"floordiv": "{0} / {1}", "mod": "{0} % {1}", "select": "{0} ? {1} : {2}"}


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
            template = f"{{0}} {COMPARE_C[expr.value]} {{1}}"
        case "convert":
            template = convert_text(expr.args[0].dtype, expr.dtype)
        case op if op in ELEMENTWISE:
            template = ELEMENTWISE[op].text(expr.dtype.kind)
        case op:
            template = INDEX_OPS.get(op, op)
    loosest = BINDS["-{0}"] if template.startswith("(") else BINDS.get(template, BINDS["{0} == {1}"])
    texts = [f"({text})" if binds <= loosest - (number == 0) else text
             for number, (text, binds) in enumerate(map(_text, expr.args))]
    return template.format(*texts), BINDS.get(template, ATOM)


def convert_text(source: DType, target: DType) -> str:
    """A convert in C. From float to int, a GPU saturates and makes 0 of nan, as we do; C leaves it open."""
    name = C_TYPES[target.name]
    if source.narrow and source.kind == "f":
        return convert_text(F32, target).replace("{0}", "(float){0}") if target is not F32 else "(float){0}"
    if target.narrow and source.kind == "f" and target.kind == "i":
        limits = np.iinfo(target.numpy)
        return f"({name})min(max((int){{0}}, {limits.min}), {limits.max})"
    return f"({name})(float){{0}}" if target.narrow and target.kind == "f" else f"({name}){{0}}"


def literal_text(value: float, dtype: DType) -> str:
    """A constant, as it is stored, in C, to the last bit."""
    if dtype.kind == "f" and dtype.narrow:
        stored = np.asarray(value, dtype.numpy)
        return f"{C_TYPES[dtype.name]}({literal_text(decode(stored, dtype).item(), F32)})"
    text = str(dtype.numpy.type(value))
    return C_WORDS.get(text) or text + {"f": "f", "u": "u" if dtype is U32 else ""}.get(dtype.numpy.kind, "")


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


def preamble(text: str) -> str:
    """What stands before the text of kernels: the headers and the functions that it needs."""
    headers = [f"#include <{header}>" for name, header in HEADERS.items() if name in text]
    functions = [function for name, function in CUDA_FUNCTIONS.items() if f"{name}(" in text]
    return "".join(f"{line}\n" for line in headers + functions)


def _lines(body: Sequence[Statement], depth: int) -> list[str]:
    lines = []
    for statement in body:
        locs: tuple[Loc, ...] = getattr(statement, "locs", ())
        where = f"  // {locs[0]}" if locs else ""
        lines.append(INDENT * depth + statement_text(statement) + where)
        if isinstance(statement, For | If):
            lines += [*_lines(statement.body, depth + 1), INDENT * depth + "}"]
    return lines
