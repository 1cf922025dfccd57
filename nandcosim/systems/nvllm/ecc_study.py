"""Raw bit errors, codes, and what a page read takes, as printed tables.

::

    python -m nandcosim.systems.nvllm.ecc_study rates     raw bit error rate by page and sigma
    python -m nandcosim.systems.nvllm.ecc_study codes     counted verdicts and closed forms
    python -m nandcosim.systems.nvllm.ecc_study pages     time and energy of a page
    python -m nandcosim.systems.nvllm.ecc_study order     BF16 sums as corrections arrive
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import get_args

import numpy as np

from nandcosim.errors import InputError
from nandcosim.intervals import wilson
from nandcosim.page_coding import CODINGS, coding_name
from nandcosim.studies import one_line_errors
from nandcosim.systems.nvllm.ecc import (
    CORRECTED,
    Code,
    make_code,
    segment_error_rate,
    simulate_errors,
    uncorrectable_rate,
)
from nandcosim.systems.nvllm.erdpe import Accumulation, bf16_to_float, dot_matrix, float_to_bf16
from nandcosim.systems.nvllm.hardware import CodeName, HardwareFields
from nandcosim.systems.nvllm.pages import layout, read, store
from nandcosim.systems.nvllm.rber import page_cost, page_error_rates, raw_bit_error_rate
from nandcosim.tables import Tables, load_tables

__all__ = ["codes", "order", "pages", "rates"]

SIGMAS = (0.1, 0.125, 0.15, 0.2, 0.3)
RBERS = (1e-5, 1e-4, 1e-3, 5e-3)


def rates(tables: Tables) -> Iterator[str]:
    """Raw bit error rate of every page (balanced code) and its 95 % limits, fresh."""
    yield "bits page    " + "".join(f"{f'sigma {sigma:g}':>31}" for sigma in SIGMAS)
    for bits in (1, 2, 3, 4):
        config = HardwareFields(rber_source="table", cell_bits=bits, sigma=SIGMAS)
        limits = [page_error_rates(config, tables, limit) for limit in ("value", "low", "high")]
        for page in limits[0]["page"].values:
            found = zip(*(each.sel(page=page).values for each in limits), strict=True)
            yield f"{bits:>4} {page:<7} " + "".join(
                f"{f'{value:.2e} ({low:.2e}, {high:.2e})':>31}" for value, low, high in found
            )


def codes(segments: int, seed: int = 1) -> Iterator[str]:
    """Verdicts on `segments` codewords at each rate, and the closed forms.

    Raises
    ------
    InputError
        If there are no segments.
    """
    if segments < 1:
        raise InputError(f"segments: found {segments}, allowed: 1 and more")
    yield (
        "code     n    rber    faulty   counted   beyond t  counted (95 %)"
        "                 detected  miscorrected  undetected"
    )
    for name in get_args(CodeName):
        for rber in RBERS:
            yield _verdicts(make_code(name), rber, segments, seed)


def _verdicts(code: Code, rber: float, segments: int, seed: int) -> str:
    found = simulate_errors(code, rber, segments, seed)
    low, high = wilson(found.uncorrectable, segments)
    interval = f"{found.uncorrectable / segments:.2e} ({low:.2e}, {high:.2e})"
    return (
        f"{code.name:<8} {code.n}  {rber:.0e}"
        f"  {float(segment_error_rate(rber, code.n)):.5f}   {1 - found.clean / segments:.5f}"
        f"   {float(uncorrectable_rate(rber, code.n, code.t)):.2e}  {interval:<30}"
        f"  {found.detected:>8}  {found.miscorrected:>12}  {found.undetected:>10}"
    )


def pages(tables: Tables) -> Iterator[str]:
    """Time, energy and rate at sigma = 0.2 of the mean page of 16 KiB, by cell and code."""
    yield "bits senses    read time (us)  energy (pJ a bit, 95 %)       rber at sigma 0.2"
    for bits in (1, 2, 3, 4):
        for coding in CODINGS if bits > 2 else CODINGS[-1:]:  # up to two bits they are one
            config = HardwareFields(
                page_time="table", array_energy="table", rber_source="table", cell_bits=bits,
                coding=coding,
            )  # fmt: skip
            cost = page_cost(config, tables)
            energy, low, high = (
                1e12 * float(cost[f"bit_energy{e}"]) for e in ("", "_low", "_high")
            )
            yield (
                f"{bits:>4} {coding_name(bits, coding):<8} {1e6 * float(cost['read_time']):>15.1f}"
                f"  {energy:.4f} ({low:.4f}, {high:.4f})"
                f"      {float(raw_bit_error_rate(config, tables)):.2e}"
            )


def order(columns: int = 2000, length: int = 4096, seed: int = 1) -> Iterator[str]:
    """BF16 columns whose sum depends on when corrections arrive, all segments corrected."""
    yield "rber     segments corrected  columns that differ  largest, of the sum of |products|"
    rng = np.random.default_rng(seed)
    weights = float_to_bf16(rng.normal(size=(columns, length)).astype(np.float32))
    activations = float_to_bf16(rng.normal(size=length).astype(np.float32))
    sizes = np.abs(bf16_to_float(weights)) @ np.abs(bf16_to_float(activations))
    stored = store(weights.view(np.uint8), layout(HardwareFields()))
    for rber in RBERS[:3]:
        raw = read(stored, rber, seed)
        data = raw.data.reshape(columns, -1)
        found = {
            way: dot_matrix(
                data, raw.parity, activations, stored.layout.code, number="bf16", order=way
            )
            for way in get_args(Accumulation)
        }
        change = np.abs(found["arrival"].values - found["column"].values)
        corrected = (found["column"].verdicts == CORRECTED).mean()
        yield (
            f"{rber:.0e}  {corrected:>18.4f}  {(change > 0).mean():>19.4f}"
            f"  {(change / sizes).max():>33.1e}"
        )


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m nandcosim.systems.nvllm.ecc_study", description=main.__doc__
    )
    parser.add_argument("what", choices=["rates", "codes", "pages", "order"])
    parser.add_argument("--segments", type=int, default=3_000_000, help="of every row of codes")
    options = parser.parse_args(arguments)
    if options.what == "codes":
        lines = codes(options.segments)
    elif options.what == "order":
        lines = order()
    else:
        lines = {"rates": rates, "pages": pages}[options.what](load_tables())
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
