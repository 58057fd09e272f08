"""What an answer of S3, or the lack of one, means for an object.

Texts carry the error code and, where it helps, the server's message; never the request, for its
headers are signed with the user's credentials.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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

_NOT_FOUND = {"NoSuchKey", "404", "NotFound"}
_NO_BUCKET = {"NoSuchBucket", "InvalidBucketName"}
_NO_UPLOAD = {"NoSuchUpload"}
_PRECONDITION = {"PreconditionFailed", "412"}
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
_DENIED = {
    "AccessDenied",
    "AllAccessDisabled",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
    "Unauthorized",
    "401",
    "403",
}
_NOT_OFFERED = {"NotImplemented", "501"}
_NO_CREDENTIALS = (
    sdk.NoCredentialsError,
    sdk.PartialCredentialsError,
    sdk.CredentialRetrievalError,
    sdk.TokenRetrievalError,
    sdk.SSOError,
    sdk.ProfileNotFound,
)
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

_MEANINGS: tuple[tuple[set[str], type[StoreError], str], ...] = (
    (_NO_BUCKET, Misconfigured, "create the bucket first, or check its name and region"),
    (_NOT_FOUND, NotFound, ""),
    (_PRECONDITION, Conflict, ""),
    (_COLLISION, Unavailable, "another write of this key was under way"),
    (_THROTTLED, Throttled, ""),
    (_DENIED, Denied, DENIED_REMEDY),
    ({"RequestTimeTooSkewed"}, Denied, "the clock of this host is wrong: synchronise it"),
    ({"RequestTimeout"}, Unavailable, "the request did not arrive whole"),
    ({"304", "NotModified"}, NotModified, ""),
    (_NOT_OFFERED, Misconfigured, "the server does not offer this kind of request"),
)


@contextmanager
def store_errors(key: str, *, writing: bool) -> Iterator[None]:
    """Turns every error of the SDK into a `StoreError`.

    A failed condition is a `Conflict`; a create makes `Exists` of it."""
    try:
        yield
    except sdk.ClientError as error:
        raise _of_answer(key, error, writing=writing) from None
    except sdk.BotoCoreError as error:
        raise _of_silence(key, error, writing=writing) from None
    except (Boto3Error, ResponseParserError, HTTPError) as error:
        # The SDK lets these through: of transfers, of answers that are no XML, of cut streams.
        raise _unclear(key, type(error).__name__, writing=writing) from None


def _of_answer(key: str, error: sdk.ClientError, *, writing: bool) -> StoreError:
    details = error.response.get("Error", {})
    code = str(details.get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    why = f"{code or 'error'} (HTTP {status})"
    # The code first: some servers wrap an error in a 200.
    if code in _NO_UPLOAD:  # a 404, which is not about the object
        return Ambiguous(key, f"{why}: the parts are gone, or put together already")
    found = _by_code(key, code, why) or _by_status(key, status, why, writing=writing)
    if found is not None:
        return found
    return Misconfigured(key, f"the store refused the request: {why}: {details.get('Message')}")


def _by_code(key: str, code: str, why: str) -> StoreError | None:
    for codes, kind, remedy in _MEANINGS:
        if code in codes:
            return kind(key, f"{why}: {remedy}" if remedy else why)
    return None


def _by_status(key: str, status: int, why: str, *, writing: bool) -> StoreError | None:
    found = _by_code(key, str(status), why)
    if found is not None:
        return found
    if status >= 500 or status < 300:
        return _unclear(key, why, writing=writing)
    return None


def _of_silence(key: str, error: sdk.BotoCoreError, *, writing: bool) -> StoreError:
    kind = type(error).__name__
    if isinstance(error, _NO_CREDENTIALS):
        return Denied(key, f"{kind}: {DENIED_REMEDY}")
    if isinstance(error, _MALFORMED):
        return Misconfigured(key, f"{kind}: {error}")
    if isinstance(error, sdk.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        return Misconfigured(key, "the certificate of the endpoint is not trusted")
    if isinstance(error, _NOT_SENT):
        return Unavailable(key, f"{kind}: the endpoint cannot be reached")
    return _unclear(key, kind, writing=writing)


def _unclear(key: str, why: str, *, writing: bool) -> StoreError:
    return Ambiguous(key, why) if writing else Unavailable(key, why)
