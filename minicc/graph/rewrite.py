"""Rewriting by rules: patterns are data, and one engine applies any table of them until none applies.

    multiply = pattern("multiply")
    RULES = (Rule("x * 1 -> x", multiply(X, const(1)), lambda m: m[X]),)
    rewrite(graph, RULES)           goes in: %0 = tanh(x); %1 = multiply(%0, 1.0); return %1
                                    comes out: %0 = tanh(x); return %0

The walk is bottom-up, into a fresh builder: when a node is reached, its operands cannot be rewritten any
more, so one walk reaches the fixed point, and only what the outputs need is ever copied (dead code
disappears by construction). Invariants: a rule never changes the type of what it replaces; the lines of
every node that a rule matched go to the replacement; inputs stay, used or not; a set of rules that never
ends becomes an error that names the rule.

LLVM's InstCombine and MLIR's greedy driver are worklists that also revisit users, because their rules may
look at how often a value is used; e-graphs (egg) keep all forms and choose at the end. Read next:
simplify.py, the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from minicc.errors import CompileError, Loc, merge_locs
from minicc.graph.infer import build
from minicc.graph.ir import Builder, Graph, Node, Value
from minicc.graph.printing import describe, is_scalar_constant
from minicc.trace import Step

# -- patterns -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Var:
    """Matches any value; the same Var twice, the same value twice."""

    name: str


@dataclass(frozen=True)
class Const:
    """Matches a scalar constant of these bits, in any dtype: 1 matches 1.0, but 0.0 does not match -0.0."""

    value: float


@dataclass(frozen=True)
class Op:
    """Matches a node of one of these ops whose operands match; operands None: whatever they are."""

    ops: frozenset[str]
    operands: tuple[Pattern, ...] | None


Pattern: TypeAlias = Var | Const | Op
Found: TypeAlias = Mapping[Pattern, Value]
Make: TypeAlias = Callable[[str, tuple[Value, ...], Mapping[str, Any]], Value]

X, Y, Z = Var("x"), Var("y"), Var("z")
COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum", "and", "or"})  # matched in both orders


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
        case Var():
            return {**found, pattern: value} if found.get(pattern, value) == value else None
        case Const():
            return found if _is_constant(value.node, pattern.value) else None
    if value.op not in pattern.ops:
        return None
    if pattern.operands is None:
        return {**found, pattern: value}
    orders = [value.node.operands]
    if value.op in COMMUTATIVE:
        orders.append(value.node.operands[::-1])
    for operands in orders:
        partial: Found | None = {**found, pattern: value}
        for part, operand in zip(pattern.operands, operands, strict=True):
            partial = None if partial is None else find(part, operand, partial)
        if partial is not None:
            return partial
    return None


def _is_constant(node: Node, value: float) -> bool:
    if not is_scalar_constant(node):
        return False
    with np.errstate(all="ignore"):
        wanted = np.asarray(value).astype(node.types[0].dtype.numpy)
    return wanted == value and wanted.tobytes() == node.attrs["value"].tobytes()


# -- rules ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """A picture for people, a pattern, and what comes in its place, or None if the rule is not for this."""

    name: str
    pattern: Op
    replace: Callable[[Match], Value | None]


@dataclass(frozen=True)
class Match:
    """What a replacement may look at and build with: m[X] is what X stands for, m.node the whole."""

    node: Node
    found: Found
    make: Make

    def __getitem__(self, part: Pattern) -> Value:
        return self.found[part]

    def build(self, op: str, *operands: Value, **attrs: Any) -> Value:
        """A new node, rewritten in turn."""
        return self.make(op, operands, attrs)

    def like(self, value: Value) -> Value:
        """The value in the shape of the node that is replaced: a scalar is broadcast."""
        shape = self.node.types[0].shape
        return value if value.shape == shape else self.build("broadcast_in_dim", value, shape=shape, dims=())


# -- walks ----------------------------------------------------------------------------------------------

Change: TypeAlias = Callable[[Builder, Node, tuple[Value, ...], tuple[Loc, ...]], Value]


def copied(builder: Builder, node: Node, operands: tuple[Value, ...], locs: tuple[Loc, ...]) -> Value:
    """The same node on new operands of the same types: the change that changes nothing."""
    return builder.node(node.op, operands, node.attrs, node.types, locs)


def rebuild(graph: Graph, change: Change = copied) -> Graph:
    """Walk a graph in order and make each node anew: change(builder, node, operands, lines) -> value."""
    builder = Builder()
    new: dict[Node, Value] = {}
    for node in graph.nodes():
        if node.op == "parameter":
            new[node] = Value(node)
            builder.locs[node] = graph.lines(node)
            continue
        operands = tuple(_renewed(new, value) for value in node.operands)
        new[node] = change(builder, node, operands, graph.lines(node))
    return builder.graph(graph.name, graph.inputs, [_renewed(new, value) for value in graph.outputs])


def _renewed(new: Mapping[Node, Value], value: Value) -> Value:
    return Value(new[value.node].node, value.index) if value.index else new[value.node]


def rewrite(graph: Graph, rules: Iterable[Rule], log: list[Step] | None = None) -> Graph:
    """Apply rules everywhere until none applies.

    Raises: CompileError if a rule changes a type, or if the rules never come to an end.
    """
    engine = _Engine(tuple(rules), log, budget=1000 + 20 * len(graph.nodes()))
    while engine.unfinished:
        engine.unfinished = False
        graph = rebuild(graph, engine.change)
    return graph


class _Engine:
    """The state of one rewrite: rules by op, and how many applications are left before we give up."""

    DEEPEST = 20  # replacements within replacements in one walk; what lies deeper waits for the next walk

    def __init__(self, rules: tuple[Rule, ...], log: list[Step] | None, budget: int) -> None:
        self.log, self.budget, self.depth, self.unfinished = log, budget, 0, True
        self.rules: dict[str, list[Rule]] = {}
        for rule in rules:
            for op in rule.pattern.ops:
                self.rules.setdefault(op, []).append(rule)

    def change(self, builder: Builder, node: Node, operands: tuple[Value, ...],
               locs: tuple[Loc, ...]) -> Value:
        return self.settle(builder, copied(builder, node, operands, locs))

    def settle(self, builder: Builder, value: Value) -> Value:
        """Rewrite one value, whose operands are settled, until no rule applies to it."""
        while (result := self.step(builder, value)) is not None:
            value = result
        return value

    def step(self, builder: Builder, value: Value) -> Value | None:
        for rule in self.rules.get(value.op, ()):
            found = find(rule.pattern, value, {})
            if found is None:
                continue
            matched = [part.node for shape, part in found.items() if isinstance(shape, Op)]
            locs = merge_locs(*(builder.locs.get(node, ()) for node in matched))
            result = rule.replace(Match(value.node, found, self.maker(builder, locs)))
            if result is not None and result != value:
                self.applied(rule, value, result, locs)
                builder.locs[result.node] = merge_locs(builder.locs.get(result.node, ()), locs)
                return result
        return None

    def maker(self, builder: Builder, locs: tuple[Loc, ...]) -> Make:
        def make(op: str, operands: tuple[Value, ...], attrs: Mapping[str, Any]) -> Value:
            value = build(builder, op, operands, attrs, locs)
            if self.depth >= self.DEEPEST:
                self.unfinished = True
                return value
            self.depth += 1
            value = self.settle(builder, value)
            self.depth -= 1
            return value
        return make

    def applied(self, rule: Rule, value: Value, result: Value, locs: tuple[Loc, ...]) -> None:
        if not isinstance(result, Value) or result.type != value.type:
            got = result.type if isinstance(result, Value) else type(result).__name__
            raise CompileError("rewrite", f"rule `{rule.name}` changes a type", got=got, at=locs,
                               need=f"{value.type}, as {describe(value.node)}")
        self.budget -= 1
        if self.budget < 0:
            raise CompileError("rewrite", f"the rules never come to an end; rule `{rule.name}` was the last",
                               got=describe(value.node), need="rules that make a graph simpler", at=locs,
                               hint="looking for a rule that undoes another, or that matches what it makes")
        if self.log is not None:
            self.log.append(Step(describe(value.node), True, rule.name))
