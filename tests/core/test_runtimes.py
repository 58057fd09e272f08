"""Run times: stated, or measured, and never assumed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stado.core.hints import RUNS_KEPT_MAX, Estimates, Measured
from stado.core.order import needs_of
from stado.core.runtimes import (
    RunTime,
    RunTimes,
    cost_of,
    hardware_of,
    no_run_time_text,
    takes_text,
    with_uses,
)
from stado.core.spec import Spec
from stado.core.usage import Use, parse_use, use_name
from stado.errors import Refused
from tests.core.records import NOW

A100 = "1x a100-sxm4-80gb"
USE = Use(
    "abcdefghijklmnop",
    1,
    "ada",
    None,
    ended_ms=1_000_000,
    wall_ms=90_400,
    whole=True,
    model="resnet",
    hardware=A100,
)


def measured(*seconds: int, model: str = "resnet", hardware: str = A100) -> Measured:
    ended_ms = list(range(len(seconds)))
    return Measured(model=model, hardware=hardware, seconds=list(seconds), ended_ms=ended_ms)


def times(*groups: Measured) -> RunTimes:
    return RunTimes(Estimates(counter=1, at=NOW, read_to_ms=0, measured=list(groups)))


def test_what_is_stated_counts_before_what_was_measured() -> None:
    """R160"""
    spec = Spec(command="x", model="resnet", runtime_seconds_estimate=60)
    assert times(measured(7, 9)).of(spec, A100) == RunTime(60)


def test_the_median_of_the_same_model_on_the_same_hardware_counts() -> None:
    """R160"""
    spec = Spec(command="x", model="resnet")
    known = times(measured(100, 7, 9), measured(500, hardware="cpu"), measured(1, model="bert"))
    assert known.of(spec, A100) == RunTime(9, runs=3)
    assert known.of_needs(needs_of(spec), A100) == RunTime(9, runs=3)
    assert known.of_needs(needs_of(spec), "cpu") == RunTime(500, runs=1)


@pytest.mark.parametrize("spec", [Spec(command="x"), Spec(command="x", model="resnet")])
def test_nothing_else_is_ever_assumed(spec: Spec) -> None:
    """R160: no other model, no other hardware, no default."""
    known = times(measured(7, model="bert"), measured(7, hardware="2x a100-sxm4-80gb"))
    assert known.of(spec, A100) is None
    assert known.of_needs(needs_of(spec), A100) is None


def test_a_run_is_priced_by_its_time() -> None:
    """R161"""
    assert cost_of(RunTime(1800), price_per_hour=3.0, target="lab-7") == 1.5


def test_a_price_without_a_run_time_is_refused_with_the_reason() -> None:
    """R162"""
    with pytest.raises(Refused) as refusal:
        cost_of(None, price_per_hour=3.0, target="lab-7")
    assert refusal.value.code == "no_run_time"
    assert refusal.value.text == no_run_time_text("lab-7")
    assert refusal.value.text == (
        "no run time for this job on lab-7: no runtime_seconds_estimate was stated and no "
        "completed run was measured"
    )


@pytest.mark.parametrize(
    ("kinds", "machine_type", "word"),
    [(["a100", "a100"], "box", "2x a100"), ([], "box", "box"), ([], None, "cpu")],
)
def test_hardware_is_named_by_its_cards_its_type_or_as_cpu(
    kinds: list[str], machine_type: str | None, word: str
) -> None:
    assert hardware_of(kinds, machine_type) == word


def test_what_ended_is_counted_once_however_often_it_is_read() -> None:
    first = with_uses([], [USE], from_ms=0)
    assert first == with_uses(first, [USE], from_ms=500_000)
    assert first[0].seconds == [90]
    later = replace(USE, ended_ms=2_000_000, wall_ms=10_000)
    both = with_uses(first, [later], from_ms=1_500_000)
    assert both[0].seconds == [90, 10]
    assert with_uses(both, [USE], from_ms=500_000, until_ms=1_500_000) == both


def test_only_whole_runs_of_a_named_model_count() -> None:
    parts = [replace(USE, whole=False), replace(USE, model=None), replace(USE, hardware=None)]
    assert with_uses([], parts, from_ms=0) == []


def test_the_last_fifty_runs_are_kept() -> None:
    uses = [replace(USE, ended_ms=n, wall_ms=1000 * n) for n in range(1, 200)]
    (one,) = with_uses([], uses, from_ms=0)
    assert one.seconds == list(range(200 - RUNS_KEPT_MAX, 200))


def test_a_model_with_a_long_name_is_found_by_its_digest() -> None:
    name = "m" * 100
    use = parse_use(use_name(replace(USE, model=name)))
    assert use is not None
    known = times(*with_uses([], [use], from_ms=0))
    assert known.of(Spec(command="x", model=name), A100) == RunTime(90, runs=1)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (Spec(command="x", runtime_seconds_estimate=7200), "it takes 2h, as its submitter says"),
        (
            Spec(command="x", model="resnet"),
            f"it takes about 90s on {A100} (median of 2 runs of resnet)",
        ),
        (
            Spec(command="x", model="bert"),
            "its run time is not known: none is stated, and no run of bert was measured",
        ),
        (
            Spec(command="x"),
            "its run time is not known: none is stated, and it names no model",
        ),
    ],
)
def test_people_are_told_where_a_run_time_comes_from(spec: Spec, text: str) -> None:
    assert takes_text(spec, times(measured(80, 100))) == text
