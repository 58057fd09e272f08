"""Which store a program works on: options before the environment before the config file.

Pure: the entry points read the environment and the file, and pass in what they hold.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from stado.errors import Refused

CONFIG_VARIABLE = "STADO_CONFIG"
_CONFIG_DEFAULT = Path(".config", "stado", "config.toml")
_CODE = "config_invalid"


@dataclass(frozen=True, slots=True)
class Settings:
    """None means: not stated. Each field is an option, `STADO_<FIELD>`, and a key of the file."""

    store: str | None = None
    endpoint: str | None = None
    region: str | None = None

    def over(self, weaker: Settings) -> Settings:
        """These settings, and where they state nothing, the weaker ones."""
        stated = {
            field.name: getattr(self, field.name) or getattr(weaker, field.name)
            for field in fields(self)
        }
        return Settings(**stated)

    def environment(self) -> dict[str, str]:
        """The variables that tell a child process the same."""
        values = {variable_of(field.name): getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


def variable_of(field_name: str) -> str:
    return f"STADO_{field_name.upper()}"


def config_path(environment: Mapping[str, str], home: Path) -> Path:
    """Where the config file is, or would be."""
    named = environment.get(CONFIG_VARIABLE)
    return Path(named) if named else home / _CONFIG_DEFAULT


def from_environment(environment: Mapping[str, str]) -> Settings:
    """An empty variable counts as unset, as it does for a shell."""
    return Settings(
        **{
            field.name: environment.get(variable_of(field.name)) or None
            for field in fields(Settings)
        }
    )


def from_config(data: bytes, name: str) -> Settings:
    """What the file `name` states. Raises `Refused`, naming the file and the line."""
    values = _parse(_text(data, name), name)
    known = {field.name for field in fields(Settings)}
    for key, value in values.items():
        where = f"{name}, line {_line_of_key(data, key)}"
        if key not in known:
            raise Refused(_CODE, f"{where}: unknown key {key!r}: use {', '.join(sorted(known))}")
        if not isinstance(value, str) or not value:
            raise Refused(_CODE, f'{where}: {key} must be text in quotes, such as {key} = "…"')
    return Settings(**values)


def store_of(settings: Settings) -> str:
    """The store's address. Raises `Refused` when nothing states one."""
    if settings.store is None:
        raise Refused(
            "store_not_stated",
            'no store is named: give --store, or export STADO_STORE=…, or write store = "…" '
            f"into ~/{_CONFIG_DEFAULT}; `stado init` makes a new one",
        )
    return settings.store


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


def _line_of_key(data: bytes, key: str) -> int:
    pattern = re.compile(rf"\s*\[*\s*[\"']?{re.escape(key)}\b".encode())
    for number, line in enumerate(data.split(b"\n"), start=1):
        if pattern.match(line):
            return number
    return 1
