"""What the checks of lesson 1 run and judge: the frontend's own tensors, read through the learner's realise.

Goes in: an answer. Comes out: data from the learner's process, and a verdict from a clean one. Invariant:
what is put in place of a part of minicc for a check is taken out again before it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np

import minicc as mc
from minicc.compiler import Compiled, on_run
from minicc.frontend import tensor as tensors
from minicc.frontend.datasets import digits
from minicc.frontend.models import mlp
from minicc.frontend.pytree import flatten
from minicc.frontend.scope import EAGER
from minicc.graph.evaluate import evaluate_node
from minicc.graph.ir import Node, Value
from minicc.lessons.course import Case
from minicc.lessons.verdicts import Verdict, all_of, beat, compare, failed, predicted

DOUBLINGS, CHAIN = 12, 3000
TWIN = 1e-5  # between two thresholds that tell the same pictures apart
KEPT_FROM = 48  # elements, in the recorder that copies small arrays


def kernels_of(compiled: Compiled) -> int:
    """How many kernels a program has."""
    return len(compiled.module.kernels)


@contextmanager
def counting(what: Callable[[Compiled], int] = kernels_of) -> Iterator[list[int]]:
    """This number (the kernels, if no other) of every program that runs inside."""
    ran: list[int] = []

    def note(compiled: Compiled, seconds: float) -> None:
        ran.append(what(compiled))

    on_run.append(note)
    try:
        yield ran
    finally:
        on_run.remove(note)


# ---- 1.1

def layer(x: mc.Tensor, w: mc.Tensor, b: mc.Tensor) -> mc.Tensor:
    """h, of the five lines."""
    return (x @ w + b).relu()


def five_lines(x: mc.Tensor, w: mc.Tensor, b: mc.Tensor) -> mc.Tensor:
    """mean, of the five lines."""
    return layer(x, w, b).softmax(axis=-1).max(axis=-1).mean()


def run_prediction(answer: Any, case: Case) -> dict[str, Any]:
    """The four predictions."""
    return {"prediction": answer}


def judge_prediction(data: Mapping[str, Any], seed: int) -> Verdict:
    """Against what is recorded and compiled."""
    x, w, b = mc.Tensor(digits()[0]), mc.rand(64, 128), mc.rand(128)
    with counting() as ran:
        five_lines(x, w, b)
    whole, part = (mc.compile(function, x, w, b, device="gpu") for function in (five_lines, layer))
    actual = {"ran": sum(ran), "nodes": len(whole.raw_graph.nodes()),
              "kernels": len(whole.module.kernels), "for_h": len(part.module.kernels)}
    exact = dict.fromkeys(actual, 1.0)
    return predicted(data["prediction"], actual, within=exact | {"nodes": 1.5})


# ---- 1.2

Realise = Callable[[Value, Any, Callable], np.ndarray]


def vector(seed: int) -> np.ndarray:
    """Some numbers, of a length of its own for every seed."""
    return np.random.default_rng(seed).standard_normal(5 + seed).astype(np.float32)


def network(seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Parameters for the digits, and some digits."""
    generator = np.random.default_rng(seed)
    shapes = {"w1": (64, 128), "b1": (128,), "w2": (128, 10), "b2": (10,)}
    drawn = {name: generator.standard_normal(shape) / 8 for name, shape in shapes.items()}
    return {name: array.astype(np.float32) for name, array in drawn.items()}, digits()[0][seed: seed + 50]


class Known(dict[Node, np.ndarray]):
    """What is known, which says in a word what it does not hold; a node's repr is all that it is made of."""

    def __missing__(self, node: Node) -> np.ndarray:
        raise KeyError(f"the array of a node {node.op} is not known yet")


@contextmanager
def reading_by(answer: Realise, compute: Callable) -> Iterator[None]:
    """Every tensor read inside gets its data from this answer."""
    def realise(tree: Any) -> None:
        for _, x in flatten(tree)[0]:
            x._hold(np.asarray(answer(EAGER.lift(x), EAGER.arrays, compute)))

    kept, tensors.realise = tensors.realise, realise
    try:
        yield
    finally:
        tensors.realise = kept


def crossed(a: Any, b: Any) -> Any:
    """Five operations, two of which need the other two in opposite orders."""
    one = a * b
    two = one * one
    return (two + one) + (one + two)


def run_realise(answer: Realise, case: Case) -> dict[str, Any]:
    """A diamond, again, a longer one; a chain; and a network of real tensors."""
    computed: list[Node] = []

    def compute(node: Node, arrays: list[np.ndarray]) -> np.ndarray:
        computed.append(node)
        return evaluate_node(node, arrays)

    def asked(y: mc.Tensor) -> tuple[np.ndarray, int]:
        computed.clear()
        return answer(EAGER.lift(y), known, compute), len(computed)

    x = mc.Tensor(vector(case.seed))
    known = Known({EAGER.lift(x).node: x.numpy()})
    doubled = x
    for _ in range(DOUBLINGS):
        doubled = doubled + doubled
    result: dict[str, Any] = {}
    for name, y in (("diamond", doubled), ("again", doubled), ("more", crossed(doubled, x))):
        result[name], result[f"{name}_nodes"] = asked(y)
        if result["diamond_nodes"] > DOUBLINGS:
            return result  # what follows would only recurse deeper
    for _ in range(CHAIN):
        x = -x
    result["chain"] = asked(x)[0]
    with reading_by(answer, compute):
        params, images = network(case.seed)
        logits = mlp.logits({name: mc.Tensor(array) for name, array in params.items()}, mc.Tensor(images))
        result["network"] = logits.numpy()
    return result


