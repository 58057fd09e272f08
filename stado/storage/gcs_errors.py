"""What an answer of Google Cloud Storage, or the lack of one, means for an object.

Texts carry the status and the server's message; never the request, which holds an access token.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from urllib.parse import urlsplit

import requests
from google.api_core.exceptions import GoogleAPICallError, GoogleAPIError
from google.auth import exceptions as auth
from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
from urllib3.exceptions import HTTPError, MaxRetryError, NewConnectionError

from stado.errors import (
    Ambiguous,
    Conflict,
    Denied,
    Misconfigured,
    NotFound,
    NotModified,
    StoreError,
    Throttled,
    Unavailable,
)
from stado.storage.answers import NOT_THE_STORES, why_not_reached

DENIED_REMEDY = (
    "check the credentials (`gcloud auth application-default login`, a service account, or the "
    "instance's), whether they have expired, and that they may read, write, delete and list in "
    "this bucket"
)
CLOCK_REMEDY = (
    "this machine's clock may be wrong: let NTP set it (`timedatectl set-ntp true`, chrony or ntpd)"
)
_ABOUT_TIME = "iat and exp"
"""In the words of the service that grants tokens."""

_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
_MESSAGE_MAX = 300
_SERVER_ERRORS = 500
_NO_BUCKET = "bucket does not exist"


@contextmanager
def store_errors(key: str, *, writing: bool) -> Iterator[None]:
    """Turns every error of the SDK and of the connection into a `StoreError`."""
    try:
        yield
    except GoogleAPICallError as error:
        status = int(error.code or _SERVER_ERRORS)
        raise error_of_status(key, status, str(error.message), writing=writing) from None
    except (GoogleAPIError, InvalidResponse, DataCorruption, HTTPError) as error:
        # Of uploads: the library's patience is over, or it cannot make sense of an answer.
        raise _unclear(key, type(error).__name__, writing=writing) from None
    except auth.TransportError as error:
        raise Unavailable(key, f"no access token: {why_not_reached(error)}") from None
    except auth.GoogleAuthError as error:
        raise _without_token(key, error) from None
    except requests.RequestException as error:
        raise _of_silence(key, error, writing=writing) from None


def _without_token(key: str, error: auth.GoogleAuthError) -> StoreError:
    """The first part of an error is a sentence; only that of a refused grant is known to quote
    nothing secret."""
    kind = type(error).__name__
    if error.retryable:
        return Unavailable(key, f"no access token: {kind}")
    said = str(error.args[0]) if error.args else ""
    if not said.startswith("invalid_grant"):
        return Denied(key, f"{kind}: {DENIED_REMEDY}")
    clock = f"{CLOCK_REMEDY}; else " if _ABOUT_TIME in said else ""
    return Denied(key, f"{said[:_MESSAGE_MAX]}: {clock}{DENIED_REMEDY}")


def check_answer(key: str, answer: requests.Response, *, writing: bool) -> None:
    """Raises unless the server did what it was asked. A failed condition is a `Conflict`."""
    if answer.status_code == HTTPStatus.NOT_FOUND and not _is_googles(answer):
        why = f"HTTP 404, as no store says it: {NOT_THE_STORES}"
        raise _unclear(key, why, writing=writing)
    if answer.status_code >= HTTPStatus.MULTIPLE_CHOICES:
        raise error_of_status(key, answer.status_code, _message(answer), writing=writing)


def error_of_status(key: str, status: int, message: str, *, writing: bool) -> StoreError:
    why = f"HTTP {status}"
    if status == HTTPStatus.NOT_FOUND and _NO_BUCKET in message.lower():
        return Misconfigured(key, f"{why}: create the bucket first, or check its name")
    for statuses, kind, remedy in _MEANINGS:
        if status in statuses:
            return kind(key, f"{why}: {remedy}" if remedy else why)
    if status >= _SERVER_ERRORS or status == HTTPStatus.REQUEST_TIMEOUT:
        return _unclear(key, why, writing=writing)
    return Misconfigured(key, f"the store refused the request: {why}: {message[:_MESSAGE_MAX]}")


_MEANINGS: tuple[tuple[set[int], type[StoreError], str], ...] = (
    ({HTTPStatus.NOT_FOUND}, NotFound, ""),
    ({HTTPStatus.PRECONDITION_FAILED}, Conflict, ""),
    ({HTTPStatus.NOT_MODIFIED}, NotModified, ""),
    ({HTTPStatus.CONFLICT}, Unavailable, "another write of this object was under way"),
    ({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}, Throttled, ""),
    ({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}, Denied, DENIED_REMEDY),
    ({HTTPStatus.NOT_IMPLEMENTED}, Misconfigured, "the server does not offer this request"),
)


def _is_googles(answer: requests.Response) -> bool:
    """Whether an absence is told as the service tells it, or an emulator: a proxy has pages."""
    try:
        return bool(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        said = answer.text.startswith(("No such object", "Not Found"))
        return said or "x-guploader-uploadid" in answer.headers


def _message(answer: requests.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text


def _of_silence(key: str, error: requests.RequestException, *, writing: bool) -> StoreError:
    kind = type(error).__name__
    if isinstance(error, requests.exceptions.SSLError) and _UNTRUSTED in str(error):
        return Misconfigured(key, "the certificate of the endpoint is not trusted")
    if isinstance(error, requests.ConnectTimeout) or _was_refused(error):
        return Unavailable(key, f"{why_not_reached(error)}: {_server(error)} cannot be reached")
    if isinstance(error, requests.ReadTimeout):
        return _unclear(
            key, f"no answer within the time limit from {_server(error)}", writing=writing
        )
    return _unclear(key, kind, writing=writing)


def _server(error: requests.RequestException) -> str:
    parts = urlsplit(str(error.request.url)) if error.request is not None else None
    return f"{parts.scheme}://{parts.netloc}" if parts is not None else "the endpoint"


def _unclear(key: str, why: str, *, writing: bool) -> StoreError:
    return Ambiguous(key, why) if writing else Unavailable(key, why)


def _was_refused(error: requests.RequestException) -> bool:
    """Whether no connection was made (refused, or no such host), so that nothing was sent."""
    cause = error.args[0] if error.args else None
    return isinstance(cause, MaxRetryError) and isinstance(cause.reason, NewConnectionError)
