"""How many cycles a block of bundles takes: found once for each state in which the block can begin.

    state = timing.capture(core, now)            what of the past still matters, relative to now
    effect = timing.effect(state, block, taken)  ->  104 cycles, {"vector": 400, "register": 16}, and the
                                                 state in which it leaves the machine

When a bundle issues depends on when its registers are ready and its units free, never on what lanes hold, so
the effect of a block without copies and waits depends on the block, on whether its branch is taken, and on
what of those times lies ahead. The second time it is looked up: a loop in a steady state is one look-up per
iteration. A new effect is found by the stepper itself, on a core that has no values: there is one definition
of time, and this is not another.

Invariants: states are compared by identity, since equal ones are the same object; a fault is not remembered.
Simulators of processors know this as memoised, or fast-forwarded, simulation (FastSim, 1998). Read next:
blocks.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from minicc.tpu.core import Core
from minicc.tpu.isa import Instr, Program, Reg
from minicc.tpu.machine import LANES, SUBLANES
from minicc.tpu.ops import form
from minicc.tpu.stepping import Decoded, Stepper
from minicc.tpu.units import Mxu, Product, Queue

NO_ROWS = np.zeros((4 * SUBLANES, LANES), np.float32)  # what a push without values pushes


class UnitState(NamedTuple):
    """When a unit is free and its results can be popped, in cycles from now; and what it will accept."""

    free: int
    results: tuple[int, ...]
    weights_free: int = 0
    drained: int = 0
    weights: tuple[Any, ...] = ()  # of an MXU: rows in its shadow, their kind, the kind of the active ones


@dataclass(eq=False)
class State:
    """What a block's timing depends on. effects: those found, by block and whether
    its branch is taken."""

    ready: tuple[tuple[Reg, int], ...]  # registers that cannot be read yet, and for how many cycles
    units: tuple[UnitState, ...]
    effects: dict[tuple[Any, bool], Effect] = field(default_factory=dict)

    def stamp(self, core: Core, now: int) -> None:
        """Set the times of a core's units; of a clock, whatever else they have."""
        for unit, state in zip(all_units(core), self.units, strict=True):
            unit.free_at = now + state.free
            values: list[Any] = [value for _, value in unit.results]
            if isinstance(core, Clock):
                values = [None] * len(state.results)
            unit.results.clear()
            unit.results.extend((now + ahead, value)
                                for ahead, value in zip(state.results, values, strict=True))
            if isinstance(unit, Mxu):
                unit.weights_free_at, unit.drained_at = now + state.weights_free, now + state.drained
                if isinstance(core, Clock):
                    unit.held, unit.shadow_kind, unit.transposed, kind = state.weights
                    unit.shadow, unit.product = (NO_ROWS,), Product(kind, NO_ROWS)


class Effect(NamedTuple):
    """What a block does to the clock, and to the accounts."""

    cycles: int
    causes: dict[str, int]
    busy_cycles: tuple[int, ...]  # by MXU
    after: State


def all_units(core: Core) -> list[Queue]:
    """Every unit behind a queue, the MXUs first."""
    return [unit for units in core.units.values() for unit in units]


class _Ready(dict[Reg, int]):
    """When each register can be read; one that is not mentioned, at once."""

    def __missing__(self, reg: Reg) -> int:
        return 0


class Clock(Core):
    """A core that keeps time and holds no values."""

    def execute(self, op: Instr) -> None:
        """What an instruction does to registers and units, but for their contents."""
        info = op.info
        if op.dst:
            self.pending.append((op, None))
        if info.port == "pop":
            self.unit(op).results.popleft()
        elif info.queue == "mxu":
            kind, most, _ = form(op.op)
            rows = NO_ROWS[:self.value(op.attr("rows", most))]
            if info.port == "weights":
                self.unit(op).push_weights(self.now, rows, kind, "xpose" in op.op)
            else:
                self.unit(op).push_rows(self.now, rows, kind, bool(op.attr("swap")))
        elif info.run == "transpose":
            self.unit(op).push(self.now, *(NO_ROWS,) * (LANES // SUBLANES if op.attr("end") else 0))
        elif info.queue:
            self.unit(op).push(self.now, NO_ROWS)


class Outline(Clock):
    """A clock that computes scalars, and so knows where the program goes."""

    def execute(self, op: Instr) -> None:
        """What an instruction does, but for the contents of vectors and memory."""
        if op.info.slot in ("scalar", "misc"):
            Core.execute(self, op)
        else:
            super().execute(op)


class Timing:
    """All the states and effects of a program that were met so far."""

    def __init__(self, program: Program, code: list[Decoded], overlap_weights: bool) -> None:
        self.core = Clock(program, None, overlap_weights)  # type: ignore[arg-type]  # it has no values
        self.stepper = Stepper(code, self.core)
        self.states: dict[tuple, State] = {}

    def capture(self, core: Core, now: int) -> State:
        """The state of a core."""
        ready = tuple((reg, time - now) for reg, time in core.ready.items() if time > now)
        units = tuple(_unit_state(unit, now) for unit in all_units(core))
        return self.states.setdefault((frozenset(ready), units), State(ready, units))

    def effect(self, state: State, bundles: Sequence[Decoded], taken: bool) -> Effect:
        """Step through a block. taken: whether its branch is. Raises: MachineFault."""
        core, stepper = self.core, self.stepper
        core.ready = _Ready(state.ready)
        core.pending.clear()
        state.stamp(core, 0)
        for mxu, before in zip(core.mxus, state.units, strict=False):
            mxu.busy_cycles = before.free  # what is still going in belongs to the past
        stepper.now = stepper.start = stepper.end = stepper.busy = 0
        stepper.causes.clear()
        for bundle in bundles:
            stepper.issue(bundle)
        if taken:
            stepper.branch()
        stepper.close()
        busy = tuple(mxu.busy_cycles - before.free
                     for mxu, before in zip(core.mxus, state.units, strict=False))
        return Effect(stepper.now, dict(stepper.causes), busy, self.capture(core, stepper.now))


def _unit_state(unit: Queue, now: int) -> UnitState:
    free, results = max(0, unit.free_at - now), tuple(max(0, time - now) for time, _ in unit.results)
    if not isinstance(unit, Mxu):
        return UnitState(free, results)
    return UnitState(free, results, max(0, unit.weights_free_at - now), max(0, unit.drained_at - now),
                     (unit.held, unit.shadow_kind, unit.transposed, unit.product.kind))
