"""The file of variables that a service is started with, as systemd reads it (`EnvironmentFile=` of
systemd.exec(5)). It holds secrets: what is told of it names variables, never values.

Lines that people wrote stay as they are; a variable that is given anew replaces its line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from stado.errors import Refused

_HEAD = """\
# Variables that the service is started with, one a line: NAME="value".
# Those that open the store (AWS_…, GOOGLE_APPLICATION_CREDENTIALS) are withheld from jobs; all
# others are what jobs find, too. After a change: restart the service.
"""
_LINE = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)")
_ESCAPED = re.compile(r'["\\`$]')
_VALUE = re.compile(r"[^\x00-\x1f\x7f]*")


@dataclass(frozen=True, slots=True)
class Merged:
    """A file with variables given anew."""

    text: str
    added: tuple[str, ...]
    changed: tuple[str, ...]


def merged(present: str | None, given: Mapping[str, str]) -> Merged:
    """`present`: what the file holds; None: there is none. Raises `Refused`."""
    left = {name: line_of(name, value) for name, value in sorted(given.items())}
    lines, changed = list[str](), list[str]()
    for line in (_HEAD if present is None else present).splitlines():
        found = _LINE.match(line)
        new = left.pop(found[1], None) if found else None
        if found and new is not None and line != new:
            changed.append(found[1])
        lines.append(line if new is None else new)
    text = "\n".join([*lines, *left.values()]) + "\n"
    return Merged(text, tuple(left), tuple(changed))


def names_in(text: str) -> tuple[str, ...]:
    """Of all variables that a file states."""
    return tuple(dict.fromkeys(found[1] for found in map(_LINE.match, text.splitlines()) if found))


def without_values(text: str) -> str:
    """For people to look at."""
    return "".join(f"{_without_value(line)}\n" for line in text.splitlines())


def line_of(name: str, value: str) -> str:
    """Raises `Refused` for a value that a line cannot hold."""
    if not _VALUE.fullmatch(value):
        raise Refused(
            "variable_invalid",
            f"the value of {name} has line ends or control characters, which no line of an "
            "environment file holds: put it into a file, and the file's name into the variable",
        )
    return f'{name}="{_ESCAPED.sub(lambda found: chr(92) + found[0], value)}"'


def _without_value(line: str) -> str:
    found = _LINE.match(line)
    return f"{found[1]}=…" if found else line
