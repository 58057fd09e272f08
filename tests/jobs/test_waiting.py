"""R208: what keeps a job in the queue can be looked at."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from stado.core import keys
from stado.core.moves import told_of
from stado.core.order import entry_key
from stado.core.records import AcceleratorReport, Awaited, Capacity, Hindrance, JobReport, Record
from stado.core.spec import After, Spec
from stado.core.states import State, Verdict
from stado.jobs.capacity import write_capacity
from stado.jobs.changes import pause, pause_queue
from stado.jobs.fitting import GateName, Wait, causes_text
from stado.jobs.health import AgentState, Fleet, agents
from stado.jobs.limit_sight import LimitSight
from stado.jobs.settings import change_setting
from stado.jobs.waiting import Ahead, Explanation, explain, hopeless, waits_of, why_queued
from stado.storage.observe import CountingStore
from tests.jobs.world import TICK, World


def _agent(world: World, name: str = "one", **changes: object) -> None:
    capacity = Capacity(
        consumer=name,
        incarnation="i",
        host="host",
        at=world.repo.now(),
        counter=1,
        broadcast_seconds=TICK,
        cpu_total=4.0,
        cpu_free=4.0,
        memory_total_gb=16.0,
        memory_free_gb=16.0,
        disk_free_gb=100.0,
        disk_left_gb=99.0,
        version="1",
    )
    write_capacity(world.repo, capacity.evolve(**changes))


def _hindrance(world: World, code: str, detail: str) -> Hindrance:
    return Hindrance(code=code, detail=detail, since=world.repo.now())


def _why(world: World, spec: Spec | None = None) -> Wait:
    job = world.submit(spec=spec)
    return why_queued(world.repo, world.record(State.QUEUED, job).spec)


def test_a_paused_queue_is_named_first(world: World) -> None:
    """R208, R209"""
    pause_queue(world.repo, by="ada")
    wait = _why(world, Spec(command="", cpu=64))
    assert wait.code == "queue_paused"
    assert wait.remedy == "`stado queue resume` lets it go on"


def test_a_deadline_that_has_passed_is_named(world: World) -> None:
    """R136, R208"""
    _agent(world)
    deadline = world.repo.now() - timedelta(seconds=1)
    assert _why(world, Spec(command="", deadline_at=deadline)).code == "deadline_passed"


def test_a_fleet_without_a_worker_is_named(world: World) -> None:
    """R208"""
    wait = _why(world)
    assert wait.code == "no_eligible_worker"
    assert wait.remedy is not None
    assert "stado up" in wait.remedy


def test_a_worker_whose_report_cannot_be_read_is_not_taken_for_none(world: World) -> None:
    """R208: it may be a newer one, which takes the job."""
    world.store.put(keys.capacity("newer"), b"{")
    wait = _why(world)
    assert wait.code == "no_eligible_worker"
    assert "1 report of a worker cannot be read" in wait.text
    job = world.submit()
    assert explain(world.repo, world.record(State.QUEUED, job)).wait == wait


def test_workers_that_are_silent_stopped_or_draining_do_not_count(world: World) -> None:
    """R208"""
    _agent(world, "silent")
    world.clock.sleep(10 * TICK)
    _agent(world, "gone", stopped=True)
    _agent(world, "draining", draining=True)
    assert _why(world).code == "no_eligible_worker"


def test_a_job_that_no_worker_could_ever_run_is_told_what_there_is(world: World) -> None:
    """R208"""
    _agent(world, "small")
    _agent(world, "large", cpu_total=8.0, memory_total_gb=32.0)
    wait = _why(world, Spec(command="", cpu=64))
    assert wait.code == "no_eligible_worker"
    assert "needs 64 cores" in wait.text
    assert "of 2 at work the largest has 8 cores" in wait.text


def test_a_job_that_waits_for_room_is_told_so(world: World) -> None:
    """R208"""
    _agent(world, cpu_free=0.5, jobs=[JobReport(job_id="x", epoch=1, signs=1)])
    text = "one is busy with 1 job: it needs 1 core and 1 GiB, and 0.5 cores and 16.0 GiB are free"
    assert _why(world) == Wait("waiting_capacity", text, until=f"when a worker has room: {text}")


def test_a_busy_worker_is_told_with_the_age_of_its_report(world: World) -> None:
    """R208: it may have room by now."""
    _agent(world, cpu_free=0.5)
    world.clock.sleep(12)
    assert _why(world).text.startswith("one is busy with 0 jobs, by its report of 12 s ago: it ")


def test_a_job_that_may_start_is_told_so(world: World) -> None:
    """R208"""
    _agent(world, "busy", cpu_free=0.0)
    _agent(world, "idle")
    assert _why(world).code == "starting"


def test_jobs_that_will_never_start_are_found_in_the_head_of_the_queue(world: World) -> None:
    """R208"""
    _agent(world)
    large = world.submit(spec=Spec(command="", cpu=64))
    late = world.submit(spec=Spec(command="", deadline_at=world.repo.now() - timedelta(seconds=1)))
    world.submit()
    assert sorted(hopeless(world.repo).values()) == sorted([[large], [late]])


def test_a_promise_names_whose_report_it_is_and_how_old(world: World) -> None:
    """R208: the newest report that has room; a late one is no promise."""
    _agent(world, "older")
    world.clock.sleep(5)
    _agent(world, "newer")
    world.clock.sleep(TICK)
    room = "newer has room, by its report of 15 s ago"
    assert _why(world).text == f"{room}: it should start in a moment"
    world.clock.sleep(TICK)
    late = "newer had room for it, but was not heard for 30 s: it starts once a worker is heard"
    assert _why(world).text == late


def test_a_job_behind_others_is_not_promised_the_next_moment(world: World) -> None:
    """R208"""
    _agent(world)
    world.submit()
    behind = world.submit()
    text = "one has room, but 1 job is ahead in the queue"
    assert explain(world.repo, world.record(State.QUEUED, behind)).wait.text == text
    assert why_queued(world.repo, Spec(command=""), behind).text == text


# Workers that do not count


def test_a_job_of_more_cards_than_there_may_be_is_found_with_what_would_help(
    world: World,
) -> None:
    """R64, R208"""
    _agent(world)
    change_setting(world.repo, "quotas.running_gpus", 2, by="operator")
    job = world.submit(spec=Spec(command="", gpus=3))
    (found,) = hopeless(world.repo).items()
    assert found[1] == [job]
    assert found[0].text == "it asks for more cards than such jobs may hold"
    assert "quotas.running_gpus" in (found[0].remedy or "")


def test_jobs_that_a_window_holds_up_are_not_ahead_in_the_queue(world: World) -> None:
    """R64: as far as their entries show it."""
    _agent(world)
    change_setting(world.repo, "windows.rules", ["group.big:mon@00:00-01:00@UTC"], by="operator")
    world.submit(spec=Spec(command="", group="big"))
    change_setting(world.repo, "quotas.running_gpus", 2, by="operator")
    world.submit(spec=Spec(command="", gpus=3))
    job = world.submit()
    wait = explain(world.repo, world.record(State.QUEUED, job)).wait
    assert wait.text.endswith("it should start in a moment")


def test_a_hindered_worker_is_not_able(world: World) -> None:
    """R208, A78: the sentence of what hinders it is the remedy."""
    hindrance = _hindrance(world, "disk_full", "its disk is full: free 3 GiB")
    _agent(world, "box", hindrance=hindrance)
    job = world.submit()
    wait = why_queued(world.repo, Spec(command=""))
    assert wait.code == "no_eligible_worker"
    assert "1 host: disk full" in wait.text
    assert wait.remedy == "box: its disk is full: free 3 GiB"
    assert hopeless(world.repo) == {wait: [job]}


def test_a_hindrance_cannot_pass_for_room(world: World) -> None:
    """A78: its code is text of a store."""
    _agent(world, hindrance=_hindrance(world, "has_room", "nothing works here"))
    assert _why(world).code == "no_eligible_worker"


def test_a_worker_that_is_late_by_three_reports_is_stale_and_not_free(world: World) -> None:
    """A34"""
    _agent(world, "off")
    world.clock.sleep(3 * TICK)
    (sight,) = agents(world.repo)
    assert sight.state is AgentState.WORKING
    world.clock.sleep(1)
    (sight,) = agents(world.repo)
    assert sight.state is AgentState.STALE
    wait = _why(world)
    assert wait.code == "no_eligible_worker"
    assert "1 host: stale" in wait.text


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, AgentState.WORKING),
        ({"draining": True}, AgentState.DRAINING),
        ({"stopped": True, "draining": True}, AgentState.STOPPED),
    ],
)
def test_the_state_of_an_agent(world: World, changes: dict[str, Any], state: AgentState) -> None:
    _agent(world, **changes)
    assert [sight.state for sight in agents(world.repo)] == [state]


def test_looking_again_reads_only_what_is_new(world: World) -> None:
    store = CountingStore(world.store, world.tasks)
    fleet = Fleet(world.repo_over(store))
    for name in ("one", "two", "three"):
        _agent(world, name)
    assert len(fleet.look()) == 3
    before = store.snapshot()
    world.clock.sleep(10 * TICK)
    _agent(world, "two", counter=2)
    states = {sight.capacity.consumer: sight.state.value for sight in fleet.look()}
    assert states == {"one": "stale", "two": "working", "three": "stale"}
    made = store.since(before)
    assert (made.lists, made.reads) == (1, 1)


# The long form


def _explained(world: World, spec: Spec | None = None) -> Explanation:
    job = world.submit(spec=spec)
    return explain(world.repo, world.record(State.QUEUED, job))


def _closed(explanation: Explanation) -> list[str]:
    return [gate.name.value for gate in explanation.gates if gate.wait is not None]


def test_all_closed_gates_are_told_in_order(world: World) -> None:
    """R14, R47: the queue, then the deadline, then the workers; the first is the answer."""
    pause_queue(world.repo, by="ada")
    late = Spec(command="", deadline_at=world.repo.now() - timedelta(seconds=1))
    explanation = _explained(world, late)
    assert _closed(explanation) == ["queue", "deadline", "workers"]
    assert explanation.wait.code == "queue_paused"
    assert [gate.name for gate in explanation.gates] == [
        GateName.QUEUE,
        GateName.DEADLINE,
        GateName.WORKERS,
    ]


def test_hosts_are_counted_by_cause(world: World) -> None:
    """A78: each host once."""
    _agent(world, "drains", draining=True)
    _agent(world, "hindered", hindrance=_hindrance(world, "disk_full", "free some"))
    _agent(world, "small", cpu_total=1.0, cpu_free=1.0)
    explanation = _explained(world, Spec(command="", cpu=2))
    assert causes_text(explanation.hosts) == "3 hosts: 1 draining, 1 disk full, 1 too small"
    assert _closed(explanation) == ["ready"]
    assert causes_text(explanation.hosts) in explanation.wait.text


def test_a_disk_is_as_large_as_jobs_may_fill_it(world: World) -> None:
    """What the host keeps free is nobody's, however long a job waits."""
    _agent(world, disk_total_gb=100.0, disk_reserve_gb=5.0)
    text = _why(world, Spec(command="", disk_gb=97)).text
    assert "no worker is so large" in text
    assert "the largest disk 95.0 GiB for jobs" in text
    assert "no worker is so large" not in _why(world, Spec(command="", disk_gb=95)).text


