"""What grad, vjp, jacrev and checkpoint promise; the rules themselves are checked in test_frontend_vjp.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minicc as mc
from minicc import Tensor
from minicc.frontend import functional as F
from minicc.frontend.primitives import node
from minicc.graph.evaluate import evaluate
from minicc.graph.ir import BF16, F16, F32, Graph
from minicc.graph.simplify import simplify

RANDOM = np.random.default_rng(1)


def traced(fn: Callable, *args: Any) -> Graph:
    """The raw graph of a function."""
    made = mc.jit(fn)
    return made.trace(made.take(args, {}))[0]


def exact(fn: Callable, *arrays: np.ndarray) -> list[np.ndarray]:
    """The results of a function as its graph has them in float64."""
    made = mc.jit(fn)
    graph, hidden, _ = made.trace(made.take(tuple(Tensor(array, F32) for array in arrays), {}))
    return evaluate(graph, [*arrays, *(x.numpy() for x in hidden)], dtype64=True)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape)


# -- at single points ----------------------------------------------------------------------------------------


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
    both = mc.value_and_grad(loss, argnums=(0, 1), has_aux=True)
    (value, aux), (by_params, by_x) = both(params, Tensor([3.0, 4.0]), "a")
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


# -- dtypes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [F32, BF16, F16])
def test_a_gradient_has_the_dtype_of_its_input(dtype):
    def loss(x: Tensor, w: Tensor) -> Tensor:
        y = (x @ w).tanh() * x.max(1, keepdims=True) + x.prod(1, keepdims=True)
        return (y * y).sum()

    x, w = normal(3, 3), normal(3, 3)
    gradients = mc.grad(loss, (0, 1))(Tensor(x, dtype), Tensor(w, dtype))
    assert [g.dtype for g in gradients] == [dtype, dtype]
    tolerance = 2e-5 if dtype is F32 else 0.05
    for got, want in zip(gradients, exact(mc.grad(loss, (0, 1)), x, w), strict=True):
        assert np.abs(got.numpy() - want).max() < tolerance * np.abs(want).max()


def test_a_gradient_is_converted_back_where_the_value_was_converted():
    gradient = mc.grad(lambda x: (x.astype("bf16") * 3).sum().float())(Tensor([1.0, 2.0]))
    assert gradient.dtype is F32 and gradient.tolist() == [3.0, 3.0]


def test_no_gradient_passes_through_integers_comparisons_and_steps():
    def slope(step: Callable) -> list:
        return mc.grad(lambda x: (step(x) * x).sum())(Tensor([2.25, -3.5])).tolist()

    assert slope(Tensor.int) == [2.0, -3.0] and slope(lambda x: x > 0) == [1.0, 0.0]
    values = {"floor": [2.0, -4.0], "ceil": [3.0, -3.0], "round": [2.0, -4.0], "sign": [1.0, -1.0]}
    for op, want in values.items():
        assert slope(lambda x, op=op: node(op, x)) == want


def test_choosing_before_a_function_as_well_as_after_it_keeps_nan_out_of_the_gradient():
    def careful(x: Tensor) -> Tensor:
        return mc.where(x > 0, mc.where(x > 0, x, 1.0).sqrt(), 0.0).sum()

    assert mc.grad(careful)(Tensor([0.0, 4.0])).tolist() == [0.0, 0.25]
    careless = mc.grad(lambda x: mc.where(x > 0, x.sqrt(), 0.0).sum())
    assert np.isnan(careless(Tensor([0.0, 4.0])).numpy()).tolist() == [True, False]


def test_only_the_last_of_overlapping_updates_gets_a_gradient():
    def loss(x: Tensor, updates: Tensor) -> Tensor:
        at = Tensor(np.array([1, 1, 7, 1, 2], np.int32))
        return (node("scatter", x, at, updates, axis=0, kind="set") * Tensor([1.0, 10.0, 100.0])).sum()

    by_x, by_updates = mc.grad(loss, (0, 1))(mc.zeros(3), mc.zeros(5))
    assert by_x.tolist() == [1.0, 0.0, 0.0] and by_updates.tolist() == [0.0, 0.0, 0.0, 10.0, 100.0]


def test_equal_updates_share_the_gradient_of_a_maximum_with_what_was_there():
    at = Tensor(np.array([0, 0, 0, 1], np.int32))

    def loss(x: Tensor, updates: Tensor) -> Tensor:
        return node("scatter", x, at, updates, axis=0, kind="max").sum()

    by_x, by_updates = mc.grad(loss, (0, 1))(Tensor([2.0, 0.0]), Tensor([2.0, 2.0, 1.0, 3.0]))
    np.testing.assert_allclose(by_x.numpy(), [1 / 3, 0], rtol=1e-6)
    np.testing.assert_allclose(by_updates.numpy(), [1 / 3, 1 / 3, 0, 1], rtol=1e-6)


def test_the_second_derivative_of_a_product_is_right_where_a_factor_is_zero():
    second = mc.grad(lambda x: (mc.grad(lambda y: y.prod())(x) * Tensor([0.0, 1.0, 0.0])).sum())
    assert second(Tensor([0.0, 2.0, 3.0])).tolist() == [3.0, 0.0, 0.0]  # d/dx of xz, of xyz by y


# -- vjp, jacrev, and grad of grad ---------------------------------------------------------------------------


def test_vjp_pulls_gradients_of_a_tree_back_to_trees():
    def fn(x: Tensor, p: dict) -> dict:
        return {"y": x * p["w"], "z": [x.sum()]}

    out, pullback = mc.vjp(fn, Tensor([1.0, 2.0]), {"w": Tensor([3.0, 4.0])})
    by_x, by_p = pullback({"y": Tensor([1.0, 10.0]), "z": [Tensor(100.0)]})
    assert out["y"].tolist() == [3.0, 8.0] and out["z"][0].item() == 3.0
    assert by_x.tolist() == [103.0, 140.0] and by_p["w"].tolist() == [1.0, 20.0]
    assert pullback({"y": mc.zeros(2), "z": [1.0]})[0].tolist() == [1.0, 1.0]


def test_vjp_works_under_jit_and_twice_in_one_output():
    def both(x: Tensor, g: Tensor) -> Tensor:
        (y, again), pullback = mc.vjp(lambda x: (x * x, x * x), x)
        return y + again + pullback((g, g))[0]

    assert mc.jit(both)(Tensor([3.0]), Tensor([1.0])).tolist() == [30.0]


def test_jacrev_has_the_axes_of_the_result_before_those_of_the_argument():
    a = normal(3, 4)
    jacobian = mc.jacrev(lambda x: (Tensor(a, F32) @ x).tanh())(Tensor(np.ones((4, 2)), F32)).numpy()
    slope = 1 - np.tanh(a.sum(1)) ** 2
    want = np.einsum("i,ij,kl->ikjl", slope, a, np.eye(2))
    assert jacobian.shape == (3, 2, 4, 2)
    np.testing.assert_allclose(jacobian, want, rtol=1e-5, atol=1e-6)


def test_jacrev_of_grad_is_the_hessian():
    # of x^T A x: A + A^T
    a = normal(3, 3).astype(np.float32)
    hessian = mc.jacrev(mc.grad(lambda x: x @ Tensor(a) @ x))(Tensor([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(hessian.numpy(), a + a.T, rtol=1e-5, atol=1e-5)


def test_the_gradient_of_a_gradient_times_a_vector_is_the_hessian_times_it():
    # f = sum(exp(A x)): its Hessian is A^T diag(exp(A x)) A
    a, x, v = normal(4, 3), normal(3), normal(3)

    def along(x: Tensor, v: Tensor, a: Tensor) -> Tensor:
        return (mc.grad(lambda y: (a @ y).exp().sum())(x) * v).sum()

    got, = exact(mc.grad(along), x, v, a)
    np.testing.assert_allclose(got, a.T @ (np.exp(a @ x) * (a @ v)), rtol=1e-12)


def test_a_third_derivative_is_right():
    third = mc.grad(mc.grad(mc.grad(lambda x: x.exp() * x * x)))
    np.testing.assert_allclose(third(Tensor(1.0)).item(), 13 * np.e, rtol=1e-6)  # (x^2 + 6 x + 6) e^x


# -- checkpoint ----------------------------------------------------------------------------------------------


def peak_bytes(graph: Graph) -> int:
    """The most bytes that live at once besides the inputs, if nodes run in order and go when last used."""
    order = graph.nodes()
    last = {value.node: step for step, each in enumerate(order) for value in each.operands}
    last.update({value.node: len(order) for value in graph.outputs})
    live = peak = 0
    for step, each in enumerate(order):
        live += each.types[0].bytes if each.op != "parameter" else 0
        peak = max(peak, live)
        gone = [v.node for v in dict.fromkeys(each.operands) if last[v.node] == step and v.op != "parameter"]
        live -= sum(each.types[0].bytes for each in gone)
    return peak


def block(x: Tensor, w: Tensor) -> Tensor:
    inside = (x @ w).tanh()
    return x + ((inside * inside * x).tanh() @ w).tanh()


def deep(layer: Callable, depth: int) -> Callable:
    def loss(x: Tensor, weights: list[Tensor]) -> Tensor:
        for w in weights[:depth]:
            x = layer(x, w)
        return (x * x).sum()
    return mc.value_and_grad(loss, (0, 1))


X, WEIGHTS = Tensor(normal(16, 8), F32), [Tensor(normal(8, 8) / 4, F32) for _ in range(8)]


def test_a_checkpoint_computes_again_and_keeps_less():
    plain, again = (simplify(traced(deep(layer, 8), X, WEIGHTS)) for layer in (block, mc.checkpoint(block)))
    count = [sum(each.op == "dot_general" for each in graph.nodes()) for graph in (plain, again)]
    assert count[0] == 8 * 6  # two products per block, and two more for each in the backward pass
    assert count[1] == 8 * 8  # and both once more
    assert peak_bytes(again) < 0.5 * peak_bytes(plain)


def test_what_a_checkpointed_network_keeps_grows_by_one_tensor_per_block():
    peaks = [peak_bytes(simplify(traced(deep(mc.checkpoint(block), n), X, WEIGHTS))) for n in (4, 6, 8)]
    assert peaks[1] - peaks[0] == peaks[2] - peaks[1] == 2 * X.type.bytes


@pytest.mark.parametrize("device", ["gpu", "tpu"])
def test_a_checkpoint_changes_no_value_on_any_device(device: str):
    results = [mc.compile(deep(layer, 3), X, WEIGHTS, device=device)(X, WEIGHTS)
               for layer in (block, mc.checkpoint(block))]
    for one, other in zip(*(mc.frontend.pytree.flatten(each)[0] for each in results), strict=True):
        np.testing.assert_allclose(one[1].numpy(), other[1].numpy(), rtol=2e-5, atol=1e-5)


def test_waiting_costs_no_kernel():
    module = mc.compile(deep(mc.checkpoint(block), 3), X, WEIGHTS[:3]).kernels
    assert len(module.kernels) > 3 and not any("copy" in kernel.name for kernel in module.kernels)


def test_a_checkpoint_may_close_over_tensors_take_settings_and_return_trees():
    scale = Tensor(3.0)

    @mc.checkpoint
    def fn(x: Tensor, power: int, name: str) -> dict:
        return {name: [(x ** power) * scale]}

    assert mc.grad(lambda x: fn(x, 2, name="y")["y"][0])(Tensor(5.0)).item() == 30.0
    assert fn(Tensor(5.0), 2, "y")["y"][0].item() == 75.0


def test_checkpoints_inside_each_other_and_second_derivatives_are_right():
    inner = mc.checkpoint(lambda x: x.exp())
    outer = mc.checkpoint(lambda x: inner(x * x))
    x = 0.7
    first, second = mc.grad(outer), mc.grad(mc.grad(outer))
    np.testing.assert_allclose(first(Tensor(x)).item(), 2 * x * np.exp(x * x), rtol=1e-6)
    np.testing.assert_allclose(second(Tensor(x)).item(), (2 + 4 * x * x) * np.exp(x * x), rtol=1e-6)


# -- errors --------------------------------------------------------------------------------------------------

V = Tensor([1.0, 2.0])


def multiplied(x: Tensor, updates: Tensor) -> Tensor:
    return node("scatter", x, Tensor([0, 0]), updates, axis=0, kind="prod")


PULLBACK = mc.vjp(lambda x: {"y": x * x}, V)[1]
WRONG: tuple[tuple[str, Callable, type, list[str]], ...] = (
    ("a gradient of another shape", lambda: PULLBACK({"y": mc.ones(1)}), mc.ShapeError, ["f32[1]", "f32[2]"]),
    ("a gradient of another dtype", lambda: PULLBACK({"y": V.int()}), mc.ShapeError, ["i32[2]", "f32[2]"]),
    ("a gradient that is no tensor", lambda: PULLBACK({"y": "a"}), mc.DtypeError, ["str"]),
    ("a gradient of another structure", lambda: PULLBACK([V]), mc.CompileError, ["structure"]),
    ("vjp of integers", lambda: mc.vjp(lambda x: x, Tensor([1])), mc.DtypeError, ["args[0]", "i32[1]"]),
    ("vjp with an integer result", lambda: mc.vjp(lambda x: [x, x.int()], V), mc.DtypeError, ["i32[2]"]),
    ("vjp with a number as result", lambda: mc.vjp(lambda x: 3.0, V), mc.DtypeError, ["a float"]),
    ("vjp of a tensor", lambda: mc.vjp(V, V), mc.CompileError, ["vjp(f, x)"]),
    ("jacrev of a tensor", lambda: mc.jacrev(V), mc.CompileError, ["jacrev(f)(x)"]),
    ("jacrev of a tree", lambda: mc.jacrev(lambda x: [x, x])(V), mc.ShapeError, ["a list", "one tensor"]),
    ("jacrev of nothing", lambda: mc.jacrev(lambda x: x[:0])(V), mc.ShapeError, ["f32[0]"]),
    ("checkpoint of a tensor", lambda: mc.checkpoint(V), mc.CompileError, ["checkpoint(f)(x)"]),
    ("updates of a product", lambda: mc.grad(lambda u: multiplied(V, u).sum())(V), mc.CompileError, ["prod"]),
    ("a loss of bools", lambda: mc.grad(lambda x: (x > 0).max())(V), mc.DtypeError, []),
)


@pytest.mark.parametrize("name, wrong, kind, words", WRONG, ids=[row[0] for row in WRONG])
def test_a_mistake_is_a_clear_error_at_its_line(name: str, wrong: Callable, kind: type, words: list[str]):
    with pytest.raises(kind) as caught:
        wrong()
    assert all(word in str(caught.value) for word in [*words, "test_frontend_autograd.py"]), str(caught.value)


# -- beside another library ----------------------------------------------------------------------------------


def convolved(x: Tensor, w: Tensor) -> Tensor:
    """A convolution in two groups as the graph has it, from torch's [N, C, H, W] and [O, C / 2, h, w]."""
    x, w = x.reshape(2, 2, 2, 7, 6), w.reshape(2, 3, 2, 3, 2)
    y = node("convolution", x, w, stride=(2, 1), dilation=(1, 2), low=(1, 2), high=(1, 2))
    return y.reshape(2, 6, *y.shape[3:])


