"""When a job has ended its holder puts its log together, and tells when what was printed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.records import LogAccount
from stado.core.states import State
from stado.jobs.log_compaction import compact_log
from stado.jobs.log_segments import list_log
from stado.jobs.logs import LogReader
from stado.storage.faults import FaultKind
from stado_agent.log_spool import LogLimit
from stado_agent.log_times import LogTimes
from stado_agent.salvage import salvage
from stado_agent.workspace import Workspace
from tests.agent.fakes import Script
from tests.agent.printing import JOB, LARGE, Printing
from tests.agent.scene import Scene, Trouble
from tests.jobs.fakes import FakeClock
from tests.jobs.world import World

LIMIT = LogLimit(100 * 1024 * 1024, segments_max=4)
SECONDS = 40


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A job that prints a line a second."""
    scene = Scene(tmp_path / "host")
    scene.log_limit = LIMIT
    scene.script(Script(seconds=SECONDS + 5))
    for second in range(1, SECONDS):
        line = b"second %02d\n" % second
        scene.clock.at(second, partial(_print, scene, line))
    return scene


def _print(scene: Scene, line: bytes) -> None:
    scene.processes.executions[-1].process.print(line)


PRINTED = b"begun\n" + b"".join(b"second %02d\n" % n for n in range(1, SECONDS)) + b"ended\n"


def log_names(scene: Scene) -> list[str]:
    return [name.rpartition("/")[2][:12] for name in scene.world.names(keys.log_folder(scene.job))]


def test_many_segments_become_a_block_and_an_index_once_all_is_settled(scene: Scene) -> None:
    process = scene.run(scene.claim())
    assert process.exit_code == 0
    assert log_names(scene) == ["000001-block", "000001-index"]
    assert scene.log(1) == PRINTED
    settled = max(
        number
        for number, request in enumerate(scene.requests)
        if request.key == keys.record(State.RUNNING, scene.job)
    )
    index = keys.log_index(scene.job, 1)
    created = next(n for n, one in enumerate(scene.requests) if one.key == index)
    assert created > settled


def test_each_line_has_its_second(scene: Scene) -> None:
    began = scene.world.repo.now()
    scene.run(scene.claim())
    reader = LogReader(scene.world.repo, scene.job, 1)
    list(reader.read_new())
    for second in range(1, SECONDS):
        at = reader.find_time(PRINTED.index(b"second %02d" % second))
        assert at is not None
        assert second <= (at - began).total_seconds() <= second + 2


def test_a_store_that_takes_none_of_it_costs_nothing_but_room(scene: Scene) -> None:
    trouble = Trouble(FaultKind.UNAVAILABLE, lambda _, key: "-block" in key)
    process = scene.run(scene.claim(), faults=trouble)
    assert process.exit_code == 0
    assert scene.final.state is State.COMPLETED
    assert len(log_names(scene)) > 4
    assert scene.log(1) == PRINTED


def test_the_logs_of_earlier_epochs_are_put_together_by_the_last(scene: Scene) -> None:
    scene.clock.at(30, scene.give_back)
    scene.run(scene.claim())
    assert scene.final.epoch == 2
    assert log_names(scene)[:2] == ["000001-block", "000001-index"]
    assert all(name.startswith("000002-") for name in log_names(scene)[2:])
    assert scene.log(1) + scene.log(2) == PRINTED


def test_what_was_salvaged_is_put_together(world: World, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / f"{JOB}.1")
    workspace.make()
    printing = Printing(world, workspace.log)
    for number in range(6):
        printing.print(b"%d\n" % number)
        printing.pass_time(6 * (number + 1))
    printing.print(b"unsent\n")
    assert salvage(world.repo, workspace, LIMIT)
    assert not list_log(world.repo, JOB, 1).segments
    reader = LogReader(world.repo, JOB, 1)
    assert b"".join(p for p in reader.read_rest() if isinstance(p, bytes)) == (
        b"0\n1\n2\n3\n4\n5\nunsent\n"
    )


def test_who_salvages_behind_blocks_goes_on_from_their_end(world: World, tmp_path: Path) -> None:
    """Its host was thought to be gone, and a later holder has put together what there was."""
    printing = Printing(world, tmp_path / "log")
    printing.print(b"one\ntwo\n")
    printing.pass_time(2)
    printing.print(b"three\n")
    printing.pass_time(2)
    compact_log(world.repo, JOB, 1, segments_max=1)
    printing.print(b"four\n")
    successor = Printing(world, tmp_path / "log", LARGE)
    successor.take_over()
    account = successor.shipper.ship_rest()
    assert account == LogAccount(written=19, kept=19, dropped=0)
    reader = LogReader(world.repo, JOB, 1)
    assert list(reader.read_rest()) == [b"one\ntwo\nthree\n", b"four\n"]


# When what was printed


def told(times: LogTimes, clock: FakeClock, base: int = 0) -> list[tuple[int, float]]:
    now = clock.now()
    return [
        (time.offset, round(time.ms / 1000 - (now.timestamp() - clock.monotonic()), 3))
        for time in times.told(now, base=base)
    ]


def test_a_stretch_is_a_second_and_begins_with_a_line() -> None:
    clock = FakeClock()
    times, offset, began = LogTimes(clock), 0, clock.monotonic()
    for data in (b"a\n", b"b\nc", b"c\nd\n", b"e", b"e", b"e\nf\n"):
        times.note(offset, memoryview(data))
        offset += len(data)
        clock.sleep(0.6)
    found = [(at, round(ms - began, 3)) for at, ms in told(times, clock)]
    assert found == [(0, 0.6), (7, 2.4), (13, 3.0)]


def test_notes_stay_few_and_a_silence_stays_one() -> None:
    clock = FakeClock()
    times, offset, began = LogTimes(clock, stretches_max=64), 0, clock.monotonic()
    for number in range(4_000):
        if number == 2_000:
            clock.sleep(50_000)
        times.note(offset, memoryview(b"line\n"))
        offset += 5
        clock.sleep(1)
    found = [(at, ms - began) for at, ms in told(times, clock)]
    assert 16 <= len(found) <= 64
    for place, at in found:
        number = place // 5
        read_at = number + 1 + (50_000 if number >= 2_000 else 0)
        assert read_at - 1 <= at <= read_at + 256
    before = max(at for place, at in found if place < 10_000)
    assert before <= 2_001


def test_an_adopted_epoch_has_its_own_times() -> None:
    clock = FakeClock()
    times = LogTimes(clock)
    for number in range(3):
        times.note(number * 4, memoryview(b"abc\n"))
        clock.sleep(2)
    assert [at for at, _ in told(times, clock, base=6)] == [0, 2]
