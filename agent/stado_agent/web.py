"""Objects on the web: a GET, within time, and what its answer means."""

from __future__ import annotations

import http.client
import urllib.error
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from stado.errors import NotFound, Refused, Unavailable
from stado.ports import Clock
from stado.storage.port import FileDigest
from stado_agent.downloads import Heed, in_time, pour, read_all

_SECONDS = 30
"""To connect, and between two packets of an answer."""

_WORTH_ANOTHER_TRY = (
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.TOO_EARLY,
    HTTPStatus.TOO_MANY_REQUESTS,
)


def download_from_web(address: str, target: Path, *, heed: Heed, clock: Clock) -> FileDigest:
    """Writes a new file. Raises `NotFound`, `Refused` where trying again does not help,
    `Unavailable`, and `OSError` of the target."""
    try:
        with urlopen(address, timeout=_SECONDS) as answer:  # noqa: S310 - https alone gets here
            chunks = read_all(answer.read1, address, OSError, http.client.HTTPException)
            digest = pour(in_time(chunks, address, clock), target, heed=heed)
            _check_whole(address, answer, digest, target)
            return digest
    except urllib.error.HTTPError as error:
        raise _meaning(address, error) from None
    except (urllib.error.URLError, http.client.HTTPException) as error:
        raise Unavailable(address, str(error)) from None
    except ValueError as error:  # a name that no host can have
        raise Refused("input_unreadable", f"{address}: {error}") from None


def _check_whole(address: str, answer: Any, digest: FileDigest, target: Path) -> None:
    """A connection that breaks ends an answer without a word."""
    stated = answer.headers["Content-Length"]
    if stated is not None and stated.isdecimal() and digest.size < int(stated):
        target.unlink(missing_ok=True)
        raise Unavailable(address, f"the answer broke off after {digest.size:,} bytes")


def _meaning(address: str, error: urllib.error.HTTPError) -> Exception:
    text = f"HTTP {error.code} {error.reason}"
    if error.code in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
        return NotFound(address, text)
    if error.code < HTTPStatus.INTERNAL_SERVER_ERROR and error.code not in _WORTH_ANOTHER_TRY:
        return Refused("input_unreadable", f"{address}: {text}")
    return Unavailable(address, text)
