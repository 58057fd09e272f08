"""Hosts that are closed, or that close themselves, without one of the rules."""

from __future__ import annotations

from stado.core import early_failures
from stado.core.early_failures import Fault
from stado_agent import quarantine
from stado_agent.orders import Orders
from stado_agent.quarantine import Quarantine
from tests.mutants.mutant import Mutant, replaced

ORDERS = "tests/agent/test_orders.py"
QUARANTINES = "tests/agent/test_quarantine.py"

MUTANTS = (
    Mutant(
        "closed hosts claim",
        "A host that an operator has closed claims nothing.",
        f"{ORDERS}::test_a_cordoned_host_takes_nothing_more_and_what_runs_there_goes_on",
        replaced(Orders, "hindrance", lambda *_, **__: None),
    ),
    Mutant(
        "drains have no end",
        "What still runs on a host that drains is put back once its deadline has passed.",
        f"{ORDERS}::test_what_still_runs_when_a_drain_is_over_is_put_back_at_its_old_place",
        replaced(Orders, "overdue", None),
    ),
    Mutant(
        "hosts judge alone",
        "A host is quarantined only where others fare better with the same work.",
        f"{QUARANTINES}::test_a_batch_of_broken_jobs_closes_no_host",
        replaced(early_failures, "whose_fault", lambda *_: Fault.HOST),
    ),
    Mutant(
        "hosts on which all fails go on",
        "A host on which different jobs fail at once, one after another, stops claiming.",
        f"{QUARANTINES}::test_one_core_has_three_jobs_at_most_before_it_is_suspect",
        replaced(quarantine, "IN_A_ROW", 10),
    ),
    Mutant(
        "restarts lift a quarantine",
        "Nothing but a release lifts a quarantine.",
        f"{QUARANTINES}::test_a_quarantine_outlives_its_agent_and_ends_when_it_is_released",
        replaced(quarantine, "_written_down", lambda _: None),
    ),
    Mutant(
        "old releases count",
        "A release lifts no quarantine that began later.",
        f"{QUARANTINES}::test_a_quarantine_outlives_its_agent_and_ends_when_it_is_released",
        replaced(Quarantine, "release", lambda self, _: self._go_on("it was released")),
    ),
)
