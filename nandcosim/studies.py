"""What commands share, those of ``python -m`` modules too: settings, and errors of one line."""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import ParamSpec

from nandcosim.errors import InputError, NandcosimError

__all__ = ["one_line_errors", "parse_parts", "print_parts", "split_settings"]

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


def parse_parts(
    parser: argparse.ArgumentParser, known: Collection[str], arguments: Sequence[str] | None
) -> argparse.Namespace:
    """Parse a study's command line; ``parts`` are names of `known`, all of them by default."""
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(known))
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.parts) - set(known))
    if unknown:
        parser.error(f"found {', '.join(unknown)}, allowed: {', '.join(known)}")
    options.parts = options.parts or list(known)
    return options


def print_parts(makers: Mapping[str, Callable[[], Iterable[str]]], names: Iterable[str]) -> None:
    """Print the parts named, line by line as they are made."""
    for name in names:
        print(f"== {name}")
        for line in makers[name]():
            print(line, flush=True)
