"""Changes of priority without one of their rules."""

from __future__ import annotations

from stado.core import moves
from stado.core.records import PriorityChange, Record
from stado.jobs import claim, endings, priority, queue_index
from stado.jobs.changes import pause
from stado.jobs.claim import Claimed
from stado.jobs.repository import Cells, Repository
from stado.storage.faults import FaultKind
from tests.holes import test_priorities
from tests.mutants.mutant import Mutant, replaced, replaced_everywhere

HOLES = "tests/holes/test_priorities.py"

_prioritized = moves.prioritized


def keep_nonce(record: Record, change: PriorityChange, *, nonce: str) -> Record:
    return _prioritized(record, change, nonce=record.nonce)


def forget_who(record: Record, change: PriorityChange, *, nonce: str) -> Record:
    return record.evolve(priority=change.after, nonce=nonce)


def take_whatever_is_queued(record: Record, queued: Record) -> Record:
    return record.evolve(priority=queued.priority, priority_changes=queued.priority_changes)


def announce_first(self: priority._Attempt, found: priority.Stored[Record]) -> object:
    """As moves do that write a job anew."""
    before, repo = found.value, self._repo
    change = PriorityChange(
        at=repo.now(),
        by=self._by,
        epoch=before.epoch,
        before=before.priority,
        after=self._priority,
    )
    changed = _prioritized(before, change, nonce=repo.entropy.letters(8))
    repo.create_entry(changed)
    try:
        repo.store.replace(changed.own_key(), changed.encode(), found.version)
    except priority.Conflict:
        repo.delete_entry(changed)
        return None
    repo.delete_entry(before)
    return priority.Receipt(changed, change, changed_now=True)


def write_over(self: priority._Attempt, found: priority.Stored[Record]) -> object:
    before, repo = found.value, self._repo
    change = PriorityChange(
        at=repo.now(), by=self._by, epoch=before.epoch, before=0, after=self._priority
    )
    changed = _prioritized(before, change, nonce=repo.entropy.letters(8))
    repo.store.put(changed.own_key(), changed.encode())
    return self._receipt(changed, change, [before])


def in_memory_alone(repo: Repository, claimed: Claimed, record: Record) -> Claimed:
    return Claimed(record, claimed.running_version)


def never_begun(cells: Cells, epoch: int) -> bool:
    return False


def go_on_unasked(self: priority._Attempt, record: Record) -> Exception:
    return priority.NotQueued(record)


MUTANTS = (
    Mutant(
        "a priority keeps the nonce",
        "Each change of a queue record has a nonce of its own.",
        "tests/jobs/test_priority.py::test_what_a_job_was_asked_to_be_stays_as_it_is",
        replaced(moves, "prioritized", keep_nonce),
    ),
    Mutant(
        "nobody notes who has set a priority",
        "A change of priority stays with the job, and is told.",
        "tests/jobs/test_events.py::test_another_priority_is_told_where_it_was_given",
        replaced(moves, "prioritized", forget_who),
        fails_with=AssertionError,
    ),
    Mutant(
        "the entry of a priority comes before its record",
        "A priority is in the record before an entry says it.",
        f"{HOLES}::test_an_agent_that_meets_a_change_at_any_step_leaves_the_way_to_the_job",
        replaced(priority._Attempt, "_replace", announce_first),
        {"steps": 4},
    ),
    Mutant(
        "priorities are written over what stands there",
        "A priority is changed by a replace of the record that was read.",
        f"{HOLES}::test_no_change_of_a_priority_resurrects_a_job",
        replaced(priority._Attempt, "_replace", write_over),
        {"steps": 3, "move": test_priorities.cancel_it},
    ),
    Mutant(
        "who sets a priority does not look again",
        "A priority is acknowledged when no cell stood after it was written.",
        f"{HOLES}::test_a_change_that_comes_after_a_claim_is_not_acknowledged",
        replaced(Cells, "begun", never_begun),
    ),
    Mutant(
        "what was not answered was not done",
        "Who had no answer to a change does not say that there was none.",
        "tests/jobs/test_priority.py"
        "::test_a_job_that_left_the_queue_before_it_could_be_looked_up_is_not_called_unchanged",
        replaced(priority._Attempt, "_too_late", go_on_unasked),
        {"kind": FaultKind.LOST_ANSWER},
        fails_with=priority.NotQueued,
    ),
    Mutant(
        "a claimer takes a priority over for itself",
        "A priority that a claimer has taken over is in its running record.",
        f"{HOLES}::test_a_priority_that_a_claimer_took_over_outlives_it",
        replaced(claim, "_rewritten", in_memory_alone),
    ),
    Mutant(
        "who ends an epoch for its holder does not look into the queue",
        "Who ends an epoch without its holder takes over what the queue record says.",
        f"{HOLES}::test_a_priority_acknowledged_just_before_a_pause_is_kept",
        replaced_everywhere(endings, "as_queued_last", lambda _, record: record),
        {"ask": pause},
    ),
    Mutant(
        "repair removes each queue record of a claimed epoch",
        "Repair leaves a priority of which the claim does not know.",
        f"{HOLES}::test_repair_leaves_a_priority_that_the_claim_does_not_know",
        replaced(queue_index, "_knows_more", lambda *_: False),
    ),
    Mutant(
        "late queue records take a priority back",
        "A queue record that knows of fewer changes changes nothing.",
        f"{HOLES}::test_a_queue_record_that_lands_late_takes_no_priority_back",
        replaced(moves, "as_queued", take_whatever_is_queued),
    ),
)
