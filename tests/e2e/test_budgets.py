"""Budgets, with real programs."""

from __future__ import annotations

from stado.core.spec import make_request
from stado.core.states import State
from stado.core.usage import Use, use_key
from stado.jobs.settings import change_setting
from stado.jobs.submit import submit
from tests.e2e.conftest import MakeFleet
from tests.e2e.fleet import SMALL


def test_a_job_of_whom_a_budget_is_spent_waits_and_others_pass_it(make_fleet: MakeFleet) -> None:
    """R301, R302: as a coordinator worked it out, an agent and its supervisors go by it."""
    fleet = make_fleet()
    repo = fleet.repo
    change_setting(repo, "budgets.rules", ["users:2usd/month"], by="operator")
    used = Use(
        "abcdefghijklmnop",
        1,
        "tests",
        None,
        repo.now_ms(),
        36,
        price_micro=200_000_000_000,
        part_micro=1_000_000,
    )
    repo.store.create(use_key(used), b"")
    once = fleet.stado("coordinator", "run", "--once")
    assert once.returncode == 0
    assert "event=budget_held whose=users user=tests spent=2.000000" in once.stderr
    held = fleet.submit("true")
    request = make_request(["true"], SMALL, batch=False)
    other = submit(repo, run_id="other", request=request, submitter="eve")
    fleet.agent("a")
    assert set(fleet.wait_at_rest(other).values()) == {State.COMPLETED}
    assert set(fleet.states(held).values()) == {State.QUEUED}
    assert '"waiting_budget"' in fleet.stado("job", "why", held.base_id, "--json").stdout
