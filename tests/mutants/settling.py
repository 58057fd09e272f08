"""Verdicts, settling, cancels and finding without one of their rules."""

from __future__ import annotations

from stado.core import keys, moves
from stado.core.records import ClaimCell, EndCell, Ending, Intent, Record, policy_name
from stado.core.states import State, Verdict
from stado.jobs import asking, changes, endings, finding, policy_seals
from stado.jobs.changes import Stopping, _Wish
from stado.jobs.finding import Found
from stado.jobs.repository import Cells, Repository
from stado.storage.port import Version
from tests.mutants.claims import CANCELS, INDEX, POLICIES, REAPS, SETTLES
from tests.mutants.mutant import Mutant, replaced, replaced_everywhere

_settle = endings.settle
_after = moves.after
_seek = finding._seek
_seal_policy = policy_seals.seal_policy


def verdict_over_others(repo: Repository, record: Record, ending: Ending) -> tuple[EndCell, bool]:
    cell = EndCell(token=repo.entropy.token(), ending=ending, record=moves.ended(record, ending))
    repo.store.put(keys.end_cell(record.id, record.epoch), cell.encode())
    return cell, True


def verdict_by_create_alone(
    repo: Repository, record: Record, ending: Ending
) -> tuple[EndCell, bool]:
    cell = EndCell(token=repo.entropy.token(), ending=ending, record=moves.ended(record, ending))
    key = keys.end_cell(record.id, record.epoch)
    if repo.create(key, cell) is not None:
        return cell, True
    return repo.read_taken(EndCell, key).value, False


def lost_without_asking(repo: Repository, record: Record, loss: moves.Loss) -> Ending:
    return moves.lost(record, loss, now=repo.now())


def settle_backwards(repo: Repository, job_id: str, epoch: int) -> EndCell | None:
    cell = repo.find_end(job_id, epoch)
    if cell is not None:
        endings._clean_up(repo, cell)
    return _settle(repo, job_id, epoch)


def settle_record_first(repo: Repository, job_id: str, epoch: int) -> EndCell | None:
    cell = repo.find_end(job_id, epoch)
    if cell is not None and cell.ending.verdict is Verdict.LOST:
        endings.project(repo, moves.after(cell))
    return _settle(repo, job_id, epoch)


def settle_own_backwards(repo: Repository, cell: EndCell, running_version: Version) -> None:
    final = moves.after(cell)
    if not final.state.at_rest:
        endings.settle(repo, final.id, cell.record.epoch)
        return
    repo.store.delete(keys.record(State.RUNNING, final.id), running_version)
    endings.project(repo, final)


def rest_before_the_seal(repo: Repository, final: Record) -> None:
    endings.project(repo, final)
    if final.spec.makes_policy:
        policy_seals.seal_policy(repo, final)


def seal_over_others(repo: Repository, final: Record) -> None:
    key = keys.policy(policy_name(final.id, final.policy_revision))
    repo.store.delete(key, None)
    _seal_policy(repo, final)


def queue_whatever_has_begun(
    repo: Repository, following: Record, *, announced: bool = False
) -> None:
    if not announced:
        repo.create_entry(following)
    endings.project(repo, following)


def project_over_others(repo: Repository, record: Record) -> bool:
    repo.store.put(keys.record(record.state, record.id), record.encode())
    return True


def project_where_nothing_is(repo: Repository, record: Record) -> bool:
    return repo.create(keys.record(record.state, record.id), record) is not None


def project_and_leave_the_old_entry(repo: Repository, record: Record) -> bool:
    key = keys.record(record.state, record.id)
    if repo.create(key, record) is not None:
        return True
    found = repo.read(Record, key)
    if found.value.epoch < record.epoch:
        repo.store.replace(key, record.encode(), found.version)
    return found.value.epoch <= record.epoch


def clean_up_of_any_epoch(repo: Repository, cell: EndCell) -> None:
    job_id = cell.record.id
    endings.remove_queued(repo, job_id, up_to_epoch=cell.record.epoch)
    running = repo.find_record(State.RUNNING, job_id)
    if running is not None:
        repo.store.delete(keys.record(State.RUNNING, job_id), running.version)


