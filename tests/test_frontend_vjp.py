"""Every gradient rule against central differences in float64, on small random arrays; and again on itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import minicc as mc
from minicc import Tensor
from minicc.frontend.primitives import node
from minicc.frontend.vjp import NO_GRADIENT, VJP
from minicc.graph.evaluate import evaluate
from minicc.graph.infer import OPS
from minicc.graph.ir import BF16, F16, DType, Graph

STEP = 1e-5


def traced(fn: Callable, *examples: Tensor) -> tuple[Graph, list[np.ndarray]]:
    """A function's graph, as traced, and the arrays that it closes over."""
    made = mc.jit(fn)
    graph, hidden, _ = made.trace(made.take(examples, {}))
    return graph, [x.numpy() for x in hidden]


def differences(graph: Graph, inputs: list[np.ndarray], which: int) -> np.ndarray:
    """Central differences of the graph's one output with respect to an input, in float64."""
    result = np.zeros(inputs[which].shape)
    for place in np.ndindex(*result.shape):
        ends = []
        for sign in (1, -1):
            moved = [array.copy() for array in inputs]
            moved[which][place] += sign * STEP
            ends.append(float(evaluate(graph, moved, dtype64=True)[0]))
        result[place] = (ends[0] - ends[1]) / (2 * STEP)
    return result


def weighted(fn: Callable) -> Callable:
    """The sum of fn's result times fixed weights, each another."""
    def loss(*xs: Tensor) -> Tensor:
        y = fn(*xs)
        return (y * (mc.arange(y.size).reshape(y.shape) * 0.37 + 0.5)).sum()
    return loss


def check(loss: Callable, arrays: Sequence[np.ndarray]) -> None:
    """Each gradient of the loss equals its central differences."""
    examples, numbers = [Tensor(array.astype(np.float32)) for array in arrays], tuple(range(len(arrays)))
    forward, closed_over = traced(loss, *examples)
    both, also = traced(mc.grad(loss, numbers), *examples)
    found = evaluate(both, [*arrays, *also], dtype64=True)
    for which, gradient in enumerate(found):
        want = differences(forward, [*arrays, *closed_over], which)
        scale = max(1, np.abs(want).max(initial=0))
        np.testing.assert_allclose(gradient, want, rtol=1e-5, atol=1e-6 * scale, err_msg=f"operand {which}")


def drawn(seed: object, shapes: Sequence[tuple[int, ...]], positive: bool = False) -> list[np.ndarray]:
    """Arrays of numbers of size 0.5 to 1.5, whatever their sign."""
    random = np.random.default_rng(list(map(ord, str(seed))))
    signs = [1] if positive else [-1, 1]
    return [np.asarray(random.uniform(0.5, 1.5, s) * random.choice(signs, s)) for s in shapes]


def by(op: str, **attrs: object) -> Callable:
    return lambda *xs: node(op, *xs, **attrs)


# -- elementwise ---------------------------------------------------------------------------------------------

ONE = ("negate", "abs", "exp", "expm1", "tanh", "sin", "cos")
POSITIVE = ("log", "log1p", "sqrt", "rsqrt")
TWO = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "remainder")
SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((2, 3), (2, 3)), ((2, 3), ()), ((), (3,)), ((), ()), ((1,), (1,)), ((0, 2), (0, 2)), ((0,), ()))


@pytest.mark.parametrize("op", ONE + POSITIVE)
def test_an_elementwise_rule_equals_central_differences(op: str):
    for shape in ((2, 3), (), (1,), (0, 2)):
        check(weighted(by(op)), drawn(op, [shape], op in POSITIVE))


@pytest.mark.parametrize("op", (*TWO, "power"))
def test_a_rule_of_two_operands_equals_central_differences_for_each_and_for_scalars(op: str):
    for shapes in SHAPES:
        check(weighted(by(op)), drawn((op, shapes), shapes, op == "power"))


@pytest.mark.parametrize("op", ("tanh", "rsqrt", "log1p", "expm1", "sin", "divide", "power", "multiply"))
def test_the_rules_of_smooth_ops_have_the_right_rules_again(op: str):
    shapes = [(2,)] if op in ONE + POSITIVE else [(2,), ()]
    loss = weighted(by(op))
    for which in range(len(shapes)):
        check(weighted(mc.grad(loss, which)), drawn(op, shapes, positive=True))


# -- all others ----------------------------------------------------------------------------------------------

INDICES = np.array([[2, 0, 2], [-1, 5, 1]], np.int32)  # with a repetition, and two that lie outside


def convolve(stride: Sequence, dilation: Sequence, low: Sequence, high: Sequence) -> Callable:
    return by("convolution", stride=stride, dilation=dilation, low=low, high=high)


