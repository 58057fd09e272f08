"""What a terminal shows of what programs sent to it: characters and their looks, line by line.

It knows the codes that stado and its libraries send, and raises `UnknownCode` at any other, so that
no picture is drawn of a screen that was misread. Its lines are never forgotten.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_PIECE = re.compile(
    r"(?P<title>\x1b\].*?(?:\x07|\x1b\\))"
    r"|\x1b\[(?P<numbers>[0-9;?]*)(?P<code>[A-Za-z])"
    r"|(?P<plain>[^\x1b])",
    re.DOTALL,
)

_TAB = 8


class UnknownCode(Exception):
    """A control code that this screen does not know."""


class Look(NamedTuple):
    """`colour`: 0 to 15, of a terminal's palette, or `#rrggbb`; None: that of all text."""

    colour: int | str | None = None
    bold: bool = False
    dim: bool = False


class Cell(NamedTuple):
    character: str = " "
    look: Look = Look()


class Screen:
    """`columns` wide; `height` lines of it can be reached by codes that name a place."""

    def __init__(self, columns: int, height: int = 24) -> None:
        self._columns = columns
        self._height = height
        self._lines: list[list[Cell]] = [[]]
        self._row = 0
        self._column = 0
        self._look = Look()

    @property
    def lines(self) -> list[list[Cell]]:
        """Without blanks at the end of a line, and without blank lines at the end."""
        lines = [_without_end(line) for line in self._lines]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    @property
    def text(self) -> list[str]:
        return ["".join(cell.character for cell in line) for line in self.lines]

    @property
    def prompt(self) -> str:
        """The line that the cursor is in, as far as the cursor."""
        line = self._lines[self._row][: self._column]
        return "".join(cell.character for cell in line)

    def feed(self, text: str) -> str:
        """Shows it. What is left is the beginning of a code whose end is still to come."""
        at = 0
        while at < len(text):
            piece = _PIECE.match(text, at)
            if piece is None:
                if len(text) - at > 64:
                    raise UnknownCode(repr(text[at : at + 16]))
                return text[at:]
            at = piece.end()
            if piece["plain"] is not None:
                self._show(piece["plain"])
            elif piece["code"] is not None:
                self._obey(piece["code"], piece["numbers"])
        return ""

    def _show(self, character: str) -> None:
        if character == "\n":
            self._go_to(self._row + 1, self._column)
        elif character == "\r":
            self._column = 0
        elif character == "\b":
            self._column = max(0, self._column - 1)
        elif character == "\t":
            self._column = min(self._columns - 1, (self._column // _TAB + 1) * _TAB)
        elif character.isprintable():
            self._put(character)
        elif character != "\x07":
            raise UnknownCode(repr(character))

    def _put(self, character: str) -> None:
        if self._column == self._columns:
            self._go_to(self._row + 1, 0)
        line = self._lines[self._row]
        line.extend([Cell()] * (self._column + 1 - len(line)))
        line[self._column] = Cell(character, self._look)
        self._column += 1

    def _go_to(self, row: int, column: int) -> None:
        self._lines.extend([] for _ in range(row + 1 - len(self._lines)))
        self._row, self._column = max(0, row), min(max(0, column), self._columns)

    @property
    def _top(self) -> int:
        return max(0, len(self._lines) - self._height)

    def _obey(self, code: str, numbers: str) -> None:
        if numbers.startswith("?"):  # Modes, such as a cursor that is not shown.
            return
        given = [int(number or 0) for number in numbers.split(";")]
        first = given[0]
        if code == "m":
            self._take_looks(given)
        elif code in "ABCD":
            down, right = {"A": (-1, 0), "B": (1, 0), "C": (0, 1), "D": (0, -1)}[code]
            steps = max(1, first)
            self._go_to(self._row + down * steps, self._column + right * steps)
        elif code == "G":
            self._column = max(0, first - 1)
        elif code == "H":
            column = given[1] if len(given) > 1 else 1
            self._go_to(self._top + max(0, first - 1), column - 1)
        elif code == "J" and first in (0, 2):
            self._erase_below(whole=first == 2)
        elif code == "K" and first in (0, 2):
            self._lines[self._row] = self._lines[self._row][: 0 if first else self._column]
        else:
            raise UnknownCode(f"\\x1b[{numbers}{code}")

    def _erase_below(self, *, whole: bool) -> None:
        first = self._top if whole else self._row
        for row in range(first, len(self._lines)):
            kept = self._column if row == self._row and not whole else 0
            self._lines[row] = self._lines[row][:kept]

    def _take_looks(self, codes: list[int]) -> None:
        while codes:
            code, *codes = codes
            if code == 38:
                colour, codes = _named_colour(codes)
                self._look = self._look._replace(colour=colour)
            elif code == 0:
                self._look = Look()
            elif code in (1, 2):
                self._look = self._look._replace(**{"bold" if code == 1 else "dim": True})
            elif code == 22:
                self._look = self._look._replace(bold=False, dim=False)
            elif 30 <= code <= 37 or 90 <= code <= 97:
                bright = 8 if code >= 90 else 0
                self._look = self._look._replace(colour=code % 10 + bright)
            elif code == 39:
                self._look = self._look._replace(colour=None)
            else:
                raise UnknownCode(f"look {code}")


def _named_colour(codes: list[int]) -> tuple[int | str, list[int]]:
    """Of 256, or of all: what follows `38`; and what follows that."""
    kind, *codes = codes
    if kind == 2:
        return "#{:02x}{:02x}{:02x}".format(*codes[:3]), codes[3:]
    number, *codes = codes
    if kind != 5:
        raise UnknownCode(f"look 38;{kind}")
    if number < 16:
        return number, codes
    if number >= 232:
        return "#" + f"{8 + 10 * (number - 232):02x}" * 3, codes
    steps = [(number - 16) // size % 6 for size in (36, 6, 1)]
    return "#" + "".join(f"{55 + 40 * step if step else 0:02x}" for step in steps), codes


def _without_end(line: list[Cell]) -> list[Cell]:
    end = len(line)
    while end and line[end - 1].character == " ":
        end -= 1
    return line[:end]
