from __future__ import annotations

from pathlib import Path

import pytest

from stado.core import keys
from stado.core.records import Ending, Intent, Phase
from stado.core.spec import Spec
from stado.core.states import Reason, State, Verdict
from stado.errors import StoreError, Unavailable
from stado.jobs import saving
from stado.jobs.changes import cancel
from stado.jobs.claim import Claimant, claim
from stado.jobs.endings import claim_for_intent, give_verdict, settle
from stado.jobs.life import LifeSigns, seal_epoch
from stado.jobs.reaping import Reaper
from stado.jobs.upkeep import Passes
from stado.storage.faults import Fault, FaultKind, FaultyStore, ScriptedFaults
from stado.storage.observe import CountingStore, Operation
from tests.jobs.actors import Crash, GuardedStore, mortal
from tests.jobs.broadcasts import Agent
from tests.jobs.world import ALICE, BOB, LEASE, TICK, World, heal

TURNS = int(2 * LEASE / TICK)


def reaper(world: World, *, once: bool = False) -> Reaper:
    return Reaper(world.repo, by="coordinator", once=once)


def about_to_reap(world: World) -> Reaper:
    """A reaper that has watched a silent job for a lease: its next turn is the one."""
    judge = reaper(world)
    for _ in range(int(LEASE / TICK)):
        assert judge.turn().reaped == []
        world.clock.sleep(TICK)
    return judge


def test_silence_of_everything_for_a_lease_gives_the_job_back(world: World) -> None:
    """R73, R189, R191, A04, T25: who was silent, for how long, since when."""
    job = world.submit()
    world.start()
    beat_at = world.repo.now().isoformat(timespec="seconds")
    judge = reaper(world)
    for elapsed in range(0, int(LEASE), int(TICK)):
        assert judge.turn().reaped == [], elapsed
        world.clock.sleep(TICK)
    for _ in range(2):
        report = judge.turn()
        world.clock.sleep(TICK)
        if report.reaped:
            break
    assert report.reaped == [job]
    record = world.record(State.QUEUED, job)
    assert (record.epoch, record.lease_losses, record.starts) == (2, 1, 1)
    assert record.ending is not None
    assert record.ending.reason is Reason.LEASE_EXPIRED
    assert record.ending.detail is not None
    assert "worker alice was not heard for" in record.ending.detail
    assert record.ending.detail.endswith(f", its last beat was at {beat_at}")
    assert world.states(job) == {State.QUEUED}
    assert [entry.epoch for entry in world.entries()] == [2]


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("first_look", [0.0, 0.3 * TICK, 0.99 * TICK])
def test_a_silent_job_is_queued_again_within_its_lease_and_a_tick(
    world: World, tmp_path: Path, first_look: float, saved: bool
) -> None:
    """A04: from its last sign on, whenever the ticks are, and though it had saved a checkpoint."""
    job = world.submit()
    claimed = world.start()
    if saved:
        (tmp_path / "model").write_text("weights")
        saving.save(world.repo, job_id=job, epoch=1, sequence=0, folder=tmp_path)
    passes = Passes(world.repo, by="coordinator")
    passes.tick()
    world.clock.sleep(first_look)
    LifeSigns(world.repo, claimed.record).beat(Phase.RUNNING, None)
    silent_since = world.clock.monotonic()
    world.clock.sleep(TICK - first_look)
    passes.tick()
    while world.states(job) == {State.RUNNING}:
        world.clock.sleep(min(TICK, passes.next_seconds))
        passes.tick()
    assert LEASE <= world.clock.monotonic() - silent_since <= LEASE + TICK + 0.1


def test_a_job_that_beats_is_never_declared_lost(world: World) -> None:
    """R191"""
    job = world.submit()
    signs = LifeSigns(world.repo, world.start().record)
    judge = reaper(world)
    for turn in range(TURNS * 3):
        if turn % 7 == 0:
            signs.beat(Phase.RUNNING, None)
        assert judge.turn().reaped == []
        world.clock.sleep(TICK)
    assert world.states(job) == {State.RUNNING}


def test_only_a_start_that_the_beats_told_of_is_counted(world: World) -> None:
    job = world.submit()
    claimed = world.claim()
    assert claimed is not None
    LifeSigns(world.repo, claimed.record).beat(Phase.PREPARING, None)
    world.lose(reaper(world))
    assert world.record(State.QUEUED, job).starts == 0
    world.start()
    world.lose(reaper(world))
    assert world.record(State.QUEUED, job).starts == 1


