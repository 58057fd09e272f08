"""What people type, and which jobs they mean by it.

A job id, the base id of a batch, a run id, `last` (the newest submission of who asks), or a part
of an id that names one thing only; for some commands also `all`. Blanks around it are forgiven,
and capital letters in ids.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from stado.cli.views import count_text
from stado.core import ids
from stado.core.pipelines import PIPELINE_PREFIX, root_of_step
from stado.core.records import RunRecord
from stado.core.states import State
from stado.errors import Refused, Unreadable
from stado.jobs.finding import Found, find_job, was_deleted
from stado.jobs.listings import newest
from stado.jobs.ownership import ended_jobs_of, live_jobs_of, newest_bases_of, some_run_ids
from stado.jobs.repository import PARALLEL_REQUESTS, Repository, Stored
from stado.jobs.status import SEARCH_PAGES_MAX, Matches, near_matches, states_of
from stado.jobs.submission import job_ids_of
from stado.storage.port import LIST_LIMIT_MAX

LAST = "last"
ALL = "all"
PART_LENGTH_MIN = 3
CANDIDATES_MAX = 8
_LAST_LOOKED_AT_MAX = 200
"""Submissions of somebody among which `last` is looked for: the others are steps."""

_SEARCH_LIMIT = SEARCH_PAGES_MAX * LIST_LIMIT_MAX

_NEAR_IDS = 300
_NEAR_RECORDS = 32
_NEAR_ID_MIN = 0.75
"""Ids of one day begin alike, which alone makes them no better guess."""

_NEAR_RUN_MIN = 0.6


@dataclass(frozen=True, slots=True)
class Selection:
    """The jobs that somebody named, in order."""

    text: str
    job_ids: list[str]
    batch: bool
    """Whether a batch is meant, be it of a single job; or `all`."""
    run: Stored[RunRecord] | None = None
    """When it was named by its run id, or is a batch whose run could be read."""

    @property
    def base_id(self) -> str:
        return ids.base_of(self.job_ids[0])

    @property
    def unfinished(self) -> Stored[RunRecord] | None:
        """The run, where its submission was interrupted: not all of its jobs may be there yet."""
        return None if self.run is None or self.run.value.complete else self.run


def select(repo: Repository, text: str, *, user: str) -> Selection:
    """The jobs that `text` names. Raises `Refused` when it names nothing, or several things."""
    found = find_selection(repo, text, user=user)
    if found is not None:
        return found
    if means_all(text):
        raise Refused("job_not_single", f"{text!r} cannot be said here: name the jobs")
    if text.strip().startswith(PIPELINE_PREFIX):
        raise _is_pipeline(text.strip())
    return _select_by_part(repo, text.strip())


def select_job(repo: Repository, text: str, *, user: str, command: str) -> str:
    """The one job that `text` names. Raises `Refused` as `select` does, or for a larger batch,
    with `command` as an example for one of its jobs."""
    selection = select(repo, text, user=user)
    if len(selection.job_ids) > 1:
        raise Refused(
            "job_not_single",
            f"{text!r} names a batch of {len(selection.job_ids)} jobs: name one of them, such as "
            f"`{command} {selection.job_ids[0]}`; `stado status {selection.base_id}` lists them",
        )
    return selection.job_ids[0]


def select_even_deleted(repo: Repository, text: str, *, user: str, command: str) -> str:
    """As `select_job`; a job that was deleted is found by its whole id."""
    typed = text.strip().lower()
    if ids.is_job_id(typed) and was_deleted(repo, typed):
        return typed
    return select_job(repo, text, user=user, command=command)


def named_or_newest(repo: Repository, text: str | None, *, user: str, command: str) -> str:
    """As `select_job`; where nothing was typed the user's newest job, which is told first."""
    from stado.cli import render

    job_id = select_job(repo, text if text is not None else LAST, user=user, command=command)
    if text is None:
        render.tell(f"job {job_id}, your newest")
    return job_id


