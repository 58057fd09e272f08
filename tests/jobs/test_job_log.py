"""A job's log over its epochs: read as one, from the beginning or from near the end."""

from __future__ import annotations

import io

import pytest

from stado.core import keys
from stado.core.records import LogAccount, Manifest
from stado.core.states import State
from stado.jobs.job_log import JobLog, LogPiece, copy_log
from stado.jobs.log_segments import write_segment
from stado.storage.faults import Fault, FaultKind, FaultyStore, ScriptedFaults
from stado.storage.observe import CountingStore, Operation
from tests.jobs.world import World, give_back

LOST = "lost (lease_expired)"


def lose(world: World, job_id: str) -> None:
    """The present epoch is claimed and lost."""
    world.claimed_of(job_id)
    give_back(world, job_id)


def lost_twice(world: World) -> str:
    """A job in its third epoch, each of which printed two lines."""
    job_id = world.submit()
    for epoch in (1, 2):
        write_segment(world.repo, job_id, epoch, 0, b"%d.1\n%d.2\n" % (epoch, epoch))
        lose(world, job_id)
    write_segment(world.repo, job_id, 3, 0, b"3.1\n3.2\n")
    return job_id


def shown(pieces: list[LogPiece]) -> str:
    """What came, with our own lines in brackets."""
    texts = [piece.decode() if isinstance(piece, bytes) else f"[{piece.text}]" for piece in pieces]
    return "".join(texts).replace("\n", " ")


def begins(job_id: str, epoch: int) -> str:
    return f"[epoch {epoch} of job {job_id} begins: epoch {epoch - 1} {LOST}]"


def test_all_epochs_are_read_in_order_with_a_line_of_ours_between(world: World) -> None:
    job_id = lost_twice(world)
    log = JobLog(world.repo, job_id, up_to_epoch=3)
    assert shown(list(log.read_up_to(3, complete=True))) == (
        f"1.1 1.2 {begins(job_id, 2)}2.1 2.2 {begins(job_id, 3)}3.1 3.2 "
    )


@pytest.mark.parametrize(
    ("lines", "first"), [(0, ""), (1, "3.2"), (2, "3.1"), (3, "2.2"), (5, "1.2"), (99, "1.1")]
)
def test_the_last_lines_are_those_of_all_epochs(world: World, lines: int, first: str) -> None:
    job_id = lost_twice(world)
    log = JobLog(world.repo, job_id, up_to_epoch=3, lines=lines)
    pieces = list(log.read_up_to(3, complete=True))
    printed = b"".join(piece for piece in pieces if isinstance(piece, bytes)).decode().split()
    assert printed[:1] == ([first] if first else [])
    assert len(printed) == min(lines, 6)


def test_an_epoch_that_printed_nothing_is_told_and_one_before_all_of_them_is_not(
    world: World,
) -> None:
    job_id = world.submit()
    lose(world, job_id)
    write_segment(world.repo, job_id, 2, 0, b"2\n")
    lose(world, job_id)
    lose(world, job_id)
    log = JobLog(world.repo, job_id, up_to_epoch=4)
    assert log.found
    assert shown(list(log.read_up_to(4, complete=False))) == (
        f"2 {begins(job_id, 3)}{begins(job_id, 4)}"
    )


def test_who_follows_gets_the_rest_of_an_epoch_before_the_next_begins(world: World) -> None:
    job_id = world.submit()
    log = JobLog(world.repo, job_id, up_to_epoch=1)
    assert not log.found
    assert shown(list(log.read_up_to(1, complete=False))) == ""
    write_segment(world.repo, job_id, 1, 0, b"a\n")
    assert shown(list(log.read_up_to(1, complete=False))) == "a "
    write_segment(world.repo, job_id, 1, 2, b"b\n")
    lose(world, job_id)
    assert shown(list(log.read_before(2))) == f"b {begins(job_id, 2)}"
    assert shown(list(log.read_up_to(2, complete=False))) == ""


def test_who_goes_on_after_an_error_between_two_epochs_repeats_nothing(world: World) -> None:
    job_id = lost_twice(world)
    end = keys.end_cell(job_id, 1)
    faults = ScriptedFaults(Fault(FaultKind.UNAVAILABLE, Operation.GET, end))
    repo = world.repo_over(FaultyStore(world.store, world.clock, faults))
    log = JobLog(repo, job_id, up_to_epoch=3)
    got: list[LogPiece] = []
    with pytest.raises(Exception, match="end"):
        for piece in log.read_up_to(3, complete=True):
            got.append(piece)  # noqa: PERF402 - what came before the error counts
    got += log.read_up_to(3, complete=True)
    assert shown(got) == f"1.1 1.2 {begins(job_id, 2)}2.1 2.2 {begins(job_id, 3)}3.1 3.2 "


def test_a_verdict_that_cannot_be_read_costs_no_log(world: World) -> None:
    job_id = lost_twice(world)
    world.store.put(keys.end_cell(job_id, 1), b"{")
    pieces = JobLog(world.repo, job_id, up_to_epoch=3).read_up_to(3, complete=True)
    assert f"1.2 [epoch 2 of job {job_id} begins]2.1" in shown(list(pieces))


def test_a_copy_has_a_line_of_ours_at_each_gap_and_between_epochs(world: World) -> None:
    job_id = world.submit()
    for offset, data in ((0, b"head"), (10, b"middle\n"), (20, b"tail")):
        write_segment(world.repo, job_id, 1, offset, data)
    account = LogAccount(written=30, kept=15, dropped=15)
    manifest = Manifest(job_id=job_id, epoch=1, partial=True, files=[], log=account)
    world.store.put(keys.output_manifest(job_id, 1), manifest.encode())
    lose(world, job_id)
    write_segment(world.repo, job_id, 2, 0, b"again")
    file = io.BytesIO()
    told = copy_log(world.repo, job_id, 2, file)
    assert file.getvalue() == (
        b"head\n[stado: 6 bytes of the log were dropped here]\n"
        b"middle\n[stado: 3 bytes of the log were dropped here]\n"
        b"tail\n[stado: 6 bytes of the log were dropped here, at its end]\n"
        + f"[stado: {begins(job_id, 2)[1:]}\n".encode()
        + b"again"
    )
    assert told == LogAccount(written=35, kept=20, dropped=15)
    assert world.states(job_id) == {State.QUEUED}


def test_the_search_for_the_last_lines_has_a_bound_where_one_is_stated(world: World) -> None:
    """A bar that is drawn again and again is one line, however long."""
    job_id = world.submit()
    piece = b"round\r" * 10_000
    for number in range(40):
        write_segment(world.repo, job_id, 1, number * len(piece), piece)
    counting = CountingStore(world.store, world.tasks)
    repo = world.repo_over(counting)
    log = JobLog(repo, job_id, up_to_epoch=1, lines=10, tail_bytes=600)
    pieces = list(log.read_up_to(1, complete=True))
    assert b"".join(one for one in pieces if isinstance(one, bytes)) == b"round\r" * 100
    assert counting.snapshot().bytes_read <= 3 * len(piece)
