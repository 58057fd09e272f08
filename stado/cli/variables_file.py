"""Files of variables: `NAME=VALUE` lines, as `--env-file` reads them.

A value is what stands behind the `=`, without blanks at its ends. One that begins with a quote
goes on to the next quote of its kind, over lines if need be: in single quotes everything means
itself, in double quotes a backslash begins one of the escapes below. Nothing is expanded.
"""

from __future__ import annotations

import re
import sys
from contextlib import nullcontext
from typing import Any

from stado.core.spec import ENVIRONMENT_BYTES_MAX
from stado.errors import Refused

_CODE = "env_file_unreadable"
_STANDARD_INPUT = "-"
_FILE_BYTES_MAX = 4 * ENVIRONMENT_BYTES_MAX
"""Comments have room; what the values may have together is for the spec to say."""

_BEGINNING = re.compile(r"[ \t]*(?:export[ \t]+)?([^\s=#][^\s=]*)[ \t]*=[ \t]*")
_PASSED_OVER = re.compile(r"[ \t\r]*(?:#[^\n]*)?(?:\n|\Z)")
_REST_OF_LINE = re.compile(r"[^\n]*")
_QUOTED = {
    "'": re.compile(r"'([^']*)'"),
    '"': re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL),
}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "$": "$", "`": "`"}


def read_variables(path: str) -> dict[str, str]:
    """What the file (`-`: standard input) says. Raises `Refused`, naming the file and the line."""
    try:
        with nullcontext(_input()) if path == _STANDARD_INPUT else open(path, "rb") as file:
            data: bytes = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise Refused(_CODE, f"env file {path!r} cannot be read: {error.strerror}") from None
    name = "standard input" if path == _STANDARD_INPUT else path
    if len(data) > _FILE_BYTES_MAX:
        raise Refused("environment_too_large", f"{name} has more than {_FILE_BYTES_MAX} bytes")
    return parse_variables(data, name)


def parse_variables(data: bytes, name: str) -> dict[str, str]:
    """The variables of a file; of a name that occurs twice the last one counts.

    Raises `Refused`, naming the file and the line, never a value."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Refused(
            _CODE, f"line {line} of {name} is not UTF-8 ({error.reason}): save it as UTF-8"
        ) from None
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        where = f"line {text.count(chr(10), 0, position) + 1} of {name}"
        passed = _PASSED_OVER.match(text, position)
        if passed is not None:
            position = passed.end()
            continue
        variable, value, position = _parse_one(text, position, where)
        found[variable] = value
    return found


def _parse_one(text: str, position: int, where: str) -> tuple[str, str, int]:
    """A name, its value, and where the next line begins."""
    beginning = _BEGINNING.match(text, position)
    if beginning is None:
        raise Refused(_CODE, f"{where} states no variable: write NAME=VALUE")
    variable, start = beginning[1], beginning.end()
    quoted = _QUOTED.get(text[start : start + 1])
    if quoted is None:
        rest = _REST_OF_LINE.match(text, start)
        assert rest is not None  # it matches anything
        return variable, rest[0].strip(" \t\r"), rest.end() + 1
    value = quoted.match(text, start)
    if value is None:
        raise Refused(_CODE, f"{where}: the quote that the value of {variable} begins with is open")
    after = _PASSED_OVER.match(text, value.end())
    if after is None:
        raise Refused(_CODE, f"{where}: something stands behind the quoted value of {variable}")
    return variable, _unescaped(value[1], text[start], where), after.end()


def _unescaped(value: str, quote: str, where: str) -> str:
    if quote == "'":
        return value

    def meant(escape: re.Match[str]) -> str:
        if escape[1] not in _ESCAPES:
            raise Refused(
                _CODE,
                f"{where}: \\{escape[1]} is no escape: there are "
                f"{' '.join(chr(92) + known for known in _ESCAPES)}; or use single quotes",
            )
        return _ESCAPES[escape[1]]

    return _ESCAPE.sub(meant, value)


def _input() -> Any:
    return sys.stdin.buffer
