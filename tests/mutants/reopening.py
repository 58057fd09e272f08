"""Pauses, resumes, retries and deletes without one of their rules."""

from __future__ import annotations

from stado.core import keys, moves
from stado.core.order import ReadyEntry
from stado.core.records import Asks, EndCell, Intent, OpenCell, Record
from stado.core.states import Opening, State, Verdict
from stado.errors import Ambiguous
from stado.jobs import claim, deletion, endings, finding, policy_seals, queue_index, submit
from stado.jobs.queue_index import Repair, RepairReport
from stado.jobs.repository import Repository
from stado.jobs.rest_walk import RestWalk
from tests.mutants.claims import POLICIES
from tests.mutants.mutant import Mutant, replaced, replaced_everywhere

REOPENINGS = "tests/holes/test_reopenings.py"

_end_as_asked = endings._end_as_asked
_remove_record = endings.remove_record


def rest_for_ever(repo: Repository, final: Record) -> None:
    endings._come_to_rest(repo, final)


def end_as_asked_of_losses_alone(repo: Repository, cell: EndCell) -> bool:
    return cell.ending.verdict is not Verdict.PAUSED and _end_as_asked(repo, cell)


def open_whatever_stands(
    repo: Repository, at_rest: Record, kind: Opening, *, by: str, note: str | None = None
) -> tuple[OpenCell, bool]:
    token, at = repo.entropy.token(), repo.now()
    record = moves.opened(at_rest, kind, token=token, at=at)
    cell = OpenCell(token=token, kind=kind, by=by, at=at, note=note, record=record)
    if kind is not Opening.DELETE:
        repo.create_entry(record)
    repo.create(cell.own_key(), cell)
    return cell, True


def open_without_an_entry(
    repo: Repository, at_rest: Record, kind: Opening, *, by: str, note: str | None = None
) -> tuple[OpenCell, bool]:
    token, at = repo.entropy.token(), repo.now()
    record = moves.opened(at_rest, kind, token=token, at=at)
    cell = OpenCell(token=token, kind=kind, by=by, at=at, note=note, record=record)
    return cell, repo.create(cell.own_key(), cell) is not None


def leave_the_entry(repair: Repair, entry: ReadyEntry, report: RepairReport) -> None:
    endings.settle(repair._repo, entry.job_id, entry.epoch - 1)


def cancel_alone(asks: Asks) -> Intent | None:
    return Intent.CANCEL if asks.cancel else None


def pause_first(asks: Asks) -> Intent | None:
    if asks.pause:
        return Intent.PAUSE
    return Intent.CANCEL if asks.cancel else None


def clean_up_but_the_rest_before(repo: Repository, cell: EndCell) -> None:
    job_id, epoch = cell.record.id, cell.record.epoch
    endings.remove_queued(repo, job_id, up_to_epoch=epoch)
    endings.remove_record(repo, State.RUNNING, job_id, below_epoch=epoch + 1)


def remove_with_the_heartbeat(
    repo: Repository, state: State, job_id: str, *, below_epoch: int | None = None
) -> None:
    _remove_record(repo, state, job_id, below_epoch=below_epoch)
    repo.store.delete(keys.heartbeat(job_id), None)


