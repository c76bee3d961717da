"""Tracing a function into a graph, once per kind of arguments, and running the program it became.

    step = jit(train_step)
    step(params, x)     traced with lazy stand-ins for the tensors in params and x, compiled, run
    step(params, x)     run

In: a function of trees of tensors (dicts, lists, tuples). Out: a function that runs compiled programs.
Invariants:
- A trace depends on the tree structure, shapes and dtypes of the arguments and on static values, never on
  data.
- Tensors that the function closes over become hidden inputs, in the graph as closure0, closure1, ...; the
  tensor found while tracing is used ever after, as in JAX.
- A jitted function called while tracing is traced along with its caller.

torch.compile guards on far more (globals, closures, aliasing), because it must not surprise a program that
was written without it. Read next: compiler.py.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from minicc.compiler import Compiled, compile_graph
from minicc.devices import find
from minicc.errors import CompileError, DtypeError, ShapeError
from minicc.frontend.primitives import as_integers, is_number
from minicc.frontend.pytree import Structure, flatten, unflatten
from minicc.frontend.scope import EAGER, current, tracing, user_line
from minicc.frontend.tensor import Tensor, realise
from minicc.graph.ir import Graph, Type
from minicc.slots import current_slots


@dataclass(frozen=True)
class Call:
    """The arguments of one call, taken apart. key: what a trace of them depends on."""

    paths: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    structures: tuple[tuple[str, Structure], ...]  # of each argument that is not static
    static: tuple[tuple[str, Any], ...]

    @property
    def types(self) -> tuple[Type, ...]:
        """The types of the tensors."""
        return tuple(x.type for x in self.tensors)

    @property
    def key(self) -> tuple:
        """What a trace of this call depends on; 1, 1.0 and True are different settings."""
        return self.types, self.structures, tuple((name, type(value), value) for name, value in self.static)


@dataclass(frozen=True)
class Traced:
    """A function as a graph, the tensors it closed over, and the structure of its result."""

    graph: Graph
    hidden: tuple[Tensor, ...]
    result: Structure


class CompiledFunction:
    """A compiled function: call it, or look at what was made of it (graph, kernels, program, ...)."""

    def __init__(self, traced: Traced, call: Call, compiled: Compiled, take: Callable[..., Call]) -> None:
        self.compiled, self._traced, self._take = compiled, traced, take
        self._key, self._kind = call.key, _described(call)  # and not the call, which holds on to its data

    @property
    def hidden(self) -> tuple[Tensor, ...]:
        """The tensors it closed over: its last inputs."""
        return self._traced.hidden

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = self._take(args, kwargs)
        if call.key != self._key:
            raise ShapeError("call", "these are not the arguments it was compiled for", got=_described(call),
                             need=self._kind, at=user_line(),
                             hint="jit compiles for each kind of argument")
        return self.run(call)

    def run(self, call: Call) -> Any:
        """The result for arguments of the right kind."""
        inputs = [*call.tensors, *self.hidden]
        realise(inputs)
        arrays = self.compiled.run([x.numpy() for x in inputs])
        types = (value.type for value in self._traced.graph.outputs)
        outputs = [Tensor._ready(type, array) for type, array in zip(types, arrays, strict=True)]
        return unflatten(self._traced.result, outputs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.compiled, name)

    def __repr__(self) -> str:
        return f"CompiledFunction({self._traced.graph.name} for {self._kind})"


class Jit:
    """A function that is compiled for each kind of arguments it meets."""

    def __init__(self, fn: Callable, device: str | None, static: tuple[str, ...]) -> None:
        self.fn, self.device, self.static = fn, device, static
        self._signature = _signature(fn)
        self._traces: dict[tuple, Traced] = {}
        self._compiled: dict[tuple, CompiledFunction] = {}
        self.__name__: str = getattr(fn, "__name__", "function")
        self.__doc__ = fn.__doc__
        for name in static:
            if name not in self._signature.parameters:
                raise CompileError("jit", f"{self.__name__} has no argument of this static name", got=name,
                                   need=", ".join(self._signature.parameters) or "none", at=user_line())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if current() is not EAGER:
            return self.fn(*args, **kwargs)
        call = self.take(args, kwargs)
        return self.specialised(call).run(call)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else lambda *args, **kwargs: self(instance, *args, **kwargs)

    def specialised(self, call: Call) -> CompiledFunction:
        """The program for calls like this one, on this device and with the slots in force."""
        key = (call.key, repr(find(self.device)), current_slots())
        if key not in self._compiled or current_slots():  # what is in a slot counts as used only if asked for
            if call.key not in self._traces:
                self._traces[call.key] = self._trace(call)
            traced = self._traces[call.key]
            compiled = compile_graph(traced.graph, self.device)
            self._compiled[key] = CompiledFunction(traced, call, compiled, self.take)
        return self._compiled[key]

    def take(self, args: tuple, kwargs: dict[str, Any]) -> Call:
        """The arguments taken apart: tensors with their names, and static values."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise DtypeError(self.__name__, f"called with the wrong arguments: {error}", at=user_line(),
                             need=f"{self.__name__}{self._signature}") from None
        leaves, structures, static = [], [], []
        for name, value in bound.arguments.items():
            if name in self.static:
                static.append((name, value))
                continue
            found, structure = flatten(value, name)
            leaves += found
            structures.append((name, structure))
        tensors = tuple(_argument(path, leaf) for path, leaf in leaves)
        call = Call(tuple(path for path, _ in leaves), tensors, tuple(structures), tuple(static))
        try:
            hash(call.key)
        except TypeError as error:
            raise DtypeError("jit", f"a static argument cannot be part of a key: {error}", at=user_line(),
                             need="numbers, strings, tuples: what can be hashed") from None
        return call

    def _trace(self, call: Call) -> Traced:
        with tracing(self.__name__) as trace:
            names = [path.replace("[", ".").replace("]", "") for path in call.paths]
            inputs = [trace.input(name, type) for name, type in zip(names, call.types, strict=True)]
            stand_ins = iter([Tensor._lazy(value, trace) for value in inputs])
            given = dict(call.static) | {name: unflatten(tree, stand_ins) for name, tree in call.structures}
            bound = inspect.BoundArguments(self._signature, OrderedDict())
            bound.arguments.update((name,
                                    given[name]) for name in self._signature.parameters if name in given)
            result = self.fn(*bound.args, **bound.kwargs)
            outputs, structure = flatten(result, "the result")
            if not outputs:
                raise DtypeError("jit", f"{self.__name__} returns no Tensor", got=repr(result),
                                 at=user_line(),
                                 need="a Tensor, or a dict, list or tuple of them",
                                 hint="is a return missing?")
            for path, value in outputs:
                if not isinstance(value, Tensor):
                    raise DtypeError("jit", f"{path} of {self.__name__} is not a Tensor", at=user_line(),
                                     got=f"a {type(value).__name__}", need="a Tensor",
                                     hint="return only tensors; print and compute settings outside")
            values = [trace.lift(x) for _, x in outputs]
        hidden = tuple(tensor for tensor, _ in trace.hidden.values())
        return Traced(trace.graph(values), hidden, structure)


