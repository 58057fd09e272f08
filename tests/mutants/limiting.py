"""Limits that a deployment shares, without one of their rules."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from stado.core import budgets as core_budgets
from stado.core import keys
from stado.core import quotas as core_quotas
from stado.core.quotas import Scope, free_slots
from stado.core.records import Holder, Record, SlotToken
from stado.core.window_words import Window
from stado.jobs import budget_keeping, claim, endings, quotas
from stado.jobs.quotas import SlotSweep
from stado.jobs.repository import Repository, Stored
from stado.storage.port import Version
from stado_agent import agent
from stado_agent.held_back import HeldBack
from tests.mutants.mutant import Mutant, replaced

QUOTAS = "tests/jobs/test_quotas.py"
WINDOWS = "tests/jobs/test_window_sight.py"
BUDGETS = "tests/jobs/test_budgets.py"
CARDS = "tests/agent/test_shared_limits.py"
AGENTS = "tests/agent/test_windows.py"
SPENT = "tests/agent/test_spent_budgets.py"

Failed = pytest.fail.Exception


def lost_unless_confirmed(self: SlotSweep, token: SlotToken) -> bool:
    ended = self._repo.find_end(token.job_id, token.epoch) is not None
    return not token.confirmed or ended


def free_whatever_is_there(repo: Repository, key: str, version: Version) -> bool:
    repo.store.delete(key, None)
    return True


def take_what_is_there(
    repo: Repository,
    scope: Scope,
    record: Record,
    holder: Holder,
    taken: list[Stored[SlotToken]],
) -> None:
    found = quotas.slots_in(repo, keys.slots_of(scope.name))
    wanted = free_slots(set(found), scope.limit)[: scope.places]
    tokens = [quotas._token(repo, scope, slot, record, holder) for slot in wanted]
    quotas._write_all(repo, tokens, found, taken)


def holds_on_its_day(self: Window, local: datetime) -> bool:
    minute = local.hour * 60 + local.minute
    return local.weekday() in self.days and minute >= self.opens


MUTANTS = (
    Mutant(
        "places are not confirmed",
        "A claimer runs nothing whose place was freed before it had the claim.",
        f"{QUOTAS}::test_a_claimer_that_finds_its_place_freed_gives_the_epoch_back_untouched",
        replaced(claim, "confirm", lambda *_: True),
    ),
    Mutant(
        "the sweep frees what was claimed",
        "A place whose epoch was claimed with it is freed by the end of that epoch alone.",
        f"{QUOTAS}::test_the_sweep_leaves_the_place_of_an_epoch_that_lives",
        replaced(SlotSweep, "_is_lost", lost_unless_confirmed),
        {"confirmed": False},
    ),
    Mutant(
        "places are freed whoever has them",
        "A place is freed only as the one that was read.",
        f"{QUOTAS}::test_the_sweep_and_a_claimer_meet_over_one_place",
        replaced(quotas, "_free", free_whatever_is_there),
    ),
    Mutant(
        "ends free no place",
        "Whoever settles an epoch gives its places back.",
        f"{QUOTAS}::test_whoever_ends_an_epoch_frees_its_place",
        replaced(endings, "release_slots", lambda *_: None),
    ),
    Mutant(
        "nobody looks for lost places",
        "A place that a dead claimer had taken is freed after a lease.",
        f"{QUOTAS}::test_a_claimer_that_dies_before_its_claim_leaves_a_place_for_a_lease",
        replaced(SlotSweep, "_look", lambda *_: False),
    ),
    Mutant(
        "one place for all cards",
        "A job takes a place for each of its cards.",
        f"{QUOTAS}::test_a_job_has_a_place_for_each_of_its_cards_under_each_limit",
        replaced(core_quotas, "cards_counted", lambda needs: int(needs.uses_cards)),
    ),
    Mutant(
        "some of its cards are kept",
        "A job has all places that it asks for, or none.",
        f"{QUOTAS}::test_a_job_takes_all_of_its_cards_or_none",
        replaced(quotas, "give_back", lambda *_: None),
    ),
    Mutant(
        "a part of its cards is enough",
        "A job starts with places for all of its cards.",
        f"{QUOTAS}::test_a_job_takes_all_of_its_cards_or_none",
        replaced(quotas, "_take", take_what_is_there),
        fails_with=Failed,
    ),
    Mutant(
        "too large a job is tried again and again",
        "A job that asks for more cards than there may be is in nobody's way.",
        f"{CARDS}::test_a_job_of_more_cards_than_there_may_be_is_in_nobodys_way",
        replaced(agent, "asks_for_too_much", lambda *_: False),
        {"name": "quotas.running_gpus"},
    ),
    Mutant(
        "claims heed no window",
        "Nothing is claimed while no window is open for it.",
        f"{WINDOWS}::test_nothing_is_claimed_and_nothing_written_while_no_window_is_open",
        replaced(claim, "check_windows", lambda *_: None),
        {"whose": "all"},
        fails_with=Failed,
    ),
    Mutant(
        "agents forget whose windows are closed",
        "Of a user whose windows are closed one job of a submission is read, and no more.",
        f"{AGENTS}::test_jobs_start_when_their_window_opens_and_are_left_alone_until_then",
        replaced(HeldBack, "holds_up", lambda *_: False),
        {"whose": "user.ada"},
    ),
    Mutant(
        "claims heed no budget",
        "Nothing is claimed of who has spent his budget.",
        f"{BUDGETS}::test_nothing_is_claimed_and_nothing_written_while_the_budget_is_spent",
        replaced(claim, "check_budgets", lambda *_: None),
        {"whose": "all"},
        fails_with=Failed,
    ),
    Mutant(
        "room is made whatever is spent",
        "No job yields for one that could not start then.",
        f"{SPENT}::test_no_room_is_made_for_a_job_whose_budget_is_spent",
        replaced(agent, "is_held", lambda *_: False),
    ),
    Mutant(
        "a budget never begins anew",
        "Who has spent his budget waits until its period is over, and no longer.",
        "tests/core/test_budgets.py::test_a_new_period_frees_by_itself",
        replaced(core_budgets, "begin_of", lambda *_: datetime(2000, 1, 1, tzinfo=UTC)),
    ),
    Mutant(
        "what cannot be read is not spent",
        "Who had spent his budget has not spent less because a segment cannot be read.",
        f"{BUDGETS}::test_a_segment_that_cannot_be_read_frees_nobody",
        replaced(budget_keeping, "not_below", lambda rows, *_: rows),
    ),
    Mutant(
        "a window over midnight ends with its day",
        "A window that closes before it opens goes on over midnight.",
        "tests/core/test_windows.py::test_a_window_is_told_by_days_and_times",
        replaced(Window, "holds", holds_on_its_day),
        {
            "rule": "all:fri@18:00-08:00",
            "open_at": ["12-04T18:00", "12-05T07:59"],
            "closed_at": ["12-05T08:00"],
        },
    ),
)
