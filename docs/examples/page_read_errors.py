"""Bit errors of QLC pages: counted in ngspice beside those that the decision's fit models.

``python docs/examples/page_read_errors.py [FOLDER]`` prints the table of
docs/circuits/page_read.md, from the shipped tables or from those of a folder.
"""

from __future__ import annotations

import sys

from nandcosim.tables import load_tables
from nandcosim.threshold import bit_error_rate


def main(folder: str | None = None) -> None:
    tables = load_tables(folder)
    decision = tables["page_read"].dataset.sel(bits=4)
    place = {"location": decision["pass_location"], "spread": decision["pass_spread"]}
    counted = tables["page_read_errors"].dataset
    print("| σ | code | page | wrong of | observed, 95 % | modelled |")
    print("| --- | --- | --- | --- | --- | --- |")
    for sigma in counted["sigma"].values:
        read = int(counted["bits_read"].sel(sigma=sigma))
        for coding in counted["coding"].values:
            modelled = bit_error_rate(4, 0.0, sigma, coding=coding, **place)
            for page in counted["page"].values:
                at = counted.sel(sigma=sigma, coding=coding, page=page)
                low, high = float(at["observed_low"]), float(at["observed_high"])
                print(
                    f"| {sigma:g} | {coding} | {page} | {int(at['bit_errors'])} of {read} "
                    f"| {low:.2%} to {high:.2%} | {float(modelled.sel(page=page)):.2%} |"
                )


if __name__ == "__main__":
    main(*sys.argv[1:2])
