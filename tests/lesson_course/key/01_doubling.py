"""The key of a lesson that only the tests take: twice the answer, said three ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minicc.lessons.course import Case, Exercise, Kind, Lesson, Wrong
from minicc.lessons.verdicts import Verdict, beat, compare, predicted

# isort: split
# exercises begin
import minicc as mc
from minicc.graph.infer import build
from minicc.graph.ir import Builder, Graph

#| from minicc import Todo

# ---- 1.1
# How many kernels does (x + x).relu() become, and how many bytes must move, for 8 floats?
# solution begin
#| prediction = {"kernels": None, "bytes": None}
prediction = {"kernels": 1, "bytes": 64}
# solution end


# ---- 1.2
def double(graph: Graph) -> Graph:
    """The same graph, with twice its output."""
    # solution begin
    #| raise Todo("1.2", "double is not written yet", hint="minicc learn hint 1.2")
    builder, value = Builder(), graph.outputs[0]
    return builder.graph(graph.name, graph.inputs, [build(builder, "add", (value, value))])
    # solution end


# ---- 1.3
def squares(count: int) -> tuple[list[int], float]:
    """The squares of 0 to `count` - 1, and how many multiplications they took you."""
    # solution begin
    #| return [n * n for n in range(count)], count
    found = [0]
    for n in range(1, count):
        found.append(found[-1] + 2 * n - 1)
    return found, 1
    # solution end
# exercises end


def inputs(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(8 + seed).astype(np.float32)


def run_prediction(answer: Any, case: Case) -> dict[str, Any]:
    return {"prediction": answer}


def judge_prediction(data: Mapping[str, Any], seed: int) -> Verdict:
    compiled = mc.compile(lambda x: (x + x).relu(), mc.zeros(8))
    kernels = compiled.kernels.kernels
    moved = sum(type.bytes for _, type in (*compiled.kernels.inputs, *compiled.kernels.outputs))
    return predicted(data["prediction"], {"kernels": len(kernels), "bytes": moved}, within={"kernels": 1.0})


def run_double(answer: Any, case: Case) -> dict[str, Any]:
    x = mc.Tensor(inputs(case.seed))
    with mc.using(simplify=answer):
        compiled = mc.compile(lambda x: x.relu(), x)
        case.show(compiled.graph)
        return {"y": compiled(x).numpy(), "graph": str(compiled.graph)}


def judge_double(data: Mapping[str, Any], seed: int) -> Verdict:
    return compare("y", data["y"], 2 * np.maximum(inputs(seed).astype(np.float64), 0))


def run_squares(answer: Any, case: Case) -> dict[str, Any]:
    found, multiplications = answer(12)
    return {"squares": found, "multiplications": multiplications}


def judge_squares(data: Mapping[str, Any], seed: int) -> Verdict:
    same = compare("squares", data["squares"], [n * n for n in range(12)])
    return beat("multiplications", data["multiplications"], reference=1, bound=0) if same.passed else same


LESSON = Lesson(
    1, "doubling", "Twice the answer", "How little does it take to change a compiler?", 30,
    exercises=(
        Exercise(
            "1.1", Kind.PREDICT, "Kernels and bytes", answer="prediction", run=run_prediction,
            judge=judge_prediction, starter_symptom="no prediction yet: kernels, bytes",
            second_right='prediction = dict(kernels=1.0, bytes=100)',
            wrong=(
                Wrong('prediction = {"kernels": 2, "bytes": 64}', "kernels: 2 is too high",
                      "What would the second kernel read?"),
                Wrong('prediction = {"kernels": 1, "bytes": 1}', "bytes: 1 is too low, by a factor of 10",
                      "How wide is a float?"),
                Wrong('prediction = "one"', "no prediction yet", "Which names did the dictionary have?")),
            hints=("The graph has two operations.", "Both are elementwise.", "Fusion makes them one kernel."),
            discussion="One kernel reads 32 bytes and writes 32.",
            rubric=("one kernel", "elementwise operations fuse", "64 bytes", "until registers run out"),
            minutes=5),
        Exercise(
            "1.2", Kind.BUILD, "Double it", answer="double", run=run_double, judge=judge_double,
            second_right="""
                from minicc.graph.infer import constant
                from minicc.graph.ir import F32
                b = Builder()
                out = build(b, "multiply", (graph.outputs[0], constant(b, 2.0, F32)))
                return Graph(graph.name, graph.inputs, (out,), graph.locs)
            """,
            wrong=(
                Wrong("return graph", "y differs at", "Who adds the second half?"),
                Wrong("return None", "cannot use what you returned: using", "What is missing?"),
                Wrong("while True: pass", "still running after", "When does it end?")),
            hints=("minicc.graph.infer.build", "Add the output to itself.", 'build(Builder(), "add", ...)'),
            discussion="A graph never changes; a new one shares the old one's nodes.",
            rubric=("a new graph", "nodes are immutable", "one node more", "sharing against copying"),
            minutes=10, seconds=3.0),
        Exercise(
            "1.3", Kind.COUNT, "Few products", answer="squares", run=run_squares, judge=judge_squares,
            starter_symptom="too many multiplications: 12",
            second_right="return [sum(range(1, 2 * n, 2)) for n in range(count)], 0.5 * 2",
            wrong=(
                Wrong("return [0] * count, 0", "squares[1] differs: got 0, expected 1", "What is 2 * 2?"),
                Wrong("return [n * n for n in range(count)]", "ValueError", "What comes beside the list?")),
            hints=("Look at the differences.", "They are 1, 3, 5, ...", "Add them up."),
            discussion="Strength reduction: a product becomes a running sum.",
            rubric=("no products", "differences of squares", "1 of 12", "a longer chain of dependences"),
            minutes=10)),
    designs=("Rebuild the graph.", "Append to it."),
    mistakes=("Changing the graph that was handed in.",),
    interviews={5: "Ask for 1.1.", 15: "Ask for 1.2.", 45: "All three, then talk."})
