"""Sensing noise: what a circuit does to the ideal rule r < q + alpha.

All quantities are in level spacings. The margin of a cell is

    margin = (q + alpha) - r - 1/2,

half a level being where the calibrated level map puts the decision. A group
of m cells conducts iff its worst cell has

    margin - error > trip_margin(m) + read noise,

where the error of a stored threshold is drawn once for the cell's lifetime (the
original and the complement cell of a component independently). Read noise is the
sense amplifier's, and its cause in the circuit is the mismatch of the amplifier's
transistors. So by default (``static``) it is read_sigma(m) * u with one standard
normal u a string, which stays; ``per_read`` draws it anew in every read, common to the
group, as temporal noise of the same size would be.

Whatever stays folds into an integer: a cell conducts iff
floor(r + error + 1/2 + trip_margin + read_sigma * u) < q + alpha, so it costs a scan
nothing. Only ``per_read`` needs a walk over every scanned vector.

Strings of one bitline share its amplifier, and so u; here every string has its own.
The score of one vector cannot tell: its strings lie in different planes, each with
amplifiers of its own. What is left out is that the errors of vectors in different
sub-blocks, on the same bitline, go together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from nandcosim.errors import InputError
from nandcosim.systems.dnova.quantise import complement
from nandcosim.systems.dnova.score import Accumulator, check_sensing, senses_of

if TYPE_CHECKING:
    from nandcosim.tables.table import CalibrationTable

__all__ = [
    "LEVEL_PARTS",
    "READ_NOISE",
    "SensingNoise",
    "StoredCells",
    "amplifier_draws",
    "read_deficits",
    "store_cells",
]

LEVEL_PARTS = 256
"""Stored thresholds are kept in this fraction of a level spacing, as 16-bit integers."""

READ_NOISE = ("static", "per_read")
"""Whether a sense amplifier's error stays or is drawn in every read."""

_IDS_AT_ONCE = 256
"""Ids whose errors are one draw: seeding a generator costs as much as some vectors do."""

_CELLS, _AMPLIFIERS = 0, 1
"""What is drawn."""


@dataclass(frozen=True)
class SensingNoise:
    """Errors of the cells and of the sense amplifier.

    Attributes
    ----------
    sigma : float
        Standard deviation of a stored threshold, in level spacings; 0.2 is the
        nominal QLC condition.
    trips, spreads : tuple of (m, value)
        Trip margin and read noise for each group size, in level spacings; empty
        means 0 for every m.
    """

    sigma: float = 0.0
    trips: tuple[tuple[int, float], ...] = ()
    spreads: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        widths = [self.sigma, *(spread for _, spread in self.spreads)]
        finite = np.isfinite([*widths, *(trip for _, trip in self.trips)]).all()
        if not finite or min(widths) < 0:
            raise InputError(
                f"sensing noise: sigma {self.sigma}, trips {dict(self.trips)}, spreads "
                f"{dict(self.spreads)}; allowed: finite values, sigma and spreads >= 0"
            )

    @classmethod
    def from_margins(
        cls,
        sigma: float,
        trip_margin: Mapping[int, float] | None = None,
        read_sigma: Mapping[int, float] | None = None,
    ) -> SensingNoise:
        """From mappings of group size to trip margin and to read noise."""
        return cls(
            sigma=float(sigma),
            trips=tuple(sorted((int(m), float(v)) for m, v in (trip_margin or {}).items())),
            spreads=tuple(sorted((int(m), float(v)) for m, v in (read_sigma or {}).items())),
        )

    @classmethod
    def from_table(
        cls,
        table: CalibrationTable,
        sigma: float,
        *,
        sizes: Iterable[int] | None = None,
        **coords: Any,
    ) -> SensingNoise:
        """From a calibration table of the sensing circuit.

        Parameters
        ----------
        table : CalibrationTable
            With the variables `trip_margin` and `read_sigma` over `m`, in level spacings.
        sigma : float
            Standard deviation of a stored threshold, in level spacings.
        sizes : iterable of int, optional
            Group sizes m to look up; every one in the table by default.
        **coords
            Where on the table's other axes, e.g. the temperature.

        Raises
        ------
        InputError
            If the table lacks a variable, or varies along an axis not given.
        """
        chosen = table.dataset["m"].values if sizes is None else sorted(set(sizes))
        m = xr.DataArray(chosen, dims="m", coords={"m": chosen})
        margins = []
        for name in ("trip_margin", "read_sigma"):
            found = table.lookup(name, m=m, **coords)
            if found.dims != ("m",):
                axes = ", ".join(str(dim) for dim in found.dims if dim != "m")
                raise InputError(
                    f"sensing noise: {name} of the table varies with {axes}: say where"
                )
            margins.append(dict(zip(m.values.tolist(), found.values.tolist(), strict=True)))
        return cls.from_margins(sigma, *margins)

    def trip_margin(self, m: int) -> float:
        """Mean margin at which half of the reads of m cells pass, in level spacings."""
        return _at(self.trips, m, "trip margin")

    def read_sigma(self, m: int) -> float:
        """Standard deviation of a sense amplifier's decision margin, in level spacings."""
        return _at(self.spreads, m, "read noise")


