"""What the config file states: settings, and contexts, which are stores with a name.

Pure. What is wrong is refused with the name of the file and the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stado.errors import Refused
from stado.settings import KEYS, Origin, OriginKind, Settings, did_you_mean

CONTEXTS = "contexts"
CONTEXT_KEYS = tuple(key for key in KEYS if key != "context")
_CODE = "config_invalid"
_CONTEXT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,62}")

_KEY = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_KEYS = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_STATEMENT = re.compile(rf"\s*(?:\[+\s*(?P<table>{_KEYS})\s*\]|(?P<keys>{_KEYS})\s*=)")


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file that was read, or one that is not there."""

    name: str = ""
    top: Settings = field(default_factory=Settings)
    """What stands above the tables."""

    contexts: Mapping[str, Settings] = field(default_factory=dict)
    text: str = ""

    def origin(self, *path: str) -> Origin:
        return Origin(OriginKind.FILE, self.name, line_of(self.text, path))

    def context(self, name: str) -> Settings:
        """Raises `Refused`, with the names that look like it."""
        if name not in self.contexts:
            raise Refused("context_unknown", f"there is no context {self._unknown(name)}")
        return self.contexts[name]

    def _unknown(self, name: str) -> str:
        if not self.contexts:
            return f"{name!r}, nor any other: `stado context add NAME --store …` makes one"
        meant = did_you_mean(name, self.contexts) or ";"
        return f"{name!r}{meant} `stado context list` shows all"


def read_config(data: bytes, name: str, *, unknown_keys: bool = False) -> ConfigFile:
    """What the file `name` states. Raises `Refused` for what cannot be meant.

    `unknown_keys`: those at the top are passed over, for who changes the file and keeps them."""
    text = _text(data, name)
    values = _parse(text, name)
    check = _Check(name, text)
    tables = check.table(values.pop(CONTEXTS, {}), (CONTEXTS,))
    if unknown_keys:
        values = {key: value for key, value in values.items() if key in KEYS}
    top = check.settings(values, (), KEYS)
    contexts = {key: check.context(key, value) for key, value in tables.items()}
    return ConfigFile(name, top, contexts, text)


def check_context_name(name: str) -> None:
    """Raises `Refused` for what cannot name a context."""
    if not _CONTEXT_NAME.fullmatch(name):
        raise Refused(
            "context_name_invalid",
            f"{name!r} cannot name a context: use up to 63 letters, digits, _ and -, not with - "
            "in front",
        )


class Line(NamedTuple):
    """A line that begins a table or states a key."""

    number: int
    path: tuple[str, ...]
    """The table that it stands in, then its own names."""

    is_table: bool


def lines_of(text: str) -> Iterator[Line]:
    """Good enough to say where something stands: what is within a value of several lines may be
    mistaken for statements."""
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.split("\n"), start=1):
        found = _STATEMENT.match(line)
        if found is None:
            continue
        names = tuple(key.strip("\"'") for key in re.findall(_KEY, found["table"] or found["keys"]))
        if found["table"] is not None:
            table = names
            yield Line(number, names, is_table=True)
        else:
            yield Line(number, table + names, is_table=False)


def line_of(text: str, path: tuple[str, ...]) -> int:
    """The number of the line that states `path`, or else what it stands in."""
    best, depth = 1, 0
    for line in lines_of(text):
        shared = min(len(line.path), len(path))
        if shared > depth and line.path[:shared] == path[:shared]:
            best, depth = line.number, shared
    return best


class _Check(NamedTuple):
    """Takes the values of a file that can be meant, and refuses others."""

    name: str
    text: str

    def settings(
        self, values: Mapping[str, Any], path: tuple[str, ...], known: tuple[str, ...]
    ) -> Settings:
        for key, value in values.items():
            if key not in known:
                possible = sorted(known if path else (*known, CONTEXTS))
                remedy = did_you_mean(key, possible) or f": use {', '.join(possible)}"
                raise self._refused((*path, key), f"unknown key {key!r}{remedy}")
            if not isinstance(value, str) or not value:
                text = f'{key} must be text in quotes, such as {key} = "…"'
                raise self._refused((*path, key), text)
        return Settings(**values)

    def context(self, name: str, value: object) -> Settings:
        path = (CONTEXTS, name)
        try:
            check_context_name(name)
        except Refused as error:
            raise self._refused(path, error.text) from None
        settings = self.settings(self.table(value, path), path, CONTEXT_KEYS)
        if settings.store is None:
            raise self._refused(path, f'the context {name} names no store: add store = "…"')
        return settings

    def table(self, value: object, path: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(value, dict):
            shape = f'[{CONTEXTS}.NAME], and below it store = "…"'
            raise self._refused(path, f"{'.'.join(path)} must be a table: {shape}")
        return value

    def _refused(self, path: tuple[str, ...], text: str) -> Refused:
        return Refused(_CODE, f"{self.name}, line {line_of(self.text, path)}: {text}")


def _text(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Refused(_CODE, f"{name}, line {line}: not UTF-8 ({error.reason})") from None


def _parse(text: str, name: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        why, line = _reason_and_line(str(error), text)
        raise Refused(
            _CODE, f"{name}, line {line}: {why}: correct it, or remove the file"
        ) from None


def _reason_and_line(message: str, text: str) -> tuple[str, int]:
    found = re.fullmatch(r"(.*) \(at line ([0-9]+), column [0-9]+\)", message, re.DOTALL)
    if found is not None:
        return found[1], int(found[2])
    return message.removesuffix(" (at end of document)"), max(1, len(text.splitlines()))
