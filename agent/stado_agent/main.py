"""`stado agent run`: reads the environment, puts the agent together, and heeds signals."""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
from pathlib import Path
from typing import Any, NamedTuple

import click

from stado.composition import (
    live_machine,
    log_to_stderr,
    logged_trouble,
    open_repository_when_reachable,
    opener_of_stores,
    read_settings,
    unused_repository,
)
from stado.core.envelope import PROVIDER_DEFAULT, check_host_words
from stado.errors import Refused
from stado.host_options import host_options, worker_options
from stado.settings import Settings
from stado.system.engine import DockerEngine, find_docker
from stado.system.folder_lock import FolderLock, check_agent_may_start
from stado.system.hardware import LiveHardware
from stado.system.processes import LiveProcesses
from stado.system.service_notice import notice_of
from stado.target import Target, target_options
from stado.version import VERSION
from stado_agent.agent import Agent, AgentSettings, HostPorts, LeaveAtOnce
from stado_agent.budget import Limits
from stado_agent.environment import inherited_environment
from stado_agent.log_spool import LogLimit
from stado_agent.secrets import SecretSettings, secret_settings
from stado_agent.this_host import WhatItIs
from stado_agent.workspace import HostFolder

log = logging.getLogger("stado_agent.main")

_KIND = "local"
_NO_ENGINE = "none"
_MIB = 1024**2
_GIB = 1024**3
_POLL_SECONDS_DIRECTORY = 0.5
_POLL_SECONDS_BUCKET = 5.0
_LEAVING_SECONDS_MAX = 4
"""From the second signal to the end, whatever the store does."""


class _Signals:
    """The first INT or TERM drains, the second leaves at once, out of whatever is waited for; so
    does QUIT, which is how a service is stopped: it must not wait for jobs that take days."""

    def __init__(self) -> None:
        self._count = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._take)
        signal.signal(signal.SIGQUIT, self._leave)

    def drain_asked(self) -> bool:
        return self._count > 0

    def leave_if_asked(self) -> None:
        """At once, where that was asked for: while the interpreter frees its memory it heeds no
        signal, and the alarm would end it as if something had gone wrong."""
        if self._count > 1:
            logging.shutdown()
            os._exit(0)

    def _leave(self, *_: object) -> None:
        self._count = max(self._count, 1)
        self._take()

    def _take(self, *_: object) -> None:
        self._count += 1
        if self._count > 1:
            signal.signal(signal.SIGALRM, _exit_now)
            signal.alarm(_LEAVING_SECONDS_MAX)
            raise LeaveAtOnce


def _exit_now(*_: object) -> None:
    """Something still waits for a store that does not answer: no job is touched by leaving it."""
    os._exit(0)


class _Options(NamedTuple):
    """What the command line says of this host."""

    consumer_id: str | None
    work_dir: Path | None
    cpu: float | None
    memory_gb: float | None
    no_accelerators: bool
    max_run_seconds: int | None
    poll_seconds: float | None
    log_limit_mb: float
    checkpoint_mb_per_second: float | None
    disk_reserve_gb: float | None
    secrets_dir: Path | None
    secrets_from: str | None
    secrets_endpoint: str | None
    allow_secret: tuple[str, ...]
    cache_gb: float | None
    docker: str | None
    label: tuple[str, ...]
    machine_type: str | None
    provider: str | None
    spot: bool
    price_per_hour: float | None

    @property
    def what(self) -> WhatItIs:
        """Raises `Refused`."""
        provider = self.provider or PROVIDER_DEFAULT
        check_host_words(machine_type=self.machine_type, provider=provider, labels=self.label)
        return WhatItIs(
            machine_type=self.machine_type,
            provider=provider,
            spot=self.spot,
            labels=tuple(sorted(set(self.label))),
            price_per_hour=self.price_per_hour,
        )

    @property
    def cache_bytes(self) -> int | None:
        return None if self.cache_gb is None else round(self.cache_gb * _GIB)

    @property
    def checkpoint_bytes_per_second(self) -> float | None:
        rate = self.checkpoint_mb_per_second
        return None if rate is None else rate * _MIB

    @property
    def disk_reserve_bytes(self) -> int | None:
        return None if self.disk_reserve_gb is None else round(self.disk_reserve_gb * _GIB)

    @property
    def secrets(self) -> SecretSettings:
        """Raises `Refused`."""
        return secret_settings(
            folder=self.secrets_dir,
            service=self.secrets_from,
            endpoint=self.secrets_endpoint,
            allowed=self.allow_secret,
        )


