"""What jobs cost and who bears it, as the commands show it. Asks no store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stado.cli import render
from stado.cli.cost_words import (
    about_fields,
    catalog_note,
    dollars,
    more_notes,
    rounded,
    since_note,
    table,
    trouble_notes,
)
from stado.cli.shown import Shown
from stado.cli.store_words import requests_text, traffic_text
from stado.cli.tables import Column
from stado.core.costs import (
    Catalog,
    CostSum,
    CostTally,
    store_cost,
)
from stado.jobs.costs import Idle, IdleReport, Seen

_FIELDS = {
    "target": "target",
    "model": "model",
    "user": "user",
    "group": "group",
    "batch": "batch_id",
    "job": "job_id",
    "schedule": "schedule",
    "host": "worker",
    "day": "day",
}
_OF_NONE = "(none)"


# --- what jobs cost -----------------------------------------------------------------------


def report(
    tally: CostTally, seen: Seen, catalog: Catalog, *, by: str, limit: int, by_default: bool
) -> Shown:
    """`limit`: of the lines; JSON has all. `by_default`: nobody said from when on."""
    groups, total = _ordered(tally, by), tally.total()
    return Shown(
        lambda: {
            **about_fields(seen, catalog),
            "by": by,
            "total": _sum_fields(total, catalog),
            "groups": [{_FIELDS[by]: name, **_sum_fields(one, catalog)} for name, one in groups],
        },
        _report_lines(groups, total, catalog, by=by, limit=limit),
        [
            *more_notes(len(groups), limit),
            *_sum_notes(total, seen, catalog, by_default=by_default),
        ],
    )


def _ordered(tally: CostTally, by: str) -> list[tuple[str | None, CostSum]]:
    """The dearest first, days by their dates."""
    groups = tally.groups.items()
    if by == "day":
        return sorted(groups, key=lambda each: each[0] or "")
    return sorted(groups, key=lambda each: (-each[1].dollars, -each[1].unpriced_ms, each[0] or ""))


def _sum_fields(group: CostSum, catalog: Catalog) -> dict[str, Any]:
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
        "store": _store_fields(group, catalog),
    }


def _store_fields(group: CostSum, catalog: Catalog) -> dict[str, Any]:
    """Null: of none of these epochs it is known."""
    known = bool(group.metered_epochs)
    return {
        "cost_usd": rounded(store_cost(group, catalog)),
        "writes": group.dear if known else None,
        "reads": group.cheap if known else None,
        "received_bytes": group.received_bytes if known else None,
        "sent_bytes": group.sent_bytes if known else None,
        "unknown_epochs": group.epochs - group.metered_epochs,
    }


def _report_lines(
    groups: Sequence[tuple[str | None, CostSum]],
    total: CostSum,
    catalog: Catalog,
    *,
    by: str,
    limit: int,
) -> list[str]:
    if not groups:
        return []
    shown = [(name or _OF_NONE, one) for name, one in groups[:limit]]
    if len(groups) > 1:
        shown.append(("total", total))
    rows = [_sum_cells(name, one) for name, one in shown]
    columns = [
        Column(by.upper(), width_max=40),
        Column("COST", right=True),
        Column("A JOB", right=True),
        Column("COMPLETED", right=True),
        Column("OF IT FAILED", right=True),
        Column("TIME", right=True),
        Column("UNPRICED", right=True),
    ]
    if not total.unpriced_epochs:
        del columns[-1]
        rows = [row[:-1] for row in rows]
    if total.dear or total.cheap:
        columns += [
            Column("STORE", right=True),
            Column("REQUESTS", right=True, expendable=True),
            Column("TRAFFIC", right=True, expendable=True),
        ]
        rows = [row + _store_cells(one, catalog) for row, (_, one) in zip(rows, shown, strict=True)]
    return render.clean_table_lines(columns, rows)


def _sum_cells(name: str, group: CostSum) -> list[str]:
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


def _store_cells(group: CostSum, catalog: Catalog) -> list[str]:
    if not group.metered_epochs:
        return ["unknown"] * 3
    traffic = render.size_text(group.received_bytes + group.sent_bytes)
    return [dollars(store_cost(group, catalog)), f"{group.dear + group.cheap:,}", traffic]


def _unpriced(group: CostSum) -> str:
    if not group.unpriced_epochs:
        return "0"
    epochs = render.plural(group.unpriced_epochs, "epoch")
    return f"{epochs}, {render.duration(group.unpriced_ms / 1000)}"


def _sum_notes(total: CostSum, seen: Seen, catalog: Catalog, *, by_default: bool) -> Iterator[str]:
    if not total.epochs:
        yield "nothing ran in this time"
    yield since_note(seen, by_default=by_default)
    if total.unpriced_epochs:
        yield (
            f"{_unpriced(total)} have no price and are in no sum: state one with `stado hosts set "
            "NAME --price-per-hour` (for what is claimed from then on), or --prices FILE"
        )
    if catalog.gb_month is not None and total.output_bytes:
        month = total.output_bytes / 1e9 * catalog.gb_month
        size = render.size_text(total.output_bytes)
        yield f"besides, their output, {size}, costs {dollars(month)} a month to keep"
    yield from _store_notes(total, catalog)
    yield catalog_note(catalog)
    yield from trouble_notes(seen)


def _store_notes(total: CostSum, catalog: Catalog) -> Iterator[str]:
    """Nothing of a directory: it is asked nothing that anybody bills."""
    if not total.dear and not total.cheap:
        return
    cost = store_cost(total, catalog)
    yield (
        f"besides, what they asked of the store, {requests_text(total.dear, total.cheap)}, "
        f"{'has no price' if cost is None else f'costs {dollars(cost)}'}; "
        f"{traffic_text(total.received_bytes, total.sent_bytes)}"
    )
    if catalog.egress_gb is None and total.received_bytes:
        yield (
            "what hosts received is counted as free, as it is within a provider's region: else "
            "state storage.egress_gb in a file of prices"
        )
    unknown = total.epochs - total.metered_epochs
    if unknown:
        epochs = render.plural(unknown, "epoch")
        yield (
            f"what {epochs} asked of the store is not known: they run, were lost, are older, or "
            "have very long names"
        )


# --- who bears it, and what nobody does ---------------------------------------------------


def allocation(
    tally: CostTally,
    idle: IdleReport,
    seen: Seen,
    catalog: Catalog,
    *,
    limit: int,
    by_default: bool,
) -> Shown:
    groups = _ordered(tally, "user")
    whole = tally.total().dollars
    hosts = sorted(idle.hosts, key=lambda each: -each.idle)
    shares = [(name, one, one.dollars / whole if whole else None) for name, one in groups]
    lines = table(
        ("USER", "COST", "PART", "UNPRICED EPOCHS"),
        [
            [
                str(name),
                dollars(one.known),
                "-" if share is None else f"{100 * share:.1f} %",
                f"{one.unpriced_epochs:,}",
            ]
            for name, one, share in shares[:limit]
        ],
    )
    if hosts:
        lines += [
            "",
            *table(("HOST", "AN HOUR", "A WHOLE DAY", "OF IT IDLE"), map(_idle_cells, hosts)),
        ]
    notes = [*more_notes(len(groups), limit)]
    if hosts:
        notes.append(
            "hosts: what a day would cost at their price if they were there all of it, and what "
            "of that the jobs of the last 24 hours did not bear; neither is in the sums above"
        )
    if idle.unpriced:
        notes.append(f"{render.plural(idle.unpriced, 'host')} at work without a price")
    return Shown(
        lambda: {
            **about_fields(seen, catalog),
            "total": _sum_fields(tally.total(), catalog),
            "users": [
                {
                    "user": name,
                    "share": None if share is None else round(share, 6),
                    **_sum_fields(one, catalog),
                }
                for name, one, share in shares
            ],
            "hosts": [_idle_fields(one) for one in idle.hosts],
            "hosts_unpriced": idle.unpriced,
        },
        lines,
        [*notes, *_sum_notes(tally.total(), seen, catalog, by_default=by_default)],
    )


def _idle_fields(host: Idle) -> dict[str, Any]:
    return {
        "worker": host.consumer,
        "price_per_hour": host.price_per_hour,
        "last_day_usd": rounded(host.day_dollars),
        "idle_usd": rounded(host.idle),
    }


def _idle_cells(host: Idle) -> list[str]:
    price = f"${host.price_per_hour:g}"
    return [host.consumer, price, dollars(host.day_dollars), dollars(host.idle)]
