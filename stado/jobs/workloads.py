"""Workloads: jobs of a declared kind that somebody starts on a host that has room for them, and
stops. They are jobs like all others from then on.
"""

from __future__ import annotations

from stado.core.order import needs_of
from stado.core.records import Record
from stado.core.spec import Spec
from stado.core.workload_places import choose_place
from stado.errors import Refused
from stado.jobs.fitting import Cause, Demand, views
from stado.jobs.health import Fleet
from stado.jobs.queue_index import read_page
from stado.jobs.repository import Repository
from stado.jobs.sight import present_record
from stado.jobs.waiting import why_not_let_in


def place(repo: Repository, spec: Spec) -> str:
    """The worker that has room for it now. Raises `Refused` when there is none, with the first
    thing that is in the way. Two listings, and a read an agent."""
    fleet = Fleet(repo)
    seen = fleet.look()
    needs = needs_of(spec)
    free = [view.capacity for view in views(needs, seen) if view.cause is Cause.NONE]
    pinned = [entry.needs for entry in read_page(repo).entries if entry.needs.facts]
    chosen = choose_place(needs, free, pinned)
    if chosen is not None:
        return chosen.consumer
    if free:
        names = ", ".join(sorted(one.consumer for one in free))
        raise Refused(
            "no_place",
            f"no worker has room for it: what is free on {names} is for jobs that are pinned there "
            "and wait; try again in a moment",
        )
    wait = why_not_let_in(Demand(needs, spec), seen, repo.now_ms(), unread=len(fleet.unreadable))
    remedy = "try again when it has" if wait.remedy is None else wait.remedy
    raise Refused("no_place", f"no worker has room for it: {wait.text}; {remedy}")


def placed_before(repo: Repository, run_id: str) -> str | None:
    """The worker that was chosen when this run was submitted; None: there is no such run."""
    run = repo.find_run(run_id)
    return None if run is None else run.value.request.shared.pinned_host


def present_session(repo: Repository, job_id: str) -> Record:
    """Raises `Refused` for a job that is no workload."""
    record = present_record(repo, job_id)
    if record.spec.workload_kind is None:
        raise Refused(
            "not_a_workload", f"job {job_id} is no workload: `stado cancel {job_id}` ends it"
        )
    return record
