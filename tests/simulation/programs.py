"""The programs of a deployment, as the service manager of their host runs them: started again when
they end by themselves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from stado.jobs.ledger import Pace
from stado_agent.agent import Agent, AgentSettings, HostPorts, LeaveAtOnce
from stado_agent.log_spool import LogLimit
from stado_agent.this_host import WhatItIs
from stado_agent.workspace import HostFolder
from stado_coordinator.coordinator import Coordinator, tick_once
from tests.simulation.channels import SimMessenger
from tests.simulation.commands import SimProcesses
from tests.simulation.hardware import SimHardware
from tests.simulation.machine import HostClock
from tests.simulation.process import SimHost, SimProcess, consumer_on

if TYPE_CHECKING:
    from tests.simulation.world import World

_RESTART_SECONDS_MAX = 20.0

LOG_LIMIT = LogLimit(100 * 1024 * 1024, segments_max=2)
"""Most logs here have more than two segments."""

LEDGER_PACE = Pace(names_min=1, pages_max=2, segment_rows_max=3, sweep_leases=3.0)
"""Few jobs end here, and many segments shall come of them."""


class Service(ABC):
    """One program on one host."""

    name = ""

    def __init__(self, world: World, host: SimHost) -> None:
        self.world = world
        self.host = host
        self.process: SimProcess | None = None

    def start(self) -> None:
        if self.host.vanished or (self.process is not None and not self.process.gone):
            return
        self.process = self.host.new_process(self.name)
        self.process.when_ended(self._start_again_soon)
        self.process.start(self.program(), ends=None)

    def _start_again_soon(self) -> None:
        pause = self.world.kernel.random.uniform(0.5, _RESTART_SECONDS_MAX)
        self.world.kernel.after(pause, self._start_again)

    def _start_again(self) -> None:
        if self.host.up:
            self.start()

    @abstractmethod
    def program(self) -> Callable[[], None]:
        """What its process executes."""

    @abstractmethod
    def terminate(self) -> None:
        """TERM."""


class AgentService(Service):
    """`stado agent run` on a host."""

    name = "agent"

    def __init__(self, world: World, host: SimHost) -> None:
        super().__init__(world, host)
        self.folder = HostFolder(host.folder, host.name, HostClock(host))
        self._terms = 0

    def program(self) -> Callable[[], None]:
        world, host = self.world, self.host
        self._terms = 0

        def run() -> None:
            self.folder.make()
            agent = Agent(
                world.open_repository(host),
                world.open_repository(host),
                settings=AgentSettings(
                    consumer=consumer_on(host),
                    poll_seconds=world.plan.poll,
                    log_limit=LOG_LIMIT,
                    max_run_seconds=host.plan.max_run_seconds,
                    what=WhatItIs(machine_type=host.plan.machine_type, labels=host.plan.labels),
                    room_waits=world.plan.room_waits,
                    version="sim",
                ),
                host=HostPorts(
                    self.folder,
                    SimProcesses(host, script_of=world.script_of, on_start=world.tell_start),
                    SimHardware(host),
                    {},
                ),
            )
            agent.run(lambda: self._terms > 0)

        return run

    def terminate(self) -> None:
        """The first drains, the second leaves at once, out of whatever is waited for."""
        process = self.process
        if process is None or process.gone or process.main is None:
            return
        self._terms += 1
        if self._terms > 1:
            process.main.interrupt(LeaveAtOnce())
        else:
            process.main.wake()


class CoordinatorService(Service):
    """`stado coordinator run` on a host."""

    name = "coordinator"

    def program(self) -> Callable[[], None]:
        world, host = self.world, self.host

        def run() -> None:
            repo = world.open_repository(host)
            self._stop = repo.tasks.event()
            messenger = SimMessenger(world, host) if world.plan.told else None
            holder = f"coordinator@{host.name}"
            Coordinator(repo, holder=holder, messenger=messenger, ledger_pace=LEDGER_PACE).run(
                self._stop
            )

        return run

    def terminate(self) -> None:
        if self.process is not None and not self.process.gone:
            self._stop.set()


def run_tick(world: World, host: SimHost) -> None:
    """`stado coordinator run --once`, from cron."""
    process = host.new_process("cron")
    process.start(
        lambda: void(tick_once(world.open_repository(host), holder=f"cron@{host.name}")), ends=None
    )


def void(_: object) -> None:
    """For work whose answer nobody wants."""
