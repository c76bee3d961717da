"""Slots: the passes that a learner can replace in the real compiler.

    def mine(graph, target): ...            same arguments as kernel/fuse.py's fuse, same kind of result
    with using(fuse=mine):                  every compile inside calls mine
        y.numpy()

Goes in: functions by slot name. Comes out: `run_pass`, which calls what is in the slot, or the pass itself,
and checks what it returns. Invariants: slots are part of the compile cache's key by the identity of their
functions, so two functions never share a program; a function that no compile used is an error, for it would
teach nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from minicc.errors import CompileError
from minicc.graph.ir import Graph
from minicc.kernel.ir import Kernel, Module
from minicc.kernel.memory import MemoryPlan
from minicc.kernel.pipeline import PipelinedKernel
from minicc.tpu.assembly import Assembly
from minicc.tpu.isa import Program
from minicc.trace import Step

SLOTS: dict[str, type] = {  # name -> what its function must return
    "simplify": Graph, "fuse": Module, "tile": Kernel, "plan": MemoryPlan, "pipeline": PipelinedKernel,
    "lower": Assembly, "schedule": Program, "allocate": Program,
}


@dataclass
class _Filled:
    """One function in one slot, and whether any compile made use of it."""

    function: Callable
    used: bool = False


_slots: ContextVar[Mapping[str, _Filled]] = ContextVar("slots", default={})  # noqa: B039  never written to


def current_slots() -> tuple[tuple[str, Callable], ...]:
    """The slots in force, fit to be part of a cache key."""
    return tuple((name, slot.function) for name, slot in sorted(_slots.get().items()))


@contextmanager
def using(**functions: Callable) -> Iterator[None]:
    """Replace passes by functions of one's own, in every compile inside.

    Raises: CompileError for an unknown slot, and at the end if a function was never called.
    """
    for name, function in functions.items():
        if name not in SLOTS:
            hint = next(iter(get_close_matches(name, SLOTS, n=1)), "")
            raise CompileError("using", "there is no such slot", got=name, need=", ".join(SLOTS), hint=hint)
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
            raise CompileError(
                "using", f"the function in slot {name} was never called", got="no compile inside that runs it",
                hint="read a result inside the block; pipeline, lower, schedule, allocate are for a tpu")


def mark_used(names: tuple[str, ...]) -> None:
    """Note that a program made with these passes was asked for, newly compiled or not."""
    for name, slot in _slots.get().items():
        slot.used = slot.used or name in names


def run_pass(name: str, default: Callable, *args: Any, log: list[Step] | None = None, **options: Any) -> Any:
    """Call the function in a slot, or the pass itself. `log` and options are passed on if the function
    takes them.

    Raises: CompileError if what comes back is not what the slot must return.
    """
    slot = _slots.get().get(name)
    if slot is None:
        return default(*args, log=log, **options)
    known = inspect.signature(slot.function).parameters
    anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    offered = {**options, "log": log}
    result = slot.function(*args, **{key: value for key, value in offered.items() if anything or key in known})
    if not isinstance(result, SLOTS[name]):
        raise CompileError("using", f"the function in slot {name} returned the wrong thing",
                           got=f"a {type(result).__name__}", need=f"a {SLOTS[name].__name__}")
    return result
