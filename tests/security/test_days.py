"""The policies of docs/policies allow what the programs ask, and nothing that they do not ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.records import Intent
from stado.core.states import State
from stado.errors import Denied
from stado.jobs.endings import claim_for_intent
from stado.storage.observe import WRITES, Operation
from tests.security import days, moves
from tests.security.asking import Ask, Request
from tests.security.behind_gates import Deployment, deployment
from tests.security.gate import open_gate
from tests.security.policies import CLOUDS, ROLES, s3_policy, s3_policy_below
from tests.servers import Server
from tests.storage.stores import s3_store

JUSTIFIED: Mapping[str, frozenset[str]] = {role: frozenset() for role in ROLES}
"""Grants that no test makes use of, though somebody does one day: none today."""


@pytest.fixture
def made(
    seaweedfs: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Deployment]:
    """A bucket that its operator has made a store."""
    for name, value in seaweedfs.environment.items():
        monkeypatch.setenv(name, value)
    with deployment(seaweedfs, tmp_path, f"gated-{abs(hash(str(tmp_path))):x}"[:40]) as done:
        yield done


@pytest.mark.timeout(300)
def test_policies_allow_what_is_asked_and_no_more(made: Deployment, tmp_path: Path) -> None:
    """By people and programs of all roles in a day, and in all that can go wrong in it."""
    days.of_everybody(made)
    requests = {
        "reader": moves.requests_of_readers(),
        "submitter": moves.requests_of_submitters(),
        "agent": moves.requests_of_agents(tmp_path / "memory"),
        "coordinator": moves.requests_of_coordinators(),
        "operator": moves.requests_of_operators(),
    }
    for role, gate in made.gates.items():
        assert gate.requests
        assert not [one for one in gate.refused if role != "reader" or one.operation not in WRITES]
        requests[role] |= gate.requests
    assert _denied(requests) == []
    assert _stale(requests) == []
    assert _wrong_below_a_prefix(requests) == []


def _denied(requests: Mapping[str, set[Request]]) -> list[str]:
    return sorted(
        f"{cloud} {role} {ask.permission} {ask.key}"
        for cloud, (policy_of, _) in CLOUDS.items()
        for role in ROLES
        for ask in _asks(requests[role], cloud)
        if not policy_of(role).allows(ask)
    )


def _stale(requests: Mapping[str, set[Request]]) -> list[str]:
    return sorted(
        f"{cloud} {role} {grant.permission} {grant.pattern}"
        for cloud, (policy_of, _) in CLOUDS.items()
        for role in ROLES
        for grant in policy_of(role).unused(_asks(requests[role], cloud))
        if f"{grant.permission} {grant.pattern}" not in JUSTIFIED[role]
    )


def _wrong_below_a_prefix(requests: Mapping[str, set[Request]]) -> list[str]:
    """The same is allowed below the prefix, and nothing beside it."""
    wrong = []
    for role in ROLES:
        policy = s3_policy_below(role, "team")
        for ask in _asks(requests[role], "s3"):
            inside, outside = _below("team", ask), (ask, _below("others", ask))
            if not policy.allows(inside) or any(policy.allows(one) for one in outside):
                wrong.append(f"{role} {ask}")
    return wrong


def _asks(requests: set[Request], cloud: str) -> set[Ask]:
    return {ask for request in requests for ask in CLOUDS[cloud][1](request)}


def _below(prefix: str, ask: Ask) -> Ask:
    return replace(
        ask,
        key=ask.key and f"{prefix}/{ask.key}",
        listed=None if ask.listed is None else f"{prefix}/{ask.listed}",
    )


def test_a_reader_is_answered_although_it_may_not_finish_what_it_meets(made: Deployment) -> None:
    """Somebody began to cancel a job, and died."""
    job = made.stado("submitter", "submit", "--run-id", "begun", "true")
    repo = made.repository()
    queued = repo.find_record(State.QUEUED, job)
    assert queued is not None
    assert claim_for_intent(repo, queued.value, intent=Intent.CANCEL, by="submitter")
    assert "cancelled" in made.stado("reader", "job", "show", job)
    assert job in made.stado("reader", "status")
    assert Request(Operation.CREATE, keys.end_cell(job, 1)) in made.gates["reader"].refused
    assert repo.find_end(job, 1) is None
    repo.store.close()
    assert made.stado("reader", "submit", "--run-id", "mine", "true", code=2) == ""
    assert Request(Operation.CREATE, keys.run("mine")) in made.gates["reader"].refused


def test_a_gate_lets_pass_what_a_policy_allows_and_refuses_the_rest(
    seaweedfs: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in seaweedfs.environment.items():
        monkeypatch.setenv(name, value)
    seaweedfs.make_bucket("gate")
    key = keys.end_cell("zrkkcmezlzooeqjq", 1)
    with open_gate(seaweedfs.endpoint, s3_policy("submitter")) as gate:
        store = s3_store(replace(seaweedfs, endpoint=gate.endpoint), bucket="gate")
        version = store.create(key, b"{}")
        assert store.get(key).version == version
        for refused in (
            lambda: store.put(key, b"other"),
            lambda: store.delete(key, version),
            lambda: store.get(keys.COORDINATOR_LEASE),
        ):
            with pytest.raises(Denied, match="AccessDenied"):
                refused()
        assert gate.requests == {Request(Operation.CREATE, key), Request(Operation.GET, key)}
        assert len(gate.refused) == 3
        assert store.get(key).data == b"{}"
        store.close()
