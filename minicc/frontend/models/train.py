"""Two models trained on what ships with minicc, each in about a minute on the gpu device.

    python -m minicc.frontend.models.train gpt       the loss per letter, then text in the manner of ours
    python -m minicc.frontend.models.train resnet    the loss, then the share of held-out digits it reads

Goes in: nothing. Comes out: lines on the terminal; from the functions, what they reached. Each step, forward
and backward and update, is one compiled program; batches are drawn by numpy, from a seed. Andrej Karpathy's
minGPT trains on Shakespeare in the same way. Read next: optim.py.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minicc.frontend import nn, optim
from minicc.frontend.autograd import value_and_grad
from minicc.frontend.datasets import digits, own_text
from minicc.frontend.jit import jit
from minicc.frontend.models import gpt2, resnet
from minicc.frontend.tensor import Tensor

Say = Callable[[str], object]


def trained(loss: Callable, params: Any, state: Any, optimiser: optim.Optimiser, batches: Sequence[tuple],
            say: Say) -> tuple[list[float], Any, Any]:
    """The losses, and the parameters and the model's state after a step on each batch.

    loss: (params, state, *batch) -> (loss, state).
    """
    @jit
    def step(params: Any, memory: Any, state: Any, batch: tuple) -> tuple:
        (value, state), gradients = value_and_grad(loss, has_aux=True)(params, state, *batch)
        params, memory = optimiser.step(params, optim.clip_by_global_norm(gradients, 1.0), memory)
        return value, params, memory, state

    losses, memory, started = [], optimiser.init(params), time.perf_counter()
    for number, batch in enumerate(batches, 1):
        value, params, memory, state = step(params, memory, state, batch)
        losses.append(value.item())
        if number % max(1, len(batches) // 10) == 0:
            say(f"step {number:4}  loss {np.mean(losses[-10:]):.3f}  {time.perf_counter() - started:5.1f} s")
    return losses, params, state


# -- letters -------------------------------------------------------------------------------------------------


def train_gpt(steps: int = 500, say: Say = print) -> tuple[float, float]:
    """Train a small GPT-2 to foretell letters; its loss in the first step, and the mean over the last ten."""
    text, random = own_text(), np.random.default_rng(0)
    letters = sorted(set(text))
    numbers = np.array([letters.index(letter) for letter in text], np.int32)
    config = gpt2.Config(vocabulary=len(letters), context=64, layers=2, heads=4, width=64)
    starts = random.integers(0, len(numbers) - config.context, (steps, 16, 1))
    batches = [(numbers[rows + np.arange(config.context + 1)],) for rows in starts]

    def loss(params: Any, state: tuple, ids: Tensor) -> tuple:
        return gpt2.loss(params, config, ids), state

    adam = optim.AdamW(optim.cosine(5e-3, steps, warm_up_steps=steps // 10), beta2=0.99)
    losses, params, _ = trained(loss, gpt2.init(config, deviation=0.1), (), adam, batches, say)
    say(written(params, config, letters, "A tensor", 200))
    return losses[0], float(np.mean(losses[-10:]))


def written(params: Any, config: gpt2.Config, letters: list[str], text: str, count: int) -> str:
    """The text and `count` letters more, each drawn by the model from those before it."""
    forward, random = jit(gpt2.forward, static_argnames="config"), np.random.default_rng(0)
    for _ in range(count):
        known = [letters.index(letter) for letter in text[-config.context:]]
        ids = np.array([known + [0] * (config.context - len(known))], np.int32)  # one shape, one program
        scores = forward(params, config, ids)[0, len(known) - 1].numpy().astype(np.float64)
        chances = np.exp((scores - scores.max()) / 0.7)
        text += letters[random.choice(len(letters), p=chances / chances.sum())]
    return text


# -- digits --------------------------------------------------------------------------------------------------


def train_resnet(epochs: int = 3, say: Say = print) -> float:
    """Train a small ResNet on four fifths of the digits; the share of the others that it reads."""
    images, labels = digits()
    images, held, random = images.reshape(-1, 1, 8, 8), len(images) // 5, np.random.default_rng(0)
    orders = [held + random.permutation(len(images) - held) for _ in range(epochs)]
    batches = [(images[rows], labels[rows]) for order in orders
               for rows in np.split(order, range(64, len(order), 64))[:-1]]

    def loss(params: Any, state: Any, x: Tensor, y: Tensor) -> tuple:
        scores, state = resnet.forward(params, state, resnet.TINY, x, training=True)
        return nn.cross_entropy(scores, y), state

    adam = optim.AdamW(optim.cosine(1e-2, len(batches)))
    _, params, state = trained(loss, *resnet.init(resnet.TINY), adam, batches, say)
    read = jit(resnet.forward, static_argnames=("config", "training"))
    scores, _ = read(params, state, resnet.TINY, images[:held], training=False)
    share = float((scores.numpy().argmax(1) == labels[:held]).mean())
    say(f"reads {share:.1%} of {held} held-out digits")
    return share


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train a small model on what ships with minicc.")
    parser.add_argument("model", choices=("gpt", "resnet"))
    {"gpt": train_gpt, "resnet": train_resnet}[parser.parse_args().model]()
