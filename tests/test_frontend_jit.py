"""Tracing and compiling: when a function is traced again, what is shared, whose lines an error names."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import minicc as mc
from minicc import Tensor, compiler
from minicc.frontend.pytree import flatten, unflatten

X = Tensor([[1.0, 2.0], [3.0, 4.0]])


def counting(fn):
    """The function, and a list that grows each time it is traced."""
    traces = []

    def counted(*args, **kwargs):
        traces.append(1)
        return fn(*args, **kwargs)

    return counted, traces


def test_a_function_is_traced_once_per_shapes_dtypes_and_static_values():
    fn, traces = counting(lambda x, power=2: x ** power)
    jitted = mc.jit(fn, static_argnames="kwargs")
    for x in (X, X + 1, Tensor(np.ones((2, 2), np.float32))):
        jitted(x)
    assert len(traces) == 1
    jitted(Tensor([1.0]))
    jitted(Tensor([1]))
    assert len(traces) == 3


def test_each_static_value_is_compiled_for():
    power = mc.jit(lambda x, n: x ** n, static_argnames=("n",))
    assert power(X, 2).tolist() == [[1, 4], [9, 16]] and power(X, n=3).tolist() == [[1, 8], [27, 64]]
    assert len(power.programs) == 2


@dataclass(frozen=True)
class Config:
    factor: float


@pytest.mark.parametrize("hold, read", [
    (lambda n: n, lambda by: by), (lambda n: (2, n), lambda by: by[1]), (Config, lambda by: by.factor),
    (lambda n: (Config((n,)),), lambda by: by[0].factor[0]),
])
def test_static_values_that_python_finds_equal_are_different_settings(hold: Callable, read: Callable):
    scaled = mc.jit(lambda x, by: x * read(by), static_argnames="by")
    kinds = [scaled(Tensor([1, 2]), hold(number)).dtype.kind for number in (1, 1.0, True, 1.0)]
    assert kinds == ["i", "f", "i", "f"] and len(scaled.programs) == 3


def test_trees_go_in_and_come_out():
    Pair = namedtuple("Pair", "first second")
    swap = mc.jit(lambda tree: {"p": Pair(tree["b"][1], tree["a"]), "n": None, "l": [tree["b"][0]]})
    result = swap({"a": X, "b": (Tensor(1), Tensor(2.0))})
    assert type(result["p"]).__name__ == "Pair" and result["p"].first.item() == 2.0 and result["n"] is None
    assert result["p"].second.tolist() == X.tolist() and result["l"][0].item() == 1


def test_flatten_and_unflatten_are_inverse_and_name_each_leaf():
    tree = {"w1": 1, "rest": [2, (3, None)], "a b": {}}
    leaves, structure = flatten(tree, "params")
    assert [path for path, _ in leaves] == ["params.rest[0]", "params.rest[1][0]", "params.w1"]
    assert unflatten(structure, [leaf for _, leaf in leaves]) == tree


def test_parameters_are_named_after_the_arguments():
    compiled = mc.compile(lambda params, *rest, **more: params["w1"] + rest[0] + more["z"], {"w1": X}, X, z=X)
    assert [v.node.attrs["name"] for v in compiled.raw_graph.inputs] == ["params.w1", "rest.0", "more.z"]


def test_a_tensor_closed_over_is_a_hidden_input_and_no_constant():
    weights = Tensor(np.arange(4, dtype=np.float32).reshape(2, 2)) + 1  # lazy, and computed when needed
    compiled = mc.compile(lambda x: x @ weights, X)
    assert [v.node.attrs["name"] for v in compiled.raw_graph.inputs] == ["x", "closure0"]
    assert all(node.op != "constant" for node in compiled.raw_graph.nodes())
    np.testing.assert_array_equal(compiled(X).numpy(), X.numpy() @ weights.numpy())


def test_jit_inside_jit_and_inside_grad_is_traced_along():
    inner = mc.jit(lambda x: x * x)
    assert mc.jit(lambda x: inner(x) + 1)(Tensor(3.0)).item() == 10.0
    assert mc.grad(inner)(Tensor(3.0)).item() == 6.0 and mc.jit(mc.grad(inner))(Tensor(3.0)).item() == 6.0
    assert inner.programs == {}


def test_numbers_and_arrays_are_accepted_as_arguments():
    scale = mc.jit(lambda x, by: x * by)
    assert scale(X, 2.0).tolist() == [[2, 4], [6, 8]] and len(scale.programs) == 1
    assert scale(X, 3.0).tolist() == [[3, 6], [9, 12]] and len(scale.programs) == 1
    assert scale(X.numpy(), np.float32(2)).tolist() == [[2, 4], [6, 8]]


def test_jit_is_a_decorator_and_works_on_methods():
    class Model:
        @mc.jit(static_argnames="self")
        def double(self, x: Tensor) -> Tensor:
            """Twice x."""
            return x * 2

    assert Model().double(X).tolist() == [[2, 4], [6, 8]] and Model.double.__doc__ == "Twice x."


def test_a_training_loop_compiles_once(monkeypatch: pytest.MonkeyPatch):
    compiles = []
    monkeypatch.setattr("minicc.frontend.jit.compile_graph", lambda *a,
                        **k: compiles.append(1) or compile_graph(*a, **k))
    compile_graph = compiler.compile_graph
    optimiser = mc.optim.SGD(0.1, momentum=0.9)

    @mc.jit
    def step(w, state, x):
        loss, gradient = mc.value_and_grad(lambda w: ((x @ w) ** 2).mean())(w)
        w, state = optimiser.step(w, gradient, state)
        return w, state, loss

    w = Tensor([1.0, 1.0])
    state, losses = optimiser.init(w), []
    for _ in range(30):
        w, state, loss = step(w, state, X * 0.3)
        losses.append(loss.item())
    assert len(compiles) == 1 and losses[-1] < losses[0] / 10


def test_a_training_loop_without_jit_compiles_once_too():
    optimiser, w, sizes = mc.optim.SGD(0.1), Tensor([1.0, 1.0]), []
    for _ in range(4):
        loss, gradient = mc.value_and_grad(lambda w: ((X @ w) ** 2).mean())(w)
        loss.item()
        w, _ = optimiser.step(w, gradient)
        sizes.append(len(compiler._cache))
    assert sizes[0] == sizes[-1]


def test_a_loss_and_its_gradients_are_one_program_run_once(monkeypatch: pytest.MonkeyPatch):
    runs: list = []
    monkeypatch.setattr(compiler, "on_run", [lambda compiled, seconds: runs.append(compiled)])
    loss, gradient = mc.value_and_grad(lambda w: ((X @ w) ** 2).mean())(Tensor([1.0, 1.0]))
    assert (loss.item(), gradient.tolist()) == (29.0, [24.0, 34.0]) and len(runs) == 1


def test_compiling_a_jitted_function_for_a_device_keeps_its_settings():
    cubed = mc.compile(mc.jit(lambda x, n: x ** n, static_argnames="n"), X, 3, device="tpu")
    assert cubed.device == "tpu:v5e" and cubed(X, 3).tolist() == [[1, 8], [27, 64]]


def test_sgd_with_momentum_steps_as_by_hand():
    sgd = mc.optim.SGD(0.5, momentum=0.5)
    params, state = sgd.step([Tensor(1.0)], [Tensor(2.0)], sgd.init([Tensor(1.0)]))
    assert params[0].item() == 0.0 and state["velocity"][0].item() == 2.0  # v = 2, p = 1 - 0.5 * 2
    params, state = sgd.step(params, [Tensor(1.0)], state)
    assert params[0].item() == -1.0 and state["velocity"][0].item() == 2.0  # v = 0.5 * 2 + 1, p = 0 - 0.5 * 2


# -- the cache, lines, slots ---------------------------------------------------------------------------------


def function_in(file: str, name: str):
    """f(x, w) = x @ w, as if written on line 3 of a file."""
    space: dict = {}
    exec(compile(f"\n\ndef {name}(x, w): return (x @ w).exp()", file, "exec"), space)
    return space[name]


def test_two_functions_of_one_structure_in_two_files_share_a_program_but_not_their_lines():
    first = mc.compile(function_in("first.py", "f"), X, X)
    size = len(compiler._cache)
    second = mc.compile(function_in("second.py", "g"), X, X)
    assert len(compiler._cache) == size
    for compiled, file in ((first, "first.py"), (second, "second.py")):
        graph = compiled.graph
        lines = {str(loc) for node in graph.nodes() if node.operands for loc in graph.lines(node)}
        assert lines == {f"{file}:3"}


def test_every_level_speaks_of_its_own_function_and_arguments():
    for fn, names in ((lambda x, w: (x @ w).tanh(), "xw"), (lambda a, b: (a @ b).tanh(), "ab")):
        fn.__name__ = f"of_{names}"
        compiled = mc.compile(fn, X, X, device="tpu")
        for level, keyword in ((compiled.graph, "graph"), (compiled.kernels, "module")):
            assert str(level).startswith(f"{keyword} of_{names}({names[0]}: f32[2,2], {names[1]}: f32[2,2])")
        assert str(compiled.program).startswith(f"program of_{names}\n")
        assert f"hbm {names[0]}: f32[2,2] input" in str(compiled.program)


def test_an_error_in_either_of_two_files_names_its_own_line():
    for file in ("first.py", "second.py"):
        with pytest.raises(mc.ShapeError, match=rf"at {file}:3"):
            mc.jit(function_in(file, "f"))(X, Tensor([1.0, 2.0, 3.0]))


def test_a_slot_is_called_and_never_shares_a_program():
    calls = []

    def mine(graph):
        calls.append(graph)
        return graph

    def other(graph):
        return mine(graph)

    double = mc.jit(lambda x: x + x + 17)
    want = double(X).tolist()
    for function in (mine, other):
        with mc.using(simplify=function):
            assert double(X).tolist() == want
    assert len(calls) == 2
    with mc.using(simplify=mine):
        double(X)  # remembered, and still counts as used


def test_a_slot_that_does_nothing_is_an_error():
    with pytest.raises(mc.CompileError, match="never called"), mc.using(simplify=lambda graph: graph):
        X + 1
    with pytest.raises(mc.CompileError, match="returned the wrong"), mc.using(simplify=lambda graph: None):
        (X * 23).numpy()
    with pytest.raises(mc.CompileError, match="no such slot(.|\n)*simplify"), mc.using(simplyfi=lambda g: g):
        pass


def test_a_list_that_holds_itself_is_a_clear_error():
    endless: list = [X]
    endless.append(endless)
    with pytest.raises(mc.CompileError, match="tree: a list or dict holds itself"):
        mc.jit(lambda tree: tree[0])(endless)