def test_a_fresh_beat_of_another_job_on_the_host_defers(world: World) -> None:
    """R187"""
    world.submit()
    silent = world.start()
    world.submit()
    signs = LifeSigns(world.repo, world.start().record)
    judge = reaper(world)
    for _ in range(TURNS):
        signs.beat(Phase.RUNNING, None)
        report = judge.turn()
        assert report.reaped == []
        world.clock.sleep(TICK)
    assert "on the same host still beats" in report.deferred[silent.record.id]
    reaped = world.lose(judge).reaped + world.lose(judge).reaped
    assert len(reaped) == 2


def test_a_beat_on_another_host_does_not_defer(world: World) -> None:
    """R187"""
    world.submit()
    silent = world.start(ALICE)
    world.submit()
    signs = LifeSigns(world.repo, world.start(BOB).record)
    judge = reaper(world)
    reaped = []
    for _ in range(TURNS):
        signs.beat(Phase.RUNNING, None)
        reaped += judge.turn().reaped
        world.clock.sleep(TICK)
    assert reaped == [silent.record.id]


def test_a_sibling_does_not_defer_when_the_fresh_report_of_the_agent_omits_the_job(
    world: World,
) -> None:
    """R187"""
    world.submit()
    silent = world.start()
    world.submit()
    beating = world.start()
    signs = LifeSigns(world.repo, beating.record)
    agent = Agent(world)
    judge = reaper(world)
    reaped = []
    for _ in range(TURNS):
        agent.broadcast(beating)
        signs.beat(Phase.RUNNING, None)
        reaped += judge.turn().reaped
        world.clock.sleep(TICK)
    assert reaped == [silent.record.id]


def test_a_sibling_defers_though_an_old_report_of_the_agent_omits_the_job(world: World) -> None:
    """R187: the agent itself is silent, and no witness."""
    world.submit()
    world.start()
    world.submit()
    beating = world.start()
    signs = LifeSigns(world.repo, beating.record)
    Agent(world).broadcast(beating)
    judge = reaper(world)
    for _ in range(TURNS):
        signs.beat(Phase.RUNNING, None)
        assert judge.turn().reaped == []
        world.clock.sleep(TICK)


def test_a_canceller_that_judges_one_job_hears_the_others_on_its_host(world: World) -> None:
    """R187"""
    world.submit()
    silent = world.start()
    world.submit()
    signs = LifeSigns(world.repo, world.start().record)
    judge = reaper(world)
    for _ in range(TURNS):
        signs.beat(Phase.RUNNING, None)
        report = judge.turn_for(silent.record.id)
        assert report.reaped == []
        world.clock.sleep(TICK)
    assert list(report.deferred) == [silent.record.id]


def test_a_canceller_reaps_the_job_that_it_waits_for_and_no_other(world: World) -> None:
    world.submit()
    one = world.start(ALICE)
    world.submit()
    other = world.start(BOB)
    cancel(world.repo, one.record.id, by="ada")
    judge = reaper(world)
    reaped = []
    for _ in range(TURNS):
        reaped += judge.turn_for(one.record.id).reaped
        world.clock.sleep(TICK)
    assert reaped == [one.record.id]
    assert world.states(one.record.id) == {State.CANCELLED}
    assert world.states(other.record.id) == {State.RUNNING}
    assert judge.turn_for("a" * 16).reaped == []


def test_a_checkpoint_that_grows_is_proof_of_life(world: World, tmp_path: Path) -> None:
    """R188"""
    job = world.submit()
    world.start()
    judge = reaper(world)
    for sequence in range(TURNS):
        if sequence % 6 == 0:
            (tmp_path / "state").write_text(str(sequence))
            saving.save(world.repo, job_id=job, epoch=1, sequence=sequence, folder=tmp_path)
        assert judge.turn().reaped == []
        world.clock.sleep(TICK)
    assert world.lose(judge).reaped == [job]


def test_parts_of_a_checkpoint_under_way_are_proof_of_life(world: World) -> None:
    """R188"""
    job = world.submit()
    world.start()
    judge = reaper(world)
    for part in range(TURNS):
        world.store.put(keys.checkpoint_part(job, 1, 0, part), b"x")
        assert judge.turn().reaped == []
        world.clock.sleep(TICK)


