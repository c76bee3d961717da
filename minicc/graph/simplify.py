"""Algebra that changes no bit of any answer: the table of rules, and the pass that applies them.

    %0 = multiply(x, 1.0)           goes in
    %1 = transpose(%0) perm=[1,0]
    %2 = transpose(%1) perm=[1,0]   comes out: x
    return %2

Floats decide what may stand here. x + 0.0 is not x (at x = -0.0), x * 0 is not 0 (at nan, inf), x - x
neither, and x * -1 differs from -x in the sign of a nan: none of them is a rule. What a rule removes, every
later stage need not compute, fuse or price. Scalars are kept as scalars (never spread over an array), since
an elementwise op takes them as they are. Invariant: simplifying twice gives what once gives.

XLA's AlgebraicSimplifier holds some hundreds of such rules and LLVM's InstCombine thousands; both also have
unsafe ones behind fast-math flags. Read next: rewrite.py for the engine, then kernel/fuse.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from minicc.graph.elementwise import ELEMENTWISE
from minicc.graph.evaluate import evaluate_node
from minicc.graph.infer import OPS
from minicc.graph.ir import BOOL, F32, I32, Graph, Value
from minicc.graph.rewrite import Match, Rule, X, Y, any_of, const, pattern, rewrite
from minicc.trace import Step

FOLDED_ELEMENTS = 1024  # the largest result that is computed at compile time

add, subtract, multiply, divide, maximum, minimum = map(
    pattern, ("add", "subtract", "multiply", "divide", "maximum", "minimum"))
negate, absolute, and_, or_, not_, select = map(pattern, ("negate", "abs", "and", "or", "not", "select"))
convert, reshape, transpose, broadcast, reduce_ = map(
    pattern, ("convert", "reshape", "transpose", "broadcast_in_dim", "reduce"))

# -- replacements that take more than a line ------------------------------------------------------------


def _same_type(m: Match) -> Value | None:
    """The operand, where the op left it as it was: these ops can keep the type only by doing nothing."""
    operand = m.node.operands[0]
    return operand if operand.type == m.node.types[0] else None


def _in_order(m: Match) -> Value | None:
    """The operand, where the axes stay in place and keep their sizes."""
    axes = m.node.attrs["perm" if m.node.op == "transpose" else "dims"]
    return _same_type(m) if axes == tuple(range(len(axes))) else None


def _transposed_once(m: Match) -> Value:
    inner = m.node.operands[0].node.attrs["perm"]
    return m.build("transpose", m[X], perm=tuple(inner[axis] for axis in m.node.attrs["perm"]))


def _broadcast_once(m: Match) -> Value:
    inner, outer = m.node.operands[0].node.attrs["dims"], m.node.attrs
    dims = tuple(outer["dims"][axis] for axis in inner)
    return m.build("broadcast_in_dim", m[X], shape=outer["shape"], dims=dims)


def _broadcast_without_reshape(m: Match) -> Value | None:
    """A reshape that only adds axes of size 1, before a broadcast: the broadcast can add them itself."""
    dims: list[int] = []
    for axis, size in enumerate(m.node.operands[0].shape):
        if len(dims) < len(m[X].shape) and size == m[X].shape[len(dims)]:
            dims.append(m.node.attrs["dims"][axis])
        elif size != 1:
            return None
    if len(dims) < len(m[X].shape):
        return None
    return m.build("broadcast_in_dim", m[X], shape=m.node.attrs["shape"], dims=tuple(dims))


def _converted_once(m: Match) -> Value | None:
    """first -> middle -> last as first -> last, where that is the same: i32 -> f32 rounds, but never to 0."""
    first, middle, last = m[X].dtype, m.node.operands[0].dtype, m.node.types[0].dtype
    exact = first == BOOL or (first, middle, last) == (I32, F32, BOOL)
    return m.build("convert", m[X], dtype=last) if exact else None


def _is_spread(value: Value) -> bool:
    return value.op == "broadcast_in_dim" and value.node.operands[0].shape == ()


def _unspread(m: Match) -> Value | None:
    """An elementwise op takes the scalar itself; an op of scalars alone is computed once, then spread."""
    if not any(map(_is_spread, m.node.operands)):
        return None
    scalars = [v.node.operands[0] if _is_spread(v) else v for v in m.node.operands]
    return m.like(m.build(m.node.op, *scalars, **m.node.attrs))


def _moved_spread(m: Match) -> Value | None:
    """However one moves the elements of an array of equal elements, they stay equal."""
    operand = m.node.operands[0]
    return m.like(operand.node.operands[0]) if _is_spread(operand) else None


def _spread_constant(m: Match) -> Value | None:
    """An array constant of equal elements is a scalar, spread."""
    array = m.node.attrs["value"]
    first = array.reshape(-1)[:1]
    if array.ndim == 0 or array.size == 0 or array.tobytes() != first.tobytes() * array.size:
        return None
    return m.like(m.build("constant", value=first.reshape(())))


def _folded(m: Match) -> Value | None:
    if m.node.types[0].elements > FOLDED_ELEMENTS or any(v.op != "constant" for v in m.node.operands):
        return None
    arrays = [v.node.attrs["value"] for v in m.node.operands]
    return m.build("constant", value=evaluate_node(m.node, arrays))


# -- the table ------------------------------------------------------------------------------------------

_PER_ELEMENT = any_of({*ELEMENTWISE, "compare", "select", "convert"})
_MOVES = any_of({"reshape", "transpose", "slice", "broadcast_in_dim"})
_FOLDABLE = any_of({*OPS} - {"constant", "iota", "broadcast_in_dim", "optimization_barrier"})

RULES: tuple[Rule, ...] = (
    Rule("x * 1 -> x", multiply(X, const(1)), lambda m: m[X]),
    Rule("x / 1 -> x", divide(X, const(1)), lambda m: m[X]),
    Rule("x + -0.0 -> x", add(X, const(-0.0)), lambda m: m[X]),  # and i32 + 0; but -0.0 + 0.0 is 0.0
    Rule("x - 0 -> x", subtract(X, const(0.0)), lambda m: m[X]),  # -0.0 - 0.0 is -0.0
    Rule("--x -> x", negate(negate(X)), lambda m: m[X]),
    Rule("|-x| -> |x|", absolute(negate(X)), lambda m: None if m[X].dtype.unsigned else m.build("abs", m[X])),
    Rule("||x|| -> |x|", absolute(absolute(X)), lambda m: m.build("abs", m[X])),
    Rule("max(x, x) -> x", maximum(X, X), lambda m: m[X]),
    Rule("min(x, x) -> x", minimum(X, X), lambda m: m[X]),
    Rule("not not x -> x", not_(not_(X)), lambda m: m[X]),
    Rule("x and true -> x", and_(X, const(True)), lambda m: m[X]),
    Rule("x or false -> x", or_(X, const(False)), lambda m: m[X]),
    Rule("x and -1 -> x", and_(X, const(-1)), lambda m: m[X]),
    Rule("x or 0 -> x", or_(X, const(0)), lambda m: m[X]),
    Rule("select(true, x, y) -> x", select(const(True), X, Y), lambda m: m.like(m[X])),
    Rule("select(false, x, y) -> y", select(const(False), X, Y), lambda m: m.like(m[Y])),
    Rule("select(p, x, x) -> x", select(Y, X, X), lambda m: m.like(m[X])),
    Rule("convert to its own dtype -> x", convert(X), _same_type),
    Rule("convert(convert(x)) -> convert(x)", convert(convert(X)), _converted_once),
    Rule("reshape, slice or pad to its own shape -> x", any_of({"reshape", "slice", "pad"}), _same_type),
    Rule("transpose or broadcast in place -> x", any_of({"transpose", "broadcast_in_dim"}), _in_order),
    Rule("reduce over no axes -> x", reduce_(X), _same_type),
    Rule("reshape(reshape(x)) -> reshape(x)", reshape(reshape(X)),
         lambda m: m.build("reshape", m[X], shape=m.node.attrs["shape"])),
    Rule("transpose(transpose(x)) -> transpose(x)", transpose(transpose(X)), _transposed_once),
    Rule("broadcast(broadcast(x)) -> broadcast(x)", broadcast(broadcast(X)), _broadcast_once),
    Rule("broadcast(reshape(x)) -> broadcast(x)", broadcast(reshape(X)), _broadcast_without_reshape),
    Rule("constant of equal elements -> broadcast", any_of({"constant"}), _spread_constant),
    Rule("op of a broadcast scalar -> op of the scalar", _PER_ELEMENT, _unspread),
    Rule("move of a broadcast scalar -> broadcast", _MOVES, _moved_spread),
    Rule("op of constants -> constant", _FOLDABLE, _folded),
)


def simplify(graph: Graph, *, rules: Iterable[Rule] = RULES, log: list[Step] | None = None) -> Graph:
    """A smaller graph that computes the same bits.

    rules: another table, to leave a rule out or to put one in.
    """
    return rewrite(graph, rules, log)