def test_a_job_too_large_for_the_one_that_drains_too_is_too_large(world: World) -> None:
    """A78: waiting for the drained one to come back would be in vain."""
    _agent(world, "drains", draining=True)
    explanation = _explained(world, Spec(command="", memory_gb=64))
    assert _closed(explanation) == ["size"]
    assert "the largest memory is 16.0 GiB" in explanation.wait.text


def test_a_job_that_waits_for_room_is_told_who_holds_it(world: World) -> None:
    """A78, R208"""
    reports = [JobReport(job_id=name, epoch=1, signs=1) for name in ("x", "y")]
    for name in ("a", "b", "c", "d"):
        _agent(world, name, cpu_free=0.0, jobs=reports)
    explanation = _explained(world)
    assert _closed(explanation) == ["room"]
    assert explanation.wait.text == (
        "all 4 workers that could run it are busy: a is busy with 2 jobs, b is busy with 2 jobs, "
        "c is busy with 2 jobs and 1 more"
    )


def test_the_jobs_that_stand_before_one_are_counted(world: World) -> None:
    """R208: by priority, then by age."""
    world.submit()
    middle = world.submit()
    world.submit()
    world.submit(spec=Spec(command="", priority=5))
    assert explain(world.repo, world.record(State.QUEUED, middle)).ahead == Ahead(2, at_least=False)


