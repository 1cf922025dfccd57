# mypy: disable-error-code="no-untyped-def"
"""Compiled loops of DTS scoring.

This module imports Numba and is itself imported only inside functions, so
that `nandcosim.systems.dnova` costs nothing until a score is asked for. The
readable statement of what these loops compute is
`nandcosim.systems.dnova.score`; the two are kept equal bit for bit by
`tests/unit/test_dnova_bitslice.py`.

Layout of a bit-sliced store
----------------------------
Vectors are numbered by position; 64 consecutive ones share a machine word and
`width` words make a block. A block is a list of rows of `width` words::

    row 0                      all zeros
    row 1                      all ones
    row 2 + d * T + (t - lo - 1)   bit set where level[position, d] >= t

for the thresholds t = lo + 1 .. hi (T of them) that can split the stored
levels lo .. hi; any lower threshold is row 1 and any higher one is row 0. A set
bit is a cell that does *not* conduct at threshold t, so a sensed group fails
where the OR of its cells' rows is set.

A scan adds those failure words into vertical counters: plane k of a counter
holds bit k of 64 counts in one word, and eight rows are added at once by
carry-save adders. Rows are read eight at a time because one stream of short
rows leaves the memory system mostly idle.
"""

from __future__ import annotations

import numpy as np

from nandcosim.errors import MissingExtraError

try:
    import numba
except ImportError as error:  # pragma: no cover - depends on the environment
    raise MissingExtraError("compiled DTS scoring", "numba", "retrieval") from error

__all__ = [
    "TILE",
    "pack_rows",
    "plan_rows",
    "read_uniforms",
    "scan_ranges",
    "score_levels",
    "score_reads",
    "select_smallest",
]

TILE = 512
"""Words a scan works on at once; blocks are at most this wide."""

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)

# Scratch planes of a scan, each TILE words: eight group slots, then the counter
# of the string being sensed. Fixed offsets in one array let LLVM prove that
# the planes do not overlap and vectorise across words.
_SLOTS = 8
_COUNTER = _SLOTS * TILE

_jit = numba.njit(nogil=True, cache=True, boundscheck=False)
_inline = numba.njit(nogil=True, cache=True, inline="always")


# --------------------------------------------------------------------------
# Building


