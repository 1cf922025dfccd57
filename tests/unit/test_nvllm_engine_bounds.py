"""The closed form of the engines' utilisation against its limits and against the cycles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from nandcosim.systems.nvllm.engine import EngineConfig, segments_a_read
from nandcosim.systems.nvllm.engine_bounds import limits, utilisation
from nandcosim.systems.nvllm.hardware import HardwareFields

CODEWORD = 292
RATES = (1e-7, 1e-5, 1e-4, 3e-4, 1e-3, 1e-2)


def without_pages(**more: Any) -> EngineConfig:
    """Pages come faster than they are used."""
    return EngineConfig(clusters=1, read_time=1e-7, **more)


def chance(rber: float) -> float:
    return 1 - (1 - rber) ** CODEWORD


def test_no_errors_or_no_code_is_full_rate() -> None:
    assert float(utilisation(EngineConfig(), 0.0)) == pytest.approx(1)
    assert float(utilisation(EngineConfig(code="none"), 0.1)) == pytest.approx(1)


def test_rare_faults_cost_three_squares() -> None:
    for rber in (1e-6, 1e-5):
        lost = 1 - float(utilisation(without_pages(correctors=8), rber))
        assert lost == pytest.approx(3 * chance(rber) ** 2, rel=0.05)


def test_many_faults_approach_the_hub() -> None:
    for correctors in (1, 2):
        config = without_pages(correctors=correctors, corrector_latency=32)
        expected = correctors / (32 * chance(1e-2))
        assert float(utilisation(config, 1e-2)) == pytest.approx(expected, rel=1e-6)


def test_in_order_is_found_moved_and_corrected() -> None:
    config = without_pages(order="in_order", corrector_latency=12)
    assert float(utilisation(config, 1e-3)) == pytest.approx(1 / (1 + chance(1e-3) * 14))


def test_pages_just_feed_an_engine() -> None:
    """448 segments a page of 16 KiB, four planes, 5.12 us at 350 MHz: 1792 in 1792 cycles."""
    assert int(segments_a_read(EngineConfig())) == 1792
    supply = limits(EngineConfig(), 0.0).sel(bound="supply")
    assert float(supply) == pytest.approx(1)
    slower = utilisation(EngineConfig(read_time=10.24e-6), 1e-5)
    assert float(slower) == pytest.approx(0.5)
    spare = EngineConfig(read_time=10.24e-6, parity_place="spare")
    assert float(utilisation(spare, 0.0)) == pytest.approx(2048 / 3584)


def test_one_register_and_no_fifo_read_and_drain_in_turn() -> None:
    config = EngineConfig(page_buffers=1, fifo_bytes=0)
    assert float(utilisation(config, 0.0)) == pytest.approx(0.5)


def test_axes_broadcast_and_pipeline_fields_have_defaults() -> None:
    config = HardwareFields(order=("out_of_order", "in_order"), correctors=(1, 2), rber=RATES)
    rber = config.array("rber") * xr.DataArray([1.0, 2.0], dims="page")
    found = utilisation(config, rber)
    assert dict(found.sizes) == {"order": 2, "correctors": 2, "rber": len(RATES), "page": 2}
    one = EngineConfig(order="out_of_order", correctors=2)
    chosen = found.sel(order="out_of_order", correctors=2, rber=1e-3).isel(page=1)
    assert float(chosen) == pytest.approx(float(utilisation(one, 2e-3)))
    given = utilisation(config, rber, 36, 5.12e-6)
    xr.testing.assert_allclose(given, found)


@settings(max_examples=40, deadline=None)
@given(
    rber=st.floats(1e-12, 0.3),
    correctors=st.integers(1, 8),
    latency=st.integers(1, 64),
    interval=st.integers(0, 8),
    entries=st.integers(1, 64),
    lanes=st.integers(1, 8),
    hub=st.sampled_from(["cluster", "device"]),
    order=st.sampled_from(["out_of_order", "in_order"]),
)
def test_never_above_any_limit(
    rber: float, correctors: int, latency: int, interval: int, entries: int, lanes: int,
    hub: Any, order: Any,
) -> None:  # fmt: skip
    config = EngineConfig(
        correctors=correctors, corrector_latency=latency, corrector_interval=interval,
        scoreboard=entries, lanes=lanes, hub=hub, order=order,
    )  # fmt: skip
    found = float(utilisation(config, rber))
    assert 0 < found <= float(limits(config, rber).min()) * (1 + 1e-6)


def test_more_correctors_never_hurt() -> None:
    config = without_pages(correctors=tuple(range(1, 9)), corrector_latency=(4, 12, 32), rber=RATES)
    found = utilisation(config, config.array("rber"))
    assert (found.diff("correctors") > -1e-6).all()


def test_close_to_the_cycles() -> None:
    """Within 2 % where the closed form is meant for; the docs give the whole grid."""
    pytest.importorskip("numba")
    from nandcosim.systems.nvllm.engine_study import closed_form_errors

    config = without_pages(
        rber=RATES, corrector_latency=(8, 12, 32), correctors=(1, 2, 4), order="out_of_order"
    )
    assert float(np.abs(closed_form_errors(config, 60_000)).max()) < 0.02
    config = without_pages(rber=(1e-5, 1e-4, 1e-3), order="in_order", corrector_latency=(4, 32))
    assert float(np.abs(closed_form_errors(config, 200_000)).max()) < 0.02
    config = EngineConfig(
        clusters=4, hub="device", lanes=2, rber=(1e-5, 1e-4, 1e-3), correctors=(1, 2)
    )
    assert float(np.abs(closed_form_errors(config, 60_000)).max()) < 0.02


def test_cycles_never_beat_hub_scoreboard_or_pages() -> None:
    pytest.importorskip("numba")
    from nandcosim.systems.nvllm.engine import sweep

    segments = 50_000
    config = EngineConfig(
        clusters=1, rber=RATES, correctors=(1, 3), scoreboard=(2, 16), read_time=(4e-6, 8e-6)
    )
    run = sweep(config, segments)["utilisation"]
    bound = limits(config, config.array("rber")).sel(bound=["hub", "scoreboard", "supply"])
    # what was prefetched or is random may pass the mean of a short layer by this much
    faults = segments * np.array([chance(rate) for rate in RATES])
    slack = 1792 / segments + 4 / np.sqrt(np.maximum(faults, 1.0))
    slack = xr.DataArray(slack, dims="rber", coords={"rber": list(RATES)})
    assert (run <= bound.min("bound") * (1 + slack)).all()
