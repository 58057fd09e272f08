"""Notices without one of their rules."""

from __future__ import annotations

from stado.core.messages import job_message
from stado.core.records import Record
from stado.jobs import endings
from stado.jobs.deliveries import Deliveries, Notice
from stado.jobs.repository import Repository
from tests.mutants.mutant import Mutant, replaced

NOTICES = "tests/jobs/test_notices.py"


def note_nothing(repo: Repository, final: Record) -> None:
    """The end of a job is written down, and nobody is to be told of it."""


def delete_and_send(deliveries: Deliveries, line: object, notice: Notice) -> None:
    body = deliveries._body(notice)
    deliveries._repo.store.delete(notice.entry.key, None)
    if body is not None:
        deliveries._messenger.send(notice.channel, body)


def believe_the_name(deliveries: Deliveries, notice: Notice) -> bytes | None:
    repo = deliveries._repo
    end = repo.find_end(notice.job_id, 1)
    return job_message(end.record, notice.word, repo.now()) if end is not None else None


MUTANTS = (
    Mutant(
        "nobody notes an end",
        "Who settles an end leaves a notice for each channel with a rule for it.",
        f"{NOTICES}::test_settling_again_notes_nothing_twice",
        replaced(endings, "announce_rest", note_nothing),
    ),
    Mutant(
        "a notice goes before it is sent",
        "A notice stays until its channel has taken it.",
        f"{NOTICES}::test_a_coordinator_that_dies_after_sending_is_followed_by_the_same_message",
        replaced(Deliveries, "_send", delete_and_send),
    ),
    Mutant(
        "the name of a notice is believed",
        "What is told is what the cells say, where the job's rules ask for it.",
        f"{NOTICES}::test_a_false_notice_is_sent_nowhere_and_goes_after_a_while",
        replaced(Deliveries, "_body", believe_the_name),
    ),
)
