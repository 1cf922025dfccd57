"""Axes of an evaluation: its configurations one by one, and where a figure cuts what it hides."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import xarray as xr

from nandcosim.systems.config import SystemConfig

__all__ = ["Axes", "along"]


@dataclass(frozen=True)
class Axes:
    """Which dimensions of a system's results are axes of its configuration.

    Attributes
    ----------
    kind : type of SystemConfig
    own : collection of str
        Dimensions that are none, such as stages and components.
    """

    kind: type[SystemConfig]
    own: Collection[str]

    def points(
        self, dataset: xr.Dataset, needed: Collection[str]
    ) -> Iterator[tuple[dict[str, Any], xr.Dataset]]:
        """Every configuration, on the axes that the variables `needed` depend on."""
        axes = [
            str(dim)
            for dim in dataset.dims
            if dim not in self.own and any(dim in dataset[name].dims for name in needed)
        ]
        others = {d: 0 for d in dataset.dims if d not in axes and d not in self.own}
        small = dataset.isel(others, drop=True)
        if not axes:
            yield {}, small
            return
        whole = xr.broadcast(small, exclude=self.own)[0].stack(point=axes, create_index=False)
        for number in range(whole.sizes["point"]):
            point = whole.isel(point=number)
            yield {axis: point[axis].item() for axis in axes}, point

    def cut(self, dataset: xr.Dataset, shown: Collection[str]) -> xr.Dataset:
        """At the defaults, or the first values, of the axes that are not shown."""
        return dataset.isel(self._places(dataset, shown), drop=True)

    def cut_at(self, dataset: xr.Dataset, shown: Collection[str]) -> str:
        """Words for `cut`: ``; at rber 1e-4``, or nothing."""
        places = [
            f"{n} {dataset[n].values[i].item()}"
            for n, i in self._places(dataset, shown).items()
            if dataset.sizes[n] > 1
        ]
        return f"; at {', '.join(places)}" if places else ""

    def _places(self, dataset: xr.Dataset, shown: Collection[str]) -> dict[str, int]:
        found = {}
        for name in map(str, dataset.dims):
            if name in shown or name in self.own:
                continue
            values = dataset[name].values.tolist()
            usual = self.kind.model_fields[name].default
            found[name] = values.index(usual) if usual in values else 0
        return found


def along(values: xr.DataArray, dim: str, only: Any = "") -> Iterator[tuple[Any, xr.DataArray]]:
    """Values at each label of `dim`; where it is no dim, as they are, with its one label."""
    if dim not in values.dims:
        yield values[dim].item() if dim in values.coords else only, values
        return
    for label in values[dim].values.tolist():
        yield label, values.sel({dim: label}, drop=True)
