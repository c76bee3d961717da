"""From a graph to something that runs: the passes in order, the cache, the slots that a learner can fill.

    compiled = compile_graph(graph, device="gpu")
    compiled.run([x, w])          ->  [y]
    with using(simplify=mine):    ...  every compile in here calls mine(graph) instead

In: a graph. Out: a Compiled. Invariants: programs are cached by structure (ops, attributes, types, wiring),
device and slots, never by names, user lines or data; what is handed out speaks of the lines of the graph that
was handed in, though the program behind it be shared. XLA caches by a fingerprint of the module, metadata
left out, and so can name another program's lines. Read next: graph/simplify.py, kernel/fuse.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import numpy as np

from minicc.errors import CompileError, Loc, MiniccError, merge_locs
from minicc.graph.evaluate import evaluate
from minicc.graph.ir import Graph, attribute_key

# -- devices -------------------------------------------------------------------------------------------------

DEVICES = ("gpu", "gpu:a100", "gpu:h100", "gpu:a6000", "tpu", "tpu:v4", "tpu:v5e")


def check_device(device: str | None) -> str:
    """The device that is meant: the one named, else MINICC_DEVICE, else "gpu"."""
    asked = device or os.environ.get("MINICC_DEVICE") or "gpu"
    if asked not in DEVICES:
        raise CompileError("device", "there is no such device", got=repr(asked), need=", ".join(DEVICES),
                           hint=nearest(asked, DEVICES))
    return asked


def nearest(word: object, known: Sequence[str]) -> str:
    """The known word most like this one, for a hint; empty when none is."""
    return next(iter(get_close_matches(str(word), known, n=1)), "")


# -- slots ---------------------------------------------------------------------------------------------------

SLOTS = ("simplify",)


@dataclass
class _Filled:
    """One function in one slot, and whether any compile made use of it."""

    function: Callable
    used: bool = False


_slots: ContextVar[Mapping[str, _Filled]] = ContextVar("slots", default={})  # noqa: B039  never written to


def current_slots() -> tuple[tuple[str, Callable], ...]:
    """The slots in force, fit to be part of a cache key."""
    return tuple(sorted((name, slot.function) for name, slot in _slots.get().items()))


@contextmanager
def using(**functions: Callable) -> Iterator[None]:
    """Replace passes by functions of one's own, in every compile inside.

    Raises: CompileError for an unknown slot, and at the end if a function was never called.
    """
    for name, function in functions.items():
        if name not in SLOTS:
            raise CompileError("using", "there is no such slot", got=name, need=", ".join(SLOTS),
                               hint=nearest(name, SLOTS))
        if not callable(function):
            raise CompileError("using", f"the slot {name} needs a function", got=repr(function))
    filled = {name: _Filled(function) for name, function in functions.items()}
    token = _slots.set({**_slots.get(), **filled})
    try:
        yield
    finally:
        _slots.reset(token)
    for name, slot in filled.items():
        if not slot.used:
            raise CompileError("using", f"the function in slot {name} was never called",
                               got="no compile inside",
                               hint="read a result inside the block: lazy tensors compile when read")


# -- compiling -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compiled:
    """A program, with the lines of the graph that asked for it. on_lines: numbers of nodes -> lines."""

    raw_graph: Graph
    device: str
    _simplified: Graph = field(repr=False)
    _lines: tuple[tuple[Loc, ...], ...] = field(repr=False)

    @property
    def graph(self) -> Graph:
        """The simplified graph, with the lines of the graph that was handed in."""
        shared = self._simplified
        locs = {node: rebound(shared.lines(node), self._lines) for node in shared.nodes()}
        return Graph(self.raw_graph.name, shared.inputs, shared.outputs, locs)

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs for these inputs."""
        for hook in on_run:
            hook(self)
        with speaking_of(self._lines):
            return evaluate(self._simplified, arrays)


on_compile: list[Callable[[Compiled], Any]] = []  # called with each program newly compiled
on_run: list[Callable[[Compiled], Any]] = []  # called with each program about to run
_cache: dict[tuple, Graph] = {}


def compile_graph(graph: Graph, device: str | None = None) -> Compiled:
    """The program of a graph on a device, compiled or remembered."""
    device = check_device(device)
    key = (structure(graph), device, current_slots())
    lines = tuple(graph.lines(node) for node in graph.nodes())
    known = _cache.get(key)
    if known is None:
        with speaking_of(lines):
            known = _cache[key] = simplified(numbered(graph))
    for slot in _slots.get().values():
        slot.used = True
    compiled = Compiled(graph, device, known, lines)
    return compiled


def simplified(graph: Graph) -> Graph:
    """The graph after the pass in the slot."""
    slot = _slots.get().get("simplify")
    result: object = slot.function(graph) if slot else graph
    if not isinstance(result, Graph):
        raise CompileError("using", "the function in slot simplify returned the wrong thing",
                           got=f"a {type(result).__name__}", need="a Graph")
    return result


# -- one program, many askers --------------------------------------------------------------------------------


def structure(graph: Graph) -> tuple:
    """What a program depends on: equal for graphs that differ only in names and user lines."""
    numbers: dict[Any, int] = {}
    rows = []
    for node in graph.nodes():
        numbers[node] = len(numbers)
        attrs = () if node.op == "parameter" else attribute_key(node.attrs)
        rows.append((node.op, tuple((numbers[v.node], v.index) for v in node.operands), attrs, node.types))
    ends = [tuple((numbers[v.node], v.index) for v in values) for values in (graph.inputs, graph.outputs)]
    return tuple(rows), *ends


def numbered(graph: Graph) -> Graph:
    """The graph with the number of each node in place of its lines; passes merge them as they merge lines."""
    locs = {node: (Loc("<node>", i),) for i, node in enumerate(graph.nodes())}
    return Graph(graph.name, graph.inputs, graph.outputs, locs)


def rebound(numbers: tuple[Loc, ...], lines: Sequence[tuple[Loc, ...]]) -> tuple[Loc, ...]:
    """The user's lines that numbers of nodes stand for; other lines stay."""
    return merge_locs(*(lines[loc.line] if loc.file == "<node>" else (loc,) for loc in numbers))


@contextmanager
def speaking_of(lines: Sequence[tuple[Loc, ...]]) -> Iterator[None]:
    """Let errors from inside name the user's lines."""
    try:
        yield
    except MiniccError as error:
        error.at = rebound(error.at, lines)
        raise