MUTANTS = (
    Mutant(
        "settlers ignore that a rest is over",
        "Who writes a record at rest looks whether the job was taken out of that rest.",
        f"{REOPENINGS}::test_a_slow_writer_of_a_record_at_rest_leaves_none_behind_a_retry",
        replaced(endings, "_rest", rest_for_ever),
    ),
    Mutant(
        "nobody walks through what rests",
        "Of a job that two prefixes at rest hold, the record of the lower epoch is removed.",
        f"{REOPENINGS}::test_a_record_at_rest_that_lands_long_after_a_retry_is_found",
        replaced(RestWalk, "_mend", lambda *_: False),
    ),
    Mutant(
        "ends leave the rest before",
        "The end of an epoch removes the record at rest that the job was taken out of.",
        f"{REOPENINGS}::test_a_record_at_rest_that_lands_while_a_retry_runs_goes_with_its_end",
        replaced(endings, "_clean_up", clean_up_but_the_rest_before),
    ),
    Mutant(
        "repair leaves opened epochs",
        "Repair settles the open cell that an entry without a record leads to.",
        f"{REOPENINGS}::test_repair_goes_on_for_an_opener_that_died",
        replaced(queue_index, "settle_open", lambda *_, **__: None),
    ),
    Mutant(
        "finders leave opened epochs",
        "Who finds an epoch that is opened and not queued goes on for its opener.",
        "tests/jobs/test_reopening.py::test_who_looks_goes_on_for_an_opener_that_died",
        replaced(finding, "settle_open", lambda *_, **__: None),
        fails_with=Ambiguous,
    ),
    Mutant(
        "openers write no entry",
        "An opener's index entry stands before its cell.",
        f"{REOPENINGS}::test_repair_goes_on_for_an_opener_that_died",
        replaced_everywhere(endings, "open_epoch", open_without_an_entry),
    ),
    Mutant(
        "entries of nobody stay",
        "An entry of an epoch that nobody opens is deleted after a lease.",
        f"{REOPENINGS}"
        "::test_the_entry_of_an_opener_that_died_before_its_cell_is_gone_after_a_lease",
        replaced(Repair, "_settle_before", leave_the_entry),
    ),
    Mutant(
        "openers take any cell for theirs",
        "Who loses the create of an open cell goes by the kind of the one that stands.",
        f"{REOPENINGS}::test_of_a_retry_and_a_delete_one_wins",
        replaced_everywhere(endings, "open_epoch", open_whatever_stands),
    ),
    Mutant(
        "losses forget a pause",
        "Who ends an epoch for a holder that is gone heeds a pause that was asked for.",
        f"{REOPENINGS}::test_a_pause_acknowledged_while_a_reaper_gives_its_verdict_is_not_dropped",
        replaced(Asks, "intent", property(cancel_alone)),
    ),
    Mutant(
        "a pause goes before a cancel",
        "Where both were asked for, the job is cancelled.",
        f"{REOPENINGS}::test_a_cancel_acknowledged_just_before_a_pause_takes_effect_is_not_dropped",
        replaced(Asks, "intent", property(pause_first)),
    ),
    Mutant(
        "pauses are settled without asking",
        "Before a job is shown as paused, it is read whether its cancel was asked for.",
        f"{REOPENINGS}::test_a_cancel_acknowledged_just_before_a_pause_takes_effect_is_not_dropped",
        replaced(endings, "_end_as_asked", end_as_asked_of_losses_alone),
    ),
    Mutant(
        "deletes take the seal along",
        "The last sign of a job's life outlives the job.",
        f"{REOPENINGS}::test_a_seal_outlives_a_job_that_is_deleted",
        replaced(deletion, "remove_record", remove_with_the_heartbeat),
    ),
    Mutant(
        "deletes ask for no uses",
        "The output that an artifact names stays, and so does its job.",
        "tests/jobs/test_artifacts.py"
        "::test_of_a_publish_and_a_delete_none_leaves_a_version_without_files",
        replaced(deletion, "uses_of", lambda *_: []),
    ),
    Mutant(
        "sweeps bring back what was deleted",
        "A job that was deleted is not missing from its run.",
        "tests/jobs/test_reopening.py::test_a_sweep_does_not_bring_back_what_was_deleted",
        replaced(
            submit, "is_known", lambda repo, job_id: finding.find_job(repo, job_id) is not None
        ),
    ),
    Mutant(
        "settlers leave what a delete has removed",
        "Who settles a job that is deleted leaves no record of it.",
        f"{REOPENINGS}::test_a_deleted_job_does_not_come_back_by_a_slow_settler",
        replaced(endings, "remove_superseded", lambda *_: None),
    ),
    Mutant(
        "claimers leave the rest before",
        "Who claims an opened epoch removes the record at rest that the job was taken out of.",
        f"{REOPENINGS}::test_a_job_that_runs_again_is_seen_nowhere_else_though_its_retrier_died",
        replaced(claim, "remove_superseded", lambda *_: None),
    ),
    Mutant(
        "retried trainings spare nothing",
        "What a policy of an earlier life names is not swept.",
        f"{POLICIES}::test_a_retry_makes_another_policy_and_leaves_the_first_as_it_was",
        replaced_everywhere(policy_seals, "saves_named", lambda *_, **__: []),
    ),
    Mutant(
        "retried trainings have one policy",
        "Each retry of a training makes another policy.",
        f"{POLICIES}::test_a_retry_makes_another_policy_and_leaves_the_first_as_it_was",
        replaced(Record, "policy_revision", property(lambda _: 1)),
    ),
)
