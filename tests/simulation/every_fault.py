"""Every fault at every request of small scenarios, one at a time or two: `make faults`.

The requests of a run without faults are counted; then there is a run for each of them with each
fault. Afterwards the world heals itself, has to come to rest, and no rule may be broken."""

from __future__ import annotations

import itertools
import multiprocessing
import multiprocessing.pool
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TextIO

import click

from stado.core.states import State
from tests.simulation.checkers.base import Violation
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.scripted import Counted, Fault, Planned, Scripted
from tests.simulation.stage import made_stage
from tests.simulation.weather import Fate

SEED = 1
"""Of latencies and turns; the faults are the same with each."""

_GIVES_UP = "gives-up"
_PROGRESS_SECONDS = 20.0


@dataclass(frozen=True)
class Case:
    """One run. `people_repeat`: a command that died, or was told of an error, is given again."""

    scenario: str
    planned: tuple[Planned, ...] = ()
    people_repeat: bool = True
    seed: int = SEED

    def __str__(self) -> str:
        parts = [self.scenario, "+".join(str(planned) for planned in self.planned)]
        return ":".join(parts + ([] if self.people_repeat else [_GIVES_UP]))

    @classmethod
    def parse(cls, text: str, seed: int) -> Case:
        """As `str` writes it; raises `ValueError`."""
        scenario, _, rest = text.partition(":")
        faults = rest.removesuffix(f":{_GIVES_UP}")
        planned = tuple(_parse_planned(part) for part in faults.split("+") if part)
        return cls(scenario, planned, people_repeat=faults == rest, seed=seed)


def _parse_planned(text: str) -> Planned:
    number, _, fault = text.partition(":")
    return Planned(int(number), Fault(fault))


@dataclass(frozen=True)
class Result:
    """What came of a run. `counted` are the requests that a fault can happen to."""

    case: Case
    violation: Violation | None
    counted: tuple[Counted, ...]
    ends: tuple[State, ...]
    starts: int
    restless_seconds: float
    """From the end of the last fault until everything was at rest; simulated."""
    happened: int
    """How many of the planned faults: the trace has requests with their fates."""


def play(case: Case, *, out: TextIO | None = None) -> Result:
    """`out` gets the trace."""
    weather = Scripted(case.planned)
    scenario = SCENARIOS[case.scenario]
    with made_stage(
        scenario, seed=case.seed, weather=weather, people_repeat=case.people_repeat, out=out
    ) as stage:
        stage.run()
        return Result(
            case,
            stage.violation,
            tuple(weather.counted),
            tuple(stage.ends()),
            sum(not command.is_verify for command in stage.started),
            stage.restless_seconds,
            _count_happened(weather, stage.trace.faults),
        )


def play_certainly(case: Case) -> Result:
    """Raises `RuntimeError` for a run in which a planned fault did not happen: it says nothing."""
    result = play(case)
    if result.violation is None and result.happened != len(case.planned):
        raise RuntimeError(f"{case}: only {result.happened} of its faults happened")
    return result


def _count_happened(weather: Scripted, seen: Mapping[Fate, int]) -> int:
    """Of what was drawn, what has also been seen on the way to the store; or would have been, had
    its process lived so long."""
    drawn = Counter(planned.fault.fate for planned in weather.happened)
    dead = (process.underway for process in weather.victims if process.gone)
    lost = Counter(fate for fates in dead for fate in fates)
    return sum(min(count, seen.get(fate, 0) + lost[fate]) for fate, count in drawn.items())


# --- which runs there are -----------------------------------------------------------------


def single_cases(scenario: str, seed: int = SEED) -> Iterator[Case]:
    """All of them: each request that counts, with each fault that it can have."""
    return _with_one_more(play(Case(scenario, seed=seed)))


def pair_cases(first: Result) -> Iterator[Case]:
    """A second fault at each later request, as the run with the first one has them."""
    return _with_one_more(first)


def _with_one_more(result: Result) -> Iterator[Case]:
    case = result.case
    begin = case.planned[-1].number if case.planned else 0
    may_give_up = case.people_repeat and not any(
        result.counted[planned.number - 1].by_person for planned in case.planned
    )
    for number, request in enumerate(result.counted[begin:], begin + 1):
        for fault in Fault:
            if fault.for_writes_only and not request.is_write:
                continue
            longer = replace(case, planned=(*case.planned, Planned(number, fault)))
            yield longer
            if request.by_person and may_give_up:
                yield replace(longer, people_repeat=False)


def some_of(cases: Sequence[Case], *, share: float, draw: int) -> list[Case]:
    """So many of each fault that came last, at least one; the same ones for the same draw."""
    dice = random.Random(draw)
    chosen: list[Case] = []
    for fault in Fault:
        alike = [case for case in cases if case.planned[-1].fault is fault]
        chosen += dice.sample(alike, min(len(alike), max(1, round(len(alike) * share))))
    dice.shuffle(chosen)
    return chosen