def jit(fn: Callable | None = None, device: str | None = None, *, static_argnames: str | Sequence[str] = (),
        donate_argnums: int | Sequence[int] = ()) -> Any:
    """fn, compiled: traced once for each kind of arguments (structure, shapes, dtypes, static values).

    static_argnames: arguments that are settings, not tensors; each value is compiled for. donate_argnums:
    arguments whose memory the result may take; accepted for JAX's sake, and without effect, since arrays here
    are the host's. Side effects of fn happen while tracing, once. Works as a decorator, with arguments or
    without.

    >>> double = jit(lambda x: x + x)
    >>> double(Tensor([1., 2.])).tolist()
    [2.0, 4.0]
    """
    static = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    find(device, at=user_line())
    as_integers("donate_argnums", donate_argnums)
    if fn is None:
        return lambda function: jit(function, device, static_argnames=static, donate_argnums=donate_argnums)
    if not callable(fn):
        raise CompileError("jit", "this is not a function", got=f"a {type(fn).__name__}", at=user_line(),
                           hint="jit(f)(x), not jit(f(x))")
    return Jit(fn, device, static)


def compile(fn: Callable, *args: Any, device: str | None = None, **kwargs: Any) -> CompiledFunction:
    """fn compiled for arguments like these: something to call and to look into.

    >>> compile(lambda x: x + x, Tensor([1., 2.]))(Tensor([3., 4.])).tolist()
    [6.0, 8.0]
    """
    compiler: Jit = fn if isinstance(fn, Jit) and device is None else jit(getattr(fn, "fn", fn), device)
    if not args and not kwargs and compiler._signature.parameters:
        raise CompileError("compile", f"example arguments for {compiler.__name__} are missing",
                           at=user_line(),
                           need=f"{compiler.__name__}{compiler._signature}",
                           hint="compile(fn, x), or jit(fn), which compiles at the first call")
    return compiler.specialised(compiler.take(args, kwargs))


def _signature(fn: Callable) -> inspect.Signature:
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):  # some built-in functions have none
        return inspect.Signature([inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)])


def _argument(path: str, leaf: Any) -> Tensor:
    """A leaf of the arguments as a tensor."""
    if isinstance(leaf, Tensor):
        return leaf
    if is_number(leaf) or hasattr(leaf, "__array__"):
        return Tensor(leaf)
    raise DtypeError("jit", f"argument {path} is not a Tensor", got=f"a {type(leaf).__name__}",
                     at=user_line(),
                     need="tensors, arrays or numbers, in dicts, lists and tuples",
                     hint=f"static_argnames={path!r}, if it is a setting")


def _described(call: Call) -> str:
    named = [f"{path}: {x.type}" for path, x in zip(call.paths, call.tensors, strict=True)]
    return ", ".join([*named, *(f"{name}={value!r}" for name, value in call.static)])
