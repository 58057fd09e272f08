"""Sending notices: a coordinator's pass. At least once each, without holding up anything else.

A channel that hangs or fails has a task of its own, and keeps no other from its turn. Nothing but a
name of a job is believed of a notice: what is sent is what the job's cells say, and only where its
rules name the channel.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass, field

from stado.core import keys, moves
from stado.core.ids import is_job_id
from stado.core.messages import job_message, message_id, pipeline_message
from stado.core.notices import channels_for
from stado.core.records import Undelivered
from stado.core.states import NotifyOn
from stado.errors import SendFailed, StadoError, Unreadable
from stado.jobs.notices import find_pipeline_end
from stado.jobs.repository import Repository
from stado.ports import Messenger, Task
from stado.storage.port import LIST_LIMIT_MAX, Entry

log = logging.getLogger(__name__)

GIVE_UP_SECONDS = 24 * 3600.0
TRIES_MIN = 3
"""Of this process, before it gives up a notice on a channel of its own."""

FORGET_SECONDS = 7 * 24 * 3600.0
"""How long it is told that one could not be delivered."""

FALSE_SECONDS = 600.0
"""What no cell speaks for by then is nobody's."""

_PAUSE_SECONDS = 5.0
_PAUSE_SECONDS_MAX = 600.0
_SENT_AT_A_TURN = 100
_FAILURES_AT_A_TURN = 3
_WAITING_MAX = 10_000
_FALSE_PAUSE_SECONDS = 60.0
_TURNS_PER_SWEEP = 40


