"""Why a queued job has not started: the gates in order, and what would open the first closed one.

Nothing here decides: the same predicate lets jobs in (`stado.core.admission`), on what the agents
last said of themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

from stado.core.admission import Offer, Refusal, admit
from stado.core.ids import milliseconds
from stado.core.order import Needs, needs_of
from stado.core.records import Capacity
from stado.core.spec import Spec
from stado.jobs.health import AgentSight, agents, queue_paused
from stado.jobs.queue_index import read_page
from stado.jobs.repository import Repository


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a job waits. `code` as in `Refusal`; `remedy` None: it needs none but time."""

    code: str
    text: str
    remedy: str | None = None


def why_queued(repo: Repository, spec: Spec) -> Wait:
    """Of a queued job with this spec. Two listings and a read an agent."""
    if queue_paused(repo):
        return Wait("queue_paused", "the queue is paused", "`stado queue resume` lets it go on")
    return _why_not_let_in(needs_of(spec), agents(repo), milliseconds(repo.now()))


def hopeless(repo: Repository) -> dict[str, list[str]]:
    """Of the head of the queue (a thousand jobs), those that no worker which is there will ever
    start: the reason to their ids. Two listings and a read an agent."""
    seen, now_ms = agents(repo), milliseconds(repo.now())
    found: dict[str, list[str]] = {}
    if not any(sight.alive for sight in seen):
        return found
    for entry in read_page(repo).entries:
        wait = _why_not_let_in(entry.needs, seen, now_ms)
        if wait.code in ("deadline_passed", "no_eligible_worker"):
            found.setdefault(wait.text, []).append(entry.job_id)
    return found


def _why_not_let_in(needs: Needs, seen: list[AgentSight], now_ms: int) -> Wait:
    refusal = admit(needs, Offer(needs.cpu_milli, needs.memory_mib), now_ms=now_ms)
    if refusal is not None:
        return Wait(refusal.code, refusal.text, "cancel it, and submit it again with a later one")
    working = [sight.capacity for sight in seen if sight.alive and not sight.capacity.draining]
    if not working:
        return Wait(
            "no_eligible_worker",
            "no worker is at work" if not seen else "no worker is at work now",
            "`stado up` here, or `stado agent run` on a host, starts one",
        )
    refusals = [admit(needs, _total(one), now_ms=now_ms) for one in working]
    if all(refusals):
        return _too_large(needs, working, refusals)
    free = [admit(needs, _free(one), now_ms=now_ms) for one in working]
    if all(free):
        return Wait("waiting_capacity", f"{_workers(working)} busy: it waits for room")
    return Wait("starting", "a worker has room for it: it should start in a moment")


def _too_large(needs: Needs, working: list[Capacity], refusals: list[Refusal | None]) -> Wait:
    cores = max(one.cpu_total for one in working)
    memory = max(one.memory_total_gb for one in working)
    return Wait(
        "no_eligible_worker",
        f"it needs {needs.cpu_milli / 1000:g} cores and {needs.memory_mib / 1024:g} GiB, and no "
        f"worker is so large: of {len(refusals)} at work the largest has {cores:g} cores, "
        f"the largest memory is {memory:.1f} GiB",
        "start a larger worker, or submit it with less",
    )


def _workers(working: list[Capacity]) -> str:
    return f"{working[0].consumer} is" if len(working) == 1 else f"all {len(working)} workers are"


def _total(capacity: Capacity) -> Offer:
    return Offer(round(capacity.cpu_total * 1000), round(capacity.memory_total_gb * 1024))


def _free(capacity: Capacity) -> Offer:
    return Offer(round(capacity.cpu_free * 1000), round(capacity.memory_free_gb * 1024))
