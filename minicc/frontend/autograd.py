"""Gradients, as a transformation of graphs: one rule per op and operand.

    loss = (w * x).sum()      %0 = multiply(w, x)               forward, as traced
                              %1 = reduce(%0) kind=sum
    d loss / d w              %2 = broadcast_in_dim(1.0)        each node's rule, last node first
                              %3 = multiply(%2, x)

In: a function of tensors. Out: a function that gives gradients, in the trees of the arguments and in their
dtypes. It traces the function in a scope of its own, adds the backward nodes there, and copies both into the
scope around it; so it works on lazy tensors, under jit, and on itself: grad(lambda x: (grad(f)(x) * v).sum())
is the Hessian of f times v. Invariants: forward and backward stand in one graph and are simplified together;
a backward node carries the lines of its forward node; no gradient passes through integers, comparisons and
steps (floor, sign, ...), where it is zero.

One trap, as in every such system: where(x > 0, sqrt(x), 0) has gradient nan at 0, because the branch that is
not taken gets a gradient of 0, times sqrt's infinite slope. Choose before the function as well as after it:
where(x > 0, sqrt(where(x > 0, x, 1)), 0).

JAX linearises and then transposes; torch records a tape while it runs. Read next: vjp.py, the rules; then
checkpoint.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

from minicc.errors import CompileError, DtypeError, ShapeError, a_type
from minicc.frontend.checkpoint import Recomputed, move_out
from minicc.frontend.primitives import as_argument, as_integer, as_integers, as_tensor, node
from minicc.frontend.pytree import flatten, tree_map, unflatten
from minicc.frontend.scope import EAGER, Trace, current, fail, located, tracing
from minicc.frontend.shapes import broadcast, reshape
from minicc.frontend.tensor import Tensor, realise
from minicc.frontend.vjp import NO_GRADIENT, VJP, Site, total
from minicc.graph.ir import I32, Node, Type, Value, topological

# -- the walk ------------------------------------------------------------------------------------------------


def backward(trace: Trace, seeds: Mapping[Value, Tensor], inputs: Sequence[Value]) -> list[Tensor]:
    """What each input gets of the seeds, which are the gradients of some values of the trace.

    All are tensors of the trace; where an input has no influence, zeros.
    """
    order = topological(value.node for value in seeds)
    active = {value.node for value in inputs}  # what depends on an input
    for each in order:
        if _passes_on(each) and any(operand.node in active for operand in each.operands):
            active.add(each)
    gradients, again = dict(seeds), Recomputed(trace)
    for each in reversed(order):
        value = Value(each)
        if each in active and each.operands and value in gradients and value.type.elements:
            with located(trace.builder.locs.get(each, ())):
                _pass_on(value, active, gradients, again)
    return [gradients[v] if v in gradients else broadcast(as_tensor(0, v.dtype), v.shape) for v in inputs]


def _passes_on(each: Node) -> bool:
    """Whether a gradient gets through: not to integers, not where it is zero, not through stop_gradient."""
    stops = each.op == "convert" and each.operands[0].dtype == each.types[0].dtype
    return each.types[0].dtype.kind == "f" and each.op not in NO_GRADIENT and not stops


def _pass_on(result: Value, active: set[Node], gradients: dict[Value, Tensor], again: Recomputed) -> None:
    """Add what a node passes of its result's gradient to the gradients of its active operands."""
    each = result.node
    if each.op not in VJP:
        fail("grad", "this op has no gradient", each.op, ", ".join(VJP), kind=CompileError)
    out, *operands = again.tensors(result, gradients)
    g = gradients.pop(result)
    for side, value in enumerate(each.operands):
        rule = VJP[each.op][min(side, len(VJP[each.op]) - 1)]
        if rule is not None and value.node in active and value.type.elements:
            gradient = rule(Site(g, out, operands, each.attrs, side))
            if gradient.ndim and not value.shape:
                gradient = total(gradient)  # a scalar operand stood for a whole array
            gradients[value] = gradients[value] + gradient if value in gradients else gradient


