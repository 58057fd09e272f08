"""Checks of what the credentials that are used here may do, by role."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stado.cli.findings import Finding

if TYPE_CHECKING:
    from stado.jobs.repository import Repository

_NAMED_MAX = 8
_CLOUDS = {"s3": "s3", "gs": "gcs"}


def role_findings(repo: Repository, role: str) -> Iterator[Finding]:
    """What is denied, with the policy that grants it; what could not be tried."""
    from stado.cli.render import plural
    from stado.jobs.role_probes import Act, try_role

    scheme, is_bucket, _ = repo.store.address.partition("://")
    found = list(try_role(repo, role))
    denied = [one for one in found if one.error is not None]
    grants = "rights of the account on the directory"
    if is_bucket:
        grants = f"docs/policies/{_CLOUDS.get(scheme, scheme)}/{role}.json grants it"
    for one in denied[:_NAMED_MAX]:
        text = f"not allowed to {one.probe.act.value} {one.probe.what}: {one.error}"
        yield Finding("role", f"{one.probe.act.value}_denied", text, grants)
    if len(denied) > _NAMED_MAX:
        more = plural(len(denied) - _NAMED_MAX, "other request")
        yield Finding("role", "more_denied", f"{more} of the role {role} denied, too", grants)
    for one in found:
        if not one.tried:
            text = f"whether {one.probe.what} may be created: no job is there to try it on"
            yield Finding("role", "not_tried", text, unknown=True)
    if not is_bucket and any(one.probe.act is Act.WRITE for one in found):
        text = "whether this account may write into the folders of the directory was not tried"
        yield Finding("role", "not_tried", text, unknown=True)
    if not denied:
        tried = sum(one.tried for one in found)
        text = f"{plural(tried, 'request')} of the role {role} tried, none denied"
        yield Finding("role", "role_allowed", text)
