"""Tables of rare events: a real store, plan and method; the simulator is a closed form."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from nandcosim.errors import InputError
from nandcosim.sweep.chunk import ChunkResult
from nandcosim.sweep.parse import parse_spec
from nandcosim.sweep.plan import estimates, plan_of
from nandcosim.sweep.registry import load_circuit
from nandcosim.sweep.store import SweepStore, open_store
from nandcosim.tables import (
    CalibrationTable,
    export,
    fit,
    from_csv,
    from_json,
    open_table,
    plot,
    render_summary,
    summarise,
)
from nandcosim.tables.plotting import draw

SPREADS = (0.2, 0.15)
STAGES = 2

#: Voltage, of 1 V, that is left after one nominal RC, and what is too much of it.
NOMINAL, TOO_MUCH = np.exp(-1.0), 0.5


def document(**rare: Any) -> dict[str, Any]:
    return {
        "circuit": "circuits_for_tests:RCDischarge",
        "samples": 5000,
        "seed": 3,
        "responses": ["v_end"],
        "parameters": {"stages": STAGES},
        "axes": {"spread": list(SPREADS)},
        "random": [
            {"target": "excess", "distribution": "normal", "mean": 0.0, "std": "spread"},
        ],
        "rare": {"failure": f"v_end > {TOO_MUCH:g}", **rare},
    }


def rest(spread: float, scores: np.ndarray) -> np.ndarray:
    """Left by resistors in series with an excess of `spread` times its score each."""
    relative = np.maximum(1 + spread * scores.mean(axis=1), 1e-3)  # exploring runs go far
    return np.asarray(NOMINAL ** (1 / relative))


def exact(spread: np.ndarray) -> np.ndarray:
    """Probability that too much is left."""
    excess = np.log(NOMINAL) / np.log(TOO_MUCH) - 1
    return np.asarray(norm.sf(excess / (spread / np.sqrt(STAGES))))


def run(
    path: Path,
    waves: int | None = None,
    rest: Callable[[float, np.ndarray], np.ndarray] = rest,
    **rare: Any,
) -> SweepStore:
    """A store that has been run to its end, or for so many waves."""
    spec = parse_spec(document(**rare))
    circuit = load_circuit(spec.circuit)
    store = SweepStore.create(path, spec, circuit)
    plan = plan_of(store, circuit)
    done = 0
    while waves is None or done < waves:
        for chunk in store.pending(store.status_codes()):
            scores = plan.scores(chunk.point, chunk.samples)
            assert scores is not None
            left = rest(float(spec.coordinates(chunk.point)["spread"]), scores)
            ok = np.zeros(left.size, np.int8)
            store.write(chunk, ChunkResult(ok, [""] * left.size, {"v_end": left}))
        done += 1
        if not plan.advance():
            break
    return store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> SweepStore:
    return run(tmp_path_factory.mktemp("rare") / "rare.zarr")


@pytest.fixture(scope="module")
def table(store: SweepStore) -> CalibrationTable:
    return fit(store)


def test_probability_is_that_of_the_closed_form(table: CalibrationTable) -> None:
    dataset = table.dataset
    truth = exact(dataset["spread"].values)
    assert dataset["spread"].values.tolist() == sorted(SPREADS)
    assert (abs(dataset["probability"] - truth) < 4 * dataset["probability_se"]).all()
    assert (dataset["probability_low"] < dataset["probability"]).all()
    assert (dataset["probability"] < dataset["probability_high"]).all()
    assert (dataset["probability_se"] <= 0.1 * dataset["probability"]).all()
    assert (dataset["converged"] == 1).all()
    assert dataset["beta"].values == pytest.approx(norm.isf(truth), rel=0.02)


def test_estimates_stand_at_their_grid_points(table: CalibrationTable, store: SweepStore) -> None:
    for spread, estimate in zip(SPREADS, estimates(store), strict=True):
        here = table.dataset.sel(spread=spread)
        assert estimate is not None
        assert here["probability"] == estimate.probability
        assert here["effective_samples"] == estimate.effective_samples
        assert here["runs"] == estimate.runs == here["wanted"] == here["n"]
    assert json.loads(table.dataset.attrs["plan"])["complete"]


def test_the_event_is_in_words(table: CalibrationTable) -> None:
    attributes = table.dataset.attrs
    assert attributes["event"] == "v_end > 0.5 V"
    assert attributes["method"] == "importance"
    assert json.loads(attributes["notes"]) == {}
    assert table.dataset["probability"].attrs["long_name"] == "probability of v_end > 0.5 V"


def test_what_was_not_found_has_a_note(tmp_path: Path) -> None:
    """Nothing is left too much where every stage is nominal."""
    never = run(tmp_path / "never.zarr", rest=lambda s, z: rest(0.0 * s, z))
    table = fit(never)
    assert table.dataset["probability"].isnull().all()
    assert "at most 1.13e-19" in render_summary(summarise(table))
    notes = json.loads(table.dataset.attrs["notes"])
    assert set(notes) == {f"spread = {spread}" for spread in SPREADS}
    assert (table.dataset["converged"] == 0).all()
    assert (table.dataset["probability_high"] > 0).all()


def test_an_unfinished_estimate_is_refused_or_undefined(tmp_path: Path) -> None:
    part = run(tmp_path / "part.zarr", waves=1)
    with pytest.raises(InputError, match=r"part\.zarr: .*have not been run"):
        fit(part)
    table = fit(part, allow_partial=True)
    assert set(json.loads(table.dataset.attrs["notes"]).values()) == {"not finished"}
    assert (table.dataset["converged"] == 0).all()
    with pytest.raises(InputError, match="there is no estimate, at most an upper limit: see notes"):
        table.lookup("probability", spread=0.2)


def test_a_dataset_is_not_enough(store: SweepStore) -> None:
    with pytest.raises(InputError, match="expected the path of its store"):
        fit(open_store(store))


def test_redrawn_probabilities_have_their_mean_and_error(table: CalibrationTable) -> None:
    draws = 400
    rng = np.random.default_rng(12)
    found = np.stack([table.perturbed(rng).dataset["probability"].values for _ in range(draws)])
    mean, error = table.dataset["probability"].values, table.dataset["probability_se"].values
    assert (found > 0).all()
    # 4.5 standard errors of a mean and, nearly, of a standard deviation
    assert (abs(found.mean(axis=0) - mean) < 4.5 * error / draws**0.5).all()
    assert found.std(axis=0, ddof=1) == pytest.approx(error, rel=4.5 / (2 * draws) ** 0.5)
    assert np.corrcoef(found.T)[0, 1] == pytest.approx(0, abs=4.5 / draws**0.5)


def test_an_event_that_was_never_seen_is_not_redrawn(table: CalibrationTable) -> None:
    unseen = CalibrationTable(table.dataset.copy(deep=True))
    unseen.dataset["probability"][0] = 0.0
    redrawn = unseen.perturbed(1).dataset["probability"]
    assert np.isnan(redrawn[0])
    assert redrawn[1] > 0


def test_tables_are_written_shown_and_read_again(table: CalibrationTable, tmp_path: Path) -> None:
    assert "probability" in render_summary(summarise(table))
    assert json.dumps(summarise(table), allow_nan=False)
    assert plot(table, tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")
    for to, read in (("json", from_json), ("csv", from_csv), ("netcdf", open_table)):
        export(table, to, tmp_path / to)
        assert read(tmp_path / to).digest == table.digest
    looked_up = table.lookup("probability", spread=0.2)
    here = float(table.dataset["probability"].sel(spread=0.2))
    assert float(looked_up) == pytest.approx(here, rel=1e-14)


def test_probabilities_are_interpolated_over_decades(table: CalibrationTable) -> None:
    here = table.dataset["probability"].values
    middle = float(table.lookup("probability", spread=np.mean(SPREADS)))
    assert middle == pytest.approx(np.sqrt(here.prod()))
    unseen = CalibrationTable(table.dataset.copy(deep=True))
    unseen.dataset["probability"][0] = 0.0
    looked_up = float(unseen.lookup("probability", spread=max(SPREADS)))
    assert looked_up == pytest.approx(here[1], rel=1e-14)
    assert float(unseen.lookup("probability", spread=np.mean(SPREADS))) == 0.0


def test_probabilities_are_drawn_over_decades(table: CalibrationTable) -> None:
    panel = draw(table).axes[0]
    assert panel.get_ylabel() == "probability"
    assert panel.get_yscale() == "log"
