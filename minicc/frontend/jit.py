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
- A jitted function called while tracing is traced along with its caller, and takes nothing for good.

torch.compile guards on far more (globals, closures, aliasing), because it must not surprise a program that
was written without it. Read next: compiler.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial, update_wrapper
from typing import Any

import numpy as np

from minicc.compiler import Options, compile_graph
from minicc.devices import Device, find
from minicc.errors import CompileError, DtypeError, OutOfRangeError, a_type
from minicc.frontend.primitives import as_argument, as_integers
from minicc.frontend.pytree import Structure, flatten, unflatten
from minicc.frontend.scope import EAGER, Donated, Trace, current, fail, tracing, user_line
from minicc.frontend.tensor import Tensor, realise
from minicc.graph.ir import Graph
from minicc.slots import current_slots, mark_used


@dataclass(frozen=True)
class Call:
    """The arguments of one call, taken apart.

    leaves: the tensors in them, with their paths. trees: the structure of each argument; of a static one its
    kinds and value instead (1, 1.0 and True are different settings). donated: the numbers of leaves that the
    call may take for good.
    """

    leaves: tuple[tuple[str, Tensor], ...]
    trees: tuple[tuple[str, Structure | tuple[tuple, Any]], ...]
    donated: tuple[int, ...] = ()

    @property
    def key(self) -> tuple:
        """What a trace of this call depends on."""
        return self.trees, tuple([x.type for _, x in self.leaves])

    def __str__(self) -> str:
        settings = [f"{name}={tree[1]!r}" for name, tree in self.trees if isinstance(tree, tuple)]
        return ", ".join([f"{path}: {x.type}" for path, x in self.leaves] + settings)


class CompiledFunction:
    """A compiled function: call it, or look at what was made of it (graph, kernels, program, ...).

    hidden: the tensors it closed over, its last inputs.
    """

    def __init__(self, source: Jit, call: Call, device: Device) -> None:
        graph, self.hidden, self._result = source.trace(call)
        options = replace(source.options, donated=call.donated)
        self.compiled = compile_graph(graph, device.spec, options=options)
        self._take, self._key, self._kind = source.take, call.key, str(call)  # not the call, it holds data

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = self._take(args, kwargs)
        if call.key != self._key:
            fail("call", "these are not the arguments it was compiled for", call, self._kind,
                 "jit compiles for each kind of argument")
        return self._run(call)

    def _run(self, call: Call) -> Any:
        """The result for arguments of the right kind."""
        inputs = [*(x for _, x in call.leaves), *self.hidden]
        if any(x.lazy for x in inputs):
            realise(inputs)
        arrays = [x.stored() for x in inputs]
        for number in call.donated:
            self._check_alone(number, arrays, call)
        outputs = self.compiled.run(arrays)
        taker = Donated(self.raw_graph.name, user_line())
        for number in call.donated:
            inputs[number]._give(taker)
        return unflatten(self._result, map(Tensor._holding, outputs))

    def _check_alone(self, number: int, arrays: Sequence[np.ndarray], call: Call) -> None:
        """Raises: CompileError if what is donated is passed, or closed over, twice."""
        paths = [*(path for path, _ in call.leaves), *(["what it closes over"] * len(self.hidden))]
        same = [path for path, array in zip(paths, arrays, strict=True) if array is arrays[number]]
        if len(same) > 1:
            fail("donate", "a tensor that is donated is passed again in the same call", " and ".join(same),
                 "a tensor of its own", "Tensor(x.numpy()) makes a copy", CompileError)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.compiled, name)

    def __repr__(self) -> str:
        return f"CompiledFunction({self.raw_graph.name} for {self._kind})"


