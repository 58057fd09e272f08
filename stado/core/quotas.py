"""Limits that a whole deployment shares: under which of them a job falls, and which places under
one of them may be taken. A limit of N is N numbered places, each an object that one epoch has at a
time.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from stado.core import keys
from stado.core.records import Record, SlotToken
from stado.core.settings import DeploymentSettings
from stado.core.spec import Spec


class ScopeKind(StrEnum):
    """Of what only so many may run at a time."""

    RUN = "run"
    GROUP = "group"
    USER = "user"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Scope:
    """A limit, and what it limits. `subject`: the base id of a submission, the group, the
    user; "" for the whole deployment."""

    kind: ScopeKind
    subject: str
    limit: int

    @property
    def name(self) -> str:
        return self.kind.value if self.kind is ScopeKind.ALL else f"{self.kind}.{self.subject}"


def scopes_of(
    spec: Spec, *, base_id: str | None, user: str | None, settings: DeploymentSettings
) -> list[Scope]:
    """Of a job of this submission of this user (None: not known). The narrowest first: who waits
    for one of them is in nobody's way in a wider one."""
    found: list[Scope] = []
    at_a_time = None if spec.array is None else spec.array.at_a_time
    if base_id is not None and at_a_time is not None:
        found.append(Scope(ScopeKind.RUN, base_id, at_a_time))
    group = spec.group
    limit = None if group is None else (settings.groups.limits or {}).get(group)
    if group is not None and limit is not None:
        found.append(Scope(ScopeKind.GROUP, group, limit))
    if user is not None and settings.quotas.running_jobs_per_user is not None:
        found.append(Scope(ScopeKind.USER, user, settings.quotas.running_jobs_per_user))
    if settings.quotas.running_jobs is not None:
        found.append(Scope(ScopeKind.ALL, "", settings.quotas.running_jobs))
    return found


def free_slots(taken: Collection[int], limit: int) -> list[int]:
    """The places that may be taken, by the numbers of those that are. Where a limit was lowered,
    places beyond it may still be held: then so many fewer of the others may be taken, and always
    the same ones, so that of any number of takers none goes beyond the limit."""
    beyond = len([number for number in taken if number >= limit])
    usable = limit
    while usable > 0 and usable + beyond > limit:
        usable -= 1
        beyond += usable in taken
    return [number for number in range(usable) if number not in taken]


def names_epoch(token: SlotToken, record: Record) -> bool:
    """Whether the place is that of this record's holder."""
    holder = record.holder
    same = holder is not None and holder.token == token.token
    return same and (token.job_id, token.epoch) == (record.id, record.epoch)


def slot_name(token: SlotToken) -> str:
    return token.own_key().removeprefix(keys.QUOTA)
