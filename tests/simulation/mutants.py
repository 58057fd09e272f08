"""How many seeds notice that a rule is switched off: `python -m tests.simulation.mutants`.

What no seed notices is guarded by its directed scenario alone (`tests.mutants`)."""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections import Counter
from dataclasses import dataclass, field

import click
import pytest

from tests.mutants.registry import MUTANTS
from tests.simulation.world import run

_CPU_SECONDS_MAX = 20
"""Of one seed: without some rules somebody tries for ever, in no simulated time at all."""


@dataclass
class Found:
    """What the seeds found of a product without one rule."""

    name: str
    seeds: int = 0
    first: int | None = None
    """The first seed that noticed."""
    by: Counter[str] = field(default_factory=Counter)
    """Seeds by the rule that they saw broken."""

    @property
    def noticed(self) -> int:
        return sum(self.by.values())


class _Endless(BaseException):
    """A seed has taken too long."""


class _Alarm:
    """Ends a run that does not end, out of whatever it does; that it has rung is what counts, as
    somebody may take what it raises for an error of the product."""

    def __init__(self) -> None:
        self.rang = False

    def __enter__(self) -> _Alarm:
        self._before = signal.signal(signal.SIGPROF, self._ring)
        signal.setitimer(signal.ITIMER_PROF, _CPU_SECONDS_MAX)
        return self

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> bool:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, self._before)
        return isinstance(error, _Endless)

    def _ring(self, *_: object) -> None:
        self.rang = True
        raise _Endless


def try_mutant(task: tuple[str, int, bool]) -> Found:
    """Runs the seeds without the rule of that name; to the first that notices if told so."""
    name, seeds, only_first = task
    (mutant,) = (mutant for mutant in MUTANTS if mutant.name == name)
    found = Found(name)
    for seed in range(seeds):
        found.seeds += 1
        with pytest.MonkeyPatch.context() as patches:
            mutant.switch_off(patches)
            rule = _rule_broken(seed)
        if rule is None:
            continue
        found.by[rule] += 1
        found.first = seed if found.first is None else found.first
        if only_first:
            break
    return found


def _rule_broken(seed: int) -> str | None:
    violation = None
    with _Alarm() as alarm:
        violation = run(seed).violation
    if alarm.rang:
        return "a run ends"
    return violation.rule if violation is not None else None


@click.command()
@click.option("--seeds", type=int, default=100, show_default=True)
@click.option("--jobs", type=int, default=2, show_default=True, help="Processes at a time.")
@click.option("--only-first", is_flag=True, help="Stop at the first seed that notices.")
@click.argument("names", nargs=-1)
def main(seeds: int, jobs: int, only_first: bool, names: tuple[str, ...]) -> None:
    """Switch each rule off, and count the seeds that notice."""
    chosen = [mutant.name for mutant in MUTANTS if not names or mutant.name in names]
    tasks = [(name, seeds, only_first) for name in chosen]
    unnoticed = 0
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for found in pool.imap_unordered(try_mutant, tasks):
            unnoticed += not found.noticed
            by = ", ".join(f"{rule} ({count})" for rule, count in found.by.most_common(2))
            first = "" if found.first is None else f", first {found.first}"
            click.echo(f"{found.name}: {found.noticed} of {found.seeds} seeds{first}; {by}")
            sys.stdout.flush()
    click.echo(f"{len(chosen)} rules, {unnoticed} that no seed noticed")


if __name__ == "__main__":
    main()
