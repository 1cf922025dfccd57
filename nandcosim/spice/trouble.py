"""ngspice's own words about a failed run, in one line.

Text never decides whether a run succeeded; it only explains.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nandcosim.spice.deck import Deck

__all__ = ["explained", "summarise"]

# ngspice >= 43 gives two numbers; the internal one counts the lines of the deck as we sent it
_LINE = re.compile(
    r"(?:Error on line|etlist line no\.) *(?:\d+, new internal line no\. )?(?P<number>\d+|:)"
)
_TELLING = re.compile(
    r"error|could not|can't find|undefined|singular|timestep too small|unknown|invalid|"
    r"cannot|no job|no such",
    re.IGNORECASE,
)
#: Troubles of a foreign card, which ngspice words long or darkly -> plainer words.
_PLAINER = (
    (
        re.compile(
            r"line:\n(?P<element>m\S*)(?: \S+){4} (?P<model>\S+) (?P<size>w= *\S+ +l= *\S+).*\n"
            r"could not find a valid modelname"
        ),
        "{element}: could not find a valid modelname: {model} is unknown, or no bin holds {size}",
    ),
    (
        re.compile(r"unknown model type (?P<type>\S+)", re.IGNORECASE),
        "unknown model type {type}; if it is compiled Verilog-A, --osdi loads it",
    ),
    (
        re.compile(r"^(?P<element>n\S*) .*\nunknown device type", re.MULTILINE),
        "{element} takes a compiled Verilog-A model, and this ngspice has no OSDI",
    ),
)
#: What ngspice says after every trouble, whatever it was.
_ECHOES = (
    "aren't any circuits",
    "awaits to be",
    "circuit not parsed",
    "doanalyses: no such device",
    "sim_status",
    "simulation interrupted due to error",
)


def summarise(log: Sequence[str], deck: Deck | None = None) -> str:
    """Condense `log` to the line that names the trouble.

    Parameters
    ----------
    log : sequence of str
        Lines as ngspice wrote them, with or without a ``stderr``/``stdout`` prefix.
    deck : Deck, optional
        Quotes its line when ngspice gives only a number.
    """
    lines = [re.sub(r"^(stderr|stdout)\s?", "", line).strip() for line in log]
    for pattern, words in _PLAINER:
        match = pattern.search("\n".join(lines))
        if match is not None:
            return words.format_map({k: _plain_numbers(v) for k, v in match.groupdict().items()})
    for index, line in enumerate(lines):
        match = _LINE.search(line)
        if match is None:
            continue
        following = [text for text in lines[index + 1 : index + 3] if text]
        if match["number"] == ":":  # a line inside a subcircuit has no number
            return ": ".join(following)
        number = int(match["number"])
        source = deck.text().splitlines() if deck is not None else []
        quoted = source[number - 1].strip() if 0 < number <= len(source) else ""
        if quoted and quoted not in following:
            following.insert(0, quoted)
        return f"line {number}: " + ": ".join(following)
    telling = [
        line
        for line in lines
        if _TELLING.search(line) and not any(echo in line.lower() for echo in _ECHOES)
    ]
    return telling[-1] if telling else ""


def _plain_numbers(text: str) -> str:
    """``w=    4.199999999999999e-07   l=30n`` as ``w=4.2e-07 l=30n``."""
    number = r"= *(\d[\d.]*e[-+]\d+)(?= |$)"
    return re.sub(number, lambda found: f"={float(found[1]):g}", re.sub(r" +", " ", text))


def explained(reason: str, log: Sequence[str], deck: Deck | None = None) -> str:
    """`reason` followed by ngspice's own words, if it had any."""
    words = summarise(log, deck)
    return f"{reason}: {words}" if words else reason
