"""Graphs for the GPU room's tests: each is one idea at a size of the test's choice, with tame inputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minicc.devices import find
from minicc.errors import Loc
from minicc.graph.evaluate import evaluate
from minicc.graph.infer import build, constant
from minicc.graph.ir import BOOL, F32, I32, Builder, DType, Graph, Type, Value
from minicc.kernel.evaluate import allocate
from minicc.kernel.fuse import fuse
from minicc.kernel.ir import Module
from minicc.kernel.legalize import legalize
from minicc.kernel.tile import tile

TARGET = find("gpu:a100").target


class Sketch:
    """A graph in the making: sketch.input("x", 3, 4), then sketch.op(operands, attributes...)."""

    def __init__(self) -> None:
        self.builder, self.inputs, self.line = Builder(), [], 0

    def input(self, name: str, *shape: int, dtype: DType = F32) -> Value:
        self.inputs.append(self.builder.parameter(name, Type(dtype, shape)))
        return self.inputs[-1]

    def constant(self, value: object, dtype: DType = F32) -> Value:
        return constant(self.builder, value, dtype)

    def __getattr__(self, op: str) -> Callable[..., Value]:
        def make(*operands: object, **attrs: object) -> Value:
            self.line += 1
            line = (Loc("model.py", self.line, op),)
            values = tuple(o if isinstance(o, Value) else self.constant(o) for o in operands)
            return build(self.builder, op.rstrip("_"), values, attrs, line)
        return make

    def graph(self, *outputs: Value) -> Graph:
        return Graph("sketch", tuple(self.inputs), outputs, dict(self.builder.locs))


def along(s: Sketch, value: Value, shape: tuple[int, ...], *dims: int) -> Value:
    return s.broadcast_in_dim(value, shape=shape, dims=dims)


def matmul(s: Sketch, x: Value, w: Value) -> Value:
    return s.dot_general(x, w, contract=((1,), (0,)), batch=((), ()))


def layer(n: int) -> Graph:
    s = Sketch()
    x, w, b = s.input("x", n, 33), s.input("w", 33, 20), s.input("b", 20)
    return s.graph(s.maximum(s.add(matmul(s, x, w), along(s, b, (n, 20), 1)), 0.0))


def chain(n: int) -> Graph:
    s = Sketch()
    x = s.input("x", n, 7)
    y = s.tanh(s.add(s.multiply(x, x), 1.5))
    return s.graph(s.divide(s.exp(s.negate(y)), s.sqrt(s.add(s.abs(x), 1.0))))


def softmax(n: int) -> Graph:
    s = Sketch()
    x = s.input("x", n, 10)
    e = s.exp(s.subtract(x, along(s, s.reduce(x, kind="max", axes=(1,)), (n, 10), 0)))
    return s.graph(s.divide(e, along(s, s.reduce(e, kind="sum", axes=(1,)), (n, 10), 0)))


def total(n: int) -> Graph:
    s = Sketch()
    x = s.input("x", n, 3)
    return s.graph(s.reduce(s.multiply(x, x), kind="sum", axes=(0, 1)))


def columns(n: int) -> Graph:
    s = Sketch()
    x = s.input("x", n, 5)
    return s.graph(s.reduce(x, kind="max", axes=(0,)), s.reduce(s.exp(x), kind="sum", axes=(0,)))


def transposed(n: int) -> Graph:
    s = Sketch()
    x, y = s.input("x", n, 6), s.input("y", 6, n)
    return s.graph(s.add(s.transpose(x, perm=(1, 0)), y))


def weight_gradient(n: int) -> Graph:
    s = Sketch()
    x, g = s.input("x", n, 18), s.input("g", n, 17)
    return s.graph(s.dot_general(x, g, contract=((0,), (0,)), batch=((), ())),
                   s.transpose(s.dot_general(x, g, contract=((0,), (0,)), batch=((), ())), perm=(1, 0)))


def strided(n: int) -> Graph:
    s = Sketch()
    x = s.input("x", 2 * n + 1, 9)
    y = s.slice(x, start=(1, 2), limit=(2 * n + 1, 9), stride=(2, 3))
    return s.graph(s.multiply(y, 2.0))


def padded(n: int) -> Graph:
    s = Sketch()
    x, y = s.input("x", n, 4), s.input("y", n + 3, 5)
    p = s.pad(x, 1.5, low=(2, 0), high=(1, 1), interior=(0, 0))
    return s.graph(s.multiply(p, s.exp(y)))


def padded_matmul(n: int) -> Graph:
    s = Sketch()
    x, w = s.input("x", n, 20), s.input("w", 23, 5)
    return s.graph(matmul(s, s.pad(x, 1.5, low=(1, 2), high=(0, 1), interior=(0, 0)), w))


def batched(n: int) -> Graph:
    s = Sketch()
    q, k = s.input("q", 3, n, 2, 8), s.input("k", 3, n, 2, 8)
    return s.graph(s.dot_general(q, k, contract=((3,), (3,)), batch=((0, 2), (0, 2))))


def matrix_vector(n: int) -> Graph:
    s = Sketch()
    a, x = s.input("a", n, 40), s.input("x", 40)
    return s.graph(s.dot_general(a, x, contract=((1,), (0,)), batch=((), ())),
                   s.dot_general(x, x, contract=((0,), (0,)), batch=((), ())))


def outer(n: int) -> Graph:
    s = Sketch()
    x, y = s.input("x", n), s.input("y", 6)
    return s.graph(s.dot_general(x, y, contract=((), ()), batch=((), ())))


def relu_gradient(n: int) -> Graph:
    s = Sketch()
    x, g = s.input("x", n, 11), s.input("g", n, 11)
    mask = s.compare(x, 0.0, direction="gt")
    other = s.and_(mask, s.not_(s.compare(g, x, direction="le")))
    return s.graph(s.select(mask, g, 0.0), s.select(other, x, g), s.convert(other, dtype=F32))


def argmax(n: int) -> Graph:
    s = Sketch()
    x = s.input("x", n, 10)
    best = along(s, s.reduce(x, kind="max", axes=(1,)), (n, 10), 0)
    index = s.iota(axis=1, shape=(n, 10), dtype=I32)
    return s.graph(s.reduce(s.select(s.compare(x, best, direction="eq"), index, s.constant(10, I32)),
                            kind="min", axes=(1,)))


def one_hot(n: int) -> Graph:
    s = Sketch()
    labels, x = s.input("labels", n, dtype=I32), s.input("x", n, 10)
    hit = s.compare(along(s, labels, (n, 10), 0), s.iota(axis=1, shape=(n, 10), dtype=I32), direction="eq")
    return s.graph(s.reduce(s.multiply(s.convert(hit, dtype=F32), x), kind="sum", axes=(0, 1)),
                   s.reduce(s.convert(hit, dtype=I32), kind="sum", axes=(0,)))


def layernorm(n: int) -> Graph:
    s = Sketch()
    x, g = s.input("x", n, 24), s.input("g", 24)
    mean = s.multiply(s.reduce(x, kind="sum", axes=(1,)), 1 / 24)
    d = s.subtract(x, along(s, mean, (n, 24), 0))
    variance = s.multiply(s.reduce(s.multiply(d, d), kind="sum", axes=(1,)), 1 / 24)
    scale = along(s, s.rsqrt(s.add(variance, 1e-5)), (n, 24), 0)
    return s.graph(s.multiply(s.multiply(d, scale), along(s, g, (n, 24), 1)))


def log_loss(n: int) -> Graph:
    """A row's largest value and sum, inside a sum over rows and columns: one reduction nested in another."""
    s = Sketch()
    x, hot = s.input("x", n, 10), s.input("hot", n, 10)
    shifted = s.subtract(x, along(s, s.reduce(x, kind="max", axes=(1,)), (n, 10), 0))
    log_sum = s.log(s.reduce(s.exp(shifted), kind="sum", axes=(1,)))
    log_softmax = s.subtract(shifted, along(s, log_sum, (n, 10), 0))
    return s.graph(s.reduce(s.multiply(log_softmax, hot), kind="sum", axes=(0, 1)))


