"""One of our programs as a service of a host: what is said of it, and what it is called.

Pure. Whoever installs it says who runs it, with what words, and where its files are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath

from stado.errors import Refused

ACCOUNT_DEFAULT = "stado"
"""Who runs services of the whole host, unless somebody else is named."""

ACCOUNT_HOME = "/var/lib/stado"

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,30}[a-z0-9])?")


class Kind(StrEnum):
    """Which program."""

    AGENT = "agent"
    COORDINATOR = "coordinator"


class Scope(StrEnum):
    """Whose service manager starts it: the host's, or that of one user."""

    SYSTEM = "system"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Places:
    """Folders of service managers and of settings."""

    units: PurePosixPath
    settings: PurePosixPath
    state: PurePosixPath
    """Below it each agent works, unless it was told where."""


SYSTEM_PLACES = Places(
    PurePosixPath("/etc/systemd/system"), PurePosixPath("/etc/stado"), PurePosixPath("/var/lib")
)


def user_places(*, home: str, config_home: str | None, state_home: str | None) -> Places:
    """`config_home` and `state_home` as the XDG variables state them, if they do."""
    config = PurePosixPath(config_home or f"{home}/.config")
    state = PurePosixPath(state_home or f"{home}/.local/state")
    return Places(config / "systemd" / "user", config / "stado", state / "stado")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    kind: Kind
    scope: Scope
    places: Places
    name: str | None = None
    """None: the only one of its kind here."""
    program: tuple[str, ...]
    """How `stado` is called; its first word is an absolute path."""
    options: tuple[str, ...] = ()
    """Of the program, besides those that name the store."""
    store: str
    endpoint: str | None = None
    region: str | None = None
    account: str | None = None
    """Of a service of the whole host."""
    groups: tuple[str, ...] = ()
    """That the account is in besides its own, for this service."""
    consumer: str | None = None
    """Of an agent; None: as the host's name says."""
    work_dir: str | None = None
    """Of an agent."""

    @property
    def unit(self) -> str:
        return unit_name(self.kind, self.name)

    @property
    def unit_path(self) -> PurePosixPath:
        return self.places.units / self.unit

    @property
    def environment_path(self) -> PurePosixPath:
        return environment_path(self.places, self.unit)

    @property
    def state_name(self) -> str:
        return self.unit.removesuffix(".service")

    @property
    def own_state(self) -> bool:
        """Whether the service manager makes the work folder."""
        return self.scope is Scope.SYSTEM and self.work_dir == default_work_dir(
            self.scope, self.places, self.unit
        )

    @property
    def argv(self) -> tuple[str, ...]:
        told = (("--store", self.store), ("--endpoint", self.endpoint), ("--region", self.region))
        target = [word for option, value in told if value for word in (option, value)]
        where = () if self.work_dir is None else ("--work-dir", self.work_dir)
        who = () if self.consumer is None else ("--consumer-id", self.consumer)
        return (*self.program, self.kind.value, "run", *target, *who, *where, *self.options)


def unit_name(kind: Kind, name: str | None) -> str:
    return f"stado-{kind}{'' if name is None else f'-{name}'}.service"


def environment_path(places: Places, unit: str) -> PurePosixPath:
    """Of the file of variables."""
    return places.settings / unit.removeprefix("stado-").replace(".service", ".env")


def default_work_dir(scope: Scope, places: Places, unit: str) -> str:
    if scope is Scope.SYSTEM:
        return str(places.state / unit.removesuffix(".service"))
    return str(places.state)


def check_name(name: str | None) -> str | None:
    """Raises `Refused`."""
    if name is not None and not _NAME.fullmatch(name):
        raise Refused(
            "name_invalid",
            f"--name {name!r} cannot be part of a unit's name: small letters, digits, '.' and '-', "
            "32 at most",
        )
    return name


def check_text(option: str, text: str) -> str:
    """Raises `Refused` for what a line of a unit cannot hold."""
    if not text.isprintable():
        raise Refused(
            "text_invalid", f"{option} {text!r} cannot stand in a unit: plain text, please"
        )
    return text
