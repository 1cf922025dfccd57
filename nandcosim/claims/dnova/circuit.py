"""D-NOVA's claims on the sensing circuit, from the shipped tables (D10, D15.1)."""

from __future__ import annotations

from nandcosim.claims.claim import Finding
from nandcosim.tables import load_tables

__all__ = ["accuracy", "discharge"]

#: Sigma about which the critical QLC region lies, in levels (section 6.4).
_NOMINAL = 0.2

#: Margin of a cell that just matches: alpha - 1/2 levels.
_JUST_MATCHING = {1: 0.5, 2: 1.5}


def accuracy() -> dict[str, Finding]:
    """Share of strings of which all 128 checks are right (section 6.4, Fig. 14a)."""
    table = load_tables()["dts_strings"].dataset
    collapsed = table.sel(margin=_JUST_MATCHING[1], sigma=slice(_NOMINAL, None))
    restored = table.sel(margin=_JUST_MATCHING[2])
    low = 100 * float(collapsed.string_pass_low.min())
    high = 100 * float(collapsed.string_pass_high.max())
    by_sigma = ", ".join(
        f"{100 * float(one):.3g} % at {float(one.sigma):g}"
        for one in table.string_pass_probability.sel(margin=_JUST_MATCHING[1])
    )
    single = load_tables()["dts_accuracy"].dataset.pass_probability.sel(margin=_JUST_MATCHING[1])
    return {
        "D10.1": Finding(
            low,
            high,
            f"Whole strings collapse ({by_sigma}), but at the nominal sigma half of them are "
            f"still right. A single check stays right in {100 * float(single.min()):.1f} % or "
            "more, so the paper's figure can only be that of strings.",
        ),
        "D10.2": Finding(
            100 * float(restored.string_pass_low.min()),
            100 * float(restored.string_pass_high.max()),
            f"All {int(restored.n_strings.min())} strings right at every sigma up to "
            f"{float(restored.sigma.max()):g}; the range is the 95 % interval.",
        ),
    }


def discharge() -> dict[str, Finding]:
    """Longer discharge of eight wordlines at once (section 6.7)."""
    table = load_tables()["dts_discharge"].dataset.sel(m=8)
    penalty = 100 * table.discharge_penalty
    listed = ", ".join(f"{float(one):+.3g} % at {float(one.companion_margin):g}" for one in penalty)
    return {
        "D15.1": Finding(
            float(penalty.min()),
            float(penalty.max()),
            "Depends on how far the other seven cells lie above their boundary, in levels: "
            f"{listed}; cells that just match at alpha = 2 have 1.5.",
        )
    }
