"""What jobs have used: a table, fields of JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from stado.cli import render
from stado.cli.stories import moment_text
from stado.cli.tables import Column
from stado.core.pipelines import PIPELINE_PREFIX
from stado.jobs.usage import RUNNING_MAX, Question, Sum, UsageReport

_FIELDS = {
    "user": "user",
    "group": "group",
    "job": "job_id",
    "pipeline": "pipeline_id",
    "model": "model",
    "target": "target",
    "day": "day",
}
_OF_NONE = "(none)"


def usage_fields(
    question: Question, report: UsageReport, *, limit: int | None = None
) -> dict[str, Any]:
    """`limit`: of the groups; None: all of them."""
    field = _FIELDS[question.by]
    return {
        "since": render.instant_text(report.since),
        "until": render.instant_text(report.until),
        "user": question.user,
        "by": question.by,
        "running": {
            "jobs": len(report.running),
            "gpus": report.running_gpus,
            "more": report.running_cut,
        },
        "total": _sum_fields(report.tally.total),
        "groups": [
            {field: _shown(question, name), **_sum_fields(group)}
            for name, group in _ordered(question, report)[:limit]
        ],
        "unreadable": report.unreadable,
        "unreadable_segments": report.dark,
    }


def _sum_fields(group: Sum) -> dict[str, Any]:
    return {
        "gpu_seconds": group.gpu_ms / 1000,
        "gpu_share_seconds": round(group.share_ms / 1000, 3),
        "wall_seconds": group.wall_ms / 1000,
        "epochs": group.epochs,
        "running": group.running,
        "estimated": group.estimated,
    }


def usage_lines(question: Question, report: UsageReport, *, limit: int) -> Iterator[str]:
    """What runs now, then a row a group, then all together."""
    more = "more than " if report.running_cut else ""
    jobs, gpus = len(report.running), report.running_gpus
    yield f"running now: {more}{render.plural(jobs, 'job')} on {render.plural(gpus, 'GPU')}"
    groups = _ordered(question, report)
    if not groups:
        return
    rows = [_cells(_shown(question, name) or _OF_NONE, group) for name, group in groups[:limit]]
    if len(groups) > 1:
        rows.append(_cells("total", report.tally.total))
    columns = [
        Column(question.by.upper(), width_max=40),
        Column("GPU-HOURS", right=True),
        Column("OF SHARED", right=True),
        Column("TIME", right=True),
        Column("EPOCHS", right=True),
        Column("RUNNING", right=True),
    ]
    if report.tally.total.share_ms == report.tally.total.gpu_ms:
        del columns[2]
        rows = [[*row[:2], *row[3:]] for row in rows]
    yield from render.clean_table_lines(columns, rows)


def notes(
    question: Question, report: UsageReport, *, limit: int, by_default: bool
) -> Iterator[str]:
    if not report.tally.groups:
        yield "nothing was used in this time"
    more = more_text(report, limit=limit)
    if more is not None:
        yield f"{more}: --limit N, or --json for all"
    whose = "everybody" if question.user is None else question.user
    days = " (30 days; --since WHEN for another time)" if by_default else ""
    yield f"used by {whose} since {moment_text(report.since)}{days}"
    if report.tally.total.estimated:
        yield "~ partly estimated: where a host was lost, its last sign of life counts as the end"
    if report.running_cut:
        yield f"more than {RUNNING_MAX:,} jobs run: the rest of them is not counted"
    for job_id in report.unreadable:
        yield f"{job_id} runs and cannot be read: it is not counted"
    yield from dark_notes(report.dark)


def dark_notes(dark: Iterable[str]) -> Iterator[str]:
    """Of segments that cannot be read."""
    for key in dark:
        yield f"{key} cannot be read, and what it holds is not counted: `stado ledger rebuild`"


def more_text(report: UsageReport, *, limit: int) -> str | None:
    """None where all of it is shown."""
    groups = len(report.tally.groups)
    return f"the first {limit:,} of {groups:,} rows" if groups > limit else None


def _ordered(question: Question, report: UsageReport) -> list[tuple[str | None, Sum]]:
    """Who used most first; days by the calendar, the last one first."""
    groups = list(report.tally.groups.items())
    if question.by == "day":
        return sorted(groups, key=lambda one: one[0] or "", reverse=True)
    return sorted(groups, key=lambda one: (-one[1].gpu_ms, -one[1].wall_ms, one[0] or ""))


def _shown(question: Question, name: str | None) -> str | None:
    if question.by == "pipeline" and name is not None:
        return f"{PIPELINE_PREFIX}{name}"
    return name


def _cells(name: str, group: Sum) -> list[str]:
    mark = "~" if group.estimated else ""
    return [
        name,
        f"{mark if group.gpu_ms else ''}{render.hours_text(group.gpu_ms)}",
        f"{mark if group.share_ms else ''}{render.hours_text(group.share_ms)}",
        f"{mark}{render.duration(group.wall_ms / 1000)}",
        f"{group.epochs:,}",
        f"{group.running:,}",
    ]
