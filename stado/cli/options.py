"""What option values may look like, as click callbacks: each names the value and the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from stado.cli import profile_option

if TYPE_CHECKING:
    from stado.core.envelope import Spot
    from stado.core.inputs import Wanted
    from stado.core.phases import JobPhase
    from stado.core.spec import Step
    from stado.core.states import JobType, Kind, Reason, State

UNLIMITED = "unlimited"

_NOTE_MAX = 1024
"""As a record keeps it (`stado.core.records.Line`)."""

_VARIABLES_OF_FILE = f"{__name__}.variables_file"

AGO_MAX = timedelta(days=3660)
"""The longest time that people look back."""

_SINCE_DEFAULT = timedelta(days=30)

_AGO = re.compile(r"(?:([0-9]{1,6})d)?(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,9})s)?")
_SECRET_REFERENCE = re.compile(r"[^#\s]+#[^#\s]+")
_INSTANT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def plain_text(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Text that can be stored: the command line is bytes, and not all bytes are UTF-8."""
    return None if value is None else _checked_text(ctx, param, value)


def reason_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Why somebody asks for a change of jobs, as `note`."""
    return click.option(
        "--reason",
        "note",
        callback=_note,
        metavar="TEXT",
        help="Why, for others to read: it is kept with the job.",
    )(function)


def _note(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    text = plain_text(ctx, param, value)
    if text is not None and len(text) > _NOTE_MAX:
        raise click.BadParameter(
            f"it has {len(text):,} characters, and {_NOTE_MAX:,} are kept at most.", ctx, param
        )
    return text or None


def plain_texts(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[str]:
    """As `plain_text`, of an option that can be repeated."""
    return [_checked_text(ctx, param, value) for value in values]


def instant(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """RFC 3339, in UTC from here on: equal instants are equal requests."""
    if value is None:
        return None
    parsed = _parse_instant(value)
    if parsed is None:
        raise click.BadParameter(
            f"{value!r} is no instant of RFC 3339: write it as 2026-03-29T01:30:00Z, "
            "with a time zone.",
            ctx,
            param,
        )
    return parsed


def duration(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Seconds."""
    if value is None:
        return None
    from stado.core.durations import DURATION_FORM, meant_duration, parse_duration

    seconds = parse_duration(value)
    if seconds is None:
        meant = meant_duration(value)
        so = f"; write it as {meant}" if meant is not None else ""
        raise click.BadParameter(f"{value!r} must be {DURATION_FORM}{so}.", ctx, param)
    return seconds


