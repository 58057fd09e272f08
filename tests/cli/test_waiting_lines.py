"""A store that throttles or does not answer does not look like a command that hangs."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from stado.cli.waiting_lines import AGAIN_SECONDS, WaitingLines, closing_line
from stado.core import keys
from stado.core.records import Capacity
from stado.storage.port import Store
from stado.storage.trouble import Setback, StoreTrouble
from stado.system.tasks import LiveTasks
from tests.cli.conftest import Program, World
from tests.servers import Server, run_ministack
from tests.servers.catalogue import CLIENT_ENVIRONMENT
from tests.storage.canned_server import Answer, CannedServer, Request, canned_server
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
                attempt=3,
                attempts_max=8,
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
        "try 4 of at most 8 in 1.6 s"
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


def test_a_store_that_is_not_there_is_named_with_the_tries_and_the_time_that_are_left() -> None:
    setting = Setting()
    setting.put_off(1.2, throttled=False)
    assert setting.lines.due() == (
        "stado: the store cannot be used just now (Connection refused: http://x): trying again, "
        "until 20 s from now at the latest; try 4 of at most 8 in 1.2 s"
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
    assert "requests put off so far; try " in first
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
    assert " at the latest; try " in first
    assert " of at most 8 in " in first
    assert code == 69
    assert before_its_end < lasted - 2
    assert last.startswith("stado: the store cannot be used: Connection refused: ")
    assert "(key stado.json)" in last


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


# On a real server that is put behind a throttle


class Throttle:
    """Stands before a server, and puts off what it is told to."""

    def __init__(self, server: Server, front: CannedServer) -> None:
        self._address = server.endpoint.removeprefix("http://")
        self.put_off: Callable[[Request], bool] = lambda _: False
        front.answers_by(self._answer)

    def next_times(self, times: int, *, of: str) -> None:
        """The next so many requests whose path holds this."""
        left = [times]

        def put_off(request: Request) -> bool:
            if of not in request.path or left[0] == 0:
                return False
            left[0] -= 1
            return True

        self.put_off = put_off

    def _answer(self, request: Request) -> Answer:
        if self.put_off(request):
            return _SLOW_DOWN
        connection = http.client.HTTPConnection(self._address, timeout=30)
        with closing(connection):
            connection.request(request.method, request.path, request.body, dict(request.headers))
            answer = connection.getresponse()
            kept = {
                name: value
                for name, value in answer.getheaders()
                if name.lower() in ("etag", "last-modified", "content-type")
                or (name.lower() == "content-length" and request.method == "HEAD")
            }
            return Answer(answer.status, answer.read(), {n.title(): v for n, v in kept.items()})


@pytest.fixture(scope="module")
def ministack() -> Iterator[Server]:
    with run_ministack() as server:
        server.make_bucket("bucket")
        yield server


@pytest.fixture
def throttle(canned: CannedServer, ministack: Server) -> Throttle:
    return Throttle(ministack, canned)


def test_status_through_a_throttle_counts_and_answers(
    stado: Program, canned: CannedServer, throttle: Throttle
) -> None:
    """A64"""
    there = (*_S3, canned.endpoint)
    stado.ok("init", "s3://bucket/q", "--endpoint", canned.endpoint)
    stado.ok("submit", "--run-id", "x", *there, "run")
    throttle.next_times(5, of="list-type=2")
    result = stado("status", *there, "--json")
    assert result.exit_code == 0, result.stderr
    assert [job["run_id"] for job in json.loads(result.stdout)["jobs"]] == ["x"]
    assert "stado: the store throttled 5 of this command's requests; it took " in result.stderr


def test_doctor_finds_that_it_was_throttled(
    stado: Program, canned: CannedServer, throttle: Throttle
) -> None:
    """A64"""
    stado.ok("init", "s3://bucket/doctor", "--endpoint", canned.endpoint)
    there = ("--store", "s3://bucket/doctor", "--endpoint", canned.endpoint)
    found = _throttling(stado, *there)
    assert found == []
    throttle.next_times(2, of="prefix=doctor%2Fcapacity")
    found = _throttling(stado, *there)
    assert [finding["text"] for finding in found] == [
        "the store put off 2 requests of this check-up"
    ]
    assert "let fewer agents work" in found[0]["remedy"]


def test_doctor_finds_that_agents_are_throttled(stado: Program, world: World) -> None:
    """A64: by their reports, which are the same on each kind of store."""
    store = world.repo.store
    _report(store, "calm@box", throttled=0)
    assert _throttling(stado) == []
    _report(store, "busy@box", throttled=12)
    (finding,) = _throttling(stado)
    assert finding["text"] == (
        "the store puts off requests of 1 agent, such as busy@box on box: 12 requests since its "
        "report before"
    )
    _report(store, "busy@box", throttled=12, stopped=True)
    assert _throttling(stado) == []


def _throttling(stado: Program, *there: str) -> list[dict[str, str]]:
    found = stado.json("doctor", *there)["findings"]
    return [finding for finding in found if finding["check"] == "throttling"]


def _report(store: Store, consumer: str, *, throttled: int, stopped: bool = False) -> None:
    capacity = Capacity(
        consumer=consumer,
        incarnation="i1",
        host="box",
        at=store.now(),
        counter=1,
        broadcast_seconds=60,
        cpu_total=8,
        cpu_free=6,
        memory_total_gb=64,
        memory_free_gb=60,
        disk_free_gb=100,
        stopped=stopped,
        throttled=throttled,
        version="0",
    )
    store.put(keys.capacity(consumer), capacity.encode())
