"""How an epoch ends: its verdict, and everything that follows from it.

The verdict is the linearization point: whoever creates `<n>.end.json` first decides, for ever.
All that comes after is a projection of the cells, and any number of settlers may repeat it.
"""

from __future__ import annotations

from stado.core import keys, moves
from stado.core.clocks import passed_limit, time_limit
from stado.core.ids import milliseconds
from stado.core.records import (
    Asks,
    ClaimCell,
    EndCell,
    Ending,
    Intent,
    LateResult,
    OpenCell,
    Record,
)
from stado.core.states import Opening, Reason, State, Verdict
from stado.core.usage import ran_until
from stado.errors import Conflict, Unreadable
from stado.jobs.asking import ask
from stado.jobs.dependents import announce_dependents, look_for_ends, tell_dependents
from stado.jobs.notices import announce_rest
from stado.jobs.pipelines import launch_following
from stado.jobs.policy_seals import seal_policy
from stado.jobs.quotas import release_slots
from stado.jobs.repository import Repository, Stored
from stado.jobs.usage import note_use
from stado.storage.port import Version

_UNANSWERED = "while its worker did not answer"

AS_ASKED = {
    Intent.CANCEL: (Verdict.CANCELLED, Reason.CANCELLED_BY_USER),
    Intent.PAUSE: (Verdict.PAUSED, Reason.PAUSED_BY_USER),
}
"""The verdict on an epoch whose holder is gone, or never was."""


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


def as_queued_last(repo: Repository, record: Record) -> Record:
    """For who ends an epoch without its holder: the record with the priority that the queue record
    of this epoch has, should it still stand. It may have changed after whoever claimed the epoch
    had read it, and nobody else may have taken that over. One read."""
    try:
        queued = repo.find_record(State.QUEUED, record.id)
    except Unreadable as error:
        repo.tell_unreadable(error)
        return record
    if queued is None or queued.value.epoch != record.epoch:
        return record
    return moves.as_queued(record, queued.value)


def ending_of_lost(repo: Repository, record: Record, loss: moves.Loss) -> Ending:
    """The verdict on an epoch whose holder is gone: what was asked for, else lost, or failed
    when that happened too often, or what else `moves.lost` says. One read."""
    now = repo.now()
    asked = repo.find_asks(record.id, record.epoch)
    intent = asked.value.intent if asked is not None else None
    out_of_time = passed_limit(record, milliseconds(now)) is not None
    if asked is None or intent is None or (intent is Intent.PAUSE and out_of_time):
        return moves.lost(record, loss, now=now)
    verdict, reason = AS_ASKED[intent]
    note = f" ({asked.value.note})" if asked.value.note else ""
    return Ending(
        verdict=verdict,
        reason=reason,
        detail=moves.clip(f"{verdict.value} {_UNANSWERED}: {loss.detail}{note}"),
        started_at=loss.started_at,
        ended_at=now,
        ran=ran_until(record, loss.heard_at, started_at=loss.started_at, estimated=True),
        by=asked.value.by,
    )


def was_unanswered(ending: Ending) -> bool:
    """Whether it was cancelled or paused and its worker may not know of it: the command may run
    on."""
    return (ending.detail or "").startswith(f"{ending.verdict.value} {_UNANSWERED}")


def write_late(repo: Repository, late: LateResult) -> None:
    """What a holder still had to say of an epoch that was ended without it. It decides nothing."""
    repo.store.put(keys.late(late.job_id, late.epoch), late.encode())


def settle_own(repo: Repository, cell: EndCell, running_version: Version) -> None:
    """Settle right after our own verdict, when we hold the running record and removed the queue
    record ourselves: of an epoch that ended at rest nothing has to be looked for.

    Notes what it used, writes the record at rest (of a train job its policy before), then deletes
    `running/`. A crash on the way leaves that, and a record at rest beside it counts. Any settler,
    and the coordinator's reap pass, does the rest."""
    final = moves.after(cell)
    if not final.state.terminal or final.opened_from is not None:
        settle(repo, final.id, cell.record.epoch)
        return
    note_use(repo, cell)
    release_slots(repo, cell)
    _come_to_rest(repo, final)
    try:
        repo.store.delete(keys.record(State.RUNNING, final.id), running_version)
    except Conflict:
        settle(repo, final.id, cell.record.epoch)


