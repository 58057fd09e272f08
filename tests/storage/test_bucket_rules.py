"""What a bucket does by itself to a store in it: of rules as S3 and GCS state them, and asked of
servers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import boto3.session
import pytest

from stado.storage.bucket_rules import (
    BucketRules,
    gcs_drops_versions,
    gcs_rules,
    s3_drops_versions,
    s3_rules,
)
from stado.storage.open import bucket_rules
from tests.servers import SERVERS, Server
from tests.servers.catalogue import ACCESS_KEY, REGION, SECRET_KEY
from tests.storage.canned_server import Answer, canned_server
from tests.storage.stores import CLOCK, TASKS

BUCKET = "stado-rules"
DAYS = {"Expiration": {"Days": 30}}
DENIED = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"


def of_s3(prefix: str, *rules: Mapping[str, Any]) -> list[str]:
    """What reaches a store below the prefix."""
    answer = {"Rules": [{"Status": "Enabled", **rule} for rule in rules]}
    return [rule.effect for rule in BucketRules(prefix, tuple(s3_rules(answer))).reaching]


def of_gcs(prefix: str, *conditions: Mapping[str, Any]) -> list[str]:
    rules = [{"action": {"type": "Delete"}, "condition": one} for one in conditions]
    found = gcs_rules({"lifecycle": {"rule": rules}})
    return [rule.effect for rule in BucketRules(prefix, tuple(found)).reaching]


@pytest.mark.parametrize(
    "rule",
    [
        {"Filter": {}, **DAYS},
        {"Filter": {"Prefix": "lab/"}, **DAYS},
        {"Filter": {"Prefix": "la"}, **DAYS},
        {"Filter": {"Prefix": "lab/status/"}, **DAYS},
        {"Filter": {"And": {"Prefix": "lab/", "ObjectSizeGreaterThan": 1}}, **DAYS},
        {"Prefix": "lab/", **DAYS},
    ],
)
def test_a_rule_of_s3_that_meets_the_store_is_found(rule: Mapping[str, Any]) -> None:
    """R248"""
    assert of_s3("lab", rule) == ["deletes objects after 30 days"]


@pytest.mark.parametrize(
    "rule",
    [
        {"Filter": {"Prefix": "label/"}, **DAYS},
        {"Filter": {"Prefix": "lab/"}, "Status": "Disabled", **DAYS},
        {"Filter": {"Tag": {"Key": "old", "Value": "yes"}}, **DAYS},
        {"Filter": {}, "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7}},
        {"Filter": {}, "NoncurrentVersionExpiration": {"NoncurrentDays": 3}},
        {"Filter": {}, "Expiration": {"ExpiredObjectDeleteMarker": True}},
        {"Filter": {}, "Transitions": [{"Days": 30, "StorageClass": "STANDARD_IA"}]},
    ],
)
def test_a_rule_of_s3_that_ends_nothing_of_the_store_is_not(rule: Mapping[str, Any]) -> None:
    """R248"""
    assert of_s3("lab", rule) == []


def test_dates_and_archives_are_told_as_what_they_are() -> None:
    """R248"""
    date = {"Expiration": {"Date": datetime(2027, 1, 1, tzinfo=UTC)}}
    move = {"Transitions": [{"Days": 1, "StorageClass": "DEEP_ARCHIVE"}]}
    assert of_s3("", date, move) == [
        "deletes objects from 2027-01-01 on",
        "moves objects to DEEP_ARCHIVE after 1 day, where none can be read",
    ]


def test_rules_of_gcs_are_found_by_what_they_can_meet() -> None:
    """R248"""
    assert of_gcs("lab", {"age": 1}, {"createdBefore": "2027-01-01"}) == [
        "deletes objects after 1 day",
        "deletes objects that were written before 2027-01-01",
    ]
    assert of_gcs("lab", {"age": 1, "matchesPrefix": ["other/", "lab/runs/"]})
    assert not of_gcs("lab", {"age": 1, "matchesPrefix": ["other/"]})
    for old in ({"isLive": False, "age": 3}, {"numNewerVersions": 3}, {"daysSinceCustomTime": 3}):
        assert not of_gcs("lab", old)


def test_whether_old_versions_end_is_told() -> None:
    rule = {"Status": "Enabled", "Filter": {}, "NoncurrentVersionExpiration": {"NoncurrentDays": 3}}
    assert s3_drops_versions({"Rules": [rule]}, "lab")
    assert not s3_drops_versions({"Rules": [{**rule, "Filter": {"Prefix": "x/"}}]}, "lab")
    ends = {"action": {"type": "Delete"}, "condition": {"isLive": False, "age": 3}}
    assert gcs_drops_versions({"lifecycle": {"rule": [ends]}}, "lab")
    assert not gcs_drops_versions({"lifecycle": {"rule": []}}, "lab")


def asked(address: str, endpoint: str | None) -> BucketRules | None:
    return bucket_rules(address, endpoint=endpoint, region=None, clock=CLOCK, tasks=TASKS)


@pytest.mark.parametrize("name", ["seaweedfs", "moto"])
def test_servers_of_s3_tell_their_rules(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R248"""
    with SERVERS[name]() as server:
        _use(server, monkeypatch)
        before = asked(f"s3://{BUCKET}/lab", server.endpoint)
        assert before == BucketRules("lab", keeps_versions=False)
        client = _client(server)
        rule = {"ID": "tidy", "Status": "Enabled", "Filter": {"Prefix": "lab/status/"}, **DAYS}
        client.put_bucket_lifecycle_configuration(
            Bucket=BUCKET, LifecycleConfiguration={"Rules": [rule]}
        )
        client.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
        after = asked(f"s3://{BUCKET}/lab", server.endpoint)
    assert after is not None
    assert (after.keeps_versions, [rule.name for rule in after.reaching]) == (True, ["tidy"])


