"""Rewriting by rules: patterns are data, and one engine applies any table of them until none applies.

    multiply = pattern("multiply")
    RULES = (Rule("x * 1 -> x", multiply(X, const(1)), lambda m: m[X]),)
    rewrite(graph, RULES)           goes in: %0 = tanh(x); %1 = multiply(%0, 1.0); return %1
                                    comes out: %0 = tanh(x); return %0

The walk is bottom-up, into a fresh builder: a node is looked at once its operands are settled (no rule
applies to them any more), and what a rule makes is walked in turn, so one walk reaches the fixed point; only
what the outputs need is ever copied (dead code disappears by construction). Invariants: a rule never
changes the type of what it replaces; the lines of every node that a rule matched go to the replacement;
inputs stay, used or not; a set of rules that never ends becomes an error that names the rule.

LLVM's InstCombine and MLIR's greedy driver are worklists that also revisit users, because their rules may
look at how often a value is used; e-graphs (egg) keep all forms and choose at the end. Read next:
simplify.py, the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, TypeAlias

from minicc.errors import CompileError, Loc, merge_locs
from minicc.graph.dtypes import BOOL, DType, decode, encode
from minicc.graph.infer import build, constant
from minicc.graph.ir import Builder, Graph, Node, Type, Value
from minicc.graph.printing import describe, is_scalar_constant
from minicc.trace import Step

# -- patterns -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Var:
    """Matches any value; the same Var twice, the same value twice. As a replacement it is what it matched.

    kinds: of which dtypes the value may be. fixed: it must be a scalar constant.
    """

    name: str
    kinds: str = "fib"
    fixed: bool = False

    def __call__(self, m: Match) -> Value:
        return m[self]


@dataclass(frozen=True, eq=False)
class Const:
    """Matches a scalar constant of these bits, in any dtype: 1 matches 1.0, but 0.0 does not match -0.0.

    A bool matches bools alone; -1 has all bits set, also without a sign.
    """

    value: float


@dataclass(frozen=True, eq=False)
class Op:
    """Matches a node of one of these ops whose operands match; operands None: whatever they are."""

    ops: frozenset[str]
    operands: tuple[Pattern, ...] | None


Pattern: TypeAlias = Var | Const | Op
Found: TypeAlias = Mapping[Pattern, Value]

X, Y, Z = Var("x"), Var("y"), Var("z")
COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum", "and", "or", "xor"})  # both orders match


def const(value: float) -> Const:
    """The pattern of a scalar constant."""
    return Const(value)


def pattern(op: str) -> Callable[..., Op]:
    """The maker of patterns of one op: pattern("add")(X, Y)."""
    return lambda *operands: Op(frozenset({op}), operands)


def any_of(ops: Iterable[str]) -> Op:
    """The pattern of a node of any of these ops, with whatever operands."""
    return Op(frozenset(ops), None)


def find(pattern: Pattern, value: Value, found: Found) -> Found | None:
    """What each part of the pattern stands for, added to what was found before; None if it does not match."""
    match pattern:
        case Op(ops, operands):
            return _find_op(pattern, operands, value, found) if value.node.op in ops else None
        case Const():
            return found if _is_constant(value.node, pattern) else None
    if found.get(pattern, value) != value or value.dtype.kind not in pattern.kinds:
        return None
    return {**found, pattern: value} if not pattern.fixed or is_scalar_constant(value.node) else None


def _find_op(pattern: Pattern, parts: tuple[Pattern, ...] | None, value: Value, found: Found) -> Found | None:
    if parts is None:
        return {**found, pattern: value}
    node = value.node
    for operands in (node.operands, node.operands[::-1]) if node.op in COMMUTATIVE else (node.operands,):
        partial: Found | None = found
        for part, operand in zip(parts, operands, strict=False):
            if partial is not None:
                partial = find(part, operand, partial)
        if partial is not None:
            return {pattern: value, **partial}
    return None


def may_match(pattern: Op, ops: tuple[str, ...]) -> bool:
    """Whether it can match a node of its op whose operands are of these ops: the usual no, for little."""
    def fits(part: Pattern, op: str) -> bool:
        if isinstance(part, Op):
            return op in part.ops
        return op == "constant" or not (isinstance(part, Const) or part.fixed)
    orders = (ops, ops[::-1]) if pattern.ops & COMMUTATIVE else (ops,)
    parts = pattern.operands
    return parts is None or any(all(map(fits, parts, order)) for order in orders)


def _is_constant(node: Node, pattern: Const) -> bool:
    return is_scalar_constant(node) and node.attrs["value"].tobytes() == _bits(pattern, node.types[0].dtype)


@cache
def _bits(pattern: Const, dtype: DType) -> bytes | None:
    """The bits of a number in a dtype, or nothing if that has no such number."""
    value = pattern.value
    if isinstance(value, bool) != (dtype is BOOL):
        return None
    stored = encode(value, dtype)
    wraps = isinstance(value, int) and dtype.kind == "i"  # -1 is all bits of an unsigned integer
    return stored.tobytes() if wraps or decode(stored, dtype) == value else None


# -- rules ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """A picture for people, a pattern, and what comes in its place, or None if the rule is not for this.

    fast: it may change the last bits of an answer, or what nan and infinities do; see simplify.py.
    """

    name: str
    pattern: Op
    replace: Callable[[Match], Value | None]
    fast: bool = False


@dataclass(frozen=True)
class Match:
    """What a replacement may look at and build with: m[X] is what X stands for, m.node the whole."""

    node: Node
    found: Found
    builder: Builder

    @cached_property
    def locs(self) -> tuple[Loc, ...]:
        """The lines of every node that the rule matched."""
        matched = [part.node for shape, part in self.found.items() if isinstance(shape, Op)]
        return merge_locs(*(self.builder.locs.get(part, ()) for part in matched))

    def __getitem__(self, part: Pattern) -> Value:
        return self.found[part]

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The attributes of the whole."""
        return self.node.attrs

    @property
    def type(self) -> Type:
        """The type of the whole."""
        return self.node.types[0]

    def build(self, op: str, *operands: Value, **attrs: Any) -> Value:
        """A new node, rewritten in turn."""
        return build(self.builder, op, operands, attrs, self.locs)

    def number(self, part: Pattern) -> Any:
        """The value of a scalar constant, as a number of Python's."""
        return decode(self[part].node.attrs["value"], self[part].dtype).item()

    def scalar(self, value: Any, dtype: DType | None = None) -> Value:
        """A scalar constant of this dtype, or that of the whole."""
        return constant(self.builder, value, dtype or self.type.dtype, self.locs)

    def full(self, value: Any) -> Value:
        """The whole, with this number everywhere."""
        return self.like(self.scalar(value))

    def like(self, value: Value) -> Value:
        """The value in the shape of the node that is replaced: a scalar is broadcast."""
        shape = self.type.shape
        return value if value.shape == shape else self.build("broadcast_in_dim", value, shape=shape, dims=())


