"""A store that throttles or does not answer does not look like a command that hangs."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stado.cli.waiting_lines import AGAIN_SECONDS, WaitingLines, closing_line
from stado.storage.trouble import Setback, StoreTrouble
from stado.system.tasks import LiveTasks
from tests.cli.conftest import Program
from tests.servers.catalogue import CLIENT_ENVIRONMENT
from tests.storage.canned_server import Answer, CannedServer, canned_server
from tests.storage.fakes import FakeClock

_S3 = ("--store", "s3://bucket/q", "--endpoint")
_SLOW_DOWN = Answer(503, b"<Error><Code>SlowDown</Code></Error>")


class Setting:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.trouble = StoreTrouble(self.clock, LiveTasks())
        self.lines = WaitingLines(self.trouble, self.clock)
        self.request = self.trouble.begin(transfer=False)

    def put_off(self, wait_seconds: float, *, throttled: bool = True) -> None:
        self.trouble.put_off(
            self.request,
            Setback(
                key="k",
                error="SlowDown (HTTP 503)" if throttled else "Connection refused: http://x",
                throttled=throttled,
                attempt=1,
                wait_seconds=wait_seconds,
                elapsed_seconds=self.clock.monotonic(),
                left_seconds=20.0 - self.clock.monotonic(),
            ),
        )


def test_a_short_wait_is_not_told_and_a_longer_one_is_with_counts_and_the_next_try() -> None:
    """A64"""
    setting = Setting()
    setting.put_off(0.4)
    assert setting.lines.due() is None
    setting.clock.sleep(0.4)
    setting.put_off(1.6)
    assert setting.lines.due() == (
        "stado: the store is throttling (SlowDown (HTTP 503)): 2 requests put off so far; "
        "next try in 1.6 s"
    )


def test_lines_are_seconds_apart_and_say_how_it_stands() -> None:
    """A64"""
    setting = Setting()
    setting.put_off(2.0)
    lines = []
    for _ in range(12):
        line = setting.lines.due()
        lines += [] if line is None else [line]
        setting.clock.sleep(1.0)
        setting.put_off(2.0)
    assert len(lines) == 1 + int(11 / AGAIN_SECONDS)
    assert [line.split(": ")[2].split()[0] for line in lines] == ["1", "6", "11"]


def test_a_store_that_is_not_there_is_named_with_the_time_that_is_left() -> None:
    setting = Setting()
    setting.put_off(1.2, throttled=False)
    assert setting.lines.due() == (
        "stado: the store cannot be used just now (Connection refused: http://x): trying again "
        "for up to 20 s; next try in 1.2 s"
    )


def test_silence_is_told_while_it_lasts() -> None:
    setting = Setting()
    setting.clock.sleep(1.9)
    assert setting.lines.due() is None
    setting.clock.sleep(1.2)
    assert setting.lines.due() == "stado: the store has not answered for 3 s: waiting for it"


def test_throttling_that_is_over_is_told_as_what_it_cost() -> None:
    """A64"""
    setting = Setting()
    assert closing_line(setting.trouble.sight()) is None
    setting.put_off(0.8, throttled=False)
    assert closing_line(setting.trouble.sight()) is None
    setting.clock.sleep(0.8)
    setting.put_off(2.4)
    assert closing_line(setting.trouble.sight()) == (
        "stado: the store throttled 1 of this command's requests; it took 3.2 s longer"
    )


# As a user meets it


@pytest.fixture
def canned(stado: Program, monkeypatch: pytest.MonkeyPatch) -> Iterator[CannedServer]:
    for name, value in CLIENT_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with canned_server() as server:
        yield server


def _deployment(path: Path, stado: Program) -> bytes:
    stado.ok("init", str(path))
    return (path / "stado.json").read_bytes()


def test_throttling_is_told_on_stderr_while_it_lasts_and_at_the_end(
    stado: Program, canned: CannedServer, tmp_path: Path
) -> None:
    """A64: JSON on stdout stays pure."""
    document = Answer(200, _deployment(tmp_path / "x", stado), {"ETag": '"1"'})
    nothing = Answer(200, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
    canned.answers(*[_SLOW_DOWN] * 5, document, nothing)
    result = stado("status", "--json", *_S3, canned.endpoint)
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["jobs"] == []
    first, last = result.stderr.splitlines()
    assert first.startswith("stado: the store is throttling (SlowDown (HTTP 503)): ")
    assert "requests put off so far; next try in " in first
    assert last.startswith("stado: the store throttled 5 of this command's requests; it took ")


def test_an_endpoint_where_nothing_listens_is_told_within_seconds(
    stado: Program, canned: CannedServer
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
    process = stado.start("status", *_S3, endpoint, environment=dict(CLIENT_ENVIRONMENT))
    assert process.stderr is not None
    begun = time.monotonic()
    try:
        first = process.stderr.readline().decode()
        before_its_end = time.monotonic() - begun
        code = process.wait(60)
        lasted = time.monotonic() - begun
        last = process.stderr.read().decode().splitlines()[-1]
    finally:
        process.kill()
        process.communicate()
    assert first.startswith("stado: the store cannot be used just now (Connection refused: ")
    assert f"{endpoint}" in first
    assert "trying again for up to " in first
    assert code == 69
    assert before_its_end < lasted - 2
    assert last.startswith("stado: stado.json: Connection refused: ")


@contextmanager
def _mute_server() -> Iterator[str]:
    """Accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_a_server_that_accepts_and_never_answers_is_told_of_before_the_time_limit(
    stado: Program, canned: CannedServer
) -> None:
    with _mute_server() as endpoint:
        process = stado.start("status", *_S3, endpoint, environment=dict(CLIENT_ENVIRONMENT))
        assert process.stderr is not None
        try:
            first = process.stderr.readline().decode()
            assert process.poll() is None
        finally:
            process.kill()
            process.communicate()
    assert first == "stado: the store has not answered for 2 s: waiting for it\n"


def test_nothing_is_said_of_a_store_that_answers(stado: Program, tmp_path: Path) -> None:
    _deployment(tmp_path / "x", stado)
    result = stado("status", "--store", str(tmp_path / "x"))
    assert result.exit_code == 0
    assert "stado: the store" not in result.stderr


def test_interrupting_the_wait_ends_the_command_at_once(
    stado: Program, canned: CannedServer
) -> None:
    with _mute_server() as endpoint:
        process = stado.start("status", *_S3, endpoint, environment=dict(CLIENT_ENVIRONMENT))
        assert process.stderr is not None
        try:
            process.stderr.readline()
            process.send_signal(2)
            assert process.wait(10) == 130
        except subprocess.TimeoutExpired:
            pytest.fail("it goes on")
        finally:
            process.kill()
            process.communicate()
