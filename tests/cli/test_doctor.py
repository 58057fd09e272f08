"""What `stado doctor` finds beside the store, its records and its agents."""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3.session
import pytest

from stado.cli.doctor import Sections
from stado.cli.findings import Finding, findings_fields
from stado.cli.host_checks import host_findings
from stado.cli.store_checks import rules_findings
from stado.core import keys
from stado.core.records import CoordinatorLease, PassNote
from stado.core.schedules import DroppedFire, DropReason, Schedule
from stado.errors import AcceleratorsUnknown, Denied
from stado.ports import Accelerator
from stado.storage.bucket_rules import BucketRules
from stado.system.hardware import LiveHardware
from stado.version import VERSION
from tests.cli.conftest import Program, World, report
from tests.servers.catalogue import ACCESS_KEY, REGION, SECRET_KEY, SERVERS


def lead(world: World, **changes: object) -> None:
    lease = CoordinatorLease(
        token="t", holder="coordinator@box", counter=1, at=world.repo.now(), lease_seconds=60
    )
    world.repo.store.put(keys.COORDINATOR_LEASE, lease.evolve(**changes).encode())


def found(stado: Program, *args: str) -> dict[str, dict[str, Any]]:
    """By code: of each kind the last."""
    return {one["code"]: one for one in stado.json("doctor", *args)["findings"]}


def test_each_finding_has_a_stable_code(stado: Program, world: World) -> None:
    """R247"""
    report(world, "local@box")
    lead(world)
    answer = stado.json("doctor")
    assert (answer["healthy"], answer["complete"]) == (True, True)
    assert [one["code"] for one in answer["findings"]] == [
        *("store_answers", "clock_agrees", "conditions_honoured", "agents_at_work"),
        *("coordinator_at_work", "one_version", "queue_open"),
    ]


def test_a_large_store_is_looked_at_in_part_which_is_told(stado: Program, world: World) -> None:
    """R247: unknown, and nothing to mend."""
    for number in range(300):
        report(world, f"local@box{number}")
    lead(world)
    for number in range(1001):
        (world.path / keys.READY).mkdir(parents=True, exist_ok=True)
        (world.path / keys.READY / f"{number:04d}").write_bytes(b"")
    result = stado("doctor")
    assert result.exit_code == 0, result.stdout
    assert "?    records      of capacity/ the first 300 were read only" in result.stdout
    assert "looked at the first 1,000 of the queue only" in result.stdout
    assert "nothing to mend in what was looked at: " in result.stdout
    answer = stado.json("doctor")
    assert (answer["healthy"], answer["complete"]) == (True, False)


def test_a_pass_that_fails_is_told(stado: Program, world: World) -> None:
    """R246, R247"""
    report(world, "local@box")
    note = PassNote(name="reap", failed_at=world.repo.now(), error="queue/: denied")
    lead(world, passes=[note])
    text = found(stado)["pass_fails"]["text"]
    assert text == "the reap pass of coordinator@box fails: queue/: denied"


def test_programs_of_several_versions_are_told(stado: Program, world: World) -> None:
    """R247"""
    report(world, "old@box", version="0.0.1")
    report(world, "new@box")
    lead(world, version="0.0.2")
    text = found(stado)["versions_differ"]["text"]
    for part in ("1 agent 0.0.1 (old@box)", "the coordinator 0.0.2", f"this one is {VERSION}"):
        assert part in text
    report(world, "old@box", version="0.0.1", stopped=True)
    lead(world, version=VERSION)
    assert found(stado)["one_version"]["ok"]


def test_a_limit_of_nothing_is_told(stado: Program, world: World) -> None:
    """R247"""
    report(world, "local@box")
    lead(world)
    assert "limit_lets_nothing_start" not in found(stado)
    stado.ok("settings", "set", "quotas.running_jobs", "0")
    assert found(stado)["limit_lets_nothing_start"]["text"].startswith("limit all is 0")


def test_schedules_that_do_not_do_their_work_are_told(stado: Program, world: World) -> None:
    """R247: refused, not fired, and with jobs that all failed; not one that is paused."""
    report(world, "local@box")
    lead(world)
    for name in ("late", "refused", "failing", "paused", "well"):
        stado.ok("schedule", "create", "--name", name, "--cron", "0 3 * * *", "run")
    now = world.repo.now()

    def change(name: str, **changes: object) -> None:
        key = keys.schedule(name)
        stored = world.repo.read(Schedule, key).value
        world.repo.store.put(key, stored.evolve(**changes).encode())

    change("late", next_at=now - timedelta(hours=2))
    dropped = DroppedFire(due_at=now, reason=DropReason.REFUSED, detail="no snapshot", at=now)
    change("refused", dropped=dropped)
    stado.ok("schedule", "run", "failing")
    (job,) = [row["job_id"] for row in stado.json("status")["jobs"]]
    world.fail(job, 3)
    stado.ok("schedule", "pause", "paused")
    change("paused", next_at=now - timedelta(hours=2))
    told = [one for one in stado.json("doctor")["findings"] if one["check"] == "schedules"]
    assert {one["code"] for one in told} == {
        "schedule_late",
        "schedule_refused",
        "schedule_fails",
    }
    assert {one["text"].split()[1] for one in told if one["code"] == "schedule_late"} == {"late"}
    assert all(one["remedy"] for one in told)


