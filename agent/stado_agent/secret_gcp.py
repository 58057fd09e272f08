"""Google Secret Manager, by its REST interface, asked as whoever the host is to Google.

The item is `projects/<project>/secrets/<name>`, or a name in the host's project, and may go on with
`/versions/<version>` (else the latest); its payload is a JSON object of which the field is a key.
The host's identity needs secretmanager.versions.access for it, and nobody else does.
https://cloud.google.com/secret-manager/docs/reference/rest/v1/projects.secrets.versions/access
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from functools import partial
from typing import Any, NoReturn

import google.auth
import requests
from google.auth import exceptions as auth
from google.auth.transport.requests import AuthorizedSession
from google.auth.transport.requests import Request as AuthRequest

from stado_agent.secrets import SecretRefused, SecretUnreachable, field_of

PUBLIC_ENDPOINT = "https://secretmanager.googleapis.com"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_WAIT_SECONDS = (5, 10)
"""For a connection, and for each piece of an answer."""
_TOTAL_SECONDS = 20
_ITEM = re.compile(
    r"(?:projects/(?P<project>[a-z0-9:.-]{1,100})/secrets/)?(?P<name>[A-Za-z0-9_-]{1,255})"
    r"(?:/versions/(?P<version>[A-Za-z0-9_-]{1,63}))?"
)
_OK, _ABSENT, _THROTTLED, _SERVER_ERROR = 200, 404, 429, 500
_UNREACHABLE = (auth.TransportError, requests.RequestException)


class GcpSecrets:
    """New connections and credentials for each secret: they are asked for once a job."""

    def __init__(self, endpoint: str | None) -> None:
        self._endpoint = (endpoint or PUBLIC_ENDPOINT).rstrip("/")

    def read(self, item: str, field: str) -> str:
        named = _ITEM.fullmatch(item)
        if named is None:
            raise SecretRefused(
                "it is no name of a Google secret: NAME, or projects/PROJECT/secrets/NAME"
            )
        try:
            answer = self._ask(named)
        except _UNREACHABLE as error:
            raise SecretUnreachable(
                f"Google Secret Manager does not answer ({type(error).__name__})"
            ) from None
        except auth.GoogleAuthError as error:
            if error.retryable:
                raise SecretUnreachable("Google gives the host no token just now") from None
            raise SecretRefused(
                f"the host's Google credentials cannot be used ({type(error).__name__}): give it "
                "a service account"
            ) from None
        if answer.status_code != _OK:
            _raise_for(int(answer.status_code))
        return _field_of(answer.content, field)

    def _ask(self, named: re.Match[str]) -> Any:
        asked = partial(AuthRequest(), timeout=_WAIT_SECONDS)
        credentials, own_project = google.auth.default(scopes=[_SCOPE], request=asked)  # type: ignore[arg-type]
        project = named["project"] or own_project
        if project is None:
            raise SecretRefused(
                "no project is stated: name it as projects/PROJECT/secrets/NAME, or export "
                "GOOGLE_CLOUD_PROJECT for the agent"
            )
        version = named["version"] or "latest"
        path = f"/v1/projects/{project}/secrets/{named['name']}/versions/{version}:access"
        with AuthorizedSession(credentials, refresh_timeout=_WAIT_SECONDS[1]) as session:  # type: ignore[no-untyped-call]
            return session.request(  # type: ignore[no-untyped-call]
                "GET",
                self._endpoint + path,
                timeout=_WAIT_SECONDS,
                max_allowed_time=_TOTAL_SECONDS,
                allow_redirects=False,
            )


def _raise_for(status: int) -> NoReturn:
    if status == _ABSENT:
        raise SecretRefused("Google Secret Manager has no such secret, or no such version")
    if status == _THROTTLED or status >= _SERVER_ERROR:
        raise SecretUnreachable(f"Google Secret Manager says {status}")
    raise SecretRefused(
        f"Google Secret Manager says {status}: the host's identity needs "
        "secretmanager.versions.access for it"
    )


def _field_of(content: bytes, field: str) -> str:
    try:
        payload = b64decode(json.loads(content)["payload"]["data"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise SecretUnreachable("Google Secret Manager gave an answer without a payload") from None
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError):
        document = None
    return field_of(document, field)
