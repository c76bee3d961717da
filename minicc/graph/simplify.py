"""Simplifying: every table of rules, those for constants and scalars, and the pass that applies them.

    %0 = multiply(x, 1.0)           goes in
    %1 = transpose(%0) perm=[1,0]
    %2 = transpose(%1) perm=[1,0]   comes out: x
    return %2

Goes in: a graph. Comes out: a smaller one that computes the same bits, or, with `fast_math`, nearly the same.
Floats decide what is exact: x + 0.0 is not x (at x = -0.0), x * 0 is not 0 (at nan, inf), x - x neither; such
rules are marked `fast` and wait until they are asked for. What a rule removes, every later stage need not
compute, fuse or price. Scalars are kept as scalars (never spread over an array), since an elementwise op
takes them as they are. Invariant: simplifying twice gives what once gives.

XLA's AlgebraicSimplifier holds some hundreds of such rules and LLVM's InstCombine thousands. Read next:
rewrite.py for the engine, then kernel/fuse.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from minicc.graph.algebra import ALGEBRA
from minicc.graph.evaluate import evaluate_node
from minicc.graph.infer import OPS
from minicc.graph.ir import Graph, Value
from minicc.graph.movement import MOVEMENT, PER_ELEMENT, is_spread
from minicc.graph.rewrite import Match, Rule, any_of, rewrite
from minicc.graph.sums import SUMS
from minicc.trace import Step

FOLDED_ELEMENTS = 1024  # the largest result that is computed at compile time
FOLDED_OPERANDS = 2**16  # and how many elements it may be computed from


def _unspread(m: Match) -> Value | None:
    """An elementwise op takes the scalar itself; an op of scalars alone is computed once, then spread."""
    if not any(map(is_spread, m.node.operands)):
        return None
    scalars = [v.node.operands[0] if is_spread(v) else v for v in m.node.operands]
    return m.like(m.build(m.node.op, *scalars, **m.attrs))


def _spread_constant(m: Match) -> Value | None:
    """An array constant of equal elements is a scalar, spread."""
    array = m.attrs["value"]
    first = array.reshape(-1)[:1]
    if array.ndim == 0 or array.size == 0 or array.tobytes() != first.tobytes() * array.size:
        return None
    return m.like(m.build("constant", value=first.reshape(())))


def _folded(m: Match) -> Value | None:
    operands = m.node.operands
    if any(v.node.op != "constant" for v in operands) or m.type.elements > FOLDED_ELEMENTS:
        return None
    if sum(v.type.elements for v in operands) > FOLDED_OPERANDS:
        return None
    return m.build("constant", value=evaluate_node(m.node, [v.node.attrs["value"] for v in operands]))


_FOLDABLE = any_of({*OPS} - {"constant", "iota", "broadcast_in_dim", "optimization_barrier"})

RULES: tuple[Rule, ...] = (
    *ALGEBRA, *MOVEMENT, *SUMS,
    Rule("constant of equal elements -> broadcast", any_of({"constant"}), _spread_constant),
    Rule("op of a broadcast scalar -> op of the scalar", any_of(PER_ELEMENT), _unspread),
    Rule("op of constants -> constant", _FOLDABLE, _folded),
)


def simplify(graph: Graph, *, rules: Iterable[Rule] = RULES, fast_math: bool = False,
             log: list[Step] | None = None) -> Graph:
    """A smaller graph that computes the same bits.

    rules: another table, to leave a rule out or to put one in. fast_math: apply those too that may change the
    last bits, and that take nan and infinities for things that do not occur.
    """
    return rewrite(graph, [rule for rule in rules if fast_math or not rule.fast], log)


def fast_simplify(graph: Graph, *, log: list[Step] | None = None) -> Graph:
    """The pass with all its rules, fit for a slot: using(simplify=fast_simplify)."""
    return simplify(graph, fast_math=True, log=log)
