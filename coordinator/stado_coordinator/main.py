"""`stado coordinator run`: reads the environment, puts the coordinator together, heeds signals."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import click

from stado.composition import (
    live_machine,
    log_to_stderr,
    logged_trouble,
    open_repository,
    open_repository_when_reachable,
    read_settings,
)
from stado.ports import Event
from stado.settings import Settings
from stado.system.hardware import LiveHardware
from stado.target import Target, target_options
from stado_coordinator.coordinator import Coordinator, tick_once


@click.command("run", help="Give lost jobs back, mend the queue's index, finish submissions.")
@target_options
@click.option("--once", is_flag=True, help="One tick, then exit: for cron. 0 if all went well.")
def run(*, target: Target, once: bool) -> None:
    log_to_stderr()
    settings = read_settings(Settings(*target), os.environ, Path("~").expanduser())
    machine = live_machine()
    trouble = logged_trouble(machine)
    holder = f"coordinator@{LiveHardware().host_name()}:{os.getpid()}"
    if once:
        repo = open_repository(settings, machine, trouble)
        sys.exit(0 if tick_once(repo, holder=holder) else 69)
    repo = open_repository_when_reachable(settings, machine, trouble)
    stop = machine.tasks.event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: _leave(stop))
    Coordinator(repo, holder=holder).run(stop)


def _leave(stop: Event) -> None:
    """In good order; at the second signal at once, whatever the store does: then another
    coordinator takes over when the lease is out."""
    if stop.is_set():
        os._exit(0)
    stop.set()


if __name__ == "__main__":
    run()