# --- the command --------------------------------------------------------------------------


@dataclass
class _Row:
    """Of the table at the end."""

    scenario: str
    requests: int
    runs: int = 0
    violations: int = 0
    slowest: float = 0.0
    slowest_case: str = "-"
    faults: set[Fault] = field(default_factory=set)

    def add(self, result: Result) -> None:
        self.runs += 1
        self.faults.update(planned.fault for planned in result.case.planned)
        self.violations += result.violation is not None
        if result.restless_seconds > self.slowest:
            self.slowest, self.slowest_case = result.restless_seconds, str(result.case)


@click.command()
@click.option("--scenario", "names", multiple=True, type=click.Choice(sorted(SCENARIOS)))
@click.option("--pairs", type=click.Choice(sorted(SCENARIOS)), help="All pairs of faults of it.")
@click.option("--share", type=float, default=1.0, help="Of all runs, drawn by --draw.")
@click.option("--draw", type=int, default=0, show_default=True)
@click.option("--seed", type=int, default=SEED, show_default=True, help="Of latencies and turns.")
@click.option("--jobs", type=int, default=2, show_default=True, help="Processes at a time.")
@click.option("--only", help="One run, as a violation names it, with all that happened.")
def main(
    names: tuple[str, ...],
    pairs: str | None,
    share: float,
    draw: int,
    seed: int,
    jobs: int,
    only: str | None,
) -> None:
    """Run small scenarios with every fault at every request, and check the rules of the protocol.

    Exit code 1 when one was broken."""
    if only is not None:
        result = play(Case.parse(only, seed), out=sys.stdout)
        click.echo(f"{only}: {result.violation or 'all rules held'}")
        sys.exit(result.violation is not None)
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs) as pool:
        runner = _Runner(pool, share=share, draw=draw, seed=seed)
        try:
            runner.run(names or (() if pairs else tuple(SCENARIOS)), pairs)
        except KeyboardInterrupt:
            click.echo("stopped")
    _print_table(runner.rows)
    sys.exit(any(row.violations for row in runner.rows))


class _Runner:
    """Runs cases by several processes, and says how far it is."""

    def __init__(
        self, pool: multiprocessing.pool.Pool, *, share: float, draw: int, seed: int
    ) -> None:
        self._pool = pool
        self._share = share
        self._draw = draw
        self._seed = seed
        self.rows: list[_Row] = []

    def run(self, singles_of: Iterable[str], pairs_of: str | None) -> None:
        if pairs_of is not None:
            self._pairs(pairs_of)
        for scenario in singles_of:
            self._singles(scenario)

    def _singles(self, scenario: str) -> None:
        bare = play(Case(scenario, seed=self._seed))
        self._run(_Row(scenario, len(bare.counted)), list(_with_one_more(bare)))

    def _pairs(self, scenario: str) -> None:
        bare = play(Case(scenario, seed=self._seed))
        firsts = self._pool.imap(play_certainly, _with_one_more(bare), chunksize=8)
        cases = itertools.chain.from_iterable(pair_cases(first) for first in firsts)
        self._run(_Row(f"{scenario}, pairs", len(bare.counted)), list(cases))

    def _run(self, row: _Row, cases: list[Case]) -> None:
        self.rows.append(row)
        if self._share < 1.0:
            cases = some_of(cases, share=self._share, draw=self._draw)
        click.echo(f"{row.scenario}: {len(cases):,} runs")
        begin = told = time.monotonic()
        for result in self._pool.imap_unordered(play_certainly, cases, chunksize=8):
            row.add(result)
            if result.violation is not None:
                _print_violation(result)
            now = time.monotonic()
            if now - told > _PROGRESS_SECONDS:
                told = now
                left = (now - begin) / row.runs * (len(cases) - row.runs)
                click.echo(f"  {row.runs:,} of {len(cases):,}, about {left:.0f} s to go")
        click.echo(f"  {time.monotonic() - begin:.0f} s")


def _print_violation(result: Result) -> None:
    case = result.case
    seed = "" if case.seed == SEED else f" --seed {case.seed}"
    click.echo(f"{case}: {result.violation}\n  make faults ARGS='--only {case}{seed}'")


def _print_table(rows: Iterable[_Row]) -> None:
    click.echo(
        f"\n{'scenario':<24} {'requests':>8} {'faults':>6} {'runs':>8} {'broken':>6}"
        f"  slowest to rest, simulated"
    )
    for row in rows:
        click.echo(
            f"{row.scenario:<24} {row.requests:>8} {len(row.faults):>6} {row.runs:>8,} "
            f"{row.violations:>6}  {row.slowest:.0f} s  {row.slowest_case}"
        )


if __name__ == "__main__":
    main()
