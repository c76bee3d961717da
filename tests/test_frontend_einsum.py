"""Products that sum, against numpy in float64: einsum by hand and at random, by name, int8 with scales."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from meanings import meaning, same

import minicc as mc
from minicc import Tensor

RANDOM = np.random.default_rng(0)
X = Tensor(np.ones((2, 3), np.float32))


def numbers(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


SUBSCRIPTS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(3, 4), (4, 2)]), ("ij,jk", [(3, 4), (4, 2)]), ("ij,kj->ki", [(3, 4), (2, 4)]),
    ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]), ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("i,j->ij", [(3,), (4,)]), ("i,i->", [(5,), (5,)]), ("i,i->i", [(5,), (5,)]), ("ij->ji", [(3, 4)]),
    ("ij->", [(3, 4)]), ("ij->j", [(3, 4)]), ("ii->i", [(3, 3)]), ("ii", [(3, 3)]), ("iij->ji", [(3, 3, 2)]),
    ("iii->i", [(3, 3, 3)]), ("ij,ij->", [(3, 4), (3, 4)]), ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 2)]),
    ("ab,bc,cd,de", [(2, 3), (3, 4), (4, 2), (2, 5)]), ("...ij,...jk->...ik", [(2, 5, 3, 4), (4, 2)]),
    ("...i,i", [(2, 3, 4), (4,)]), ("...,...->...", [(3, 1), (4,)]), ("i...->...", [(3, 4, 2)]),
    ("...ii->...i", [(2, 3, 3)]), (" i j , j -> i ", [(3, 4), (4,)]), ("ij,j,k->k", [(3, 4), (4,), (2,)]),
    ("ij,ij->ij", [(1, 4), (3, 1)]), ("ij,jk->ik", [(3, 1), (4, 2)]), ("i,j->j", [(0,), (4,)]),
    ("ij,jk->ik", [(3, 0), (0, 2)]), ("ii,ij->i", [(3, 3), (3, 2)]), ("dcba", [(2, 3, 4, 5)]),
    (",ij->ij", [(), (2, 3)]), ("nqhd,nkhd,nkhe->nqhe", [(1, 2, 2, 3), (1, 4, 2, 3), (1, 4, 2, 5)]),
]


@pytest.mark.parametrize("subscripts, shapes", SUBSCRIPTS)
def test_einsum_means_what_it_means_in_numpy(subscripts: str, shapes: list[tuple[int, ...]]):
    arrays = [numbers(*shape) for shape in shapes]
    want = np.einsum(subscripts, *(x.astype(np.float64) for x in arrays))
    assert same(meaning(lambda *xs: mc.einsum(subscripts, *xs), *arrays), want)


def test_random_subscripts_mean_what_they_mean_in_numpy():
    sizes = {label: int(RANDOM.integers(1, 5)) for label in "abcdef"}
    for _ in range(60):
        ranks = RANDOM.integers(0, 4, RANDOM.integers(1, 4))
        terms = ["".join(RANDOM.choice(list(sizes), rank)) for rank in ranks]
        used = sorted(set("".join(terms)))
        result = "".join(RANDOM.permutation(used)[:RANDOM.integers(0, len(used) + 1)]) if used else ""
        subscripts = ",".join(terms) + "->" + result
        arrays = [numbers(*(sizes[label] for label in term)) for term in terms]
        want = np.einsum(subscripts, *(x.astype(np.float64) for x in arrays))
        assert same(meaning(lambda *xs, s=subscripts: mc.einsum(s, *xs), *arrays), want), subscripts


def test_a_matrix_product_by_einsum_is_one_dot_and_a_chain_starts_where_it_is_cheap():
    def ops(subscripts: str, *shapes: tuple[int, ...]) -> list[tuple]:
        graph = mc.compile(lambda *xs: mc.einsum(subscripts, *xs), *map(mc.ones, shapes)).graph
        return [(node.op, node.types[0].shape) for node in graph.nodes() if node.op != "parameter"]
    assert ops("ij,jk->ik", (3, 4), (4, 5)) == [("dot_general", (3, 5))]
    assert ops("ij,jk,k->i", (30, 40), (40, 50), (50,)) == [("dot_general", (40,)), ("dot_general", (30,))]


BY_NAME: dict[str, tuple[Callable, Callable, list[tuple[int, ...]]]] = {
    "tensordot": (lambda x, y: x.tensordot(y), np.tensordot, [(2, 3, 4), (3, 4, 5)]),
    "tensordot axes": (lambda x, y: x.tensordot(y, ([0, 2], [-1, 0])),
                       lambda x, y: np.tensordot(x, y, ([0, 2], [-1, 0])), [(2, 3, 4), (4, 5, 2)]),
    "tensordot 0": (lambda x, y: x.tensordot(y, 0), lambda x, y: np.tensordot(x, y, 0), [(2,), (3,)]),
    "dot": (lambda x, y: x.dot(y), np.dot, [(2, 3), (3, 4)]), "dot rows": (mc.dot, np.dot, [(3,), (3,)]),
    "dot of a batch": (mc.dot, np.dot, [(2, 3), (5, 3, 4)]), "dot of a scalar": (mc.dot, np.dot, [(), (3,)]),
    "vdot": (mc.vdot, np.vdot, [(2, 3), (3, 2)]), "inner": (mc.inner, np.inner, [(2, 3), (4, 3)]),
    "outer": (mc.outer, np.outer, [(2, 3), (4,)]), "kron": (mc.kron, np.kron, [(2, 3), (4, 1)]),
    "kron of ranks": (mc.kron, np.kron, [(3,), (2, 2, 2)]),
    "bmm": (lambda x, y: x.bmm(y), np.matmul, [(2, 3, 4), (2, 4, 5)]),
    "linear": (mc.linear, lambda x, w, b: x @ w.T + b, [(2, 5, 3), (4, 3), (4,)]),
}


@pytest.mark.parametrize("name", BY_NAME)
def test_a_product_by_name_means_what_it_means_in_numpy(name: str):
    ours, theirs, shapes = BY_NAME[name]
    arrays = [numbers(*shape) for shape in shapes]
    assert same(meaning(ours, *arrays), theirs(*(x.astype(np.float64) for x in arrays)))


def test_small_integers_are_summed_in_i32():
    x = np.full((2, 300), 127, np.int8)
    got = meaning(lambda x: mc.einsum("ij,kj->ik", x, x), x)
    assert got.dtype == np.int32 and (got == 300 * 127 * 127).all()


def test_a_quantised_product_is_off_by_what_rounding_to_127_steps_may_cost():
    x, w = numbers(5, 64), numbers(64, 7)
    (qx, sx), (qw, sw) = Tensor(x).quantize(0), Tensor(w).quantize(1)
    assert qx.dtype.name == "i8" and sx.shape == (5, 1) and sw.shape == (1, 7)
    assert np.abs(qx.numpy()).max(axis=1).tolist() == [127] * 5
    error_x, error_w = (np.abs(q.dequantize(s).numpy() - y) for q, s, y in ((qx, sx, x), (qw, sw, w)))
    assert (error_x <= sx.numpy() * 0.5001).all() and (error_w <= sw.numpy() * 0.5001).all()
    bound = np.abs(x) @ error_w + error_x @ np.abs(w) + error_x @ error_w
    got = mc.quantized_matmul(qx, sx, qw, sw).numpy()
    assert (np.abs(got - x.astype(np.float64) @ w) <= bound + 1e-4).all()
    assert Tensor([0.0, 0.0]).quantize()[0].tolist() == [0, 0]


MISTAKES: list[tuple[str, Callable, type, list[str]]] = [
    ("tensors first", lambda: mc.einsum(X, "ij"), mc.DtypeError, ["subscripts come first"]),
    ("characters that are no labels", lambda: mc.einsum("i1->i", X), mc.CompileError, ["i1->i", "letters"]),
    ("two arrows", lambda: mc.einsum("ij->i->j", X), mc.CompileError, ["malformed"]),
    ("too few operands", lambda: mc.einsum("ij,jk", X), mc.ShapeError, ["2 terms", "1 operands"]),
    ("too few labels", lambda: mc.einsum("i->i", X), mc.ShapeError, ["f32[2,3]", "rank 1", "..."]),
    ("too many labels", lambda: mc.einsum("ijk", X), mc.ShapeError, ["rank 3"]),
    ("sizes that differ", lambda: mc.einsum("ij,ij->i", X, X.T), mc.ShapeError, ["'i'", "2 and 3"]),
    ("the diagonal of no square", lambda: mc.einsum("ii", X[:1]), mc.ShapeError, ["'i' repeats"]),
    ("a label from nowhere", lambda: mc.einsum("ij->k", X), mc.CompileError, ["got k", "'ij'"]),
    ("a label twice in the result", lambda: mc.einsum("ij->ii", X), mc.CompileError, ["twice"]),
    ("dots in the middle of dots", lambda: mc.einsum("...i...", X), mc.CompileError, ["malformed"]),
    ("a batch of rows", lambda: X.bmm(X), mc.ShapeError, ["f32[2,3] and f32[2,3]", "[b,m,k]"]),
    ("axes that do not fit", lambda: X.tensordot(X, 1), mc.ShapeError, ["3", "2"]),
    ("axes that there are not", lambda: X.tensordot(X, 3), mc.ShapeError, ["not so many axes"]),
]


@pytest.mark.parametrize("mistake, kind, words", [pytest.param(*rest, id=name) for name, *rest in MISTAKES])
def test_a_mistake_is_one_clear_error_at_its_line(mistake: Callable, kind: type, words: list[str]):
    with pytest.raises(kind) as caught:
        mistake()
    assert type(caught.value) is kind and all(word in str(caught.value) for word in words), str(caught.value)
    assert caught.value.at[0].file == __file__