# -- a function and its arguments, traced --------------------------------------------------------------------


class _Traced:
    """One call of a function, traced in a scope of its own.

    which: the arguments to differentiate, by number. tensors: their leaves; inputs: what stands for these.
    """

    def __init__(self, fn: Callable, which: Sequence[int], args: tuple, kwargs: dict[str, Any]) -> None:
        leaves, self.structure = flatten({i: args[i] for i in which}, "args")
        self.tensors, self.trace = [_differentiable(path, leaf) for path, leaf in leaves], Trace()
        with tracing(self.trace):
            self.inputs = [self.trace.builder.parameter("x", x.type) for x in self.tensors]
            variables = unflatten(self.structure, [Tensor._made(v, self.trace) for v in self.inputs])
            self.result = fn(*(variables.get(i, arg) for i, arg in enumerate(args)), **kwargs)

    def gradients(self, outputs: Sequence[Tensor], seeds: Sequence[Tensor]) -> dict[int, Any]:
        """The gradients of the arguments, by number, given those of some outputs; in the trace."""
        with tracing(self.trace):
            given: dict[Value, Tensor] = {}
            for value, seed in zip(map(self.trace.lift, outputs), seeds, strict=True):
                given[value] = given[value] + seed if value in given else seed
            return unflatten(self.structure, backward(self.trace, given, self.inputs))

    def outside(self, tree: Any) -> Any:
        """The tree with its tensors of the trace copied into the scope around."""
        known = {v.node: current().lift(x) for v, x in zip(self.inputs, self.tensors, strict=True)}
        return move_out(tree, self.trace, known)


def _differentiable(path: str, leaf: Any) -> Tensor:
    """A leaf of the arguments to differentiate, a tensor of floats."""
    hint = "argnums says which arguments are differentiated; .float() if the numbers are right"
    x = as_argument("grad", path, leaf, hint)
    if x.dtype.kind != "f":
        fail("grad", f"{path} cannot be differentiated", x.type, "a tensor of floats", hint, DtypeError)
    return x


def _loss(result: Any, has_aux: bool) -> Tensor:
    """The loss in what the function returned."""
    pair = isinstance(result, tuple) and len(result) == 2
    loss = result[0] if has_aux and pair else result
    if not isinstance(loss, Tensor) or has_aux and not pair:
        need, hint = "(f32[], anything)" if has_aux else "f32[]", "has_aux says which; is a return missing?"
        fail("grad", "the loss is not a Tensor", a_type(result), need, hint, DtypeError)
    if loss.shape or loss.dtype.kind != "f":
        kind = ShapeError if loss.shape else DtypeError
        fail("grad", "the loss is not one float", loss.type, "f32[]", ".mean() or .sum()", kind)
    return loss


def _outputs(result: Any) -> list[Tensor]:
    """The leaves of what the function returned, all tensors of floats."""
    for path, x in flatten(result, "the result")[0]:
        if not isinstance(x, Tensor) or x.dtype.kind != "f":
            got = x.type if isinstance(x, Tensor) else a_type(x)
            fail("vjp", f"{path} has no gradient", got, "tensors of floats", "return only those", DtypeError)
    return [x for _, x in flatten(result)[0]]


def _numbers(fn: Callable, argnums: int | Sequence[int], args: tuple) -> tuple[int, ...]:
    """Which arguments to differentiate."""
    which = as_integers("argnums", argnums)
    if not set(which) <= set(range(len(args))):
        fail("grad", "there is no such argument", f"argnums {argnums}",
             f"less than {len(args)}, the number of positional arguments", kind=CompileError)
    return which


def _function(name: str, fn: Any) -> None:
    if not callable(fn):
        fail("grad", "this is not a function", a_type(fn),
             hint=f"{name}(f)(x), not {name}(f(x))", kind=CompileError)


# -- the public face -----------------------------------------------------------------------------------------


