"""The connections to Google Cloud Storage: made at first use, anew in each process and for each
state of the file of credentials.

The library keeps what it read of that file until its end, so a rotated one would be of no use to a
program that runs for weeks. Who is in the middle of a request keeps the old connections.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import google.auth
from google.auth import exceptions as auth
from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import AuthorizedSession
from google.auth.transport.requests import Request as AuthRequest
from google.cloud.storage import Client
from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter

from stado.errors import Denied, StoreError, Unavailable
from stado.ports import Clock, Tasks
from stado.storage.credential_files import (
    SETTLING_SECONDS,
    Sight,
    find_unsettled,
    has_changed,
    look_at,
)
from stado.storage.gcs_errors import DENIED_REMEDY
from stado.storage.meter import RequestMeter

PUBLIC_ENDPOINT = "https://storage.googleapis.com"
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_CONNECTIONS = 64
_TRANSFER_SECONDS = (3, 60)
_FINDING_SECONDS = (3, 10)
"""For what the library asks on the way to credentials: its own limit is two minutes."""

_BY_VARIABLE = " file via the GOOGLE_APPLICATION_CREDENTIALS environment variable"
"""What the library puts behind the name of a file that it found so."""

_NOTHING = Sight(None, None)

_NONE_ANYWHERE = "Your default credentials were not found"
"""The library's words when no file was named: nothing that could be half written."""


class GcsSession:
    """Finding credentials may ask the network, and connections must not be shared with a forked
    process: so neither happens before the first request of a process.

    An `endpoint` of one's own is an emulator's, and is asked without credentials."""

    def __init__(
        self,
        clock: Clock,
        tasks: Tasks,
        endpoint: str | None,
        meter: RequestMeter | None = None,
    ) -> None:
        self._clock = clock
        self._lock = tasks.lock()
        self._anonymous = endpoint is not None
        self._meter = meter
        self._owner = 0
        self._session: Any = None
        self._file: Path | None = None
        """What the credentials were read from, if it was a file."""
        self._seen = _NOTHING
        self._unusable_since: float | None = None
        self.endpoint = (endpoint or PUBLIC_ENDPOINT).rstrip("/")

    def ask(self, key: str, call: Callable[[Any], Any]) -> Any:
        """The answer that `call` gets by a `requests` session which signs what it sends. Calls a
        second time, with what the file holds now, where the credentials were refused."""
        session = self._get(key)
        try:
            answer = call(session)
            if answer.status_code != HTTPStatus.UNAUTHORIZED or self._anonymous:
                return answer
        except auth.RefreshError as error:
            if error.retryable:
                raise
        self._drop(session)
        return call(self._get(key))

    def upload(self, key: str, bucket: str, name: str, path: str) -> None:
        """By the library, for it can resume: unconditional, so its retries do no harm."""
        session = self._get(key)
        client = Client(
            project=None,
            credentials=session.credentials,
            client_options={"api_endpoint": self.endpoint},
            _http=session,
        )
        blob = client.bucket(bucket).blob(name)
        blob.upload_from_filename(
            path, content_type="application/octet-stream", timeout=_TRANSFER_SECONDS
        )

    def explained(self, key: str, error: Denied) -> StoreError:
        """A denial of credentials, with whose they were; but where they may be half written, one
        that is worth trying again."""
        text = str(error).removeprefix(f"{key}: ")
        if DENIED_REMEDY not in text:
            return error
        files = () if self._file is None else (self._file,)
        unsettled = find_unsettled(files, self._clock.now())
        if unsettled is not None:
            return Unavailable(
                key, f"{text}; {unsettled} was changed a moment ago, perhaps it is half written"
            )
        return Denied(key, f"{text}; used: {self._origin()}")

    def close(self) -> None:
        with self._lock:
            if self._session is not None:
                self._session.close()
                self._session = None

    def _get(self, key: str) -> Any:
        with self._lock:
            if not self._is_current():
                self._session = None
                credentials = self._find_credentials(key)
                self._session = _session_of(credentials, self._meter)
                self._owner = os.getpid()
            return self._session

    def _is_current(self) -> bool:
        if self._session is None or self._owner != os.getpid():
            return False
        return self._file is None or not has_changed(self._file, self._seen)

    def _drop(self, session: Any) -> None:
        """Unless another thread has done so. It is not closed: others may be using it."""
        with self._lock:
            if self._session is session:
                self._session = None

    def _find_credentials(self, key: str) -> Any:
        if self._anonymous:
            return AnonymousCredentials()  # type: ignore[no-untyped-call]
        before = _NOTHING if self._file is None else look_at(self._file)
        try:
            asked = partial(AuthRequest(), timeout=_FINDING_SECONDS)
            credentials, _ = google.auth.default(scopes=[_SCOPE], request=asked)  # type: ignore[arg-type]
        except auth.TransportError:
            raise
        except (auth.GoogleAuthError, OSError, ValueError, TypeError, AttributeError) as error:
            raise self._unusable(key, error) from None
        self._unusable_since = None
        file = _file_of(credentials)
        self._seen = before if file == self._file or file is None else look_at(file)
        self._file = file
        return credentials

    def _unusable(self, key: str, error: Exception) -> StoreError:
        """For some seconds a file that cannot be understood counts as being written."""
        text = _sentence_of(error)
        now = self._clock.monotonic()
        if self._unusable_since is None:
            self._unusable_since = now
        settled = now - self._unusable_since >= SETTLING_SECONDS
        if settled or text.startswith(_NONE_ANYWHERE):
            return Denied(key, f"{text}: {DENIED_REMEDY}")
        return Unavailable(key, f"{text}: perhaps it is half written")

    def _origin(self) -> str:
        if self._anonymous:
            return "none, as for every endpoint of one's own"
        if self._file is not None:
            return str(self._file)
        return "none" if self._session is None else "the account of this instance"


