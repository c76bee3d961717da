"""Verdicts name the first difference, measure predictions by ratio, mark counts between 1.2 and 10 times."""

from __future__ import annotations

import math

import numpy as np
import pytest

from minicc.lessons.key.record_checks import pictures
from minicc.lessons.verdicts import all_of, beat, compare, failed, passed, predicted, ratio

EXPECTED = np.array([[1.0, 2.0], [3.0, 400.0]])


def test_a_difference_is_named_by_its_first_index():
    wrong = compare("y", np.array([[1.0, 2.0], [3.5, 0.0]], np.float32), EXPECTED)
    assert wrong.symptom == "y differs at [1, 0]: got 3.5, expected 3.0 (2 of 4 do)"


def test_errors_are_measured_against_the_largest_value():
    assert compare("y", EXPECTED + 400 * 0.9e-4, EXPECTED).passed
    assert not compare("y", EXPECTED + 400 * 1.1e-4, EXPECTED).passed


def test_nan_and_infinity_must_stand_where_they_are_expected():
    special = np.array([np.nan, np.inf, -np.inf, 1.0])
    assert compare("y", special, special).passed
    for place in range(3):
        other = special.copy()
        other[place] = 0.0
        assert compare("y", other, special).symptom.startswith(f"y differs at [{place}]")


@pytest.mark.parametrize("got, said", [
    (np.zeros(3), "y has the wrong shape: got (3,), expected (2, 2)"),
    ([1, 2], "y is no array: got a list, expected (2, 2)"),
])
def test_a_wrong_form_is_a_verdict(got: object, said: str):
    assert compare("y", got, EXPECTED).symptom == said


def test_text_differs_at_a_line():
    assert compare("graph", "a\nb\n", "a\nc\n").symptom == "graph differs at line 2: got 'b', expected 'c'"
    assert compare("graph", "a", "a\nc").symptom == "graph differs at line 2: got 'nothing', expected 'c'"


def test_true_is_not_one():
    assert not compare("n", True, 1).passed and compare("n", [1, 2], [1, 2]).passed


@pytest.mark.parametrize("said, right, off", [
    (50, 100, 2.0), (200, 100, 2.0), (0, 0, 1.0), (0, 5, math.inf), (-1, 1, math.inf)])
def test_a_ratio_counts_too_high_like_too_low(said: float, right: float, off: float):
    assert ratio(said, right) == off


def test_a_prediction_passes_within_its_factor_and_tells_no_number_otherwise():
    near = predicted({"cycles": 600, "bound": "hbm"}, {"cycles": 1000, "bound": "hbm"})
    assert near.passed and near.ratios == {"cycles": (600.0, 1000.0)}
    far = predicted({"cycles": 10}, {"cycles": 1000})
    assert far.symptom.startswith("cycles: 10 is too low, by a factor of 100 or more; within a factor of 2")
    assert "1000" not in far.symptom
    assert not predicted({"kernels": 2}, {"kernels": 3}, within=1.0).passed


@pytest.mark.parametrize("said", [None, 3, {}, {"cycles": None}])
def test_no_prediction_is_told_apart_from_a_wrong_one(said: object):
    assert predicted(said, {"cycles": 5}).symptom == "no prediction yet: cycles"


def test_no_factor_leads_to_zero():
    assert predicted({"ran": 5}, {"ran": 0}, within=1.0).symptom == "ran: 5 is too high; it must be exact"


def test_words_and_odd_predictions_are_told():
    assert predicted({"bound": "mxu"}, {"bound": "hbm"}).symptom == "bound: it is not mxu"
    assert predicted({"n": "ten"}, {"n": 10}).symptom == "n: a number is needed, got 'ten'"


@pytest.mark.parametrize("got, score", [(900, 1.0), (1200, 1.0), (10_000, 0.0), (50_000, 0.0)])
def test_marks_run_from_full_at_1_2_times_to_none_at_10(got: int, score: float):
    assert beat("cycles", got, 1000).score == pytest.approx(score)


def test_half_the_marks_are_needed():
    middle = 1000 * math.sqrt(1.2 * 10)  # half way on a scale of ratios
    assert beat("cycles", middle * 0.99, 1000).passed and not beat("cycles", middle * 1.01, 1000).passed
    assert beat("cycles", 5000, 1000).symptom.endswith("a pass is 3.5 times at the most")


def test_all_of_stops_at_the_first_failure():
    assert all_of(passed("a"), failed("b"), failed("c")).symptom == "b"
    assert all_of(passed("a"), passed("b")).lines == ("a", "b")


@pytest.mark.parametrize("seed", range(6))
def test_two_thresholds_of_the_last_exercise_of_lesson_1_are_equally_good(seed: int):
    images, ones, thresholds = pictures(seed)
    rights = [int(((images.mean(axis=1) > threshold) == ones).sum()) for threshold in thresholds]
    assert rights.count(max(rights)) == 2 and len(set(thresholds)) == 16
