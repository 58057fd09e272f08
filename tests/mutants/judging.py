"""Reapers, and repair of the index, without one of their rules."""

from __future__ import annotations

import math
from datetime import datetime

from stado.core import keys, moves, order
from stado.core.order import ReadyEntry, entry_key, entry_name
from stado.core.records import Asks, ClaimCell, CoordinatorLease, Ending, Heartbeat, Record
from stado.core.states import State
from stado.errors import StoreError
from stado.jobs import queue_index, reaping, submission, submit
from stado.jobs.leadership import CoordinatorWatch, Leadership
from stado.jobs.queue_index import Repair, RepairReport
from stado.jobs.reaping import Reaper, ReapReport
from stado.jobs.repository import Cells, Repository, Stored
from stado.storage.observe import Operation
from stado.storage.port import Entry
from tests.jobs.world import LEASE
from tests.mutants.claims import CANCELS, INDEX, REAPS
from tests.mutants.mutant import Mutant, replaced, replaced_everywhere

LEADERSHIP = "tests/jobs/test_leadership.py"
REAPING = "tests/jobs/test_reaping.py"
_FAILED_READ = f"{REAPING}::test_a_failed_read_or_listing_starts_the_watch_again"

_lost = moves.lost
_entry_name = order.entry_name
_lease_seconds = reaping._Look.lease_seconds
_reap = Reaper._reap
_checkpoint_silence = Reaper._checkpoint_silence
_find_asks = Repository.find_asks


def list_and_keep_watching(self: Reaper) -> list[Entry]:
    entries = list(self._repo.walk_records(State.RUNNING))
    self._witnesses.refresh(self._repo)
    self._forget_ended({keys.job_of_record(entry.key) for entry in entries})
    return entries


def lost_any_number_of_times(record: Record, loss: moves.Loss, *, now: datetime) -> Ending:
    spec = record.spec.evolve(max_lease_losses=-1)
    return _lost(record.evolve(spec=spec), loss, now=now)


def no_answer_is_no_checkpoint(self: Reaper, look: reaping._Look) -> float:
    try:
        return _checkpoint_silence(self, look)
    except StoreError:
        return math.inf


def no_answer_is_no_request(self: Repository, job_id: str, epoch: int) -> Stored[Asks] | None:
    try:
        return _find_asks(self, job_id, epoch)
    except StoreError:
        return None


class _Blind(Repository):
    """Sees no claim cell."""

    def find(self, kind, key):  # type: ignore[no-untyped-def]
        return None if kind is ClaimCell else super().find(kind, key)


def reap_intents_too(
    self: Reaper,
    look: reaping._Look,
    last: Stored[Heartbeat] | None,
    silent_seconds: float,
    report: ReapReport,
) -> None:
    seeing = self._repo
    self._repo = _Blind(
        seeing.store,
        seeing.deployment,
        clock=seeing.clock,
        entropy=seeing.entropy,
        tasks=seeing.tasks,
    )
    try:
        _reap(self, look, last, silent_seconds, report)
    finally:
        self._repo = seeing


def drop_at_sight(
    self: Repair, job_id: str, entries: list[ReadyEntry], cells: Cells, report: RepairReport
) -> None:
    for entry in entries:
        self._delete(entry, report)


def correct_wrong_first(
    self: Repair, record: Record, entries: list[ReadyEntry], report: RepairReport
) -> None:
    right = entry_name(record)
    for entry in entries:
        if entry.name != right and entry.epoch <= record.epoch:
            self._delete(entry, report)
    report.entries_written += self._repo.create_entry(record)


def correct_any_epoch(
    self: Repair, record: Record, entries: list[ReadyEntry], report: RepairReport
) -> None:
    report.entries_written += self._repo.create_entry(record)
    for entry in entries:
        if entry.name != entry_name(record):
            self._delete(entry, report)


def mend_any_epoch(repo: Repository, record: Record, entry: ReadyEntry) -> None:
    repo.create_entry(record)
    repo.store.delete(keys.ready(entry.name), None)


def mend_wrong_first(repo: Repository, record: Record, entry: ReadyEntry) -> None:
    repo.store.delete(keys.ready(entry.name), None)
    repo.create_entry(record)


def name_without_nonce(record: Record) -> str:
    return _entry_name(record.evolve(nonce="nonce"))


def abandoned_by_the_time_told(self: Leadership, found: Stored[CoordinatorLease]) -> bool:
    silence = (self._repo.now() - found.value.at).total_seconds()
    return found.value.released or silence >= found.value.lease_seconds


def queue_record_first(repo: Repository, records: list[Record]) -> None:
    repo.store.create_many(
        [(keys.record(State.QUEUED, record.id), record.encode()) for record in records]
    )
    repo.store.create_many([(entry_key(record), b"") for record in records])


