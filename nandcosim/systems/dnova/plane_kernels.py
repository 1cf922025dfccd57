# mypy: disable-error-code="no-untyped-def, no-untyped-call, call-arg, attr-defined, unreachable"
# (an intrinsic is called without the typing context that it is defined with)
"""Compiled loops of the three-stage search over inverted lists.

Like `nandcosim.systems.dnova.kernels` this module imports Numba and is itself
imported only inside functions.

Layout of a list
----------------
A vector's levels are binary numbers; plane k of a word holds bit k of the levels of
64 components. Two words take 128 components in turn, so that a group of two or more
neighbours is the OR of both words: component d is bit (d mod 128) // 2 of word
2 (d // 128) + d mod 2. A list is a run of blocks of 64 vectors (the last one narrower)::

    block[(w * planes + k) * width + lane]

so a list of n vectors is one contiguous region of n * words * planes machine
words without padding, for any n. A comparison goes through the planes from the
lowest bit up, for 64 components at a time and eight vectors an AVX-512 register.
`kernels` turns this by 90 degrees (a word holds 64 vectors): it is faster for
thousands of neighbours and wasteful for the short lists of an index.

Stores are given by the address of their first word, because the segments of an
index are any number of arrays, some of them memory-mapped. Whoever calls keeps
the arrays alive.
"""

from __future__ import annotations

import numpy as np

from nandcosim.errors import MissingExtraError

try:
    import numba
    from numba import types
    from numba.extending import intrinsic
except ImportError as error:  # pragma: no cover - depends on the environment
    raise MissingExtraError("compiled DTS scoring", "numba", "retrieval") from error

__all__ = [
    "LANES",
    "SLACK",
    "nearest_lists",
    "pack_lists",
    "plan_thresholds",
    "score_rows",
    "search_lists",
    "string_histograms",
    "unpack_lists",
]

LANES = 64
"""Vectors a block."""

SLACK = 8
"""Words after the end of a store: scoring goes in steps of a vector register's eight words."""

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_RADIX = 8
"""Bits sorted at once."""

_DENSE = 4
"""A block is scored whole if one in so many of its vectors is asked for."""

_UNBOUNDED = (1 << 40,)
"""Shape of a store known by its address only."""

_jit = numba.njit(nogil=True, cache=True, boundscheck=False)
# Loops that shall vectorise count in unsigned integers: for a signed index Numba also
# compiles the case of counting from an array's end.
_inline = numba.njit(nogil=True, cache=True)


@intrinsic
def _popcount(_context, _word):
    def generate(_context, builder, _signature, arguments):
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@intrinsic
def _words_at(_context, _address):
    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.uint64)(types.uint64), generate


@intrinsic
def _integers_at(_context, _address):
    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.int64)(types.uint64), generate


# --------------------------------------------------------------------------
# Building