@dataclass(frozen=True, slots=True)
class Notice:
    """That something of a job is to be told on a channel."""

    entry: Entry
    job_id: str
    epoch: int
    word: NotifyOn
    channel: str

    @property
    def id(self) -> str:
        return message_id(self.job_id, self.epoch, self.word)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A notice that was not sent when it was tried."""

    tries: int
    due_at: float
    """On the monotonic clock."""


@dataclass(slots=True)
class _Line:
    """A channel: what is under way there, and, by key, what waits. Only its task touches that."""

    task: Task | None = None
    waiting: dict[str, _Waiting] = field(default_factory=dict)

    def is_due(self, notice: Notice, now: float) -> bool:
        known = self.waiting.get(notice.entry.key)
        return known is None or now >= known.due_at

    def tries(self, notice: Notice) -> int:
        known = self.waiting.get(notice.entry.key)
        return 0 if known is None else known.tries

    def keep(self, notice: Notice, tries: int, due_at: float) -> None:
        if len(self.waiting) >= _WAITING_MAX:
            self.waiting.clear()
        self.waiting[notice.entry.key] = _Waiting(tries, due_at)


class Deliveries:
    """Keep it between ticks: it remembers what has failed, and which page comes next."""

    def __init__(
        self, repo: Repository, messenger: Messenger, *, page_size: int = LIST_LIMIT_MAX
    ) -> None:
        self._repo = repo
        self._page_size = page_size
        self._messenger = messenger
        self._lines = {channel: _Line() for channel in messenger.channels}
        self._after = ""
        self._turns = 0

    def turn(self) -> None:
        """Starts to send what is due of the next page, and waits for nothing of it. One listing."""
        waiting: dict[str, list[Notice]] = defaultdict(list)
        for notice in self._next_page():
            waiting[notice.channel].append(notice)
        for channel, notices in waiting.items():
            line = self._lines.get(channel)
            if line is None:
                self._give_up_strange(notices)
            elif line.task is None or line.task.join(0):
                line.task = self._start(line, channel, notices)
        if self._turns % _TURNS_PER_SWEEP == 0:
            self._forget_old()
        self._turns += 1

    def wait(self, seconds: float) -> None:
        """For a process that makes one turn: until what it began is over, for so long a channel."""
        for line in self._lines.values():
            if line.task is not None:
                line.task.join(seconds)

    def _next_page(self) -> list[Notice]:
        limit = self._page_size
        entries = self._repo.store.list(keys.NOTICES, start_after=self._after, limit=limit)
        self._after = entries[-1].key if len(entries) == limit else ""
        return [notice for entry in entries if (notice := _parsed(entry)) is not None]

    def _start(self, line: _Line, channel: str, notices: list[Notice]) -> Task:
        return self._repo.tasks.start(f"notify-{channel}", lambda: self._send_all(line, notices))

    def _send_all(self, line: _Line, notices: list[Notice]) -> None:
        """Whatever comes of it is tried again at a later turn."""
        failures, now = 0, self._repo.clock.monotonic()
        due = [notice for notice in notices if line.is_due(notice, now)]
        for notice in due[:_SENT_AT_A_TURN]:
            try:
                self._send(line, notice)
                failures = 0
            except (SendFailed, Unreadable) as error:
                failures += 1
                self._note_failure(line, notice, error)
            except StadoError as error:
                log.warning("event=notify_store error=%r", str(error))
                return
            if failures == _FAILURES_AT_A_TURN:
                return

    def _send(self, line: _Line, notice: Notice) -> None:
        body = self._body(notice)
        if body is None:
            self._put_off(line, notice)
            return
        self._messenger.send(notice.channel, body)
        self._repo.store.delete(notice.entry.key, None)
        line.waiting.pop(notice.entry.key, None)
        log.info("event=notified id=%s channel=%s", notice.id, notice.channel)

    def _put_off(self, line: _Line, notice: Notice) -> None:
        """A name that no cell speaks for: a store may show the cell late."""
        if self._age_seconds(notice.entry) >= FALSE_SECONDS:
            log.warning("event=notice_false key=%s", notice.entry.key)
            self._repo.store.delete(notice.entry.key, None)
        else:
            due_at = self._repo.clock.monotonic() + _FALSE_PAUSE_SECONDS
            line.keep(notice, line.tries(notice), due_at)

    def _body(self, notice: Notice) -> bytes | None:
        """What the job's cells say; None where they say no such thing, or nobody asked for it."""
        repo, word = self._repo, notice.word
        if word is NotifyOn.PIPELINE:
            over = find_pipeline_end(repo, notice.job_id)
            if over is None or over.number != notice.epoch:
                return None
            told = channels_for(over.root.notice_rules, word)
            body = pipeline_message(over.root, over.state, over.number)
        elif word is NotifyOn.RUNNING:
            claim = repo.find_claim(notice.job_id, notice.epoch)
            if claim is None or claim.intent is not None:
                return None
            told = channels_for(claim.record.notice_rules, word)
            body = job_message(claim.record, word, claim.at)
        else:
            end = repo.find_end(notice.job_id, notice.epoch)
            if end is None or end.ending.verdict.value != word.value:
                return None
            told = channels_for(end.record.notice_rules, word)
            body = job_message(end.record, word, end.ending.ended_at)
        return body if notice.channel in told else None

    def _note_failure(self, line: _Line, notice: Notice, error: StadoError) -> None:
        tries, why = line.tries(notice) + 1, moves.clip(str(error))
        log.warning(
            "event=notify_failed id=%s channel=%s tries=%d error=%r",
            notice.id, notice.channel, tries, why,
        )  # fmt: skip
        if tries >= TRIES_MIN and self._age_seconds(notice.entry) >= GIVE_UP_SECONDS:
            self._give_up(notice, tries, why)
            return
        pause = min(_PAUSE_SECONDS_MAX, _PAUSE_SECONDS * 2.0 ** min(tries - 1, 20))
        jitter = self._repo.entropy.uniform(0.75, 1.25)
        line.keep(notice, tries, self._repo.clock.monotonic() + pause * jitter)

    def _give_up_strange(self, notices: list[Notice]) -> None:
        """Another coordinator may know the channel, for a day."""
        for notice in notices[:_SENT_AT_A_TURN]:
            if self._age_seconds(notice.entry) >= GIVE_UP_SECONDS:
                self._give_up(notice, 0, "no coordinator that acts has a channel of this name")

    def _give_up(self, notice: Notice, tries: int, why: str) -> None:
        """Two writes; a crash between them leaves a notice that is given up again."""
        undelivered = Undelivered(
            job_id=notice.job_id,
            epoch=notice.epoch,
            word=notice.word,
            channel=notice.channel,
            tries=tries,
            why=why,
            at=self._repo.now(),
        )
        self._repo.store.put(undelivered.own_key(), undelivered.encode())
        self._repo.store.delete(notice.entry.key, None)
        log.error(
            "event=notify_given_up id=%s channel=%s tries=%d error=%r",
            notice.id, notice.channel, tries, why,
        )  # fmt: skip

    def _forget_old(self) -> None:
        """Of a page of what was given up."""
        for entry in self._repo.store.list(keys.UNDELIVERED, limit=self._page_size):
            if self._age_seconds(entry) >= FORGET_SECONDS:
                self._repo.store.delete(entry.key, None)

    def _age_seconds(self, entry: Entry) -> float:
        return (self._repo.now() - entry.modified_at).total_seconds()


def _parsed(entry: Entry) -> Notice | None:
    """None for a name that no notice has."""
    parsed = keys.parse_notice(entry.key)
    if parsed is None or parsed[2] not in set(NotifyOn) or not is_job_id(parsed[0]):
        return None
    job_id, epoch, word, channel = parsed
    return Notice(entry, job_id, epoch, NotifyOn(word), channel)
