"""Credentials that change, expire, are half written or wrong, while a program uses a bucket."""

from __future__ import annotations

import os
import re
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from stado.errors import Denied, Misconfigured, StoreError, Unavailable
from stado.storage.retry import RetryingStore
from stado.storage.s3 import S3Store
from stado.storage.s3_clients import RECORDS, UPLOADS, WHOLE, Patience, S3Clients
from tests.servers.catalogue import ACCESS_KEY, CLIENT_ENVIRONMENT, SECRET_KEY
from tests.storage.canned_server import Answer, CannedServer, Request, canned_server
from tests.storage.fakes import SeededEntropy
from tests.storage.stores import CLOCK, TASKS, Stores, s3_store

_KEY = re.compile(r"Credential=([^/]+)/")
_FOUND = Answer(200, b"1", {"ETag": '"v1"'})
_SETTLED_SECONDS = 60


def _error(status: int, code: str) -> Answer:
    return Answer(status, f"<Error><Code>{code}</Code></Error>".encode())


class Guarded:
    """A bucket that one access key opens, and the file that a user keeps credentials in."""

    def __init__(self, server: CannedServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.path = folder / "credentials"
        self.valid = "KEY1"
        self.refusal = _error(403, "InvalidAccessKeyId")
        server.answers_by(self._answer)

    @property
    def keys_used(self) -> list[str]:
        return [self._key(request) for request in self.server.requests]

    def write(self, key: str, *, settled: bool = True) -> None:
        self.write_text(
            f"[default]\naws_access_key_id = {key}\naws_secret_access_key = secret-of-{key}\n",
            settled=settled,
        )

    def write_text(self, text: str, *, settled: bool = True) -> None:
        self.path.write_text(text)
        if settled:
            age(self.path)

    def store(self) -> S3Store:
        return S3Store("bucket", clock=CLOCK, tasks=TASKS, endpoint=self.server.endpoint)

    def _answer(self, request: Request) -> Answer:
        return _FOUND if self._key(request) == self.valid else self.refusal

    def _key(self, request: Request) -> str:
        found = _KEY.search(request.headers["Authorization"])
        assert found is not None
        return found[1]


_ages = iter(range(1, 1000))


def age(path: Path) -> None:
    """As if it had been written some time ago; at another time for each call."""
    then = datetime.now(UTC).timestamp() - _SETTLED_SECONDS - next(_ages)
    os.utime(path, (then, then))


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guarded]:
    for name in [*CLIENT_ENVIRONMENT, "AWS_PROFILE", "AWS_SESSION_TOKEN"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    with canned_server() as server:
        made = Guarded(server, tmp_path)
        made.write("KEY1")
        yield made


def retrying(store: S3Store) -> RetryingStore:
    return RetryingStore(store, clock=CLOCK, entropy=SeededEntropy(), tasks=TASKS)


def test_a_rotated_file_is_used_by_the_next_request(guarded: Guarded) -> None:
    """A61"""
    store = guarded.store()
    store.get("a")
    guarded.write("KEY2")
    guarded.valid = "KEY2"
    store.get("a")
    assert guarded.keys_used == ["KEY1", "KEY2"]


def test_a_file_that_is_exchanged_by_renaming_is_used_although_size_and_time_are_the_same(
    guarded: Guarded,
) -> None:
    """A61"""
    store = guarded.store()
    store.get("a")
    times = guarded.path.stat()
    other = guarded.folder / "new"
    other.write_text(guarded.path.read_text().replace("KEY1", "KEY2"))
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.rename(guarded.path)
    guarded.valid = "KEY2"
    store.get("a")
    assert guarded.keys_used == ["KEY1", "KEY2"]


def test_a_file_that_only_looks_changed_costs_no_new_client(guarded: Guarded) -> None:
    """A61: there are file systems that number a file anew whenever it is looked at."""
    clients = S3Clients(CLOCK, TASKS, guarded.server.endpoint, None)
    first = clients.ask("a", lambda client: client, RECORDS)
    age(guarded.path)
    assert clients.ask("a", lambda client: client, RECORDS) is first


def test_a_rotation_in_the_midst_of_many_threads_fails_none_of_them(guarded: Guarded) -> None:
    """A61"""
    store = guarded.store()
    errors: list[StoreError] = []
    accepted = {"KEY1", "KEY2", "KEY3", "KEY4"}
    guarded.server.answers_by(
        lambda request: Answer(204) if guarded._key(request) in accepted else guarded.refusal
    )

    def work() -> None:
        try:
            for _ in range(15):
                store.delete("a", None)
        except StoreError as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for key in ("KEY2", "KEY3", "KEY4"):
        other = guarded.folder / "new"
        other.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = x\n")
        age(other)
        other.rename(guarded.path)
    for thread in threads:
        thread.join(60)
    store.delete("a", None)
    assert errors == []
    assert len(guarded.keys_used) == 91
    assert guarded.keys_used[-1] == "KEY4"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "ExpiredToken"),
        (403, "InvalidAccessKeyId"),
        (400, "InvalidToken"),
        (403, "SignatureDoesNotMatch"),
        (400, "TokenRefreshRequired"),
        (403, "RequestExpired"),
        (401, "Other"),
    ],
)
def test_refused_credentials_are_tried_anew_once_and_then_named(
    guarded: Guarded, status: int, code: str
) -> None:
    """A61: with the file and the profile, never with a key or a secret."""
    guarded.refusal = _error(status, code)
    guarded.write("KEY9")
    store = guarded.store()
    for call in (lambda: store.get("a"), lambda: store.create("a", b""), lambda: store.list("a/")):
        guarded.server.requests.clear()
        with pytest.raises(Denied) as raised:
            call()
        assert type(raised.value) is Denied
        assert guarded.keys_used == ["KEY9", "KEY9"]
        text = str(raised.value)
        assert code in text
        assert f'used: profile "default" in {guarded.path}' in text
        assert "check the credentials" in text
        assert "KEY9" not in text.replace(str(guarded.path), "")
        assert "secret-of" not in text