class Jit:
    """A function that is compiled for each kind of arguments it meets."""

    __name__ = "function"

    def __init__(self, fn: Callable, device: str | None, static: tuple[str, ...], donate: Any,
                 options: Options) -> None:
        update_wrapper(self, fn)
        self.fn, self.device, self.static, self.options = fn, device, static, options
        self.programs: dict[tuple, CompiledFunction] = {}
        try:
            self.signature = inspect.signature(fn)
        except (TypeError, ValueError):  # some built-in functions have none
            self.signature = inspect.signature(lambda *args: None)
        known = self.signature.parameters
        for name in static:
            if name not in known:
                what = f"{self.__name__} has no argument of this static name"
                fail("jit", what, name, ", ".join(known) or "none", kind=CompileError)
        self.donate_argnums, self.donate = donate, self._donated_names(donate)

    def _donated_names(self, numbers: Any) -> tuple[str, ...]:
        """The arguments of these numbers, counted from 0, or from -1 backwards."""
        kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = [name for name, one in self.signature.parameters.items() if one.kind in kinds]
        found = []
        if isinstance(numbers, bool):
            fail("donate_argnums", "expected numbers of arguments", numbers, "0, or (0, 2)", kind=DtypeError)
        for number in as_integers("donate_argnums", numbers):
            if not -len(names) <= number < len(names):
                need = f"{-len(names)} .. {len(names) - 1}: {', '.join(names)}" if names else "none"
                fail("donate_argnums", f"{self.__name__} has no positional argument of this number", number,
                     need, kind=OutOfRangeError)
            if names[number] in self.static:
                fail("donate_argnums", f"argument {number} of {self.__name__} is static", names[number],
                     "an argument with tensors in it", kind=CompileError)
            found.append(names[number])
        return tuple(found)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if current() is not EAGER:
            return self.fn(*args, **kwargs)
        call = self.take(args, kwargs)
        return self.specialised(call)._run(call)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else partial(self, instance)

    def specialised(self, call: Call) -> CompiledFunction:
        """The program for calls like this one, on this device and with the slots in force."""
        device, slots = find(self.device, user_line()), current_slots()
        key = call.key, repr(device.spec), slots
        if key not in self.programs:
            self.programs[key] = CompiledFunction(self, call, device)
        if slots:
            mark_used(tuple(record.name for record in self.programs[key].records))
        return self.programs[key]

    def take(self, args: tuple, kwargs: dict[str, Any]) -> Call:
        """The arguments taken apart: tensors with their names, and static values."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            need = f"{self.__name__}{self.signature}"
            fail(self.__name__, f"called with the wrong arguments: {error}", need=need, kind=DtypeError)
        leaves, trees, donated = list[tuple[str, Tensor]](), dict[str, Any](), list[int]()
        for name, value in bound.arguments.items():
            if name in self.static:
                trees[name] = _kinds(value), value
                continue
            found, trees[name] = flatten(value, name)
            donated += range(len(leaves), len(leaves) + len(found)) if name in self.donate else ()
            for path, leaf in found:
                hint = f"static_argnames={path!r}, if it is a setting"
                leaves.append((path, as_argument("jit", f"argument {path}", leaf, hint)))
        call = Call(tuple(leaves), tuple(trees.items()), tuple(donated))
        try:
            hash(call.key)
        except TypeError as error:
            need = "numbers, strings, tuples: what can be hashed"
            fail("jit", f"a static argument cannot be part of a key: {error}", need=need, kind=DtypeError)
        return call

    def trace(self, call: Call) -> tuple[Graph, list[Tensor], Structure]:
        """The function as a graph, for calls like this one; what it closed over; its result's structure."""
        with tracing(trace := Trace()):
            new, at = trace.builder.parameter, user_line()
            inputs = [new(_identifier(path), x.type, at) for path, x in call.leaves]
            stand_ins = iter([Tensor._made(value, trace) for value in inputs])
            bound = self.signature.bind_partial()
            for name, tree in call.trees:
                bound.arguments[name] = tree[1] if isinstance(tree, tuple) else unflatten(tree, stand_ins)
            result = self.fn(*bound.args, **bound.kwargs)
            outputs, structure = flatten(result, "the result")
            for path, x in outputs or [("the result", result)]:
                if not isinstance(x, Tensor):
                    fail("jit", f"{path} of {self.__name__} is not a Tensor", a_type(x),
                         "a Tensor, or a dict, list or tuple of them", "is a return missing?", DtypeError)
            values = [trace.lift(x) for _, x in outputs]
        graph = trace.builder.graph(self.__name__, [*inputs, *trace.hidden.values()], values)
        return graph, trace.outside, structure


