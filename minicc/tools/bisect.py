"""`minicc bisect`: who changed the answer.

    $ minicc bisect fuzz-7.graph --device tpu
    tpu:v5e: simplify changed the answer, seen by running the graph
      output 0 at [2]: got 1.5, expected 0.25
      rule `x - y -> x`: subtract(x0, x1) : f32[4] -> x0

Goes in: a graph, inputs and a device. Comes out: the first pass after which the program, run at the level
that the pass made, no longer gives what numpy gives in float64; for rewrites, also the first rule whose
replacement has another value than what it replaced. Every level can be run, so no pass need be trusted to
judge another. With --nan: the first op that makes a NaN or an infinity. Invariants: a pass that raises is a
finding too, and so is one that `using` has put in a slot; integers are compared exactly.

LLVM's -opt-bisect-limit halves the number of passes that run until the outcome flips; where each level can
be run there is nothing to halve. Read next: reduce.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from minicc.compiler import PASSES, Levels, Pass
from minicc.devices import find
from minicc.errors import CompileError, Loc
from minicc.graph.dtypes import BF16, F16, F32, STORED, decode, encode, widen
from minicc.graph.evaluate import check_inputs, evaluate, evaluate_node
from minicc.graph.ir import Graph, Value, topological
from minicc.graph.printing import describe, print_node, value_names
from minicc.graph.rewrite import Rule, on_rewrite
from minicc.graph.text import parse_graph
from minicc.slots import mark_used, run_pass
from minicc.tools.levels import LEVELS, Arrays
from minicc.tools.output import emit
from minicc.tools.programs import read_text
from minicc.tools.random_graphs import random_inputs

EXAMPLE = "minicc bisect fuzz-7.graph --device tpu"
DEVICES = ("tpu", "gpu")
OPTIONAL = ("simplify",)  # the passes that a program can do without
MOST_BYTES = 2**30  # of one array of a graph that is run at every level
# of answers in floats, relative to the largest of the output; for 16-bit ones, a unit in the last place
TOLERANCE = {F32: 2e-5, F16: 2.0**-10, BF16: 2.0**-7}


@dataclass(frozen=True)
class Finding:
    """What first went wrong; equal to another if it is the same pass, in the same manner.

    guilty: the pass; "float32" if that is too coarse for the graph; of a NaN, the op. level: what was run
    to see it. step: the rewrite that is to blame. index, got, expected: of the first wrong element.
    """

    device: str
    guilty: str
    did: str = ""
    level: str = ""
    detail: str = field(default="", compare=False)
    index: tuple[int, ...] = field(default=(), compare=False)
    got: Any = field(default=None, compare=False)
    expected: Any = field(default=None, compare=False)
    step: str = field(default="", compare=False)
    at: tuple[Loc, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        seen = f", seen by running the {self.level}" if self.level else ""
        places = [f"at {loc}: {loc.source()}".removesuffix(": ") for loc in self.at]
        lines = [f"{self.device}: {self.guilty} {self.did}{seen}", self.detail, self.step, *places]
        return "\n".join(filter(None, lines)).replace("\n", "\n  ")


# -- the search -----------------------------------------------------------------------------------------


def bisect(graph: Graph, inputs: Arrays, device: Any = None, skip: Collection[str] = ()) -> Finding | None:
    """The first pass after which the answer is another one, or None. skip: passes to leave out."""
    levels = Levels(find(device), graph)
    judge = partial(_judge, graph, evaluate(graph, inputs, dtype64=True))
    clean = Finding(levels.device.name, "float32", level="graph")
    found = judge(clean, partial(evaluate, graph, inputs))
    for line in PASSES:
        if found or line.name in skip or not line.runs(levels.device, levels.options):
            continue
        before, clean = levels.graph, Finding(levels.device.name, line.name)
        found = judge(clean, partial(_apply, line, levels))
        for level, run_level in LEVELS.get(line.name, {}).items():
            found = found or judge(replace(clean, level=level), partial(run_level, levels, inputs))
        if found and found.level == "graph":
            found = replace(found, step=_guilty_step(line, before, inputs))
    return found


def _apply(line: Pass, levels: Levels) -> None:
    """Run one pass, as the compiler does."""
    mark_used((line.name,))
    setattr(levels, line.fills, line.call(partial(run_pass, line.name, line.function), levels))


def _judge(graph: Graph, want: Arrays, clean: Finding, compute: Callable[[], Any]) -> Finding | None:
    """What is wrong with what `compute` gives, if anything is; a pass gives nothing, and may but fail."""
    try:
        got = compute()
    except Exception as error:  # whatever a broken pass raises is what we look for
        return replace(clean, did="failed", detail=f"{type(error).__name__}: {error}")
    if got is None:
        return None
    types = [(array.dtype, array.shape) for array in got]
    if types != [(value.dtype.numpy, value.shape) for value in graph.outputs]:
        return replace(clean, did="changed the types", detail=f"of the outputs, to {types}")
    for number, (value, ours, theirs) in enumerate(zip(graph.outputs, got, want, strict=True)):
        if (index := first_difference(ours, theirs)) is not None:
            one, other = (array[index].item() for array in (decode(ours, value.dtype), theirs))
            detail = f"output {number} at {list(index)}: got {one}, expected {other}"
            return replace(clean, did="changed the answer", detail=detail, index=index, got=one,
                           expected=other, at=graph.lines(value.node))
    return None


def first_difference(got: np.ndarray, want: np.ndarray) -> tuple[int, ...] | None:
    """The index of the first element that is not what was wanted: integers exactly, floats within TOLERANCE.

    got: as its dtype is stored. want: stored likewise, or in float64.

    >>> first_difference(np.float32([1, np.nan, 3]), np.array([1, np.nan, 2]))
    (2,)
    """
    dtype = STORED[got.dtype]
    with np.errstate(all="ignore"):
        want = decode(encode(decode(want, dtype), dtype), dtype)  # beyond the largest lies infinity
        got = decode(got, dtype)
        right = (got == want) | ((got != got) & (want != want))
        if dtype.kind == "f":
            largest = np.max(np.abs(want), initial=0, where=np.isfinite(want))
            smallest = np.finfo(got.dtype).tiny  # below it are subnormals, which a machine may flush to 0
            off = np.abs(np.subtract(got, want, dtype=np.float64))
            right |= off <= max(TOLERANCE[dtype] * largest, smallest)
    wrong = np.argwhere(~right)
    return tuple(map(int, wrong[0])) if len(wrong) else None


def _guilty_step(line: Pass, before: Graph, inputs: Arrays) -> str:
    """The first rewrite of a pass whose result has another value than what it replaced."""
    steps: list[tuple[Rule, Value, Value]] = []
    on_rewrite.append(record := lambda *step: steps.append(step))
    try:
        run_pass(line.name, line.function, before)
    finally:
        on_rewrite.remove(record)
    arrays = check_inputs(before, inputs)
    for rule, old, new in steps:
        for node in topological([old.node, new.node], stop=arrays):
            if node not in arrays:
                arrays[node] = evaluate_node(node, [arrays[value.node] for value in node.operands])
        if first_difference(arrays[new.node], arrays[old.node]) is not None:
            name = new.node.attrs["name"] if new.op == "parameter" else describe(new.node)
            return f"rule `{rule.name}`: {describe(old.node)} -> {name}"
    return ""


def first_nan(graph: Graph, inputs: Arrays) -> Finding | None:
    """The first op that, in float32, makes a NaN of none, or an infinity of finite numbers.

    A constant is what somebody wrote, and makes nothing.
    """
    names, arrays = value_names(graph), check_inputs(graph, inputs)
    for node in graph.nodes():
        operands = [arrays[value.node] for value in node.operands]
        if node.op != "parameter":
            arrays[node] = evaluate_node(node, operands)
        given = max((_badness(array).max(initial=0) for array in operands), default=0)
        made = np.argwhere(_badness(arrays[node]) > given)
        if len(made) and node.op != "constant":
            index = tuple(map(int, made[0]))
            op = f"input {names[node]}" if node.op == "parameter" else print_node(node, names)
            value = widen(arrays[node])[index].item()
            return Finding("float32", op, f"is the first to make {value}", "", f"at {list(index)}", index,
                           value, at=graph.lines(node))
    return None


def _badness(array: np.ndarray) -> np.ndarray:
    """For each element of a stored array, 0 if it is finite, 1 if infinite, 2 if not a number."""
    array = widen(array)
    return np.isinf(array) + 2 * np.isnan(array)


# -- the command ----------------------------------------------------------------------------------------


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    graph_arguments(parser)
    parser.add_argument("--nan", action="store_true", help="the first op that makes a NaN or an infinity")


def run(options: argparse.Namespace) -> int:
    """Print what is wrong, if anything is; 1 if so."""
    graph = read_graph(options)
    if options.nan:
        found, fine = first_nan(graph, random_inputs(graph, options.seed)), "every op makes finite numbers"
    else:
        found, fine = first_finding(graph, options), "every level gives the same answer"
    data = {key: str(value) if isinstance(value, float) and not np.isfinite(value) else value  # not in JSON
            for key, value in (asdict(found) if found else {}).items()}
    emit(str(found or fine), data or None, options)
    return 1 if found else 0


def graph_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments by which a command takes a graph, its inputs and its devices."""
    parser.add_argument("program", metavar="FILE.graph")
    parser.add_argument("--seed", type=int, default=0, help="of the random inputs (default 0)")
    device_argument(parser)
    parser.add_argument("--skip", choices=OPTIONAL, action="append", default=[], help="leave this pass out")


def device_argument(parser: argparse.ArgumentParser) -> None:
    """The device, of which these commands take one of each kind unless told otherwise."""
    parser.add_argument("--device", metavar="D", help="tpu, gpu:h100, ... alone (default: a tpu and a gpu)")


def read_graph(options: argparse.Namespace) -> Graph:
    """The graph of the file. Raises: CompileError for one that would take all memory to run."""
    graph = parse_graph(read_text(options.program), options.program)
    for node in graph.nodes():
        if node.types[0].bytes > MOST_BYTES:
            raise CompileError("command line", "an array is too large to try", got=node.types[0],
                               need=f"at most {MOST_BYTES >> 20} MiB", at=graph.lines(node))
    return graph


def devices_of(options: argparse.Namespace) -> tuple[str, ...]:
    """The device that is asked for, or one of each kind."""
    return (options.device,) if options.device else DEVICES


def first_finding(graph: Graph, options: argparse.Namespace) -> Finding | None:
    """What bisect finds on the first device where it finds something."""
    inputs = random_inputs(graph, options.seed)
    found = (bisect(graph, inputs, device, options.skip) for device in devices_of(options))
    return next(filter(None, found), None)
