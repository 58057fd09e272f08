"""The policies of docs/policies allow what the programs ask, and nothing that they do not ask."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping

import pytest

from stado.core import keys
from stado.core.states import State
from stado.storage.observe import WRITES, Operation
from tests.security import days, moves
from tests.security.asking import IF_ABSENT, Ask, Request, gcs_asks, s3_asks
from tests.security.behind_gates import Deployment, deployment
from tests.security.policies import (
    ROLES,
    Policy,
    gcs_bindings,
    gcs_policy,
    gcs_terms,
    s3_document,
    s3_policy,
)
from tests.servers import Server

CLOUDS: Mapping[str, tuple[Callable[[str], Policy], Callable[[Request], Iterator[Ask]]]] = {
    "s3": (s3_policy, s3_asks),
    "gcs": (gcs_policy, gcs_asks),
}
JOB = "zrkkcqmezlzooeqj"
S3_CHARACTERS_MAX = 6144
"""Of a managed policy, blanks apart."""

GCS_TERMS_MAX = 13
"""A condition has at most twelve logical operators."""

JUSTIFIED: Mapping[str, frozenset[str]] = {role: frozenset() for role in ROLES}
"""Grants by pattern that no test makes use of, though some day does: none today."""

each_cloud = pytest.mark.parametrize("cloud", CLOUDS)
each_role = pytest.mark.parametrize("role", ROLES)


@pytest.fixture(scope="module")
def day(seaweedfs: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Everybody has done their work, each behind a gate of their policy."""
    with deployment(seaweedfs, tmp_path_factory.mktemp("day"), "stado-gated") as made:
        days.of_everybody(made)
        yield made


@pytest.fixture(scope="module")
def requests(
    day: Deployment, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, frozenset[Request]]:
    """By role: of the day, and of everything that can go wrong in it."""
    rare = {
        "reader": moves.requests_of_readers(),
        "submitter": moves.requests_of_submitters(),
        "agent": moves.requests_of_agents(tmp_path_factory.mktemp("hosts")),
        "coordinator": moves.requests_of_coordinators(),
        "operator": set[Request](),
    }
    return {role: frozenset(rare[role] | day.gates[role].requests) for role in ROLES}


def asks(requests: frozenset[Request], cloud: str) -> set[Ask]:
    return {ask for request in requests for ask in CLOUDS[cloud][1](request)}


@each_role
@each_cloud
def test_what_a_role_asks_is_allowed(
    requests: Mapping[str, frozenset[Request]], role: str, cloud: str
) -> None:
    policy = CLOUDS[cloud][0](role)
    assert not sorted(
        f"{ask.permission} {ask.key}"
        for ask in asks(requests[role], cloud)
        if not policy.allows(ask)
    )


@each_role
@each_cloud
def test_what_is_allowed_is_asked(
    requests: Mapping[str, frozenset[Request]], role: str, cloud: str
) -> None:
    unused = CLOUDS[cloud][0](role).unused(asks(requests[role], cloud))
    stale = {f"{grant.permission} {grant.pattern}" for grant in unused}
    assert stale == JUSTIFIED[role]


@each_role
def test_nobody_was_refused_in_the_day(day: Deployment, role: str) -> None:
    """A reader may have met a job on its way, and tried to finish it."""
    refused = day.gates[role].refused
    if role == "reader":
        refused = {request for request in refused if request.operation not in WRITES}
    assert not refused
    assert day.gates[role].requests


def test_a_request_outside_the_policy_is_refused_with_its_exit_code(day: Deployment) -> None:
    told = day.stado("reader", "submit", "--run-id", "mine", "true", code=2)
    assert told == ""
    assert Request(Operation.CREATE, keys.run("mine")) in day.gates["reader"].refused


# --- what the policies keep -----------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [
        keys.claim_cell(JOB, 1),
        keys.end_cell(JOB, 1),
        keys.asks(JOB, 1),
        keys.record(State.COMPLETED, JOB),
        keys.record(State.FAILED, JOB),
        keys.record(State.CANCELLED, JOB),
        keys.DEPLOYMENT,
    ],
)
def test_on_s3_nobody_overwrites_or_deletes_what_is_written_once(key: str) -> None:
    for role in ROLES:
        policy = s3_policy(role)
        assert not policy.allows(Ask("s3:PutObject", key))
        assert not policy.allows(Ask("s3:DeleteObject", key))


@each_cloud
def test_a_reader_writes_nothing(cloud: str) -> None:
    reading = {"s3:ListBucket", "s3:GetObject", "storage.objects.list", "storage.objects.get"}
    assert {grant.permission for grant in CLOUDS[cloud][0]("reader").grants} <= reading


@pytest.mark.parametrize(
    "request_",
    [
        Request(Operation.PUT, keys.capacity("mine")),
        Request(Operation.PUT, keys.log_segment(JOB, 1, 0)),
        Request(Operation.UPLOAD, keys.output_file(JOB, 1, "result")),
        Request(Operation.PUT, keys.output_manifest(JOB, 1)),
        Request(Operation.PUT, keys.checkpoint_manifest(JOB, 1, 1)),
        Request(Operation.GET, keys.checkpoint_part(JOB, 1, 1, 0)),
        Request(Operation.PUT, keys.late(JOB, 1)),
        Request(Operation.REPLACE, keys.COORDINATOR_LEASE),
        Request(Operation.PUT, f"{keys.PROOF}/any"),
    ],
    ids=str,
)
@each_cloud
def test_what_belongs_to_others_is_refused_to_a_submitter(cloud: str, request_: Request) -> None:
    policy_of, asks_of = CLOUDS[cloud]
    policy = policy_of("submitter")
    assert not all(policy.allows(ask) for ask in asks_of(request_))


def test_a_claim_takes_the_condition_that_makes_it_one() -> None:
    key = keys.claim_cell(JOB, 1)
    assert s3_policy("agent").allows(Ask("s3:PutObject", key, IF_ABSENT))
    assert not s3_policy("agent").allows(Ask("s3:PutObject", key))


# --- what the clouds take -------------------------------------------------------------------


@each_role
def test_a_policy_of_s3_is_not_too_long(role: str) -> None:
    text = json.dumps(s3_document(role), separators=(",", ":"))
    assert len(text) < S3_CHARACTERS_MAX - 500, "room for the name of the bucket in each line"


@each_role
def test_a_condition_of_google_has_no_more_operators_than_it_may(role: str) -> None:
    for binding in gcs_bindings(role):
        if "condition" in binding:
            assert len(gcs_terms(binding)) <= GCS_TERMS_MAX
