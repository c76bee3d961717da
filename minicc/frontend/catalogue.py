"""The names of what picks, moves, joins, orders and contracts: name -> function, by family, for methods.py.

    METHODS["order"]["sort"] is sorting.sort  ->  mc.sort(x), x.sort(), np.sort(x)

In: the functions of the files named below. Out: two tables, of methods and of what is only a function.
Invariants: two names of one function are two rows; a name means what it means in numpy, else in torch.
OTHER_IN_NUMPY lists the names that numpy has for something else. Read next: methods.py, which holds the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from minicc.frontend import convolution, diagonals, einsum, indexing, joining, shapes, sorting, updates

Functions = dict[str, Callable[..., Any]]


def _of(file: ModuleType, names: str) -> Functions:
    """The functions of a file that have these names."""
    return {name: getattr(file, name) for name in names.split()}


METHODS: dict[str, Functions] = {
    "sizes": {
        **_of(shapes, "reshape flatten ravel contiguous squeeze unsqueeze atleast_1d atleast_2d atleast_3d"),
        **_of(shapes, "broadcast_to tile"), "view": shapes.reshape, "expand_dims": shapes.unsqueeze,
        "expand": shapes.broadcast_to,
    },
    "axes": {
        **_of(shapes, "transpose swapaxes moveaxis matrix_transpose flip fliplr flipud rot90"),
        "permute": shapes.transpose, "movedim": shapes.moveaxis,
    },
    "reading": _of(indexing, "take index_select take_along_axis gather select narrow dynamic_slice"
                             " nonzero unique"),
    "writing": _of(updates, "scatter scatter_add index_add put_along_axis masked_fill dynamic_update_slice"),
    "parts": {
        **_of(joining, "split array_split chunk unbind repeat roll pad unfold sliding_window_view"),
        "repeat_interleave": joining.repeat,
    },
    "diagonals": _of(diagonals, "tril triu diagonal trace diag diag_embed"),
    "order": _of(sorting, "sort argsort topk median quantile percentile searchsorted cumsum cumprod cummax"
                          " cummin diff bincount histogram"),
    "sums of products": _of(einsum, "dot vdot inner outer kron tensordot bmm quantize dequantize"),
}

ONLY_FUNCTIONS: dict[str, Functions] = {
    "joining": {
        **_of(joining, "concatenate stack hstack vstack dstack"), "cat": joining.concatenate,
        "broadcast_arrays": shapes.broadcast_arrays,
    },
    "contraction": {**_of(einsum, "einsum linear quantized_matmul"), "embedding": indexing.embedding},
    "convolution": _of(convolution, "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d"
                                    " max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d"
                                    " adaptive_avg_pool1d adaptive_avg_pool2d global_avg_pool im2col"
                                    " interpolate"),
}

OTHER_IN_NUMPY = ("select", "put_along_axis")
