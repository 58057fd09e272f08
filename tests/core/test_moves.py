from __future__ import annotations

from typing import Any

import pytest

from stado.core import moves
from stado.core.order import entry_name
from stado.core.records import EndCell, Ending
from stado.core.spec import Spec
from stado.core.states import JobType, Reason, State, Verdict, projection_rank
from tests.core.records import HOLDER, NOW, queued


def cell(verdict: Verdict, *, started: bool = True) -> EndCell:
    ending = Ending(
        verdict=verdict, started_at=NOW if started else None, ended_at=NOW, by="somebody"
    )
    return EndCell(
        token="zyxwvuts76543210",
        ending=ending,
        record=moves.ended(moves.claimed(queued(), HOLDER), ending),
    )


@pytest.mark.parametrize("verdict", [v for v in Verdict if v.state is not None])
def test_a_verdict_at_rest_leads_to_its_state(verdict: Verdict) -> None:
    after = moves.after(cell(verdict))
    assert after.state is State(verdict.value)
    assert (after.epoch, after.starts, after.lease_losses) == (1, 1, 0)
    assert after.holder == HOLDER


def test_a_lost_epoch_leads_to_the_next_one_at_the_same_place_in_the_queue() -> None:
    after = moves.after(cell(Verdict.LOST))
    assert (after.state, after.epoch, after.holder) == (State.QUEUED, 2, None)
    assert (after.lease_losses, after.starts) == (1, 1)
    before = queued()
    assert (after.priority, after.queued_ms) == (before.priority, before.queued_ms)
    assert after.nonce == "zyxwvuts"
    assert entry_name(after) > entry_name(before)


def test_every_settler_computes_the_same_bytes() -> None:
    assert moves.after(cell(Verdict.LOST)).encode() == moves.after(cell(Verdict.LOST)).encode()


def test_an_epoch_whose_command_never_ran_is_no_start() -> None:
    assert moves.after(cell(Verdict.LOST, started=False)).starts == 0


@pytest.mark.parametrize(
    ("allowed", "losses", "verdict"),
    [
        (0, 0, Verdict.FAILED),
        (3, 2, Verdict.LOST),
        (3, 3, Verdict.FAILED),
        (None, 2, Verdict.LOST),
        (None, 3, Verdict.FAILED),
        (-1, 10_000, Verdict.LOST),
    ],
)
def test_the_budget_of_losses_decides_whether_the_job_is_queued_again(
    allowed: int | None, losses: int, verdict: Verdict
) -> None:
    record = queued(lease_losses=losses, spec=queued().spec.evolve(max_lease_losses=allowed))
    loss = moves.Loss(
        started_at=None,
        heard_at=None,
        by="reaper",
        reason=Reason.LEASE_EXPIRED,
        detail="silent",
    )
    ending = moves.lost(record, loss, now=NOW)
    assert ending.verdict is verdict
    failed = verdict is Verdict.FAILED
    assert ending.reason is (Reason.LEASE_EXPIRED_MAX_ATTEMPTS if failed else Reason.LEASE_EXPIRED)
    if failed:
        assert ending.detail == (
            f"silent; that was loss {losses + 1} and "
            f"{3 if allowed is None else allowed} are allowed"
        )


@pytest.mark.parametrize(
    "checked",
    [
        {"verify": "true"},
        {"expected_outputs": ["a"]},
        {"require_checkpoint": True},
        {"type": JobType.TRAIN},
    ],
)
def test_nothing_that_had_to_be_checked_is_taken_for_done(checked: dict[str, Any]) -> None:
    """No submission asks for both; a record of another hand may."""
    declared = Spec(command="true", terminates_agent=True)
    assert moves.ends_its_agent(declared)
    assert not moves.ends_its_agent(declared.evolve(**checked))


def test_a_detail_is_one_line_of_at_most_1024_characters() -> None:
    assert moves.clip("a\n  b\tc") == "a b c"
    assert len(moves.clip("x" * 5000)) == 1024


def test_at_rest_beats_running_beats_queued() -> None:
    """R177"""
    assert sorted(State, key=projection_rank)[:2] == [State.QUEUED, State.RUNNING]
    assert [s for s in State if s.at_rest and not s.terminal] == [State.PAUSED]
