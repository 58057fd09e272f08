"""Claims and beats without one of their rules."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from stado.core import keys
from stado.core.order import ReadyEntry
from stado.core.records import ClaimCell, EndCell, Heartbeat, Holder, Phase, Record
from stado.core.states import State
from stado.jobs import claim, endings, life
from stado.jobs.life import LifeSigns
from stado.jobs.repository import Repository, Stored
from stado.storage.port import Version
from tests.mutants.mutant import Mutant, replaced, replaced_everywhere

CLAIMS = "tests/holes/test_claims.py"
CANCELS = "tests/holes/test_cancels.py"
REAPS = "tests/holes/test_reaps.py"
SETTLES = "tests/holes/test_settles.py"
INDEX = "tests/holes/test_index.py"
POLICIES = "tests/holes/test_policies.py"

_pass_gate = claim._pass_gate
_clean_up = endings._clean_up
_seal_epoch = life.seal_epoch
_beat = LifeSigns.beat


def pass_over_others(repo: Repository, record: Record) -> Version:
    return repo.store.put(keys.record(State.RUNNING, record.id), record.encode())


def pass_by_name(repo: Repository, record: Record) -> Version | None:
    version = _pass_gate(repo, record)
    running = repo.find_record(State.RUNNING, record.id)
    if version is not None or running is None or running.value.epoch != record.epoch:
        return version
    there, ours = running.value.holder, record.holder
    same = there is not None and ours is not None and there.consumer == ours.consumer
    return running.version if same else None


def win_by_create_alone(repo: Repository, record: Record, holder: Holder) -> bool:
    cell = ClaimCell(token=holder.token, by=holder.consumer, at=holder.claimed_at, record=record)
    return repo.create(keys.claim_cell(record.id, record.epoch), cell) is not None


def win_by_token_alone(repo: Repository, record: Record, holder: Holder) -> bool:
    if win_by_create_alone(repo, record, holder):
        return True
    return repo.claim_cell(record.id, record.epoch).token == holder.token


def any_queue_record(repo: Repository, entry: ReadyEntry) -> Stored[Record] | None:
    return repo.find_record(State.QUEUED, entry.job_id)


def delete_whatever_is_queued(repo: Repository, found: Stored[Record]) -> bool:
    repo.store.delete(keys.record(State.QUEUED, found.value.id), None)
    repo.delete_entry(found.value)
    return True


def forget_changes(repo: Repository, record: Record) -> Record:
    return record


def catch_up(*, heed_seals: bool = True, heed_epochs: bool = True, heed_tokens: bool = True) -> Any:
    def learn(self: LifeSigns) -> bool:
        found = self._repo.find_heartbeat(self._record.id)
        if found is None:
            return True
        current, own = found.value, self._record.epoch
        if heed_epochs and current.epoch > own:
            return False
        if heed_seals and current.epoch == own and current.sealed:
            return False
        of_another = not current.sealed and current.token != self._token
        if heed_tokens and current.epoch == own and of_another:
            return False
        self._version = found.version
        return True

    return learn


def put_beat(self: LifeSigns, key: str, beat: Heartbeat) -> Version:
    return self._repo.store.put(key, beat.encode())


def beat_and_believe(
    self: LifeSigns, phase: Phase, started_at: datetime | None, **more: Any
) -> bool:
    _beat(self, phase, started_at, **more)
    return True


def seal_what_stands(
    repo: Repository, record: Record, last: Stored[Heartbeat] | None, *, by: str, **more: Any
) -> Heartbeat | None:
    return _seal_epoch(repo, record, repo.find_heartbeat(record.id), by=by, **more)


def seal_nothing(
    repo: Repository, record: Record, last: Stored[Heartbeat] | None, *, by: str, **_: Any
) -> Heartbeat | None:
    if last is not None:
        return last.value
    return Heartbeat(epoch=record.epoch, token="", by=by, at=repo.now())


def seal_and_forget(
    repo: Repository,
    record: Record,
    last: Stored[Heartbeat] | None,
    *,
    by: str,
    saved_at: datetime | None = None,
) -> Heartbeat | None:
    seal = _seal_epoch(repo, record, last, by=by, saved_at=saved_at)
    return seal and seal.evolve(started_at=None)


def clean_up_heartbeats(repo: Repository, cell: EndCell) -> None:
    _clean_up(repo, cell)
    repo.store.delete(keys.heartbeat(cell.record.id), None)


MUTANTS = (
    Mutant(
        "a claim without a cell",
        "Who has passed the gate holds the epoch only once the claim cell is its own.",
        f"{CANCELS}::test_nobody_starts_a_queued_job_whose_cancel_was_acknowledged",
        replaced(claim, "_make_final", lambda *_: True),
    ),
    Mutant(
        "a gate that everybody passes",
        "One agent at a time gets through the gate, and its record stays there.",
        f"{CLAIMS}::test_a_claimer_that_comes_second_leaves_the_running_record_of_the_first",
        replaced(claim, "_pass_gate", pass_over_others),
    ),
    Mutant(
        "a gate that goes by names",
        "A running record is ours only if it carries the token of this very attempt.",
        f"{CLAIMS}::test_a_claimer_does_not_take_an_earlier_attempt_of_its_own_for_this_one",
        replaced(claim, "_pass_gate", pass_by_name),
    ),
    Mutant(
        "a claimer that does not know its own cell",
        "A cell that carries our token is ours, whatever the store made of its answer.",
        "tests/jobs/test_claim.py::test_a_claimer_knows_its_own_token_again",
        replaced(claim, "_make_final", win_by_create_alone),
        {"key": "status/"},
    ),
    Mutant(
        "a claimer that settles nothing at a taken cell",
        "Who finds the cell of its epoch taken settles a verdict that is there.",
        f"{CLAIMS}::test_a_claimer_that_slept_while_the_job_ended_elsewhere_gets_nothing",
        replaced(claim, "_make_final", win_by_token_alone),
    ),
    Mutant(
        "any entry admits",
        "An entry that its queue record does not compute to admits nothing.",
        "tests/jobs/test_claim.py::test_a_stale_entry_admits_nothing_and_is_mended",
        replaced(claim, "_queued_record", any_queue_record),
    ),
    Mutant(
        "a ghost bars the gate",
        "A running record of an epoch that is over is settled at the gate.",
        "tests/jobs/test_claim.py::test_a_ghost_of_an_ended_epoch_does_not_bar_the_next",
        replaced(claim, "settle", lambda *_: None),
    ),
    Mutant(
        "deletes of queue records name no version",
        "A queue record is deleted only as the one that was read.",
        f"{SETTLES}::test_a_late_delete_of_a_queue_record_spares_that_of_the_next_epoch",
        replaced_everywhere(endings, "delete_queued", delete_whatever_is_queued),
    ),
    Mutant(
        "a claimer deletes whatever is queued",
        "The queue record of the next epoch is no business of a claimer that comes too late.",
        f"{CLAIMS}::test_the_queue_record_of_the_next_epoch_is_neither_a_claim_nor_removed",
        replaced(claim, "delete_queued", delete_whatever_is_queued),
    ),
    Mutant(
        "a claimer forgets changes",
        "What changed in a queue record under a claim is taken over, and the record removed.",
        f"{INDEX}::test_a_priority_that_changed_under_a_claim_is_taken_over",
        replaced(claim, "_take_over_changes", forget_changes),
    ),
    Mutant(
        "beats replace seals",
        "No beat of an epoch replaces a seal of it.",
        f"{REAPS}::test_no_beat_replaces_a_seal",
        replaced(LifeSigns, "_catch_up", catch_up(heed_seals=False)),
    ),
    Mutant(
        "beats of lost epochs replace those of later ones",
        "No beat replaces anything of a higher epoch.",
        "tests/jobs/test_claim.py"
        "::test_the_first_beat_of_a_later_epoch_replaces_the_seal_of_the_one_before",
        replaced(LifeSigns, "_catch_up", catch_up(heed_epochs=False)),
    ),
    Mutant(
        "beats replace those of another holder",
        "No beat replaces one of another token in its own epoch.",
        "tests/jobs/test_claim.py::test_an_epoch_has_the_beats_of_one_holder",
        replaced(LifeSigns, "_catch_up", catch_up(heed_tokens=False)),
    ),
    Mutant(
        "beats are unconditional",
        "A beat is written over the version that its holder knows, and over no other.",
        f"{REAPS}::test_a_seal_outlives_its_job_and_a_claimer_that_slept_through_it_starts_nothing",
        replaced(LifeSigns, "_write", put_beat),
    ),
    Mutant(
        "a refused beat counts as accepted",
        "A holder whose beat is refused has lost its epoch, and starts nothing.",
        "tests/holes/test_workers.py"
        "::test_a_claimer_that_is_declared_lost_before_its_first_beat_starts_nothing",
        replaced(LifeSigns, "beat", beat_and_believe),
    ),
    Mutant(
        "seals replace whatever stands there",
        "A seal replaces the beat that was judged, and no later one.",
        f"{REAPS}::test_a_worker_that_beats_just_before_the_seal_keeps_its_epoch",
        replaced_everywhere(life, "seal_epoch", seal_what_stands),
    ),
    Mutant(
        "verdicts without a seal",
        "Nobody but its holder ends a claimed epoch without having sealed it.",
        f"{REAPS}::test_a_worker_that_beats_just_before_the_seal_keeps_its_epoch",
        replaced_everywhere(life, "seal_epoch", seal_nothing),
    ),
    Mutant(
        "seals forget the start",
        "A seal keeps what the last beat said of the start.",
        f"{REAPS}::test_what_may_have_run_is_counted_though_its_worker_was_never_heard_again",
        replaced_everywhere(life, "seal_epoch", seal_and_forget),
    ),
    Mutant(
        "heartbeats are tidied away",
        "Nobody deletes a heartbeat, for it may be a seal.",
        f"{REAPS}::test_a_seal_outlives_its_job_and_a_claimer_that_slept_through_it_starts_nothing",
        replaced(endings, "_clean_up", clean_up_heartbeats),
    ),
)
