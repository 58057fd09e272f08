"""How an epoch ends: its verdict, and everything that follows from it.

The verdict is the linearization point: whoever creates `<n>.end.json` first decides, for ever.
All that comes after is a projection of the cells, and any number of settlers may repeat it.
"""

from __future__ import annotations

from datetime import datetime

from stado.core import keys, moves
from stado.core.clocks import time_limit
from stado.core.records import Asks, ClaimCell, EndCell, Ending, Intent, LateResult, Record
from stado.core.states import Reason, State, Verdict
from stado.errors import Conflict, Unreadable
from stado.jobs.policy_seals import seal_policy
from stado.jobs.repository import Repository, Stored
from stado.storage.port import Version

UNANSWERED = "cancelled while its worker did not answer"
"""So begins the detail of a cancel whose worker may not know of it: the command may run on."""


def give_verdict(repo: Repository, record: Record, ending: Ending) -> tuple[EndCell, bool]:
    """The verdict on the record's epoch, and whether it is ours: called again after a lost
    answer, it still is.

    One write; a crash after it leaves an epoch that is over and not settled, which whoever
    meets it settles."""
    cell = EndCell(token=repo.entropy.token(), ending=ending, record=moves.ended(record, ending))
    key = keys.end_cell(record.id, record.epoch)
    if repo.create(key, cell) is not None:
        return cell, True
    given = repo.read_taken(EndCell, key).value
    return given, given.ending == ending


def ending_of_lost(
    repo: Repository,
    record: Record,
    *,
    started_at: datetime | None,
    by: str,
    reason: Reason,
    detail: str,
) -> Ending:
    """The verdict on an epoch whose holder is gone: what was asked for, else lost, or failed
    when that happened too often. One read."""
    now = repo.now()
    asked = repo.find_asks(record.id, record.epoch)
    if asked is not None and asked.value.cancel:
        return Ending(
            verdict=Verdict.CANCELLED,
            reason=Reason.CANCELLED_BY_USER,
            detail=moves.clip(f"{UNANSWERED}: {detail}"),
            started_at=started_at,
            ended_at=now,
            by=asked.value.cancel_by or by,
        )
    return moves.lost(record, started_at=started_at, now=now, by=by, reason=reason, detail=detail)


def write_late(repo: Repository, late: LateResult) -> None:
    """What a holder still had to say of an epoch that was ended without it. It decides nothing."""
    repo.store.put(keys.late(late.job_id, late.epoch), late.encode())


def settle_own(repo: Repository, cell: EndCell, running_version: Version) -> None:
    """Settle right after our own verdict, when we hold the running record and removed the queue
    record ourselves: of an epoch that ended at rest nothing has to be looked for.

    Writes the record at rest (of a train job its policy before), then deletes `running/`; a crash
    between them leaves both, and the record at rest counts. Any settler, and the coordinator's
    reap pass, deletes the rest."""
    final = moves.after(cell)
    if not final.state.at_rest:
        settle(repo, final.id, cell.record.epoch)
        return
    _come_to_rest(repo, final)
    try:
        repo.store.delete(keys.record(State.RUNNING, final.id), running_version)
    except Conflict:
        settle(repo, final.id, cell.record.epoch)


def settle(repo: Repository, job_id: str, epoch: int) -> EndCell | None:
    """Makes the prefixes show what the verdict on `epoch` says; None when it has no verdict.

    Order: what follows is written first (index entry before queue record), then the records of
    ended epochs are deleted, `running/` last. A crash anywhere leaves a record at a higher or
    equal place beside an older one; settling again finishes it."""
    cell = repo.find_end(job_id, epoch)
    if cell is None:
        return None
    if cell.ending.verdict is Verdict.LOST and _end_as_asked(repo, cell):
        _clean_up(repo, job_id, epoch)
        return cell
    following = moves.after(cell)
    if following.state is not State.QUEUED:
        _come_to_rest(repo, following)
    elif not _epoch_begun(repo, job_id, following.epoch):
        repo.create_entry(following)
        project(repo, following)
    _clean_up(repo, job_id, epoch)
    return cell


def _come_to_rest(repo: Repository, final: Record) -> None:
    """Nobody sees a train job at rest whose policy could still change. A crash between the two
    leaves a sealed policy, and the job where it was; settling again finishes it."""
    if final.spec.makes_policy:
        seal_policy(repo, final)
    project(repo, final)


def finish_intent(repo: Repository, claim: ClaimCell) -> EndCell:
    """The verdict that an intent names, settled. Anybody may do it, without a seal: an intent
    has no process."""
    record = claim.record
    cell, _ = give_verdict(repo, record, ending_of_intent(claim))
    settle(repo, record.id, record.epoch)
    return cell


