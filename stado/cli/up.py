"""`stado up`: this machine's agent and a coordinator, as one command."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import click

from stado.cli.context import (
    check_no_agent,
    child_environment,
    live_machine,
    opened_repository,
    read_settings,
    start_child,
)
from stado.host_options import host_options
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.ports import Clock

_POLL_SECONDS = 0.1
_GRACE_SECONDS = 10.0
"""After the other program died: so long may one take to leave in good order. Jobs go on without
their agent."""

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Child(Protocol):
    """A program that runs beside us."""

    def poll(self) -> int | None: ...

    def signal(self, signal_number: int) -> None: ...

    def kill(self) -> None: ...


class Companion(NamedTuple):
    """One of the two, by name."""

    name: str
    child: Child


class _Stop:
    """Passes on what we are asked by signals, each time."""

    def __init__(self) -> None:
        self.asked = False
        self._companions: Sequence[Companion] = ()
        for number in _STOP_SIGNALS:
            signal.signal(number, self._take)

    def heed(self, companions: Sequence[Companion]) -> None:
        """From now on signals reach these; one that came before does too."""
        self._companions = companions
        if self.asked:
            self._pass_on(signal.SIGTERM)

    def _take(self, number: int, _frame: object) -> None:
        self._say_what_happens()
        self.asked = True
        self._pass_on(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)

    def _say_what_happens(self) -> None:
        """On a terminal only; the agent's own log says it to everybody else."""
        from stado.cli import render

        if render.stderr_is_terminal():
            render.tell(
                "leaving: jobs that run go on, and the next agent here takes them over"
                if self.asked
                else "stopping once the running jobs have ended; Ctrl-C again leaves them running"
            )

    def _pass_on(self, number: int) -> None:
        for companion in self._companions:
            companion.child.signal(number)


@click.command()
@click.option(
    "--channels",
    metavar="FILE",
    help="Send notices on the channels that this file (TOML) states: of the coordinator.",
)
@click.option(
    "--prices",
    metavar="FILE",
    help="Prices (TOML) where no host stated one, for budgets: of the coordinator.",
)
@host_options
@target_options
def up(*, target: Target, channels: str | None, prices: str | None, **host: Any) -> int:
    """Run an agent and a coordinator on this machine until Ctrl-C.

    The first Ctrl-C lets the agent finish what it runs, the second leaves at once: its jobs go on
    and the next agent of this machine takes them over. When one of the two dies, the other is
    stopped and the exit code is 1, or 2 when it refused to start.

    \b
      stado up
      stado up --cpu 4 --memory-gb 8
    """

    with opened_repository(target) as repo:
        address = repo.store.address
    # Before a coordinator takes the lead that would be stopped at once.
    check_no_agent(host["consumer_id"], host["work_dir"])
    agent_options = _stated(host)
    coordinator_options = _stated({"channels": channels, "prices": prices})
    stop = _Stop()
    with ExitStack() as cleanup:
        companions = [
            _start("coordinator", coordinator_options, target, cleanup),
            _start("agent", agent_options, target, cleanup),
        ]
        stop.heed(companions)
        _tell_starting(address)
        return _attend(companions, stop, live_machine().clock)


def _tell_starting(address: str) -> None:
    from stado.cli.render import tell

    tell(f"starting an agent, which runs jobs here, and a coordinator on {address}")
    tell("give it work: `stado submit --run-id NAME COMMAND`; look at it: `stado hosts`")
    tell("Ctrl-C stops both once the jobs that run have ended; twice leaves the jobs running")


def _stated(options: Mapping[str, Any]) -> list[str]:
    """As they were typed: `--cpu=4`, a flag by its name, and of what is repeatable each."""
    return [
        f"--{name.replace('_', '-')}" + ("" if one is True else f"={one}")
        for name, value in options.items()
        for one in (value if isinstance(value, tuple) else (value,))
        if one is not None and one is not False
    ]


def _start(name: str, options: list[str], target: Target, cleanup: ExitStack) -> Companion:
    argv = [sys.executable, "-m", "stado.cli.main", name, "run", *options]
    child = start_child(argv, child_environment(read_settings(target)))
    cleanup.callback(_end, child)
    return Companion(name, child)


def _end(child: Child) -> None:
    """Nothing that we started is left behind, whatever became of us."""
    if child.poll() is None:
        child.kill()


def _attend(companions: Sequence[Companion], stop: _Stop, clock: Clock) -> int:
    """Until both have ended; the exit code."""
    from stado.cli import exits, render

    while True:
        codes = [companion.child.poll() for companion in companions]
        if all(code is not None for code in codes):
            return exits.OK if stop.asked and not any(codes) else exits.FAILED
        for companion, code in zip(companions, codes, strict=True):
            if code is not None and not stop.asked:
                render.tell(f"stado: the {companion.name} ended by itself ({_how(code)})")
                _stop_rest(companions, clock)
                return exits.REFUSED if code == exits.REFUSED else exits.FAILED
        clock.sleep(_POLL_SECONDS)


def _stop_rest(companions: Sequence[Companion], clock: Clock) -> None:
    """Asks, waits, asks again: the second time an agent leaves its jobs to their supervisors."""
    from stado.cli import render

    for _ in range(2):
        left = [companion for companion in companions if companion.child.poll() is None]
        for companion in left:
            render.tell(f"stopping the {companion.name}")
            companion.child.signal(signal.SIGTERM)
        end = clock.monotonic() + _GRACE_SECONDS
        while any(one.child.poll() is None for one in left) and clock.monotonic() < end:
            clock.sleep(_POLL_SECONDS)


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
