"""What a deployment decides for all of its jobs: one document, changed by compare-and-swap.

Only what some program reads is here. Nothing is limited unless somebody said so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any

import msgspec

from stado.core import keys
from stado.core.budget_words import BUDGETS_MAX, BudgetText, parse_budgets
from stado.core.documents import COUNT_MAX, Document, Instant, Part
from stado.core.durations import DURATION_FORM, Duration, duration_text, parse_duration
from stado.core.envelope import HostWord, is_host_word
from stado.core.notice_words import parse_rules
from stado.core.notices import Rules
from stado.core.records import Code, Line
from stado.core.retention import (
    AGE_SECONDS_MIN,
    KEEP_NEWEST_DEFAULT,
    KEEP_NEWEST_MAX,
    OUTPUT_BYTES,
    RetentionSettings,
)
from stado.core.retries import (
    DELAY_SECONDS_DEFAULT,
    RETRIED_UNLESS_STATED,
    RETRIES_MAX,
    RETRYABLE,
    RetrySettings,
)
from stado.core.size_words import SIZE_FORM, parse_size, stated_size
from stado.core.states import NotifyOn, Reason
from stado.core.window_words import WINDOWS_MAX, WindowText, parse_windows
from stado.errors import Refused

LIMIT_MAX = 100_000
WORKERS_LOOK_SECONDS = 120.0
"""Workers read the settings so often; people are told that a change may take so long."""

GROUPS_MAX = 1000


class Limits(Part, frozen=True, kw_only=True):
    """Of time. None: no limit."""

    runtime_seconds: Duration | None = None
    """Of a job, from when it is picked up first; fixed for a job at that moment."""
    pre_running_seconds: Duration | None = None
    """Of each pick-up, until the command starts."""


class NotifySettings(Part, frozen=True, kw_only=True):
    """On which channels it is told what becomes of any job. None: on none."""

    rules: Rules | None = None


Most = Annotated[int, msgspec.Meta(ge=0, le=LIMIT_MAX)]
"""How many jobs of some kind may run at a time, or cards be held; 0: none."""


GroupLimits = Annotated[dict[HostWord, Most], msgspec.Meta(max_length=GROUPS_MAX)]


class Quotas(Part, frozen=True, kw_only=True):
    """How many jobs may run at a time, and how many cards they may hold. None: no limit."""

    running_jobs: Most | None = None
    running_jobs_per_user: Most | None = None
    running_gpus: Most | None = None
    running_gpus_per_user: Most | None = None


class GroupSettings(Part, frozen=True, kw_only=True):
    """How many jobs of a group may run at a time, and how many cards they may hold. A group that is
    not named has no limit."""

    limits: GroupLimits | None = None
    gpus: GroupLimits | None = None


class WindowSettings(Part, frozen=True, kw_only=True):
    """When jobs may start. None: always."""

    rules: Annotated[list[WindowText], msgspec.Meta(max_length=WINDOWS_MAX)] | None = None


WARN_PERCENT_DEFAULT = 80


class BudgetSettings(Part, frozen=True, kw_only=True):
    """How much may be spent before new jobs wait. None: any amount."""

    rules: Annotated[list[BudgetText], msgspec.Meta(max_length=BUDGETS_MAX)] | None = None
    warn_percent: Annotated[int, msgspec.Meta(ge=1, le=100)] | None = None
    """Of an amount, from which on it is told. None: 80."""

    @property
    def warns_at_percent(self) -> int:
        return WARN_PERCENT_DEFAULT if self.warn_percent is None else self.warn_percent


class DeploymentSettings(Document, frozen=True, kw_only=True):
    """`settings.json`. Absent: nothing was ever set."""

    limits: Limits = msgspec.field(default_factory=Limits)
    retries: RetrySettings = msgspec.field(default_factory=RetrySettings)
    notify: NotifySettings = msgspec.field(default_factory=NotifySettings)
    quotas: Quotas = msgspec.field(default_factory=Quotas)
    groups: GroupSettings = msgspec.field(default_factory=GroupSettings)
    windows: WindowSettings = msgspec.field(default_factory=WindowSettings)
    budgets: BudgetSettings = msgspec.field(default_factory=BudgetSettings)
    retention: RetentionSettings = msgspec.field(default_factory=RetentionSettings)
    nonce: Code | None = None
    """New at each write."""
    changed_at: Instant | None = None
    changed_by: Line | None = None

    def own_key(self) -> str:
        return keys.SETTINGS


@dataclass(frozen=True, slots=True)
class Setting:
    """One of them, by the name that people use: its part and its field."""

    what: str
    """For people, a few words."""
    unset: str
    """What is so where it is not set."""
    form: str
    """What its values look like."""
    parse: Callable[[str], Any]
    """From text; None for what is no value. May raise `Refused` where it has more to say."""
    text: Callable[[Any], str]


def _seconds(what: str, unset: str = "no limit") -> Setting:
    return Setting(what, unset, DURATION_FORM, parse_duration, duration_text)


def _count(what: str, unset: str) -> Setting:
    return Setting(what, unset, f"a whole number from 0 to {RETRIES_MAX}", _parse_count, str)


def _parse_count(text: str) -> int | None:
    count = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
    return count if 0 <= count <= RETRIES_MAX else None


def _limit(what: str) -> Setting:
    return Setting(what, "no limit", f"a whole number from 0 to {LIMIT_MAX}", _parse_limit, str)


def _parse_limit(text: str) -> int | None:
    limit = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
    return limit if 0 <= limit <= LIMIT_MAX else None


def _parse_percent(text: str) -> int | None:
    percent = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else -1
    return percent if 1 <= percent <= 100 else None


def _parse_groups(text: str) -> dict[str, int] | None:
    limits: dict[str, int] = {}
    for pair in text.split():
        name, _, number = pair.rpartition(":")
        limit = _parse_limit(number)
        if limit is None or not is_host_word(name) or name in limits:
            return None
        limits[name] = limit
    return limits if 0 < len(limits) <= GROUPS_MAX else None


def _age(what: str) -> Setting:
    form = f"an age of at least {duration_text(AGE_SECONDS_MIN)}: 90d, 720h"
    return Setting(what, "for ever", form, _parse_age, duration_text)


def _parse_age(text: str) -> int | None:
    seconds = parse_duration(text)
    return seconds if seconds is not None and seconds >= AGE_SECONDS_MIN else None


def _parse_newest(text: str) -> int | None:
    count = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
    return count if 0 <= count <= KEEP_NEWEST_MAX else None


def _parse_bytes(text: str) -> int | None:
    size = parse_size(text)
    return size if size is not None and size <= COUNT_MAX else None


def _groups_text(limits: Mapping[str, int]) -> str:
    return " ".join(f"{name}:{limit}" for name, limit in limits.items())


def _parse_reasons(text: str) -> list[Reason] | None:
    """Once each, in the order in which they are listed for people."""
    names = text.split(",")
    if not set(names) <= {reason.value for reason in RETRYABLE}:
        return None
    return [reason for reason in RETRYABLE if reason.value in names]


def _parse_rules(text: str) -> list[str] | None:
    try:
        return parse_rules(text.split()) or None
    except Refused:
        return None


SETTINGS: Mapping[str, Setting] = {
    "limits.runtime_seconds": _seconds("how long a job may take, from its first pick-up"),
    "limits.pre_running_seconds": _seconds("how long a worker may prepare a job's start"),
    "retries.default": _count("how often jobs that state nothing are retried", "0"),
    "retries.most": _count("how often a job may be retried by itself at most", "no limit"),
    "retries.on": Setting(
        "after which failures, where a job does not say",
        ",".join(RETRIED_UNLESS_STATED),
        f"some of {','.join(RETRYABLE)}",
        _parse_reasons,
        ",".join,
    ),
    "retries.delay_seconds": _seconds(
        "how long a retry waits, where a job does not say", duration_text(DELAY_SECONDS_DEFAULT)
    ),
    "quotas.running_jobs": _limit("how many jobs may run at a time"),
    "quotas.running_jobs_per_user": _limit("how many jobs of one user may run at a time"),
    "quotas.running_gpus": _limit("how many cards the jobs that run may hold"),
    "quotas.running_gpus_per_user": _limit("how many cards the jobs of one user may hold"),
    "groups.limits": Setting(
        "how many jobs of a group (submit --group) may run at a time",
        "no limits",
        "NAME:NUMBER with blanks between such limits, a group once (licences:2 big:1)",
        _parse_groups,
        _groups_text,
    ),
    "groups.gpus": Setting(
        "how many cards the jobs of a group may hold",
        "no limits",
        "NAME:NUMBER with blanks between such limits, a group once (licences:2 big:8)",
        _parse_groups,
        _groups_text,
    ),
    "windows.rules": Setting(
        "when jobs may start, of all, of a group, of a user",
        "always",
        "",  # it says itself what is wrong
        parse_windows,
        " ".join,
    ),
    "budgets.rules": Setting(
        "how much may be spent in a day or a month, of all, of a group, of a user",
        "no budget",
        "",  # it says itself what is wrong
        parse_budgets,
        " ".join,
    ),
    "budgets.warn_percent": Setting(
        "from how much of a budget on it is told that it will be spent",
        str(WARN_PERCENT_DEFAULT),
        "a whole number from 1 to 100",
        _parse_percent,
        str,
    ),
    "retention.logs": _age("how long logs are kept, from when their jobs ended"),
    "retention.outputs": _age("how long output files are kept, from when their jobs ended"),
    "retention.checkpoints": _age("how long checkpoints of completed jobs are kept"),
    "retention.jobs": _age("how long ended jobs are kept, with all that they left"),
    OUTPUT_BYTES: Setting(
        "what output files of ended jobs may take together: beyond it those that ended first go",
        "any amount",
        SIZE_FORM,
        _parse_bytes,
        stated_size,
    ),
    "retention.keep_newest": Setting(
        "how many of the newest ended jobs are never touched",
        str(KEEP_NEWEST_DEFAULT),
        f"a whole number from 0 to {KEEP_NEWEST_MAX}",
        _parse_newest,
        str,
    ),
    "notify.rules": Setting(
        "on which channels is told what becomes of any job",
        "none",
        "CHANNEL:WORD,WORD with blanks between such rules, a channel once (team:failed,timed_out); "
        f"of {', '.join(NotifyOn)}",
        _parse_rules,
        " ".join,
    ),
}


def setting_named(name: str) -> Setting:
    """Raises `Refused`, with the nearest name that there is."""
    known = SETTINGS.get(name)
    if known is not None:
        return known
    close = get_close_matches(name, SETTINGS, n=1, cutoff=0.4)
    meant = f"did you mean {close[0]}?" if close else f"there is {', '.join(SETTINGS)}"
    raise Refused("setting_unknown", f"there is no setting {name!r}: {meant}")


def parse_value(name: str, text: str) -> Any:
    """Raises `Refused`, naming the value and what it has to be."""
    setting = setting_named(name)
    value = setting.parse(text)
    if value is None:
        raise Refused("setting_invalid", f"{name} {text!r} must be {setting.form}")
    return value


def value_of(settings: DeploymentSettings, name: str) -> Any:
    """None where it is not set."""
    part, _, field = name.partition(".")
    return getattr(getattr(settings, part), field)


def with_value(settings: DeploymentSettings, name: str, value: Any) -> DeploymentSettings:
    """`value`: None unsets it."""
    part, _, field = name.partition(".")
    return settings.evolve(**{part: getattr(settings, part).evolve(**{field: value})})
