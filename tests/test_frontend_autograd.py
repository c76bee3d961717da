"""Gradients against finite differences in float64, on random shapes; and what grad says of itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import minicc as mc
from minicc import Tensor
from minicc.frontend import functional as F
from minicc.frontend.primitives import node
from minicc.graph.evaluate import evaluate

RANDOM = np.random.default_rng(1)


def numeric_gradient(graph, inputs: list[np.ndarray], which: int, step: float = 1e-5) -> np.ndarray:
    """Central differences of the graph's first output, everything in float64."""
    result = np.zeros(inputs[which].shape)
    for place in np.ndindex(*result.shape):
        ends = []
        for sign in (1, -1):
            moved = [array.copy() for array in inputs]
            moved[which][place] += sign * step
            ends.append(float(evaluate(graph, moved, dtype64=True)[0]))
        result[place] = (ends[0] - ends[1]) / (2 * step)
    return result


def check_gradients(fn: Callable, *shapes: tuple[int, ...], positive: bool = False) -> None:
    """Each gradient of sum(fn * fixed weights), as the graph has it, equals the numeric one."""
    arrays = [np.asarray(RANDOM.uniform(0.5, 1.5, shape)) for shape in shapes]
    if not positive:
        arrays = [np.asarray(array * RANDOM.choice([-1, 1], array.shape)) for array in arrays]
    examples = [Tensor(array.astype(np.float32)) for array in arrays]

    def loss(*xs: Tensor) -> Tensor:
        y = fn(*xs)
        return (y * (mc.arange(y.size).reshape(y.shape) * 0.37 + 0.5)).sum()

    compiled = mc.compile(mc.value_and_grad(loss, argnums=tuple(range(len(shapes)))), *examples)
    both, arrays = compiled.raw_graph, arrays + [x.numpy() for x in compiled.hidden]
    found = evaluate(both, arrays, dtype64=True)[1:]
    for which, gradient in enumerate(found):
        want = numeric_gradient(both, arrays, which)
        assert gradient.shape == want.shape
        np.testing.assert_allclose(gradient, want, rtol=1e-6, atol=1e-7 * max(1, np.abs(want).max(initial=0)))


def padded(x: Tensor) -> Tensor:
    # a pad with gaps, from a slice's gradient
    return mc.grad(lambda y: (y[:, 1:7:2] * x).sum())(mc.ones(2, 9))