def _at(pairs: tuple[tuple[int, float], ...], m: int, what: str) -> float:
    if not pairs:
        return 0.0
    values = dict(pairs)
    if m not in values:
        allowed = ", ".join(str(known) for known in values)
        raise InputError(f"{what} for m = {m}: characterised only for m = {allowed}")
    return values[m]


@dataclass(frozen=True, eq=False)
class StoredCells:
    """Thresholds as programmed, errors included.

    Attributes
    ----------
    original, complemented : int16 arrays (n, D)
        Code plus error, in 1/256 of a level spacing.
    """

    original: NDArray[np.int16]
    complemented: NDArray[np.int16]

    def effective_levels(
        self,
        trip_margin: float,
        rows: NDArray[np.int64] | slice = slice(None),
        *,
        offsets: ArrayLike | None = None,
        cells: int = 128,
    ) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
        """Integer levels e such that a cell conducts iff e < applied level, both (k, D).

        Parameters
        ----------
        trip_margin : float
            In level spacings.
        rows : int array (k,) or slice
        offsets : float array (n, 2, strings), optional
            Error of the amplifier of each string, original and complement, in level
            spacings: read_sigma(m) times `amplifier_draws`.
        cells : int
            Cells a string, with `offsets`.
        """
        dim = self.original.shape[1]
        shift: Any = LEVEL_PARTS // 2 + round(trip_margin * LEVEL_PARTS)
        effective = []
        for side, stored in enumerate((self.original, self.complemented)):
            if offsets is not None:
                margins = np.asarray(offsets, dtype=np.float64)[rows, side] + trip_margin
                parts = np.rint(margins * LEVEL_PARTS).astype(np.int32) + LEVEL_PARTS // 2
                shift = np.repeat(parts, cells, axis=1)[:, :dim]
            effective.append(((stored[rows].astype(np.int32) + shift) >> 8).astype(np.int16))
        return effective[0], effective[1]


def store_cells(
    codes: ArrayLike,
    sigma: float,
    seed: int,
    *,
    levels: int = 16,
    ids: ArrayLike | None = None,
) -> StoredCells:
    """Program codes and their complements with independent normal errors.

    A vector's errors are a pure function of (seed, side, id): what else is stored, and in
    which order, does not matter.

    Parameters
    ----------
    codes : integer array (n, D)
    sigma : float
        Standard deviation of a stored threshold, in level spacings; errors are
        rounded to 1/256 of a level.
    seed : int
    levels : int
        Levels of a cell.
    ids : int array (n,), optional
        The vectors' names, 0 .. n - 1 by default.
    """
    ideal = np.asarray(codes)
    names = np.arange(len(ideal)) if ids is None else np.asarray(ids, dtype=np.int64)
    limit = np.iinfo(np.int16).max
    stored = []
    for side, values in enumerate((ideal, complement(ideal, levels))):
        cells = np.empty(ideal.shape, dtype=np.int16)
        for rows, error in _draws((_CELLS, side, 0), names, ideal.shape[1], seed):
            exact = values[rows].astype(np.float32) + error * np.float32(sigma)
            cells[rows] = np.clip(np.rint(exact * LEVEL_PARTS), -limit, limit)
        stored.append(cells)
    return StoredCells(*stored)


