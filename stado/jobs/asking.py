"""What is asked of a running epoch: one document of flags, which its supervisor reads at each
check-in. Flags are only ever added."""

from __future__ import annotations

from collections.abc import Callable

from stado.core import keys
from stado.core.records import Asks, Intent
from stado.errors import Conflict
from stado.jobs.repository import Repository


def ask(
    repo: Repository,
    job_id: str,
    epoch: int,
    intent: Intent,
    *,
    by: str,
    note: str | None = None,
    terminate: bool = False,
) -> tuple[Asks, bool]:
    """Asks an epoch to end, as a cancel or a pause; `terminate`: with the host, of a cancel. What
    is asked now, and whether this call added the flag: not when a write of it went unanswered."""
    ours = False

    def added(asked: Asks) -> Asks:
        nonlocal ours
        ours = not (asked.cancel if intent is Intent.CANCEL else asked.pause)
        if ours:
            asked = _with_flag(repo, asked, intent, by=by, note=note)
        return asked.evolve(terminate=asked.terminate or terminate)

    asked = _add(repo, job_id, epoch, added)
    return asked, ours


def ask_to_yield(
    repo: Repository, job_id: str, epoch: int, *, by: str, note: str, evict: bool = False
) -> Asks:
    """Asks an epoch to make room: its supervisor stops the command, saves what it has, and puts
    the job back. A job that may not be put back ignores it, and so does one that has ended.
    `evict`: also where the job is protected, for its host is closed."""

    def added(asked: Asks) -> Asks:
        if asked.give_way and asked.evict >= evict:
            return asked
        return asked.evolve(
            give_way=True,
            give_way_by=by,
            give_way_at=repo.now(),
            give_way_note=note,
            evict=asked.evict or evict,
        )

    return _add(repo, job_id, epoch, added)


def _add(repo: Repository, job_id: str, epoch: int, added: Callable[[Asks], Asks]) -> Asks:
    """A read, and a write where that adds something. Raises `Conflict` where others change it
    again and again."""
    key = keys.asks(job_id, epoch)
    for _ in repo.rounds():
        found = repo.find_asks(job_id, epoch)
        before = found.value if found is not None else Asks(nonce="")
        asked = added(before)
        if asked == before:
            return asked
        asked = asked.evolve(nonce=repo.entropy.token())
        if found is None:
            if repo.create(key, asked) is not None:
                return asked
            continue
        try:
            repo.store.replace(key, asked.encode(), found.version)
            return asked
        except Conflict:
            continue
    raise Conflict(key, "others keep changing it: try again")


def _with_flag(repo: Repository, asked: Asks, intent: Intent, *, by: str, note: str | None) -> Asks:
    at = repo.now()
    if intent is Intent.CANCEL:
        return asked.evolve(cancel=True, cancel_by=by, cancel_at=at, cancel_note=note)
    return asked.evolve(pause=True, pause_by=by, pause_at=at, pause_note=note)
