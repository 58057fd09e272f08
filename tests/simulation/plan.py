"""What a run is made of, drawn from its seed: the deployment, its hosts, the jobs, the weather, and
how long it lasts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from stado.core.settings import DeploymentSettings, GroupSettings, Limits, Quotas
from stado.storage.port import LIST_LIMIT_MAX
from stado_agent.making_room import RoomWaits
from tests.simulation.commands import Script
from tests.simulation.fleet import draw_hosts, draw_room_waits
from tests.simulation.hardware import HostPlan
from tests.simulation.kernel import Kernel
from tests.simulation.network import Ways
from tests.simulation.weather import Rates

GROUP = "licences"


@dataclass(frozen=True)
class Plan:
    """Times are in seconds."""

    lease: float = 30.0
    grace: float = 5.0
    poll: float = 2.0
    begins_at: float = 0.0
    """After a full minute."""

    safety: float = 900.0
    """How long faults go on."""

    hosts: tuple[HostPlan, ...] = (HostPlan(), HostPlan())
    coordinators: int = 1
    people: int = 2
    jobs_max: int = 8
    mishaps: int = 0
    """What operators and accidents do to hosts and processes, in all."""

    outages: int = 0
    """How often the line of a host that works is away for longer than a lease; then jobs are long,
    so that most of them live through one."""

    runtime_limit_seconds: int | None = None
    """Of the deployment."""

    running_jobs: int | None = None
    running_jobs_per_user: int | None = None
    group_limit: int | None = None
    """Of the deployment: how many jobs may run at a time, in all, of a user, of the group that some
    submissions state."""

    running_gpus: int | None = None
    """Of the deployment: how many cards may be held."""

    limited: float = 0.0
    """The share of submissions that state limits of time, or runs."""

    chained: float = 0.0
    """The share of submissions that have steps, and of those that wait for other jobs."""

    schedules: int = 0
    """How many there are at most at a time."""

    told: float = 0.0
    """The share of submissions with rules of what is told; where it is 0 coordinators have no
    channels."""

    placed: float = 0.0
    """The share of submissions that ask for a part of a host, for cards, for some kind of host."""

    room_waits: RoomWaits = field(default_factory=RoomWaits)
    """Of all agents."""

    ways: Ways = field(default_factory=Ways)
    rates: Rates = field(default_factory=Rates)
    versions_by_content: bool = False

    @classmethod
    def drawn(cls, kernel: Kernel) -> Plan:
        dice = kernel.random
        lease = dice.choice((6.0, 12.0, 20.0))
        placed = dice.choice((0.0, 0.0, 0.5, 0.9))
        hosts = draw_hosts(kernel, differ=placed > 0)
        plan = cls(
            lease=lease,
            grace=dice.choice((0.5, 5.0, 20.0)),
            poll=dice.choice((1.0, 3.0, 5.0)),
            safety=dice.choice((80.0, 160.0, 300.0)),
            hosts=hosts,
            coordinators=dice.choice((0, 1, 1, 2)),
            people=dice.choice((1, 2, 2, 3)),
            jobs_max=dice.choice((1, 4, 10, 20, 30)),
            mishaps=dice.choice((0, 3, 8, 15, 25)),
            ways=Ways(
                latency_max=dice.choice((0.002, 0.1, 0.5, 2.0)),
                timeout=dice.choice((1.0, 10.0, 30.0)),
                stall_max=dice.choice((1.0, 1.5 * lease, 5 * lease)),
                late_max=dice.choice((lease / 4, 2 * lease, 5 * lease)),
                slow=0.8 * lease,
                page_size=dice.choice((1, 2, 5, LIST_LIMIT_MAX)),
                creates_at_once=dice.random() < 0.5,
                deletes_by_version=dice.random() < 0.8,
            ),
            rates=Rates.drawn(kernel),
            versions_by_content=dice.random() < 0.5,
            runtime_limit_seconds=dice.choice((None, None, None, None, round(6 * lease))),
            limited=dice.choice((0.0, 0.3, 0.6)),
            chained=dice.choice((0.0, 0.0, 0.2, 0.4)),
            told=dice.choice((0.0, 0.0, 0.5)),
            schedules=dice.choice((0, 0, 1, 2)),
            placed=placed,
            room_waits=draw_room_waits(kernel) if placed else RoomWaits(),
            running_jobs=dice.choice((None, None, None, 1, 2)),
            running_jobs_per_user=dice.choice((None, None, None, 1)),
            group_limit=dice.choice((None, None, 1)),
            running_gpus=dice.choice((None, max(len(host.cards) for host in hosts) or None)),
        )
        return plan.with_outages(kernel) if dice.random() < 0.2 else plan

    @property
    def settings(self) -> DeploymentSettings:
        limit = self.group_limit
        return DeploymentSettings(
            limits=Limits(runtime_seconds=self.runtime_limit_seconds),
            quotas=Quotas(
                running_jobs=self.running_jobs,
                running_jobs_per_user=self.running_jobs_per_user,
                running_gpus=self.running_gpus,
            ),
            groups=GroupSettings(limits=None if limit is None else {GROUP: limit}),
        )

    def with_outages(self, kernel: Kernel) -> Plan:
        """Few hosts, which live, and are declared dead now and then: what they run is adopted when
        they are back, if nobody else has taken it."""
        dice = kernel.random
        return replace(
            self,
            safety=20 * self.lease,
            hosts=self.hosts[: dice.choice((1, 1, 2))],
            coordinators=max(1, self.coordinators),
            jobs_max=dice.choice((2, 4, 8)),
            mishaps=0,
            outages=dice.choice((3, 6)),
            rates=dice.choice((Rates(), self.rates)),
        )


def draw_limits(kernel: Kernel, plan: Plan, now: datetime) -> dict[str, Any]:
    """Fields of a spec: of some jobs what ends them for their time, and how often they run."""
    dice, lease = kernel.random, plan.lease
    if dice.random() >= plan.limited:
        return {}
    limits: dict[str, Any] = {"body_retries": dice.choice((0, 0, 1, 3))}
    if dice.random() < 0.5:
        limits["retries"] = dice.choice((1, 2, 3))
        limits["retry_delay_seconds"] = round(dice.choice((1.0, lease / 2, 2 * lease)))
    if dice.random() < 0.5:
        limits["timeout_seconds"] = round(dice.choice((1.0, lease / 2, 2 * lease, 5 * lease)))
    if dice.random() < 0.3:
        limits["deadline_at"] = now + timedelta(seconds=dice.uniform(0, plan.safety))
    if dice.random() < 0.2:
        limits["idle_timeout_seconds"] = round(dice.choice((lease / 2, 2 * lease)))
    return limits


_RULES = (
    ["team:completed,failed,cancelled,timed_out"],
    ["pager:paused,failed,pipeline", "team:running,completed"],
    ["team:pipeline"],
)


def draw_rules(kernel: Kernel, plan: Plan) -> list[str]:
    """Of one submission: what is told of it, and where."""
    if not plan.told or kernel.random.random() >= plan.told:
        return []
    return kernel.random.choice(_RULES)


def draw_script(kernel: Kernel, plan: Plan) -> Script:
    """Of one job: mostly shorter than a lease, now and then much longer."""
    dice, lease = kernel.random, plan.lease
    seconds = dice.choice(
        (lease, 3 * lease, 6 * lease)
        if plan.outages
        else (0.0, 0.0, 0.3, 2.0, lease / 2, 2 * lease, 4 * lease)
    )
    return Script(
        seconds=seconds,
        exit_code=dice.choice((0, 0, 0, 0, 1)),
        failures=dice.choice((0, 0, 0, 1, 2)) if plan.limited else 0,
        print_every=dice.choice((0.0, 1.0, 10.0)),
        checkpoint_every=dice.choice((0.0, 0.0, lease / 8, lease)),
        writes_output=dice.random() < 0.3,
        deaf=dice.random() < 0.2,
    )
