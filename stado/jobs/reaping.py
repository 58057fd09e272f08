"""Finding jobs whose holder is gone, and putting them back.

A job that beats, whose checkpoint upload makes progress, or whose agent reports it alive is never
declared lost, whatever the hosts' clocks say. A failed read is not evidence: the watch starts
again. Any number of reapers is safe: what decides is the seal and the verdict.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import datetime

from stado.core import keys
from stado.core.liveness import Vigil, mass_silence
from stado.core.moves import Loss
from stado.core.records import Capacity, ClaimCell, Heartbeat, JobReport, Record
from stado.core.states import Reason, State
from stado.errors import NotFound, StoreError, Unreadable
from stado.jobs.departures import AgentReport
from stado.jobs.endings import (
    as_queued_last,
    ending_of_lost,
    finish_intent,
    give_verdict,
    settle,
)
from stado.jobs.life import seal_epoch
from stado.jobs.repository import PARALLEL_REQUESTS, Repository, Stored
from stado.storage.port import Entry, Version, walk

log = logging.getLogger(__name__)

_CHECKPOINT_NAMES_MAX = 100_000
_FAILED_REPORTS_MAX = 16
"""Reports of agents that may fail to be read in one turn before it is the store that fails."""

_NO_BEAT_SHARE = 3 / 16
"""Of a lease: for so long after a beat in good order there is none. Beats are a quarter apart."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What one look at a running job showed: its record, and versions of its life signs."""

    job_id: str
    record: Record
    entry: Entry
    heartbeat: Entry | None

    @property
    def consumer(self) -> str:
        return self.record.holder.consumer if self.record.holder else ""

    @property
    def host(self) -> str:
        return self.record.holder.host if self.record.holder else ""

    @property
    def lease_seconds(self) -> float:
        return self.record.holder.lease_seconds if self.record.holder else 0.0


@dataclass(frozen=True, slots=True)
class _SeenBeat:
    """A heartbeat, and when we saw first that it was this one."""

    entry: Entry | None
    at: float
    in_order: bool
    """Whether it came as long after the one before as beats do that have nothing new to say."""


@dataclass(slots=True)
class ReapReport:
    """What one turn did."""

    reaped: list[str] = field(default_factory=list)
    settled: list[str] = field(default_factory=list)
    deferred: dict[str, str] = field(default_factory=dict)
    """Job id to why it was left alone though silent, or could not be judged."""
    next_seconds: float = math.inf
    """Until the first of those that are silent now has been so for its whole lease."""
    idle_agents: list[AgentReport] = field(default_factory=list)
    """Those whom no running record names; none when a record could not be read."""


class _Witnesses:
    """What the agents say of the jobs that they run."""

    def __init__(self) -> None:
        self._known: dict[str, Stored[Capacity]] = {}
        self._entries: dict[str, Entry] = {}
        self._failures: dict[str, str] = {}

    def refresh(self, repo: Repository) -> None:
        """One listing, and a read for each agent that said something new. One that fails costs
        the jobs of its agent; raises when many do."""
        self._failures = {}
        self._entries = {entry.key: entry for entry in walk(repo.store, keys.CAPACITY)}
        changed = [
            key
            for key, entry in self._entries.items()
            if key not in self._known or self._known[key].version != entry.version
        ]
        read = repo.tasks.map(
            lambda key: self._read_capacity(repo, key), changed, limit=PARALLEL_REQUESTS
        )
        self._known.update(
            (key, stored) for key, stored in zip(changed, read, strict=True) if stored is not None
        )
        for gone in self._known.keys() - self._entries.keys():
            del self._known[gone]

    def entry(self, consumer: str) -> Entry | None:
        return self._entries.get(keys.capacity(consumer))

    def failure(self, consumer: str) -> str | None:
        """Why it is not known what the agent says now."""
        return self._failures.get(keys.capacity(consumer))

    def incarnation(self, consumer: str) -> str | None:
        """Of the agent of this name that reported last; None where none did, or what it said
        cannot be read."""
        stored = self._known.get(keys.capacity(consumer))
        return None if stored is None else stored.value.incarnation

    def has_left(self, consumer: str) -> bool:
        """Whether the agent has said so."""
        stored = self._known.get(keys.capacity(consumer))
        return stored is not None and stored.value.stopped

    def report(self, look: _Look) -> JobReport | None:
        """The agent's own report of this very epoch; None when it makes none."""
        stored = self._known.get(keys.capacity(look.consumer))
        if stored is None:
            return None
        for report in stored.value.jobs:
            if report.job_id == look.job_id and report.epoch == look.record.epoch:
                return report
        return None

    def idle(self, busy: set[str]) -> list[AgentReport]:
        """The reports of agents other than these consumers, as far as they could be read."""
        busy_keys = {keys.capacity(consumer) for consumer in busy}
        return [
            AgentReport(entry, self._known[key].value)
            for key, entry in self._entries.items()
            if key not in busy_keys
            and key in self._known
            and self._known[key].version == entry.version
        ]

    def _read_capacity(self, repo: Repository, key: str) -> Stored[Capacity] | None:
        """None for what cannot be read, and for the rest once so many failed that it raises."""
        if len(self._failures) > _FAILED_REPORTS_MAX:
            return None
        try:
            return repo.find(Capacity, key)
        except Unreadable as error:
            repo.tell_unreadable(error)
        except StoreError as error:
            self._failures[key] = str(error)
            if len(self._failures) > _FAILED_REPORTS_MAX:
                raise
        return None


