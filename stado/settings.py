"""What can be said about the store that a program works on, and where it is said.

Pure: the entry points read the environment and the file, and pass in what they hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from stado.errors import Refused

CONFIG_VARIABLE = "STADO_CONFIG"
_CONFIG_DEFAULT = Path(".config", "stado", "config.toml")


@dataclass(frozen=True, slots=True)
class Settings:
    """None means: not stated. Each field is an option, `STADO_<FIELD>`, and a key of the file."""

    store: str | None = None
    endpoint: str | None = None
    region: str | None = None
    context: str | None = None
    """A store by the name that it has in the config file."""

    def stated(self) -> Iterator[tuple[str, str]]:
        """Names and values of the fields that are not None."""
        for name in KEYS:
            value: str | None = getattr(self, name)
            if value is not None:
                yield name, value

    def environment(self) -> dict[str, str]:
        """The variables that tell a child process the same store, whatever else its environment
        says: an empty one counts as unset. The context has been looked up by then."""
        told = {**dict(self.stated()), "context": ""}
        return {variable_of(name): told.get(name, "") for name in KEYS}


KEYS = tuple(one.name for one in fields(Settings))


class OriginKind(StrEnum):
    """What kind of place states a setting."""

    OPTION = "option"
    ENVIRONMENT = "environment"
    FILE = "file"


class Origin(NamedTuple):
    """Where a setting is stated: an option, a variable, or a line of the config file."""

    kind: OriginKind
    name: str
    line: int | None = None

    def __str__(self) -> str:
        return self.name if self.line is None else f"{self.name}, line {self.line}"


def variable_of(field_name: str) -> str:
    return f"STADO_{field_name.upper()}"


def config_path(environment: Mapping[str, str], home: Path) -> Path:
    """Where the config file is, or would be."""
    named = environment.get(CONFIG_VARIABLE)
    return Path(named) if named else home / _CONFIG_DEFAULT


def from_environment(environment: Mapping[str, str]) -> Settings:
    """An empty variable counts as unset, as it does for a shell."""
    return Settings(**{name: environment.get(variable_of(name)) or None for name in KEYS})


def store_of(settings: Settings) -> str:
    """The store's address. Raises `Refused` when nothing states one."""
    if settings.store is None:
        raise Refused(
            "store_not_stated",
            "no store is named: give --store, or export STADO_STORE=…, or name one for good: "
            f"`stado context add NAME --store … --use` writes ~/{_CONFIG_DEFAULT}; "
            "`stado init` makes a new one",
        )
    return settings.store


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """What may follow an unknown name in a sentence; "" when nothing looks like it."""
    from difflib import get_close_matches

    close = get_close_matches(name, sorted(known), n=3)
    return f"; did you mean {' or '.join(repr(match) for match in close)}?" if close else ""
