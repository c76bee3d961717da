"""The data that ships with minicc: handwritten digits, small enough to train on in a second; its own text.

    digits() -> images f32[1797, 64] in 0..1,  labels i32[1797] in 0..9
    own_text() -> a string: the pages of this project, some 40,000 letters

>>> images, labels = digits()
>>> images.shape, images.dtype.name, labels.shape, labels.dtype.name
((1797, 64), 'float32', (1797,), 'int32')

Each row of the digits is an 8 x 8 picture, row by row from the top, 0 paper and 1 ink; data/digits.md says
whose it is. MNIST is the same job at 28 x 28 and 70,000 pictures, but it must be downloaded, and this one
need not be.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

DIGITS = Path(__file__).parent / "data" / "digits.npz"
FULL_INK = 16  # the stored pictures hold 0..16


def digits() -> tuple[np.ndarray, np.ndarray]:
    """The digits as new arrays: pictures f32[1797, 64] in 0..1, and what each shows, i32[1797]."""
    with np.load(DIGITS, allow_pickle=False) as stored:
        images, labels = stored["images"], stored["labels"]
    return images.reshape(len(images), -1).astype(np.float32) / np.float32(FULL_INK), labels.astype(np.int32)


def own_text() -> str:
    """The pages of this project one after another, for a model to learn to write like."""
    inside, above = Path(__file__).parents[1], Path(__file__).parents[2]  # installed, or in a checkout
    home = inside if (inside / "lessons").is_dir() else above
    pages = [*home.glob("README.md"), *sorted((home / "lessons").rglob("*.md"))]
    return "\n".join(page.read_text(encoding="utf-8") for page in pages)