def _session_of(credentials: Any, meter: RequestMeter | None) -> Any:
    session: Any = AuthorizedSession(credentials)  # type: ignore[no-untyped-call]
    for scheme in ("https://", "http://"):
        session.mount(scheme, _MeteredAdapter(meter))
    return session


class _MeteredAdapter(HTTPAdapter):
    """Hears of each request as it goes out, the library's own repetitions too. What is sent for
    credentials goes by another session."""

    def __init__(self, meter: RequestMeter | None) -> None:
        super().__init__(pool_maxsize=_CONNECTIONS)
        self._meter = meter

    def send(self, request: PreparedRequest, *args: Any, **options: Any) -> Response:
        if self._meter is None:
            return super().send(request, *args, **options)
        path, _, query = (request.url or "").partition("?")
        lists = request.method == "GET" and path.endswith("/o")
        goes_on = request.method == "PUT" and "upload_id=" in query
        dear = lists or (request.method in ("PUT", "POST") and not goes_on)
        self._meter.send(
            dear=int(dear),
            cheap=int(request.method == "GET" and not lists),
            sent_bytes=int(request.headers.get("Content-Length") or 0),
        )
        answer = super().send(request, *args, **options)
        told = answer.headers.get("Content-Length")
        if told is not None:
            self._meter.receive(int(told))
        elif not options.get("stream"):
            self._meter.receive(len(answer.content))  # the session reads it at once anyway
        return answer


def _file_of(credentials: Any) -> Path | None:
    source = (credentials.get_cred_info() or {}).get("credential_source")
    return Path(source.removesuffix(_BY_VARIABLE)) if source else None


def _sentence_of(error: Exception) -> str:
    """The library's words name the file, and quote nothing of it."""
    if isinstance(error, auth.DefaultCredentialsError) and error.args:
        return str(error.args[0]).strip().splitlines()[0].rstrip(".")
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename} cannot be read ({error.strerror})"
    return f"the file of credentials cannot be used ({type(error).__name__})"
