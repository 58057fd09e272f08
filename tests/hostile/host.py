"""A host with an agent and its supervisors, whose requests are counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stado.core.spec import Spec
from stado.storage.observe import Operation
from stado_agent.agent import Agent, AgentSettings, HostPorts
from stado_agent.budget import Limits
from stado_agent.workspace import HostFolder
from tests.agent.fakes import FakeHardware, FakeProcesses, Script, TurnClock, TurnTasks
from tests.jobs.actors import GuardedStore
from tests.jobs.world import World

NAME = "local@host-a"
_STEPS_MAX = 5000


class Host:
    """One agent, in a world of its own."""

    def __init__(self, folder: Path) -> None:
        self.clock = TurnClock()
        self.world = World(clock=self.clock, tasks=TurnTasks(self.clock))
        self.processes = FakeProcesses(self.clock)
        self.processes.scripts["true"] = Script(seconds=1.0)
        self.folder = HostFolder(folder, NAME)
        self.folder.make()
        self.requests: list[str] = []
        self.agent = Agent(
            self.world.repo_over(self._counted()),
            self.world.repo_over(self._counted()),
            settings=AgentSettings(NAME, 2.0, Limits(), version="1.0"),
            host=HostPorts(self.folder, self.processes, FakeHardware(), {"PATH": "/bin"}),
        )

    def submit(self, *commands: str, **spec: object) -> list[str]:
        """The ids."""
        before = {entry.job_id for entry in self.world.entries()}
        self.world.submit(*commands, spec=Spec(command="", **spec))  # type: ignore[arg-type]
        return [e.job_id for e in self.world.entries() if e.job_id not in before]

    def step_until(self, condition: Callable[[], bool]) -> None:
        for _ in range(_STEPS_MAX):
            if condition():
                return
            self.agent.step()
        raise AssertionError("it never came so far")

    def step_for(self, seconds: float) -> None:
        end = self.clock.monotonic() + seconds
        self.step_until(lambda: self.clock.monotonic() >= end)

    def at_rest(self, job_id: str) -> bool:
        states = self.world.states(job_id)
        return len(states) == 1 and all(state.at_rest for state in states)

    def _counted(self) -> GuardedStore:
        def count(operation: Operation, key: str) -> None:
            self.requests.append(f"{operation} {key}")

        return GuardedStore(self.world.store, before=count)
