"""The claim: of all who want to run an epoch, one may.

`running/<id>.json`, created if absent, is the gate through which one agent passes and what a
reaper sees; the claim cell makes it final. The command starts only after a beat of this epoch was
accepted (`life`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from stado.core import keys, moves
from stado.core.budgets import Hold
from stado.core.envelope import required_facts
from stado.core.order import ReadyEntry, entry_name
from stado.core.records import ClaimCell, Ending, Holder, Record
from stado.core.settings import DeploymentSettings
from stado.core.spec import Spec
from stado.core.states import Reason, State, Verdict
from stado.errors import Conflict, StoreError
from stado.jobs.budgets import check_budgets
from stado.jobs.endings import (
    as_queued_last,
    delete_queued,
    finish_intent,
    give_verdict,
    remove_superseded,
    settle,
)
from stado.jobs.expiry import expire_if_over
from stado.jobs.notices import announce_running
from stado.jobs.queue_index import mend_entry
from stado.jobs.quotas import NO_SLOTS, Slots, confirm, give_back, take_slots
from stado.jobs.repository import Repository, Stored
from stado.jobs.windows import check_windows
from stado.storage.port import Version

log = logging.getLogger(__name__)

_GATE_ROUNDS_MAX = 3


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who claims: an agent of this incarnation on this host."""

    consumer: str
    incarnation: str
    host: str


@dataclass(frozen=True, slots=True)
class Place:
    """What of its host a job is to get, and what that host is."""

    cards: tuple[str, ...] = ()
    """UUIDs."""
    share: float = 1.0
    """Of the memory of each."""
    hardware: str | None = None
    facts: frozenset[str] | None = None
    """None: the entry said all that is asked for."""
    price_milli: int = 0
    price_micro: int | None = None
    """Millionths of a dollar that the host costs an hour; None: nobody states a price."""
    part_micro: int | None = None
    """Millionths of the host that the job gets, for its price."""

    def is_for(self, spec: Spec) -> bool:
        """Whether the host is one that the job asks for: an entry's name has not room for all."""
        if self.facts is None:
            return True
        cap = spec.max_cost_per_hour
        affordable = cap is None or self.price_milli <= math.ceil(cap * 1000)
        return affordable and set(required_facts(spec)) <= self.facts


ANY_PLACE = Place()


@dataclass(frozen=True, slots=True)
class Claimed:
    """An epoch that we hold."""

    record: Record
    running_version: Version
    left_in_queue: bool = False
    """Whether the queue record may still stand, with a priority that `record` has not."""

    @property
    def token(self) -> str:
        assert self.record.holder is not None  # `moves.claimed` sets it
        return self.record.holder.token


def claim(
    repo: Repository,
    entry: ReadyEntry,
    claimant: Claimant,
    settings: DeploymentSettings | None = None,
    place: Place = ANY_PLACE,
    holds: Sequence[Hold] = (),
) -> Claimed | None:
    """Claims the epoch that an index entry names; None when it is not to be had, or not due. Of a
    job that is claimed first `settings` say what it may take from then on. Raises `ScopeFull` where
    they limit how many such jobs run at a time, and so many do, `WindowClosed` where they say when
    such jobs may start, and that is not now, `BudgetGone` where `holds` (budgets that are spent)
    has one that the job falls under.

    Requests on the normal path: 1 read, 2 writes, 2 deletes; a listing more for each
    limit that the job falls under, and 2 writes for each place that it takes there. A crash after
    the gate leaves a running record that a reaper finds; after the cell also a queue record, which
    whoever meets it removes."""
    queued = _queued_record(repo, entry)
    if queued is None or expire_if_over(repo, queued.value, by=claimant.consumer):
        return None
    if not queued.value.is_due(repo.now_ms()) or not place.is_for(queued.value.spec):
        return None
    check_windows(repo, queued.value, settings)
    check_budgets(repo, queued.value, holds)
    holder = holder_of(repo, claimant, place=place)
    slots = take_slots(repo, queued.value, holder, settings)
    holder = holder.evolve(slots=slots.names)
    record = moves.claimed(queued.value, holder, settings)
    claimed = _take(repo, queued, record, holder, slots)
    if claimed is None:
        give_back(repo, slots)
    return claimed


def adopt(
    repo: Repository, record: Record, holder: Holder, slots: Slots = NO_SLOTS
) -> Claimed | None:
    """Claims a queued epoch for a process that already lives: the one whose last epoch was
    declared lost. None when somebody else is to run it. Tried again with the same holder, it
    knows what an attempt without an answer has done. `slots`: those that the holder names; given
    back where the epoch is not to be had."""
    queued = repo.find_record(State.QUEUED, record.id)
    claimed = None
    if queued is not None and queued.value.epoch == record.epoch:
        claimed = _take(repo, queued, moves.claimed(queued.value, holder), holder, slots)
    if claimed is None:
        give_back(repo, slots)
    return claimed


def _take(
    repo: Repository, queued: Stored[Record], record: Record, holder: Holder, slots: Slots
) -> Claimed | None:
    version = _pass_gate(repo, record)
    if version is None or not _make_final(repo, record, holder):
        return None
    if not confirm(repo, slots):
        _give_epoch_back(repo, record, holder)
        return None
    return _take_from_queue(repo, queued, Claimed(record, version))


