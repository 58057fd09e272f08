"""Labels of a host: what its agent was started with, and what operators say over that."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from stado.core.envelope import HOST_LABELS_MAX, check_label

_TAKEN_BACK = re.compile(r"([a-z0-9][a-z0-9._/-]{0,62})-")


def parse_changes(texts: Iterable[str]) -> dict[str, str | None]:
    """`KEY=VALUE`, and `KEY-` for one that is taken back: None. Raises `Refused`."""
    changes: dict[str, str | None] = {}
    for text in texts:
        back = _TAKEN_BACK.fullmatch(text)
        if back is not None:
            changes[back[1]] = None
            continue
        check_label(text)
        key, _, value = text.partition("=")
        changes[key] = value
    return changes


def label_texts(labels: Mapping[str, str]) -> list[str]:
    """`KEY=VALUE` each."""
    return [f"{key}={value}" for key, value in labels.items()]


def labels_over(own: Iterable[str], said: Mapping[str, str]) -> list[str]:
    """All of a host, in order: its own of a key count where operators say nothing of that key."""
    kept = [label for label in own if label.partition("=")[0] not in said]
    return sorted([*label_texts(said), *kept[: HOST_LABELS_MAX - len(said)]])