def test_an_agent_that_hears_the_supervisor_speaks_for_the_job(world: World) -> None:
    """R191: the store takes the agent's broadcasts, and not the supervisor's beats."""
    job = world.submit()
    claimed = world.start()
    agent = Agent(world)
    judge = reaper(world)
    for _ in range(TURNS):
        agent.signs += 1
        agent.broadcast(claimed)
        assert judge.turn().reaped == []
        world.clock.sleep(TICK)
    reaped = []
    for _ in range(TURNS):
        agent.broadcast(claimed)
        reaped += judge.turn().reaped
        world.clock.sleep(TICK)
    assert reaped == [job]


@pytest.mark.parametrize("told", [True, False])
def test_a_job_that_beats_in_order_is_read_at_every_other_look_while_its_agent_tells_of_it(
    world: World, told: bool
) -> None:
    """PROTOCOL.md, "Requests"."""
    world.submit()
    claimed = world.start()
    signs, agent = LifeSigns(world.repo, claimed.record), Agent(world)
    counting = CountingStore(world.store, world.tasks)
    judge = Reaper(world.repo_over(counting), by="coordinator")
    for tick in range(TURNS):
        if tick % 2 == 0:
            assert signs.beat(Phase.RUNNING, world.clock.now())
        agent.signs += told
        agent.broadcast(claimed)
        assert judge.turn().reaped == []
        world.clock.sleep(TICK)
    heads = counting.snapshot().of(Operation.HEAD)
    assert heads == (TURNS / 2 + 1 if told else TURNS)


@pytest.mark.parametrize(("early", "ticks_more"), [(False, 0), (True, 1)])
@pytest.mark.parametrize("last_tick", [8, 9])
def test_what_is_not_read_again_delays_nothing_that_comes_in_order(
    world: World, last_tick: int, early: bool, ticks_more: int
) -> None:
    """PROTOCOL.md, "What is not read again": from the last sign of both, a lease and a tick; one
    more where the last beat came early."""
    job = world.submit()
    claimed = world.start()
    signs, agent, judge = LifeSigns(world.repo, claimed.record), Agent(world), reaper(world)
    for tick in range(last_tick + 1):
        if tick % 2 == 0 or (early and tick == last_tick):
            assert signs.beat(Phase.RUNNING, world.clock.now())
        agent.signs += 1
        agent.broadcast(claimed)
        world.clock.sleep(TICK / 2)
        assert judge.turn().reaped == []
        world.clock.sleep(TICK / 2)
    silent_since = world.clock.monotonic() - TICK
    reaped: list[str] = []
    while not reaped:
        world.clock.sleep(TICK / 2)
        reaped = judge.turn().reaped
        silent_seconds = world.clock.monotonic() - silent_since
        assert silent_seconds <= LEASE + (1 + ticks_more) * TICK
        world.clock.sleep(TICK / 2)
    assert reaped == [job]


@pytest.mark.parametrize(
    ("operation", "prefix"),
    [
        (Operation.HEAD, "status/"),
        (Operation.GET, "status/"),
        (Operation.LIST, "status/"),
        (Operation.LIST, "capacity/"),
        (Operation.LIST, "running/"),
    ],
)
def test_a_failed_read_or_listing_starts_the_watch_again(
    world: World, operation: Operation, prefix: str
) -> None:
    """R190: one failure anywhere in the lease costs a whole new lease of watching."""
    job = world.submit()
    world.start()
    plan = ScriptedFaults()
    repo = world.repo_over(FaultyStore(world.store, world.clock, plan))
    judge = Reaper(repo, by="coordinator")
    failed_at = float("inf")
    for turn in range(3 * TURNS):
        if turn == 6:
            plan.add(Fault(FaultKind.UNAVAILABLE, operation, prefix))
            failed_at = world.clock.monotonic()
        try:
            if judge.turn().reaped:
                break
        except StoreError:
            assert plan.used_up
        world.clock.sleep(TICK)
    assert plan.used_up
    assert world.states(job) == {State.QUEUED}
    assert world.clock.monotonic() - failed_at >= LEASE