def test_expired_credentials_of_a_process_are_asked_for_anew(guarded: Guarded) -> None:
    """A60: the store calls them expired before their time."""
    _use_process(guarded, ["KEY1", "KEY2"], expires_in=timedelta(hours=1))
    guarded.refusal = _error(400, "ExpiredToken")
    store = guarded.store()
    store.get("a")
    guarded.valid = "KEY2"
    store.get("a")
    assert guarded.keys_used == ["KEY1", "KEY1", "KEY2"]


def test_an_answer_without_a_body_can_mean_expired_credentials_too(guarded: Guarded) -> None:
    _use_process(guarded, ["KEY1", "KEY2"], expires_in=timedelta(hours=1))
    guarded.refusal = Answer(400)
    store = guarded.store()
    store.get("a")
    guarded.valid = "KEY2"
    guarded.server.answers_by(
        lambda request: (
            Answer(200, b"", {"ETag": '"v1"', "Last-Modified": format_datetime(CLOCK.now(), True)})
            if guarded._key(request) == "KEY2"
            else guarded.refusal
        )
    )
    assert store.head("a").version == "v1"


def test_credentials_that_run_out_are_renewed_before_they_do(guarded: Guarded) -> None:
    """A60"""
    keys = [f"KEY{number}" for number in range(20)]
    _use_process(guarded, keys, expires_in=timedelta(minutes=5))
    store = guarded.store()
    guarded.server.answers_by(lambda _: _FOUND)
    store.get("a")
    store.get("a")
    first, second = guarded.keys_used
    assert first != second


def test_a_renewal_that_fails_is_said_and_one_that_works_again_is_used(guarded: Guarded) -> None:
    """A60: every error of it is one of ours, whatever the process did."""
    _use_process(guarded, ["KEY1"], expires_in=timedelta(minutes=5))
    guarded.server.answers_by(lambda _: _FOUND)
    store = guarded.store()
    store.get("a")
    for text in ("import sys; sys.exit('boom secret-of-process')", "print('{')", "print('{}')"):
        _script(guarded).write_text(text)
        with pytest.raises(Denied) as raised:
            store.create("a", b"")
        assert "secret-of-process" not in str(raised.value)
        assert "credential_process of profile" in str(raised.value)
    _use_process(guarded, ["KEY2"], expires_in=timedelta(hours=1))
    store.get("a")
    assert guarded.keys_used[-1] == "KEY2"


