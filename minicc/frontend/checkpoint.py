"""Rematerialisation: compute again in the backward pass what would otherwise be kept for it.

    y = checkpoint(block)(x, w)     %0 = dot_general(x, w); %1 = tanh(%0)      forward: %1 is let go
    d loss / d x, given g           %5 = optimization_barrier(g)               g, once all there is is known
                                    %6 = optimization_barrier(x, %5)           x, but after %5
                                    %7 = optimization_barrier(w, %5)
                                    %8 = dot_general(%6, %7); %9 = tanh(%8)    %1 again, as %9
                                    multiply(%9, %9); ...                      the rules as ever, on %9

A deep network keeps every layer's insides until the backward pass comes back to them; memory then grows with
the depth. Of a checkpointed function only the inputs are kept, for the price of one more forward pass. Only
what lies between inputs and outputs can shrink by that. A step of training of GPT-2 small with its blocks
checkpointed is planned into 1.5 GB in place of 2.7 on the gpu device, and 1.4 in place of 3.1 on a tpu, if it
is on 1024 tokens; on 128 tokens the weights and the new weights take 0.996 of 0.998 GB, and nothing falls:
there donate the weights (jit's donate_argnums), for 0.7 GB. 1024 tokens, checkpointed, then take 1.0.

In: a function. Out: one that gives the same values and the same gradients. Invariants:
- The barrier is a node that no rule removes. Without it the second computation would be the first one:
  hash-consing finds them equal.
- Its further operands say after what it comes: nothing is computed again before the gradient arrives, and
  before the layers behind are done, with their parameters' gradients too.
- A checkpoint inside a checkpoint changes nothing; what depends on no input (a mask, say) is made once.

JAX calls it jax.checkpoint, or remat, and uses the same barrier; torch.utils.checkpoint runs the function
again. Source: T. Chen et al., "Training deep nets with sublinear memory cost", arXiv 1604.06174. Read next:
autograd.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from minicc.errors import CompileError, a_type
from minicc.frontend.primitives import node
from minicc.frontend.pytree import tree_map
from minicc.frontend.scope import Trace, current, fail, tracing
from minicc.frontend.tensor import Tensor
from minicc.graph.ir import Node, Value


def checkpoint(fn: Callable) -> Callable:
    """fn, whose insides are not kept for the backward pass but computed again in it.

    >>> from minicc.frontend.autograd import grad
    >>> grad(lambda x: checkpoint(lambda y: y * y * y)(x))(Tensor(2.)).item()
    12.0
    """
    if not callable(fn):
        fail("checkpoint", "this is not a function", a_type(fn),
             hint="checkpoint(f)(x), not checkpoint(f(x))", kind=CompileError)

    @wraps(fn)
    def rematerialised(*args: Any, **kwargs: Any) -> Any:
        around = current()
        if not isinstance(around, Trace):  # outside of traces nobody differentiates
            return fn(*args, **kwargs)
        with tracing(trace := Trace()):
            result = fn(*args, **kwargs)
        known: dict[Node, Value] = {}
        moved = move_out(result, trace, known)
        given = {around.lift(x).node for x in trace.outside}
        region = frozenset(value.node for value in known.values()) - given
        around.regions.update(dict.fromkeys(region, region))
        return moved

    return rematerialised


def move_out(tree: Any, trace: Trace, known: dict[Node, Value]) -> Any:
    """The tree with its tensors of a trace copied into the scope around. known: see Scope.copy; it grows."""
    around = current()
    for value, x in zip(trace.hidden.values(), trace.outside, strict=True):
        known[value.node] = around.lift(x)

    def move(x: Any) -> Any:
        if not isinstance(x, Tensor) or x._scope is not trace:
            return x
        value, = trace.copy([trace.lift(x)], known, around.builder)
        return Tensor._made(value, around)

    moved = tree_map(move, tree)
    if isinstance(around, Trace):
        for region in dict.fromkeys(trace.regions.values()):
            nodes = frozenset(known[node].node for node in region if node in known)
            around.regions.update(dict.fromkeys(nodes, nodes))
    return moved


class Recomputed:
    """What the backward pass over one trace has computed again.

    known: region -> node -> its second value. done: the gradients that some region has waited for.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.known: dict[frozenset[Node], dict[Node, Value]] = {}
        self.done: set[Value] = set()

    def tensors(self, result: Value, gradients: dict[Value, Tensor]) -> list[Tensor]:
        """The result and the operands of a node as its rule may read them, now that its gradient is there.

        gradients: of what the backward pass has yet to come to; that of the result may get a barrier.
        """
        values, region = [result, *result.node.operands], self.trace.regions.get(result.node)
        if region:
            if region not in self.known:
                gradients[result] = self._begin(region, result, gradients)
            copies = self.trace.copy(values, self.known[region], self.trace.builder)
            values = [new if old.node in region else old for old, new in zip(values, copies, strict=True)]
        return [Tensor._made(value, self.trace) for value in values]

    def _begin(self, region: frozenset[Node], result: Value, gradients: dict[Value, Tensor]) -> Tensor:
        """Have the inputs of a region wait for all gradients so far: those of the layers behind are final."""
        self.done.add(self.trace.lift(gradients[result]))
        found = dict.fromkeys(map(self.trace.lift, gradients.values()))
        waited = [Tensor._made(value, self.trace) for value in found if value not in self.done]
        self.done.update(found)
        now = node("optimization_barrier", gradients[result], *waited)
        border = dict.fromkeys(v for inside in region for v in inside.operands if v.node not in region)
        inputs = [node("optimization_barrier", Tensor._made(value, self.trace), now) for value in border]
        self.known[region] = {v.node: self.trace.lift(x) for v, x in zip(border, inputs, strict=True)}
        return now
