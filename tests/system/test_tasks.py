"""Threads: order, limits, failures, and no thread where none is needed."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from stado.system.tasks import LiveTasks

WAIT_SECONDS = 20.0


@pytest.fixture
def tasks() -> LiveTasks:
    return LiveTasks()


def test_map_gives_results_in_the_order_of_the_items(tasks: LiveTasks) -> None:
    assert tasks.map(lambda number: number * number, range(50), limit=8) == [
        number * number for number in range(50)
    ]
    assert tasks.map(str, [], limit=8) == []


def test_map_runs_as_many_at_a_time_as_the_limit_says(tasks: LiveTasks) -> None:
    together = threading.Barrier(3)
    tasks.map(lambda _: together.wait(WAIT_SECONDS), range(6), limit=3)
    lock = threading.Lock()
    running: list[int] = []
    most: list[int] = []

    def work(number: int) -> None:
        with lock:
            running.append(number)
            most.append(len(running))
        with lock:
            running.remove(number)

    tasks.map(work, range(60), limit=3)
    assert max(most) <= 3


@pytest.mark.parametrize(("items", "limit"), [([1], 8), ([1, 2, 3], 1)])
def test_map_starts_no_thread_for_one_at_a_time(
    tasks: LiveTasks, items: list[int], limit: int
) -> None:
    here = threading.get_ident()
    assert tasks.map(lambda _: threading.get_ident(), items, limit=limit) == [here] * len(items)


@pytest.mark.parametrize("limit", [1, 4])
def test_map_raises_the_first_error_in_item_order_after_all_have_ended(
    tasks: LiveTasks, limit: int
) -> None:
    ended: list[int] = []

    def work(number: int) -> None:
        ended.append(number)
        if number in (3, 5):
            raise ValueError(number)

    with pytest.raises(ValueError, match="3"):
        tasks.map(work, range(10), limit=limit)
    assert sorted(ended) == list(range(10))


def test_an_interrupted_map_begins_nothing_more(tasks: LiveTasks) -> None:
    begun: list[int] = []

    def work(number: int) -> None:
        begun.append(number)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tasks.map(work, range(100), limit=1)
    assert begun == [0]


def test_an_interrupted_map_waits_for_nobody(tasks: LiveTasks) -> None:
    """A request of another thread may go on for as long as the store is silent."""
    begun, over = tasks.event(), tasks.event()
    ended: list[int] = []

    def work(number: int) -> None:
        if threading.current_thread() is threading.main_thread():
            begun.wait(WAIT_SECONDS)
            raise KeyboardInterrupt
        begun.set()
        over.wait(WAIT_SECONDS)
        ended.append(number)

    with pytest.raises(KeyboardInterrupt):
        tasks.map(work, range(2), limit=2)
    assert ended == []
    over.set()


def test_a_task_can_be_joined_and_an_event_wakes_it(tasks: LiveTasks) -> None:
    go = tasks.event()
    seen: list[bool] = []
    task = tasks.start("waiter", lambda: seen.append(go.wait(WAIT_SECONDS)))
    assert not task.join(0.01)
    assert not go.is_set()
    go.set()
    assert task.join(WAIT_SECONDS)
    assert seen == [True]
    assert go.is_set()


def test_an_event_that_is_not_set_lets_the_time_run_out(tasks: LiveTasks) -> None:
    assert not tasks.event().wait(0.001)


def test_a_task_that_fails_is_logged_by_its_name(
    tasks: LiveTasks, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ValueError("no such luck")

    assert tasks.start("doomed", fail).join(WAIT_SECONDS)
    assert "task=doomed" in caplog.text
    assert "no such luck" in caplog.text


def test_a_lock_lets_one_thread_in(tasks: LiveTasks) -> None:
    lock = tasks.lock()
    inside: list[str] = []

    def enter() -> None:
        with lock:
            inside.append("second")

    with lock:
        task = tasks.start("second", enter)
        assert not task.join(0.02)
        assert inside == []
    assert task.join(WAIT_SECONDS)
    assert inside == ["second"]


def test_a_process_does_not_wait_for_its_tasks() -> None:
    code = (
        "from stado.system.tasks import LiveTasks\n"
        "tasks = LiveTasks()\n"
        "tasks.start('endless', lambda: tasks.event().wait(3600) and None)\n"
        "import sys; assert 'concurrent.futures' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=WAIT_SECONDS)