def find_selection(repo: Repository, text: str, *, user: str) -> Selection | None:
    """As `select` for what is named exactly, else None."""
    typed = text.strip()
    if typed.lower() == LAST:
        return _select_last(repo, user)
    return _select_by_id(repo, typed.lower()) or _select_by_run(repo, typed)


def means_all(text: str) -> bool:
    return text.strip().lower() == ALL


def select_live(repo: Repository, *, user: str) -> Selection:
    """Every job of a user that has not ended. It may be none."""
    return Selection(ALL, list(live_jobs_of(repo, user)), batch=True)


def select_ended(repo: Repository, *, user: str) -> Selection:
    """Every job of a user that has ended. It may be none."""
    matches = ended_jobs_of(repo, user)
    if matches.cut:
        raise Refused(
            "search_cut", "there are too many jobs here to look for all of yours: name a run id"
        )
    return Selection(ALL, matches.job_ids, batch=True)


def listed(names: Iterable[str], *, count: int = CANDIDATES_MAX) -> str:
    """`a, b, c, 4 more`."""
    found = list(names)
    rest = len(found) - count
    return ", ".join(found[:count]) + (f", {rest} more" if rest > 0 else "")


def _select_last(repo: Repository, user: str) -> Selection:
    """Steps that were launched meanwhile are not what somebody has submitted."""
    looked_at = 0
    for base, found in _newest_found(repo, user):
        looked_at += 1
        if found is not None and root_of_step(found.record) is not None:
            continue
        selection = (
            Selection(LAST, [base], batch=False) if found is not None else _select_by_id(repo, base)
        )
        if selection is None:
            raise Refused(
                "job_unknown", f"the jobs of your last submission, {base}, cannot be found"
            )
        return replace(selection, text=LAST)
    if looked_at:
        raise Refused(
            "search_cut",
            f"the newest {looked_at} jobs of {user} are steps of pipelines: name what you mean by "
            "its run id, or by its job id (`stado jobs`)",
        )
    raise Refused("job_unknown", f"{user} has submitted nothing here yet: `stado submit` does")


def _newest_found(repo: Repository, user: str) -> Iterator[tuple[str, Found | None]]:
    """The base ids of a user's newest submissions, each with its job; None of a batch. The newest
    is looked for alone, for mostly it is what was meant, the others many at once."""
    bases = itertools.islice(newest_bases_of(repo, user), _LAST_LOOKED_AT_MAX)
    page = list(itertools.islice(bases, 1))
    while page:
        found = repo.tasks.map(lambda base: find_job(repo, base), page, limit=PARALLEL_REQUESTS)
        yield from zip(page, found, strict=True)
        page = list(itertools.islice(bases, PARALLEL_REQUESTS))


def _select_by_id(repo: Repository, text: str) -> Selection | None:
    if not ids.is_job_id(text):
        return None
    if find_job(repo, text) is not None:
        return Selection(text, [text], batch=False)
    members = sorted(states_of(repo, f"{text}-")) if "-" not in text else []
    if members:
        return _batch(repo, text, members)
    if was_deleted(repo, text):
        raise Refused("job_deleted", f"job {text} was deleted")
    return None


def _batch(repo: Repository, text: str, listed_ids: list[str]) -> Selection:
    """All of a batch. What is listed may lack a job that moves meanwhile, and those that an
    interrupted submission has not made yet: its run names them."""
    run = _run_of(repo, listed_ids[0])
    if run is None or run.value.base_id != ids.base_of(listed_ids[0]):
        return Selection(text, listed_ids, batch=True)
    return Selection(text, _not_deleted(run.value), batch=True, run=run)


def _not_deleted(run: RunRecord) -> list[str]:
    """Raises `Refused` where none is left."""
    deleted = set(run.deleted)
    job_ids = [one for one in job_ids_of(run) if ids.number_in(one, run.base_id) not in deleted]
    if not job_ids:
        what = (
            f"the jobs of run {run.run_id} were" if run.request.batch else f"job {run.base_id} was"
        )
        raise Refused("job_deleted", f"{what} deleted")
    return job_ids


