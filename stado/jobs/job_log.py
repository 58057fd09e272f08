"""A job's log over all of its epochs, read as one.

Each epoch's output is where `logs` has it; between two of them a line of ours tells how the
earlier one ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO

from stado.core.moves import clip
from stado.core.records import Ending, LogAccount
from stado.core.states import Leftover
from stado.errors import Unreadable
from stado.jobs.expired import find_expired, gone_sentence
from stado.jobs.log_segments import epochs_with_log
from stado.jobs.logs import Gap, LogReader, Piece
from stado.jobs.repository import Repository


@dataclass(frozen=True, slots=True)
class EpochBegins:
    """What stands between the log of an epoch and that of the next."""

    job_id: str
    epoch: int
    before: Ending | None
    """How the one before ended, if that can be seen."""

    @property
    def text(self) -> str:
        """For people: `epoch 2 of job a begins: epoch 1 lost (lease_expired): not heard`."""
        why = f": epoch {self.epoch - 1} {self.before.told}" if self.before is not None else ""
        return clip(f"epoch {self.epoch} of job {self.job_id} begins{why}")


LogPiece = Piece | EpochBegins


class JobLog:
    """From the first epoch on that left a log, from where the last `lines` of all begin (of these
    at most the last `tail_bytes` of an epoch), or from what was printed at `since` and later, as
    far as that can be told; of both what is later. Each piece comes once, also to whoever goes on
    after an error."""

    def __init__(
        self,
        repo: Repository,
        job_id: str,
        *,
        up_to_epoch: int,
        lines: int | None = None,
        tail_bytes: int | None = None,
        since: datetime | None = None,
    ) -> None:
        self._repo = repo
        self._job_id = job_id
        epochs = [epoch for epoch in epochs_with_log(repo, job_id) if epoch <= up_to_epoch]
        self.found = bool(epochs)
        """Whether there was any when this was made."""
        self._begin(min(epochs, default=up_to_epoch))
        if lines is not None:
            self._skip_to_tail(epochs, lines, tail_bytes)
        if since is not None:
            self._skip_to_time([epoch for epoch in epochs if epoch >= self._epoch], since)

    @property
    def offset(self) -> int:
        """Of what comes next, in the epoch that was read last."""
        return self._reader.offset

    def find_time(self, offset: int) -> datetime | None:
        """When what lies there was printed, at the latest, in the epoch that was read last."""
        return self._reader.find_time(offset)

    def read_before(self, epoch: int) -> Iterator[LogPiece]:
        """What is left of the epochs before, of which nothing more will come."""
        while self._epoch < epoch:
            yield from self._reader.read_rest()
            following = self._epoch + 1
            begins = EpochBegins(self._job_id, following, self._find_ending(self._epoch))
            self._begin(following)
            yield begins

    def read_up_to(self, epoch: int, *, complete: bool) -> Iterator[LogPiece]:
        """What has come since the last call. `complete`: this epoch has ended as well."""
        yield from self.read_before(epoch)
        yield from self._reader.read_rest() if complete else self._reader.read_new()

    def _begin(self, epoch: int) -> None:
        self._epoch = epoch
        self._reader = LogReader(self._repo, self._job_id, epoch)

    def _skip_to_tail(self, epochs: list[int], lines: int, bytes_max: int | None) -> None:
        for epoch in reversed(epochs):
            self._begin(epoch)
            lines = self._reader.skip_to_tail(lines, bytes_max=bytes_max)
            if not lines:
                return

    def _skip_to_time(self, epochs: list[int], since: datetime) -> None:
        """Back to the first epoch of which all is later, or to the one before, in the middle. What
        has been skipped already stays so."""
        begun = {self._epoch: self._reader}
        for epoch in reversed(epochs):
            if epoch in begun:
                self._epoch, self._reader = epoch, begun[epoch]
            else:
                self._begin(epoch)
            before = self._reader.offset
            self._reader.skip_to_time(since)
            if self._reader.offset > before:
                return

    def _find_ending(self, epoch: int) -> Ending | None:
        try:
            end = self._repo.find_end(self._job_id, epoch)
        except Unreadable:
            return None
        return end.ending if end is not None else None


def copy_log(repo: Repository, job_id: str, epoch: int, file: BinaryIO) -> LogAccount:
    """Writes what is kept of a job's log up to this epoch, with a line of ours at each gap and
    between two epochs; of a log that has gone for its age, a line that says so. The account is of
    what the job printed, and is still there to be told."""
    kept = dropped = 0
    line_open = False
    whole = JobLog(repo, job_id, up_to_epoch=epoch)
    expired = None if whole.found else find_expired(repo, Leftover.LOG, job_id, epoch=epoch)
    if expired is not None and expired.left:
        file.write(f"[stado: {gone_sentence(expired)}]\n".encode())
        return LogAccount(written=0, kept=0, dropped=0)
    for piece in whole.read_up_to(epoch, complete=True):
        if isinstance(piece, bytes):
            kept += len(piece)
            file.write(piece)
            line_open = not piece.endswith(b"\n")
            continue
        dropped += piece.size if isinstance(piece, Gap) else 0
        begin = "\n" if line_open else ""
        file.write(f"{begin}[stado: {piece.text}]\n".encode())
        line_open = False
    return LogAccount(written=kept + dropped, kept=kept, dropped=dropped)
