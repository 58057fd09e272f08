"""What jobs use without one of its rules."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from stado.core import keys
from stado.core import usage as core
from stado.core.ledger import LedgerIndex
from stado.core.records import EndCell, Ran, Record, StoreRequests
from stado.core.usage import Use
from stado.errors import Unavailable
from stado.jobs import endings, ledger, life, rest_rows
from stado.jobs.ledger import Compaction, Ledger, LedgerRead
from stado.jobs.repository import Repository, Stored
from stado.jobs.rest_rows import Ended, RestRows
from stado_agent import request_count
from stado_agent.request_count import RequestCount
from tests.mutants.mutant import Mutant, all_of, replaced, replaced_everywhere

USAGE = "tests/jobs/test_usage.py"
LEDGER = "tests/jobs/test_ledger.py"
ON_HOST = "tests/agent/test_usage.py"
REQUESTS = "tests/agent/test_request_count.py"

_note_use = endings.note_use
_clean_up = endings._clean_up
_ran_until = core.ran_until
_read_uses = ledger.read_uses
_find_row = rest_rows.RestRows.find
_told = request_count.RequestCount.told
_begin_epoch = request_count.RequestCount.begin_epoch


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


def held_by_nobody(
    self: Compaction, index: LedgerIndex | None, uses: dict[str, Use]
) -> tuple[list[str], set[tuple[str, int]], str | None]:
    return list(uses), set(), None


def sweep_at_once(self: Compaction) -> int:
    """Without the index written anew before."""
    stored = self._ledger.index()
    named = {ref.name for ref in stored.value.segments} if stored is not None else set()
    lost = [
        entry.key
        for entry in self._repo.store.list(keys.LEDGER_SEGMENTS)
        if entry.key.rpartition("/")[2] not in named
    ]
    for key in lost:
        self._repo.store.delete(key, None)
    return len(lost)


def put_index(self: Ledger, index: LedgerIndex, before: Stored[LedgerIndex] | None) -> None:
    self._index = Stored(index, self._repo.store.put(keys.LEDGER, index.encode()))


def index_first(ledger: Ledger, repo: Repository, **options: Any) -> LedgerRead:
    """Before the names are listed."""
    stored = ledger.index()
    with_old = replaced_index(ledger, stored)
    return _read_uses(with_old, repo, **options)


def replaced_index(ledger: Ledger, stored: Stored[LedgerIndex] | None) -> Ledger:
    ledger.index = lambda: stored  # type: ignore[method-assign]
    return ledger


def told_anew(self: RequestCount) -> StoreRequests | None:
    self._told = None
    return _told(self)


def counted_from_then_on(self: RequestCount, *, told: bool) -> None:
    _begin_epoch(self, told=True)


def believed(self: RestRows, key: str, version: str | None) -> Ended | None:
    row = self._read().get(key)
    return None if row is None else _find_row(self, key, row.version)


MUTANTS = (
    Mutant(
        "rows of lists count whatever version they are of",
        "A kept row counts where the listing shows its very version.",
        "tests/jobs/test_rest_rows.py::test_what_has_changed_since_is_read",
        replaced(rest_rows.RestRows, "find", believed),
    ),
    Mutant(
        "compaction looks into no segment",
        "What a segment of the ledger has is not taken again.",
        f"{LEDGER}::test_what_is_noted_again_after_it_was_taken_counts_once",
        replaced(ledger.Compaction, "_held", held_by_nobody),
    ),
    Mutant(
        "the index of the ledger is written without a condition",
        "The index is replaced by version.",
        f"{LEDGER}::test_of_two_compactions_each_use_comes_into_one_segment",
        replaced(ledger.Ledger, "write_index", put_index),
        arguments={"steps": 5},
    ),
    Mutant(
        "the sweep of the ledger leaves the index alone",
        "Before a segment of nobody goes the index is written anew.",
        f"{LEDGER}::test_a_slow_compaction_makes_the_index_name_no_segment_that_was_swept",
        replaced(ledger.Compaction, "sweep", sweep_at_once),
        fails_with=Unavailable,
    ),
    Mutant(
        "readers get the index before the names",
        "Who reads the ledger lists the names first.",
        f"{LEDGER}::test_a_reader_sees_each_use_once_whatever_is_compacted_meanwhile",
        replaced_everywhere(ledger, "read_uses", index_first),
        arguments={"steps": 1},
    ),
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
        "what was asked of the store is counted anew for each try of a verdict",
        "A verdict that is given again is the same.",
        f"{REQUESTS}::test_a_verdict_whose_answer_was_lost_is_still_ones_own",
        replaced(RequestCount, "told", told_anew),
    ),
    Mutant(
        "who adopts counts requests from then on",
        "What nobody told of the epoch before is told of the one that was adopted.",
        f"{REQUESTS}::test_who_adopts_tells_what_was_asked_before_too",
        replaced(RequestCount, "begin_epoch", counted_from_then_on),
    ),
    Mutant(
        "a seal forgets when its epoch was heard",
        "A seal keeps the last sign of life of its epoch.",
        f"{USAGE}::test_a_seal_says_when_its_epoch_was_heard_last",
        replaced(life, "_last_sign", lambda *_: None),
    ),
)
