"""The lazy tensor: what a user holds.

    x = Tensor([[1., 2.], [3., 4.]])     a tensor with data
    y = (x @ x.T).relu()                 a lazy one: a value of a graph, nothing ran
    y.numpy()                            now it did: the graph that y needs was compiled, run, and let go

In: numbers, nested lists, arrays. Out: arrays, when asked for. Invariants:
- A tensor never changes. It has data (`_array`), or is a value of a scope (`_value`, `_scope`), or both: with
  data it is an input of every graph that uses it, so programs are cached by structure, whatever the numbers.
- Shape and dtype are known without running anything, so a mistake shows at the line that made it.
- numpy spelling (axis, keepdims), with torch's dim and keepdim accepted.

PyTorch runs at once and records for the gradient; JAX runs at once outside jit; tinygrad is lazy like this.
The methods are functions of the files named below, so that x.exp() and exp(x) are one thing. Read next:
ops.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from minicc.compiler import compile_graph
from minicc.errors import CompileError, DtypeError, ShapeError
from minicc.frontend import functional, ops, shapes
from minicc.frontend.arrays import as_array
from minicc.frontend.primitives import is_number
from minicc.frontend.scope import EAGER, Eager, Trace, current, user_line
from minicc.graph.ir import DTYPES, DType, Type, Value

SHOWN_ELEMENTS = 20  # a repr shows the data of tensors up to this size


def _swapped(function: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
    return lambda self, other: function(other, self)


def _equality(direction: str, x: Tensor, y: object) -> Tensor:
    comparable = is_number(y) or isinstance(y, Tensor | np.ndarray | list | tuple)
    # so x == None is False, as for any object
    return ops.compare(direction, x, y) if comparable else NotImplemented


class Tensor:
    """An n-dimensional array that is computed when its data is asked for.

    >>> x = Tensor([[1., 2.], [3., 4.]])
    >>> x @ x
    Tensor(f32[2,2], lazy)
    >>> (x @ x).tolist()
    [[7.0, 10.0], [15.0, 22.0]]
    """

    __slots__ = ("type", "_array", "_value", "_scope", "__weakref__")

    def __init__(self, data: Any, dtype: Any = None) -> None:
        if isinstance(data, Tensor):
            source = data if dtype is None else data.astype(dtype)
            self._set(source.type, source._array, source._value, source._scope)
            return
        array = as_array(data, dtype)
        found = next(one for one in DTYPES.values() if one.numpy == array.dtype)
        self._set(Type(found, array.shape), array, None, None)

    def _set(self, type: Type, array: np.ndarray | None, value: Value | None,
             scope: Eager | Trace | None) -> None:
        self.type: Type = type
        self._array, self._value, self._scope = array, value, scope

    @classmethod
    def _lazy(cls, value: Value, scope: Eager | Trace) -> Tensor:
        """A tensor that stands for a value."""
        self = cls.__new__(cls)
        self._set(value.type, None, value, scope)
        return self

    @classmethod
    def _ready(cls, type: Type, array: np.ndarray) -> Tensor:
        """A tensor with this data, which no one else may write to any more."""
        array.flags.writeable = False
        self = cls.__new__(cls)
        self._set(type, array, None, None)
        return self

    # -- what it is, without computing anything --------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return self.type.dtype

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self.type.shape)

    @property
    def size(self) -> int:
        """How many elements there are."""
        return self.type.elements

    @property
    def lazy(self) -> bool:
        """Whether the data has yet to be computed."""
        return self._array is None

    @property
    def T(self) -> Tensor:
        """All axes reversed."""
        return shapes.transpose(self)

    def __len__(self) -> int:
        self._need_an_axis("len()")
        return self.shape[0]

    def __repr__(self) -> str:
        if self._array is None:
            return f"Tensor({self.type}, {'traced' if isinstance(self._scope, Trace) else 'lazy'})"
        if self.size > SHOWN_ELEMENTS:
            return f"Tensor({self.type}, ready)"
        return f"Tensor({self.type}, {self._array.tolist()})"

    # -- the data --------------------------------------------------------------------------------------------

    def numpy(self) -> np.ndarray:
        """The data as a read-only numpy array; computes it if need be."""
        realise([self])
        assert self._array is not None
        return self._array

    def item(self) -> Any:
        """The only element, as a Python number."""
        if self.size != 1:
            raise ShapeError("item", "only a tensor of one element is a number", got=self.type,
                             need="one element",
                             at=user_line(), hint=".tolist(), or reduce it first")
        return self.numpy().item()

    def tolist(self) -> Any:
        """The data as nested lists of Python numbers."""
        return self.numpy().tolist()

    def realise(self) -> Tensor:
        """This tensor, computed."""
        realise([self])
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.numpy()
        return array.copy() if copy and dtype is None else array if dtype is None else array.astype(dtype)

    def __bool__(self) -> bool:
        if isinstance(self._scope, Trace):
            raise CompileError(
                "trace", "the program branches on a lazy value", got=self.type, at=user_line(),
                need="a condition that is known while tracing",
                hint="where(condition, a, b) computes both and chooses; static_argnames for a setting",
            )
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else repr(self)

    def __copy__(self) -> Tensor:
        return Tensor(self)

    def __deepcopy__(self, memo: dict) -> Tensor:
        return Tensor(self)  # nothing in it ever changes

    def __reduce__(self) -> tuple:
        return Tensor, (np.array(self.numpy()),)

    def __iter__(self) -> Iterator[Tensor]:
        self._need_an_axis("iteration")
        return (self[i] for i in range(self.shape[0]))

    def __getitem__(self, key: Any) -> Tensor:
        picked = shapes.index(self, key)
        if self._array is None or current() is not EAGER:
            return picked
        # data at hand is indexed at hand: taking batches must not compile a program per batch
        return Tensor._ready(picked.type, np.asarray(self._array[key]))

    def __setitem__(self, key: Any, value: Any) -> None:
        raise CompileError("index", "a Tensor never changes", at=user_line(),
                           hint="where(mask, new, x) makes a new one")

    def _need_an_axis(self, what: str) -> None:
        if not self.ndim:
            raise DtypeError(what, "a scalar has no first axis", got=self.type, need="rank 1 or more",
                             at=user_line())

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Tensor:
        """numpy's functions on tensors, and array + tensor: the lazy operation of the same name."""
        function = ops.UFUNCS.get(ufunc.__name__)
        if function is None or method != "__call__" or options:
            raise DtypeError("numpy", "this numpy function does not take a Tensor",
                             got=f"np.{ufunc.__name__}",
                             at=user_line(), hint="x.numpy() for an array, or the Tensor's own method")
        return function(*inputs)

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]  # element by element, as numpy
        return _equality("eq", self, other)

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return _equality("ne", self, other)

    # -- operators and methods: each is the function of that name --------------------------------------------

    __hash__ = object.__hash__  # by identity, since == gives a Tensor
    __add__ = ops.add
    __radd__ = _swapped(ops.add)
    __sub__ = ops.subtract
    __rsub__ = _swapped(ops.subtract)
    __mul__ = ops.multiply
    __rmul__ = _swapped(ops.multiply)
    __truediv__ = ops.divide
    __rtruediv__ = _swapped(ops.divide)
    __matmul__ = ops.matmul
    __rmatmul__ = _swapped(ops.matmul)
    __pow__ = ops.power
    __rpow__ = ops.rpower
    __neg__ = ops.negate
    __abs__ = ops.absolute
    __lt__ = ops.less
    __le__ = ops.less_equal
    __gt__ = ops.greater
    __ge__ = ops.greater_equal
    __and__ = ops.logical_and
    __rand__ = ops.logical_and
    __or__ = ops.logical_or
    __ror__ = ops.logical_or
    __invert__ = ops.logical_not

    abs, exp, log, sqrt, rsqrt, tanh = ops.absolute, ops.exp, ops.log, ops.sqrt, ops.rsqrt, ops.tanh
    maximum, minimum, matmul, astype = ops.maximum, ops.minimum, ops.matmul, ops.astype
    sum, max, min, prod = ops.sum, ops.max, ops.min, ops.prod
    mean, var, argmax = functional.mean, functional.var, functional.argmax
    relu, sigmoid, gelu, clip = functional.relu, functional.sigmoid, functional.gelu, functional.clip
    softmax, log_softmax = functional.softmax, functional.log_softmax
    logsumexp, one_hot = functional.logsumexp, functional.one_hot
    reshape, transpose, permute = shapes.reshape, shapes.transpose, shapes.transpose
    broadcast_to, expand = shapes.broadcast_to, shapes.broadcast_to
    squeeze, unsqueeze = shapes.squeeze, shapes.unsqueeze

    def float(self) -> Tensor:
        """As f32."""
        return self.astype("f32")

    def int(self) -> Tensor:
        """As i32, without the fraction."""
        return self.astype("i32")


def realise(tensors: Iterable[Tensor]) -> None:
    """Compute these tensors, in one program; those that have data already cost nothing.

    Raises: CompileError while tracing, when there is no data yet.
    """
    wanted = list({id(x): x for x in tensors if x._array is None}.values())
    if not wanted:
        return
    for x in wanted:
        if x._scope is not EAGER:
            raise CompileError(
                "trace", "the program asks for data while it is traced", got=x.type, at=user_line(),
                hint="return the tensor and read it outside, or keep to Tensor operations inside",
            )
    values = [EAGER.lift(x) for x in wanted]
    graph, arrays = EAGER.graph(values)
    for x, value, array in zip(wanted, values, compile_graph(graph).run(arrays), strict=True):
        array.flags.writeable = False
        EAGER.arrays[value.node] = array
        x._set(x.type, array, None, None)  # and so it lets go of its graph
