"""`stado cost budgets`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from stado.cli.context import json_option, opened_repository
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.jobs.budget_sight import BudgetRow, BudgetsSeen

_WHO = "a coordinator works it out, each two minutes (`stado up`, or `stado coordinator run`)"


@click.command()
@json_option
@target_options
def budgets(*, as_json: bool, target: Target) -> None:
    """Show what is spent of each budget of the deployment.

    `stado settings set budgets.rules` sets them. What is spent is worked out by a coordinator;
    what it does not know is told as unknown.

    \b
      stado settings set budgets.rules "all:5000usd/month users:200usd/month group.eval:40gpuh/day"
      stado cost budgets
    """
    from stado.cli import render
    from stado.jobs.budget_sight import see_budgets

    with opened_repository(target) as repo:
        seen = see_budgets(repo)
    if as_json:
        render.print_json(_fields(seen))
        return
    if not seen.rows:
        render.tell("no budget is set: `stado settings set budgets.rules` sets some")
        return
    for line in _lines(seen):
        render.print_styled(line)
    for note in _notes(seen):
        render.tell(note)


def _lines(seen: BudgetsSeen) -> Iterator[str]:
    from stado.cli.render import clean_table_lines
    from stado.cli.tables import Column

    columns = [
        Column("WHOSE", width_max=40),
        Column("PERIOD"),
        Column("SPENT", right=True),
        Column("OF", right=True),
        Column("%", right=True),
        Column("STATE"),
        Column("UNPRICED", right=True),
    ]
    rows = [_cells(row) for row in seen.rows]
    if not any(row.unpriced_epochs for row in seen.rows):
        del columns[-1]
        rows = [row[:-1] for row in rows]
    yield from clean_table_lines(columns, rows)


def _cells(row: BudgetRow) -> list[str]:
    from stado.cli.render import duration
    from stado.jobs.budget_sight import amount_text, percent_text

    spent, amount = row.spent_micro, row.budget.amount_micro
    return [
        _whose(row),
        f"{row.begins_at:%Y-%m-%d}" if row.budget.period == "day" else f"{row.begins_at:%Y-%m}",
        "-" if spent is None else amount_text(spent, row.budget.unit),
        amount_text(amount, row.budget.unit),
        "-" if spent is None else percent_text(spent, amount).removesuffix(" %"),
        row.state,
        duration(row.unpriced_ms / 1000) if row.unpriced_epochs else "0",
    ]


def _whose(row: BudgetRow) -> str:
    """Of a budget of each user `user.ada (users)`, and `users` for all who are not named."""
    return f"user.{row.user} ({row.budget.of})" if row.user is not None else row.budget.of


def _notes(seen: BudgetsSeen) -> Iterator[str]:
    from stado.cli.render import duration, plural
    from stado.cli.stories import moment_text

    known = seen.known
    if known is None:
        yield f"what is spent is not known yet: {_WHO}"
        return
    age = duration(max(0.0, (seen.now - known.at).total_seconds()))
    at = moment_text(known.at)
    if seen.old:
        yield (
            f"what is spent since {at}, {age} ago, is not known, and so who has something left: "
            f"{_WHO}"
        )
    else:
        yield f"as of {at}, {age} ago; what runs counts up to then, and goes on"
    if any(row.spent_micro is None for row in seen.rows):
        yield "unknown is what was set, or has begun anew, since then"
    others = [row for row in seen.rows if row.budget.of == "users" and row.user is None]
    if any(row.spent_micro is not None for row in others):
        yield "users: the most that any user has spent who is not named"
    over = max((row.over for row in others), default=0)
    if over:
        yield (
            f"{plural(over, 'more user')} {'has' if over == 1 else 'have'} spent all of a "
            "budget of users and are not held: there is room for the thousand who have spent most; "
            "`stado settings set budgets.rules` can set one of `all` or of a group beside"
        )
    if known.uncounted:
        yield (
            f"at least: {plural(known.uncounted, 'part')} of the ledger or of what runs could not "
            "be read"
        )
    epochs = max((row.unpriced_epochs for row in seen.rows), default=0)
    if epochs:
        yield (
            f"{plural(epochs, 'epoch')} without a price {'is' if epochs == 1 else 'are'} in no "
            "sum: state one with `stado hosts set NAME --price-per-hour` (for what is claimed from "
            "then on), or give the coordinator --prices FILE"
        )
    if any(row.budget.unit == "usd" for row in seen.rows):
        yield f"prices that no host stated: {known.prices}"


def _fields(seen: BudgetsSeen) -> dict[str, Any]:
    from stado.cli.render import instant_text

    known = seen.known
    return {
        "as_of": None if known is None else instant_text(known.at),
        "old": seen.old,
        "prices": None if known is None else known.prices,
        "uncounted": None if known is None else known.uncounted,
        "budgets": [_row_fields(row) for row in seen.rows],
    }


def _row_fields(row: BudgetRow) -> dict[str, Any]:
    from stado.cli.render import instant_text

    return {
        "budget": row.budget.text,
        "whose": row.budget.of,
        "user": row.user,
        "unit": row.budget.unit.value,
        "period": row.budget.period.value,
        "begins_at": instant_text(row.begins_at),
        "ends_at": instant_text(row.ends_at),
        "spent": None if row.spent_micro is None else row.spent_micro / 1_000_000,
        "amount": row.budget.amount_micro / 1_000_000,
        "share": None if row.share is None else round(row.share, 6),
        "state": row.state,
        "unpriced_seconds": row.unpriced_ms / 1000,
        "unpriced_epochs": row.unpriced_epochs,
        "over": row.over,
    }
