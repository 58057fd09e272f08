"""The file in which a coordinator's owner says what is behind the names of channels.

Its values may be secrets: errors name the file, the channel and what is wrong, and no value.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from stado.errors import Refused

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9-]{1,100}")
_CLOSED_TO_OTHERS = 0o027
"""Who may write it may have programs executed; who may read it knows what it takes to send."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """Takes messages by POST."""

    url: SplitResult = field(repr=False)
    headers: Mapping[str, str] = field(repr=False, default_factory=dict)


@dataclass(frozen=True, slots=True)
class Program:
    """Takes each message on its standard input."""

    argv: Sequence[str] = field(repr=False)


def read_channels(path: Path) -> dict[str, Webhook | Program]:
    """By name. Raises `Refused`."""
    values = _values(path)
    channels = values.pop("channels", None)
    if values or not isinstance(channels, dict):
        raise _invalid(path, "it states tables [channels.NAME], and nothing else")
    return {name: _channel(path, name, stated) for name, stated in channels.items()}


def _values(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & _CLOSED_TO_OTHERS:
                raise _invalid(path, "others can read or write it: chmod 600")
            return tomllib.load(file)
    except OSError as error:
        raise _invalid(path, error.strerror or "it cannot be read") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise _invalid(path, "it is no TOML") from None


def _channel(path: Path, name: str, stated: Any) -> Webhook | Program:
    if not _NAME.fullmatch(name):
        raise _invalid(path, f"channel {name!r}: a name has a-z, 0-9, _ and -, 40 at most")
    if isinstance(stated, dict) and set(stated) == {"command"}:
        return _program(path, name, stated["command"])
    if isinstance(stated, dict) and "url" in stated and set(stated) <= {"url", "headers"}:
        return _webhook(path, name, stated["url"], stated.get("headers", {}))
    raise _invalid(path, f"channel {name} has either url (and headers), or command")


def _webhook(path: Path, name: str, url: Any, headers: Any) -> Webhook:
    try:
        split = urlsplit(url if isinstance(url, str) and url.isascii() else "")
        valid = bool(split.hostname) and split.port != 0
    except ValueError:
        valid = False
    if not valid or split.scheme not in ("http", "https") or not url.isprintable() or " " in url:
        raise _invalid(path, f"channel {name}: its url is no http:// or https:// address")
    if split.username is not None or split.password is not None:
        raise _invalid(path, f"channel {name}: put user and password into headers, not the url")
    if not isinstance(headers, dict) or not all(map(_is_header, headers.items())):
        raise _invalid(path, f"channel {name}: its headers are names and printable texts")
    return Webhook(split, headers)


def _is_header(item: tuple[str, Any]) -> bool:
    name, value = item
    return bool(_HEADER_NAME.fullmatch(name)) and isinstance(value, str) and value.isprintable()


def _program(path: Path, name: str, command: Any) -> Program:
    valid = isinstance(command, list) and command and all(isinstance(one, str) for one in command)
    if not valid or not command[0].startswith("/") or any("\0" in one for one in command):
        raise _invalid(path, f"channel {name}: its command is a list that begins with /a/path")
    return Program(command)


def _invalid(path: Path, why: str) -> Refused:
    return Refused("channels_invalid", f"channels file {path}: {why}")
