"""What jobs use without one of its rules."""

from __future__ import annotations

from datetime import datetime

from stado.core import usage as core
from stado.core.records import EndCell, Ran, Record
from stado.jobs import endings, life
from stado.jobs.repository import Repository
from tests.mutants.mutant import Mutant, all_of, replaced, replaced_everywhere

USAGE = "tests/jobs/test_usage.py"
ON_HOST = "tests/agent/test_usage.py"

_note_use = endings.note_use
_clean_up = endings._clean_up
_ran_until = core.ran_until


def note_last(repo: Repository, cell: EndCell) -> None:
    _note_use(repo, cell)
    _clean_up(repo, cell)


def count_from_the_start(
    record: Record,
    ended_at: datetime | None,
    *,
    started_at: datetime | None,
    estimated: bool = False,
) -> Ran | None:
    return _ran_until(
        record.evolve(ending=None), ended_at, started_at=started_at, estimated=estimated
    )


MUTANTS = (
    Mutant(
        "uses are not noted",
        "Whoever settles an epoch that ran notes what it used.",
        f"{USAGE}::test_all_who_settle_note_the_same",
        replaced(endings, "note_use", lambda *_: None),
        fails_with=ValueError,
    ),
    Mutant(
        "uses are noted last",
        "What an epoch used is noted before anything shows that it has ended.",
        f"{USAGE}::test_nothing_shows_that_an_epoch_was_lost_before_its_use_is_noted",
        all_of(
            replaced(endings, "note_use", lambda *_: None),
            replaced(endings, "_clean_up", note_last),
        ),
    ),
    Mutant(
        "an adopted command counts from its start",
        "Of one command no two epochs count the same time.",
        f"{ON_HOST}::test_an_adopted_command_counts_once",
        replaced_everywhere(core, "ran_until", count_from_the_start),
    ),
    Mutant(
        "a seal forgets when its epoch was heard",
        "A seal keeps the last sign of life of its epoch.",
        f"{USAGE}::test_a_seal_says_when_its_epoch_was_heard_last",
        replaced(life, "_last_sign", lambda *_: None),
    ),
)
