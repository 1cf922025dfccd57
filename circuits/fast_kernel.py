# mypy: disable-error-code="no-untyped-def"
"""The transient of a string over device tables, compiled; see `circuits.fast_string`.

Nodes from the bitline down, each tied to the next by one element: the bitline's
resistance, a select transistor, the cells, the other select transistor, the resistance
of the source line. So the Jacobian is tridiagonal.
"""

from __future__ import annotations

import math

import numpy as np

from nandcosim.errors import MissingExtraError

try:
    import numba
except ImportError as error:  # pragma: no cover - depends on the environment
    raise MissingExtraError("the fast string", "numba", "fast") from error

__all__ = ["RESISTOR", "discharge"]

#: Element kinds; other numbers are indices of tables.
RESISTOR = -1

#: A Newton step that moves no voltage by more, in V, is the last: what is left is its square.
CONVERGED = 5e-3
MOST_ITERATIONS = 6

#: A Newton update is cut to this, in V: the elements are exponential.
LARGEST_MOVE = 0.2

#: Growth of a step at most, and what is left of one that was rejected.
LARGEST_GROWTH, SHRINK = 2.5, 0.3

#: A sample that needs more steps, or smaller ones (relative to the first), is given up.
MOST_STEPS, SMALLEST_STEP = 1000, 1e-6

# NaN keeps its meaning: it is how a solution that runs away is noticed.
_MATH = {"contract", "reassoc", "arcp", "nsz"}
_jit = numba.njit(nogil=True, cache=True, boundscheck=False, error_model="numpy", fastmath=_MATH)
_inline = numba.njit(nogil=True, cache=True, inline="always", error_model="numpy", fastmath=_MATH)


@_inline
def _index(place, last):
    """The interval that holds `place`; an end one outside and for NaN."""
    if not place > 0.0:
        return 0
    return int(min(place, last))


@_inline
def _evaluate(tables, axes, bins, table, gate, drain, source, out, e):
    """Fill row `e` of `out` for one transistor.

    Columns: I, Qd, Qs, unused; their derivatives by the drain; by the source.
    """
    u, b, v = gate - source, source, drain - source
    fu = (u - axes[0]) * axes[1]
    i = _index(fu, axes[2])
    wu = fu - i
    fb = (b - axes[3]) * axes[4]
    j = _index(fb, axes[5])
    wb = fb - j
    bin_ = _index((v - axes[6]) * axes[7], axes[8])
    k = int(bins[bin_, 0])
    per_v = bins[bin_, 2]
    wv = (v - bins[bin_, 1]) * per_v
    per_u, per_b = axes[1], axes[4]
    for n in range(3):
        c00 = tables[table, i, j, k, n]
        c01 = tables[table, i, j, k + 1, n]
        c10 = tables[table, i, j + 1, k, n]
        c11 = tables[table, i, j + 1, k + 1, n]
        d00 = tables[table, i + 1, j, k, n] - c00
        d01 = tables[table, i + 1, j, k + 1, n] - c01
        d10 = tables[table, i + 1, j + 1, k, n] - c10
        d11 = tables[table, i + 1, j + 1, k + 1, n] - c11
        c00 += wu * d00
        c01 += wu * d01
        c10 = c10 + wu * d10 - c00
        c11 = c11 + wu * d11 - c01
        f0 = c00 + wb * c10
        f1 = c01 + wb * c11 - f0
        g0 = d00 + wb * (d10 - d00)
        g1 = d01 + wb * (d11 - d01)
        by_v = f1 * per_v
        out[e, n] = f0 + wv * f1
        out[e, 4 + n] = by_v
        out[e, 8 + n] = (c10 + wv * (c11 - c10)) * per_b - (g0 + wv * (g1 - g0)) * per_u - by_v
    conductance = math.exp(out[e, 0])
    current = v * conductance
    out[e, 0] = current
    out[e, 4] = conductance + current * out[e, 4]
    out[e, 8] = -conductance + current * out[e, 8]


@_inline
def _elements(tables, axes, bins, kinds, gates, volts, sink, out):
    """Evaluate every element of the string into the rows of `out`."""
    last = kinds.size - 1
    for e in range(kinds.size):
        below = volts[e + 1] if e < last else sink
        if kinds[e] == RESISTOR:
            for c in range(12):
                out[e, c] = 0.0
            out[e, 0] = (volts[e] - below) * gates[e]
            out[e, 4] = gates[e]
            out[e, 8] = -gates[e]
        else:
            _evaluate(tables, axes, bins, kinds[e], gates[e], volts[e], below, out, e)