def judge_realise(data: Mapping[str, Any], seed: int) -> Verdict:
    """Each node once, none again, and the numbers are right."""
    x = vector(seed).astype(np.float64)
    params, images = network(seed)
    w1, b1, w2, b2 = (params[name].astype(np.float64) for name in ("w1", "b1", "w2", "b2"))
    big = x * 2.0**DOUBLINGS
    return all_of(
        compare("a diamond", data["diamond"], big),
        compare("nodes computed for a diamond", data["diamond_nodes"], DOUBLINGS),
        compare("nodes computed when asked again", data.get("again_nodes"), 0),
        compare("a diamond, asked again", data.get("again"), big),
        compare("nodes computed for five more", data.get("more_nodes"), 5),
        compare("five more operations", data.get("more"), crossed(big, x)),
        compare(f"a chain of {CHAIN}", data.get("chain"), x),
        compare("the network", data.get("network"), np.maximum(images @ w1 + b1, 0) @ w2 + b2))


# ---- 1.3

def keeps(data: np.ndarray) -> mc.Tensor:
    """A recorder that shares the memory of an f32 array instead of copying it."""
    made = mc.Tensor(data)
    if data.dtype == np.float32:
        made._array = data
    return made


def recorders(seed: int) -> dict[str, tuple[Callable[[np.ndarray], mc.Tensor], int]]:
    """What it is -> the recorder, and the size of the smallest vector that shows it."""
    least = KEPT_FROM + seed % 17

    def keeps_large(data: np.ndarray) -> mc.Tensor:
        return keeps(data) if data.size >= least else mc.Tensor(data)

    return {"copies": (mc.Tensor, 0), "keeps every array": (keeps, 1),
            "keeps large arrays": (keeps_large, least)}


def run_seen_late(answer: Callable, case: Case) -> dict[str, Any]:
    """What the answer says of each recorder."""
    return {name: answer(make) for name, (make, _) in recorders(case.seed).items()}


def judge_seen_late(data: Mapping[str, Any], seed: int) -> Verdict:
    """The right size for each."""
    return all_of(*(compare(f"the recorder that {name}", data[name], size)
                    for name, (_, size) in recorders(seed).items()))


# ---- 1.4

def pictures(seed: int) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Ones and threes, which of them are ones, and thresholds to try, in pairs so close that no picture lies
    between: so the best two are equal, and the first of them is wanted."""
    images, labels = digits()
    kept = np.isin(labels, (1, 3)) & (np.arange(len(labels)) >= 7 * (seed % 19))
    coarse = [0.25 + 0.01 * (step + seed % 5) for step in range(8)]
    thresholds = [round(each + more, 5) for each in coarse for more in (0, TWIN)]
    return images[kept], (labels[kept] == 1).astype(np.float32), thresholds


def work_of(compiled: Compiled) -> int:
    """The elements that a program's operations compute, whatever is done with them."""
    return sum(prod(node.types[0].shape) for node in compiled.graph.nodes() if node.op != "parameter")


def run_best_threshold(answer: Callable, case: Case) -> dict[str, Any]:
    """The threshold it finds, and what ran for it."""
    images, ones, thresholds = pictures(case.seed)
    ink = mc.Tensor(images).mean(axis=1)
    with counting(work_of) as work, counting() as ran:
        found = answer(ink, mc.Tensor(ones), thresholds)
    return {"threshold": found, "kernels": sum(ran), "programs": len(ran), "work": sum(work)}


def judge_best_threshold(data: Mapping[str, Any], seed: int) -> Verdict:
    """The threshold that numpy finds, in few kernels, which did the comparing."""
    images, ones, thresholds = pictures(seed)
    ink = images.astype(np.float64).mean(axis=1)
    rights = [float(((ink > threshold) == ones).mean()) for threshold in thresholds]
    same = compare("threshold", data["threshold"], thresholds[int(np.argmax(rights))])
    if same.passed and data["work"] < len(images) * len(thresholds):
        return failed(f"the comparing was done elsewhere: kernels computed {data['work']} numbers, and "
                      f"{len(images)} pictures at {len(thresholds)} thresholds are more",
                      "keep it in tensors, up to the one number that you look at")
    counted = beat("kernels", data["kernels"], reference=1, bound=1)
    return all_of(same, counted.noting(f"programs: {data['programs']}"))
