"""An extra is there if it can be imported, not if there is a file of its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from nandcosim.spice.doctor import _extra


def test_an_extra_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "extra_that_fails.py").write_text("raise ImportError('needs NumPy 2.1\\nor so')\n")
    (tmp_path / "extra_that_works.py").write_text("")
    failing = _extra("extra_that_fails", "fast")
    assert (failing.ok, failing.required) == (False, False)
    assert failing.detail == "cannot be imported: ImportError: needs NumPy 2.1"
    assert _extra("extra_that_works", "fast").detail == "installed"
    assert "pip install 'nandcosim[fast]'" in _extra("extra_that_is_not_there", "fast").detail
