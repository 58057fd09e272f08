"""Time zones by their IANA names, from this machine's tz database, or else from the package that
holds it."""

from __future__ import annotations

import re
from difflib import get_close_matches
from zoneinfo import ZoneInfo, available_timezones

from stado.errors import Refused

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9][A-Za-z0-9_+-]*){0,2}")
_NAME_CHARACTERS_MAX = 64
_NO_ZONES = re.compile(r"(posix|right)/.*|localtime|posixrules|Factory", re.IGNORECASE)
"""Names in that database which mean another thing on another machine, or count leap seconds."""


def find_zone(name: str) -> ZoneInfo | None:
    """None where this machine knows no such zone."""
    if len(name) > _NAME_CHARACTERS_MAX or not _NAME.fullmatch(name) or _NO_ZONES.fullmatch(name):
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # OSError: a folder of zones
        return None


def zone_named(name: str) -> ZoneInfo:
    """Raises `Refused` (`zone_unknown`)."""
    zone = find_zone(name)
    if zone is None:
        raise Refused(
            "zone_unknown",
            f"there is no time zone {name!r}{_meant(name)} IANA names are taken, such as "
            "Europe/Berlin or UTC",
        )
    return zone


def _meant(name: str) -> str:
    known = available_timezones()
    by_lower = {one.lower(): one for one in known if not _NO_ZONES.fullmatch(one)}
    close = get_close_matches(name.lower(), by_lower, n=3)
    return f"; did you mean {' or '.join(by_lower[one] for one in close)}?" if close else "."
