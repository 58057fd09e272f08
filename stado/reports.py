"""What a command reports to its supervisor while it runs: files in the folder `STADO_REPORT_DIR`,
by names that both sides know.
"""

from __future__ import annotations

REFUSAL_NAME = "refusal.txt"
"""Why the job refuses to go on, in words. It counts only beside the exit code below."""

REFUSED_EXIT_CODE = 86
"""What a command ends with that refuses; without a reason in the file it is a code like any."""

PROGRESS_NAME = "progress.json"
"""`{"fraction": 0.5, "text": "round 3 of 6"}`, replaced as often as the job likes."""

PROGRESS_TEXT_MAX = 200
"""Characters of it that are shown."""

PROGRESS_WRITTEN_MAX = 4_000
"""Characters that are written: what is secret in them is found before the rest is cut off."""

REPORT_BYTES_MAX = 64 * 1024
"""What a supervisor reads of such a file."""

LIVE_NAME = "live"
"""One URL: where the job can be watched while it runs."""

LIVE_URL_MAX = 1_000
"""Characters of it."""


def live_flaw(url: str) -> str | None:
    """What is wrong with the URL of a live view, as the end of a sentence; None when it is one. The
    URL is not repeated: it may hold a password."""
    from urllib.parse import urlsplit

    if len(url) > LIVE_URL_MAX:
        return f"has {len(url):,} characters, and at most {LIVE_URL_MAX:,} are taken"
    if not url.isprintable() or any(character.isspace() for character in url):
        return "holds blanks or control characters"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is no URL"
    if parts.scheme not in ("http", "https") or not host:
        return "is no http:// or https:// URL with a host"
    if "@" in parts.netloc:
        return "has a user or a password in it, which everybody who reads the store would see"
    return None
