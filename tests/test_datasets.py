"""The digits: shapes, ranges and the published counts."""

from __future__ import annotations

import numpy as np

from minicc.frontend.datasets import DIGITS, digits


def test_digits_are_1797_pictures_of_64_pixels_in_0_to_1():
    images, labels = digits()
    assert images.shape == (1797, 64) and images.dtype == np.float32
    assert labels.shape == (1797,) and labels.dtype == np.int32
    assert images.min() == 0 and images.max() == 1


def test_digits_have_the_published_number_of_each_class():
    # optdigits.names, "class distribution", testing set
    published = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert np.bincount(digits()[1]).tolist() == published


def test_the_first_picture_is_the_published_first_row():
    # the first line of optdigits.tes, its first two rows of eight pixels
    assert (digits()[0][0][:16] * 16).tolist() == [0, 0, 5, 13, 9, 1, 0, 0, 0, 0, 13, 15, 10, 15, 5, 0]


def test_the_credit_ships_beside_the_data():
    credit = DIGITS.with_suffix(".md").read_text(encoding="utf-8")
    assert "Alpaydin" in credit and "Kaynak" in credit and "CC BY 4.0" in credit
