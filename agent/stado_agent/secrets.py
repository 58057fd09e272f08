"""Secrets that jobs name and hosts know: from `ITEM#FIELD` in a spec to a value in an environment.

What a job may ask for is what the owner of the host allows; unless stated, nothing. A value is in
the memory of the supervisor and in the environment of the command, and nowhere else: in no
document, log, argument or error. Nobody is ever asked for one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol

from stado.core.host_secrets import check_secret_options
from stado.ports import Clock, Entropy
from stado_agent.masking import SECRET_LENGTH_MIN

log = logging.getLogger(__name__)

_VALUE_BYTES_MAX = 65_536
_SECONDS_MAX = 300.0
"""So long a service that does not answer is asked again."""
_PAUSE_SECONDS = 1.0
_PAUSE_SECONDS_MAX = 30.0

AWS, GCP = "aws", "gcp"


class SecretUnreachable(Exception):
    """It cannot be asked for now. The text says why, and holds no value."""


class SecretRefused(Exception):
    """It cannot be had here. The text says why and what helps, and holds no value."""


class SecretSource(Protocol):
    """Where the values are."""

    def read(self, item: str, field: str) -> str:
        """Raises `SecretUnreachable`, `SecretRefused`."""
        ...


@dataclass(frozen=True, slots=True)
class SecretSettings:
    """What the owner of the host states. At most one of folder and service."""

    folder: Path | None = None
    service: str | None = None
    endpoint: str | None = None
    """Of the service; None: its own."""
    allowed: tuple[str, ...] = ()
    """Patterns of items, in which `*` stands for anything."""


def secret_settings(
    *, folder: Path | None, service: str | None, endpoint: str | None, allowed: tuple[str, ...]
) -> SecretSettings:
    """Raises `Refused` for what cannot be meant."""
    check_secret_options(folder=folder, service=service, endpoint=endpoint)
    return SecretSettings(folder, service, endpoint, allowed)


class Secrets:
    """Those that one host gives to jobs. The source is made at first use, in the process that uses
    it: connections must not be shared with a forked one."""

    def __init__(self, settings: SecretSettings) -> None:
        self._settings = settings
        self._source: SecretSource | None = None

    def read(self, reference: str) -> str:
        """The value of `ITEM#FIELD`. Raises `SecretUnreachable`, `SecretRefused`."""
        item, _, field = reference.partition("#")
        if not any(fnmatchcase(item, pattern) for pattern in self._settings.allowed):
            raise SecretRefused(
                f"this host allows no job to have it: --allow-secret {item} of its agent does"
            )
        if self._source is None:
            self._source = self._open()
        value = self._source.read(item, field)
        _check(value)
        return value

    def _open(self) -> SecretSource:
        settings = self._settings
        if settings.folder is not None:
            from stado_agent.secret_folder import SecretFolder

            return SecretFolder(settings.folder)
        if settings.service == AWS:
            from stado_agent.secret_aws import AwsSecrets

            return AwsSecrets(settings.endpoint)
        if settings.service == GCP:
            from stado_agent.secret_gcp import GcpSecrets

            return GcpSecrets(settings.endpoint)
        raise SecretRefused(
            "this host knows no secrets: --secrets-dir or --secrets-from of its agent names them"
        )


def take_secrets(
    secrets: Secrets,
    references: Mapping[str, str],
    *,
    clock: Clock,
    entropy: Entropy,
    heed: Callable[[], None],
    tell: Callable[[str | None], None],
) -> dict[str, str]:
    """The values by variable. Who does not answer is asked again for some minutes: `heed` is called
    meanwhile, and ends that by what it raises; `tell` hears what cannot be had yet.

    Raises `SecretRefused`, whose text names the variable, item and field."""
    until = clock.monotonic() + _SECONDS_MAX
    values = {}
    for name, reference in references.items():
        pause, tries = _PAUSE_SECONDS, 0
        while name not in values:
            try:
                values[name] = secrets.read(reference)
            except SecretRefused as error:
                raise SecretRefused(f"secret {reference} for {name}: {error}") from None
            except SecretUnreachable as error:
                tries += 1
                text = f"secret {reference} for {name} cannot be had after {tries} tries: {error}"
                log.warning("event=secret_unreachable secret=%s tries=%d", reference, tries)
                if clock.monotonic() >= until:
                    raise SecretRefused(text) from None
                tell(text)
                heed()
                clock.sleep(entropy.uniform(pause / 2, pause))
                pause = min(pause * 2, _PAUSE_SECONDS_MAX)
        tell(None)
    return values


def field_of(document: object, field: str) -> str:
    """Of a secret that is a JSON object. Raises `SecretRefused`."""
    if not isinstance(document, dict):
        raise SecretRefused(f'it is no JSON object: store it as {{"{field}": "…"}}')
    if field not in document:
        raise SecretRefused("it has no such field")
    value = document[field]
    if not isinstance(value, str):
        raise SecretRefused("this field is no text: write it in quotes")
    return value


def _check(value: str) -> None:
    if len(value) < SECRET_LENGTH_MIN:
        raise SecretRefused(
            f"its value has fewer than {SECRET_LENGTH_MIN} characters, and would be found by "
            "chance in what a job prints: take a longer one"
        )
    if len(value.encode(errors="surrogateescape")) > _VALUE_BYTES_MAX:
        raise SecretRefused(f"its value has more than {_VALUE_BYTES_MAX} bytes")
    if "\0" in value:
        raise SecretRefused("its value holds a NUL byte, which no variable can")
