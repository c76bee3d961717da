"""Convolution, pooling and resizing of images and their kin: batch first, channels second, as in torch.

    x: f32[8,3,32,32], w: f32[16,3,3,3]
    conv2d(x, w)         ->  convolution(x as [8,1,3,32,32], w as [1,16,3,3,3])    groups are an axis
    max_pool2d(x, 2)     ->  reduce(x as [8,3,16,2,32]) kind=max axes=[3], and so along the other axis
    max_pool2d(x, 3, 2)  ->  maximum(maximum(x[:,:,:30:2], x[:,:,1:31:2]), x[:,:,2:32:2]), likewise

In: x[batch, channels, *space] (or without the batch), weights[out, in / groups, *kernel]. Out: the same kind.
Arguments are torch's: stride, padding, dilation, each one number or one per axis of space; padding may be
"valid" or "same" (out = in / stride, rounded up). Invariants: what these mean on the graph is in one place,
`_convolved`; a pool is separable, so its work is the sum of the window's sides and not their product.

XLA has one convolution op with every dimension order, and reduce_window; cuDNN chooses among direct, FFT and
Winograd ones. Read next: functional.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any

from minicc.errors import CompileError
from minicc.frontend import ops
from minicc.frontend.indexing import take
from minicc.frontend.joining import concatenate, repeat, stack, windows
from minicc.frontend.primitives import TensorLike, as_integer, as_integers, as_tensor, first_in_f32, node
from minicc.frontend.scope import fail
from minicc.frontend.shapes import cut, flip, reshape, resized, swapaxes, unsqueeze
from minicc.frontend.sorting import limit

if TYPE_CHECKING:
    from minicc.frontend.tensor import Tensor

Sizes = tuple[int, ...]


def _per_axis(op: str, name: str, value: Any, rank: int, least: int) -> Sizes:
    """A setting as one number per axis of space."""
    given = as_integers(op, value)
    sizes = given * rank if len(given) == 1 else given
    if len(sizes) != rank or min(sizes, default=least) < least:
        fail(op, f"{name} does not fit", value, f"one number, or {rank}, of {least} or more")
    return sizes


def _batched(op: str, x: Tensor, rank: int) -> Tensor:
    """x[batch, channels, *space], with a batch of 1 if it has none."""
    if x.ndim not in (rank + 1, rank + 2):
        need = f"{rank + 2}: batch, channels, and {rank} of space; or no batch"
        fail(op, "the input has another rank", x.type, need)
    return x if x.ndim == rank + 2 else unsqueeze(x, 0)


def _padding(op: str, x: Tensor, kernel: Sizes, stride: Sizes, padding: Any,
             dilation: Sizes) -> tuple[Sizes, Sizes]:
    """The widths before and after each axis of space."""
    rank = len(kernel)
    if not isinstance(padding, str):
        widths = _per_axis(op, "padding", padding, rank, 0)
        return widths, widths
    if padding not in ("same", "valid"):
        fail(op, "there is no such padding", repr(padding), "numbers, 'same' or 'valid'", kind=CompileError)
    if padding == "valid":
        return (0,) * rank, (0,) * rank
    sizes = zip(x.shape[2:], kernel, stride, dilation, strict=True)
    whole = [max(0, (-(-n // step) - 1) * step + (k - 1) * hole + 1 - n) for n, k, step, hole in sizes]
    return tuple(width // 2 for width in whole), tuple(width - width // 2 for width in whole)


def _operands(op: str, x: TensorLike, weight: TensorLike, rank: int, groups: Any,
              inputs: Callable[[Tensor], int]) -> tuple[Tensor, Tensor, bool]:
    """x with a batch, the weights, and whether the batch was there. inputs: the channels that they take."""
    given, weight = ops.dot_operands(x, weight)
    x, count = _batched(op, given, rank), as_integer(op, groups, 1)
    if weight.ndim != rank + 2 or weight.shape[0] % count or x.shape[1] != inputs(weight):
        got = f"{weight.type} for {given.type} in {groups} groups"
        need = "[out, in / groups, *kernel], a transpose [in, out / groups, *kernel]; groups that divide them"
        fail(op, "the weights do not fit the input", got, need)
    return x, weight, given is x


def _convolved(op: str, x: Tensor, weight: Tensor, groups: int, low: Sizes, high: Sizes, stride: Sizes,
               dilation: Sizes) -> Tensor:
    """The graph's convolution, whose groups are an axis: x[n,g*c,*s], weight[g*o,c,*k] -> [n,g*o,*s']."""
    reach = [(k - 1) * hole + 1 for k, hole in zip(weight.shape[2:], dilation, strict=True)]
    for axis, (size, need) in enumerate(zip(x.shape[2:], reach, strict=True)):
        if size + low[axis] + high[axis] < need:
            got = f"{x.type}, axis {axis + 2} padded by {low[axis]} and {high[axis]}"
            fail(op, "the kernel is larger than the padded input", got, f"{need} or more along that axis")
    apart = resized(x, 1, groups, x.shape[1] // groups)
    weights = resized(weight, 0, groups, weight.shape[0] // groups)
    result = node("convolution", apart, weights, stride=stride, dilation=dilation, low=low, high=high)
    return reshape(result, [x.shape[0], weight.shape[0], *result.shape[3:]])


def _with_bias(op: str, y: Tensor, bias: TensorLike, batched: bool) -> Tensor:
    """y with a number added to each channel; without the batch that was not there."""
    if bias is not None:
        bias = as_tensor(bias)
        if bias.shape != y.shape[1:2]:
            fail(op, "the bias does not fit", bias.type, f"one number for each of {y.shape[1]} channels")
        y = y + reshape(bias, [y.shape[1], *(1 for _ in y.shape[2:])])
    return y if batched else reshape(y, y.shape[1:])


def _conv(rank: int) -> Callable[..., Tensor]:
    op = f"conv{rank}d"

    def conv(x: TensorLike, weight: TensorLike, bias: TensorLike = None, stride: Any = 1, padding: Any = 0,
             dilation: Any = 1, groups: int = 1) -> Tensor:
        x, weight, batched = _operands(op, x, weight, rank, groups, lambda w: w.shape[1] * groups)
        steps = _per_axis(op, "stride", stride, rank, 1)
        holes = _per_axis(op, "dilation", dilation, rank, 1)
        low, high = _padding(op, x, weight.shape[2:], steps, padding, holes)
        return _with_bias(op, _convolved(op, x, weight, groups, low, high, steps, holes), bias, batched)

    conv.__name__ = conv.__qualname__ = op
    conv.__doc__ = (f"The convolution over {rank} axes of space, the kernel not flipped. "
                    "Shapes: x[n,c,*space], weight[o,c/groups,*kernel], bias[o] -> [n,o,*space'].")
    return conv


def _conv_transpose(rank: int) -> Callable[..., Tensor]:
    op = f"conv_transpose{rank}d"

    def conv_transpose(x: TensorLike, weight: TensorLike, bias: TensorLike = None, stride: Any = 1,
                       padding: Any = 0, output_padding: Any = 0, groups: int = 1,
                       dilation: Any = 1) -> Tensor:
        x, weight, batched = _operands(op, x, weight, rank, groups, lambda w: w.shape[0])
        steps = _per_axis(op, "stride", stride, rank, 1)
        holes = _per_axis(op, "dilation", dilation, rank, 1)
        before = _per_axis(op, "padding", padding, rank, 0)
        more = _per_axis(op, "output_padding", output_padding, rank, 0)
        inputs, outputs, *kernel = weight.shape
        turned = swapaxes(flip(resized(weight, 0, groups, inputs // groups), range(3, rank + 3)), 1, 2)
        x = node("pad", x, as_tensor(0, x.dtype), low=[0] * x.ndim, high=[0] * x.ndim,
                 interior=[0, 0, *(step - 1 for step in steps)])
        low = [(k - 1) * hole - width for k, hole, width in zip(kernel, holes, before, strict=True)]
        high = [width + extra for width, extra in zip(low, more, strict=True)]
        for axis in range(rank):  # a padding wider than the kernel's reach cuts off
            x = cut(x, axis + 2, max(0, -low[axis]), x.shape[axis + 2] - max(0, -high[axis]))
        y = _convolved(op, x, reshape(turned, [groups * outputs, inputs // groups, *kernel]), groups,
                       tuple(max(0, n) for n in low), tuple(max(0, n) for n in high), (1,) * rank, holes)
        return _with_bias(op, y, bias, batched)

    conv_transpose.__name__ = conv_transpose.__qualname__ = op
    conv_transpose.__doc__ = (f"The transpose of a convolution over {rank} axes: its gradient by the input. "
                              "Shapes: x[n,c,*space], weight[c,o/groups,*kernel], bias[o] -> [n,o,*space'].")
    return conv_transpose


conv1d, conv2d, conv3d = map(_conv, (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = map(_conv_transpose, (1, 2, 3))

# -- pooling -------------------------------------------------------------------------------------------------


def _pooled(x: Tensor, axis: int, size: int, step: int, kind: str) -> Tensor:
    """The maximum or the sum of each window along one axis."""
    if size == step and x.shape[axis] >= size:
        count = x.shape[axis] // size
        apart = resized(cut(x, axis, 0, count * size), axis, count, size)
        return node("reduce", apart, kind=kind, axes=(axis + 1,))
    combine = ops.maximum if kind == "max" else ops.add
    return reduce(combine, windows(x, axis, size, step))


def _pool(kind: str, rank: int) -> Callable[..., Tensor]:
    op = f"{'max' if kind == 'max' else 'avg'}_pool{rank}d"

    def pool(x: TensorLike, kernel_size: Any, stride: Any = None, padding: Any = 0) -> Tensor:
        given = as_tensor(x)
        x = _batched(op, given, rank)
        kernel = _per_axis(op, "kernel_size", kernel_size, rank, 1)
        steps = kernel if stride is None else _per_axis(op, "stride", stride, rank, 1)
        low, high = _padding(op, x, kernel, steps, padding, (1,) * rank)
        if any(2 * width > size for width, size in zip(high, kernel, strict=True)):
            fail(op, "padding is wider than half the window", padding, f"half of {list(kernel)} at most")
        if any(low + high):
            fill = limit(x.dtype, False) if kind == "max" else as_tensor(0, x.dtype)
            x = node("pad", x, fill, low=(0, 0, *low), high=(0, 0, *high))
        for axis in range(rank):
            x = _pooled(x, axis + 2, kernel[axis], steps[axis], kind)
        x = x / math.prod(kernel) if kind == "sum" else x
        return x if given.ndim == rank + 2 else reshape(x, x.shape[1:])

    pool.__name__ = pool.__qualname__ = op
    words = "largest element" if kind == "max" else "mean (of padding's zeros too)"
    pool.__doc__ = f"The {words} of each window over the last {rank} axes; stride: that of the window's size."
    return first_in_f32(pool) if kind == "sum" else pool


max_pool1d, max_pool2d, max_pool3d = (_pool("max", rank) for rank in (1, 2, 3))
avg_pool1d, avg_pool2d, avg_pool3d = (_pool("sum", rank) for rank in (1, 2, 3))


@first_in_f32
def _adaptive_avg_pool(x: Tensor, output_size: Any, rank: int) -> Tensor:
    _batched("adaptive_avg_pool", x, rank)
    counts = _per_axis("adaptive_avg_pool", "output_size", output_size, rank, 1)
    for axis, count in enumerate(counts, x.ndim - rank):
        size = x.shape[axis]
        bounds = [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]
        sums = [ops.sum(cut(x, axis, *at), axis, True) / max(at[1] - at[0], 1) for at in bounds]
        x = concatenate(sums, axis)
    return x


def adaptive_avg_pool1d(x: TensorLike, output_size: Any) -> Tensor:
    """So many means along the last axis, of parts as equal as can be."""
    return _adaptive_avg_pool(x, output_size, 1)


def adaptive_avg_pool2d(x: TensorLike, output_size: Any) -> Tensor:
    """So many means along the last two axes, of parts as equal as can be."""
    return _adaptive_avg_pool(x, output_size, 2)


@first_in_f32
def global_avg_pool(x: TensorLike) -> Tensor:
    """The mean over space. Shapes: x[n,c,*space] -> [n,c]."""
    if x.ndim < 3:
        fail("global_avg_pool", "there is no space", x.type, "[batch, channels, *space]")
    return ops.sum(x, range(2, x.ndim)) / max(math.prod(x.shape[2:]), 1)


# -- patches and sizes ---------------------------------------------------------------------------------------


def im2col(x: TensorLike, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """The patches under a moving window as columns: torch's functional.unfold.

    Shapes: x[n,c,h,w] -> [n, c * kernel, places], channels slowest, then the rows of the window.
    """
    x = as_tensor(x)
    if x.ndim != 4:
        fail("im2col", "the input has another rank", x.type, "4: batch, channels, rows, columns")
    kernel, holes, steps = (_per_axis("im2col", name, value, 2, 1) for name, value in (
        ("kernel_size", kernel_size), ("dilation", dilation), ("stride", stride)))
    low, high = _padding("im2col", x, kernel, steps, padding, holes)
    x = node("pad", x, as_tensor(0, x.dtype), low=(0, 0, *low), high=(0, 0, *high))
    rows = stack(windows(x, 2, kernel[0], steps[0], holes[0]), 2)        # n c ky y w
    patches = stack(windows(rows, 4, kernel[1], steps[1], holes[1]), 3)  # n c ky kx y x
    n, c, ky, kx, height, width = patches.shape
    return reshape(patches, [n, c * ky * kx, height * width])


def interpolate(x: TensorLike, size: Any = None, scale_factor: Any = None, mode: str = "nearest") -> Tensor:
    """x resized along its axes of space: each new element is the old one at or before its place, as in torch.

    size: of the result; or scale_factor: a whole number of times, or one per axis.
    """
    x = as_tensor(x)
    rank = x.ndim - 2
    if rank < 1 or mode != "nearest" or (size is None) == (scale_factor is None):
        got = f"{x.type}, mode {mode!r}, size {size}, scale_factor {scale_factor}"
        need = "[n,c,*space], 'nearest', and one of size and scale_factor"
        fail("interpolate", "these do not fit", got, need, kind=CompileError)
    if size is None:
        factors = _per_axis("interpolate", "scale_factor", scale_factor, rank, 1)
        size = [n * factor for n, factor in zip(x.shape[2:], factors, strict=True)]
    for axis, wanted in enumerate(_per_axis("interpolate", "size", size, rank, 1), 2):
        old = x.shape[axis]
        if old and wanted % old == 0:
            x = repeat(x, wanted // old, axis)
        else:
            x = take(x, [i * old // wanted for i in range(wanted)], axis)
    return x
