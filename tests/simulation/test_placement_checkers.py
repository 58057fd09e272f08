"""The checkers of what hosts give away, of room that is made and kept, and of jobs that wait say so
when their rule is broken, and nothing when none is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from stado.core import keys
from stado.core.order import entry_name
from stado.core.records import Asks, Record, RoomNote
from stado.core.settings import DeploymentSettings, Quotas
from stado.core.states import State, Verdict
from stado.storage.observe import Operation
from stado_agent.making_room import RoomWaits
from tests.simulation.bench import PLAN, Bench, changed, made_bench
from tests.simulation.checkers.base import Checker
from tests.simulation.checkers.capacity import CapacityChecker
from tests.simulation.checkers.rooms import RoomsChecker
from tests.simulation.checkers.starving import StarvingChecker
from tests.simulation.checkers.yields import YieldsChecker
from tests.simulation.hardware import CardPlan, HostPlan
from tests.simulation.process import Order, SimChannel, SimProcess

_GIB = 1024
_HOST = HostPlan(
    cpu=4.0,
    memory_gb=8.0,
    cards=(
        CardPlan("GPU-a", "a100-sxm4-40gb", 40 * _GIB),
        CardPlan("GPU-b", "geforce-rtx-4090", 24 * _GIB, others_mib=8 * _GIB),
    ),
    labels=("zone=a",),
)
_PLAN = replace(
    PLAN,
    hosts=(_HOST, HostPlan()),
    room_waits=RoomWaits(yield_after_seconds=1.0, keep_after_seconds=10.0),
)
_VRAM_GB = 10.0


@contextmanager
def bench_with(*kinds: type[Checker]) -> Iterator[Bench]:
    with made_bench(*kinds, plan=_PLAN) as bench:
        yield bench


@pytest.fixture
def capacity() -> Iterator[Bench]:
    with bench_with(CapacityChecker) as bench:
        yield bench


def begin(bench: Bench, run_id: str, *, cards: tuple[str, ...] = (), **stated: Any) -> Record:
    """A job whose command lives on the first host."""
    record = bench.claim(bench.submit(run_id=run_id, **stated), worker_of(bench))
    bench.start(record, by=worker_of(bench), cards=cards)
    return record


def worker_of(bench: Bench) -> SimProcess:
    """Another supervisor for each job."""
    return bench.world.hosts[0].new_process("supervisor")


# --- what hosts give away -----------------------------------------------------------------


def test_what_fits_breaks_no_rule(capacity: Bench) -> None:
    """Up to the last core, byte and card; and again once somebody has ended."""
    begin(capacity, "one", cpu=2.0, memory_gb=4.0, gpus=1, gpu_type="a100", cards=("GPU-a",))
    begin(capacity, "part", cpu=1.0, vram_gb=_VRAM_GB, cards=("GPU-b",))
    last = begin(capacity, "other", cpu=1.0, memory_gb=3.0, vram_gb=6.0, cards=("GPU-b",))
    for command in list(capacity.world.hosts[0].commands):
        if command.job_id == last.id:
            command.die(0)
    begin(capacity, "next", cpu=1.0, memory_gb=3.0, labels=["zone=a"])
    assert capacity.violation == ""


@pytest.mark.parametrize(
    ("stated", "text"),
    [
        ({"cpu": 3.0}, "have 5 cores of 4"),
        ({"cpu": 1.0, "memory_gb": 7.5}, "have 8.5 GiB of 8 on"),
        ({"cpu": 1.0, "disk_gb": 60.0}, "have 120 GiB of 100 of disk"),
        ({"cpu": 1.0, "exclusive": True}, "one of them has it for itself"),
    ],
)
def test_more_than_there_is(capacity: Bench, stated: dict[str, Any], text: str) -> None:
    begin(capacity, "one", cpu=2.0, disk_gb=60.0)
    assert capacity.violation == ""
    begin(capacity, "two", **stated)
    assert text in capacity.violation


def test_a_whole_card_that_two_have(capacity: Bench) -> None:
    begin(capacity, "one", gpus=1, cards=("GPU-a",))
    begin(capacity, "two", gpus=1, cards=("GPU-a",))
    assert "have GPU-a, one of them all of it" in capacity.violation


def test_a_part_of_a_card_that_somebody_has_all_of(capacity: Bench) -> None:
    begin(capacity, "one", gpus=1, cards=("GPU-a",))
    begin(capacity, "two", vram_gb=_VRAM_GB, cards=("GPU-a",))
    assert "have GPU-a, one of them all of it" in capacity.violation


def test_parts_of_a_card_that_others_use(capacity: Bench) -> None:
    """Of its 24 GiB they have 8."""
    begin(capacity, "one", vram_gb=_VRAM_GB, cards=("GPU-b",))
    begin(capacity, "two", vram_gb=_VRAM_GB, cards=("GPU-b",))
    assert "20480 MiB of GPU-b are given, and 16384 are left" in capacity.violation


@pytest.mark.parametrize(
    ("stated", "cards"),
    [
        ({"gpus": 2}, ("GPU-a",)),
        ({"gpus": 1, "gpu_type": "a100"}, ("GPU-b",)),
        ({"vram_gb": 4.0}, ()),
        ({}, ("GPU-a",)),
        ({"gpus": 1}, ("GPU-z",)),
    ],
)
def test_other_cards_than_were_asked_for(
    capacity: Bench, stated: dict[str, Any], cards: tuple[str, ...]
) -> None:
    begin(capacity, "one", cards=cards, **stated)
    assert "cards and has" in capacity.violation


@pytest.mark.parametrize("stated", [{"labels": ["zone=b"]}, {"machine_type": "large"}])
def test_a_host_that_is_not_what_was_asked_for(capacity: Bench, stated: dict[str, Any]) -> None:
    begin(capacity, "one", **stated)
    assert "asks for another host" in capacity.violation


@pytest.mark.parametrize(("seconds", "text"), [(1.0, ""), (1000.0, "got GPU-a, which ails since")])
def test_a_card_that_has_ailed_for_long(capacity: Bench, seconds: float, text: str) -> None:
    """One that has just begun to may have been looked at before."""
    capacity.world.hosts[0].fall_ill("GPU-a")
    capacity.wait(seconds)
    begin(capacity, "one", gpus=1, cards=("GPU-a",))
    assert text in capacity.violation
    assert bool(text) == bool(capacity.violation)


# --- who makes room -----------------------------------------------------------------------


class Asking:
    """An agent that looks at who waits, and asks jobs of its host to make room for it."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.agent = bench.agent

    def look(self, waiter: Record) -> None:
        key = keys.record(State.QUEUED, waiter.id)
        self._request(Operation.GET, key)

    def keep(self, waiter: Record) -> None:
        consumer = f"agent@{self.agent.host.name}"
        now = self.bench.repo.now()
        note = RoomNote(job_id=waiter.id, consumer=consumer, incarnation="one", counter=1, at=now)
        self.bench.write(self.agent, keys.room(waiter.id), note)
        self._request(Operation.CREATE, keys.room(waiter.id))

    def renew(self, waiter: Record) -> None:
        self.keep(waiter)
        self._request(Operation.REPLACE, keys.room(waiter.id))

    def ask(self, victim: Record, waiter: Record) -> None:
        key = keys.asks(victim.id, victim.epoch)
        note = f"job {waiter.id} with priority {waiter.priority:,} waits for room"
        asked = Asks(give_way=True, give_way_note=note, nonce="a")
        self._request(Operation.GET, key)
        self.bench.write(self.agent, key, asked)

    def go_on(self) -> None:
        """To whatever comes next."""
        self._request(Operation.LIST, keys.READY)

    def take_back(self, waiter: Record) -> None:
        self.bench.delete(self.agent, keys.room(waiter.id))
        self._request(Operation.DELETE, keys.room(waiter.id))

    def let_in(self, queued: Record) -> None:
        """And it is claimed."""
        ours, theirs = SimChannel.pair(self.bench.world.kernel)
        theirs.order = Order(self.agent, self.bench.world.kernel.now, entry_name(queued))
        self.agent.host.orders.append(theirs.order)
        worker = worker_of(self.bench)
        worker.start(lambda: None, ends=(ours, theirs))
        self.bench.claim(queued, worker)

    def _request(self, operation: Operation, key: str) -> None:
        for checker in self.bench.world.checkers:
            checker.on_request(self.agent, operation, key)