def test_of_a_long_queue_a_thousand_are_counted(world: World) -> None:
    world.submit(*(f"job {number}" for number in range(1100)))
    explanation = _explained(world)
    assert explanation.ahead == Ahead(1000, at_least=True)
    assert "place" not in _closed(explanation)


def test_a_job_without_a_place_in_the_order_is_told_so(world: World) -> None:
    """R208"""
    _agent(world)
    job = world.submit()
    record = world.record(State.QUEUED, job)
    world.store.delete(entry_key(record), None)
    explanation = explain(world.repo, record)
    assert explanation.ahead is None
    assert explanation.wait.code == "place_missing"


def test_an_explanation_costs_two_listings_a_read_an_agent_and_some_of_limits_and_forecast(
    world: World,
) -> None:
    for name in ("one", "two"):
        _agent(world, name)
    job = world.submit()
    store = CountingStore(world.store, world.tasks)
    before = store.snapshot()
    explain(world.repo_over(store), world.record(State.QUEUED, job))
    made = store.since(before)
    assert (made.lists, made.reads, made.writes) == (2, 2 + 1 + 2, 0)


def test_a_job_with_an_image_is_told_when_no_worker_has_an_engine(world: World) -> None:
    """R208: and it is no trouble of other jobs."""
    _agent(world, "plain", cpu_total=64.0)
    spec = Spec(command="", image="lab/train:1", cpu=32)
    explanation = _explained(world, spec)
    assert _closed(explanation) == ["image"]
    assert causes_text(explanation.hosts) == "1 host: runs no images"
    assert explanation.wait.code == "no_eligible_worker"
    assert "submit it without --image" in (explanation.wait.remedy or "")
    _agent(world, "small", runs_images_by="docker 28.2.2")
    assert _closed(_explained(world, spec)) == ["size"]
    _agent(world, "large", runs_images_by="docker 28.2.2", cpu_total=32.0, cpu_free=32.0)
    assert _closed(_explained(world, spec)) == []
    assert GateName.IMAGE not in {gate.name for gate in _explained(world).gates}


