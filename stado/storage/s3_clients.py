"""The SDK's clients: made at first use, anew in each process and for each state of the credentials.

An SDK keeps what it read of credentials until its end, so a rotated file would be of no use to a
program that runs for weeks. Clients are therefore made anew when the files they were made from have
changed, and once after a refusal. Who is in the middle of a request keeps the old ones.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import boto3.session
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
from botocore.loaders import create_loader

from stado.errors import Denied, StoreError, Unavailable
from stado.ports import Clock, Tasks
from stado.storage.credential_files import (
    Sight,
    find_unsettled,
    has_changed,
    look_at,
    unreadable_sentence,
)
from stado.storage.meter import RequestMeter
from stado.storage.s3_errors import (
    DENIED_REMEDY,
    credential_errors,
    is_refusal_of_credentials,
)

CONNECT_SECONDS = 3
READ_SECONDS = 10
"""Some servers hold conditional writes of a contended key back for five seconds."""


class Patience(NamedTuple):
    """What a client waits for an answer, and how often it sends a request by itself."""

    read_seconds: int
    attempts: int


RECORDS = Patience(READ_SECONDS, attempts=1)
"""A hidden retry would report our own write as a conflict."""

WHOLE = Patience(60, attempts=1)
"""Downloads, and uploads of small files: they are repeated as a whole, where it can be told."""

UPLOADS = Patience(60, attempts=5)
"""They go in parts, unconditionally, to keys used once."""

_CONNECTIONS = 64
_NOBODY = "nobody"
_LIMITS_OF_OTHERS = Config(
    connect_timeout=CONNECT_SECONDS,
    read_timeout=READ_SECONDS,
    retries={"total_max_attempts": 2, "mode": "standard"},
)
"""For what the SDK asks on the way to credentials: its own limits are minutes."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _Access:
    """What was made of the credentials as they were once."""

    session: Any
    credentials: Any
    files: tuple[Sight, ...]
    owner: int
    """The process that it was made in."""
    clients: dict[Patience, Any] = field(default_factory=dict)


class S3Clients:
    """A client looks for credentials, perhaps over the network, when it is made, and it must not
    be shared with a forked process: so neither happens before the first request of a process.

    A session is not safe between threads; it is used under our lock only."""

    def __init__(
        self,
        clock: Clock,
        tasks: Tasks,
        endpoint: str | None,
        region: str | None,
        meter: RequestMeter | None = None,
    ) -> None:
        self._clock = clock
        self._lock = tasks.lock()
        self._endpoint = endpoint
        self._region = region
        self._meter = meter
        self._access: _Access | None = None
        core = botocore.session.get_session()
        self._files = tuple(
            Path(os.path.expanduser(os.path.expandvars(name)))
            for name in map(core.get_config_variable, ("credentials_file", "config_file"))
        )
        self._profile: str = core.get_config_variable("profile") or "default"
        self._read_service_model()

    def ask(self, key: str, call: Callable[[Any], Result], patience: Patience) -> Result:
        """Calls with a client of so much patience.

        Calls a second time, with new clients, where the first call's credentials were refused.
        Raises what the SDK does, and for credentials that cannot be had our own errors."""
        access = self._usable_access(key)
        try:
            return call(self._client(key, access, patience))
        except ClientError as error:
            if not is_refusal_of_credentials(error):
                raise
        self._drop(access)
        return call(self._client(key, self._usable_access(key), patience))

    def explained(self, key: str, error: Denied) -> StoreError:
        """A denial of credentials, with whose they were; but where they may be half written, one
        that is worth trying again."""
        text = str(error).removeprefix(f"{key}: ")
        if DENIED_REMEDY not in text:
            return error
        unsettled = find_unsettled(self._files, self._clock.now())
        if unsettled is not None:
            return Unavailable(
                key, f"{text}; {unsettled} was changed a moment ago, perhaps it is half written"
            )
        return Denied(key, f"{text}; used: {self._origin()}")

    def close(self) -> None:
        with self._lock:
            if self._access is not None:
                for client in self._access.clients.values():
                    client.close()
            self._access = None

    def _usable_access(self, key: str) -> _Access:
        """With credentials that are still good: the SDK fetches the next ones here."""
        with credential_errors(key):
            access = self._current_access()
            access.credentials.get_frozen_credentials()
            return access

    def _current_access(self) -> _Access:
        """Raises what the SDK does when there are no credentials; then the next request looks for
        them again."""
        with self._lock:
            access = self._access
            if access is None or not self._is_current(access):
                self._access = None
                files = tuple(map(look_at, self._files))
                session = self._new_session()
                credentials = session.get_credentials()
                if credentials is None:
                    raise NoCredentialsError
                self._access = access = _Access(session, credentials, files, os.getpid())
            return access

    def _is_current(self, access: _Access) -> bool:
        seen = zip(self._files, access.files, strict=True)
        return access.owner == os.getpid() and not any(
            has_changed(path, since) for path, since in seen
        )

    def _drop(self, access: _Access) -> None:
        """Unless another thread has done so. It is not closed: others may be using it."""
        with self._lock:
            if self._access is access:
                self._access = None

    def _client(self, key: str, access: _Access, patience: Patience) -> Any:
        with self._lock, credential_errors(key):
            if patience not in access.clients:
                access.clients[patience] = self._make(access.session, patience)
            return access.clients[patience]

    def _make(self, session: Any, patience: Patience) -> Any:
        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=patience.read_seconds,
            retries={"total_max_attempts": patience.attempts, "mode": "standard"},
            max_pool_connections=_CONNECTIONS,
        )
        if self._endpoint is not None:
            # Other servers lack virtual hosts and reject the newer checksum trailers.
            config = config.merge(
                Config(
                    s3={"addressing_style": "path"},
                    request_checksum_calculation="when_required",
                    response_checksum_validation="when_required",
                )
            )
        client = session.client("s3", endpoint_url=self._endpoint, config=config)
        if patience is not UPLOADS:
            client.meta.events.register_last("before-call.s3", _without_expectation)
        if self._meter is not None:
            metered = _Metered(self._meter)
            client.meta.events.register_last("before-send.s3", metered.sent)
            client.meta.events.register("response-received.s3", metered.received)
        return client

    def _new_session(self) -> Any:
        core = botocore.session.get_session()
        loader = _loader()
        core.register_component("data_loader", loader)
        core.set_default_client_config(_LIMITS_OF_OTHERS)
        session = boto3.session.Session(botocore_session=core, region_name=self._region)
        # Each session adds the same folder.
        loader.search_paths[:] = dict.fromkeys(loader.search_paths)
        return session

    def _read_service_model(self) -> None:
        """Before the first fork, for all the copies. With credentials given, for then none are
        looked for; this client never sends anything."""
        try:
            self._new_session().client(
                "s3",
                region_name=self._region or "us-east-1",
                aws_access_key_id=_NOBODY,
                aws_secret_access_key=_NOBODY,
            ).close()
        except BotoCoreError:
            return  # of a profile or a file of settings: the first request says so

    def _origin(self) -> str:
        """Where the credentials came from, or would have."""
        access = self._access
        method = getattr(access.credentials, "method", None) if access is not None else None
        if method is not None:
            return _ORIGINS.get(method, "{profile} in {config}, by {method}").format(
                method=method,
                profile=f'profile "{self._profile}"',
                shared=self._files[0],
                config=self._files[1],
            )
        unreadable = unreadable_sentence(self._files)
        return unreadable or (
            f'none; looked for in the environment, for profile "{self._profile}" in '
            f"{self._files[0]} and {self._files[1]}, and for a role of this machine"
        )


