"""Small scenarios in which every request may fail. To add one: a function that says who does what
on a stage, and what comes of it without a fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from stado.core import keys
from stado.core.documents import decode
from stado.core.schedules import Schedule
from stado.core.spec import After, Step
from stado.core.states import AfterWhen, Leftover, State
from stado_agent.making_room import RoomWaits
from tests.simulation.commands import Script
from tests.simulation.hardware import CardPlan, HostPlan
from tests.simulation.network import Ways
from tests.simulation.plan import Plan
from tests.simulation.stage import Stage
from tests.simulation.weather import Rates

_LEASE = 6.0
_SEGMENTS = 3

PLAN = Plan(
    lease=_LEASE,
    grace=0.5,
    poll=1.0,
    hosts=(HostPlan(), HostPlan()),
    coordinators=1,
    people=0,
    jobs_max=0,
    mishaps=0,
    rates=Rates(),
    ways=Ways(
        latency_max=0.02,
        timeout=1.0,
        stall_min=1.2 * _LEASE,
        stall_max=2.5 * _LEASE,
        late_min=_LEASE,
        late_max=3 * _LEASE,
    ),
)
"""Two agents and a coordinator; a stall lasts longer than a lease, and so long a write is late."""


@dataclass(frozen=True)
class Scenario:
    """`ends` and `starts`: the states of its jobs, and how many commands were started, when
    nothing fails."""

    name: str
    play: Callable[[Stage], None]
    requests_min: int
    """Fewer would mean that it no longer is what it was."""
    ends: tuple[State, ...]
    starts: int
    plan: Plan = PLAN


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    name: str, *, requests_min: int, ends: tuple[State, ...], starts: int, plan: Plan = PLAN
) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
    """Registers what it decorates."""

    def register(play: Callable[[Stage], None]) -> Callable[[Stage], None]:
        SCENARIOS[name] = Scenario(name, play, requests_min, ends, starts, plan)
        return play

    return register


@scenario("run", requests_min=20, ends=(State.COMPLETED,), starts=1)
def _run(stage: Stage) -> None:
    stage.submit("ann", "run", [Script(seconds=1.5)])


@scenario("ledger", requests_min=80, ends=(State.COMPLETED,) * 3, starts=3)
def _ledger(stage: Stage) -> None:
    """What the first jobs used is compacted while the others run, into a segment that is written
    anew for each."""
    stage.submit("ann", "run", [Script(seconds=seconds) for seconds in (0.5, 3.0, 6.0)])


BETWEEN_POLLS = 0.5
"""Seconds after the beginning: the agents have found the queue empty, and wait."""


@scenario("cancel-queued", requests_min=20, ends=(State.CANCELLED,), starts=0)
def _cancel_queued(stage: Stage) -> None:
    stage.after(BETWEEN_POLLS, lambda: stage.submit("ann", "run", [Script(seconds=1.5)]))
    stage.when(lambda: stage.has_job_in(State.QUEUED), lambda: stage.cancel("bob", "run"))


@scenario("set-priority", requests_min=40, ends=(State.COMPLETED,), starts=1)
def _set_priority(stage: Stage) -> None:
    """Of a queued job, by two people at once: there, and elsewhere."""
    stage.after(BETWEEN_POLLS, lambda: stage.submit("ann", "run", [Script(seconds=1.5)]))
    stage.when(lambda: stage.has_job_in(State.QUEUED), lambda: stage.set_priority("bob", "run", 5))
    stage.when(lambda: stage.has_job_in(State.QUEUED), lambda: stage.set_priority("cy", "run", 9))


@scenario("cancel-running", requests_min=30, ends=(State.CANCELLED,), starts=1)
def _cancel_running(stage: Stage) -> None:
    stage.submit("ann", "run", [Script(seconds=4.0)])
    stage.when(lambda: bool(stage.started), lambda: stage.cancel("bob", "run"))


@scenario("pause", requests_min=60, ends=(State.COMPLETED,), starts=2)
def _pause(stage: Stage) -> None:
    """Of a running job that has saved; it is resumed once it rests."""
    script = Script(seconds=5.0, checkpoint_every=2.0)
    stage.submit("ann", "run", [script])
    stage.when(lambda: _has_saved(stage), lambda: stage.pause("bob", "run"))
    stage.when(lambda: stage.has_job_in(State.PAUSED), lambda: stage.resume("ann", "run"))


@scenario("yield", requests_min=60, ends=(State.COMPLETED,), starts=2)
def _yield(stage: Stage) -> None:
    """Of a running job that has saved, and may make room once; it is asked twice."""
    script = Script(seconds=5.0, checkpoint_every=2.0)
    stage.submit("ann", "run", [script], yieldable=True, max_yields=1)
    stage.when(lambda: _has_saved(stage), lambda: stage.want_room("bob", "run"))
    stage.when(lambda: len(stage.started) > 1, lambda: stage.want_room("bob", "run"))


@scenario("cancel-paused", requests_min=30, ends=(State.CANCELLED,), starts=0)
def _cancel_paused(stage: Stage) -> None:
    stage.after(BETWEEN_POLLS, lambda: stage.submit("ann", "run", [Script(seconds=1.5)]))
    stage.when(lambda: stage.has_job_in(State.QUEUED), lambda: stage.pause("bob", "run"))
    stage.when(lambda: stage.has_job_in(State.PAUSED), lambda: stage.cancel("bob", "run"))


@scenario("retry", requests_min=50, ends=(State.FAILED,), starts=2)
def _retry(stage: Stage) -> None:
    """Of a job that fails, and fails again; two people ask for it at once."""
    stage.submit("ann", "run", [Script(seconds=1.0, exit_code=1)])
    stage.when(lambda: stage.has_job_in(State.FAILED), lambda: stage.retry("bob", "run"))
    stage.when(lambda: stage.has_job_in(State.FAILED), lambda: stage.retry("ann", "run"))


@scenario("delete", requests_min=40, ends=(), starts=1)
def _delete(stage: Stage) -> None:
    stage.submit("ann", "run", [Script(seconds=1.0, print_every=0.5, writes_output=True)])
    stage.when(lambda: stage.has_job_in(State.COMPLETED), lambda: stage.delete("bob", "run"))


@scenario("retention", requests_min=50, ends=(State.FAILED,), starts=2)
def _retention(stage: Stage) -> None:
    """Two people let go what has ended, as old as it is; a third has it retried as soon as they
    have begun."""
    script = Script(seconds=3.0, checkpoint_every=1.0, writes_output=True, exit_code=1)
    stage.submit("ann", "run", [script])
    kinds = (Leftover.OUTPUTS, Leftover.CHECKPOINTS)
    stage.when(lambda: stage.has_job_in(State.FAILED), lambda: stage.let_go("bob", *kinds))
    stage.when(lambda: stage.has_job_in(State.FAILED), lambda: stage.let_go("cy", *kinds))
    stage.when(lambda: _has_begun_to_go(stage), lambda: stage.retry("ann", "run"))


def _has_begun_to_go(stage: Stage) -> bool:
    return bool(stage.store.list(keys.expired_folder(Leftover.OUTPUTS.value)))


@scenario(
    "submit",
    requests_min=40,
    ends=(State.COMPLETED, State.COMPLETED),
    starts=2,
    plan=replace(PLAN, ways=replace(PLAN.ways, creates_at_once=False)),
)
def _submit(stage: Stage) -> None:
    """Two people send the same batch at once."""
    scripts = [Script(seconds=0.5), Script(seconds=0.5)]
    stage.submit("ann", "run", scripts)
    stage.submit("bob", "run", scripts)


@scenario("log", requests_min=60, ends=(State.COMPLETED,), starts=2)
def _log(stage: Stage) -> None:
    """Of two epochs, each of more than two segments; somebody follows. The first host loses power
    when it has stored some."""
    stage.submit("ann", "run", [Script(seconds=10.0, print_every=0.8)])
    stage.when(lambda: bool(stage.started), lambda: stage.follow("bob", "run"))
    stage.when(lambda: _segments(stage) > _SEGMENTS, lambda: _lose_holder(stage))


def _segments(stage: Stage) -> int:
    return sum(len(stage.store.list(keys.log_folder(job_id))) for job_id in stage.job_ids("run"))


@scenario("checkpoint", requests_min=60, ends=(State.COMPLETED,), starts=2)
def _checkpoint(stage: Stage) -> None:
    """The host of the first holder loses power when a checkpoint has been saved."""
    script = Script(seconds=5.0, print_every=2.0, checkpoint_every=2.0, writes_output=True)
    stage.submit("ann", "run", [script], verify=True)
    stage.when(lambda: _has_saved(stage), lambda: _lose_holder(stage))


@scenario("train", requests_min=60, ends=(State.CANCELLED,), starts=2)
def _train(stage: Stage) -> None:
    """The host of the first holder loses power when it has saved; the second one is cancelled when
    it has. A second loss is the end."""
    script = Script(seconds=60.0, checkpoint_every=2.0)
    stage.submit("ann", "run", [script], trains=True)
    stage.when(lambda: _has_saved(stage), lambda: _lose_holder(stage))
    stage.when(lambda: _has_saved(stage, epoch=2), lambda: stage.cancel("bob", "run"))


@scenario("expire", requests_min=14, ends=(State.TIMED_OUT,), starts=0)
def _expire(stage: Stage) -> None:
    """No host is so large."""
    stage.submit("ann", "run", [Script(seconds=1.5)], deadline_seconds=2.0, cpu=64.0)


@scenario("time-out", requests_min=30, ends=(State.TIMED_OUT,), starts=2)
def _time_out(stage: Stage) -> None:
    """Of the second run of a command whose first one has failed."""
    script = Script(seconds=1.2, failures=1)
    stage.submit("ann", "run", [script], timeout_seconds=2, body_retries=1)


@scenario("try-again", requests_min=40, ends=(State.FAILED,), starts=2)
def _try_again(stage: Stage) -> None:
    """By itself, once."""
    script = Script(seconds=1.2, exit_code=1)
    stage.submit("ann", "run", [script], retries=1, retry_delay_seconds=1)


@scenario("pipeline", requests_min=50, ends=(State.COMPLETED, State.COMPLETED), starts=2)
def _pipeline(stage: Stage) -> None:
    """Of two steps: a root, and what follows it."""
    stage.scripts["export"] = Script(seconds=0.5)
    script = Script(seconds=1.2, writes_output=True)
    stage.submit("ann", "run", [script], then=[Step(name="export", command="export")])


@scenario("after", requests_min=60, ends=(State.COMPLETED, State.COMPLETED), starts=2)
def _after(stage: Stage) -> None:
    """A job that waits for another one is submitted while that runs."""
    stage.submit("ann", "run", [Script(seconds=3.0)])
    stage.when(lambda: bool(stage.started), lambda: _submit_after(stage, AfterWhen.OK))


@scenario("doomed", requests_min=40, ends=(State.COMPLETED, State.FAILED), starts=1)
def _doomed(stage: Stage) -> None:
    """It waits for a failure, which does not come."""
    stage.submit("ann", "run", [Script(seconds=3.0)])
    stage.when(lambda: bool(stage.started), lambda: _submit_after(stage, AfterWhen.FAIL))


def _submit_after(stage: Stage, when: AfterWhen) -> None:
    after = [After(job_id=job_id, when=when) for job_id in stage.job_ids("run")]
    stage.submit("bob", "next", [Script(seconds=0.5)], after=after)


def _has_saved(stage: Stage, *, epoch: int = 1) -> bool:
    saves = (
        keys.parse_checkpoint_manifest(entry.key)
        for job_id in stage.job_ids("run")
        for entry in stage.store.list(keys.checkpoints_folder(job_id))
    )
    return any(save is not None and save[0] >= epoch for save in saves)


def _lose_holder(stage: Stage) -> None:
    for command in stage.started[-1:]:
        stage.lose_power(command.host, seconds=2 * _LEASE)


@scenario("tell", requests_min=40, ends=(State.CANCELLED,), starts=1, plan=replace(PLAN, told=1.0))
def _tell(stage: Stage) -> None:
    """Two channels are to be told of a job that is paused and then cancelled."""
    rules = ["pager:paused,cancelled", "team:cancelled,completed"]
    stage.submit("ann", "run", [Script(seconds=60.0)], notify=rules)
    stage.when(lambda: bool(stage.started), lambda: stage.pause("bob", "run"))
    stage.when(lambda: stage.has_job_in(State.PAUSED), lambda: stage.cancel("bob", "run"))


@scenario(
    "limit",
    requests_min=40,
    ends=(State.COMPLETED, State.COMPLETED),
    starts=2,
    plan=replace(PLAN, running_jobs=1),
)
def _limit(stage: Stage) -> None:
    """Two hosts have room for a job each, and one job may run."""
    stage.submit("ann", "run", [Script(seconds=1.2)])
    stage.submit("bob", "other", [Script(seconds=1.2)])


def _with_two_cards(number: int) -> HostPlan:
    return HostPlan(
        cards=tuple(CardPlan(f"GPU-{number}-{place}", "a100", 40 * 1024) for place in range(2))
    )


@scenario(
    "limit-cards",
    requests_min=50,
    ends=(State.COMPLETED, State.COMPLETED),
    starts=2,
    plan=replace(PLAN, hosts=(_with_two_cards(1), _with_two_cards(2)), running_gpus=3),
)
def _limit_cards(stage: Stage) -> None:
    """Two hosts have two cards each, which two jobs want; three may be held."""
    stage.submit("ann", "run", [Script(seconds=1.2)], gpus=2)
    stage.submit("bob", "other", [Script(seconds=1.2)], gpus=2)


_CARD_MIB = 24 * 1024
_THREE_CARDS = HostPlan(
    cpu=4.0,
    cards=tuple(CardPlan(f"GPU-{n}", "geforce-rtx-4090", _CARD_MIB) for n in range(3)),
)


@scenario(
    "make-room",
    requests_min=150,
    ends=(State.COMPLETED,) * 5,
    starts=7,
    plan=replace(
        PLAN,
        hosts=(_THREE_CARDS, HostPlan()),
        room_waits=RoomWaits(
            yield_after_seconds=0.5, keep_after_seconds=5.0, ask_again_seconds=30.0
        ),
    ),
)
def _make_room(stage: Stage) -> None:
    """Three jobs that may yield have a card each. A more urgent one wants two: two of them make
    room. What comes meanwhile, and would do with the first card that gets free, waits."""
    script = Script(seconds=6.0, checkpoint_every=4.0)
    stage.submit("ann", "run", [script] * 3, gpus=1, yieldable=True, max_yields=1)
    stage.when(lambda: len(stage.started) == 3, lambda: _submit_urgent(stage))
    stage.when(
        lambda: _is_asked_for_room(stage),
        lambda: stage.submit("cy", "late", [Script(seconds=1.0)], gpus=1),
    )


def _submit_urgent(stage: Stage) -> None:
    stage.submit("bob", "large", [Script(seconds=1.0)], gpus=2, priority=5)


def _is_asked_for_room(stage: Stage) -> bool:
    asks = (keys.asks(job_id, 1) for job_id in stage.job_ids("run"))
    return any(stage.store.list(key, limit=1) for key in asks)


@scenario(
    "schedule",
    requests_min=30,
    ends=(State.COMPLETED,),
    starts=1,
    plan=replace(PLAN, begins_at=57.0),
)
def _schedule(stage: Stage) -> None:
    """Its first due time is submitted, and somebody pauses it meanwhile."""
    stage.schedule("ann", "s", Script(seconds=0.5), end_seconds=600.0)
    stage.when(lambda: _is_firing(stage), lambda: stage.pause_schedule("bob", "s"))
    stage.after(5.0, lambda: None)


def _is_firing(stage: Stage) -> bool:
    """Or it has been."""
    found = stage.store.list(keys.SCHEDULES)
    schedules = [decode(Schedule, one.key, stage.store.get(one.key).data) for one in found]
    return any(one.firing is not None or one.fires for one in schedules)