YIELDS: dict[str, Any] = {"yieldable": True, "max_yields": 1}


@pytest.fixture
def asking() -> Iterator[Asking]:
    with ExitStack() as stack:
        yield Asking(stack.enter_context(bench_with(YieldsChecker, RoomsChecker)))


def test_room_that_is_made_as_it_should_be_breaks_no_rule(asking: Asking) -> None:
    """Two are asked where it takes two; what waits behind is let in once room is kept no more."""
    bench = asking.bench
    victims = [begin(bench, f"small-{n}", cpu=2.0, **YIELDS) for n in range(2)]
    waiter = bench.submit(run_id="large", cpu=4.0, priority=5)
    asking.look(waiter)
    asking.renew(waiter)
    asking.look(waiter)
    for victim in victims:
        asking.ask(victim, waiter)
    asking.go_on()
    asking.take_back(waiter)
    bench.wait(1.0)
    asking.let_in(bench.submit(run_id="behind", cpu=1.0))
    bench.look_at_the_end()
    assert bench.violation == ""


def test_a_job_that_is_asked_in_vain(asking: Asking) -> None:
    """Another one, which is protected, has what is missing."""
    bench = asking.bench
    begin(bench, "protected", cpu=2.0)
    victim = begin(bench, "small", cpu=2.0, **YIELDS)
    waiter = bench.submit(run_id="large", cpu=4.0, priority=5)
    asking.keep(waiter)
    asking.look(waiter)
    asking.ask(victim, waiter)
    assert "was asked in vain" in bench.violation


