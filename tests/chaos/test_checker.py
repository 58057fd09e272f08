"""Each check bites: a bucket and side effects that are all right but for one thing."""

from __future__ import annotations

from pathlib import Path

import pytest

from stado.core import keys
from stado.core.records import (
    ClaimCell,
    EndCell,
    Intent,
    LogAccount,
    Manifest,
    Record,
    RunRecord,
)
from stado.core.states import Reason, State, Verdict
from stado.jobs.changes import cancel
from tests.chaos.plan import Work
from tests.chaos.scene import LOG, RUN, Scene, completed


@pytest.mark.parametrize("losses", [0, 1, 2])
def test_nothing_is_found_where_all_is_well(tmp_path: Path, losses: int) -> None:
    assert completed(tmp_path, losses=losses).violated() == set()


def test_nothing_is_found_of_a_cancelled_job(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    answer = cancel(scene.world.repo, scene.job_id, by="ada")
    scene.ledger.note_cancel(scene.job_id, answer.record.epoch)
    assert scene.violated() == set()


def test_nothing_is_found_of_a_job_that_failed_by_itself(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    claimed = scene.start()
    scene.note("ended", 1, 7)
    scene.leave_files(1)
    scene.end(claimed, Verdict.FAILED, Reason.JOB_FAILED, exit_code=7)
    assert scene.violated() == set()


# --- the bucket -----------------------------------------------------------------------------


def test_a_job_under_two_prefixes(tmp_path: Path) -> None:
    scene = completed(tmp_path)
    record = scene.world.record(State.COMPLETED, scene.job_id)
    failed = record.evolve(state=State.FAILED)
    scene.world.store.put(keys.record(State.FAILED, scene.job_id), failed.encode())
    assert "one_outcome" in scene.violated()


def test_a_job_that_is_gone(tmp_path: Path) -> None:
    scene = completed(tmp_path)
    scene.remove(keys.record(State.COMPLETED, scene.job_id))
    assert {"one_outcome", "acknowledged"} <= scene.violated()


def test_a_job_that_is_still_queued(tmp_path: Path) -> None:
    assert {"one_outcome", "nothing_open"} <= Scene(tmp_path).violated()


def test_a_record_that_is_not_what_the_verdict_says(tmp_path: Path) -> None:
    scene = completed(tmp_path)
    scene.change(Record, keys.record(State.COMPLETED, scene.job_id), starts=2)
    assert scene.violated() == {"one_outcome"}


def test_an_epoch_that_follows_one_that_completed(tmp_path: Path) -> None:
    scene = completed(tmp_path, losses=1)
    scene.change_ending(1, verdict=Verdict.COMPLETED)
    assert scene.violated() == {"epochs_follow_losses"}


def test_an_epoch_that_was_lost_for_no_reason(tmp_path: Path) -> None:
    scene = completed(tmp_path, losses=1)
    scene.change_ending(1, reason=None)
    assert "epochs_follow_losses" in scene.violated()


def test_an_epoch_without_a_verdict(tmp_path: Path) -> None:
    scene = completed(tmp_path, losses=1)
    scene.remove(keys.end_cell(scene.job_id, 1))
    assert "epochs_follow_losses" in scene.violated()


def test_a_claim_that_nobody_ended(tmp_path: Path) -> None:
    scene = completed(tmp_path)
    cell = scene.world.repo.claim_cell(scene.job_id, 1)
    cell = cell.evolve(record=cell.record.evolve(epoch=2))
    scene.world.store.put(keys.claim_cell(scene.job_id, 2), cell.encode())
    assert scene.violated() == {"epochs_follow_losses"}


@pytest.mark.parametrize("reason", [Reason.LAUNCH_FAILED, Reason.INPUT_UNAVAILABLE, None])
def test_an_outcome_that_no_job_can_have(tmp_path: Path, reason: Reason | None) -> None:
    scene = Scene(tmp_path)
    scene.end(scene.start(), Verdict.FAILED, reason)
    assert "known_reason" in scene.violated()


def test_a_job_that_was_given_up_too_early(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.end(scene.start(), Verdict.FAILED, Reason.LEASE_EXPIRED_MAX_ATTEMPTS, exit_code=None)
    assert scene.violated() == {"known_reason"}


def test_a_document_that_is_none(tmp_path: Path) -> None:
    scene = completed(tmp_path)
    scene.world.store.put(keys.output_manifest(scene.job_id, 1), b"{")
    assert "readable" in scene.violated()


def test_an_entry_that_is_left_in_the_index(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    (entry,) = scene.world.names(keys.READY)
    scene.complete(scene.start())
    scene.world.store.put(entry, b"")
    assert scene.violated() == {"nothing_open"}


def test_an_acknowledged_submission_that_is_gone(tmp_path: Path) -> None:
    scene = completed(tmp_path)
    scene.remove(keys.run(RUN))
    assert scene.violated() == {"acknowledged"}


def test_two_answers_with_different_ids(tmp_path: Path) -> None:
    scene = completed(tmp_path)
    scene.ledger.note_told(RUN, ["aaaaaaaaaaaaaaaa"])
    assert "acknowledged" in scene.violated()


def test_a_submission_that_is_not_complete(tmp_path: Path) -> None:
    scene = completed(tmp_path)
    scene.change(RunRecord, keys.run(RUN), complete=False)
    assert scene.violated() == {"acknowledged"}


# --- starts ---------------------------------------------------------------------------------


def test_a_start_without_a_claim(tmp_path: Path) -> None:
    scene = completed(tmp_path)
    scene.remove(keys.claim_cell(scene.job_id, 1))
    assert scene.violated() == {"starts_are_claimed"}


def test_a_start_of_an_epoch_that_was_claimed_to_cancel_it(tmp_path: Path) -> None:
    scene = completed(tmp_path)
    queued = scene.world.repo.claim_cell(scene.job_id, 1).record.evolve(state=State.QUEUED)
    key = keys.claim_cell(scene.job_id, 1)
    scene.change(ClaimCell, key, intent=Intent.CANCEL, record=queued)
    assert scene.violated() == {"starts_are_claimed"}


def test_a_start_of_an_epoch_that_was_adopted(tmp_path: Path) -> None:
    scene = completed(tmp_path, losses=1)
    _adopt(scene, 2)
    assert "starts_are_claimed" in scene.violated()


def test_an_epoch_that_was_started_twice(tmp_path: Path) -> None:
    scene = completed(tmp_path)
    scene.note("started", 1, "-", pid=101)
    assert scene.violated() == {"one_start_an_epoch"}


def test_a_start_that_is_not_counted(tmp_path: Path) -> None:
    scene = completed(tmp_path, losses=1)
    record = scene.world.record(State.COMPLETED, scene.job_id).evolve(starts=1)
    scene.world.store.put(keys.record(State.COMPLETED, scene.job_id), record.encode())
    scene.change(EndCell, keys.end_cell(scene.job_id, 2), record=record)
    assert scene.violated() == {"starts_are_counted"}


def test_an_older_command_beside_a_newer_one_is_fine_where_nobody_was_heard(tmp_path: Path) -> None:
    scene = completed(tmp_path, losses=1)
    scene.note("lives", 1, "-")
    assert scene.violated() == set()


def test_an_older_command_beside_a_newer_one_though_all_of_it_was_said_to_be_dead(
    tmp_path: Path,
) -> None:
    scene = completed(tmp_path, losses=1)
    scene.change_ending(1, reason=Reason.SUPERVISOR_DIED)
    assert scene.violated() == set()
    scene.note("child", 1, "-", pid=102)
    assert scene.violated() == {"overlaps_were_sealed"}


def test_a_process_that_outlives_its_job(tmp_path: Path) -> None:
    scene = completed(tmp_path)
    scene.world.clock.sleep(2)
    scene.note("child", 1, "-", pid=102)
    assert scene.violated() == set()
    scene.world.clock.sleep(2)
    scene.note("child", 1, "-", pid=102)
    assert scene.violated() == {"nothing_lives_after"}


# --- outcomes -------------------------------------------------------------------------------


def test_a_completed_job_that_never_came_to_its_end(tmp_path: Path) -> None:
    scene = completed(tmp_path)
    scene.rewrite_traces("ended 1", "lives 1")
    assert scene.violated() == {"outcome_was_reached"}


def test_a_completed_job_that_came_to_its_end_in_another_epoch(tmp_path: Path) -> None:
    scene = completed(tmp_path, losses=1)
    scene.rewrite_traces("ended 2", "ended 1")
    assert scene.violated() == {"outcome_was_reached"}


def test_a_job_that_came_to_its_end_in_the_epoch_that_it_was_adopted_from(tmp_path: Path) -> None:
    scene = completed(tmp_path, losses=1)
    _adopt(scene, 2)
    scene.rewrite_traces("started 2", "lives 1")
    scene.rewrite_traces("ended 2", "ended 1")
    assert scene.violated() == set()


def test_another_exit_code_than_the_command_had(tmp_path: Path) -> None:
    scene = completed(tmp_path)
    scene.rewrite_traces(" 0\n", " 7\n")
    assert scene.violated() == {"outcome_was_reached"}


def test_a_signal_that_nobody_sent(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.end(scene.start(), Verdict.FAILED, Reason.JOB_FAILED, exit_code=-9)
    assert scene.violated() == {"outcome_was_reached"}
    scene.ledger.note_killed_command(scene.job_id)
    assert scene.violated() == set()


def test_a_completed_job_that_was_not_verified(tmp_path: Path) -> None:
    scene = completed(tmp_path, verify="true")
    assert scene.violated() == {"outcome_was_reached"}
    scene.rewrite_traces("started 1", "verified 1 1 1000.0 1.0 0\nstarted 1")
    assert scene.violated() == set()


def test_a_verify_that_is_said_to_have_failed_and_passed(tmp_path: Path) -> None:
    scene = Scene(tmp_path, verify="true")
    claimed = scene.start()
    scene.note("ended", 1, 0)
    scene.note("verified", 1, 0)
    scene.end(claimed, Verdict.FAILED, Reason.VERIFY_FAILED)
    assert scene.violated() == {"outcome_was_reached"}
    scene.rewrite_traces("verified", "verified 1 1 1.0 1.0 5\nlives")
    assert scene.violated() == set()


def test_a_start_after_a_cancel_that_was_acknowledged(tmp_path: Path) -> None:
    scene = completed(tmp_path, losses=1)
    scene.ledger.note_cancel(scene.job_id, 2)
    assert scene.violated() == set()
    scene.ledger.note_cancel(scene.job_id, 1)
    assert scene.violated() == {"cancels_stand"}


def test_a_cancel_that_nobody_asked_for(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.end(scene.start(), Verdict.CANCELLED, Reason.CANCELLED, exit_code=None)
    assert scene.violated() == {"cancelled_was_asked"}


# --- what jobs leave ------------------------------------------------------------------------


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    scene = completed(tmp_path)
    scene.remove(keys.output_file(scene.job_id, 1, "result"))
    assert scene.violated() == {"files_are_whole"}


def test_a_file_of_the_right_size_with_other_bytes(tmp_path: Path) -> None:
    scene = completed(tmp_path)
    key = keys.output_file(scene.job_id, 1, "result")
    scene.world.store.put(key, bytes(len(scene.world.store.get(key).data)))
    assert scene.violated() == {"files_are_whole"}


def test_a_completed_job_without_its_result(tmp_path: Path) -> None:
    scene = completed(tmp_path)
    scene.change(Manifest, keys.output_manifest(scene.job_id, 1), files=[])
    assert scene.violated() == {"files_are_whole"}
    scene.remove(keys.output_manifest(scene.job_id, 1))
    assert scene.violated() == {"files_are_whole"}


def test_an_account_of_a_log_that_does_not_add_up(tmp_path: Path) -> None:
    scene = completed(tmp_path)
    account = LogAccount(written=len(LOG) + 1, kept=len(LOG), dropped=0)
    scene.change(Manifest, keys.output_manifest(scene.job_id, 1), log=account)
    assert scene.violated() == {"log_is_accounted"}


def test_a_log_with_a_gap_that_was_not_told(tmp_path: Path) -> None:
    scene = completed(tmp_path)
    scene.remove(keys.log_segment(scene.job_id, 1, 0))
    assert scene.violated() == {"log_is_accounted"}


def test_a_log_with_other_bytes_than_were_printed(tmp_path: Path) -> None:
    scene = completed(tmp_path)
    scene.world.store.put(keys.log_segment(scene.job_id, 1, 0), LOG.replace(b"2", b"3"))
    assert scene.violated() == {"log_is_accounted"}


def test_a_log_that_begins_where_its_checkpoint_was(tmp_path: Path) -> None:
    scene = completed(tmp_path, work=Work.CHECKPOINTS)
    assert scene.violated() == set()
    rest = LOG[-7:]
    scene.world.store.put(keys.log_segment(scene.job_id, 1, 0), rest)
    account = LogAccount(written=len(rest), kept=len(rest), dropped=0)
    scene.change(Manifest, keys.output_manifest(scene.job_id, 1), log=account)
    assert scene.violated() == set()


# --- helpers --------------------------------------------------------------------------------


def _adopt(scene: Scene, epoch: int) -> None:
    """Says of an epoch that its command had been running before."""
    cell = scene.world.repo.claim_cell(scene.job_id, epoch)
    assert cell.record.holder is not None
    record = cell.record.evolve(holder=cell.record.holder.evolve(adopted=True))
    scene.change(ClaimCell, keys.claim_cell(scene.job_id, epoch), record=record)
