"""Read a graph back from its text: tokens by one regular expression, then one method per line of the grammar.

    graph f(x: f32[4]) {                    # Goes in: text, such as str(graph) gives, or such as a person
    writes.
      %0 = multiply(x, 2.0) : f32[4]        // Comes out: a Graph, typed and checked line by line.
      return %0
    }

    graph     = "graph" NAME "(" [NAME ":" type {"," NAME ":" type}] ")" "{" {statement} return "}"
    statement = VALUE "=" NAME "(" [operand {"," operand}] ")" {NAME "=" attribute} ":" type [LOC]
    return    = "return" operand {"," operand}
    operand   = NAME | VALUE | NUMBER                       a number is a scalar constant: 1.0 f32, 1 i32,
    true bool attribute = NAME | NUMBER | list ["x" list]
    list      = "[" [item {"," item}] "]"                   item = NUMBER | list
    type      = NAME "[" [NUMBER {"," NUMBER}] "]"

Invariants: str(parse_graph(str(g))) == str(g), with equal structure and lines; text is never evaluated as
Python; every mistake is an error with its line and column. MLIR's parser is this plus dialects and forward
references. Read next: verify.py.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple, NoReturn

import numpy as np

from minicc.errors import CompileError, Loc
from minicc.graph.attributes import nearest
from minicc.graph.infer import build, infer
from minicc.graph.ir import BOOL, DTYPES, F32, I32, Builder, DType, Graph, Type, Value
from minicc.graph.printing import RESERVED

_TOKEN = re.compile(r"""
    (?P<skip>   \s+ | (?://|\#).* )
  | (?P<loc>    loc\([^()]*\) )
  | (?P<number> -?(?:\d+\.\d*(?:[eE][+-]?\d+)? | \d+[eE][+-]?\d+ | \d+ | nan\(0x[0-9a-f]{8}\)
                 | (?:inf|nan)(?![\w.])) | (?:true|false)(?![\w.]) )
  | (?P<value>  %\w+ )
  | (?P<name>   [^\W\d][\w.]* )
  | (?P<mark>   [(){}\[\],:=] )
""", re.VERBOSE)

_KINDS = {"operand": ("name", "value", "number"), "attribute": ("name", "number")}
_MOST_AXES = 64  # as many as numpy has
_SHOWN = 100  # characters of a line that an error quotes


class Token(NamedTuple):
    """A word of the text. kind: loc, number, value, name, mark or end."""

    kind: str
    text: str
    line: int
    column: int


def parse_graph(text: str, file: str = "<text>") -> Graph:
    """The graph that a text describes.

    file: what errors call the text.
    Raises: CompileError at the line and column of the first mistake.

    >>> print(parse_graph("graph f(x: f32[2]) { %sum = add(x, 1.0) : f32[2] return %sum }"), end="")
    graph f(x: f32[2]) {
      %0 = add(x, 1.0) : f32[2]
      return %0
    }
    """
    if not isinstance(text, str):
        raise CompileError("parse graph", "there is no text", got=type(text).__name__, need="a str")
    return _Parser(text, file).graph()


class _Parser:
    def __init__(self, text: str, file: str) -> None:
        self.file, self.lines = file, text.splitlines()
        self.tokens = self._tokens()
        self.next = self.depth = 0
        self.builder = Builder()
        self.values: dict[str, Value] = {}

    # -- words

    def _tokens(self) -> list[Token]:
        tokens = []
        for number, line in enumerate(self.lines, 1):
            column = 0
            while column < len(line):
                match = _TOKEN.match(line, column)
                if match is None:
                    self.fail("this character begins no word", "a name, %value, number or punctuation",
                              Token("mark", line[column], number, column + 1))
                if match.lastgroup != "skip":
                    tokens.append(Token(str(match.lastgroup), match.group(), number, column + 1))
                column = match.end()
        last = self.lines[-1] if self.lines else ""
        return [*tokens, Token("end", "the end of the text", max(len(self.lines), 1), len(last) + 1)]

    def loc(self, token: Token) -> Loc:
        source = self.lines[token.line - 1].strip() if self.lines else ""
        return Loc(self.file, token.line, source[:_SHOWN])

    def fail(self, what: str, need: object, token: Token, hint: str = "", got: object = "") -> NoReturn:
        raise CompileError("parse graph", f"line {token.line}, column {token.column}: {what}",
                           got=got or token.text, need=need, at=(self.loc(token),), hint=hint)

    def at(self, *texts: str) -> bool:
        """Does the text go on with these words?"""
        return tuple(token.text for token in self.tokens[self.next:self.next + len(texts)]) == texts

    def take(self, kind: str, need: str = "") -> Token:
        """The next token, which must be of this kind (or of one of these), or be this very word."""
        token = self.tokens[self.next]
        if token.kind not in _KINDS.get(kind, (kind,)) and token.text != kind:
            self.fail("unexpected word", need or f"'{kind}'", token)
        self.next += token.kind != "end"
        return token

    def listed(self, item: Any, open: str = "[", close: str = "]") -> list:
        """Items between brackets, separated by commas."""
        self.take(open)
        items: list[Any] = []
        while not self.at(close):
            if items:
                self.take(",", f"',' or '{close}'")
            items.append(item())
        self.take(close)
        return items

    # -- the grammar, from the top

    def graph(self) -> Graph:
        self.take("graph")
        name = self.take("name", "the graph's name").text
        inputs = self.listed(self.parameter, "(", ")")
        self.take("{")
        while not self.at("return"):
            self.statement()
        self.take("return")
        outputs = [self.operand()]
        while self.at(","):
            self.take(",")
            outputs.append(self.operand())
        self.take("}", "',' or '}'")
        self.take("end", "the end of the text")
        return self.builder.graph(name, inputs, outputs)

    def parameter(self) -> Value:
        name = self.take("name", "a parameter's name")
        if name.text in RESERVED:
            self.fail("this word cannot name a parameter", "another name", name)
        self.take(":")
        return self.define(name, self.builder.parameter(name.text, self.type()))

    def define(self, name: Token, value: Value) -> Value:
        if name.text in self.values:
            self.fail("this name is taken", "a new name", name)
        self.values[name.text] = value
        return value

    def statement(self) -> None:
        name = self.take("value", "a statement such as %0 = add(x, y) : f32[4], or return")
        self.take("=")
        op = self.take("name", "an op").text
        operands = tuple(self.listed(self.operand, "(", ")"))
        raw: dict[str, Any] = {}
        while self.tokens[self.next].kind == "name":
            attr = self.take("name").text
            self.take("=")
            raw[attr] = self.attribute()
        colon = self.take(":", "an attribute such as axes=[0], or ':' and the type")
        declared = self.type()
        attrs = {attr: self.array(value, declared, colon) if op == "constant" else self.plain(value)
                 for attr, value in raw.items()}
        (inferred,) = infer(op, tuple(v.type for v in operands), attrs, (self.loc(name),))
        if inferred != declared:
            self.fail(f"{op} gives another type", inferred, colon, got=declared)
        self.define(name, build(self.builder, op, operands, attrs, self.locs()))

    def operand(self) -> Value:
        token = self.take("operand", "an operand: a name, %value or number")
        if token.kind == "number":
            return build(self.builder, "constant", (), {"value": self.number(token)})
        if token.text not in self.values:
            self.fail("this value is not defined above", "a parameter, or a value defined above", token,
                      nearest(token.text, self.values))
        return self.values[token.text]

    def attribute(self) -> Any:
        """A token, a list of such, or a pair of lists."""
        if not self.at("["):
            return self.take("attribute", "a word, a number or '['")
        left = self.listed(self.item)
        if not self.at("x", "["):
            return left
        self.take("x")
        return left, self.listed(self.item)

    def item(self) -> Any:
        if not self.at("["):
            return self.take("number", "a number or '['")
        self.depth += 1
        if self.depth >= _MOST_AXES:  # the first bracket is not counted
            self.fail("too many brackets", f"at most {_MOST_AXES} axes", self.tokens[self.next])
        items = self.listed(self.item)
        self.depth -= 1
        return items

    def type(self) -> Type:
        name = self.take("name", "a type such as f32[2,3]")
        if name.text not in DTYPES:
            self.fail("there is no such dtype", ", ".join(DTYPES), name, nearest(name.text, DTYPES))
        sizes = tuple(self.plain(token) for token in self.listed(self.item))
        if any(not isinstance(size, int) or size < 0 for size in sizes):
            self.fail("a size is not a count", "integers from 0", name, got=list(sizes))
        return Type(DTYPES[name.text], sizes)

    def locs(self) -> tuple[Loc, ...]:
        if self.tokens[self.next].kind != "loc":
            return ()
        token = self.take("loc")
        places = [place.strip().rpartition(":") for place in token.text[4:-1].split(",")]
        if not all(file and line.isdecimal() and len(line) < 10 for file, _, line in places):
            self.fail("this is no place in a program", "loc(FILE:LINE, ...)", token)
        return tuple(Loc(file, int(line)) for file, _, line in places)

    # -- from words to values

    def plain(self, raw: Any) -> Any:
        """An attribute as tuples, integers and words."""
        if not isinstance(raw, Token):
            return tuple(self.plain(item) for item in raw)
        if raw.kind == "name":
            return raw.text
        if not re.fullmatch(r"-?\d{1,18}", raw.text):
            self.fail("unexpected word", "an integer of at most 18 digits", raw)
        return int(raw.text)

    def number(self, token: Token, dtype: DType | None = None) -> np.generic:
        """The value of a literal, in its own dtype or in a wanted one; an integer may stand for a float."""
        text = token.text
        own = BOOL if text in ("true", "false") else I32 if re.fullmatch(r"-?\d+", text) else F32
        if dtype is not None and own != dtype and (own, dtype) != (I32, F32):
            self.fail(f"{own} digits do not make {dtype}", f"{dtype} digits", token)
        match dtype or own:
            case t if t == BOOL:
                return np.bool_(text == "true")
            case t if t == I32:
                if len(text) > 11 or not -2**31 <= int(text) < 2**31:
                    self.fail("this integer does not fit i32", "-2147483648 to 2147483647", token)
                return np.int32(int(text))
        if text.startswith("nan("):
            return np.uint32(int(text[4:-1], 16)).view(np.float32)
        with np.errstate(over="ignore"):
            value = np.float32(float(text))
        if math.isinf(value) and "inf" not in text:
            self.fail("this number does not fit f32", "up to 3.4028235e38", token)
        return value

    def array(self, raw: Any, type: Type, token: Token) -> np.ndarray:
        """The value of a constant, whose digits must have the declared shape."""
        try:
            value = np.array(self.numbers(raw, type.dtype), type.dtype.numpy)
        except ValueError:
            self.fail("the rows have different shapes", "equal rows", token, got="digits of no one shape")
        if value.shape != type.shape and (value.size or type.elements):
            self.fail("the digits have another shape than the type", list(type.shape), token,
                      got=list(value.shape))
        return value.reshape(type.shape)

    def numbers(self, raw: Any, dtype: DType) -> Any:
        if not isinstance(raw, Token):
            return [self.numbers(item, dtype) for item in raw]
        if raw.kind != "number":
            self.fail("unexpected word", "a number or '['", raw)
        return self.number(raw, dtype)
