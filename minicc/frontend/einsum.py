"""Products that sum over axes: einsum and what it is a short way of writing; int8 products with scales.

    einsum("bij,bjk->bik", x, y)   ->  dot_general(x, y) batch=[0]x[0] contract=[2]x[1]
    einsum("i,j->ij", x, y)        ->  multiply(broadcast_in_dim(x) .., broadcast_in_dim(y) ..)
    einsum("ii->i", x)             ->  slice(reshape(x) ..) with a stride: the diagonal

In: subscripts and tensors. Out: a tensor. Each operand is an array whose axes have labels. Labels that repeat
in one operand are its diagonal; what no one else needs is summed away at once; then, while there are several
operands, the pair whose product is cheapest becomes one: a dot if it sums over something, else a multiply.
Invariants: a label has one size, or 1, which broadcasts; small integers are summed in i32.

numpy takes the operands from left to right unless told otherwise; opt_einsum, which JAX and torch call, looks
for the best order of all pairs. Read next: convolution.py.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

from minicc.errors import CompileError, DtypeError, a_type
from minicc.frontend import ops
from minicc.frontend.diagonals import diagonal
from minicc.frontend.primitives import TensorLike, as_float, as_integer, as_tensor, node, normal_axes
from minicc.frontend.scope import fail
from minicc.frontend.shapes import reshape, transpose, unsqueeze
from minicc.graph.ir import F32, I8

if TYPE_CHECKING:
    from minicc.frontend.tensor import Tensor

ELLIPSIS_AXES = "0123456789"  # the labels of the axes that '...' stands for, the last one first


class Labelled(NamedTuple):
    """A tensor and a label for each of its axes."""

    tensor: Tensor
    labels: str


# -- subscripts ----------------------------------------------------------------------------------------------


def _parsed(subscripts: str, operands: list[Tensor]) -> tuple[list[str], str]:
    """The labels of each operand and of the result, with digits for the axes of '...'."""
    given, arrow, result = subscripts.replace(" ", "").replace("...", "*").partition("->")
    terms = given.split(",")
    wrong = [c for c in given + result if not (c.isascii() and c.isalpha()) and c not in "*,"]
    if wrong or "," in result or any(term.count("*") > 1 for term in (*terms, result)):
        fail("einsum", "the subscripts are malformed", repr(subscripts), "letters, ',', '...' and one '->'",
             "'ij,jk->ik'", CompileError)
    if len(terms) != len(operands):
        fail("einsum", "subscripts and operands do not pair up",
             f"{len(terms)} terms in {subscripts!r}, {len(operands)} operands", "equally many")
    labels = []
    for term, x in zip(terms, operands, strict=True):
        rest = x.ndim - len(term.replace("*", ""))
        if rest < 0 or (rest and "*" not in term) or rest > len(ELLIPSIS_AXES):
            fail("einsum", f"the subscripts {term.replace('*', '...')!r} do not fit their operand", x.type,
                 f"rank {len(term.replace('*', ''))}", "'...' for further axes in front")
        labels.append(term.replace("*", ELLIPSIS_AXES[:rest][::-1]))
    used = Counter("".join(labels))
    more = "".join(sorted((label for label in used if label in ELLIPSIS_AXES), reverse=True))
    if not arrow:
        return labels, more + "".join(sorted(label for label in used if used[label] == 1 and label.isalpha()))
    result = result.replace("*", more)
    unknown = [label for label in result if label not in used or result.count(label) > 1]
    if unknown:
        fail("einsum", "the result has labels that no operand has, or twice", "".join(unknown),
             f"different ones of {''.join(used)!r}", kind=CompileError)
    return labels, result


def _sizes(terms: list[Labelled]) -> dict[str, int]:
    """Label -> its size; 1 gives way to others."""
    sizes: dict[str, int] = {}
    for x, labels in terms:
        for label, size in zip(labels, x.shape, strict=True):
            if sizes.setdefault(label, size) == 1:
                sizes[label] = size
            elif size not in (1, sizes[label]):
                got = f"{sizes[label]} and {size} (of {x.type})"
                fail("einsum", f"sizes of {label!r} differ", got, "equal, or 1")
    return sizes


# -- one term, two terms, all --------------------------------------------------------------------------------


def _plain(x: Tensor, labels: str, sizes: dict[str, int]) -> Labelled:
    """A term without labels that repeat, and without axes of size 1 that only stretch."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            one, two = labels.index(label), labels.rindex(label)
            if x.shape[one] != x.shape[two]:
                fail("einsum", f"{label!r} repeats for different sizes", x.type, "a square, for its diagonal")
            x = diagonal(x, 0, one, two)
            labels = labels[:one] + labels[one + 1:two] + labels[two + 1:] + label
    kept = [i for i, label in enumerate(labels) if x.shape[i] == sizes[label]]
    return Labelled(reshape(x, [x.shape[i] for i in kept]), "".join(labels[i] for i in kept))


