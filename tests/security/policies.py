"""The policies of `docs/policies`, read and evaluated as far as they go.

No more is understood than they use; whatever else stands in them is an error."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.architecture.source import REPOSITORY
from tests.security.asking import Ask

FOLDER = REPOSITORY / "docs" / "policies"
ROLES = ("reader", "submitter", "agent", "coordinator", "operator")
BUCKET = "BUCKET"
"""What stands in the files for a bucket's name."""


@dataclass(frozen=True, slots=True)
class Grant:
    """One permission on one pattern of names."""

    permission: str
    pattern: str
    names: re.Pattern[str]
    """Of S3's resources, or of Google's names of resources."""
    condition: str | None = None
    """One that a request must carry."""

    def allows(self, permission: str, name: str, condition: str | None) -> bool:
        return (
            permission == self.permission
            and self.names.fullmatch(name) is not None
            and self.condition in (None, condition)
        )


class Policy:
    """What a role may do: the sum of its grants."""

    def __init__(self, grants: Iterable[Grant], bucket_name: str, object_name: str) -> None:
        self.grants = list(grants)
        self._bucket_name = bucket_name
        self._object_name = object_name

    def name_of(self, ask: Ask) -> str:
        return self._bucket_name if ask.key is None else self._object_name + ask.key

    def allows(self, ask: Ask) -> bool:
        return any(self._used(grant, ask) for grant in self.grants)

    def unused(self, asks: Iterable[Ask]) -> list[Grant]:
        """The grants that none of these takes."""
        asked = list(asks)
        return [grant for grant in self.grants if not any(self._used(grant, ask) for ask in asked)]

    def _used(self, grant: Grant, ask: Ask) -> bool:
        return grant.allows(ask.permission, self.name_of(ask), ask.condition)


# --- S3 -----------------------------------------------------------------------------------


def s3_document(role: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FOLDER / "s3" / f"{role}.json").read_text())
    return document


def s3_policy(role: str) -> Policy:
    statements = s3_document(role)["Statement"]
    grants = (grant for statement in statements for grant in _s3_grants(statement))
    return Policy(grants, f"arn:aws:s3:::{BUCKET}", f"arn:aws:s3:::{BUCKET}/")


def _s3_grants(statement: dict[str, Any]) -> Iterator[Grant]:
    known = {"Sid", "Effect", "Action", "Resource", "Condition"}
    assert statement.keys() <= known
    assert statement["Effect"] == "Allow"
    condition = _s3_condition(statement.get("Condition"))
    for action in statement["Action"]:
        for resource in statement["Resource"]:
            yield Grant(action, resource, _wildcards(resource), condition)


def _s3_condition(condition: dict[str, Any] | None) -> str | None:
    """The key that a request must carry: `Null` with `false` says that it is there."""
    if condition is None:
        return None
    ((key, absent),) = condition["Null"].items()
    assert condition.keys() == {"Null"}
    assert absent == "false"
    return str(key)


def _wildcards(pattern: str) -> re.Pattern[str]:
    """`*` is any text, slashes included."""
    assert "?" not in pattern
    return re.compile(".*".join(re.escape(part) for part in pattern.split("*")), re.DOTALL)


# --- Google Cloud Storage -----------------------------------------------------------------

_NAME = f"projects/_/buckets/{BUCKET}"
_TERM = re.compile(
    r'resource\.name == "(?P<equal>[^"]+)"'
    r'|resource\.name\.startsWith\("(?P<start>[^"]+)"\)'
    r'|resource\.name\.extract\("(?P<before>[^"{]+)\{job\}(?P<after>[^"]+)"\) != ""'
)


def gcs_roles() -> dict[str, list[str]]:
    """Custom roles: the permissions of each."""
    roles: dict[str, list[str]] = json.loads((FOLDER / "gcs" / "roles.json").read_text())
    return roles


def gcs_bindings(role: str) -> list[dict[str, Any]]:
    document = json.loads((FOLDER / "gcs" / f"{role}.json").read_text())
    bindings: list[dict[str, Any]] = document["bindings"]
    return bindings


def gcs_terms(binding: dict[str, Any]) -> list[str]:
    """What a condition says of names, any of which is enough."""
    expression: str = binding["condition"]["expression"]
    return expression.split(" || ")


def gcs_policy(role: str) -> Policy:
    grants = (grant for binding in gcs_bindings(role) for grant in _gcs_grants(binding))
    return Policy(grants, _NAME, f"{_NAME}/objects/")


def _gcs_grants(binding: dict[str, Any]) -> Iterator[Grant]:
    assert binding.keys() <= {"role", "members", "condition"}
    permissions = gcs_roles()[binding["role"].rpartition("/")[2]]
    terms = gcs_terms(binding) if "condition" in binding else [""]
    for permission in permissions:
        for term in terms:
            yield Grant(permission, term or "everything", _term_names(term))


def _term_names(term: str) -> re.Pattern[str]:
    if not term:
        return re.compile(".*", re.DOTALL)
    found = _TERM.fullmatch(term)
    assert found is not None, f"not understood: {term}"
    if found["equal"]:
        return re.compile(re.escape(found["equal"]))
    if found["start"]:
        return re.compile(re.escape(found["start"]) + ".*", re.DOTALL)
    # What is extracted is the text between: it must not be empty.
    before, after = re.escape(found["before"]), re.escape(found["after"])
    return re.compile(f".*?{before}.+?{after}.*", re.DOTALL)
