"""Time zones by their IANA names: the rules by which a clock on a wall there is set."""

from __future__ import annotations

from difflib import get_close_matches
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from stado.errors import Refused

ZONE_LENGTH_MAX = 64


def find_zone(name: str) -> ZoneInfo | None:
    """None where this host knows no such zone. The same object for the same name."""
    try:
        return ZoneInfo(name) if name and len(name) <= ZONE_LENGTH_MAX else None
    except (ZoneInfoNotFoundError, ValueError, OSError):  # names of folders, and paths, too
        return None


def zone_named(name: str) -> ZoneInfo:
    """Raises `Refused` (`time_zone_unknown`), with the nearest name that there is."""
    zone = find_zone(name)
    if zone is not None:
        return zone
    close = get_close_matches(name[:ZONE_LENGTH_MAX], available_timezones(), n=1, cutoff=0.6)
    meant = f"did you mean {close[0]}?" if close else "such as Europe/Berlin, or UTC"
    raise Refused("time_zone_unknown", f"there is no time zone {name!r}: {meant}")
