"""Making a store, checking it, pausing its queue, and working on it."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from stado.cli.proving import proved
from stado.cli.store_checks import clock_finding
from stado.composition import live_machine
from stado.core import keys
from stado.core.records import AcceleratorReport, Capacity, CoordinatorLease, Hindrance, Phase
from stado.core.states import State
from stado.errors import Misconfigured
from stado.storage.memory import MemoryStore
from stado.storage.port import Version
from tests.cli.conftest import Program, World, report, run_each
from tests.servers.catalogue import SERVERS

# Making one


def test_init_makes_a_folder_a_store_and_says_how_to_name_it(
    stado: Program, tmp_path: Path
) -> None:
    path = tmp_path / "a new/folder"
    result = stado("init", str(path), "--lease-seconds", "30")
    assert result.exit_code == 0
    assert result.stdout == f"export STADO_STORE={shlex.quote(str(path))}\n"
    assert f"{path} is a new stado store (lease 30 s)" in result.stderr
    assert "stado up" in result.stderr
    assert "stado submit --run-id" in result.stderr
    assert stado.json("status", "--store", str(path))["jobs"] == []
    assert not any((path / keys.PROOF).glob("*"))


def test_init_twice_changes_nothing(stado: Program, tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    first = stado.json("init", path, "--lease-seconds", "30")
    second = stado.json("init", path)
    assert (first["created"], second["created"]) == (True, False)
    assert first["deployment_id"] == second["deployment_id"]
    assert second["lease_seconds"] == 30
    assert "is a stado store already" in stado("init", path, "--lease-seconds", "30").stderr
    assert "with a lease of 30 s, and stays so" in stado.refused(
        "init", path, "--lease-seconds", "60"
    )


@pytest.mark.parametrize("lease", ["0", "-1", "nan", "1e9"])
def test_an_impossible_lease_is_refused_and_nothing_is_made(
    stado: Program, tmp_path: Path, lease: str
) -> None:
    path = tmp_path / "store"
    assert "is not possible" in stado.refused("init", str(path), "--lease-seconds", lease)
    assert not path.exists()


def test_a_file_cannot_become_a_store(stado: Program, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    result = stado("init", str(tmp_path / "file"))
    assert result.exit_code == 2
    assert f"{tmp_path / 'file'}: there is a file of this name: name a directory" in result.stderr
    assert (tmp_path / "file").read_text() == "mine"


class CarelessStore(MemoryStore):
    """Accepts the condition of a create, and ignores it: as some servers do."""

    def create(self, key: str, data: bytes) -> Version:
        return self.put(key, data)


def test_a_store_that_ignores_conditions_is_refused_by_their_names() -> None:
    machine = live_machine()
    with pytest.raises(Misconfigured, match=r"does not honour create-if-absent \(If-None-Match"):
        proved(CarelessStore(machine.clock, machine.tasks), machine)


def test_a_server_that_ignores_conditions_stays_as_it_was(stado: Program) -> None:
    pytest.importorskip("nanio")
    with SERVERS["nanio"]() as server:
        server.make_bucket("bucket")
        stado_there = ("--store", "s3://bucket/prefix", "--endpoint", server.endpoint)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in server.environment.items():
                patch.setenv(name, value)
            sentence = stado.refused("init", *stado_there)
            assert "does not honour create-if-absent" in sentence
            assert "is not a stado store yet" in stado.refused("status", *stado_there)


# Checking it


def lead(world: World) -> None:
    lease = CoordinatorLease(
        token="t", holder="coordinator@box", counter=1, at=world.repo.now(), lease_seconds=60
    )
    world.repo.store.put(keys.COORDINATOR_LEASE, lease.encode())


def findings(stado: Program) -> dict[str, list[str]]:
    """What is to be done, by check."""
    found: dict[str, list[str]] = {}
    for finding in stado.json("doctor")["findings"]:
        if not finding["ok"]:
            found.setdefault(finding["check"], []).append(finding["text"])
    return found


def test_a_healthy_store_is_one_line_and_0(stado: Program, world: World) -> None:
    report(world, "local@box")
    lead(world)
    result = stado("doctor")
    assert result.exit_code == 0, result.stdout
    (line,) = result.stdout.splitlines()
    assert line.startswith(f"all is well: {world.path} answers (lease 120 s); 1 host at work; ")
    assert "coordinator@box is at work" in line
    assert line.endswith("the queue is open")
    told = {finding["check"]: finding["text"] for finding in stado.json("doctor")["findings"]}
    assert "the store honours every condition" in told["conditions"]
    assert told["clock"] == "this machine's clock agrees with the store's"
    assert not any((world.path / keys.PROOF).glob("*"))


def test_each_finding_has_a_remedy_and_the_exit_code_is_1(stado: Program, world: World) -> None:
    """R208, A19"""
    job_id = stado.ok("submit", "--run-id", "x", "run")
    (world.path / keys.record(State.QUEUED, job_id)).write_bytes(b"\xff")
    stado.ok("queue", "pause")
    report(world, "gone@box", age_seconds=5 * 3600)
    report(world, "left@box", stopped=True)
    result = stado("doctor")
    assert result.exit_code == 1
    assert result.stdout.count("FIX") == result.stdout.count("-> ") == 5
    assert "4 other checks are well" in result.stderr
    found = findings(stado)
    assert f"queue/{job_id}.json is unreadable" in found["records"][0]
    assert found["agents"][0] == "no agent is at work: no job starts"
    assert found["agents"][1].startswith("agent gone@box on box is stale: its last report is ")
    assert found["coordinator"] == ["no coordinator has worked here"]
    assert found["queue"][0].startswith("the queue is paused by ada for ")


def test_a_hindered_host_is_told_with_what_hinders_it(stado: Program, world: World) -> None:
    """A78: once, whatever else comes of it, and not as if no agent were there."""
    hindrance = Hindrance(code="disk_full", detail="free 3 GiB below /work", since=world.repo.now())
    report(world, "full@box", hindrance=hindrance)
    lead(world)
    stado.ok("submit", "--run-id", "x", "run")
    ((check, (text,)),) = findings(stado).items()
    assert check == "agents"
    assert text.startswith("agent full@box on box takes no jobs: disk full for ")
    assert text.endswith(": free 3 GiB below /work")


def test_what_ails_of_a_host_is_told(stado: Program, world: World) -> None:
    lost = AcceleratorReport(
        uuid="GPU-1",
        kind="t4",
        index=1,
        vram_total_mib=0,
        vram_used_mib=0,
        vram_free_mib=0,
        ailment="it has fallen off the bus (GPU is lost): reboot the host",
    )
    report(world, "sick@box", accelerators=[lost])
    report(world, "gone@box", accelerators=[lost], stopped=True)
    lead(world)
    ((check, (text,)),) = findings(stado).items()
    assert check == "accelerators"
    assert text == f"agent sick@box on box: GPU 1 is not given to jobs: {lost.ailment}"


def test_what_a_holder_cannot_get_done_is_told(stado: Program, world: World) -> None:
    """A24"""
    job_id = stado.ok("submit", "--run-id", "x", "run")
    stopping = world.claim(job_id)
    stado.ok("cancel", job_id, "--no-wait")
    world.beat(stopping, Phase.STOPPING, trouble="process 17 does not end: tried 4 times")
    (text,) = findings(stado)["jobs"]
    assert text == (
        f"job {job_id} on local@box is cancelling: process 17 does not end: tried 4 times"
    )


@pytest.mark.parametrize(("hours", "told"), [(0.5, False), (2, True)])
def test_what_takes_long_at_its_end_is_told(
    stado: Program, world: World, hours: float, told: bool
) -> None:
    """A66: also when each of its uploads gets on."""
    job_id = stado.ok("submit", "--run-id", "x", "run")
    since = world.repo.now() - timedelta(hours=hours)
    world.beat(world.claim(job_id), Phase.UPLOADING, phase_since=since)
    expected = [f"job {job_id} on local@box is uploading for 2h"] if told else []
    assert findings(stado).get("jobs", []) == expected


def test_the_clock_of_a_host_is_told_once(stado: Program, world: World) -> None:
    """A37: however many agents it has; one that is a little off is not."""
    now = world.repo.now()
    for name, hours in (("a", 2.0), ("b", 2.0), ("c", 0.001)):
        report(world, name, host=f"box-{hours}", host_at=now + timedelta(hours=hours))
    (text,) = findings(stado)["clock"]
    assert re.fullmatch(r"the clock of host box-2\.0 is (1h 59m|2h) ahead of the store's", text)


def test_a_silent_holder_is_told_with_the_job(stado: Program, quick_world: World) -> None:
    """A34: a stale host, and what it was running."""
    job_id = stado.ok("submit", "--run-id", "x", "run")
    claimed = quick_world.claim(job_id)
    report(quick_world, "local@box", broadcast_seconds=0.05)
    quick_world.beat(claimed, Phase.RUNNING)
    end = time.monotonic() + 20
    while "jobs" not in (found := findings(stado)):
        assert time.monotonic() < end
    assert found["jobs"][0].startswith(f"job {job_id} on local@box has given no sign of life for ")
    (stale,) = [text for text in found["agents"] if "stale" in text]
    assert stale.endswith(f"old; 1 job is running under its name: {job_id}")


def test_jobs_that_cannot_start_are_told_with_the_remedy(stado: Program, world: World) -> None:
    """R208, A78"""
    report(world, "local@box")
    job_id = stado.ok("submit", "--run-id", "x", "--cpu", "64", "run")
    (text,) = findings(stado)["queue"]
    assert text.startswith(f"1 job cannot start, such as {job_id}: it needs 64 cores")
    assert f"`stado job why {job_id}`" in stado("doctor").stdout


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (7200, "this machine's clock is 2h ahead of the store's"),
        (-7200, "this machine's clock is 2h behind the store's"),
    ],
)
def test_a_clock_that_is_off_is_told(seconds: float, text: str) -> None:
    """A37: of this machine; no job is judged by it."""
    store = datetime(2026, 1, 1, tzinfo=UTC)
    finding = clock_finding(store + timedelta(seconds=seconds), store)
    assert finding.text == text
    assert finding.remedy is not None


def test_a_store_that_is_none_is_the_finding(stado: Program, environment: dict[str, str]) -> None:
    result = stado("doctor")
    assert result.exit_code == 1
    path = environment["STADO_STORE"]
    first, remedy = result.stdout.splitlines()
    assert first.startswith(
        f"FIX  store        there is no store at {path}: check the path or run "
    )
    assert remedy.endswith("-> `stado config list` shows what names it; --store names another")


def test_stray_names_stop_neither_lists_nor_the_check_up_which_names_what_it_sees(
    stado: Program, world: World
) -> None:
    job_id = stado.ok("submit", "--run-id", "x", "run")
    record = (world.path / keys.record(State.QUEUED, job_id)).read_bytes()
    (world.path / keys.CAPACITY).mkdir()
    for stray in ("queue/a copy.json", "runs/a copy.json", "capacity/host (copy).json"):
        (world.path / stray).write_bytes(record)
    (world.path / f"queue/{job_id}.old.json").write_bytes(record)
    assert [job["job_id"] for job in stado.json("status")["jobs"]] == [job_id]
    assert findings(stado)["records"] == [
        f"queue/{job_id}.old.json is unreadable: its name is no job's: remove it"
    ]


# Pausing its queue


def test_pausing_and_resuming_answer_in_words_and_in_json(stado: Program, world: World) -> None:
    """R209"""
    assert "no job starts until `stado queue resume`" in stado("queue", "pause").stderr
    assert stado.json("queue", "pause")["queue_paused"] is True
    assert "jobs start again" in stado("queue", "resume").stderr
    assert stado.json("queue", "resume")["queue_paused"] is False


# Working on it


def start_up(stado: Program, tmp_path: Path) -> subprocess.Popen[bytes]:
    return stado.start(
        *("up", "--consumer-id", "local@test", "--work-dir", str(tmp_path / "work")),
        start_new_session=True,
    )


def wait_for_agent(world: World) -> None:
    for _ in range(300):
        if world.repo.store.list(keys.CAPACITY):
            return
        time.sleep(0.1)
    raise AssertionError("no agent came")


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_runs_jobs_until_it_is_asked_to_stop(
    stado: Program, world: World, tmp_path: Path, number: int
) -> None:
    process = start_up(stado, tmp_path)
    try:
        wait_for_agent(world)
        assert stado("submit", "--run-id", "x", "exit 5", "--wait").exit_code == 5
        process.send_signal(number)
        ((code, _, err),) = run_each([process])
    finally:
        process.kill()
    assert code == 0, err.decode()
    assert b"Traceback" not in err
    (entry,) = world.repo.store.list(keys.CAPACITY)
    assert world.repo.read(Capacity, entry.key).value.stopped


def test_when_one_of_the_two_dies_up_says_so_and_stops_the_other(
    stado: Program, world: World, tmp_path: Path
) -> None:
    process = start_up(stado, tmp_path)
    try:
        wait_for_agent(world)
        children = children_of(process.pid)
        os.kill(children[0], signal.SIGKILL)
        ((code, _, err),) = run_each([process])
    finally:
        process.kill()
    assert code == 1
    assert b"ended by itself (signal 9)" in err
    assert not any(Path(f"/proc/{child}").exists() for child in children)


def test_up_on_no_store_starts_nothing(stado: Program, environment: dict[str, str]) -> None:
    assert "there is no store at" in stado.refused("up")


@pytest.mark.parametrize("command", [("agent", "run"), ("up",)])
def test_a_work_folder_that_cannot_be_made_is_refused(
    stado: Program, world: World, command: tuple[str, ...]
) -> None:
    process = stado.start(*command, "--work-dir", "/proc/x", start_new_session=True)
    ((code, _, err),) = run_each([process])
    assert code == 2, err.decode()
    sentence = "cannot be made: No such file or directory: name another one with --work-dir"
    assert sentence in err.decode()


def test_the_client_of_an_engine_that_is_named_has_to_be_there(
    stado: Program, world: World
) -> None:
    process = stado.start("agent", "run", "--docker", "/does/not/exist", start_new_session=True)
    ((code, _, err),) = run_each([process])
    assert code == 2, err.decode()
    sentence = "--docker '/does/not/exist' is no program that can be executed here"
    assert sentence in " ".join(err.decode().split())


@pytest.mark.parametrize("option", ["--cpu=0", "--cpu=many", "--memory-gb=-1"])
def test_a_wrong_option_of_up_is_refused_before_anything_starts(
    stado: Program, world: World, option: str
) -> None:
    assert f"Invalid value for '{option.partition('=')[0]}'" in stado.refused("up", option)


def test_a_second_up_on_a_host_is_refused_and_the_first_goes_on(
    stado: Program, world: World, tmp_path: Path
) -> None:
    first = start_up(stado, tmp_path)
    try:
        wait_for_agent(world)
        ((code, _, err),) = run_each([start_up(stado, tmp_path)])
        assert first.poll() is None
        first.send_signal(signal.SIGTERM)
        run_each([first])
    finally:
        first.kill()
    assert code == 2, err.decode()
    assert "runs on this host already" in err.decode()
    assert "started" not in err.decode()


def test_the_two_leave_when_up_was_killed(stado: Program, world: World, tmp_path: Path) -> None:
    process = start_up(stado, tmp_path)
    wait_for_agent(world)
    children = children_of(process.pid)
    assert len(children) == 2
    process.kill()
    try:
        # Its output is at its end when nobody can write to it any more.
        process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        for child in children:
            os.kill(child, signal.SIGKILL)
        raise
    (entry,) = world.repo.store.list(keys.CAPACITY)
    assert world.repo.read(Capacity, entry.key).value.stopped


def test_up_after_one_that_was_killed_says_how_to_end_the_agent_that_is_left(
    stado: Program, world: World, tmp_path: Path
) -> None:
    """It takes no lead that it could not keep; what it says to do ends no job."""
    gate = tmp_path / "gate"
    job = stado.ok("submit", "--run-id", "x", f"while [ ! -e {gate} ]; do sleep 0.05; done")
    first = start_up(stado, tmp_path)
    _wait_until(lambda: world.repo.find_record(State.RUNNING, job) is not None)
    first.kill()
    first.wait()
    left: str | None = None
    try:
        lead = world.repo.read(CoordinatorLease, keys.COORDINATOR_LEASE).value.token
        ((code, _, err),) = run_each([start_up(stado, tmp_path)])
        told = " ".join(err.decode().split())
        assert code == 2, told
        found = re.search(r"\(process (\d+)\)\. `kill \1` ends it once its jobs have ended", told)
        assert found is not None, told
        left = found[1]
        assert world.repo.read(CoordinatorLease, keys.COORDINATOR_LEASE).value.token == lead
        os.kill(int(left), signal.SIGTERM)
        _wait_until(lambda: not Path(f"/proc/{found[1]}").exists())
        next_one = start_up(stado, tmp_path)
        try:
            gate.touch()
            _wait_until(lambda: world.repo.find_record(State.COMPLETED, job) is not None)
        finally:
            next_one.send_signal(signal.SIGTERM)
            run_each([next_one])
    finally:
        gate.touch()
        if left is not None and Path(f"/proc/{left}").exists():
            os.kill(int(left), signal.SIGKILL)


def _wait_until(holds: Callable[[], bool]) -> None:
    for _ in range(600):
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError("it has not come")
