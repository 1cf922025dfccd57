"""Looks at the installation: what is there, what is missing, how to get it."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import import_module, metadata
from typing import Any

from nandcosim import __version__
from nandcosim.errors import NandcosimError
from nandcosim.spice import installation
from nandcosim.spice.circuit import Transient
from nandcosim.spice.deck import Deck
from nandcosim.spice.engine import BACKENDS
from nandcosim.spice.netlists import data_folder
from nandcosim.spice.shared import SharedBackend
from nandcosim.spice.status import Status

__all__ = ["Check", "examine"]

#: Import name -> extra of this distribution that brings it.
EXTRAS = {
    "faiss": "retrieval",
    "numba": "retrieval",
    "pyarrow": "parquet",
    "onnxruntime": "encode",
    "tokenizers": "encode",
    "bchlib": "ecc",
    "gguf": "llm",
}


@dataclass(frozen=True)
class Check:
    """One finding.

    Attributes
    ----------
    name : str
    ok : bool
    detail : str
        What was found, or what is missing and how to get it.
    required : bool
        Whether the simulator works without it.
    """

    name: str
    ok: bool
    detail: str
    required: bool = True

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def examine() -> list[Check]:
    """Run every check; none of them raises."""
    checks = [
        Check("nandcosim", True, f"{__version__} on Python {platform.python_version()}"),
        Check("PySpice", True, metadata.version("PySpice")),
        _attempt("ngspice executable", _executable),
        _attempt("libngspice", _library),
    ]
    checks += [_attempt(f"backend {name}", partial(_runs, name)) for name in BACKENDS]
    checks.append(_osdi())
    checks += [_folder(kind) for kind in ("netlists", "sweeps")]
    checks += [_extra(package, extra) for package, extra in EXTRAS.items()]
    return checks


def _attempt(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name, True, look())
    except (NandcosimError, OSError) as error:
        return Check(name, False, str(error))


def _executable() -> str:
    found = installation.executable()
    return f"{found.path}, version {installation.executable_version()} (by {found.rule})"


def _library() -> str:
    found = installation.shared_library()
    features = ", ".join(SharedBackend.features())
    return f"{found.path}, version {SharedBackend.version()} with {features} (by {found.rule})"


def _runs(name: str) -> str:
    """Run a resistor across a source and compare with Ohm's law."""
    deck = Deck("one resistor\nv1 in 0 1\nr1 in 0 1k", Transient(1e-9, 1e-10, 1e-10), ("i(v1)",))
    result = BACKENDS[name]().run(deck, time_limit=30.0)
    if result.status is not Status.OK:
        raise NandcosimError(f"{result.status.label}: {result.reason}")
    current = -float(result.waveforms["i(v1)"][-1])
    if abs(current - 1e-3) > 1e-9:
        raise NandcosimError(f"1 V across 1 kohm gave {current:g} A")
    return "1 V across 1 kohm gives 1 mA"


def _osdi() -> Check:
    """Whether libngspice loads compiled Verilog-A models, and which it was told to."""
    check = _attempt("OSDI models", _loaded_models)
    return replace(check, required=bool(os.environ.get(installation.OSDI_VARIABLE)))


def _loaded_models() -> str:
    if "OSDI" not in SharedBackend.features():
        raise NandcosimError(
            f"libngspice {SharedBackend.version()} has none; NGSPICE_LIBRARY_PATH names another"
        )
    return ", ".join(installation.osdi_models()) or "can be loaded; --osdi names one"


def _folder(kind: str) -> Check:
    path = data_folder(kind)
    count = sum(1 for file in path.rglob("*") if file.is_file())
    return Check(f"data: {kind}", count > 0, f"{count} files in {path}")


def _extra(package: str, extra: str) -> Check:
    """Import it, since a package may be there and not fit the others."""
    name = f"extra {extra}: {package}"
    try:
        import_module(package)
    except ModuleNotFoundError:
        how = f"not installed: {sys.executable} -m pip install 'nandcosim[{extra}]'"
        return Check(name, False, how, required=False)
    except Exception as error:  # noqa: BLE001 - an extension that fails raises whatever it likes
        first = f"{error}".partition("\n")[0]
        how = f"cannot be imported: {type(error).__name__}: {first}"
        return Check(name, False, how, required=False)
    return Check(name, True, "installed", required=False)
