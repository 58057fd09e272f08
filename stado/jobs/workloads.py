"""Workloads: jobs of a declared kind that somebody starts on a host that has room for them, and
stops. They are jobs like all others from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from stado.core import keys
from stado.core.envelope import code_of
from stado.core.order import Needs, needs_of, needs_of_record
from stado.core.records import Record
from stado.core.spec import Spec
from stado.core.states import State
from stado.core.workload_places import choose_place
from stado.errors import Refused, Unreadable
from stado.jobs.fitting import Cause, Demand, views
from stado.jobs.health import AgentSight, Fleet
from stado.jobs.listings import Listing, Wanted, newest
from stado.jobs.queue_index import read_page
from stado.jobs.repository import PARALLEL_REQUESTS, Repository
from stado.jobs.sight import present_record
from stado.jobs.waiting import why_not_let_in
from stado.storage.port import LIST_LIMIT_MAX

_BEGUN_MAX = 100

_PAGES_MAX = 10
"""Of the queue, that are looked through for jobs that cannot be sessions."""


def place(repo: Repository, spec: Spec) -> str:
    """The worker that has room for it now. Raises `Refused` when there is none, with the first
    thing that is in the way. Three listings, and a read an agent and a job that began since the
    reports (100 at most)."""
    fleet = Fleet(repo)
    seen = fleet.look()
    needs = needs_of(spec)
    able = [view.sight for view in views(needs, seen) if view.cause is Cause.NONE]
    free = [sight.capacity for sight in able]
    # In this order: a job that is gone from the queue runs by then.
    waiting = {one.job_id: one.needs for one in read_page(repo).entries if one.needs.facts}
    taken = {**waiting, **_begun_since_reports(repo, able)}
    chosen = choose_place(needs, free, list(taken.values()))
    if chosen is not None:
        return chosen.consumer
    if free:
        names = ", ".join(sorted(one.consumer for one in free))
        raise Refused(
            "no_place",
            f"no worker has room for it: what is free on {names} is for jobs that are pinned there "
            "and wait, or has just been taken; try again in a moment",
        )
    wait = why_not_let_in(Demand(needs, spec), seen, repo.now_ms(), unread=len(fleet.unreadable))
    remedy = "try again when it has" if wait.remedy is None else wait.remedy
    raise Refused("no_place", f"no worker has room for it: {wait.text}; {remedy}")


def _begun_since_reports(repo: Repository, able: Sequence[AgentSight]) -> dict[str, Needs]:
    """Of jobs that were claimed on these hosts since they reported: what each asks for, as of one
    that only this host may run. One that cannot be read is left out."""
    if not able:
        return {}
    known = {one.capacity.consumer: {job.job_id for job in one.capacity.jobs} for one in able}
    oldest_seconds = max(one.age_seconds for one in able) + repo.deployment.tick_seconds
    since = repo.now() - timedelta(seconds=oldest_seconds)
    entries = repo.store.list(keys.prefix(State.RUNNING), limit=LIST_LIMIT_MAX)
    new = [entry.key for entry in entries if entry.modified_at >= since][:_BEGUN_MAX]

    def read(key: str) -> Record | None:
        try:
            found = repo.find(Record, key)
        except Unreadable as error:
            repo.tell_unreadable(error)
            return None
        return None if found is None else found.value

    found = repo.tasks.map(read, new, limit=PARALLEL_REQUESTS)
    return {
        record.id: _as_if_pinned(needs_of_record(record), record.holder.consumer)
        for record in found
        if record is not None
        and record.holder is not None
        and record.id not in known.get(record.holder.consumer, {record.id})
    }


def _as_if_pinned(needs: Needs, consumer: str) -> Needs:
    return replace(needs, facts=needs.facts | {code_of(f"host:{consumer}")})


def placed_before(repo: Repository, run_id: str) -> str | None:
    """The worker that was chosen when this run was submitted; None: there is no such run."""
    run = repo.find_run(run_id)
    return None if run is None else run.value.request.shared.pinned_host


def sessions(repo: Repository, *, ended: bool, limit: int) -> Listing:
    """Everybody's, the newest first; `ended`: those that have, too. Requests: as of `newest`, and a
    listing for each thousand jobs of the head of the queue: a job that is pinned to no worker is no
    session, and its record need not be read."""
    states = () if ended else tuple(state for state in State if not state.terminal)
    wanted = Wanted(states=states, workloads=True)
    return newest(repo, limit=limit, wanted=wanted, without=_pinned_nowhere(repo))


def _pinned_nowhere(repo: Repository) -> set[str]:
    found: set[str] = set()
    start_after = ""
    for _ in range(_PAGES_MAX):
        page = read_page(repo, start_after=start_after)
        found.update(entry.job_id for entry in page.entries if not entry.needs.facts)
        if page.next_after is None:
            break
        start_after = page.next_after
    return found


def present_session(repo: Repository, job_id: str) -> Record:
    """Raises `Refused` for a job that is no workload."""
    record = present_record(repo, job_id)
    if record.spec.workload_kind is None:
        raise Refused(
            "not_a_workload", f"job {job_id} is no workload: `stado cancel {job_id}` ends it"
        )
    return record
