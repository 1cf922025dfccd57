"""Libraries with sections, what they include, and transistors that a card gives as subcircuits."""

from __future__ import annotations

from pathlib import Path

import pytest

from nandcosim.errors import InputError
from nandcosim.spice import netlists
from nandcosim.spice.netlists import (
    call_subcircuits,
    digest,
    find_subcircuit,
    netlist_files,
    read_netlist,
)

LIBRARY = """* a library
.LIB tt
.lib 'inner.lib' Fast $ the foundry's
.include "common.inc"
.endl tt
.lib ss
.lib inner.lib slow
.endl
"""
INNER = ".lib fast\n.param speed=2\n.endl fast\n.lib slow\n.lib gone.lib x\n.endl slow\n"


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("NANDCOSIM_TRUST_NETLIST", raising=False)
    (tmp_path / "inner.lib").write_text(INNER)
    (tmp_path / "common.inc").write_text(".param common=1\n")
    path = tmp_path / "my.lib"
    path.write_text(LIBRARY)
    return path


def test_a_section_is_inlined_with_absolute_includes(library: Path) -> None:
    folder = library.parent
    assert read_netlist(library, "TT").splitlines() == [
        f'.lib "{folder}/inner.lib" Fast $ the foundry\'s',
        f'.include "{folder}/common.inc"',
    ]
    names = [path.name for path in netlist_files(library, "tt")]
    assert names == ["my.lib", "inner.lib", "common.inc"]


