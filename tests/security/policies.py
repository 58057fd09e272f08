"""The policies of `docs/policies`, read and evaluated as far as they go.

No more is understood than they use; whatever else stands in them is an error."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.architecture.source import REPOSITORY
from tests.security.asking import Ask, Request, gcs_asks, s3_asks

FOLDER = REPOSITORY / "docs" / "policies"
ROLES = ("reader", "submitter", "agent", "coordinator", "operator")
BUCKET = "BUCKET"
PREFIX = "PREFIX"
"""What stands in the files for a bucket's name, and for the prefix of a store in it."""


@dataclass(frozen=True, slots=True)
class Grant:
    """One permission on one pattern of names."""

    permission: str
    pattern: str
    names: re.Pattern[str]
    """Of S3's resources, or of Google's names of resources."""
    condition: str | None = None
    """One that a request must carry."""
    listed: re.Pattern[str] | None = None
    """What a listing must begin with; None: anything."""

    def allows(self, ask: Ask, name: str) -> bool:
        return (
            ask.permission == self.permission
            and self.names.fullmatch(name) is not None
            and self.condition in (None, ask.condition)
            and (self.listed is None or self.listed.fullmatch(ask.listed or "") is not None)
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
        return grant.allows(ask, self.name_of(ask))


# --- S3 -----------------------------------------------------------------------------------


def s3_document(role: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FOLDER / "s3" / f"{role}.json").read_text())
    return document


def s3_policy(role: str) -> Policy:
    return _s3_policy_of(s3_document(role)["Statement"])


def s3_policy_below(role: str, prefix: str) -> Policy:
    """The same for a store below a prefix, rewritten as the page of policies says."""
    text = json.dumps(s3_document(role)).replace(f"{BUCKET}/", f"{BUCKET}/{prefix}/")
    statements = json.loads(text)["Statement"]
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    listing = json.loads(page.partition("```json\n")[2].partition("```")[0])
    listing = json.loads(json.dumps(listing).replace(PREFIX, prefix))
    return _s3_policy_of([listing, *(one for one in statements if one["Sid"] != listing["Sid"])])


def _s3_policy_of(statements: list[dict[str, Any]]) -> Policy:
    grants = (grant for statement in statements for grant in _s3_grants(statement))
    return Policy(grants, f"arn:aws:s3:::{BUCKET}", f"arn:aws:s3:::{BUCKET}/")


def _s3_grants(statement: dict[str, Any]) -> Iterator[Grant]:
    assert statement.keys() <= {"Sid", "Effect", "Action", "Resource", "Condition"}
    assert statement["Effect"] == "Allow"
    condition: dict[str, dict[str, Any]] = statement.get("Condition", {})
    assert condition.keys() <= {"Null", "StringLike"}
    carried, listed = _s3_carried(condition.get("Null")), _s3_listed(condition.get("StringLike"))
    for action in statement["Action"]:
        for resource in statement["Resource"]:
            yield Grant(action, resource, _wildcards(resource), carried, listed)


def _s3_carried(condition: dict[str, Any] | None) -> str | None:
    """The key that a request must carry: `Null` with `false` says that it is there."""
    if condition is None:
        return None
    ((key, absent),) = condition.items()
    assert absent == "false"
    return str(key)


def _s3_listed(condition: dict[str, Any] | None) -> re.Pattern[str] | None:
    if condition is None:
        return None
    ((key, (pattern,)),) = condition.items()
    assert key == "s3:prefix"
    return _wildcards(pattern)


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


CLOUDS: Mapping[str, tuple[Callable[[str], Policy], Callable[[Request], Iterator[Ask]]]] = {
    "s3": (s3_policy, s3_asks),
    "gcs": (gcs_policy, gcs_asks),
}
"""A role's policy, and what a request takes there."""
