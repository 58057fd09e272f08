"""Objects on the web: a GET, within time, and what its answer means."""

from __future__ import annotations

import http.client
import urllib.error
from http import HTTPStatus
from pathlib import Path
from urllib.request import urlopen

from stado.errors import NotFound, Refused, Unavailable
from stado.storage.port import FileDigest
from stado_agent.downloads import Heed, pour, read_all

_SECONDS = 30
"""To connect, and between two packets of an answer."""

_WORTH_ANOTHER_TRY = (
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.TOO_EARLY,
    HTTPStatus.TOO_MANY_REQUESTS,
)


def download_from_web(address: str, target: Path, *, heed: Heed) -> FileDigest:
    """Writes a new file. Raises `NotFound`, `Refused` where trying again does not help,
    `Unavailable`, and `OSError` of the target."""
    try:
        with urlopen(address, timeout=_SECONDS) as answer:  # noqa: S310 - https alone gets here
            chunks = read_all(answer.read, address, OSError, http.client.HTTPException)
            return pour(chunks, target, heed=heed)
    except urllib.error.HTTPError as error:
        raise _meaning(address, error) from None
    except (urllib.error.URLError, http.client.HTTPException) as error:
        raise Unavailable(address, str(error)) from None
    except ValueError as error:  # a name that no host can have
        raise Refused("input_unreadable", f"{address}: {error}") from None


def _meaning(address: str, error: urllib.error.HTTPError) -> Exception:
    text = f"HTTP {error.code} {error.reason}"
    if error.code in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
        return NotFound(address, text)
    if error.code < HTTPStatus.INTERNAL_SERVER_ERROR and error.code not in _WORTH_ANOTHER_TRY:
        return Refused("input_unreadable", f"{address}: {text}")
    return Unavailable(address, text)
