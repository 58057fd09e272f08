"""Files of credentials for Google Cloud Storage that change, are half written, or wrong.

Asked of the session, with a service of tokens in this process: Google's own cannot be one."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from google.auth.exceptions import RefreshError

from stado.errors import Denied, StoreError, Unavailable
from stado.storage.gcs import GcsStore
from stado.storage.gcs_errors import DENIED_REMEDY, store_errors
from stado.storage.gcs_session import GcsSession
from tests.storage.canned_server import Answer, CannedServer, Request, canned_server
from tests.storage.fakes import FakeClock
from tests.storage.stores import TASKS


class Guarded:
    """Something that one account's tokens open, and the file that names the account."""

    def __init__(self, server: CannedServer, folder: Path) -> None:
        self.server = server
        self.path = folder / "credentials.json"
        self.folder = folder
        self.valid = "ann"
        self.clock = FakeClock()
        self.tokens = 0
        server.answers_by(self._answer)

    @property
    def accounts_used(self) -> list[str]:
        return [_account(request) for request in self.server.requests if request.path == "/object"]

    def write(self, account: str) -> None:
        """As a file whose account is told to the service of tokens."""
        subject = self.folder / f"subject-{account}"
        subject.write_text(account)
        self.path.write_text(
            json.dumps(
                {
                    "type": "external_account",
                    "audience": "//iam.googleapis.com/projects/1/locations/global/x",
                    "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
                    "token_url": f"{self.server.endpoint}/token",
                    "credential_source": {"file": str(subject)},
                }
            )
        )
        age(self.path)

    def session(self) -> GcsSession:
        return GcsSession(self.clock, TASKS, None)

    def ask(self, session: GcsSession) -> int:
        """As `GcsStore` does."""

        def call(connection: Any) -> Any:
            return connection.get(f"{self.server.endpoint}/object", timeout=(3, 10))

        try:
            with store_errors("a", writing=False):
                status: int = session.ask("a", call).status_code
                return status
        except Denied as error:
            raise session.explained("a", error) from None

    def _answer(self, request: Request) -> Answer:
        if request.path == "/token":
            self.tokens += 1
            account = request.body.decode().partition("subject_token=")[2].partition("&")[0]
            return _token(f"{account}-{self.tokens}")
        return Answer(200 if _account(request) == self.valid else 401)


def _account(request: Request) -> str:
    headers = {name.lower(): value for name, value in request.headers.items()}
    return headers["authorization"].split()[1].partition("-")[0]


def _token(token: str) -> Answer:
    body = {
        "access_token": token,
        "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "token_type": "Bearer",
        "expires_in": 3600,
    }
    return Answer(200, json.dumps(body).encode(), {"Content-Type": "application/json"})


_ages = iter(range(1, 1000))


def age(path: Path) -> None:
    """As if it had been written some time ago; at another time for each call."""
    then = datetime.now(UTC).timestamp() - 60 - next(_ages)
    os.utime(path, (then, then))


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guarded]:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "credentials.json"))
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "project")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with canned_server() as server:
        made = Guarded(server, tmp_path)
        made.write("ann")
        yield made


def test_a_rotated_file_is_used_by_the_next_request(guarded: Guarded) -> None:
    """A61"""
    session = guarded.session()
    assert guarded.ask(session) == 200
    assert guarded.ask(session) == 200
    assert guarded.tokens == 1
    guarded.write("bob")
    guarded.valid = "bob"
    assert guarded.ask(session) == 200
    assert guarded.accounts_used == ["ann", "ann", "bob"]


def test_a_file_that_only_looks_changed_costs_no_new_token(guarded: Guarded) -> None:
    """A61: there are file systems that number a file anew whenever it is looked at."""
    session = guarded.session()
    assert guarded.ask(session) == 200
    age(guarded.path)
    assert guarded.ask(session) == 200
    assert guarded.tokens == 1


