"""What a service manager hears of a program."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from stado.system.service_notice import ServiceNotice, notice_of
from tests.jobs.fakes import FakeClock


class Manager:
    """The other end of the socket."""

    def __init__(self, path: Path) -> None:
        self.address = str(path)
        self.line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.line.bind(self.address)
        self.line.setblocking(False)

    def heard(self) -> list[str]:
        """Since the last look, what a program tells for people left out."""
        told = []
        while True:
            try:
                told += self.line.recv(4096).decode().splitlines()
            except BlockingIOError:
                return [line for line in told if not line.startswith("STATUS=")]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    one = Manager(tmp_path / "notify")
    yield one
    one.line.close()


def test_it_is_ready_at_its_first_turn_and_alive_at_later_ones(manager: Manager) -> None:
    """R242"""
    clock = FakeClock()
    notice = ServiceNotice(manager.address, clock=clock, watchdog_seconds=80)
    notice.tell("waiting for the store")
    assert manager.heard() == []
    notice.turned()
    assert manager.heard() == ["READY=1"]
    notice.turned()
    assert manager.heard() == []
    clock.sleep(10)
    notice.turned()
    assert manager.heard() == ["WATCHDOG=1"]


def test_who_does_not_turn_is_not_told_alive(manager: Manager) -> None:
    """R242"""
    clock = FakeClock()
    notice = ServiceNotice(manager.address, clock=clock, watchdog_seconds=80)
    notice.turned()
    manager.heard()
    clock.sleep(1000)
    notice.tell("still waiting")
    assert manager.heard() == []


def test_a_manager_that_is_gone_keeps_nobody_from_working(tmp_path: Path) -> None:
    notice = ServiceNotice(str(tmp_path / "nobody"), clock=FakeClock(), watchdog_seconds=1)
    notice.turned()
    notice.leaving()


def test_the_managers_variables_are_taken_out_of_the_environment(manager: Manager) -> None:
    environment = {
        "NOTIFY_SOCKET": manager.address,
        "WATCHDOG_USEC": "80000000",
        "WATCHDOG_PID": "12",
        "HOME": "/root",
    }
    clock = FakeClock()
    notice = notice_of(environment, clock, pid=lambda: 12)
    assert environment == {"HOME": "/root"}
    notice.turned()
    clock.sleep(10)
    notice.turned()
    assert manager.heard() == ["READY=1", "WATCHDOG=1"]


def test_a_watchdog_of_another_process_is_not_fed(manager: Manager) -> None:
    environment = {
        "NOTIFY_SOCKET": manager.address,
        "WATCHDOG_USEC": "80000000",
        "WATCHDOG_PID": "12",
    }
    clock = FakeClock()
    notice = notice_of(environment, clock, pid=lambda: 13)
    notice.turned()
    clock.sleep(1000)
    notice.turned()
    assert manager.heard() == ["READY=1"]


def test_without_a_manager_nothing_is_said() -> None:
    for address in ("", "relative", "vsock:2:1"):
        notice = notice_of({"NOTIFY_SOCKET": address}, FakeClock())
        notice.turned()
        notice.leaving()
