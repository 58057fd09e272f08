"""What jobs cost: tables, fields of JSON, and what is to be said of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from stado.cli import render
from stado.cli.stories import moment_text
from stado.cli.tables import Column
from stado.cli.usage_views import dark_notes
from stado.core.costs import Catalog, CostSum, CostTally
from stado.jobs.costs import Seen
from stado.jobs.usage import RUNNING_MAX

_FIELDS = {
    "target": "target",
    "model": "model",
    "user": "user",
    "batch": "batch_id",
    "job": "job_id",
    "schedule": "schedule",
    "host": "worker",
    "day": "day",
}
_OF_NONE = "(none)"
UNPRICED = "unpriced"
_A_CENT = 0.01


def dollars(amount: float | None) -> str:
    """`$1,234.50`, `$0.0042`; a little is not nothing: `<$0.0001`; what has no price is
    `unpriced`."""
    if amount is None:
        return UNPRICED
    if 0 < amount < _A_CENT:
        return "<$0.0001" if amount < _A_CENT / 100 else f"${amount:.4f}"
    return f"${amount:,.2f}"


def rounded(amount: float | None) -> float | None:
    return None if amount is None else round(amount, 6)


def sum_fields(group: CostSum) -> dict[str, Any]:
    return {
        "cost_usd": rounded(group.known),
        "failed_cost_usd": None if group.known is None else rounded(group.failed_dollars),
        "cost_usd_per_job": rounded(group.per_job),
        "jobs_completed": group.completed,
        "epochs": group.epochs,
        "running": group.running,
        "wall_seconds": group.wall_ms / 1000,
        "unpriced_epochs": group.unpriced_epochs,
        "unpriced_seconds": group.unpriced_ms / 1000,
        "output_bytes": group.output_bytes,
    }


def report_fields(
    tally: CostTally, seen: Seen, *, by: str, catalog: Catalog, limit: int | None
) -> dict[str, Any]:
    return {
        **about_fields(seen, catalog),
        "by": by,
        "total": sum_fields(tally.total()),
        "groups": [{_FIELDS[by]: name, **sum_fields(one)} for name, one in ordered(tally, by)][
            :limit
        ],
    }


def about_fields(seen: Seen, catalog: Catalog) -> dict[str, Any]:
    """What all answers about cost have."""
    return {
        "since": render.instant_text(seen.since),
        "until": render.instant_text(seen.until),
        "prices": {"as_of": catalog.as_of.isoformat(), "source": catalog.source},
        "unreadable": seen.unreadable,
        "unreadable_segments": seen.dark,
    }


def ordered(tally: CostTally, by: str) -> list[tuple[str | None, CostSum]]:
    """The dearest first, days by their dates."""
    groups = tally.groups.items()
    if by == "day":
        return sorted(groups, key=lambda each: each[0] or "")
    return sorted(groups, key=lambda each: (-each[1].dollars, -each[1].unpriced_ms, each[0] or ""))


def report_lines(tally: CostTally, *, by: str, limit: int) -> Iterator[str]:
    groups = ordered(tally, by)
    if not groups:
        return
    rows = [_cells(name or _OF_NONE, one) for name, one in groups[:limit]]
    if len(groups) > 1:
        rows.append(_cells("total", tally.total()))
    columns = [
        Column(by.upper(), width_max=40),
        Column("COST", right=True),
        Column("A JOB", right=True),
        Column("COMPLETED", right=True),
        Column("OF IT FAILED", right=True),
        Column("TIME", right=True),
        Column("UNPRICED", right=True),
    ]
    if not tally.total().unpriced_epochs:
        del columns[-1]
        rows = [row[:-1] for row in rows]
    yield from render.clean_table_lines(columns, rows)


def _cells(name: str, group: CostSum) -> list[str]:
    failed = "-" if group.known is None else dollars(group.failed_dollars)
    return [
        name,
        dollars(group.known),
        "-" if group.per_job is None else dollars(group.per_job),
        f"{group.completed:,}",
        failed,
        render.duration(group.wall_ms / 1000),
        _unpriced(group),
    ]


def _unpriced(group: CostSum) -> str:
    if not group.unpriced_epochs:
        return "0"
    epochs = render.plural(group.unpriced_epochs, "epoch")
    return f"{epochs}, {render.duration(group.unpriced_ms / 1000)}"


def notes(
    total: CostSum, seen: Seen, catalog: Catalog, *, by_default: bool = False
) -> Iterator[str]:
    if not total.epochs:
        yield "nothing ran in this time"
    days = " (30 days; --since WHEN for another time)" if by_default else ""
    yield f"since {moment_text(seen.since)}{days}; what runs counts up to now"
    if total.unpriced_epochs:
        yield (
            f"{_unpriced(total)} have no price and are in no sum: state one with `stado hosts set "
            "NAME --price-per-hour` (for what is claimed from then on), or --prices FILE"
        )
    if catalog.gb_month is not None and total.output_bytes:
        month = total.output_bytes / 1e9 * catalog.gb_month
        size = render.size_text(total.output_bytes)
        yield f"besides, their output, {size}, costs {dollars(month)} a month to keep"
    yield f"prices that no host stated: {catalog.source}, of {catalog.as_of.isoformat()}"
    yield from trouble_notes(seen)


def trouble_notes(seen: Seen) -> Iterator[str]:
    if seen.running_cut:
        yield f"more than {RUNNING_MAX:,} jobs run: the rest of them is not counted"
    for job_id in seen.unreadable:
        yield f"{job_id} runs and cannot be read: it is not counted"
    yield from dark_notes(seen.dark)


def more_text(rows: int, limit: int) -> Iterator[str]:
    if rows > limit:
        yield f"the first {limit:,} of {rows:,} rows: --limit N, or --json for all"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The first column and those that begin with `-` are words, the others figures."""
    columns = [
        Column(title.removeprefix("-"), right=not (title.startswith("-") or not number))
        for number, title in enumerate(titles)
    ]
    yield from render.clean_table_lines(columns, list(rows))
