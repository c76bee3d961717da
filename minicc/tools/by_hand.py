"""The programs of workloads.py in numpy, with the gradients of the training steps worked out by hand.

    by_hand(WORKLOADS["f_mlp_train"])(params, data)  ->  what the workload gives, in the dtype of its inputs

Goes in: arrays. Comes out: arrays: in float32 the rival of `minicc bench`, in float64 the truth. Invariant:
no tape, no graph, nothing of the compiler: each step is there forwards and backwards, and a test takes
central differences. llm.c trains GPT-2 in C in this manner, with one function forward and one backward per
layer. Read next: bench.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from minicc.tools.workloads import EPSILON, RATE, Arrays, Shared, Workload, run_gpt_train, run_mlp_train

Array = np.ndarray
GELU_CUBE, GELU_SCALE = 0.044715, 0.7978845608


class Numpy(Shared):
    """The vocabulary of the workloads, for arrays. It has no `grad`: the functions below do without."""

    exp, log, sqrt, tanh, concat = np.exp, np.log, np.sqrt, np.tanh, staticmethod(np.concatenate)
    relu = staticmethod(lambda x: np.maximum(x, 0))
    sigmoid = staticmethod(lambda x: 1 / (1 + np.exp(-x)))
    repeat_heads = staticmethod(lambda x, times: np.repeat(x, times, 1))
    where = staticmethod(lambda condition, x, y: np.where(condition != 0, x, y))

    @staticmethod
    def conv2d(x: Array, w: Array) -> Array:
        """One matrix product: every 3x3 patch as a row, every filter as a column."""
        (batch, channels, height, width), filters = x.shape, len(w)
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        patches = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))  # (B, C, H, W, 3, 3)
        rows = patches.transpose(0, 2, 3, 1, 4, 5).reshape(-1, channels * 9)
        return (rows @ w.reshape(filters, -1).T).reshape(batch, height, width, filters).transpose(0, 3, 1, 2)


def _dense(dy: Array, x: Array, w: Array) -> Arrays:
    """Of y = x @ w + b: the gradients of x, w and b."""
    rows, columns = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
    return [dy @ w.T, rows.T @ columns, columns.sum(0)]


def _norm(x: Array) -> tuple[Array, Array]:
    """Rows of mean 0 and variance 1, and what each was multiplied by."""
    centred = x - x.mean(-1, keepdims=True)
    scale = 1 / np.sqrt((centred * centred).mean(-1, keepdims=True) + EPSILON)
    return centred * scale, scale


def _norm_back(dy: Array, normed: Array, scale: Array, weight: Array) -> Arrays:
    """Of y = normed * weight + bias: the gradients of x, weight and bias."""
    inner = dy * weight
    along = (inner * normed).mean(-1, keepdims=True)
    dx = scale * (inner - inner.mean(-1, keepdims=True) - normed * along)
    return [dx, (dy * normed).sum((0, 1)), dy.sum((0, 1))]


def _stepped(loss: Array, params: Arrays, gradients: Sequence[Array]) -> Arrays:
    return [loss, *(p - g * RATE for p, g in zip(params, gradients, strict=True))]


def mlp_train(params: Arrays, data: Arrays) -> Arrays:
    """Softmax of logits z against classes y: the gradient of z is (softmax - y) / rows."""
    (x, classes), inputs, gradients = data, Arrays(), Arrays()
    for layer in range(0, len(params), 2):
        inputs.append(np.maximum(x, 0) if layer else x)
        x = inputs[-1] @ params[layer] + params[layer + 1]
    shifted = x - x.max(-1, keepdims=True)
    weights = np.exp(shifted)
    total = weights.sum(-1, keepdims=True)
    loss = -((shifted - np.log(total)) * classes).sum() / len(classes)
    dy = (weights / total - classes) / len(classes)
    for layer in reversed(range(len(inputs))):
        dx, *found = _dense(dy, inputs[layer], params[2 * layer])
        gradients[:0] = found
        dy = dx * (inputs[layer] > 0)
    return _stepped(loss, params, gradients)


def gpt_train(params: Arrays, data: Arrays, h: int = 8) -> Arrays:
    """A block, forwards and then backwards, line by line."""
    scale1, shift1, w_qkv, b_qkv, w_out, b_out, scale2, shift2, w_up, b_up, w_down, b_down = params
    (x, mask, target), (batch, length, d) = data, data[0].shape
    normed1, factor1 = _norm(x)
    y1 = normed1 * scale1 + shift1
    q, k, v = (y1 @ w_qkv + b_qkv).reshape(batch, length, 3, h, d // h).transpose(2, 0, 3, 1, 4)
    score = q @ k.swapaxes(2, 3) * (d // h) ** -0.5 + mask
    weights = np.exp(score - score.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)  # (B, h, T, T)
    mixed = (weights @ v).transpose(0, 2, 1, 3).reshape(x.shape)
    x2 = x + mixed @ w_out + b_out
    normed2, factor2 = _norm(x2)
    y2 = normed2 * scale2 + shift2
    up = y2 @ w_up + b_up
    bend = np.tanh((up + GELU_CUBE * up * up * up) * GELU_SCALE)
    active = up * 0.5 * (bend + 1)
    error = x2 + active @ w_down + b_down - target

    d_out = error * (2 / error.size)
    d_active, *d_down = _dense(d_out, active, w_down)
    slope = 0.5 * up * (1 - bend * bend) * GELU_SCALE * (1 + 3 * GELU_CUBE * up * up)
    dy2, *d_up = _dense(d_active * (0.5 * (bend + 1) + slope), y2, w_up)
    dx2, *d_norm2 = _norm_back(dy2, normed2, factor2, scale2)
    d_mixed, *d_wo = _dense(d_out + dx2, mixed, w_out)
    d_mixed = d_mixed.reshape(batch, length, h, d // h).transpose(0, 2, 1, 3)
    d_weights = d_mixed @ v.swapaxes(2, 3)
    d_score = weights * (d_weights - (d_weights * weights).sum(-1, keepdims=True)) * (d // h) ** -0.5
    d_qkv = np.stack([d_score @ k, d_score.swapaxes(2, 3) @ q, weights.swapaxes(2, 3) @ d_mixed])
    dy1, *d_wqkv = _dense(d_qkv.transpose(1, 3, 0, 2, 4).reshape(batch, length, 3 * d), y1, w_qkv)
    d_norm1 = _norm_back(dy1, normed1, factor1, scale1)[1:]
    gradients = [*d_norm1, *d_wqkv, *d_wo, *d_norm2, *d_up, *d_down]
    return _stepped((error * error).mean(), params, gradients)


BY_HAND: Mapping[Callable, Callable[[Arrays, Arrays], Arrays]] = {
    run_mlp_train: mlp_train, run_gpt_train: gpt_train,
}


def by_hand(workload: Workload) -> Callable[[Arrays, Arrays], Arrays]:
    """The workload as a function of arrays."""
    return BY_HAND.get(workload.run) or partial(workload.run, Numpy)
