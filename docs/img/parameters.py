"""Parameter table of a circuit in Markdown, from the JSON of ``nandcosim circuits``.

nandcosim circuits dts_sense --json | python docs/img/parameters.py [NAME ...]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any


def table(circuit: Mapping[str, Any], names: Sequence[str] = ()) -> str:
    """Lines of the table; only the parameters `names` if there are any."""
    lines = [
        "| parameter | unit | default | allowed | meaning | origin |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for parameter in circuit["parameters"]:
        if names and parameter["name"] not in names:
            continue
        low, high = parameter["low"], parameter["high"]
        allowed = f"{low:g} to {high:g}" if low is not None else ""
        default = parameter["default"]
        shown = (
            "unset" if default is None else default if isinstance(default, str) else f"{default:g}"
        )
        cells = [f"`{parameter['name']}`", parameter["unit"] or "text", shown, allowed]
        cells += [parameter["meaning"].replace("**", "\\*\\*"), parameter["source"]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(json.load(sys.stdin)[0], sys.argv[1:]))
