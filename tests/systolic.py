"""A systolic array, cell by cell and cycle by cycle: why a matrix product takes the cycles that it takes.

    weight_stationary(x, w, rows=4, columns=4)   ->  (x @ w, cycles), moving one value per wire and cycle
    cost.weight_stationary_cycles(m, k, n, 4, 4) ->  the same number, as a formula

Weight stationary (a TPU's MXU): R x C cells hold w; a row of x enters skewed, x[m, r] into array row r one
cycle after x[m, r - 1]; partial sums fall down the columns, and each column leaves a cycle after the last.

    cycle    0          1          2
    row 0    x[0,0] ->  x[1,0] ->  x[2,0] ->       one fold: R cycles to load w, then M rows that
    row 1               x[0,1] ->  x[1,1] ->       take R + C - 2 more until the last has left:
    row 2                          x[0,2] ->       2 R + C + M - 2, for each R x C tile of w

Output stationary: each cell keeps one sum, and both x and w flow through: R + C + K - 2 per R x C tile of
the result. A count runs from the first cycle to the last one, hence the -1. The MXU of minicc/tpu/units.py
has the same timeline in closed form: a push of r rows, 254 + r cycles to its last result. Source: Kung and
Leiserson, 1978; the formulas hold on every case of an independent simulator. What to read next: units.py.
"""

from __future__ import annotations

import numpy as np


def _tiles(size: int, tile: int) -> list[slice]:
    return [slice(start, start + tile) for start in range(0, size, tile)]


def _pad(block: np.ndarray, rows: int, columns: int) -> np.ndarray:
    return np.pad(block, ((0, rows - block.shape[0]), (0, columns - block.shape[1])))


def weight_stationary(x: np.ndarray, w: np.ndarray, rows: int, columns: int) -> tuple[np.ndarray, int]:
    """x[m,k] @ w[k,n] on rows x columns cells that hold w. Returns: the product, and the cycles."""
    (m, k), n = x.shape, w.shape[1]
    y, cycles = np.zeros((m, n)), 0
    for part in _tiles(k, rows):
        for out in _tiles(n, columns):
            product, spent = _weight_fold(_pad(x[:, part], m, rows), _pad(w[part, out], rows, columns))
            y[:, out] += product[:, :y[:, out].shape[1]]
            cycles += spent
    return y, cycles - 1


def _weight_fold(x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, int]:
    m, (rows, columns) = len(x), w.shape
    held, moving, sums = np.zeros((3, rows, columns))
    y, cycle = np.zeros((m, columns)), 0
    for row in reversed(range(rows)):  # the last row first: it slides down to the bottom
        held[1:], held[0], cycle = held[:-1].copy(), w[row], cycle + 1
    step, missing = 0, m * columns
    while missing:
        entering = [x[step - r, r] if 0 <= step - r < m else 0.0 for r in range(rows)]
        moving = np.column_stack((entering, moving[:, :-1]))
        sums = np.vstack((np.zeros(columns), sums[:-1])) + moving * held
        for column in range(columns):
            row = step - (rows - 1) - column
            if 0 <= row < m:
                y[row, column], missing = sums[-1, column], missing - 1
        step += 1
    return y, cycle + step


def output_stationary(x: np.ndarray, w: np.ndarray, rows: int, columns: int) -> tuple[np.ndarray, int]:
    """x[m,k] @ w[k,n] on rows x columns cells that each keep one element of the result."""
    (m, k), n = x.shape, w.shape[1]
    y, cycles = np.zeros((m, n)), 0
    for down in _tiles(m, rows):
        for across in _tiles(n, columns):
            sums, spent = _output_fold(_pad(x[down], rows, k), _pad(w[:, across], k, columns))
            y[down, across] = sums[:y[down, across].shape[0], :y[down, across].shape[1]]
            cycles += spent
    return y, cycles - 1


def _output_fold(x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, int]:
    (rows, k), columns = x.shape, w.shape[1]
    sums, right, below, met = np.zeros((4, rows, columns))
    valid, step = np.zeros((rows, columns), bool), 0
    while (met < k).any():
        inside = [0 <= step - r < k for r in range(rows)]
        left = [x[r, step - r] if inside[r] else 0.0 for r in range(rows)]
        top = [w[step - c, c] if 0 <= step - c < k else 0.0 for c in range(columns)]
        right, below = np.column_stack((left, right[:, :-1])), np.vstack((top, below[:-1]))
        valid = np.column_stack((inside, valid[:, :-1]))
        sums, met, step = sums + right * below, met + valid, step + 1
    return sums, step