MUTANTS = (
    Mutant(
        "judging by an old look",
        "The beat that is sealed is the one that was found silent.",
        f"{REAPS}::test_a_worker_that_beats_just_before_the_seal_keeps_its_epoch",
        replaced(reaping, "_version", lambda _: None),
    ),
    Mutant(
        "half a lease is enough",
        "Nobody is judged before a whole lease of silence.",
        f"{REAPING}::test_silence_of_everything_for_a_lease_gives_the_job_back",
        replaced(
            reaping._Look,
            "lease_seconds",
            property(lambda look: _lease_seconds.__get__(look) / 2),
        ),
    ),
    Mutant(
        "the lease of today counts",
        "A judge goes by the lease that the claim recorded.",
        f"{REAPING}::test_the_lease_of_the_claim_counts",
        replaced(reaping._Look, "lease_seconds", property(lambda _: LEASE)),
    ),
    Mutant(
        "agents are no witnesses",
        "An agent that hears a supervisor speaks for its job.",
        f"{REAPING}::test_an_agent_that_hears_the_supervisor_speaks_for_the_job",
        replaced(reaping._Witnesses, "report", lambda *_: None),
    ),
    Mutant(
        "beats in order are not read though nobody else speaks for the job",
        "A heartbeat is left unread only where the agent has just been heard.",
        f"{REAPING}::test_a_job_that_beats_in_order_is_read_at_every_other_look_while_its_agent"
        "_tells_of_it",
        replaced(Reaper, "_agent_tells_of", lambda *_: True),
        {"told": False},
    ),
    Mutant(
        "checkpoints are no signs of life",
        "A checkpoint folder that grows is proof of life.",
        f"{REAPING}::test_a_checkpoint_that_grows_is_proof_of_life",
        replaced(Reaper, "_checkpoint_silence", lambda *_: math.inf),
    ),
    Mutant(
        "failed reads cost no watch",
        "A read that fails starts the watch of its job again.",
        _FAILED_READ,
        replaced(Reaper, "_restart", lambda *_: None),
        {"operation": Operation.HEAD, "prefix": "status/"},
    ),
    Mutant(
        "reports that cannot be read are silence",
        "A report that cannot be read starts the watch of its agent's jobs again.",
        f"{REAPING}::test_a_report_that_cannot_be_read_costs_the_jobs_of_its_agent_only",
        replaced(reaping._Witnesses, "failure", lambda *_: None),
    ),
    Mutant(
        "checkpoints that cannot be listed are none",
        "A listing of checkpoints that fails starts the watch of its job again.",
        _FAILED_READ,
        replaced(Reaper, "_checkpoint_silence", no_answer_is_no_checkpoint),
        {"operation": Operation.LIST, "prefix": "status/"},
    ),
    Mutant(
        "requests that cannot be read are none",
        "No verdict on a loss is given as long as it cannot be read what was asked.",
        f"{CANCELS}::test_a_reaper_that_cannot_read_what_was_asked_gives_no_verdict",
        replaced(Repository, "find_asks", no_answer_is_no_request),
    ),
    Mutant(
        "failed listings cost no watch",
        "A listing that fails starts every watch again.",
        _FAILED_READ,
        replaced(Reaper, "_list_running", list_and_keep_watching),
        {"operation": Operation.LIST, "prefix": "running/"},
    ),
    Mutant(
        "siblings do not speak for each other",
        "A job that beats on the same host defers the reap of another.",
        f"{REAPING}::test_a_fresh_beat_of_another_job_on_the_host_defers",
        replaced(Reaper, "_deferral", lambda *_: None),
    ),
    Mutant(
        "siblings are believed more than their agent",
        "A fresh report that omits the job overrules its siblings.",
        f"{REAPING}::test_a_sibling_does_not_defer_when_the_fresh_report_of_the_agent_omits"
        "_the_job",
        replaced(Reaper, "_agent_fresh", lambda *_: False),
    ),
    Mutant(
        "no doubt about one's own sight",
        "When most hosts fall silent at once the watch starts anew, once.",
        f"{REAPING}::test_mass_silence_is_excused_once",
        replaced(Reaper, "_doubt_own_sight", lambda *_: False),
    ),
    Mutant(
        "losses without a limit",
        "A job that was lost as often as it may be has failed.",
        f"{REAPING}::test_a_job_fails_when_its_budget_of_losses_is_spent",
        replaced(moves, "lost", lost_any_number_of_times),
        {"allowed": 0, "starts": 1},
    ),
    Mutant(
        "every agent counts as gone",
        "A job that ends its agent has completed only if the agent that claimed it is gone.",
        f"{REAPING}::test_a_silent_job_of_an_agent_that_is_there_is_lost",
        replaced(Reaper, "_agent_gone", lambda *_: True),
    ),
    Mutant(
        "commands are read for what they end",
        "Only the declaration says that a job ends its agent.",
        f"{REAPING}::test_only_the_declaration_counts",
        replaced(moves, "ends_its_agent", lambda spec: "stop" in spec.command),
    ),
    Mutant(
        "seals of dead reapers are left",
        "Whoever meets a seal without a verdict gives the verdict at once.",
        f"{REAPING}::test_whoever_meets_a_seal_without_a_verdict_creates_the_verdict_at_once",
        replaced(reaping, "_seals", lambda *_: False),
    ),
    Mutant(
        "reapers settle nothing",
        "A running record of an epoch that is over is settled by the next turn of a reaper.",
        "tests/jobs/test_claim.py::test_a_running_record_that_lands_after_the_end_is_settled_away",
        replaced(reaping, "settle", lambda *_: None),
    ),
    Mutant(
        "intents are sealed",
        "An intent has no process: it is finished by anybody, unsealed.",
        f"{CANCELS}::test_the_intent_of_a_dead_canceller_waits_for_no_seal_of_a_dead_claimer",
        replaced(Reaper, "_reap", reap_intents_too),
    ),
    Mutant(
        "entries without a record go at sight",
        "An entry without a record is deleted only when its epoch is over.",
        f"{INDEX}::test_the_entry_of_a_slow_submitter_is_left",
        replaced(Repair, "_drop_over", drop_at_sight),
    ),
    Mutant(
        "repair deletes the wrong entry first",
        "The right entry is written before a wrong one is deleted.",
        f"{INDEX}::test_the_right_entry_is_written_before_a_wrong_one_is_deleted",
        replaced(Repair, "_correct", correct_wrong_first),
    ),
    Mutant(
        "claimers delete the wrong entry first",
        "The right entry is written before a wrong one is deleted.",
        f"{INDEX}::test_the_right_entry_is_written_before_a_wrong_one_is_deleted",
        replaced_everywhere(queue_index, "mend_entry", mend_wrong_first),
    ),
    Mutant(
        "claimers delete entries of later epochs",
        "An entry of a later epoch belongs to a move that is under way.",
        f"{INDEX}::test_a_claimer_leaves_the_entry_of_an_epoch_that_is_on_its_way",
        replaced_everywhere(queue_index, "mend_entry", mend_any_epoch),
    ),
    Mutant(
        "repair deletes entries of later epochs",
        "An entry of a later epoch belongs to a move that is under way.",
        f"{INDEX}::test_repair_leaves_the_entry_of_an_epoch_that_is_on_its_way",
        replaced(Repair, "_correct", correct_any_epoch),
    ),
    Mutant(
        "entries have no nonce",
        "An entry carries the nonce of its queue record.",
        f"{INDEX}::test_two_changes_that_cross_leave_the_entry_of_the_record",
        replaced_everywhere(order, "entry_name", name_without_nonce),
    ),
    Mutant(
        "submitters write the entry after the record",
        "The index entry of a job is written before its queue record.",
        f"{INDEX}::test_no_queue_record_is_ever_without_its_entry",
        replaced_everywhere(submission, "queue", queue_record_first),
    ),
    Mutant(
        "a submit that is repeated queues all again",
        "A submit that is repeated writes only what cannot be found.",
        "tests/jobs/test_submit.py::test_a_submit_that_is_finished_by_another_leaves_what_has_run",
        replaced(submit, "_missing", lambda _, records: records),
    ),
    Mutant(
        "coordinators take over at sight",
        "A coordinator is taken for gone after a lease without a sign, and not before.",
        f"{LEADERSHIP}::test_one_acts_for_as_long_as_it_is_heard",
        replaced(Leadership, "_abandoned", lambda *_: True),
    ),
    Mutant(
        "coordinators judge by what others watched",
        "Who takes over has watched the lease itself.",
        f"{LEADERSHIP}::test_another_takes_over_after_a_lease_that_it_watched",
        replaced(Leadership, "_abandoned", abandoned_by_the_time_told),
    ),
    Mutant(
        "agents mend beside a coordinator",
        "Agents do nothing for the queue as long as a coordinator is heard.",
        f"{LEADERSHIP}::test_an_agent_mends_the_index_when_there_is_no_coordinator_and_only_then",
        replaced(CoordinatorWatch, "silent", lambda _: True),
    ),
    Mutant(
        "agents never mend",
        "Agents do what is to be done for the queue when there is no coordinator.",
        f"{LEADERSHIP}::test_an_agent_mends_the_index_when_there_is_no_coordinator_and_only_then",
        replaced(CoordinatorWatch, "silent", lambda _: False),
    ),
)
