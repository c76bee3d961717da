"""Random programs: small, well typed, of every op and dtype, and free of surprises.

    random_graph(7)          ->  (a Graph of some twenty nodes, one numpy array per input)
    random_inputs(graph, 7)  ->  arrays for any graph; an input's follow from its name, type and the seed

Goes in: a seed. Comes out: a program for the fuzzer, and for the tests of every room. Invariants: ops whose
answer jumps (compare, floor, float to integer) and all ops of 16-bit floats see exact values only, so that
any two right ways to compute the graph agree within the dtype's tolerance, in float32 and in float64; same
seed, same graph.

Csmith makes random C programs free of undefined behaviour, so that compilers may be compared on them (Yang,
Chen, Eide and Regehr, PLDI 2011). Read next: random_values.py, then fuzz.py.
"""

from __future__ import annotations

import math
import random
import zlib
from typing import Any

import numpy as np

from minicc.graph.dtypes import BF16, BOOL, F16, F32, I8, I16, I32, U8, DType
from minicc.graph.infer import build, constant
from minicc.graph.ir import Graph, Type
from minicc.tools.random_values import LARGEST, MOST_ELEMENTS, NUMBERS, Item, Pool, random_array, small

SHAPES = [(), (1,), (7,), (129,), (1, 7), (7, 1), (5, 7), (7, 129), (2, 3, 7), (3, 1, 129)]
EMPTY = (0, 7)
FLOATS, INTEGERS = ([dtype for dtype in NUMBERS if dtype.kind == kind] for kind in ("f", "i"))
BITS = [*INTEGERS, BOOL]
FACTORS = [dtype for dtype in NUMBERS if dtype is not I16]  # of which there are products

# op -> the dtypes, whether it jumps, the largest operand, and of the result the bound and the grid
# (None: those of the operand, 0: it is rounded)
UNARY: dict[str, tuple[list[DType], bool, float, float | None, float | None]] = {
    "negate": (NUMBERS, False, math.inf, None, None), "abs": (NUMBERS, False, math.inf, None, None),
    "sign": (NUMBERS, True, math.inf, 1, 1), "not": (BITS, False, math.inf, math.inf, 1),
    "floor": (FLOATS, True, math.inf, None, 1), "ceil": (FLOATS, True, math.inf, None, 1),
    "round": (FLOATS, True, math.inf, None, 1), "tanh": (FLOATS, False, math.inf, 1, 0),
    "sin": (FLOATS, False, math.inf, 1, 0), "cos": (FLOATS, False, math.inf, 1, 0),
    "exp": (FLOATS, False, LARGEST, math.exp(LARGEST), 0),
    "expm1": (FLOATS, False, LARGEST, math.exp(LARGEST), 0),
}
POSITIVE = ["log", "log1p", "sqrt", "rsqrt", "divide", "remainder", "power"]  # want a float away from 0


def random_graph(seed: int, size: int = 14) -> tuple[Graph, list[np.ndarray]]:
    """A graph of about `size` random steps, and inputs for it."""
    maker = _Maker(random.Random(seed))
    for _ in range(size):
        maker.step()
    return maker.finish(f"random_{seed}")