def test_a_server_of_gcs_that_tells_of_no_rules_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """R248"""
    with SERVERS["fake-gcs"]() as server:
        _use(server, monkeypatch)
        assert asked(f"gs://{BUCKET}/lab", server.endpoint) == BucketRules(
            "lab", keeps_versions=False
        )


def test_a_bucket_of_gcs_tells_its_rules() -> None:
    """R248"""
    told = {
        "lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": {"age": 7}}]},
        "versioning": {"enabled": True},
        "retentionPolicy": {"retentionPeriod": "86400"},
    }
    with canned_server() as canned:
        canned.answers(Answer(200, json.dumps(told).encode()))
        found = asked(f"gs://{BUCKET}/lab", canned.endpoint)
        assert canned.requests[0].path.startswith(f"/storage/v1/b/{BUCKET}?fields=lifecycle")
    assert found is not None
    assert [rule.effect for rule in found.reaching] == ["deletes objects after 7 days"]
    assert (found.keeps_versions, found.retention_seconds) == (True, 86_400)


@pytest.mark.parametrize(
    ("scheme", "answer"),
    [("s3", Answer(403, DENIED)), ("gs", Answer(403, b'{"error": {"message": "no"}}'))],
)
def test_what_may_not_be_looked_at_is_not_known(
    scheme: str, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R248: it is no word that there are none."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with canned_server() as canned:
        canned.answers(answer)
        found = asked(f"{scheme}://{BUCKET}/lab", canned.endpoint)
    assert found is not None
    assert [what for what, _ in found.untold] == ["lifecycle rules", "versioning"]
    assert found.keeps_versions is None


def test_a_directory_does_nothing_by_itself(tmp_path: Any) -> None:
    assert asked(str(tmp_path), None) is None


def _client(server: Server) -> Any:
    return boto3.session.Session().client(
        "s3",
        endpoint_url=server.endpoint,
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
    )


def _use(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.make_bucket(BUCKET)