def test_a_store_that_is_away_for_a_lease_kills_nobody(world: World) -> None:
    """R190: nobody could beat, and the reaper saw as little."""
    job = world.submit()
    signs = LifeSigns(world.repo, world.start().record)
    plan = ScriptedFaults()
    judge = Reaper(world.repo_over(FaultyStore(world.store, world.clock, plan)), by="coordinator")
    signs.beat(Phase.RUNNING, None)
    judge.turn()
    plan.add(Fault(FaultKind.UNAVAILABLE, times=TURNS))
    while not plan.used_up:
        world.clock.sleep(TICK)
        with pytest.raises(StoreError):
            judge.turn()
    for _ in range(3):
        world.clock.sleep(TICK)
        assert judge.turn().reaped == []
    signs.beat(Phase.RUNNING, None)
    assert world.states(job) == {State.RUNNING}


def test_an_unreadable_running_record_keeps_no_other_job_from_being_reaped(world: World) -> None:
    """A19, R190"""
    job = world.submit()
    world.start()
    broken = keys.record(State.RUNNING, "a" * 16)
    world.store.put(broken, b"\xff")
    report = world.lose(reaper(world))
    assert report.reaped == [job]
    assert broken in report.deferred["a" * 16]


def test_a_claimer_that_dies_in_the_gate_costs_a_lease_and_no_start(world: World) -> None:
    """A06: a running record without a claim cell."""
    job = world.submit()
    (entry,) = world.entries()
    with pytest.raises(Crash):
        claim(world.repo_over(mortal(world.store, at=1, applied=True)), entry, ALICE)
    assert world.states(job) == {State.QUEUED, State.RUNNING}
    assert world.find(job).state is State.QUEUED
    assert world.claim(BOB) is None
    assert world.lose(reaper(world)).reaped == [job]
    record = world.record(State.QUEUED, job)
    assert (record.epoch, record.starts) == (2, 0)
    assert world.names(keys.READY) == [entry.key for entry in world.listed(keys.READY)]
    assert world.start(BOB).record.epoch == 2


def test_the_jobs_of_a_worker_whose_capacity_was_deleted_are_given_back(world: World) -> None:
    """A07"""
    job = world.submit()
    claimed = world.start()
    Agent(world).broadcast(claimed)
    judge = reaper(world)
    judge.turn()
    world.store.delete(keys.capacity("alice"), None)
    assert world.lose(judge).reaped == [job]


def test_a_reaper_that_runs_once_compares_the_times_of_the_store(world: World) -> None:
    job = world.submit()
    signs = LifeSigns(world.repo, world.start().record)
    signs.beat(Phase.RUNNING, None)
    world.clock.sleep(LEASE - 1)
    assert reaper(world, once=True).turn().reaped == []
    signs.beat(Phase.RUNNING, None)
    world.clock.sleep(LEASE - 1)
    assert reaper(world, once=True).turn().reaped == []
    world.clock.sleep(2)
    assert reaper(world, once=True).turn().reaped == [job]
    assert world.states(job) == {State.QUEUED}


def test_a_reaper_that_runs_once_heeds_siblings_checkpoints_and_reports(
    world: World, tmp_path: Path
) -> None:
    """R187, R188"""
    job = world.submit()
    claimed = world.start()
    world.clock.sleep(LEASE + 1)
    agent = Agent(world)
    agent.broadcast(claimed)
    assert reaper(world, once=True).turn().reaped == []
    agent.broadcast()
    world.clock.sleep(LEASE + 1)
    (tmp_path / "state").write_text("x")
    saving.save(world.repo, job_id=job, epoch=1, sequence=0, folder=tmp_path)
    assert reaper(world, once=True).turn().reaped == []
    world.clock.sleep(LEASE + 1)
    world.submit()
    sibling = world.start()
    report = reaper(world, once=True).turn()
    assert report.reaped == []
    assert sibling.record.id in report.deferred[job]
    world.clock.sleep(LEASE + 1)
    assert sorted(reaper(world, once=True).turn().reaped) == sorted([job, sibling.record.id])


def test_the_lease_of_the_claim_counts(world: World) -> None:
    """A claim copies the lease; judges use the claim's."""
    world.submit()
    world.start()
    world.deployment = world.deployment.evolve(lease_seconds=10 * LEASE)
    world.repo = world.repo_over(world.store)
    world.submit()
    patient = world.start(BOB)
    judge = reaper(world)
    reaped = []
    for _ in range(TURNS):
        reaped += judge.turn().reaped
        world.clock.sleep(TICK)
    assert len(reaped) == 1
    assert patient.record.id not in reaped


