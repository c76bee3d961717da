"""Optimisers: from parameters and gradients to new parameters, as plain functions of trees.

    adam = AdamW(cosine(3e-4, steps=1000, warm_up_steps=100))
    state = adam.init(params)                       {"step": 0, "mean": like params, "square": like params}
    params, state = adam.step(params, clip_by_global_norm(gradients, 1.0), state)

In: trees of tensors of one structure. Out: trees of the same structure. Each rule is one method, `direction`,
for one parameter: where to go, and what to remember; the step is then params - rate * direction. Invariants:
nothing is changed in place and the count of steps is a tensor, so a step can stand inside jit and is compiled
once; a parameter keeps its dtype, what is remembered of it is f32. Outside jit a step computes its results at
once; otherwise a loop would build one ever longer graph. optax splits the same thing into init and update and
chains small transformations; torch's optimisers change the parameters. Read next: jit.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from minicc.errors import DtypeError, a_type
from minicc.frontend import ops
from minicc.frontend.creation import zeros
from minicc.frontend.primitives import TensorLike, as_argument, as_number, as_tensor
from minicc.frontend.pytree import flatten, tree_map
from minicc.frontend.scope import EAGER, current, fail
from minicc.frontend.tensor import Tensor, realise

Schedule = Callable[[Tensor], TensorLike]  # the number of the step, from 1 -> the rate of that step
Memory = tuple[Tensor, ...]  # what an optimiser remembers of one parameter


@dataclass(frozen=True)
class _Moved:
    """One parameter after a step; a class of its own, so that a tree takes it for a leaf."""

    parameter: Tensor
    memory: Memory


@dataclass(frozen=True)
class Optimiser:
    """What all of them share: the state, and the walk over the trees. rate: a number, or a schedule."""

    rate: float | Schedule
    remembers: ClassVar[tuple[str, ...]] = ()

    def init(self, params: Any) -> dict[str, Any]:
        """The state before the first step: how many steps were made, and zeros for what is remembered."""
        memory = {name: tree_map(lambda p: zeros(*as_tensor(p).shape), params) for name in self.remembers}
        return {"step": zeros(dtype="i32"), **memory}

    def step(self, params: Any, gradients: Any, state: Any = None) -> tuple[Any, Any]:
        """The parameters and the state after one step; without a state it is the first."""
        state = self.init(params) if state is None else state
        if not isinstance(state, dict) or not {"step", *self.remembers} <= set(state):
            got = list(state) if isinstance(state, dict) else a_type(state)
            fail("step", "this is not this optimiser's state", got, ["step", *self.remembers],
                 "optimiser.init(params)", DtypeError)
        count = state["step"] + 1
        rate = self.rate(count) if callable(self.rate) else self.rate

        def moved(p: TensorLike, g: TensorLike, *memory: Tensor) -> _Moved:
            p, g = as_tensor(p), as_tensor(g)
            if p.shape != g.shape:
                fail("step", "a gradient does not fit its parameter", f"{g.type} for {p.type}", "one shape")
            way, kept = self.direction(p, g, memory, count)
            return _Moved((p - way * rate).astype(p.dtype), kept)

        results = tree_map(moved, params, gradients, *(state[name] for name in self.remembers))
        params = tree_map(lambda result: result.parameter, results)
        state = {"step": count}
        for i, name in enumerate(self.remembers):
            state[name] = tree_map(lambda result, i=i: result.memory[i], results)
        if current() is EAGER:
            realise([params, state])
        return params, state

    def direction(self, p: Tensor, g: Tensor, memory: Memory, count: Tensor) -> tuple[Tensor, Memory]:
        """Where to go, for one parameter with this gradient in the count-th step, and what to remember."""
        raise NotImplementedError


# -- the rules -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SGD(Optimiser):
    """Stochastic gradient descent, with momentum as torch has it: v = momentum * v + g; p = p - rate * v.

    Source: I. Sutskever et al., "On the importance of initialization and momentum in deep learning", 2013.
    """

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    @property
    def remembers(self) -> tuple[str, ...]:  # type: ignore[override]
        """The velocity, if there is momentum."""
        return ("velocity",) if self.momentum else ()

    def direction(self, p: Tensor, g: Tensor, memory: Memory, count: Tensor) -> tuple[Tensor, Memory]:
        """The gradient, or the velocity that it adds to."""
        g = g + p * self.weight_decay if self.weight_decay else g
        if not memory:
            return g, ()
        velocity = memory[0] * self.momentum + g
        return (g + velocity * self.momentum if self.nesterov else velocity), (velocity,)


@dataclass(frozen=True)
class Adam(Optimiser):
    """The mean of the gradients over the root of the mean of their squares, both corrected for starting at 0.

    Source: D. Kingma and J. Ba, "Adam: a method for stochastic optimization", arXiv 1412.6980, algorithm 1.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    remembers: ClassVar[tuple[str, ...]] = ("mean", "square")

    def direction(self, p: Tensor, g: Tensor, memory: Memory, count: Tensor) -> tuple[Tensor, Memory]:
        """The corrected mean over the corrected root; weight decay is part of the gradient."""
        g = g + p * self.weight_decay if self.weight_decay else g
        return self._adapted(g, memory, count)

    def _adapted(self, g: Tensor, memory: Memory, count: Tensor) -> tuple[Tensor, Memory]:
        mean = memory[0] * self.beta1 + g * (1 - self.beta1)
        square = memory[1] * self.beta2 + g * g * (1 - self.beta2)
        first, second = (_sum_of_weights(beta, count) for beta in (self.beta1, self.beta2))
        return mean / first / ((square / second).sqrt() + self.epsilon), (mean, square)


