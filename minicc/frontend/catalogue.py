"""The names of what picks, moves, joins, orders and contracts: name -> function, by family, for methods.py.

    METHODS["order"]["sort"] is sorting.sort  ->  mc.sort(x), x.sort(), np.sort(x)

In: the functions of the files named below. Out: two tables, of methods and of what is only a function.
Invariants: two names of one function are two rows; a name means what it means in numpy, else in torch.
OTHER_IN_NUMPY lists the names that numpy has for something else. Read next: methods.py, which holds the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minicc.frontend import convolution as conv
from minicc.frontend import diagonals, einsum, indexing, joining, shapes, sorting, updates

Families = dict[str, dict[str, Callable[..., Any]]]

METHODS: Families = {
    "sizes": {
        "reshape": shapes.reshape, "view": shapes.reshape, "flatten": shapes.flatten, "ravel": shapes.ravel,
        "contiguous": shapes.contiguous, "squeeze": shapes.squeeze, "unsqueeze": shapes.unsqueeze,
        "expand_dims": shapes.unsqueeze, "atleast_1d": shapes.atleast_1d, "atleast_2d": shapes.atleast_2d,
        "atleast_3d": shapes.atleast_3d, "broadcast_to": shapes.broadcast_to, "expand": shapes.broadcast_to,
        "tile": shapes.tile,
    },
    "axes": {
        "transpose": shapes.transpose, "permute": shapes.transpose, "swapaxes": shapes.swapaxes,
        "moveaxis": shapes.moveaxis, "movedim": shapes.moveaxis, "matrix_transpose": shapes.matrix_transpose,
        "flip": shapes.flip, "fliplr": shapes.fliplr, "flipud": shapes.flipud, "rot90": shapes.rot90,
    },
    "reading": {
        "take": indexing.take, "index_select": indexing.index_select, "gather": indexing.gather,
        "take_along_axis": indexing.take_along_axis, "select": indexing.select, "narrow": indexing.narrow,
        "dynamic_slice": indexing.dynamic_slice, "nonzero": indexing.nonzero, "unique": indexing.unique,
    },
    "writing": {
        "scatter": updates.scatter, "scatter_add": updates.scatter_add, "index_add": updates.index_add,
        "put_along_axis": updates.put_along_axis, "masked_fill": updates.masked_fill,
        "dynamic_update_slice": updates.dynamic_update_slice,
    },
    "parts": {
        "split": joining.split, "array_split": joining.array_split, "chunk": joining.chunk,
        "unbind": joining.unbind, "repeat": joining.repeat, "repeat_interleave": joining.repeat,
        "roll": joining.roll, "pad": joining.pad, "unfold": joining.unfold,
        "sliding_window_view": joining.sliding_window_view,
    },
    "diagonals": {
        "tril": diagonals.tril, "triu": diagonals.triu, "diagonal": diagonals.diagonal,
        "trace": diagonals.trace, "diag": diagonals.diag, "diag_embed": diagonals.diag_embed,
    },
    "order": {
        "sort": sorting.sort, "argsort": sorting.argsort, "topk": sorting.topk, "median": sorting.median,
        "quantile": sorting.quantile, "percentile": sorting.percentile, "diff": sorting.diff,
        "searchsorted": sorting.searchsorted, "cumsum": sorting.cumsum, "cumprod": sorting.cumprod,
        "cummax": sorting.cummax, "cummin": sorting.cummin, "bincount": sorting.bincount,
        "histogram": sorting.histogram,
    },
    "sums of products": {
        "dot": einsum.dot, "vdot": einsum.vdot, "inner": einsum.inner, "outer": einsum.outer,
        "kron": einsum.kron, "tensordot": einsum.tensordot, "bmm": einsum.bmm,
        "quantize": einsum.quantize, "dequantize": einsum.dequantize,
    },
}

ONLY_FUNCTIONS: Families = {
    "joining": {
        "concatenate": joining.concatenate, "cat": joining.concatenate, "stack": joining.stack,
        "hstack": joining.hstack, "vstack": joining.vstack, "dstack": joining.dstack,
        "broadcast_arrays": shapes.broadcast_arrays,
    },
    "contraction": {
        "einsum": einsum.einsum, "linear": einsum.linear, "quantized_matmul": einsum.quantized_matmul,
        "embedding": indexing.embedding,
    },
    "convolution": {
        "conv1d": conv.conv1d, "conv2d": conv.conv2d, "conv3d": conv.conv3d,
        "conv_transpose1d": conv.conv_transpose1d, "conv_transpose2d": conv.conv_transpose2d,
        "conv_transpose3d": conv.conv_transpose3d, "max_pool1d": conv.max_pool1d,
        "max_pool2d": conv.max_pool2d, "max_pool3d": conv.max_pool3d, "avg_pool1d": conv.avg_pool1d,
        "avg_pool2d": conv.avg_pool2d, "avg_pool3d": conv.avg_pool3d,
        "adaptive_avg_pool1d": conv.adaptive_avg_pool1d, "adaptive_avg_pool2d": conv.adaptive_avg_pool2d,
        "global_avg_pool": conv.global_avg_pool, "im2col": conv.im2col, "interpolate": conv.interpolate,
    },
}

OTHER_IN_NUMPY = ("select", "put_along_axis")
