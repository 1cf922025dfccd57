"""The check of D-NOVA's claims."""

from __future__ import annotations

from nandcosim.claims.checking import Study
from nandcosim.claims.dnova.circuit import accuracy, discharge
from nandcosim.claims.dnova.cost import cost_claims
from nandcosim.claims.dnova.device import arithmetic, organisation
from nandcosim.claims.dnova.retrieval import (
    adapter_gain,
    deficits,
    expansion,
    mapping,
    noise,
    parallelism,
)

__all__ = ["STUDIES"]

STUDIES = (
    Study("sensing accuracy", ("D10.1", "D10.2"), accuracy, quick=True),
    Study("discharge", ("D15.1",), discharge, quick=True),
    Study("arithmetic", ("D12", "D14.4"), arithmetic, quick=True),
    Study("organisation", ("D14.5", "D15.2", "D15.3"), organisation, quick=True),
    Study(
        "latency, energy, throughput",
        (
            "D1", "D2.1", "D2.2", "D2.3", "D3", "D4.1", "D4.2", "D4.3", "D5.1", "D5.2", "D5.3",
            "D5.4", "D13.1", "D13.2", "D13.3",
        ),
        cost_claims,
    ),
    Study("deficits", ("D14.1", "D14.2", "D14.3"), deficits),
    Study("noise", ("D10.3",), noise),
    Study("parallelism", ("D8.1", "D8.2", "D8.3", "D8.4", "D9.1", "D9.2"), parallelism),
    Study("mapping", ("D11.1", "D11.2", "D11.3"), mapping),
    Study("adapter", ("D6.1", "D6.2", "D6.3", "D6.4", "D6.5", "D6.6"), adapter_gain),
    Study("expansion", ("D7.1", "D7.2"), expansion),
)  # fmt: skip