def test_a_credential_process_that_is_not_there_is_said(guarded: Guarded) -> None:
    guarded.path.unlink()
    (guarded.folder / "config").write_text("[default]\ncredential_process = /nonexistent/program\n")
    age(guarded.folder / "config")
    with pytest.raises(Denied, match="check the credentials"):
        guarded.store().get("a")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[defau",
        "[default]\naws_access_key_id = KE",
        "[default]\naws_access_key_id = KEY1\n",
        "[default]\naws_access_key_id = KEY1\naws_secret_access_key = secr",
        "\0\xff[",
    ],
    ids=["empty", "cut name", "cut key", "no secret", "cut secret", "garbage"],
)
def test_a_half_written_file_is_worth_another_try_and_old_wrong_one_is_not(
    guarded: Guarded, text: str
) -> None:
    """A61: a rotation that truncates and writes. It is neither a crash nor an absence."""
    store = guarded.store()
    store.get("a")
    guarded.refusal = _error(403, "SignatureDoesNotMatch")
    guarded.valid = "KEY2"
    guarded.write_text(text, settled=False)
    for call in (lambda: store.get("a"), lambda: store.create("a", b"1")):
        with pytest.raises(Unavailable, match="perhaps it is half written"):
            call()
    age(guarded.path)
    with pytest.raises(Denied, match="check the credentials"):
        store.get("a")


def test_a_rotation_that_truncates_first_is_outlived(guarded: Guarded) -> None:
    """A61"""
    store = retrying(guarded.store())
    store.get("a")
    guarded.valid = "KEY2"
    guarded.write_text("", settled=False)
    writer = threading.Timer(0.5, lambda: guarded.write("KEY2", settled=False))
    writer.start()
    assert store.get("a").data == b"1"
    writer.join(10)
    assert guarded.keys_used[-1] == "KEY2"