def scattered(kind: str, axis: int) -> Callable:
    return lambda x, updates: node("scatter", x, Tensor(INDICES), updates, axis=axis, kind=kind)


def starting(op: str, *starts: int, **attrs: object) -> Callable:
    return lambda *xs: node(op, *xs, *[Tensor(start) for start in starts], **attrs)


def scatter_prod(x: Tensor) -> Tensor:
    return scattered("prod", 0)(x, Tensor([[3., 2., 5.], [7., 9., 4.]], x.dtype))


def product_to_f32(x: Tensor, y: Tensor) -> Tensor:
    return node("dot_general", x.astype("bf16"), y.astype("bf16"), dtype="f32", contract=((1,), (0,)))


CASES: dict[str, tuple] = {
    # name: function, shapes of the arguments
    "select": (lambda x, y: node("select", x > 0, x * y, y), (2, 3), (2, 3)),
    "select of scalars": (lambda x, y: node("select", Tensor([True, False]), x, y), (), ()),
    "convert": (lambda x: x.astype("bf16").astype("f16").float() * x.int(), (3,)),
    "broadcast": (by("broadcast_in_dim", shape=(4, 2, 3), dims=(1, 2)), (2, 1)),
    "broadcast of a scalar": (by("broadcast_in_dim", shape=(2, 3), dims=()), ()),
    "broadcast out of order": (by("broadcast_in_dim", shape=(2, 3, 4), dims=(2, 0)), (4, 2)),
    "broadcast to nothing": (by("broadcast_in_dim", shape=(0, 3), dims=(0, 1)), (1, 3)),
    "reshape": (by("reshape", shape=(3, 2)), (2, 3)),
    "transpose": (by("transpose", perm=(2, 0, 1)), (2, 3, 4)),
    "reverse": (by("reverse", axes=(0, 2)), (2, 3, 2)),
    "slice": (by("slice", start=(1, 0), limit=(3, 4), stride=(1, 3)), (3, 5)),
    "slice of nothing": (lambda x: node("slice", x, start=(1,), limit=(1,)).sum() + x.sum(), (3,)),
    "pad": (by("pad", low=(1, 0), high=(0, 2), interior=(2, 0)), (2, 3), ()),
    "pad of nothing": (by("pad", low=(1, 0), high=(0, 2), interior=(2, 1)), (2, 0), ()),
    "concatenate": (by("concatenate", axis=1), (2, 3), (2, 0), (2, 1)),
    "concatenate with itself": (lambda x: node("concatenate", x, x * x, x, axis=0), (2,)),
    "sum": (by("reduce", kind="sum", axes=(1,)), (2, 3)),
    "sum of nothing": (by("reduce", kind="sum", axes=(0,)), (0, 3)),
    "max": (by("reduce", kind="max", axes=(0, 2)), (2, 3, 2)),
    "min": (by("reduce", kind="min", axes=(1,)), (3, 4)),
    "prod": (by("reduce", kind="prod", axes=(0, 2)), (2, 3, 3)),
    "prod of one": (by("reduce", kind="prod", axes=(0,)), (1, 2)),
    "prod of nothing": (by("reduce", kind="prod", axes=(1,)), (2, 0)),
    "matrix product": (lambda x, y: x @ y, (2, 3), (3, 4)),
    "row times matrix": (lambda x, y: x @ y, (3,), (3, 4)),
    "inner product": (lambda x, y: x @ y, (3,), (3,)),
    "batches": (lambda x, y: x @ y, (5, 2, 3), (5, 3, 4)),
    "batch times matrix": (lambda x, y: x @ y, (5, 2, 3), (3, 4)),
    "matrix times batch": (lambda x, y: x @ y, (2, 3), (2, 3, 2)),
    "product over nothing": (lambda x, y: x @ y, (2, 0), (0, 3)),
    "product to f32": (product_to_f32, (2, 3), (3, 2)),
    "convolution": (convolve([1], [1], [0], [0]), (2, 1, 3, 6), (1, 2, 3, 3)),
    "convolution in groups": (convolve([2], [1], [1], [0]), (2, 2, 1, 6), (2, 2, 1, 2)),
    "convolution with a rest": (convolve([3, 2], [1, 2], [0, 1], [1, 0]), (1, 1, 2, 6, 6), (1, 2, 2, 2, 2)),
    "convolution of padding": (convolve([1, 3], [1, 1], [3, 5], [2, 4]), (1, 1, 1, 2, 1), (1, 1, 1, 2, 1)),
    "convolution in space": (convolve([1, 2, 1], [1, 1, 1], [1, 0, 0], [0, 1, 0]),
                             (1, 1, 1, 2, 2, 2), (1, 1, 1, 2, 2, 1)),
    "convolution of no channels": (convolve([1], [1], [0], [0]), (1, 1, 0, 3), (1, 2, 0, 2)),
    "gather": (lambda x: node("gather", x, Tensor(INDICES), axis=1), (2, 4)),
    "gather by one": (lambda x: node("gather", x, Tensor(2), axis=0), (3, 2)),
    "gather by none": (lambda x: node("gather", x, Tensor(INDICES[:0]), axis=0).sum() + x.sum(), (3,)),
    "scatter set": (scattered("set", 0), (4, 2), (2, 3, 2)),
    "scatter sum": (scattered("sum", 1), (2, 3), (2, 2, 3)),
    "scatter max": (scattered("max", 0), (4,), (2, 3)),
    "scatter min": (scattered("min", 0), (3, 2), (2, 3, 2)),
    "scatter prod": (scatter_prod, (4,)),
    "dynamic_slice": (starting("dynamic_slice", 3, 0, sizes=(2, 2)), (4, 3)),
    "dynamic_update_slice": (starting("dynamic_update_slice", 0, -7), (2, 4), (2, 3)),
    "optimization_barrier": (by("optimization_barrier"), (2,), (3,)),
    "softmax": (lambda x: x.softmax(), (2, 4)),
    "log_softmax": (lambda x: x.log_softmax(0), (3, 2)),
    "logsumexp": (lambda x: x.logsumexp(1), (2, 3)),
    "variance": (lambda x: x.var(-1), (2, 4)),
    "gelu": (lambda x: x.gelu(), (3,)),
    "sigmoid": (lambda x: x.sigmoid(), (3,)),
    "cross_entropy": (lambda x: mc.functional.cross_entropy(x, Tensor([0, 2])), (2, 3)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_gradient_equals_central_differences(name: str):
    fn, *shapes = CASES[name]
    check(weighted(fn), drawn(name, shapes))


@pytest.mark.parametrize("name", CASES)
def test_a_second_derivative_equals_central_differences_of_the_first(name: str):
    fn, *shapes = CASES[name]
    loss = weighted(lambda *xs: fn(*[x * x for x in xs]))
    check(weighted(mc.grad(loss)), drawn(name, shapes))


@pytest.mark.parametrize("dtype", [BF16, F16])
def test_every_gradient_has_the_dtype_of_its_argument(dtype: DType):
    for name, (fn, *shapes) in CASES.items():
        examples = [Tensor(array, dtype) for array in drawn(name, shapes)]
        graph, _ = traced(mc.grad(weighted(fn), tuple(range(len(shapes)))), *examples)
        assert [value.type for value in graph.outputs] == [x.type for x in examples], name


@pytest.mark.parametrize("seed", range(8))
def test_a_dot_over_any_axes_has_the_right_gradients(seed: int):
    # x[b, i, k, l] . y[l, j, b, k] over k and l, batched over b, with the axes of both in random order
    sizes, random = {"b": 2, "i": 3, "j": 2, "k": 3, "l": 2}, np.random.default_rng(seed)
    left, right = ("".join(random.permutation(list(names))) for names in ("bikl", "ljbk"))
    pairs = {"contract": (tuple(map(left.index, "kl")), tuple(map(right.index, "kl"))),
             "batch": ((left.index("b"),), (right.index("b"),))}
    shapes = [tuple(sizes[axis] for axis in side) for side in (left, right)]
    check(weighted(by("dot_general", **pairs)), drawn(seed, shapes))


@pytest.mark.parametrize("seed", range(12))
def test_a_random_convolution_has_the_right_gradients(seed: int):
    random = np.random.default_rng(seed)
    stride, dilation, low, high, taps = (random.integers(least, 4, 2) for least in (1, 1, 0, 0, 1))
    batch, groups, channels, results = random.integers(1, 3, 4)
    size = np.maximum((taps - 1) * dilation + 1 - low - high, 0) + random.integers(1, 4, 2)
    fn = convolve(stride, dilation, low, high)
    check(weighted(fn), drawn(seed, [(batch, groups, channels, *size), (groups, results, channels, *taps)]))


def test_every_op_has_a_rule_or_a_reason_to_have_none():
    assert sorted([*VJP, *NO_GRADIENT]) == sorted(OPS)
    assert all(NO_GRADIENT.values())


def test_every_rule_is_among_those_checked_here():
    examples = {name: [Tensor(x.astype(np.float32)) for x in drawn(name, shapes)]
                for name, (_, *shapes) in CASES.items()}
    used = {each.op for name, (fn, *_) in CASES.items() for each in traced(fn, *examples[name])[0].nodes()}
    assert set(VJP) <= used | {*ONE, *POSITIVE, *TWO, "power"}