def amplifier_draws(ids: ArrayLike, strings: int, seed: int) -> NDArray[np.float32]:
    """Standard normal u of the sense amplifier of every string, shape (n, 2, strings).

    The middle axis is original, complement. A pure function of (seed, id, side, string).

    Parameters
    ----------
    ids : int array (n,)
    strings : int
        Strings of a vector.
    seed : int
    """
    names = np.asarray(ids, dtype=np.int64)
    out = np.empty((names.size, 2, strings), dtype=np.float32)
    for side in range(2):
        for string in range(strings):
            for rows, draw in _draws((_AMPLIFIERS, side, string), names, 1, seed):
                out[rows, side, string] = draw[:, 0]
    return out


def _draws(
    what: tuple[int, int, int], ids: NDArray[np.int64], width: int, seed: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Rows of `ids` and their standard normal draws (rows, width), some ids at a time."""
    order = np.argsort(ids, kind="stable")
    chunks = ids[order] // _IDS_AT_ONCE
    starts = np.flatnonzero(np.diff(chunks, prepend=-1))
    for start, end in zip(starts, np.append(starts[1:], ids.size), strict=True):
        rows = order[start:end]
        chunk = int(chunks[start])
        generator = np.random.default_rng(np.random.SeedSequence([*what, chunk, seed]))
        draw = generator.standard_normal((_IDS_AT_ONCE, width), dtype=np.float32)
        yield rows, draw[ids[rows] - chunk * _IDS_AT_ONCE]


def read_deficits(
    cells: StoredCells,
    query: ArrayLike,
    positions: ArrayLike,
    ids: ArrayLike,
    noise: SensingNoise,
    *,
    key: tuple[int, ...],
    alpha: int = 2,
    m: int = 1,
    levels: int = 16,
    metric: str = "dts",
    accumulator: Accumulator | None = None,
) -> NDArray[np.int64]:
    """Merged deficits with a fresh sense-amplifier error in every read.

    Parameters
    ----------
    cells : StoredCells
        Of n vectors.
    query : integer array (D,)
        Codes of the query.
    positions : int array (k,)
        Rows of `cells` to sense.
    ids : int array (n,)
        Identity of each row. A read's random number is a pure function of key, id and
        group, whatever the order of storage.
    noise : SensingNoise
    key : tuple of int
        Names the random stream, e.g. (seed, query number, stage).
    alpha, m, levels, metric, accumulator
        As in `score.score_deficits`.

    Returns
    -------
    int64 array (k,)
    """
    from nandcosim.systems.dnova import kernels

    accumulator = accumulator or Accumulator()
    check_sensing(m, alpha, accumulator.cells)
    codes = np.asarray(query, dtype=np.int64)
    rows = np.ascontiguousarray(positions, dtype=np.int64)
    names = np.ascontiguousarray(ids, dtype=np.int64)
    stream = np.random.SeedSequence(key).generate_state(1, np.uint64)[0]
    lowest, chances = _conduction(noise.trip_margin(m), noise.read_sigma(m))
    out = np.zeros(rows.size, dtype=np.int64)
    for number, sense in enumerate(senses_of(metric)):
        bounds = sense.applied_levels(codes, alpha, levels) * LEVEL_PARTS - LEVEL_PARTS // 2
        kernels.score_reads(
            cells.complemented if sense.complemented else cells.original,
            rows,
            names,
            bounds,
            sense.inverted,
            m,
            accumulator.cells,
            accumulator.latch_width(codes.size, m),
            lowest,
            chances,
            stream,
            number * codes.size,
            out,
        )
    if accumulator.merge_bits is not None:
        np.minimum(out, 2**accumulator.merge_bits - 1, out=out)
    return out


def _conduction(trip_margin: float, read_sigma: float) -> tuple[int, NDArray[np.float64]]:
    """Probability that a group conducts, for each margin where it is neither 0 nor 1.

    Margins are whole numbers of parts, so a table is exact: entry i belongs to the
    margin lowest + i. Beyond 9 sigma the outcome is certain to 1e-18.
    """
    trip = round(trip_margin * LEVEL_PARTS)
    spread = read_sigma * LEVEL_PARTS
    reach = int(np.ceil(9 * spread))
    offsets = np.arange(-reach, reach + 1)
    chances = ndtr(offsets / spread) if spread > 0 else np.zeros(1)
    return trip - reach, chances