def settle(repo: Repository, job_id: str, epoch: int) -> EndCell | None:
    """Makes the prefixes show what the verdict on `epoch` says; None when it has no verdict.

    Order: what it used is noted first, then what follows is written (index entry before queue
    record), then the records of
    ended epochs are deleted, `running/` last. A crash anywhere leaves a record at a higher or
    equal place beside an older one; settling again finishes it."""
    cell = repo.find_end(job_id, epoch)
    if cell is None:
        return None
    note_use(repo, cell)
    release_slots(repo, cell)
    if cell.ending.verdict.state in (None, State.PAUSED) and _end_as_asked(repo, cell):
        _clean_up(repo, cell)
        return cell
    following = moves.after(cell)
    if following.state.at_rest:
        _rest(repo, following)
    else:
        _queue(repo, following)
    _clean_up(repo, cell)
    return cell


def _rest(repo: Repository, final: Record) -> None:
    """When somebody has taken the job out of that rest since, the record is removed again."""
    _come_to_rest(repo, final)
    opened = repo.find_open(final.id, final.epoch + 1)
    if opened is not None:
        settle_open(repo, opened)


def _queue(repo: Repository, following: Record, *, announced: bool = False) -> None:
    """Nothing where the epoch has begun already: its queue record has done its work then.
    `announced`: its index entry stands."""
    if repo.cells(following.id).begun(following.epoch):
        return
    announce_dependents(repo, [following])
    if not announced:
        repo.create_entry(following)
    project(repo, following)
    look_for_ends(repo, [following])


def _come_to_rest(repo: Repository, final: Record) -> None:
    """Nobody sees a train job ended whose policy could still change. A crash on the way leaves a
    sealed policy, or a record at rest, and the job's running record: settling again finishes it."""
    if final.spec.makes_policy and final.state.terminal:
        seal_policy(repo, final)
    project(repo, final)
    launch_following(repo, final)
    announce_rest(repo, final)
    if final.state.terminal:
        tell_dependents(repo, final.id)


def open_epoch(
    repo: Repository, at_rest: Record, kind: Opening, *, by: str, note: str | None = None
) -> tuple[OpenCell, bool]:
    """Decides what follows a record at rest that was read under its prefix: by us, or, False, by
    somebody who was faster. To be settled (`settle_open`) in either case.

    Two writes. A crash between them leaves an index entry of an epoch that nobody opened, which
    repair deletes after a while; after them an open cell, which whoever meets it settles."""
    token, at = repo.entropy.token(), repo.now()
    record = moves.opened(at_rest, kind, token=token, at=at)
    cell = OpenCell(token=token, kind=kind, by=by, at=at, note=note, record=record)
    if kind is not Opening.DELETE:
        repo.create_entry(record)
    if repo.create(cell.own_key(), cell) is not None:
        return cell, True
    taken = repo.open_cell(record.id, record.epoch)
    if taken.token == token:
        return taken, True
    repo.delete_entry(record)
    return taken, False


def settle_open(repo: Repository, cell: OpenCell, *, announced: bool = False) -> None:
    """Makes the prefixes show what an open cell says: the queue record first, then the record at
    rest that it supersedes goes. The rest of a delete is left to who deletes (`deletion`).
    `announced`: its index entry was written just now."""
    record = cell.record
    if cell.kind is Opening.DELETE:
        remove_superseded(repo, record)
        return
    if cell.kind is Opening.CANCEL:
        give_verdict(repo, record, ending_of_open(cell))
        settle(repo, record.id, record.epoch)
        repo.delete_entry(record)
        return
    _queue(repo, record, announced=announced)
    remove_superseded(repo, record)


def ending_of_open(cell: OpenCell) -> Ending:
    """Of a paused job's cancel: the same from whoever finishes it."""
    return Ending(
        verdict=Verdict.CANCELLED,
        reason=Reason.CANCELLED_BY_USER,
        detail=_asked_text(Verdict.CANCELLED, "paused", cell.by, cell.note),
        ended_at=cell.at,
        by=cell.by,
    )


def remove_superseded(repo: Repository, record: Record) -> None:
    """The record at rest that the job was taken out of, should it be there (still, or again: a
    write can be late)."""
    state = record.opened_from
    if state is None:
        return
    remove_record(repo, state, record.id, below_epoch=record.epoch)


