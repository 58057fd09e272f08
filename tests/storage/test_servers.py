"""The test servers come up, say where they are, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.servers import ServerFailed, run_fake_gcs
from tests.servers.process import running

MODULE = [sys.executable, "-m", "tests.servers"]
SECONDS_MAX = 60


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def _wait_gone(pid: int) -> bool:
    end = time.monotonic() + 10
    while _is_alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not _is_alive(pid)


def _children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_command_runs_with_the_servers_environment() -> None:
    shell = 'echo "$STADO_STORE $STADO_ENDPOINT $AWS_REGION"; exit 3'
    done = subprocess.run(
        [*MODULE, "moto", "--for-command", "sh", "-c", shell],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    store, endpoint, region = done.stdout.split()
    assert (store, region) == ("s3://stado-demo", "us-east-1")
    assert endpoint.startswith("http://127.0.0.1:")
    assert done.returncode == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_server_survives_its_starter(number: signal.Signals, tmp_path: Path) -> None:
    """A starter killed outright leaves its folder, which is therefore made below the test's."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [*MODULE, "fake-gcs"], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("endpoint=http://127.0.0.1:")
        (server,) = _children(process.pid)
        process.send_signal(number)
        process.wait(SECONDS_MAX)
        assert _wait_gone(server)
    finally:
        process.kill()
        process.wait(SECONDS_MAX)
        process.stdout.close()


def test_server_is_gone_after_an_error_in_its_user() -> None:
    pid = 0
    with pytest.raises(KeyboardInterrupt), run_fake_gcs() as server:
        pid = server.pid
        assert _is_alive(pid)
        raise KeyboardInterrupt
    assert _wait_gone(pid)


def test_server_that_ends_at_once_shows_its_log(tmp_path: Path) -> None:
    argv = ["sh", "-c", "echo no such option; exit 7"]
    with (
        pytest.raises(ServerFailed, match=r"(?s)ended with 7.*no such option"),
        running(argv, dict(os.environ), tmp_path, lambda: False),
    ):
        pass
