"""`stado coordinator run`: reads the environment, puts the coordinator together, heeds signals."""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path

import click

from stado.composition import live_machine, open_repository, read_settings
from stado.settings import Settings
from stado.system.hardware import LiveHardware
from stado_coordinator.coordinator import Coordinator, tick_once

_LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"


@click.command("run", help="Give lost jobs back, mend the queue's index, finish submissions.")
@click.option(
    "--store",
    metavar="STORE",
    help="Directory, s3://bucket/prefix or gs://bucket/prefix. [env: STADO_STORE]",
)
@click.option(
    "--endpoint",
    metavar="URL",
    help="Server of the bucket, other than AWS or Google. [env: STADO_ENDPOINT]",
)
@click.option("--region", metavar="NAME", help="Region of the bucket. [env: STADO_REGION]")
@click.option("--once", is_flag=True, help="One tick, then exit: for cron. 0 if all went well.")
def run(store: str | None, endpoint: str | None, region: str | None, *, once: bool) -> None:
    logging.basicConfig(level=logging.INFO, format=_LOG_FORMAT)
    settings = read_settings(Settings(store, endpoint, region), os.environ, Path("~").expanduser())
    machine = live_machine()
    repo = open_repository(settings, machine)
    holder = f"coordinator@{LiveHardware().host_name()}:{os.getpid()}"
    if once:
        sys.exit(0 if tick_once(repo, holder=holder) else 69)
    stop = machine.tasks.event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    Coordinator(repo, holder=holder).run(stop)


if __name__ == "__main__":
    run()
