"""`stado cost budgets`, and where else budgets are told."""

from __future__ import annotations

from typing import Any

import pytest

from stado.core import keys
from stado.jobs.budget_keeping import BudgetKeeping
from stado.price_files import read_catalog
from tests.cli.conftest import USER, Program, World
from tests.cli.test_usage import note

PRICE: dict[str, Any] = {"price_micro": 200_000_000_000, "part_micro": 1_000_000}
"""Of a host so dear that what counts fits into the first moment of a month."""

MOMENT = 0.000_01
"""Hours: two dollars."""


def work_out(world: World) -> None:
    BudgetKeeping(world.repo, by="coordinator", catalog=read_catalog(None)).turn()


def test_each_budget_is_shown_with_what_is_spent(stado: Program, world: World) -> None:
    """R225, R301: ok, warned and held; what has no price beside it."""
    note(world, 0, hours=MOMENT, **PRICE)
    note(world, 1, hours=MOMENT, group="eval")
    rules = f"all:2usd/month users:2.2usd/month user.{USER}:40usd/month group.eval:40gpuh/month"
    assert stado("settings", "set", "budgets.rules", rules).exit_code == 0
    work_out(world)
    result = stado("cost", "budgets")
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[0] == ["WHOSE", "PERIOD", "SPENT", "OF", "%", "STATE", "UNPRICED"]
    told = {row[0]: row[2:] for row in rows[1:]}
    assert told["all"] == ["$2.00", "$2.00", "100", "held", "0s"]
    assert told["users"] == ["$0.00", "$2.20", "0", "ok", "0"]
    assert "as of " in result.stderr
    assert "1 epoch without a price is in no sum" in result.stderr
    assert "prices that no host stated: Amazon EC2 list prices" in result.stderr
    fields = stado.json("cost", "budgets")
    assert [(one["whose"], one["user"], one["state"]) for one in fields["budgets"]] == [
        ("all", None, "held"),
        ("users", USER, "warned"),
        ("users", None, "ok"),
        (f"user.{USER}", None, "ok"),
        ("group.eval", None, "ok"),
    ]
    assert fields["old"] is False
    assert fields["budgets"][0]["spent"] == 2.0
    assert fields["budgets"][0]["unpriced_epochs"] == 1


def test_without_a_budget_there_is_nothing_to_show(stado: Program, world: World) -> None:
    assert world
    result = stado("cost", "budgets")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no budget is set: `stado settings set budgets.rules`" in result.stderr
    told = stado.json("cost", "budgets")
    assert (told["budgets"], told["old"]) == ([], False)


def test_what_no_coordinator_has_worked_out_is_unknown(stado: Program, world: World) -> None:
    """R301: and never ok."""
    assert world
    stado("settings", "set", "budgets.rules", "all:2usd/month")
    result = stado("cost", "budgets")
    assert result.stdout.splitlines()[1].split()[2:] == ["-", "$2.00", "-", "unknown"]
    assert "what is spent is not known yet: a coordinator works it out" in result.stderr
    told = stado.json("cost", "budgets")
    assert (told["as_of"], told["old"], told["budgets"][0]["spent"]) == (None, True, None)
    finding = _finding(stado)
    assert (finding["code"], finding["ok"]) == ("budgets_unknown", False)
    work_out(world)
    assert _finding(stado)["code"] == "budgets_known"
    spoilt = world.repo.store.get(keys.BUDGETS).data.replace(
        b'"at":"', b'"at":"2026-01-01T00:00:00Z","x":"'
    )
    world.repo.store.put(keys.BUDGETS, spoilt)
    assert _finding(stado)["code"] == "budgets_old"


def _finding(stado: Program) -> dict[str, Any]:
    findings = stado.json("doctor")["findings"]
    (found,) = (one for one in findings if one["check"] == "budgets")
    return dict(found)


def test_who_submits_is_told_that_it_waits_and_until_when(stado: Program, world: World) -> None:
    """R302, R14, R4: also in lists, and by `job why`."""
    note(world, 0, hours=MOMENT, **PRICE)
    stado("settings", "set", "budgets.rules", f"user.{USER}:2usd/month")
    work_out(world)
    told = stado("submit", "--run-id", "late", "true")
    assert told.exit_code == 0
    said = " ".join(told.stderr.split())
    assert "when a budget begins anew: the budget of" in said
    assert "$2.00 of $2.00 a month" in said
    assert "to do: `stado settings set budgets.rules` allows more" in said
    why = stado.json("job", "why", "late")
    assert why["wait_reasons"][0] == "waiting_budget"
    assert "waiting_budget" in stado("status", "--json").stdout
    stado("settings", "set", "budgets.rules", f"user.{USER}:2.4usd/month")
    told = stado("submit", "--run-id", "soon", "true")
    assert "note: 83 % of the budget of" in " ".join(told.stderr.split())


@pytest.mark.parametrize("rules", ["all:5", "all:5usd/day all:6usd/day", "all:0usd/day"])
def test_what_is_no_budget_is_refused_with_its_form(
    stado: Program, world: World, rules: str
) -> None:
    """R301: 2, and nothing is changed."""
    assert world
    result = stado("settings", "set", "budgets.rules", rules)
    assert result.exit_code == 2
    assert "budgets.rules" in result.stderr
    assert stado("settings", "get", "budgets.rules").exit_code == 1


def test_what_a_group_used_and_cost_is_told(stado: Program, world: World) -> None:
    """R27, R223"""
    note(world, 0, hours=MOMENT, group="eval", **PRICE)
    note(world, 1, hours=MOMENT, **PRICE)
    groups = stado.json("cost", "report", "--by", "group")["groups"]
    assert {one["group"]: one["cost_usd"] for one in groups} == {"eval": 2.0, None: 2.0}
    used = stado.json("usage", "--org", "--by", "group")["groups"]
    assert {one["group"] for one in used} == {"eval", None}
