"""The page: one file, nothing to load, well formed, and its numbers are those of the files."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from nandcosim.errors import InputError
from nandcosim.report.folder import report
from nandcosim.report.retrieval import recall_rows
from nandcosim.report.samples import save_sample
from nandcosim.spice.engine import Engine
from nandcosim.spice.settings import circuit_params
from nandcosim.sweep import load_circuit
from nandcosim.tables import open_table
from tests.e2e.conftest import Evaluated, Swept

#: Elements of HTML that have no end tag.
VOID = {"br", "hr", "img", "input", "link", "meta"}

#: Attributes by which a page makes a browser fetch something, or leads elsewhere.
LOADING = {"src", "href", "xlink:href", "srcset", "data", "poster", "action"}


class Page(HTMLParser):
    """Reads a page strictly: every element is closed, in order; keeps links, ids and cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[str] = []
        self.targets: list[str] = []
        self.ids: list[str] = []
        self.words: list[str] = []
        self.rows: list[list[str]] = []
        self.declaration = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_decl(self, decl: str) -> None:
        self.declaration = decl

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.targets += [value or "" for name, value in attrs if name in LOADING]
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"line {self.getpos()[0]}: </{tag}>"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1].append(data)
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def folder(swept: Swept, evaluated: Evaluated, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Waveforms, a table in a folder of its own, an evaluation: as the demo leaves them."""
    folder = tmp_path_factory.mktemp("results")
    (folder / "tables").mkdir()
    shutil.copy(swept.table, folder / "tables")
    shutil.copy(evaluated.folder / "dnova.nc", folder)
    circuit = load_circuit("dts_sense")
    for label, margin in (("passes", 1.5), ("blocks <&>", -1.5)):
        settings = {"cells": 32, "margin": margin}
        params = circuit_params(circuit, settings, "test")
        outcome = Engine().sample(circuit, params)
        name = f"waveforms_{label[:6]}.nc"
        save_sample(outcome.waveforms, circuit.marks(params), settings, label, folder / name)
    return folder


@pytest.fixture(scope="module")
def source(folder: Path) -> str:
    return report(folder).read_text()


@pytest.fixture(scope="module")
def page(source: str) -> Page:
    return Page(source)


def test_page_is_well_formed(page: Page) -> None:
    assert page.declaration.lower() == "doctype html"
    for name in ("html", "head", "title", "body", "h1"):
        assert page.elements.count(name) == 1, name
    assert page.elements.count("svg") == page.elements.count("figure") == 7
    assert len(set(page.ids)) == len(page.ids)


def test_page_is_self_contained(source: str, page: Page) -> None:
    assert {"script", "link", "iframe", "object", "embed", "img"}.isdisjoint(page.elements)
    # the pictures refer to their own parts, which must be on the page
    assert all(target.startswith("#") for target in page.targets)
    assert {target[1:] for target in page.targets} <= set(page.ids)
    assert all(found[1:] in page.ids for found in re.findall(r"url\((#[^)]*)\)", source))
    assert re.findall(r"url\([^#]|@import", source) == []
    # namespaces and the licence words of SVG metadata are names, never fetched
    addresses = re.findall(r"""([\w:]+)=["']https?://""", source)
    assert {name.split(":")[0] for name in addresses} <= {"xmlns", "rdf"}


def test_page_has_the_numbers_of_its_files(folder: Path, swept: Swept, page: Page) -> None:
    data = xr.load_dataset(folder / "dnova.nc", engine="h5netcdf")
    heads = next(row for row in page.rows if row[0] == "recall of")
    lines = [dict(zip(heads, row, strict=True)) for row in page.rows if len(row) == len(heads)]
    by_setting = {(line["recall of"], line["configuration"]): line for line in lines}
    for alpha in (1, 2):
        line = by_setting["judged documents", f"alpha {alpha}"]
        for nprobe in (1, 4):
            at = {"alpha": alpha, "nprobe": nprobe, "k": 25, "reference": "judged"}
            recall, error = (float(data[name].sel(at)) for name in ("recall", "recall_se"))
            assert line[f"nprobe {nprobe}"] == f"{recall:.3f} ± {error:.3f}"
    counts = open_table(swept.table).dataset
    assert f"{int(counts['n'].sum())} successful, {int(counts['failed'].sum())} failed" in page.text
    assert counts.attrs["store_digest"] in page.text
    assert "tables/dts_sense.nc" in page.text
    assert "240 documents, 12 queries" in page.text


def test_text_of_a_file_is_text_on_the_page(page: Page) -> None:
    """A label with mark-up in it is shown, not obeyed."""
    assert "blocks <&>" in page.text
    assert ["blocks <&>", "32", "-1.5"] in page.rows


def test_same_files_same_page(folder: Path, source: str) -> None:
    assert report(folder).read_text() == source


def test_rows_without_an_axis_of_nprobe_name_the_one_used(folder: Path) -> None:
    data = xr.load_dataset(folder / "dnova.nc", engine="h5netcdf")
    rows = recall_rows(data)
    one = data.sel(nprobe=4, drop=True)
    one.attrs["config"] = json.dumps({**json.loads(data.attrs["config"]), "nprobe": 4})
    assert recall_rows(one) == [row for row in rows if row["nprobe"] == 4]
    assert np.isfinite([row["recall"] for row in rows]).all()


def test_folder_without_results(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no waveforms, table or evaluation"):
        report(tmp_path)
    xr.Dataset({"x": 1}).to_netcdf(tmp_path / "foreign.nc", engine="h5netcdf")
    with pytest.raises(InputError, match="no waveforms, table or evaluation"):
        report(tmp_path)
    assert not (tmp_path / "report.html").exists()
