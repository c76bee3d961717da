"""Random programs: small, well typed, of every op, and free of surprises.

    random_graph(7)          ->  (a Graph of some twenty nodes, one numpy array per input)
    random_inputs(graph, 7)  ->  arrays for any graph; an input's follow from its name, type and the seed

Goes in: a seed. Comes out: a program for the fuzzer, and for the tests of every room. Every value stays
small (its bound is tracked), and ops whose answer jumps (compare, sign, float to integer, equal elements in a
maximum) see only values that every stage holds exactly, multiples of 1/64. So any two right ways to compute
the graph agree within the dtype's tolerance, in float32 and in float64. Same seed, same graph.

Csmith makes random C programs free of undefined behaviour, so that compilers may be compared on them (Yang,
Chen, Eide and Regehr, PLDI 2011). Read next: fuzz.py.
"""

from __future__ import annotations

import math
import random
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from minicc.graph.infer import build, constant
from minicc.graph.ir import BOOL, F32, I32, Builder, DType, Graph, Type, Value

SHAPES = [(), (1,), (7,), (129,), (1, 7), (7, 1), (5, 7), (7, 129), (2, 3, 7), (3, 1, 129)]
MOST_ELEMENTS = 4000
LARGEST = 4.0  # a float above this is squashed by tanh before anything else is done with it


@dataclass(frozen=True)
class Item:
    """A value, a bound on its magnitude, and whether every stage holds it exactly."""

    value: Value
    bound: float
    exact: bool


def random_graph(seed: int, size: int = 14) -> tuple[Graph, list[np.ndarray]]:
    """A graph of about `size` random steps, and inputs for it."""
    maker = _Maker(random.Random(seed))
    for _ in range(size):
        maker.step()
    return maker.finish(f"random_{seed}")


def random_array(type: Type, seed: int = 0) -> np.ndarray:
    """Multiples of 1/8 in -2..2, integers in -3..3, or bools."""
    random_state = np.random.default_rng(seed)
    if type.dtype == F32:
        return (random_state.integers(-16, 17, type.shape) / 8).astype(np.float32)
    if type.dtype == I32:
        return random_state.integers(-3, 4, type.shape, dtype=np.int32)
    return random_state.integers(0, 2, type.shape).astype(np.bool_)


