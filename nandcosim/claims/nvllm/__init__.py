"""The check of NVLLM's claims."""

from __future__ import annotations

from nandcosim.claims.checking import Study
from nandcosim.claims.nvllm.device import energy, models, silicon_claims
from nandcosim.claims.nvllm.latency import latency, prefill_shares
from nandcosim.claims.nvllm.reliability import consecutive_errors, engine_rate, model_quality
from nandcosim.claims.nvllm.speed import gpu_throughput, scheduled_growth, ssd_like_throughput

__all__ = ["STUDIES"]

STUDIES = (
    Study("GPU systems", ("N1.1", "N1.2", "N1.3", "N1.4"), gpu_throughput, quick=True),
    Study(
        "SSD-like systems", ("N2.1", "N2.2", "N2.3", "N2.4", "N2.5", "N2.6", "N2.7"),
        ssd_like_throughput, quick=True,
    ),
    Study("latency", ("N3.1", "N3.2", "N3.3", "N3.4", "N3.5", "N3.6"), latency, quick=True),
    Study("prefill", ("N4.1", "N4.2", "N4.3", "N4.4"), prefill_shares, quick=True),
    Study("energy", ("N5.1", "N5.2"), energy, quick=True),
    Study("silicon", ("N6.1", "N6.2", "N6.3", "N6.4", "N6.5"), silicon_claims, quick=True),
    Study("models", ("N7.1", "N7.2", "N7.3", "N7.4"), models, quick=True),
    Study("consecutive errors", ("N8.1",), consecutive_errors, quick=True),
    Study("engines by cycle", ("N8.2",), engine_rate),
    Study("quality", ("N8.3", "N8.4"), model_quality),
    Study("KV-aware scheduling", ("N9.1",), scheduled_growth, quick=True),
)  # fmt: skip
