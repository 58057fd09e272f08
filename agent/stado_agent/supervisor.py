"""The supervisor: one process that takes a job from its claim to its verdict.

It outlives the agent that forked it, and never has more than one job at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stado.core.budgets import Hold, hold_of
from stado.core.documents import from_plain
from stado.core.order import ReadyEntry, parse_entry
from stado.core.settings import DeploymentSettings
from stado.errors import ChannelClosed, StoreError, Unreadable
from stado.jobs.budgets import BudgetGone
from stado.jobs.claim import Claimed, claim
from stado.jobs.quotas import ScopeFull
from stado.jobs.repository import Repository
from stado.jobs.windows import WindowClosed
from stado.ports import Channel
from stado_agent.host import Host
from stado_agent.job_run import JobRun
from stado_agent.places import place_of
from stado_agent.request_count import RequestCount
from stado_agent.salvage import salvage

log = logging.getLogger(__name__)


def serve(channel: Channel, repo: Repository, host: Host) -> None:
    """Does what the agent asks for, one thing after another, until the agent is gone or wants no
    more.

    In: `{"do": "run", "entry": <name>, "rules": <the deployment's>, "holds": <whose
    budgets are spent>, "place": <what of the host it gets>}`,
    `{"do": "salvage", "workspace": <name>}`. Out: `missed` when somebody else has the job, else
    `claimed`; `full` (with the `kind` and `subject` of the limit) when as many such jobs run as
    may; `closed` (with the same of whose windows) when it is not the time for them, or
    their budget is spent;
    `unable` (with `why`) when this host could not start it, `started` as soon as it
    could; `ended` (with `end`) once it has given the verdict; and in any case `idle` in the end.
    An error that it has no answer to ends this process; the agent then ends the epoch as lost."""
    while True:
        try:
            message = channel.receive(None)
        except ChannelClosed:
            return
        assert message is not None  # without a time limit there is always one
        if message["do"] == "salvage":
            salvage(repo, host.folder.workspace_named(message["workspace"]), host.log_limit)
        else:
            entry = parse_entry(message["entry"])
            assert entry is not None  # the agent parsed it before
            rules = from_plain(DeploymentSettings, message["rules"])
            holds = [hold_of(one) for one in message.get("holds", [])]
            placed = replace(host, place=place_of(message["place"]))
            _run_entry(channel, repo, placed, entry, rules, holds)
            _remove_note(host)
        _tell(channel, event="idle")


def _run_entry(
    channel: Channel,
    repo: Repository,
    host: Host,
    entry: ReadyEntry,
    rules: DeploymentSettings,
    holds: Sequence[Hold],
) -> None:
    count = RequestCount(repo.meter)
    workspace = host.folder.workspace(entry.job_id, entry.epoch)
    try:
        host.folder.write_note(host.note(entry, workspace=workspace))
    except OSError as error:
        _tell(channel, event="unable", why=f"{error.strerror or error}: {error.filename}")
        return
    try:
        claimed = _claim(repo, host, entry, rules, holds)
    except ScopeFull as full:
        if full.scope.never_fits:
            _tell(channel, event="missed")
        else:
            _tell(channel, event="full", kind=full.scope.kind.value, subject=full.scope.subject)
        return
    except WindowClosed as closed:
        restriction = closed.restriction
        _tell(channel, event="closed", kind=restriction.kind.value, subject=restriction.subject)
        return
    except BudgetGone as gone:
        _tell(channel, event="closed", kind=gone.hold.kind.value, subject=gone.subject)
        return
    if claimed is None:
        _tell(channel, event="missed")
        return
    log.info("event=claimed job=%s epoch=%d", entry.job_id, entry.epoch)
    _tell(channel, event="claimed")

    def tell_started() -> None:
        _tell(channel, event="started")

    run = JobRun(repo, host, claimed, entry, rules=rules, on_started=tell_started, count=count)
    unable = run.run()
    if unable is not None:
        _tell(channel, event="unable", why=unable)
    if run.end is not None:
        _tell(channel, event="ended", end=run.end.plain())


def _remove_note(host: Host) -> None:
    """One that stays names a job that is over: nobody acts on that."""
    try:
        host.folder.remove_note(host.identity.pid)
    except OSError as error:
        log.warning("event=note_left error=%r", str(error))


def _claim(
    repo: Repository,
    host: Host,
    entry: ReadyEntry,
    rules: DeploymentSettings,
    holds: Sequence[Hold],
) -> Claimed | None:
    """A claim that fails half-way leaves a running record, which the reaper gives back. Raises
    `ScopeFull`, `WindowClosed`, `BudgetGone`."""
    try:
        return claim(repo, entry, host.claimant, rules, host.place, holds)
    except Unreadable as error:
        repo.tell_unreadable(error)
    except StoreError as error:
        log.warning("event=claim_failed job=%s error=%r", entry.job_id, str(error))
    return None


def _tell(channel: Channel, **message: Any) -> None:
    """The agent may be gone; the job goes on without it."""
    try:
        channel.send(message)
    except ChannelClosed:
        return
