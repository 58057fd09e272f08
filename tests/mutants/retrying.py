"""Tries again without one of their rules."""

from __future__ import annotations

from stado.core import moves
from stado.core.records import EndCell, Holder, Record
from stado.core.retries import RetryRule
from stado.core.settings import DeploymentSettings
from stado.core.states import Reason, Verdict
from stado.jobs import endings
from stado.jobs.repository import Repository
from tests.mutants.mutant import Mutant, replaced

RETRIES = "tests/agent/test_retries.py"
RULES = "tests/core/test_retries.py"

_allows = RetryRule.allows
_claimed = moves.claimed
_end_as_asked = endings._end_as_asked


def allow_for_ever(rule: RetryRule, reason: Reason | None, *, used: int) -> bool:
    return _allows(rule, reason, used=0)


def allow_after_anything(rule: RetryRule, reason: Reason | None, *, used: int) -> bool:
    return used < rule.retries


def forget_what_was_asked(repo: Repository, cell: EndCell) -> bool:
    return cell.ending.verdict is not Verdict.RETRYING and _end_as_asked(repo, cell)


def claimed_by_new_rules(
    record: Record, holder: Holder, settings: DeploymentSettings | None = None
) -> Record:
    fresh = _claimed(record.evolve(picked_up_at=None), holder, settings)
    return _claimed(record, holder, settings).evolve(retry_rule=fresh.retry_rule)


def pause_at_once(rule: RetryRule, used: int, jitter: float) -> float:
    return rule.delay_seconds


MUTANTS = (
    Mutant(
        "tries have no end",
        "A job is tried again as often as it may be.",
        f"{RETRIES}::test_a_job_that_fails_is_tried_again_until_its_tries_are_used_up",
        replaced(RetryRule, "allows", allow_for_ever),
    ),
    Mutant(
        "any failure is tried again",
        "A job is tried again after the failures that its rule names.",
        f"{RULES}::test_what_no_other_try_would_mend_is_not_tried_again",
        replaced(RetryRule, "allows", allow_after_anything),
        {"reason": Reason.VERIFY_FAILED, "changes": {}},
    ),
    Mutant(
        "nothing waits for its time",
        "What is not due is claimed by nobody.",
        f"{RETRIES}::test_what_waits_for_its_next_try_is_not_to_be_had_before",
        replaced(Record, "is_due", lambda *_: True),
    ),
    Mutant(
        "a failure outweighs a cancel",
        "What was asked of an epoch that is tried again decides what becomes of the next one.",
        f"{RETRIES}::test_a_cancel_that_comes_too_late_for_the_verdict_ends_the_next_epoch",
        replaced(endings, "_end_as_asked", forget_what_was_asked),
    ),
    Mutant(
        "each claim draws up the rule anew",
        "How often a job is tried again is fixed at its first claim.",
        f"{RULES}::test_the_rule_is_that_of_the_first_claim",
        replaced(moves, "claimed", claimed_by_new_rules),
    ),
    Mutant(
        "pauses do not grow",
        "Each pause before another try is twice as long as the one before.",
        f"{RULES}::test_the_pause_doubles_and_the_tries_come_to_an_end",
        replaced(RetryRule, "pause_seconds", pause_at_once),
    ),
)
