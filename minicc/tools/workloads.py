"""The programs that `minicc bench` runs, from ten elementwise ops to a training step of a GPT block.

    make, run, sizes = WORKLOADS["f_mlp_train"]
    params, data = make(np.random.default_rng(0), **sizes)      f32 arrays
    run(F, params, data)  ->  [the loss, each parameter after one step]

Goes in: `F`, a library by way of a small vocabulary, and its arrays or tensors. Comes out: its results. The
vocabulary: + - * / @ and unary minus with numpy's broadcasting; exp log sqrt tanh relu sigmoid of x; sum max
mean of x, axis, keepdims=True; reshape, transpose, concat, slice(x, axis, low, high), repeat_heads(x, times)
along axis 1, where(zeros and ones, a, b), conv2d (NCHW, 3x3, stride 1, padding 1); grad(loss, params).
Invariant: nothing here knows which library runs it, so a comparison runs the same program twice. MLPerf's
rules let each library write its own program, and compare what is trained. Read next: bench.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Arrays: TypeAlias = list[np.ndarray]
Inputs: TypeAlias = tuple[Arrays, Arrays]  # parameters, data
Library: TypeAlias = Any  # something with the vocabulary
Xs: TypeAlias = list  # arrays or tensors of that library
Random: TypeAlias = np.random.Generator

F32, RATE, EPSILON, HIDDEN = np.float32, 0.01, 1e-5, -1e9  # of a step; under a root; a score that is masked


class Workload(NamedTuple):
    """A program: what makes its inputs, what runs it, and the sizes that are not the usual ones."""

    make: Callable[..., Inputs]
    run: Callable[..., Xs]
    sizes: Mapping[str, Any] = {}


class Shared:
    """The words that numpy's arrays and minicc's tensors have as methods of one spelling."""

    sum = staticmethod(lambda x, axis, keepdims=True: x.sum(axis=axis, keepdims=keepdims))
    max = staticmethod(lambda x, axis, keepdims=True: x.max(axis=axis, keepdims=keepdims))
    mean = staticmethod(lambda x, axis, keepdims=True: x.mean(axis=axis, keepdims=keepdims))
    reshape = staticmethod(lambda x, shape: x.reshape(shape))
    transpose = staticmethod(lambda x, perm: x.transpose(perm))
    slice = staticmethod(lambda x, axis, low, high: x[(np.s_[:],) * axis + (np.s_[low:high],)])


def normal(random: Random, *shape: int, scale: float = 1.0) -> np.ndarray:
    """Normally distributed numbers, in f32."""
    return (random.standard_normal(shape) * scale).astype(F32)


# -- parts -----------------------------------------------------------------------------------------------


def softmax(F: Library, x: Any) -> Any:
    """Along the last axis."""
    weights = F.exp(x - F.max(x, -1))
    return weights / F.sum(weights, -1)


def layer_norm(F: Library, x: Any, weight: Any, bias: Any) -> Any:
    """Along the last axis."""
    centred = x - F.mean(x, -1)
    return centred / F.sqrt(F.mean(centred * centred, -1) + EPSILON) * weight + bias


def rms_norm(F: Library, x: Any, weight: Any) -> Any:
    """Along the last axis."""
    return x / F.sqrt(F.mean(x * x, -1) + EPSILON) * weight


def gelu(F: Library, x: Any) -> Any:
    """In its tanh form."""
    return x * 0.5 * (F.tanh((x + x * x * x * 0.044715) * 0.7978845608) + 1.0)


def attention(F: Library, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """Of any rank: q[..., T, head], k and v[..., S, head]; mask is added to the scores [..., T, S]."""
    rank = len(k.shape)
    scores = q @ F.transpose(k, (*range(rank - 2), rank - 1, rank - 2)) * float(k.shape[-1] ** -0.5)
    return softmax(F, scores if mask is None else scores + mask) @ v


def _heads(F: Library, x: Any, heads: int) -> Any:
    batch, length, width = x.shape  # (B, T, heads * head) -> (B, heads, T, head)
    return F.transpose(F.reshape(x, (batch, length, heads, width // heads)), (0, 2, 1, 3))


def _joined(F: Library, x: Any) -> Any:
    batch, heads, length, head = x.shape
    return F.reshape(F.transpose(x, (0, 2, 1, 3)), (batch, length, heads * head))


def _stepped(F: Library, loss: Any, params: Xs) -> Xs:
    """The loss, and the parameters after one step of gradient descent."""
    return [loss, *(p - g * RATE for p, g in zip(params, F.grad(loss, params), strict=True))]


# -- elementwise, normalisation, products ----------------------------------------------------------------


def make_elementwise(random: Random, n: int = 1_000_000) -> Inputs:
    """Two vectors."""
    return [], [normal(random, n), normal(random, n)]


def run_elementwise(F: Library, params: Xs, data: Xs) -> Xs:
    """Ten ops, and nothing worth keeping between them."""
    x, y = data
    t = F.relu((x + y) * 0.5 - y) * x
    return [F.tanh(x / (F.exp(t * -0.1) + 1.0))]


def make_rows(random: Random, r: int = 1024, c: int = 1024) -> Inputs:
    """A matrix."""
    return [], [normal(random, r, c)]


def run_softmax(F: Library, params: Xs, data: Xs) -> Xs:
    """Over rows."""
    return [softmax(F, data[0])]


def make_layer_norm(random: Random, r: int = 1024, c: int = 1024) -> Inputs:
    """A matrix, and a weight and a bias per column."""
    return [normal(random, c), normal(random, c)], [normal(random, r, c)]


def run_layer_norm(F: Library, params: Xs, data: Xs) -> Xs:
    """Over rows."""
    return [layer_norm(F, data[0], *params)]


def make_matmul(random: Random, n: int = 1024) -> Inputs:
    """Two square matrices."""
    return [], [normal(random, n, n), normal(random, n, n)]


def run_matmul(F: Library, params: Xs, data: Xs) -> Xs:
    """One product."""
    return [data[0] @ data[1]]


def make_attention(random: Random, t: int = 512, dh: int = 64) -> Inputs:
    """Queries, keys and values of one head."""
    return [], [normal(random, t, dh) for _ in range(3)]


def run_attention(F: Library, params: Xs, data: Xs) -> Xs:
    """Every row attends to every row."""
    return [attention(F, *data)]


def make_convolution(random: Random, b: int = 8, c: int = 64, s: int = 32) -> Inputs:
    """Square images, as many channels out as in."""
    return [normal(random, c, c, 3, 3, scale=0.05), normal(random, c)], [normal(random, b, c, s, s)]


def run_convolution(F: Library, params: Xs, data: Xs) -> Xs:
    """A convolution, its bias, relu."""
    return [F.relu(F.conv2d(data[0], params[0]) + F.reshape(params[1], (1, -1, 1, 1)))]


# -- training: a multilayer perceptron, a block of a GPT -------------------------------------------------


def make_mlp(random: Random, b: int = 128, dims: tuple[int, ...] = (784, 512, 512, 10)) -> Inputs:
    """A weight and a bias per layer; images, and their classes as rows of one 1 each."""
    params = []
    for inputs, outputs in pairwise(dims):
        params += [normal(random, inputs, outputs, scale=float(np.sqrt(2 / inputs))), np.zeros(outputs, F32)]
    classes = np.eye(dims[-1], dtype=F32)[random.integers(0, dims[-1], b)]
    return params, [normal(random, b, dims[0]), classes]


def run_mlp_train(F: Library, params: Xs, data: Xs) -> Xs:
    """Cross-entropy, and one step down it."""
    x, classes = data
    for layer in range(0, len(params), 2):
        x = (F.relu(x) if layer else x) @ params[layer] + params[layer + 1]
    shifted = x - F.max(x, -1)
    picked = (shifted - F.log(F.sum(F.exp(shifted), -1))) * classes
    return _stepped(F, -F.sum(picked, None, False) * (1 / classes.shape[0]), params)


def make_gpt(random: Random, b: int = 4, t: int = 128, d: int = 256) -> Inputs:
    """The twelve parameters of a block; what goes in, a causal mask, what ought to come out."""
    def dense(inputs: int, outputs: int) -> Arrays:
        return [normal(random, inputs, outputs, scale=0.02), np.zeros(outputs, F32)]

    params = [np.ones(d, F32), np.zeros(d, F32), *dense(d, 3 * d), *dense(d, d),
              np.ones(d, F32), np.zeros(d, F32), *dense(d, 4 * d), *dense(4 * d, d)]
    mask = np.triu(np.full((t, t), HIDDEN, F32), 1)
    return params, [normal(random, b, t, d), mask, normal(random, b, t, d)]


def gpt_block(F: Library, params: Xs, x: Any, mask: Any, h: int) -> Any:
    """x[B, T, D] after attention of h heads and a layer of 4 D, each behind a norm and beside a shortcut."""
    scale1, shift1, w_qkv, b_qkv, w_out, b_out, scale2, shift2, w_up, b_up, w_down, b_down = params
    d = x.shape[2]
    qkv = layer_norm(F, x, scale1, shift1) @ w_qkv + b_qkv  # (B, T, 3 D)
    q, k, v = (_heads(F, F.slice(qkv, 2, i * d, (i + 1) * d), h) for i in range(3))
    x = x + _joined(F, attention(F, q, k, v, mask)) @ w_out + b_out
    return x + gelu(F, layer_norm(F, x, scale2, shift2) @ w_up + b_up) @ w_down + b_down


def run_gpt_forward(F: Library, params: Xs, data: Xs, h: int = 8) -> Xs:
    """The block's result."""
    return [gpt_block(F, params, data[0], data[1], h)]