def _kinds(value: Any) -> tuple:
    """What tells apart settings that Python finds equal: 1, 1.0 and True, also in tuples and dataclasses."""
    if isinstance(value, tuple):
        return type(value), *map(_kinds, value)
    if is_dataclass(value) and not isinstance(value, type):
        return type(value), *(_kinds(getattr(value, field.name)) for field in fields(value))
    return (type(value),)


def _identifier(path: str) -> str:
    return path.replace("[", ".").replace("]", "")


def jit(fn: Callable | None = None, device: str | None = None, *,
        static_argnames: str | Sequence[str] = (), donate_argnums: int | Sequence[int] = (),
        fast_math: bool = False, precision: str = "f32", tune: bool = False,
        memory_limit: int | None = None) -> Any:
    """fn, compiled: traced once for each kind of arguments (structure, shapes, dtypes, static values).

    static_argnames: arguments that are settings, not tensors; each value is compiled for. donate_argnums:
    numbers of arguments whose tensors are of no use after the call, so that results may be written onto
    them; a program's `memory` says which are. fast_math: simplify
    as if there were no nan and no infinities, and last bits did not matter. precision: "f32", or "bf16" to
    round the factors of f32 products (not the sums). tune: on a tpu, run each kernel in its likeliest tiles
    and keep the fastest; measurements are kept on disk (MINICC_CACHE: where, or off). memory_limit: bytes of
    the device's main memory that the program may take; what would take more is computed again, bit by bit as
    before, and `memory` says what. Side effects of fn happen while tracing, once. Works as a decorator, with
    arguments or without.

    >>> double = jit(lambda x: x + x)
    >>> double(Tensor([1., 2.])).tolist()
    [2.0, 4.0]
    """
    find(device, user_line())
    if fn is None:
        return partial(jit, device=device, static_argnames=static_argnames, donate_argnums=donate_argnums,
                       fast_math=fast_math, precision=precision, tune=tune, memory_limit=memory_limit)
    if not callable(fn):
        got, hint = a_type(fn), "jit(f)(x), not jit(f(x))"
        fail("jit", "this is not a function", got, hint=hint, kind=CompileError)
    static = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    options = Options(fast_math, precision, tune, memory_limit=memory_limit)
    return Jit(fn, device, static, donate_argnums, options)


def compile(fn: Callable, *args: Any, device: str | None = None, fast_math: bool | None = None,
            precision: str | None = None, tune: bool | None = None,
            donate_argnums: int | Sequence[int] | None = None, memory_limit: int | None = None,
            **kwargs: Any) -> CompiledFunction:
    """fn compiled for arguments like these: something to call and to look into. Settings: see jit.

    >>> compile(lambda x: x + x, Tensor([1., 2.]))(Tensor([3., 4.])).tolist()
    [6.0, 8.0]
    """
    made = fn if isinstance(fn, Jit) else jit(fn)
    wishes = {"fast_math": fast_math, "precision": precision, "tune": tune, "memory_limit": memory_limit}
    given = {name: value for name, value in wishes.items() if value is not None}
    if device is not None or given or donate_argnums is not None:
        donate = made.donate_argnums if donate_argnums is None else donate_argnums
        made = Jit(made.fn, device or made.device, made.static, donate, replace(made.options, **given))
    if not args and not kwargs and made.signature.parameters:
        what, need = f"example arguments for {made.__name__} are missing", f"{made.__name__}{made.signature}"
        hint = "compile(fn, x), or jit(fn), which compiles at the first call"
        fail("compile", what, "", need, hint, CompileError)
    return made.specialised(made.take(args, kwargs))
