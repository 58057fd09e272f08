"""Each checker says so when its rule is broken, and nothing when none is."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

import pytest
from msgspec.structs import replace

from stado.core import keys
from stado.core.hints import Assignment, Assignments, HostPlan
from stado.core.ledger import LedgerIndex, encode_segment, segment_of
from stado.core.moves import ended_as
from stado.core.order import entry_name
from stado.core.records import (
    Capacity,
    Checkpoint,
    CheckpointFile,
    Ending,
    Intent,
    JobReport,
    LogAccount,
    LogIndex,
    LogRange,
    PolicySeal,
    Ran,
    Record,
)
from stado.core.settings import DeploymentSettings, Quotas
from stado.core.spec import After, Step
from stado.core.states import JobType, Opening, Reason, State, Verdict
from stado.core.usage import Use, use_key, use_of
from stado.jobs import pipelines
from stado.jobs.asking import ask
from stado.jobs.changes import resume, retry
from stado.jobs.deletion import delete
from stado.jobs.endings import open_epoch, project
from stado.jobs.log_compaction import compact_log
from stado.jobs.log_segments import write_segment
from stado.jobs.outputs import OutputPublisher
from stado.jobs.quotas import find_token
from stado.storage.observe import Operation
from tests.simulation.bench import LEASE, Bench, changed, made_bench
from tests.simulation.checkers import CHECKERS
from tests.simulation.checkers.answers import AnswersChecker, CancelsChecker, PausesChecker
from tests.simulation.checkers.base import Checker
from tests.simulation.checkers.cells import CellsChecker
from tests.simulation.checkers.finding import FindingChecker
from tests.simulation.checkers.hints import AssignmentsChecker
from tests.simulation.checkers.logs import LogsChecker
from tests.simulation.checkers.order import OrderChecker
from tests.simulation.checkers.policies import PoliciesChecker
from tests.simulation.checkers.quotas import QuotasChecker
from tests.simulation.checkers.rest import RestChecker
from tests.simulation.checkers.seals import SealsChecker
from tests.simulation.checkers.starts import StartsChecker
from tests.simulation.checkers.times import TimesChecker
from tests.simulation.checkers.usage import UsageChecker
from tests.simulation.commands import RESULT, Script, SimCommand, result_of
from tests.simulation.people import Answer


class MakeBench(Protocol):
    def __call__(self, *kinds: type[Checker]) -> Bench: ...


@pytest.fixture
def make_bench() -> Iterator[MakeBench]:
    with ExitStack() as stack:

        def make(*kinds: type[Checker]) -> Bench:
            bench: AbstractContextManager[Bench] = made_bench(*kinds)
            return stack.enter_context(bench)

        yield make


def run_to_end(bench: Bench, script: Script, *, log: bool = True) -> tuple[Record, SimCommand]:
    """From the submission to a settled verdict, with all that the script leaves."""
    record = bench.claim(bench.submit())
    bench.beat(record)
    command = bench.start(record, script)
    command.printed += b"a line\n"
    bench.world.kernel.now += 1.0
    command.die(script.exit_code)
    if log:
        write_segment(bench.repo, record.id, 1, 0, bytes(command.printed))
    done = script.exit_code == 0
    verdict = Verdict.COMPLETED if done else Verdict.FAILED
    reason = None if done else Reason.JOB_FAILED
    bench.end(record, bench.ending(verdict, script.exit_code, reason))
    bench.settle(record)
    return record, command


def _with_segments(bench: Bench) -> str:
    record = bench.claim(bench.submit())
    for number in range(3):
        write_segment(bench.repo, record.id, 1, number * 2, b"%d\n" % number)
    return record.id


# --- no rule is broken ------------------------------------------------------------------


def test_a_job_that_runs_to_its_end_breaks_no_rule(make_bench: MakeBench) -> None:
    bench = make_bench(*CHECKERS)
    record, _ = run_to_end(bench, Script(seconds=1.0))
    bench.tell_record(bench.record(State.COMPLETED, record.id))
    bench.look_at_the_end()
    assert bench.violation == ""


def test_a_job_that_is_lost_once_and_fails_breaks_no_rule(make_bench: MakeBench) -> None:
    bench = make_bench(*CHECKERS)
    first = bench.claim(bench.submit())
    bench.beat(first)
    command = bench.start(first)
    second = bench.claim(bench.lose(first), bench.stranger)
    bench.beat(second, by=bench.stranger)
    other = bench.start(second, by=bench.stranger)
    for each in (command, other):
        each.die(1)
    bench.end(second, bench.ending(Verdict.FAILED, 1, Reason.JOB_FAILED), bench.stranger)
    bench.settle(second, bench.stranger)
    assert bench.violation == ""


# --- what follows ---------------------------------------------------------------------


@pytest.mark.parametrize("asked", [False, True])
def test_a_step_that_follows_a_job_that_was_to_be_cancelled(
    asked: bool, make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench(OrderChecker)
    monkeypatch.setattr(pipelines, "_is_cancelled", lambda *_: False)
    record = bench.claim(bench.submit(then=[Step(name="export", command="./export")]))
    if asked:
        ask(bench.repo, record.id, 1, Intent.CANCEL, by="ann")
    bench.end(record, bench.ending(Verdict.COMPLETED, 0, None))
    bench.settle(record)
    bench.look_at_the_end()
    assert ("which was cancelled" in bench.violation) is asked


# --- cells ------------------------------------------------------------------------------


def test_a_cell_that_is_changed(make_bench: MakeBench) -> None:
    bench = make_bench(CellsChecker)
    record = bench.claim(bench.submit())
    cell = bench.repo.claim_cell(record.id, 1)
    bench.write(bench.worker, cell.own_key(), cell)
    assert "was changed" in bench.violation


def test_a_cell_that_is_deleted(make_bench: MakeBench) -> None:
    bench = make_bench(CellsChecker)
    record = bench.claim(bench.submit())
    bench.delete(bench.worker, keys.claim_cell(record.id, 1))
    assert "was deleted" in bench.violation


def test_a_cell_that_holds_another_epoch(make_bench: MakeBench) -> None:
    bench = make_bench(CellsChecker)
    record = bench.claim(bench.submit())
    cell = bench.repo.claim_cell(record.id, 1)
    bench.write(bench.worker, keys.claim_cell(record.id, 2), cell)
    assert "cannot be judged" in bench.violation


def test_an_epoch_that_begins_though_none_led_to_it(make_bench: MakeBench) -> None:
    bench = make_bench(CellsChecker)
    record = bench.claim(bench.submit())
    cell = bench.repo.claim_cell(record.id, 1)
    later = type(cell)(
        token=cell.token, by=cell.by, at=cell.at, record=changed(cell.record, epoch=2)
    )
    bench.write(bench.worker, later.own_key(), later)
    assert "epoch 1 did not lead to it" in bench.violation


def test_a_verdict_of_somebody_else_without_a_seal(make_bench: MakeBench) -> None:
    bench = make_bench(CellsChecker)
    record = bench.claim(bench.submit())
    bench.beat(record)
    bench.end(record, bench.ending(Verdict.LOST), bench.stranger)
    assert "which it does not hold, without a seal" in bench.violation


def test_a_verdict_of_an_agent_whose_supervisor_lives(make_bench: MakeBench) -> None:
    bench = make_bench(CellsChecker)
    record = bench.claim(bench.submit())
    bench.end(record, bench.ending(Verdict.LOST), bench.agent)
    assert "whose supervisor lives" in bench.violation


def test_a_verdict_of_an_agent_whose_supervisor_is_gone_is_right(make_bench: MakeBench) -> None:
    bench = make_bench(CellsChecker)
    record = bench.claim(bench.submit())
    bench.worker.kill()
    bench.end(record, bench.ending(Verdict.LOST), bench.agent)
    assert bench.violation == ""


def test_a_verdict_of_a_supervisor_whose_command_lives(make_bench: MakeBench) -> None:
    bench = make_bench(CellsChecker)
    record = bench.claim(bench.submit())
    bench.start(record)
    bench.end(record, bench.ending(Verdict.CANCELLED))
    assert "while its command lives" in bench.violation


def test_a_record_at_rest_that_is_replaced(make_bench: MakeBench) -> None:
    bench = make_bench(CellsChecker)
    record, _ = run_to_end(bench, Script(seconds=1.0))
    assert bench.violation == ""
    ended = bench.record(State.COMPLETED, record.id)
    bench.write(bench.worker, ended.own_key(), changed(ended, priority=7))
    assert "was changed" in bench.violation


def test_a_cell_that_cannot_be_read_is_no_answer_of_the_store(make_bench: MakeBench) -> None:
    bench = make_bench(CellsChecker)
    record = bench.submit()
    key = keys.claim_cell(record.id, 1)
    bench.by(bench.worker, lambda: bench.world.store.create(key, b"nonsense"))
    assert "cannot be judged" in bench.violation


# --- seals ------------------------------------------------------------------------------


def test_a_beat_that_replaces_a_seal(make_bench: MakeBench) -> None:
    bench = make_bench(SealsChecker)
    record = bench.claim(bench.submit())
    bench.wait(2 * LEASE)
    bench.seal(record)
    assert bench.violation == ""
    bench.beat(record)
    assert "replaced the seal of epoch 1" in bench.violation


def test_a_seal_soon_after_a_beat(make_bench: MakeBench) -> None:
    bench = make_bench(SealsChecker)
    record = bench.claim(bench.submit())
    bench.wait(2 * LEASE)
    bench.beat(record)
    bench.wait(0.9 * LEASE)
    bench.seal(record)
    assert "10.8 s after a beat" in bench.violation


def test_a_seal_soon_after_a_checkpoint(make_bench: MakeBench) -> None:
    bench = make_bench(SealsChecker)
    record = bench.claim(bench.submit())
    bench.wait(2 * LEASE)
    key = keys.checkpoint_part(record.id, 1, 1, 1)
    bench.by(bench.worker, lambda: bench.world.store.put(key, b"part"))
    bench.wait(1.0)
    bench.seal(record)
    assert "1.0 s after a checkpoint" in bench.violation


def report(bench: Bench, record: Record, *, signs: int, named: bool = True) -> None:
    """Of its agent, which has heard of the supervisor so often."""
    assert record.holder is not None
    said = Capacity(
        consumer=record.holder.consumer,
        incarnation="one",
        host=record.holder.host,
        at=bench.repo.now(),
        counter=signs,
        broadcast_seconds=1.0,
        cpu_total=1,
        cpu_free=1,
        memory_total_gb=1,
        memory_free_gb=1,
        disk_free_gb=1,
        jobs=[JobReport(job_id=record.id, epoch=record.epoch, signs=signs)] if named else [],
        version="sim",
    )
    bench.write(bench.agent, said.own_key(), said)


@pytest.mark.parametrize(("signs", "found"), [(2, "1.0 s after its agent's report"), (1, "")])
def test_a_seal_soon_after_a_report(make_bench: MakeBench, signs: int, found: str) -> None:
    """One that tells of no new sign says nothing."""
    bench = make_bench(SealsChecker)
    record = bench.claim(bench.submit())
    report(bench, record, signs=1)
    bench.wait(2 * LEASE)
    report(bench, record, signs=signs)
    bench.wait(1.0)
    bench.world.checkers[0].on_request(bench.judge, Operation.LIST, keys.CAPACITY)
    bench.seal(record)
    assert found in bench.violation
    assert bool(bench.violation) == bool(found)


def test_a_seal_soon_after_a_report_that_was_taken_back_is_right(make_bench: MakeBench) -> None:
    bench = make_bench(SealsChecker)
    record = bench.claim(bench.submit())
    bench.wait(2 * LEASE)
    report(bench, record, signs=1)
    report(bench, record, signs=1, named=False)
    bench.wait(1.0)
    bench.seal(record)
    assert bench.violation == ""


# --- finding ----------------------------------------------------------------------------


def test_an_acknowledged_job_that_is_gone(make_bench: MakeBench) -> None:
    bench = make_bench(FindingChecker)
    record = bench.submit()
    bench.delete(bench.worker, record.own_key())
    assert "there is no trace" in bench.violation


def test_a_job_that_goes_back(make_bench: MakeBench) -> None:
    bench = make_bench(FindingChecker)
    queued = bench.submit()
    record = bench.claim(queued)
    assert bench.violation == ""
    bench.write(bench.worker, queued.own_key(), queued)
    bench.delete(bench.worker, keys.claim_cell(record.id, 1))
    assert "went back to queued of epoch 1" in bench.violation


def test_a_job_that_cannot_be_read(make_bench: MakeBench) -> None:
    bench = make_bench(FindingChecker)
    record = bench.submit()
    bench.by(bench.worker, lambda: bench.world.store.put(record.own_key(), b"nonsense"))
    assert "cannot be found" in bench.violation


# --- starts -----------------------------------------------------------------------------


def test_a_start_without_a_claim(make_bench: MakeBench) -> None:
    bench = make_bench(StartsChecker)
    bench.start(bench.submit())
    assert "without its claim" in bench.violation


def test_a_start_by_the_claim_of_another_host(make_bench: MakeBench) -> None:
    bench = make_bench(StartsChecker)
    record = bench.claim(bench.submit())
    bench.beat(record)
    bench.start(record, by=bench.stranger)
    assert "without its claim" in bench.violation


def test_a_start_without_a_beat(make_bench: MakeBench) -> None:
    bench = make_bench(StartsChecker)
    bench.start(bench.claim(bench.submit()))
    assert "without a fresh beat" in bench.violation


def test_a_start_long_after_the_last_beat(make_bench: MakeBench) -> None:
    """A supervisor that stood still meanwhile has to look again."""
    bench = make_bench(StartsChecker)
    record = bench.claim(bench.submit())
    bench.beat(record)
    bench.worker.freeze()
    bench.wait(0.51 * LEASE)
    bench.worker.thaw()
    bench.start(record)
    assert "without a fresh beat" in bench.violation


def test_a_second_start_in_one_epoch(make_bench: MakeBench) -> None:
    bench = make_bench(StartsChecker)
    record = bench.claim(bench.submit())
    bench.beat(record)
    bench.start(record).die(0)
    assert bench.violation == ""
    bench.start(record)
    assert "started after epoch 1 had" in bench.violation


def test_a_start_beside_one_that_was_not_lost(make_bench: MakeBench) -> None:
    bench = make_bench(StartsChecker)
    record = bench.claim(bench.submit())
    bench.beat(record)
    bench.start(record)
    later = bench.claim(bench.lose(record), bench.stranger)
    bench.delete(bench.judge, keys.end_cell(record.id, 1))
    bench.beat(later, by=bench.stranger)
    bench.start(later, by=bench.stranger)
    assert "beside epoch 1, which was not lost" in bench.violation


def test_a_start_that_is_not_counted(make_bench: MakeBench) -> None:
    bench = make_bench(StartsChecker)
    record, _ = run_to_end(bench, Script(seconds=1.0))
    ended = bench.record(State.COMPLETED, record.id)
    bench.write(bench.worker, ended.own_key(), changed(ended, starts=0))
    bench.look_at_the_end()
    assert "was started 1 times and tells 0" in bench.violation


def test_an_end_in_an_earlier_epoch_than_the_last_start(make_bench: MakeBench) -> None:
    bench = make_bench(StartsChecker)
    record = bench.claim(bench.submit())
    bench.beat(record)
    bench.start(record).die(0)
    later = bench.claim(bench.lose(record))
    bench.beat(later)
    bench.start(later).die(0)
    ending = bench.ending(Verdict.COMPLETED, 0)
    ended = changed(record, state=State.COMPLETED, ending=ending, starts=2)
    bench.write(bench.worker, ended.own_key(), ended)
    bench.look_at_the_end()
    assert "ended in epoch 1 and ran in 2" in bench.violation


# --- answers ----------------------------------------------------------------------------


def test_an_acknowledged_job_of_which_nobody_knows(make_bench: MakeBench) -> None:
    bench = make_bench(AnswersChecker)
    record = bench.submit()
    bench.tell(Answer("found", bench.world.kernel.now + 1.0, job_ids=(record.id,)))
    assert "it was said that there is no" in bench.violation


def test_an_answer_that_is_older_than_one_before_it(make_bench: MakeBench) -> None:
    bench = make_bench(AnswersChecker)
    queued = bench.submit()
    bench.tell_record(bench.claim(queued))
    bench.tell_record(queued)
    assert "was told queued of epoch 1" in bench.violation


def test_an_older_answer_to_who_asked_before(make_bench: MakeBench) -> None:
    bench = make_bench(AnswersChecker)
    queued = bench.submit()
    asked_at = bench.world.kernel.now
    bench.wait(1.0)
    bench.tell_record(bench.claim(queued))
    bench.tell(Answer("found", asked_at, job_ids=(queued.id,), record=queued))
    assert bench.violation == ""


def test_two_ends_of_one_job(make_bench: MakeBench) -> None:
    bench = make_bench(AnswersChecker)
    record, _ = run_to_end(bench, Script(seconds=1.0))
    bench.tell_record(bench.record(State.COMPLETED, record.id))
    bench.tell(Answer("listed", bench.world.kernel.now, states=((record.id, State.FAILED),)))
    assert "was told to be" in bench.violation


def test_one_run_of_two_answers(make_bench: MakeBench) -> None:
    bench = make_bench(AnswersChecker)
    bench.submit()
    bench.tell(Answer("submitted", bench.world.kernel.now, "run", ("another",)))
    assert "run was" in bench.violation


def test_an_end_that_is_not_the_one_that_was_told(make_bench: MakeBench) -> None:
    bench = make_bench(AnswersChecker)
    record, _ = run_to_end(bench, Script(seconds=1.0))
    ended = bench.record(State.COMPLETED, record.id)
    bench.tell_record(changed(ended, state=State.FAILED))
    bench.look_at_the_end()
    assert "and is completed" in bench.violation


# --- cancels ----------------------------------------------------------------------------


def test_a_start_after_a_cancel_was_acknowledged(make_bench: MakeBench) -> None:
    bench = make_bench(CancelsChecker)
    queued = bench.submit()
    ending = bench.ending(Verdict.CANCELLED, reason=Reason.CANCELLED_BY_USER)
    bench.tell_record(changed(queued, state=State.CANCELLED, ending=ending), "cancelled")
    bench.start(bench.claim(queued))
    assert "was cancelled in epoch 0 and started in 1" in bench.violation


def test_a_start_in_the_epoch_whose_cancel_was_acknowledged_is_right(
    make_bench: MakeBench,
) -> None:
    bench = make_bench(CancelsChecker)
    record = bench.claim(bench.submit())
    bench.tell_record(record, "cancelled")
    bench.start(record)
    assert bench.violation == ""


def test_a_start_in_the_epoch_after_a_cancel(make_bench: MakeBench) -> None:
    bench = make_bench(CancelsChecker)
    record = bench.claim(bench.submit())
    bench.tell_record(record, "cancelled")
    bench.start(bench.claim(bench.lose(record)))
    assert "was cancelled in epoch 1 and started in 2" in bench.violation


@pytest.mark.parametrize("heeded", [True, False])
def test_a_holder_that_beats_on_and_heeds_no_cancel(make_bench: MakeBench, heeded: bool) -> None:
    bench = make_bench(CancelsChecker)
    record = bench.claim(bench.submit())
    command = bench.start(record)
    bench.tell_record(record, "cancelled")
    if heeded:
        command.die(-signal.SIGTERM)
    for counter in range(1, 20):
        bench.beat(record, counter)
    assert ("goes on, 16 beats after it was told" in bench.violation) is not heeded


def test_a_cancelled_job_without_an_end(make_bench: MakeBench) -> None:
    bench = make_bench(CancelsChecker)
    bench.tell_record(bench.claim(bench.submit()), "cancelled")
    bench.look_at_the_end()
    assert "has no end" in bench.violation


def test_a_cancelled_job_that_ends_otherwise_in_a_later_epoch(make_bench: MakeBench) -> None:
    bench = make_bench(CancelsChecker)
    record = bench.claim(bench.submit())
    bench.tell_record(record, "cancelled")
    later = bench.claim(bench.lose(record))
    bench.end(later, bench.ending(Verdict.COMPLETED, 0))
    bench.settle(later)
    bench.look_at_the_end()
    assert "was cancelled in epoch 1 and is completed in 2" in bench.violation


# --- pauses, and what takes a job out of its rest ------------------------------------------


def rested(bench: Bench, verdict: Verdict = Verdict.FAILED) -> Record:
    """A job whose only epoch has ended so, and its record at rest."""
    record = bench.claim(bench.submit())
    bench.beat(record)
    bench.start(record).die(1)
    bench.end(record, bench.ending(verdict, 1))
    bench.settle(record)
    state = verdict.state
    assert state is not None
    return bench.record(state, record.id)


@pytest.mark.parametrize("resumed", [False, True])
def test_a_paused_job_that_starts_again(make_bench: MakeBench, resumed: bool) -> None:
    bench = make_bench(PausesChecker)
    record = rested(bench, Verdict.PAUSED)
    bench.tell_record(record, "paused")
    if resumed:
        bench.by(bench.client, lambda: resume(bench.repo, record.id, by="ann"))
        bench.start(bench.claim(bench.record(State.QUEUED, record.id)))
    else:
        bench.start(changed(record, epoch=2))
    assert ("was paused in epoch 1 and started in 2" in bench.violation) is not resumed


@pytest.mark.parametrize("retried", [False, True])
def test_a_cancelled_job_that_starts_again(make_bench: MakeBench, retried: bool) -> None:
    bench = make_bench(CancelsChecker)
    record = rested(bench, Verdict.CANCELLED)
    bench.tell_record(record, "cancelled")
    if retried:
        bench.by(bench.client, lambda: retry(bench.repo, record.id, by="ann"))
        bench.start(bench.claim(bench.record(State.QUEUED, record.id)))
    else:
        bench.start(changed(record, epoch=2))
    assert ("was cancelled in epoch 1 and started in 2" in bench.violation) is not retried


@pytest.mark.parametrize("opened", [False, True])
def test_a_record_at_rest_that_goes(make_bench: MakeBench, opened: bool) -> None:
    bench = make_bench(CellsChecker)
    record = rested(bench)
    if opened:
        bench.by(bench.client, lambda: open_epoch(bench.repo, record, Opening.RETRY, by="ann"))
    bench.delete(bench.client, record.own_key())
    assert ("was deleted" in bench.violation) is not opened


def test_an_epoch_that_is_opened_out_of_another_rest(make_bench: MakeBench) -> None:
    bench = make_bench(CellsChecker)
    record = rested(bench)
    other = changed(record, state=State.CANCELLED)
    bench.by(bench.client, lambda: open_epoch(bench.repo, other, Opening.RETRY, by="ann"))
    assert "opens an epoch after no such end" in bench.violation


def test_an_epoch_that_is_opened_by_who_cannot_have_read_the_rest(make_bench: MakeBench) -> None:
    bench = make_bench()
    record = rested(bench)
    bench.delete(bench.client, record.own_key())
    bench.world.listen([CellsChecker])
    bench.by(bench.client, lambda: open_epoch(bench.repo, record, Opening.RETRY, by="ann"))
    assert "cannot have read the record at rest" in bench.violation


def test_a_job_that_is_paused_though_nobody_asked(make_bench: MakeBench) -> None:
    bench = make_bench(RestChecker)
    rested(bench, Verdict.PAUSED)
    bench.look_at_the_end()
    assert "is paused, and nobody asked for that" in bench.violation


@pytest.mark.parametrize("queued", [False, True])
def test_a_deleted_job_that_is_queued(make_bench: MakeBench, queued: bool) -> None:
    bench = make_bench(RestChecker)
    record = rested(bench)
    bench.by(bench.client, lambda: delete(bench.repo, record.id, by="ann"))
    if queued:
        again = changed(record, state=State.QUEUED, epoch=2)
        bench.write(bench.client, again.own_key(), again)
    bench.look_at_the_end()
    assert ("was deleted, and is in" in bench.violation) is queued


# --- rest -------------------------------------------------------------------------------


def test_a_job_that_is_nowhere(make_bench: MakeBench) -> None:
    bench = make_bench(RestChecker)
    bench.delete(bench.worker, bench.submit().own_key())
    bench.look_at_the_end()
    assert "is in []" in bench.violation


def test_a_job_in_two_places(make_bench: MakeBench) -> None:
    bench = make_bench(RestChecker)
    record, _ = run_to_end(bench, Script(seconds=1.0))
    bench.write(bench.worker, record.own_key(), record)
    bench.look_at_the_end()
    assert "State.RUNNING" in bench.violation


def test_a_record_that_is_not_its_verdicts(make_bench: MakeBench) -> None:
    bench = make_bench(RestChecker)
    record, _ = run_to_end(bench, Script(seconds=1.0))
    ended = bench.record(State.COMPLETED, record.id)
    bench.write(bench.worker, ended.own_key(), changed(ended, starts=5))
    bench.look_at_the_end()
    assert "does not rest as its verdict says" in bench.violation


def test_an_epoch_without_a_verdict(make_bench: MakeBench) -> None:
    bench = make_bench(RestChecker)
    record, _ = run_to_end(bench, Script(seconds=1.0))
    bench.delete(bench.worker, keys.end_cell(record.id, 1))
    bench.look_at_the_end()
    assert "rests in epoch 1 with verdicts on" in bench.violation


def test_an_end_that_no_command_came_to(make_bench: MakeBench) -> None:
    bench = make_bench(RestChecker)
    record = bench.claim(bench.submit())
    bench.start(record).die(1)
    bench.end(record, bench.ending(Verdict.COMPLETED, 0))
    bench.settle(record)
    bench.look_at_the_end()
    assert "ended by itself with 0" in bench.violation


def test_a_job_that_nobody_saw_succeed_and_that_was_not_declared_to_end_its_agent(
    make_bench: MakeBench,
) -> None:
    bench = make_bench(RestChecker)
    record = bench.claim(bench.submit())
    bench.start(record).die(1)
    ending = bench.ending(Verdict.COMPLETED, None, Reason.AGENT_TERMINATED_AS_DECLARED)
    bench.end(record, ending)
    bench.settle(record)
    bench.look_at_the_end()
    assert "it was not declared so" in bench.violation


def test_a_command_that_was_stopped_and_is_said_to_have_failed(make_bench: MakeBench) -> None:
    bench = make_bench(RestChecker)
    record = bench.claim(bench.submit())
    bench.start(record).die(-signal.SIGTERM)
    bench.end(record, bench.ending(Verdict.FAILED, -signal.SIGTERM, Reason.JOB_FAILED))
    bench.settle(record)
    bench.look_at_the_end()
    assert "ended by itself with -15" in bench.violation


def test_a_log_that_is_missing(make_bench: MakeBench) -> None:
    bench = make_bench(RestChecker)
    run_to_end(bench, Script(seconds=1.0), log=False)
    bench.look_at_the_end()
    assert "is not in its log" in bench.violation


def test_a_file_that_was_not_brought_to_the_store(make_bench: MakeBench) -> None:
    bench = make_bench(RestChecker)
    run_to_end(bench, Script(seconds=1.0, writes_output=True))
    bench.look_at_the_end()
    assert "wrote a file, and has no manifest" in bench.violation


@pytest.mark.parametrize("whole", [True, False])
def test_a_file_that_holds_something_else(make_bench: MakeBench, whole: bool) -> None:
    bench = make_bench(RestChecker)
    record, command = run_to_end(bench, Script(seconds=1.0, writes_output=True))
    folder = bench.world.folder / "output"
    folder.mkdir()
    text = result_of(record.id)
    (folder / RESULT).write_text(text if whole else text[:5])
    size = len(command.printed)
    publisher = OutputPublisher(bench.repo, job_id=record.id, epoch=1, folder=folder)
    publisher.publish(partial=False, log=LogAccount(written=size, kept=size, dropped=0))
    bench.look_at_the_end()
    assert ("left" in bench.violation) is not whole


def test_a_cancel_that_nobody_asked_for(make_bench: MakeBench) -> None:
    bench = make_bench(RestChecker)
    record = bench.claim(bench.submit())
    bench.end(record, bench.ending(Verdict.CANCELLED, reason=Reason.CANCELLED))
    bench.settle(record)
    bench.look_at_the_end()
    assert "nobody asked for that" in bench.violation


def test_a_cancel_that_was_asked_for_is_right(make_bench: MakeBench) -> None:
    bench = make_bench(RestChecker)
    record = bench.claim(bench.submit())
    bench.by(bench.client, lambda: ask(bench.repo, record.id, 1, Intent.CANCEL, by="ann"))
    bench.end(record, bench.ending(Verdict.CANCELLED, reason=Reason.CANCELLED))
    bench.settle(record)
    bench.look_at_the_end()
    assert bench.violation == ""


# --- logs -------------------------------------------------------------------------------


def test_a_log_that_is_put_together_breaks_no_rule(make_bench: MakeBench) -> None:
    bench = make_bench(LogsChecker)
    job_id = _with_segments(bench)
    compact_log(bench.repo, job_id, 1, segments_max=2, block_bytes=4)
    read = ((0, b"0\n1\n2\n"),)
    bench.tell(Answer("read", bench.world.kernel.now + 1, job_ids=(job_id,), epoch=1, read=read))


# Policies


def saved(bench: Bench, record: Record, sequence: int = 1) -> Checkpoint:
    """By its holder: one part, then the manifest."""
    part = keys.checkpoint_part(record.id, record.epoch, sequence, 0)
    content = b"weights"
    checkpoint = Checkpoint(
        job_id=record.id,
        epoch=record.epoch,
        sequence=sequence,
        at=bench.repo.now(),
        files=[
            CheckpointFile(
                path="model",
                size=len(content),
                sha256=hashlib.sha256(content).hexdigest(),
                parts=[part],
            )
        ],
    )
    bench.by(bench.worker, lambda: bench.world.store.put(part, content))
    bench.write(bench.worker, checkpoint.own_key(), checkpoint)
    return checkpoint


def trained(bench: Bench) -> Record:
    """It has saved once, and is over; not settled yet."""
    record = bench.claim(bench.submit(JobType.TRAIN))
    bench.beat(record)
    saved(bench, record)
    bench.end(record, bench.ending(Verdict.COMPLETED, 0))
    return record


def test_a_training_that_ends_as_it_should(make_bench: MakeBench) -> None:
    bench = make_bench(PoliciesChecker)
    record = trained(bench)
    bench.settle(record)
    bench.settle(record, bench.judge)
    saved(bench, record, 2)
    bench.look_at_the_end()
    assert bench.violation == ""


def test_a_segment_that_is_deleted_before_an_index_has_it(make_bench: MakeBench) -> None:
    bench = make_bench(LogsChecker)
    job_id = _with_segments(bench)
    bench.delete(bench.worker, keys.log_segment(job_id, 1, 2))
    assert "no index has what it held" in bench.violation


def test_an_index_of_other_bytes(make_bench: MakeBench) -> None:
    bench = make_bench(LogsChecker)
    job_id = _with_segments(bench)
    bench.repo.store.create(keys.log_block(job_id, 1, "t", 0), b"1\n2\n")
    index = LogIndex(
        job_id=job_id, epoch=1, token="t", block_bytes=4, ranges=[LogRange(offset=0, size=4)]
    )
    bench.write(bench.worker, index.own_key(), index)
    assert "has other bytes than the segments" in bench.violation


@pytest.mark.parametrize("key", [keys.log_index, partial(keys.log_block, token="t", part=0)])
def test_what_stands_for_segments_and_is_deleted(
    make_bench: MakeBench, key: Callable[[str, int], str]
) -> None:
    bench = make_bench(LogsChecker)
    job_id = _with_segments(bench)
    bench.repo.store.create(keys.log_block(job_id, 1, "t", 0), b"0\n1\n")
    index = LogIndex(
        job_id=job_id, epoch=1, token="t", block_bytes=4, ranges=[LogRange(offset=0, size=4)]
    )
    bench.write(bench.worker, index.own_key(), index)
    bench.delete(bench.worker, key(job_id, 1))
    assert "was deleted" in bench.violation


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (((0, b"0\n1\n"),), "did not get [4, 5]"),
        (((0, b"0\n1\n"), (2, b"1\n2\n")), "got 49 at 2"),
        (((0, b"0\n1\n3\n"),), "got 51 at 4"),
    ],
    ids=["less", "twice", "something else"],
)
def test_somebody_reads_a_log_and_gets(
    make_bench: MakeBench, read: tuple[tuple[int, bytes], ...], text: str
) -> None:
    bench = make_bench(LogsChecker)
    job_id = _with_segments(bench)
    bench.tell(Answer("read", bench.world.kernel.now + 1, job_ids=(job_id,), epoch=1, read=read))
    assert text in bench.violation


def test_a_log_that_cannot_be_read_in_the_end(make_bench: MakeBench) -> None:
    bench = make_bench(LogsChecker)
    job_id = _with_segments(bench)
    bench.world.store.delete(keys.log_segment(job_id, 1, 2), None)
    bench.look_at_the_end()
    assert bench.violation != ""


def test_a_training_at_rest_without_a_policy(make_bench: MakeBench) -> None:
    bench = make_bench(PoliciesChecker)
    record = trained(bench)
    final = changed(record, state=State.COMPLETED, ending=bench.ending(Verdict.COMPLETED, 0))
    bench.write(bench.worker, final.own_key(), final)
    assert "its policy is not sealed" in bench.violation


def test_a_policy_that_changes(make_bench: MakeBench) -> None:
    bench = make_bench(PoliciesChecker)
    record = trained(bench)
    bench.settle(record)
    assert bench.violation == ""
    seal = PolicySeal(job_id=record.id, epoch=1, at=bench.repo.now())
    bench.write(bench.judge, seal.own_key(), seal)
    assert "was changed" in bench.violation


def test_a_policy_that_lacks_a_save_of_which_a_beat_came_after(make_bench: MakeBench) -> None:
    bench = make_bench(PoliciesChecker)
    record = bench.claim(bench.submit(JobType.TRAIN))
    saved(bench, record)
    bench.beat(record)
    seal = PolicySeal(job_id=record.id, epoch=1, at=bench.repo.now())
    bench.write(bench.judge, seal.own_key(), seal)
    assert "(1, 1) had been saved" in bench.violation


@pytest.mark.parametrize("key", [keys.checkpoint_part, keys.checkpoint_manifest])
def test_what_a_policy_names_is_deleted(make_bench: MakeBench, key: Callable[..., str]) -> None:
    bench = make_bench(PoliciesChecker)
    record = trained(bench)
    bench.settle(record)
    place = (record.id, 1, 1, 0) if key is keys.checkpoint_part else (record.id, 1, 1)
    bench.delete(bench.worker, key(*place))
    assert "was deleted" in bench.violation


def test_a_policy_whose_save_is_not_what_it_says(make_bench: MakeBench) -> None:
    bench = make_bench(PoliciesChecker)
    record = trained(bench)
    part = keys.checkpoint_part(record.id, 1, 1, 0)
    bench.by(bench.worker, lambda: bench.world.store.put(part, b"other"))
    bench.settle(record)
    assert "is not what its manifest says" in bench.violation


# --- what jobs use ----------------------------------------------------------------------


def ran(bench: Bench, **fields: Any) -> Ending:
    """A verdict on what was just started."""
    return bench.ending(Verdict.COMPLETED, 0).evolve(**fields)


def test_an_end_that_is_shown_before_its_use_is_noted(make_bench: MakeBench) -> None:
    bench = make_bench(UsageChecker)
    record = bench.claim(bench.submit())
    bench.end(record, ran(bench))
    final = changed(record, state=State.COMPLETED, ending=ran(bench))
    bench.write(bench.worker, final.own_key(), final)
    assert "the use of epoch 1 is not noted" in bench.violation


def test_a_use_that_nobody_noted_in_the_end(make_bench: MakeBench) -> None:
    bench = make_bench(UsageChecker)
    record = bench.claim(bench.submit())
    bench.end(record, ran(bench))
    silent = ran(bench, started_at=None, ran=None)
    final = changed(record, state=State.COMPLETED, ending=silent)
    bench.write(bench.worker, final.own_key(), final)
    assert bench.violation == ""
    bench.look_at_the_end()
    assert "its use is not noted" in bench.violation


def test_a_use_that_is_not_what_the_verdict_says(make_bench: MakeBench) -> None:
    bench = make_bench(UsageChecker)
    record = bench.claim(bench.submit())
    bench.end(record, ran(bench))
    cell = bench.repo.find_end(record.id, 1)
    use = use_of(cell) if cell is not None else None
    assert use is not None
    bench.by(bench.worker, lambda: bench.world.store.put(use_key(replace(use, gpus=1)), b""))
    assert "is not what the verdict says" in bench.violation


def test_a_use_that_is_deleted(make_bench: MakeBench) -> None:
    bench = make_bench(UsageChecker)
    record, _ = run_to_end(bench, Script(seconds=1.0))
    assert bench.violation == ""
    cell = bench.repo.find_end(record.id, 1)
    use = use_of(cell) if cell is not None else None
    assert use is not None
    bench.delete(bench.client, use_key(use))
    assert "was deleted, and no segment that counts has it" in bench.violation


def used(bench: Bench) -> Use:
    """By an epoch that has ended and is noted."""
    record, _ = run_to_end(bench, Script(seconds=1.0))
    cell = bench.repo.find_end(record.id, 1)
    use = use_of(cell) if cell is not None else None
    assert use is not None
    return use


def indexed(bench: Bench, *segments: list[Use]) -> None:
    """An index of these segments, after those."""
    refs = []
    for number, uses in enumerate(segments):
        ref = segment_of(uses, token=f"{len(segments)}x{number}")
        key, data = keys.ledger_segment(ref.name), encode_segment(uses)
        bench.by(bench.client, lambda key=key, data=data: bench.world.store.put(key, data))
        refs.append(ref)
    index = LedgerIndex(counter=1, at=bench.repo.now(), by="c", segments=refs)
    bench.write(bench.client, keys.LEDGER, index)


def test_a_ledger_that_counts_a_use_twice(make_bench: MakeBench) -> None:
    bench = make_bench(UsageChecker)
    use = used(bench)
    indexed(bench, [use])
    bench.delete(bench.client, use_key(use))
    assert bench.violation == ""
    indexed(bench, [use], [use])
    assert "twice" in bench.violation


def test_a_ledger_that_forgets_a_use(make_bench: MakeBench) -> None:
    bench = make_bench(UsageChecker)
    indexed(bench, [used(bench)])
    assert bench.violation == ""
    indexed(bench)
    assert "forgets" in bench.violation


def test_a_ledger_with_other_figures(make_bench: MakeBench) -> None:
    bench = make_bench(UsageChecker)
    indexed(bench, [replace(used(bench), gpus=7)])
    assert "which nobody noted" in bench.violation


def test_a_segment_that_counts_and_is_deleted(make_bench: MakeBench) -> None:
    bench = make_bench(UsageChecker)
    indexed(bench, [used(bench)])
    (entry,) = bench.world.store.list(keys.LEDGER_SEGMENTS)
    bench.delete(bench.client, entry.key)
    assert "and the index names it" in bench.violation


def test_a_segment_that_changes(make_bench: MakeBench) -> None:
    bench = make_bench(UsageChecker)
    indexed(bench, [used(bench)])
    (entry,) = bench.world.store.list(keys.LEDGER_SEGMENTS)
    bench.by(bench.client, lambda: bench.world.store.put(entry.key, b"other"))
    assert "was changed" in bench.violation


def test_a_seal_that_forgets_when_its_epoch_was_heard(make_bench: MakeBench) -> None:
    bench = make_bench(UsageChecker)
    record = bench.claim(bench.submit())
    bench.beat(record)
    beat = bench.repo.find_heartbeat(record.id)
    assert beat is not None
    seal = beat.value.evolve(sealed=True)
    bench.write(bench.judge, keys.heartbeat(record.id), seal)
    assert "and the seal says None" in bench.violation


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-10.0, "before it was claimed"), (10.0, "which is to come")],
)
def test_a_use_of_another_time(make_bench: MakeBench, seconds: float, text: str) -> None:
    bench = make_bench(UsageChecker)
    record = bench.claim(bench.submit())
    at = bench.repo.now() + timedelta(seconds=seconds)
    bench.end(record, ran(bench, ran=Ran(began_at=at, ended_at=at)))
    assert text in bench.violation


def test_an_adopted_command_that_counts_twice(make_bench: MakeBench) -> None:
    bench = make_bench(UsageChecker)
    first = bench.claim(bench.submit())
    bench.beat(first)
    begun, _ = bench.repo.now(), bench.wait(5.0)
    lost = ran(bench, verdict=Verdict.LOST, started_at=begun)
    bench.end(first, lost.evolve(ran=Ran(began_at=begun, ended_at=bench.repo.now())))
    bench.settle(first)
    assert first.holder is not None
    second = bench.claim(bench.record(State.QUEUED, first.id))
    adopted = changed(second, holder=first.holder.evolve(adopted=True))
    bench.wait(5.0)
    bench.end(adopted, ran(bench, ran=Ran(began_at=begun, ended_at=bench.repo.now())))
    assert "counts twice what epoch 1 had" in bench.violation


def test_a_use_that_ends_before_its_command(make_bench: MakeBench) -> None:
    bench = make_bench(UsageChecker)
    bench.worker.store_clock = (0.0, bench.worker.host.monotonic())
    record = bench.claim(bench.submit())
    command = bench.start(record)
    too_early = ran(bench)
    bench.wait(5.0)
    command.die(0)
    bench.end(record, too_early)
    assert "and ran until" in bench.violation


# --- limits of time, and runs -----------------------------------------------------------


def timed_out(bench: Bench, record: Record, reason: Reason) -> None:
    ending = bench.ending(Verdict.TIMED_OUT, reason=reason)
    bench.end(record, ending.evolve(started_at=bench.repo.now()))


@pytest.mark.parametrize("seconds", [9.0, 11.0])
def test_a_job_that_is_ended_before_its_time(make_bench: MakeBench, seconds: float) -> None:
    bench = make_bench(TimesChecker)
    record = bench.claim(bench.submit(timeout_seconds=10))
    bench.wait(seconds)
    timed_out(bench, record, Reason.ORG_RUNTIME_LIMIT_EXCEEDED)
    assert ("timed out before its time" in bench.violation) == (seconds < 10)


def test_a_job_that_times_out_and_has_all_the_time_of_the_world(make_bench: MakeBench) -> None:
    bench = make_bench(TimesChecker)
    record = bench.claim(bench.submit())
    timed_out(bench, record, Reason.DEADLINE_PASSED)
    assert "timed out before its time: None" in bench.violation


def test_a_clock_that_is_set_anew_by_a_later_claim(make_bench: MakeBench) -> None:
    bench = make_bench(TimesChecker)
    second = bench.claim(bench.lose(bench.claim(bench.submit())), bench.stranger)
    assert bench.violation == ""
    cell = bench.repo.claim_cell(second.id, 2)
    anew = cell.evolve(record=second.evolve(picked_up_at=bench.repo.now()))
    bench.write(bench.stranger, cell.own_key(), anew)
    assert "has set the clock of its job" in bench.violation


def test_a_run_that_its_host_allows_and_that_is_ended_for_its_length(
    make_bench: MakeBench,
) -> None:
    bench = make_bench(TimesChecker)
    record = bench.claim(bench.submit())
    ending = bench.ending(Verdict.FAILED, reason=Reason.TIMEOUT)
    bench.end(record, ending.evolve(started_at=bench.repo.now()))
    assert "which allows anything" in bench.violation


@pytest.mark.parametrize(
    ("exit_code", "run", "right"),
    [(7, 2, True), (-9, 2, True), (0, 2, False), (None, 2, False), (7, 1, False)],
)
def test_a_command_is_run_again_after_it_failed_by_itself_and_only_then(
    make_bench: MakeBench, exit_code: int | None, run: int, right: bool
) -> None:
    """Without a code it was stopped."""
    bench = make_bench(StartsChecker)
    record = bench.claim(bench.submit(body_retries=1))
    bench.beat(record)
    first = bench.start(record)
    if exit_code is None:
        first.signal_all(signal.SIGKILL)
    else:
        first.die(exit_code)
    bench.start(record, run=run)
    assert (bench.violation == "") == right


def test_more_runs_than_were_asked_for(make_bench: MakeBench) -> None:
    bench = make_bench(StartsChecker)
    record = bench.claim(bench.submit(body_retries=1))
    bench.beat(record)
    for run in (1, 2, 3):
        bench.start(record, run=run).die(7)
    ending = bench.ending(Verdict.FAILED, 7, Reason.JOB_FAILED)
    bench.end(record, ending)
    bench.settle(record)
    bench.look_at_the_end()
    assert "more often than it may be" in bench.violation


@pytest.mark.parametrize("waited_before", [False, True])
def test_an_end_that_is_told_to_who_came_when_it_was_undone(
    make_bench: MakeBench, waited_before: bool
) -> None:
    """Those that waited before may still be told: they could have been, in time."""
    bench = make_bench(OrderChecker)
    first = bench.submit()
    after = [After(job_id=first.id)]
    early = bench.submit(run_id="early", after=after)
    parent = bench.claim(first)
    bench.end(parent, bench.ending(Verdict.FAILED, 7, Reason.JOB_FAILED))
    end = bench.repo.find_end(parent.id, parent.epoch)
    assert end is not None
    bench.by(bench.worker, lambda: project(bench.repo, end.record))
    bench.by(bench.client, lambda: retry(bench.repo, parent.id, by="ann"))
    late = bench.submit(run_id="late", after=after)
    told = early if waited_before else late
    doomed = changed(told, doomed_by=ended_as(end.record), nonce="elsewise")
    bench.write(bench.worker, doomed.own_key(), doomed)
    assert ("was undone before it waited" not in bench.violation) == waited_before
    assert (bench.violation == "") == waited_before


def test_an_end_that_was_none_is_told(make_bench: MakeBench) -> None:
    bench = make_bench(OrderChecker)
    parent = bench.submit()
    child = bench.submit(run_id="other", after=[After(job_id=parent.id)])
    end = ended_as(changed(parent, state=State.COMPLETED))
    released = changed(child, met=[end], nonce="elsewise")
    bench.write(bench.worker, released.own_key(), released)
    assert "which did not end so" in bench.violation


# --- limits -----------------------------------------------------------------------------

ONE = DeploymentSettings(quotas=Quotas(running_jobs=1))
PLACE = keys.slot("all", 0)


def _limited(make_bench: MakeBench) -> tuple[Bench, Record]:
    bench = make_bench(QuotasChecker)
    bench.world.settings = ONE
    record = bench.claim(bench.submit())
    bench.start(record)
    return bench, record


def test_a_job_in_its_place_breaks_no_rule(make_bench: MakeBench) -> None:
    bench, record = _limited(make_bench)
    bench.end(record, bench.ending(Verdict.COMPLETED, 0))
    bench.settle(record)
    bench.look_at_the_end()
    assert bench.violation == ""


def test_a_place_that_is_freed_while_its_epoch_lives(make_bench: MakeBench) -> None:
    bench, _ = _limited(make_bench)
    bench.delete(bench.judge, PLACE)
    assert "was freed, and epoch 1 of" in bench.violation


def test_a_place_that_is_taken_from_another(make_bench: MakeBench) -> None:
    bench, record = _limited(make_bench)
    found = find_token(bench.repo, PLACE)
    assert found is not None
    bench.write(bench.stranger, PLACE, found.value.evolve(epoch=2))
    assert f"was taken from {record.id}" in bench.violation


def test_a_place_that_is_confirmed_before_the_claim(make_bench: MakeBench) -> None:
    bench, _ = _limited(make_bench)
    found = find_token(bench.repo, PLACE)
    assert found is not None
    other = found.value.evolve(slot=1, token="another")
    bench.write(bench.stranger, other.own_key(), other)
    assert "was confirmed without a claim" in bench.violation


def test_one_job_more_than_may(make_bench: MakeBench) -> None:
    bench = make_bench(QuotasChecker)
    first = bench.claim(bench.submit())
    bench.start(first)
    bench.world.settings = ONE
    second = bench.claim(bench.submit(run_id="other"), bench.stranger)
    bench.start(second, by=bench.stranger)
    assert "run, and 1 may of all" in bench.violation


def test_a_command_that_starts_without_a_place(make_bench: MakeBench) -> None:
    bench = make_bench(QuotasChecker)
    record = bench.claim(bench.submit())
    bench.world.settings = ONE
    bench.start(record)
    assert "started without a place of all" in bench.violation


def test_a_place_that_is_left(make_bench: MakeBench) -> None:
    bench, record = _limited(make_bench)
    bench.end(record, bench.ending(Verdict.COMPLETED, 0))
    bench.look_at_the_end()
    assert f"{PLACE} is still taken" in bench.violation


# --- assignments ------------------------------------------------------------------------


def assignments(bench: Bench, *names: str, since_ms: int = 7) -> Assignments:
    jobs = [
        Assignment(entry=name, since_ms=since_ms, seconds=5, begins_ms=since_ms) for name in names
    ]
    plan = HostPlan(consumer="agent@one", incarnation="one", counter=1, jobs=jobs)
    now = bench.repo.now()
    return Assignments(counter=since_ms, at=now, expires_at=now, by="c", hosts=[plan])


def test_an_assignment_that_begins_anew_while_it_stands(make_bench: MakeBench) -> None:
    bench = make_bench(AssignmentsChecker)
    name = entry_name(bench.submit())
    bench.write(bench.judge, keys.ASSIGNMENTS, assignments(bench, name))
    assert bench.violation == ""
    bench.write(bench.judge, keys.ASSIGNMENTS, assignments(bench, name, since_ms=9))
    assert "was assigned at 7, and now at 9" in bench.violation


def test_a_job_that_is_assigned_twice(make_bench: MakeBench) -> None:
    bench = make_bench(AssignmentsChecker)
    name = entry_name(bench.submit())
    bench.write(bench.judge, keys.ASSIGNMENTS, assignments(bench, name, name))
    assert "it assigns a job twice" in bench.violation


def test_an_assignment_of_a_job_that_is_gone(make_bench: MakeBench) -> None:
    bench = make_bench(AssignmentsChecker)
    record = bench.submit()
    bench.delete(bench.judge, record.own_key())
    bench.write(bench.judge, keys.ASSIGNMENTS, assignments(bench, entry_name(record)))
    assert "is not queued" in bench.violation
