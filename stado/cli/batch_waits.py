"""`stado job why` of a batch: why its jobs wait, counted by reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stado.cli import render, views
from stado.core.states import State
from stado.jobs.health import Fleet
from stado.jobs.limit_sight import LimitSight
from stado.jobs.listings import Wanted, matching
from stado.jobs.status import states_of
from stado.jobs.waiting import waits_of

if TYPE_CHECKING:
    from stado.cli.selectors import Selection
    from stado.jobs.fitting import Wait
    from stado.jobs.repository import Repository

_LOOKED_AT_MAX = 200
"""Queued jobs whose reasons are worked out: a read each."""


@dataclass(frozen=True, slots=True)
class BatchWaits:
    """What was seen of a batch."""

    base_id: str
    states: dict[str, State]
    waits: list[tuple[Wait, list[str]]]
    """Reasons with the jobs that they are of, the most frequent first."""
    looked_at: int
    """Queued jobs whose reasons these are."""

    @property
    def queued(self) -> int:
        return sum(state is State.QUEUED for state in self.states.values())


def look_at_batch(repo: Repository, selection: Selection) -> BatchWaits:
    """Sixteen listings, a read an agent and a queued job (200 at most), and what limits cost."""
    wanted = set(selection.job_ids)
    found = states_of(repo, selection.base_id)
    states = {job_id: state for job_id, state in found.items() if job_id in wanted}
    listing = matching(
        repo, selection.base_id, limit=_LOOKED_AT_MAX, wanted=Wanted(states=(State.QUEUED,))
    )
    fleet = Fleet(repo)
    waits = waits_of(
        listing.queued,
        fleet.look(),
        repo.now_ms(),
        paused=listing.queue_paused,
        unread=len(fleet.unreadable),
        limits=LimitSight(repo),
    )
    by_code: dict[str, tuple[Wait, list[str]]] = {}
    for job_id, wait in waits.items():
        by_code.setdefault(wait.code, (wait, []))[1].append(job_id)
    told = sorted(by_code.values(), key=lambda one: -len(one[1]))
    return BatchWaits(selection.base_id, states, told, len(waits))


def print_batch(seen: BatchWaits) -> None:
    counts = views.count_text(seen.states.values())
    render.print_styled(render.styled(f"batch {seen.base_id}: {counts}", None, bold=True))
    for wait, job_ids in seen.waits:
        render.print_line()
        several = len(job_ids) > 1
        what = f"{len(job_ids):,} wait" if several else "1 waits"
        render.print_wrapped(f"{what} ({wait.code}), such as {job_ids[0]}: {wait.text}", indent=2)
        if wait.remedy is not None:
            render.print_wrapped(f"  -> {wait.remedy}", indent=5)
    render.print_line()
    if seen.looked_at < seen.queued:
        render.tell(f"of {seen.queued:,} queued jobs {seen.looked_at:,} were looked at")
    example = seen.waits[0][1][0] if seen.waits else next(iter(seen.states), seen.base_id)
    render.tell(f"one of them: `stado job why {example}`; all: `stado status {seen.base_id}`")


def batch_fields(seen: BatchWaits) -> dict[str, Any]:
    states = list(seen.states.values())
    return {
        "batch_id": seen.base_id,
        "count": len(states),
        "states": {state.value: states.count(state) for state in State if state in states},
        "looked_at": seen.looked_at,
        "waits": [
            {**views.wait_fields(wait), "count": len(job_ids), "job_id": job_ids[0]}
            for wait, job_ids in seen.waits
        ],
    }