def test_a_job_that_is_asked_though_there_is_room(asking: Asking) -> None:
    bench = asking.bench
    victim = begin(bench, "small", cpu=2.0, **YIELDS)
    waiter = bench.submit(run_id="large", cpu=2.0, priority=5)
    asking.keep(waiter)
    asking.look(waiter)
    asking.ask(victim, waiter)
    assert "which has room without" in bench.violation


def test_more_jobs_are_asked_than_it_takes(asking: Asking) -> None:
    """The second one alone would do; and with both, a third is asked in a later look."""
    bench = asking.bench
    first, second = (begin(bench, f"small-{n}", cpu=n, **YIELDS) for n in (1.0, 3.0))
    waiter = bench.submit(run_id="large", cpu=3.0, priority=5)
    asking.keep(waiter)
    asking.look(waiter)
    asking.ask(first, waiter)
    asking.ask(second, waiter)
    assert bench.violation == ""
    asking.go_on()
    assert "others would have done" in bench.violation


def test_another_one_is_asked_while_enough_are_about_to_go(asking: Asking) -> None:
    bench = asking.bench
    first, second = (begin(bench, f"small-{n}", cpu=2.0, **YIELDS) for n in range(2))
    waiter = bench.submit(run_id="large", cpu=2.0, priority=5)
    asking.keep(waiter)
    asking.look(waiter)
    asking.ask(first, waiter)
    asking.go_on()
    asking.look(waiter)
    asking.ask(second, waiter)
    assert "which has room without" in bench.violation


@pytest.mark.parametrize(
    ("stated", "priority", "text"),
    [({}, 5, "and is protected"), ({**YIELDS, "priority": 5}, 5, "which is no more urgent")],
)
def test_a_job_that_must_not_be_asked(
    asking: Asking, stated: dict[str, Any], priority: int, text: str
) -> None:
    bench = asking.bench
    victim = begin(bench, "small", cpu=4.0, **stated)
    waiter = bench.submit(run_id="large", cpu=4.0, priority=priority)
    asking.keep(waiter)
    asking.look(waiter)
    asking.ask(victim, waiter)
    assert text in bench.violation


def test_a_job_of_another_host_that_is_asked(asking: Asking) -> None:
    bench = asking.bench
    victim = bench.claim(bench.submit(run_id="small", cpu=2.0, **YIELDS), bench.stranger)
    waiter = bench.submit(run_id="large", cpu=4.0, priority=5)
    asking.keep(waiter)
    asking.look(waiter)
    asking.ask(victim, waiter)
    assert "where it does not run" in bench.violation


def test_a_job_that_is_asked_for_one_that_nobody_has_looked_at(asking: Asking) -> None:
    bench = asking.bench
    victim = begin(bench, "small", cpu=4.0, **YIELDS)
    waiter = bench.submit(run_id="large", cpu=4.0, priority=5)
    asking.keep(waiter)
    asking.ask(victim, waiter)
    assert "which was not queued" in bench.violation


def test_a_job_that_is_put_back_though_nobody_asked() -> None:
    with bench_with(YieldsChecker) as bench:
        record = begin(bench, "small", cpu=4.0, **YIELDS)
        bench.end(record, bench.ending(Verdict.YIELDED))
        assert "and nobody had asked" in bench.violation


