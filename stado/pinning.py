"""What jobs take along, from a submitter's words to exact content.

Somebody names a folder, an artifact, a checkpoint; a spec names bytes by their digest, and never
means something else later. The command line, the Python API and whatever else submits pin here,
once, before anything is queued.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stado.core.spec import Request
    from stado.jobs.repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpinned:
    """What is named by words that can mean something else tomorrow. Empty: nothing is."""


PINNED_AS: Mapping[str, str] = {}
"""The field of the spec that each field of `Unpinned` ends up in."""


def pin(repo: Repository, request: Request, unpinned: Unpinned) -> Request:  # noqa: ARG001
    """The request with everything pinned to the content that it has now. What the jobs take along
    is in the store when this returns, and nothing is queued yet: an interruption leaves objects
    that nobody names. Raises `Refused`, naming the words and the remedy."""
    return request