def _after(*parents: str) -> Spec:
    return Spec(command="", after=[After(job_id=one) for one in parents])


def test_a_job_that_can_never_run_is_told_so_wherever_it_is_looked_at(world: World) -> None:
    """And not that its deadline has passed, as that of a job which has none."""
    _agent(world)
    parent = world.submit()
    child = world.submit(spec=_after(parent))
    doomed = told_of(
        world.record(State.QUEUED, child),
        Awaited(job_id=parent, epoch=1, state=State.FAILED),
        nonce="n",
    )
    assert doomed is not None
    text = f"it will not run: job {parent}, which it was to follow, ended as failed"
    explanation = explain(world.repo, doomed)
    assert (explanation.wait.code, explanation.wait.text) == ("upstream_failed", text)
    assert [gate.name for gate in explanation.gates] == [GateName.JOBS]
    assert _waits(world, doomed)[child].text == text


def test_a_submitter_is_not_promised_a_start_of_what_is_doomed(world: World) -> None:
    _agent(world)
    parent = world.submit()
    world.end(world.claimed_of(parent), Verdict.FAILED)
    child = world.submit(spec=_after(parent))
    assert why_queued(world.repo, _after(parent), child).code == "upstream_failed"


def test_what_is_doomed_is_not_said_to_lack_time_or_a_worker(world: World) -> None:
    """`stado up` and `doctor` name what no worker will start, and what would help."""
    _agent(world)
    parent = world.submit()
    world.end(world.claimed_of(parent), Verdict.FAILED)
    world.submit(spec=_after(parent))
    assert hopeless(world.repo) == {}


def test_lists_tell_what_a_job_waits_for_as_its_own_page_does(world: World) -> None:
    _agent(world)
    parent = world.submit()
    child = world.submit(spec=_after(parent))
    for wait in (
        _waits(world, world.record(State.QUEUED, child))[child],
        why_queued(world.repo, _after(parent), child),
    ):
        assert (wait.code, wait.text) == (
            "waiting_for_jobs",
            f"it waits for job {parent} to complete",
        )
    pause(world.repo, parent, by="ada")
    wait = explain(world.repo, world.record(State.QUEUED, child)).wait
    assert wait.remedy == f"`stado job resume {parent}` lets that job go on"


def test_jobs_that_no_worker_can_start_stand_before_nobody(world: World) -> None:
    _agent(world)
    world.submit(spec=Spec(command="", cpu=500, priority=9))
    world.submit(spec=Spec(command="", image="lab/train", priority=9))
    job = world.submit()
    assert "ahead" not in why_queued(world.repo, Spec(command=""), job).text
    explanation = explain(world.repo, world.record(State.QUEUED, job))
    assert "ahead" not in explanation.wait.text
    assert explanation.ahead is not None
    assert explanation.ahead.count == 2


