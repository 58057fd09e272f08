"""What a run was, in lines for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from stado.core.records import EndCell
from stado.core.states import Verdict
from tests.chaos.checker import Violation
from tests.chaos.evidence import Evidence
from tests.chaos.ledger import Ledger

_VIOLATIONS_SHOWN = 30


@dataclass(frozen=True)
class Times:
    """Of one run, in seconds."""

    chaos: float
    to_rest: float
    """From the end of the faults until no job was open."""
    to_tidy: float
    """Until nothing was left on the hosts either."""


def summary_lines(
    evidence: Evidence,
    ledger: Ledger,
    requests: Mapping[str, int],
    times: Times,
    violations: list[Violation],
) -> Iterator[str]:
    jobs = evidence.jobs.values()
    starts = sum(len(job.of("started")) for job in jobs)
    counted = sum(job.record.starts for job in jobs if job.record)
    lost = Counter(
        str(end.ending.reason) for job in jobs for end in job.ends.values() if _is_lost(end)
    )
    adopted = sum(job.is_adopted(epoch) for job in jobs for epoch in job.claims)
    yield f"jobs        {len(evidence.jobs)} of {len(evidence.runs)} runs"
    yield f"starts      {starts} seen, {counted} recorded; {adopted} adopted"
    yield f"lost        {_counted(lost)}"
    yield f"outcomes    {_counted(_outcomes(evidence))}"
    yield f"done to it  {_counted(ledger.counts)}"
    yield f"requests    {_counted(requests)}"
    yield (
        f"times       {times.chaos:.0f} s of chaos, then {times.to_rest:.1f} s until all was at "
        f"rest, {times.to_tidy:.1f} s until the hosts were tidy"
    )
    yield f"violations  {len(violations)}"
    for violation in violations[:_VIOLATIONS_SHOWN]:
        yield f"  {violation}"
    if len(violations) > _VIOLATIONS_SHOWN:
        yield f"  and {len(violations) - _VIOLATIONS_SHOWN} more"


def _outcomes(evidence: Evidence) -> Counter[str]:
    found: Counter[str] = Counter()
    for job in evidence.jobs.values():
        for state, record in job.records.items():
            reason = record.ending.reason if record.ending else None
            found[state.value if reason is None else f"{state.value} ({reason})"] += 1
    return found


def _is_lost(end: EndCell) -> bool:
    return end.ending.verdict is Verdict.LOST


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in _largest_first(counts)) or "nothing"


def _largest_first(counts: Mapping[str, int]) -> Iterable[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