def clean_up_without_version(repo: Repository, cell: EndCell) -> None:
    job_id, epoch = cell.record.id, cell.record.epoch
    endings.remove_queued(repo, job_id, up_to_epoch=epoch)
    running = repo.find_record(State.RUNNING, job_id)
    if running is not None and running.value.epoch <= epoch:
        repo.store.delete(keys.record(State.RUNNING, job_id), None)


def find_in_order(repo: Repository, job_id: str) -> Found | None:
    for state in State:
        stored = repo.find_record(state, job_id)
        if stored is not None:
            return Found(stored.value, Cells(frozenset(), frozenset(), frozenset()))
    return None


def seek_without_a_second_look(repo: Repository, job_id: str) -> tuple[Found | None, bool]:
    if not repo.cells(job_id).highest:
        return finding._find_new(repo, job_id), False
    return _seek(repo, job_id)


def expect_any_epoch(repo: Repository, expected: Record, cells: Cells) -> Found | None:
    stored = repo.find_record(expected.state, expected.id)
    if stored is not None:
        return Found(stored.value, cells)
    return None


def ask_and_be_content(repo: Repository, record: Record, wish: _Wish) -> Stopping:
    asked = asking.ask(repo, record.id, record.epoch, wish.intent, by=wish.by, note=wish.note)
    return Stopping(record, asked, stopped_now=False)


def intend_in_secret(
    repo: Repository, record: Record, *, intent: Intent, by: str, note: str | None = None
) -> ClaimCell | None:
    return ClaimCell(token=repo.entropy.token(), intent=intent, by=by, at=repo.now(), record=record)


def goes_on_after_nothing(end: EndCell, intent: Intent) -> bool:
    return False


