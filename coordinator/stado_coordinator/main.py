"""`stado coordinator run`: reads the environment, puts the coordinator together, heeds signals."""

from __future__ import annotations

import faulthandler
import logging
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
from stado.ports import Event, Messenger
from stado.price_files import read_catalog
from stado.settings import Settings
from stado.system.channel_file import read_channels
from stado.system.hardware import LiveHardware
from stado.system.messenger import LiveMessenger
from stado.system.service_notice import notice_of
from stado.target import Target, target_options
from stado.version import VERSION
from stado_coordinator.coordinator import Coordinator, tick_once

log = logging.getLogger("stado_coordinator.main")


@click.command("run")
@target_options
@click.option(
    "--channels",
    "channel_file",
    envvar="STADO_CHANNELS",
    metavar="FILE",
    help="Send notices on the channels that this file (TOML) states.  [none]",
)
@click.option(
    "--prices",
    envvar="STADO_PRICES",
    metavar="FILE",
    help="Prices (TOML) where no host stated one, for budgets.  [default: those that come with "
    "stado]",
)
@click.option(
    "--once",
    is_flag=True,
    help="One tick, then exit: for cron. 0 if all went well. Schedules with --missed skip submit "
    "nothing for what is due longer than two leases before a tick: have one at least so often.",
)
def run(*, target: Target, channel_file: str | None, prices: str | None, once: bool) -> None:
    """Watch over the queue: give lost jobs back, mend the queue's index, finish submissions.

    Runs until Ctrl-C or TERM; of several one acts at a time. `stado up` runs one beside an agent.

    \b
      stado coordinator run --store s3://lab-jobs/stado
      stado coordinator run --once                     # from cron
    """
    log_to_stderr()
    settings = read_settings(
        Settings(*target),
        os.environ,
        Path(os.path.expanduser("~")),
        lambda text: log.warning("event=endpoint_not_used why=%r", text),
    )
    machine = live_machine()
    trouble = logged_trouble(machine)
    messenger, catalog = _messenger(channel_file), read_catalog(prices)
    holder = f"coordinator@{LiveHardware().host_name()}:{os.getpid()}"
    if once:
        repo = open_repository(settings, machine, trouble)
        went_well = tick_once(repo, holder=holder, messenger=messenger, catalog=catalog)
        log.info("event=ticked ok=%s", went_well)
        sys.exit(0 if went_well else 69)
    faulthandler.enable()
    notice = notice_of(os.environ, machine.clock)
    repo = open_repository_when_reachable(settings, machine, trouble, notice.tell)
    stop = machine.tasks.event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: _leave(stop))
    coordinator = Coordinator(
        repo,
        holder=holder,
        messenger=messenger,
        turned=notice.turned,
        catalog=catalog,
        version=VERSION,
    )
    coordinator.run(stop)
    notice.leaving()
    log.info("event=left")


def _messenger(channel_file: str | None) -> Messenger | None:
    """None: this coordinator sends no notices. Raises `Refused`."""
    if not channel_file:
        return None
    return LiveMessenger(read_channels(Path(channel_file)), os.environ)


def _leave(stop: Event) -> None:
    """In good order; at the second signal at once, whatever the store does: then another
    coordinator takes over when the lease is out."""
    if stop.is_set():
        os._exit(0)
    log.info("event=leaving")
    stop.set()


if __name__ == "__main__":
    run()