def test_a_beat_that_comes_after_the_judgement_wins(world: World) -> None:
    """R191: between the reaper's last look and its seal."""
    for at in range(40):
        world = World()
        job = world.submit()
        signs = LifeSigns(world.repo, world.start().record)
        signs.beat(Phase.RUNNING, None)
        judge = about_to_reap(world)
        if not step_with_beat(world, judge, signs, at):
            assert at > 10
            return
        found = world.repo.find_heartbeat(job)
        assert found is not None
        sealed = found.value.sealed
        assert sealed is not signs.beat(Phase.RUNNING, None)
        assert (world.repo.find_end(job, 1) is None) is not sealed


def step_with_beat(world: World, judge: Reaper, signs: LifeSigns, at: int) -> bool:
    """A turn of the reaper with a beat before its request number `at`; False: it made fewer."""
    count = iter(range(1000))
    beaten = []

    def before(operation: Operation, key: str) -> None:
        if next(count) == at:
            beaten.append(signs.beat(Phase.RUNNING, None))

    store = judge._repo.store
    judge._repo.store = GuardedStore(store, before=before)
    judge.turn()
    judge._repo.store = store
    return bool(beaten)


@pytest.mark.parametrize("at", range(25))
@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
def test_a_reaper_may_die_anywhere_and_the_next_finishes(at: int, applied: bool) -> None:
    world = World()
    job = world.submit()
    world.start()
    dying = about_to_reap(world)
    dying._repo = world.repo_over(mortal(world.store, at=at, applied=applied))
    try:
        assert dying.turn().reaped == [job]
    except Crash:
        assert world.states(job)
    heal(world, job)
    ends = [key for key in world.names(keys.cells(job)) if key.endswith("end.json")]
    assert len(ends) == 2
    assert world.states(job) == {State.COMPLETED}


def test_whoever_meets_a_seal_without_a_verdict_creates_the_verdict_at_once(world: World) -> None:
    job = world.submit()
    record = world.start().record
    seal_epoch(world.repo, record, world.repo.find_heartbeat(job), by="dead reaper")
    judge = reaper(world)
    judge.turn()
    world.clock.sleep(1)
    assert judge.turn().reaped == [job]


def test_two_reapers_at_once_give_one_verdict(world: World) -> None:
    job = world.submit()
    world.start()
    one, other = Reaper(world.repo, by="one"), Reaper(world.repo, by="other")
    for _ in range(TURNS):
        one.turn()
        other.turn()
        world.clock.sleep(TICK)
    assert world.states(job) == {State.QUEUED}
    assert world.record(State.QUEUED, job).lease_losses == 1


@pytest.mark.parametrize(("allowed", "starts"), [(0, 1), (3, 4), (None, 4)])
def test_a_job_fails_when_its_budget_of_losses_is_spent(
    world: World, allowed: int | None, starts: int
) -> None:
    """R74, R87 R191, T26"""
    job = world.submit(spec=Spec(command="", max_lease_losses=allowed))
    for epoch in range(1, starts + 1):
        assert world.start().record.epoch == epoch
        assert world.lose(reaper(world)).reaped == [job]
    record = world.record(State.FAILED, job)
    assert record.ending is not None
    assert record.ending.reason is Reason.LEASE_EXPIRED_MAX_ATTEMPTS
    assert world.states(job) == {State.FAILED}
    assert world.names(keys.READY) == []


def test_an_unlimited_budget_is_never_spent(world: World) -> None:
    job = world.submit(spec=Spec(command="", max_lease_losses=-1))
    for _ in range(12):
        world.start()
        assert world.lose(reaper(world)).reaped == [job]
    assert world.states(job) == {State.QUEUED}


# --- jobs that end their agent --------------------------------------------------------------

STOPS_ITS_AGENT = Spec(command="", terminates_agent=True, max_lease_losses=0)
ANOTHER = Claimant(ALICE.consumer, "another", ALICE.host)
"""The agent after ALICE's."""


def ended(world: World, job: str) -> Ending:
    found = world.repo.find_end(job, 1)
    assert found is not None
    return found.ending


@pytest.mark.parametrize("once", [False, True])
def test_the_agent_that_is_gone_is_the_success_of_who_declared_so(world: World, once: bool) -> None:
    """R192, T27: it is not queued again, and not lost once too often."""
    job = world.submit(spec=STOPS_ITS_AGENT)
    world.start()
    if once:
        world.clock.sleep(2 * LEASE)
    assert world.lose(reaper(world, once=once)).reaped == [job]
    assert world.states(job) == {State.COMPLETED}
    ending = ended(world, job)
    assert (ending.verdict, ending.reason) == (
        Verdict.COMPLETED,
        Reason.AGENT_TERMINATED_AS_DECLARED,
    )
    assert ending.exit_code is None
    assert "its agent is gone, as its submitter declared" in (ending.detail or "")


