"""Places under limits: taken, confirmed, given back, found again."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from stado.core import keys
from stado.core.order import ReadyEntry, needs_of
from stado.core.quotas import ScopeKind, asks_for_too_much, free_slots
from stado.core.records import SlotToken
from stado.core.settings import DeploymentSettings, GroupSettings, Quotas
from stado.core.spec import Spec
from stado.core.states import Reason, State, Verdict
from stado.jobs.changes import cancel
from stado.jobs.claim import Claimed, adopt, claim, holder_of
from stado.jobs.deletion import delete
from stado.jobs.endings import settle
from stado.jobs.quotas import ScopeFull, SlotSweep, find_token, take_slots
from stado.jobs.reaping import Reaper
from stado.storage.observe import CountingStore
from stado.storage.port import Store
from tests.jobs.actors import Actor
from tests.jobs.world import ALICE, BOB, World

TWO = DeploymentSettings(quotas=Quotas(running_jobs=2))
ONE = DeploymentSettings(quotas=Quotas(running_jobs=1))
NARROW = DeploymentSettings(
    quotas=Quotas(running_jobs=9, running_jobs_per_user=5),
    groups=GroupSettings(limits={"licences": 1}),
)


def start(world: World, settings: DeploymentSettings, number: int = 0) -> Claimed:
    claimed = claim(world.repo, world.entries()[number], ALICE, settings)
    assert claimed is not None
    return claimed


def held(world: World) -> list[str]:
    """Places that are not free."""
    return [entry.key for entry in world.listed(keys.QUOTA) if entry.size]


def token_of(world: World, key: str) -> SlotToken:
    found = find_token(world.repo, key)
    assert found is not None
    return found.value


def wait_a_lease(world: World) -> None:
    world.clock.sleep(world.repo.deployment.lease_seconds + 1)


# --- which places may be taken ------------------------------------------------------------


@pytest.mark.parametrize(
    ("taken", "limit", "free"),
    [
        ([], 3, [0, 1, 2]),
        ([1], 3, [0, 2]),
        ([0, 1, 2], 3, []),
        ([], 0, []),
        ([3, 4], 2, []),
        ([4], 2, [0]),
        ([1, 4], 2, []),
        ([0, 4, 5], 4, [1]),
        ([2, 3, 4], 4, [0]),
    ],
)
def test_with_places_beyond_a_lowered_limit_so_many_fewer_are_free(
    taken: Sequence[int], limit: int, free: Sequence[int]
) -> None:
    """R64: a limit that is lowered ends nothing, and lets nothing in until there is room."""
    assert free_slots(set(taken), limit) == list(free)


def test_whoever_takes_places_in_whatever_order_stays_within_a_lowered_limit() -> None:
    """Each may have looked before the last places beyond it were freed."""
    taken = {0, 3, 5, 6}
    usable = set(free_slots(taken, 4)) | set(free_slots(taken - {6}, 4))
    assert len((taken - {6}) | usable) <= 4


# --- claims -------------------------------------------------------------------------------


def test_a_claim_has_a_confirmed_place_under_each_limit(world: World) -> None:
    """R4, R39, R64"""
    world.submit(spec=Spec(command="", group="licences"))
    claimed = start(world, NARROW)
    holder = claimed.record.holder
    assert holder is not None
    tokens = [token_of(world, keys.slot_named(name)) for name in holder.slots]
    submitter = claimed.record.submitter
    assert [token.scope for token in tokens] == ["group.licences", f"user.{submitter}", "all"]
    assert all(token.confirmed and token.token == holder.token for token in tokens)
    world.end(claimed)
    assert held(world) == []


def test_one_job_more_than_may_run_is_told_so_and_keeps_no_place(world: World) -> None:
    """R39, R64: and an end lets it in."""
    world.submit("a", "b", spec=Spec(command="", group="licences"))
    first = start(world, NARROW)
    before = held(world)
    with pytest.raises(ScopeFull, match=r"all 1 places of group\.licences are taken") as full:
        claim(world.repo, world.entries()[0], BOB, NARROW)
    assert full.value.scope.kind is ScopeKind.GROUP
    assert held(world) == before
    world.end(first)
    assert start(world, NARROW)


def test_a_limit_of_none_lets_nothing_in(world: World) -> None:
    world.submit()
    with pytest.raises(ScopeFull):
        start(world, DeploymentSettings(quotas=Quotas(running_jobs=0)))


def test_no_request_is_made_for_limits_that_a_job_does_not_fall_under(world: World) -> None:
    world.submit()
    counting = CountingStore(world.store, world.tasks)
    settings = DeploymentSettings(groups=GroupSettings(limits={"licences": 1}))
    assert claim(world.repo_over(counting), world.entries()[0], ALICE, settings)
    asked = counting.snapshot()
    assert (asked.writes, asked.reads, asked.deletes, asked.lists) == (2, 1, 2, 0)


def test_of_many_claimers_as_many_win_as_may() -> None:
    """R64"""
    for _ in range(5):
        world = World()
        world.submit(*[f"echo {number}" for number in range(8)])
        answers = claims_at_once(world, TWO)
        won = [answer for answer in answers if isinstance(answer, Claimed)]
        assert len(won) <= 2
        assert sum(isinstance(answer, ScopeFull) for answer in answers) == 8 - len(won)
        assert len(held(world)) == len(won)


def claims_at_once(world: World, settings: DeploymentSettings) -> list[object]:
    """Of each job in the queue, by a thread of its own."""
    answers: list[object] = []

    def attempt(entry: ReadyEntry) -> None:
        try:
            answers.append(claim(world.repo, entry, ALICE, settings))
        except ScopeFull as full:
            answers.append(full)

    threads = [threading.Thread(target=attempt, args=(entry,)) for entry in world.entries()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_a_claimer_that_loses_gives_its_place_back(world: World) -> None:
    world.submit()
    (entry,) = world.entries()
    slow = Actor(world.store, lambda store: claim(world.repo_over(store), entry, ALICE, TWO))
    slow.step(3)  # the record, the listing, the place
    first = start(world, TWO)
    slow.finish()
    assert slow.result is None
    assert held(world) == [keys.slot_named(name) for name in first.record.holder.slots]  # type: ignore[union-attr]


# --- ends ---------------------------------------------------------------------------------


def test_whoever_ends_an_epoch_frees_its_place(world: World) -> None:
    """A reaper of a silent holder, and a pause."""
    world.submit()
    start(world, ONE)
    world.lose(Reaper(world.repo, by="coordinator"))
    assert held(world) == []
    second = start(world, ONE)
    assert second.record.epoch == 2
    world.end(second, Verdict.PAUSED)
    assert held(world) == []


def test_settling_an_old_epoch_again_leaves_the_place_of_who_has_it_now(world: World) -> None:
    job = world.submit()
    world.submit()
    first = start(world, ONE)
    world.end(first)
    second = start(world, ONE)
    world.repo.store.create(keys.record(State.RUNNING, job), first.record.encode())
    settle(world.repo, job, 1)
    (key,) = held(world)
    assert token_of(world, key).job_id == second.record.id


# --- cards --------------------------------------------------------------------------------

CARDS = DeploymentSettings(
    quotas=Quotas(running_gpus=6, running_gpus_per_user=4),
    groups=GroupSettings(gpus={"big": 3}),
)


def scopes_held(world: World) -> Counter[str]:
    return Counter(token_of(world, key).scope for key in held(world))


def test_a_job_has_a_place_for_each_of_its_cards_under_each_limit(world: World) -> None:
    """R4, R39, R64"""
    world.submit(spec=Spec(command="", group="big", gpus=3))
    claimed = start(world, CARDS)
    assert claimed.record.holder is not None
    assert len(claimed.record.holder.slots) == 9
    assert scopes_held(world) == {"gpus-group.big": 3, "gpus-user.ada": 3, "gpus": 3}
    assert all(token_of(world, key).confirmed for key in held(world))
    world.end(claimed)
    assert held(world) == []


@pytest.mark.parametrize(
    ("asked", "counted"),
    [
        ({"gpus": 2}, 2),
        ({"gpus": 2, "vram_gb": 10}, 2),
        ({"vram_gb": 10}, 1),
        ({"gpu_type": "a100"}, 1),
        ({}, 0),
    ],
)
def test_a_shared_card_counts_as_one_and_a_job_without_cards_as_none(
    world: World, asked: dict[str, Any], counted: int
) -> None:
    """R64: as in what is said of a job's use."""
    world.submit(spec=Spec(command="", **asked))
    start(world, DeploymentSettings(quotas=Quotas(running_gpus=9)))
    assert len(held(world)) == counted


