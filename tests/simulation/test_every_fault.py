"""A part of all faults at all requests of small scenarios; `make faults` tries all of them.

Which part is drawn by DRAW, the same in each run: of each scenario twenty to thirty, among them
every fault."""

from __future__ import annotations

import random
from functools import cache

import pytest

from tests.mutants.registry import MUTANTS
from tests.simulation.every_fault import (
    Case,
    pair_cases,
    play,
    play_certainly,
    single_cases,
    some_of,
)
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.scripted import Fault, Planned

DRAW = 7
_SHARE = 0.1
_RUNS_MAX = 60
_PLAYED = 0.5
"""Of what is drawn, but each fault at least once."""

_PARTS = 2
"""So that none takes long on a busy machine."""

_FIRSTS = 6
_SECONDS_OF_EACH = 4

NAMES = tuple(SCENARIOS)


@cache
def drawn(name: str) -> list[Case]:
    cases = list(single_cases(name))
    many = some_of(cases, share=min(_SHARE, _RUNS_MAX / len(cases)), draw=DRAW)
    return some_of(many, share=_PLAYED, draw=DRAW)


@pytest.mark.parametrize("name", NAMES)
def test_without_a_fault_a_scenario_is_what_it_says(name: str) -> None:
    scenario = SCENARIOS[name]
    result = play(Case(name))
    assert result.violation is None
    assert (result.ends, result.starts) == (scenario.ends, scenario.starts)
    assert len(result.counted) >= scenario.requests_min


@pytest.mark.parametrize("name", NAMES)
def test_each_fault_is_tried_at_each_request_that_can_have_it(name: str) -> None:
    requests = play(Case(name)).counted
    writes = sum(request.is_write for request in requests)
    tried = {case.planned[0] for case in single_cases(name)}
    for fault in Fault:
        numbers = {planned.number for planned in tried if planned.fault is fault}
        assert len(numbers) == (writes if fault.for_writes_only else len(requests))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_drawn_has_every_fault(name: str) -> None:
    assert {case.planned[0].fault for case in drawn(name)} == set(Fault)


@pytest.mark.parametrize("part", range(_PARTS))
@pytest.mark.parametrize("name", NAMES)
def test_no_fault_at_any_request_breaks_a_rule(name: str, part: int) -> None:
    """`python -m tests.simulation.every_fault --only <case>` shows what happened in one."""
    cases = drawn(name)[part::_PARTS]
    print(f"{len(cases)} runs, drawn by {DRAW}")
    results = [play_certainly(case) for case in cases]
    assert [str(result.case) for result in results if result.violation is not None] == []


def test_no_two_faults_break_a_rule() -> None:
    """Of firsts at the last requests there are few seconds."""
    dice, tried = random.Random(DRAW), 0
    for first in dice.sample(list(single_cases("cancel-queued")), _FIRSTS):
        pairs = list(pair_cases(play_certainly(first)))
        for case in dice.sample(pairs, min(len(pairs), _SECONDS_OF_EACH)):
            assert (str(case), play_certainly(case).violation) == (str(case), None)
            tried += 1
    assert tried > _FIRSTS * _SECONDS_OF_EACH / 2


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        ("a gate that everybody passes", Fault.CRASH_BEFORE),
        ("seals forget the start", Fault.UNCLEAR),
        ("lost workers go on", Fault.STALL_BEFORE),
    ],
)
def test_without_a_rule_a_fault_at_some_request_breaks_another(
    rule: str, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    (mutant,) = (each for each in MUTANTS if each.name == rule)
    cases = [case for case in single_cases("run") if case.planned[0].fault is fault]
    mutant.switch_off(monkeypatch)
    assert play(Case("run")).violation is None
    assert any(play(case).violation is not None for case in cases)


def test_a_fault_happens_at_the_request_that_it_is_planned_for() -> None:
    with pytest.raises(RuntimeError, match="only 0 of its faults happened"):
        play_certainly(Case.parse("cancel-queued:999:late", seed=1))


@pytest.mark.parametrize("case", list(single_cases("cancel-queued"))[::29], ids=str)
def test_a_case_is_named_so_that_it_can_be_repeated(case: Case) -> None:
    assert Case.parse(str(case), case.seed) == case


@pytest.mark.parametrize("fault", [Fault.STALL_BEFORE, Fault.STALL_AFTER, Fault.LOST_ANSWER])
def test_a_fault_of_a_request_that_its_process_does_not_survive_has_happened_too(
    fault: Fault,
) -> None:
    """The host loses power meanwhile, as the one of a job that has saved does here."""
    requests = list(enumerate(play(Case("checkpoint")).counted, 1))
    beats = [n for n, one in requests if one.is_write and one.key.endswith("/heartbeat")]
    for number in (beats[2], beats[2] + 1):
        play_certainly(Case("checkpoint", (Planned(number, fault),)))
