"""Tables as aligned text: what fits a terminal's width, or one uncropped row a line.

Widths are counted in cells of a terminal: a Chinese character takes two, an accent none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import click

_GAP = "  "
_LAST_WIDTH_MIN = 20
_SHRUNK_WIDTH_MIN = 8
"""Of what is cropped, on a terminal too narrow for the rest; then lines wrap."""


Colour = Literal["green", "cyan", "magenta", "red"]
"""The colours of a terminal that can be read on a dark and on a light ground with the palettes that
terminals come with. Yellow is hardly seen on white, blue on black; bright black is the ground
itself with Solarized."""


class Column(NamedTuple):
    """A column of a table. On a terminal `width_max` crops it; the last one takes what is left."""

    title: str
    width_max: int | None = None
    right: bool = False
    styles: Mapping[str, Colour] = {}
    """Of a cell, by its text."""
    expendable: int = 0
    """Above 0: left out on a terminal too narrow for all, the highest first, of equals the last."""
    joins: str = ""
    """The column in whose empty cells its own stand on a terminal too narrow for all."""


class _Table(NamedTuple):
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]

    @property
    def widths(self) -> list[int]:
        titles = [column.title for column in self.columns]
        return [max(map(cell_width, cells)) for cells in zip(titles, *self.rows, strict=True)]


def table_lines(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int | None, colour: bool
) -> list[str]:
    """The title and a line a row. `width`: of the terminal; None: as wide as it is."""
    table = _Table(columns, rows)
    if width is not None:
        table = _fitted(table, width)
    widths = table.widths
    title = _line([column.title for column in table.columns], widths, table.columns)
    rows_shown = (_line(row, widths, table.columns, colour=colour) for row in table.rows)
    return [click.style(title, bold=True) if colour else title, *rows_shown]


def cell_width(text: str) -> int:
    """In cells of a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def crop(text: str, width: int) -> str:
    """At most so many cells, with a mark where something is missing."""
    if cell_width(text) <= width:
        return text
    if width < 1:
        return ""
    kept = text[: width - 1]
    while cell_width(kept) > width - 1:
        kept = kept[:-1]
    return f"{kept}…"


def _line(
    cells: Sequence[str], widths: Sequence[int], columns: Sequence[Column], *, colour: bool = False
) -> str:
    shown = []
    for cell, width, column in zip(cells, widths, columns, strict=True):
        blank = " " * (width - cell_width(cell))
        style = column.styles.get(cell) if colour else None
        text = click.style(cell, fg=style) if style else cell
        shown.append(f"{blank}{text}" if column.right else f"{text}{blank}")
    return _GAP.join(shown).rstrip()


def _fitted(table: _Table, width: int) -> _Table:
    """Crops what may be cropped, then joins columns, then leaves out what is expendable, then crops
    more; and at worst does without columns that may be cropped, so that a row stays a line."""
    table = _cropped(table, [column.width_max for column in table.columns])
    if _wanted(table) > width:
        table = _joined(table)
    while _wanted(table) > width:
        index, column = max(enumerate(table.columns), key=lambda one: (one[1].expendable, one[0]))
        if not column.expendable:
            break
        table = _without(table, index)
    while (limits := _limits(table, width)) is None:
        inner = [index for index in _soft(table)[:-1] if index > 0]
        if not inner:
            limits = _limits(table, width, at_worst=True)
            break
        table = _without(table, inner[0])
    return _cropped(table, limits or [])


def _joined(table: _Table) -> _Table:
    titles = [column.title for column in table.columns]
    for column in table.columns:
        if column.joins in titles:
            source, target = titles.index(column.title), titles.index(column.joins)
            rows = [list(row) for row in table.rows]
            for row in rows:
                row[target] = row[target] or row[source]
            table = _without(table._replace(rows=rows), source)
            titles.remove(column.title)
    return table


def _soft(table: _Table) -> list[int]:
    """The columns that may be cropped, the last one among them."""
    last = len(table.columns) - 1
    return [
        index
        for index, column in enumerate(table.columns)
        if column.width_max is not None or index == last
    ]


def _wanted(table: _Table) -> int:
    """Cells of a line, were the last column as narrow as can be."""
    *widths, last = table.widths
    return sum(widths) + len(_GAP) * len(widths) + min(last, _LAST_WIDTH_MIN)


def _limits(table: _Table, width: int, *, at_worst: bool = False) -> list[int | None] | None:
    """Widths with which a line fits: the widest are cropped first, so that none has to give more
    than others. None where some would have to be too narrow, but `at_worst`."""
    widths, soft = table.widths, _soft(table)
    hard = sum(cells for index, cells in enumerate(widths) if index not in soft)
    room = width - hard - len(_GAP) * (len(widths) - 1)
    last = soft[-1]
    wanted = {index: widths[index] for index in soft}
    wanted[last] = min(widths[last], _LAST_WIDTH_MIN)
    level = max(wanted.values())
    while sum(min(cells, level) for cells in wanted.values()) > room and level > _SHRUNK_WIDTH_MIN:
        level -= 1
    given = {index: min(cells, level) for index, cells in wanted.items()}
    left = room - (sum(given.values()) - given[last])
    if left < given[last] and not at_worst:
        return None
    given[last] = max(left, given[last])
    return [given.get(index) for index in range(len(widths))]


def _cropped(table: _Table, limits: Sequence[int | None]) -> _Table:
    rows = [
        [
            cell if limit is None else crop(cell, limit)
            for cell, limit in zip(row, limits, strict=True)
        ]
        for row in table.rows
    ]
    return table._replace(rows=rows)


def _without(table: _Table, index: int) -> _Table:
    return _Table(
        [column for place, column in enumerate(table.columns) if place != index],
        [[cell for place, cell in enumerate(row) if place != index] for row in table.rows],
    )
