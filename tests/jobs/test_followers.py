"""Followers and the holder of a job find each other by a note, whatever their clocks say."""

from __future__ import annotations

from datetime import timedelta

import pytest

from stado.core import keys
from stado.jobs.followers import (
    FRESH_SECONDS,
    LOOK_SECONDS,
    RENEWAL_SECONDS,
    FollowerNote,
    FollowerSight,
)
from stado.storage.faults import Fault, FaultKind, FaultyStore, ScriptedFaults
from stado.storage.observe import CountingStore, Operation
from tests.jobs.world import World

JOB = "a" * 16
KEY = keys.follow_note(JOB)


def follow(world: World, notes: list[FollowerNote], seconds: int) -> None:
    for _ in range(seconds):
        for note in notes:
            note.renew_when_due()
        world.clock.sleep(1)


def test_a_follower_is_seen_at_the_next_look_and_forgotten_when_gone(world: World) -> None:
    sight = FollowerSight(world.repo, JOB)
    assert not sight.anybody()
    note = FollowerNote(world.repo, JOB)
    follow(world, [note], round(LOOK_SECONDS))
    assert sight.anybody()
    for _ in range(600):
        follow(world, [note], 1)
        assert sight.anybody()
    world.clock.sleep(FRESH_SECONDS)
    sight.anybody()
    world.clock.sleep(FRESH_SECONDS)
    assert not sight.anybody()


def test_a_note_of_yesterday_is_taken_for_one_window_and_no_longer(world: World) -> None:
    FollowerNote(world.repo, JOB).renew_when_due()
    world.clock.sleep(timedelta(days=1).total_seconds())
    sight = FollowerSight(world.repo, JOB)
    assert sight.anybody()
    world.clock.sleep(FRESH_SECONDS)
    assert not sight.anybody()


def test_looks_and_renewals_are_bounded_whoever_asks_however_often(world: World) -> None:
    counting = CountingStore(world.store, world.tasks)
    repo = world.repo_over(counting)
    sight, notes = FollowerSight(repo, JOB), [FollowerNote(repo, JOB) for _ in range(20)]
    followed = 0
    for second in range(3600):
        for note in notes[: 1 + second]:
            note.renew_when_due()
        followed += sight.anybody()
        world.clock.sleep(1)
    requests = counting.snapshot()
    assert followed == 3600
    assert requests.of(Operation.GET) == 3600 / LOOK_SECONDS
    assert 3600 / RENEWAL_SECONDS <= requests.writes <= 3600 / RENEWAL_SECONDS + len(notes)
    assert requests.of(Operation.HEAD) <= len(notes) * 3600 / RENEWAL_SECONDS


def test_who_may_not_write_follows_all_the_same_and_asks_once(world: World) -> None:
    faults = ScriptedFaults(Fault(FaultKind.DENIED, times=9))
    counting = CountingStore(FaultyStore(world.store, world.clock, faults), world.tasks)
    note = FollowerNote(world.repo_over(counting), JOB)
    follow(world, [note], 600)
    assert counting.snapshot().of() == 1


@pytest.mark.parametrize("kind", [FaultKind.UNAVAILABLE, FaultKind.LOST_ANSWER])
def test_a_store_that_is_away_costs_promptness_alone(world: World, kind: FaultKind) -> None:
    faults = ScriptedFaults(Fault(kind, key_prefix=KEY, times=4))
    repo = world.repo_over(FaultyStore(world.store, world.clock, faults))
    note, sight = FollowerNote(repo, JOB), FollowerSight(repo, JOB)
    seen = []
    for _ in range(300):
        follow(world, [note], 1)
        seen.append(sight.anybody())
    assert faults.used_up
    assert seen[-1]


def test_what_a_note_says_decides_nothing(world: World) -> None:
    world.store.put(KEY, b"{")
    assert FollowerSight(world.repo, JOB).anybody()
