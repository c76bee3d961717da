"""Where lazy values live while nothing runs, and which line of the user's asked for each.

    c = a + b      ->  current().lift(a), current().lift(b) are values of one builder; c is a new node there
                       loc(train.py:12), the first frame outside minicc's core

A scope is a builder with an answer to "what is this tensor here?". There is one `Eager` scope, in which a
tensor with data is a parameter whose array is remembered; and one `Trace` per function being traced, in which
every tensor from outside becomes a hidden input, so that no array is ever baked into a program. Invariants:
- An operation adds its node to the innermost scope, so all its operands are lifted there first.
- A tensor of a trace that is over can be used nowhere: it stands for a number that never was.
- Each thread has its own stack of scopes.

JAX does the same with tracers and `core.find_cur_trace`; torch.compile reads the bytecode instead.
`frontend/models` and lessons count as user code: a learner wants to see the line of the model. Read next:
tensor.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from minicc.errors import CompileError, Loc
from minicc.graph.ir import Builder, Graph, Node, Type, Value, topological

if TYPE_CHECKING:
    from minicc.frontend.tensor import Tensor

# -- provenance ----------------------------------------------------------------------------------------------

_CORE = str(Path(__file__).parent.parent)
_USER = tuple(str(Path(_CORE, *parts)) for parts in (("frontend", "models"), ("lessons",)))
_in_core: dict[str, bool] = {}  # file name -> whether it is minicc's own; a frame is judged once
_known_lines: dict[tuple[str, int], tuple[Loc, ...]] = {}
_override: ContextVar[tuple[Loc, ...]] = ContextVar("override", default=())


def user_line() -> tuple[Loc, ...]:
    """The user's line that is being run: the first frame outside minicc's core, or what `located` says."""
    override = _override.get()
    frame = None if override else sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file not in _in_core:
            _in_core[file] = file.startswith(_CORE) and not file.startswith(_USER)
        if not _in_core[file]:
            key = (file, frame.f_lineno)
            if key not in _known_lines:
                _known_lines[key] = (Loc(*key),)
            return _known_lines[key]
        frame = frame.f_back
    return override


@contextmanager
def located(locs: tuple[Loc, ...]) -> Iterator[None]:
    """Say that all that is made inside comes from these lines: a gradient from its forward op's."""
    token = _override.set(locs)
    try:
        yield
    finally:
        _override.reset(token)


# -- scopes --------------------------------------------------------------------------------------------------


class Eager:
    """The scope outside traces. arrays: node -> its value, for inputs and for what is computed since."""

    def __init__(self) -> None:
        self.builder = Builder()
        self.arrays: WeakKeyDictionary[Node, np.ndarray] = WeakKeyDictionary()

    def lift(self, tensor: Tensor) -> Value:
        """The tensor as a value of this scope."""
        if tensor._scope is not self:
            if tensor._array is None:
                raise _leaked(tensor)
            tensor._value, tensor._scope = self.builder.parameter("x", tensor.type), self
            self.arrays[tensor._value.node] = tensor._array
        assert tensor._value is not None
        return tensor._value

    def graph(self, outputs: Sequence[Value]) -> tuple[Graph, list[np.ndarray]]:
        """What the outputs need, down to nodes whose arrays are known; and these arrays."""
        builder, known = Builder(), dict[Node, Value]()
        arrays: list[np.ndarray] = []
        for node in topological((v.node for v in outputs), stop=self.arrays):
            array = self.arrays.get(node)
            if array is not None:
                known[node] = builder.parameter(f"x{len(arrays)}", node.types[0], self.builder.locs.get(node,
                                                                                                        ()))
                arrays.append(array)
        inputs = tuple(known.values())
        results = copy_into(builder, outputs, known, self.builder.locs)
        return Graph("eager", inputs, tuple(results), builder.locs), arrays


class Trace:
    """The scope of one function while it is traced.

    inputs: its parameters. hidden: the tensors from outside that it used, with their parameters.
    stopped: values through which no gradient may flow, and the parameters that stand for them until the
    gradient has been taken; None when none will be.
    """

    def __init__(self, name: str, differentiated: bool) -> None:
        self.name, self.builder = name, Builder()
        self.inputs: list[Value] = []
        self.hidden: dict[int, tuple[Tensor, Value]] = {}
        self.stopped: dict[Value, Value] | None = {} if differentiated else None

    def lift(self, tensor: Tensor) -> Value:
        """The tensor as a value of this scope; one from outside becomes a hidden input."""
        if tensor._scope is self:
            assert tensor._value is not None
            return tensor._value
        if id(tensor) not in self.hidden:
            if tensor._array is None and tensor._scope not in _scopes.get():
                raise _leaked(tensor)
            value = self.builder.parameter(f"closure{len(self.hidden)}", tensor.type, user_line())
            self.hidden[id(tensor)] = (tensor, value)
        return self.hidden[id(tensor)][1]

    def input(self, name: str, type: Type) -> Value:
        """A new parameter of the function."""
        self.inputs.append(self.builder.parameter(name, type, user_line()))
        return self.inputs[-1]

    def graph(self, outputs: Sequence[Value]) -> Graph:
        """The traced function: its parameters, then the hidden ones."""
        inputs = (*self.inputs, *(value for _, value in self.hidden.values()))
        return Graph(self.name, inputs, tuple(outputs), self.builder.locs)

    def copy_into(self, target: Eager | Trace, outputs: Sequence[Value],
                  arguments: Sequence[Tensor]) -> list[Value]:
        """The outputs as values of another scope, for these arguments."""
        known = {v.node: target.lift(x) for v, x in zip(self.inputs, arguments, strict=True)}
        known |= {value.node: target.lift(tensor) for tensor, value in self.hidden.values()}
        for source, stand_in in (self.stopped or {}).items():
            value, = copy_into(target.builder, [source], known, self.builder.locs)
            known[stand_in.node] = stop(target, value)
        return copy_into(target.builder, outputs, known, self.builder.locs)


def stop(scope: Eager | Trace, value: Value) -> Value:
    """A value of the scope that equals this one but passes no gradient on."""
    if isinstance(scope, Eager) or scope.stopped is None:
        return value  # no one will differentiate here
    if value not in scope.stopped:
        scope.stopped[value] = scope.builder.parameter("stopped", value.type, user_line())
    return scope.stopped[value]


def copy_into(
    builder: Builder, outputs: Sequence[Value], known: dict[Node, Value], locs: Mapping[Node, tuple[Loc, ...]]
) -> list[Value]:
    """The outputs, made again in another builder. `known`: what some nodes are there already; grows."""
    for node in topological((v.node for v in outputs), stop=known):
        if node not in known:
            operands = tuple(known[v.node] for v in node.operands)
            known[node] = builder.node(node.op, operands, node.attrs, node.types, locs.get(node, ()))
    return [known[v.node] for v in outputs]


EAGER = Eager()
_scopes: ContextVar[tuple[Eager | Trace, ...]] = ContextVar("scopes", default=(EAGER,))


def current() -> Eager | Trace:
    """The innermost scope: where an operation made now goes."""
    return _scopes.get()[-1]


@contextmanager
def tracing(name: str, differentiated: bool = False) -> Iterator[Trace]:
    """Trace what runs inside, to be differentiated or not."""
    trace = Trace(name, differentiated)
    token = _scopes.set((*_scopes.get(), trace))
    try:
        yield trace
    finally:
        _scopes.reset(token)


def _leaked(tensor: Tensor) -> CompileError:
    return CompileError(
        "trace", "this tensor belongs to a trace that is over", got=tensor.type, at=user_line(),
        hint="return it from the traced function instead of storing it outside",
    )