def random_inputs(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    """One array per input, the same for an input of this name and type in whatever graph."""
    return [random_array(value.type, (zlib.crc32(value.node.attrs["name"].encode()) + seed) % 2**32)
            for value in graph.inputs]


class _Maker:
    def __init__(self, choose: random.Random) -> None:
        self.choose, self.builder = choose, Builder()
        shape = choose.choice(SHAPES)
        self.inputs = [self.builder.parameter(f"x{i}", Type(dtype, s)) for i, (dtype, s) in enumerate(
            [(F32, shape), (F32, choose.choice(SHAPES)), (I32, shape), (BOOL, shape), (F32, shape)])]
        self.items: list[Item] = [Item(value, 3.0, True) for value in self.inputs]

    # -- helpers

    def add(self, op: str, operands: list[Item], attrs: dict | None = None, bound: float = 3.0,
            exact: bool = False) -> Item:
        value = build(self.builder, op, tuple(item.value for item in operands), attrs)
        item = Item(value, bound, exact)
        if bound > LARGEST and value.dtype == F32:
            item = Item(build(self.builder, "tanh", (value,)), 1.0, False)
        self.items.append(item)
        return item

    def pick(self, dtype: DType | None = F32, exact: bool = False) -> Item:
        """A random value, newer ones more often; so that there is always one, an input."""
        fit = [item for item in self.items if dtype in (None, item.value.dtype) and (item.exact or not exact)]
        return self.choose.choice(fit[-6:] if self.choose.random() < 0.7 else fit)

    def mate(self, item: Item, dtype: DType | None = None, exact: bool = False) -> Item:
        """A value to go with another in an elementwise op: of its shape, or a scalar."""
        dtype = dtype or item.value.dtype
        fit = [other for other in self.items if other.value.dtype == dtype and (other.exact or not exact)
               and other.value.shape in ((), item.value.shape)]
        return self.choose.choice(fit) if fit else self.scalar(dtype)

    def scalar(self, dtype: DType) -> Item:
        number = {"f": self.choose.choice([0.0, -0.0, 1.0, 0.5, -1.25]), "i": self.choose.randint(-2, 2),
                  "b": self.choose.random() < 0.5}[dtype.kind]
        return Item(constant(self.builder, number, dtype), 3.0, True)

    # -- one step of each kind

    def step(self) -> None:
        kinds = [
            self.unary, self.positive, self.binary, self.binary, self.logic, self.compare, self.select,
            self.convert, self.broadcast, self.reshape, self.transpose, self.slice, self.pad, self.reduce,
            self.dot, self.dot, self.iota, self.constant,
        ]
        self.choose.choice(kinds)()

    def unary(self) -> None:
        op = self.choose.choice(["negate", "abs", "sign", "exp", "tanh"])
        x = self.pick(F32 if op in ("sign", "exp", "tanh") else self.choose.choice([F32, I32]), op == "sign")
        bound = {"exp": np.exp(min(x.bound, 99)), "tanh": 1.0, "sign": 1.0}.get(op, x.bound)
        self.add(op, [x], None, bound, x.exact and op not in ("exp", "tanh"))

    def positive(self) -> None:
        """log, sqrt, rsqrt and divide want operands away from 0: |x| + 0.5."""
        op = self.choose.choice(["log", "sqrt", "rsqrt", "divide"])
        x = self.pick()
        size = build(self.builder, "abs", (x.value,))
        half = constant(self.builder, 0.5, F32)
        away = Item(build(self.builder, "add", (size, half)), x.bound + 0.5, False)
        self.add(op, [self.mate(away), away] if op == "divide" else [away], None, 2 * LARGEST)

    def binary(self) -> None:
        op = self.choose.choice(["add", "subtract", "multiply", "maximum", "minimum"])
        x = self.pick(self.choose.choice([F32, F32, I32]))
        y = self.mate(x)
        if op == "multiply":
            bound = x.bound * y.bound
        else:
            bound = x.bound + y.bound if op in ("add", "subtract") else max(x.bound, y.bound)
        if bound < 2**20:
            self.add(op, self.choose.sample([x, y], 2), None, bound, x.exact and y.exact and op != "multiply")

    def logic(self) -> None:
        op, x = self.choose.choice(["and", "or", "not"]), self.pick(BOOL)
        self.add(op, [x] if op == "not" else [x, self.mate(x)], None, 1.0, True)

    def compare(self) -> None:
        x = self.pick(self.choose.choice([F32, I32]), exact=True)
        direction = self.choose.choice(["eq", "ne", "lt", "le", "gt", "ge"])
        self.add("compare", [x, self.mate(x, exact=True)], {"direction": direction}, 1.0, True)

    def select(self) -> None:
        x = self.pick(self.choose.choice([F32, F32, I32]))
        shaped = [i for i in self.items if i.value.dtype == BOOL and i.value.shape in ((), x.value.shape)]
        predicate = self.choose.choice(shaped) if shaped else self.scalar(BOOL)
        y = self.mate(x)
        self.add("select", [predicate, x, y], None, max(x.bound, y.bound), x.exact and y.exact)

    def convert(self) -> None:
        x = self.pick(None, exact=True)
        dtype = self.choose.choice([F32, I32, BOOL])
        self.add("convert", [x], {"dtype": dtype}, x.bound, x.bound < 2**20)

    def broadcast(self) -> None:
        x = self.pick(None)
        shape, dims = [], []
        for size in x.value.shape:
            if self.choose.random() < 0.4:
                shape.append(self.choose.choice([1, 2, 3]))
            dims.append(len(shape))
            shape.append(self.choose.choice([1, 7]) if size == 1 else size)
        if self.choose.random() < 0.5 or not shape:
            shape.append(self.choose.choice([1, 2, 7]))
        self.moved("broadcast_in_dim", x, shape=tuple(shape), dims=tuple(dims))

    def moved(self, op: str, x: Item, **attrs: Any) -> None:
        if math.prod(attrs.get("shape", ())) <= MOST_ELEMENTS:
            self.add(op, [x], attrs, x.bound, x.exact)

    def reshape(self) -> None:
        x = self.pick(None)
        flat, shape = x.value.type.elements, list(x.value.shape)
        choices = [(flat,), (1, *shape), (*shape, 1), tuple(s for s in shape if s != 1), shape[::-1]]
        self.moved("reshape", x, shape=self.choose.choice(choices))

    def transpose(self) -> None:
        x = self.pick(None)
        rank = len(x.value.shape)
        self.moved("transpose", x, perm=self.choose.sample(range(rank), rank))

    def slice(self) -> None:
        x = self.pick(None)
        start = [self.choose.randrange(size) for size in x.value.shape]
        limit = [self.choose.randint(low + 1, size) for low, size in zip(start, x.value.shape, strict=True)]
        stride = [self.choose.choice([1, 1, 2, 3]) for _ in start]
        self.moved("slice", x, start=start, limit=limit, stride=stride)

    def pad(self) -> None:
        x = self.pick()
        if x.value.type.elements * 8 <= MOST_ELEMENTS:
            low, high = ([self.choose.choice([0, 0, 1, 2]) for _ in x.value.shape] for _ in range(2))
            interior = [self.choose.choice([0, 0, 1]) for _ in x.value.shape]
            attrs = {"low": low, "high": high, "interior": interior}
            self.add("pad", [x, self.scalar(F32)], attrs, max(x.bound, 1.25), x.exact)

    def reduce(self) -> None:
        kind = self.choose.choice(["sum", "sum", "max", "min", "prod"])
        x = self.pick(F32 if kind == "prod" else self.choose.choice([F32, F32, I32]))
        axes = [axis for axis in range(len(x.value.shape)) if self.choose.random() < 0.6]
        if kind == "prod":  # of numbers in (-1, 1): a product of many larger ones leaves f32
            x = Item(build(self.builder, "tanh", (x.value,)), 1.0, False)
        count = int(np.prod([x.value.shape[axis] for axis in axes]))
        bound = x.bound * count if kind == "sum" else x.bound
        if bound < 2**20:
            self.add("reduce", [x], {"kind": kind, "axes": axes}, bound, x.exact and kind != "prod")

    def dot(self) -> None:
        """A product with a value of the same shape over a batch, or with its own transpose."""
        x = self.pick()
        rank = len(x.value.shape)
        if rank < 2:
            return
        y = self.choose.choice([item for item in self.items if item.value.dtype == F32])
        if rank == 3 and y.value.shape == x.value.shape:
            other, attrs = y.value, {"contract": ((2,), (2,)), "batch": ((0,), (0,))}
        else:
            other = build(self.builder, "transpose", (x.value,), {"perm": range(rank)[::-1]})
            attrs = {"contract": ((rank - 1,), (0,))}
        depth = x.value.shape[-1]
        value = build(self.builder, "dot_general", (x.value, other), attrs)
        if value.type.elements <= MOST_ELEMENTS:
            scale = constant(self.builder, 1 / (LARGEST * LARGEST * depth), F32)
            self.items.append(Item(build(self.builder, "multiply", (value, scale)), 1.0, False))

    def iota(self) -> None:
        shape = self.choose.choice([shape for shape in SHAPES if shape])
        dtype = self.choose.choice([F32, I32])
        axis = self.choose.randrange(len(shape))
        value = build(self.builder, "iota", (), {"axis": axis, "shape": shape, "dtype": dtype})
        scale = constant(self.builder, 1 / 64 if dtype == F32 else 1, dtype)
        bound = 2.1 if dtype == F32 else 129.0
        self.items.append(Item(build(self.builder, "multiply", (value, scale)), bound, True))

    def constant(self) -> None:
        shape = self.choose.choice(SHAPES[:6])
        dtype = self.choose.choice([F32, I32, BOOL])
        array = random_array(Type(dtype, shape), self.choose.randrange(1000))
        self.items.append(Item(constant(self.builder, array), 3.0, True))

    def finish(self, name: str) -> tuple[Graph, list[np.ndarray]]:
        """The newest values that nothing uses are the outputs."""
        used = {operand.node for item in self.items for operand in item.value.node.operands}
        made = [item.value for item in self.items if item.value not in self.inputs]
        free = dict.fromkeys(value for value in made if value.node not in used)
        graph = self.builder.graph(name, self.inputs, list(free)[-4:] or self.inputs[:1])
        return graph, random_inputs(graph)