def remove_record(
    repo: Repository, state: State, job_id: str, *, below_epoch: int | None = None
) -> None:
    """Deletes the record of a lower epoch (None: of any), as it was read, if there is one."""
    key = keys.record(state, job_id)
    for _ in repo.rounds():
        found = repo.find(Record, key)
        if found is None or (below_epoch is not None and found.value.epoch >= below_epoch):
            return
        try:
            repo.store.delete(key, found.version)
            return
        except Conflict:
            continue
    raise Conflict(key, "others keep changing it: try again")


def finish_intent(repo: Repository, claim: ClaimCell) -> EndCell:
    """The verdict that an intent names, settled. Anybody may do it, without a seal: an intent
    has no process."""
    record = as_queued_last(repo, claim.record)
    cell, _ = give_verdict(repo, record, ending_of_intent(claim))
    settle(repo, record.id, record.epoch)
    return cell


def ending_of_intent(claim: ClaimCell) -> Ending:
    """The same from whoever finishes it."""
    assert claim.intent is not None  # no agent holds it
    if claim.intent is Intent.EXPIRE:
        limit = time_limit(claim.record)
        return Ending(
            verdict=Verdict.TIMED_OUT if limit is None else limit.verdict,
            reason=Reason.DEADLINE_PASSED if limit is None else limit.reason,
            detail=f"{'its time is up' if limit is None else limit.detail}; it was in the queue",
            ended_at=claim.at,
            by=claim.by,
        )
    verdict, reason = AS_ASKED[claim.intent]
    detail = _asked_text(verdict, "queued", claim.by, claim.note)
    return Ending(verdict=verdict, reason=reason, detail=detail, ended_at=claim.at, by=claim.by)


def _asked_text(verdict: Verdict, before: str, by: str, note: str | None) -> str:
    """`cancelled while it was queued, by ada: the cluster is needed`."""
    because = f": {note}" if note else ""
    return moves.clip(f"{verdict.value} while it was {before}, by {by}{because}")


def claim_for_intent(
    repo: Repository, record: Record, *, intent: Intent, by: str, note: str | None = None
) -> ClaimCell | None:
    """Takes an epoch that nobody holds, so that no agent runs it; None when it is taken."""
    cell = ClaimCell(
        token=repo.entropy.token(), intent=intent, by=by, at=repo.now(), note=note, record=record
    )
    return cell if repo.create(keys.claim_cell(record.id, record.epoch), cell) else None


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
            if record.state.at_rest:
                repo.store.delete(key, found.version)
                continue  # what rests is created, and may be replaced by nobody
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
    """What was asked of an epoch that was lost decides what becomes of the next one, and so does
    a cancel of one that was paused. True when the next epoch is taken care of."""
    job_id, epoch = cell.record.id, cell.record.epoch
    asked = repo.find_asks(job_id, epoch)
    intent = asked.value.intent if asked is not None else None
    if asked is None or intent is None:
        return False
    if cell.ending.verdict is not Verdict.PAUSED:
        _end_next(repo, moves.after(cell), intent, asked.value)
        return True
    if intent is not Intent.CANCEL:
        return False
    opened = repo.find_open(job_id, epoch + 1)
    if opened is None:
        by, note = asked.value.by, asked.value.note
        opened, _ = open_epoch(repo, cell.record, Opening.CANCEL, by=by, note=note)
    if opened.kind is Opening.RESUME:
        _end_next(repo, opened.record, intent, asked.value)
    settle_open(repo, opened)
    return True


def _end_next(repo: Repository, following: Record, intent: Intent, asked: Asks) -> None:
    """Keeps an epoch from being run, or asks the agent for it that has it, as was asked of the
    one before."""
    job_id, epoch, by, note = following.id, following.epoch, asked.by, asked.note
    claim = claim_for_intent(repo, following, intent=intent, by=by, note=note)
    if claim is None:
        claim = repo.claim_cell(job_id, epoch)
    if claim.intent is None:
        terminate = asked.terminate and intent is Intent.CANCEL
        ask(repo, job_id, epoch, intent, by=by, note=note, terminate=terminate)
        return
    finish_intent(repo, claim)


def _clean_up(repo: Repository, cell: EndCell) -> None:
    """What cannot be read may be of a later epoch, and stays; the cells say what is true."""
    job_id, epoch = cell.record.id, cell.record.epoch
    try:
        remove_superseded(repo, cell.record)
        remove_queued(repo, job_id, up_to_epoch=epoch)
        remove_record(repo, State.RUNNING, job_id, below_epoch=epoch + 1)
    except Unreadable as error:
        repo.tell_unreadable(error)
