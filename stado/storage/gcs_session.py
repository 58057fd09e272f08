"""The connections to Google Cloud Storage: made at first use, anew in each process."""

from __future__ import annotations

import os
from typing import Any

import google.auth
from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import AuthorizedSession
from google.cloud.storage import Client
from requests.adapters import HTTPAdapter

from stado.ports import Tasks

PUBLIC_ENDPOINT = "https://storage.googleapis.com"
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_CONNECTIONS = 64
_TRANSFER_SECONDS = (3, 60)


class GcsSession:
    """Finding credentials may ask the network, and connections must not be shared with a forked
    process: so neither happens before the first request of a process.

    An `endpoint` of one's own is an emulator's, and is asked without credentials."""

    def __init__(self, tasks: Tasks, endpoint: str | None) -> None:
        self._lock = tasks.lock()
        self._anonymous = endpoint is not None
        self._owner = 0
        self._session: Any = None
        self.endpoint = (endpoint or PUBLIC_ENDPOINT).rstrip("/")

    def get(self) -> Any:
        """A `requests` session that signs what it sends."""
        with self._lock:
            if self._session is None or self._owner != os.getpid():
                self._owner = os.getpid()
                self._session = self._make()
            return self._session

    def upload(self, bucket: str, name: str, path: str) -> None:
        """By the library, for it can resume: unconditional, so its retries do no harm."""
        client = Client(
            project=None,
            credentials=self.get().credentials,
            client_options={"api_endpoint": self.endpoint},
        )
        blob = client.bucket(bucket).blob(name)
        blob.upload_from_filename(
            path, content_type="application/octet-stream", timeout=_TRANSFER_SECONDS
        )

    def close(self) -> None:
        with self._lock:
            if self._session is not None:
                self._session.close()
                self._session = None

    def _make(self) -> Any:
        if self._anonymous:
            credentials: Any = AnonymousCredentials()  # type: ignore[no-untyped-call]
        else:
            credentials, _ = google.auth.default(scopes=[_SCOPE])
        session: Any = AuthorizedSession(credentials)  # type: ignore[no-untyped-call]
        for scheme in ("https://", "http://"):
            session.mount(scheme, HTTPAdapter(pool_maxsize=_CONNECTIONS))
        return session