@_inline
def _bitline(charges, axis, volt):
    """Charge and capacitance of the bitline."""
    f = (volt - axis[0]) * axis[1]
    i = _index(f, charges.size - 2.0)
    slope = charges[i + 1] - charges[i]
    return charges[i] + (f - i) * slope, slope * axis[1]


@_inline
def _node_charges(work, bitline, charge):
    """Charge of every node into `charge`."""
    charge[0] = work[0, 1] + bitline
    for j in range(1, charge.size):
        charge[j] = work[j, 1] + work[j - 1, 2]


@_inline
def _move_charges(work, capacitance, move, charge):
    """Let the charges follow the move of the voltages, linearly."""
    last = charge.size - 1
    charge[0] += capacitance * move[0]
    for j in range(charge.size):
        charge[j] += work[j, 5] * move[j]
        if j < last:
            charge[j] += work[j, 9] * move[j + 1]
        if j > 0:
            charge[j] += work[j - 1, 6] * move[j - 1] + work[j - 1, 10] * move[j]


@_inline
def _extrapolate(past, instants, known, t, guess):
    """The polynomial through the last `known` solutions, at `t`."""
    guess[:] = past[0]
    if known >= 2:
        t0, t1, t2 = instants[0], instants[1], instants[2]
        for j in range(guess.size):
            first = (past[0, j] - past[1, j]) / (t0 - t1)
            guess[j] += first * (t - t0)
            if known >= 3:
                second = (first - (past[1, j] - past[2, j]) / (t1 - t2)) / (t0 - t2)
                guess[j] += second * (t - t0) * (t - t1)


@_inline
def _newton(work, capacitance, charge, history, rates, volts, scratch, move):
    """One Newton step by elimination of the tridiagonal system; the largest move, or NaN."""
    n = volts.size
    for j in range(n):
        current = work[j, 0]
        diagonal = rates[0] * work[j, 5] + work[j, 4]
        if j == 0:
            diagonal += rates[0] * capacitance
        else:
            current -= work[j - 1, 0]
            diagonal += rates[0] * work[j - 1, 10] - work[j - 1, 8]
        right = -(
            current + rates[0] * charge[j] + rates[1] * history[0, j] + rates[2] * history[1, j]
        )
        if j > 0:
            lower = (rates[0] * work[j - 1, 6] - work[j - 1, 4]) / scratch[j - 1, 0]
            diagonal -= lower * scratch[j - 1, 1]
            right -= lower * scratch[j - 1, 2]
        scratch[j, 0] = diagonal
        scratch[j, 1] = rates[0] * work[j, 9] + work[j, 8]
        scratch[j, 2] = right
    largest = total = x = 0.0
    for j in range(n - 1, -1, -1):
        x = (scratch[j, 2] - (scratch[j, 1] * x if j < n - 1 else 0.0)) / scratch[j, 0]
        move[j] = min(max(x, -LARGEST_MOVE), LARGEST_MOVE)
        volts[j] += move[j]
        largest = max(largest, abs(move[j]))
        total += x
    return total if math.isnan(total) else largest


@_inline
def _difference(volts, guess, node_error, bitline_error):
    """How far the prediction was off, in units of what is allowed."""
    error = 0.0
    for j in range(volts.size):
        error = max(error, abs(volts[j] - guess[j]))
    return max(error / node_error, abs(volts[0] - guess[0]) / bitline_error)


@_inline
def _instant(past, instants, known, level):
    """Time at which the bitline passed `level` within the last step."""
    t0, t1, t2 = instants[0], instants[1], instants[2]
    y0, y1, y2 = past[0, 0], past[1, 0], past[2, 0]
    first = (y0 - y1) / (t0 - t1)
    linear = t1 + (level - y1) / first
    if known < 3:
        return linear
    # the parabola through the last three points, solved for the level by Newton
    second = (first - (y1 - y2) / (t1 - t2)) / (t0 - t2)
    x = linear
    for _ in range(8):
        x -= (y0 + (x - t0) * (first + second * (x - t1)) - level) / (
            first + second * (2 * x - t0 - t1)
        )
    return x if t1 <= x <= t0 else linear


