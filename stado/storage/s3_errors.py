"""What an answer of S3, or the lack of one, means for an object.

Texts carry the error code and, where it helps, the server's message; never the request, for its
headers are signed with the user's credentials.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from boto3.exceptions import Boto3Error
from botocore import exceptions as sdk
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

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

_NOT_FOUND = {"NoSuchKey", "404", "NotFound"}
_NO_BUCKET = {"NoSuchBucket", "InvalidBucketName"}
_NO_UPLOAD = {"NoSuchUpload"}
_PRECONDITION = {"PreconditionFailed", "412"}
_BEYOND_THE_END = {"InvalidRange", "416"}
_COLLISION = {"ConditionalRequestConflict", "OperationAborted", "409"}
_THROTTLED = {
    "SlowDown",
    "ServiceUnavailable",
    "503",
    "Throttling",
    "ThrottlingException",
    "TooManyRequests",
    "TooManyRequestsException",
    "RequestLimitExceeded",
    "429",
}
_REFUSED_CREDENTIALS = {
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidToken",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
    "Unauthorized",
    "401",
}
"""It is the credentials that are wrong, not what they allow."""

_DENIED = {*_REFUSED_CREDENTIALS, "AccessDenied", "AllAccessDisabled", "403"}
_UNSAID = {"400", "403"}
"""Answers to HEAD have no body: such a one can mean credentials that have expired."""

_HEAD = "HeadObject"
_REQUEST_NUMBERS = {"x-amz-request-id", "x-amzn-requestid", "x-amz-id-2"}
_SKEWED = {"RequestTimeTooSkewed"}
_NOT_OFFERED = {"NotImplemented", "501"}
_NOT_SENT = (sdk.EndpointConnectionError, sdk.ConnectTimeoutError, sdk.ProxyConnectionError)
_MALFORMED = (
    sdk.ParamValidationError,
    sdk.NoRegionError,
    sdk.InvalidRegionError,
    sdk.InvalidConfigError,
)

DENIED_REMEDY = (
    "check the credentials (environment, profile or instance role), whether they have expired, "
    "and that they may read, write, delete and list in this bucket"
)

_ABSENT = 404
_SERVER_ERRORS = 500
_SKEW_SECONDS_MIN = 240
"""Services tolerate a quarter of an hour, some five minutes."""

_SKEW_REMEDY = (
    "a request signed at a wrong time is refused; let NTP set this machine's clock (`timedatectl "
    "set-ntp true`, chrony or ntpd)"
)

_MEANINGS: tuple[tuple[set[str], type[StoreError], str], ...] = (
    (_NO_BUCKET, Misconfigured, "create the bucket first, or check its name and region"),
    (_NOT_FOUND, NotFound, ""),
    (_PRECONDITION, Conflict, ""),
    (_COLLISION, Unavailable, "another write of this key was under way"),
    (_THROTTLED, Throttled, ""),
    (_DENIED, Denied, DENIED_REMEDY),
    ({"RequestTimeout"}, Unavailable, "the request did not arrive whole"),
    ({"304", "NotModified"}, NotModified, ""),
    (_NOT_OFFERED, Misconfigured, "the server does not offer this kind of request"),
)


@contextmanager
def store_errors(key: str, *, writing: bool, now: datetime | None = None) -> Iterator[None]:
    """Turns every error of the SDK into a `StoreError`. `now` is this machine's time.

    A failed condition is a `Conflict`; a create makes `Exists` of it."""
    try:
        yield
    except sdk.ClientError as error:
        raise _of_answer(key, error, writing=writing, now=now) from None
    except sdk.BotoCoreError as error:
        raise _of_silence(key, error, writing=writing) from None
    except (Boto3Error, ResponseParserError, HTTPError) as error:
        # The SDK lets these through: of transfers, of answers that are no XML, of cut streams.
        raise _unclear(key, type(error).__name__, writing=writing) from None


@contextmanager
def credential_errors(key: str) -> Iterator[None]:
    """For the way to credentials: files, processes and services that are not the store.

    What they say must not be taken for the store's word on an object: their 404 is no absence."""
    try:
        yield
    except sdk.ClientError as error:
        code, status = _code_of(error), _status_of(error)
        if code in _THROTTLED or status >= _SERVER_ERRORS:
            raise Unavailable(key, f"no credentials: {error.operation_name}: {code}") from None
        raise Denied(key, f"{error.operation_name}: {code}: {DENIED_REMEDY}") from None
    except _MALFORMED as error:
        raise Misconfigured(key, f"{type(error).__name__}: {error}") from None
    except (sdk.HTTPClientError, sdk.ConnectionError, HTTPError) as error:
        why = why_not_reached(error)
        raise Unavailable(key, f"no credentials: who gives them does not answer: {why}") from None
    except (sdk.BotoCoreError, OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        # Without its text: that of a credential process can hold anything.
        raise Denied(key, f"{type(error).__name__}: {DENIED_REMEDY}") from None


def is_refusal_of_credentials(error: sdk.ClientError) -> bool:
    """Whether other credentials may help."""
    codes = {_code_of(error), str(_status_of(error))}
    return bool(codes & _REFUSED_CREDENTIALS) or _code_of(error) in _UNSAID


def is_unsigned_absence(error: sdk.ClientError) -> bool:
    """Whether anybody could have given this answer: absent, without a body, and without the number
    that services give to a request."""
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return _code_of(error) in _NOT_FOUND and not _REQUEST_NUMBERS & headers.keys()


def is_beyond_the_end(error: sdk.ClientError) -> bool:
    """Whether a part was asked for that begins where the object has ended."""
    return _code_of(error) in _BEYOND_THE_END


def _code_of(error: sdk.ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _status_of(error: sdk.ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _of_answer(
    key: str, error: sdk.ClientError, *, writing: bool, now: datetime | None
) -> StoreError:
    code, status = _code_of(error), _status_of(error)
    why = f"{code or 'error'} (HTTP {status})"
    # The code first: some servers wrap an error in a 200.
    if code in _NO_UPLOAD:  # a 404, which is not about the object
        return Ambiguous(key, f"{why}: the parts are gone, or put together already")
    if status == _ABSENT and code in ("404", "") and error.operation_name != _HEAD:
        # A store says what is not there, but where an answer has no body.
        return _unclear(key, f"{why}, as no store says it: {NOT_THE_STORES}", writing=writing)
    skew = _skew_sentence(error, now)
    if code in _SKEWED or (code in _UNSAID and skew is not None):
        return Denied(key, f"{why}: {skew or _SKEW_REMEDY}")
    found = _by_code(key, code, why) or _by_status(key, status, why, writing=writing)
    if found is not None:
        return found
    message = error.response.get("Error", {}).get("Message")
    return Misconfigured(key, f"the store refused the request: {why}: {message}")


def _skew_sentence(error: sdk.ClientError, now: datetime | None) -> str | None:
    """By how much this machine's clock is off, if it is by more than a service tolerates."""
    date = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    try:
        theirs = parsedate_to_datetime(date) if date and now is not None else None
    except ValueError:
        return None
    if theirs is None or now is None:
        return None
    seconds = (now - theirs).total_seconds()
    if abs(seconds) < _SKEW_SECONDS_MIN:
        return None
    minutes = round(abs(seconds) / 60)
    off = f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
    side = "ahead of" if seconds > 0 else "behind"
    return f"this machine's clock is {off} {side} the store's: {_SKEW_REMEDY}"


def _by_code(key: str, code: str, why: str) -> StoreError | None:
    for codes, kind, remedy in _MEANINGS:
        if code in codes:
            return kind(key, f"{why}: {remedy}" if remedy else why)
    return None


def _by_status(key: str, status: int, why: str, *, writing: bool) -> StoreError | None:
    found = _by_code(key, str(status), why)
    if found is not None:
        return found
    if status >= _SERVER_ERRORS or status < 300:
        return _unclear(key, why, writing=writing)
    return None


def _of_silence(key: str, error: sdk.BotoCoreError, *, writing: bool) -> StoreError:
    kind = type(error).__name__
    if isinstance(error, sdk.NoCredentialsError):
        return Denied(key, f"{kind}: {DENIED_REMEDY}")
    if isinstance(error, _MALFORMED):
        return Misconfigured(key, f"{kind}: {error}")
    if isinstance(error, sdk.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        return Misconfigured(key, "the certificate of the endpoint is not trusted")
    if isinstance(error, _NOT_SENT):
        return Unavailable(key, f"{why_not_reached(error)}: {_server(error)} cannot be reached")
    if isinstance(error, sdk.ReadTimeoutError):
        return _unclear(
            key, f"no answer within the time limit from {_server(error)}", writing=writing
        )
    return _unclear(key, kind, writing=writing)


def _server(error: sdk.BotoCoreError) -> str:
    """Without the path, and without what may stand before an @."""
    parts = urlsplit(str(error.kwargs.get("endpoint_url") or error.kwargs.get("proxy_url") or ""))
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else "the endpoint"


def _unclear(key: str, why: str, *, writing: bool) -> StoreError:
    return Ambiguous(key, why) if writing else Unavailable(key, why)
