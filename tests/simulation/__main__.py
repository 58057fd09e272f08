"""Runs of many seeds, or the trace of one: `make sim`, `make soak`."""

from __future__ import annotations

import itertools
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator

import click

from tests.simulation.world import Outcome, run

_SEEDS_DEFAULT = 300


def outcomes(seeds: Iterable[int], jobs: int) -> Iterator[Outcome]:
    """In the order in which they come, by several processes."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs) as pool:
        yield from pool.imap_unordered(run, seeds)


@click.command()
@click.option("--seed", type=int, help="Run this one alone, and print what happened.")
@click.option("--seeds", type=int, default=_SEEDS_DEFAULT, show_default=True, help="How many.")
@click.option("--first", type=int, default=0, show_default=True, help="The first of them.")
@click.option("--soak", is_flag=True, help="Go on until stopped, from a seed that nobody knows.")
@click.option("--jobs", type=int, default=2, show_default=True, help="Processes at a time.")
def main(seed: int | None, seeds: int, first: int, soak: bool, jobs: int) -> None:
    """Run the shipped code in a simulated world, and check the rules of the protocol.

    Exit code 1 when one was broken."""
    if seed is not None:
        outcome = run(seed, out=sys.stdout)
        click.echo(_line(outcome))
        sys.exit(outcome.violation is not None)
    if soak:
        first = int(time.time()) * 1000
        click.echo(f"from seed {first}, until stopped")
    drawn = itertools.count(first) if soak else range(first, first + seeds)
    sys.exit(_run_many(drawn, jobs))


def _run_many(seeds: Iterable[int], jobs: int) -> int:
    begin = time.monotonic()
    total = steps = requests = ended = broken = 0
    events: Counter[str] = Counter()
    slowest = 0.0
    try:
        for outcome in outcomes(seeds, jobs):
            total, steps, requests = total + 1, steps + outcome.steps, requests + outcome.requests
            ended += outcome.jobs
            events += outcome.events
            slowest = max(slowest, outcome.healed_seconds)
            if outcome.violation is not None:
                broken += 1
                click.echo(_line(outcome))
    except KeyboardInterrupt:
        click.echo("stopped")
    seconds = time.monotonic() - begin
    click.echo(
        f"{total} seeds, {broken} with a violation: {steps:,} steps, {requests:,} requests, "
        f"{ended:,} jobs; at rest after {slowest:.0f} simulated seconds at most; "
        f"{seconds:.0f} s, {steps / max(seconds, 0.001):,.0f} steps a second"
    )
    click.echo(", ".join(f"{name} {count:,}" for name, count in sorted(events.items())))
    return int(broken > 0)


def _line(outcome: Outcome) -> str:
    if outcome.violation is None:
        return f"seed {outcome.seed}: all rules held; trace {outcome.digest}"
    return f"seed {outcome.seed}: {outcome.violation}\n  make sim SEED={outcome.seed}"


if __name__ == "__main__":
    main()