def to(op: str, *parts: Callable[[Match], Value]) -> Callable[[Match], Value]:
    """A replacement by an op of replacements: to("add", X, to("negate", Y))."""
    return lambda m: m.build(op, *[part(m) for part in parts])


on_rewrite: list[Callable[[Rule, Value, Value], Any]] = []  # called with each rule applied: before, after

# -- the engine -----------------------------------------------------------------------------------------


def rewrite(graph: Graph, rules: Iterable[Rule], log: list[Step] | None = None) -> Graph:
    """Apply rules everywhere until none applies.

    Raises: CompileError if a rule changes a type, or if the rules never come to an end.
    """
    engine = _Engine(graph, rules, log)
    engine.settle(value.node for value in graph.outputs)
    return engine.builder.graph(graph.name, graph.inputs, map(engine.renewed, graph.outputs))


class _Engine:
    """The state of one rewrite. new: node, of the graph or made since -> the settled value in its place."""

    def __init__(self, graph: Graph, rules: Iterable[Rule], log: list[Step] | None) -> None:
        nodes = graph.nodes()
        self.log, self.budget = log, 1000 + 20 * len(nodes)  # so many applications before we give up
        self.builder = Builder()
        self.builder.locs.update(graph.locs)
        self.new = {node: Value(node) for node in nodes if node.op == "parameter"}
        self.rules = tuple(rules)
        self.candidates: dict[tuple[str, ...], list[Rule]] = {}  # of a node, by its op and its operands'

    def renewed(self, value: Value) -> Value:
        """What a value has become."""
        return Value(self.new[value.node].node, value.index) if value.index else self.new[value.node]

    def settle(self, roots: Iterable[Node]) -> None:
        """Put these nodes, and all that they need, into `new`. Without recursion: chains are long."""
        stack, becomes = [*roots], dict[Node, Value]()
        while stack:
            node = stack.pop()
            if node in self.new:
                continue
            waits_for = [v.node for v in node.operands if v.node not in self.new]
            if not waits_for:
                if node not in becomes or becomes[node].node not in self.new:  # the latter: in circles
                    becomes[node] = self.step(node)
                if becomes[node].node in self.new:
                    self.new[node] = self.renewed(becomes[node])
                    continue
                waits_for = [becomes[node].node]
            stack += [node, *waits_for]

    def step(self, node: Node) -> Value:
        """What the first rule that applies makes of a node with settled operands; or its copy, settled."""
        operands = tuple([self.renewed(operand) for operand in node.operands])
        locs = self.builder.locs.get(node, ())
        value = self.builder.node(node.op, operands, node.attrs, node.types, locs)
        for rule in self.candidates_for(value.node):
            if found := find(rule.pattern, value, {}):
                match = Match(value.node, found, self.builder)
                result = rule.replace(match)
                if result is not None and result != value:
                    self.applied(rule, value, result, match.locs)
                    self.builder.add_lines(result.node, match.locs)
                    return result
        self.new[value.node] = value
        return value

    def candidates_for(self, node: Node) -> list[Rule]:
        """The rules that may match a node, in the order of the table."""
        op, *ops = key = (node.op, *[v.node.op for v in node.operands])
        if key not in self.candidates:
            self.candidates[key] = [rule for rule in self.rules if op in rule.pattern.ops
                                    and may_match(rule.pattern, tuple(ops))]
        return self.candidates[key]

    def applied(self, rule: Rule, value: Value, result: Value, locs: tuple[Loc, ...]) -> None:
        """Check and log what a rule did."""
        got = result.type if isinstance(result, Value) else type(result).__name__
        if got != value.type:
            raise CompileError("rewrite", f"rule `{rule.name}` changes a type", got=got, at=locs,
                               need=f"{value.type}, as {describe(value.node)}")
        self.budget -= 1
        if self.budget < 0:
            raise CompileError("rewrite", f"the rules never come to an end; rule `{rule.name}` was the last",
                               got=describe(value.node), need="rules that make a graph simpler", at=locs,
                               hint="looking for a rule that undoes another, or that matches what it makes")
        if self.log is not None:
            self.log.append(Step(describe(value.node), True, rule.name))
        for hook in on_rewrite:
            hook(rule, value, result)
