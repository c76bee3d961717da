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
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, NoReturn, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from minicc.errors import CompileError, Loc, ShapeError
from minicc.graph.ir import Builder, Graph, Node, Value, topological

if TYPE_CHECKING:
    from minicc.frontend.tensor import Tensor

T = TypeVar("T")

# -- provenance ----------------------------------------------------------------------------------------------

_CORE = str(Path(__file__).parent.parent)
_USER = tuple(str(Path(_CORE, *parts)) for parts in (("frontend", "models"), ("lessons",)))
_override: ContextVar[tuple[Loc, ...]] = ContextVar("override", default=())


@cache
def _is_core(file: str) -> bool:
    return file.startswith(_CORE) and not file.startswith(_USER)


@cache
def _line(file: str, number: int) -> tuple[Loc, ...]:
    return (Loc(file, number),)


def user_line() -> tuple[Loc, ...]:
    """The user's line that is being run: the first frame outside minicc's core, or what `located` says."""
    override = _override.get()
    frame: FrameType | None = None if override else sys._getframe(1)
    while frame is not None:
        if not _is_core(frame.f_code.co_filename):
            return _line(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return override


OPERATIONS: set[CodeType] = set()  # the functions that users call by their own names; methods.py fills it


def operation(stage: str) -> str:
    """The operation that the user's line called, if that is known; else this one, which it came down to.

    So softmax(x, axis=5) complains about softmax, and not about the max inside it.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_core(frame.f_code.co_filename):
        stage = frame.f_code.co_name if frame.f_code in OPERATIONS else stage
        frame = frame.f_back
    return stage


@contextmanager
def _during(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Have a context variable hold a value inside."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def located(locs: tuple[Loc, ...]) -> AbstractContextManager[None]:
    """Say that all that is made inside comes from these lines: a gradient from its forward op's."""
    return _during(_override, locs)


def fail(stage: str, what: str, got: object = "", need: object = "", hint: str = "",
         kind: type[CompileError] = ShapeError) -> NoReturn:
    """Raise the error of this kind at the user's line; what minicc met on the way there is not shown."""
    raise kind(operation(stage), what, got=got, need=need, at=user_line(), hint=hint) from None


# -- scopes --------------------------------------------------------------------------------------------------


class Scope:
    """A builder, and what tensors from elsewhere are in it. state: of its tensors, in a word."""

    state = "traced"
    regions: dict[Node, frozenset[Node]] = {}  # only a Trace has some

    def __init__(self) -> None:
        self.builder = Builder()

    def lift(self, tensor: Tensor) -> Value:
        """The tensor as a value of this scope."""
        if tensor._scope is self and tensor._value is not None:
            return tensor._value
        if tensor._array is None and tensor._scope not in _scopes.get():
            (tensor._scope or self).refuse(tensor)
        return self.enter(tensor)

    def refuse(self, tensor: Tensor) -> NoReturn:
        """Say why a tensor of this scope is of no use any more."""
        fail("trace", "this tensor belongs to a trace that is over", tensor.type, kind=CompileError,
             hint="return it from the traced function instead of storing it outside")

    def enter(self, tensor: Tensor) -> Value:
        """The parameter that stands for a tensor from elsewhere."""
        raise NotImplementedError

    def copy(self, outputs: Sequence[Value], known: dict[Node, Value], target: Builder) -> list[Value]:
        """Outputs of this scope, made again in a builder. known: what some nodes are there already; grows."""
        for node in topological((v.node for v in outputs), stop=known):
            if node not in known:
                operands, locs = tuple(known[v.node] for v in node.operands), self.builder.locs.get(node, ())
                known[node] = target.node(node.op, operands, node.attrs, node.types, locs)
        return [known[v.node] for v in outputs]


class Eager(Scope):
    """The scope outside traces. arrays: node -> its value, for inputs and for what is computed since."""

    state = "lazy"

    def __init__(self) -> None:
        super().__init__()
        self.arrays: WeakKeyDictionary[Node, np.ndarray] = WeakKeyDictionary()

    def enter(self, tensor: Tensor) -> Value:
        """A tensor with data, as an input."""
        assert tensor._array is not None
        tensor._value, tensor._scope = self.builder.parameter("x", tensor.type), self
        self.arrays[tensor._value.node] = tensor._array
        return tensor._value

    def graph(self, outputs: Sequence[Value]) -> tuple[Graph, list[np.ndarray]]:
        """What the outputs need, down to nodes whose arrays are known; and these arrays."""
        nodes = topological((v.node for v in outputs), stop=self.arrays)
        inputs, builder = [node for node in nodes if node in self.arrays], Builder()
        known = {node: builder.parameter(f"x{i}", node.types[0]) for i, node in enumerate(inputs)}
        parameters = list(known.values())
        graph = builder.graph("eager", parameters, self.copy(outputs, known, builder))
        return graph, [self.arrays[node] for node in inputs]


class Trace(Scope):
    """The scope of one function while it is traced.

    outside: the tensors from outside that it used. hidden: the inputs that stand for them, by their identity.
    regions: node -> the nodes that the backward pass computes again along with it (checkpoint.py).
    """

    def __init__(self) -> None:
        super().__init__()
        self.outside: list[Tensor] = []
        self.hidden: dict[int, Value] = {}
        self.regions: dict[Node, frozenset[Node]] = {}

    def enter(self, tensor: Tensor) -> Value:
        """A tensor from outside, as a hidden input."""
        if id(tensor) not in self.hidden:
            name = f"closure{len(self.outside)}"
            self.hidden[id(tensor)] = self.builder.parameter(name, tensor.type, user_line())
            self.outside.append(tensor)
        return self.hidden[id(tensor)]


class Donated(Scope):
    """Where tensors are that a call took for good. call, at: its name and the user's line."""

    state = "donated"

    def __init__(self, call: str, at: tuple[Loc, ...]) -> None:
        super().__init__()
        self.call, self.at = call, at

    def refuse(self, tensor: Tensor) -> NoReturn:
        """Name the call."""
        where = f" at {self.at[0]}" if self.at else ""
        fail("donate", f"this tensor was donated to {self.call}{where}, which may have lost it", tensor.type,
             hint="go on with what that call returned, or leave the argument out of donate_argnums",
             kind=CompileError)


EAGER = Eager()
_scopes: ContextVar[tuple[Scope, ...]] = ContextVar("scopes", default=(EAGER,))


def current() -> Scope:
    """The innermost scope: where an operation made now goes."""
    return _scopes.get()[-1]


def tracing(trace: Trace) -> AbstractContextManager[None]:
    """Let what is done inside go to a trace."""
    return _during(_scopes, (*_scopes.get(), trace))