def _summed(term: Labelled, needed: str) -> Labelled:
    """A term summed over the labels that nobody needs."""
    unused = [i for i, label in enumerate(term.labels) if label not in needed]
    x = ops.sum(term.tensor, unused) if unused else term.tensor
    return Labelled(x, "".join(label for label in term.labels if label in needed))


def _cost(one: Labelled, two: Labelled, sizes: dict[str, int]) -> int:
    return math.prod(sizes[label] for label in {*one.labels, *two.labels})


def contracted(left: Labelled, right: Labelled, needed: str) -> Labelled:
    """The product of two terms, summed over the labels they share that are not needed."""
    x, y = left.labels, right.labels
    shared = [label for label in x if label in y]
    batch = [label for label in shared if label in needed]
    contract = [label for label in shared if label not in needed]
    if not contract:
        labels = x + "".join(label for label in y if label not in x)
        return Labelled(_spread(left, labels) * _spread(right, labels), labels)
    labels = "".join([*batch, *(label for label in x + y if label not in shared)])
    axes = {name: (tuple(map(x.index, chosen)), tuple(map(y.index, chosen)))
            for name, chosen in (("batch", batch), ("contract", contract))}
    return Labelled(node("dot_general", *ops.dot_operands(left.tensor, right.tensor), **axes), labels)


def _spread(term: Labelled, labels: str) -> Tensor:
    """A term with its axes in the order of labels, and axes of size 1 for those it lacks."""
    order = [label for label in labels if label in term.labels]
    x = transpose(term.tensor, [term.labels.index(label) for label in order])
    return unsqueeze(x, [i for i, label in enumerate(labels) if label not in order])


def einsum(subscripts: str, *operands: TensorLike) -> Tensor:
    """The sum of products that the subscripts describe: einsum("ij,jk->ik", x, y) is x @ y.

    Without an arrow the result has the labels that occur once, in alphabetical order. '...' stands for all
    further axes, which broadcast.
    """
    if not isinstance(subscripts, str):
        fail("einsum", "the subscripts come first", a_type(subscripts), "'ij,jk->ik'",
             kind=DtypeError)
    tensors = [as_tensor(x) for x in operands]
    names, result = _parsed(subscripts, tensors)
    terms = [Labelled(x, labels) for x, labels in zip(tensors, names, strict=True)]
    sizes = _sizes(terms)
    terms = [_plain(x, labels, sizes) for x, labels in terms]
    names = [labels for _, labels in terms]
    terms = [_summed(term, result + "".join(names[:i] + names[i + 1:])) for i, term in enumerate(terms)]
    while len(terms) > 1:
        one, two = min(combinations(terms, 2), key=lambda pair: _cost(pair[0], pair[1], sizes))
        terms = [term for term in terms if term is not one and term is not two]
        terms.insert(0, contracted(one, two, result + "".join(term.labels for term in terms)))
    return _spread(terms[0], result)


# -- by name -------------------------------------------------------------------------------------------------


def tensordot(x: TensorLike, y: TensorLike, axes: Any = 2) -> Tensor:
    """The sum over so many last axes of x and first of y; or over these axes of x and those of y."""
    x, y = ops.dot_operands(x, y)
    if isinstance(axes, tuple | list) and len(axes) == 2:
        left, right = normal_axes("tensordot", x, axes[0]), normal_axes("tensordot", y, axes[1])
    else:
        count = as_integer("tensordot", axes, 0)
        if count > min(x.ndim, y.ndim):
            fail("tensordot", "there are not so many axes", axes, f"as many as {x.type} and {y.type} have")
        left = normal_axes("tensordot", x, range(x.ndim - count, x.ndim))
        right = normal_axes("tensordot", y, range(count))
    return node("dot_general", x, y, contract=(left, right))


