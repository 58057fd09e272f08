"""Budgets: worked out by a coordinator, heeded by a claim, and as people see them."""

from __future__ import annotations

import itertools
import logging
from datetime import timedelta

import pytest
from msgspec.structs import replace

from stado.core import keys
from stado.core.budgets import Spending, holds_of, spent_out
from stado.core.costs import NO_CATALOG
from stado.core.records import Phase, Record
from stado.core.settings import DeploymentSettings
from stado.core.spec import Spec
from stado.core.states import BudgetState, State
from stado.core.usage import Use, use_key
from stado.jobs.budget_keeping import SECONDS_BETWEEN_LOOKS, BudgetKeeping
from stado.jobs.budget_sight import percent_text, see_budgets
from stado.jobs.budgets import STALE, BudgetGone, read_budgets
from stado.jobs.claim import Place, claim
from stado.jobs.fitting import GateName
from stado.jobs.ledger import Compaction, Pace
from stado.jobs.life import LifeSigns
from stado.jobs.limit_sight import LimitSight
from stado.jobs.settings import change_setting, read_settings
from stado.jobs.waiting import explain, waits_of, why_queued
from stado.storage.observe import CountingStore, Operation
from tests.jobs.actors import GuardedStore
from tests.jobs.broadcasts import Agent
from tests.jobs.world import ALICE, World, give_back

GROUP = Spec(command="", group="big")
HOUR = 3600.0
PRICED = Place(price_micro=4_000_000, part_micro=1_000_000)
"""Four dollars an hour, all of the host."""


def set_budgets(world: World, *rules: str) -> None:
    change_setting(world.repo, "budgets.rules", list(rules), by="operator")


def keeping(world: World) -> BudgetKeeping:
    return BudgetKeeping(world.repo, by="coordinator", catalog=NO_CATALOG)


def used(world: World, number: int, *, hours: float = 1.0, **changes: object) -> None:
    """An epoch that runs for so long from now on."""
    world.clock.sleep(hours * HOUR)
    use = Use(
        "abcdefghijklmnop",
        number,
        "ada",
        None,
        ended_ms=world.repo.now_ms(),
        wall_ms=int(hours * 3_600_000),
        gpus=2,
        price_micro=4_000_000,
        part_micro=1_000_000,
        group="big",
    )
    world.store.create(use_key(replace(use, **changes)), b"")


def spent(world: World) -> dict[str, float]:
    told = read_budgets(world.repo)
    assert told is not None
    return {f"{row.whose} {row.user or ''}".strip(): row.spent_micro / 1e6 for row in told.spent}


def queued(world: World, spec: Spec = GROUP) -> Record:
    return world.record(State.QUEUED, world.submit(spec=spec))


def settings_of(world: World) -> DeploymentSettings:
    return read_settings(world.repo)


# --- the pass -----------------------------------------------------------------------------


def test_what_ended_and_what_runs_is_spent_once(world: World) -> None:
    """R301: from names, segments, records and heartbeats; before and after a compaction."""
    set_budgets(world, "all:100usd/day", "users:100usd/day", "group.big:100gpuh/month")
    used(world, 1)
    used(world, 2, user="bob", group=None)
    job = world.submit(spec=GROUP)
    claimed = world.claimed_of(job, place=PRICED)
    assert LifeSigns(world.repo, claimed.record).beat(Phase.RUNNING, world.clock.now())
    world.clock.sleep(60)
    look = keeping(world)
    look.turn()
    first = spent(world)
    assert first["group.big"] == 2.0
    assert first["all"] == pytest.approx(8 + 4 / 60, rel=0.01)
    assert first["users bob"] == 4.0
    Compaction(world.repo, by="c", pace=Pace(names_min=1)).turns(60)
    look.turn()
    assert spent(world) == first


def test_the_document_is_worked_out_each_two_minutes(world: World) -> None:
    """R301: without a budget nothing is written, and the settings alone are read."""
    counting = CountingStore(world.store, world.tasks)
    repo = world.repo_over(counting)
    look = BudgetKeeping(repo, by="coordinator", catalog=NO_CATALOG)
    look.turn_when_due()
    first = counting.snapshot()
    assert (first.reads, first.writes, first.lists) == (1, 0, 0)
    set_budgets(world, "all:100usd/day")
    look.turn_when_due()
    assert counting.snapshot() == first
    world.clock.sleep(SECONDS_BETWEEN_LOOKS)
    look.turn_when_due()
    told = read_budgets(world.repo)
    assert told is not None
    assert told.counter == 1
    world.clock.sleep(SECONDS_BETWEEN_LOOKS)
    before = counting.snapshot()
    look.turn_when_due()
    after = counting.snapshot()
    assert (after.reads - before.reads, after.writes - before.writes) == (2, 1)
    assert after.lists - before.lists == 2