def run_gpt_train(F: Library, params: Xs, data: Xs, h: int = 8) -> Xs:
    """The mean squared error, and one step down it."""
    error = gpt_block(F, params, data[0], data[1], h) - data[2]
    return _stepped(F, F.mean(error * error, None, False), params)


# -- one token of a LLaMA --------------------------------------------------------------------------------


def make_llama(random: Random, d: int = 256, h: int = 8, hkv: int = 2, ffn: int = 688, cache: int = 128,
               pos: int = 100) -> Inputs:
    """The nine parameters of a block; a token, the cached keys and values, its angles, its place, a mask."""
    head = d // h
    shapes = [(d, h * head), (d, hkv * head), (d, hkv * head), (h * head, d), (d, ffn), (d, ffn), (ffn, d)]
    dense = [normal(random, *shape, scale=0.02) for shape in shapes]
    angles = pos / 10000.0 ** (np.arange(head // 2) / (head // 2))
    places = np.arange(cache)
    return [np.ones(d, F32), *dense[:4], np.ones(d, F32), *dense[4:]], [
        normal(random, 1, 1, d), normal(random, 1, hkv, cache, head), normal(random, 1, hkv, cache, head),
        np.cos(angles).astype(F32), np.sin(angles).astype(F32),
        (places == pos).astype(F32).reshape(1, 1, cache, 1),
        np.where(places <= pos, 0, HIDDEN).astype(F32).reshape(1, 1, 1, cache)]


def _rotated(F: Library, x: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[3] // 2
    a, b = F.slice(x, 3, 0, half), F.slice(x, 3, half, 2 * half)
    return F.concat([a * cos - b * sin, a * sin + b * cos], 3)


def run_llama(F: Library, params: Xs, data: Xs, h: int = 8, hkv: int = 2) -> Xs:
    """The block's result for one token, and the caches with its key and its value in them."""
    norm1, wq, wk, wv, wo, norm2, w_gate, w_up, w_down = params
    x, keys, values, cos, sin, at, mask = data
    y = rms_norm(F, x, norm1)
    q, k = (_rotated(F, _heads(F, y @ w, n), cos, sin) for w, n in ((wq, h), (wk, hkv)))
    keys, values = F.where(at, k, keys), F.where(at, _heads(F, y @ wv, hkv), values)
    mixed = attention(F, q, F.repeat_heads(keys, h // hkv), F.repeat_heads(values, h // hkv), mask)
    x = x + _joined(F, mixed) @ wo
    y = rms_norm(F, x, norm2)
    gate = y @ w_gate
    return [x + gate * F.sigmoid(gate) * (y @ w_up) @ w_down, keys, values]


WORKLOADS: Mapping[str, Workload] = {
    "a_elementwise10_1M": Workload(make_elementwise, run_elementwise),
    "b_softmax_1024": Workload(make_rows, run_softmax),
    "c_layernorm_1024": Workload(make_layer_norm, run_layer_norm),
    "d_matmul_1024": Workload(make_matmul, run_matmul),
    "d_matmul_256": Workload(make_matmul, run_matmul, {"n": 256}),
    "e_attention_512x64": Workload(make_attention, run_attention),
    "f_mlp_train": Workload(make_mlp, run_mlp_train),
    "g_gpt_fwd": Workload(make_gpt, run_gpt_forward),
    "g_gpt_train": Workload(make_gpt, run_gpt_train),
    "h_conv3x3_64c": Workload(make_convolution, run_convolution),
    "i_llama_decode": Workload(make_llama, run_llama),
}
TINY: Mapping[str, Workload] = {  # for an emulator that counts every cycle
    "elementwise_1k": Workload(make_elementwise, run_elementwise, {"n": 1000}),
    "softmax_16": Workload(make_rows, run_softmax, {"r": 16, "c": 16}),
    "layernorm_16": Workload(make_layer_norm, run_layer_norm, {"r": 16, "c": 16}),
    "matmul_16": Workload(make_matmul, run_matmul, {"n": 16}),
    "matmul_32": Workload(make_matmul, run_matmul, {"n": 32}),
    "matmul_64": Workload(make_matmul, run_matmul, {"n": 64}),
    "attention_16x8": Workload(make_attention, run_attention, {"t": 16, "dh": 8}),
    "conv_4c_8x8": Workload(make_convolution, run_convolution, {"b": 1, "c": 4, "s": 8}),
    "mlp_train_tiny": Workload(make_mlp, run_mlp_train, {"b": 8, "dims": (16, 16, 4)}),
}
