"""What the pictures of tables have in common."""

from __future__ import annotations

__all__ = ["COLOURS", "MARKERS"]

#: Colours that stay apart with any colour vision (M. Okabe, K. Ito, 2008), dark first.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vP*"