def dot(x: TensorLike, y: TensorLike) -> Tensor:
    """Over the last axis of x and the last but one of y, as numpy has it; with a scalar, the product."""
    x, y = as_tensor(x), as_tensor(y)
    return tensordot(x, y, (-1, max(-2, -y.ndim))) if x.ndim and y.ndim else x * y


def vdot(x: TensorLike, y: TensorLike) -> Tensor:
    """The sum of the products of all elements."""
    return tensordot(reshape(x, -1), reshape(y, -1), 1)


def inner(x: TensorLike, y: TensorLike) -> Tensor:
    """Over the last axes of both; with a scalar, the product."""
    x, y = as_tensor(x), as_tensor(y)
    return tensordot(x, y, (-1, -1)) if x.ndim and y.ndim else x * y


def outer(x: TensorLike, y: TensorLike) -> Tensor:
    """Every element of x times every one of y: out[i, j] = x[i] * y[j], of the flat tensors."""
    return unsqueeze(reshape(x, -1), 1) * reshape(y, -1)


def kron(x: TensorLike, y: TensorLike) -> Tensor:
    """Kronecker's product: each element of x times the whole of y, in its place."""
    x, y = as_tensor(x), as_tensor(y)
    rank = max(x.ndim, y.ndim)
    x, y = (reshape(z, (1,) * (rank - z.ndim) + z.shape) for z in (x, y))
    product = unsqueeze(x, range(1, 2 * rank, 2)) * unsqueeze(y, range(0, 2 * rank, 2))
    return reshape(product, [m * n for m, n in zip(x.shape, y.shape, strict=True)])


def bmm(x: TensorLike, y: TensorLike) -> Tensor:
    """A batch of matrix products. Shapes: [b,m,k] @ [b,k,n] = [b,m,n]."""
    x, y = as_tensor(x), as_tensor(y)
    if x.ndim != 3 or y.ndim != 3 or x.shape[0] != y.shape[0]:
        got = f"{x.type} and {y.type}"
        fail("bmm", "these are not batches of as many matrices", got, "[b,m,k] and [b,k,n]")
    return ops.matmul(x, y)


def linear(x: TensorLike, weight: TensorLike, bias: TensorLike = None) -> Tensor:
    """x @ weight.T + bias, as torch stores the weights. Shapes: x[...,i], weight[o,i], bias[o] -> [...,o]."""
    product = inner(x, weight)
    return product if bias is None else product + as_tensor(bias)


# -- int8 ----------------------------------------------------------------------------------------------------


def quantize(x: TensorLike, axis: Any = ()) -> tuple[Tensor, Tensor]:
    """x as i8 times a scale: the largest magnitude becomes 127; a scale for all, or one along each of `axis`.

    The scale keeps the axes of x, so that values * scale is x but for rounding.
    """
    x = as_float(x)
    kept = normal_axes("quantize", x, axis)
    others = [i for i in range(x.ndim) if i not in kept]
    largest = ops.max(ops.absolute(x), others, True) if x.size else as_tensor(0.0)
    scale = ops.where(largest == 0, 1.0, largest / 127.0).astype(F32)
    return ops.rint(x / scale).astype(I8), scale


def dequantize(values: TensorLike, scale: TensorLike) -> Tensor:
    """The floats that quantised values stand for."""
    return ops.astype(values, F32) * scale


def quantized_matmul(x: TensorLike, x_scale: TensorLike, y: TensorLike, y_scale: TensorLike) -> Tensor:
    """The product of two quantised matrices as floats: an i8 product in i32, times both scales.

    Scales are for the whole, or for each row of x, [m,1], and each column of y, [1,n].
    """
    return dequantize(ops.matmul(x, y), as_tensor(x_scale) * as_tensor(y_scale))