@_jit
def discharge(  # noqa: PLR0912, PLR0915 - one loop over steps; parts that can stand alone do
    tables,
    axes,
    bins,
    kinds,
    gates,
    selects,
    v_select,
    edge,
    bitline,
    bitline_axis,
    start,
    sinks,
    levels,
    stop,
    first_step,
    node_error,
    bitline_error,
):
    """Times at which the bitline of each sample falls through its levels.

    Parameters
    ----------
    tables, axes, bins : ndarray
        See `nandcosim.spice.device_table.DeviceTables`.
    kinds : ndarray of int, shape (elements,)
        `RESISTOR`, or the number of a table.
    gates : ndarray, shape (samples, elements)
        Gate voltage less stored shift in V; for a resistor its conductance.
    selects : ndarray of int
        Elements whose gate rises from 0 to `v_select` V within `edge` s.
    bitline : ndarray
        Charge of the bitline in C, at the voltages of `bitline_axis`: low end, steps per V.
    start : float
        Voltage of the bitline at selection; the string is at 0 V.
    sinks : ndarray, shape (samples,)
        Voltage that the source line ends in.
    levels : ndarray, shape (samples, 2)
        In V.
    stop, first_step : float
        In s from selection.
    node_error, bitline_error : float
        Largest difference, in V, between a step's prediction and its solution.

    Returns
    -------
    times : ndarray, shape (samples, 2)
        In s; NaN where there is no crossing.
    solved : ndarray of bool, shape (samples,)
    """
    samples, n = gates.shape
    times = np.full((samples, 2), np.nan)
    solved = np.zeros(samples, np.bool_)
    work, scratch = np.zeros((n, 12)), np.empty((n, 3))
    volts, guess, gate = np.empty(n), np.empty(n), np.empty(n)
    charge, move = np.empty(n), np.empty(n)
    past, history = np.zeros((3, n)), np.zeros((2, n))
    instants, rates = np.empty(3), np.empty(3)
    for s in range(samples):
        gate[:] = gates[s]
        gate[selects] = 0.0
        volts[:] = 0.0
        volts[0] = start
        _elements(tables, axes, bins, kinds, gate, volts, sinks[s], work)
        _node_charges(work, _bitline(bitline, bitline_axis, start)[0], history[0])
        past[0] = volts
        instants[:] = 0.0
        known = 1
        h = first_step
        for _ in range(MOST_STEPS):
            t = instants[0] + h
            for end in (edge, stop):  # land on them; a step never crosses one
                if instants[0] < end and t > end * (1 - 1e-9):
                    t = end
            h = t - instants[0]
            for e in selects:
                gate[e] = v_select * min(t / edge, 1.0)
            _extrapolate(past, instants, known, t, guess)
            volts[:] = guess
            if known >= 2:  # second-order backward differences, else implicit Euler
                w = h / (instants[0] - instants[1])
                rates[0] = (1 + 2 * w) / (1 + w) / h
                rates[1] = -(1 + w) / h
                rates[2] = w * w / (1 + w) / h
            else:
                rates[0], rates[1], rates[2] = 1 / h, -1 / h, 0.0
            moved = np.inf
            for _ in range(MOST_ITERATIONS):
                _elements(tables, axes, bins, kinds, gate, volts, sinks[s], work)
                held, capacitance = _bitline(bitline, bitline_axis, volts[0])
                _node_charges(work, held, charge)
                moved = _newton(work, capacitance, charge, history, rates, volts, scratch, move)
                if not moved >= CONVERGED:  # or NaN
                    break
            if not moved < CONVERGED:
                h *= SHRINK
                if h < SMALLEST_STEP * first_step:
                    break
                continue
            growth = LARGEST_GROWTH
            if known >= 2:
                error = _difference(volts, guess, node_error, bitline_error) + 1e-9
                growth = min(LARGEST_GROWTH, max(SHRINK, 0.85 * error ** (-1.0 / known)))
                if error > 1.5:
                    h *= min(growth, 0.7)
                    continue
            _move_charges(work, capacitance, move, charge)
            history[1] = history[0]
            history[0] = charge
            past[2], past[1], past[0] = past[1], past[0], volts
            instants[2], instants[1], instants[0] = instants[1], instants[0], t
            known = min(known + 1, 3)
            for c in range(2):
                if math.isnan(times[s, c]) and volts[0] <= levels[s, c]:
                    times[s, c] = _instant(past, instants, known, levels[s, c])
            if t == stop or not (math.isnan(times[s, 0]) or math.isnan(times[s, 1])):
                solved[s] = True
                break
            if t == edge:  # the slope of the select lines breaks here: start anew
                known = 1
                h = first_step
            else:
                h *= growth
    return times, solved
