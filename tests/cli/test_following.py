"""Following a log: what it costs, what it says, and how it goes on when the store is away.

Time moves when the follower pauses, and what happens to the job happens then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest

from stado.cli.following import wait_all_ended
from stado.cli.watching import follow_log, print_log
from stado.core import keys
from stado.core.records import Ending, LogAccount, Manifest, Record
from stado.core.states import Reason, State, Verdict
from stado.errors import Misconfigured, Refused, Unavailable
from stado.jobs.changes import pause_queue, resume_queue
from stado.jobs.claim import Claimed
from stado.jobs.endings import give_verdict, settle, settle_own
from stado.jobs.log_segments import write_segment
from stado.jobs.repository import Repository
from stado.storage.faults import Fault, FaultKind, FaultyStore, ScriptedFaults
from stado.storage.observe import CountingStore, Operation
from stado.storage.port import LIST_LIMIT_MAX, Entry, Store
from tests.jobs.fakes import FakeClock
from tests.jobs.world import World


@dataclass
class Script(FakeClock):
    """A clock at whose hours something happens."""

    acts: list[tuple[float, Callable[[], object]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def at(self, seconds: float, act: Callable[[], object]) -> None:
        self.acts.append((seconds, act))
        self.acts.sort(key=lambda due: due[0])

    def sleep(self, seconds: float) -> None:
        end = self.monotonic() + seconds
        while self.acts and self.acts[0][0] <= end:
            due, act = self.acts.pop(0)
            super().sleep(max(0.0, due - self.monotonic()))
            act()
        super().sleep(max(0.0, end - self.monotonic()))


@dataclass
class Stage:
    """A job in a world whose clock has a script."""

    clock: Script = field(default_factory=Script)

    def __post_init__(self) -> None:
        self.world = World(clock=self.clock)
        self.job = self.world.submit("train")
        self.printed = 0

    def claim(self) -> Claimed:
        return self.world.claimed_of(self.job)

    def log(self, data: bytes, *, epoch: int = 1, offset: int | None = None) -> None:
        """Goes on at the end of what was logged before, unless told where."""
        at = self.printed if offset is None else offset
        write_segment(self.world.repo, self.job, epoch, at, data)
        self.printed = at + len(data)

    def end(
        self, claimed: Claimed, *, exit_code: int | None = 0, started_at: float = 4.0
    ) -> Record:
        failed = exit_code != 0
        begin = self.world.clock.now()
        ending = Ending(
            verdict=Verdict.FAILED if failed else Verdict.COMPLETED,
            reason=Reason.JOB_FAILED if failed else None,
            detail=f"the command exited with {exit_code}" if failed else None,
            exit_code=exit_code,
            started_at=begin.replace(hour=0, minute=0, second=int(started_at)),
            ended_at=begin,
            by="alice",
        )
        cell, _ = give_verdict(self.world.repo, claimed.record, ending)
        settle_own(self.world.repo, cell, claimed.running_version)
        return cell.record

    def lose(self, claimed: Claimed) -> None:
        ending = Ending(
            verdict=Verdict.LOST,
            reason=Reason.LEASE_EXPIRED,
            detail="not heard",
            started_at=self.clock.now(),
            ended_at=self.clock.now(),
            by="coordinator",
        )
        give_verdict(self.world.repo, claimed.record, ending)
        settle(self.world.repo, self.job, claimed.record.epoch)

    def over(self, store: Store) -> Repository:
        return self.world.repo_over(store)


@pytest.fixture
def stage() -> Stage:
    return Stage()


# What it costs


def test_a_job_that_logs_costs_a_listing_and_a_read_a_second_and_two_notes_a_minute(
    stage: Stage,
) -> None:
    claimed = stage.claim()
    for second in range(1, 61):
        stage.clock.at(second, partial(stage.log, b"line %02d\n" % second))
    stage.clock.at(61, lambda: stage.end(claimed))
    counting = CountingStore(stage.world.store, stage.world.tasks)
    assert follow_log(stage.over(counting), stage.job, lines=None) == 0
    counts = counting.snapshot()
    assert counts.of(Operation.GET, kind="status/*/log") == 60 + 1
    assert counts.of(Operation.LIST) <= 75
    assert counts.of(Operation.HEAD) <= 70
    assert counts.writes == counts.of(Operation.PUT, kind="status/*") <= 3


def test_a_quiet_job_is_looked_at_less_and_less(stage: Stage) -> None:
    claimed = stage.claim()
    stage.clock.at(600, lambda: stage.end(claimed))
    counting = CountingStore(stage.world.store, stage.world.tasks)
    assert follow_log(stage.over(counting), stage.job, lines=None) == 0
    assert counting.snapshot().of() <= 500
    assert counting.snapshot().of(Operation.LIST) <= 250
    assert stage.clock.monotonic() <= 603


def test_a_queued_job_costs_one_request_a_look(stage: Stage) -> None:
    """And seldom, to know why it waits, some more."""
    stage.clock.at(300, lambda: stage.end(stage.claim()))
    counting = CountingStore(stage.world.store, stage.world.tasks)
    assert follow_log(stage.over(counting), stage.job, lines=None) == 0
    assert counting.snapshot().of(Operation.LIST) <= 32
    assert counting.snapshot().of() <= 190


# What it says


def test_follow_is_there_before_the_log_and_ends_with_the_times(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """R115, R195: queued, then running, then its end."""
    claimed: list[Claimed] = []
    stage.clock.at(4, lambda: claimed.append(stage.claim()))
    stage.clock.at(5, lambda: stage.log(b"one\n"))
    stage.clock.at(195.9, lambda: stage.log(b"two\n"))
    stage.clock.at(196, lambda: stage.end(claimed[0]))
    assert follow_log(stage.world.repo, stage.job, lines=50) == 0
    shown = capsys.readouterr()
    assert shown.out == "one\ntwo\n"
    first, then, last = shown.err.splitlines()
    assert first.startswith(f"job {stage.job} is queued: ")
    assert then == f"job {stage.job} runs on alice"
    assert last == f"job {stage.job} completed in 3m 12s on alice (waited 4s)"


def test_a_failed_job_says_with_what_after_how_long_and_why(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    claimed = stage.claim()
    stage.clock.at(16, lambda: stage.end(claimed, exit_code=3))
    assert follow_log(stage.world.repo, stage.job, lines=None) == 3
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"job {stage.job} failed: exit 3 after 12s on alice: the command exited with 3 (job_failed)"
    )


def test_a_finished_member_of_a_batch_is_not_held_up_by_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A52"""
    world = World(clock=Script())
    base = world.submit("one", "two")
    done, other = world.claimed_of(f"{base}-1"), world.claimed_of(f"{base}-2")
    write_segment(world.repo, f"{base}-1", 1, 0, b"done\n")
    world.end(done)
    began = world.clock.monotonic()
    assert follow_log(world.repo, f"{base}-1", lines=None) == 0
    assert world.clock.monotonic() == began
    assert capsys.readouterr().out == "done\n"
    assert world.find(other.record.id).state is State.RUNNING