CASES: dict[str, tuple] = {
    "negate": (lambda x: -x, (3,)), "abs": (abs, (2, 3)), "exp": (lambda x: x.exp(), (2, 3)),
    "tanh": (lambda x: x.tanh(), (4,)), "subtract": (lambda x, y: x - y, (2, 3), (3,)),
    "add a column": (lambda x, y: x + y, (2, 3), (2, 1)), "multiply": (lambda x, y: x * y, (2, 3), (1, 3)),
    "a scalar operand": (lambda x, y: x * y, (2, 3), ()), "outer": (lambda x, y: x * y, (3, 1), (2, 1, 4)),
    "divide": (lambda x, y: x / y, (2, 3), (3,)), "maximum": (lambda x, y: mc.maximum(x, y), (2, 3), (3,)),
    "minimum": (lambda x, y: mc.minimum(x, y), (2, 3), ()), "relu": (lambda x: x.relu(), (5,)),
    "where": (lambda x, y: mc.where(x > 0, x * y, y), (2, 3), ()), "power": (lambda x: x ** 3 + x ** -2,
                                                                             (3,)),
    "reshape": (lambda x: x.reshape(3, 2), (2, 3)), "transpose": (lambda x: x.transpose(2, 0, 1), (2, 3, 4)),
    "broadcast": (lambda x: x.broadcast_to(4, 2, 3), (2, 1)), "slice": (lambda x: x[1:, ::2], (3, 5)),
    "index": (lambda x: x[1], (3, 2)), "empty slice": (lambda x: x[2:2].sum() + x.sum(), (3,)),
    "pad": (padded, (2, 3)),
    "sum": (lambda x: x.sum(1), (2, 3)), "mean": (lambda x: x.mean((0, 2)), (2, 3, 2)),
    "max": (lambda x: x.max(1), (3, 4)), "min": (lambda x: x.min(0, keepdims=True), (3, 4)),
    "prod": (lambda x: x.prod(0), (3, 2)), "var": (lambda x: x.var(-1), (2, 4)),
    "softmax": (lambda x: x.softmax(), (2, 4)), "log_softmax": (lambda x: x.log_softmax(0), (3, 2)),
    "logsumexp": (lambda x: x.logsumexp(1), (2, 3)), "sigmoid": (lambda x: x.sigmoid(), (3,)),
    "gelu": (lambda x: x.gelu(), (3,)), "cross_entropy": (lambda x: F.cross_entropy(x, Tensor([0, 2])), (2,
                                                                                                         3)),
    "dot": (lambda x, y: x @ y, (2, 3), (3, 4)), "row dot": (lambda x, y: x @ y, (3,), (3, 4)),
    "inner": (lambda x, y: x @ y, (3,), (3,)), "batched dot": (lambda x, y: x @ y, (5, 2, 3), (5, 3, 4)),
    "batch by matrix": (lambda x, y: x @ y, (5, 2, 3), (3, 4)), "matrix by batch": (lambda x, y: x @ y, (2,
                                                                                                         3),
                                                                                                         (5,
                                                                                                          3,
                                                                                                          2)),
    "transposed dot": (lambda x, y: (x.T @ y.T).T, (3, 2), (4, 3)), "convert": (lambda x: x.float() * x.int(),
                                                                                (3,)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_gradient_equals_finite_differences(name: str):
    check_gradients(*CASES[name])


@pytest.mark.parametrize("function", [Tensor.log, Tensor.sqrt, Tensor.rsqrt])
def test_a_gradient_on_positive_numbers_equals_finite_differences(function: Callable):
    check_gradients(function, (2, 3), positive=True)


@pytest.mark.parametrize("seed", range(8))
def test_a_dot_over_any_axes_has_the_right_gradients(seed: int):
    # x[b, i, k, l] . y[l, j, b, k] over k and l, batched over b, with the axes of both in random order
    sizes, random = {"b": 2, "i": 3, "j": 2, "k": 3, "l": 2}, np.random.default_rng(seed)
    left, right = ("".join(random.permutation(list(names))) for names in ("bikl", "ljbk"))
    pairs = {"contract": (tuple(map(left.index, "kl")), tuple(map(right.index, "kl"))),
             "batch": ((left.index("b"),), (right.index("b"),))}
    check_gradients(lambda x, y: node("dot_general", x, y, **pairs),
                    tuple(sizes[a] for a in left), tuple(sizes[a] for a in right))


def test_equal_maxima_share_the_gradient_evenly():
    assert mc.grad(lambda x: x.max())(Tensor([1.0, 3.0, 3.0])).tolist() == [0.0, 0.5, 0.5]


def test_relu_at_zero_has_gradient_zero():
    assert mc.grad(lambda x: x.relu().sum())(Tensor([-1.0, 0.0, 2.0])).tolist() == [0.0, 0.0, 1.0]


def test_the_gradient_of_a_product_is_right_where_factors_are_zero():
    gradient = mc.grad(lambda x: x.prod(1).sum())
    # one zero: only its own derivative is left; two zeros: none
    assert gradient(Tensor([[0.0, 2.0, 3.0], [0.0, 0.0, 3.0]])).tolist() == [[6.0, 0.0, 0.0], [0.0, 0.0, 0.0]]


def test_a_second_derivative_is_a_gradient_of_a_gradient():
    # x^4: 12 x^2 = 48 at 2; softmax's shift by the maximum leaves no trace in either order
    assert mc.grad(mc.grad(lambda x: x ** 4))(Tensor(2.0)).item() == 48.0
    second = mc.grad(lambda x: mc.grad(lambda y: y.logsumexp())(x)[0])(Tensor([0.0, 0.0]))
    np.testing.assert_allclose(second.numpy(), [0.25, -0.25], rtol=1e-6)


def test_grad_follows_trees_argnums_and_aux():
    def loss(params: dict, x: Tensor, name: str):
        return (params["w"] * x + params["b"][0]).sum(), {"name": name, "twice": x * 2}

    params = {"w": Tensor([1.0, 2.0]), "b": [Tensor(3.0)]}
    (value, aux), (by_params, by_x) = mc.value_and_grad(loss, argnums=(0, 1), has_aux=True)(params,
                                                                                            Tensor([3.0,
                                                                                                    4.0]),
                                                                                                    "a")
    assert value.item() == 17.0 and aux["name"] == "a" and aux["twice"].tolist() == [6.0, 8.0]
    assert by_params["w"].tolist() == [3.0, 4.0] and by_params["b"][0].item() == 2.0
    assert by_x.tolist() == [1.0, 2.0]


def test_an_argument_is_a_variable_even_if_the_function_could_compute_it_again():
    x = Tensor([1.0, 2.0])
    y = x * 2
    assert mc.grad(lambda v: (v * (x * 2)).sum())(y).tolist() == [2.0, 4.0]


def test_what_the_loss_does_not_depend_on_has_gradient_zero():
    assert mc.grad(lambda x, y: (y * 2.0).sum())(Tensor([1.0, 2.0]), Tensor([3.0])).tolist() == [0.0, 0.0]


def test_no_gradient_flows_through_stop_gradient():
    assert mc.grad(lambda x: (x * F.stop_gradient(x * 3)).sum())(Tensor([2.0])).tolist() == [6.0]


def test_a_backward_node_names_the_line_of_its_forward_node():
    def loss(x: Tensor) -> Tensor:
        y = x.tanh()
        return y.sum()

    graph = mc.compile(mc.grad(loss), Tensor([1.0])).raw_graph
    line = loss.__code__.co_firstlineno + 1
    backward = [node for node in graph.nodes() if node.op == "subtract"]  # 1 - tanh^2
    assert backward and all(line in [loc.line for loc in graph.lines(node)] for node in backward)
