"""The options that say which lines of a log are shown, and how: of `logs`, `job logs` and
`job watch`. Each means the same in all of them; what they do where it is not stated differs."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import click

from stado.cli import options

_PATTERN_MAX = 1000


class LogView(NamedTuple):
    """Which lines are shown, besides the last so many."""

    since: timedelta | datetime | None = None
    """None: all."""
    pattern: re.Pattern[str] | None = None
    timestamps: bool = False

    def begins_at(self, now: datetime) -> datetime | None:
        """`now`: by the clock of the store."""
        return now - self.since if isinstance(self.since, timedelta) else self.since


ALL_AS_IT_IS = LogView()


class Begin(NamedTuple):
    """Where to begin, as it was typed."""

    stated: bool = False
    lines: int | None = None
    """The last so many; None: all."""


def begin_options(*, habit: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds `-n` and `--tail`; the command gets them as `begin`. `habit`: where it begins without
    them, for its help."""

    def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
        @click.option(
            "-n",
            "before_end",
            type=click.IntRange(min=0),
            metavar="N",
            help=f"Begin N lines before the end; 0: at the beginning.  [{habit}]",
        )
        @click.option(
            "--tail",
            type=click.IntRange(min=0),
            metavar="N",
            help="The same, but 0 is: show nothing of what is there.",
        )
        @functools.wraps(command)
        def with_begin(*, before_end: int | None, tail: int | None, **others: Any) -> Any:
            if before_end is not None and tail is not None:
                raise click.UsageError("-n and --tail exclude each other: state one of them.")
            if tail is not None:
                return command(begin=Begin(stated=True, lines=tail), **others)
            stated = before_end is not None
            return command(begin=Begin(stated=stated, lines=before_end or None), **others)

        return with_begin

    return with_options


def log_view_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--since`, `--grep` and `--timestamps`; the command gets them as `view`."""

    @click.option(
        "--since",
        callback=options.moment,
        metavar="WHEN",
        help="What was printed since then: 90s, 5m, 2h30m, 1d ago, or an instant of RFC 3339.",
    )
    @click.option(
        "--grep",
        "pattern",
        callback=_pattern,
        metavar="PATTERN",
        help="Of these lines those in which the regular expression is found.",
    )
    @click.option(
        "--timestamps", is_flag=True, help="Before each line when it was printed, at the latest."
    )
    @functools.wraps(command)
    def with_view(
        *,
        since: timedelta | datetime | None,
        pattern: re.Pattern[str] | None,
        timestamps: bool,
        **others: Any,
    ) -> Any:
        return command(view=LogView(since, pattern, timestamps), **others)

    return with_view


def _pattern(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> re.Pattern[str] | None:
    text = options.plain_text(ctx, param, value)
    if text is None:
        return None
    if len(text) > _PATTERN_MAX:
        raise click.BadParameter(f"it is longer than {_PATTERN_MAX:,} characters.", ctx, param)
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise click.BadParameter(
            f"{text!r} is no regular expression: {error}.", ctx, param
        ) from None
