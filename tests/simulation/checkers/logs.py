"""Logs: a byte that was stored is there for everybody from then on, once and the same, whether in
segments or in blocks."""

from __future__ import annotations

from dataclasses import dataclass, field

from stado.core import keys
from stado.core.records import LogIndex
from stado.errors import NotFound
from stado.jobs.logs import LogReader
from stado.jobs.repository import Repository
from tests.jobs.fakes import FakeClock, FakeEntropy, InlineTasks
from tests.simulation.checkers.base import Change, Checker
from tests.simulation.people import Answer


@dataclass
class _Log:
    """Of one epoch: each byte by its place, and since when it has been there."""

    stored: dict[int, int] = field(default_factory=dict)
    since: dict[int, float] = field(default_factory=dict)


class LogsChecker(Checker):
    """No log here is so long that anything of it might be dropped."""

    rule = "no byte of a log is lost, doubled or changed"

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._logs: dict[tuple[str, int], _Log] = {}

    def on_change(self, change: Change) -> None:
        if change.folder != "status" or change.parts[2] != "log":
            return
        if self._was_deleted(change.parts[1]):
            return  # what its host still writes stays behind
        if change.before is not None and change.after is not None:
            self.fail(f"{change.key} was changed")
        segment, job_id = keys.parse_log_segment(change.key), change.parts[1]
        if segment is not None and change.after is not None:
            self._note(job_id, segment[0], segment[1], change.after, change)
        elif segment is not None and change.before is not None:
            self._check_deleted(job_id, segment[0], segment[1], change.before, change)
        elif keys.parse_log_index(change.key) is not None:
            self._check_index(job_id, change)
        elif change.after is None:
            self._check_block(job_id, change)

    def _note(self, job_id: str, epoch: int, offset: int, data: bytes, change: Change) -> None:
        log = self._logs.setdefault((job_id, epoch), _Log())
        for place, byte in enumerate(data, offset):
            if log.stored.setdefault(place, byte) != byte:
                self.fail(f"{change.key} holds something else at {place} than was there")
            log.since.setdefault(place, change.at)

    def _check_deleted(
        self, job_id: str, epoch: int, offset: int, data: bytes, change: Change
    ) -> None:
        index = self._find(LogIndex, keys.log_index(job_id, epoch))
        held = self._in_blocks(index) if index is not None else {}
        if any(held.get(place) != byte for place, byte in enumerate(data, offset)):
            self.fail(f"{change.key} was deleted, and no index has what it held")

    def _check_index(self, job_id: str, change: Change) -> None:
        if change.after is None:
            self.fail(f"{change.key} was deleted")
            return
        index = change.decode_after(LogIndex)
        stored = self._logs.setdefault((job_id, index.epoch), _Log()).stored
        if any(stored.get(place) != byte for place, byte in self._in_blocks(index).items()):
            self.fail(f"{change.key} has other bytes than the segments")

    def _check_block(self, job_id: str, change: Change) -> None:
        name = change.parts[3]
        epoch = int(name[:6])
        index = self._find(LogIndex, keys.log_index(job_id, epoch))
        if index is not None and f".{index.token}." in name:
            self.fail(f"{change.key} was deleted, and the index needs it")

    def _in_blocks(self, index: LogIndex) -> dict[int, int]:
        """Bytes by their place. A block that is missing is a byte that nobody wrote."""
        places = [place for one in index.ranges for place in range(one.offset, one.end)]
        data, part = b"", 0
        while len(data) < len(places):
            key = keys.log_block(index.job_id, index.epoch, index.token, part)
            try:
                data += self.world.store.get(key).data
            except NotFound:
                self.fail(f"{key} is not there, and the index needs it")
                return {}
            part += 1
        return dict(zip(places, data, strict=True))

    def on_answer(self, answer: Answer) -> None:
        if answer.what != "read":
            return
        (job_id,) = answer.job_ids
        if self._was_deleted(job_id):
            return
        read: dict[int, int] = {}
        assert answer.epoch is not None  # one is read
        log = self._logs.get((job_id, answer.epoch), _Log())
        for offset, data in answer.read:
            for place, byte in enumerate(data, offset):
                if place in read or log.stored.get(place) != byte:
                    self.fail(f"somebody read the log of {job_id} and got {byte} at {place}")
                read[place] = byte
        missing = [
            place
            for place, since in log.since.items()
            if since < answer.asked_at and place not in read
        ]
        if missing:
            self.fail(f"somebody read the log of {job_id} and did not get {missing[:9]}")

    def at_end(self) -> None:
        repo = Repository(
            self.world.store,
            self.world.deployment,
            clock=FakeClock(),
            entropy=FakeEntropy(),
            tasks=InlineTasks(),
        )
        for (job_id, epoch), log in self._logs.items():
            if self._was_deleted(job_id):
                continue
            reader, read = LogReader(repo, job_id, epoch), dict[int, int]()
            for piece in reader.read_new():
                if isinstance(piece, bytes):
                    read.update(enumerate(piece, reader.offset - len(piece)))
            if read != log.stored:
                self.fail(f"the log of {job_id}, epoch {epoch}, is not what was stored")
