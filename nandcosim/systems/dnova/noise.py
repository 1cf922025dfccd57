"""Sensing noise: what a circuit does to the ideal rule r < q + alpha.

All quantities are in level spacings. The margin of a cell is

    margin = (q + alpha) - r - 1/2,

half a level being where the calibrated level map puts the decision. A group
of m cells conducts iff its worst cell has

    margin - error > trip_margin(m) + read noise,

where the error of a stored threshold is drawn once for the cell's lifetime (the
original and the complement cell of a component independently), and the read noise
of the sense amplifier anew in every read, common to the group.

Stored errors fold into an integer: a cell conducts iff
floor(r + error + 1/2 + trip_margin) < q + alpha. So they cost the bit-sliced scan
nothing; only read noise needs a walk over every scanned vector.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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

__all__ = ["LEVEL_PARTS", "SensingNoise", "StoredCells", "read_deficits", "store_cells"]

LEVEL_PARTS = 256
"""Stored thresholds are kept in this fraction of a level spacing, as 16-bit integers."""

_ROWS_AT_ONCE = 16_384


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
        """Standard deviation of one read's decision margin, in level spacings."""
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
        self, trip_margin: float, rows: NDArray[np.int64] | slice = slice(None)
    ) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
        """Integer levels e such that a cell conducts iff e < applied level, both (k, D)."""
        shift = LEVEL_PARTS // 2 + round(trip_margin * LEVEL_PARTS)
        original, complemented = (
            ((cells[rows].astype(np.int32) + shift) >> 8).astype(np.int16)
            for cells in (self.original, self.complemented)
        )
        return original, complemented


def store_cells(codes: ArrayLike, sigma: float, seed: int, *, levels: int = 16) -> StoredCells:
    """Program codes and their complements with independent normal errors.

    Row i gets the same errors whatever rows follow it.

    Parameters
    ----------
    codes : integer array (n, D)
        In the order of the vectors' ids.
    sigma : float
        Standard deviation of a stored threshold, in level spacings; errors are
        rounded to 1/256 of a level.
    seed : int
    levels : int
        Levels of a cell.
    """
    ideal = np.asarray(codes)
    stored = []
    for side, values in enumerate((ideal, complement(ideal, levels))):
        draw = np.random.default_rng(np.random.SeedSequence([seed, side]))
        cells = np.empty(ideal.shape, dtype=np.int16)
        for start in range(0, ideal.shape[0], _ROWS_AT_ONCE):
            part = values[start : start + _ROWS_AT_ONCE].astype(np.float32)
            error = draw.standard_normal(part.shape, dtype=np.float32) * np.float32(sigma)
            parts = np.rint((part + error) * LEVEL_PARTS)
            limit = np.iinfo(np.int16).max
            cells[start : start + _ROWS_AT_ONCE] = np.clip(parts, -limit, limit)
        stored.append(cells)
    return StoredCells(*stored)


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