def test_another_agent_of_the_name_says_that_the_one_before_is_gone(world: World) -> None:
    """R192: it came up again, and runs something else."""
    job = world.submit(spec=STOPS_ITS_AGENT)
    world.start()
    agent, judge = Agent(world, ANOTHER), reaper(world)
    while not judge.turn().reaped:
        agent.broadcast()
        world.clock.sleep(TICK)
    assert ended(world, job).reason is Reason.AGENT_TERMINATED_AS_DECLARED


def test_a_silent_job_that_outlived_its_agent_is_lost(world: World) -> None:
    """R192: the next agent of the name has its supervisor, and does not see it move."""
    job = world.submit(spec=STOPS_ITS_AGENT)
    claimed = world.start()
    agent, judge = Agent(world, ANOTHER), reaper(world)
    while not judge.turn().reaped:
        agent.broadcast(claimed)
        world.clock.sleep(TICK)
    assert ended(world, job).reason is Reason.LEASE_EXPIRED_MAX_ATTEMPTS


def test_a_silent_job_of_an_agent_that_is_there_is_lost(world: World) -> None:
    """R192: what ended was the job alone."""
    job = world.submit(spec=STOPS_ITS_AGENT)
    world.start()
    agent, judge = Agent(world), reaper(world)
    while not judge.turn().reaped:
        agent.broadcast()
        world.clock.sleep(TICK)
    assert ended(world, job).reason is Reason.LEASE_EXPIRED_MAX_ATTEMPTS


def test_only_the_declaration_counts(world: World) -> None:
    """R193"""
    job = world.submit(
        "systemctl stop stado-agent", spec=STOPS_ITS_AGENT.evolve(terminates_agent=False)
    )
    world.start()
    assert world.lose(reaper(world)).reaped == [job]
    assert ended(world, job).reason is Reason.LEASE_EXPIRED_MAX_ATTEMPTS


def test_a_command_that_was_never_started_has_ended_no_agent(world: World) -> None:
    """R192"""
    job = world.submit(spec=STOPS_ITS_AGENT.evolve(max_lease_losses=3))
    assert world.claim() is not None
    assert world.lose(reaper(world)).reaped == [job]
    assert world.states(job) == {State.QUEUED}


def test_a_cancel_goes_before_the_declaration(world: World) -> None:
    job = world.submit(spec=STOPS_ITS_AGENT)
    world.start()
    cancel(world.repo, job, by="ada")
    world.lose(reaper(world))
    assert world.states(job) == {State.CANCELLED}


def busy_hosts(world: World, count: int) -> list[str]:
    jobs = []
    for number in range(count):
        jobs.append(world.submit())
        world.start(Claimant(f"agent-{number}", "1", f"host-{number}"))
    return jobs


def test_mass_silence_is_excused_once(world: World) -> None:
    """Most hosts silent at once: more likely that the reaper went blind."""
    jobs = busy_hosts(world, 3)
    judge = reaper(world)
    first_reaped = None
    excused_at = None
    for _ in range(4 * TURNS):
        report = judge.turn()
        now = world.clock.monotonic()
        if "many hosts fell silent at once" in report.deferred.values() and excused_at is None:
            excused_at = now
        if report.reaped:
            first_reaped = now
            break
        world.clock.sleep(TICK)
    assert excused_at is not None
    assert first_reaped is not None
    assert LEASE <= first_reaped - excused_at <= LEASE + 2 * TICK
    assert sorted(report.reaped) == sorted(jobs)


def test_two_hosts_that_fall_silent_are_no_mass_silence(world: World) -> None:
    jobs = busy_hosts(world, 2)
    report = world.lose(reaper(world))
    assert sorted(report.reaped) == sorted(jobs)
    assert world.clock.monotonic() <= LEASE + 2 * TICK


def test_a_cancel_asked_before_the_seal_decides_the_verdict(world: World) -> None:
    """T19"""
    job = world.submit()
    world.start()
    cancel(world.repo, job, by="ada")
    world.lose(reaper(world))
    record = world.record(State.CANCELLED, job)
    assert record.ending is not None
    assert (record.ending.verdict, record.ending.by) == (Verdict.CANCELLED, "ada")


