"""A tensor expression on the command line, evaluated without ever running it as Python.

    evaluate("relu(rand(64,32) @ rand(32,16))")  ->  [Tensor f32[64,16], lazy]

Goes in: text. Comes out: its tensors; a tuple gives several. Invariants: the text is parsed with `ast` and
walked here, so it can reach what NAMES and ATTRIBUTES list, numbers, operators and
subscripts, and nothing else; what else it holds is an error that names the column. `eval` with an emptied
namespace is a well-known trap: attributes alone lead from a tuple to every class. Read next: programs.py.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from minicc.errors import CompileError, Loc, MiniccError
from minicc.frontend.arrays import NAMES as DTYPES
from minicc.frontend.methods import FUNCTIONS
from minicc.frontend.primitives import as_integers
from minicc.frontend.scope import fail, located
from minicc.frontend.tensor import Tensor
from minicc.frontend.updates import Place
from minicc.graph.attributes import nearest

FILE = "-c"
MOST_ELEMENTS = 2**28  # of one random tensor: a GiB
MOST_BITS = 4096  # of an integer: 9**9**9 would never end
READERS = {"numpy", "item", "tolist", "realise"}  # would run what is only to be compiled
ATTRIBUTES = {kind: {name for name in dir(kind) if name[0] != "_"} - READERS for kind in (Tensor, Place)}
NAMES: dict[str, Any] = {name: value for name, value in (DTYPES | FUNCTIONS).items() if name != "seed"}
OPERATORS: dict[type, Callable] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.MatMult: operator.matmul, ast.Pow: operator.pow, ast.USub: operator.neg, ast.UAdd: operator.pos,
    ast.Invert: operator.invert, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}


def evaluate(text: str, seed: int = 0) -> list[Tensor]:
    """The lazy tensors of an expression; `rand` and `randn` draw by the seed.

    Raises: CompileError with a column for what is not in the language, and whatever the operations raise.
    """
    try:
        tree = ast.parse(text, mode="eval").body
        with located((Loc(FILE, 1, text),)):
            result = _Walker(text, np.random.default_rng(seed)).visit(tree)
    except MiniccError:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        column = getattr(error, "offset", None) or 1
        raise _error(text, column, "this is not an expression", getattr(error, "msg", str(error))) from None
    results = list(result) if isinstance(result, tuple) else [result]
    if not results or not all(isinstance(item, Tensor) for item in results):
        raise _error(text, 1, "the expression gives no tensor", type(result).__name__)
    return results


def _error(text: str, column: int, what: str, got: str, hint: str = "") -> CompileError:
    hint = hint or "-c 'relu(rand(64,32) @ rand(32,16))'"
    at = (Loc(FILE, 1, text if len(text) < 100 else text[:96] + " ..."),)
    return CompileError("expression", f"column {column}: {what}", got=got, at=at, hint=hint)


def _drawn(draw: Callable[..., np.ndarray]) -> Callable[..., Tensor]:
    def drawn(*shape: int) -> Tensor:
        sizes = as_integers("rand", shape)
        if min(sizes, default=0) < 0 or math.prod(sizes) > MOST_ELEMENTS:
            fail("rand", "these sizes do not fit", list(sizes), f"0 to {MOST_ELEMENTS} elements in all")
        return Tensor(draw(sizes, dtype=np.float32))
    return drawn


class _Walker:
    """Evaluates the nodes that the language has."""

    def __init__(self, text: str, generator: np.random.Generator) -> None:
        self.text = text
        self.names = NAMES | {"rand": _drawn(generator.random), "randn": _drawn(generator.standard_normal)}

    def visit(self, node: ast.expr) -> Any:
        """The value of a node."""
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                self.name(node, node.id, self.names)
                return self.names[node.id]
            case ast.Tuple() | ast.List():
                return tuple(self.visit(item) for item in node.elts)
            case ast.UnaryOp() if type(node.op) in OPERATORS:
                return self.apply(node, OPERATORS[type(node.op)], self.visit(node.operand))
            case ast.BinOp() if type(node.op) in OPERATORS:
                return self.pair(node, node.left, node.op, node.right)
            case ast.Compare(ops=[op], comparators=[right]) if type(op) in OPERATORS:
                return self.pair(node, node.left, op, right)
            case ast.Slice():  # only ever inside a subscript
                parts = (node.lower, node.upper, node.step)
                return slice(*(part and self.visit(part) for part in parts))
            case ast.Subscript():
                return self.apply(node, operator.getitem, self.visit(node.value), self.visit(node.slice))
            case ast.Attribute():
                return self.attribute(node)
            case ast.Call() if all(word.arg for word in node.keywords):  # no **
                keywords = {word.arg or "": self.visit(word.value) for word in node.keywords}
                arguments = [self.visit(item) for item in node.args]
                return self.apply(node, self.visit(node.func), *arguments, **keywords)
        raise self.refusal(node, "the expression language does not have this", type(node).__name__)

    def pair(self, node: ast.expr, left: ast.expr, op: ast.AST, right: ast.expr) -> Any:
        x, y = self.visit(left), self.visit(right)
        grows = isinstance(op, ast.Pow | ast.LShift) and isinstance(x, int) and isinstance(y, int)
        if grows and max(abs(x), 2).bit_length() * abs(y) > MOST_BITS:
            raise self.refusal(node, "this number is too large", f"{x} and {y}")
        return self.apply(node, OPERATORS[type(op)], x, y)

    def attribute(self, node: ast.Attribute) -> Any:
        value = self.visit(node.value)
        if type(value) not in ATTRIBUTES:
            raise self.refusal(node, "only tensors have attributes here", type(value).__name__)
        self.name(node, node.attr, ATTRIBUTES[type(value)])
        return getattr(value, node.attr)

    def name(self, node: ast.expr, name: str, known: Collection[str]) -> None:
        if name not in known:
            column = self.column(node.end_col_offset or 0) - len(name)
            raise _error(self.text, column, "unknown name", name, nearest(name, known))

    def apply(self, node: ast.expr, function: Callable, *arguments: Any, **keywords: Any) -> Any:
        try:
            return function(*arguments, **keywords)
        except MiniccError:
            raise
        except (TypeError, ValueError, ArithmeticError, LookupError, MemoryError) as error:
            raise self.refusal(node, "this does not work", str(error)) from None

    def refusal(self, node: ast.expr, what: str, got: str) -> CompileError:
        return _error(self.text, self.column(node.col_offset), what, got)

    def column(self, offset: int) -> int:
        """The column in characters, from 1, of an offset in bytes, as `ast` counts."""
        return len(self.text.encode()[:offset].decode(errors="ignore")) + 1
