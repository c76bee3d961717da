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
The methods are functions of other files, so that x.exp() and exp(x) are one thing: methods.py, which lists
them, adds them to the class. Read next: ops.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from minicc.compiler import compile_graph
from minicc.devices import find
from minicc.errors import CompileError, DtypeError
from minicc.frontend import indexing, ops, shapes, updates
from minicc.frontend.arrays import as_array
from minicc.frontend.primitives import is_number
from minicc.frontend.pytree import flatten
from minicc.frontend.scope import EAGER, Scope, current, fail, user_line
from minicc.graph.dtypes import decode
from minicc.graph.ir import DType, Type, Value

SHOWN_ELEMENTS = 20  # a repr shows the data of tensors up to this size


def _either_side(function: Callable[[Any, Any], Any]) -> tuple[Callable, Callable]:
    """The methods for x + y and, where x is no tensor, for y's part in it."""
    return function, lambda self, other: function(other, self)


def _equality(function: Callable[..., Tensor]) -> Callable[[Tensor, object], Tensor]:
    """Element by element, as numpy; but x == None is False, as for any object."""
    def compared(self: Tensor, other: object) -> Tensor:
        comparable = is_number(other) or isinstance(other, Tensor | np.ndarray | list | tuple)
        return function(self, other) if comparable else NotImplemented
    return compared