def attention(n: int) -> Graph:
    s = Sketch()
    q, k, v = s.input("q", 2, n, 8), s.input("k", 2, n, 8), s.input("v", 2, n, 8)
    scores = s.dot_general(q, k, contract=((2,), (2,)), batch=((0,), (0,)))
    e = s.exp(s.multiply(scores, 0.3))
    p = s.divide(e, along(s, s.reduce(e, kind="sum", axes=(2,)), (2, n, n), 0, 1))
    return s.graph(s.dot_general(p, v, contract=((2,), (1,)), batch=((0,), (0,))))


def flags(n: int) -> Graph:
    s = Sketch()
    a, b = s.input("a", n, dtype=BOOL), s.input("b", n, dtype=BOOL)
    return s.graph(s.select(a, s.or_(a, b), s.not_(b)))


PROGRAMS: dict[str, Callable[[int], Graph]] = {f.__name__: f for f in (
    layer, chain, softmax, total, columns, transposed, weight_gradient, strided, padded, padded_matmul,
    batched, matrix_vector, outer, relu_gradient, argmax, one_hot, layernorm, log_loss, attention, flags,
)}


def kernels_of(graph: Graph) -> Module:
    """The graph's tiled kernels."""
    module = fuse(legalize(graph), TARGET)
    return Module(module.name, tuple(tile(k, TARGET) for k in module.kernels), module.inputs, module.outputs,
                  module.constants)


def random_inputs(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    """Small numbers of each input's dtype."""
    rng = np.random.default_rng(seed)
    makers = {"f32": lambda shape: rng.normal(size=shape).astype(np.float32),
              "i32": lambda shape: rng.integers(0, 10, shape).astype(np.int32),
              "bool": lambda shape: rng.random(shape) < 0.5}
    return [makers[value.dtype.name](value.shape) for value in graph.inputs]


def agrees(graph: Graph, run: Callable[[object, dict], object], tolerance: float = 2e-5) -> bool:
    """Whether `run` on to each kernel in order, gives what numpy gives in float64, within f32's rounding.

    Errors are relative to the largest value of the output.
    """
    inputs = random_inputs(graph)
    expected = evaluate(graph, inputs, dtype64=True)
    module = kernels_of(graph)
    buffers = allocate(module, {name: x for (name, _), x in zip(module.inputs, inputs, strict=True)})
    for kernel in module.kernels:
        run(kernel, buffers)
    for (name, type), want in zip(module.outputs, expected, strict=True):
        got = buffers[name].reshape(type.shape)
        assert got.dtype == type.dtype.numpy
        largest = max(1.0, float(np.abs(want).max(initial=0)))
        np.testing.assert_allclose(got / largest, want / largest, rtol=0, atol=tolerance)
    return True