@_jit
def pack_rows(levels, lo, hi, width, bits):
    """Fill a bit-sliced store.

    Parameters
    ----------
    levels : integer array (n, D)
        Stored levels, each within lo .. hi.
    lo, hi : int
        Smallest and largest stored level.
    width : int
        Words a block.
    bits : uint64 array (n_blocks * (2 + D * (hi - lo)) * width,)
        Zero on entry; overwritten with the layout of this module.
    """
    n, dim = levels.shape
    n_rows = hi - lo
    stride = (2 + dim * n_rows) * width
    onehot = np.zeros(n_rows + 1, np.uint64)
    for word in range((n + 63) // 64):
        base = (word // width) * stride + word % width
        bits[base + width] = _ALL
        count = min(64, n - word * 64)
        for d in range(dim):
            onehot[:] = _ZERO
            for i in range(count):
                onehot[levels[word * 64 + i, d] - lo] |= _ONE << np.uint64(i)
            at_least = _ZERO
            for t in range(n_rows - 1, -1, -1):
                at_least |= onehot[t + 1]
                bits[base + (2 + d * n_rows + t) * width] = at_least


@_jit
def plan_rows(thresholds, lo, hi, width, m, cells, invert_cell, invert_group):
    """Rows that a query reads, as word offsets from the start of a block.

    Groups are padded to a multiple of eight a string, and cells to 1, 2, 4 or
    a multiple of 8 a group, with constant rows that change no result.

    Parameters
    ----------
    thresholds : int64 array (D,)
        A cell conducts iff its level is below this.
    lo, hi, width : int
        As in `pack_rows`.
    m, cells : int
        Cells a sensed group, cells a string.
    invert_cell, invert_group : bool
        Complement each cell's bit, or each group's failure.

    Returns
    -------
    int64 array (n_strings, groups, cells_a_group)
    """
    dim = thresholds.size
    n_rows = hi - lo
    n_strings = (dim + cells - 1) // cells
    groups = (min(cells, dim) + m - 1) // m
    groups = (groups + 7) // 8 * 8
    padded = m
    if m == 3:
        padded = 4
    elif m > 4:
        padded = (m + 7) // 8 * 8
    rows = np.empty((n_strings, groups, padded), np.int64)
    neutral = 1 if invert_cell else 0
    passing = 1 if invert_cell != invert_group else 0
    for s in range(n_strings):
        end = min(dim, (s + 1) * cells)
        for g in range(groups):
            first = s * cells + g * m
            last = min(end, first + m)
            for c in range(padded):
                d = first + c
                if first >= end:
                    row = passing
                elif d >= last:
                    row = neutral
                elif thresholds[d] <= lo:
                    row = 1
                elif thresholds[d] > hi:
                    row = 0
                else:
                    row = 2 + d * n_rows + thresholds[d] - lo - 1
                rows[s, g, c] = row * width
    return rows


# --------------------------------------------------------------------------
# Scanning


@_inline
def _add3(a, b, c):
    """Carry-save adder: sum and carry of three words, bit by bit."""
    u = a ^ b
    return u ^ c, (a & b) | (u & c)


@_inline
def _add8(s1, s2, s4, f0, f1, f2, f3, f4, f5, f6, f7):
    """Add eight failure words to a three-plane counter; also the carry of weight 8."""
    s1, two_a = _add3(s1, f0, f1)
    s1, two_b = _add3(s1, f2, f3)
    s2, four_a = _add3(s2, two_a, two_b)
    s1, two_a = _add3(s1, f4, f5)
    s1, two_b = _add3(s1, f6, f7)
    s2, four_b = _add3(s2, two_a, two_b)
    s4, eight = _add3(s4, four_a, four_b)
    return s1, s2, s4, eight


@_jit
def _count8_rows(bits, r0, r1, r2, r3, r4, r5, r6, r7, flip, buf, n):
    """Count eight one-cell groups straight from their rows (m = 1)."""
    for w in range(n):
        s1, s2, s4, eight = _add8(
            buf[_COUNTER + w],
            buf[_COUNTER + TILE + w],
            buf[_COUNTER + 2 * TILE + w],
            bits[r0 + w] ^ flip,
            bits[r1 + w] ^ flip,
            bits[r2 + w] ^ flip,
            bits[r3 + w] ^ flip,
            bits[r4 + w] ^ flip,
            bits[r5 + w] ^ flip,
            bits[r6 + w] ^ flip,
            bits[r7 + w] ^ flip,
        )
        buf[_COUNTER + w] = s1
        buf[_COUNTER + TILE + w] = s2
        buf[_COUNTER + 2 * TILE + w] = s4
        buf[w] = eight


@_jit
def _count8_slots(buf, flip, n):
    """Count the eight groups whose failures stand in the slots."""
    for w in range(n):
        s1, s2, s4, eight = _add8(
            buf[_COUNTER + w],
            buf[_COUNTER + TILE + w],
            buf[_COUNTER + 2 * TILE + w],
            buf[w] ^ flip,
            buf[TILE + w] ^ flip,
            buf[2 * TILE + w] ^ flip,
            buf[3 * TILE + w] ^ flip,
            buf[4 * TILE + w] ^ flip,
            buf[5 * TILE + w] ^ flip,
            buf[6 * TILE + w] ^ flip,
            buf[7 * TILE + w] ^ flip,
        )
        buf[_COUNTER + w] = s1
        buf[_COUNTER + TILE + w] = s2
        buf[_COUNTER + 2 * TILE + w] = s4
        buf[w] = eight


@_jit
def _join2(bits, r0, r1, r2, r3, r4, r5, r6, r7, flip, buf, at, n):
    """Failures of four groups of two cells into four slots from word `at`."""
    for w in range(n):
        buf[at + w] = (bits[r0 + w] ^ flip) | (bits[r1 + w] ^ flip)
        buf[at + TILE + w] = (bits[r2 + w] ^ flip) | (bits[r3 + w] ^ flip)
        buf[at + 2 * TILE + w] = (bits[r4 + w] ^ flip) | (bits[r5 + w] ^ flip)
        buf[at + 3 * TILE + w] = (bits[r6 + w] ^ flip) | (bits[r7 + w] ^ flip)


@_jit
def _join4(bits, r0, r1, r2, r3, r4, r5, r6, r7, flip, buf, at, n):
    """Failures of two groups of four cells into two slots from word `at`."""
    for w in range(n):
        buf[at + w] = (
            (bits[r0 + w] ^ flip)
            | (bits[r1 + w] ^ flip)
            | (bits[r2 + w] ^ flip)
            | (bits[r3 + w] ^ flip)
        )
        buf[at + TILE + w] = (
            (bits[r4 + w] ^ flip)
            | (bits[r5 + w] ^ flip)
            | (bits[r6 + w] ^ flip)
            | (bits[r7 + w] ^ flip)
        )


@_jit
def _join8(bits, r0, r1, r2, r3, r4, r5, r6, r7, flip, keep, buf, at, n):
    """Failure of (part of) one group of eight cells; `keep` masks what the slot holds already."""
    for w in range(n):
        buf[at + w] = (
            (buf[at + w] & keep)
            | (bits[r0 + w] ^ flip)
            | (bits[r1 + w] ^ flip)
            | (bits[r2 + w] ^ flip)
            | (bits[r3 + w] ^ flip)
            | (bits[r4 + w] ^ flip)
            | (bits[r5 + w] ^ flip)
            | (bits[r6 + w] ^ flip)
            | (bits[r7 + w] ^ flip)
        )


@_jit
def _carry_eights(buf, planes, n):
    """Ripple the carries of weight 8 (slot 0) upwards; plane `planes` remembers overflow."""
    for k in range(3, planes):
        at = _COUNTER + k * TILE
        for w in range(n):
            carry = buf[w]
            held = buf[at + w]
            buf[at + w] = held ^ carry
            buf[w] = held & carry
    at = _COUNTER + planes * TILE
    for w in range(n):
        buf[at + w] |= buf[w]


@_jit
def _count_string(bits, base, rows, flip_cell, flip_group, buf, planes, n):
    """Failures of one string (rows: groups, cells a group) into the counter planes."""
    groups, size = rows.shape
    for g in range(0, groups, _SLOTS):
        if size == 1:
            _count8_rows(
                bits,
                base + rows[g, 0],
                base + rows[g + 1, 0],
                base + rows[g + 2, 0],
                base + rows[g + 3, 0],
                base + rows[g + 4, 0],
                base + rows[g + 5, 0],
                base + rows[g + 6, 0],
                base + rows[g + 7, 0],
                flip_cell ^ flip_group,
                buf,
                n,
            )
            _carry_eights(buf, planes, n)
            continue
        per = min(size, 8)
        flat = rows[g : g + _SLOTS].reshape(-1)
        for i in range(0, flat.size, 8):
            r0, r1 = base + flat[i], base + flat[i + 1]
            r2, r3 = base + flat[i + 2], base + flat[i + 3]
            r4, r5 = base + flat[i + 4], base + flat[i + 5]
            r6, r7 = base + flat[i + 6], base + flat[i + 7]
            at = (i // size) * TILE
            if per == 2:
                _join2(bits, r0, r1, r2, r3, r4, r5, r6, r7, flip_cell, buf, at, n)
            elif per == 4:
                _join4(bits, r0, r1, r2, r3, r4, r5, r6, r7, flip_cell, buf, at, n)
            else:
                keep = _ALL if i % size else _ZERO
                _join8(bits, r0, r1, r2, r3, r4, r5, r6, r7, flip_cell, keep, buf, at, n)
        _count8_slots(buf, flip_group, n)
        _carry_eights(buf, planes, n)


@_jit
def _merge_string(buf, merged, latch_bits, planes, n):
    """Saturate the counter at latch_bits and add it to the merged counter."""
    over = _COUNTER + planes * TILE
    for k in range(latch_bits, planes):
        at = _COUNTER + k * TILE
        for w in range(n):
            buf[over + w] |= buf[at + w]
    buf[:TILE] = _ZERO
    for k in range(merged.size // TILE):
        into = k * TILE
        if k < latch_bits:
            at = _COUNTER + k * TILE
            for w in range(n):
                merged[into + w], buf[w] = _add3(
                    merged[into + w], buf[at + w] | buf[over + w], buf[w]
                )
        else:
            for w in range(n):
                held = merged[into + w]
                merged[into + w] = held ^ buf[w]
                buf[w] = held & buf[w]


@_jit
def _unpack(merged, n_words, first, out):
    """Vertical counters to one integer a vector, from position `first` on."""
    values = np.empty(64, np.uint16)
    for w in range(n_words):
        values[:] = 0
        for k in range(merged.size // TILE):
            word = merged[k * TILE + w]
            for i in range(64):
                values[i] |= np.uint16(((word >> np.uint64(i)) & _ONE) << np.uint64(k))
        start = first + w * 64
        for i in range(min(64, out.size - start)):
            out[start + i] = values[i]


@_jit
def _scan_sense(sense, block, offset, buf, merged, latch_bits, planes, n):
    """Merged deficits of one sense of a block's words, added to `merged`."""
    bits, stride, rows, flip_cell, flip_group = sense
    base = block * stride + offset
    for s in range(rows.shape[0]):
        buf[_COUNTER:] = _ZERO
        _count_string(bits, base, rows[s], flip_cell, flip_group, buf, planes, n)
        _merge_string(buf, merged, latch_bits, planes, n)


@_jit
def scan_ranges(first, second, width, latch_bits, merged_bits, ranges, out):
    """Merged deficits of the vectors in some ranges of positions.

    Parameters
    ----------
    first, second : tuple (bits, stride, rows, flip_cell, flip_group)
        The two senses of a query (for DTS, UBS and Comp UBS): a store filled by
        `pack_rows`, its words a block, the rows of `plan_rows` (no strings at all
        leaves a sense out), and 0 or all ones to complement cells' bits and
        groups' failures.
    width : int
        Words a row.
    latch_bits, merged_bits : int
        Width of a string's saturating deficit and of the exact merged sum.
    ranges : int64 array (r, 2)
        Half-open ranges of positions.
    out : uint16 array (n,)
        Receives the merged deficits. Words of 64 positions are scored whole, so
        neighbours of a range are written too (with their right values).
    """
    planes = max(latch_bits, 3)
    buf = np.zeros((_SLOTS + planes + 1) * TILE, np.uint64)
    merged = np.zeros(merged_bits * TILE, np.uint64)
    for r in range(ranges.shape[0]):
        if ranges[r, 1] <= ranges[r, 0]:
            continue
        word = ranges[r, 0] // 64
        end = (ranges[r, 1] + 63) // 64
        while word < end:
            block = word // width
            offset = word - block * width
            n = min(end, (block + 1) * width) - word
            merged[:] = _ZERO
            _scan_sense(first, block, offset, buf, merged, latch_bits, planes, n)
            _scan_sense(second, block, offset, buf, merged, latch_bits, planes, n)
            _unpack(merged, n, word * 64, out)
            word += n


@_jit
def score_levels(levels, thresholds, invert_cell, invert_group, m, cells, latch_bits, out):
    """Add the deficits of one sense of gathered vectors to `out`.

    Parameters
    ----------
    levels : int16 array (D, k)
        Effective levels of the candidates, one row a dimension so that the loops
        run along the candidates.
    thresholds : int64 array (D,)
        A cell conducts iff level < threshold.
    invert_cell, invert_group : bool
        As in `plan_rows`.
    m, cells, latch_bits : int
        Cells a group, cells a string, bits of the saturating deficit.
    out : int64 array (k,)
        Incremented.
    """
    dim, k = levels.shape
    limit = np.int16((1 << latch_bits) - 1)
    deficit = np.empty(k, np.int16)
    fails = np.empty(k, np.int16)
    flip_cell, flip_group = np.int16(invert_cell), np.int16(invert_group)
    for start in range(0, dim, cells):
        end = min(dim, start + cells)
        deficit[:] = 0
        for first in range(start, end, m):
            fails[:] = 0
            for d in range(first, min(end, first + m)):
                threshold = np.int16(thresholds[d])
                row = levels[d]
                for i in range(k):
                    fails[i] |= np.int16(row[i] >= threshold) ^ flip_cell
            for i in range(k):
                deficit[i] += fails[i] ^ flip_group
        for i in range(k):
            out[i] += min(deficit[i], limit)


# --------------------------------------------------------------------------
# Reads with a noisy sense amplifier


@_inline
def _mix(z):
    """Finaliser of the SplitMix64 generator: a bijective 64-bit hash."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@_inline
def _vector_stream(key, vector):
    return _mix(key + np.uint64(vector) * np.uint64(0x9E3779B97F4A7C15))


@_inline
def _uniform(stream, group):
    z = _mix(stream + np.uint64(group) * np.uint64(0xD1B54A32D192ED03))
    return (z >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@_jit
def read_uniforms(key, vectors, groups, out):
    """Uniform numbers in [0, 1) of the reads of some groups of some vectors.

    A pure function of (key, vector, group). `out` has shape (vectors, groups).
    """
    for i in range(vectors.size):
        stream = _vector_stream(key, vectors[i])
        for j in range(groups.size):
            out[i, j] = _uniform(stream, groups[j])


@_jit
def score_reads(
    stored, positions, ids, bounds, invert_group, m, cells, latch_bits,
    lowest, chances, key, first_group, out,
):  # fmt: skip
    """Add the deficits of one sense, with a fresh decision error in every read.

    Parameters
    ----------
    stored : int16 array (n, D)
        Stored thresholds, in parts of a level spacing.
    positions : int64 array (k,)
        Rows of `stored` to sense.
    ids : int64 array (n,)
        Identity of each row; names the random stream, so that the order of
        storage does not matter.
    bounds : int64 array (D,)
        Applied level less one half, in parts. A cell's margin is its bound less its
        stored threshold.
    invert_group : bool
        A conducting group fails (LBS).
    m, cells, latch_bits : int
        As in `score_levels`.
    lowest : int
    chances : float array
        A group whose worst margin is lowest + i parts conducts with probability
        chances[i]; never below, always above.
    key : uint64
        Names (seed, query, stage).
    first_group : int
        Number of this sense's first group, so that no two senses share a read.
    out : int64 array (k,)
        Incremented.
    """
    dim = stored.shape[1]
    limit = (1 << latch_bits) - 1
    margin = np.empty(dim, np.int32)
    for i in range(positions.size):
        row = positions[i]
        stream = _vector_stream(key, ids[row])
        for d in range(dim):
            margin[d] = bounds[d] - stored[row, d]
        group = first_group
        for start in range(0, dim, cells):
            end = min(dim, start + cells)
            deficit = 0
            for first in range(start, end, m):
                worst = margin[first]
                for d in range(first + 1, min(end, first + m)):
                    worst = min(worst, margin[d])
                step = worst - lowest
                if step < 0:
                    conducts = False
                elif step >= chances.size:
                    conducts = True
                else:
                    conducts = _uniform(stream, group) < chances[step]
                deficit += conducts == invert_group
                group += 1
            out[i] += min(deficit, limit)


# --------------------------------------------------------------------------
# Selection


@_jit
def select_smallest(deficits, ids, k):
    """The k smallest by (deficit, id), in that order.

    Parameters
    ----------
    deficits : non-negative integer array (n,)
    ids : int64 array (n,)
        Distinct, non-negative, below 2**40.
    k : int

    Returns
    -------
    int64 array (min(k, n),)
        Indices into `deficits`.
    """
    n = deficits.size
    k = min(k, n)
    if k == 0:
        return np.empty(0, np.int64)
    histogram = np.zeros(deficits.max() + 1, np.int64)
    for i in range(n):
        histogram[deficits[i]] += 1
    cut = 0
    below = 0
    while below + histogram[cut] < k:
        below += histogram[cut]
        cut += 1
    # Of those at the cut only the smallest ids enter.
    tied = np.empty(histogram[cut], np.int64)
    j = 0
    for i in range(n):
        if deficits[i] == cut:
            tied[j] = ids[i]
            j += 1
    last_id = np.partition(tied, k - below - 1)[k - below - 1]
    kept = np.empty(k, np.int64)
    rank = np.empty(k, np.int64)
    j = 0
    for i in range(n):
        if deficits[i] < cut or (deficits[i] == cut and ids[i] <= last_id):
            kept[j] = i
            rank[j] = (np.int64(deficits[i]) << 40) | ids[i]
            j += 1
    return kept[np.argsort(rank)]
