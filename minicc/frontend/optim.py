"""Optimisers: from parameters and gradients to new parameters, as plain functions of trees.

    sgd = SGD(0.1, momentum=0.9)
    state = sgd.init(params)
    params, state = sgd.step(params, gradients, state)

In: trees of tensors of one structure. Out: trees of the same structure. Nothing is changed in place, so a
step can stand inside jit. Outside jit a step computes its results at once; otherwise a loop would build one
ever longer graph. optax splits the same thing into init and update; torch's optimisers change the parameters.
Read next: jit.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minicc.frontend.creation import zeros
from minicc.frontend.pytree import tree_map
from minicc.frontend.scope import EAGER, current
from minicc.frontend.tensor import realise


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent, with momentum as torch has it: v = momentum * v + g; p = p - rate * v."""

    rate: float
    momentum: float = 0.0

    def init(self, params: Any) -> Any:
        """The state before the first step: a velocity of 0 per parameter; nothing without momentum."""
        return tree_map(lambda p: zeros(p.shape), params) if self.momentum else ()

    def step(self, params: Any, gradients: Any, state: Any = ()) -> tuple[Any, Any]:
        """The parameters and the state after one step."""
        if self.momentum:
            gradients = state = tree_map(lambda v, g: v * self.momentum + g, state, gradients)
        params = tree_map(lambda p, g: p - g * self.rate, params, gradients)
        if current() is EAGER:
            realise([params, state])
        return params, state