def random_inputs(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    """One array per input, the same for an input of this name and type in whatever graph."""
    return [random_array(value.type, (zlib.crc32(value.node.attrs["name"].encode()) + seed) % 2**32)
            for value in graph.inputs]


class _Maker(Pool):
    """A pool, and a step of each kind that adds to it."""

    def __init__(self, choose: random.Random) -> None:
        shape, other = choose.choice([*SHAPES * 4, EMPTY]), choose.choice(SHAPES)
        types = [(F32, shape), (F32, other), (I32, shape), (I32, ()), (BOOL, shape)]
        types += [(dtype, shape) for dtype in choose.sample(NUMBERS, 2)]
        super().__init__(choose, [Type(*type) for type in types])

    def step(self) -> None:
        kinds = [
            self.unary, self.unary, self.positive, self.binary, self.binary, self.bits, self.compare,
            self.select, self.convert, self.convert, self.broadcast, self.rearrange, self.rearrange,
            self.rearrange, self.slice, self.pad, self.join, self.reduce, self.dot, self.dot,
            self.convolution, self.iota, self.constant, self.gather, self.scatter, self.dynamic,
        ]
        self.choose.choice(kinds)()

    def unary(self) -> None:
        op = self.choose.choice([*UNARY])
        dtypes, jumps, most, bound, grid = UNARY[op]
        x = self.pick(dtypes, jumps, most)
        wraps = x.dtype.unsigned and op == "negate"
        self.keep(self.build(op, x), math.inf if wraps else x.bound + jumps if bound is None else bound,
                  x.grid if grid is None else grid)  # floor and ceil may add 1

    def positive(self) -> None:
        """What wants an operand away from 0 gets |x| + 0.5."""
        op = self.choose.choice(POSITIVE)
        x = self.pick(FLOATS, op == "remainder", LARGEST)
        half = Item(constant(self.builder, 0.5, x.dtype), 0.5, 0.5)
        size = self.keep(self.build("abs", x), x.bound, x.grid)
        away = self.keep(self.build("add", size, half), x.bound + 0.5, min(x.grid, 0.5))
        if not away.serves([x.dtype], op == "remainder"):
            return
        y = self.mate(away, op == "remainder", LARGEST)
        if op == "remainder":
            self.keep(self.build(op, y, away), away.bound, min(away.grid, y.grid))
        elif op == "power":
            self.keep(self.build(op, away, y), max(2, away.bound) ** LARGEST, 0)
        else:
            self.keep(self.build(op, *([y, away] if op == "divide" else [away])), 2 * LARGEST, 0)

    def binary(self) -> None:
        op = self.choose.choice(["add", "subtract", "multiply", "maximum", "minimum", "divide", "remainder"])
        x = self.pick(INTEGERS if op in ("divide", "remainder") else NUMBERS)
        y = self.mate(x)
        bound = {"multiply": x.bound * y.bound, "add": x.bound + y.bound, "maximum": max(x.bound, y.bound),
                 "minimum": max(x.bound, y.bound), "divide": math.inf, "remainder": max(x.bound, y.bound),
                 "subtract": math.inf if x.dtype.unsigned else x.bound + y.bound}[op]
        grid = x.grid * y.grid if op == "multiply" else min(x.grid, y.grid)
        self.keep(self.build(op, *self.choose.sample([x, y], 2)), bound, grid)

    def bits(self) -> None:
        op = self.choose.choice(["and", "or", "xor", "shift_left", "shift_right"])
        x = self.pick(INTEGERS if op.startswith("shift") else BITS)
        self.keep(self.build(op, x, self.mate(x)), math.inf, 1)

    def compare(self) -> None:
        direction = self.choose.choice(["eq", "ne", "lt", "le", "gt", "ge"])
        x = self.pick([*NUMBERS, BOOL] if direction in ("eq", "ne") else NUMBERS, True)
        self.keep(self.build("compare", x, self.mate(x, True), direction=direction), 1, 1)

    def select(self) -> None:
        x = self.moved()
        shaped = [i for i in self.items if i.dtype is BOOL and i.shape in ((), x.shape)]
        y = self.mate(x, any=True)
        self.keep(self.build("select", self.choose.choice([*shaped, self.scalar(BOOL)]), x, y),
                  max(x.bound, y.bound), min(x.grid, y.grid))

    def convert(self) -> None:
        dtype = self.choose.choice([*NUMBERS, BOOL])
        rounded = dtype.kind == "f" and self.choose.random() < 0.5
        x = self.pick([F32] if rounded else [*NUMBERS, BOOL], dtype.kind != "f")
        bound = math.inf if dtype.unsigned and x.dtype.kind == "i" else x.bound
        self.keep(self.build("convert", x, dtype=dtype), bound, x.grid if dtype.kind == "f" else 1)

    def move(self, op: str, *items: Item, **attrs: Any) -> None:
        if math.prod(attrs.get("shape", ())) <= MOST_ELEMENTS:
            bound, grid = max(item.bound for item in items), min(item.grid for item in items)
            self.keep(self.build(op, *items, **attrs), bound, grid)

    def broadcast(self) -> None:
        x = self.moved()
        shape, dims = [], []
        for size in x.shape:
            if self.choose.random() < 0.4:
                shape.append(self.choose.choice([1, 2, 3]))
            dims.append(len(shape))
            shape.append(self.choose.choice([1, 7]) if size == 1 else size)
        if self.choose.random() < 0.5 or not shape:
            shape.append(self.choose.choice([1, 2, 7]))
        self.move("broadcast_in_dim", x, shape=tuple(shape), dims=tuple(dims))

    def rearrange(self) -> None:
        """All elements, elsewhere or where they are."""
        x = self.moved()
        rank, shape = len(x.shape), list(x.shape)
        shapes = [(x.size,), (1, *shape), (*shape, 1), tuple(s for s in shape if s != 1), shape[::-1]]
        choices: list[tuple[str, dict[str, Any]]] = [
            ("reshape", {"shape": self.choose.choice(shapes)}), ("reverse", {"axes": self.some(rank)}),
            ("transpose", {"perm": self.choose.sample(range(rank), rank)}), ("optimization_barrier", {})]
        op, attrs = self.choose.choice(choices)
        self.move(op, x, **attrs)

    def slice(self) -> None:
        x = self.moved()
        start = [self.choose.randrange(max(1, size)) for size in x.shape]
        limit = [self.choose.randint(min(low + 1, n), n) for low, n in zip(start, x.shape, strict=True)]
        stride = [self.choose.choice([1, 1, 2, 3]) for _ in start]
        self.move("slice", x, start=start, limit=limit, stride=stride)

    def pad(self) -> None:
        x = self.moved()
        low, high = ([self.choose.choice([0, 0, 1, 2]) for _ in x.shape] for _ in range(2))
        interior = [self.choose.choice([0, 0, 1]) for _ in x.shape]
        self.move("pad", x, self.scalar(x.dtype), low=low, high=high, interior=interior)

    def join(self) -> None:
        x = self.moved()
        if x.shape:
            axis = self.choose.randrange(len(x.shape))
            others = x.shape[:axis], x.shape[axis + 1:]
            alike = [item for item in self.items if item.dtype is x.dtype and len(item.shape) == len(x.shape)
                     and (item.shape[:axis], item.shape[axis + 1:]) == others]
            parts = self.choose.choices(alike, k=self.choose.choice([1, 2, 2, 3]))
            self.move("concatenate", *parts, axis=axis)

    # -- indices that are computed

    def places(self, x: Item) -> tuple[int, Item] | None:
        """An axis that has something to look up, and where; some of the places lie outside."""
        axes = [axis for axis, size in enumerate(x.shape) if size]
        at = [i for i in self.items if i.dtype is I32 and len(i.shape) < 3 and i.size <= 130]
        return (self.choose.choice(axes), self.far(self.choose.choice(at))) if axes else None

    def far(self, at: Item) -> Item:
        """Places as they are, or further apart: small numbers do not reach the end of every axis."""
        factor = self.choose.choice([1, 1, 3, 40])
        far = Item(constant(self.builder, factor, I32), factor, 1)
        return at if factor == 1 else Item(self.build("multiply", at, far), at.bound * factor, 1)

    def gather(self) -> None:
        if found := self.places(x := self.moved()):
            self.keep(self.build("gather", x, found[1], axis=found[0]), x.bound, x.grid)

    def scatter(self) -> None:
        kind = self.choose.choice(["set", "sum", "prod", "max", "min"])
        x = self.moved() if kind == "set" else self.pick(NUMBERS)
        if not (found := self.places(x)):
            return
        axis, at = found
        shape = x.shape[:axis] + at.shape + x.shape[axis + 1:]
        same = [i for i in self.items if i.dtype is x.dtype] if kind == "set" else [self.pick([x.dtype])]
        if math.prod(shape) <= MOST_ELEMENTS:
            updates = self.fitted(self.choose.choice(same), shape)
            if kind == "prod":
                updates, x = self.tamed(updates), self.tamed(x)
            bound = x.bound + at.size * updates.bound if kind == "sum" else max(x.bound, updates.bound)
            bound = math.inf if kind == "prod" and x.dtype.kind == "i" else bound
            value = self.build("scatter", x, at, updates, axis=axis, kind=kind)
            self.keep(value, bound, min(x.grid, updates.grid))

    def tamed(self, x: Item) -> Item:
        """A number to multiply many of: f32 in (-1, 1), 16-bit floats -1, 0 or 1; integers may wrap."""
        if x.dtype.kind == "i":
            return x
        return Item(self.build("tanh", x), 1, 0) if x.dtype is F32 else Item(self.build("sign", x), 1, 1)

    def dynamic(self) -> None:
        x = self.moved()
        scalars = [item for item in self.items if item.dtype is I32 and not item.shape]
        starts = [self.far(self.choose.choice([*scalars, self.scalar(I32)])) for _ in x.shape]
        sizes = [self.choose.randint(min(1, size), size) for size in x.shape]
        if self.choose.random() < 0.5:
            self.keep(self.build("dynamic_slice", x, *starts, sizes=sizes), x.bound, x.grid)
        else:
            update = self.fitted(self.choose.choice([i for i in self.items if i.dtype is x.dtype]), sizes)
            self.keep(self.build("dynamic_update_slice", x, update, *starts), max(x.bound, update.bound),
                      min(x.grid, update.grid))

    # -- sums

    def reduce(self) -> None:
        kind = self.choose.choice(["sum", "sum", "max", "min", "prod"])
        x = self.pick(NUMBERS)
        axes = self.some(len(x.shape), 0.6)
        count = math.prod(x.shape[axis] for axis in axes)
        if count or kind in ("sum", "prod"):
            x = self.tamed(x) if kind == "prod" else x
            bound = x.bound * max(1, count) if kind == "sum" else x.bound
            wraps = kind == "prod" and x.dtype.kind == "i"
            self.keep(self.build("reduce", x, kind=kind, axes=axes), math.inf if wraps else bound, x.grid)

    def product(self, op: str, x: Item, y: Item, depth: int, attrs: dict[str, Any]) -> None:
        """A dot or a convolution; one of rounded numbers is scaled down, so that it can be used."""
        if x.dtype in (F16, BF16) and self.choose.random() < 0.5:
            attrs["dtype"] = F32
        value = self.build(op, x, y, **attrs)
        bound, grid = x.bound * y.bound * max(1, depth), x.grid * y.grid
        if value.dtype is F32 and bound > grid * 2**24 and value.type.elements <= MOST_ELEMENTS:
            scale = constant(self.builder, 1 / bound, F32)
            value, bound = build(self.builder, "multiply", (value, scale)), 1
        self.keep(value, bound, grid)

    def dot(self) -> None:
        """A product with a value of the same shape over a batch, or with its own transpose."""
        x = self.pick(FACTORS)
        rank = len(x.shape)
        if rank < 2:
            return
        mates = (I8, U8) if x.dtype in (I8, U8) else (x.dtype,)
        if rank == 3 and (alike := [i for i in self.items if i.serves(mates) and i.shape == x.shape]):
            attrs: dict[str, Any] = {"contract": ((2,), (2,)), "batch": ((0,), (0,))}
            self.product("dot_general", x, self.choose.choice(alike), x.shape[2], attrs)
        else:
            y = Item(self.build("transpose", x, perm=range(rank)[::-1]), x.bound, x.grid)
            self.product("dot_general", x, y, x.shape[-1], {"contract": ((rank - 1,), (0,))})

    def convolution(self) -> None:
        """Of one or two spatial axes, with numbers from wherever they are."""
        x, spatial = self.pick(FACTORS), self.choose.choice([1, 1, 2])
        y = self.pick((I8, U8) if x.dtype in (I8, U8) else (x.dtype,))
        batch, groups, results, channels = self.choose.choices([1, 2, 3], k=4)
        sizes, taps = self.choose.choices([3, 5, 7], k=spatial), self.choose.choices([1, 2, 3], k=spatial)
        attrs = {name: self.choose.choices(values, k=spatial) for name, values in
                 (("stride", [1, 1, 2]), ("dilation", [1, 1, 2]), ("low", [0, 1, 2]), ("high", [2, 3]))}
        x = self.fitted(x, (batch, groups, channels, *sizes))
        w = self.fitted(y, (groups, results, channels, *taps))
        self.product("convolution", x, w, channels * math.prod(taps), attrs)

    # -- out of nothing

    def iota(self) -> None:
        shape, dtype = self.choose.choice(SHAPES[1:]), self.choose.choice([F32, I32, *NUMBERS])
        axis = self.choose.randrange(len(shape))
        value = build(self.builder, "iota", (), {"axis": axis, "shape": shape, "dtype": dtype})
        if dtype is F32:
            value = build(self.builder, "multiply", (value, constant(self.builder, 1 / 64, F32)))
        self.keep(value, 2.1 if dtype is F32 else 129, 1 / 64 if dtype is F32 else 1)

    def constant(self) -> None:
        """An array as inputs have them, or integers among which are the least and the largest."""
        shape, dtype = self.choose.choice([*SHAPES[:6], EMPTY]), self.choose.choice([F32, *NUMBERS, BOOL])
        array = random_array(Type(dtype, shape), self.choose.randrange(1000))
        if dtype.kind == "i" and self.choose.random() < 0.5:
            limits = np.iinfo(dtype.numpy)
            array = np.choose(np.abs(array) % 3, [array, limits.min, limits.max]).astype(dtype.numpy)
            self.keep(constant(self.builder, array), math.inf, 1)
        else:
            self.items.append(small(constant(self.builder, array)))

    def finish(self, name: str) -> tuple[Graph, list[np.ndarray]]:
        """The newest values that nothing uses are the outputs."""
        used = {operand.node for item in self.items for operand in item.value.node.operands}
        made = [item.value for item in self.items if item.value not in self.inputs]
        free = dict.fromkeys(value for value in made if value.node not in used)
        graph = self.builder.graph(name, self.inputs, list(free)[-4:] or self.inputs[:1])
        return graph, random_inputs(graph)
