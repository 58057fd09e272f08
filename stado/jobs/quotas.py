"""Places under limits that the whole deployment shares: taken before a claim, confirmed once the
claim is ours, given back when the epoch has ended; and found again where somebody lost them.

A place is an object that is there (or, on a store without delete by version, an object that is not
empty). All that is done to one names its version, so that of two who meet over it one learns of it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from stado.core import keys
from stado.core.documents import decode
from stado.core.ids import base_of
from stado.core.quotas import Scope, free_slots, names_epoch, scopes_of, slot_name
from stado.core.records import EndCell, Holder, Record, SlotToken
from stado.core.settings import DeploymentSettings
from stado.errors import Conflict, Exists, NotFound, StadoError, StoreError, Unreadable
from stado.jobs.repository import PARALLEL_REQUESTS, Repository, Stored
from stado.storage.port import LIST_LIMIT_MAX, Entry, Version, walk

log = logging.getLogger(__name__)

_TAKES_MAX = 5
"""Looks at the places of one limit, while others take those that we had found free."""

_PAUSE_SECONDS = 0.2
"""After others have taken what was free: until who was faster has all that it wants."""

_LOOKS_MAX = 200
"""Places that one turn of the sweep reads."""

_ROUNDS_MAX = 5


class ScopeFull(StadoError):
    """There is no room under one of the limits that a job falls under."""

    def __init__(self, scope: Scope) -> None:
        taken = f"all {scope.limit} places of {scope.name} are taken"
        less = f"less than {scope.places} of the {scope.limit} places of {scope.name} are free"
        super().__init__(taken if scope.places == 1 else less)
        self.scope = scope


@dataclass(frozen=True, slots=True)
class Slots:
    """Places that were taken for one attempt to hold an epoch, and not confirmed yet."""

    taken: tuple[Stored[SlotToken], ...] = ()

    @property
    def names(self) -> list[str]:
        return [slot_name(one.value) for one in self.taken]


NO_SLOTS = Slots()


def take_slots(
    repo: Repository, record: Record, holder: Holder, settings: DeploymentSettings | None
) -> Slots:
    """The places that the job takes under each limit that it falls under; nothing, and no request,
    where there is none. Raises `ScopeFull`; none is kept then.

    A listing for each limit and a write for each place. A crash leaves places that are not
    confirmed, which the sweep frees after a lease; so does an answer that got lost."""
    taken: list[Stored[SlotToken]] = []
    try:
        allowed = settings or DeploymentSettings()
        scopes = scopes_of(
            record.spec, base_id=base_of(record.id), user=record.submitter, settings=allowed
        )
        for scope in scopes:
            _take(repo, scope, record, holder, taken)
    except StadoError:
        give_back(repo, Slots(tuple(taken)))
        raise
    return Slots(tuple(taken))


def _take(
    repo: Repository,
    scope: Scope,
    record: Record,
    holder: Holder,
    taken: list[Stored[SlotToken]],
) -> None:
    """All places of one limit, which join `taken`. Who wants several begins with the first that is
    free, and takes the others once it has that: of two who begin at once one loses before it has
    any, and waits a moment for the other to have all of its own. Where each has a part of
    them nevertheless, both give it back."""
    missing = scope.places
    for number in range(_TAKES_MAX):
        if number and scope.places > 1:
            repo.clock.sleep(_PAUSE_SECONDS * repo.entropy.uniform(0.75, 1.25))
        found = slots_in(repo, keys.slots_of(scope.name))
        free = free_slots({slot for slot, entry in found.items() if entry.size}, scope.limit)
        if len(free) < missing:
            break
        wanted = free[:missing] if scope.places > 1 else [_drawn(repo, free)]
        tokens = [_token(repo, scope, slot, record, holder) for slot in wanted]
        before = len(taken)
        _write_all(repo, tokens, found, taken)
        missing -= len(taken) - before
        if not missing:
            return
    raise ScopeFull(scope)


def _drawn(repo: Repository, free: list[int]) -> int:
    return free[int(repo.entropy.uniform(0, len(free) - 0.001))]


def _token(repo: Repository, scope: Scope, slot: int, record: Record, holder: Holder) -> SlotToken:
    return SlotToken(
        scope=scope.name,
        slot=slot,
        job_id=record.id,
        epoch=record.epoch,
        token=holder.token,
        by=holder.consumer,
        at=repo.now(),
    )


def _write_all(
    repo: Repository,
    tokens: list[SlotToken],
    found: Mapping[int, Entry],
    taken: list[Stored[SlotToken]],
) -> None:
    """Those that were ours to take join `taken`, also where the store fails at another one; none
    beyond the first where that was not ours."""

    def write(token: SlotToken) -> Version | StoreError | None:
        try:
            return _write(repo, token, found.get(token.slot))
        except StoreError as error:
            return error

    first, *others = tokens
    version = _write(repo, first, found.get(first.slot))
    if version is None:
        return
    answers = [version, *repo.tasks.map(write, others, limit=PARALLEL_REQUESTS)]
    errors = [one for one in answers if isinstance(one, StoreError)]
    for token, answer in zip(tokens, answers, strict=True):
        if answer is not None and not isinstance(answer, StoreError):
            taken.append(Stored(token, answer))
    if errors:
        raise errors[0]


def has_slots(repo: Repository, record: Record, settings: DeploymentSettings) -> bool:
    """Whether each limit that a queued job falls under has a place for it now. A listing each."""
    scopes = scopes_of(
        record.spec, base_id=base_of(record.id), user=record.submitter, settings=settings
    )
    return all(_has_places(repo, scope) for scope in scopes)


def _has_places(repo: Repository, scope: Scope) -> bool:
    held = [number for number, one in slots_in(repo, keys.slots_of(scope.name)).items() if one.size]
    return len(free_slots(held, scope.limit)) >= scope.places


def slots_in(repo: Repository, beginning: str) -> dict[int, Entry]:
    """The objects of one limit's places, by number; an empty one is free. A listing for each
    thousand."""
    found = {}
    for entry in walk(repo.store, beginning, page_size=LIST_LIMIT_MAX):
        parsed = keys.parse_slot(entry.key)
        if parsed is not None:
            found[parsed[1]] = entry
    return found


def _write(repo: Repository, token: SlotToken, free: Entry | None) -> Version | None:
    """None when somebody else was faster."""
    try:
        if free is None:
            return repo.store.create(token.own_key(), token.encode())
        return repo.store.replace(token.own_key(), token.encode(), free.version)
    except (Exists, Conflict):
        return None


def confirm(repo: Repository, slots: Slots) -> bool:
    """Once the claim is ours. False when one of the places was freed meanwhile: then the epoch may
    not be run. A write each; called again after a lost answer it says the same."""
    answers = repo.tasks.map(
        lambda one: _confirm_one(repo, one), list(slots.taken), limit=PARALLEL_REQUESTS
    )
    return all(answers)


def _confirm_one(repo: Repository, one: Stored[SlotToken]) -> bool:
    key, confirmed = one.value.own_key(), one.value.evolve(confirmed=True)
    try:
        repo.store.replace(key, confirmed.encode(), one.version)
    except Conflict:
        found = find_token(repo, key)
        return found is not None and found.value == confirmed
    return True


def give_back(repo: Repository, slots: Slots) -> None:
    """Of a claim that came to nothing. What the store does not take is left to the sweep."""
    repo.tasks.map(
        lambda one: _give_one_back(repo, one), list(slots.taken), limit=PARALLEL_REQUESTS
    )


def _give_one_back(repo: Repository, one: Stored[SlotToken]) -> None:
    try:
        _free(repo, one.value.own_key(), one.version)
    except StoreError as error:
        log.warning("event=slot_left key=%s error=%r", one.value.own_key(), str(error))


def release_slots(repo: Repository, cell: EndCell) -> None:
    """The places of an epoch that has ended, by whoever settles it, as often as anybody does. A
    read and a delete each."""
    holder = cell.record.holder
    names = [] if holder is None else holder.slots
    repo.tasks.map(
        lambda name: _release(repo, keys.slot_named(name), cell.record),
        list(names),
        limit=PARALLEL_REQUESTS,
    )


def _release(repo: Repository, key: str, record: Record) -> None:
    for _ in range(_ROUNDS_MAX):
        try:
            found = find_token(repo, key)
        except Unreadable as error:
            repo.tell_unreadable(error)
            return
        if found is None or not names_epoch(found.value, record):
            return
        if _free(repo, key, found.version):
            return


def find_token(repo: Repository, key: str) -> Stored[SlotToken] | None:
    """None of a place that is free. Raises `Unreadable`."""
    try:
        blob = repo.store.get(key)
    except NotFound:
        return None
    return Stored(decode(SlotToken, key, blob.data), blob.version) if blob.data else None


def _free(repo: Repository, key: str, version: Version) -> bool:
    """False when it has changed. A store whose deletes compare nothing could delete the place of
    whoever has it next: there it becomes empty, which is a replace."""
    try:
        if repo.deployment.proof.conditional_delete:
            repo.store.delete(key, version)
        else:
            repo.store.replace(key, b"", version)
    except Conflict:
        return False
    return True


class SlotSweep:
    """Frees places that nobody has any more: of claimers that died before their claim, of epochs
    that have ended, of jobs that were deleted. One object a process; it goes on where it
    stopped."""

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._after = ""

    def turn(self) -> list[str]:
        """The names of what was freed. A listing a thousand places, and up to three reads for each
        of 200 that are older than a lease."""
        freed, looked = [], 0
        begin, self._after = self._after, ""
        for entry in walk(self._repo.store, keys.QUOTA, start_after=begin):
            if not self._is_old(entry):
                continue
            if looked == _LOOKS_MAX:
                break
            looked += 1
            self._after = entry.key
            if self._look(entry.key):
                freed.append(entry.key)
        else:
            self._after = ""
        return freed

    def _is_old(self, entry: Entry) -> bool:
        """Enough for a claim; who is slower learns of it when the place is to be confirmed."""
        lease = timedelta(seconds=self._repo.deployment.lease_seconds)
        known = keys.parse_slot(entry.key) is not None and entry.size > 0
        return known and self._repo.now() - entry.modified_at > lease

    def _look(self, key: str) -> bool:
        try:
            found = find_token(self._repo, key)
            if found is None or not self._is_lost(found.value):
                return False
            return _free(self._repo, key, found.version)
        except Unreadable as error:
            self._repo.tell_unreadable(error)
            return False

    def _is_lost(self, token: SlotToken) -> bool:
        """A place that was not confirmed is lost as long as its epoch was not claimed with it: who
        claims later finds it gone. One that was is lost once its epoch has ended, of which a
        deleted job shows nothing else."""
        claim = self._repo.find_claim(token.job_id, token.epoch)
        if claim is None:
            return not token.confirmed or not self._repo.cells(token.job_id).claims
        holder = claim.record.holder
        if holder is None or holder.token != token.token:
            return True
        if slot_name(token) not in holder.slots:
            return True
        return self._repo.find_end(token.job_id, token.epoch) is not None