@click.command("run")
@target_options
@host_options
@worker_options
def run(*, target: Target, **options: Any) -> None:
    """Make this machine a worker: claim jobs and run them.

    The first Ctrl-C or TERM lets what runs end, the second leaves at once: its jobs go on, and
    the next agent here takes them over. `stado up` runs one beside a coordinator.

    \b
      stado agent run --store s3://lab-jobs/stado --cpu 8 --memory-gb 32
    """
    log_to_stderr()
    signal.signal(signal.SIGQUIT, _exit_now)
    settings = read_settings(
        Settings(*target),
        os.environ,
        Path(os.path.expanduser("~")),
        lambda text: log.warning("event=endpoint_not_used why=%r", text),
    )
    hardware = LiveHardware()
    stated = _Options(**options)
    agent_settings = AgentSettings(
        consumer=stated.consumer_id or f"{_KIND}@{hardware.host_name()}",
        poll_seconds=stated.poll_seconds or _default_poll_seconds(settings),
        limits=Limits(stated.cpu, stated.memory_gb),
        log_limit=LogLimit(round(stated.log_limit_mb * _MIB)),
        checkpoint_bytes_per_second=stated.checkpoint_bytes_per_second,
        disk_reserve_bytes=stated.disk_reserve_bytes,
        cache_bytes=stated.cache_bytes,
        secrets=stated.secrets,
        max_run_seconds=stated.max_run_seconds,
        what=stated.what,
        accelerators=not stated.no_accelerators,
        version=VERSION,
    )
    folder = HostFolder(stated.work_dir or _default_work_dir(), agent_settings.consumer)
    _run_agent(settings, agent_settings, folder, hardware, _engine(stated.docker))


def _engine(program: str | None) -> DockerEngine | None:
    """Raises `Refused` when one was stated that is not there."""
    if program == _NO_ENGINE:
        return None
    found = find_docker(program or "docker", inherited_environment(os.environ))
    if found is None and program is not None:
        raise Refused(
            "docker_missing",
            f"--docker {program!r} is no program that can be executed here: name another, or "
            f"'{_NO_ENGINE}' to leave jobs with an image to other hosts",
        )
    return found


def _run_agent(
    settings: Settings,
    agent_settings: AgentSettings,
    folder: HostFolder,
    hardware: LiveHardware,
    engine: DockerEngine | None,
) -> None:
    machine = live_machine()
    trouble = logged_trouble(machine)
    faulthandler.enable()
    notice = notice_of(os.environ, machine.clock)
    repo = open_repository_when_reachable(settings, machine, trouble, notice.tell)
    _make(folder)
    lock = FolderLock(folder.lock_path)
    with lock as ours:
        check_agent_may_start(agent_settings.consumer, lock, ours=ours)
        agent = Agent(
            repo,
            unused_repository(settings, machine, like=repo, trouble=logged_trouble(machine)),
            settings=agent_settings,
            host=HostPorts(
                folder,
                LiveProcesses(),
                hardware,
                dict(os.environ),
                open_store=opener_of_stores(settings, machine),
                engine=engine,
            ),
            take_throttled=trouble.take_throttled,
            turned=notice.turned,
        )
        signals = _Signals()
        agent.run(signals.drain_asked)
        notice.leaving()
        signals.leave_if_asked()


def _make(folder: HostFolder) -> None:
    try:
        folder.make()
    except OSError as error:
        raise Refused(
            "work_dir_unusable",
            f"the work folder {folder.root} cannot be made: {error.strerror}: name another one "
            "with --work-dir",
        ) from None


def _default_work_dir() -> Path:
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path(os.path.expanduser("~/.local/state"))) / "stado"


def _default_poll_seconds(settings: Settings) -> float:
    bucket = "://" in (settings.store or "") and not (settings.store or "").startswith("file:")
    return _POLL_SECONDS_BUCKET if bucket else _POLL_SECONDS_DIRECTORY


if __name__ == "__main__":
    run()