def test_a_file_that_the_tools_of_google_keep_is_watched_too(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A61"""
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    guarded.path = guarded.folder / "application_default_credentials.json"
    guarded.write("ann")
    session = guarded.session()
    assert guarded.ask(session) == 200
    guarded.write("bob")
    guarded.valid = "bob"
    assert guarded.ask(session) == 200


def test_a_token_that_is_refused_is_tried_anew_and_the_answer_stands(guarded: Guarded) -> None:
    guarded.valid = "nobody"
    session = guarded.session()
    assert guarded.ask(session) == 401
    first = guarded.accounts_used
    assert 2 <= len(first) <= 6
    guarded.valid = "ann"
    assert guarded.ask(session) == 200


def test_a_grant_that_is_refused_is_said_with_the_file(guarded: Guarded) -> None:
    session = guarded.session()
    body = {"error": "invalid_grant", "error_description": "Token has been revoked"}
    guarded.server.answers(Answer(400, json.dumps(body).encode()))
    with pytest.raises(Denied) as raised:
        guarded.ask(session)
    assert f"used: {guarded.path}" in str(raised.value)
    assert DENIED_REMEDY in str(raised.value)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"type": "external_account"}', '{"type": "x"}', '"', "\udcff"],
)
def test_a_half_written_file_is_worth_another_try_and_an_old_wrong_one_is_not(
    guarded: Guarded, text: str
) -> None:
    """A61: neither a crash nor an absence."""
    session = guarded.session()
    assert guarded.ask(session) == 200
    guarded.path.write_bytes(text.encode(errors="surrogateescape"))
    for _ in range(2):
        with pytest.raises(Unavailable, match="perhaps it is half written"):
            guarded.ask(session)
    guarded.clock.slept.append(6.0)
    age(guarded.path)
    with pytest.raises(Denied) as raised:
        guarded.ask(session)
    assert DENIED_REMEDY in str(raised.value)
    guarded.write("ann")
    assert guarded.ask(session) == 200


def test_missing_credentials_are_said_at_once(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    with pytest.raises(Denied, match="default credentials were not found"):
        guarded.ask(guarded.session())


def test_a_file_that_cannot_be_read_is_named(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "credentials.json"
        path.write_text(guarded.path.read_text())
        path.chmod(0)
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
        session = guarded.session()
        user = os.geteuid()
        if user == 0:  # whom no mode stops
            os.seteuid(65534)
        try:
            with pytest.raises(StoreError) as raised:
                guarded.ask(session)
        finally:
            os.seteuid(user)
    assert f"{path} cannot be read (Permission denied)" in str(raised.value)


def test_a_token_that_a_wrong_clock_signed_names_the_clock() -> None:
    said = "invalid_grant: Invalid JWT: Token must be a short-lived token: check your iat and exp"
    with pytest.raises(Denied, match=r"clock may be wrong.*NTP"), store_errors("a", writing=True):
        raise RefreshError(said)  # type: ignore[no-untyped-call]


def test_a_service_of_tokens_in_trouble_is_worth_another_try() -> None:
    with pytest.raises(Unavailable), store_errors("a", writing=True):
        raise RefreshError("busy", retryable=True)  # type: ignore[no-untyped-call]


def test_a_service_of_tokens_that_is_not_there_is_unavailable(guarded: Guarded) -> None:
    """A60: also for a write, which was not sent."""
    document = json.loads(guarded.path.read_text())
    document["token_url"] = "http://127.0.0.1:9/token"
    guarded.path.write_text(json.dumps(document))
    with pytest.raises(Unavailable, match="no access token: Connection refused"):
        guarded.ask(guarded.session())


def test_an_endpoint_of_ones_own_gets_no_credentials(guarded: Guarded) -> None:
    store = GcsStore("bucket", clock=guarded.clock, tasks=TASKS, endpoint=guarded.server.endpoint)
    guarded.server.answers(Answer(401))
    guarded.server.requests.clear()
    with pytest.raises(Denied, match="used: none"):
        store.get("a")
    assert "authorization" not in {name.lower() for name in guarded.server.requests[0].headers}
    assert len(guarded.server.requests) == 1


def test_finding_credentials_does_not_wait_for_ever(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library asks for the project of some credentials: its own time limit is two minutes."""
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        document = json.loads(guarded.path.read_text())
        document["token_url"] = f"http://127.0.0.1:{silent.getsockname()[1]}/token"
        guarded.path.write_text(json.dumps(document))
        begin = time.monotonic()
        with pytest.raises(Unavailable, match="no access token"):
            guarded.ask(guarded.session())
        assert time.monotonic() - begin < 40
