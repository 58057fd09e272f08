"""How output reaches people and programs: stdout is data, stderr is for people.

Tables and colour only on a terminal; what comes from a store is cleaned before it gets there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from stado.cli.tables import Colour, Column, table_lines

if TYPE_CHECKING:
    from rich.console import Console

_COMMAND = re.compile(r"`[^`]*`")
_GLUE = "\u00a0"
_WRAP_WIDTH_MIN = 20

SCHEMA = 1
"""Of every JSON document that the command line prints."""


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
    """All of it: where Python does not buffer stdout a write may take a part only, and then it
    is the next one that tells that the reader has gone."""
    sys.stdout.flush()
    rest = memoryview(data)
    while rest:
        rest = rest[sys.stdout.buffer.write(rest) :]
    sys.stdout.buffer.flush()


def tell(text: str) -> None:
    """A sentence for people. What is longer than a line, as a path may be, can be copied whole."""
    for line in wrapped(text, terminal=stderr_is_terminal(), break_words=False):
        click.echo(line, err=True)


def stdout_is_terminal() -> bool:
    return sys.stdout.isatty()


def stderr_is_terminal() -> bool:
    return sys.stderr.isatty()


def colour_wanted() -> bool:
    """On stdout: a terminal's, unless somebody said no."""
    from stado.cli.context import colour_unwanted

    return stdout_is_terminal() and not colour_unwanted()


def terminal_size() -> tuple[int, int]:
    """Columns and lines. `COLUMNS` and `LINES` count before the terminal's own word."""
    import shutil

    size = shutil.get_terminal_size()
    return size.columns, size.lines


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Aligned text, one row a line; on a terminal cropped to its width."""
    for line in clean_table_lines(columns, rows):
        click.echo(line)


def clean_table_lines(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    return table_lines(
        columns,
        [[clean(cell) for cell in row] for row in rows],
        width=terminal_size()[0] if stdout_is_terminal() else None,
        colour=colour_wanted(),
    )


def wrapped(
    text: str, *, indent: int = 0, terminal: bool | None = None, break_words: bool = True
) -> list[str]:
    """Clean lines that fit the terminal, broken between words; all but the first are indented.
    A `command` stays in one piece where a line holds it, as a word does, or always without
    `break_words`. Elsewhere it is one line. `terminal`: whether it goes to one; None: as stdout
    does."""
    if not (stdout_is_terminal() if terminal is None else terminal):
        return [clean(text)]
    import textwrap

    glued = _COMMAND.sub(lambda match: match[0].replace(" ", _GLUE), clean(text))
    lines = textwrap.wrap(
        glued,
        max(_WRAP_WIDTH_MIN, terminal_size()[0]),
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=break_words,
    )
    return [line.replace(_GLUE, " ") for line in lines] or [""]


def print_wrapped(text: str, *, indent: int = 0) -> None:
    for line in wrapped(text, indent=indent):
        click.echo(line)


def styled(text: str, style: Colour | None, *, bold: bool = False) -> str:
    """In colour where that is wanted. What is cleaned comes before: this adds control codes."""
    return click.style(text, fg=style, bold=bold or None) if colour_wanted() else text


def print_styled(text: str) -> None:
    """A line of `styled` pieces."""
    click.echo(text)


_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def duration(seconds: float) -> str:
    """The two largest units are enough for people: `8s`, `3m 12s`, `2h`, `12d 5h`."""
    rest = max(0, int(seconds))
    parts = []
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        parts.append((count, unit))
    first = next((place for place, (count, _) in enumerate(parts) if count), len(parts) - 1)
    shown = [f"{count}{unit}" for count, unit in parts[first : first + 2] if count]
    return " ".join(shown) or "0s"


def short_duration(seconds: float) -> str:
    """As one word, for a cell of a table: `3m12s`."""
    return duration(seconds).replace(" ", "")


def hours_text(milliseconds: float) -> str:
    """A little is not nothing: `0`, `<0.01`, `1,234.50`."""
    hours = milliseconds / 3_600_000
    return "<0.01" if 0 < hours < 0.01 else f"{hours:,.2f}" if hours else "0"


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
    """`1 job`, `1,000 jobs`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def instant_text(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat(timespec="milliseconds")


def rich_console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    from stado.cli.context import colour_unwanted

    return Console(stderr=stderr, highlight=False, no_color=colour_unwanted())
