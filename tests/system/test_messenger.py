"""Channels: what a file says of them, and messages on real ones."""

from __future__ import annotations

import http.server
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from stado.errors import Refused, SendFailed
from stado.system.channel_file import Program, Webhook, read_channels
from stado.system.messenger import LiveMessenger

SECRET = "T0-verysecret"
BODY = json.dumps({"id": "a.1.failed"}).encode()


@dataclass
class Receiver:
    """A webhook that notes what it gets, and answers as it is told."""

    status: int = 200
    location: str | None = None
    requests: list[tuple[str, str | None, bytes]] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    noted = Receiver()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            noted.requests.append((self.path, self.headers["Authorization"], body))
            self.send_response(noted.status)
            if noted.location is not None:
                self.send_header("Location", noted.location)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    noted.url = f"http://127.0.0.1:{server.server_port}/hooks/{SECRET}?to=team"
    yield noted
    server.shutdown()
    server.server_close()


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "channels.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


def messenger(folder: Path, text: str, seconds: float = 5.0) -> LiveMessenger:
    environment = {"PATH": "/usr/bin:/bin", "AWS_SECRET_ACCESS_KEY": SECRET, "STADO_STORE": "x"}
    return LiveMessenger(read_channels(written(folder, text)), environment, send_seconds=seconds)


def failure(folder: Path, text: str, seconds: float = 5.0) -> str:
    """Why the one channel does not take a message; never where it leads."""
    with pytest.raises(SendFailed) as error:
        messenger(folder, text, seconds).send("team", BODY)
    assert SECRET not in str(error.value)
    assert error.value.__context__ is None or error.value.__suppress_context__
    assert error.value.__cause__ is None
    return str(error.value)


def hook(url: str) -> str:
    return f'[channels.team]\nurl = "{url}"\n'


def program(*argv: str) -> str:
    return f"[channels.team]\ncommand = {json.dumps(list(argv))}\n"


def test_a_webhook_gets_the_message_as_it_is(tmp_path: Path, receiver: Receiver) -> None:
    text = hook(receiver.url) + 'headers = { Authorization = "Bearer 123" }\n'
    messenger(tmp_path, text).send("team", BODY)
    assert receiver.requests == [(f"/hooks/{SECRET}?to=team", "Bearer 123", BODY)]


@pytest.mark.parametrize("status", [302, 404, 500])
def test_an_answer_that_is_no_success_is_a_failure_and_leads_nowhere(
    tmp_path: Path, receiver: Receiver, status: int
) -> None:
    """R227"""
    receiver.status, receiver.location = status, receiver.url
    assert failure(tmp_path, hook(receiver.url)) == f"it answered with HTTP {status}"
    assert len(receiver.requests) == 1


def test_a_webhook_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/{SECRET}"
        assert failure(tmp_path, hook(url)) == "it could not be reached: Connection refused"


@pytest.mark.parametrize("drips", [False, True])
def test_a_webhook_that_takes_its_time_is_left(tmp_path: Path, drips: bool) -> None:
    """Also one that keeps a socket busy."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                try:
                    while drips:
                        connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                        time.sleep(0.05)
                    while connection.recv(100_000):
                        pass
                except OSError:
                    return

        threading.Thread(target=answer, daemon=True).start()
        began = time.monotonic()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/{SECRET}"
        assert failure(tmp_path, hook(url), 0.5) == "it did not answer within 0.5 s"
        assert time.monotonic() - began < 4


def test_a_program_gets_the_message_and_little_of_our_environment(tmp_path: Path) -> None:
    """R227"""
    out = tmp_path / "out"
    text = program("/bin/sh", "-c", f"cat > {out}; env >> {out}", SECRET)
    messenger(tmp_path, text).send("team", BODY)
    heard = out.read_bytes()
    assert heard.startswith(BODY)
    assert b"PATH=/usr/bin:/bin" in heard
    assert b"AWS_" not in heard
    assert b"STADO_" not in heard


def test_a_program_that_fails_or_hangs_is_a_failure(tmp_path: Path) -> None:
    """R227"""
    sh = ("/bin/sh", "-c")
    assert failure(tmp_path, program(*sh, "exit 7", SECRET)) == "it ended with exit code 7"
    assert failure(tmp_path, program(*sh, "kill -9 $$")) == "it ended with signal 9"
    assert failure(tmp_path, program(*sh, "sleep 60 & wait"), 0.3) == "it took longer than 0.3 s"
    missing = f"/nowhere/{SECRET}"
    assert failure(tmp_path, program(missing)) == (
        "it could not be started: No such file or directory"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nonsense", "it is no TOML"),
        ("", "it states tables [channels.NAME], and nothing else"),
        ("[other]\n", "it states tables [channels.NAME], and nothing else"),
        (hook("ftp://example.org/verysecret"), "channel team: its url is no http://"),
        (hook("https:///verysecret"), "channel team: its url is no http://"),
        (hook("https://example.org/very secret"), "channel team: its url is no http://"),
        (hook("https://me:verysecret@example.org/"), "channel team: put user and password"),
        (hook("https://example.org/") + 'headers = { A = "very\\nsecret" }', "its headers"),
        (hook("https://example.org/") + 'command = ["/verysecret"]', "has either url"),
        (program("sh", "verysecret"), "channel team: its command is a list"),
        ('[channels."a.b"]\nurl = "https://example.org/"', "channel 'a.b': a name has"),
        ("[channels.team]\n", "channel team has either url"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_without_its_values(
    tmp_path: Path, text: str, why: str
) -> None:
    """R227"""
    with pytest.raises(Refused) as error:
        read_channels(written(tmp_path, text))
    assert why in error.value.text
    assert "verysecret" not in error.value.text


@pytest.mark.parametrize("mode", [0o620, 0o604, 0o602])
def test_a_file_that_others_can_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    """R227"""
    with pytest.raises(Refused, match="chmod 600"):
        read_channels(written(tmp_path, hook("https://example.org/"), mode))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="No such file"):
        read_channels(tmp_path / "none")


def test_where_a_channel_leads_is_not_in_what_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """R227"""
    channels = read_channels(written(tmp_path, hook(f"https://example.org/{SECRET}")))
    assert isinstance(channels["team"], Webhook)
    logging.getLogger("stado").warning("%r %r", channels, Program([SECRET]))
    assert SECRET not in caplog.text
