"""A tree of files as one digest: by paths, kinds and contents, and by nothing that differs from
machine to machine, such as owners and times.

Folders are there because of what they hold: an empty one is no part of a tree. Paths are bytes
with forward slashes, as Linux has them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

_NAME_BYTES_MAX = 255
_PATH_BYTES_MAX = 3000
"""Linux takes 4,095 from the root on: leaves room for the folder that a tree is unpacked into."""

SHOWN_DIGITS = 12
"""Of a digest or a commit, for people."""


class EntryKind(StrEnum):
    """What a tree can hold."""

    FILE = "file"
    EXECUTABLE = "executable"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One path of a tree."""

    path: bytes
    kind: EntryKind
    sha256: str
    """Of the content; of a link: of the path that it leads to."""


def tree_digest(entries: Iterable[TreeEntry]) -> str:
    """SHA-256 over a line for each path, in the order of the paths' bytes: kind, SHA-256, path,
    and a NUL, which no path can hold."""
    digest = hashlib.sha256()
    for entry in sorted(entries, key=lambda entry: entry.path):
        digest.update(b"%s %s %s\0" % (entry.kind.encode(), entry.sha256.encode(), entry.path))
    return digest.hexdigest()


def path_flaw(path: bytes) -> str | None:
    """Why no tree can hold this path; None when one can."""
    parts = path.split(b"/")
    if b"\0" in path or not all(parts) or {b".", b".."} & set(parts):
        return "it is no path within a tree"
    if len(path) > _PATH_BYTES_MAX or max(map(len, parts)) > _NAME_BYTES_MAX:
        return f"a name has at most {_NAME_BYTES_MAX} bytes, a path {_PATH_BYTES_MAX}"
    return None


def shown(digest: str) -> str:
    """The beginning of a digest or commit, for people."""
    return digest[:SHOWN_DIGITS]