def value_and_grad(fn: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable:
    """A function that gives fn's value and its gradients with respect to some arguments.

    The gradient has the structure of the argument; with several argnums it is a tuple. With has_aux, fn
    returns (loss, anything) and the result is ((loss, anything), gradients). Outside jit, value and gradients
    are computed at once, by one program; so each runs once, and a loop does not build one ever longer graph.

    Raises: ShapeError if the loss has axes, DtypeError for an argument or a loss that is not of floats.

    >>> loss, gradient = value_and_grad(lambda w: (w * w).sum())(Tensor([1., 2.]))
    >>> loss.item(), gradient.tolist()
    (5.0, [2.0, 4.0])
    """
    _function("grad", fn)

    @wraps(fn)
    def with_gradient(*args: Any, **kwargs: Any) -> Any:
        call = _Traced(fn, which := _numbers(fn, argnums, args), args, kwargs)
        loss = _loss(call.result, has_aux)
        with tracing(call.trace):
            one = as_tensor(1, loss.dtype)
        found = call.gradients([loss], [one])
        gradients = found[argnums] if isinstance(argnums, int) else tuple(found[i] for i in which)
        results = call.outside((call.result, gradients))
        if current() is EAGER:
            realise([call.tensors, results])
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


def vjp(fn: Callable, *primals: Any) -> tuple[Any, Callable[[Any], tuple]]:
    """fn(*primals), and a function from gradients of that to gradients of the primals, one each.

    The result may be any tree of float tensors. All of it is lazy: what is read together (mc.realise) is
    computed together.

    >>> out, pullback = vjp(lambda x: x * x, Tensor([1., 2.]))
    >>> out.tolist(), pullback(Tensor([1., 10.]))[0].tolist()
    ([1.0, 4.0], [2.0, 40.0])
    """
    _function("vjp", fn)
    call = _Traced(fn, range(len(primals)), primals, {})
    outputs, shapes = _outputs(call.result), tree_map(lambda x: x.type, call.result)

    def pullback(gradients: Any) -> tuple:
        """The gradients of the primals, given those of the result, in its structure."""
        seeds: list[Tensor] = []

        def take(type: Type, gradient: Any) -> None:
            seeds.append(as_argument("vjp", "a gradient", gradient, "one for each tensor of the result"))
            if seeds[-1].type != type:
                fail("vjp", "a gradient does not fit the result", seeds[-1].type, type)

        tree_map(take, shapes, gradients)
        found = call.outside(call.gradients(outputs, seeds))
        return tuple(found[i] for i in range(len(primals)))

    return call.outside(call.result), pullback


def jacrev(fn: Callable, argnums: int = 0) -> Callable:
    """A function that gives the Jacobian of fn, whose result is one tensor: a gradient for each element.

    Shapes: fn's result[*m], the argument's leaves[*n] -> leaves[*m, *n]. The graph grows with the size of the
    result.

    >>> jacrev(lambda x: x[:2] * x[2])(Tensor([1., 2., 3.])).tolist()
    [[3.0, 0.0, 1.0], [0.0, 3.0, 2.0]]
    """
    _function("jacrev", fn)

    @wraps(fn)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        as_integer("argnums", argnums)
        call = _Traced(fn, _numbers(fn, argnums, args), args, kwargs)
        out, *more = _outputs(call.result)
        if more or not out.size:
            got = call.result if isinstance(call.result, Tensor) else a_type(call.result)
            fail("jacrev", "the result has no Jacobian", got, "one tensor, of 1 element or more")
        with tracing(call.trace):
            place = reshape(node("iota", axis=0, shape=(out.size,), dtype=I32), out.shape)
            units = [as_tensor(place == i, out.dtype) for i in range(out.size)]
        rows = [call.gradients([out], [unit])[argnums] for unit in units]
        with tracing(call.trace):
            result = tree_map(lambda *parts: _stacked(parts, out.shape), *rows)
        return call.outside(result)

    return jacobian


def _stacked(rows: Sequence[Tensor], lead: tuple[int, ...]) -> Tensor:
    """Tensors of one shape, as one tensor with these axes in front."""
    joined = node("concatenate", *[reshape(row, (1, *row.shape)) for row in rows], axis=0)
    return reshape(joined, lead + rows[0].shape)