def test_a_look_that_takes_long_is_taken_more_rarely_and_still_often_enough(world: World) -> None:
    """Never so rarely that what it found counts as not known before the next one."""
    set_budgets(world, "all:1usd/month")
    looked: list[float] = []

    def take_long(_: Operation, key: str) -> None:
        if key == keys.SETTINGS:
            world.clock.sleep(60)
            looked.append(world.clock.monotonic())

    repo = world.repo_over(GuardedStore(world.store, before=take_long))
    look = BudgetKeeping(repo, by="coordinator", catalog=NO_CATALOG)
    for _ in range(60):
        look.turn_when_due()
        world.clock.sleep(15)
    pauses = [later - earlier for earlier, later in itertools.pairwise(looked)]
    assert pauses
    assert {300 <= pause < STALE.total_seconds() for pause in pauses} == {True}


def test_what_is_spoilt_is_made_anew(world: World) -> None:
    set_budgets(world, "all:1usd/month")
    used(world, 1)
    world.store.put(keys.BUDGETS, b"nonsense")
    keeping(world).turn()
    assert spent(world) == {"all": 4.0}


def test_warned_and_held_are_told_once_whoever_looks(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """R301: once a period and subject, over another coordinator."""
    caplog.set_level(logging.WARNING, "stado.jobs.budget_keeping")
    set_budgets(world, "users:10usd/month")
    used(world, 1, hours=2.0)
    keeping(world).turn()
    used(world, 2, hours=0.4)
    assert keeping(world).turn() == []
    assert caplog.messages == [
        "event=budget_warned whose=users user=ada spent=8.000000 unit=usd period=month"
    ]
    used(world, 3)
    keeping(world).turn()
    keeping(world).turn()
    assert caplog.messages[1:] == [
        "event=budget_held whose=users user=ada spent=13.600000 unit=usd period=month"
    ]


def test_a_segment_that_cannot_be_read_frees_nobody(world: World) -> None:
    """R302: unknown is not unspent."""
    set_budgets(world, "all:1usd/month")
    used(world, 1)
    Compaction(world.repo, by="c", pace=Pace(names_min=1)).turns(60)
    keeping(world).turn()
    (segment,) = world.names(keys.LEDGER_SEGMENTS)
    world.store.put(segment, b"nonsense")
    keeping(world).turn()
    told = read_budgets(world.repo)
    assert told is not None
    assert (told.uncounted, told.spent[0].spent_micro) == (1, 4_000_000)
    assert told.spent[0].state is BudgetState.HELD


# --- the claim ----------------------------------------------------------------------------


def spend_all(world: World, *rules: str) -> Spending:
    set_budgets(world, *rules)
    used(world, 1)
    keeping(world).turn()
    told = read_budgets(world.repo)
    assert told is not None
    return told


@pytest.mark.parametrize("whose", ["all", "group.big", "user.ada", "users"])
def test_nothing_is_claimed_and_nothing_written_while_the_budget_is_spent(
    world: World, whose: str
) -> None:
    """R302: until the period ends, by the store's clock; one read, and no place is taken."""
    told = spend_all(world, f"{whose}:4usd/day")
    record = queued(world)
    holds = holds_of(spent_out(settings_of(world), told, world.repo.now()))
    counting = CountingStore(world.store, world.tasks)
    repo, (entry,) = world.repo_over(counting), world.entries()
    with pytest.raises(BudgetGone) as gone:
        claim(repo, entry, ALICE, settings_of(world), holds=holds)
    assert gone.value.subject == {"all": "", "group.big": "big"}.get(whose, "ada")
    asked = counting.snapshot()
    assert (asked.reads, asked.writes, asked.deletes, asked.lists) == (1, 0, 0, 0)
    assert world.names(keys.QUOTA) == []
    world.clock.sleep(24 * HOUR)
    claimed = claim(world.repo, entry, ALICE, settings_of(world), holds=holds)
    assert claimed is not None
    assert claimed.record.id == record.id


def test_what_was_given_back_is_a_new_start(world: World) -> None:
    """R302: what runs goes on; what is lost, retried or resumed waits."""
    job = world.submit(spec=GROUP)
    world.claimed_of(job)
    told = spend_all(world, "all:4usd/month")
    assert world.states(job) == {State.RUNNING}
    give_back(world, job)
    holds = holds_of(spent_out(settings_of(world), told, world.repo.now()))
    with pytest.raises(BudgetGone):
        claim(world.repo, world.entries()[0], ALICE, settings_of(world), holds=holds)


# --- as people see it ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("whose", "called"),
    [
        ("all", "the deployment"),
        ("group.big", "group big"),
        ("user.ada", "ada"),
        ("users", "ada"),
    ],
)
def test_a_job_that_waits_for_a_budget_is_told_whose_and_until_when(
    world: World, whose: str, called: str
) -> None:
    """R302, R14: before hosts are looked at, in each place where a wait is told."""
    spend_all(world, f"{whose}:4usd/month")
    record = queued(world)
    told = explain(world.repo, record)
    assert told.wait.code == "waiting_budget"
    assert told.wait.text == (
        f"the budget of {called} is spent: $4.00 of $4.00 a month; it begins anew at "
        "Sun 2026-02-01 00:00Z"
    )
    assert told.wait.until is not None
    assert told.wait.until.startswith("at Sun 2026-02-01 00:00Z, when a budget begins anew: ")
    assert told.wait.remedy is not None
    assert "stado settings set budgets.rules" in told.wait.remedy
    names = [gate.name for gate in told.gates]
    assert names.index(GateName.BUDGET) < names.index(GateName.WORKERS)
    sight = LimitSight(world.repo)
    (listed,) = waits_of([record], [], 0, paused=False, unread=0, limits=sight).values()
    assert listed.code == "waiting_budget"
    assert why_queued(world.repo, record.spec, record.id, user="ada").code == "waiting_budget"


