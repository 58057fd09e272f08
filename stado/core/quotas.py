"""Limits that a whole deployment shares: under which of them a job falls, and which places under
one of them may be taken. A limit of N is N numbered places, each an object that one epoch has at a
time.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from stado.core import keys
from stado.core.envelope import group_code
from stado.core.order import Needs, needs_of
from stado.core.records import Record, SlotToken
from stado.core.settings import DeploymentSettings
from stado.core.spec import Spec


class ScopeKind(StrEnum):
    """Of what only so many may run at a time: jobs, or cards that they hold."""

    RUN = "run"
    GROUP = "group"
    USER = "user"
    ALL = "all"
    GROUP_GPUS = "gpus-group"
    USER_GPUS = "gpus-user"
    GPUS = "gpus"

    @property
    def of_cards(self) -> bool:
        return self in (ScopeKind.GROUP_GPUS, ScopeKind.USER_GPUS, ScopeKind.GPUS)


def scope_name(kind: ScopeKind, subject: str) -> str:
    """`subject` "": the whole deployment."""
    return f"{kind}.{subject}" if subject else kind.value


@dataclass(frozen=True, slots=True)
class Scope:
    """A limit, and what it limits. `subject`: the base id of a submission, the group, the
    user; "" for the whole deployment."""

    kind: ScopeKind
    subject: str
    limit: int
    places: int = 1
    """That the job takes under it: all of them, or none."""

    @property
    def name(self) -> str:
        return scope_name(self.kind, self.subject)

    @property
    def never_fits(self) -> bool:
        """Whether the job takes more than there is altogether; a limit of none lets in nobody, and
        is no fault of the job's."""
        return self.places > self.limit > 0


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
    return found + _scopes_of_cards(cards_counted(needs_of(spec)), group, user, settings)


def cards_counted(needs: Needs) -> int:
    """How many cards such a job holds, as limits count them: one that it shares is one."""
    return needs.gpus or int(needs.uses_cards)


def _scopes_of_cards(
    cards: int, group: str | None, user: str | None, settings: DeploymentSettings
) -> list[Scope]:
    if not cards:
        return []
    limits = {
        (ScopeKind.GROUP_GPUS, group): (settings.groups.gpus or {}).get(group or ""),
        (ScopeKind.USER_GPUS, user): settings.quotas.running_gpus_per_user,
        (ScopeKind.GPUS, ""): settings.quotas.running_gpus,
    }
    return [
        Scope(kind, subject, limit, places=cards)
        for (kind, subject), limit in limits.items()
        if subject is not None and limit is not None
    ]


def asks_for_too_much(needs: Needs, settings: DeploymentSettings) -> bool:
    """Whether a limit that is known without the job's record holds fewer cards than it asks for,
    so that it never starts while that stands."""
    by_group = {group_code(group): limit for group, limit in (settings.groups.gpus or {}).items()}
    limits = (
        settings.quotas.running_gpus,
        settings.quotas.running_gpus_per_user,
        None if needs.group is None else by_group.get(needs.group),
    )
    return any(limit is not None and cards_counted(needs) > limit for limit in limits)


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