class Tensor:
    """An n-dimensional array that is computed when its data is asked for.

    >>> x = Tensor([[1., 2.], [3., 4.]])
    >>> x @ x
    Tensor(f32[2,2], lazy)
    >>> (x @ x).tolist()
    [[7.0, 10.0], [15.0, 22.0]]
    """

    __slots__ = ("type", "_array", "_value", "_scope", "__weakref__")
    _numpy: ClassVar[dict[Any, Callable[..., Any]]] = {}  # numpy's functions, and ours of these names

    def __init__(self, data: Any, dtype: Any = None) -> None:
        if isinstance(data, Tensor):
            source = data if dtype is None else data.astype(dtype)
            self._become(source.type, source._array, source._value, source._scope)
        else:
            self._hold(as_array(data, dtype))

    def _become(self, type: Type, array: np.ndarray | None, value: Value | None = None,
                scope: Scope | None = None) -> Tensor:
        self.type, self._array, self._value, self._scope = type, array, value, scope
        return self

    def _hold(self, array: np.ndarray) -> Tensor:
        """Have this data, and let go of the graph that it was computed by."""
        array.flags.writeable = False
        return self._become(Type.of(array), array)

    def _give(self, taker: Scope) -> None:
        """Have no data any more. taker: what says so to whoever asks."""
        self._become(self.type, None, None, taker)

    @classmethod
    def _made(cls, value: Value, scope: Scope) -> Tensor:
        """A lazy tensor that stands for a value."""
        return cls.__new__(cls)._become(value.type, None, value, scope)

    @classmethod
    def _holding(cls, array: np.ndarray) -> Tensor:
        """A tensor with this data, which nobody else writes to."""
        return cls.__new__(cls)._hold(array)

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

    @property
    def mT(self) -> Tensor:
        """The last two axes exchanged."""
        return shapes.matrix_transpose(self)

    @property
    def at(self) -> updates.At:
        """x.at[key].set(v), .add(v), ...: a new tensor with other elements there."""
        return updates.At(self)

    def __len__(self) -> int:
        if not self.ndim:
            fail("len", "a scalar has no first axis", self.type, "rank 1 or more", kind=DtypeError)
        return self.shape[0]

    def __repr__(self) -> str:
        if self._array is None:
            return f"Tensor({self.type}, {self._scope.state if self._scope else ''})"
        return f"Tensor({self.type}, {self.tolist() if self.size <= SHOWN_ELEMENTS else 'ready'})"

    # -- the data --------------------------------------------------------------------------------------------

    def stored(self) -> np.ndarray:
        """The data as the dtype stores it, what programs take: bf16 as bits, all else as numpy has it."""
        if self._array is None:
            realise(self)
        assert self._array is not None
        return self._array

    def numpy(self) -> np.ndarray:
        """The data as a read-only numpy array, of bf16 in float32; computes it if need be."""
        array = decode(self.stored(), self.dtype)
        array.flags.writeable = False
        return array

    def item(self) -> Any:
        """The only element, as a Python number."""
        if self.size != 1:
            fail("item", "only a tensor of one element is a number", self.type, "one element",
                 ".tolist(), or reduce it first")
        return self.numpy().item()

    def tolist(self) -> Any:
        """The data as nested lists of Python numbers."""
        return self.numpy().tolist()

    def realise(self) -> Tensor:
        """This tensor, computed."""
        realise(self)
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.numpy(), dtype, copy=copy)

    def __bool__(self) -> bool:
        if self._array is None and self._scope is not EAGER:
            hint = "where(condition, a, b) computes both and chooses; static_argnames for a setting"
            need = "a condition that is known while tracing"
            fail("trace", "the program branches on a lazy value", self.type, need, hint, CompileError)
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if self.dtype.kind != "i":
            fail("index", "only an integer counts", self.type, "an integer", ".astype('i32')", DtypeError)
        return int(self.item())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else repr(self)

    def __deepcopy__(self, memo: dict | None = None) -> Tensor:
        return Tensor(self)  # nothing in it ever changes

    __copy__ = __deepcopy__

    def __reduce__(self) -> tuple:
        return Tensor, (np.array(self.numpy()), self.dtype.name)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Tensor:
        return indexing.index(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        hint = "x = x.at[key].set(value), or where(mask, value, x): each makes a new one"
        fail("index", "a Tensor never changes", hint=hint, kind=CompileError)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """numpy's functions on tensors, and array + tensor: the lazy operation of the same name."""
        if method != "__call__" or options:
            fail("numpy", "only the plain call of a numpy function takes a Tensor", f"np.{ufunc.__name__}",
                 hint="x.numpy() for an array, or the Tensor's own method", kind=DtypeError)
        return self.__array_function__(ufunc, (), inputs, {})

    def __array_function__(self, function: Any, types: Any, inputs: tuple, options: dict[str, Any]) -> Any:
        """The lazy operation that has the name of a numpy function."""
        if function not in self._numpy:
            name = f"{function.__module__}.{function.__name__}".replace("numpy", "np", 1)
            fail("numpy", "this numpy function does not take a Tensor", name,
                 hint="x.numpy() for an array, or the Tensor's own method", kind=DtypeError)
        try:
            signature(self._numpy[function]).bind(*inputs, **options)
        except TypeError as error:
            fail("numpy", f"np.{function.__name__} of a Tensor does not take these arguments: {error}",
                 need=signature(self._numpy[function]), kind=DtypeError)
        return self._numpy[function](*inputs, **options)

    # -- operators: each is the function of that name; methods.py adds the methods ---------------------------

    __hash__ = object.__hash__  # by identity, since == gives a Tensor
    __eq__, __ne__ = _equality(ops.equal), _equality(ops.not_equal)  # type: ignore[assignment]
    __lt__, __le__, __gt__, __ge__ = ops.less, ops.less_equal, ops.greater, ops.greater_equal
    __add__, __radd__ = _either_side(ops.add)
    __sub__, __rsub__ = _either_side(ops.subtract)
    __mul__, __rmul__ = _either_side(ops.multiply)
    __truediv__, __rtruediv__ = _either_side(ops.divide)
    __floordiv__, __rfloordiv__ = _either_side(ops.floor_divide)
    __mod__, __rmod__ = _either_side(ops.remainder)
    __divmod__, __rdivmod__ = _either_side(ops.divmod)
    __pow__, __rpow__ = _either_side(ops.power)
    __matmul__, __rmatmul__ = _either_side(ops.matmul)
    __and__, __rand__ = _either_side(ops.bitwise_and)
    __or__, __ror__ = _either_side(ops.bitwise_or)
    __xor__, __rxor__ = _either_side(ops.bitwise_xor)
    __lshift__, __rlshift__ = _either_side(ops.left_shift)
    __rshift__, __rrshift__ = _either_side(ops.right_shift)
    __neg__, __invert__, __abs__ = ops.negative, ops.bitwise_not, ops.absolute

    if TYPE_CHECKING:
        def __getattr__(self, name: str) -> Callable[..., Any]:
            """The methods of methods.py."""

    def float(self) -> Tensor:
        """As f32."""
        return self.astype("f32")

    def int(self) -> Tensor:
        """As i32, without the fraction."""
        return self.astype("i32")


def realise(tree: Any) -> None:
    """Compute the tensors of a tree, in one program; those that have data already cost nothing.

    Raises: CompileError while tracing, when there is no data yet.
    """
    tensors = [x for _, x in flatten(tree)[0] if isinstance(x, Tensor)]
    wanted = list({id(x): x for x in tensors if x._array is None}.values())
    for x in wanted:
        if x._scope is not EAGER:
            current().lift(x)  # which complains if its trace is over
            hint = "return the tensor and read it outside, or keep to Tensor operations inside"
            fail("trace", "the program asks for data while it is traced", x.type, "", hint, CompileError)
    if not wanted:
        return
    values = [EAGER.lift(x) for x in wanted]
    graph, arrays = EAGER.graph(values)
    outputs = compile_graph(graph, find(at=user_line()).spec).run(arrays)
    for x, value, array in zip(wanted, values, outputs, strict=True):
        EAGER.arrays[value.node] = array
        x._hold(array)