def moment(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> timedelta | datetime | None:
    """So long ago, or an instant."""
    if value is None:
        return None
    found = _AGO.fullmatch(value)
    if value and found is not None:
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        ago = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if ago > AGO_MAX:
            raise click.BadParameter(f"{AGO_MAX.days:,} days are the longest.", ctx, param)
        return ago
    try:
        return instant(ctx, param, value)
    except click.BadParameter:
        raise click.BadParameter(
            f"{value!r} is neither a duration (90s, 5m, 2h30m, 1d) nor an instant "
            "(2026-03-29T01:30:00Z, with a time zone).",
            ctx,
            param,
        ) from None


def moment_meant(since: timedelta | datetime | None, now: datetime) -> datetime:
    """From when on, by the clock of the store: no earlier than what is the longest, and 30 days ago
    where nobody said."""
    if isinstance(since, datetime):
        return max(since, now - AGO_MAX)
    return now - (_SINCE_DEFAULT if since is None else since)


def price_or_default(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Dollars an hour; None for `default`."""
    if value is None or value.strip().lower() == "default":
        return None
    try:
        price = float(value)
    except ValueError:
        price = -1.0
    if not 0 < price < 100_000:
        raise click.BadParameter(
            f"{value!r} is no price: a number of dollars above 0 and below 100000, or 'default'.",
            ctx,
            param,
        )
    return price


def spot(_ctx: click.Context, _param: click.Parameter, value: bool | None) -> Spot:
    """Three answers to a question that people say yes, no or nothing to."""
    from stado.core.envelope import Spot

    if value is None:
        return Spot.ALLOW
    return Spot.REQUIRE if value else Spot.NEVER


def losses(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """How often a host may be lost; the spec says -1 for `unlimited`, people do not."""
    if value is None:
        return None
    if value == UNLIMITED:
        return -1
    if re.fullmatch(r"[0-9]{1,9}", value):
        return int(value)
    raise click.BadParameter(f"{value!r} must be 0 or more, or '{UNLIMITED}'.", ctx, param)


def reasons(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[Reason]:
    """Ways to fail after which a job can be tried again."""
    if not values:
        return []
    from stado.core.retries import RETRYABLE
    from stado.core.states import Reason
    from stado.settings import did_you_mean

    for value in values:
        if value not in RETRYABLE:
            known = [reason.value for reason in RETRYABLE]
            meant = did_you_mean(value, known)
            raise click.BadParameter(
                f"nothing is tried again after {value!r}{meant or ':'} {', '.join(known)}.",
                ctx,
                param,
            )
    return [Reason(value) for value in values]


def standings(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> list[State | JobPhase]:
    """Words for states and phases, in upper or lower case."""
    if not values:
        return []
    from stado.core.phases import standing_named
    from stado.core.states import State
    from stado.settings import did_you_mean

    found = []
    for value in values:
        standing = standing_named(value)
        if standing is not None:
            found.append(standing)
        else:
            known = [one.value for one in State]
            meant = did_you_mean(value.lower(), known) or ":"
            if value.lower() == "partial":
                meant = " of a job, but of a pipeline: a list without --status shows it; jobs are"
            raise click.BadParameter(
                f"{value!r} is no state{meant} {', '.join(known)}.", ctx, param
            )
    return found


def job_type(ctx: click.Context, param: click.Parameter, value: str) -> JobType:
    """A word for what a job is for, in upper or lower case."""
    from stado.core.states import JobType
    from stado.settings import did_you_mean

    known = [word.value for word in JobType]
    try:
        return JobType(value.lower())
    except ValueError:
        meant = did_you_mean(value.lower(), known)
        raise click.BadParameter(
            f"{value!r} is no type of job{meant or ':'} {', '.join(known)}.", ctx, param
        ) from None


def job_types(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[JobType]:
    return [job_type(ctx, param, value) for value in values]


def tags(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[str]:
    """Raises `Refused`."""
    if not values:
        return []
    from stado.core.tags import tag_list

    return tag_list(_checked_text(ctx, param, value) for value in values)


def kind(ctx: click.Context, param: click.Parameter, value: str | None) -> Kind | None:
    """Which of a policy's two saves."""
    from stado.core.states import Kind

    if value is None:
        return None
    try:
        return Kind(value.lower())
    except ValueError:
        raise click.BadParameter(f"{value!r} is neither best nor latest.", ctx, param) from None


def known_job_types(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """For a shell that completes what is typed."""
    from stado.core.states import JobType

    return [word.value for word in JobType if word.value.startswith(incomplete.lower())]


def known_states(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """For a shell that completes what is typed."""
    from stado.core.states import State

    return [state.value for state in State if state.value.startswith(incomplete.lower())]


def variables(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """`NAME=VALUE` each; the value may be empty, and may hold more `=`. The last one counts, and
    counts before what a file of variables says (`variables_file`), and that before a profile."""
    found: dict[str, str] = {
        **ctx.meta.get(profile_option.VARIABLES, {}),
        **ctx.meta.get(_VARIABLES_OF_FILE, {}),
    }
    for value in values:
        name, equals, content = _checked_text(ctx, param, value).partition("=")
        if not equals:
            raise click.BadParameter(f"{name!r} states no value: write {name}=VALUE.", ctx, param)
        found[name] = content
    return found


def secrets(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """`NAME=ITEM#FIELD` each; the last one counts, and counts before what a profile says. What
    somebody typed in place of a reference may be a secret: it is not repeated."""
    of_file = ctx.meta.get(_VARIABLES_OF_FILE, {})
    of_profile = ctx.meta.get(profile_option.SECRETS, {})
    found: dict[str, str] = {name: one for name, one in of_profile.items() if name not in of_file}
    for value in values:
        name, equals, reference = _checked_text(ctx, param, value).partition("=")
        if not equals or not _SECRET_REFERENCE.fullmatch(reference):
            raise click.BadParameter(
                f"the secret for {name!r} is named by item and field, never by its value: write "
                f"{name}=ITEM#FIELD.",
                ctx,
                param,
            )
        found[name] = reference
    return found


def variables_file(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    """What the file says is kept for `variables`, which is called later: this one is eager."""
    if value is not None:
        from stado.cli.variables_file import read_variables

        ctx.meta[_VARIABLES_OF_FILE] = read_variables(value)


def inputs(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[Wanted, ...]:
    """`NAME=REFERENCE` each. Raises `Refused`."""
    if not values:
        return ()
    from stado.core.inputs import parse_wanted

    return tuple(parse_wanted(_checked_text(ctx, param, value)) for value in values)


def notify(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[str]:
    """`CHANNEL[:STATE,STATE]` each. Raises `Refused`."""
    if not values:
        return []
    from stado.core.notice_words import parse_rules

    return parse_rules(_checked_text(ctx, param, value) for value in values)


def names(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_checked_text(ctx, param, value) for value in values)


def steps(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[Step]:
    """`NAME=COMMAND` each. Raises `Refused`."""
    if not values:
        return []
    from stado.core.pipelines import parse_step

    return [parse_step(_checked_text(ctx, param, value)) for value in values]


def _checked_text(ctx: click.Context, param: click.Parameter, value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        name, equals, _ = value.partition("=")
        told = f"what is given for {name!r}" if equals else repr(value)  # a value may be secret
        raise click.BadParameter(f"{told} is not valid UTF-8.", ctx, param) from None
    return value


def _parse_instant(text: str) -> datetime | None:
    if not _INSTANT.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


SECTIONS = ("events", "logs", "system", "diagnostics")
"""What `stado job show` can show instead of a job's story."""


def sections(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Names with commas between them; each once, in the order in which they were typed."""
    if value is None:
        return ()
    names = tuple(dict.fromkeys(name.strip().lower() for name in value.split(",")))
    for name in names:
        if name not in SECTIONS:
            known = ", ".join(SECTIONS)
            raise click.BadParameter(f"there is no section {name!r}: {known}.", ctx, param)
    return names


def ended_states(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[State, ...]:
    """Names of states that a job has ended in, with commas between them."""
    from stado.core.states import State

    known = {state.value: state for state in State if state.terminal}
    names = [] if value is None else [name.strip().lower() for name in value.split(",")]
    for name in names:
        if name not in known:
            ends = ", ".join(known)
            raise click.BadParameter(f"no job ends as {name!r}: {ends}.", ctx, param)
    return tuple(known[name] for name in dict.fromkeys(names))