def test_a_ghost_of_an_ended_job_is_settled_without_waiting_for_a_lease(world: World) -> None:
    job = world.submit()
    claimed = world.start()
    world.end(claimed)
    world.store.create(keys.record(State.RUNNING, job), claimed.record.encode())
    judge = reaper(world)
    judge.turn()
    world.clock.sleep(TICK)
    assert judge.turn().settled == [job]
    assert world.states(job) == {State.COMPLETED}


def test_an_intent_in_a_ghosts_epoch_is_finished_unsealed(world: World) -> None:
    job = world.submit()
    (entry,) = world.entries()
    with pytest.raises(Crash):
        claim(world.repo_over(mortal(world.store, at=1, applied=True)), entry, ALICE)
    record = world.record(State.QUEUED, job)
    claim_for_intent(world.repo, record, intent=Intent.CANCEL, by="ada")
    judge = reaper(world)
    settled = []
    for _ in range(TURNS):
        settled += judge.turn().settled
        world.clock.sleep(TICK)
    assert settled == [job]
    assert world.repo.find_heartbeat(job) is None
    assert world.states(job) == {State.CANCELLED}


def test_a_cancelled_job_that_may_not_be_lost_is_cancelled_and_not_failed(world: World) -> None:
    """The reaper reads what was asked before it gives the verdict."""
    job = world.submit(spec=Spec(command="", max_lease_losses=0))
    world.start()
    cancel(world.repo, job, by="ada")
    world.lose(reaper(world))
    assert world.states(job) == {State.CANCELLED}
    assert world.record(State.CANCELLED, job).epoch == 1


def test_a_record_under_a_name_that_no_job_has_is_not_looked_at(world: World) -> None:
    world.submit()
    claimed = world.start()
    world.store.put("running/nonsense.json", b"{}")
    world.store.put(f"running/{claimed.record.id}.old.json", claimed.record.encode())
    report = reaper(world).turn()
    assert (report.reaped, report.settled, report.deferred) == ([], [], {})


def test_a_report_that_cannot_be_read_costs_the_jobs_of_its_agent_only(world: World) -> None:
    world.submit()
    unheard = world.start(ALICE).record.id
    world.submit()
    silent = world.start(BOB).record.id
    denied = ScriptedFaults(Fault(FaultKind.DENIED, Operation.GET, "capacity/alice", times=99))
    judge = Reaper(world.repo_over(FaultyStore(world.store, world.clock, denied)), by="c")
    Agent(world, ALICE).broadcast()
    report = world.lose(judge)
    assert report.reaped == [silent]
    assert "capacity/alice" in report.deferred[unheard]


def test_many_reports_that_cannot_be_read_are_a_store_that_fails(world: World) -> None:
    for number in range(20):
        Agent(world, Claimant(f"agent-{number}", "1", "host")).broadcast()
    away = ScriptedFaults(Fault(FaultKind.UNAVAILABLE, Operation.GET, "capacity/", times=99))
    judge = Reaper(world.repo_over(FaultyStore(world.store, world.clock, away)), by="c")
    with pytest.raises(Unavailable):
        judge.turn()


def test_a_claim_that_comes_after_the_listing_is_not_judged_by_the_age_of_what_was_listed(
    world: World,
) -> None:
    job = world.submit()
    world.start()
    world.clock.sleep(3 * LEASE)

    def move_on(operation: Operation, key: str) -> None:
        if (operation, key) == (Operation.GET, keys.record(State.RUNNING, job)) and not moved:
            moved.append(key)
            end_as_lost(world, job)
            assert world.claim(BOB) is not None

    moved: list[str] = []
    store = GuardedStore(world.store, before=move_on)
    report = Reaper(world.repo_over(store), by="cron", once=True).turn()
    assert moved
    assert report.reaped == []
    assert world.repo.cells(job).ends == {1}


def end_as_lost(world: World, job: str) -> None:
    """As the agent does whose supervisor has died: without a seal."""
    record = world.find(job).record
    ending = Ending(
        verdict=Verdict.LOST,
        reason=Reason.SUPERVISOR_DIED,
        ended_at=world.clock.now(),
        by="alice",
    )
    give_verdict(world.repo, record, ending)
    settle(world.repo, record.id, record.epoch)