def test_a_job_takes_all_of_its_cards_or_none(world: World) -> None:
    """R64: also of other limits, which it found before the one that is full."""
    settings = DeploymentSettings(quotas=Quotas(running_gpus=3, running_gpus_per_user=9))
    world.submit("a", "b", spec=Spec(command="", gpus=2))
    start(world, settings)
    before = held(world)
    with pytest.raises(ScopeFull, match="less than 2 of the 3 places of gpus are free"):
        claim(world.repo, world.entries()[0], BOB, settings)
    assert held(world) == before
    world.submit(spec=Spec(command="", gpus=1))
    assert start(world, settings, number=1)


def test_a_job_of_more_cards_than_there_may_be_never_fits(world: World) -> None:
    world.submit(spec=Spec(command="", gpus=5))
    with pytest.raises(ScopeFull) as full:
        start(world, CARDS)
    assert full.value.scope.never_fits
    assert held(world) == []


def test_of_two_who_begin_at_once_one_has_all_of_its_cards(world: World) -> None:
    """Who loses the first place leaves the others alone until it has looked again."""
    world.submit("a", "b", spec=Spec(command="", gpus=3))
    settings = DeploymentSettings(quotas=Quotas(running_gpus=4))
    first, second = (
        Actor(world.store, lambda store, one=one: attempt(world, store, one, settings))
        for one in world.entries()
    )
    first.step(2)  # the record and the listing
    second.step(2)
    first.step()  # the first place
    second.step()
    first.finish()
    second.finish()
    assert isinstance(first.result, Claimed)
    assert isinstance(second.result, ScopeFull)
    assert len(held(world)) == 3


