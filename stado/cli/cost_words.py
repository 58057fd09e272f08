"""What answers about cost are made of: amounts, tables, and what is said of what was looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from stado.cli import render
from stado.cli.stories import moment_text
from stado.cli.tables import Column
from stado.cli.usage_views import dark_notes
from stado.core.costs import Catalog
from stado.jobs.costs import Seen
from stado.jobs.usage import RUNNING_MAX

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
    """For JSON: to a millionth of a dollar."""
    return None if amount is None else round(amount, 6)


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The first column and those that begin with `-` are words, the others figures. No rows, no
    table."""
    rows = list(rows)
    if not rows:
        return []
    columns = [
        Column(title.removeprefix("-"), right=not (title.startswith("-") or not number))
        for number, title in enumerate(titles)
    ]
    return render.clean_table_lines(columns, rows)


def about_fields(seen: Seen, catalog: Catalog) -> dict[str, Any]:
    """What all answers about cost have."""
    return {
        "since": render.instant_text(seen.since),
        "until": render.instant_text(seen.until),
        "prices": {"as_of": catalog.as_of.isoformat(), "source": catalog.source},
        "unreadable": seen.unreadable,
        "unreadable_segments": seen.dark,
    }


def more_notes(rows: int, limit: int) -> Iterator[str]:
    if rows > limit:
        yield f"the first {limit:,} of {rows:,} rows: --limit N, or --json for all"


def since_note(seen: Seen, *, by_default: bool) -> str:
    days = " (30 days; --since WHEN for another time)" if by_default else ""
    return f"since {moment_text(seen.since)}{days}; what runs counts up to now"


def catalog_note(catalog: Catalog) -> str:
    return f"prices that no host stated: {catalog.source}, of {catalog.as_of.isoformat()}"


def trouble_notes(seen: Seen) -> Iterator[str]:
    if seen.running_cut:
        yield f"more than {RUNNING_MAX:,} jobs run: the rest of them is not counted"
    for job_id in seen.unreadable:
        yield f"{job_id} runs and cannot be read: it is not counted"
    yield from dark_notes(seen.dark)