def test_notices_that_wait_for_a_coordinator_are_told(stado: Program, world: World) -> None:
    """R247: when none was there for an hour."""
    report(world, "local@box")
    key = keys.notice("a" * 16, 1, "completed", "lab")
    world.repo.store.put(key, b"")
    assert "coordinator_awaited" not in found(stado)
    then = time.time() - 2 * 3600
    os.utime(world.path / key, (then, then))
    assert "notices wait for one" in found(stado)["coordinator_awaited"]["text"]
    lead(world)
    assert "coordinator_awaited" not in found(stado)


def test_rules_of_a_bucket_that_would_eat_results_are_told(
    stado: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R248: asked of a real server."""
    with SERVERS["seaweedfs"]() as server:
        server.make_bucket("bucket")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        there = ("--store", "s3://bucket/lab", "--endpoint", server.endpoint)
        stado.ok("init", *there)
        assert found(stado, *there)["lifecycle_clear"]["ok"]
        client = boto3.session.Session().client(
            "s3",
            endpoint_url=server.endpoint,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
        )
        rule = {
            "ID": "tidy",
            "Status": "Enabled",
            "Filter": {"Prefix": "lab/status/"},
            "Expiration": {"Days": 30},
        }
        client.put_bucket_lifecycle_configuration(
            Bucket="bucket", LifecycleConfiguration={"Rules": [rule]}
        )
        finding = found(stado, *there)["lifecycle_reaches_store"]
        shown = stado("doctor", *there)
    assert finding["text"] == (
        "lifecycle rule tidy of the bucket deletes objects after 30 days below lab/status/, where "
        "the store is"
    )
    assert "FIX  bucket" in shown.stdout


def test_what_may_not_be_looked_at_is_unknown_and_not_well() -> None:
    """R248"""
    rules = BucketRules("", untold=(("lifecycle rules", "AccessDenied"),))
    (finding,) = rules_findings(rules)
    assert finding.unknown
    fields = findings_fields([finding])
    assert (fields["healthy"], fields["complete"]) == (True, False)
    assert fields["findings"][0]["ok"] is False


def test_a_bucket_that_lets_nothing_be_replaced_is_told() -> None:
    """R248"""
    codes = {one.code for one in rules_findings(BucketRules("", retention_seconds=60))}
    assert "retention_policy" in codes


class Hours:
    """A clock on which each look takes an hour."""

    def __init__(self) -> None:
        self.at = 0.0

    def monotonic(self) -> float:
        self.at += 3600
        return self.at


def test_a_check_that_finds_no_time_or_no_right_is_told_as_not_looked_at(world: World) -> None:
    """R247: and keeps no other from its turn."""

    def denied() -> list[Finding]:
        raise Denied("queue/", "HTTP 403")

    well = Finding("queue", "queue_open", "the queue is open")
    sections = Sections(world.repo.clock)
    (finding,) = sections.run("records", denied)
    assert (finding.code, finding.unknown) == ("not_looked_at", True)
    assert list(sections.run("queue", lambda: [well])) == [well]
    late = Sections(Hours())  # type: ignore[arg-type]
    (finding,) = late.run("queue", lambda: [well])
    assert (finding.code, finding.unknown) == ("not_looked_at", True)


# --- this host, and roles -----------------------------------------------------------------


class Host(LiveHardware):
    """This host, with another disk and other accelerators."""

    def __init__(self, free: int, accelerators: list[Accelerator] | None) -> None:
        super().__init__()
        self._free = free
        self._accelerators = accelerators

    def disk_free_bytes(self, folder: Path) -> int:
        return self._free

    def disk_total_bytes(self, folder: Path) -> int:
        return 100 << 30

    def accelerators(self) -> list[Accelerator]:
        if self._accelerators is None:
            raise AcceleratorsUnknown("its driver does not answer")
        return self._accelerators


@pytest.mark.parametrize(
    ("free", "accelerators", "codes"),
    [
        (50 << 30, [], {"disk_free", "accelerators_known"}),
        (1 << 20, None, {"disk_full", "driver_silent"}),
    ],
)
def test_this_host_is_looked_at_as_an_agent_would(
    tmp_path: Path, free: int, accelerators: list[Accelerator] | None, codes: set[str]
) -> None:
    """R247"""
    told = list(host_findings(Host(free, accelerators), tmp_path / "not" / "there"))
    assert {one.code for one in told} == codes
    wrong = {one.code for one in told if one.remedy}
    assert wrong == codes - {"disk_free", "accelerators_known"}


def contents(folder: Path) -> dict[Path, bytes]:
    """Without the lock files of a directory."""
    files = [path for path in folder.rglob("*") if path.is_file() and ".locks" not in path.parts]
    return {path: path.read_bytes() for path in files}


def test_a_role_on_a_directory_leaves_all_as_it_is(
    stado: Program, world: World, tmp_path: Path
) -> None:
    """R247: and says what it has not tried."""
    report(world, "local@box")
    lead(world)
    world.complete(stado.ok("submit", "--run-id", "x", "run"))
    before = contents(world.path)
    result = stado("doctor", "--role", "agent", "--work-dir", str(tmp_path), "--json")
    assert contents(world.path) == before
    answer = json.loads(result.stdout)
    codes = {one["code"] for one in answer["findings"]}
    assert {"role_allowed", "not_tried", "conditions_proved_before", "disk_free"} <= codes
    assert answer["complete"] is False
