"""Summary and picture of a table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from nandcosim.errors import InputError
from nandcosim.spice.status import Status
from nandcosim.tables import fit, plot, render_summary, summarise
from nandcosim.tables.plotting import draw
from tests.unit.tables_stores import sensing_store, with_spec, with_status

TABLE = fit(with_status(sensing_store(samples=40), Status.TIMEOUT, {"margin": 0, "sample": [1, 2]}))


def test_summary_has_axes_counts_and_residuals() -> None:
    summary = json.loads(json.dumps(summarise(TABLE), allow_nan=False))
    assert summary["samples"] == {
        "n": 2628,
        "failed": 12,
        "smallest_n": 38,
        "by_status": {"ok": 2628, "timeout": 12},
    }
    assert summary["axes"]["m"]["values"] == [1, 2, 4]
    assert summary["axes"]["margin"]["units"] == "level"
    assert summary["variables"]["pass_probability"]["low"] == 0.0
    residual = float(abs(TABLE.dataset.pass_residual).max())
    assert summary["fit"]["largest_residual"] == residual
    assert sum(summary["fit"]["kinds"].values()) == TABLE.dataset.fit_kind.size


def test_summary_as_text() -> None:
    text = render_summary(summarise(TABLE))
    assert "2628 successful, 12 failed" in text
    assert "margin       -1 to 1.5 in 11 values level  (linear)" in text
    assert "largest residual" in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_summary_of_other_circuits() -> None:
    other = fit(with_spec(sensing_store(samples=5), circuit="other"))
    assert summarise(other)["fit"] is None
    assert "e_sense" in render_summary(summarise(other))


def test_picture_shows_the_data_with_units(tmp_path: Path) -> None:
    figure = draw(TABLE)
    panels = [panel for panel in figure.axes if panel.get_visible()]
    assert len(panels) == 4
    labels = {panel.get_xlabel() for panel in panels} | {panel.get_ylabel() for panel in panels}
    assert {
        "margin [level]",
        "pass probability",
        "trip margin [level]",
        "discharge time [µs]",
        "sense energy [fJ]",
    } <= labels
    observed = panels[0].containers[0].lines[0].get_ydata()
    assert np.array_equal(observed, TABLE.dataset.pass_probability.sel(m=1, sigma=0.2))
    assert plot(TABLE, tmp_path / "sub" / "t.png").read_bytes().startswith(b"\x89PNG")


def test_picture_at_chosen_values() -> None:
    panel = draw(TABLE, {"sigma": 0.0}).axes[0]
    observed = panel.containers[0].lines[0].get_ydata()
    assert np.array_equal(observed, TABLE.dataset.pass_probability.sel(m=1, sigma=0.0))
    with pytest.raises(InputError, match=r"sigma = 0\.7 is not tabulated"):
        draw(TABLE, {"sigma": 0.7})


@pytest.mark.parametrize(
    "store",
    [
        sensing_store(samples=5).isel(m=0, drop=True),
        sensing_store(samples=5).isel(sigma=0, drop=True),
        sensing_store(samples=5).isel(margin=4, drop=True),
        sensing_store(samples=5, corners=("tt", "ss")),
        with_spec(sensing_store(samples=5), circuit="other"),
        with_spec(sensing_store(samples=5).isel(margin=9, m=0, drop=True), circuit="other"),
    ],
    ids=["no m", "no sigma", "no margin", "corners", "other", "other, one axis"],
)
def test_picture_of_other_shapes(store: object, tmp_path: Path) -> None:
    assert plot(fit(store), tmp_path / "t.svg").stat().st_size > 0  # type: ignore[arg-type]


def test_bars_are_the_limits_that_a_quantity_names() -> None:
    table = fit(sensing_store(samples=50).isel(m=0, drop=True))
    panel = next(p for p in draw(table).axes if p.get_ylabel() == "pass location [level]")
    ends = np.array(panel.containers[0].lines[2][0].get_segments())[:, :, 1]
    limits = [table.dataset[f"pass_location_{end}"].values for end in ("low", "high")]
    assert ends == pytest.approx(np.transpose(limits))


def test_trip_margin_says_at_which_spread_it_is() -> None:
    titles = [
        draw(fit(sensing_store(samples=20, sigmas=sigmas))).axes[1].get_title()
        for sigmas in [(0.0, 0.2), (0.1, 0.2)]
    ]
    assert titles == [f"Trip margin at sigma = {sigma} level" for sigma in ("0", "0.1")]


def test_axes_of_a_sweep_are_in_engineering_units() -> None:
    store = sensing_store(samples=5, margins=(0.5, 1.0), sizes=(1, 2)).isel(sigma=0, drop=True)
    store = with_spec(store.rename(margin="c_bl", m="tau"), circuit="other")
    store["c_bl"] = ("c_bl", [1e-13, 4e-13], {"units": "F"})
    store["tau"] = ("tau", [1e-8, 2e-8], {"units": "s"})
    panel = draw(fit(store)).axes[0]
    assert panel.get_xlabel() == "c bl [fF]"
    assert panel.containers[0].lines[0].get_xdata() == pytest.approx([100.0, 400.0])
    legend = [text.get_text() for text in panel.get_legend().get_texts()]
    assert legend == ["tau = 10 ns", "tau = 20 ns"]


def test_unwritable_picture(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        plot(TABLE, tmp_path / "t.docx")
