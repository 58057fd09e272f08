"""The options that say which lines of a log are shown, and how: of `logs`, `job logs` and
`job watch`."""

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
