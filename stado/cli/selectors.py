"""What people type, and which jobs they mean by it.

A job id, the base id of a batch, a run id, `last` (the newest submission of who asks), or a part
of an id that names one thing only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stado.core import ids
from stado.core.records import RunRecord
from stado.errors import Refused
from stado.jobs.finding import find_job
from stado.jobs.repository import Repository, Stored
from stado.jobs.status import (
    SEARCH_PAGES_MAX,
    Matches,
    near_matches,
    newest_base_of,
    some_run_ids,
    states_of,
)
from stado.jobs.submit import job_ids_of
from stado.storage.port import LIST_LIMIT_MAX

LAST = "last"
PART_LENGTH_MIN = 3
CANDIDATES_MAX = 8
_SEARCH_LIMIT = SEARCH_PAGES_MAX * LIST_LIMIT_MAX
_NEARNESS_MIN = 0.6


@dataclass(frozen=True, slots=True)
class Selection:
    """The jobs that somebody named, in order."""

    text: str
    job_ids: list[str]
    batch: bool
    """Whether a batch is meant, be it of a single job."""
    run: Stored[RunRecord] | None = None
    """When it was named by its run id."""

    @property
    def base_id(self) -> str:
        return ids.base_of(self.job_ids[0])


def select(repo: Repository, text: str, *, user: str) -> Selection:
    """The jobs that `text` names. Raises `Refused` when it names nothing, or several things."""
    if text == LAST:
        return _select_last(repo, user)
    found = _select_by_id(repo, text) or _select_by_run(repo, text)
    if found is not None:
        return found
    return _select_by_part(repo, text)


def select_job(repo: Repository, text: str, *, user: str) -> str:
    """The one job that `text` names. Raises `Refused` as `select` does, or for a larger batch."""
    selection = select(repo, text, user=user)
    if len(selection.job_ids) > 1:
        raise Refused(
            "job_not_single",
            f"{text!r} names a batch of {len(selection.job_ids)} jobs: name one of them, "
            f"such as {selection.job_ids[0]}; `stado status {selection.base_id}` lists them",
        )
    return selection.job_ids[0]


def find_selection(repo: Repository, text: str, *, user: str) -> Selection | None:
    """As `select` for what is named exactly, else None."""
    if text == LAST:
        return _select_last(repo, user)
    return _select_by_id(repo, text) or _select_by_run(repo, text)


def _select_last(repo: Repository, user: str) -> Selection:
    base = newest_base_of(repo, user)
    if base is None:
        raise Refused("job_unknown", f"{user} has submitted nothing here yet: `stado submit` does")
    found = _select_by_id(repo, base)
    if found is None:
        raise Refused("job_unknown", f"the jobs of your last submission, {base}, cannot be found")
    return Selection(LAST, found.job_ids, found.batch)


def _select_by_id(repo: Repository, text: str) -> Selection | None:
    if not ids.is_job_id(text):
        return None
    if find_job(repo, text) is not None:
        return Selection(text, [text], batch=False)
    members = sorted(states_of(repo, f"{text}-")) if "-" not in text else []
    return Selection(text, members, batch=True) if members else None


def _select_by_run(repo: Repository, text: str) -> Selection | None:
    run = repo.find_run(text) if ids.is_run_id(text) else None
    if run is None:
        return None
    return Selection(text, job_ids_of(run.value), batch=run.value.request.batch, run=run)


def _select_by_part(repo: Repository, text: str) -> Selection:
    matches = _matches(repo, text)
    if not matches.cut:
        return _chosen(repo, text, matches.job_ids)
    raise Refused(
        "search_cut",
        f"there are too many jobs to look for {text!r} in all their ids: type the whole id, or "
        "the run id",
    )


def _chosen(repo: Repository, text: str, matches: list[str]) -> Selection:
    if not matches:
        raise _unknown(repo, text)
    bases = sorted({ids.base_of(job_id) for job_id in matches})
    if len(bases) == 1 and text.lower() in bases[0]:
        return Selection(text, matches, batch=matches != bases)
    if len(matches) == 1:
        return Selection(text, matches, batch=False)
    candidates = bases if len(bases) > 1 else matches
    raise Refused(
        "job_ambiguous",
        f"{text!r} could mean {len(candidates)} of them: {_listed(candidates)}; "
        "type more of the id",
    )


def _matches(repo: Repository, text: str) -> Matches:
    part = text.lower()
    if len(part) < PART_LENGTH_MIN:
        return Matches([], cut=False)
    return near_matches(repo, part, limit=_SEARCH_LIMIT)


def _unknown(repo: Repository, text: str) -> Refused:
    near = _near(repo, text)
    meant = f"; did you mean {_listed(near)}?" if near else ""
    short = (
        f" (a part of an id has at least {PART_LENGTH_MIN} characters)"
        if len(text) < PART_LENGTH_MIN
        else ""
    )
    end = "" if meant else ";"
    return Refused(
        "job_unknown",
        f"there is no job {text!r}{short}{meant}{end} `stado status` lists the newest",
    )


def _near(repo: Repository, text: str) -> list[str]:
    """Ids and run ids that look like what was typed: of the newest jobs, and of the first runs."""
    from difflib import get_close_matches

    newest = near_matches(repo, "", limit=LIST_LIMIT_MAX).job_ids
    bases = {ids.base_of(job_id) for job_id in newest}
    runs = some_run_ids(repo)
    known = sorted(runs | bases | set(newest))
    holding = [run for run in sorted(runs) if len(text) >= PART_LENGTH_MIN and text in run]
    close = get_close_matches(text, known, n=CANDIDATES_MAX, cutoff=_NEARNESS_MIN)
    return list(dict.fromkeys([*holding, *close]))[:CANDIDATES_MAX]


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    shown = ", ".join(found[:CANDIDATES_MAX])
    return f"{shown}, …" if len(found) > CANDIDATES_MAX else shown
