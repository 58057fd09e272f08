"""Where a job's output goes besides the place that it always has.

`stado://<path>` is a place in the deployment's own store that nothing else uses; `s3://`, `gs://`
and an absolute folder are stores of their own, opened by the host that runs the job.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

import msgspec

from stado.errors import Refused

URI_LENGTH_MAX = 1000
OutputUri = Annotated[str, msgspec.Meta(max_length=URI_LENGTH_MAX)]
"""Whoever goes by it parses it."""

PLACE_BYTES_MAX = 300
_OWN = "stado://"
_NAME = re.compile(r"[A-Za-z0-9_@+-][A-Za-z0-9._@+-]{0,194}")
_BUCKET = re.compile(
    r"(s3|gs)://[A-Za-z0-9][A-Za-z0-9._-]{2,254}(/[!-\-0-\[\]-~][!-.0-\[\]-~]*)*/?"
)
_FOLDER = re.compile(r"(file://)?/[^\x00-\x1f\x7f]*")
_POSSIBLE = (
    "stado://path in the deployment's own store, s3://bucket/prefix, gs://bucket/prefix, or a "
    "folder (/path) of the host"
)


@dataclass(frozen=True, slots=True)
class Destination:
    """`own`: `place` is a path in the deployment's own store, else the address of a store."""

    own: bool
    place: str


def parse_destination(text: str) -> Destination:
    """Raises `Refused`, naming what is possible."""
    if text.startswith(_OWN):
        return Destination(own=True, place=_checked_place(text))
    if (_BUCKET.fullmatch(text) or _FOLDER.fullmatch(text)) and len(text) <= URI_LENGTH_MAX:
        return Destination(own=False, place=text)
    raise _refused(text)


def _checked_place(text: str) -> str:
    place = text.removeprefix(_OWN).strip("/")
    if len(place) > PLACE_BYTES_MAX or not all(map(_NAME.fullmatch, place.split("/"))):
        raise _refused(text, "its path has names of A-Z a-z 0-9 . _ @ + -, with no dot in front")
    return place


def _refused(text: str, why: str = "") -> Refused:
    """What stands before an @ may be a secret."""
    shown = text.rpartition("@")[2] if "://" in text.rpartition("@")[0] else text
    told = f" ({why})" if why else ""
    return Refused(
        "output_uri_invalid",
        f"output address {shown[:200]!r} cannot be used{told}: it is {_POSSIBLE}",
    )
