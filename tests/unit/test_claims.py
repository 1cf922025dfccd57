"""Claims: verdicts by their definition, and errors that name what is wrong."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from nandcosim.claims import Claim, Finding, check, claim_lines, judge, load_claims, papers
from nandcosim.claims.checking import read_findings, stored
from nandcosim.claims.dnova.cost import cost_claims
from nandcosim.errors import InputError


def claim(**changes: object) -> Claim:
    fields = {
        "id": "X1", "section": "1", "quantity": "q", "low": 2.0, "high": 4.0, "unit": "x",
        "configuration": "c", "tolerance": 0.1,
    }  # fmt: skip
    return Claim(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("low", "high", "verdict", "deviation"),
    [
        (2.5, 3.0, "reproduced", 0.0),
        (1.85, 3.0, "reproduced", -0.075),
        (1.75, 3.0, "outside", -0.125),
        (3.0, 4.3, "reproduced", 0.075),
        (3.0, 4.5, "outside", 0.125),
        (1.0, 4.1, "outside", -0.5),
    ],
)
def test_the_farther_end_decides(low: float, high: float, verdict: str, deviation: float) -> None:
    found = judge(claim(), Finding(low, high, "r"))
    assert (found.verdict, found.deviation) == (verdict, pytest.approx(deviation))


def test_a_knob_never_counts_as_reproduced() -> None:
    assert judge(claim(), Finding(3, 3, "r", knobs=("k",))).verdict == "calibrated"
    assert judge(claim(), Finding(9, 9, "r", knobs=("k",))).verdict == "outside"


def test_a_contradiction_is_named_whatever_was_found() -> None:
    found = judge(claim(), Finding(3, 3, "r.", contradiction="2 + 2 = 5."))
    assert found.verdict == "inconsistent"
    assert found.row()["reason"] == "r. 2 + 2 = 5."


def test_one_sided_ranges() -> None:
    at_most = claim(low=None)
    assert judge(at_most, Finding(-100, 4.3, "r")).verdict == "reproduced"
    assert judge(at_most, Finding(0, 5, "r")).verdict == "outside"
    at_least = claim(high=None)
    assert judge(at_least, Finding(1.9, 100, "r")).verdict == "reproduced"


def test_nothing_found_and_no_number() -> None:
    assert judge(claim(), None).verdict == "not_modelled"
    undefined = judge(claim(), Finding(math.nan, math.nan, "r"))
    assert undefined.verdict == "outside"
    json.dumps(undefined.row(), allow_nan=False)


def test_every_paper_is_checked_claim_by_claim() -> None:
    for paper in papers():
        claims = load_claims(paper)
        assert len({one.id for one in claims}) == len(claims)
        assert set(stored(paper)) <= {one.id for one in claims}
        judged = check(paper)
        assert [one.claim for one in judged] == list(claims)
        text = claim_lines(judged)
        assert all(one.id in text for one in claims)
        assert text.splitlines()[-1].startswith(f"{len(claims)} claims: ")


def test_an_unknown_paper_is_named() -> None:
    with pytest.raises(InputError, match=r"found 'nova', allowed papers: .*dnova"):
        check("nova")


@pytest.mark.long
def test_stored_findings_are_what_their_study_gives() -> None:
    """The study that needs no corpus but the shipped one; k-means may round otherwise elsewhere."""
    pytest.importorskip("faiss", reason="faiss is not installed (extra retrieval)")
    kept = stored("dnova")
    for name, found in cost_claims().items():
        assert found.low == pytest.approx(kept[name].low, rel=0.05), name
        assert found.high == pytest.approx(kept[name].high, rel=0.05), name
        assert found.knobs == kept[name].knobs


def test_findings_come_back_from_a_file(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    check("dnova", measure=True, only=["D12"], store=out)
    assert not out.exists()  # computed anew in every check, so never stored
    (tmp_path / "other.json").write_text('{"D1": {"lowest": 1}}')
    with pytest.raises(InputError, match=r"other\.json: no findings of claims"):
        read_findings(tmp_path / "other.json")