def test_two_who_have_a_part_each_both_give_it_back(world: World) -> None:
    """Neither holds some cards while it waits for more of them."""
    world.submit("a", "b", spec=Spec(command="", gpus=3))
    settings = DeploymentSettings(quotas=Quotas(running_gpus=4))
    one, other = world.entries()
    first = Actor(world.store, lambda store: attempt(world, store, one, settings))
    first.step(3)  # it has the first place, and is about to take the others
    second = Actor(world.store, lambda store: attempt(world, store, other, settings))
    second.step(4)  # the second place, and the third
    first.finish()
    second.finish()
    results = [first.result, second.result]
    won = [one for one in results if isinstance(one, Claimed)]
    assert len(won) <= 1
    assert all(isinstance(one, (Claimed, ScopeFull)) for one in results)
    assert len(held(world)) == 3 * len(won)


def attempt(
    world: World, store: Store, entry: ReadyEntry, settings: DeploymentSettings
) -> Claimed | ScopeFull | None:
    try:
        return claim(world.repo_over(store), entry, ALICE, settings)
    except ScopeFull as full:
        return full


def test_of_many_claimers_no_more_cards_are_held_than_may_be() -> None:
    """R64"""
    settings = DeploymentSettings(quotas=Quotas(running_gpus=5))
    for _ in range(5):
        world = World()
        for cards in (1, 2, 3, 1, 2, 3):
            world.submit(spec=Spec(command="", gpus=cards))
        answers = claims_at_once(world, settings)
        won = [answer for answer in answers if isinstance(answer, Claimed)]
        cards_held = sum(one.record.spec.gpus or 0 for one in won)
        assert cards_held == len(held(world)) <= 5


