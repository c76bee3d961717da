"""The models once more, in plain numpy and float64, from their papers: loops where the models have shapes.

    gpt2(params, config, ids)     params: a model's tree as arrays; the numbers that its forward must give

Nothing here is shared with minicc but the names in the trees.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Tree = Any


def layer(p: Tree, x: np.ndarray) -> np.ndarray:
    return np.einsum("...i,ij->...j", x, p["w"]) + p.get("b", 0.0)


def norm(p: Tree, x: np.ndarray, epsilon: float = 1e-5) -> np.ndarray:
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)
    return y * p.get("w", 1.0) + p.get("b", 0.0)


def rms(p: Tree, x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x ** 2).mean(-1, keepdims=True) + 1e-5) * p["w"]


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def silu(x: np.ndarray) -> np.ndarray:
    return x * sigmoid(x)


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def gelu_exact(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, heads: int, groups: int, seen: Any) -> np.ndarray:
    """Row by row: q[T, heads * D], k and v[S, groups * D]; seen(i, j): whether row i looks at column j."""
    size, out = q.shape[1] // heads, np.zeros_like(q)
    for head in range(heads):
        group = head // (heads // groups)
        mine, theirs = slice(head * size, (head + 1) * size), slice(group * size, (group + 1) * size)
        for i in range(len(q)):
            columns = [j for j in range(len(k)) if seen(i, j)]
            weights = softmax(k[columns, theirs] @ q[i, mine] / math.sqrt(size))
            out[i, mine] = weights @ v[columns, theirs]
    return out


def self_attention(p: Tree, x: np.ndarray, heads: int, seen: Any = lambda i, j: True) -> np.ndarray:
    """x[T, C]."""
    q, k, v = np.split(layer(p["qkv"], x), 3, axis=1)
    return layer(p["out"], attend(q, k, v, heads, heads, seen))


def mlp(p: Tree, x: np.ndarray, activation: Any) -> np.ndarray:
    return layer(p["down"], activation(layer(p["up"], x)))


def gpt2(p: Tree, config: Any, ids: np.ndarray) -> np.ndarray:
    rows = []
    for row in ids:
        x = p["tokens"]["w"][row] + p["positions"]["w"][:len(row)]
        for b in p["blocks"]:
            x = x + self_attention(b["attention"], norm(b["norm1"], x), config.heads, lambda i, j: j <= i)
            x = x + mlp(b["mlp"], norm(b["norm2"], x), gelu_tanh)
        rows.append(norm(p["norm"], x) @ p["tokens"]["w"].T)
    return np.array(rows)


def bert(p: Tree, config: Any, ids: np.ndarray, kinds: np.ndarray, mask: np.ndarray) -> tuple:
    states = []
    for row, kind, there in zip(ids, kinds, mask, strict=True):
        x = p["tokens"]["w"][row] + p["positions"]["w"][:len(row)] + p["kinds"]["w"][kind]
        x = norm(p["norm"], x, 1e-12)
        for b in p["blocks"]:
            heard = self_attention(b["attention"], x, config.heads, lambda i, j, there=there: there[j])
            x = norm(b["norm1"], x + heard, 1e-12)
            x = norm(b["norm2"], x + mlp(b["mlp"], x, gelu_exact), 1e-12)
        states.append(x)
    return np.array(states), np.tanh(layer(p["pool"], np.array(states)[:, 0]))


def turned(x: np.ndarray, heads: int, base: float) -> np.ndarray:
    """Rotary positions as complex numbers: halves are real and imaginary parts. x[T, heads * D]."""
    out = np.zeros_like(x)
    size = x.shape[1] // heads
    for head in range(heads):
        half = head * size + np.arange(size // 2)
        for t in range(len(x)):
            angle = t / base ** (2 * np.arange(size // 2) / size)
            z = (x[t, half] + 1j * x[t, half + size // 2]) * np.exp(1j * angle)
            out[t, half], out[t, half + size // 2] = z.real, z.imag
    return out


def llama_attention(p: Tree, config: Any, x: np.ndarray) -> np.ndarray:
    q, k, v = (layer(p[name], x) for name in "qkv")
    q, k = turned(q, config.heads, config.base), turned(k, config.groups, config.base)
    return layer(p["out"], attend(q, k, v, config.heads, config.groups, lambda i, j: j <= i))


def gated(gate: np.ndarray, up: np.ndarray, down: np.ndarray, x: np.ndarray) -> np.ndarray:
    return (silu(x @ gate) * (x @ up)) @ down


def llama(p: Tree, config: Any, ids: np.ndarray) -> np.ndarray:
    rows = []
    for row in ids:
        x = p["tokens"]["w"][row]
        for b in p["blocks"]:
            x = x + llama_attention(b["attention"], config, rms(b["norm1"], x))
            x = x + gated(*(b["mlp"][name]["w"] for name in ("gate", "up", "down")), rms(b["norm2"], x))
        rows.append(layer(p["head"], rms(p["norm"], x)))
    return np.array(rows)


def mixture(p: Tree, config: Any, tokens: np.ndarray) -> np.ndarray:
    """tokens[N, C], one after another, each to its experts while they have seats."""
    seats = math.ceil(config.capacity * config.chosen * len(tokens) / config.experts)
    taken, out = [0] * config.experts, np.zeros_like(tokens)
    for n, token in enumerate(tokens):
        scores = layer(p["router"], token)
        best = np.argsort(-scores, kind="stable")[:config.chosen]
        for expert, weight in zip(best, softmax(scores[best]), strict=True):
            if taken[expert] < seats:
                out[n] += weight * gated(p["gate"][expert], p["up"][expert], p["down"][expert], token)
            taken[expert] += 1
    return out


def moe(p: Tree, config: Any, ids: np.ndarray) -> np.ndarray:
    x = p["tokens"]["w"][ids]
    for b in p["blocks"]:
        x = x + np.array([llama_attention(b["attention"], config, rms(b["norm1"], row)) for row in x])
        tokens = rms(b["norm2"], x).reshape(-1, x.shape[-1])
        x = x + mixture(b["experts"], config, tokens).reshape(x.shape)
    return layer(p["head"], rms(p["norm"], x))


def waves(t: float, size: int) -> np.ndarray:
    speeds = [10000 ** (-i / (size // 2)) for i in range(size // 2)]
    return np.array([math.cos(t * s) for s in speeds] + [math.sin(t * s) for s in speeds])


def dit(p: Tree, config: Any, x: np.ndarray, time: np.ndarray, labels: np.ndarray) -> np.ndarray:
    patch, side = config.patch, config.size // config.patch
    out = np.zeros((len(x), 2 * config.channels, config.size, config.size))
    spots = [(slice(r * patch, (r + 1) * patch), slice(c * patch, (c + 1) * patch), r, c)
             for r in range(side) for c in range(side)]
    for n in range(len(x)):
        vector = mlp(p["time"], waves(time[n], 256), silu) + p["classes"]["w"][labels[n]]
        y = np.array([layer(p["patches"], x[n][:, rows, columns].ravel())
                      + np.concatenate([waves(c, config.width // 2), waves(r, config.width // 2)])
                      for rows, columns, r, c in spots])
        for b in p["blocks"]:
            s1, c1, g1, s2, c2, g2 = np.split(layer(b["modulation"], silu(vector)), 6)
            y = y + g1 * self_attention(b["attention"], norm({}, y, 1e-6) * (1 + c1) + s1, config.heads)
            y = y + g2 * mlp(b["mlp"], norm({}, y, 1e-6) * (1 + c2) + s2, gelu_tanh)
        shift, scale = np.split(layer(p["modulation"], silu(vector)), 2)
        y = layer(p["head"], norm({}, y, 1e-6) * (1 + scale) + shift)
        for row, (rows, columns, _, _) in zip(y, spots, strict=True):
            out[n][:, rows, columns] = row.reshape(patch, patch, -1).transpose(2, 0, 1)
    return out


def video(p: Tree, config: Any, films: np.ndarray) -> np.ndarray:
    (f, h, w), out = config.box, []
    for film in films:
        x = np.array([[layer(p["boxes"], film[:, t:t + f, r:r + h, c:c + w].ravel())
                       for r in range(0, config.size, h) for c in range(0, config.size, w)]
                      for t in range(0, config.frames, f)]) + p["positions"]
        for b in p["blocks"]:
            x = x + np.array([self_attention(b["space"], one, config.heads) for one in norm(b["norm1"], x)])
            y = norm(b["norm2"], x)
            for place in range(x.shape[1]):
                x[:, place] += self_attention(b["time"], y[:, place], config.heads)
            x = x + mlp(b["mlp"], norm(b["norm3"], x), gelu_tanh)
        out.append(layer(p["head"], norm(p["norm"], x).mean((0, 1))))
    return np.array(out)


def convolved(w: np.ndarray, x: np.ndarray, stride: int) -> np.ndarray:
    """x[N, C, H, W], w[O, C, K, K], padded by K // 2, window by window."""
    k = w.shape[-1]
    x = np.pad(x, ((0, 0), (0, 0), (k // 2, k // 2), (k // 2, k // 2)))
    places = range(0, x.shape[2] - k + 1, stride)
    return np.array([[np.einsum("nchw,ochw->no", x[:, :, r:r + k, c:c + k], w) for c in places]
                     for r in places]).transpose(2, 3, 0, 1)


def resnet(p: Tree, state: Tree, config: Any, x: np.ndarray, training: bool) -> tuple[np.ndarray, Tree]:
    """For pictures so small that the stem is one convolution."""
    new = {}

    def conv_norm(name: str, x: np.ndarray, stride: int = 1) -> np.ndarray:
        y = convolved(p[name]["conv"]["w"], x, stride)
        mean, var, old = y.mean((0, 2, 3)), y.var((0, 2, 3)), state[name]
        unbiased = y.transpose(1, 0, 2, 3).reshape(y.shape[1], -1).var(1, ddof=1)
        new[name] = {"mean": 0.9 * old["mean"] + 0.1 * mean, "var": 0.9 * old["var"] + 0.1 * unbiased}
        mean, var = (mean, var) if training else (old["mean"], old["var"])
        y = (y - mean[:, None, None]) / np.sqrt(var + 1e-5)[:, None, None]
        return y * p[name]["norm"]["w"][:, None, None] + p[name]["norm"]["b"][:, None, None]

    x, number = np.maximum(conv_norm("stem", x), 0), 0
    for stage, blocks in enumerate(config.blocks):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            y = conv_norm(f"block{number}.2", np.maximum(conv_norm(f"block{number}.1", x, stride), 0))
            past = f"block{number}.past"
            x = np.maximum(y + (conv_norm(past, x, stride) if past in p else x), 0)
            number += 1
    return layer(p["head"], x.mean((2, 3))), new
