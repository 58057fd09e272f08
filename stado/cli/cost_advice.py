"""What costs tell of what is to come, stands out, or could be saved, as the commands show it. Asks
no store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stado.cli import render
from stado.cli.cost_words import about_fields, dollars, more_notes, rounded, table, trouble_notes
from stado.cli.shown import Shown
from stado.core.costs import Anomaly, Catalog, CostForecast, Estimate, Saving
from stado.jobs.costs import Seen

_TELLING_MIN = 5
"""Fewer observed jobs say little of a spread."""


# --- what is to come ----------------------------------------------------------------------


def forecast(told: CostForecast, seen: Seen, catalog: Catalog) -> Shown:
    line = (
        f"{told.month}: {dollars(told.dollars)}, of which {dollars(told.spent)} are spent and "
        f"{told.days_left:.1f} days at {dollars(told.per_day)} are to come"
    )
    unpriced = told.unpriced_epochs
    of_it = [f"{render.plural(unpriced, 'epoch')} of it without a price"] if unpriced else []
    return Shown(
        lambda: {
            **about_fields(seen, catalog),
            "month": told.month,
            "spent_usd": rounded(told.spent),
            "per_day_usd": rounded(told.per_day),
            "days_left": round(told.days_left, 3),
            "cost_usd": rounded(told.dollars),
            "unpriced_epochs": unpriced,
        },
        [line],
        [*of_it, *trouble_notes(seen)],
    )


def estimates(
    found: Sequence[Estimate], seen: Seen, catalog: Catalog, *, model: str, jobs: int
) -> Shown:
    """`found`: one a target, at least one."""
    notes = [f"{render.plural(jobs, 'job')} of {model}; the spread has eight of ten observed jobs"]
    if min(len(one.observed.dollars) for one in found) < _TELLING_MIN:
        notes.append("fewer than five observed jobs tell little of a spread")
    return Shown(
        lambda: {
            **about_fields(seen, catalog),
            "model": model,
            "jobs": jobs,
            "targets": [_estimate_fields(one) for one in found],
        },
        table(
            ("TARGET", "COST", "SPREAD", "A JOB", "TIME A JOB", "OBSERVED"),
            map(_estimate_cells, found),
        ),
        [*notes, *trouble_notes(seen)],
    )


def _estimate_fields(one: Estimate) -> dict[str, Any]:
    return {
        "target": one.observed.target,
        "cost_usd": rounded(one.dollars),
        "low_usd": rounded(one.low),
        "high_usd": rounded(one.high),
        "cost_usd_per_job": rounded(one.observed.median),
        "hours_per_job": round(one.observed.hours, 4),
        "observed_jobs": len(one.observed.dollars),
    }


def _estimate_cells(one: Estimate) -> list[str]:
    return [
        one.observed.target,
        dollars(one.dollars),
        f"{dollars(one.low)} to {dollars(one.high)}",
        dollars(one.observed.median),
        render.duration(one.observed.hours * 3600),
        f"{len(one.observed.dollars):,}",
    ]


# --- what stands out ----------------------------------------------------------------------


def anomalies(found: Sequence[Anomaly], seen: Seen, catalog: Catalog, *, limit: int) -> Shown:
    return _found(
        "anomalies",
        [
            {
                "job_id": one.job_id,
                "model": one.model,
                "target": one.target,
                "cost_usd": rounded(one.dollars),
                "median_usd": rounded(one.median),
            }
            for one in found
        ],
        table(
            ("JOB", "COST", "MEDIAN", "-MODEL", "-TARGET"),
            [
                [one.job_id, dollars(one.dollars), dollars(one.median), one.model, one.target]
                for one in found[:limit]
            ],
        ),
        (seen, catalog),
        limit=limit,
        nothing="no job stands out",
    )


def savings(found: Sequence[Saving], seen: Seen, catalog: Catalog, *, limit: int) -> Shown:
    return _found(
        "savings",
        [
            {
                "model": one.model,
                "target": one.target,
                "cheapest": one.cheapest,
                "jobs": one.jobs,
                "saving_usd": rounded(one.dollars),
            }
            for one in found
        ],
        table(
            ("MODEL", "SAVED", "JOBS", "-RAN ON", "-CHEAPEST ON"),
            [
                [one.model, dollars(one.dollars), f"{one.jobs:,}", one.target, one.cheapest]
                for one in found[:limit]
            ],
        ),
        (seen, catalog),
        limit=limit,
        nothing="nothing to save is known",
    )


def _found(
    name: str,
    fields: Sequence[dict[str, Any]],
    lines: Sequence[str],
    about: tuple[Seen, Catalog],
    *,
    limit: int,
    nothing: str,
) -> Shown:
    """All of what was found as fields, some as lines, or that it is `nothing`."""
    return Shown(
        lambda: {**about_fields(*about), name: fields},
        lines or [nothing],
        [*more_notes(len(fields), limit), *trouble_notes(about[0])],
    )
