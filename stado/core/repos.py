"""Which repositories and commits may be named: what a host can fetch without anybody there, and
what means the same for ever.
"""

from __future__ import annotations

import re

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_HEX = re.compile(r"[0-9a-f]{4,64}")
_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<place>[^/?#]*)(?P<rest>.*)")
_SSH_SHORT = re.compile(r"([A-Za-z0-9._-]+@)?[A-Za-z0-9][A-Za-z0-9.-]*:(?!:)(?!//).+")
"""`git@host:path`, as git takes it."""

_SCHEMES = ("https", "http", "ssh", "file")
_URL_CHARACTERS_MAX = 2048


def commit_flaw(commit: str) -> str | None:
    """What is wrong with the name of a commit; None when it means one commit for ever."""
    if _COMMIT.fullmatch(commit):
        return None
    if _HEX.fullmatch(commit.lower()) and len(commit) in (40, 64):
        return "write it in small letters"
    if _HEX.fullmatch(commit.lower()):
        return "it is short, and can mean two commits some day"
    return "it is the name of a branch or a tag, which can mean another commit tomorrow"


def url_flaw(url: str) -> str | None:
    """What is wrong with the address of a repository, as the end of a sentence that does not
    repeat it; None when a host may fetch from it."""
    if not url or len(url) > _URL_CHARACTERS_MAX or not url.isprintable():
        return f"an address has 1 to {_URL_CHARACTERS_MAX} printable characters"
    if url.startswith("-"):
        return "it begins with '-', which git would take for an option"
    found = _URL.fullmatch(url)
    if found is not None:
        return _flaw_of_parts(found["scheme"], found["place"], found["rest"])
    if "::" in url.partition("/")[0]:
        return "it names a helper program (before '::'), which no host runs for a job"
    if url.startswith("/") or _SSH_SHORT.fullmatch(url):
        return None
    return (
        "it is a path that is relative to nothing on a host: name an absolute path of the host, "
        "or a URL (https, ssh, file)"
    )


def folder_flaw(folder: str) -> str | None:
    """What is wrong with a folder within a repository; None when it stays there."""
    parts = folder.split("/")
    if folder.startswith("/") or ".." in parts or "\0" in folder or not folder:
        return "it must be a relative path that does not leave the repository"
    return None


def _flaw_of_parts(scheme: str, place: str, rest: str) -> str | None:
    user, at, _ = place.rpartition("@")
    if at and (":" in user or scheme != "ssh"):
        return (
            "it carries a user or a password, which would be stored in plain text: leave them out, "
            "and give the hosts credentials (a credential helper, or ssh keys)"
        )
    if "?" in rest or "#" in rest:
        return "it carries a query, which can hold a token: leave it out"
    if scheme not in _SCHEMES:
        return f"{scheme} is none of {', '.join(_SCHEMES)}"
    if scheme != "file" and not place.rpartition("@")[2][:1].isalnum():
        return "it names no host"
    return None