@pytest.mark.parametrize("adopted", [True, False])
def test_a_job_that_was_asked_in_the_epoch_before(adopted: bool) -> None:
    """Whoever had stopped it by then, and adopted it, puts it back in the next epoch."""
    with bench_with(YieldsChecker) as bench:
        first = begin(bench, "small", cpu=4.0, **YIELDS)
        bench.write(bench.agent, keys.asks(first.id, 1), Asks(give_way=True, nonce="a"))
        second = bench.claim(bench.lose(first))
        cell = bench.repo.claim_cell(second.id, 2)
        assert second.holder is not None
        record = changed(second, holder=second.holder.evolve(adopted=adopted))
        bench.write(bench.worker, cell.own_key(), cell.evolve(record=record))
        bench.end(record, bench.ending(Verdict.YIELDED))
        assert ("and nobody had asked" in bench.violation) is not adopted


def test_a_job_that_is_put_back_more_often_than_it_said() -> None:
    with bench_with(YieldsChecker) as bench:
        record = begin(bench, "small", cpu=4.0)
        bench.write(bench.agent, keys.asks(record.id, 1), Asks(give_way=True, nonce="a"))
        bench.end(record, bench.ending(Verdict.YIELDED))
        assert "and is protected" in bench.violation


# --- room that is kept --------------------------------------------------------------------


def _with_room_made(asking: Asking) -> Record:
    """For the job that it returns, by one of two that run there."""
    bench = asking.bench
    begin(bench, "protected", cpu=1.0)
    victim = begin(bench, "small", cpu=2.0, **YIELDS)
    waiter = bench.submit(run_id="large", cpu=3.0, priority=5)
    asking.keep(waiter)
    asking.look(waiter)
    asking.ask(victim, waiter)
    asking.go_on()
    bench.wait(1.0)
    return waiter


def test_room_that_was_made_goes_to_somebody_else(asking: Asking) -> None:
    _with_room_made(asking)
    asking.let_in(asking.bench.submit(run_id="behind", cpu=1.0))
    assert "where room is kept for" in asking.bench.violation


def test_who_stands_before_may_have_the_room(asking: Asking) -> None:
    _with_room_made(asking)
    asking.let_in(asking.bench.submit(run_id="before", cpu=1.0, priority=9))
    assert asking.bench.violation == ""


def test_jobs_are_asked_by_a_host_that_keeps_no_room(asking: Asking) -> None:
    bench = asking.bench
    victim = begin(bench, "small", cpu=4.0, **YIELDS)
    waiter = bench.submit(run_id="large", cpu=4.0, priority=5)
    asking.look(waiter)
    asking.ask(victim, waiter)
    assert "keeps no room for" in bench.violation


@pytest.mark.parametrize("lives", [True, False])
def test_a_note_that_stays(asking: Asking, lives: bool) -> None:
    """Of who lives and knows of it; the others' are swept in time."""
    asking.renew(asking.bench.submit(run_id="large"))
    if not lives:
        asking.agent.kill()
    asking.bench.look_at_the_end()
    assert ("stays, and host-1 lives" in asking.bench.violation) is lives


# --- who waits ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stated", "waits"),
    [
        ({"cpu": 4.0}, True),
        ({"exclusive": True}, True),
        ({"gpus": 1, "gpu_type": "a100"}, True),
        ({"cpu": 5.0}, False),
        ({"gpus": 2}, False),
        ({"labels": ["zone=b"]}, False),
    ],
)
def test_a_job_that_stands_first_for_ever(stated: dict[str, Any], waits: bool) -> None:
    """One that no host could run waits for another host."""
    with bench_with(StarvingChecker) as bench:
        bench.submit(run_id="large", **stated)
        bench.look()
        bench.wait(bench.world.patience_seconds - 1)
        bench.look()
        assert bench.violation == ""
        bench.wait(2.0)
        bench.look()
        assert ("stood first for" in bench.violation) is waits


def test_a_job_that_waits_for_a_limit_does_not_starve() -> None:
    with bench_with(StarvingChecker) as bench:
        bench.world.settings = DeploymentSettings(quotas=Quotas(running_jobs=1))
        bench.submit(run_id="large")
        bench.look()
        bench.wait(2 * bench.world.patience_seconds)
        bench.look()
        assert bench.violation == ""
