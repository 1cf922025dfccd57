"""Where things that were made once are kept: the user's cache folder."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/nandcosim``, by default ``~/.cache/nandcosim``; it may not exist yet."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "nandcosim"
