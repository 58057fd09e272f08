"""Room for jobs that would find none: kept for them, and made by those that may yield."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.admission import Card, Offer, Reservation, choose_cards
from stado.core.order import needs_of
from stado.core.records import RoomNote
from stado.core.settings import DeploymentSettings, with_value
from stado.core.spec import Spec
from stado.core.states import State
from stado.core.yields import Running
from stado.jobs.asking import ask_to_yield
from stado.jobs.rooms import Rooms
from stado.ports import Accelerator
from stado_agent.making_room import (
    KEEP_AFTER_SECONDS,
    YIELD_AFTER_SECONDS,
    HostNow,
    RoomMaker,
    RoomWaits,
)
from tests.agent.test_agent import NAME, Host
from tests.jobs.world import BOB, LEASE, World

CARD_MIB = 24 * 1024


def card(uuid: str, kind: str = "geforce-rtx-4090") -> Accelerator:
    return Accelerator(
        uuid=uuid,
        kind=kind,
        index=0,
        vram_total_mib=CARD_MIB,
        vram_used_mib=0,
        vram_free_mib=CARD_MIB - 300,
    )


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def states(host: Host, job_id: str) -> set[State]:
    return host.world.states(job_id)


def test_a_more_urgent_job_displaces_one_that_may_yield(host: Host) -> None:
    """R157: it is saved, put back, and goes on afterwards."""
    host.script(500)
    (old,) = host.submit("true", cpu=4, yieldable=True, max_yields=1)
    host.step_to_start()
    host.step_for(60)
    (urgent,) = host.submit("true", cpu=4, priority=5)
    host.step_to_start(2)
    assert states(host, old) == {State.QUEUED}
    assert host.world.record(State.QUEUED, old).yields == 1
    host.step_until_at_rest(urgent)
    host.step_until_at_rest(old)
    assert states(host, old) == states(host, urgent) == {State.COMPLETED}
    assert host.world.names(keys.ROOMS) == []


def test_nothing_is_stopped_in_vain(host: Host) -> None:
    """R157: the room of all that may yield would not do, or they are as urgent, or protected."""
    host.script(2000)
    (small,) = host.submit("true", cpu=1, yieldable=True, max_yields=5)
    (equal,) = host.submit("true", cpu=1, priority=5, yieldable=True, max_yields=5)
    (closed,) = host.submit("true", cpu=2)
    host.step_to_start(3)
    (urgent,) = host.submit("true", cpu=2, priority=5)
    host.step_for(4 * YIELD_AFTER_SECONDS)
    assert all(states(host, job) == {State.RUNNING} for job in (small, equal, closed))
    assert states(host, urgent) == {State.QUEUED}


def test_who_loses_the_least_work_makes_room(host: Host) -> None:
    """R157"""
    host.script(1000)
    (first,) = host.submit("true", cpu=2, yieldable=True, max_yields=1)
    host.step_to_start()
    host.step_for(100)
    (second,) = host.submit("true", cpu=2, yieldable=True, max_yields=1)
    host.step_to_start(2)
    host.step_for(30)
    host.submit("true", cpu=1, priority=5)
    host.step_to_start(3)
    assert (states(host, first), states(host, second)) == ({State.RUNNING}, {State.QUEUED})


def test_a_job_that_wants_the_host_for_itself_does_not_starve(host: Host) -> None:
    """R185: behind small ones that never leave the host empty."""
    host.script(300)
    (alone,) = host.submit("true", exclusive=True, cpu=1)
    host.world.submit(*["true"] * 3)
    host.step_to_start()
    host.step_until_at_rest(alone)
    host.submit(*["true"] * 4, cpu=1)
    host.step_to_start(4)
    (next_alone,) = host.submit("true", exclusive=True, cpu=1)
    for _ in range(12):
        host.step_for(100)
        host.submit("true", cpu=1)
    host.step_for(KEEP_AFTER_SECONDS)
    assert State.QUEUED not in states(host, next_alone)


def test_who_stands_before_the_job_is_still_let_in(host: Host) -> None:
    """Room is kept from those that stand behind it alone."""
    host.script(3000)
    host.submit("true", cpu=3)
    host.step_to_start()
    (large,) = host.submit("true", cpu=4, priority=1)
    host.step_for(KEEP_AFTER_SECONDS + 150)
    assert host.capacity().keeps_room_for == large
    (behind,) = host.submit("true", cpu=1)
    host.step_for(60)
    (before,) = host.submit("true", cpu=1, priority=2)
    host.step_for(120)
    assert (states(host, behind), states(host, before)) == ({State.QUEUED}, {State.RUNNING})


def test_who_is_let_in_beside_a_kept_card_gets_another_one(host: Host) -> None:
    """R183: although the kept one would do, and comes first."""
    host.script(3000)
    host.hardware.devices = [card("GPU-a", "a100"), card("GPU-b", "a100"), card("GPU-c")]
    host.submit("true", gpus=1, gpu_type="a100", cpu=1)
    host.step_to_start()
    (large,) = host.submit("true", gpus=2, gpu_type="a100", cpu=1, priority=1)
    host.step_until(lambda: host.capacity().keeps_room_for is not None)
    assert host.capacity().keeps_room_for == large
    host.submit("true", gpus=1, cpu=1)
    host.step_to_start(2)
    assert sorted(note.cards for note in host.folder.notes()) == [("GPU-a",), ("GPU-c",)]


def test_one_host_keeps_room_for_a_job(host: Host) -> None:
    """Another one that keeps it already is left to that, until it was silent for a lease."""
    repo = host.world.repo
    ours = Rooms(repo, consumer=NAME, incarnation="a")
    theirs = Rooms(repo, consumer=BOB.consumer, incarnation="b")
    job = host.world.submit()
    kept = theirs.keep(job)
    assert kept is not None
    assert ours.keep(job) is None
    host.clock.sleep(LEASE)
    kept = theirs.renew(kept)
    assert kept is not None
    assert ours.keep(job) is None
    host.clock.sleep(LEASE + 1)
    taken = ours.keep(job)
    assert taken is not None
    assert theirs.renew(kept) is None
    theirs.give_up(kept)
    found = repo.find(RoomNote, keys.room(job))
    assert found is not None
    assert found.value.consumer == NAME
    ours.give_up(taken)
    assert repo.find(RoomNote, keys.room(job)) is None


def test_notes_of_hosts_that_are_gone_are_forgotten(host: Host) -> None:
    rooms = Rooms(host.world.repo, consumer=NAME, incarnation="a")
    rooms.keep(host.world.submit())
    assert rooms.sweep() == 0
    host.clock.sleep(11 * LEASE)
    assert rooms.sweep() == 1


def test_a_host_that_small_jobs_fill_exactly_keeps_room_all_the_same(host: Host) -> None:
    """A large job of the highest priority does not starve behind small ones."""
    host.script(300)
    host.world.submit(*["true"] * 4)
    host.step_to_start(4)
    (large,) = host.submit("true", cpu=4, priority=9)
    host.world.submit(*["true"] * 60)
    for _ in range(40):
        host.step_for(60)
        if State.QUEUED not in states(host, large):
            break
    assert State.QUEUED not in states(host, large)


def test_no_room_is_made_where_others_use_what_is_missing(host: Host) -> None:
    """R157: memory that no job of ours has does not get free."""
    host.script(5000)
    host.hardware.memory_available_gb = 10
    host.step_for(1)
    (victim,) = host.submit("true", yieldable=True, max_yields=5)
    host.step_to_start()
    host.submit("true", memory_gb=12, priority=5)
    host.step_for(KEEP_AFTER_SECONDS + 120)
    assert states(host, victim) == {State.RUNNING}
    assert host.world.names(keys.ROOMS) == []
    (behind,) = host.submit("true")
    host.step_for(60)
    assert states(host, behind) == {State.RUNNING}


def test_no_room_is_made_for_a_job_that_a_limit_holds_back(host: Host) -> None:
    """R157"""
    settings = with_value(DeploymentSettings(), "groups.limits", {"lic": 0})
    host.world.store.create(keys.SETTINGS, settings.encode())
    host.script(5000)
    (victim,) = host.submit("true", cpu=4, yieldable=True, max_yields=5)
    host.step_to_start()
    host.submit("true", cpu=4, priority=5, group="lic")
    host.step_for(4 * YIELD_AFTER_SECONDS)
    assert states(host, victim) == {State.RUNNING}


def test_no_room_is_made_for_a_job_that_another_host_is_asked_for(host: Host) -> None:
    """R157: of five things that it asks for four are in its name."""
    facts = ["a=1", "b=2", "c=3", "d=4"]
    host.agent = host.new_agent(labels=tuple(facts))
    host.script(5000)
    (victim,) = host.submit("true", cpu=4, yieldable=True, max_yields=5)
    host.step_to_start()
    for kind in ("x", "y", "z", "u", "v"):
        host.submit("true", cpu=4, priority=5, labels=facts, machine_type=kind)
    host.step_for(4 * YIELD_AFTER_SECONDS)
    assert states(host, victim) == {State.RUNNING}


def test_what_was_asked_and_cannot_be_read_stops_nothing_else(host: Host) -> None:
    host.script(5000)
    (first, second) = host.submit("true", "true", cpu=2, yieldable=True, max_yields=1)
    host.step_to_start(2)
    for job in (first, second):
        host.world.store.put(keys.asks(job, 1), b"rubbish")
    host.submit("true", cpu=2, priority=5)
    host.step_for(120)
    assert states(host, first) == states(host, second) == {State.RUNNING}
    assert host.capacity().hindrance is None


def test_an_agent_that_is_started_again_asks_nobody_in_place_of_who_was_asked(host: Host) -> None:
    """R157: one job makes room, and not the next one too because the first takes long to save."""
    world = host.world
    running = [_started(world, lost_seconds=seconds) for seconds in (500.0, 60.0)]
    first, second = running
    ask_to_yield(world.repo, first.job_id, first.epoch, by=NAME, note="asked by the agent before")
    world.submit(spec=Spec(command="", cpu=2, priority=5))

    def without(gone: Sequence[Running]) -> Offer:
        return Offer(cpu_milli=2000 * len(gone), memory_mib=4096)

    maker = RoomMaker(
        world.repo,
        consumer=NAME,
        incarnation="2",
        is_for_us=lambda _: True,
        waits=RoomWaits(yield_after_seconds=0),
    )
    maker.turn(world.entries(), HostNow(without([]), without(running), running, without))
    assert maker.kept_for is not None
    assert world.repo.find_asks(second.job_id, second.epoch) is None


def test_who_goes_anyway_is_counted_on_before_others_are_asked(host: Host) -> None:
    """R157: although two others lose less, and would do by themselves."""
    world = host.world
    running = [_started(world, lost_seconds=seconds) for seconds in (500.0, 10.0, 20.0)]
    first, *others = running
    ask_to_yield(world.repo, first.job_id, first.epoch, by=NAME, note="asked by the agent before")
    world.submit(spec=Spec(command="", cpu=4, priority=5))

    def without(gone: Sequence[Running]) -> Offer:
        return Offer(cpu_milli=2000 * len(gone), memory_mib=8192)

    maker = RoomMaker(
        world.repo,
        consumer=NAME,
        incarnation="2",
        is_for_us=lambda _: True,
        waits=RoomWaits(yield_after_seconds=0),
    )
    maker.turn(world.entries(), HostNow(without([]), without(running), running, without))
    asked = [world.repo.find_asks(one.job_id, one.epoch) is not None for one in others]
    assert asked == [True, False]


def test_the_card_that_gets_free_is_kept_and_not_a_freer_one_that_stays_in_use(
    host: Host,
) -> None:
    """R157, R183: of three cards one is free, one job that goes has a part of another one, and one
    that stays has less of the third."""
    world = host.world
    going = _started(world, lost_seconds=5.0, vram_gb=10)
    world.submit(spec=Spec(command="", cpu=1, gpus=2, priority=5))
    world.submit(spec=Spec(command="", cpu=1, vram_gb=10))
    waiting, behind = world.entries()
    free = Card("GPU-free", "rtx", CARD_MIB, CARD_MIB)
    in_use = Card("GPU-in-use", "rtx", CARD_MIB, CARD_MIB - 1024, taken=True)

    def without(gone: Sequence[Running]) -> Offer:
        part = Card("GPU-part", "rtx", CARD_MIB, CARD_MIB)
        part = part if gone else part.less(going.held.needs)
        return Offer(cpu_milli=4000, memory_mib=8192, cards=(free, in_use, part))

    maker = RoomMaker(
        world.repo,
        consumer=NAME,
        incarnation="1",
        is_for_us=lambda _: True,
        waits=RoomWaits(yield_after_seconds=0),
    )
    maker.turn([waiting, behind], HostNow(without([]), without([going]), [going], without))
    assert maker.kept_for == waiting.job_id
    given = choose_cards(behind.needs, maker.open_to(behind, without([]), set()).cards)
    assert given == ("GPU-in-use",)


def _started(world: World, *, lost_seconds: float, **stated: float) -> Running:
    world.submit(spec=Spec(command="", cpu=2, yieldable=True, max_yields=1, **stated))
    record = world.start().record
    held = Reservation(needs_of(record.spec))
    return Running(record.id, record.epoch, 0, held, yields_left=1, lost_seconds=lost_seconds)


def test_a_note_that_was_written_without_an_answer_is_ours(host: Host) -> None:
    repo = host.world.repo
    rooms = Rooms(repo, consumer=NAME, incarnation="a")
    kept = rooms.keep(host.world.submit())
    assert kept is not None
    unheard = rooms.renew(kept)
    assert unheard is not None
    again = rooms.renew(kept)
    assert again is not None
    assert again.version == unheard.version


def test_a_note_that_cannot_be_read_is_replaced(host: Host) -> None:
    job = host.world.submit()
    host.world.store.put(keys.room(job), b"rubbish")
    rooms = Rooms(host.world.repo, consumer=NAME, incarnation="a")
    assert rooms.keep(job) is not None


# Cards


def test_two_trainings_never_have_one_card(host: Host) -> None:
    """R183: disjoint sets of whole cards, and the third waits."""
    host.script(100)
    host.hardware.devices = [card("GPU-a"), card("GPU-b"), card("GPU-c")]
    jobs = host.submit(*["true"] * 3, gpus=2, cpu=0.5)
    host.step_to_start()
    host.step_for(20)
    assert host.running() == 1
    host.step_until(lambda: all(host.at_rest(job) for job in jobs))
    for job in jobs:
        holder = host.world.record(State.COMPLETED, job).holder
        assert holder is not None
        assert (holder.gpus, len(set(holder.cards))) == (2, 2)
        assert holder.hardware == "2x geforce-rtx-4090"


def test_parts_of_a_card_run_beside_each_other(host: Host) -> None:
    """R183: until its memory is given away."""
    host.script(100)
    host.hardware.devices = [card("GPU-a")]
    jobs = host.submit(*["true"] * 4, vram_gb=8, cpu=0.5)
    most = []

    def done() -> bool:
        most.append(host.running())
        return all(host.at_rest(job) for job in jobs)

    host.step_until(done)
    assert max(most) == 2  # of 24 GiB the driver keeps a little
    holder = host.world.record(State.COMPLETED, jobs[0]).holder
    assert holder is not None
    assert (holder.gpus, holder.gpu_share, holder.cards) == (1, 0.337, ["GPU-a"])


def test_cards_are_known_to_be_taken_after_a_restart_of_the_agent(host: Host) -> None:
    """The notes of living supervisors say which."""
    host.script(1000)
    host.hardware.devices = [card("GPU-a"), card("GPU-b")]
    host.submit("true", gpus=1)
    host.step_to_start()
    host.agent = host.new_agent()
    host.agent.take_back()
    host.submit("true", gpus=2)
    host.step_for(60)
    assert host.running() == 1
    host.submit("true", gpus=1)
    host.step_to_start(2)
    given = [note.cards for note in host.folder.notes()]
    assert sorted(given) == [("GPU-a",), ("GPU-b",)]