def test_the_price_of_cards_is_what_the_protocol_says(world: World) -> None:
    world.submit(spec=Spec(command="", gpus=8))
    counting = CountingStore(world.store, world.tasks)
    quotas = Quotas(running_gpus=9, running_gpus_per_user=9)
    before_end = DeploymentSettings(quotas=quotas)
    claimed = claim(world.repo_over(counting), world.entries()[0], ALICE, before_end)
    assert claimed is not None
    asked = counting.snapshot()
    assert (asked.lists, asked.writes) == (2, 2 + 32)


def test_the_cards_of_a_claimer_that_died_are_found_by_the_sweep(world: World) -> None:
    world.submit(spec=Spec(command="", gpus=3))
    (entry,) = world.entries()
    slow = Actor(world.store, lambda store: claim(world.repo_over(store), entry, ALICE, CARDS))
    slow.step(4)
    slow.kill()
    assert len(held(world)) == 2
    wait_a_lease(world)
    assert len(SlotSweep(world.repo).turn()) == 2


@pytest.mark.parametrize(
    ("spec", "settings", "too_much"),
    [
        (Spec(command="", gpus=5), CARDS, True),
        (Spec(command="", gpus=4), CARDS, False),
        (Spec(command="", gpus=4, group="big"), CARDS, True),
        (Spec(command="", vram_gb=1), DeploymentSettings(quotas=Quotas(running_gpus=0)), True),
        (Spec(command=""), DeploymentSettings(quotas=Quotas(running_gpus=0)), False),
        (Spec(command="", gpus=64), DeploymentSettings(), False),
    ],
)
def test_an_entry_shows_that_its_job_asks_for_too_many_cards(
    spec: Spec, settings: DeploymentSettings, too_much: bool
) -> None:
    assert asks_for_too_much(needs_of(spec), settings) is too_much


# --- the sweep ----------------------------------------------------------------------------


def test_a_claimer_that_dies_before_its_claim_leaves_a_place_for_a_lease(world: World) -> None:
    world.submit()
    (entry,) = world.entries()
    slow = Actor(world.store, lambda store: claim(world.repo_over(store), entry, ALICE, ONE))
    slow.step(3)
    slow.kill()
    (left,) = held(world)
    assert SlotSweep(world.repo).turn() == []
    wait_a_lease(world)
    assert SlotSweep(world.repo).turn() == [left]
    assert start(world, ONE)


def test_a_claimer_that_finds_its_place_freed_gives_the_epoch_back_untouched(world: World) -> None:
    """It stood still between its place and its claim. Nothing counts against the job."""
    job = world.submit()
    (entry,) = world.entries()
    slow = Actor(world.store, lambda store: claim(world.repo_over(store), entry, ALICE, ONE))
    slow.step(3)
    wait_a_lease(world)
    SlotSweep(world.repo).turn()
    slow.finish()
    assert slow.result is None
    cell = world.repo.find_end(job, 1)
    assert cell is not None
    assert (cell.ending.verdict, cell.ending.reason) == (Verdict.LOST, Reason.HOST_UNABLE)
    again = start(world, ONE)
    assert (again.record.epoch, again.record.lease_losses, again.record.starts) == (2, 0, 0)


def test_the_sweep_and_a_claimer_meet_over_one_place(world: World) -> None:
    """The sweep has read it and found no claim; by then it is confirmed."""
    world.submit()
    (entry,) = world.entries()
    slow = Actor(world.store, lambda store: claim(world.repo_over(store), entry, ALICE, ONE))
    slow.step(3)
    wait_a_lease(world)
    sweep = Actor(world.store, lambda store: SlotSweep(world.repo_over(store)).turn())
    sweep.step(3)  # the listing, the place, no claim
    slow.finish()
    sweep.finish()
    assert isinstance(slow.result, Claimed)
    assert sweep.result == []
    (key,) = held(world)
    assert token_of(world, key).confirmed