@_inline
def _place(d):
    """Word and bit of component d."""
    return 2 * (d // 128) + d % 2, np.uint64((d % 128) // 2)


@_jit
def pack_lists(levels, offsets, planes, out):
    """Fill a store, list by list.

    Parameters
    ----------
    levels : integer array (n, D)
        0 .. 2**planes - 1.
    offsets : int64 array (lists + 1,)
        List i holds rows offsets[i] .. offsets[i + 1] - 1.
    planes : int
    out : uint64 array (n * words * planes + SLACK,)
        Overwritten but for the slack.
    """
    dim = levels.shape[1]
    size = 2 * ((dim + 127) // 128) * planes
    packed = np.empty(size, np.uint64)
    for i in range(offsets.size - 1):
        for row in range(offsets[i], offsets[i + 1]):
            packed[:] = _ZERO
            for d in range(dim):
                w, bit = _place(d)
                level = np.uint64(levels[row, d])
                for k in range(planes):
                    packed[w * planes + k] |= ((level >> np.uint64(k)) & _ONE) << bit
            block, lane = divmod(row - offsets[i], LANES)
            first = offsets[i] + block * LANES
            width = min(LANES, offsets[i + 1] - first)
            for p in range(size):
                out[first * size + p * width + lane] = packed[p]


@_jit
def unpack_lists(store, offsets, planes, out):
    """Levels of a store filled by `pack_lists` into `out`, shape (n, D)."""
    dim = out.shape[1]
    size = 2 * ((dim + 127) // 128) * planes
    for i in range(offsets.size - 1):
        for row in range(offsets[i], offsets[i + 1]):
            block, lane = divmod(row - offsets[i], LANES)
            first = offsets[i] + block * LANES
            width = min(LANES, offsets[i + 1] - first)
            for d in range(dim):
                w, bit = _place(d)
                level = _ZERO
                for k in range(planes):
                    word = store[first * size + (w * planes + k) * width + lane]
                    level |= ((word >> bit) & _ONE) << np.uint64(k)
                out[row, d] = level


@_jit
def plan_thresholds(thresholds, flips, low, planes, out):
    """What the comparators of some queries need, 64 components a word.

    Parameters
    ----------
    thresholds : int64 array (nq, senses, D)
        A cell stays off iff its level is at or above this.
    flips : bool array (senses,)
        Whether that bit is turned round afterwards.
    low : int
        Level that the store holds as 0.
    planes : int
    out : uint64 array (nq, senses, words, planes + 1)
        Word 0 is the comparison's start: set for >=, clear for >, which says "never"
        of the highest number; word 1 + k is the complement of bit k of the threshold.
        Components beyond D are thresholds that leave no cell off.
    """
    nq, senses, dim = thresholds.shape
    never = (1 << planes) - 1
    values = np.empty(out.shape[2] * 64, np.int64)
    word = np.empty(64, np.uint64)
    for q in range(nq):
        for s in range(senses):
            values[:] = 0 if flips[s] else never + 1
            for d in range(dim):
                values[d] = thresholds[q, s, d] - low
            for w in range(out.shape[2]):
                start = _ZERO
                first = (w // 2) * 128 + w % 2
                for i in range(64):
                    value = values[first + 2 * i]
                    start |= np.uint64(value <= never) << np.uint64(i)
                    word[i] = np.uint64(max(0, min(value, never)))
                out[q, s, w, 0] = start
                for k in range(planes):
                    bits = _ZERO
                    for i in range(64):
                        bits |= ((word[i] >> np.uint64(k)) & _ONE) << np.uint64(i)
                    out[q, s, w, 1 + k] = ~bits


# --------------------------------------------------------------------------
# Scoring a block


@_inline
def _step(bit, below, held):
    """One step of a comparator: level >= threshold, from the lowest bit up."""
    return (bit & below) | (held & (bit | below))


@_inline
def _fails(x, y, joint, first, second, invert, mask):
    """Failed groups of two or more cells, and where m = 1 those of the even components."""
    joined = x | (y & joint)
    joined |= joined >> first
    joined |= joined >> second
    return _popcount((joined ^ invert) & mask)


@_inline
def _joins(doublings):
    """Whether both words of a string are joined, and by how many bits groups are folded."""
    return (
        _ALL if doublings > 0 else _ZERO,
        np.uint64(1 if doublings > 1 else 0),
        np.uint64(2 if doublings > 2 else 0),
    )


@_jit
def _score_pair_4(
    store, at, width, n, plan, flip, invert, masks, doublings, limit, total,
):  # fmt: skip
    """Add the saturated deficits of one sense of a string of two words, all in registers.

    Four planes, groups of 1, 2, 4 or 8 cells: the case that a search lives on.
    """
    joint, first, second = _joins(doublings)
    at, width = np.uint64(at), np.uint64(width)
    a0 = at
    a1 = a0 + width
    a2 = a1 + width
    a3 = a2 + width
    b0 = a3 + width
    b1 = b0 + width
    b2 = b1 + width
    b3 = b2 + width
    s, t0, t1, t2, t3 = plan[0, 0], plan[0, 1], plan[0, 2], plan[0, 3], plan[0, 4]
    z, u0, u1, u2, u3 = plan[1, 0], plan[1, 1], plan[1, 2], plan[1, 3], plan[1, 4]
    for i in range(np.uint64(n)):
        x = _step(store[a1 + i], t1, _step(store[a0 + i], t0, s))
        x = _step(store[a2 + i], t2, x)
        x = _step(store[a3 + i], t3, x) ^ flip
        y = _step(store[b1 + i], u1, _step(store[b0 + i], u0, z))
        y = _step(store[b2 + i], u2, y)
        y = _step(store[b3 + i], u3, y) ^ flip
        failed = _fails(x, y, joint, first, second, invert, masks[0])
        failed += _popcount((y ^ invert) & masks[1])
        total[i] += min(failed, limit)


@_jit
def _score_pair_5(
    store, at, width, n, plan, flip, invert, masks, doublings, limit, total,
):  # fmt: skip
    """As `_score_pair_4` with five planes: cells with errors."""
    joint, first, second = _joins(doublings)
    at, width = np.uint64(at), np.uint64(width)
    a0 = at
    a1 = a0 + width
    a2 = a1 + width
    a3 = a2 + width
    a4 = a3 + width
    b0 = a4 + width
    b1 = b0 + width
    b2 = b1 + width
    b3 = b2 + width
    b4 = b3 + width
    s, t0, t1, t2, t3, t4 = plan[0, 0], plan[0, 1], plan[0, 2], plan[0, 3], plan[0, 4], plan[0, 5]
    z, u0, u1, u2, u3, u4 = plan[1, 0], plan[1, 1], plan[1, 2], plan[1, 3], plan[1, 4], plan[1, 5]
    for i in range(np.uint64(n)):
        x = _step(store[a1 + i], t1, _step(store[a0 + i], t0, s))
        x = _step(store[a2 + i], t2, x)
        x = _step(store[a3 + i], t3, x)
        x = _step(store[a4 + i], t4, x) ^ flip
        y = _step(store[b1 + i], u1, _step(store[b0 + i], u0, z))
        y = _step(store[b2 + i], u2, y)
        y = _step(store[b3 + i], u3, y)
        y = _step(store[b4 + i], u4, y) ^ flip
        failed = _fails(x, y, joint, first, second, invert, masks[0])
        failed += _popcount((y ^ invert) & masks[1])
        total[i] += min(failed, limit)


@_jit
def _score_both_4(
    store, at, width, n, plan, over, flip, turn, invert, inverts, masks, doublings, limit, total,
):  # fmt: skip
    """As `_score_pair_4`, for two senses of the same store (DTS over perfect cells)."""
    joint, first, second = _joins(doublings)
    at, width = np.uint64(at), np.uint64(width)
    a0 = at
    a1 = a0 + width
    a2 = a1 + width
    a3 = a2 + width
    b0 = a3 + width
    b1 = b0 + width
    b2 = b1 + width
    b3 = b2 + width
    s, t0, t1, t2, t3 = plan[0, 0], plan[0, 1], plan[0, 2], plan[0, 3], plan[0, 4]
    z, u0, u1, u2, u3 = plan[1, 0], plan[1, 1], plan[1, 2], plan[1, 3], plan[1, 4]
    o, v0, v1, v2, v3 = over[0, 0], over[0, 1], over[0, 2], over[0, 3], over[0, 4]
    c, e0, e1, e2, e3 = over[1, 0], over[1, 1], over[1, 2], over[1, 3], over[1, 4]
    for i in range(np.uint64(n)):
        p0, p1, p2, p3 = store[a0 + i], store[a1 + i], store[a2 + i], store[a3 + i]
        r0, r1, r2, r3 = store[b0 + i], store[b1 + i], store[b2 + i], store[b3 + i]
        x = _step(p1, t1, _step(p0, t0, s))
        x = _step(p2, t2, x)
        x = _step(p3, t3, x) ^ flip
        y = _step(r1, u1, _step(r0, u0, z))
        y = _step(r2, u2, y)
        y = _step(r3, u3, y) ^ flip
        failed = _fails(x, y, joint, first, second, invert, masks[0])
        failed += _popcount((y ^ invert) & masks[1])
        x = _step(p1, v1, _step(p0, v0, o))
        x = _step(p2, v2, x)
        x = _step(p3, v3, x) ^ turn
        y = _step(r1, e1, _step(r0, e0, c))
        y = _step(r2, e2, y)
        y = _step(r3, e3, y) ^ turn
        again = _fails(x, y, joint, first, second, inverts, masks[0])
        again += _popcount((y ^ inverts) & masks[1])
        total[i] += min(failed, limit) + min(again, limit)


@_jit
def _off_word(store, at, width, n, plan, flip, off, to):
    """Cells that stay off, one word of components of n vectors, into off[to:to + n]."""
    to = np.uint64(to)
    for i in range(np.uint64(n)):
        off[to + i] = plan[0]
    for k in range(plan.size - 1):
        row, below = np.uint64(at + k * width), plan[1 + k]
        for i in range(np.uint64(n)):
            off[to + i] = _step(store[row + i], below, off[to + i])
    for i in range(np.uint64(n)):
        off[to + i] ^= flip


@_jit
def _off_cells(store, at, width, n, plan, flip, off):
    """Cells that stay off, for all words of components: off[w * LANES + vector]."""
    words, size = plan.shape
    for w in range(words):
        row = at + w * (size - 1) * width
        _off_word(store, row, width, n, plan[w], flip, off, w * LANES)


@_jit
def _count_folded(off, at, n, doublings, mask, odd_mask, invert, count):
    """Add the failed groups of two words, of 2**doublings neighbouring components each."""
    even = np.uint64(at)
    odd = np.uint64(at + LANES)
    for i in range(np.uint64(n)):
        count[i] += _popcount((off[odd + i] ^ invert) & odd_mask)
    if doublings > 0:
        for i in range(np.uint64(n)):
            off[even + i] |= off[odd + i]
    for j in range(doublings - 1):
        step = np.uint64(1 << j)
        for i in range(np.uint64(n)):
            off[even + i] |= off[even + i] >> step
    for i in range(np.uint64(n)):
        count[i] += _popcount((off[even + i] ^ invert) & mask)


@_jit
def _count_groups(off, first, last, part_starts, part_words, part_masks, invert, n, count):
    """Add the failed groups first .. last - 1, each spelt out as parts of words."""
    fails = np.empty(LANES, np.uint64)
    for g in range(first, last):
        for i in range(np.uint64(n)):
            fails[i] = _ZERO
        for p in range(part_starts[g], part_starts[g + 1]):
            at, mask = np.uint64(part_words[p] * LANES), part_masks[p]
            for i in range(np.uint64(n)):
                fails[i] |= off[at + i] & mask
        for i in range(np.uint64(n)):
            count[i] += np.uint64((fails[i] != _ZERO) != (invert != _ZERO))


@_jit
def _count_string(off, s, grouping, invert, n, count):
    """Failed groups of string s of n vectors."""
    doublings, word_starts, masks, group_starts, part_starts, part_words, part_masks = grouping
    for i in range(np.uint64(n)):
        count[i] = _ZERO
    if doublings >= 0:
        for w in range(word_starts[s], word_starts[s + 1], 2):
            _count_folded(off, w * LANES, n, doublings, masks[w], masks[w + 1], invert, count)
    else:
        first, last = group_starts[s], group_starts[s + 1]
        _count_groups(off, first, last, part_starts, part_words, part_masks, invert, n, count)


@_jit
def _score_pairs(store, at, width, n, plan, flip, invert, grouping, limit, total):
    """`_score_block` for strings of two words and few cells a group."""
    doublings, masks = grouping[0], grouping[2]
    planes = plan.shape[1] - 1
    for w in range(0, plan.shape[0], 2):
        if planes == 4:
            _score_pair_4(
                store, at + w * planes * width, width, n, plan[w : w + 2], flip, invert,
                masks[w : w + 2], doublings, limit, total,
            )  # fmt: skip
        else:
            _score_pair_5(
                store, at + w * planes * width, width, n, plan[w : w + 2], flip, invert,
                masks[w : w + 2], doublings, limit, total,
            )  # fmt: skip


@_inline
def _in_registers(grouping):
    """Whether every string is two words, and its groups 1, 2, 4 or 8 cells."""
    return 0 <= grouping[0] <= 3 and grouping[1][1] == 2


@_jit
def _score_block(store, at, width, n, plan, flip, invert, grouping, limit, scratch, total):
    """Add one sense's saturated deficits of the first n vectors of a block."""
    off, count = scratch
    size = plan.shape[1]
    if _in_registers(grouping) and 5 <= size <= 6:
        _score_pairs(store, at, width, n, plan, flip, invert, grouping, limit, total)
        return
    _off_cells(store, at, width, n, plan, flip, off)
    for s in range(grouping[1].size - 1):
        _count_string(off, s, grouping, invert, n, count)
        for i in range(np.uint64(n)):
            total[i] += min(count[i], limit)


@_inline
def _whole(width):
    """Whole registers: what is scored beyond a block's width is nobody's and not used."""
    return (width + 7) // 8 * 8


@_jit
def _new_scratch(words):
    return np.empty(words * LANES, np.uint64), np.empty(LANES, np.uint64)


@_jit
def _score_senses(stores, at, width, n, plans, flips, inverts, rule, scratch, total):
    """Deficits of the first n vectors of a block, all senses, into `total`."""
    grouping, limit, _ = rule
    total[:] = _ZERO
    store = numba.carray(_words_at(stores[0]), _UNBOUNDED)
    if (
        stores.size == 2
        and stores[0] == stores[1]
        and plans.shape[2] == 5
        and _in_registers(grouping)
    ):
        masks = grouping[2]
        for w in range(0, plans.shape[1], 2):
            _score_both_4(
                store, at + w * 4 * width, width, n, plans[0, w : w + 2], plans[1, w : w + 2],
                flips[0], flips[1], inverts[0], inverts[1], masks[w : w + 2], grouping[0],
                limit, total,
            )  # fmt: skip
        return
    for s in range(stores.size):
        store = numba.carray(_words_at(stores[s]), _UNBOUNDED)
        _score_block(
            store, at, width, n, plans[s], flips[s], inverts[s], grouping, limit, scratch, total
        )


@_jit
def _score_list(stores, at, n, plans, flips, inverts, rule, scratch, total, out, to):
    """Merged deficits of a list of n vectors, into out[to:to + n]."""
    ceiling = rule[2]
    size = plans.shape[1] * (plans.shape[2] - 1)
    for block in range(0, n, LANES):
        width = min(LANES, n - block)
        _score_senses(
            stores, (at + block) * size, width, _whole(width), plans, flips, inverts, rule,
            scratch, total,
        )  # fmt: skip
        for i in range(width):
            out[to + block + i] = min(total[i], ceiling)


@_jit
def _gather(store, at, n, position, size, lane, out):
    """Copy one vector of a list into lane `lane` of a block of its own."""
    block = position // LANES
    width = np.uint64(min(LANES, n - block * LANES))
    source = np.uint64((at + block * LANES) * size + position - block * LANES)
    target = np.uint64(lane)
    for _ in range(size):
        out[target] = store[source]
        source += width
        target += np.uint64(LANES)


# --------------------------------------------------------------------------
# Ranking by (deficit, id)


@_jit
def _keep_smallest(deficits, ids, n, k, histogram, kept):
    """Places of the k smallest by (deficit, id), in order of place; returns how many."""
    k = min(k, n)
    if k == n:
        for i in range(n):
            kept[i] = i
        return n
    histogram[:] = 0
    for i in range(n):
        histogram[deficits[i]] += 1
    cut = 0
    below = 0
    while below + histogram[cut] < k:
        below += histogram[cut]
        cut += 1
    last_id = np.int64(-1)
    if below + histogram[cut] > k:  # of those at the cut only the smallest ids enter
        tied = np.empty(histogram[cut], np.int64)
        j = 0
        for i in range(n):
            if deficits[i] == cut:
                tied[j] = ids[i]
                j += 1
        last_id = np.partition(tied, k - below - 1)[k - below - 1]
        j = 0
        for i in range(n):
            if deficits[i] < cut or (deficits[i] == cut and ids[i] <= last_id):
                kept[j] = i
                j += 1
        return k
    j = 0
    for i in range(n):
        if deficits[i] <= cut:
            kept[j] = i
            j += 1
    return k


@_jit
def _sort_digit(keys, order, n, shift, spare, counts):
    """One stable pass of a radix sort of `order` by keys[order]."""
    digit = np.int64((1 << _RADIX) - 1)
    counts[:] = 0
    for i in range(n):
        counts[(keys[order[i]] >> shift) & digit] += 1
    total = 0
    for j in range(counts.size):
        held = counts[j]
        counts[j] = total
        total += held
    for i in range(n):
        j = (keys[order[i]] >> shift) & digit
        spare[counts[j]] = order[i]
        counts[j] += 1
    order[:n] = spare[:n]


@_jit
def _rank(deficits, ids, n, order, spare, counts):
    """Order of n pairs by (deficit, id), into `order`."""
    highest_id = np.int64(0)
    highest = np.int64(0)
    for i in range(n):
        order[i] = i
        highest_id = max(highest_id, ids[i])
        highest = max(highest, np.int64(deficits[i]))
    shift = 0
    while highest_id >> shift:
        _sort_digit(ids, order, n, shift, spare, counts)
        shift += _RADIX
    shift = 0
    while highest >> shift:
        _sort_digit(deficits, order, n, shift, spare, counts)
        shift += _RADIX


# --------------------------------------------------------------------------
# Stages


@_jit
def score_rows(stores, starts, sizes, plans, flips, inverts, rule, out):
    """Merged deficits of some whole lists of one store, for one query.

    Parameters
    ----------
    stores : uint64 array (senses,)
        Address of the store that each sense reads.
    starts, sizes : int64 arrays (lists,)
        First vector of each list in the store, and how many it has.
    plans : uint64 array (senses, words, planes + 1)
        Of `plan_thresholds`.
    flips, inverts : uint64 arrays (senses,)
        All ones to complement the cells' bits, the groups' failures.
    rule : tuple (grouping, limit, ceiling)
        Grouping of `nandcosim.systems.dnova.planes`, and where a string's deficit and
        the merged one saturate.
    out : uint16 array (sum of sizes,)
    """
    scratch = _new_scratch(plans.shape[1])
    total = np.empty(LANES, np.uint64)
    to = 0
    for i in range(starts.size):
        _score_list(
            stores, starts[i], sizes[i], plans, flips, inverts, rule, scratch, total, out, to
        )
        to += sizes[i]


@_jit
def nearest_lists(stores, nlist, plans, flips, inverts, rule, worst, first, last, lists):
    """Stage 1 of queries first .. last - 1: the lists to probe, best first.

    `lists` is int64 (nq, nprobe) and overwritten, `worst` the largest merged deficit; the
    rest is as in `score_rows`, plans with a leading axis of queries.
    """
    nprobe = lists.shape[1]
    deficits = np.empty(nlist, np.uint16)
    names = np.arange(nlist)
    kept, order, spare = np.empty((3, nlist), np.int64)
    kept_deficits = np.empty(nlist, np.int64)
    histogram = np.empty(worst + 1, np.int64)
    counts = np.empty(1 << _RADIX, np.int64)
    one, size = np.zeros(1, np.int64), np.full(1, nlist)
    for q in range(first, last):
        score_rows(stores, one, size, plans[q], flips, inverts, rule, deficits)
        n = _keep_smallest(deficits, names, nlist, nprobe, histogram, kept)
        for i in range(n):
            kept_deficits[i] = deficits[kept[i]]
        _rank(kept_deficits, kept, n, order, spare, counts)
        for i in range(n):
            lists[q, i] = kept[order[i]]


@_jit
def _list_runs(lists, offsets, id_addresses, runs, ids):
    """Where the vectors of some lists lie, and their ids; returns how many of each.

    A run is (segment, first vector of the list, vectors, first slot); slots number what is
    scored, list by list and segment by segment.
    """
    count = 0
    slots = 0
    for name in lists:
        for segment in range(offsets.shape[0]):
            start, n = offsets[segment, name], offsets[segment, name + 1] - offsets[segment, name]
            if n == 0:
                continue
            runs[count, 0], runs[count, 1] = segment, start
            runs[count, 2], runs[count, 3] = n, slots
            names = numba.carray(_integers_at(id_addresses[segment]), _UNBOUNDED)
            for i in range(n):
                ids[slots + i] = names[start + i]
            slots += n
            count += 1
    return count, slots


@_jit
def _score_kept(
    stores, runs, kept, n, plans, flips, inverts, rule, gathered, scratch, total, out
):  # fmt: skip
    """Stage 3: merged deficits of the vectors in slots `kept` (ascending), into out[:n].

    A block with many of them is scored where it lies; the others are gathered first.
    """
    ceiling = rule[2]
    size = plans.shape[1] * (plans.shape[2] - 1)
    waiting = np.empty(LANES, np.int64)
    filled = 0
    run = 0
    i = 0
    while i < n:
        while kept[i] >= runs[run, 3] + runs[run, 2]:
            run += 1
        at, members, first_slot = runs[run, 1], runs[run, 2], runs[run, 3]
        of = stores[runs[run, 0]]
        block = (kept[i] - first_slot) // LANES * LANES
        width = min(LANES, members - block)
        first_slot += block
        end = i
        while end < n and kept[end] < first_slot + width:
            end += 1
        if _DENSE * (end - i) >= width:
            _score_senses(
                of, (at + block) * size, width, _whole(width), plans, flips, inverts, rule,
                scratch, total,
            )  # fmt: skip
            for j in range(i, end):
                out[j] = min(total[kept[j] - first_slot], ceiling)
        else:
            for j in range(i, end):
                position = block + kept[j] - first_slot
                for s in range(of.size):
                    if s == 0 or of[s] != of[0]:
                        store = numba.carray(_words_at(of[s]), _UNBOUNDED)
                        _gather(store, at, members, position, size, filled, gathered[s])
                waiting[filled] = j
                filled += 1
                if filled == LANES:
                    _score_gathered(
                        gathered, of, filled, plans, flips, inverts, rule, scratch, total,
                        waiting, out,
                    )  # fmt: skip
                    filled = 0
        i = end
    if filled > 0:
        _score_gathered(
            gathered, stores[0], filled, plans, flips, inverts, rule, scratch, total, waiting, out
        )


@_jit
def _score_gathered(
    gathered, like, n, plans, flips, inverts, rule, scratch, total, waiting, out
):  # fmt: skip
    """Merged deficits of the first n gathered vectors, into out[waiting]."""
    addresses = np.empty(like.size, np.uint64)
    for s in range(like.size):
        row = gathered[0 if like[s] == like[0] else s]
        addresses[s] = np.uint64(row.ctypes.data)
    _score_senses(
        addresses, 0, LANES, _whole(n), plans, flips, inverts, rule, scratch, total
    )  # fmt: skip
    for i in range(n):
        out[waiting[i]] = min(total[i], rule[2])


@_jit
def search_lists(
    lists, offsets, id_addresses, coarse, fine, flips, inverts, worst, capacity,
    first, last, scanned, candidates, found, deficits,
):  # fmt: skip
    """Stages 2 and 3 of queries first .. last - 1.

    Parameters
    ----------
    lists : int64 array (nq, nprobe)
        Lists to scan.
    offsets : int64 array (segments, lists + 1)
        Bounds of the lists in each segment.
    id_addresses : uint64 array (segments,)
        Address of each segment's int64 ids.
    coarse, fine : tuple (stores, plans, rule)
        Of stages 2 and 3: stores uint64 (segments, senses), plans uint64 (nq, senses,
        words, planes + 1), rule as in `score_rows`.
    flips, inverts : uint64 arrays (senses,)
        As in `score_rows`.
    worst, capacity : int
        Largest merged deficit, most vectors that a query can score.
    first, last : int
    scanned : int64 array (nq,)
        Receives the vectors scored in stage 2.
    candidates : int64 array (nq, k2)
        Receives the ids that stage 2 keeps, best first. Places beyond those found are
        left alone here and in the next two.
    found, deficits : int64 arrays (nq, k1)
        Receive the ids that stage 3 keeps, best first, and their deficits.
    """
    k2, k1 = candidates.shape[1], found.shape[1]
    most = min(capacity, k2)
    runs = np.empty((lists.shape[1] * offsets.shape[0], 4), np.int64)
    ids = np.empty(capacity, np.int64)
    scored = np.empty(capacity, np.uint16)
    kept, order, spare = np.empty((3, most), np.int64)
    kept_ids, kept_scored, again = np.empty((3, most), np.int64)
    histogram = np.empty(worst + 1, np.int64)
    counts = np.empty(1 << _RADIX, np.int64)
    total = np.empty(LANES, np.uint64)
    senses, words = coarse[1].shape[1], coarse[1].shape[2]
    scratch = _new_scratch(words)
    gathered = np.empty((senses, words * (fine[1].shape[3] - 1) * LANES), np.uint64)
    for q in range(first, last):
        n_runs, n = _list_runs(lists[q], offsets, id_addresses, runs, ids)
        scanned[q] = n
        for r in range(n_runs):
            _score_list(
                coarse[0][runs[r, 0]], runs[r, 1], runs[r, 2], coarse[1][q], flips, inverts,
                coarse[2], scratch, total, scored, runs[r, 3],
            )  # fmt: skip
        n = _keep_smallest(scored, ids, n, k2, histogram, kept)
        for i in range(n):
            kept_ids[i], kept_scored[i] = ids[kept[i]], scored[kept[i]]
        _rank(kept_scored, kept_ids, n, order, spare, counts)
        for i in range(n):
            candidates[q, i] = kept_ids[order[i]]
        _score_kept(
            fine[0], runs, kept, n, fine[1][q], flips, inverts, fine[2], gathered, scratch,
            total, again,
        )  # fmt: skip
        n = _keep_smallest(again, kept_ids, n, k1, histogram, kept)
        for i in range(n):
            spare[i] = kept_ids[kept[i]]
            kept_scored[i] = again[kept[i]]
        kept_ids[:n] = spare[:n]
        _rank(kept_scored, kept_ids, n, order, spare, counts)
        for i in range(n):
            found[q, i] = kept_ids[order[i]]
            deficits[q, i] = kept_scored[order[i]]


@_jit
def string_histograms(stores, starts, sizes, wanted, best, plans, flips, inverts, rule, counts):
    """Count the string deficits of some vectors of some lists of one store, for one query.

    Parameters
    ----------
    stores, starts, sizes, plans, flips, inverts, rule
        As in `score_rows`; the merged deficit's ceiling is not used.
    wanted, best : bool arrays (sum of sizes,)
        Vectors that rows 0 and 1 of `counts` take.
    counts : int64 array (2, worst string deficit + 1)
        Incremented: every string of every sense counts once.
    """
    grouping, limit, _ = rule
    off, count = _new_scratch(plans.shape[1])
    size = plans.shape[1] * (plans.shape[2] - 1)
    slot = 0
    for r in range(starts.size):
        for block in range(0, sizes[r], LANES):
            width = min(LANES, sizes[r] - block)
            at = (starts[r] + block) * size
            for s in range(stores.size):
                store = numba.carray(_words_at(stores[s]), _UNBOUNDED)
                _off_cells(store, at, width, _whole(width), plans[s], flips[s], off)
                for string in range(grouping[1].size - 1):
                    _count_string(off, string, grouping, inverts[s], _whole(width), count)
                    for i in range(width):
                        deficit = min(count[i], limit)
                        counts[0, deficit] += wanted[slot + i]
                        counts[1, deficit] += best[slot + i]
            slot += width
