"""Windows of time in which jobs may start, as people see them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from stado.core.quotas import ScopeKind
from stado.core.spec import Spec
from stado.core.windows import Restriction
from stado.core.zones import find_zone
from stado.jobs.fitting import Wait, listed

WAITING_WINDOW = "waiting_window"


def window_wait(closed: Restriction, opens_at: datetime | None, spec: Spec) -> Wait:
    """`opens_at`: when all windows that such a job falls under are open next; None where nobody can
    say."""
    text = f"jobs {_whose(closed)} start {_times(closed)} alone"
    if opens_at is None:
        return _never_open(closed, text)
    moment = f"{opens_at:%a %Y-%m-%d %H:%M}Z"
    if spec.deadline_at is not None and opens_at >= spec.deadline_at:
        return Wait(
            WAITING_WINDOW,
            f"{text}: next at {moment}, and its deadline is before that",
            "submit it with a later --deadline-at",
        )
    return Wait(
        WAITING_WINDOW,
        f"{text}: next at {moment}{_on_the_wall(closed, opens_at)}",
        until=f"at {moment}, when a window opens: {text}",
    )


def _never_open(closed: Restriction, text: str) -> Wait:
    unknown = [one.zone for one in closed.windows if find_zone(one.zone) is None]
    if not unknown:
        return Wait(
            WAITING_WINDOW,
            f"{text}, and within two weeks not all of its windows are open at the same time",
            "`stado settings set windows.rules` changes them",
        )
    return Wait(
        WAITING_WINDOW,
        f"{text}, and this host does not know the time zone {listed(unknown)}",
        "install the time zones here and where workers run (`pip install -U tzdata`), or name "
        "another with `stado settings set windows.rules`",
        until=f"when a window is open: {text}",
    )


def windows_text(restricted: Sequence[Restriction]) -> str:
    """`jobs of group big start mon-fri 18:00-08:00 (Europe/Berlin)`."""
    return "; ".join(f"jobs {_whose(one)} start {_times(one)}" for one in restricted)


def _times(restriction: Restriction) -> str:
    return listed([f"{one.text} ({one.zone})" for one in restriction.windows])


def _whose(restriction: Restriction) -> str:
    if restriction.kind is ScopeKind.ALL:
        return "of the deployment"
    return f"of {'group ' if restriction.kind is ScopeKind.GROUP else ''}{restriction.subject}"


def _on_the_wall(closed: Restriction, at: datetime) -> str:
    zones = {one.zone for one in closed.windows}
    zone = find_zone(zones.pop()) if len(zones) == 1 else None
    if zone is None or zone.key == "UTC":
        return ""
    return f" ({at.astimezone(zone):%H:%M} in {zone.key})"
