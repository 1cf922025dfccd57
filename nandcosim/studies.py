"""Commands of ``python -m`` modules: an error is one line, the exit code says which kind."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec

from nandcosim.errors import NandcosimError

__all__ = ["one_line_errors"]

P = ParamSpec("P")


def one_line_errors(main: Callable[P, None]) -> Callable[P, int]:
    """Wrap `main`: 0, or an error of this package on stderr and its exit code."""

    @functools.wraps(main)
    def run(*arguments: P.args, **options: P.kwargs) -> int:
        try:
            main(*arguments, **options)
        except NandcosimError as error:
            print(f"error: {error}", file=sys.stderr)
            return error.exit_code
        return 0

    return run
