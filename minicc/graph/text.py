"""Read a graph back from its text: tokens by one regular expression, then one method per line of the grammar.

    graph f(x: f32[4]) {                    # Goes in: text, such as str(graph) gives, or a person writes.
      %0 = multiply(x, 2.0) : f32[4]        // Comes out: a Graph, typed and checked line by line.
      return %0
    }

    graph     = "graph" NAME "(" [NAME ":" type {"," NAME ":" type}] ")" "{" {statement} return "}"
    statement = VALUE "=" NAME "(" [operand {"," operand}] ")" {NAME "=" attribute} ":" type [LOC]
    return    = "return" operand {"," operand}
    operand   = NAME | VALUE | NUMBER | NAME "(" NUMBER ")"      a number is a scalar constant: 1.0 is f32,
                                                  1 is i32, true is bool; of other dtypes, bf16(1.0)
    attribute = NAME | item ["x" item]
    item      = NUMBER | "[" [item {"," item}] "]"
    type      = NAME item

Invariants: str(parse_graph(str(g))) == str(g), with equal structure and lines; text is never evaluated as
Python; every mistake is an error with its line and column. MLIR's parser is this plus dialects and forward
references. Read next: verify.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import numpy as np

from minicc.errors import CompileError, Loc
from minicc.graph.attributes import nearest
from minicc.graph.dtypes import BF16, BOOL, DTYPES, F16, F32, I32, DType, encode
from minicc.graph.infer import constant, infer
from minicc.graph.ir import Builder, Graph, Type, Value
from minicc.graph.printing import RESERVED

_TOKEN = re.compile(r"""
    (?P<skip>   \s+ | (?://|\#).* )
  | (?P<loc>    loc\( [^(),]+:\d{1,9} (?:,[^(),]+:\d{1,9})* \) )
  | (?P<number> -?(?:\d+\.\d*(?:[eE][+-]?\d+)? | \d+[eE][+-]?\d+ | \d+ | nan\(0x[0-9a-f]{1,8}\)
                 | (?:inf|nan)(?![\w.])) | (?:true|false)(?![\w.]) )
  | (?P<value>  %\w+ )
  | (?P<name>   [^\W\d][\w.]* )
  | (?P<mark>   [(){}\[\],:=] )
  | (?P<odd>    . )
""", re.VERBOSE)

# the largest float of each dtype: what lies above rounds to infinity
_MOST = {F32: 2.0**128 - 2.0**103, BF16: 2.0**128 - 2.0**119, F16: 2.0**16 - 2.0**4}
_MOST_AXES = 64  # as many as numpy has
_SHOWN = 100  # characters of a line that an error quotes
_STATEMENT = "a statement such as %0 = add(x, y) : f32[4] loc(FILE:LINE), or return"


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
        self.file, self.lines = file, text.splitlines() or [""]
        self.tokens = self._tokens()
        self.next = self.depth = 0
        self.builder = Builder()
        self.values: dict[str, Value] = {}

    # -- words

    def _tokens(self) -> list[Token]:
        tokens = []
        for number, line in enumerate(self.lines, 1):
            for match in _TOKEN.finditer(line):
                token = Token(str(match.lastgroup), match.group(), number, match.start() + 1)
                if token.kind == "odd":
                    self.fail("this character begins no word", "a name, %value, number or punctuation", token)
                if token.kind != "skip":
                    tokens.append(token)
        return [*tokens, Token("end", "the end of the text", len(self.lines), len(self.lines[-1]) + 1)]

    def fail(self, what: str, need: object, token: Token, hint: str = "", got: object = "") -> NoReturn:
        raise CompileError("parse graph", f"line {token.line}, column {token.column}: {what}",
                           got=got or token.text, need=need, at=(self.loc(token),), hint=hint)

    def loc(self, token: Token) -> Loc:
        return Loc(self.file, token.line, self.lines[token.line - 1].strip()[:_SHOWN])

    def peek(self) -> Token:
        return self.tokens[self.next]

    def take(self, kinds: str, need: str = "") -> Token:
        """The next token, which must be of one of these kinds, or be this very word."""
        token = self.peek()
        if token.text != kinds and token.kind not in kinds.split():
            self.fail("unexpected word", need or f"'{kinds}'", token)
        self.next += token.kind != "end"
        return token

    def took(self, text: str) -> bool:
        """Take the next token if it is this word."""
        found = self.peek().text == text
        self.next += found
        return found

    def listed(self, brackets: str, item: Callable[[], Any]) -> list:
        """Items between brackets, separated by commas."""
        self.take(brackets[0])
        items: list[Any] = []
        while not self.took(brackets[1]):
            if items:
                self.take(",", f"',' or '{brackets[1]}'")
            items.append(item())
        return items

    # -- the grammar, from the top

    def graph(self) -> Graph:
        self.take("graph")
        name = self.take("name", "the graph's name").text
        inputs = self.listed("()", self.parameter)
        self.take("{")
        while not self.took("return"):
            self.statement()
        outputs = [self.operand()]
        while self.took(","):
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
        name = self.take("value", _STATEMENT)
        self.take("=")
        op = self.take("name", "an op").text
        operands = tuple(self.listed("()", self.operand))
        words: dict[str, Any] = {}
        while self.peek().kind == "name":
            attr = self.take("name")
            if attr.text in words:
                self.fail(f"{attr.text} is given twice", "each attribute once", attr)
            self.take("=")
            words[attr.text] = self.attribute(op)
        colon = self.take(":", "an attribute such as axes=[0], or ':' and the type")
        declared = self.type()
        given = {attr: self.array(value, declared, colon) if op == "constant" else
                 _mapped(value, self.integer) for attr, value in words.items()}
        types, attrs = infer(op, tuple(v.type for v in operands), given, (self.loc(name),))
        if types != (declared,):
            self.fail(f"{op} gives another type", types[0], colon, got=declared)
        self.define(name, self.builder.node(op, operands, attrs, types, self.locs()))

    def operand(self) -> Value:
        token = self.take("name value number", "an operand: a name, %value or number")
        if token.kind == "number":
            return constant(self.builder, self.number(token))
        if token.text in DTYPES and self.took("("):
            number = self.number(self.take("number", "a number"), DTYPES[token.text])
            self.take(")")
            return constant(self.builder, number)
        if token.text not in self.values:
            self.fail("this value is not defined above", "a parameter, or a value defined above", token,
                      nearest(token.text, self.values))
        return self.values[token.text]

    def attribute(self, op: str) -> Any:
        """A word, or a number, a list or a pair of lists as tokens: what they mean depends on the type."""
        if self.peek().kind == "name" and op != "constant":
            return self.take("name").text
        left = self.item()
        return (left, self.item()) if self.took("x") else left

    def item(self) -> Any:
        """A number, or a list of items."""
        if self.peek().text != "[":
            return self.take("number", "a number or '['")
        if self.depth == _MOST_AXES:
            self.fail("too many brackets", f"at most {_MOST_AXES} axes", self.peek())
        self.depth += 1
        items = self.listed("[]", self.item)
        self.depth -= 1
        return items

    def type(self) -> Type:
        name = self.take("name", "a type such as f32[2,3]")
        if name.text not in DTYPES:
            self.fail("there is no such dtype", ", ".join(DTYPES), name, nearest(name.text, DTYPES))
        sizes = tuple(self.listed("[]", self.integer))
        if min(sizes, default=0) < 0:
            self.fail("a size is not a count", "integers from 0", name, got=list(sizes))
        return Type(DTYPES[name.text], sizes)

    def locs(self) -> tuple[Loc, ...]:
        if self.peek().kind != "loc":
            return ()
        places = [place.strip().rpartition(":") for place in self.take("loc").text[4:-1].split(",")]
        return tuple(Loc(file, int(line)) for file, _, line in places)

    # -- from words to values

    def integer(self, token: Token | None = None) -> int:
        """The value of this token, or of the next."""
        token = token or self.take("number", "an integer")
        if not re.fullmatch(r"-?\d{1,18}", token.text):
            self.fail("unexpected word", "an integer of at most 18 digits", token)
        return int(token.text)

    def number(self, token: Token, dtype: DType | None = None) -> np.ndarray:
        """The stored value of a literal, in its own dtype or a wanted one; integers may stand for floats."""
        text = token.text
        own = BOOL if text in ("true", "false") else I32 if re.fullmatch(r"-?\d+", text) else F32
        dtype = dtype or own
        if own.kind != dtype.kind and (own.kind, dtype.kind) != ("i", "f"):
            self.fail(f"this is not a number of {dtype}", f"{dtype} digits", token)
        if dtype == BOOL:
            return np.array(text == "true")
        if text.startswith("nan("):
            return self.nan(token, dtype)
        number = float(text)
        low, high = limits(dtype)
        if (number < low or number > high) and "inf" not in text:
            self.fail(f"this number does not fit {dtype}", f"{low} to {high}", token)
        return encode(number, dtype)

    def nan(self, token: Token, dtype: DType) -> np.ndarray:
        """The nan of these bits."""
        bits, size = int(token.text[4:-1], 16), dtype.itemsize
        if bits >= 256**size:
            self.fail(f"these bits do not fit {dtype}", f"{2 * size} digits", token)
        return np.array(bits, f"u{size}").view(dtype.numpy)

    def array(self, words: Any, type: Type, token: Token) -> np.ndarray:
        """The value of a constant, whose digits must have the declared shape."""
        try:
            value = np.array(_mapped(words, lambda word: self.number(word, type.dtype)), type.dtype.numpy)
        except ValueError:
            self.fail("the rows have different shapes", "equal rows", token, got="digits of no one shape")
        if value.shape != type.shape and (value.size or type.elements):
            self.fail("the digits have another shape than the type", list(type.shape), token,
                      got=list(value.shape))
        return value.reshape(type.shape)


def _mapped(words: Any, change: Callable[[Token], Any]) -> Any:
    """What `attribute` gave, with each token changed."""
    if isinstance(words, str | Token):
        return change(words) if isinstance(words, Token) else words
    return tuple(_mapped(word, change) for word in words)


def limits(dtype: DType) -> tuple[float, float]:
    """The least and the greatest number that a dtype holds, or that rounds to one that it does."""
    if dtype.kind == "f":
        most = math.nextafter(_MOST[dtype], 0)
        return -most, most
    return int(np.iinfo(dtype.numpy).min), int(np.iinfo(dtype.numpy).max)
