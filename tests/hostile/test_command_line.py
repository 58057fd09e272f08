"""Whatever is typed, and whatever lies in the store: a sentence and a documented exit code."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from stado.cli import exits
from stado.core import keys
from stado.core.records import Hindrance, HostOrder, JobClaim, JobEnd, JobReport, Phase
from stado.core.spec import Spec, make_request
from stado.core.states import Reason, State, Verdict
from stado.jobs.finding import find_job
from stado.jobs.host_orders import close_host
from stado.jobs.submit import submit
from tests.cli.conftest import USER, Program, World, make_world, report
from tests.hostile.poison import PAYLOADS, plant
from tests.hostile.search import examples
from tests.hostile.test_names import NASTY

EVIL = "\x1b[2J\x1b]0;owned\x07\rfake\u202egnp\u2066\x9b31m\x00\x7f\n$(reboot)"
"""Clears screens, sets titles, turns text around."""

payloads = pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS.keys())
typed = st.sampled_from([*NASTY, EVIL, "-1", "1e999", "nan", "inf", "9" * 400, "--", "-"]).map(
    lambda text: text.replace("\0", "")
) | st.text(st.characters(exclude_characters="\0"), max_size=20)
"""An argument holds no NUL: the kernel ends it there."""


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name in [name for name in os.environ if name.startswith("STADO_")]:
        monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()
    values = {"HOME": str(tmp_path / "home"), "USER": USER, "STADO_STORE": str(tmp_path / "store")}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    return dict(os.environ)


@pytest.fixture
def stado(environment: dict[str, str]) -> Program:
    return Program(environment)


@pytest.fixture
def shop(environment: dict[str, str]) -> World:
    return make_world(Path(environment["STADO_STORE"]))


def assert_told(result: Result) -> None:
    """No mistake of ours, and nothing that drives a terminal."""
    assert result.exit_code in (exits.OK, exits.FAILED, exits.REFUSED, exits.UNKNOWN), result.stderr
    assert_printable(result.stdout)
    assert_printable(result.stderr)
    if result.exit_code in (exits.REFUSED, exits.UNKNOWN):
        assert result.stderr.startswith("stado: ")


def assert_printable(text: str) -> None:
    assert text.replace("\n", "").isprintable(), text


# What is typed


@examples(60)
@given(st.lists(typed, max_size=3), typed, st.binary(max_size=40))
def test_any_arguments(
    stado: Program, shop: World, words: list[str], name: str, data: bytes
) -> None:
    assert_told(stado("submit", "--run-id", name, *words))
    assert_told(stado("submit", f"--run-id={name}", "--batch", "-", stdin=data))


OPTIONS = ("--priority", "--cpu", "--memory-gb", "--verify", "--host-dir", "--env", "--deadline-at")


@examples(100)
@given(st.sampled_from([*OPTIONS, "--max-lease-losses", "--batch"]), typed)
def test_any_value_of_an_option(stado: Program, shop: World, option: str, value: str) -> None:
    assert_told(stado("submit", "--run-id", "run", f"{option}={value}", "true"))


@examples(60)
@given(
    st.sampled_from(
        [
            ["status"],
            ["job", "show"],
            ["job", "why"],
            ["job", "logs"],
            ["job", "rerun"],
            ["logs"],
            ["cancel", "--no-wait"],
            ["results"],
        ]
    ),
    typed,
)
def test_any_name_of_a_job(stado: Program, shop: World, command: list[str], name: str) -> None:
    where = [str(shop.path.parent / "results")] if command == ["results"] else []
    result = stado(*command, "--", name, *where)
    assert_told(result)
    assert not (shop.path.parent / "results").exists()


@pytest.mark.parametrize("name", ["..", "../x", ".x", "~x", "%2e", "!"])
def test_a_name_that_could_be_a_path_is_an_unknown_job(
    stado: Program, shop: World, name: str
) -> None:
    result = stado("job", "show", "--", name)
    assert result.exit_code == exits.REFUSED
    assert "there is no job" in result.stderr


@pytest.mark.parametrize("value", ["A=B=C", "unknown_fields=1", "A=", "schema=2", "A=\u202e"])
def test_variables_of_any_name_and_value_arrive(stado: Program, shop: World, value: str) -> None:
    job = stado.ok("submit", "--run-id", "run", "--env", value, "true")
    assert stado.ok("submit", "--run-id", "run", "--env", value, "true") == job
    found = find_job(shop.repo, job)
    assert found is not None
    name, _, content = value.partition("=")
    assert found.record.spec.environment == {name: content}
    assert name in stado.ok("job", "show", job)


@examples(60)
@given(st.binary(max_size=300))
def test_any_batch_file(stado: Program, shop: World, data: bytes) -> None:
    file = shop.path.parent / "batch"
    file.write_bytes(data)
    before = len(list(shop.path.glob("queue/*")))
    result = stado("submit", "--run-id", f"run-{before}-{len(data)}", "--batch", str(file))
    assert_told(result)
    if result.exit_code == exits.REFUSED:
        assert len(list(shop.path.glob("queue/*"))) == before


# What lies in the store


@payloads
def test_every_command_works_for_healthy_jobs_among_nonsense(
    stado: Program, shop: World, payload: bytes
) -> None:
    done = stado.ok("submit", "--run-id", "done", "true")
    shop.log(done, b"hello\n")
    shop.complete(done)
    runs = stado.ok("submit", "--run-id", "runs", "true")
    shop.beat(shop.claim(runs), Phase.RUNNING)
    waits = stado.ok("submit", "--run-id", "waits", "true")
    report(shop, "healthy")

    def put(key: str, data: bytes) -> None:
        path = shop.path / key
        if not any(parent.is_file() for parent in path.parents):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    plant(put, payload, beside=[runs, waits])
    put(keys.COORDINATOR_LEASE, payload)
    listed = stado("status")
    assert_told(listed)
    for job, state in ((done, "completed"), (runs, "running"), (waits, "queued")):
        assert any(line.startswith(job) and state in line for line in listed.stdout.splitlines())
    assert {job["job_id"] for job in stado.json("status")["jobs"]} >= {done, runs, waits}
    assert "healthy" in stado.ok("hosts")
    assert "completed" in stado.ok("job", "show", done)
    assert "queued" in stado.ok("job", "show", waits)
    assert stado.ok("job", "why", waits)
    assert stado.ok("logs", done) == "hello"
    target = shop.path.parent / "results"
    assert stado.ok("results", done, str(target)) == str(target)
    assert (target / "log.txt").read_bytes() == b"hello\n"
    assert waits in stado.ok("status", "last")
    told = stado("doctor")
    assert told.exit_code == exits.FAILED
    assert_told(told)
    assert "unreadable" in told.stdout + told.stderr
    stado.ok("queue", "pause")
    stado.ok("queue", "resume")
    assert stado("cancel", waits).exit_code == exits.OK
    assert find_job(shop.repo, waits).state is State.CANCELLED  # type: ignore[union-attr]
    assert_told(stado("cancel", "--no-wait", runs))
    assert stado.ok("submit", "--run-id", "more", "true")


@pytest.mark.parametrize("payload", [b"", PAYLOADS["brackets"], PAYLOADS["a newer schema"]])
@pytest.mark.parametrize(
    "command",
    [
        ["status"],
        ["job", "show"],
        ["job", "why"],
        ["logs"],
        ["cancel", "--no-wait"],
        ["job", "rerun"],
    ],
    ids=" ".join,
)
def test_a_job_whose_own_objects_are_nonsense_is_told(
    stado: Program, shop: World, payload: bytes, command: list[str]
) -> None:
    job = stado.ok("submit", "--run-id", "run", "true")
    shop.claim(job)
    for key in (keys.record(State.RUNNING, job), keys.heartbeat(job), keys.asks(job, 1)):
        (shop.path / key).parent.mkdir(parents=True, exist_ok=True)
        (shop.path / key).write_bytes(payload)
    assert_told(stado(*command, job))


@pytest.mark.parametrize("seconds", [0, -5, 1e300, "x"])
def test_a_deployment_that_nobody_can_live_by_is_refused(
    stado: Program, shop: World, seconds: object
) -> None:
    path = shop.path / keys.DEPLOYMENT
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "lease_seconds": seconds}))
    result = stado("status")
    assert result.exit_code == exits.UNKNOWN
    assert "lease_seconds" in result.stderr


# What reaches a terminal


def test_nothing_that_a_store_holds_drives_a_terminal(stado: Program, shop: World) -> None:
    shared = Spec(command="", verify=f"v {EVIL}".replace("\0", ""), host_dir="/x\x1b[2J")
    evil = EVIL.replace("\0", "")
    request = make_request([f"echo {evil}", f"again {evil}"], shared, batch=True)
    batch = submit(shop.repo, run_id="run", request=request, submitter=f"u{evil}")
    first, second = batch.job_ids
    claimed = shop.claim(first)
    shop.beat(claimed, Phase.RUNNING, trouble=f"trouble {EVIL}", by=EVIL)
    shop.end(claimed, Verdict.FAILED, reason=Reason.JOB_FAILED, detail=f"detail {EVIL}")
    shop.beat(shop.claim(second), Phase.STOPPING, trouble=f"trouble {EVIL}", by=EVIL)
    for number, changes in enumerate(hostile_reports(shop)):
        report(shop, f"c{number}{EVIL}", **changes)
    shop.repo.store.put(keys.queue_mark(0, paused=True), EVIL.encode())
    commands = [
        ["status"],
        ["status", "run"],
        ["hosts"],
        *(["hosts", f"c{number}{EVIL}"] for number in range(len(hostile_reports(shop)))),
        ["job", "show", first],
        ["job", "show", second],
        ["job", "why", first],
        ["job", "why", second],
        ["doctor"],
        ["queue", "resume"],
        ["job", "rerun", first],
        ["cancel", "--no-wait", second],
    ]
    for command in commands:
        for options in ([], ["--json"]):
            result = stado(*command, *options)
            assert_printable(result.stdout)
            assert_printable(result.stderr)
            assert result.exit_code != exits.INTERNAL, (command, result.stderr)


def hostile_reports(shop: World) -> list[dict[str, object]]:
    return [
        {"host": EVIL, "version": EVIL, "contains_by": EVIL, "limits_memory_by": EVIL},
        {"runs_images_by": EVIL},
        {"hindrance": Hindrance(code=EVIL, detail=EVIL, since=shop.repo.now())},
        {"draining": True, "host": EVIL},
        {"recent_ends": [evil_end(shop)], "jobs": [JobReport(job_id=EVIL, epoch=1, signs=1)]},
        {"age_seconds": 10**6, "host": EVIL},
    ]


def evil_end(shop: World) -> JobEnd:
    now = shop.repo.now()
    return JobEnd(job_id="a" * 16, user=EVIL, verdict=EVIL, reason=EVIL, at=now)


@pytest.mark.parametrize(
    "instant",
    ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00Z"],
)
def test_instants_at_the_ends_of_the_calendar(stado: Program, shop: World, instant: str) -> None:
    job = stado.ok("submit", "--run-id", "run", "true")
    ended = stado.ok("submit", "--run-id", "ended", "true")
    shop.fail(ended, 1)
    now = shop.repo.now()
    odd = JobEnd(job_id="a" * 16, verdict="failed", at=now)
    runs = JobReport(job_id="a" * 16, epoch=1, signs=1, began_at=now)
    claim = JobClaim(job_id="a" * 16, at=now)
    report(shop, "odd", recent_ends=[odd], jobs=[runs], last_claim=claim)
    close_host(shop.repo, "odd", HostOrder.DRAIN, by="ada", reason=None, deadline_seconds=60)
    for path in [path for path in shop.path.rglob("*") if path.is_file()]:
        if path.name == "stado.json":
            continue
        text = path.read_bytes()
        if text.startswith(b"{"):
            path.write_text(json.dumps(_with_instants(json.loads(text), instant)))
    for command in (
        ["status"],
        ["hosts"],
        ["hosts", "odd"],
        ["job", "show", job],
        ["job", "why", job],
        ["job", "show", ended],
        ["job", "rerun", ended],
        ["doctor"],
        ["results", ended, str(shop.path.parent / "results")],
        ["logs", ended],
    ):
        assert_told(stado(*command))
        if command[0] not in ("logs", "results"):
            assert_told(stado(*command, "--json"))


def _with_instants(value: object, instant: str) -> object:
    if isinstance(value, dict):
        return {
            name: instant
            if name.endswith("_at") or name in ("at", "since")
            else _with_instants(content, instant)
            for name, content in value.items()
        }
    return [_with_instants(item, instant) for item in value] if isinstance(value, list) else value


def test_amounts_at_their_ends(stado: Program, shop: World) -> None:
    stado.ok("submit", "--run-id", "run", "--cpu", "999999", "--memory-gb", "0.0001", "true")
    for number, amount in enumerate((1e9, -1e9, 0.0, 1e-300)):
        amounts = {"cpu_total": amount, "cpu_free": amount, "disk_free_gb": amount}
        report(shop, f"c{number}", **amounts, memory_total_gb=amount, memory_free_gb=amount)
    for command in (["status"], ["hosts"], ["job", "why", "last"], ["doctor"]):
        assert_told(stado(*command))