def ending_of_intent(claim: ClaimCell) -> Ending:
    """The same from whoever finishes it."""
    if claim.intent is Intent.EXPIRE:
        limit = time_limit(claim.record)
        return Ending(
            verdict=Verdict.TIMED_OUT,
            reason=Reason.DEADLINE_PASSED if limit is None else limit.reason,
            detail=f"{'its time is up' if limit is None else limit.detail}; it was in the queue",
            ended_at=claim.at,
            by=claim.by,
        )
    return Ending(
        verdict=Verdict.CANCELLED,
        reason=Reason.CANCELLED_BY_USER,
        ended_at=claim.at,
        by=claim.by,
    )


def claim_for_intent(
    repo: Repository, record: Record, *, intent: Intent, by: str
) -> ClaimCell | None:
    """Takes an epoch that nobody holds, so that no agent runs it; None when it is taken."""
    cell = ClaimCell(token=repo.entropy.token(), intent=intent, by=by, at=repo.now(), record=record)
    return cell if repo.create(keys.claim_cell(record.id, record.epoch), cell) else None


def ask_cancel(repo: Repository, job_id: str, epoch: int, *, by: str) -> Asks:
    """Adds the flag to what is asked of an epoch. Flags are only ever added."""
    key = keys.asks(job_id, epoch)
    for _ in repo.rounds():
        found = repo.find_asks(job_id, epoch)
        if found is not None and found.value.cancel:
            return found.value
        asked = Asks(cancel=True, cancel_by=by, cancel_at=repo.now(), nonce=repo.entropy.token())
        if found is None:
            if repo.create(key, asked) is not None:
                return asked
            continue
        try:
            asked = asked.evolve(unknown_fields=found.value.unknown_fields)
            repo.store.replace(key, asked.encode(), found.version)
            return asked
        except Conflict:
            continue
    raise Conflict(key, "others keep changing it: try again")


def project(repo: Repository, record: Record) -> bool:
    """Writes a record under its state's prefix unless one of the same or a higher epoch stands
    there. Returns whether the record, or its equal, stands there now.

    The index entry of a queue record that was replaced is deleted after it; a crash between the
    two leaves an entry of a lower epoch, which repair deletes."""
    key = keys.record(record.state, record.id)
    for _ in repo.rounds():
        if repo.create(key, record) is not None:
            return True
        found = repo.find(Record, key)
        if found is None:
            continue
        if found.value.epoch >= record.epoch:
            return found.value.epoch == record.epoch
        try:
            repo.store.replace(key, record.encode(), found.version)
        except Conflict:
            continue
        if record.state is State.QUEUED:
            repo.delete_entry(found.value)
        return True
    raise Conflict(key, "others keep changing it: try again")


def remove_queued(repo: Repository, job_id: str, *, up_to_epoch: int) -> None:
    """Deletes the queue record of a claimed or ended epoch, with its index entry.

    A crash between the two leaves an entry without a record, which repair deletes."""
    for _ in repo.rounds():
        found = repo.find_record(State.QUEUED, job_id)
        if found is None or found.value.epoch > up_to_epoch:
            return
        if delete_queued(repo, found):
            return
    raise Conflict(keys.record(State.QUEUED, job_id), "others keep changing it: try again")


def delete_queued(repo: Repository, found: Stored[Record]) -> bool:
    """Deletes this very queue record and its entry; False when the record has changed."""
    try:
        repo.store.delete(keys.record(State.QUEUED, found.value.id), found.version)
    except Conflict:
        return False
    repo.delete_entry(found.value)
    return True


def _end_as_asked(repo: Repository, cell: EndCell) -> bool:
    """A cancel that was asked of a lost epoch decides what becomes of the next one. True when
    the next epoch is taken care of."""
    job_id, epoch = cell.record.id, cell.record.epoch
    asked = repo.find_asks(job_id, epoch)
    if asked is None or not asked.value.cancel:
        return False
    following = moves.after(cell)
    by = asked.value.cancel_by or "unknown"
    claim = claim_for_intent(repo, following, intent=Intent.CANCEL, by=by)
    if claim is None:
        claim = repo.claim_cell(job_id, following.epoch)
    if claim.intent is not None:
        finish_intent(repo, claim)
    else:
        ask_cancel(repo, job_id, following.epoch, by=by)
    return True


def _epoch_begun(repo: Repository, job_id: str, epoch: int) -> bool:
    """Whether the epoch has been claimed already, so that its queue record has done its work."""
    return repo.cells(job_id).highest >= epoch


def _clean_up(repo: Repository, job_id: str, epoch: int) -> None:
    """What cannot be read may be of a later epoch, and stays; the cells say what is true."""
    try:
        remove_queued(repo, job_id, up_to_epoch=epoch)
        _remove_running(repo, job_id, up_to_epoch=epoch)
    except Unreadable as error:
        repo.tell_unreadable(error)


def _remove_running(repo: Repository, job_id: str, *, up_to_epoch: int) -> None:
    running_key = keys.record(State.RUNNING, job_id)
    for _ in repo.rounds():
        running = repo.find_record(State.RUNNING, job_id)
        if running is None or running.value.epoch > up_to_epoch:
            return
        try:
            repo.store.delete(running_key, running.version)
            return
        except Conflict:
            continue
    raise Conflict(running_key, "others keep changing it: try again")
