"""`stado agent run`: reads the environment, puts the agent together, and heeds signals."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import click

from stado.composition import (
    live_machine,
    log_to_stderr,
    open_repository,
    read_settings,
    unused_repository,
)
from stado.errors import Refused
from stado.settings import Settings
from stado.system.folder_lock import FolderLock
from stado.system.hardware import LiveHardware
from stado.system.processes import LiveProcesses
from stado.target import Target, target_options
from stado.version import VERSION
from stado_agent.agent import Agent, AgentSettings
from stado_agent.budget import Limits
from stado_agent.workspace import HostFolder

_KIND = "local"
_POLL_SECONDS_DIRECTORY = 0.5
_POLL_SECONDS_BUCKET = 5.0


class _Signals:
    """The first INT or TERM drains, the second leaves at once."""

    def __init__(self) -> None:
        self.count = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._take)

    def _take(self, *_: object) -> None:
        self.count += 1


@click.command("run", help="Run the agent of this host: claim jobs and run them.")
@target_options
@click.option(
    "--consumer-id", metavar="NAME", help="Name of this agent in the store. Default: local@HOST."
)
@click.option(
    "--work-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Where jobs work. Default: ~/.local/state/stado.",
)
@click.option(
    "--cpu",
    type=click.FloatRange(min=0, min_open=True),
    help="Cores to give to jobs. Default: all.",
)
@click.option(
    "--memory-gb",
    type=click.FloatRange(min=0, min_open=True),
    help="GiB of memory to give to jobs. Default: what is free.",
)
@click.option(
    "--poll-seconds",
    type=click.FloatRange(min=0.05),
    help="How often an idle agent looks, at the slowest. Default: 0.5 on a directory, else 5.",
)
def run(
    *,
    target: Target,
    consumer_id: str | None,
    work_dir: Path | None,
    cpu: float | None,
    memory_gb: float | None,
    poll_seconds: float | None,
) -> None:
    log_to_stderr()
    settings = read_settings(Settings(*target), os.environ, Path("~").expanduser())
    hardware = LiveHardware()
    agent_settings = AgentSettings(
        consumer=consumer_id or f"{_KIND}@{hardware.host_name()}",
        poll_seconds=poll_seconds or _default_poll_seconds(settings),
        limits=Limits(cpu, memory_gb),
        version=VERSION,
    )
    folder = HostFolder(work_dir or _default_work_dir(), agent_settings.consumer)
    _run_agent(settings, agent_settings, folder, hardware)


def _run_agent(
    settings: Settings, agent_settings: AgentSettings, folder: HostFolder, hardware: LiveHardware
) -> None:
    machine = live_machine()
    repo = open_repository(settings, machine)
    folder.make()
    lock = FolderLock(folder.lock_path)
    with lock as ours:
        if not ours:
            raise Refused(
                "agent_running",
                f"an agent named {agent_settings.consumer} runs on this host already (process "
                f"{lock.holder()}): stop it, or give this one another --consumer-id",
            )
        agent = Agent(
            repo,
            unused_repository(settings, machine, like=repo),
            settings=agent_settings,
            folder=folder,
            processes=LiveProcesses(),
            hardware=hardware,
            environment=dict(os.environ),
        )
        signals = _Signals()
        agent.run(lambda: _heed(signals, agent))


def _heed(signals: _Signals, agent: Agent) -> bool:
    """Whether to leave at once."""
    if signals.count:
        agent.drain()
    return signals.count > 1


def _default_work_dir() -> Path:
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path("~/.local/state").expanduser()) / "stado"


def _default_poll_seconds(settings: Settings) -> float:
    bucket = "://" in (settings.store or "") and not (settings.store or "").startswith("file:")
    return _POLL_SECONDS_BUCKET if bucket else _POLL_SECONDS_DIRECTORY


if __name__ == "__main__":
    run()
