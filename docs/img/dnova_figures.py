"""Figures and measured tables of docs/systems/dnova.md.

::

    python docs/img/dnova_figures.py [recall] [variants] [noise] [heat] [costs] [mapping] [claims]

makes the parts named, or all: pictures ``docs/img/dnova_*.png``, and the tables between the
markers ``<!-- NAME -->`` and ``<!-- /NAME -->`` of the page. The corpus and the tables are
those that ship.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import xarray as xr
from pages import IMAGES, claim_rows, fill, markdown, run_parts

from nandcosim.report.cost import cost_table, draw_shares, draw_throughput
from nandcosim.report.mapping import draw_study
from nandcosim.report.retrieval import draw_heat_map, draw_recall, over_chips
from nandcosim.report.style import COLOURS, figure, save
from nandcosim.systems import dnova
from nandcosim.systems.dnova.comparison import compare
from nandcosim.systems.dnova.mapping_study import footprint_study
from nandcosim.tables import load_tables

PAGE = IMAGES.parent / "systems" / "dnova.md"

#: Bitlines at which the 20,000 documents fill as many sub-blocks as NQ does in the paper.
NQ_SHAPE = {"bitlines": 122, "nlist": 1024, "nprobe": 64}

#: Documents of NQ (section 5.1).
NQ_DOCUMENTS = 2_680_000

#: D-NOVA, D-NOVA-F and D-NOVA-XF (section 6.6).
KINDS = ("242", "282", "484")

_REFERENCES = {"judged": "judged", "exact": "exact", "fp32_ivf": "FP32-IVF's"}


@cache
def evaluated(**settings: Any) -> xr.Dataset:
    """The shipped corpus in these settings, with the tables that ship."""
    config = dnova.Config(threads=2, deficit_queries=0, **settings)
    return dnova.evaluate(config, load_tables(), dnova.load_corpus("wordnet"))


def recall() -> None:
    """Recall against nprobe with and without noise and adapter; the table with intervals."""
    drawn = evaluated(noise=("none", "table"), adapter=("none", "wordnet"), queries=1000)
    picture = draw_recall(drawn)
    picture.axes[0].set_ylim(0.3, 0.75)  # the lines lie close together
    save(picture, IMAGES / "dnova_recall.png")
    measured = over_chips(
        evaluated(
            dts=("111", "242"), noise=("none", "table"), chip=(0, 1, 2), nprobe=(2, 8, 32),
            queries=1000,
        )
    )  # fmt: skip
    fill(PAGE, "recall", markdown(recall_rows(measured.sel(k=100))))
    fill(PAGE, "gap", markdown(gap_rows(measured.sel(k=100, reference="judged"))))
    fill(PAGE, "interval", markdown(interval_rows(drawn.sel(k=100, reference="judged", nprobe=32))))


def variants() -> None:
    """Every configuration of the paper and UBS + LBS, with and without adapter and noise."""
    common = {"adapter": ("none", "wordnet"), "noise": ("none", "table"), "nprobe": 32,
              "queries": 1000}  # fmt: skip
    rows = variant_rows(evaluated(dts=("111", "242", "282", "484"), **common))
    bounds = evaluated(dts=("111", "242", "441"), metric="ubs+lbs", **common)
    fill(PAGE, "variants", markdown(rows + variant_rows(bounds, "UBS+LBS ")))


def variant_rows(found: xr.Dataset, prefix: str = "DTS") -> list[dict[str, Any]]:
    """Recall@25 and @100 against the judgements; FP32-IVF once an adapter, first."""
    point = found.sel(reference="judged")
    rows = []
    for dts in ([None] if prefix == "DTS" else []) + point["dts"].values.tolist():
        row = {"sensing": "FP32-IVF" if dts is None else f"{prefix}{dts}"}
        for adapter, noise, k in product(("none", "wordnet"), ("none", "table"), (25, 100)):
            name = f"R@{k}{', noise' if noise == 'table' else ''}"
            name += ", adapter" if adapter != "none" else ""
            at = {"adapter": adapter, "k": k}
            if dts is None:
                row[name] = "–" if noise == "table" else percent(point.sel(at), "ivf_recall")
            else:
                row[name] = percent(point.sel(**at, dts=dts, noise=noise), "recall")
        rows.append(row)
    return rows


def noise() -> None:
    """Recall against sigma for alpha = 1, 2, 3, each with the range that suits it (Fig. 14b)."""
    sigmas = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35)
    fig, (axes,) = figure(height=3.6)
    rows = []
    for number, (alpha, span) in enumerate({1: "sigma:18", 2: "sigma:9", 3: "sigma:6"}.items()):
        common = {"dts": "111", "alpha": alpha, "value_range": span, "nprobe": 32,
                  "queries": 500}  # fmt: skip
        at = {"reference": "judged", "k": 100}
        noisy = over_chips(evaluated(noise="table", sigma=sigmas, chip=(0, 1, 2), **common)).sel(at)
        clean = evaluated(**common).sel(at)
        axes.errorbar(
            sigmas, noisy["recall"], noisy["recall_se"], marker="o", markersize=4, capsize=2,
            color=COLOURS[number], label=f"alpha {alpha}, levels over {span.replace(':', ' ')}",
        )  # fmt: skip
        axes.axhline(float(clean["recall"]), color=COLOURS[number], linestyle="--", linewidth=1)
        row = {"alpha": alpha, "range": f"`{span}`", "noise-free": percent(clean, "recall")}
        row |= {f"σ = {s:g}": percent(noisy.sel(sigma=s), "recall") for s in sigmas}
        rows.append(row)
    axes.set_xlabel("sigma of a stored threshold (level spacings)")
    axes.set_ylabel("recall@100, judged")
    axes.set_ylim(0, 0.8)
    axes.legend(frameon=False, loc="center right")
    save(fig, IMAGES / "dnova_noise.png")
    fill(PAGE, "noise", markdown(rows))


def heat() -> None:
    """Gap to FP32-IVF over m2 and m1 = m3."""
    sizes = (1, 2, 4, 8)
    triples = tuple(f"{outer}-{inner}-{outer}" for outer in sizes for inner in sizes)
    save(
        draw_heat_map(evaluated(dts=triples, nprobe=32, queries=300)),
        IMAGES / "dnova_heat.png",
    )


def costs() -> None:
    """Shares of latency and energy, queries a second, and the table of the systems."""
    found = nq_costs()
    save(draw_shares(found), IMAGES / "dnova_shares.png")
    save(draw_throughput(found), IMAGES / "dnova_throughput.png")
    fill(PAGE, "costs", markdown(cost_table(found)))
    scaled = evaluated(dts=KINDS, queries=300, **NQ_SHAPE)
    fill(PAGE, "scaled", markdown(cost_table(scaled.sel(dts=["242"]))))


def nq_costs() -> xr.Dataset:
    """Every system at NQ's counts, with the sub-blocks that the scaled index touches.

    The search of the scaled index says how many sub-blocks a query activates. Full sub-blocks
    hold more vectors in the same number, and all systems score those.
    """
    scaled = evaluated(dts=KINDS, queries=300, **NQ_SHAPE)
    scored = [NQ_SHAPE["nlist"], NQ_DOCUMENTS * NQ_SHAPE["nprobe"] / NQ_SHAPE["nlist"], 1000.0]
    activity = scaled[["activations", "busiest", "m"]].assign(sensed=("stage", scored))
    activity.attrs = {"dimension": scaled.attrs["dimension"]}
    shape = {name: NQ_SHAPE[name] for name in ("nlist", "nprobe")}
    config = dnova.Config(dts=KINDS, **shape)
    found = compare(activity, config, load_tables())
    return found.assign(
        m=scaled["m"], scanned=activity["sensed"], activations=scaled["activations"],
        activations_median=scaled["activations_median"],
    )  # fmt: skip


def mapping() -> None:
    """Sub-blocks touched under both mappings."""
    nlist, nprobe = NQ_SHAPE["nlist"], NQ_SHAPE["nprobe"]
    study = footprint_study(
        dnova.load_corpus("wordnet"), subblocks=164, nlist=nlist, nprobes=[nprobe]
    )
    picture = draw_study(study, nprobe, int(study["k2"][0]))
    save(picture, IMAGES / "dnova_mapping.png")


def claims() -> None:
    """Every claim with its verdict."""
    fill(PAGE, "claims", markdown(claim_rows("dnova")))


def recall_rows(found: xr.Dataset) -> list[dict[str, Any]]:
    """Recall in %, ± one standard error: a row a reference and nprobe."""
    rows = []
    for reference, label in _REFERENCES.items():
        for nprobe in found["nprobe"].values.tolist():
            point = found.sel(reference=reference, nprobe=nprobe)
            itself = reference == "fp32_ivf"
            rows.append(
                {
                    "against": label,
                    "nprobe": nprobe,
                    "FP32-IVF": "–" if itself else percent(point, "ivf_recall"),
                    **by_configuration(point, "recall"),
                }
            )
    return rows


def gap_rows(found: xr.Dataset) -> list[dict[str, Any]]:
    """Points that FP32-IVF has more, paired by query."""
    return [
        {"nprobe": nprobe, **by_configuration(found.sel(nprobe=nprobe), "gap")}
        for nprobe in found["nprobe"].values.tolist()
    ]


def interval_rows(found: xr.Dataset) -> list[dict[str, Any]]:
    """Recall and gap with bootstrap intervals, by adapter and noise."""
    rows = []
    for adapter in found["adapter"].values.tolist():
        for noise in found["noise"].values.tolist():
            point = found.sel(adapter=adapter, noise=noise)
            rows.append(
                {
                    "adapter": adapter,
                    "noise": noise,
                    "FP32-IVF": interval(point, "ivf_recall"),
                    "DTS242": interval(point, "recall"),
                    "gap": interval(point, "gap"),
                }
            )
    return rows


def by_configuration(point: xr.Dataset, name: str) -> dict[str, str]:
    return {
        f"DTS{dts}{', noise' if noise == 'table' else ''}": percent(
            point.sel(dts=dts, noise=noise), name
        )
        for dts in point["dts"].values.tolist()
        for noise in point["noise"].values.tolist()
    }


def percent(point: xr.Dataset, name: str) -> str:
    return f"{100 * float(point[name]):.1f} ± {100 * float(point[f'{name}_se']):.1f}"


def interval(point: xr.Dataset, name: str) -> str:
    value, low, high = (100 * float(point[f"{name}{end}"]) for end in ("", "_low", "_high"))
    return f"{value:.1f} ({low:.1f} .. {high:.1f})"


PARTS = {part.__name__: part for part in (recall, variants, noise, heat, costs, mapping, claims)}

if __name__ == "__main__":
    run_parts(PARTS)