def holder_of(
    repo: Repository,
    claimant: Claimant,
    *,
    place: Place = ANY_PLACE,
    adopts: Holder | None = None,
) -> Holder:
    """A new attempt to hold an epoch, with a token that no other has. `adopts`: who held the one
    before, whose command lives on with what it was given."""
    holder = Holder(
        token=repo.entropy.token(),
        consumer=claimant.consumer,
        incarnation=claimant.incarnation,
        host=claimant.host,
        claimed_at=repo.now(),
        lease_seconds=repo.deployment.lease_seconds,
        gpus=len(place.cards),
        gpu_share=place.share,
        cards=list(place.cards),
        hardware=place.hardware,
        price_micro=place.price_micro,
        part_micro=place.part_micro,
    )
    if adopts is None:
        return holder
    return holder.evolve(
        adopted=True,
        gpus=adopts.gpus,
        gpu_share=adopts.gpu_share,
        cards=adopts.cards,
        hardware=adopts.hardware,
        price_micro=adopts.price_micro,
        part_micro=adopts.part_micro,
    )


def _queued_record(repo: Repository, entry: ReadyEntry) -> Stored[Record] | None:
    """The queue record that an entry stands for, if the entry is the one that it computes to."""
    queued = repo.find_record(State.QUEUED, entry.job_id)
    if queued is None:
        return None
    if entry_name(queued.value) != entry.name:
        mend_entry(repo, queued.value, entry)
        return None
    return queued


def _pass_gate(repo: Repository, record: Record) -> Version | None:
    """Creates `running/<id>.json`; None when somebody else is in it. One with our own token is
    ours, whatever the store made of its answer."""
    key = keys.record(State.RUNNING, record.id)
    for _ in range(_GATE_ROUNDS_MAX):
        version = repo.create(key, record)
        if version is not None:
            return version
        running = repo.find_record(State.RUNNING, record.id)
        if running is None:
            continue
        if running.value.epoch == record.epoch and running.value.holder == record.holder:
            return running.version
        if running.value.epoch >= record.epoch:
            return None
        if settle(repo, record.id, running.value.epoch) is None:
            return None
    return None


def _make_final(repo: Repository, record: Record, holder: Holder) -> bool:
    """Creates the claim cell. When it is taken, and not by us, the epoch is over, or will be, or
    is another's."""
    cell = ClaimCell(token=holder.token, by=holder.consumer, at=holder.claimed_at, record=record)
    if repo.create(keys.claim_cell(record.id, record.epoch), cell) is not None:
        return True
    if settle(repo, record.id, record.epoch) is not None:
        return False
    taken = repo.claim_cell(record.id, record.epoch)
    if taken.token == holder.token:
        return True
    if taken.intent is not None:
        finish_intent(repo, taken)
    return False


def _give_epoch_back(repo: Repository, record: Record, holder: Holder) -> None:
    """Untouched: we were so slow that one of its places under a limit was freed for others."""
    detail = "its place under a limit was given to others before it had begun"
    ending = Ending(
        verdict=Verdict.LOST,
        reason=Reason.HOST_UNABLE,
        detail=detail,
        ended_at=repo.now(),
        by=holder.consumer,
    )
    give_verdict(repo, as_queued_last(repo, record), ending)
    settle(repo, record.id, record.epoch)


def _take_from_queue(repo: Repository, queued: Stored[Record], claimed: Claimed) -> Claimed:
    """Removes the queue record, and the one at rest that the job was taken out of. The epoch is
    ours whether or not that succeeds: what stays is removed by settle, or by repair."""
    record = claimed.record
    try:
        announce_running(repo, record)
        remove_superseded(repo, record)
        if not delete_queued(repo, queued):
            return _take_over_changes(repo, claimed)
    except StoreError as error:
        log.warning("event=queue_record_left job=%s error=%r", record.id, str(error))
        return replace(claimed, left_in_queue=True)
    return claimed


def _take_over_changes(repo: Repository, claimed: Claimed) -> Claimed:
    """The queue record changed between our look and our claim (a new priority): keep what it says,
    in the running record too, and remove it. Until that is written the queue record stands, for
    whoever ends the epoch should we die here."""
    for _ in repo.rounds():
        queued = repo.find_record(State.QUEUED, claimed.record.id)
        if queued is None or queued.value.epoch != claimed.record.epoch:
            return claimed
        changed = moves.as_queued(claimed.record, queued.value)
        if changed != claimed.record:
            claimed = _rewritten(repo, claimed, changed)
        if delete_queued(repo, queued):
            return claimed
    return replace(claimed, left_in_queue=True)


def _rewritten(repo: Repository, claimed: Claimed, record: Record) -> Claimed:
    """The version is none any more where a reader has put our running record back, or a reaper has
    settled it away: settling our end copes with that."""
    try:
        version = repo.store.replace(record.own_key(), record.encode(), claimed.running_version)
    except Conflict:
        version = claimed.running_version
    return Claimed(record, version)
