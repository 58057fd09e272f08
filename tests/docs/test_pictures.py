"""Screens are drawn as they are, and the picture of README.md is of the commands that make it."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from tests.docs.picture import THEMES, svg
from tests.docs.pictures import COLUMNS, PICTURE, SHOWN
from tests.docs.screen import Look, Screen, UnknownCode

_TEXT = "{http://www.w3.org/2000/svg}text"


def shown(sent: str, *, columns: int = 20, height: int = 5) -> list[str]:
    screen = Screen(columns, height)
    assert screen.feed(sent) == ""
    return screen.text


def test_what_is_written_over_is_gone() -> None:
    assert shown("one\r\ntwo\r\x1b[Kthree\r\n") == ["one", "three"]
    assert shown("1\r\n2\r\n3\x1b[2A\r\x1b[Kx\x1b[2B\ry") == ["x", "2", "y"]
    assert shown("a long line\x1b[4D\x1b[K!") == ["a long !"]
    assert shown("123456789012345678901234") == ["12345678901234567890", "1234"]


def test_a_program_that_draws_a_whole_screen_draws_over_the_last_lines() -> None:
    before = "".join(f"{number}\r\n" for number in range(8))
    assert shown(before + "\x1b[?25l\x1b[H\x1b[2Jnew\r\n\x1b[J") == ["0", "1", "2", "3", "new"]


def test_looks_are_those_that_were_asked_for() -> None:
    screen = Screen(20)
    screen.feed("\x1b[1mb\x1b[0m\x1b[31mr\x1b[92mg\x1b[0mp")
    looks = [cell.look for cell in screen.lines[0]]
    assert looks == [Look(bold=True), Look(colour=1), Look(colour=10), Look()]


def test_a_code_that_comes_in_pieces_waits_for_its_end() -> None:
    screen = Screen(20)
    assert screen.feed("a\x1b[3") == "\x1b[3"
    assert screen.text == ["a"]


@pytest.mark.parametrize("sent", ["\x1b[5S", "\x1b[48;5;1m", "\x00"])
def test_what_the_screen_does_not_know_is_no_guess(sent: str) -> None:
    with pytest.raises(UnknownCode):
        Screen(20).feed(sent)


def test_a_picture_loads_nothing_and_has_every_word_in_its_place() -> None:
    screen = Screen(20)
    screen.feed("one  \x1b[31mtwo\x1b[0m\r\n  <three>")
    drawn = svg(screen.lines, columns=20, title="a & b")
    texts = [text.text for text in ElementTree.fromstring(drawn).iter(_TEXT)]
    assert texts == ["a & b", "one", "two", "<three>"]
    assert re.search(r"url\(|href|@import|<script", drawn) is None
    assert all(theme.ground in drawn for theme in THEMES.values())


def test_the_picture_is_of_the_commands_that_make_it() -> None:
    """`python -m tests.docs.pictures` makes it anew."""
    root = ElementTree.parse(PICTURE).getroot()
    words = " ".join(text.text or "" for text in root.iter(_TEXT))
    assert [command for command in SHOWN if " ".join(command.split()) not in words] == []
    width = float(root.attrib["width"])
    ends = [
        float(text.attrib["x"]) + float(text.attrib["textLength"])
        for text in root.iter(_TEXT)
        if "textLength" in text.attrib
    ]
    assert COLUMNS == 100
    assert max(ends) < width