@pytest.mark.parametrize("confirmed", [False, True])
def test_the_sweep_leaves_the_place_of_an_epoch_that_lives(world: World, confirmed: bool) -> None:
    world.submit()
    (entry,) = world.entries()
    slow = Actor(world.store, lambda store: claim(world.repo_over(store), entry, ALICE, ONE))
    slow.step(6 if confirmed else 5)
    (left,) = held(world)
    assert token_of(world, left).confirmed is confirmed
    wait_a_lease(world)
    assert SlotSweep(world.repo).turn() == []
    slow.finish()
    assert isinstance(slow.result, Claimed)


def test_the_sweep_frees_what_an_ended_or_deleted_job_still_has(world: World) -> None:
    job = world.submit()
    claimed = start(world, ONE)
    (key,) = held(world)
    token = token_of(world, key)
    world.end(claimed)
    world.repo.store.create(key, token.encode())
    wait_a_lease(world)
    assert SlotSweep(world.repo).turn() == [key]
    delete(world.repo, job, by="ada")
    world.repo.store.create(key, token.encode())
    wait_a_lease(world)
    assert SlotSweep(world.repo).turn() == [key]


def test_the_sweep_frees_a_place_of_an_epoch_that_was_cancelled_before(world: World) -> None:
    job = world.submit()
    (entry,) = world.entries()
    slow = Actor(world.store, lambda store: claim(world.repo_over(store), entry, ALICE, ONE))
    slow.step(3)
    slow.kill()
    cancel(world.repo, job, by="ada")
    wait_a_lease(world)
    assert len(SlotSweep(world.repo).turn()) == 1


def test_a_place_that_cannot_be_read_is_told_and_stays(world: World) -> None:
    world.repo.store.create(keys.slot("all", 0), b"nonsense")
    wait_a_lease(world)
    assert SlotSweep(world.repo).turn() == []
    assert len(held(world)) == 1


def test_a_store_that_cannot_delete_by_version_keeps_free_places_empty() -> None:
    world = World()
    proof = world.deployment.proof.evolve(conditional_delete=False)
    world.deployment = world.deployment.evolve(proof=proof)
    world.repo = world.repo_over(world.store)
    world.submit("a", "b")
    world.end(start(world, ONE))
    (entry,) = world.listed(keys.QUOTA)
    assert entry.size == 0
    second = start(world, ONE)
    assert second.record.holder is not None
    assert held(world) == [entry.key]


# --- adoption -----------------------------------------------------------------------------


def test_who_adopts_an_epoch_needs_a_place_anew(world: World) -> None:
    """Its own was freed when it was declared lost; here others have it by now."""
    world.submit("a", "b")
    first = start(world, ONE)
    world.lose(Reaper(world.repo, by="coordinator"))
    following = world.record(State.QUEUED, first.record.id)
    holder = holder_of(world.repo, ALICE, adopts=first.record.holder)
    slots = take_slots(world.repo, following, holder, ONE)
    holder = holder.evolve(slots=slots.names)
    adopted = adopt(world.repo, following, holder, slots)
    assert adopted is not None
    assert [token_of(world, key).epoch for key in held(world)] == [2]
    with pytest.raises(ScopeFull):
        claim(world.repo, world.entries()[0], BOB, ONE)


def test_a_verdict_of_others_before_the_place_is_confirmed_ends_the_claim(world: World) -> None:
    job = world.submit()
    (entry,) = world.entries()
    slow = Actor(world.store, lambda store: claim(world.repo_over(store), entry, ALICE, ONE))
    slow.step(5)
    world.lose(Reaper(world.repo, by="coordinator"))
    slow.finish()
    assert slow.result is None
    assert world.states(job) == {State.QUEUED}
    assert held(world) == []
