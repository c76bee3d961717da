"""The list of all operations, written as API.md beside this file: our names, numpy's, torch's, and the gist.

    python -m minicc.frontend.api > minicc/frontend/API.md

Goes in: the tables of methods.py. Comes out: Markdown, one row per function, and what is left out and why. A
test compares the file with what this writes, so it cannot go stale. Read next: methods.py.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from minicc.frontend import catalogue, methods
from minicc.frontend.methods import Function

# what numpy and torch call a function that they have under none of our names
IN_NUMPY = {
    "norm": "linalg.norm", "unsqueeze": "expand_dims", "topk": "partition", "gather": "take_along_axis",
    "index_select": "take", "cummax": "maximum.accumulate", "cummin": "minimum.accumulate",
    "sliding_window_view": "lib.stride_tricks.sliding_window_view", "put_along_axis": "put_along_axis",
    "rand": "random.rand", "randn": "random.randn", "seed": "random.seed",
}
IN_TORCH = {
    "absolute": "abs", "mod": "remainder", "rint": "round", "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift", "array_equal": "equal", "equal": "eq", "ptp": "aminmax",
    "average": "mean", "norm": "linalg.vector_norm", "astype": "Tensor.to", "identity": "eye",
    "stop_gradient": "Tensor.detach",
    "broadcast_arrays": "broadcast_tensors", "matrix_transpose": "Tensor.mT", "view": "reshape",
    "expand": "Tensor.expand", "contiguous": "Tensor.contiguous", "repeat": "repeat_interleave",
    "array_split": "tensor_split", "pad": "nn.functional.pad", "unfold": "Tensor.unfold",
    "sliding_window_view": "Tensor.unfold", "im2col": "nn.functional.unfold", "transpose": "permute",
    "take_along_axis": "take_along_dim", "put_along_axis": "Tensor.scatter", "seed": "manual_seed",
    "log_sigmoid": "nn.functional.logsigmoid", "quantize": "quantize_per_tensor", "asarray": "as_tensor",
}
OF_NETWORKS = (  # in torch.nn.functional, if the name begins so
    "leaky_relu", "elu", "celu", "selu", "gelu", "silu", "mish", "soft", "hard", "tanhshrink", "relu",
    "log_softmax", "cross", "one_hot", "linear", "embedding", "interpolate", "conv", "max_pool", "avg_pool",
    "adaptive")
NOT_IN_TORCH = {
    "divmod", "cbrt", "nanprod", "nanvar", "nanstd", "nanmax", "nanmin", "percentile", "geomspace", "tri",
    "dequantize", "quantized_matmul", "dynamic_slice", "dynamic_update_slice", "global_avg_pool"}
LEFT_OUT = {
    "complex numbers, float64, int64": "machines of this kind compute in 32 bits or less",
    "x[i] = v, out=, where=, in-place methods (add_)": "tensors never change: x.at[i].set(v) makes a new one",
    "x[mask] of lazy data, nonzero, unique, compress": "the shape of the result would depend on the data",
    "gcd, lcm, nextafter, frexp": "loops or bits that the graph has no op for",
    "linalg.solve, inv, svd, eigh, qr, cholesky; fft": "algorithms with loops, which come with a while op",
    "lgamma, digamma, i0": "rarely needed in networks",
    "strings, dates, records, object arrays": "no machine here computes on them",
}


HEAD = """# What tensors can do

Written by `python -m minicc.frontend.api`. Each name is a function of `minicc`; those of the first part are
methods of `Tensor` too. `np.f(tensor)` works for every name of numpy's that is one of ours. Operators:
`+ - * / // % ** @ & | ^ << >> ~`, abs, divmod, comparisons, `x[...]`, and `x.at[...]` to write.
""".splitlines()


def markdown() -> str:
    """The text of API.md."""
    lines = [*HEAD, "## Methods and functions", ""]
    for family, names in methods.BY_FAMILY.items():
        lines += _table(family, names)
    lines += ["## Functions only", ""]
    for family, names in methods.ONLY_FUNCTIONS.items():
        lines += _table(family, names)
    lines += ["## Random numbers, in `mc.random`", ""]
    lines += [f"- {name}: {_summary(function)}" for name, function in methods.RANDOM.items()] + [""]
    lines += ["## Left out", ""] + [f"- {what}: {why}." for what, why in LEFT_OUT.items()]
    return "\n".join(lines) + "\n"


def _table(family: str, names: Mapping[str, Function]) -> list[str]:
    """One family: a row per function with all its names."""
    of: dict[Function, list[str]] = {}
    for name, function in names.items():
        of.setdefault(function, []).append(name)
    rows = [f"| {', '.join(known)} | {_numpy(known)} | {_torch(known)} | {_summary(function)} |"
            for function, known in of.items()]
    return [f"### {family}", "", "| name | numpy | torch | what it gives |", "|---|---|---|---|", *rows, ""]


def _numpy(names: list[str]) -> str:
    own = [name for name in names if hasattr(np, name) and name not in catalogue.OTHER_IN_NUMPY]
    return own[0] if own else next((IN_NUMPY[name] for name in names if name in IN_NUMPY), "")


def _torch(names: list[str]) -> str:
    if NOT_IN_TORCH & {*names}:
        return ""
    other = [IN_TORCH[name] for name in names if name in IN_TORCH]
    return other[0] if other else "nn.functional." * names[0].startswith(OF_NETWORKS) + names[0]


def _summary(function: Function) -> str:
    """The first sentence of the docstring, on one line."""
    first = (function.__doc__ or "").strip().split("\n\n")[0]
    return " ".join(first.split()).replace("|", "\\|")


if __name__ == "__main__":
    print(markdown(), end="")
