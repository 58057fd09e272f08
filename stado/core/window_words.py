"""A window of time as people write it: `group.big:mon-fri@18:00-08:00@Europe/Berlin`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import msgspec

from stado.core.envelope import is_host_word
from stado.core.zones import zone_named
from stado.errors import Refused

WINDOWS_MAX = 100

WINDOW_FORM = (
    "WHOSE:DAYS@FROM-TO@ZONE with blanks between such windows: whose jobs (all, group.NAME, "
    "user.NAME), on which days (daily, mon-fri, sat,sun), when on the clock of an IANA time zone "
    "(UTC where none stands): group.big:mon-fri@18:00-08:00@Europe/Berlin"
)

_DAY_NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_EVERY_DAY = "daily"
_DAY = f"(?:{'|'.join(_DAY_NAMES)})"
_DAYS = f"{_EVERY_DAY}|{_DAY}(?:-{_DAY})?(?:,{_DAY}(?:-{_DAY})?)*"
_TIME = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_SHAPE = (
    r"(?:(?P<all>all)|group\.(?P<group>[^\s:]{1,100})|user\.(?P<user>[^\s:]{1,128}))"
    rf":(?P<days>{_DAYS})@(?P<opens>{_TIME})-(?P<closes>{_TIME}|24:00)"
)
_WINDOW = re.compile(rf"{_SHAPE}@(?P<zone>[A-Za-z0-9_+/-]{{1,64}})")
_WRITTEN = re.compile(rf"{_SHAPE}(?:@(?P<zone>\S+))?")

WindowText = Annotated[str, msgspec.Meta(pattern=rf"\A{_WINDOW.pattern}\Z")]
"""As it is kept: with its zone."""


@dataclass(frozen=True, slots=True)
class Window:
    """`opens`, `closes`: minutes of the day on the wall's clock; one that closes at or before it
    opens does so on the next day. `days`: on which it opens, 0 is Monday."""

    kind: str
    """`all`, `group`, `user`."""
    subject: str
    days: frozenset[int]
    opens: int
    closes: int
    zone: str
    text: str
    """Days and times, as they were written: `mon-fri 18:00-08:00`."""

    @property
    def over_midnight(self) -> bool:
        return self.closes < self.opens

    def holds(self, local: datetime) -> bool:
        """Whether a clock in its zone that shows this stands in it."""
        minute, day = local.hour * 60 + local.minute, local.weekday()
        if not self.over_midnight:
            return day in self.days and self.opens <= minute < self.closes
        began_today = day in self.days and minute >= self.opens
        return began_today or ((day - 1) % 7 in self.days and minute < self.closes)


def parse_window(text: str) -> Window:
    """Of one as it is kept (`WindowText`); its zone may be one that this host does not know."""
    found = _WINDOW.fullmatch(text)
    if found is None:
        raise Refused("window_invalid", f"{text!r} is no window: write {WINDOW_FORM}")
    return _window(found, found["zone"])


def parse_windows(text: str) -> list[str]:
    """As they are kept, from what people write. Raises `Refused`, naming the window."""
    kept = [_kept(one) for one in text.split()]
    if not kept:
        raise Refused("setting_invalid", f"windows.rules {text!r} must be {WINDOW_FORM}")
    if len(kept) > WINDOWS_MAX:
        raise Refused("setting_invalid", f"windows.rules has {WINDOWS_MAX} windows at most")
    return list(dict.fromkeys(kept))


def _kept(text: str) -> str:
    found = _WRITTEN.fullmatch(text)
    if found is None or (found["group"] is not None and not is_host_word(found["group"])):
        raise Refused("setting_invalid", f"windows.rules {text!r} must be {WINDOW_FORM}")
    zone = "UTC" if found["zone"] is None else found["zone"]
    try:
        zone_named(zone)
    except Refused as error:
        raise Refused("setting_invalid", f"windows.rules {text!r}: {error.text}") from None
    if found["opens"] == found["closes"]:
        raise Refused(
            "setting_invalid",
            f"windows.rules {text!r} is empty: it closes when it opens; a whole day is 00:00-24:00",
        )
    return text if found["zone"] is not None else f"{text}@{zone}"


def _window(found: re.Match[str], zone: str) -> Window:
    kind = next(kind for kind in ("all", "group", "user") if found[kind] is not None)
    return Window(
        kind=kind,
        subject="" if kind == "all" else found[kind],
        days=_days(found["days"]),
        opens=_minutes(found["opens"]),
        closes=_minutes(found["closes"]),
        zone=zone,
        text=f"{found['days']} {found['opens']}-{found['closes']}",
    )


def _minutes(text: str) -> int:
    hours, minutes = text.split(":")
    return int(hours) * 60 + int(minutes)


def _days(text: str) -> frozenset[int]:
    """`fri-mon` is Friday to Monday."""
    if text == _EVERY_DAY:
        return frozenset(range(7))
    days: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        begin = _DAY_NAMES.index(first)
        count = (_DAY_NAMES.index(last or first) - begin) % 7 + 1
        days |= {(begin + number) % 7 for number in range(count)}
    return frozenset(days)
