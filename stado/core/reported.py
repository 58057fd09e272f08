"""What a running job reports, as a supervisor takes it: from files that a program of any language
may have written, whatever is in them.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from stado.core.moves import DETAIL_MAX
from stado.core.records import Progress
from stado.reports import PROGRESS_TEXT_MAX, live_flaw

_UNEXPLAINED = "the job refused to go on and gave no reason"


Mask = Callable[[str], str]
"""Takes out what must not be shown. It gets a text before anything is cut off: half a secret is
none that it would know."""


def refusal_of(data: bytes, mask: Mask = str) -> str:
    """The reason in one line."""
    return _one_line(mask(data.decode("utf-8", "replace")), DETAIL_MAX) or _UNEXPLAINED


def progress_of(data: bytes, mask: Mask = str) -> Progress | None:
    """None for what says nothing: no JSON object, no number. A number outside of 0 to 1 is the
    nearer of the two."""
    try:
        said = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    fraction = said.get("fraction") if isinstance(said, dict) else None
    if isinstance(fraction, bool) or not isinstance(fraction, int | float):
        return None
    text = said.get("text", "")
    return Progress(
        fraction=min(1.0, max(0.0, fraction)),
        text=_one_line(mask(text), PROGRESS_TEXT_MAX) if isinstance(text, str) else "",
    )


def live_of(data: bytes, mask: Mask = str) -> str | None:
    """The URL of the live view; None of nothing but blanks. Raises `ValueError`, with the end of a
    sentence, for what is not taken: a URL with a secret would be of no use without it."""
    try:
        url = data.decode().strip()
    except UnicodeDecodeError:
        raise ValueError("is no text") from None
    if not url:
        return None
    flaw = live_flaw(url)
    if flaw is None and mask(url) != url:
        flaw = "holds the value of a secret"
    if flaw is not None:
        raise ValueError(flaw)
    return url


def _one_line(text: str, length_max: int) -> str:
    """Without what could drive a terminal. What is cut off ends with an ellipsis."""
    shown = "".join(character if character.isprintable() else " " for character in text)
    line = " ".join(shown.split())
    return line if len(line) <= length_max else f"{line[: length_max - 1]}…"
