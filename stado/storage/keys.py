"""The rule that every key obeys, so that one key works on every store.

It is what the pickiest stores need: a directory cannot hold an empty or a `..` component, some
servers mangle backslashes, and a directory keeps its own files under names that begin with a dot.
"""

from __future__ import annotations

import re

from stado.errors import Misconfigured

COMPONENT_BYTES_MAX = 200
KEY_BYTES_MAX = 800
"""S3 and GCS stop at 1024; the rest is room for the user's own prefix."""

LIST_LIMIT_MIN = 1

_COMPONENT = re.compile(r"[!-\-0-\[\]-~][!-.0-\[\]-~]*")
"""Visible ASCII but `/` and `\\`, and no dot in front."""


def check_key(key: str) -> None:
    """Raises `Misconfigured` for a key that some store could not hold."""
    if len(key) > KEY_BYTES_MAX:
        raise Misconfigured(key[:80], f"a key has at most {KEY_BYTES_MAX} bytes")
    for component in key.split("/"):
        _check_component(key, component)


def check_prefix(prefix: str, limit: int, limit_max: int) -> None:
    """Raises `Misconfigured` for a listing that some store could not answer."""
    folder, slash, beginning = prefix.rpartition("/")
    if slash:
        check_key(folder)
    if beginning:
        _check_component(prefix, beginning)
    if not LIST_LIMIT_MIN <= limit <= limit_max:
        raise Misconfigured(prefix, f"a page has {LIST_LIMIT_MIN} to {limit_max} keys, not {limit}")


def check_range(key: str, start: int, length: int) -> None:
    """Raises `Misconfigured` for a part that some store could not be asked for."""
    check_key(key)
    if start < 0 or length < 1:
        raise Misconfigured(key, f"{length} bytes from {start} on are no part of an object")


def is_listed(key: str, prefix: str) -> bool:
    """Whether `key`, which a raw listing of `prefix` gave, is an object of that folder by this
    rule. Others can put anything into a bucket (copies, markers of folders, whole folders); it
    was not put there through this port, and a listing passes over it."""
    name = key[prefix.rfind("/") + 1 :]
    return (
        len(key) <= KEY_BYTES_MAX
        and len(name) <= COMPONENT_BYTES_MAX
        and _COMPONENT.fullmatch(name) is not None
    )


def _check_component(key: str, component: str) -> None:
    if len(component) > COMPONENT_BYTES_MAX:
        raise Misconfigured(key[:80], f"a part of a key has at most {COMPONENT_BYTES_MAX} bytes")
    if not _COMPONENT.fullmatch(component):
        raise Misconfigured(
            key,
            f"{component!r} cannot be part of a key: use visible ASCII without `/` and `\\`, "
            "not empty and with no dot in front",
        )