def _sum_of_weights(beta: float, count: Tensor) -> Tensor:
    """1 - beta ** count: what the weights of a mean that started at 0 add up to."""
    if not 0 <= as_number("Adam", beta) < 1:
        fail("Adam", "no mean has this weight for what was before", beta, "0 or more, less than 1")
    if not beta:
        return as_tensor(1.0)
    return -ops.expm1(count * math.log(beta))


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with weight decay beside the gradient rather than in it.

    Source: I. Loshchilov and F. Hutter, "Decoupled weight decay regularization", arXiv 1711.05101.
    """

    weight_decay: float = 0.01

    def direction(self, p: Tensor, g: Tensor, memory: Memory, count: Tensor) -> tuple[Tensor, Memory]:
        """Adam's direction, and towards 0."""
        way, memory = self._adapted(g, memory, count)
        return way + p * self.weight_decay, memory


@dataclass(frozen=True)
class Lion(Optimiser):
    """The sign of a mean of gradients: half of Adam's memory, and every element moves by the rate.

    Source: X. Chen et al., "Symbolic discovery of optimization algorithms", arXiv 2302.06675, algorithm 2.
    """

    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 0.0
    remembers: ClassVar[tuple[str, ...]] = ("mean",)

    def direction(self, p: Tensor, g: Tensor, memory: Memory, count: Tensor) -> tuple[Tensor, Memory]:
        """The sign, and towards 0."""
        way = ops.sign(memory[0] * self.beta1 + g * (1 - self.beta1))
        way = way + p * self.weight_decay if self.weight_decay else way
        return way, (memory[0] * self.beta2 + g * (1 - self.beta2),)


@dataclass(frozen=True)
class Muon(Optimiser):
    """Momentum whose matrix is made nearly orthogonal, so that every direction of it moves equally far.

    For the matrices inside a network; split off embeddings, heads and vectors, and give them to AdamW.
    Source: K. Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024.
    """

    momentum: float = 0.95
    weight_decay: float = 0.0
    remembers: ClassVar[tuple[str, ...]] = ("velocity",)

    def direction(self, p: Tensor, g: Tensor, memory: Memory, count: Tensor) -> tuple[Tensor, Memory]:
        """Nesterov's momentum, made orthogonal, and towards 0."""
        if p.ndim != 2:
            fail("Muon", "this parameter is no matrix", p.type, "rank 2",
                 "two trees of parameters: Muon for the matrices, AdamW for the rest")
        velocity = memory[0] * self.momentum + g
        way = orthogonalised(g + velocity * self.momentum) * max(1.0, p.shape[0] / p.shape[1]) ** 0.5
        return (way + p * self.weight_decay if self.weight_decay else way), (velocity,)


def orthogonalised(x: Tensor, rounds: int = 5) -> Tensor:
    """U V^T of x = U S V^T, nearly: five Newton-Schulz rounds bring singular values to about 0.7 .. 1.2.

    Each round maps a singular value s to 3.4445 s - 4.7750 s^3 + 2.0315 s^5. Source: as Muon's.
    """
    wide = x.shape[0] <= x.shape[1]
    x = x if wide else x.T
    x = x / ((x * x).sum().sqrt() + 1e-7)
    for _ in range(rounds):
        gram = x @ x.T
        x = x * 3.4445 + (gram * -4.7750 + gram @ gram * 2.0315) @ x
    return x if wide else x.T


# -- rates that change ---------------------------------------------------------------------------------------


def constant(rate: float) -> Schedule:
    """The same rate in every step."""
    return lambda step: rate


def warm_up(steps: int, then: float | Schedule) -> Schedule:
    """Linearly up to what `then` gives, which is reached in step number `steps`."""
    return lambda step: ops.minimum(step / float(steps), 1.0) * (then(step) if callable(then) else then)


def cosine(rate: float, steps: int, final: float = 0.0, warm_up_steps: int = 0) -> Schedule:
    """Half a cosine from the rate, after a linear warm-up, down to `final` in step number `steps`.

    Source: I. Loshchilov and F. Hutter, "SGDR", arXiv 1608.03983, equation 5, one period of it.
    """
    def falling(step: Tensor) -> Tensor:
        done = ((step - warm_up_steps) / float(max(1, steps - warm_up_steps))).clip(0.0, 1.0)
        return ops.cos(done * math.pi) * ((rate - final) / 2) + (rate + final) / 2
    return warm_up(warm_up_steps, falling) if warm_up_steps else falling


def staircase(rate: float, every: int, factor: float = 0.1) -> Schedule:
    """The rate, times the factor once more after each `every` steps."""
    return lambda step: factor ** ops.floor((step - 1) / float(every)) * rate


# -- gradients that are too long -----------------------------------------------------------------------------


def global_norm(tree: Any) -> Tensor:
    """The length of all the tensors of a tree, seen as one vector."""
    leaves = [as_argument("global_norm", name, x, "tensors alone") for name, x in flatten(tree, "tree")[0]]
    squares = [(x * x).float().sum() for x in leaves]
    return sum(squares, as_tensor(0.0)).sqrt()


def clip_by_global_norm(tree: Any, limit: float) -> Any:
    """The tree, scaled down to a global norm of `limit` if it is longer.

    Source: R. Pascanu et al., "On the difficulty of training recurrent neural networks", arXiv 1211.5063.
    """
    if not as_number("clip_by_global_norm", limit) > 0:
        fail("clip_by_global_norm", "no length is that small", limit, "more than 0")
    scale = limit / ops.maximum(global_norm(tree), limit)
    return tree_map(lambda x: (x * scale).astype(x.dtype), tree)


def clip_by_value(tree: Any, limit: float) -> Any:
    """The tree with every element brought to -limit .. limit."""
    return tree_map(lambda x: as_tensor(x).clip(-limit, limit), tree)
