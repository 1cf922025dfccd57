"""D-NOVA as a whole, over any axes of its configuration: recall, time, energy, throughput."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from nandcosim import __version__
from nandcosim.errors import InputError
from nandcosim.systems.dnova.baselines import time_faiss
from nandcosim.systems.dnova.comparison import compare, cost_tables
from nandcosim.systems.dnova.config import Config
from nandcosim.systems.dnova.corpus import Corpus
from nandcosim.systems.dnova.device import check_fits, describe_device
from nandcosim.systems.dnova.ivf import IvfIndex
from nandcosim.systems.dnova.retrieval import RECALL_AT, retrieve

if TYPE_CHECKING:
    from nandcosim.tables.table import CalibrationTable

__all__ = ["RECALL_AT", "evaluate"]


def evaluate(
    config: Config,
    tables: Mapping[str, CalibrationTable] | None = None,
    workload: Corpus | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> xr.Dataset:
    """Search a corpus in every configuration, and say what that takes.

    Recall is executed: a pass over the queries for every combination of the axes that
    the search depends on (`nandcosim.systems.dnova.config.SEARCH_AXES`). Time and energy
    are closed forms over all other axes at once.

    Parameters
    ----------
    config : Config
        Fields given as tuples are axes of the result; a variable has those it depends on.
    tables : Mapping of str to CalibrationTable, optional
        ``dts_sense`` is needed with ``noise="table"``; ``dts_discharge`` and ``dts_energy``
        make time and energy follow the circuit.
    workload : Corpus
        Vectors and queries, and relevance judgements where there are any.
    progress : callable, optional
        Called with searches done and in all.

    Returns
    -------
    xarray.Dataset
        Over the axes, ``reference`` and ``k`` (recall@k):

        - ``recall``: share of the reference found; ``ivf_recall``, ``reis_recall``,
          ``nsp_recall``: the same by FP32-IVF on the same lists, and with
          ``baselines="executed"`` by REIS and NSP;
        - ``gap``: FP32-IVF's recall less ours, paired by query;
        - each with ``_se``, its standard error over the queries, and ``_low`` and
          ``_high``, its 95 % bootstrap interval;

        by ``stage``: ``scanned``, mean vectors scored a query; ``activations``, mean
        sub-blocks activated, ``busiest``, those on the busiest plane group, and their
        medians ``..._median``; ``deficit`` by ``quantile``; ``m``;

        by ``system`` (D-NOVA, CPU twice, NSP, REIS): ``latency`` (s) and ``energy`` (J) by
        ``stage`` and ``component``, which sum to the total, ``qps`` (1/s), ``bytes_moved``
        (B) by stage; of D-NOVA alone what `nandcosim.systems.dnova.comparison.dnova_cost`
        lists besides; with ``event_queries`` what the event-driven simulation gave,
        ``event_latency_ratio`` and ``event_qps``; the device as ``device_...``.

        The references are ``judged`` (documents judged relevant, where the corpus has
        judgements), ``exact`` (exact float32 top k) and ``fp32_ivf`` (FP32-IVF's top k).

    Raises
    ------
    InputError
        If there is no workload, a table is needed and missing, or the index does not
        fit the device.
    MissingExtraError
        If FAISS or Numba is not installed.
    """
    if workload is None:
        raise InputError("dnova: no workload; load_corpus('wordnet') gives the shipped one")
    given = dict(tables or {})
    check_fits(config, workload.dimension, workload.n, config.array("nlist"))
    timed = {}
    if config.baselines == "executed":
        timed["faiss_bandwidth"] = _faiss_bandwidth(config, workload)
        config = config.model_copy(update=timed)
    found = retrieve(config, given, workload, progress)
    used, source = cost_tables(given, np.unique(found["m"]).tolist())
    costs = compare(found, config, used)
    device = describe_device(
        config, workload.dimension, workload.n,
        *(config.array(name) for name in ("nlist", "nprobe", "k2")),
    )  # fmt: skip
    result = xr.merge(
        [
            _over_queries(found),
            costs,
            device.rename({name: f"device_{name}" for name in device.data_vars}),
        ],
        compat="override",
        join="outer",
        combine_attrs="drop_conflicts",
    )
    result.attrs = {
        "system": "dnova",
        "config": config.model_dump_json(),
        "corpus": workload.name,
        "documents": workload.n,
        "dimension": workload.dimension,
        "queries": min(config.queries, workload.nq),
        "nandcosim": __version__,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "cost": source,
        "timed": json.dumps(timed),
        "tables": json.dumps({name: table.digest for name, table in given.items()}),
    }
    return result


def _over_queries(found: xr.Dataset) -> xr.Dataset:
    """Means and medians over the queries of what the device was made to do."""
    activity = found[["activations", "busiest"]]
    medians = activity.median("query", keep_attrs=True)
    medians = medians.rename({name: f"{name}_median" for name in activity.data_vars})
    return (
        found.drop_vars(["activations", "busiest", "sensed"])
        .merge(activity.mean("query", keep_attrs=True))
        .merge(medians)
    )


def _faiss_bandwidth(config: Config, corpus: Corpus) -> float:
    """Bytes a second that FAISS scans here, with the most lists probed."""
    nlist = int(np.max(config.nlist))
    index = IvfIndex.build(np.asarray(corpus.vectors), nlist, config.seed)
    queries = np.asarray(corpus.queries)[: min(config.queries, corpus.nq, 200)]
    return time_faiss(index, queries, int(np.max(config.nprobe))).bandwidth
