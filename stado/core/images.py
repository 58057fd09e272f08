"""Which container images may be named: what an engine can look for, and whether it will be the
same one tomorrow.

The grammar is that of references in the OCI distribution specification: `[host[:port]/]path`, in
small letters, then `:tag` or `@digest` or both.
"""

from __future__ import annotations

import re

IMAGE_CHARACTERS_MAX = 512

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]{{1,5}})?"
_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_TAG = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"
_DIGEST = r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}"

IMAGE_PATTERN = re.compile(
    rf"(?=.{{1,{IMAGE_CHARACTERS_MAX}}}\Z)"
    rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*(?::{_TAG})?(?P<digest>@(?:{_DIGEST}))?"
)


def image_flaw(image: str) -> str | None:
    """What is wrong with the name of an image, as the end of a sentence; None when an engine may
    be asked for it."""
    if not image or len(image) > IMAGE_CHARACTERS_MAX:
        return f"a name has 1 to {IMAGE_CHARACTERS_MAX} characters"
    if IMAGE_PATTERN.fullmatch(image):
        return None
    if image.startswith("-"):
        return "it begins with '-', as an option does"
    if not image.isprintable() or " " in image:
        return "it holds a blank or a control character"
    if "://" in image:
        return "it is written without https:// or the like"
    if image != image.lower() and IMAGE_PATTERN.fullmatch(image.lower()):
        return "a path is written in small letters"
    return "it is none that an engine could look for"


def has_digest(image: str) -> bool:
    """Whether it means the same image for ever."""
    found = IMAGE_PATTERN.fullmatch(image)
    return found is not None and found["digest"] is not None