def _waits(world: World, record: Record) -> dict[str, Wait]:
    seen = agents(world.repo)
    limits = LimitSight(world.repo)
    return waits_of([record], seen, world.repo.now_ms(), paused=False, unread=0, limits=limits)


# What a job asks of its host


def _card(uuid: str = "GPU-1", **changes: Any) -> AcceleratorReport:
    card = AcceleratorReport(
        uuid=uuid,
        kind="a100-sxm4-80gb",
        index=0,
        vram_total_mib=80 * 1024,
        vram_used_mib=0,
        vram_free_mib=80 * 1024,
        vram_left_mib=80 * 1024,
    )
    return card.evolve(**changes)


def test_each_cause_is_named_with_the_hosts_that_it_keeps_away(world: World) -> None:
    """A78: six jobs, each kept by another cause, and how many hosts by which."""
    _agent(world, "cards", accelerators=[_card()], price_per_hour=2.0)
    _agent(world, "plain", price_per_hour=1.5)
    expected = {
        "no_eligible_worker": Spec(command="", vram_gb=500),
        "pinned_host_absent": Spec(command="", pinned_host="lab-9"),
        "over_cost_cap": Spec(command="", max_cost_per_hour=0.5),
        "boot_disk_not_stated": Spec(command="", provider="gcp", pin_provider=True),
        "provider_fenced": Spec(command="", provider="gcp", pin_provider=True, boot_disk_gb=50),
        "not_before": Spec(command="", not_before=world.repo.now() + timedelta(hours=1)),
    }
    seen = {code: _explained(world, spec) for code, spec in expected.items()}
    assert {code: told.wait.code for code, told in seen.items()} == {code: code for code in seen}
    assert causes_text(seen["no_eligible_worker"].hosts) == "2 hosts: 2 too small"
    assert causes_text(seen["over_cost_cap"].hosts) == "2 hosts: 2 too dear"
    assert causes_text(seen["provider_fenced"].hosts) == "2 hosts: 2 of another kind"
    pause_queue(world.repo, by="ada")
    assert _explained(world, expected["over_cost_cap"]).wait.code == "queue_paused"


def test_memory_of_cards_that_no_worker_has_is_told_with_what_there_is(world: World) -> None:
    """A79"""
    _agent(world, "cards", accelerators=[_card(), _card("GPU-2")])
    _agent(world, "plain")
    text = _explained(world, Spec(command="", vram_gb=500)).wait.text
    assert text == (
        "it needs 1 core and 1 GiB, 500 GiB of a card, and no worker is so large: of 2 at work the "
        "largest has 4 cores, the largest memory is 16.0 GiB, 2 such cards at most on one, the "
        "largest card of 80.0 GiB"
    )
    assert "none has such a card" in _explained(world, Spec(command="", gpu_type="h100")).wait.text


def test_what_others_hold_of_a_card_is_told_with_their_processes(world: World) -> None:
    """A39"""
    held = _card(
        vram_used_mib=60 * 1024,
        vram_free_mib=20 * 1024,
        vram_left_mib=20 * 1024,
        vram_used_by_others_mib=60 * 1024,
        other_pids=[4242],
    )
    _agent(world, accelerators=[held])
    wait = _explained(world, Spec(command="", vram_gb=40)).wait
    assert wait.code == "waiting_capacity"
    assert wait.text == (
        "one is busy with 0 jobs: it needs 40 GiB of a card, and the most that is free on one is "
        "20 GiB (process 4242, no job of this host, holds 60 GiB)"
    )
    assert _explained(world, Spec(command="", vram_gb=10)).wait.code == "starting"


def test_a_card_that_ails_is_none(world: World) -> None:
    _agent(world, accelerators=[_card(ailment="it has fallen off the bus")])
    assert "none has a card" in _explained(world, Spec(command="", gpus=1)).wait.text


def test_cards_that_jobs_have_are_free_again_some_time(world: World) -> None:
    _agent(world, accelerators=[_card(taken=True, closed=True, vram_left_mib=0)])
    wait = _explained(world, Spec(command="", gpus=1)).wait
    assert (wait.code, wait.text) == (
        "waiting_capacity",
        "one is busy with 0 jobs: it needs 1 whole card, 0 of 1 are free",
    )


