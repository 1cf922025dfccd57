"""Crossing times of the fast string, of ngspice as a sweep runs it, and of ngspice in fine steps.

    python docs/examples/fast_string_reference.py
"""

import numpy as np

from nandcosim.spice.engine import Engine
from nandcosim.sweep import load_circuit

CIRCUIT = load_circuit("dts_sense")
SAMPLES = 6

engine = Engine()
rng = np.random.default_rng(1)
print("pattern     margin   t_cross (us)    fast/sweep - 1    sweep/fine - 1    fast/fine - 1")
for pattern in ("spread", "erased", "programmed"):
    for margin in (0.3, 0.8, 1.5, 2.5):
        params = CIRCUIT.Params(pattern=pattern, margin=margin)
        finer = params.model_copy(update={"max_step": params.max_step / 25})
        sizes = {knob.name: knob.size(params) for knob in CIRCUIT.knobs}
        knobs = {name: np.zeros((SAMPLES, size)) for name, size in sizes.items()}
        knobs["threshold"] = 0.2 * rng.standard_normal((SAMPLES, params.cells))
        samples = [{name: v[k] for name, v in knobs.items()} for k in range(SAMPLES)]
        fast = engine.fast(CIRCUIT, params).sample_many(knobs).responses["t_cross"]
        sweep, fine = (
            np.array(
                [engine.sample(CIRCUIT, each, k, frozenset({"t_cross"})).responses["t_cross"] for k in samples]
            )
            for each in (params, finer)
        )
        if np.isnan(fine).all():
            print(f"{pattern:<11} {margin:>5}    does not cross")
            continue
        ratios = (np.nanmax(np.abs(a / b - 1)) for a, b in ((fast, sweep), (sweep, fine), (fast, fine)))
        low, high = 1e6 * np.nanmin(fine), 1e6 * np.nanmax(fine)
        print(f"{pattern:<11} {margin:>5}   {low:5.2f} to {high:5.2f}", *(f"{100 * r:13.2f} %  " for r in ratios))