@functools.cache
def _loader() -> Any:
    """All sessions of this process share what was read of the service: that takes a quarter of a
    second of CPU."""
    return create_loader()


_ORIGINS = {
    "env": "the environment (AWS_ACCESS_KEY_ID)",
    "explicit": "the environment (AWS_ACCESS_KEY_ID)",
    "shared-credentials-file": "{profile} in {shared}",
    "config-file": "{profile} in {config}",
    "custom-process": "the credential_process of {profile} in {config}",
    "assume-role": "the role of {profile} in {config}",
    "assume-role-with-web-identity": "the web identity token of {profile}",
    "sso": "the single sign-on of {profile}: `aws sso login` renews it",
    "login": "the login of {profile}: `aws login` renews it",
    "iam-role": "the role of this instance",
    "container-role": "the role of this container",
}
"""By the SDK's name of the method."""


class _Metered:
    """Hears of each request of a client as it goes out, the SDK's own repetitions too, and of each
    answer. What else the SDK sends, for credentials, goes by other clients."""

    def __init__(self, meter: RequestMeter) -> None:
        self._meter = meter

    def sent(self, request: Any, **_: Any) -> None:
        length = request.headers.get("Content-Length")
        if length is None:
            length = len(request.body) if isinstance(request.body, bytes) else 0
        writes_or_lists = request.method in ("PUT", "POST") or _is_listing(request)
        self._meter.send(
            dear=int(writes_or_lists),
            cheap=int(not writes_or_lists and request.method != "DELETE"),
            sent_bytes=int(length),
        )

    def received(self, response_dict: Any, **_: Any) -> None:
        """Of an answer that is read as it comes, the length that was told; it is 0 of those that
        tell none."""
        body = None if response_dict is None else response_dict["body"]
        if body is None:
            return
        told = response_dict["headers"].get("content-length") or 0
        self._meter.receive(len(body) if isinstance(body, bytes) else int(told))


def _is_listing(request: Any) -> bool:
    return request.method == "GET" and "list-type=" in request.url


def _without_expectation(params: dict[str, Any], **_: Any) -> None:
    """Bodies of records are small: asking first whether they are welcome (`Expect: 100-continue`)
    would cost a round trip for nothing."""
    params["headers"].pop("Expect", None)