def test_a_pinned_host_that_is_away_is_named_with_its_state(world: World) -> None:
    """R182, A78"""
    _agent(world, "here")
    _agent(world, "gone", stopped=True)
    wait = _explained(world, Spec(command="", pinned_host="gone")).wait
    assert wait.text == "it is pinned to worker gone, which is stopped"
    wait = _explained(world, Spec(command="", pinned_host="never")).wait
    assert wait.text == "it is pinned to worker never, which was never seen"
    assert wait.remedy == "start never, or submit it without --pinned-host"
    for near, meant in (("her", "here"), ("host", "gone or here")):
        wait = _explained(world, Spec(command="", pinned_host=near)).wait
        assert (wait.remedy or "").endswith(f"(did you mean {meant}?)")
    assert _explained(world, Spec(command="", pinned_host="here")).wait.code == "starting"


def test_labels_are_asked_for_by_name(world: World) -> None:
    """R178"""
    _agent(world, "a", labels=["zone=a"], machine_type="small")
    wait = _explained(world, Spec(command="", labels=["zone=b"], machine_type="small")).wait
    assert wait.text == "it asks for a small, label zone=b, and no worker at work is that"
    assert _explained(world, Spec(command="", labels=["zone=a"])).wait.code == "starting"


def test_a_host_to_itself_is_waited_for_with_its_own_code(world: World) -> None:
    """R185"""
    report = JobReport(job_id="x", epoch=1, signs=1)
    _agent(world, jobs=[report])
    wait = _explained(world, Spec(command="", exclusive=True)).wait
    assert (wait.code, "1 job run there" in wait.text) == ("exclusive_worker_busy", True)


def test_a_job_that_is_to_start_later_says_when(world: World) -> None:
    at = world.repo.now() + timedelta(hours=2)
    later = Spec(command="", not_before=at)
    _agent(world)
    explanation = _explained(world, later)
    assert _closed(explanation) == ["time"]
    assert explanation.wait.text == f"it is not to start before {at:%Y-%m-%d %H:%M:%S}Z"


def test_a_job_that_asks_for_all_of_a_machine_is_told_what_jobs_can_have_of_it(
    world: World,
) -> None:
    """A42: a machine that is sold with 16 GiB has less for jobs, and never fits one that wants
    16."""
    _agent(world, memory_total_gb=15.6, memory_free_gb=15.6)
    text = _explained(world, Spec(command="", memory_gb=16)).wait.text
    assert "it needs 1 core and 16 GiB" in text
    assert "the largest memory is 15.6 GiB" in text


def test_a_job_without_a_boot_disk_waits_for_a_host_that_is_there(world: World) -> None:
    """R153, R154, R155: nothing is rented for it, and it runs wherever it fits."""
    _agent(world)
    assert _explained(world, Spec(command="")).wait.code == "starting"
    fenced = Spec(command="", provider="gcp", pin_provider=True)
    wait = _explained(world, fenced).wait
    assert wait.code == "boot_disk_not_stated"
    assert "none is ever rented for it: it states no boot disk" in wait.text
    wait = _explained(world, fenced.evolve(boot_disk_gb=50)).wait
    assert wait.code == "provider_fenced"
    assert "nothing rents any yet" in wait.text


def test_a_job_that_a_machine_could_be_rented_for_runs_on_a_host_that_is_there(
    world: World,
) -> None:
    """R156, R180, R181: it keeps the disk that it states; no machine is rented for it, whether a
    host is free or not."""
    _agent(world)
    spec = Spec(command="", provider="gcp", boot_disk_gb=80.5)
    record = world.record(State.QUEUED, world.submit(spec=spec))
    assert record.spec.boot_disk_gb == 80.5
    assert explain(world.repo, record).wait.code == "starting"
    claimed = world.claim()
    assert claimed is not None
    assert claimed.record.spec.boot_disk_gb == 80.5
    _agent(world, cpu_free=0.0)
    assert _explained(world, spec).wait.code == "waiting_capacity"


def test_room_that_is_kept_for_another_job_is_told_so(world: World) -> None:
    large = world.submit(spec=Spec(command="", cpu=4))
    _agent(world, cpu_free=2.0, keeps_room_for=large)
    wait = _explained(world).wait
    assert (wait.code, wait.text) == ("waiting_capacity", f"one keeps its room for job {large}")
    record = world.record(State.QUEUED, large)
    assert "it needs 4 cores" in explain(world.repo, record).wait.text
