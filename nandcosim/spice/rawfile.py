"""Reads the binary raw file that ``ngspice -r`` writes: one real plot, little endian."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nandcosim.errors import NandcosimError

__all__ = ["read_raw"]


def read_raw(path: Path) -> tuple[str, dict[str, np.ndarray]]:
    """Read the first plot of a raw file.

    Parameters
    ----------
    path : Path

    Returns
    -------
    plot : str
        Plot name, e.g. ``"Transient Analysis"``; empty for an empty file.
    vectors : dict of str to ndarray
        Each of shape (points,); as many whole points as the file holds, so a
        file cut off midway gives what was written.

    Raises
    ------
    NandcosimError
        If the vectors are complex.
    """
    data = path.read_bytes()
    head, marker, body = data.partition(b"Binary:\n")
    header = head.decode("utf-8", "replace").splitlines()
    fields = dict(line.split(":", 1) for line in header if ":" in line and line[0] != "\t")
    plot = fields.get("Plotname", "").strip()
    if not marker:  # ngspice writes the header before it knows of any point
        return plot, {}
    if "real" not in fields.get("Flags", ""):
        raise NandcosimError(f"{path}: Flags {fields.get('Flags', '').strip()!r}, expected real")
    count = int(fields["No. Variables"])
    names = [line.split()[1] for line in header if line.startswith("\t")][:count]
    points = len(body) // (8 * count)
    table = np.frombuffer(body, dtype="<f8", count=points * count).reshape(points, count)
    return plot, {name: table[:, i].copy() for i, name in enumerate(names)}
