"""What commands share, those of ``python -m`` modules too: settings, and errors of one line."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable
from typing import ParamSpec

from nandcosim.errors import InputError, NandcosimError

__all__ = ["one_line_errors", "split_settings"]

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
        except BrokenPipeError:  # of `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        return 0

    return run


def split_settings(settings: Iterable[str]) -> dict[str, str]:
    """``("m=4", "alpha=2")`` to a dict.

    Raises
    ------
    InputError
        If one has no ``=``, or a name comes twice.
    """
    pairs: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name or not value:
            raise InputError(f"--set: found {setting!r}, expected name=value")
        if name in pairs:
            raise InputError(f"--set: {name} is given twice")
        pairs[name.strip()] = value.strip()
    return pairs
