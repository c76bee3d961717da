"""Gradients, as a transformation of graphs: one rule per op and operand.

    loss = (w * x).sum()      %0 = multiply(w, x)               forward, as traced
                              %1 = reduce(%0) kind=sum
    d loss / d w              %2 = broadcast_in_dim(1.0)        each node's rule, last node first
                              %3 = multiply(%2, x)

In: a function of tensors whose result is one f32. Out: a function that gives the gradients too, in the trees
of the arguments. It traces the function in a scope of its own, adds the backward nodes there, and copies both
into the scope around it; so it works on lazy tensors, under jit, and on itself. Invariants: forward and
backward stand in one graph and are simplified together, and outside jit they run together; a backward node
carries the lines of its forward node.

JAX linearises and then transposes; torch records a tape while it runs. Read next: jit.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from minicc.errors import CompileError, DtypeError, ShapeError
from minicc.frontend import ops
from minicc.frontend.primitives import as_argument, as_integers, as_tensor
from minicc.frontend.pytree import flatten, tree_map, unflatten
from minicc.frontend.scope import EAGER, Trace, current, fail, located, tracing
from minicc.frontend.shapes import broadcast
from minicc.frontend.tensor import Tensor, realise
from minicc.frontend.vjp import VJP, Site
from minicc.graph.ir import F32, Node, Value, topological

# -- the walk ------------------------------------------------------------------------------------------------


def backward(trace: Trace, loss: Value, inputs: Sequence[Value]) -> list[Tensor]:
    """d loss / d input for each input, as tensors of the trace; zeros where it has no influence."""
    order = topological([loss.node])
    active = {value.node for value in inputs}  # all that depends on an input through f32s only
    for node in order:
        # no convert passes a gradient: to or from integers there is none, and to its own dtype is a stop
        depends = any(operand.node in active for operand in node.operands)
        if depends and node.types[0].dtype == F32 and node.op != "convert":
            active.add(node)
    gradients: dict[Value, Tensor] = {loss: as_tensor(1.0)}
    for node in reversed(order):
        if node in active and node.operands and Value(node) in gradients:
            with located(trace.builder.locs.get(node, ())):
                _pass_on(trace, node, active, gradients)
    return [gradients[v] if v in gradients else broadcast(as_tensor(0.0), v.shape) for v in inputs]


def _pass_on(trace: Trace, node: Node, active: set[Node], gradients: dict[Value, Tensor]) -> None:
    """Add what one node passes to the gradients of its active operands."""
    if node.op not in VJP:
        fail("grad", "this op has no gradient", node.op, ", ".join(VJP), kind=CompileError)
    operands = tuple(Tensor._made(value, trace) for value in node.operands)
    site = Site(gradients[Value(node)], Tensor._made(Value(node), trace), operands, node.attrs)
    for value, rule in zip(node.operands, VJP[node.op], strict=True):
        if value.node in active:
            gradient = rule(site)
            if gradient.ndim and not value.shape:
                gradient = ops.sum(gradient)  # a scalar operand stood for a whole array
            gradients[value] = gradients[value] + gradient if value in gradients else gradient


# -- the public face -----------------------------------------------------------------------------------------


def value_and_grad(fn: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable:
    """A function that gives fn's value and its gradients with respect to some arguments.

    The gradient has the structure of the argument; with several argnums it is a tuple. With has_aux, fn
    returns (loss, anything) and the result is ((loss, anything), gradients). Outside jit, value and gradients
    are computed at once, by one program; so each runs once, and a loop does not build one ever longer graph.

    Raises: ShapeError if the loss has axes, DtypeError for an argument or a loss that is not f32.

    >>> loss, gradient = value_and_grad(lambda w: (w * w).sum())(Tensor([1., 2.]))
    >>> loss.item(), gradient.tolist()
    (5.0, [2.0, 4.0])
    """
    if not callable(fn):
        fail("grad", "this is not a function", f"a {type(fn).__name__}", hint="grad(f)(x), not grad(f(x))",
             kind=CompileError)
    which = as_integers("argnums", argnums)

    @wraps(fn)
    def with_gradient(*args: Any, **kwargs: Any) -> Any:
        if not set(which) <= set(range(len(args))):
            fail("grad", "there is no such argument", f"argnums {argnums}",
                 f"less than {len(args)}, the number of positional arguments", kind=CompileError)
        leaves, structure = flatten({i: args[i] for i in which}, "args")
        tensors = [_differentiable(path, leaf) for path, leaf in leaves]
        with tracing(trace := Trace()):
            inputs = [trace.builder.parameter("x", x.type) for x in tensors]
            variables = unflatten(structure, [Tensor._made(value, trace) for value in inputs])
            result = fn(*(variables.get(i, arg) for i, arg in enumerate(args)), **kwargs)
            loss = trace.lift(_loss(result, has_aux))
            found = unflatten(structure, backward(trace, loss, inputs))
        gradients = found[argnums] if isinstance(argnums, int) else tuple(found[i] for i in which)
        parameters, stood_for = [*inputs, *trace.hidden.values()], [*tensors, *trace.outside]
        known = {v.node: current().lift(x) for v, x in zip(parameters, stood_for, strict=True)}
        results = _moved((result, gradients), trace, known)
        if current() is EAGER:
            realise([tensors, results])
        return results

    return with_gradient


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


def _differentiable(path: str, leaf: Any) -> Tensor:
    """A leaf of the arguments to differentiate, an f32 tensor."""
    hint = "argnums says which arguments are differentiated; .float() if the numbers are right"
    x = as_argument("grad", path, leaf, hint)
    if x.dtype != F32:
        fail("grad", f"{path} cannot be differentiated", x.type, "f32 tensors", hint, DtypeError)
    return x


def _loss(result: Any, has_aux: bool) -> Tensor:
    """The loss in what the function returned."""
    pair = isinstance(result, tuple) and len(result) == 2
    loss = result[0] if has_aux and pair else result
    if not isinstance(loss, Tensor) or has_aux and not pair:
        need, hint = "(f32[], anything)" if has_aux else "f32[]", "has_aux says which; is a return missing?"
        fail("grad", "the loss is not a Tensor", f"a {type(result).__name__}", need, hint, DtypeError)
    if loss.shape or loss.dtype != F32:
        kind = ShapeError if loss.shape else DtypeError
        fail("grad", "the loss is not one float", loss.type, "f32[]", ".mean() or .sum()", kind)
    return loss


def _moved(tree: Any, trace: Trace, known: dict[Node, Value]) -> Any:
    """The tree with its tensors of the trace copied into the scope around, where some nodes are known."""
    def move(x: Any) -> Any:
        if not isinstance(x, Tensor) or x._scope is not trace:
            return x
        value, = trace.copy([trace.lift(x)], known, current().builder)
        return Tensor._made(value, current())

    return tree_map(move, tree)