class _Draws:
    """A settler that makes up the nonce of the next epoch."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, cell: EndCell) -> Record:
        self._count += 1
        following = _after(cell)
        if following.state is not State.QUEUED:
            return following
        return following.evolve(nonce=f"{self._count:08d}")


MUTANTS = (
    Mutant(
        "verdicts replace verdicts",
        "The first verdict on an epoch stands for ever.",
        f"{SETTLES}::test_a_verdict_that_was_given_is_changed_by_nobody",
        replaced_everywhere(endings, "give_verdict", verdict_over_others),
    ),
    Mutant(
        "a verdict is ours by its answer alone",
        "A verdict whose answer got lost is known for our own.",
        "tests/holes/test_workers.py::test_a_verdict_whose_answer_got_lost_is_known_for_its_own",
        replaced_everywhere(endings, "give_verdict", verdict_by_create_alone),
    ),
    Mutant(
        "settling ignores what was asked",
        "Before the epoch after a loss is queued, what was asked of the lost one is read.",
        f"{CANCELS}::test_a_cancel_acknowledged_while_a_reaper_gives_its_verdict_is_not_dropped",
        replaced(endings, "_end_as_asked", lambda *_: False),
    ),
    Mutant(
        "verdicts on a loss ignore what was asked",
        "Who ends an epoch for a holder that is gone gives the verdict that was asked for.",
        f"{CANCELS}::test_a_cancel_survives_that_the_job_was_lost_too_often_at_the_same_time",
        replaced_everywhere(endings, "ending_of_lost", lost_without_asking),
    ),
    Mutant(
        "settling removes first",
        "What follows is written before what is over is deleted.",
        f"{SETTLES}::test_some_prefix_shows_the_job_at_every_step_of_a_settler",
        replaced_everywhere(endings, "settle", settle_backwards),
    ),
    Mutant(
        "holders remove first",
        "A holder writes the record at rest before it deletes the running one.",
        f"{SETTLES}::test_a_holder_writes_the_record_at_rest_before_it_removes_the_running_one",
        replaced_everywhere(endings, "settle_own", settle_own_backwards),
    ),
    Mutant(
        "settlers write the entry after the record",
        "The index entry of an epoch is written before its queue record.",
        f"{INDEX}::test_no_queue_record_is_ever_without_its_entry",
        replaced_everywhere(endings, "settle", settle_record_first),
    ),
    Mutant(
        "settlers queue epochs that have begun",
        "An epoch that was claimed is not queued by a settler that comes late.",
        f"{SETTLES}::test_a_settler_that_slept_does_not_queue_an_epoch_that_runs",
        replaced(endings, "_queue", queue_whatever_has_begun),
    ),
    Mutant(
        "records replace those of later epochs",
        "Nothing is written over a record of the same or a higher epoch.",
        "tests/jobs/test_endings.py"
        "::test_a_slow_settler_does_not_replace_the_record_of_a_later_epoch",
        replaced_everywhere(endings, "project", project_over_others),
    ),
    Mutant(
        "records replace nothing",
        "A record is written over one of a lower epoch.",
        "tests/jobs/test_endings.py::test_a_lost_epoch_keeps_its_place_and_its_old_entry_goes",
        replaced_everywhere(endings, "project", project_where_nothing_is),
    ),
    Mutant(
        "entries of replaced records stay",
        "Who writes a queue record over another deletes the entry of that one.",
        f"{INDEX}::test_a_claimer_leaves_the_entry_of_an_epoch_that_is_on_its_way",
        replaced_everywhere(endings, "project", project_and_leave_the_old_entry),
    ),
    Mutant(
        "settlers remove running records of any epoch",
        "A running record is removed only if its epoch is over.",
        f"{SETTLES}::test_a_settler_that_slept_before_its_last_step_spares_the_running_record"
        "_of_the_next_epoch",
        replaced(endings, "_clean_up", clean_up_of_any_epoch),
    ),
    Mutant(
        "deletes of running records name no version",
        "A running record is deleted only as the one that was read.",
        f"{SETTLES}::test_a_late_delete_of_a_running_record_spares_that_of_the_next_epoch",
        replaced(endings, "_clean_up", clean_up_without_version),
    ),
    Mutant(
        "settlers differ",
        "Whoever settles an epoch writes the same bytes as any other.",
        "tests/jobs/test_endings.py::test_settling_is_idempotent",
        replaced(moves, "after", _Draws()),
        {"verdict": Verdict.LOST},
    ),
    Mutant(
        "finding reads the prefixes in order",
        "A job is looked for by its cells, which only grow.",
        f"{REAPS}::test_a_job_that_moves_backwards_is_found_at_every_step_of_the_finder",
        replaced_everywhere(finding, "find_job", find_in_order),
    ),
    Mutant(
        "finding looks once",
        "A job without cells and without a queue record is looked for once more.",
        f"{REAPS}::test_a_job_that_is_claimed_is_found_at_every_step_of_the_finder",
        replaced(finding, "_seek", seek_without_a_second_look),
    ),
    Mutant(
        "finding takes any epoch",
        "A record counts only if it is of the epoch that the cells announce.",
        f"{CANCELS}::test_a_cancel_is_not_satisfied_with_the_queue_record_of_an_epoch_that_is_over",
        replaced(finding, "_expect", expect_any_epoch),
    ),
    Mutant(
        "readers put nothing back",
        "A running record that is gone while its epoch goes on is put back by who misses it.",
        "tests/jobs/test_finding.py::test_a_running_record_that_is_gone_is_put_back",
        replaced(finding, "project", lambda *_: True),
    ),
    Mutant(
        "a cancel looks at no verdict",
        "A cancel is acknowledged only if the epoch had no verdict after its flag was there.",
        f"{CANCELS}::test_a_flag_that_comes_after_the_verdict_is_not_acknowledged_for_that_epoch",
        replaced(changes, "_ask_holder", ask_and_be_content),
    ),
    Mutant(
        "policies after the record at rest",
        "A policy is sealed before any prefix shows its job at rest.",
        f"{POLICIES}::test_nobody_sees_a_training_at_rest_before_its_policy_stands",
        replaced(endings, "_come_to_rest", rest_before_the_seal),
    ),
    Mutant(
        "policies are sealed anew",
        "The first seal of a policy counts, for ever.",
        f"{POLICIES}::test_a_policy_is_sealed_once",
        replaced_everywhere(policy_seals, "seal_policy", seal_over_others),
    ),
    Mutant(
        "a cancel claims nothing",
        "The cancel of a queued job holds the claim cell of its epoch.",
        f"{CANCELS}::test_nobody_starts_a_queued_job_whose_cancel_was_acknowledged",
        replaced(changes, "claim_for_intent", intend_in_secret),
    ),
    Mutant(
        "a cancel is content with a lost epoch",
        "A cancel whose epoch turns out to be lost starts over with the next.",
        f"{CANCELS}::test_a_cancel_that_slept_before_its_intent_cancels_the_epoch_that_waits",
        replaced(changes, "_goes_on", goes_on_after_nothing),
    ),
)