def test_gradients_are_those_of_torch():
    torch = pytest.importorskip("torch")
    rows, columns = np.array([[2, 0], [0, 3]], np.int32), np.array([1, 1, 0], np.int32)
    cases = (  # ours, torch's, shapes
        (convolved, lambda x, w: torch.nn.functional.conv2d(x, w, None, (2, 1), (1, 2), (1, 2), 2),
         (2, 4, 7, 6), (6, 2, 3, 2)),
        (lambda x, w, b: F.softmax(x @ w + b).log(), lambda x, w, b: (x @ w + b).softmax(-1).log(),
         (3, 4), (4, 5), (5,)),
        (lambda x: node("gather", x, Tensor(rows), axis=0), lambda x: x[torch.tensor(rows)], (4, 3)),
        (lambda x, u: node("scatter", x, Tensor(columns), u, axis=1, kind="sum"),
         lambda x, u: x.index_add(1, torch.tensor(columns), u), (2, 3), (2, 3)),
        (lambda x: x.prod(0), lambda x: x.prod(0), (3, 2)),
        (lambda x, y: node("remainder", x, y), torch.fmod, (5,), (5,)),
        (lambda x, y: node("power", x * x, y), lambda x, y: (x * x) ** y, (5,), (5,)),
    )
    for ours, theirs, *shapes in cases:
        arrays = [normal(*shape) for shape in shapes]
        numbers = tuple(range(len(shapes)))
        found = exact(mc.grad(lambda *xs, f=ours: (f(*xs) * f(*xs)).sum(), numbers), *arrays)
        variables = [torch.tensor(array, requires_grad=True) for array in arrays]
        (theirs(*variables) ** 2).sum().backward()
        for got, want in zip(found, variables, strict=True):
            np.testing.assert_allclose(got, want.grad.numpy(), rtol=1e-9, atol=1e-9)
