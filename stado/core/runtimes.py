"""How long a job runs: what its submitter says, or the median of what was measured, and nothing
else. What neither says is not known, and is never guessed. Pure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from stado.core.durations import duration_text
from stado.core.envelope import RUNTIME_SECONDS_MAX
from stado.core.hints import MEASURED_MAX, RUNS_KEPT_MAX, Estimates, Measured
from stado.core.order import Needs, model_code
from stado.core.spec import Spec
from stado.core.usage import Use, digest_word
from stado.errors import Refused


@dataclass(frozen=True, slots=True)
class RunTime:
    """How long a job takes on some hardware."""

    seconds: int
    runs: int = 0
    """Completed runs that it is the median of; 0: its submitter says so."""


@dataclass(frozen=True, slots=True)
class OnHardware:
    """The same with what it was measured on."""

    hardware: str
    run_time: RunTime


class RunTimes:
    """What is known of run times, for whoever asks again and again."""

    def __init__(self, estimates: Estimates | None = None) -> None:
        self._by_model: dict[str, list[OnHardware]] = {}
        self._by_code: dict[tuple[str, str], RunTime | None] = {}
        self._models: dict[str, str | None] = {}
        for one in estimates.measured if estimates is not None else ():
            self._add(one)

    def _add(self, one: Measured) -> None:
        run_time = RunTime(_median(one.seconds), len(one.seconds))
        self._by_model.setdefault(one.model, []).append(OnHardware(one.hardware, run_time))
        if one.model.startswith("!"):  # a digest has no code
            return
        code = model_code(one.model)
        is_other = self._models.setdefault(code, one.model) != one.model
        if is_other:  # whose run time it is cannot be told from a code
            self._models[code] = None
        place = (code, one.hardware)
        self._by_code[place] = None if place in self._by_code or is_other else run_time

    def of(self, spec: Spec, hardware: str) -> RunTime | None:
        """None: it is not known."""
        if spec.runtime_seconds_estimate is not None:
            return RunTime(spec.runtime_seconds_estimate)
        known = [one for one in self.measured(spec.model) if one.hardware == hardware]
        return known[0].run_time if known else None

    def measured(self, model: str | None) -> list[OnHardware]:
        """Of a model, on all that it ran on."""
        if model is None:
            return []
        found = self._by_model.get(model) or self._by_model.get(digest_word(model), [])
        return sorted(found, key=lambda one: one.hardware)

    def of_needs(self, needs: Needs, hardware: str) -> RunTime | None:
        """As `of`, by what the name of an entry says."""
        if needs.runtime_seconds is not None:
            return RunTime(needs.runtime_seconds)
        if needs.model is None:
            return None
        return self._by_code.get((needs.model, hardware))

    def may_know(self, needs: Needs) -> bool:
        """Whether it is known for some hardware; where not, `of_needs` has nothing for any."""
        return needs.runtime_seconds is not None or needs.model in self._models

    def model_of(self, code: str) -> str | None:
        """The model that a code stands for, where one was measured."""
        return self._models.get(code)


def _median(seconds: Iterable[int]) -> int:
    return max(1, round(statistics.median(seconds)))


def no_run_time_text(target: str) -> str:
    """`target`: a host, or what it runs jobs on."""
    return (
        f"no run time for this job on {target}: no runtime_seconds_estimate was stated and no "
        "completed run was measured"
    )


def cost_of(run_time: RunTime | None, *, price_per_hour: float, target: str) -> float:
    """Dollars for one run on `target`. Raises `Refused` where the run time is not known: nothing
    is placed at a price that nobody can tell."""
    if run_time is None:
        raise Refused("no_run_time", no_run_time_text(target))
    return run_time.seconds / 3600 * price_per_hour


def takes_text(spec: Spec, times: RunTimes) -> str:
    """`it takes about 2h 3m on 1x a100 (median of 7 runs of resnet)`, for people."""
    if spec.runtime_seconds_estimate is not None:
        return f"it takes {duration_text(spec.runtime_seconds_estimate)}, as its submitter says"
    known = times.measured(spec.model)
    if known:
        return "it takes " + "; ".join(_measured_text(one, str(spec.model)) for one in known)
    why = "it names no model" if spec.model is None else f"no run of {spec.model} was measured"
    return f"its run time is not known: none is stated, and {why}"


def _measured_text(one: OnHardware, model: str) -> str:
    runs = one.run_time.runs
    of = (
        "1 run"
        if runs == 1
        else f"the last {runs} runs"
        if runs == RUNS_KEPT_MAX
        else f"{runs} runs"
    )
    about = duration_text(one.run_time.seconds)
    return f"about {about} on {one.hardware} (median of {of} of {model})"


def hardware_of(kinds: Iterable[str], machine_type: str | None) -> str:
    """By which run times are compared: `2x a100-sxm4-80gb` for a job that was given cards of these
    kinds, else the machine's type, or `cpu`."""
    cards = list(kinds)
    return f"{len(cards)}x {cards[0]}" if cards else machine_type or CPU_HARDWARE


CPU_HARDWARE = "cpu"


# --- what was measured --------------------------------------------------------------------


def with_uses(
    known: Iterable[Measured], uses: Iterable[Use], *, from_ms: int, until_ms: float = math.inf
) -> list[Measured]:
    """What is known after `uses` were read: all those that ended at `from_ms` or later, and before
    `until_ms`. What was known of these is replaced, so that nothing counts twice however often it
    is read."""
    runs: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for one in known:
        pairs = zip(one.ended_ms, one.seconds, strict=True)
        runs[one.model, one.hardware] = [
            pair for pair in pairs if not from_ms <= pair[0] < until_ms
        ]
    for use in uses:
        if use.whole and use.model and use.hardware and from_ms <= use.ended_ms < until_ms:
            seconds = min(max(1, round(use.wall_ms / 1000)), RUNTIME_SECONDS_MAX)
            runs.setdefault((use.model, use.hardware), []).append((use.ended_ms, seconds))
    measured = [_kept(*group, pairs) for group, pairs in runs.items() if pairs]
    measured.sort(key=lambda one: -one.ended_ms[-1])
    return measured[:MEASURED_MAX]


def _kept(model: str, hardware: str, pairs: list[tuple[int, int]]) -> Measured:
    newest = sorted(pairs)[-RUNS_KEPT_MAX:]
    return Measured(
        model=model,
        hardware=hardware,
        seconds=[seconds for _, seconds in newest],
        ended_ms=[ended_ms for ended_ms, _ in newest],
    )
