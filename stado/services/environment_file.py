"""The file of variables that a service is started with, as systemd reads it (`EnvironmentFile=` of
systemd.exec(5)). It holds secrets: what is told of it names variables, never values.

Lines that people wrote stay as they are; a variable that is given anew replaces its lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from stado.errors import Refused

_HEAD = """\
# Variables that the service is started with, one a line: NAME="value".
# Those that open the store (AWS_…, GOOGLE_APPLICATION_CREDENTIALS) are withheld from jobs; all
# others are what jobs find, too. After a change: restart the service.
"""
_LINE = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)")
_ESCAPED = re.compile(r'["\\`$]')
_VALUE = re.compile(r"[^\x00-\x1f\x7f]*")
_ONE_SET = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    "AWS_SECURITY_TOKEN",
)
"""Belong together: with the token of other keys the service is refused whatever it asks."""

ENDS_BY_ITSELF = ("AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN")
"""Variables that are no good after some hours."""


class _Inside(Enum):
    """Of what a letter of the file is. A quote within a plain value is a letter like others."""

    BEFORE_VALUE = auto()
    VALUE = auto()
    SINGLE_QUOTES = auto()
    DOUBLE_QUOTES = auto()
    COMMENT = auto()


_QUOTES = {"'": _Inside.SINGLE_QUOTES, '"': _Inside.DOUBLE_QUOTES}


@dataclass(frozen=True, slots=True)
class _Statement:
    """What belongs together of a file: a variable with all lines of its value, or what is none."""

    name: str | None
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Merged:
    """A file with variables given anew."""

    text: str
    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...] = ()
    """That belonged to those that are given anew."""


def merged(present: str | None, given: Mapping[str, str]) -> Merged:
    """`present`: what the file holds; None: there is none. Of a variable that stands twice the
    last one counts for systemd: it is replaced, and the others go. Raises `Refused`."""
    new = {name: line_of(name, value) for name, value in sorted(given.items())}
    outdated = set(_ONE_SET) - set(new) if "AWS_ACCESS_KEY_ID" in new else set[str]()
    statements = list(_statements(_HEAD if present is None else present))
    last = {one.name: index for index, one in enumerate(statements)}
    lines = list[str]()
    changed, removed = dict[str, None](), dict[str, None]()
    for index, one in enumerate(statements):
        if one.name in outdated:
            removed[one.name] = None
        elif one.name is None or one.name not in new:
            lines.extend(one.lines)
        else:
            if one.lines != (new[one.name],) or index != last[one.name]:
                changed[one.name] = None
            if index == last[one.name]:
                lines.append(new[one.name])
    added = tuple(name for name in new if name not in last)
    text = "\n".join([*lines, *(new[name] for name in added)]) + "\n"
    return Merged(text, added, tuple(changed), tuple(removed))


def names_in(text: str) -> tuple[str, ...]:
    """Of all variables that a file states."""
    return tuple(dict.fromkeys(one.name for one in _statements(text) if one.name is not None))


def without_values(text: str) -> str:
    """For people to look at: names, and of what people wrote otherwise nothing, since anything may
    stand there, such as keys that were commented out."""
    return "".join(f"{line}\n" for one in _statements(text) for line in _shown(one))


def line_of(name: str, value: str) -> str:
    """Raises `Refused` for a value that a line cannot hold."""
    if not _VALUE.fullmatch(value):
        raise Refused(
            "variable_invalid",
            f"the value of {name} has line ends or control characters, which no line of an "
            "environment file holds: put it into a file, and the file's name into the variable",
        )
    return f'{name}="{_ESCAPED.sub(lambda found: chr(92) + found[0], value)}"'


def _statements(text: str) -> Iterator[_Statement]:
    """As systemd takes the file apart (`parse_env_file_internal` in its `env-file.c`): a value
    goes on behind a backslash at a line's end, and as long as a quote is open."""
    name: str | None = None
    lines = list[str]()
    inside = _Inside.COMMENT
    for line in text.splitlines():
        rest = line
        if not lines:
            found = _LINE.match(line)
            name = found[1] if found else None
            if line.lstrip().startswith(("#", ";")):
                inside = _Inside.COMMENT
            elif "=" in line:
                inside, rest = _Inside.BEFORE_VALUE, line.partition("=")[2]
            else:
                yield _Statement(None, (line,))
                continue
        inside, goes_on = _end_of(rest, inside)
        lines.append(line)
        if not goes_on:
            yield _Statement(name, tuple(lines))
            lines = []
    if lines:
        yield _Statement(name, tuple(lines))


def _end_of(line: str, inside: _Inside) -> tuple[_Inside, bool]:
    """What a line that begins inside of something ends in, and whether the next belongs to it."""
    escaped = False
    for letter in line:
        if escaped:
            escaped = False
        elif letter == "\\" and inside is not _Inside.SINGLE_QUOTES:
            escaped = True
            inside = _Inside.VALUE if inside is _Inside.BEFORE_VALUE else inside
        elif inside is _Inside.BEFORE_VALUE and not letter.isspace():
            inside = _QUOTES.get(letter, _Inside.VALUE)
        elif letter in _QUOTES and inside is _QUOTES[letter]:
            inside = _Inside.BEFORE_VALUE
    return inside, escaped or inside in _QUOTES.values()


def _shown(one: _Statement) -> Iterator[str]:
    first, *others = one.lines
    if one.name is not None:
        yield f"{one.name}=…"
    else:
        yield first if not first.strip() or first in _HEAD.splitlines() else "…"
    yield from ("…" for _ in others)