def _key_of(entry: Entry) -> str:
    return entry.key


def _version(seen: Stored[Heartbeat] | Entry | None) -> Version | None:
    return seen.version if seen is not None else None


def _is_no_newer(checkpoint: Entry, heartbeat: Entry | None) -> bool:
    """By the store's own times of both."""
    return heartbeat is not None and checkpoint.modified_at <= heartbeat.modified_at


def _silence_text(look: _Look, last: Stored[Heartbeat] | None, silent_seconds: float) -> str:
    """Who was silent, for how long, and the last proof of life that people can look for."""
    text = f"worker {look.consumer} was not heard for {silent_seconds:.0f} s"
    if last is None or last.value.epoch != look.record.epoch or last.value.sealed:
        return text
    return f"{text}, its last beat was at {last.value.at.isoformat(timespec='seconds')}"


def _seals(heartbeat: Heartbeat, record: Record) -> bool:
    """Whether somebody sealed this epoch, and died before the verdict."""
    return heartbeat.sealed and heartbeat.epoch == record.epoch


class Reaper:
    """Watches `running/` and ends epochs whose holder is gone. Keep it between turns: it judges
    by what it watched itself.

    `once`: for a process that looks once and exits. It compares the store's own times instead."""

    def __init__(self, repo: Repository, *, by: str, once: bool = False) -> None:
        self._repo = repo
        self._by = by
        self._once = once
        self._beats = Vigil()
        self._reports = Vigil()
        self._checkpoints = Vigil()
        self._job_vigils = (self._beats, self._reports, self._checkpoints)
        self._agents = Vigil()
        self._witnesses = _Witnesses()
        self._records: dict[str, Stored[Record]] = {}
        self._seen_beats: dict[str, _SeenBeat] = {}
        self._newest_checkpoints: dict[str, Entry] = {}
        self._excused_hosts: set[str] = set()

    def turn(self) -> ReapReport:
        """One look at everything that runs. Requests: one listing of `running/` and of
        `capacity/`, at most one head a running job, and a few for each silent one.

        Raises what the store raises to a listing; then all watches start again."""
        return self._judge(self._list_running(), only=None)

    def turn_for(self, job_id: str) -> ReapReport:
        """The same look, which judges one job: for a canceller that waits for a silent holder.
        What else runs is looked at for what it says of that job's host."""
        return self._judge(self._list_running(), only=job_id)

    # --- looking ------------------------------------------------------------------------

    def _list_running(self) -> list[Entry]:
        """What runs, then what the agents say of it. A store that does not answer us may not
        have taken anybody's beats either."""
        try:
            entries = list(self._repo.walk_records(State.RUNNING))
            self._witnesses.refresh(self._repo)
        except StoreError:
            for vigil in (*self._job_vigils, self._agents):
                vigil.keep_only(set())
            self._seen_beats.clear()
            raise
        self._forget_ended({keys.job_of_record(entry.key) for entry in entries})
        return entries

    def _forget_ended(self, running: set[str]) -> None:
        for vigil in self._job_vigils:
            vigil.keep_only(running)
        for gone in self._records.keys() - running:
            del self._records[gone]
            self._seen_beats.pop(gone, None)
            self._newest_checkpoints.pop(gone, None)

    def _look_at_all(self, entries: list[Entry], report: ReapReport) -> list[_Look]:
        looks = self._repo.tasks.map(self._look, entries, limit=PARALLEL_REQUESTS)
        for entry, look in zip(entries, looks, strict=True):
            if isinstance(look, str):
                job_id = keys.job_of_record(entry.key)
                self._restart(job_id)
                report.deferred[job_id] = look
        return [look for look in looks if isinstance(look, _Look)]

    def _look(self, entry: Entry) -> _Look | str | None:
        """None when the job has just ended; a sentence when something could not be read."""
        job_id = keys.job_of_record(entry.key)
        try:
            known = self._records.get(job_id)
            if known is None or known.version != entry.version:
                known = self._repo.read(Record, entry.key)
                self._records[job_id] = known
            if known.version != entry.version:
                return "it moved while it was looked at"  # the listing tells of an older record
            look = _Look(job_id, known.value, entry, heartbeat=None)
            look = replace(look, heartbeat=self._heartbeat(look))
        except NotFound:
            return None
        except (StoreError, Unreadable) as error:
            return f"cannot be judged: {error}"
        failure = self._witnesses.failure(look.consumer)
        return look if failure is None else f"cannot be judged: {failure}"

    def _heartbeat(self, look: _Look) -> Entry | None:
        """As it is; or as it was, where no beat is due yet and the agent speaks for the job."""
        at = self._repo.clock.monotonic()
        known = self._seen_beats.get(look.job_id)
        since = math.inf if known is None else at - known.at
        between = since < look.lease_seconds * _NO_BEAT_SHARE
        if known is not None and known.in_order and between and self._agent_tells_of(look):
            return known.entry
        entry = self._head(keys.heartbeat(look.job_id))
        if known is None or _version(entry) != _version(known.entry):
            in_order = known is not None and not between
            self._seen_beats[look.job_id] = _SeenBeat(entry, at, in_order)
        return entry

    def _agent_tells_of(self, look: _Look) -> bool:
        """Whether the agent has heard the supervisor since the last look."""
        report = self._witnesses.report(look)
        return report is not None and self._reports.is_news(look.job_id, report.signs)

    def _head(self, key: str) -> Entry | None:
        try:
            return self._repo.store.head(key)
        except NotFound:
            return None

    def _restart(self, job_id: str) -> None:
        for vigil in self._job_vigils:
            vigil.restart(job_id)
        self._seen_beats.pop(job_id, None)

    # --- judging ------------------------------------------------------------------------

    def _judge(self, entries: list[Entry], only: str | None) -> ReapReport:
        report = ReapReport()
        looks = self._look_at_all(entries, report)
        if not report.deferred:
            report.idle_agents = self._witnesses.idle({look.consumer for look in looks})
        at = self._repo.clock.monotonic()
        silence = {look.job_id: self._silence(look, at) for look in looks}
        self._note_agents(looks, at)
        if self._doubt_own_sight(looks, silence, at):
            report.deferred.update(
                (look.job_id, "many hosts fell silent at once") for look in looks
            )
            return report
        fresh_hosts: dict[str, set[str]] = defaultdict(set)
        for look in looks:
            left = look.lease_seconds - silence[look.job_id]
            if left > 0:
                fresh_hosts[look.host].add(look.job_id)
                report.next_seconds = min(report.next_seconds, left)
        for look in looks:
            if silence[look.job_id] > 0 and only in (None, look.job_id):
                self._attend(look, silence[look.job_id], fresh_hosts[look.host], report)
        return report

    def _silence(self, look: _Look, at: float) -> float:
        """Seconds without a beat and without a report of the agent that tells of one."""
        own_report = self._witnesses.report(look)
        if self._once:
            signs = [look.entry, look.heartbeat]
            if own_report is not None:
                signs.append(self._witnesses.entry(look.consumer))
            return self._age([sign for sign in signs if sign is not None])
        beats = (look.entry.version, look.heartbeat.version if look.heartbeat else None)
        reported = own_report.signs if own_report is not None else None
        return min(
            self._beats.look(look.job_id, beats, at),
            self._reports.look(look.job_id, reported, at),
        )

    def _age(self, signs: list[Entry]) -> float:
        newest = max(sign.modified_at for sign in signs)
        return (self._repo.now() - newest).total_seconds()

    def _note_agents(self, looks: list[_Look], at: float) -> None:
        for consumer in {look.consumer for look in looks}:
            entry = self._witnesses.entry(consumer)
            self._agents.look(consumer, entry.version if entry else None, at)

    def _agent_fresh(self, look: _Look) -> bool:
        """Whether the agent has broadcast within the lease."""
        entry = self._witnesses.entry(look.consumer)
        if entry is None:
            return False
        if self._once:
            return self._age([entry]) < look.lease_seconds
        at = self._repo.clock.monotonic()
        return self._agents.look(look.consumer, entry.version, at) < look.lease_seconds

    def _agent_gone(self, look: _Look) -> bool:
        """Whether the very agent that claimed the job is: it has left, or another one of its name
        is there, or it has not been heard for a lease either. One whose successor reports this
        epoch was outlived by its supervisor, so that it was not the job that ended it."""
        known = self._witnesses.incarnation(look.consumer)
        holder = look.record.holder
        if known is not None and holder is not None and known != holder.incarnation:
            return self._witnesses.report(look) is None
        return not self._agent_fresh(look) or self._witnesses.has_left(look.consumer)

    def _doubt_own_sight(self, looks: list[_Look], silence: dict[str, float], at: float) -> bool:
        """When most hosts fall silent in one turn it is more likely that we went blind: once,
        the watch starts anew."""
        if self._once:
            return False
        busy = {look.host for look in looks}
        alive = {look.host for look in looks if silence[look.job_id] < look.lease_seconds}
        self._excused_hosts -= {look.host for look in looks if silence[look.job_id] == 0}
        newly_silent = busy - alive - self._excused_hosts
        if not mass_silence(len(newly_silent), len(busy)):
            return False
        self._excused_hosts |= newly_silent
        for vigil in self._job_vigils:
            vigil.renew_all(at)
        log.warning("event=mass_silence hosts=%d busy=%d", len(newly_silent), len(busy))
        return True

    def _attend(
        self, look: _Look, silent_seconds: float, fresh_jobs: set[str], report: ReapReport
    ) -> None:
        """A job that was not heard since the last look."""
        try:
            if settle(self._repo, look.job_id, look.record.epoch) is not None:
                report.settled.append(look.job_id)
                return
            last = self._repo.find_heartbeat(look.job_id)
            if last is None or not _seals(last.value, look.record):
                if _version(last) != _version(look.heartbeat):
                    return
                silent_seconds = min(silent_seconds, self._checkpoint_silence(look))
                if silent_seconds < look.lease_seconds:
                    return
                reason = self._deferral(look, fresh_jobs)
                if reason is not None:
                    report.deferred[look.job_id] = reason
                    return
            self._reap(look, last, silent_seconds, report)
        except NotFound:
            return
        except (StoreError, Unreadable) as error:
            self._restart(look.job_id)
            report.deferred[look.job_id] = f"cannot be judged: {error}"

    def _checkpoint_silence(self, look: _Look) -> float:
        """Seconds without a new name under the job's checkpoints; infinite when there is none
        since the last beat, which was watched anyway. Names ascend, so that only what comes
        after the newest known one has to be listed."""
        known = self._newest_checkpoints.get(look.job_id)
        folder = keys.checkpoints_folder(look.job_id)
        names = walk(self._repo.store, folder, start_after=known.key if known else "")
        newest = max(itertools.islice(names, _CHECKPOINT_NAMES_MAX), key=_key_of, default=known)
        if newest is not None:
            self._newest_checkpoints[look.job_id] = newest
        if self._once:
            return self._age([newest]) if newest is not None else math.inf
        if newest is None or _is_no_newer(newest, look.heartbeat):
            return math.inf
        return self._checkpoints.look(look.job_id, newest.key, self._repo.clock.monotonic())

    def _saved_at(self, look: _Look) -> datetime | None:
        """When the store took what this epoch saved last, as far as it was looked at."""
        newest = self._newest_checkpoints.get(look.job_id)
        epoch = None if newest is None else keys.epoch_of_save(newest.key)
        return newest.modified_at if newest is not None and epoch == look.record.epoch else None

    def _deferral(self, look: _Look, fresh_jobs: set[str]) -> str | None:
        """Another job on the same host that beats speaks for this one, unless the agent itself
        does not name it any more."""
        others = sorted(fresh_jobs - {look.job_id})
        if not others:
            return None
        if self._agent_fresh(look) and self._witnesses.report(look) is None:
            return None
        return f"{others[0]} on the same host still beats"

    # --- reaping ------------------------------------------------------------------------

    def _reap(
        self,
        look: _Look,
        last: Stored[Heartbeat] | None,
        silent_seconds: float,
        report: ReapReport,
    ) -> None:
        """Seal, read what was asked, verdict, settle. A crash after any of them is finished by
        whoever comes next.

        An intent that somebody died over has no process: it is finished, unsealed."""
        claim = self._repo.find(ClaimCell, keys.claim_cell(look.job_id, look.record.epoch))
        if claim is not None and claim.value.intent is not None:
            finish_intent(self._repo, claim.value)
            report.settled.append(look.job_id)
            return
        seal = seal_epoch(self._repo, look.record, last, by=self._by, saved_at=self._saved_at(look))
        if seal is None:
            self._restart(look.job_id)
            return
        ending = ending_of_lost(
            self._repo,
            look.record,
            Loss(
                started_at=seal.started_at,
                heard_at=seal.heard_at,
                by=self._by,
                reason=Reason.LEASE_EXPIRED,
                detail=_silence_text(look, last, silent_seconds),
                agent_gone=self._agent_gone(look),
            ),
        )
        record = as_queued_last(self._repo, look.record)
        cell, _ = give_verdict(self._repo, record, ending)
        settle(self._repo, look.job_id, look.record.epoch)
        report.reaped.append(look.job_id)
        log.warning(
            "event=reaped job=%s epoch=%d consumer=%s silent_seconds=%.0f verdict=%s",
            look.job_id,
            look.record.epoch,
            look.consumer,
            silent_seconds,
            cell.ending.verdict,
        )
