"""The SDK's clients: made at first use, one pair for each process."""

from __future__ import annotations

import os
from typing import Any

import boto3.session
from botocore.config import Config

from stado.ports import Tasks

CONNECT_SECONDS = 3
READ_SECONDS = 10
"""Some servers hold conditional writes of a contended key back for five seconds."""

_CONNECTIONS = 64
_TRANSFER_READ_SECONDS = 60
_TRANSFER_ATTEMPTS = 5
_NOBODY = "nobody"


class S3Clients:
    """A client looks for credentials, perhaps over the network, when it is made, and it must not
    be shared with a forked process: so neither happens before the first request of a process.

    The session is not safe between threads; it is used under our lock only."""

    def __init__(self, tasks: Tasks, endpoint: str | None, region: str | None) -> None:
        self._lock = tasks.lock()
        self._endpoint = endpoint
        self._owner = 0
        self._clients: dict[bool, Any] = {}
        self._session = boto3.session.Session(region_name=region)
        self._read_service_model()

    def for_objects(self) -> Any:
        """One attempt a request: a hidden retry would report our own write as a conflict."""
        return self._client(transfers=False)

    def for_transfers(self) -> Any:
        """Patient and retrying: transfers are unconditional, to keys used once."""
        return self._client(transfers=True)

    def close(self) -> None:
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients = {}

    def _client(self, *, transfers: bool) -> Any:
        with self._lock:
            if self._owner != os.getpid():
                self._owner = os.getpid()
                self._clients = {}
            if transfers not in self._clients:
                self._clients[transfers] = self._make(transfers=transfers)
            return self._clients[transfers]

    def _make(self, *, transfers: bool) -> Any:
        read_seconds = _TRANSFER_READ_SECONDS if transfers else READ_SECONDS
        attempts = _TRANSFER_ATTEMPTS if transfers else 1
        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=read_seconds,
            retries={"total_max_attempts": attempts, "mode": "standard"},
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
        client = self._session.client("s3", endpoint_url=self._endpoint, config=config)
        if not transfers:
            client.meta.events.register_last("before-call.s3", _without_expectation)
        return client

    def _read_service_model(self) -> None:
        """The session keeps it, which saves each forked process a quarter of a second of CPU.

        With credentials given, for then none are looked for; this client never sends anything."""
        region = self._session.region_name or "us-east-1"
        self._session.client(
            "s3", region_name=region, aws_access_key_id=_NOBODY, aws_secret_access_key=_NOBODY
        ).close()


def _without_expectation(params: dict[str, Any], **_: Any) -> None:
    """Bodies of records are small: asking first whether they are welcome (`Expect: 100-continue`)
    would cost a round trip for nothing."""
    params["headers"].pop("Expect", None)