def _run_of(repo: Repository, job_id: str) -> Stored[RunRecord] | None:
    """None where what tells cannot be read, or has gone."""
    try:
        found = find_job(repo, job_id)
        return repo.find_run(found.record.run_id) if found is not None else None
    except Unreadable:
        return None


def _select_by_run(repo: Repository, text: str) -> Selection | None:
    run = repo.find_run(text) if ids.is_run_id(text) else None
    if run is None:
        return None
    return Selection(text, _not_deleted(run.value), batch=run.value.request.batch, run=run)


def _is_pipeline(text: str) -> Refused:
    root = text.removeprefix(PIPELINE_PREFIX)
    return Refused(
        "job_not_single",
        f"{text!r} is a pipeline, and here a job is meant: its root {root}, or a step of it "
        f"(`stado pipeline show {text}`)",
    )


def _select_by_part(repo: Repository, text: str) -> Selection:
    matches = _matches(repo, text)
    if not matches.cut:
        return _chosen(repo, text, matches)
    raise Refused(
        "search_cut",
        f"there are too many jobs to look for {text!r} in all their ids: type the whole id, or "
        "the run id",
    )


def _chosen(repo: Repository, text: str, matches: Matches) -> Selection:
    job_ids = matches.job_ids
    if not job_ids:
        raise _unknown(repo, text)
    bases = sorted({ids.base_of(job_id) for job_id in job_ids})
    if len(bases) == 1 and text.lower() in bases[0]:
        return (
            Selection(text, job_ids, batch=False)
            if job_ids == bases
            else (_batch(repo, text, job_ids))
        )
    if len(job_ids) == 1:
        return Selection(text, job_ids, batch=False)
    candidates = bases if len(bases) > 1 else job_ids
    told = listed(f"{name} ({_states_text(matches, name)})" for name in candidates)
    raise Refused(
        "job_ambiguous",
        f"{text!r} could mean {len(candidates)} of them: {told}; type more of the id",
    )


def _states_text(matches: Matches, name: str) -> str:
    """`running` of a job; `2 queued, 1 completed` of a batch of which so many match."""
    if name in matches.states:
        return matches.states[name].value
    states: list[State] = [
        state for job_id, state in matches.states.items() if ids.base_of(job_id) == name
    ]
    return count_text(states)


def _matches(repo: Repository, text: str) -> Matches:
    part = text.lower()
    if len(part) < PART_LENGTH_MIN:
        return Matches([], cut=False)
    return near_matches(repo, part, limit=_SEARCH_LIMIT)


def _unknown(repo: Repository, text: str) -> Refused:
    near = _near(repo, text)
    short = (
        f" (a part of an id has at least {PART_LENGTH_MIN} characters)"
        if len(text) < PART_LENGTH_MIN
        else ""
    )
    meant = f"did you mean {listed(near)}? " if near else ""
    return Refused(
        "job_unknown",
        f"there is no job {text!r}{short}, nor a batch or run of that name, in "
        f"{repo.store.address}; {meant}`stado status` lists the newest",
    )


def _near(repo: Repository, text: str) -> list[str]:
    """Ids and run ids that look like what was typed: of the newest jobs, and of some runs. About
    fifty requests at most."""
    from difflib import get_close_matches

    newest_ids = near_matches(repo, "", limit=_NEAR_IDS).job_ids
    known = list(dict.fromkeys([*map(ids.base_of, newest_ids), *newest_ids]))
    rows = newest(repo, limit=_NEAR_RECORDS).rows
    runs = {row.record.run_id for row in rows if row.record is not None}
    runs |= some_run_ids(repo, beginning=text[:2])
    holding = [run for run in sorted(runs) if len(text) >= PART_LENGTH_MIN and text in run]
    close = [
        *get_close_matches(text, sorted(runs), n=CANDIDATES_MAX, cutoff=_NEAR_RUN_MIN),
        *get_close_matches(text.lower(), known, n=CANDIDATES_MAX, cutoff=_NEAR_ID_MIN),
    ]
    return list(dict.fromkeys([*holding, *close]))[:CANDIDATES_MAX]
