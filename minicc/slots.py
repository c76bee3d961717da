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
from typing import Any

from minicc.errors import CompileError, a_type
from minicc.graph.attributes import nearest
from minicc.graph.ir import Graph
from minicc.graph.verify import verify as verify_graph
from minicc.kernel.ir import Kernel, Module
from minicc.kernel.memory import MemoryPlan
from minicc.kernel.pipeline import PipelinedKernel
from minicc.kernel.verify import verify as verify_kernel
from minicc.kernel.verify import verify_plan
from minicc.tpu.isa import Program

SLOTS: dict[str, type] = {  # name -> what its function must return
    "simplify": Graph, "fuse": Module, "tile": Kernel, "plan": MemoryPlan, "pipeline": PipelinedKernel,
    "lower": Program, "schedule": Program, "allocate": Program,
}
# what is checked of it at once, given what the pass was given; programs are checked before they run
VERIFIERS: dict[type, Callable[..., None]] = {
    Graph: lambda made, *_: verify_graph(made),
    MemoryPlan: lambda made, module, *_: verify_plan(made, module),
    **dict.fromkeys((Module, Kernel, PipelinedKernel), lambda made, *_: verify_kernel(made)),
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
    for name in functions:
        if name not in SLOTS:
            raise CompileError("using", "there is no such slot", got=name, need=", ".join(SLOTS),
                               hint=nearest(name, SLOTS))
    filled = {name: _Filled(function) for name, function in functions.items()}
    token = _slots.set({**_slots.get(), **filled})
    try:
        yield
    finally:
        _slots.reset(token)
    for name, slot in filled.items():
        if not slot.used:
            raise CompileError("using", f"the function in slot {name} was never called",
                               got="no compile inside that runs it", hint="read a result inside the block; "
                               "pipeline, lower, schedule, allocate are for a tpu")


@contextmanager
def in_force(slots: tuple[tuple[str, Callable], ...]) -> Iterator[None]:
    """Have exactly these slots in force, as they were in an earlier compile."""
    token = _slots.set({name: _Filled(function) for name, function in slots})
    try:
        yield
    finally:
        _slots.reset(token)


def mark_used(names: tuple[str, ...]) -> None:
    """Note that a program made with these passes was asked for, newly compiled or not."""
    for name, slot in _slots.get().items():
        slot.used = slot.used or name in names


def run_pass(name: str, default: Callable, *args: Any, **options: Any) -> Any:
    """Call the function in a slot, or the pass itself. Options are passed on if the function takes them.

    Raises: CompileError if it cannot be called so, or if what comes back is not what the slot must return.
    """
    slot = _slots.get().get(name)
    if slot is None:
        return default(*args, **options)
    try:
        signature = inspect.signature(slot.function)
        known = signature.parameters
        if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in known.values()):
            options = {key: value for key, value in options.items() if key in known}
        signature.bind(*args, **options)
    except (TypeError, ValueError) as error:
        raise CompileError("using", f"the function in slot {name} takes other arguments", got=error,
                           need=f"{name}{inspect.signature(default)}") from None
    result = slot.function(*args, **options)
    if not isinstance(result, SLOTS[name]):
        raise CompileError("using", f"the function in slot {name} returned the wrong thing",
                           got=a_type(result), need=f"a {SLOTS[name].__name__}")
    if type(result) in VERIFIERS:
        VERIFIERS[type(result)](result, *args)
    return result
