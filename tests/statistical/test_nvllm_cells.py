"""Bit errors of cells that are read one by one, against the closed form and the table."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import xarray as xr

from nandcosim.intervals import wilson
from nandcosim.page_coding import page_names
from nandcosim.systems.nvllm.cells import read_cells
from nandcosim.systems.nvllm.hardware import ErrorFields
from nandcosim.tables import load_tables
from nandcosim.threshold import bit_error_rate

tables = cache(load_tables)

CELLS = 300_000

#: All 21 intervals of this file hold together with a probability of 0.998.
CONFIDENCE = 0.9999


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
@pytest.mark.parametrize(("sigma", "shift", "retry"), [(0.3, 0.0, 0), (0.25, -0.3, 1)])
def test_each_pages_error_rate_is_the_closed_forms_and_the_tables(
    bits, sigma, shift, retry
) -> None:
    config = ErrorFields(cell_bits=bits, sigma=sigma, shift=shift, retry=retry)
    levels = np.random.default_rng(bits).integers(0, 2**bits, CELLS)
    table = tables()["page_read"]
    decision = table.dataset.sel(bits=bits)
    level = np.arange(2**bits)
    expected = bit_error_rate(
        bits,
        xr.DataArray(shift * level / level[-1], dims="level", coords={"level": level}),
        sigma,
        retry=retry,
        location=float(decision["pass_location"]),
        spread=float(decision["pass_spread"]),
    )
    for page, name in enumerate(page_names(bits)):
        rate = float(expected.sel(page=name))
        wrong = int(read_cells(levels, page, config, tables(), seed=bits).errors.sum())
        low, high = wilson(wrong, CELLS, confidence=CONFIDENCE)
        assert low < rate < high
        looked_up = table.lookup(
            "bit_error_rate",
            bits=bits,
            coding="balanced",
            page=name,
            sigma=sigma,
            shift=shift,
            retry=retry,
        )
        assert float(looked_up) == pytest.approx(rate, rel=1e-6)


def test_the_reads_own_noise_is_the_tables() -> None:
    """The top level without a spread of its own, one deviation above its read level's decision."""
    decision = tables()["page_read"].dataset.sel(bits=4)
    location, spread = (float(decision[name]) for name in ("pass_location", "pass_spread"))
    config = ErrorFields(cell_bits=4, sigma=0.0, shift=-0.5 - location + spread)
    found = read_cells(np.full(CELLS, 15), 3, config, tables(), seed=2)
    low, high = wilson(int(found.errors.sum()), CELLS, confidence=CONFIDENCE)
    assert low < 0.158655 < high
    assert np.ptp(found.margins) == 0
