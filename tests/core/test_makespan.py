"""Which host should run which job."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from stado.core import makespan
from stado.core.admission import Card, Offer, Reservation
from stado.core.hints import Estimates, Measured
from stado.core.makespan import (
    KINDS_MAX,
    Plan,
    PlanHost,
    Running,
    Unplanned,
    earliest_start,
    plan_jobs,
)
from stado.core.order import Needs, ReadyEntry, model_code
from stado.core.runtimes import RunTimes
from tests.core.records import NOW

ONE = Needs(1000, 1024)
NOW_MS = 1_000_000


def entry(
    number: int, seconds: int | None = None, *, priority: int = 0, **needs: object
) -> ReadyEntry:
    wants = replace(ONE, runtime_seconds=seconds, **needs)  # type: ignore[arg-type]
    return ReadyEntry(f"e{number}", priority, number, f"job-{number}", 1, wants)


def host(name: str, *, cores: int = 1, cards: Sequence[Card] = (), **more: object) -> PlanHost:
    offer = Offer(cores * 1000, cores * 1024, disk_mib=0, cards=tuple(cards))
    return replace(PlanHost(name, offer, offer), **more)  # type: ignore[arg-type]


def card(number: int, free_mib: int = 80_000) -> Card:
    return Card(f"GPU-{number}", "a100", total_mib=80_000, free_mib=free_mib)


def plan(entries: Sequence[ReadyEntry], *hosts: PlanHost, times: RunTimes | None = None) -> Plan:
    return plan_jobs(entries, hosts, times or RunTimes(), now_ms=NOW_MS)


def places(found: Plan) -> dict[str, tuple[str, int]]:
    """Host and seconds from now, by job."""
    return {one.entry.job_id: (one.host, (one.begins_ms - NOW_MS) // 1000) for one in found.placed}


def codes(found: Plan) -> dict[str, Unplanned]:
    return {one.job_id: why for why, some in found.unplanned.items() for one in some}


def test_the_longest_goes_first_and_the_last_end_is_early() -> None:
    """R161: two hosts, and jobs of 60, 40, 30 and 10 minutes end within 70."""
    found = plan([entry(n, s) for n, s in enumerate([600, 1800, 2400, 3600])], host("a"), host("b"))
    assert places(found) == {
        "job-3": ("a", 0),
        "job-2": ("b", 0),
        "job-1": ("b", 2400),
        "job-0": ("a", 3600),
    }
    assert found.ends_ms == NOW_MS + 1000 * 4200


def test_a_higher_priority_is_placed_before_a_longer_job() -> None:
    found = plan([entry(1, 60, priority=5), entry(2, 9000)], host("a"))
    assert places(found) == {"job-1": ("a", 0), "job-2": ("a", 60)}


def test_priority_is_no_evidence_of_a_run_time() -> None:
    """R162, R164"""
    jobs = [entry(1, priority=9), entry(2), entry(3, 60)]
    found = plan(jobs, host("a"))
    assert list(places(found)) == ["job-3"]
    assert codes(found) == dict.fromkeys(("job-1", "job-2"), Unplanned.NO_RUN_TIME)


def test_what_was_measured_places_a_job_where_it_was() -> None:
    """R160"""
    times = RunTimes(
        Estimates(
            counter=1,
            at=NOW,
            read_to_ms=0,
            measured=[
                Measured(model="resnet", hardware="fast", seconds=[60], ended_ms=[1]),
                Measured(model="resnet", hardware="slow", seconds=[600], ended_ms=[1]),
            ],
        )
    )
    code = model_code("resnet")
    hosts = [host(name, machine_type=name) for name in ("slow", "fast", "strange")]
    found = plan([entry(n, model=code) for n in range(12)], *hosts, times=times)
    assert Counter(name for name, _ in places(found).values()) == {"fast": 11, "slow": 1}


def test_no_job_is_placed_where_it_would_end_too_late() -> None:
    """R161"""
    deadline_ms = NOW_MS + 100_000
    jobs = [entry(n, 60, deadline_ms=deadline_ms) for n in range(3)]
    found = plan(jobs, host("a"), host("b"))
    assert len(found.placed) == 2
    assert list(codes(found).values()) == [Unplanned.TOO_LATE]


def test_the_host_that_costs_less_is_taken_where_the_end_is_equal() -> None:
    """R161"""
    found = plan([entry(1, 3600)], host("dear", price_per_hour=3.0), host("cheap"))
    assert places(found) == {"job-1": ("cheap", 0)}
    (dear,) = plan([entry(1, 1800)], host("dear", price_per_hour=3.0)).placed
    assert dear.cost == 1.5


def test_a_busy_host_is_waited_for_until_its_job_ends() -> None:
    busy = host("busy", left=Offer(0, 0), running=(Running(Reservation(ONE), NOW_MS + 30_000),))
    assert places(plan([entry(1, 60)], busy)) == {"job-1": ("busy", 30)}
    assert earliest_start(ONE, busy, now_ms=NOW_MS) == NOW_MS + 30_000


def test_nothing_is_guessed_of_a_running_job_whose_run_time_is_not_known() -> None:
    busy = host("busy", left=Offer(0, 0), running=(Running(Reservation(ONE), None),))
    assert codes(plan([entry(1, 60)], busy)) == {"job-1": Unplanned.NO_HOST}
    assert earliest_start(ONE, busy, now_ms=NOW_MS) is None


def test_whole_cards_are_given_to_one_job_at_a_time() -> None:
    box = host("box", cores=8, cards=[card(0), card(1)])
    found = plan([entry(n, 60, gpus=1) for n in range(3)], box)
    assert sorted(begins for _, begins in places(found).values()) == [0, 0, 60]


def test_a_card_is_shared_by_as_many_as_it_has_memory_for() -> None:
    box = host("box", cores=8, cards=[card(0)])
    found = plan([entry(n, 60, vram_mib=30_000) for n in range(3)], box)
    assert sorted(begins for _, begins in places(found).values()) == [0, 0, 60]


def test_a_card_is_whole_again_once_all_its_jobs_have_ended() -> None:
    part = Reservation(replace(ONE, vram_mib=20_000), ("GPU-0",))
    left = Offer(6000, 6144, disk_mib=0, cards=(replace(card(0, 40_000), taken=True),), jobs=2)
    running = (Running(part, NOW_MS + 10_000), Running(part, NOW_MS + 20_000))
    box = host("box", cores=8, cards=[card(0)], left=left, running=running)
    assert earliest_start(replace(ONE, gpus=1), box, now_ms=NOW_MS) == NOW_MS + 20_000


def test_a_small_job_uses_the_time_before_a_large_one() -> None:
    running = (Running(Reservation(replace(ONE, cpu_milli=3000)), NOW_MS + 100_000),)
    box = host("box", cores=4, left=Offer(1000, 3072, disk_mib=0, jobs=1), running=running)
    found = plan([entry(1, 900, cpu_milli=4000), entry(2, 60)], box)
    assert places(found) == {"job-1": ("box", 100), "job-2": ("box", 0)}


def test_an_exclusive_job_has_its_host_alone() -> None:
    found = plan([entry(1, 600, exclusive=True), entry(2, 60)], host("a", cores=4))
    assert places(found) == {"job-1": ("a", 0), "job-2": ("a", 600)}


def test_no_host_is_ever_given_more_than_it_has() -> None:
    """Whatever is planned beside each other, on what others have left."""
    dice = random.Random(17)
    for _ in range(60):
        running = tuple(
            Running(Reservation(ONE), dice.choice((None, NOW_MS + dice.randint(1, 90_000))))
            for _ in range(dice.randint(0, 2))
        )
        cards = tuple(card(number) for number in range(2))
        left = Offer((6 - len(running)) * 1000, 6 * 1024, disk_mib=0, cards=cards)
        boxes = [
            host(name, cores=6, cards=cards, left=left, running=running) for name in ("a", "b")
        ]
        found = plan([_drawn(dice, number) for number in range(30)], *boxes)
        assert not found.unplanned
        for one in found.placed:
            beside = [
                other.entry.needs
                for other in found.placed
                if other.host == one.host and other.begins_ms <= one.begins_ms < other.ends_ms
            ]
            lasting = sum(r.ends_ms is None or r.ends_ms > one.begins_ms for r in running)
            assert sum(needs.cpu_milli for needs in beside) <= (6 - lasting) * 1000
            shares = -(-sum(needs.vram_mib for needs in beside) // 80_000)
            assert sum(needs.gpus for needs in beside) + shares <= 2


def test_the_budget_holds_for_what_is_tried_on_hosts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many different shapes wait: the first in the order of the queue are tried. What
    has no run time is tried nowhere, and takes no other's place."""
    tried = Counter[str]()
    real = makespan.admit

    def counted(needs: Needs, offer: Offer, *, now_ms: int) -> object:
        tried[f"c{needs.cpu_milli}"] += 1
        return real(needs, offer, now_ms=now_ms)

    monkeypatch.setattr(makespan, "admit", counted)
    shapes = [entry(n, 60, cpu_milli=n) for n in range(1, 501)]
    unknown = [entry(1000 + n, priority=9, cpu_milli=n, model="abcde") for n in range(1, 501)]
    late = [entry(2000, 60, priority=1, cpu_milli=600)]
    found = plan([*unknown, *shapes, *late], host("a"), host("b"))
    assert tried.total() == 2 * KINDS_MAX
    assert set(codes(found).values()) == {Unplanned.NO_RUN_TIME, Unplanned.NOT_PLANNED}
    assert [one.job_id for one in found.unplanned[Unplanned.NOT_PLANNED]] == [
        f"job-{n}" for n in range(KINDS_MAX, 501)
    ]
    assert "job-2000" in places(found)


def _drawn(dice: random.Random, number: int) -> ReadyEntry:
    asked: dict[str, int] = dice.choice(({}, {"gpus": 1}, {"gpus": 2}, {"vram_mib": 30_000}))
    seconds, priority = dice.randint(1, 300), dice.choice((0, 0, 7))
    return entry(number, seconds, priority=priority, cpu_milli=dice.choice((500, 3000)), **asked)


def test_ten_thousand_jobs_cost_about_as_much_as_their_kinds() -> None:
    """A hundred times as many jobs of the same kinds on 50 hosts: far less than a hundred times
    the work."""
    hosts = [host(f"h{n}", cores=8) for n in range(50)]

    def seconds(count: int) -> float:
        jobs = [entry(n, 100 * (1 + n % 5)) for n in range(count)]
        began = time.process_time()
        assert len(plan(jobs, *hosts).placed) == count
        return time.process_time() - began

    rounds = [(seconds(100), seconds(10_000)) for _ in range(3)]  # others use the machine, too
    few, many = (min(times) for times in zip(*rounds, strict=True))
    assert many < 70 * few