def test_a_gap_is_told_where_it_is(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    claimed = stage.claim()
    stage.log(b"head\n")
    stage.log(b"tail\n", offset=1_936_128)
    log = LogAccount(written=1_936_233, kept=10, dropped=1_936_223)
    manifest = Manifest(job_id=stage.job, epoch=1, partial=False, files=[], log=log)
    stage.world.store.put(keys.output_manifest(stage.job, 1), manifest.encode())
    stage.end(claimed)
    follow_log(stage.world.repo, stage.job, lines=None)
    shown = capsys.readouterr()
    assert shown.out == "head\ntail\n"
    assert shown.err.splitlines()[:2] == [
        "stado: 1,936,123 bytes of the log were dropped here (its limit)",
        "stado: 100 bytes of the log were dropped here, at its end",
    ]


def test_each_epoch_that_passed_between_two_looks_is_announced_and_printed(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    def pass_two_epochs() -> None:
        stage.log(b"1\n", offset=0)
        stage.lose(first)
        second = stage.claim()
        stage.log(b"2\n", epoch=2, offset=0)
        stage.lose(second)
        third = stage.claim()
        stage.log(b"3\n", epoch=3, offset=0)
        stage.clock.at(9, lambda: stage.end(third))

    first = stage.claim()
    stage.clock.at(3, pass_two_epochs)
    assert follow_log(stage.world.repo, stage.job, lines=None) == 0
    shown = capsys.readouterr()
    assert shown.out == "1\n2\n3\n"
    for epoch in (2, 3):
        assert (
            f"epoch {epoch} of job {stage.job} begins: epoch {epoch - 1} lost (lease_expired): "
            "not heard"
        ) in shown.err


def test_a_job_that_waits_again_shows_the_log_that_there_is(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    claimed = stage.claim()
    stage.log(b"before\n")
    stage.lose(claimed)
    print_log(stage.world.repo, stage.job, lines=None)
    stage.clock.at(9, lambda: stage.end(stage.claim()))
    follow_log(stage.world.repo, stage.job, lines=None)
    shown = capsys.readouterr()
    assert shown.out == "before\n" * 2
    announced = f"epoch 2 of job {stage.job} begins: epoch 1 lost (lease_expired): not heard\n"
    assert shown.err.count(announced) == 2


# A store that is away


class AwayStore(FaultyStore):
    """Says no for a time. `error`: what it says."""

    def __init__(self, stage: Stage, *, begin: float, end: float, error: Exception) -> None:
        super().__init__(stage.world.store, stage.clock, ScriptedFaults())
        self._clock_ = stage.clock
        self._away = begin, end
        self._error = error

    def list(
        self, prefix: str, *, start_after: str = "", limit: int = LIST_LIMIT_MAX
    ) -> list[Entry]:
        begin, end = self._away
        if begin <= self._clock_.monotonic() < end:
            raise self._error
        return super().list(prefix, start_after=start_after, limit=limit)


@pytest.mark.parametrize("error", [Unavailable("", "no route"), Misconfigured("", "no folder")])
def test_a_store_that_comes_back_is_waited_for_and_nothing_is_printed_twice(
    stage: Stage, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    claimed = stage.claim()
    for second in range(1, 30):
        stage.clock.at(second, partial(stage.log, b"%d\n" % second))
    stage.clock.at(30, lambda: stage.end(claimed))
    store = AwayStore(stage, begin=5, end=15, error=error)
    assert follow_log(stage.over(store), stage.job, lines=None) == 0
    shown = capsys.readouterr()
    assert shown.out == "".join(f"{second}\n" for second in range(1, 30))
    tries = [line for line in shown.err.splitlines() if "the store does not answer" in line]
    assert [line.partition("trying again in ")[2] for line in tries] == [
        f"{seconds} s; job {stage.job} goes on" for seconds in (1, 2, 4, 8)
    ]


@pytest.mark.parametrize("error", [Unavailable("", "no route"), Misconfigured("", "no folder")])
def test_a_store_that_stays_away_leaves_the_outcome_unknown(
    stage: Stage, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    """Five pauses of 1, 2, 4, 8 and 15 s; `Unavailable` is exit code 69."""
    stage.claim()
    store = AwayStore(stage, begin=5, end=1e9, error=error)
    with pytest.raises(Unavailable) as raised:
        follow_log(stage.over(store), stage.job, lines=None)
    assert 5 + 30 <= stage.clock.monotonic() < 5 + 30 + 5
    assert capsys.readouterr().err.count("the store does not answer") == 5
    (note,) = raised.value.__notes__
    assert note == f"It was tried 6 times; job {stage.job} goes on as far as is known."


def test_a_fault_in_any_request_is_survived(stage: Stage) -> None:
    claimed = stage.claim()
    stage.log(b"one\n")
    stage.clock.at(40, lambda: stage.end(claimed))
    faults = ScriptedFaults(
        *(
            Fault(FaultKind.UNAVAILABLE, operation, skip=skip)
            for operation, skip in (
                (Operation.LIST, 1),
                (Operation.LIST, 3),
                (Operation.GET, 2),
                (Operation.HEAD, 2),
            )
        )
    )
    repo = stage.over(FaultyStore(stage.world.store, stage.clock, faults))
    assert follow_log(repo, stage.job, lines=None) == 0
    assert faults.used_up


def test_waiting_for_a_submission_survives_a_store_that_is_away(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    claimed = stage.claim()
    stage.clock.at(9, lambda: stage.end(claimed))
    store = AwayStore(stage, begin=3, end=6, error=Unavailable("", "no route"))
    states = wait_all_ended(stage.over(store), [stage.job], stage.job, lambda _: None)
    assert states == {stage.job: State.COMPLETED}
    assert "what was submitted goes on" in capsys.readouterr().err


def test_waiting_for_a_job_that_somebody_has_removed_ends(stage: Stage) -> None:
    def still_waiting() -> None:
        pytest.fail("still waiting")

    record = keys.record(State.QUEUED, stage.job)
    stage.clock.at(5, lambda: stage.world.store.delete(record, None))
    stage.clock.at(300, still_waiting)
    with pytest.raises(Refused, match="any more"):
        wait_all_ended(stage.world.repo, [stage.job], stage.job, lambda _: None)


def test_who_waits_is_told_that_a_job_is_tried_again(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the words in which its log tells it, once."""
    first = stage.claim()
    stage.clock.at(5, lambda: stage.lose(first))
    stage.clock.at(30, lambda: stage.end(stage.claim()))
    wait_all_ended(stage.world.repo, [stage.job], stage.job, lambda _: None)
    first_line, *others = capsys.readouterr().err.splitlines()
    assert first_line == (
        f"epoch 2 of job {stage.job} begins: epoch 1 lost (lease_expired): not heard"
    )
    assert all(f"job {stage.job} is queued: " in line for line in others[:1])


def test_who_waits_is_told_why_whenever_that_changes(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    repo = stage.world.repo
    stage.clock.at(40, lambda: pause_queue(repo, by="ada"))
    stage.clock.at(200, lambda: resume_queue(repo, by="ada"))
    stage.clock.at(400, lambda: stage.end(stage.claim()))
    wait_all_ended(repo, [stage.job], stage.job, lambda _: None)
    told = [line for line in capsys.readouterr().err.splitlines() if "is queued: " in line]
    assert [line.partition("is queued: ")[2].split(";")[0] for line in told] == [
        "no worker is at work",
        "the queue is paused",
        "no worker is at work",
    ]


def test_who_was_told_a_reason_hears_the_next_one(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    repo = stage.world.repo
    stage.clock.at(40, lambda: pause_queue(repo, by="ada"))
    stage.clock.at(200, lambda: stage.end(stage.claim()))
    code = "no_eligible_worker"
    wait_all_ended(repo, [stage.job], stage.job, lambda _: None, reason_told=code)
    told = capsys.readouterr().err
    assert told.count("is queued: ") == told.count("the queue is paused") == 1


def test_who_follows_a_log_is_told_why_whenever_that_changes(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    repo = stage.world.repo
    stage.clock.at(40, lambda: pause_queue(repo, by="ada"))
    stage.clock.at(200, lambda: stage.end(stage.claim()))
    follow_log(repo, stage.job, lines=None)
    told = [line for line in capsys.readouterr().err.splitlines() if "is queued: " in line]
    assert len(told) == 2
    assert "the queue is paused" in told[1]
