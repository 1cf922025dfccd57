"""The check of NASiC's claims."""

from __future__ import annotations

from nandcosim.claims.checking import Study
from nandcosim.claims.nasic.array import area, encodings, inputs
from nandcosim.claims.nasic.gains import energy, products, throughput

__all__ = ["STUDIES"]

STUDIES = (
    Study("throughput", ("S1.1", "S2.1", "S2.2", "S2.3"), throughput, quick=True),
    Study("input dimension", ("S1.2",), inputs, quick=True),
    Study("energy", ("S3.1", "S3.2", "S3.3", "S3.4"), energy, quick=True),
    Study("area", ("S4.1", "S4.2", "S4.3"), area, quick=True),
    Study("products and abstract", ("S5.1", "S6.1", "S6.2"), products, quick=True),
    Study("encodings", ("S7.1",), encodings, quick=True),
)
