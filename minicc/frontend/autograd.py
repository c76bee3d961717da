"""Gradients, as a transformation of graphs: one rule per op and operand.

    loss = (w * x).sum()      %0 = multiply(w, x)               forward, as traced
                              %1 = reduce(%0) kind=sum
    d loss / d w              %2 = broadcast_in_dim(1.0)        each node's rule, last node first
                              %3 = multiply(%2, x)

In: a function of tensors whose result is one f32. Out: a function that gives the gradients too, in the trees
of the arguments. It traces the function in a scope of its own, adds the backward nodes there, and copies both
into the scope around it; so it works on lazy tensors, under jit, and on itself. Invariants: forward and
backward stand in one graph and are simplified together; a backward node carries the lines of its forward
node; nothing is computed by being differentiated.

JAX linearises and then transposes; torch records a tape while it runs. Read next: jit.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from minicc.errors import CompileError, DtypeError, ShapeError
from minicc.frontend import ops
from minicc.frontend.primitives import as_integers, as_tensor, is_number
from minicc.frontend.pytree import flatten, unflatten
from minicc.frontend.scope import EAGER, Trace, current, located, tracing, user_line
from minicc.frontend.shapes import broadcast
from minicc.frontend.tensor import Tensor, realise
from minicc.frontend.vjp import VJP, Site
from minicc.graph.ir import F32, Node, Value, topological

# -- the walk ------------------------------------------------------------------------------------------------


def backward(trace: Trace, loss: Value, inputs: Sequence[Value]) -> list[Tensor]:
    """d loss / d input for each input, as tensors of the trace; zeros where it has no influence."""
    order = topological([loss.node])
    active = _depending(order, {value.node for value in inputs})
    gradients: dict[Value, Tensor] = {loss: as_tensor(1.0)}
    for one in reversed(order):
        g = gradients.get(Value(one))
        if g is None or one not in active or not one.operands:
            continue
        with located(trace.builder.locs.get(one, ())):
            for operand, gradient in _through(trace, one, g, active):
                known = gradients.get(operand)
                gradients[operand] = gradient if known is None else known + gradient
    return [gradients[v] if v in gradients else broadcast(as_tensor(0.0), v.shape) for v in inputs]


def _depending(order: Sequence[Node], roots: set[Node]) -> set[Node]:
    """The nodes of f32 that depend on a root through f32s only."""
    active = set(roots)
    for one in order:
        if one.types[0].dtype == F32 and any(v.node in active for v in one.operands):
            active.add(one)
    return active


def _through(trace: Trace, one: Node, g: Tensor, active: set[Node]) -> list[tuple[Value, Tensor]]:
    """The gradients that one node passes to its active operands."""
    if one.op not in VJP:
        raise CompileError("grad", "this op has no gradient", got=one.op, need=", ".join(VJP),
                           at=trace.builder.locs.get(one, ()))
    operands = tuple(Tensor._lazy(v, trace) for v in one.operands)
    site = Site(g, Tensor._lazy(Value(one), trace), operands, one.attrs)
    passed = []
    for value, rule in zip(one.operands, VJP[one.op], strict=True):
        if value.node in active:
            gradient = rule(site)
            # a scalar operand stood for a whole array
            passed.append((value, ops.sum(gradient) if not value.shape and gradient.ndim else gradient))
    return passed


# -- the public face -----------------------------------------------------------------------------------------


def value_and_grad(fn: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable:
    """A function that gives fn's value and its gradients with respect to some arguments.

    The gradient has the structure of the argument; with several argnums it is a tuple. With has_aux, fn
    returns (loss, anything) and the result is ((loss, anything), gradients). Outside jit, the arguments that
    are differentiated are computed first, so that a training loop does not build one ever longer graph.

    Raises: ShapeError if the loss has axes, DtypeError for an argument or a loss that is not f32.

    >>> loss, gradient = value_and_grad(lambda w: (w * w).sum())(Tensor([1., 2.]))
    >>> loss.item(), gradient.tolist()
    (5.0, [2.0, 4.0])
    """
    if not callable(fn):
        raise CompileError("grad", "this is not a function", got=f"a {type(fn).__name__}", at=user_line(),
                           hint="grad(f)(x), not grad(f(x))")
    which = as_integers("argnums", argnums)

    @wraps(fn)
    def with_gradient(*args: Any, **kwargs: Any) -> Any:
        leaves, structures = _differentiated(which, args)
        if current() is EAGER:
            realise(leaves)
        with tracing(getattr(fn, "__name__", "function"), differentiated=True) as trace:
            inputs = [trace.input("x", leaf.type) for leaf in leaves]
            stand_ins = iter([Tensor._lazy(value, trace) for value in inputs])
            traced = list(args)
            for position, structure in zip(which, structures, strict=True):
                traced[position] = unflatten(structure, stand_ins)
            loss, aux = _loss_and_aux(fn(*traced, **kwargs), has_aux)
            extra, aux_structure = flatten(aux)
            results = [loss, *backward(trace, trace.lift(loss), inputs), *(x for _,
                                                                           x in extra if _is_tensor(x))]
            values = [trace.lift(x) for x in results]
        scope = current()
        value, *rest = (Tensor._lazy(v, scope) for v in trace.copy_into(scope, values, leaves))
        found = iter(rest)
        trees = tuple([unflatten(structure, found) for structure in structures])
        aux = unflatten(aux_structure, [next(found) if _is_tensor(x) else x for _, x in extra])
        return (value, aux) if has_aux else value, trees[0] if isinstance(argnums, int) else trees

    return with_gradient


def _is_tensor(x: Any) -> bool:
    return isinstance(x, Tensor)


def grad(fn: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable:
    """A function that gives fn's gradients; with has_aux, (gradients, anything). See value_and_grad.

    >>> grad(lambda x: x ** 3)(Tensor(2.)).item()
    12.0
    """
    both = value_and_grad(fn, argnums, has_aux)

    @wraps(fn)
    def only_gradient(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return only_gradient


def _differentiated(which: Sequence[int], args: Sequence[Any]) -> tuple[list[Tensor], list]:
    """The leaves of the arguments to differentiate, all f32 tensors, and each argument's structure."""
    tensors, structures = [], []
    for position in which:
        if not 0 <= position < len(args):
            raise CompileError("grad", "there is no such argument", got=f"argnums {position}", at=user_line(),
                               need=f"0 .. {len(args) - 1}" if args else "at least one positional argument")
        leaves, structure = flatten(args[position], f"argument {position}")
        for path, leaf in leaves:
            numeric = isinstance(leaf, Tensor) or is_number(leaf) or hasattr(leaf, "__array__")
            x = as_tensor(leaf) if numeric else None
            if x is None or x.dtype != F32:
                raise DtypeError("grad", f"{path} cannot be differentiated", need="f32 tensors",
                                 at=user_line(),
                                 got=f"a {type(leaf).__name__}" if x is None else x.type,
                                 hint="argnums says which arguments are; .float() if the numbers are right")
            tensors.append(x)
        structures.append(structure)
    return tensors, structures


def _loss_and_aux(result: Any, has_aux: bool) -> tuple[Tensor, Any]:
    """The loss and the rest of what the function returned."""
    aux = None
    if has_aux:
        if not (isinstance(result, tuple) and len(result) == 2):
            raise CompileError("grad", "with has_aux the function returns (loss, aux)", at=user_line(),
                               got=f"a {type(result).__name__}")
        result, aux = result
    if not isinstance(result, Tensor):
        raise DtypeError("grad", "the loss is not a Tensor", got=f"a {type(result).__name__}", at=user_line(),
                         need="f32[]",
                         hint="has_aux=True if it returns (loss, more); check for a missing return")
    if result.shape or result.dtype != F32:
        kind = ShapeError if result.shape else DtypeError
        raise kind("grad", "the loss is not one float", got=result.type, need="f32[]", at=user_line(),
                   hint=".mean() or .sum()")
    return result, aux