def test_paths_may_hold_variables_and_spaces(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "inner.lib").write_text(INNER)
    monkeypatch.setenv("PDK_FOR_TEST", str(tmp_path / "a b"))
    card = tmp_path / "card.lib"
    card.write_text('.lib "$PDK_FOR_TEST/inner.lib" fast\n')
    assert read_netlist(card) == f'.lib "{tmp_path}/a b/inner.lib" fast\n'


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("", r"my\.lib has sections; set section, one of: tt, ss$"),
        ("t", r"my\.lib: no section 't' in my\.lib, did you mean 'tt'\?; its sections: tt, ss$"),
        ("ss", r"inner\.lib, line 5: the included file .*gone\.lib is not there$"),
    ],
)
def test_what_is_missing_is_named_in_one_line(library: Path, section: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        read_netlist(library, section)
    assert "\n" not in str(caught.value)


def test_a_missing_section_of_an_included_library_names_who_asks(library: Path) -> None:
    library.write_text(LIBRARY.replace("Fast", "fats"))
    words = r"my\.lib, line 3: no section 'fats' in inner\.lib, .*'fast'.*: fast, slow"
    with pytest.raises(InputError, match=words):
        read_netlist(library, "tt")


def test_a_plain_card_has_no_section() -> None:
    card = netlists.find_netlist("planar16lp", "models", ".lib")
    with pytest.raises(InputError, match=r"no section 'tt' in planar16lp\.lib; its sections: none"):
        read_netlist(card, "tt")


@pytest.mark.parametrize(
    "program",
    [
        ".control",
        "\f.exec x",
        ".model p ; comment\n+ d_process(file=1)",
        ".model p\n* comment\n+ d_cosim()",
        "*#shell touch x",
    ],
)
@pytest.mark.parametrize("file", ["my.lib", "inner.lib", "common.inc"])
def test_a_program_is_found_in_every_section(library: Path, file: str, program: str) -> None:
    """Also in the section that is not asked for: ngspice reads the whole file."""
    path = library.parent / file
    path.write_text(path.read_text() + f".lib other\n{program}\n.endl\n")
    with pytest.raises(InputError, match=rf"{file}, line \d+: .*--trust-netlist"):
        read_netlist(library, "tt")


def test_the_digest_covers_the_section_and_what_it_includes(library: Path) -> None:
    before = digest(library, "tt")
    assert before == digest(library, "TT")
    (library.parent / "common.inc").write_text(".param common=3\n")
    assert digest(library, "tt") != before
    (library.parent / "inner.lib").write_text(INNER.replace(".lib gone.lib x", ".param speed=1"))
    assert digest(library, "ss") != digest(library, "tt")


def test_a_library_that_changes_is_read_again(library: Path) -> None:
    assert "inner.lib" in read_netlist(library, "tt")
    library.write_text(".lib tt\n.param x=1\n.endl\n")
    assert read_netlist(library, "tt") == ".param x=1"


CARD = ".model nper nmos\n.subckt cell d g s b w=1 l=1\nm1 d g s b foundry w={w}\n.ends\n"


def test_transistors_call_a_role_that_is_a_subcircuit() -> None:
    deck = f"title\n{CARD}Mtop a b c 0 CELL w=1u\nmper a b c 0 nper w=1u\n* m1 a b c 0 cell\n"
    assert call_subcircuits(deck) == deck.replace("Mtop", "xMtop")


def test_a_role_may_be_given_in_an_included_section(tmp_path: Path) -> None:
    (tmp_path / "roles.lib").write_text(f".lib roles\n{CARD}.endl\n")
    deck = f'title\n.lib "{tmp_path}/roles.lib" roles\nm1 a b c 0 cell\n'
    assert call_subcircuits(deck).endswith("\nxm1 a b c 0 cell\n")


def test_sections_of_the_same_file_are_put_in_place(library: Path) -> None:
    library.write_text('.lib a\n.lib "my.lib" b\n.endl\n.lib b\n.param x=1\n.endl\n')
    assert read_netlist(library, "a") == ".param x=1"
    library.write_text('.lib a\n.lib "my.lib" b\n.endl\n.lib b\n.lib my.lib a\n.endl\n')
    words = r"my\.lib, line 5: section 'b' includes itself through section 'a' of my\.lib$"
    with pytest.raises(InputError, match=words):
        read_netlist(library, "a")


def test_a_file_that_includes_itself_is_named_with_its_line(tmp_path: Path) -> None:
    """ngspice would follow it until it crashes."""
    (tmp_path / "a.cir").write_text('* a\n.include "a.cir"\n')
    with pytest.raises(InputError, match=r"/a\.cir, line 2: includes itself$"):
        read_netlist(tmp_path / "a.cir")


def test_a_cycle_of_files_is_named(tmp_path: Path) -> None:
    for name, included in (("a", "b"), ("b", "c"), ("c", "a")):
        (tmp_path / f"{name}.inc").write_text(f"* {name}\n.inc {included}.inc\n")
    words = r"/c\.inc, line 2: includes itself through a\.inc, b\.inc$"
    with pytest.raises(InputError, match=words):
        read_netlist(tmp_path / "a.inc")


def test_a_cycle_in_a_section_that_is_not_in_use_is_named(library: Path) -> None:
    """ngspice reads the whole library, and what its sections include."""
    inner = library.parent / "inner.lib"
    inner.write_text(INNER + ".lib other\n.include back.inc\n.endl\n")
    (library.parent / "back.inc").write_text(".include inner.lib\n")
    words = r"/inner\.lib, line 8: includes itself through back\.inc$"
    with pytest.raises(InputError, match=words):
        read_netlist(library, "tt")


def test_a_file_may_be_included_twice(tmp_path: Path) -> None:
    (tmp_path / "common.inc").write_text(".param x=1\n")
    card = tmp_path / "card.lib"
    card.write_text('.include "common.inc"\n.include "common.inc"\n')
    assert netlist_files(card) == (card, tmp_path / "common.inc")


CELL = ".SUBCKT Nand_Cell d wl s b\n.ends\n"


def test_a_cell_is_named_as_its_file(tmp_path: Path) -> None:
    (tmp_path / "nand_cell.cir").write_text(CELL)
    (tmp_path / "nand.cir").write_text(CELL)
    (tmp_path / "empty.cir").write_text("* nothing\n")
    path = str(tmp_path / "nand_cell.cir")
    assert str(find_subcircuit(path)) == path
    with pytest.raises(InputError, match=r"/nand\.cir: no \.subckt nand; found nand_cell$"):
        find_subcircuit(str(tmp_path / "nand.cir"))
    with pytest.raises(InputError, match=r"/empty\.cir: no \.subckt empty; found none$"):
        find_subcircuit(str(tmp_path / "empty.cir"))


def test_a_cell_may_include_its_subcircuit(tmp_path: Path) -> None:
    (tmp_path / "inner.inc").write_text(CELL)
    path = tmp_path / "nand_cell.cir"
    path.write_text(".include inner.inc\n")
    assert find_subcircuit(str(path)) == path


@pytest.mark.parametrize(
    "word",
    ["tran", "dc", "ac", "op", "noise", "temp", "save", "print", "plot", "end", "measure", "meas"],
)
@pytest.mark.parametrize("file", ["my.lib", "common.inc"])
def test_a_line_that_overrides_the_deck_is_refused(
    library: Path, monkeypatch: pytest.MonkeyPatch, file: str, word: str
) -> None:
    """Trusted or not: the run would be another than the one the circuit describes."""
    monkeypatch.setenv("NANDCOSIM_TRUST_NETLIST", "1")
    path = library.parent / file
    line = path.read_text().count("\n") + 1
    path.write_text(path.read_text() + f"  .{word.upper()} x 1n\n")
    with pytest.raises(InputError, match=rf"{file}, line {line}: '\.{word}' would override"):
        read_netlist(library, "tt")


def test_what_foundries_set_is_left(tmp_path: Path) -> None:
    card = tmp_path / "card.lib"
    text = "*.tran 1n\n.options scale=1u\n.subckt a b\n.ends\n.param .temp\n"
    card.write_text(text)
    assert read_netlist(card) == text