def test_an_unknown_profile_is_named(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    store = guarded.store()
    with pytest.raises(Denied, match=f'profile "production" in {guarded.path}'):
        store.get("a")


def test_missing_credentials_say_where_they_were_looked_for(guarded: Guarded) -> None:
    guarded.path.unlink()
    with pytest.raises(Denied, match=f"looked for in the environment.*{guarded.path}"):
        guarded.store().get("a")
    assert guarded.server.requests == []


def test_a_file_that_cannot_be_read_is_named(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "credentials"
        path.write_text(guarded.path.read_text())
        age(path)
        Path(folder).chmod(0o755)
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
        with _unreadable(path), pytest.raises(Denied) as raised:
            guarded.store().get("a")
    assert f"{path} cannot be read (Permission denied)" in str(raised.value)


@contextmanager
def _unreadable(path: Path) -> Iterator[None]:
    path.chmod(0)
    user = os.geteuid()
    if user == 0:  # whom no mode stops
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        path.chmod(stat.S_IRUSR | stat.S_IWUSR)


def test_what_the_giver_of_credentials_cannot_find_is_no_absence_of_an_object(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A role is asked for at a service of its own, whose answers are about roles."""
    (guarded.folder / "config").write_text(
        f"[profile role]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = default\n"
        f"region = us-east-1\nservices = here\n"
        f"[services here]\nsts =\n  endpoint_url = {guarded.server.endpoint}\n"
    )
    age(guarded.folder / "config")
    monkeypatch.setenv("AWS_PROFILE", "role")
    store = guarded.store()
    for answer, error in (
        (_sts_error(404, "NotFound"), Denied),
        (_sts_error(403, "AccessDenied"), Denied),
        (_sts_error(400, "ExpiredTokenException"), Denied),
        (_sts_error(500, "InternalFailure"), Unavailable),
        (Answer(0), Unavailable),
    ):
        guarded.server.answers(answer)
        with pytest.raises(error) as raised:
            store.get("a")
        assert type(raised.value) is error
        with pytest.raises(error):
            store.create("a", b"")
    assert {request.path for request in guarded.server.requests} == {"/"}


def _sts_error(status: int, code: str) -> Answer:
    body = f"<ErrorResponse><Error><Code>{code}</Code></Error></ErrorResponse>"
    return Answer(status, body.encode(), {"Content-Type": "text/xml"})


# The clock


@pytest.mark.parametrize("body", [b"<Error><Code>RequestTimeTooSkewed</Code></Error>", b""])
@pytest.mark.parametrize(
    ("hours", "sentence"),
    [(2.05, "2 h 3 min behind the store's"), (-0.5, "30 min ahead of the store's")],
)
def test_a_wrong_clock_is_told_by_how_much_it_is_off(
    guarded: Guarded, body: bytes, hours: float, sentence: str
) -> None:
    theirs = format_datetime(CLOCK.now() + timedelta(hours=hours), usegmt=True)
    guarded.server.answers(Answer(403, body))
    guarded.server.date = theirs
    store = guarded.store()
    call = (lambda: store.get("a")) if body else (lambda: store.head("a"))
    with pytest.raises(Denied) as raised:
        call()
    assert f"this machine's clock is {sentence}" in str(raised.value)
    assert "NTP" in str(raised.value)


def _script(guarded: Guarded) -> Path:
    return guarded.folder / "process.py"


def _use_process(guarded: Guarded, keys: list[str], *, expires_in: timedelta) -> None:
    """A credential process that gives another key at each call, and the last one for ever."""
    guarded.path.unlink(missing_ok=True)
    config = guarded.folder / "config"
    config.write_text(f"[default]\ncredential_process = {sys.executable} {_script(guarded)}\n")
    age(config)
    count = guarded.folder / "count"
    count.write_text("0")
    expires_at = (CLOCK.now() + expires_in).strftime("%Y-%m-%dT%H:%M:%SZ")
    _script(guarded).write_text(
        "import json, pathlib\n"
        f"count = pathlib.Path({str(count)!r})\n"
        "number = int(count.read_text())\n"
        "count.write_text(str(number + 1))\n"
        f"keys = {keys!r}\n"
        "key = keys[min(number, len(keys) - 1)]\n"
        "print(json.dumps({'Version': 1, 'AccessKeyId': key, 'SecretAccessKey': 'x',\n"
        f"    'SessionToken': 't', 'Expiration': {expires_at!r}}}))\n"
    )


def test_a_missing_bucket_is_not_blamed_on_the_credentials(guarded: Guarded) -> None:
    guarded.server.answers(_error(404, "NoSuchBucket"))
    with pytest.raises(Misconfigured) as raised:
        guarded.store().get("a")
    assert "credentials" not in str(raised.value)


# A real server


def test_a_real_server_refuses_a_wrong_secret_and_takes_the_right_one_from_the_same_file(
    guarded: Guarded, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A61"""
    server = stores.server("seaweedfs")
    for name in CLIENT_ENVIRONMENT:  # which making the servers has set
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    text = f"[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = "
    guarded.write_text(text + "wrong\n")
    store = s3_store(server, "rotated")
    with pytest.raises(Denied) as raised:
        store.create("a", b"1")
    assert "SignatureDoesNotMatch (HTTP 403)" in str(raised.value)
    assert str(guarded.path) in str(raised.value)
    guarded.write_text(text + f"{SECRET_KEY}\n")
    version = store.create("a", b"1")
    assert store.get("a").version == version
    guarded.write_text("", settled=False)
    with pytest.raises(Unavailable, match="half written"):
        store.get("a")
    guarded.write_text(text + f"{SECRET_KEY}\n", settled=False)
    assert store.head("a").version == version


# Time limits


@pytest.mark.parametrize("patience", [RECORDS, WHOLE, UPLOADS])
def test_no_request_waits_for_ever(guarded: Guarded, patience: Patience) -> None:
    clients = S3Clients(CLOCK, TASKS, guarded.server.endpoint, None)
    config = clients.ask("a", lambda client: client.meta.config, patience)
    assert config.connect_timeout == 3
    assert config.read_timeout == patience.read_seconds <= 60
    assert config.retries["total_max_attempts"] == patience.attempts <= 5


def test_neither_do_those_that_the_sdk_makes_for_credentials(guarded: Guarded) -> None:
    clients = S3Clients(CLOCK, TASKS, guarded.server.endpoint, "us-east-1")
    config = clients._new_session().client("sts").meta.config
    assert (config.connect_timeout, config.read_timeout) == (3, 10)
    assert config.retries["total_max_attempts"] == 2
