"""One self-contained HTML page: no script, no link, pictures inside."""

from __future__ import annotations

import hashlib
import io
import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from nandcosim import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Picture", "Section", "as_svg", "write_page"]


@dataclass(frozen=True)
class Picture:
    """An SVG and what it shows."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Section:
    """A heading, a sentence, pictures, facts and a table."""

    title: str
    text: str
    pictures: list[Picture] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)


def as_svg(fig: Figure, salt: str) -> str:
    """Render a figure to inline SVG; `salt` keeps the ids of several on one page apart.

    The same figure and salt give the same text.
    """
    import matplotlib as mpl

    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": salt, "svg.fonttype": "path"}):
        fig.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = re.sub(r"^.*?(?=<svg)", "", buffer.getvalue(), flags=re.DOTALL)
    # matplotlib numbers its elements from 1 in every figure
    prefix = f"svg{hashlib.sha256(salt.encode()).hexdigest()[:8]}"
    return re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", svg)


def write_page(path: Path, title: str, lead: str, sections: list[Section]) -> Path:
    """Write the page to `path`, whole or not at all."""
    environment = Environment(
        loader=PackageLoader("nandcosim.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters["cell"] = _cell
    template = environment.get_template("page.html.j2")
    text = template.render(title=title, lead=lead, sections=sections, version=__version__)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text)
    temporary.replace(path)
    return path


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.4g}"
    return str(value)
