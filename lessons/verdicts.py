"""What a check says of an answer, judged from data alone.

    compare("y", got, expected)                    y differs at [3, 5]: got 1.0, expected 2.0 (17 of 400 do)
    predicted({"cycles": 900}, {"cycles": 1000})   ratio 1.11 to the right answer
    beat("cycles", 5200, reference=5000)           full marks within 1.2, none at 10 times

Goes in: plain data that came back from the learner's process, and what it should be, made here. Comes out:
a Verdict. Invariants: nothing of the learner's is called or compared by its own ==; errors of arrays are
measured against the largest expected value; a missing name is a verdict, not a KeyError. Read next:
sandbox.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

TOLERANCE = 1e-4  # of the largest expected value: f32 sums of a few hundred terms stay well within
FULL_MARKS, NO_MARKS = 1.2, 10.0  # times the reference
PASS_MARK = 0.5
PASS_TIMES = FULL_MARKS * (NO_MARKS / FULL_MARKS) ** (1 - PASS_MARK)  # the reference, for that mark


@dataclass(frozen=True)
class Verdict:
    """Whether an answer passed, and why not.

    symptom: one line that names what was seen. lines: more, to read. score: 0 to 1. counts: what was counted,
    for the report. ratios: prediction -> (said, right), for the calibration.
    """

    passed: bool
    symptom: str = ""
    lines: tuple[str, ...] = ()
    score: float = 1.0
    counts: Mapping[str, float] = field(default_factory=dict)
    ratios: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def noting(self, *lines: str) -> Verdict:
        """The same verdict with more to read, such as a roofline."""
        return replace(self, lines=(*self.lines, *lines))


def passed(*lines: str) -> Verdict:
    """The answer is right."""
    return Verdict(True, "", lines)


def failed(symptom: str, *lines: str) -> Verdict:
    """The answer is wrong, and this is how it shows."""
    return Verdict(False, symptom, lines, 0.0)


def all_of(*verdicts: Verdict) -> Verdict:
    """The first that failed, or one pass with what all of them say and the lowest score."""
    for verdict in verdicts:
        if not verdict.passed:
            return verdict
    return Verdict(
        True, "", tuple(line for verdict in verdicts for line in verdict.lines),
        min((verdict.score for verdict in verdicts), default=1.0),
        {name: count for verdict in verdicts for name, count in verdict.counts.items()},
        {name: pair for verdict in verdicts for name, pair in verdict.ratios.items()})


def compare(name: str, got: Any, expected: Any, tolerance: float = TOLERANCE) -> Verdict:
    """Arrays by the first element that differs, text by the first line, other data by type and value.

    A tuple comes back from the learner's process as a list.

    >>> compare("y", np.array([1.0, 5.0]), np.array([1.0, 2.0])).symptom
    'y differs at [1]: got 5.0, expected 2.0 (1 of 2 do)'
    """
    if isinstance(expected, str):
        return _compare_text(name, got, expected)
    if isinstance(expected, np.ndarray):
        return _compare_arrays(name, got, expected, tolerance)
    if isinstance(expected, list) and isinstance(got, list) and len(got) == len(expected):
        pairs = enumerate(zip(got, expected, strict=True))
        return all_of(*(compare(f"{name}[{n}]", a, b, tolerance) for n, (a, b) in pairs))
    same = type(got) is type(expected) and got == expected
    return passed() if same else failed(f"{name} differs: got {got!r}, expected {expected!r}")


def _compare_arrays(name: str, got: Any, expected: np.ndarray, tolerance: float) -> Verdict:
    if not isinstance(got, np.ndarray):
        return failed(f"{name} is no array: got a {type(got).__name__}, expected {expected.shape}")
    if got.shape != expected.shape:
        return failed(f"{name} has the wrong shape: got {got.shape}, expected {expected.shape}")
    wide = expected.astype(np.float64)
    finite = np.abs(wide[np.isfinite(wide)])
    allowed = tolerance * (finite.max() if finite.size else 1.0)
    with np.errstate(invalid="ignore"):
        near = (np.abs(got.astype(np.float64) - wide) <= allowed) | (got == wide)
    wrong = ~(near | (np.isnan(got.astype(np.float64)) & np.isnan(wide)))
    if not wrong.any():
        return passed()
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    said, right = got[index].item(), expected[index].item()
    return failed(f"{name} differs at {list(index)}: got {_short(said)}, expected {_short(right)} "
                  f"({int(wrong.sum())} of {wrong.size} do)")


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) and not value.is_integer() else str(value)


def _compare_text(name: str, got: Any, expected: str) -> Verdict:
    if not isinstance(got, str):
        return failed(f"{name} is no text: got a {type(got).__name__}")
    said, right = got.splitlines(), expected.splitlines()
    for number in range(max(len(said), len(right))):
        a, b = (lines[number].rstrip() if number < len(lines) else "nothing" for lines in (said, right))
        if a != b:
            return failed(f"{name} differs at line {number + 1}: got {a.strip()!r}, expected {b.strip()!r}")
    return passed()


def predicted(said: Any, right: Mapping[str, Any], within: float | Mapping[str, float] = 2.0) -> Verdict:
    """Predictions against what came out: numbers within a factor of the right one, words equal.

    within: the factor, for all or by name; 1.0 asks for the exact number. A miss says which way it lies and
    how far, and not where: the learner may think again. Only the first attempt enters the calibration.

    >>> predicted({"cycles": 300}, {"cycles": 1000}).symptom
    'cycles: 300 is too low, by a factor of 2 or more; within a factor of 2 is near enough'
    """
    if not isinstance(said, dict) or (gone := [name for name in right if said.get(name) is None]):
        missing = ", ".join(gone) if isinstance(said, dict) else ", ".join(right)
        return failed(f"no prediction yet: {missing}")
    ratios: dict[str, tuple[float, float]] = {}
    misses: list[str] = []
    for name, actual in right.items():
        factor = within if isinstance(within, float) else within.get(name, 2.0)
        if isinstance(actual, str):
            misses += [] if said[name] == actual else [f"{name}: it is not {said[name]}"]
        elif isinstance(said[name], bool) or not isinstance(said[name], (int, float)):
            misses.append(f"{name}: a number is needed, got {said[name]!r}")
        else:
            ratios[name] = (float(said[name]), float(actual))
            misses += _miss(name, said[name], actual, factor)
    lines = tuple(f"{name}: you said {_plainly(said[name])}, it is {_plainly(actual)}"
                  for name, actual in right.items())
    if misses:
        return Verdict(False, misses[0], tuple(misses[1:]), 0.0, {}, ratios)
    return Verdict(True, "", lines, nearness(ratios.values()), {}, ratios)


def _plainly(value: Any) -> str:
    whole = isinstance(value, (int, float)) and float(value).is_integer()
    return f"{value:,.0f}" if whole else str(value)


def ratio(said: float, right: float) -> float:
    """How far off a prediction is: 1 is right, 2 is half or twice; infinite for the wrong sign or a zero."""
    if said == right:
        return 1.0
    return max(said / right, right / said) if said * right > 0 else math.inf


def nearness(pairs: Iterable[Sequence[float]]) -> float:
    """The score of predictions [said, right], averaged: 1 for a right one, 0 from a factor of 10 on.

    >>> nearness([[100, 100], [100, 1000]])
    0.5
    """
    scores = [max(0.0, 1.0 - math.log10(ratio(*pair))) for pair in pairs]
    return sum(scores) / len(scores) if scores else 1.0


def _miss(name: str, said: float, actual: float, factor: float) -> list[str]:
    off = ratio(said, actual)
    if off <= factor:
        return []
    way = "low" if said < actual else "high"
    least = next((step for step in (1000, 100, 10, 5, 2) if math.inf > off >= step), 0)
    far = f", by a factor of {least} or more" if least else ""
    near = f"within a factor of {factor:g} is near enough" if factor > 1 else "it must be exact"
    return [f"{name}: {said:g} is too {way}{far}; {near}"]


def beat(name: str, got: float, reference: float, bound: float | None = None) -> Verdict:
    """A count against the reference's: full marks within 1.2 of it, none at 10 times, the pass mark between.

    bound: what the roofline says nobody can go below, printed beside it.

    >>> beat("cycles", 6000, 5000).score, beat("cycles", 50000, 5000).passed
    (1.0, False)
    """
    times = got / reference if reference else math.inf
    score = 1.0 - math.log(max(times, FULL_MARKS) / FULL_MARKS) / math.log(NO_MARKS / FULL_MARKS)
    line = f"{name}: {got:g}; the reference takes {reference:g}"
    line += f", the roofline {bound:g}" if bound is not None else ""
    score = max(0.0, score)
    won = score >= PASS_MARK
    symptom = "" if won else (f"too many {name}: {got:g}, {times:.1f} times the reference; "
                              f"a pass is {PASS_TIMES:.1f} times at the most")
    return Verdict(won, symptom, (f"{line}; score {score:.0%}",), score, {name: got})
