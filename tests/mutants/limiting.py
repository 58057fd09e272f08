"""Limits that a deployment shares, without one of their rules."""

from __future__ import annotations

from stado.core.records import SlotToken
from stado.jobs import claim, endings, quotas
from stado.jobs.quotas import SlotSweep
from stado.jobs.repository import Repository
from stado.storage.port import Version
from tests.mutants.mutant import Mutant, replaced

QUOTAS = "tests/jobs/test_quotas.py"


def lost_unless_confirmed(self: SlotSweep, token: SlotToken) -> bool:
    ended = self._repo.find_end(token.job_id, token.epoch) is not None
    return not token.confirmed or ended


def free_whatever_is_there(repo: Repository, key: str, version: Version) -> bool:
    repo.store.delete(key, None)
    return True


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
)
