"""What the policies of docs/policies keep from whom, and that the clouds take them."""

from __future__ import annotations

import json

import pytest

from stado.core import keys
from stado.core.states import State
from stado.storage.observe import Operation
from tests.security.asking import IF_ABSENT, Ask, Request
from tests.security.policies import (
    CLOUDS,
    ROLES,
    gcs_bindings,
    gcs_terms,
    s3_document,
    s3_policy,
)

JOB = "zrkkcqmezlzooeqj"
_OF_THE_LEDGER = {
    ("coordinator", keys.usage("some-use")),
    ("coordinator", keys.ledger_segment("1772323201000-abc")),
    ("operator", keys.ledger_segment("1772323201000-abc")),
}
"""Who compacts, and who rebuilds it."""

S3_CHARACTERS_MAX = 6144
"""Of a managed policy, blanks apart."""

_DELETED_WITH_JOBS = {keys.asks(JOB, 1), *(keys.record(one, JOB) for one in State if one.at_rest)}

GCS_TERMS_MAX = 13
"""A condition has at most twelve logical operators."""

each_cloud = pytest.mark.parametrize("cloud", CLOUDS)
each_role = pytest.mark.parametrize("role", ROLES)


@pytest.mark.parametrize(
    "key",
    [
        keys.claim_cell(JOB, 1),
        keys.end_cell(JOB, 1),
        keys.record(State.COMPLETED, JOB),
        keys.record(State.FAILED, JOB),
        keys.record(State.CANCELLED, JOB),
        keys.record(State.TIMED_OUT, JOB),
        keys.record(State.PAUSED, JOB),
        keys.policy(JOB),
        keys.usage("some-use"),
        keys.ledger_segment("1772323201000-abc"),
        keys.DEPLOYMENT,
        keys.artifact("digits", 1),
        keys.artifact_use(JOB, "digits", 1),
    ],
)
def test_on_s3_nobody_overwrites_what_is_written_once(key: str) -> None:
    for role in ROLES:
        assert not s3_policy(role).allows(Ask("s3:PutObject", key))
        if key not in _DELETED_WITH_JOBS and (role, key) not in _OF_THE_LEDGER:
            assert not s3_policy(role).allows(Ask("s3:DeleteObject", key))


@pytest.mark.parametrize("role", ["submitter", "agent", "coordinator"])
def test_a_cancel_can_be_added_to_a_pause_that_was_asked_for(role: str) -> None:
    """By a replace of what was asked, which on S3 is a plain put to a policy."""
    assert s3_policy(role).allows(Ask("s3:PutObject", keys.asks(JOB, 1)))


@pytest.mark.parametrize("key", [keys.record(State.COMPLETED, JOB), keys.asks(JOB, 1)])
def test_on_s3_only_who_deletes_jobs_deletes_what_goes_with_them_alone(key: str) -> None:
    """The other records at rest go when somebody has the job retried, or resumed."""
    allowed = [role for role in ROLES if s3_policy(role).allows(Ask("s3:DeleteObject", key))]
    assert allowed == ["submitter"]


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
        Request(Operation.PUT, keys.checkpoint_part(JOB, 1, 1, 0)),
        Request(Operation.PUT, keys.late(JOB, 1)),
        Request(Operation.REPLACE, keys.COORDINATOR_LEASE),
        Request(Operation.CREATE, keys.SETTINGS),
        Request(Operation.REPLACE, keys.SETTINGS),
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


@each_cloud
@each_role
def test_nothing_is_allowed_twice(cloud: str, role: str) -> None:
    grants = [
        (grant.permission, grant.pattern, grant.condition)
        for grant in CLOUDS[cloud][0](role).grants
    ]
    assert sorted(set(grants), key=str) == sorted(grants, key=str)


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