def test_a_deadline_within_the_period_is_told(world: World) -> None:
    spend_all(world, "all:4usd/day")
    deadline = world.repo.now() + timedelta(hours=7)
    wait = why_queued(world.repo, GROUP.evolve(deadline_at=deadline), user="ada")
    assert wait.until is None
    assert wait.text.endswith(
        "begins anew at Fri 2026-01-02 00:00Z, and its deadline is before that"
    )


def test_a_budget_that_is_not_spent_is_an_open_gate(world: World) -> None:
    """R301: with how much of it is; soon spent, who submits is told."""
    spend_all(world, "group.big:5usd/day")
    gate = next(one for one in explain(world.repo, queued(world)).gates if one.name == "budget")
    assert gate.wait is None
    assert gate.text == "its budgets are not spent: group big has spent $4.00 of $5.00 a day"
    (note,) = LimitSight(world.repo).budget_notes(GROUP, user="ada")
    assert note == (
        "80 % of the budget of group big is spent: $4.00 of $5.00 a day; once all of it is, new "
        "jobs wait until 2026-01-02 00:00Z"
    )
    gates = explain(world.repo, queued(world, Spec(command=""))).gates
    assert GateName.BUDGET not in {gate.name for gate in gates}
    assert LimitSight(world.repo).budget_notes(Spec(command=""), user="ada") == []


def test_what_nobody_has_worked_out_is_not_known(world: World) -> None:
    """R301: neither held nor within."""
    set_budgets(world, "all:4usd/day")
    gate = next(one for one in explain(world.repo, queued(world)).gates if one.name == "budget")
    assert gate.wait is None
    assert "not known" in gate.text
    (row,) = see_budgets(world.repo).rows
    assert (row.state, row.spent_micro) == ("unknown", None)


def test_what_is_old_says_who_is_held_and_not_who_is_not(world: World) -> None:
    """R301: what was spent is spent; what is left is known of now alone."""
    spend_all(world, "all:4usd/month", "group.big:40usd/month", "users:5usd/day")
    assert {row.state for row in see_budgets(world.repo).rows} == {"held", "ok", "warned"}
    world.clock.sleep(HOUR)
    seen = see_budgets(world.repo)
    assert seen.old
    assert [row.state for row in seen.rows] == ["held", "unknown", "unknown", "unknown"]
    world.clock.sleep(40 * 24 * HOUR)
    assert {row.state for row in see_budgets(world.repo).rows} == {"unknown"}
    assert LimitSight(world.repo).wait_of(GROUP, user="ada", job_id=None) is None


def test_jobs_before_it_that_wait_for_a_budget_are_not_counted(world: World) -> None:
    spend_all(world, "group.big:4usd/month")
    Agent(world).broadcast()
    world.submit(spec=GROUP)
    other = queued(world, Spec(command=""))
    told = explain(world.repo, other)
    assert told.wait.code == "starting"
    assert told.wait.text.endswith("it should start in a moment")


def test_of_a_budget_that_was_just_set_nothing_is_known(world: World) -> None:
    """Neither `job why` nor a submission says that it is not spent."""
    set_budgets(world, "user.ada:100usd/day")
    used(world, 1)
    keeping(world).turn()
    set_budgets(world, "group.big:100usd/day")
    gate = next(one for one in explain(world.repo, queued(world)).gates if one.name == "budget")
    unknown = "what is spent of group.big:100usd/day is not known yet: "
    assert gate.text.startswith(unknown)
    (note,) = LimitSight(world.repo).budget_notes(GROUP, user="ada")
    assert note.startswith(unknown)
    keeping(world).turn()
    assert LimitSight(world.repo).budget_notes(GROUP, user="ada") == []


def test_each_percent_is_told_as_it_is() -> None:
    assert [percent_text(number * 1_000_000, 100_000_000) for number in range(1, 101)] == [
        f"{number} %" for number in range(1, 101)
    ]


def test_the_row_of_the_others_is_never_told_as_held(world: World) -> None:
    set_budgets(world, "users:1usd/day")
    used(world, 1)
    keeping(world).turn()
    budgets = read_budgets(world.repo)
    assert budgets is not None
    others = budgets.spent[-1].evolve(spent_micro=9_000_000, over=3)
    version = world.store.head(keys.BUDGETS)
    assert version is not None
    document = budgets.evolve(spent=[others])
    world.store.replace(keys.BUDGETS, document.encode(), version.version)
    (row,) = see_budgets(world.repo).rows
    assert (row.state, row.over) == ("warned", 3)
