"""Yields without one of their rules."""

from __future__ import annotations

from stado.core.records import Asks, Record
from tests.mutants.mutant import Mutant, replaced

YIELDS = "tests/agent/test_yields.py"


def give_way_always(record: Record, asked: Asks) -> bool:
    return asked.give_way


def give_way_when_it_may(record: Record, asked: Asks) -> bool:
    return asked.give_way and record.yields_left > 0


MUTANTS = (
    Mutant(
        "nobody is protected",
        "A job makes room as often as it says, and no more.",
        f"{YIELDS}::test_with_its_budget_spent_a_job_is_protected",
        replaced(Record, "must_give_way", give_way_always),
    ),
    Mutant(
        "a closed host keeps its jobs",
        "A host that is closed puts back whatever runs there.",
        f"{YIELDS}::test_a_host_that_is_closed_puts_back_whatever_runs_there",
        replaced(Record, "must_give_way", give_way_when_it_may),
    ),
)
