"""What a bucket does by itself to the objects in it, by its rules: pure, of what its service says.

Rules that a service may make are understood as far as they can reach objects as stado writes them:
the newest version, without tags and without a time of one's own. What is not understood is told as
something that may reach them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_ARCHIVES = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""Classes of S3 that an object must be brought back from before it can be read."""

_OLD_VERSIONS_ONLY = frozenset(
    {
        "numNewerVersions",
        "daysSinceNoncurrentTime",
        "noncurrentTimeBefore",
        "daysSinceCustomTime",
        "customTimeBefore",
    }
)
"""Conditions of GCS that no newest version without a time of its own meets."""


@dataclass(frozen=True, slots=True)
class BucketRule:
    """A rule by which objects go, or cannot be read any more."""

    name: str
    """As its owner calls it; "" where it has no name."""
    prefix: str
    """Names of objects that it is for begin so."""
    effect: str
    """`deletes objects after 30 days`."""

    def reaches(self, prefix: str) -> bool:
        """Whether it can meet an object of the store that lies below this prefix of the bucket."""
        ours = f"{prefix}/" if prefix else ""
        return self.prefix.startswith(ours) or ours.startswith(self.prefix)


@dataclass(frozen=True, slots=True)
class BucketRules:
    """Of one bucket. Where something was not told, why stands in `untold`."""

    prefix: str
    """Of the store in it, without `/` at either end."""
    rules: tuple[BucketRule, ...] = ()
    keeps_versions: bool | None = None
    """Whether old versions stay; None: not told."""
    drops_versions: bool = False
    """Whether a rule ends old versions of the store's objects."""
    retention_seconds: int = 0
    """For how long no object may be deleted or replaced."""
    untold: tuple[tuple[str, str], ...] = ()
    """(`lifecycle rules` or `versioning`, why nothing is known of it)."""

    @property
    def reaching(self) -> list[BucketRule]:
        return [rule for rule in self.rules if rule.reaches(self.prefix)]


# --- S3 -----------------------------------------------------------------------------------


def s3_rules(answer: Mapping[str, Any]) -> Iterator[BucketRule]:
    """Of an answer to GetBucketLifecycleConfiguration. Those that are off, for old versions, for
    parts of uploads, and for objects with tags are left out."""
    for rule in _enabled(answer):
        effects = list(_s3_effects(rule))
        wanted = rule.get("Filter") or {}
        both = wanted.get("And") or {}
        if effects and not (wanted.get("Tag") or both.get("Tags")):
            for effect in effects:
                yield BucketRule(str(rule.get("ID") or ""), _s3_prefix(rule), effect)


def s3_drops_versions(answer: Mapping[str, Any], prefix: str) -> bool:
    """Whether old versions of all that lies below the prefix go after a while."""
    ours = f"{prefix}/" if prefix else ""
    return any(
        rule.get("NoncurrentVersionExpiration") and ours.startswith(_s3_prefix(rule))
        for rule in _enabled(answer)
    )


def _enabled(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [one for one in answer.get("Rules") or [] if one.get("Status") == "Enabled"]


def _s3_prefix(rule: Mapping[str, Any]) -> str:
    wanted = rule.get("Filter") or {}
    both = wanted.get("And") or {}
    return str(wanted.get("Prefix") or both.get("Prefix") or rule.get("Prefix") or "")


def _s3_effects(rule: Mapping[str, Any]) -> Iterator[str]:
    ends = rule.get("Expiration") or {}
    if ends.get("Date") or ends.get("Days"):
        yield f"deletes objects {_when(ends)}"
    for move in rule.get("Transitions") or []:
        if move.get("StorageClass") in _ARCHIVES:
            yield f"moves objects to {move['StorageClass']} {_when(move)}, where none can be read"


def _when(what: Mapping[str, Any]) -> str:
    date = what.get("Date")
    if date:
        return f"from {getattr(date, 'date', lambda: date)()} on"
    days = int(what.get("Days") or 0)
    return "after 1 day" if days == 1 else f"after {days:,} days"


# --- GCS ----------------------------------------------------------------------------------


def gcs_rules(bucket: Mapping[str, Any]) -> Iterator[BucketRule]:
    """Of a bucket's metadata."""
    for rule in (bucket.get("lifecycle") or {}).get("rule") or []:
        if (rule.get("action") or {}).get("type") != "Delete":
            continue
        condition = rule.get("condition") or {}
        if condition.get("isLive") is False or _OLD_VERSIONS_ONLY & condition.keys():
            continue
        for prefix in condition.get("matchesPrefix") or [""]:
            yield BucketRule("", str(prefix), f"deletes objects {_gcs_when(condition)}")


def gcs_drops_versions(bucket: Mapping[str, Any], prefix: str) -> bool:
    """As of S3."""
    ours = f"{prefix}/" if prefix else ""
    for rule in (bucket.get("lifecycle") or {}).get("rule") or []:
        condition = rule.get("condition") or {}
        ends = (rule.get("action") or {}).get("type") == "Delete"
        old = condition.get("isLive") is False or _OLD_VERSIONS_ONLY & condition.keys()
        begins = condition.get("matchesPrefix") or [""]
        if ends and old and any(ours.startswith(str(one)) for one in begins):
            return True
    return False


def _gcs_when(condition: Mapping[str, Any]) -> str:
    if "age" in condition:
        days = int(condition["age"])
        return "after 1 day" if days == 1 else f"after {days:,} days"
    if "createdBefore" in condition:
        return f"that were written before {condition['createdBefore']}"
    return "of some kinds"


def gcs_retention_seconds(bucket: Mapping[str, Any]) -> int:
    return int((bucket.get("retentionPolicy") or {}).get("retentionPeriod") or 0)
