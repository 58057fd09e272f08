"""How output reaches people and programs: stdout is data, stderr is for people.

Tables and colour only on a terminal; what comes from a store is cleaned before it gets there.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = 1
"""Of every JSON document that the command line prints."""

_GAP = "  "
_LAST_WIDTH_MIN = 12
"""On a terminal too narrow for the rest, lines wrap."""


class Column(NamedTuple):
    """A column of a table. On a terminal `width_max` crops it; the last one takes what is left."""

    title: str
    width_max: int | None = None
    right: bool = False
    styles: Mapping[str, str] = {}
    """Cell text to the style of the terminal."""


def clean(text: str) -> str:
    """One line without control characters: what a store holds shall not drive a terminal."""
    if text.isprintable():
        return text
    kept = (
        character if character.isprintable() else " " if character.isspace() else ""
        for character in text
    )
    return "".join(kept)


def print_line(text: str = "") -> None:
    click.echo(clean(text))


def print_json(fields: Mapping[str, Any]) -> None:
    """ASCII, so that no reader has to guess and no terminal is driven."""
    import json

    click.echo(json.dumps({"schema": SCHEMA, **fields}, indent=2))


def print_bytes(data: bytes) -> None:
    click.echo(data, nl=False)


def tell(text: str) -> None:
    """A line for people."""
    click.echo(clean(text), err=True)


def stdout_is_terminal() -> bool:
    return sys.stdout.isatty()


def stderr_is_terminal() -> bool:
    return sys.stderr.isatty()


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Aligned text, one row a line; on a terminal cropped to its width."""
    cleaned = [[clean(cell) for cell in row] for row in rows]
    if stdout_is_terminal():
        _print_rich_table(columns, cleaned)
    else:
        _print_plain_table(columns, cleaned)


def duration(seconds: float) -> str:
    """Two digits of precision are enough for people: `8s`, `5m`, `3h`, `12d`."""
    seconds = max(0, int(seconds))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size * (2 if unit == "d" else 1):
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def size_text(size: int) -> str:
    if size < 1000:
        return f"{size} bytes"
    value = float(size)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if value < 1000 or unit == "TB":
            break
    return f"{value:.1f} {unit}"


def plural(count: int, noun: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def instant_text(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat(timespec="milliseconds")


def rich_console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    from stado.cli.context import colour_unwanted

    return Console(stderr=stderr, highlight=False, no_color=colour_unwanted())


def _print_plain_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    widths = _widths(columns, rows)
    for row in [[column.title for column in columns], *rows]:
        cells = map(_aligned, row, widths, columns)
        click.echo(_GAP.join(cells).rstrip())


def _print_rich_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    from rich.text import Text

    console = rich_console()
    rows = [_cropped(row, columns) for row in rows]
    widths = _widths(columns, rows)
    room = console.width - sum(widths[:-1]) - len(_GAP) * (len(widths) - 1)
    widths[-1] = max(room, _LAST_WIDTH_MIN)
    header = Text(style="bold")
    lines = [header, *(Text() for _ in rows)]
    for line, row in zip(lines, [[column.title for column in columns], *rows], strict=True):
        for cell, width, column in zip(row, widths, columns, strict=True):
            shown = _aligned(_crop(cell, width), width, column)
            line.append(shown, style=column.styles.get(cell, "") if line is not header else "")
            line.append(_GAP)
        line.rstrip()
        console.print(line, no_wrap=True, overflow="crop", crop=False, soft_wrap=True)


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    titles = [column.title for column in columns]
    return [max(map(len, cells)) for cells in zip(titles, *rows, strict=True)]


def _aligned(cell: str, width: int, column: Column) -> str:
    return cell.rjust(width) if column.right else cell.ljust(width)


def _cropped(row: Sequence[str], columns: Sequence[Column]) -> list[str]:
    return [
        cell if column.width_max is None else _crop(cell, column.width_max)
        for cell, column in zip(row, columns, strict=True)
    ]


def _crop(cell: str, width: int) -> str:
    return cell if len(cell) <= width else f"{cell[: width - 1]}…"
