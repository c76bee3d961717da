"""The engine: patterns, fixed points, provenance, and rule sets that misbehave."""

from __future__ import annotations

import itertools

import pytest
from random_graphs import random_graph

from minicc.errors import CompileError, Loc
from minicc.graph.ir import I32
from minicc.graph.rewrite import Rule, X, Y, _Engine, any_of, const, pattern, rewrite
from minicc.graph.simplify import simplify
from minicc.graph.text import parse_graph
from minicc.trace import Step

add, multiply, negate, exp, tanh = map(pattern, ("add", "multiply", "negate", "exp", "tanh"))


def ops(text: str, *rules: Rule) -> list[str]:
    return [node.op for node in rewrite(parse_graph(text), rules).nodes() if node.op != "parameter"]


def of(*statements: str) -> str:
    """A graph of x and y, both f32[2], that returns its last statement."""
    lines = [f"%{i} = {statement} : f32[2] loc(a.py:{i + 1})" for i, statement in enumerate(statements)]
    return "graph f(x: f32[2], y: f32[2]) {" + "\n".join(lines) + f"\nreturn %{len(lines) - 1} }}"


def test_a_pattern_that_names_a_value_twice_wants_the_same_value():
    rule = Rule("x + x -> -x", add(X, X), lambda m: m.build("negate", m[X]))
    assert ops(of("add(x, x)"), rule) == ["negate"]
    assert ops(of("add(x, y)"), rule) == ["add"]


def test_a_commutative_op_matches_in_both_orders():
    rule = Rule("exp(x) + y -> y", add(exp(X), Y), lambda m: m[Y])
    assert ops(of("exp(x)", "add(%0, y)"), rule) == ops(of("exp(x)", "add(y, %0)"), rule) == []


def test_subtraction_matches_in_its_own_order_only():
    rule = Rule("exp(x) - y -> y", pattern("subtract")(exp(X), Y), lambda m: m[Y])
    assert ops(of("exp(x)", "subtract(y, %0)"), rule) == ["exp", "subtract"]


def test_const_tells_zero_from_minus_zero():
    rule = Rule("x + -0 -> x", add(X, const(-0.0)), lambda m: m[X])
    assert ops(of("add(x, -0.0)"), rule) == []
    assert ops(of("add(x, 0.0)"), rule) == ["constant", "add"]


def test_a_replacement_is_rewritten_in_turn():
    rules = [Rule("exp -> tanh", exp(X), lambda m: m.build("tanh", m[X])),
             Rule("tanh -> negate", tanh(X), lambda m: m.build("negate", m[X]))]
    assert ops(of("exp(x)", "exp(%0)"), *rules) == ["negate", "negate"]


def test_a_rule_may_push_an_op_down_a_long_chain():
    rule = Rule("tanh(-x) -> -tanh(x)", tanh(negate(X)), lambda m: m.build("negate", m.build("tanh", m[X])))
    deep = of("negate(x)", *(f"negate(%{i})" for i in range(300)), "tanh(%300)")
    assert ops(deep, rule) == ["tanh"] + ["negate"] * 301


def test_the_lines_of_all_matched_nodes_go_to_the_replacement():
    rule = Rule("--x -> tanh(x)", negate(negate(X)), lambda m: m.build("tanh", m[X]))
    graph = rewrite(parse_graph(of("negate(x)", "negate(%0)")), [rule])
    assert graph.lines(graph.outputs[0].node) == (Loc("a.py", 2), Loc("a.py", 1))


def test_dead_code_goes_and_inputs_stay():
    graph = rewrite(parse_graph(of("exp(x)", "negate(y)")), ())
    assert str(graph) == str(parse_graph(of("negate(y)").replace("a.py:1", "a.py:2")))


def test_each_application_is_logged_with_its_rule():
    log: list[Step] = []
    rule = Rule("x * 1 -> x", multiply(X, const(1)), lambda m: m[X])
    rewrite(parse_graph(of("multiply(x, 1.0)")), [rule], log)
    assert log == [Step("multiply(x, 1.0) : f32[2]", True, "x * 1 -> x")]


@pytest.mark.parametrize("rules", [
    [Rule("swap", add(X, Y), lambda m: m.build("add", *m.node.operands[::-1]))],
    [Rule("grow", exp(X), lambda m: m.build("exp", m.build("exp", m[X])))],
    [Rule("there", exp(X), lambda m: m.build("tanh", m[X])),
     Rule("back", tanh(X), lambda m: m.build("exp", m[X]))],
])
def test_rules_that_never_end_are_an_error_that_names_one(rules):
    with pytest.raises(CompileError, match="never come to an end; rule `(swap|grow|there|back)`"):
        rewrite(parse_graph(of("add(x, y)", "exp(%0)")), rules)


@pytest.mark.parametrize("replace", [lambda m: m.build("convert", m[X], dtype=I32), lambda m: 1.0])
def test_a_rule_that_changes_a_type_is_an_error_that_names_it(replace):
    with pytest.raises(CompileError, match="rule `bad` changes a type(.|\n)*at a.py:1"):
        rewrite(parse_graph(of("exp(x)")), [Rule("bad", exp(X), replace)])


def test_none_leaves_the_node_alone():
    assert ops(of("exp(x)"), Rule("never", any_of({"exp"}), lambda m: None)) == ["exp"]


@pytest.mark.parametrize("seed", range(10))
def test_rewriting_by_no_rules_gives_the_same_graph(seed):
    graph, _ = random_graph(seed)
    assert str(rewrite(graph, ())) == str(graph)


def test_the_work_grows_with_the_graph_and_no_faster(monkeypatch):
    def steps(blocks: int) -> int:
        count = itertools.count()
        step = _Engine.step
        monkeypatch.setattr(_Engine, "step", lambda self, node: (next(count), step(self, node))[1])
        lines = ["multiply(x, 1.0)"]
        for _ in range(blocks):
            last = len(lines)
            lines += [f"negate(%{last - 1})", f"negate(%{last})", f"divide(%{last + 1}, 4.0)",
                      f"add(%{last + 2}, %{last - 1})"]
        simplify(parse_graph(of(*lines)))
        monkeypatch.undo()
        return next(count)
    once = steps(100) - steps(50)
    assert steps(200) - steps(100) == 2 * once
